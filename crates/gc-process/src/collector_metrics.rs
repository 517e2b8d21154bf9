//! Metrics of every collector: those of upstream, which the collectors declare themselves, and our own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gc_collectors::engine::CollectorState;
use gc_collectors::measures::{self, Measurement, Metric, MetricKind};
use gc_collectors::permissions::Controller;
use gc_kube::Observer;
use gc_metrics::Catalogue;
use gc_types::{Effect, Outcome, Request};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry;

use crate::journal::{verb, word};

/// Names and values of labels.
type Labels = Vec<(&'static str, String)>;
type Real = Gauge<f64, AtomicU64>;

#[derive(Clone, Copy, Debug)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

#[derive(Debug)]
enum DeclaredMetric {
    Counter(Family<Labels, Counter>),
    Gauge(Family<Labels, Gauge>),
    Histogram(Family<Labels, Histogram, Buckets>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ManagedLabels {
    name: &'static str,
    manager: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EffectLabels {
    controller: &'static str,
    verb: &'static str,
    verdict: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    controller: &'static str,
    reason: &'static str,
    r#type: String,
}

/// All metrics of the collectors. Clones share them.
#[derive(Clone, Debug)]
pub struct CollectorMetrics {
    declared: Arc<BTreeMap<&'static str, DeclaredMetric>>,
    running: Family<ManagedLabels, Gauge>,
    effects: Family<EffectLabels, Counter>,
    events: Family<EventLabels, Counter>,
    decisions: Family<ControllerLabel, Counter>,
    waiting: Family<ControllerLabel, Gauge>,
    overdue: Family<ControllerLabel, Real>,
    synced: Family<ControllerLabel, Gauge>,
}

/// Registers a metric that a collector declares. A metric without labels is shown without braces.
fn declare<M, C>(
    catalogue: &mut Catalogue,
    metric: &Metric,
    family: Family<Labels, M, C>,
) -> Family<Labels, M, C>
where
    M: registry::Metric + TypedMetric + Clone,
    C: MetricConstructor<M> + Clone + std::fmt::Debug + Send + Sync + 'static,
    Family<Labels, M, C>: registry::Metric,
{
    let Metric { name, help, labels, .. } = *metric;
    if metric.labels.is_empty() {
        catalogue.register_with_labels(name, help, labels, family.get_or_create(&Labels::new()).clone());
    } else {
        catalogue.register_with_labels(name, help, labels, family.clone());
    }
    family
}

impl CollectorMetrics {
    /// Registers the metrics.
    pub fn register(catalogue: &mut Catalogue) -> Self {
        let mut declared = BTreeMap::new();
        for metric in measures::ALL {
            let declared_metric = match metric.kind {
                MetricKind::Counter => DeclaredMetric::Counter(declare(catalogue, metric, Family::default())),
                MetricKind::Gauge => DeclaredMetric::Gauge(declare(catalogue, metric, Family::default())),
                MetricKind::Histogram(buckets) => {
                    let family = Family::new_with_constructor(Buckets(buckets));
                    DeclaredMetric::Histogram(declare(catalogue, metric, family))
                }
            };
            declared.insert(metric.name, declared_metric);
        }
        let metrics = Self {
            declared: Arc::new(declared),
            running: Family::default(),
            effects: Family::default(),
            events: Family::default(),
            decisions: Family::default(),
            waiting: Family::default(),
            overdue: Family::default(),
            synced: Family::default(),
        };
        let m = metrics.clone();
        catalogue.register(
            "running_managed_controllers",
            "Indicates where instances of a controller are currently running",
            m.running,
        );
        catalogue.register(
            "kubegc_collector_requests",
            "Requests of collectors, by verdict and outcome",
            m.effects,
        );
        catalogue.register("kubegc_collector_events", "Kubernetes Events queued for writing", m.events);
        catalogue.register("kubegc_collector_decisions", "Decisions about objects", m.decisions);
        catalogue.register(
            "kubegc_collector_waiting",
            "Objects that wait for a decision, now or later",
            m.waiting,
        );
        catalogue.register(
            "kubegc_collector_overdue_seconds",
            "How late the most overdue decision is",
            m.overdue,
        );
        catalogue.register(
            "kubegc_collector_synced",
            "1 once all that the collector watches has been listed",
            m.synced,
        );
        metrics
    }

    /// Returns the observer that updates the metrics for one collector.
    #[must_use]
    pub fn observer(&self, controller: Controller) -> Arc<dyn Observer> {
        let labels = ManagedLabels { name: controller.name(), manager: "kubegc" };
        self.running.get_or_create(&labels).set(1);
        Arc::new(ControllerObserver {
            metrics: self.clone(),
            name: controller.name(),
            reported: Mutex::default(),
        })
    }
}

/// Values that were reported last.
#[derive(Default)]
struct ReportedValues {
    decisions: u64,
    gauges: BTreeSet<(&'static str, Labels)>,
}

struct ControllerObserver {
    metrics: CollectorMetrics,
    name: &'static str,
    reported: Mutex<ReportedValues>,
}

fn labels_of(measurement: &Measurement) -> Labels {
    let values = measurement.labels.iter().map(ToString::to_string);
    measurement.metric.labels.iter().copied().zip(values).collect()
}

/// Rounds a value: counters and gauges are whole numbers.
#[allow(clippy::cast_possible_truncation)] // far below 2^63
fn whole(value: f64) -> i64 {
    value.round() as i64
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Observer for ControllerObserver {
    fn finished(&self, effect: &Effect, outcome: &Outcome, _round_trips: u32, _took: Duration) {
        if let Request::RecordEvent(note) = &effect.request {
            let (reason, r#type) = (note.reason, note.severity.to_string());
            let labels = EventLabels { controller: self.name, reason, r#type };
            self.metrics.events.get_or_create(&labels).inc();
        }
        let (verb, verdict, outcome) = (verb(&effect.request), effect.reason.code(), word(outcome));
        let labels = EffectLabels { controller: self.name, verb, verdict, outcome };
        self.metrics.effects.get_or_create(&labels).inc();
    }

    fn measured(&self, measurement: &Measurement) {
        let labels = labels_of(measurement);
        match self.metrics.declared.get(measurement.metric.name) {
            Some(DeclaredMetric::Counter(family)) => {
                family.get_or_create(&labels).inc_by(whole(measurement.value).unsigned_abs());
            }
            Some(DeclaredMetric::Histogram(family)) => {
                family.get_or_create(&labels).observe(measurement.value);
            }
            Some(DeclaredMetric::Gauge(_)) | None => {}
        }
    }

    fn standing(&self, standing: &CollectorState) {
        let label = ControllerLabel { controller: self.name };
        self.metrics.waiting.get_or_create(&label).set(count(standing.waiting));
        let overdue = u64::try_from(standing.overdue_milliseconds).unwrap_or_default();
        self.metrics.overdue.get_or_create(&label).set(Duration::from_millis(overdue).as_secs_f64());
        self.metrics.synced.get_or_create(&label).set(i64::from(standing.synced));
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let decisions = standing.counts.decisions;
        self.metrics.decisions.get_or_create(&label).inc_by(decisions.saturating_sub(reported.decisions));
        reported.decisions = decisions;
        let mut gauges = BTreeSet::new();
        for reading in &standing.gauges {
            let labels = labels_of(reading);
            if let Some(DeclaredMetric::Gauge(family)) = self.metrics.declared.get(reading.metric.name) {
                family.get_or_create(&labels).set(whole(reading.value));
                gauges.insert((reading.metric.name, labels));
            }
        }
        // Metrics that are no longer reported belong to objects that no longer exist.
        for (name, labels) in reported.gauges.difference(&gauges) {
            if let Some(DeclaredMetric::Gauge(family)) = self.metrics.declared.get(name) {
                family.remove(labels);
            }
        }
        reported.gauges = gauges;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn what_is_measured_is_shown_under_its_name() {
        let mut catalogue = Catalogue::default();
        let observer = CollectorMetrics::register(&mut catalogue).observer(Controller::PodGarbageCollector);
        let labels = || vec!["shop".into(), "terminated".into()];
        let measurement = |metric, labels, value| Measurement { metric, labels, value };
        observer.measured(&measurement(&measures::POD_DELETIONS, labels(), 1.0));
        observer.measured(&measurement(&measures::POD_DELETIONS, labels(), 1.0));
        observer.measured(&measurement(&measures::JOB_DELETION_LATENESS, Vec::new(), 0.3));
        let standing =
            |gauges| CollectorState { waiting: 3, synced: true, gauges, ..CollectorState::default() };
        let bound = |class: &str| measurement(&measures::VOLUMES_BOUND, vec![class.into()], 2.0);
        observer.standing(&standing(vec![bound("fast"), bound("slow")]));
        observer.standing(&standing(vec![bound("slow")]));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, catalogue.registry()).unwrap();
        for line in [
            "pod_gc_collector_force_delete_pods_total{namespace=\"shop\",reason=\"terminated\"} 2",
            "ttl_after_finished_controller_job_deletion_duration_seconds_bucket{le=\"0.4\"} 1",
            "ttl_after_finished_controller_job_deletion_duration_seconds_count 1",
            "pv_collector_bound_pv_count{storage_class=\"slow\"} 2",
            "kubegc_collector_waiting{controller=\"pod-garbage-collector-controller\"} 3",
            "running_managed_controllers{name=\"pod-garbage-collector-controller\",manager=\"kubegc\"} 1",
        ] {
            assert!(text.lines().any(|shown| shown.starts_with(line)), "{line}\n{text}");
        }
        assert!(!text.contains("fast"), "{text}");
    }
}
