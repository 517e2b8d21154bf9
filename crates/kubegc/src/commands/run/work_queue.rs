//! The metrics of Kubernetes' work queues, for dashboards and alerts that know them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gc_kube::Observer;
use gc_metrics::Catalogue;
use gc_types::{Effect, EffectId, FinalizerName, Outcome, Request, Verdict};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Label of the work queues, with upstream's names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct NameLabel {
    pub(super) name: &'static str,
}

/// Upstream's name for the queue of items to decide on.
const DELETE_QUEUE: NameLabel = NameLabel { name: "garbage_collector_attempt_to_delete" };
/// Upstream's name for the queue of owners whose dependents are orphaned.
const ORPHAN_QUEUE: NameLabel = NameLabel { name: "garbage_collector_attempt_to_orphan" };

#[derive(Clone, Debug)]
struct Durations(Family<NameLabel, Histogram>);

impl Default for Durations {
    fn default() -> Self {
        // Upstream's buckets: 10 ns to 10 s, by factors of ten.
        Self(Family::new_with_constructor(|| Histogram::new(exponential_buckets(1e-8, 10.0, 10))))
    }
}

/// Counts effects as items of upstream's two queues. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkQueues {
    depth: Family<NameLabel, Gauge>,
    adds: Family<NameLabel, Counter>,
    retries: Family<NameLabel, Counter>,
    queued: Durations,
    worked: Durations,
    unfinished: Family<NameLabel, Gauge<f64, AtomicU64>>,
    longest: Family<NameLabel, Gauge<f64, AtomicU64>>,
    /// Effects that were decided on and are not done yet; bounded by the engine's number in flight.
    under_way: Arc<Mutex<BTreeMap<EffectId, (NameLabel, Instant)>>>,
}

/// Returns the queue of an effect; orphaning has its own.
fn queue(effect: &Effect) -> NameLabel {
    let orphans = matches!(effect.reason.verdict, Verdict::OwnerOrphans | Verdict::AllOrphaned)
        || matches!(effect.request, Request::RemoveFinalizer { finalizer: FinalizerName::Orphan, .. });
    if orphans { ORPHAN_QUEUE } else { DELETE_QUEUE }
}

impl WorkQueues {
    pub(super) fn register(&self, catalogue: &mut Catalogue) {
        // A metric must exist from the start for its first increase to be visible.
        for queue in [DELETE_QUEUE, ORPHAN_QUEUE] {
            self.adds.get_or_create(&queue).inc_by(0);
            self.retries.get_or_create(&queue).inc_by(0);
        }
        let queues = self.clone();
        catalogue.register("workqueue_depth", "Current depth of workqueue", queues.depth);
        catalogue.register("workqueue_adds", "Total number of adds handled by workqueue", queues.adds);
        catalogue.register(
            "workqueue_retries",
            "Total number of retries handled by workqueue",
            queues.retries,
        );
        catalogue.register(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            queues.queued.0,
        );
        catalogue.register(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes",
            queues.worked.0,
        );
        catalogue.register(
            "workqueue_unfinished_work_seconds",
            "How many seconds of work has been done that is in progress and hasn't been observed by work_duration",
            queues.unfinished,
        );
        catalogue.register(
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running",
            queues.longest,
        );
    }

    /// Updates the gauges. `depth` is the number of waiting items.
    pub(super) fn refresh(&self, depth: i64) {
        self.depth.get_or_create(&DELETE_QUEUE).set(depth);
        let under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        for queue in [DELETE_QUEUE, ORPHAN_QUEUE] {
            let ages = || {
                let own = under_way.values().filter(|(name, _)| *name == queue);
                own.map(|(_, begun)| begun.elapsed().as_secs_f64())
            };
            self.unfinished.get_or_create(&queue).set(ages().sum());
            self.longest.get_or_create(&queue).set(ages().fold(0.0, f64::max));
        }
    }
}

impl Observer for WorkQueues {
    fn decided(&self, effect: &Effect) {
        let queue = queue(effect);
        self.adds.get_or_create(&queue).inc();
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(effect.id, (queue, Instant::now()));
    }

    fn finished(&self, effect: &Effect, outcome: &Outcome, _round_trips: u32, took: Duration) {
        let queue = queue(effect);
        let begun = self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&effect.id);
        let waited = begun.map_or(Duration::ZERO, |(_, begun)| begun.elapsed().saturating_sub(took));
        self.queued.0.get_or_create(&queue).observe(waited.as_secs_f64());
        self.worked.0.get_or_create(&queue).observe(took.as_secs_f64());
        if matches!(outcome, Outcome::Conflict | Outcome::Refused { .. } | Outcome::Failed { .. }) {
            self.retries.get_or_create(&queue).inc();
        }
    }
}
