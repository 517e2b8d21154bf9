//! Activity of this process's collectors, so that a test can wait until everything is done.
//!
//! Each collector has an [`ActivityTracker`]: it counts the requests in flight where they are sent and follows the watches until
//! everything has been read. The engine is checked through [`Instrumented`] each time it gets an event or is polled for an effect.

mod delivery;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use gc_apiserver::CutOff;
use gc_collectors::engine::{AnyCollector, CollectorState, Counts, Observation};
use gc_collectors::measures::Measurement;
use gc_collectors::objects::Kind;
use gc_collectors::permissions::Controller;
use gc_explain::text::count;
use gc_kube::namespaces::Progress;
use gc_kube::{EventEngine, StatusBoard};
use gc_registry::Registry;
use gc_registry::catalog::Catalog;
use gc_registry::storage::Blocking;
use gc_types::{Effect, EffectId, Event, Outcome, ResourceId, Timestamp};
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::watch;
use tokio::time::Instant;

use delivery::Delivery;
pub use delivery::TrackedAnswer;

/// Interval between the checks for rest.
const LOOK_PERIOD: Duration = Duration::from_millis(1);

/// Number of tasks that a change passes between a watch and the engine that it is for: one reads it, one takes it. Each of them
/// gets a turn before anything counts as at rest.
const TURNS: usize = 4;

/// Activity of all collectors of a server. Cheap to clone.
#[derive(Clone, Default)]
pub struct Activity(Arc<ActivityState>);

#[derive(Default)]
struct ActivityState {
    movements: Mutex<BTreeMap<&'static str, Arc<ActivityTracker>>>,
    /// Status boards of the collectors that watch every resource.
    boards: Mutex<Vec<StatusBoard>>,
    /// Counter that rises with every activity.
    generation: AtomicU64,
}

/// Activity of one collector.
#[derive(Default)]
pub struct ActivityTracker {
    activity: Activity,
    requests: AtomicUsize,
    /// Watches of the collector; those that have ended are forgotten when the next one begins.
    watches: Mutex<Vec<Weak<Delivery>>>,
    engines: Mutex<BTreeMap<u8, EngineState>>,
    /// Pending work of a controller without an engine.
    waiting: Mutex<PendingWork>,
    /// Counter that rises whenever everything that waits for others must be checked again.
    nudges: watch::Sender<u64>,
}

/// Pending work of a controller without an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingWork {
    /// Number of objects that the controller has something to do for.
    pub moving: usize,
    /// Number of objects that wait for others, such as those who remove a finalizer. The controller does not learn when they have
    /// done so.
    pub held: usize,
    /// Nudge up to which this is known.
    pub nudge: u64,
    /// Time of the next action, by the clock of the collectors.
    pub due: Option<Timestamp>,
}

#[derive(Clone, Default)]
struct EngineState {
    /// True if the engine got an event and has not been polled until it had no more effects since.
    has_news: bool,
    /// True if the engine waits for nothing but the passing of time and for lists.
    rests: bool,
    /// Kinds that are not listed yet.
    unsynced: Vec<Kind>,
    wakeup: Option<Timestamp>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports whether one of these lines is about the component of `other`.
fn names(lines: &[String], other: &str) -> bool {
    let component = |line: &str| line.split(':').next().map(str::to_owned);
    lines.iter().any(|line| component(line) == component(other))
}

/// Reports whether the store has changes that have not reached the watches yet. A store behind a network is not asked each time:
/// its changes come within the time that everything must be at rest.
fn is_ahead_of_watches(registry: &Registry) -> bool {
    registry.blocks() != Blocking::Always
        && registry.newest().is_ok_and(|newest| registry.watch_progress() < newest)
}

impl Activity {
    /// Returns the activity tracker of a collector.
    #[must_use]
    pub fn of(&self, controller: Controller) -> Arc<ActivityTracker> {
        self.named(controller.name())
    }

    /// Returns the activity tracker of another component that sends requests.
    #[must_use]
    pub fn named(&self, name: &'static str) -> Arc<ActivityTracker> {
        let make = || Arc::new(ActivityTracker { activity: self.clone(), ..ActivityTracker::default() });
        Arc::clone(lock(&self.0.movements).entry(name).or_insert_with(make))
    }

    /// Adds the status board of a collector that watches every resource.
    pub fn add_board(&self, board: StatusBoard) {
        lock(&self.0.boards).push(board);
    }

    /// Forgets the boards after the collectors that watched every resource have ended.
    pub fn forget_boards(&self) {
        lock(&self.0.boards).clear();
    }

