//! The loop of every collector: feeds a [`Controller`] with deliveries of its watches, and carries out its steps.
//!
//! One task owns the engine. Other tasks send requests, as many at a time as the concurrency limit allows, and return the outcomes
//! to this task. Nothing is decided here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use gc_controller::barriers::{List, ListEnd};
use gc_controller::breaker::{Breaker, Trip};
use gc_controller::clocks::Reading;
use gc_controller::concurrency::{ConcurrencyOptions, ConcurrencyState, Pacer, Signal};
use gc_controller::controller::{Controller, Engine, Step, Surroundings};
use gc_types::{Effect, Event, EventRecord, Outcome, Request, ResourceId, WithheldBy};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;

use crate::barrier::{self, EndedList, Found};
use crate::breaker::SharedBreaker;
use crate::clock::{Clock, ClockReader, instant, moment, steady_now};
use crate::connection::ApiClient;
use crate::event_recorder::{EVENT_SOURCE, EventRecorder};
use crate::observer::Observer;
use crate::requests::PerformedRequest;
use crate::resources::ResourceTable;
use crate::restraints::{Restraints, changed};
use crate::server_clock::{self, SharedServerClock};

/// Maximum number of queued batches from watches; beyond it, the watches wait.
pub const QUEUED_BATCHES: usize = 16;
/// Maximum time to finish requests in flight when a collector stops.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// Maximum number of outcomes handled before effects are polled.
const OUTCOMES_AT_ONCE: usize = 16;

/// Outcome of a request, with other findings.
pub(crate) struct FinishedRequest<F> {
    pub(crate) performed: PerformedRequest,
    pub(crate) found: Vec<F>,
    /// Time spent by the API server, if other servers were involved.
    pub(crate) server_took: Option<Duration>,
}

impl<F> FinishedRequest<F> {
    pub(crate) fn of(performed: PerformedRequest) -> Self {
        Self { performed, found: Vec::new(), server_took: None }
    }

    /// Creates the result of a request whose outcome is unknown.
    pub(crate) fn unknown(message: String) -> Self {
        let outcome = Outcome::Failed { message, retry_after_milliseconds: None };
        Self::of(PerformedRequest { outcome, signal: Signal::Answered, round_trips: 1 })
    }
}

/// Watches of a collector, and the execution of its requests.
pub(crate) trait Adapter: Send {
    /// Engine that decides.
    type Engine: Engine<Origin: Send> + Send;
    /// Message from a watch.
    type News: Send + 'static;
    /// Finding of a request in addition to its outcome.
    type Found: Send + 'static;

    /// Maximum number of further queued batches taken with the first one before effects are polled.
    const FURTHER_BATCHES: usize;

    /// Handles one batch from a watch.
    fn take(&mut self, batch: Vec<Self::News>, controller: &mut Controller<Self::Engine>);
    /// Handles objects found by the list of a barrier. An adapter without barriers ignores them.
    fn take_listed(&mut self, _events: Vec<Event>, _engine: &mut Self::Engine) {}
    /// Handles findings of a request, before its outcome. An adapter without findings ignores them.
    fn take_found(&mut self, _found: Vec<Self::Found>, _engine: &mut Self::Engine) {}
    /// Carries out a request.
    fn perform(
        &self,
        request: Request,
    ) -> impl Future<Output = FinishedRequest<Self::Found>> + Send + 'static;
    /// Reports that a path was not served. An adapter whose resources are fixed, or whose watches notice this, ignores it.
    fn not_served(&self) {}
    /// Reports that time has passed, or that the clock `was_set`.
    fn ticked(&mut self, _was_set: bool, _engine: &mut Self::Engine) {}
    /// Called after effects were polled. Reports the collector's state and, if it `may_write`, writes everything that is not an
    /// effect; returned Events are written, too.
    fn acted(
        &mut self,
        _may_write: bool,
        _engine: &mut Self::Engine,
        _surroundings: &ControllerSurroundings,
    ) {
    }
    /// Returns the time at which `ticked` or `acted` has work that no watch announces, if it `may_write`.
    fn next_wake(&self, _may_write: bool, _engine: &Self::Engine) -> Option<Instant> {
        None
    }
}

/// Parts of every collector.
pub(crate) struct Setup {
    /// Client that changes nothing while `dry_run` gives a reason.
    pub(crate) client: ApiClient,
    pub(crate) table: ResourceTable,
    /// State of the concurrency limit.
    pub(crate) concurrency: watch::Sender<ConcurrencyState>,
    bounds: ConcurrencyOptions,
    dry_run: watch::Receiver<Option<WithheldBy>>,
    pub(crate) restraints: Restraints,
    /// Clock that objects are aged by; by default, the wall clock at the start, continued by the monotonic clock.
    pub(crate) clock: Option<Clock>,
    pub(crate) source: &'static str,
}

