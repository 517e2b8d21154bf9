//! Metrics of the collector (upstream's names, and ours), and its debugging pages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use gc_kube::pacing::PacingState;
use gc_kube::{Observer, StatusBoard, SyncState};
use gc_types::{Effect, Event, Outcome, Request, ResourceId, Timestamp, Uid};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use serde_json::json;

use super::journal::{Journal, verb, word};
use super::lease::Leadership;
use crate::operations::{Page, Pages};

/// The engine, for the collector and for whoever asks it. Each event or question holds it for its own duration.
#[derive(Clone)]
pub(super) struct SharedEngine(Arc<Mutex<gc_ownership::Engine>>);

impl Default for SharedEngine {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(gc_ownership::Engine::new(gc_ownership::Config::default()))))
    }
}

impl SharedEngine {
    fn lock(&self) -> MutexGuard<'_, gc_ownership::Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl gc_kube::Engine for SharedEngine {
    fn handle(&mut self, event: Event) {
        self.lock().handle(event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.lock().poll_effect()
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        self.lock().next_wakeup()
    }

    fn objects_of(&self, resource: ResourceId) -> Option<usize> {
        Some(self.lock().objects_of(resource))
    }
}

/// Label of the work queues: upstream's names for them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    verb: &'static str,
    verdict: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    verb: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabel {
    verb: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    resource: String,
    state: &'static str,
}

#[derive(Clone, Debug)]
struct Latencies(Family<VerbLabel, Histogram>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 16))))
    }
}

/// All metrics. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    sync_errors: Counter,
    queue_depth: Family<NameLabel, Gauge>,
    queue_retries: Family<NameLabel, Counter>,
    leader: Family<NameLabel, Gauge>,
    verdicts: Family<VerdictLabels, Counter>,
    effects: Family<OutcomeLabels, Counter>,
    requests: Family<VerbLabel, Counter>,
    latencies: Latencies,
    objects: Gauge,
    references: Gauge,
    virtual_owners: Gauge,
    in_flight: Gauge,
    retrying: Gauge,
    waiting_owners: Gauge,
    oldest_waiting: Gauge<f64, AtomicU64>,
    gaps_given_up: Gauge,
    unknown_kinds: Gauge,
    deletions: Counter,
    pacing_limit: Gauge,
    pacing_in_flight: Gauge,
    pacing_latency: Gauge<f64, AtomicU64>,
    resources: Family<ResourceLabels, Gauge<f64, AtomicU64>>,
    journal_dropped: Gauge,
    lease: String,
}

/// Upstream's name for what has to be looked at.
const DELETE_QUEUE: &str = "garbage_collector_attempt_to_delete";

impl Metrics {
    /// Registers them.
    pub(super) fn register(lease: &str) -> (Self, Arc<Registry>) {
        let metrics = Self { lease: lease.to_owned(), ..Self::default() };
        let mut registry = Registry::default();
        let m = metrics.clone();
        registry.register(
            "garbagecollector_controller_resources_sync_error",
            "Number of garbage collector resources sync errors",
            m.sync_errors,
        );
        registry.register("workqueue_depth", "Current depth of workqueue", m.queue_depth);
        registry.register(
            "workqueue_retries",
            "Total number of retries handled by workqueue",
            m.queue_retries,
        );
        registry.register(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates \
             master",
            m.leader,
        );
        registry.register("kubegc_verdicts", "Effects decided on, by verdict", m.verdicts);
        registry.register("kubegc_effects", "Effects by what became of them", m.effects);
        registry.register("kubegc_requests", "HTTP requests sent for effects", m.requests);
        registry.register("kubegc_effect_duration_seconds", "Time from sending to outcome", m.latencies.0);
        registry.register("kubegc_graph_objects", "Objects in the graph", m.objects);
        registry.register("kubegc_graph_references", "Owner references in the graph", m.references);
        registry.register(
            "kubegc_graph_virtual_owners",
            "Owners that are referred to, not seen",
            m.virtual_owners,
        );
        registry.register("kubegc_effects_in_flight", "Effects made and not done", m.in_flight);
        registry.register("kubegc_retrying", "Objects that wait for a retry", m.retrying);
        registry.register("kubegc_waiting_owners", "Owners that wait for dependents", m.waiting_owners);
        registry.register("kubegc_oldest_waiting_seconds", "Age of the oldest of them", m.oldest_waiting);
        registry.register(
            "kubegc_gaps_given_up",
            "Finalizers removed although a resource had not caught up",
            m.gaps_given_up,
        );
        registry.register(
            "kubegc_unknown_kind_references",
            "References to kinds not served",
            m.unknown_kinds,
        );
        registry.register("kubegc_deletions", "Deletions requested and granted", m.deletions);
        registry.register("kubegc_pacing_limit", "Requests allowed in flight", m.pacing_limit);
        registry.register("kubegc_pacing_in_flight", "Requests in flight", m.pacing_in_flight);
        registry.register("kubegc_pacing_latency_seconds", "Smoothed latency of requests", m.pacing_latency);
        registry.register(
            "kubegc_resource_state_seconds",
            "For how long each resource has been in its state",
            m.resources,
        );
        registry.register(
            "kubegc_journal_dropped",
            "Entries that the journal had no room for",
            m.journal_dropped,
        );
        (metrics, Arc::new(registry))
    }
}

