//! Metrics of the collector (under upstream's names and ours), and its debugging pages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use gc_kube::breaker::SharedBreaker;
use gc_kube::concurrency::ConcurrencyState;
use gc_kube::{Agreement, EventEngine, Observer, ResourceTable, SharedServerClock, StatusBoard, SyncState};
use gc_metrics::Catalogue;
use gc_ownership::Shard;
use gc_process::journal::{self, Journal, verb};
use gc_process::lease::election::Leadership;
use gc_process::lease::orders::Orders;
use gc_process::operations::{PageAnswer, Pages};
use gc_types::{Effect, Event, ObjectKey, Outcome, Request, ResourceId, Timestamp, Uid, WithheldBy};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::observe;
use super::work_queue::WorkQueues;

/// The engine, shared by the collector and queries. Each event or query locks it while it runs.
#[derive(Clone)]
pub(super) struct SharedEngine(Arc<Mutex<gc_ownership::Engine>>);

impl SharedEngine {
    /// Creates an engine that acts on the objects of this shard.
    pub(super) fn new(shard: Shard) -> Self {
        let config = gc_ownership::Config { shard, ..gc_ownership::Config::remote() };
        Self(Arc::new(Mutex::new(gc_ownership::Engine::new(config))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, gc_ownership::Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventEngine for SharedEngine {
    fn handle(&mut self, event: Event) {
        self.lock().handle(event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.lock().poll_effect()
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        self.lock().next_wakeup()
    }

    /// The engine's timers follow a clock that is never set.
    fn set_clock(&mut self, _now: Timestamp) {}

    fn objects_of(&self, resource: ResourceId) -> Option<usize> {
        Some(self.lock().objects_of(resource))
    }
}

/// Maximum number of waiting owners to name, those that have waited longest first.
const NAMED_OWNERS: usize = 20;
/// Minimum wait after which an owner is named; most deletions are over by then.
const NAMED_AFTER: Duration = Duration::from_secs(5);

/// Labels of an owner. They are not `namespace` and `resource`, which are labels of the targets that Prometheus scrapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OwnerLabels {
    owner_resource: String,
    owner_namespace: String,
    owner_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabel {
    name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabel {
    resource: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabel {
    verb: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
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
    queues: WorkQueues,
    leader: Family<LeaseLabel, Gauge>,
    shards: Gauge,
    lease_duration: Family<LeaseLabel, Gauge>,
    waits_cold: Gauge,
    requests: Family<VerbLabel, Counter>,
    latencies: Latencies,
    objects: Gauge,
    references: Gauge,
    virtual_owners: Gauge,
    in_flight: Gauge,
    retrying: Gauge,
    waiting_owners: Gauge,
    oldest_waiting: Gauge<f64, AtomicU64>,
    named_owners: Family<OwnerLabels, Gauge<f64, AtomicU64>>,
    gaps_given_up: Gauge,
    unknown_kinds: Gauge,
    deletions: Counter,
    concurrency_limit: Gauge,
    http_requests_in_flight: Gauge,
    http_request_latency: Gauge<f64, AtomicU64>,
    resources: Family<ResourceLabels, Gauge<f64, AtomicU64>>,
    journal_dropped: Gauge,
    clock_difference: Gauge<f64, AtomicU64>,
    clock_paused: Gauge,
    withheld: Gauge,
    paused: Gauge,
    breaker_trips: Counter,
    breaker_tripped: Family<ResourceLabel, Gauge>,
    agreements: Family<KindLabel, Counter>,
    disagreements: Family<KindLabel, Counter>,
    uncompared: Gauge,
    undiscovered: Gauge,
    lease: String,
}

impl Metrics {
    /// Registers the metrics.
    pub(super) fn register(lease: &str, shard: Shard, catalogue: &mut Catalogue) -> Self {
        let metrics = Self { lease: lease.to_owned(), ..Self::default() };
        metrics.shards.set(i64::from(shard.count()));
        let m = metrics.clone();
        catalogue.register(
            "garbagecollector_controller_resources_sync_error",
            "Number of garbage collector resources sync errors",
            m.sync_errors,
        );
        m.queues.register(catalogue);
        catalogue.register(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates \
             master",
            m.leader,
        );
        catalogue.register(
            "kubegc_shards",
            "Number of shards that this replica is started for, each of which has a leader; 1 without shards",
            m.shards,
        );
        catalogue.register(
            "kubegc_lease_duration_seconds",
            "Duration on the Lease as last seen: how long standbys wait after the last renewal; 0 without an election",
            m.lease_duration,
        );
        catalogue.register(
            "kubegc_standby_cold",
            "Whether this replica waits for the Lease and lists nothing before it leads",
            m.waits_cold,
        );
        catalogue.register("kubegc_http_requests", "HTTP requests sent", m.requests);
        catalogue.register(
            "kubegc_request_duration_seconds",
            "Time from sending a request to its outcome",
            m.latencies.0,
        );
        catalogue.register("kubegc_graph_objects", "Objects in the graph", m.objects);
        catalogue.register("kubegc_graph_references", "Owner references in the graph", m.references);
        catalogue.register(
            "kubegc_graph_virtual_owners",
            "Owners that are referred to, not seen",
            m.virtual_owners,
        );
        catalogue.register(
            "kubegc_requests_in_flight",
            "Requests of the collector in flight, including those that wait for a place",
            m.in_flight,
        );
        catalogue.register("kubegc_retrying", "Objects that wait for a retry", m.retrying);
        catalogue.register("kubegc_waiting_owners", "Owners that wait for dependents", m.waiting_owners);
        catalogue.register("kubegc_oldest_waiting_seconds", "Age of the oldest of them", m.oldest_waiting);
        catalogue.register(
            "kubegc_waiting_owner_seconds",
            "Age of the foreground and orphan deletions that have taken the longest, from five seconds on",
            m.named_owners,
        );
        catalogue.register(
            "kubegc_gaps_given_up",
            "Finalizers removed although a resource had not caught up",
            m.gaps_given_up,
        );
        catalogue.register(
            "kubegc_unknown_kind_references",
            "References to kinds not served",
            m.unknown_kinds,
        );
        catalogue.register("kubegc_deletions", "Deletions requested and granted", m.deletions);
        catalogue.register(
            "kubegc_concurrency_limit",
            "HTTP requests allowed in flight",
            m.concurrency_limit,
        );
        catalogue.register(
            "kubegc_http_requests_in_flight",
            "HTTP requests in flight",
            m.http_requests_in_flight,
        );
        catalogue.register(
            "kubegc_http_request_latency_seconds",
            "Smoothed latency of HTTP requests",
            m.http_request_latency,
        );
        catalogue.register(
            "kubegc_resource_state_seconds",
            "For how long each resource has been in its state",
            m.resources,
        );
        catalogue.register(
            "kubegc_journal_dropped",
            "Journal entries dropped because too many waited or the disk refused them",
            m.journal_dropped,
        );
        catalogue.register(
            "kubegc_clock_difference_seconds",
            "By how much this machine's clock is ahead of the API server's at least; negative if behind",
            m.clock_difference,
        );
        catalogue.register(
            "kubegc_clock_paused",
            "Whether deletions that depend on the time pause because these clocks disagree",
            m.clock_paused,
        );
        catalogue.register("kubegc_requests_withheld", "Requests decided on and not sent: a dry run, a kept object, a tripped breaker, clocks that disagree", m.withheld);
        catalogue.register("kubegc_paused", "Whether an operator has paused everything", m.paused);
        catalogue.register(
            "kubegc_breaker_trips",
            "How often the breaker has stopped a resource",
            m.breaker_trips,
        );
        catalogue.register(
            "kubegc_breaker_tripped",
            "Resources that the breaker has stopped",
            m.breaker_tripped,
        );
        catalogue.register(
            "kubegc_observe_agreements",
            "Effects that another collector performed as predicted, by kind",
            m.agreements,
        );
        catalogue.register(
            "kubegc_observe_disagreements",
            "Effects that another collector performed differently, by kind",
            m.disagreements,
        );
        catalogue.register(
            "kubegc_observe_uncompared",
            "Predictions and deletions that were not compared, for lack of room",
            m.uncompared,
        );
        catalogue.register(
            "kubegc_discovery_failed_groups",
            "API groups whose resources cannot be seen",
            m.undiscovered,
        );
        // Alerts can then see the counters before anything has happened.
        for kind in observe::DISAGREEMENTS {
            metrics.disagreements.get_or_create(&KindLabel { kind }).inc_by(0);
        }
        for kind in observe::AGREEMENTS {
            metrics.agreements.get_or_create(&KindLabel { kind }).inc_by(0);
        }
        metrics
    }

    /// Returns the metrics that count effects as items of upstream's queues.
    pub(super) fn queues(&self) -> WorkQueues {
        self.queues.clone()
    }

    /// Counts a comparison.
    pub(super) fn compared(&self, agreed: bool, kind: &'static str) {
        let family = if agreed { &self.agreements } else { &self.disagreements };
        family.get_or_create(&KindLabel { kind }).inc();
    }

    /// Returns the numbers of agreements and of disagreements so far.
    pub(super) fn comparisons(&self) -> (u64, u64) {
        let sum = |family: &Family<KindLabel, Counter>, kinds: &[&'static str]| {
            kinds.iter().map(|kind| family.get_or_create(&KindLabel { kind }).get()).sum()
        };
        (sum(&self.agreements, &observe::AGREEMENTS), sum(&self.disagreements, &observe::DISAGREEMENTS))
    }

    /// Sets the number of decisions so far that could not be compared.
    pub(super) fn uncompared(&self, number: u64) {
        self.uncompared.set(i64::try_from(number).unwrap_or(i64::MAX));
    }
}

impl Observer for Metrics {
    fn observed(&self, event: &Event) {
        if matches!(event, Event::Stale(_)) {
            self.sync_errors.inc();
        }
    }

    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: Duration) {
        let verb = verb(&effect.request);
        self.requests.get_or_create(&VerbLabel { verb }).inc_by(u64::from(round_trips));
        if round_trips > 0 {
            self.latencies.0.get_or_create(&VerbLabel { verb }).observe(took.as_secs_f64());
        }
        if matches!((&effect.request, outcome), (Request::Delete { .. }, Outcome::Applied(_))) {
            self.deletions.inc();
        }
    }
}

/// Pages of `kubegc run` other than counters.
pub(super) struct RunPages {
    pub(super) engine: SharedEngine,
    pub(super) board: StatusBoard,
    pub(super) concurrency: tokio::sync::watch::Receiver<ConcurrencyState>,
    pub(super) metrics: Metrics,
    pub(super) leadership: Leadership,
    /// True if this replica lists nothing before it leads.
    pub(super) waits_cold: bool,
    pub(super) journal: Arc<Journal>,
    pub(super) breaker: SharedBreaker,
    pub(super) orders: watch::Receiver<Orders>,
    pub(super) holding: watch::Receiver<Option<WithheldBy>>,
    pub(super) table: ResourceTable,
    /// The API server's clock.
    pub(super) clock: Option<SharedServerClock>,
    /// Number of failed discovery rounds that are already counted.
    pub(super) failed_rounds: AtomicU64,
}

fn state_name(state: SyncState) -> &'static str {
    match state {
        SyncState::Listing => "listing",
        SyncState::Synced => "synced",
        SyncState::Stale => "stale",
        SyncState::Failing => "failing",
    }
}

/// Converts a count for a gauge.
fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Pages for RunPages {
    fn refresh(&self) {
        let engine = self.engine.lock();
        let (stats, longest, metrics) = (engine.stats(), engine.longest_waiting(NAMED_OWNERS), &self.metrics);
        drop(engine);
        self.name_owners(&longest);
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
        metrics.queues.refresh(count(stats.queued));
        metrics.withheld.set(count(stats.withheld));
        let leads = i64::from(self.leadership.leads());
        let label = LeaseLabel { name: metrics.lease.clone() };
        metrics.leader.get_or_create(&label).set(leads);
        let seconds = i64::try_from(self.leadership.lease_seconds()).unwrap_or(i64::MAX);
        metrics.lease_duration.get_or_create(&label).set(seconds);
        metrics.waits_cold.set(i64::from(self.is_cold()));
        metrics.paused.set(i64::from(self.orders.borrow().paused.is_some()));
        metrics.breaker_tripped.clear();
        let breaker = self.breaker.lock();
        metrics.breaker_trips.inc_by(breaker.trips().saturating_sub(metrics.breaker_trips.get()));
        for trip in breaker.tripped() {
            metrics
                .breaker_tripped
                .get_or_create(&ResourceLabel { resource: trip.resource.to_string() })
                .set(1);
        }
        drop(breaker);
        let discovery = self.board.discovery();
        metrics.undiscovered.set(count(discovery.failed_groups.len()));
        // Like upstream, also count a discovery round that found nothing.
        let failed_rounds = self.failed_rounds.swap(discovery.failed_rounds, Ordering::Relaxed);
        metrics.sync_errors.inc_by(discovery.failed_rounds.saturating_sub(failed_rounds));
        let concurrency = *self.concurrency.borrow();
        metrics.concurrency_limit.set(count(concurrency.limit));
        metrics.http_requests_in_flight.set(count(concurrency.in_flight));
        metrics.http_request_latency.set(concurrency.latency.as_secs_f64());
        metrics.clock_paused.set(i64::from(self.agreement().pauses()));
        let ahead =
            self.clock.as_ref().and_then(SharedServerClock::difference_milliseconds).unwrap_or_default();
        let seconds = Duration::from_millis(ahead.unsigned_abs()).as_secs_f64();
        metrics.clock_difference.set(if ahead < 0 { -seconds } else { seconds });
        let now = SystemTime::now();
        metrics.resources.clear();
        for status in self.board.all().into_values() {
            let labels = ResourceLabels { resource: status.name, state: state_name(status.state) };
            let seconds = now.duration_since(status.since).unwrap_or_default().as_secs_f64();
            metrics.resources.get_or_create(&labels).set(seconds);
        }
        metrics.journal_dropped.set(i64::try_from(self.journal.dropped()).unwrap_or(i64::MAX));
    }

    fn unhealthy(&self) -> Option<String> {
        // A leader that has outlived its Lease without exiting is stuck.
        self.leadership.is_overdue().then(|| "the lease is not renewed".into())
    }

    fn page(&self, user: &str, path: &str, query: &[(String, String)]) -> Option<PageAnswer> {
        match path {
            "/debug/controllers/garbagecollector/graph"
            | "/debug/controllers/garbage-collector-controller/graph" => {
                let around: Vec<Uid> =
                    query.iter().filter(|(name, _)| name == "uid").map(|(_, uid)| Uid::new(uid)).collect();
                let dump = self.engine.lock().dump(&around);
                Some(PageAnswer::Document("text/vnd.graphviz", dump.dot()))
            }
            "/debug/kubegc/graph" => {
                let dump = self.engine.lock().dump(&[]);
                Some(PageAnswer::Document("application/json", serde_json::to_string(&dump).ok()?))
            }
            "/debug/kubegc/resources" => {
                Some(PageAnswer::Document("application/json", self.resources().to_string()))
            }
            journal::PATH => {
                let (journal, user, query) = (Arc::clone(&self.journal), user.to_owned(), query.to_vec());
                Some(PageAnswer::Asked(Box::pin(
                    async move { journal::answer(&journal, &user, &query).await },
                )))
            }
            _ => None,
        }
    }
}

impl RunPages {
    fn name_owners(&self, longest: &[(ObjectKey, i64)]) {
        let named = &self.metrics.named_owners;
        named.clear();
        for (key, waited) in longest {
            let waited = Duration::from_millis(u64::try_from(*waited).unwrap_or_default());
            let Some(route) = self.table.get(key.resource).filter(|_| waited >= NAMED_AFTER) else {
                continue;
            };
            let labels = OwnerLabels {
                owner_resource: route.name.to_string(),
                owner_namespace: key.namespace.to_string(),
                owner_name: key.name.to_string(),
            };
            named.get_or_create(&labels).set(waited.as_secs_f64());
        }
    }

    fn is_cold(&self) -> bool {
        self.waits_cold && !self.leadership.leads()
    }

    fn agreement(&self) -> Agreement {
        self.clock.as_ref().map(SharedServerClock::agreement).unwrap_or_default()
    }

    /// Returns the state of each resource, and everything that stops collection.
    fn resources(&self) -> Value {
        let time = |at: SystemTime| jiff::Timestamp::try_from(at).unwrap_or_default().to_string();
        let routes = self.table.all();
        let engine = self.engine.lock();
        let watched: Vec<Value> = self
            .board
            .all()
            .into_iter()
            .map(|(id, status)| {
                json!({"resource": status.name, "state": state_name(status.state), "since": time(status.since),
                       "why": status.why, "objects": engine.objects_of(id)})
            })
            .collect();
        drop(engine);
        let ignored: Vec<&str> =
            routes.iter().filter(|route| !route.info.watched).map(|route| &*route.name).collect();
        let discovery = self.board.discovery();
        let failing = discovery.failing.map(|(since, why)| json!({"since": time(since), "why": why}));
        let orders = self.orders.borrow().clone();
        let breaker = self.breaker.lock();
        let tripped: Vec<Value> = breaker
            .tripped()
            .into_iter()
            .map(|trip| {
                let since = jiff::Timestamp::from_millisecond(trip.since.0).unwrap_or_default().to_string();
                json!({"resource": &*trip.resource, "since": since, "why": &*trip.why})
            })
            .collect();
        let kept: Vec<String> = breaker.kept().iter().map(ToString::to_string).collect();
        let agreement = self.agreement();
        let mode = match *self.holding.borrow() {
            Some(WithheldBy::DryRun) => "dry-run",
            Some(_) => "observe",
            None => "act",
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"), "leading": self.leadership.leads(), "mode": mode,
            "standbyCold": self.is_cold(),
            "paused": orders.paused, "resources": watched, "notWatched": ignored,
            "discovery": {"failing": failing, "failedGroups": discovery.failed_groups},
            "breaker": {"tripped": tripped, "kept": kept},
            "clock": {"paused": agreement.pauses(), "message": agreement.to_string()},
        })
    }
}