/// Builder methods of a collector with a `setup`.
macro_rules! set_up {
    () => {
        /// Sets the component that Events name as their source.
        #[must_use]
        pub fn named(mut self, source: &'static str) -> Self {
            self.setup.source = source;
            self
        }

        /// Sets the clock to use instead of the default.
        #[must_use]
        pub fn with_clock(mut self, clock: Clock) -> Self {
            self.setup.clock = Some(clock);
            self
        }

        /// Sets restraints. While held, the collector observes everything and does nothing.
        #[must_use]
        pub fn restrained_by(mut self, restraints: Restraints) -> Self {
            self.setup.restraints = restraints;
            self
        }
    };
}
pub(crate) use set_up;

impl Setup {
    #[expect(clippy::needless_pass_by_value, reason = "a controller owns its way to the server")]
    pub(crate) fn new(
        client: ApiClient,
        table: ResourceTable,
        bounds: ConcurrencyOptions,
        dry_run: bool,
    ) -> Self {
        let dry_run = dry_run_of(dry_run);
        Self {
            client: reading_only(&client, &dry_run),
            table,
            concurrency: watch::Sender::new(Pacer::new(bounds).state()),
            bounds,
            dry_run,
            restraints: Restraints::default(),
            clock: None,
            source: EVENT_SOURCE,
        }
    }

    /// Withholds writes while `holding` gives a reason, too.
    pub(crate) fn hold_writes(&mut self, holding: watch::Receiver<Option<WithheldBy>>) {
        self.client = reading_only(&self.client, &holding);
        self.dry_run = holding;
    }

    /// Creates a driver of this engine. If it `has_barriers`, watches and lists provide the answers to barriers.
    pub(crate) fn driver<A: Adapter>(
        self,
        engine: A::Engine,
        has_barriers: bool,
        adapter: A,
        observer: Arc<dyn Observer>,
    ) -> Driver<A> {
        let Restraints { held, breaker, bounds } = self.restraints;
        let controller = Controller::new(engine, self.bounds);
        let (recorder, writer) = EventRecorder::new(self.client.clone(), self.table.clone(), self.source);
        let mut background = JoinSet::new();
        background.spawn(writer.boxed());
        background.spawn(server_clock::follow(self.client.clone()).boxed());
        let (list_sink, listed) = mpsc::channel(QUEUED_BATCHES);
        Driver {
            adapter,
            controller: if has_barriers { controller.with_barriers() } else { controller },
            stops: breaker.as_ref().map(SharedBreaker::changes),
            surroundings: ControllerSurroundings {
                held,
                dry_run: self.dry_run,
                breaker,
                server_clock: self.client.server_clock().cloned(),
                table: self.table,
                observer,
                recorder,
            },
            bounds,
            client: self.client,
            clock: self.clock.map(ClockReader::new),
            concurrency: self.concurrency,
            requests: JoinSet::new(),
            numbers: HashMap::new(),
            lists: JoinSet::new(),
            listing: HashMap::new(),
            list_sink,
            listed,
            background,
        }
    }
}

/// Restraints of a controller in this process, and its observer.
pub struct ControllerSurroundings {
    held: watch::Receiver<bool>,
    dry_run: watch::Receiver<Option<WithheldBy>>,
    breaker: Option<SharedBreaker>,
    server_clock: Option<SharedServerClock>,
    pub(crate) table: ResourceTable,
    pub(crate) observer: Arc<dyn Observer>,
    recorder: EventRecorder,
}

impl ControllerSurroundings {
    /// Creates the surroundings of a controller that sends with this client, has no separate clock for the age of objects, and
    /// drives itself. The returned future writes its Events.
    pub fn new(
        restraints: &Restraints,
        dry_run: bool,
        client: &ApiClient,
        table: ResourceTable,
        observer: Arc<dyn Observer>,
        source: &'static str,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let dry_run = dry_run_of(dry_run);
        let client = &reading_only(client, &dry_run);
        let (recorder, writer) = EventRecorder::new(client.clone(), table.clone(), source);
        let surroundings = Self {
            held: restraints.held.clone(),
            dry_run,
            breaker: restraints.breaker.clone(),
            server_clock: client.server_clock().cloned(),
            table,
            observer,
            recorder,
        };
        (surroundings, writer)
    }

    /// Returns the same client, which changes nothing in a dry run.
    pub(crate) fn reading_only(&self, client: &ApiClient) -> ApiClient {
        reading_only(client, &self.dry_run)
    }

    /// Writes an Event, except in a dry run.
    pub fn note(&self, note: EventRecord) {
        if self.dry_run().is_none() {
            self.recorder.record(note);
        }
    }
}

