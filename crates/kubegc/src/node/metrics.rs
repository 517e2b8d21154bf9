//! Metrics of the node agent: upstream's names, and ours (spec `node-gc.md`, section 17.4).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Why an image went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "the names are the values of a label")]
pub(super) enum ImageReason {
    /// Unused for too long.
    age,
    /// Space was needed.
    space,
}

/// Label of the count of removed images.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ImageLabel {
    /// Why.
    pub reason: ImageReason,
}

/// Which collector.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CollectorLabel {
    /// `images` or `containers`.
    pub collector: &'static str,
}

/// What was removed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct KindLabel {
    /// `container`, `sandbox`, `log_directory` or `log_link`.
    pub kind: &'static str,
}

/// All of them.
#[derive(Clone, Default)]
pub(super) struct Metrics {
    /// Upstream's.
    pub images_collected: Family<ImageLabel, Counter>,
    /// Removed containers, sandboxes, log directories and links.
    pub removed: Family<KindLabel, Counter>,
    /// Measured bytes.
    pub freed_bytes: Counter,
    /// Removals that failed.
    pub failures: Family<CollectorLabel, Counter>,
    /// Images and containers known.
    pub known: Family<CollectorLabel, Gauge>,
    /// Unix time of the last pass that succeeded.
    pub last_success: Family<CollectorLabel, Gauge<f64, AtomicU64>>,
    durations: Durations,
}

#[derive(Clone)]
struct Durations(Family<CollectorLabel, Histogram>);

impl Default for Durations {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.005, 2.5, 14))))
    }
}

impl Metrics {
    /// Registers them.
    #[must_use]
    pub(super) fn register() -> (Self, Arc<Registry>) {
        let metrics = Self::default();
        let mut registry = Registry::default();
        let m = metrics.clone();
        registry.register(
            "kubelet_image_garbage_collected",
            "Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
            m.images_collected,
        );
        registry.register(
            "kubegc_node_removed",
            "Containers, sandboxes, log directories and links removed",
            m.removed,
        );
        registry.register(
            "kubegc_node_freed_bytes",
            "Bytes freed on image filesystems, as measured",
            m.freed_bytes,
        );
        registry.register("kubegc_node_removal_failures", "Removals that failed", m.failures);
        registry.register("kubegc_node_known", "Images and containers listed by the runtime", m.known);
        registry.register(
            "kubegc_node_last_success_timestamp_seconds",
            "When the last pass succeeded",
            m.last_success,
        );
        registry.register("kubegc_node_pass_duration_seconds", "Duration of passes", m.durations.0);
        (metrics, Arc::new(registry))
    }

    /// Notes the end of a pass.
    pub(super) fn pass(&self, collector: &'static str, seconds: f64, succeeded: bool) {
        let label = CollectorLabel { collector };
        self.durations.0.get_or_create(&label).observe(seconds);
        if succeeded {
            let moment = jiff::Timestamp::now().as_duration().as_secs_f64();
            self.last_success.get_or_create(&label).set(moment);
        }
    }
}