impl Observer for Metrics {
    fn told(&self, event: &Event) {
        if matches!(event, Event::Stale(_)) {
            self.sync_errors.inc();
        }
    }

    fn decided(&self, effect: &Effect) {
        let labels =
            VerdictLabels { verb: verb(&effect.request), verdict: effect.reason.verdict.to_string() };
        self.verdicts.get_or_create(&labels).inc();
    }

    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: Duration) {
        let verb = verb(&effect.request);
        self.effects.get_or_create(&OutcomeLabels { verb, outcome: word(outcome) }).inc();
        self.requests.get_or_create(&VerbLabel { verb }).inc_by(u64::from(round_trips));
        if round_trips > 0 {
            self.latencies.0.get_or_create(&VerbLabel { verb }).observe(took.as_secs_f64());
        }
        if matches!((&effect.request, outcome), (Request::Delete { .. }, Outcome::Applied(_))) {
            self.deletions.inc();
        }
        if matches!(outcome, Outcome::Conflict | Outcome::Refused { .. } | Outcome::Failed { .. }) {
            self.queue_retries.get_or_create(&NameLabel { name: DELETE_QUEUE.into() }).inc();
        }
    }
}

/// What `kubegc run` shows beyond counters.
pub(super) struct RunPages {
    pub(super) engine: SharedEngine,
    pub(super) board: StatusBoard,
    pub(super) pacing: tokio::sync::watch::Receiver<PacingState>,
    pub(super) metrics: Metrics,
    pub(super) leadership: Leadership,
    pub(super) journal: Option<Arc<Journal>>,
}

fn state_name(state: SyncState) -> &'static str {
    match state {
        SyncState::Listing => "listing",
        SyncState::Synced => "synced",
        SyncState::Stale => "stale",
        SyncState::Failing => "failing",
    }
}

/// A count as a gauge holds it.
fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Pages for RunPages {
    fn refresh(&self) {
        let (stats, metrics) = (self.engine.lock().stats(), &self.metrics);
        metrics.objects.set(count(stats.objects));
        metrics.references.set(count(stats.references));
        metrics.virtual_owners.set(count(stats.virtual_owners));
        metrics.in_flight.set(count(stats.in_flight));
        metrics.retrying.set(count(stats.retrying));
        metrics.waiting_owners.set(count(stats.waiting_owners));
        let oldest = u64::try_from(stats.oldest_waiting_milliseconds).unwrap_or_default();
        metrics.oldest_waiting.set(Duration::from_millis(oldest).as_secs_f64());
        metrics.gaps_given_up.set(i64::try_from(stats.gaps_given_up).unwrap_or(i64::MAX));
        metrics.unknown_kinds.set(count(stats.unknown_kind_references));
        metrics.queue_depth.get_or_create(&NameLabel { name: DELETE_QUEUE.into() }).set(count(stats.queued));
        let leads = i64::from(self.leadership.may_act());
        metrics.leader.get_or_create(&NameLabel { name: metrics.lease.clone() }).set(leads);
        let pacing = *self.pacing.borrow();
        metrics.pacing_limit.set(count(pacing.limit));
        metrics.pacing_in_flight.set(count(pacing.in_flight));
        metrics.pacing_latency.set(pacing.latency.as_secs_f64());
        let now = SystemTime::now();
        metrics.resources.clear();
        for status in self.board.all().into_values() {
            let labels = ResourceLabels { resource: status.name, state: state_name(status.state) };
            let seconds = now.duration_since(status.since).unwrap_or_default().as_secs_f64();
            metrics.resources.get_or_create(&labels).set(seconds);
        }
        if let Some(journal) = &self.journal {
            let dropped = journal.dropped.load(Ordering::Relaxed);
            metrics.journal_dropped.set(i64::try_from(dropped).unwrap_or(i64::MAX));
        }
    }

    fn unhealthy(&self) -> Option<String> {
        let leads = !*self.leadership.held().borrow();
        // A leader past its time that has not ended by itself is stuck.
        (leads && !self.leadership.may_act()).then(|| "the lease is not renewed".into())
    }

    fn page(&self, path: &str, query: &str) -> Option<Page> {
        match path {
            "/debug/controllers/garbagecollector/graph"
            | "/debug/controllers/garbage-collector-controller/graph" => {
                let around: Vec<Uid> =
                    query.split('&').filter_map(|pair| pair.strip_prefix("uid=")).map(Uid::new).collect();
                let dump = self.engine.lock().dump(&around);
                Some(Page { content_type: "text/vnd.graphviz", body: dump.dot() })
            }
            "/debug/kubegc/graph" => {
                let dump = self.engine.lock().dump(&[]);
                let body = serde_json::to_string(&dump).ok()?;
                Some(Page { content_type: "application/json", body })
            }
            "/debug/kubegc/resources" => {
                let resources: Vec<_> = self
                    .board
                    .all()
                    .into_values()
                    .map(|status| {
                        let since = jiff::Timestamp::try_from(status.since).unwrap_or_default();
                        json!({"resource": status.name, "state": state_name(status.state),
                               "since": since.to_string(), "why": status.why})
                    })
                    .collect();
                let body = json!({"leading": self.leadership.may_act(), "resources": resources}).to_string();
                Some(Page { content_type: "application/json", body })
            }
            _ => None,
        }
    }
}