fn dry_run_of(dry_run: bool) -> watch::Receiver<Option<WithheldBy>> {
    watch::channel(dry_run.then_some(WithheldBy::DryRun)).1
}

/// Returns the same client, which sends only GETs while `dry_run` gives a reason. Every writer of a collector gets its client from
/// here, so that none can forget to check.
fn reading_only(client: &ApiClient, dry_run: &watch::Receiver<Option<WithheldBy>>) -> ApiClient {
    let dry_run = dry_run.clone();
    client.gated(move || dry_run.borrow().is_none())
}

impl std::fmt::Debug for ControllerSurroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerSurroundings").finish_non_exhaustive()
    }
}

impl Surroundings for ControllerSurroundings {
    fn is_held(&self) -> bool {
        *self.held.borrow()
    }

    fn dry_run(&self) -> Option<WithheldBy> {
        *self.dry_run.borrow()
    }

    fn clocks_disagree(&self) -> bool {
        self.server_clock.as_ref().is_some_and(|clock| clock.agreement().pauses())
    }

    fn ask_breaker<T>(&self, ask: impl FnOnce(&mut Breaker) -> T) -> Option<T> {
        Some(ask(&mut self.breaker.as_ref()?.lock()))
    }

    fn resource_name(&self, resource: ResourceId) -> Option<Arc<str>> {
        self.table.get(resource).map(|route| Arc::clone(&route.name))
    }

    fn decided(&self, effect: &Effect) {
        self.observer.decided(effect);
    }

    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: Duration) {
        self.observer.finished(effect, outcome, round_trips, took);
    }

    fn tripped(&self, trip: &Trip) {
        tracing::error!(resource = %trip.resource, "{trip}; `kubegc resume` continues");
        if let Some(breaker) = &self.breaker {
            breaker.change(|_| ());
        }
        self.observer.tripped(trip);
    }
}

/// A running controller.
pub(crate) struct Driver<A: Adapter> {
    adapter: A,
    controller: Controller<A::Engine>,
    surroundings: ControllerSurroundings,
    /// Follows the breaker's stopped resources.
    stops: Option<watch::Receiver<u64>>,
    /// Follows the limits of the concurrency, if they may change.
    bounds: Option<watch::Receiver<ConcurrencyOptions>>,
    client: ApiClient,
    clock: Option<ClockReader>,
    concurrency: watch::Sender<ConcurrencyState>,
    requests: JoinSet<FinishedRequest<A::Found>>,
    /// Numbers of the requests in flight, which the concurrency limit bounds.
    numbers: HashMap<tokio::task::Id, u64>,
    lists: JoinSet<EndedList>,
    /// Running lists, by number.
    listing: HashMap<u64, AbortHandle>,
    list_sink: mpsc::Sender<Found>,
    listed: mpsc::Receiver<Found>,
    background: JoinSet<()>,
}

type JoinedRequest<F> = Result<(tokio::task::Id, FinishedRequest<F>), JoinError>;

impl<A: Adapter> Driver<A> {
    /// Runs a task alongside the driver until the driver ends.
    pub(crate) fn beside(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(task.boxed());
    }