    fn happened(&self) {
        self.0.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the components with pending work, each with that work; empty if there are none.
    fn moving(&self, registry: &Registry, now: Timestamp) -> Vec<String> {
        let mut moving = Vec::new();
        let catalog = registry.catalog();
        for (name, movement) in &*lock(&self.0.movements) {
            movement.moving(&catalog, now, &mut |what| moving.push(format!("{name}: {what}")));
        }
        let versions = catalog.groups().iter().flat_map(|group| &group.versions);
        let custom: Vec<String> = versions
            .flat_map(|version| &version.resources)
            .filter(|resource| resource.custom.is_some() && resource.has_verb("watch"))
            .map(|resource| format!("{}.{}", resource.resource, resource.group))
            .collect();
        if is_ahead_of_watches(registry) {
            moving.push("watches: the last changes are not delivered yet".to_owned());
        }
        for board in &*lock(&self.0.boards) {
            let all = board.all();
            let unsynced = all.values().find(|status| status.state != gc_kube::SyncState::Synced);
            let unknown = custom.iter().find(|name| all.values().all(|status| status.name != **name));
            match (unsynced, unknown) {
                _ if all.is_empty() => moving.push("discovery: nothing is watched yet".to_owned()),
                (Some(status), _) => moving.push(format!("watches: {} is not listed yet", status.name)),
                (None, Some(name)) => moving.push(format!("discovery: {name} is not watched yet")),
                (None, None) => {}
            }
        }
        moving
    }

    /// Returns the components with pending work at several moments in a row, between which every task that can run gets its turn: a
    /// change that is queued between a watch and its engine shows at one of these moments.
    async fn moving_in_turns(&self, registry: &Registry, clock: &gc_kube::Clock) -> Vec<String> {
        let mut moving = self.moving(registry, clock());
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
            let further = self.moving(registry, clock()).into_iter().filter(|line| !names(&moving, line));
            moving.extend(further.collect::<Vec<_>>());
        }
        moving
    }

    /// Waits until nothing is left to do: no request is in flight, every change has been processed, and nothing is due by `clock`.
    /// `rest` returns when everything that can run in the process has run. After `patience`, the error lists the components that
    /// still have work.
    pub async fn settle<R: Future<Output = ()>>(
        &self,
        registry: &Registry,
        clock: &gc_kube::Clock,
        patience: Duration,
        rest: impl Fn() -> R,
    ) -> Result<(), Vec<String>> {
        let deadline = Instant::now() + patience;
        // Position of the store when everything that waits for others was last checked.
        let mut nudged = None;
        loop {
            let before = (self.0.generation.load(Ordering::Acquire), registry.watch_progress());
            rest().await;
            let moving = self.moving_in_turns(registry, clock).await;
            let after = (self.0.generation.load(Ordering::Acquire), registry.watch_progress());
            if moving.is_empty() && before == after {
                let held: Vec<Arc<ActivityTracker>> =
                    lock(&self.0.movements).values().filter(|movement| movement.holds()).cloned().collect();
                if held.is_empty() || nudged == Some(after.1) {
                    return Ok(());
                }
                nudged = Some(after.1);
                for movement in held {
                    movement.nudge();
                }
                continue;
            }
            if Instant::now() >= deadline {
                let restless = || vec!["objects keep changing".to_owned()];
                return Err(if moving.is_empty() { restless() } else { moving });
            }
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    }
}

impl ActivityTracker {
    /// Counts a request as in flight until its response is dropped.
    pub fn request(self: &Arc<Self>) -> InFlightGuard {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.activity.happened();
        InFlightGuard(Arc::clone(self))
    }

    /// Tracks a watch: it is active whenever it has something unread.
    pub fn watch(&self, body: UnsyncBoxBody<Bytes, CutOff>) -> TrackedAnswer {
        let delivery = Arc::new(Delivery::new(self.activity.clone()));
        let mut watches = lock(&self.watches);
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(&delivery));
        TrackedAnswer::watch(body, delivery)
    }

    fn has_undelivered(&self) -> bool {
        lock(&self.watches).iter().filter_map(Weak::upgrade).any(|watch| watch.moves())
    }

    /// Notes that something has arrived that the collector may act on.
    pub fn happened(&self) {
        self.activity.happened();
    }

    /// Sets the pending work.
    pub fn set_waiting(&self, waiting: PendingWork) {
        if std::mem::replace(&mut *lock(&self.waiting), waiting) != waiting {
            self.activity.happened();
        }
    }

    fn holds(&self) -> bool {
        lock(&self.waiting).held > 0
    }

    /// Requests a new check of everything that waits for others.
    fn nudge(&self) {
        self.nudges.send_modify(|nudge| *nudge += 1);
    }

