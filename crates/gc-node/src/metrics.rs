//! Metrics of the node agent: upstream's, and our own (spec `node-gc.md`, section 17.4).

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use gc_metrics::Catalogue;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Reason why an image was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "the names are the values of a label")]
pub(crate) enum ImageReason {
    /// Unused for too long.
    #[default]
    age,
    /// Removed because space was needed.
    space,
    /// Named by a policy. (Upstream has none.)
    policy,
}

/// Label of the count of removed images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ImageLabel {
    /// Reason of the removal.
    pub reason: ImageReason,
}

/// Label of a collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CollectorLabel {
    /// `images` or `containers`.
    pub collector: &'static str,
}

/// Label of the type of a removed item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindLabel {
    /// `container`, `sandbox`, `log_directory`, `log_link`, `ingest`, `lease`, `snapshot` or `checkpoint`.
    pub kind: &'static str,
}

/// All metrics.
#[derive(Clone, Default)]
pub struct Metrics {
    /// Number of removed images, under upstream's name.
    pub(crate) images_collected: Family<ImageLabel, Counter>,
    /// Number of removed containers, sandboxes, log directories and links.
    pub(crate) removed: Family<KindLabel, Counter>,
    /// Freed bytes, as measured.
    pub(crate) freed_bytes: Counter,
    /// Number of removals that failed.
    pub(crate) failures: Family<CollectorLabel, Counter>,
    /// Number of known images and containers.
    pub(crate) known: Family<CollectorLabel, Gauge>,
    /// 1 if every pod of the node is known, 0 if only limits apply.
    pub(crate) pods_known: Gauge,
    /// Number of uses from events beyond the bound; the next listing shows them.
    pub(crate) dropped_uses: Counter,
    operations: Family<OperationLabel, Counter>,
    operation_errors: Family<OperationLabel, Counter>,
    operation_durations: OperationDurations,
    /// Unix time of the last pass that succeeded.
    pub(crate) last_success: Family<CollectorLabel, Gauge<f64, AtomicU64>>,
    durations: Durations,
}

/// Label of a call to the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation_type: &'static str,
}

#[derive(Clone)]
struct OperationDurations(Family<OperationLabel, Histogram>);

impl Default for OperationDurations {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.005, 2.5, 14))))
    }
}

/// Returns upstream's name for a call, whether or not its response is streamed.
fn operation_type(method: &str) -> &'static str {
    match method {
        "Version" => "version",
        "Status" => "status",
        "ListImages" | "StreamImages" => "list_images",
        "ImageStatus" => "image_status",
        "RemoveImage" => "remove_image",
        "ImageFsInfo" => "image_fs_info",
        "ListContainers" | "StreamContainers" => "list_containers",
        "ContainerStatus" => "container_status",
        "StopContainer" => "stop_container",
        "RemoveContainer" => "remove_container",
        "ListPodSandbox" | "StreamPodSandboxes" => "list_podsandbox",
        "StopPodSandbox" => "stop_podsandbox",
        "RemovePodSandbox" => "remove_podsandbox",
        _ => "other",
    }
}

#[derive(Clone)]
struct Durations(Family<CollectorLabel, Histogram>);

impl Default for Durations {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.005, 2.5, 14))))
    }
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(catalogue: &mut Catalogue) -> Self {
        let metrics = Self::default();
        let m = metrics.clone();
        catalogue.register(
            "kubelet_image_garbage_collected",
            "Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
            m.images_collected,
        );
        catalogue.register(
            "kubegc_node_removed",
            "Containers, sandboxes, log directories and links removed",
            m.removed,
        );
        catalogue.register(
            "kubegc_node_freed_bytes",
            "Bytes freed on image filesystems, as measured",
            m.freed_bytes,
        );
        catalogue.register("kubegc_node_removal_failures", "Removals that failed", m.failures);
        catalogue.register("kubegc_node_known", "Images and containers listed by the runtime", m.known);
        catalogue.register(
            "kubegc_node_last_success_timestamp_seconds",
            "When the last pass succeeded",
            m.last_success,
        );
        catalogue.register("kubegc_node_pass_duration_seconds", "Duration of passes", m.durations.0);
        catalogue.register(
            "kubegc_node_pods_known",
            "Whether every pod of the node is known (1), or only limits apply (0)",
            m.pods_known,
        );
        catalogue.register(
            "kubegc_node_dropped_uses",
            "Uses of images from events beyond the bound; the next listing shows them",
            m.dropped_uses,
        );
        catalogue.register(
            "kubelet_runtime_operations",
            "Cumulative number of runtime operations by operation type.",
            m.operations,
        );
        catalogue.register(
            "kubelet_runtime_operations_errors",
            "Cumulative number of runtime operation errors by operation type.",
            m.operation_errors,
        );
        catalogue.register(
            "kubelet_runtime_operations_duration_seconds",
            "Duration in seconds of runtime operations. Broken down by operation type.",
            m.operation_durations.0,
        );
        metrics
    }

    /// Records the end of a call to the runtime.
    pub fn operation(&self, method: &str, took: Duration, failed: bool) {
        let label = OperationLabel { operation_type: operation_type(method) };
        self.operations.get_or_create(&label).inc();
        if failed {
            self.operation_errors.get_or_create(&label).inc();
        }
        self.operation_durations.0.get_or_create(&label).observe(took.as_secs_f64());
    }

    /// Records the end of a pass.
    pub(crate) fn pass(&self, collector: &'static str, seconds: f64, succeeded: bool) {
        let label = CollectorLabel { collector };
        self.durations.0.get_or_create(&label).observe(seconds);
        if succeeded {
            let moment = jiff::Timestamp::now().as_duration().as_secs_f64();
            self.last_success.get_or_create(&label).set(moment);
        }
    }
}