    /// Runs until `shutdown` is ready, or until the watches have ended. Then sends nothing further, gives requests in flight
    /// [`SHUTDOWN_GRACE`], and returns the engine.
    pub(crate) async fn run(
        mut self,
        mut news: mpsc::Receiver<Vec<A::News>>,
        mut shutdown: BoxFuture<'_, ()>,
    ) -> A::Engine {
        self.tick();
        loop {
            let wake = self.act();
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Ok(()) = self.surroundings.held.changed() => self.tick(),
                Ok(()) = self.surroundings.dry_run.changed() => {
                    self.tick();
                    self.controller.dry_run_changed(&self.surroundings);
                }
                () = changed(&mut self.stops) => {
                    self.tick();
                    self.controller.breaker_changed(&self.surroundings);
                }
                () = changed(&mut self.bounds) => self.take_bounds(),
                Some(done) = self.requests.join_next_with_id() => self.take_done(done),
                Some(found) = self.listed.recv() => self.take_found(found),
                Some(ended) = self.lists.join_next() => self.take_ended(ended),
                batch = news.recv() => {
                    let Some(batch) = batch else { break };
                    self.take_news(batch, &mut news);
                }
                () = tokio::time::sleep_until(wake) => self.tick(),
            }
        }
        self.land().await;
        self.controller.into_engine()
    }

    fn tick(&mut self) {
        let steady = steady_now();
        let reading = self.clock.as_mut().map_or(Reading::Passed(steady), ClockReader::read);
        self.controller.tick(reading, steady, &self.surroundings);
        let was_set = matches!(reading, Reading::Set { .. });
        self.adapter.ticked(was_set, self.controller.engine_mut());
    }

    fn take_bounds(&mut self) {
        if let Some(bounds) = &self.bounds {
            self.controller.set_concurrency(*bounds.borrow());
            self.concurrency.send_replace(self.controller.concurrency());
        }
    }

    fn take_news(&mut self, first: Vec<A::News>, more: &mut mpsc::Receiver<Vec<A::News>>) {
        self.tick();
        // Items taken out of the queue are always handled: `take` comes before the check of the queue.
        let queued = std::iter::from_fn(|| more.try_recv().ok()).take(A::FURTHER_BATCHES);
        for batch in std::iter::once(first).chain(queued) {
            self.adapter.take(batch, &mut self.controller);
        }
    }

    /// Polls effects and starts their requests. Returns the time at which to continue if nothing happens before.
    fn act(&mut self) -> Instant {
        let now = moment();
        let rest = self.controller.act(now, usize::MAX, &self.surroundings);
        self.take_steps();
        let may_write = Controller::<A::Engine>::may_write(&self.surroundings);
        self.adapter.acted(may_write, self.controller.engine_mut(), &self.surroundings);
        let wake = instant(self.controller.next_wake(rest, now, &self.surroundings));
        self.adapter.next_wake(may_write, self.controller.engine()).map_or(wake, |other| other.min(wake))
    }

    fn take_steps(&mut self) {
        while let Some(step) = self.controller.poll_step() {
            match step {
                Step::Send { number, request } => {
                    let task = self.requests.spawn(self.adapter.perform(request).boxed());
                    self.numbers.insert(task.id(), number);
                }
                Step::List(list) => self.start_list(list),
                Step::CancelList(number) => {
                    if let Some(task) = self.listing.remove(&number) {
                        task.abort();
                    }
                }
                Step::RecordEvent(note) => self.surroundings.note(note),
            }
        }
    }

    fn start_list(&mut self, list: List) {
        let number = list.number;
        let Some(route) = self.surroundings.table.get(list.place.resource) else {
            self.controller.listed(number, ListEnd::NotServed, None, moment(), &self.surroundings);
            return;
        };
        let (client, sink) = (self.client.clone(), self.list_sink.clone());
        let task =
            self.lists.spawn(async move { barrier::list(&client, &route, &list, &sink).await }.boxed());
        self.listing.insert(number, task);
    }

    fn take_found(&mut self, found: Found) {
        // Findings of an abandoned list do not prove absence, but are true.
        self.tick();
        if found.continues {
            self.controller.list_continued(found.list);
        }
        self.adapter.take_listed(found.events, self.controller.engine_mut());
    }

    fn take_ended(&mut self, ended: Result<EndedList, JoinError>) {
        // The list's findings were passed on before it ended.
        while let Ok(found) = self.listed.try_recv() {
            self.take_found(found);
        }
        let Ok(EndedList { list: number, end, signal }) = ended else { return };
        self.tick();
        self.listing.remove(&number);
        if end == ListEnd::NotServed {
            self.adapter.not_served();
        }
        self.controller.listed(number, end, signal, moment(), &self.surroundings);
    }

    fn take_done(&mut self, first: JoinedRequest<A::Found>) {
        self.tick();
        self.take_one(first);
        for _ in 0..OUTCOMES_AT_ONCE {
            let Some(next) = self.requests.try_join_next_with_id() else { break };
            self.take_one(next);
        }
        self.concurrency.send_replace(self.controller.concurrency());
    }

    fn take_one(&mut self, done: JoinedRequest<A::Found>) {
        let (id, done) = match done {
            Ok(answer) => answer,
            // The request died without an answer, so its outcome is unknown.
            Err(error) => (error.id(), FinishedRequest::unknown(error.to_string())),
        };
        let Some(number) = self.numbers.remove(&id) else { return };
        let FinishedRequest { performed, found, server_took } = done;
        if performed.outcome == Outcome::NotServed {
            self.adapter.not_served();
        }
        self.adapter.take_found(found, self.controller.engine_mut());
        let now = moment();
        self.controller.finished(number, performed, server_took, now, &self.surroundings);
    }

    /// Sends nothing further, and waits briefly for requests in flight.
    async fn land(&mut self) {
        let deadline = Instant::now() + SHUTDOWN_GRACE;
        self.lists.abort_all();
        while let Ok(Some(done)) = tokio::time::timeout_at(deadline, self.requests.join_next_with_id()).await
        {
            self.take_done(done);
        }
        self.requests.abort_all();
        self.background.abort_all();
    }
}

#[cfg(test)]
mod tests;