    fn moving(&self, catalog: &Catalog, now: Timestamp, report: &mut dyn FnMut(String)) {
        let requests = self.requests.load(Ordering::Acquire);
        if requests > 0 {
            report(format!("{} on the way", count(requests, "request")));
        }
        if self.has_undelivered() {
            report("a watch has changes that are not read yet".to_owned());
        }
        let waiting = *lock(&self.waiting);
        if waiting.moving > 0 {
            report(format!("{} in work", count(waiting.moving, "object")));
        } else if waiting.held > 0 && waiting.nudge != *self.nudges.borrow() {
            report(format!("{} to check again", count(waiting.held, "object")));
        }
        if waiting.due.is_some_and(|at| at <= now) {
            report("an object is due".to_owned());
        }
        for state in lock(&self.engines).values() {
            // A resource that is not served is never listed, so it delays nothing.
            let is_served = |kind: &&Kind| {
                let gvr = kind.info().gvr;
                catalog.find(&gvr.group, &gvr.version, &gvr.resource).is_some()
            };
            if state.has_news {
                report("a change is being processed".to_owned());
            } else if let Some(kind) = state.unsynced.iter().find(is_served) {
                report(format!("{} are not listed yet", kind.info().gvr.resource));
            } else if !state.rests {
                report("it waits for an answer or for another try".to_owned());
            } else if state.wakeup.is_some_and(|at| at <= now) {
                report("an object is due".to_owned());
            }
        }
    }

    fn note(&self, number: u8, change: impl FnOnce(&mut EngineState)) {
        change(lock(&self.engines).entry(number).or_default());
        self.activity.happened();
    }
}

impl Progress for ActivityTracker {
    fn nudges(&self) -> watch::Receiver<u64> {
        self.nudges.subscribe()
    }

    fn waiting(&self, moving: usize, held: usize, nudge: u64) {
        self.set_waiting(PendingWork { moving, held, nudge, ..PendingWork::default() });
    }
}

/// A request in flight.
pub struct InFlightGuard(Arc<ActivityTracker>);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
        self.0.activity.happened();
    }
}

/// Reports whether a path and query ask for a watch, whose response does not end.
pub fn is_watch(uri: &http::Uri) -> bool {
    let pairs = uri.query().unwrap_or_default().split('&');
    pairs.filter_map(|pair| pair.strip_prefix("watch=")).any(|value| matches!(value, "true" | "1"))
}

/// An engine that reports when it is at rest.
pub trait Settled {
    /// Reports whether the engine waits for nothing but the passing of time, or for others.
    fn rests(&self) -> bool;
    /// Returns the time at which the engine has something due by the clock of the collectors, if any.
    fn due(&self) -> Option<Timestamp>;
}

/// An engine with its activity recorded.
pub struct Instrumented<E> {
    inner: E,
    movement: Arc<ActivityTracker>,
    number: u8,
    unsynced: Vec<Kind>,
    flying: usize,
}

impl<C: AnyCollector> Instrumented<C> {
    /// Wraps the first (0) or a further engine of a retention collector.
    pub fn collecting(inner: C, movement: Arc<ActivityTracker>, number: u8) -> Self {
        let unsynced = inner.kinds().to_vec();
        Self { unsynced, ..Self::new(inner, movement, number) }
    }
}

impl<E> Instrumented<E> {
    /// Wraps the first (0) or a further engine of a collector.
    pub fn new(inner: E, movement: Arc<ActivityTracker>, number: u8) -> Self {
        movement.note(number, |state| state.has_news = true);
        Self { inner, movement, number, unsynced: Vec::new(), flying: 0 }
    }

    fn note_news(&self) {
        self.movement.note(self.number, |state| state.has_news = true);
    }

    fn asked(&self, rests: bool, wakeup: Option<Timestamp>) {
        let unsynced = self.unsynced.clone();
        self.movement
            .note(self.number, |state| *state = EngineState { has_news: false, rests, unsynced, wakeup });
    }
}

impl<E: EventEngine + Settled> EventEngine for Instrumented<E> {
    fn handle(&mut self, event: Event) {
        // A tick changes nothing unless something is due, which shows when the engine is next polled for effects.
        if !matches!(event, Event::Tick(_)) {
            self.note_news();
        }
        self.inner.handle(event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        let effect = self.inner.poll_effect();
        match &effect {
            Some(_) => self.note_news(),
            None => self.asked(self.inner.rests(), self.inner.due()),
        }
        effect
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        self.inner.next_wakeup()
    }

    fn set_clock(&mut self, now: Timestamp) {
        self.note_news();
        self.inner.set_clock(now);
    }

    fn objects_of(&self, resource: ResourceId) -> Option<usize> {
        self.inner.objects_of(resource)
    }
}

impl<C: AnyCollector> AnyCollector for Instrumented<C> {
    fn kinds(&self) -> &'static [Kind] {
        self.inner.kinds()
    }

    fn tick(&mut self, now: Timestamp) {
        self.inner.tick(now);
    }

    fn set_clock(&mut self, now: Timestamp) {
        self.note_news();
        self.inner.set_clock(now);
    }

