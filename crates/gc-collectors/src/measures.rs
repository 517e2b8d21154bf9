//! Metrics of the collectors, under upstream's names if it has them (spec `cluster-collectors.md`, 23.3). Metrics are data here;
//! the binary registers and exports them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gc_types::{EventRecord, Reason};

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// Only increases; `_total` is appended to its name.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Seconds, in buckets with these upper bounds.
    Histogram(&'static [f64]),
}

/// One metric.
#[derive(Debug, PartialEq)]
pub struct Metric {
    /// Name; without `_total` for a counter.
    pub name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// Type of the metric.
    pub kind: MetricKind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
}

const OPERATION_BUCKETS: &[f64] =
    &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
const LATENESS_BUCKETS: &[f64] =
    &[0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2];
const CALL_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

macro_rules! metrics {
    ($($(#[doc = $doc:literal])* $constant:ident: $kind:expr, $name:literal, $labels:expr, $help:literal;)*) => {
        $($(#[doc = $doc])* pub static $constant: Metric =
            Metric { name: $name, help: $help, kind: $kind, labels: $labels };)*
        /// All metrics, in the order of output.
        pub static ALL: &[&Metric] = &[$(&$constant),*];
    };
}

metrics! {
    /// Deletions of pods, successful or not.
    POD_DELETIONS: MetricKind::Counter, "pod_gc_collector_force_delete_pods", &["namespace", "reason"],
        "Number of pods that are being forcefully deleted since the Pod GC Controller started.";
    /// Failed deletions of pods.
    POD_DELETION_ERRORS: MetricKind::Counter, "pod_gc_collector_force_delete_pod_errors",
        &["namespace", "reason"],
        "Number of errors encountered when forcefully deleting the pods since the Pod GC Controller started.";
    /// Terminating pods that only a finalizer blocks (BEAT-POD-2).
    PODS_BLOCKED: MetricKind::Gauge, "kubegc_pods_blocked_by_finalizers", &[],
        "Pods that the collector has deleted and that only finalizers block";
    /// Time from a Job's expiry to the response to its deletion.
    JOB_DELETION_LATENESS: MetricKind::Histogram(LATENESS_BUCKETS),
        "ttl_after_finished_controller_job_deletion_duration_seconds", &[],
        "The time it took to delete the job since it became eligible for deletion";
    /// Passes over terminating namespaces.
    NAMESPACE_PASSES: MetricKind::Counter, "kubegc_namespace_passes", &["end"],
        "Passes over the contents of terminating namespaces, by how they ended";
    /// Requests of these passes.
    NAMESPACE_REQUESTS: MetricKind::Counter, "kubegc_namespace_requests", &["verb", "code"],
        "Requests made to empty namespaces, by their answer";
    /// Time from a namespace's deletion to its finalization.
    NAMESPACE_DURATION: MetricKind::Histogram(LATENESS_BUCKETS), "kubegc_namespace_termination_duration_seconds", &[],
        "Time from the deletion of a namespace until it was empty and finalized";
    /// Stale leader election leases.
    LEASES_STALE: MetricKind::Gauge, "kubegc_leases_stale", &["namespace"],
        "Leases of leader elections that are held and were not renewed for a day beyond their duration";
    /// Volumes by plugin.
    VOLUMES: MetricKind::Gauge, "pv_collector_total_pv_count", &["plugin_name", "volume_mode"],
        "Gauge measuring total number of persistent volumes";
    /// Volumes that are bound.
    VOLUMES_BOUND: MetricKind::Gauge, "pv_collector_bound_pv_count", &["storage_class"],
        "Gauge measuring number of persistent volume currently bound";
    /// Volumes that are not bound.
    VOLUMES_UNBOUND: MetricKind::Gauge, "pv_collector_unbound_pv_count", &["storage_class"],
        "Gauge measuring number of persistent volume currently unbound";
    /// Claims that are bound.
    CLAIMS_BOUND: MetricKind::Gauge, "pv_collector_bound_pvc_count",
        &["namespace", "storage_class", "volume_attributes_class"],
        "Gauge measuring number of persistent volume claim currently bound";
    /// Claims that are not bound.
    CLAIMS_UNBOUND: MetricKind::Gauge, "pv_collector_unbound_pvc_count",
        &["namespace", "storage_class", "volume_attributes_class"],
        "Gauge measuring number of persistent volume claim currently unbound";
    /// Time from the first attempt to reclaim a volume until the volume is gone.
    VOLUME_OPERATIONS: MetricKind::Histogram(OPERATION_BUCKETS), "volume_operation_total_seconds",
        &["plugin_name", "operation_name"], "Total volume operation time";
    /// Failed attempts to delete the storage of a volume.
    VOLUME_OPERATION_ERRORS: MetricKind::Counter, "volume_operation_errors", &["plugin_name", "operation_name"],
        "Total volume operation errors";
    /// Attempts to delete the storage of a CSI volume.
    VOLUME_DELETIONS: MetricKind::Counter, "controller_persistentvolume_delete", &["class"],
        "Total number of persistent volumes deleted. Broken down by storage class name.";
    /// Failed attempts of these.
    VOLUME_DELETIONS_FAILED: MetricKind::Counter, "controller_persistentvolume_delete_failed", &["class"],
        "Total number of persistent volume delete failed attempts. Broken down by storage class name.";
    /// Duration of the successful attempts.
    VOLUME_DELETION_DURATION: MetricKind::Histogram(CALL_BUCKETS),
        "controller_persistentvolume_delete_duration_seconds", &["class"],
        "Latency in seconds to delete persistent volumes. Broken down by storage class name.";
    /// Lookups of the machines of nodes, by result.
    NODES_LOOKED_UP: MetricKind::Counter, "kubegc_node_lookups", &["answer"],
        "Machines of nodes looked up, by answer";
    /// Nodes whose machine was not found and that are not deleted yet, including ready ones.
    NODES_MISSING: MetricKind::Gauge, "kubegc_nodes_missing", &[],
        "Nodes whose machine was not found by the last answer: those that are not ready, and ready ones that were looked up";
    /// Policies by state.
    POLICIES: MetricKind::Gauge, "kubegc_retention_policies", &["state"],
        "RetentionPolicies by state: invalid, failing, dry-run, first-look, enforced";
    /// 1 if too many machines are missing to delete any node.
    NODE_BREAKER: MetricKind::Gauge, "kubegc_node_breaker_open", &[],
        "1 while too many machines are missing at once to delete any node";
}

/// A value for a metric: added to a counter or histogram, or the current value of a gauge.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The metric.
    pub metric: &'static Metric,
    /// Values of its labels, in their order.
    pub labels: Vec<Arc<str>>,
    /// The value; seconds for a histogram.
    pub value: f64,
}

/// Maximum number of entries in each part of a report queue; further ones are dropped. The queue is emptied after every decision.
const REPORT_QUEUE_BOUND: usize = 4096;

/// Events and measurements that a collector reports besides its decisions, until they are taken.
#[derive(Debug, Default)]
pub struct ReportQueue {
    events: VecDeque<(EventRecord, Reason)>,
    measurements: VecDeque<Measurement>,
}

impl ReportQueue {
    /// Queues a Kubernetes Event.
    pub fn event(&mut self, note: EventRecord, reason: Reason) {
        if self.events.len() < REPORT_QUEUE_BOUND {
            self.events.push_back((note, reason));
        }
    }

    /// Adds one to a counter.
    pub fn count(&mut self, metric: &'static Metric, labels: Vec<Arc<str>>) {
        self.observe(metric, labels, 1.0);
    }

    /// Queues a value.
    pub fn observe(&mut self, metric: &'static Metric, labels: Vec<Arc<str>>, value: f64) {
        if self.measurements.len() < REPORT_QUEUE_BOUND {
            self.measurements.push_back(Measurement { metric, labels, value });
        }
    }

    pub(crate) fn take_event(&mut self) -> Option<(EventRecord, Reason)> {
        self.events.pop_front()
    }

    pub(crate) fn take_measurement(&mut self) -> Option<Measurement> {
        self.measurements.pop_front()
    }
}

/// Number of objects by labels, updated as objects are added and removed.
#[derive(Debug)]
pub(crate) struct Tally {
    metric: &'static Metric,
    counts: BTreeMap<Vec<Arc<str>>, u32>,
}

impl Tally {
    pub(crate) fn new(metric: &'static Metric) -> Self {
        Self { metric, counts: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, labels: Vec<Arc<str>>) {
        *self.counts.entry(labels).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, labels: &Vec<Arc<str>>) {
        if let Some(count) = self.counts.get_mut(labels) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(labels);
            }
        }
    }

    pub(crate) fn read(&self, into: &mut Vec<Measurement>) {
        into.extend(self.counts.iter().map(|(labels, count)| Measurement {
            metric: self.metric,
            labels: labels.clone(),
            value: f64::from(*count),
        }));
    }
}

/// Returns the value of a gauge without labels.
pub(crate) fn reading(metric: &'static Metric, count: usize) -> Measurement {
    reading_of(metric, Vec::new(), count)
}

/// Returns the value of a gauge with these labels.
#[must_use]
pub fn reading_of(metric: &'static Metric, labels: Vec<Arc<str>>, count: usize) -> Measurement {
    let value = u32::try_from(count).unwrap_or(u32::MAX);
    Measurement { metric, labels, value: f64::from(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_counters_have_no_suffix() {
        let mut names: Vec<_> = ALL.iter().map(|metric| metric.name).collect();
        assert!(
            ALL.iter().all(|metric| metric.kind != MetricKind::Counter || !metric.name.ends_with("_total"))
        );
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_tally_forgets_what_is_gone() {
        let labels = |class: &str| vec![Arc::from(class)];
        let mut tally = Tally::new(&VOLUMES_BOUND);
        tally.add(labels("fast"));
        tally.add(labels("fast"));
        tally.add(labels("slow"));
        tally.remove(&labels("slow"));
        tally.remove(&labels("fast"));
        let mut read = Vec::new();
        tally.read(&mut read);
        let expected = Measurement { metric: &VOLUMES_BOUND, labels: labels("fast"), value: 1.0 };
        assert_eq!(read, [expected]);
    }

    /// What is not taken in time is dropped.
    #[test]
    fn a_queue_of_reports_is_bounded() {
        let mut queue = ReportQueue::default();
        let note = EventRecord {
            about: crate::objects::Kind::Node.key(&"".into(), &"n".into()),
            uid: gc_types::Uid::new("u"),
            severity: gc_types::Severity::Normal,
            reason: "Test",
            message: String::new(),
        };
        let why = crate::engine::reason("a test says so", gc_types::ResourceVersion::UNKNOWN, &[]);
        for _ in 0..REPORT_QUEUE_BOUND + 2 {
            queue.event(note.clone(), why.clone());
            queue.count(&VOLUMES_BOUND, Vec::new());
        }
        assert_eq!(std::iter::from_fn(|| queue.take_event()).count(), REPORT_QUEUE_BOUND);
        assert_eq!(std::iter::from_fn(|| queue.take_measurement()).count(), REPORT_QUEUE_BOUND);
    }
}