    fn observe(&mut self, observation: Observation) {
        match &observation {
            Observation::ListStarted(kind) if !self.unsynced.contains(kind) => self.unsynced.push(*kind),
            Observation::Synced(kind) => self.unsynced.retain(|unsynced| unsynced != kind),
            _ => {}
        }
        self.note_news();
        self.inner.observe(observation);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        let effect = self.inner.poll_effect();
        match &effect {
            Some(_) => {
                self.flying += 1;
                self.note_news();
            }
            None => {
                self.asked(self.flying == 0, self.inner.next_wakeup());
            }
        }
        effect
    }

    fn finish(&mut self, id: EffectId, outcome: &Outcome) {
        self.flying = self.flying.saturating_sub(1);
        self.note_news();
        self.inner.finish(id, outcome);
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        self.inner.next_wakeup()
    }

    fn counts(&self) -> Counts {
        self.inner.counts()
    }

    fn skip(&mut self, id: EffectId) {
        self.flying = self.flying.saturating_sub(1);
        self.note_news();
        self.inner.skip(id);
    }

    fn release(&mut self, resource: Option<ResourceId>) {
        self.note_news();
        self.inner.release(resource);
    }

    fn take_measurement(&mut self) -> Option<Measurement> {
        self.inner.take_measurement()
    }

    fn standing(&self) -> CollectorState {
        self.inner.standing()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::future::ready;
    use std::task::{Context, Poll, Waker};

    use gc_registry::Config;
    use gc_registry::storage::{Storage, Transaction, Write};
    use gc_store::MemoryStorage;

    use super::*;

    async fn settled(activity: &Activity, registry: &Registry) -> Result<(), Vec<String>> {
        let clock: gc_kube::Clock = Arc::new(|| Timestamp(0));
        activity.settle(registry, &clock, Duration::ZERO, || ready(())).await
    }

    /// Simulates the tasks that run beside a server.
    fn pump(registry: &Registry) {
        match registry.poll_pump(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {}
            Poll::Ready(error) => panic!("{error}"),
        }
    }

    #[tokio::test]
    async fn nothing_is_settled_before_watches_have_the_last_change() {
        let storage = Arc::new(MemoryStorage::default());
        let registry = Registry::open(storage.clone(), Config::default()).unwrap();
        pump(&registry);
        let activity = Activity::default();
        assert_eq!(settled(&activity, &registry).await, Ok(()));
        let writes = vec![Write::Put("/pods/default/web".into(), Bytes::from_static(b"{}"))];
        storage.commit(Transaction { conditions: Vec::new(), writes }).unwrap();
        let behind = vec!["watches: the last changes are not delivered yet".to_owned()];
        assert_eq!(settled(&activity, &registry).await, Err(behind));
        pump(&registry);
        assert_eq!(settled(&activity, &registry).await, Ok(()));
    }

    /// `settle` once took the name of one collector for all the remaining work while another collector had yet to take a change
    /// from its queue.
    #[tokio::test]
    async fn what_is_in_a_queue_shows() {
        let registry = Registry::open(Arc::new(MemoryStorage::default()), Config::default()).unwrap();
        pump(&registry);
        let activity = Activity::default();
        let busy = PendingWork { moving: 1, ..PendingWork::default() };
        activity.named("namespace-controller").set_waiting(busy);
        let other = activity.named("garbage-collector-controller");
        tokio::spawn(async move { other.set_waiting(busy) });
        let moving = ["namespace-controller", "garbage-collector-controller"];
        let named = moving.map(|who| format!("{who}: 1 object in work")).to_vec();
        assert_eq!(settled(&activity, &registry).await, Err(named));
    }

    #[derive(Default)]
    struct ClockedEngine(Vec<Timestamp>);

    impl EventEngine for ClockedEngine {
        fn handle(&mut self, _event: Event) {}

        fn poll_effect(&mut self) -> Option<Effect> {
            None
        }

        fn next_wakeup(&self) -> Option<Timestamp> {
            None
        }

        fn set_clock(&mut self, now: Timestamp) {
            self.0.push(now);
        }

        fn objects_of(&self, _resource: ResourceId) -> Option<usize> {
            Some(7)
        }
    }

    impl Settled for ClockedEngine {
        fn rests(&self) -> bool {
            true
        }

        fn due(&self) -> Option<Timestamp> {
            None
        }
    }

    /// The expiry of annotated objects once missed that its clock had been set back and deleted objects that were not due.
    #[test]
    fn a_watched_engine_learns_that_its_clock_was_set() {
        let mut watched = Instrumented::new(ClockedEngine::default(), Activity::default().named("expiry"), 0);
        watched.set_clock(Timestamp(5));
        assert_eq!(watched.inner.0, [Timestamp(5)]);
        assert_eq!(watched.objects_of(ResourceId(1)), Some(7));
    }
}
