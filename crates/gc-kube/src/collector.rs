//! The loop that feeds an engine from watches and performs what it decides.
//!
//! One task owns the engine. It takes events, asks for effects, and has requests sent by other tasks, as many
//! at a time as the pacing allows; what becomes of them comes back as events. Nothing here decides anything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gc_retention::expiry::ExpiryEngine;
use gc_types::{Effect, Event, HeldBy, Outcome, Request, ResourceId, Timestamp};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::barrier::{self, Ended, Found};
use crate::breaker::is_inferred;
use crate::clock::{Clock, ClockReader, instant, machine_clock, moment, steady_now, until};
use crate::connection::ApiClient;
use crate::notes::{EVENT_SOURCE, Notes};
use crate::observer::Observer;
use crate::requests::{Performed, Performer};
use crate::resources::ResourceTable;
use crate::rest::Rest;
use crate::restraints::{ClockGuard, Deletion, Guard, Restraints, changed, deleted};
use crate::server_clock;
use crate::status::StatusBoard;
use crate::supervisor::Supervisor;
use crate::watcher::WatchContext;
use gc_control::Moment;
use gc_control::barriers::{Answer, Barriers, List, ListEnd, Place};
use gc_control::clocks::{Reading, SteadyClock};
use gc_control::pacing::{Pacer, PacingOptions, PacingState, Signal};

/// Maximum number of queued batches of events; beyond it, the watches wait.
pub const QUEUED_BATCHES: usize = 16;
/// Maximum number of batches or outcomes that are handled before effects are polled.
const TAKEN_AT_ONCE: usize = 16;
/// Maximum time between two ticks of the engine.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// How long requests in flight may take to finish when the collector stops.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// What decides: a synchronous function of its events (`gc_ownership::Engine`, or several together).
pub trait Engine: Send + 'static {
    /// Takes in one event.
    fn handle(&mut self, event: Event);
    /// The next thing to do, or `None` if there is nothing to do now.
    fn poll_effect(&mut self) -> Option<Effect>;
    /// When it needs the next tick, if at all.
    fn next_wakeup(&self) -> Option<Timestamp>;
    /// The wall clock that its ticks follow was set: it is this time now. For engines that are given a clock.
    fn set_clock(&mut self, _now: Timestamp) {}
    /// How many objects of a resource are known, if that is counted.
    fn objects_of(&self, _resource: ResourceId) -> Option<usize> {
        None
    }
}

impl Engine for ExpiryEngine {
    fn handle(&mut self, event: Event) {
        self.handle(event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.poll_effect()
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        self.next_wakeup()
    }

    fn set_clock(&mut self, now: Timestamp) {
        self.set_clock(now);
    }
}

/// Settings of a collector.
#[derive(Clone, Debug)]
pub struct CollectorOptions {
    /// Perform nothing, and tell the observer everything.
    pub dry_run: bool,
    /// Bounds of the pacing.
    pub pacing: PacingOptions,
    /// `(group, resource)` pairs that are never collected.
    pub ignored_resources: Vec<(String, String)>,
    /// Whether initial lists are asked for as streams.
    pub streamed_lists: bool,
}

impl Default for CollectorOptions {
    fn default() -> Self {
        let events = |group: &str| (group.to_owned(), "events".to_owned());
        Self {
            dry_run: false,
            pacing: PacingOptions::default(),
            ignored_resources: vec![events(""), events("events.k8s.io")],
            streamed_lists: true,
        }
    }
}

/// A collector over one API server.
pub struct Collector {
    client: ApiClient,
    options: CollectorOptions,
    table: ResourceTable,
    board: StatusBoard,
    pacing: watch::Sender<PacingState>,
    holding: watch::Receiver<Option<HeldBy>>,
    restraints: Restraints,
    given_clock: Option<Clock>,
    source: &'static str,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Collector {
    /// Nothing is sent before [`Collector::run`].
    #[must_use]
    pub fn new(client: ApiClient, options: CollectorOptions) -> Self {
        let pacing = watch::Sender::new(Pacer::new(options.pacing).state());
        let (table, board) = (ResourceTable::default(), StatusBoard::default());
        let holding = watch::channel(options.dry_run.then_some(HeldBy::DryRun)).1;
        Self {
            client,
            options,
            table,
            board,
            pacing,
            holding,
            restraints: Restraints::default(),
            given_clock: None,
            source: EVENT_SOURCE,
        }
    }

    /// Its Events name this component as their source.
    #[must_use]
    pub fn named(mut self, source: &'static str) -> Self {
        self.source = source;
        self
    }

    /// Its engine uses this clock instead of the continued wall clock of the start.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.given_clock = Some(clock);
        self
    }

    /// Reads for real and holds every write while `holding` says for what; when it says `None` again, what was held
    /// is decided anew.
    #[must_use]
    pub fn holding_writes(mut self, holding: watch::Receiver<Option<HeldBy>>) -> Self {
        self.holding = holding;
        self
    }

    /// Obeys these. While it is held, it takes in everything and does nothing: a standby with a warm graph.
    #[must_use]
    pub fn restrained_by(mut self, restraints: Restraints) -> Self {
        self.restraints = restraints;
        self
    }

    /// The resources that are known.
    #[must_use]
    pub fn table(&self) -> ResourceTable {
        self.table.clone()
    }

    /// How each resource is doing.
    #[must_use]
    pub fn board(&self) -> StatusBoard {
        self.board.clone()
    }

    /// The figures of the pacing.
    #[must_use]
    pub fn pacing(&self) -> watch::Receiver<PacingState> {
        self.pacing.subscribe()
    }

    /// Runs until `shutdown` is ready; then sends nothing further, gives what is in flight
    /// [`SHUTDOWN_GRACE`], and hands the engine back.
    pub async fn run<E: Engine>(
        mut self,
        engine: E,
        observer: Arc<dyn Observer>,
        shutdown: impl Future<Output = ()>,
    ) -> E {
        let (sink, events) = mpsc::channel(QUEUED_BATCHES);
        let rediscover = Arc::new(Notify::new());
        let context = WatchContext {
            client: self.client.clone(),
            sink,
            board: self.board.clone(),
            rediscover: Arc::clone(&rediscover),
            streamed_lists: self.options.streamed_lists,
        };
        let supervisor = Supervisor::new(context, self.table.clone(), self.options.ignored_resources.clone());
        let (notes, writer) = Notes::new(self.client.clone(), self.table.clone(), self.source);
        let mut background = JoinSet::new();
        background.spawn(supervisor.run());
        background.spawn(writer);
        background.spawn(server_clock::follow(self.client.clone()));
        let (list_sink, listed) = mpsc::channel(QUEUED_BATCHES);
        let mut driver = Driver {
            engine,
            observer,
            performer: Performer::new(self.client.clone(), self.table.clone()),
            clock_guard: ClockGuard::new(&self.client),
            client: self.client,
            table: self.table,
            pacer: Pacer::new(self.options.pacing),
            pacing: self.pacing,
            holding: self.holding,
            guard: Guard::new(self.restraints.breaker.take()),
            restraints: self.restraints,
            notes,
            rediscover,
            flying: HashMap::new(),
            requests: JoinSet::new(),
            lists: JoinSet::new(),
            listing: HashMap::new(),
            list_sink,
            barriers: Barriers::default(),
            asked: HashMap::new(),
            clock: SteadyClock::new(machine_clock(), moment()),
            given_clock: self.given_clock.map(ClockReader::new),
            now: Timestamp::default(),
        };
        driver.run(events, listed, shutdown).await;
        driver.land().await;
        background.abort_all();
        driver.engine
    }
}

/// An effect whose outcome is awaited.
struct Flying {
    effect: Effect,
    begun: Moment,
}

/// A list of a barrier that is under way.
struct Listing {
    task: tokio::task::AbortHandle,
    begun: Moment,
    /// Pages that were asked for.
    pages: u32,
}

struct Driver<E> {
    engine: E,
    observer: Arc<dyn Observer>,
    performer: Performer,
    client: ApiClient,
    table: ResourceTable,
    pacer: Pacer,
    pacing: watch::Sender<PacingState>,
    holding: watch::Receiver<Option<HeldBy>>,
    restraints: Restraints,
    guard: Guard,
    clock_guard: ClockGuard,
    notes: Notes,
    rediscover: Arc<Notify>,
    /// Requests on their way. The engine bounds how many, and the pacing.
    flying: HashMap<tokio::task::Id, Flying>,
    requests: JoinSet<Performed>,
    lists: JoinSet<Ended>,
    /// The lists under way, by their numbers.
    listing: HashMap<u64, Listing>,
    list_sink: mpsc::Sender<Found>,
    barriers: Barriers,
    /// The barriers that were asked for.
    asked: HashMap<gc_types::EffectId, Flying>,
    clock: SteadyClock,
    given_clock: Option<ClockReader>,
    now: Timestamp,
}

impl<E: Engine> Driver<E> {
    async fn run(
        &mut self,
        mut events: mpsc::Receiver<Vec<Event>>,
        mut listed: mpsc::Receiver<Found>,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let rest = self.act();
            let wake = self.next_wake(rest);
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                Ok(()) = self.restraints.held.changed() => self.tick(),
                Ok(()) = self.holding.changed() => self.release_writes(),
                () = self.guard.changed() => self.release_resumed(),
                () = changed(&mut self.restraints.bounds) => self.take_bounds(),
                Some(done) = self.requests.join_next_with_id() => self.take_done(done),
                Some(found) = listed.recv() => self.take_found(found),
                Some(done) = self.lists.join_next() => {
                    // What it found was handed on before it ended.
                    while let Ok(found) = listed.try_recv() {
                        self.take_found(found);
                    }
                    if let Ok(ended) = done {
                        self.take_listed(ended);
                    }
                }
                batch = events.recv() => {
                    let Some(batch) = batch else { return };
                    self.take_events(batch, &mut events);
                }
                () = tokio::time::sleep_until(wake) => self.tick(),
            }
        }
    }

    fn tick(&mut self) {
        let reading = match &mut self.given_clock {
            Some(clock) => clock.read(),
            None => Reading::Passed(self.clock.at(moment())),
        };
        match reading {
            Reading::Passed(now) => self.now = now,
            Reading::Set { expected, now } => {
                self.now = now;
                self.engine.handle(Event::Tick(expected));
                self.engine.set_clock(now);
            }
        }
        self.engine.handle(Event::Tick(self.now));
        for resource in self.clock_guard.resumed() {
            self.engine.handle(Event::Released(Some(resource)));
        }
    }

    fn release_writes(&mut self) {
        self.tick();
        if self.holding.borrow_and_update().is_none() {
            self.engine.handle(Event::Released(None));
        }
    }

    fn take_bounds(&mut self) {
        if let Some(bounds) = &self.restraints.bounds {
            self.pacer.set_options(*bounds.borrow());
            self.pacing.send_replace(self.pacer.state());
        }
    }

    /// Held effects of resources that may continue are decided again.
    fn release_resumed(&mut self) {
        self.tick();
        let resumed = self.guard.resumed();
        for route in self.table.all().into_iter().filter(|route| resumed.contains(&route.name)) {
            self.engine.handle(Event::Released(Some(route.info.id)));
        }
    }

    fn tell(&mut self, event: Event) {
        self.observer.told(&event);
        self.engine.handle(event);
    }

    fn take_events(&mut self, first: Vec<Event>, more: &mut mpsc::Receiver<Vec<Event>>) {
        self.tick();
        // What is taken out of the queue is always handled: `take` comes before checking the queue.
        let queued = std::iter::from_fn(|| more.try_recv().ok()).take(TAKEN_AT_ONCE);
        for event in std::iter::once(first).chain(queued).flatten() {
            self.barriers.observe(&event);
            self.tell(event);
        }
        self.take_reached();
    }

    /// Ends the barriers that watches have reached, and the lists that are not needed any more.
    fn take_reached(&mut self) {
        for answer in self.barriers.take_reached() {
            self.finish_barrier(answer);
        }
        for number in self.barriers.take_cancelled() {
            if let Some(listing) = self.listing.remove(&number) {
                listing.task.abort();
                self.pacer.release();
            }
        }
    }

    fn take_found(&mut self, found: Found) {
        // What a list finds that was given up proves nothing, and is true all the same.
        self.tick();
        if found.continues {
            self.barriers.continued(found.list);
            if let Some(listing) = self.listing.get_mut(&found.list) {
                listing.pages += 1;
            }
        }
        for event in found.events {
            self.tell(event);
        }
    }

    fn take_done(&mut self, first: Result<(tokio::task::Id, Performed), tokio::task::JoinError>) {
        self.tick();
        self.take_one(first);
        for _ in 0..TAKEN_AT_ONCE {
            let Some(next) = self.requests.try_join_next_with_id() else { break };
            self.take_one(next);
        }
        self.pacing.send_replace(self.pacer.state());
    }

    fn take_one(&mut self, done: Result<(tokio::task::Id, Performed), tokio::task::JoinError>) {
        let (id, performed) = match done {
            Ok(answer) => answer,
            // A request that died without an answer: its fate is unknown.
            Err(error) => {
                let outcome = Outcome::Failed { message: error.to_string(), retry_after_milliseconds: None };
                (error.id(), Performed { outcome, signal: Signal::Answered, round_trips: 1 })
            }
        };
        self.finish_request(id, performed);
    }

    fn finish_request(&mut self, id: tokio::task::Id, performed: Performed) {
        let Some(Flying { effect, begun }) = self.flying.remove(&id) else { return };
        let now = moment();
        let took = now.since(begun);
        let per_request = took / performed.round_trips.max(1);
        let request_begun = now.before(per_request);
        self.pacer.finish(request_begun, now, performed.signal);
        if performed.outcome == Outcome::NotServed {
            self.rediscover.notify_one();
        }
        if let Some(route) = deleted(&effect).and_then(|key| self.table.get(key.resource)) {
            self.guard.finished(&route.name, is_inferred(&effect.reason), &performed.outcome);
        }
        self.observer.finished(&effect, &performed.outcome, performed.round_trips, took);
        self.engine.handle(Event::Done(effect.id, performed.outcome));
    }

    fn take_listed(&mut self, Ended { list: number, end, signal }: Ended) {
        self.tick();
        let now = moment();
        if let Some(Listing { begun, pages, .. }) = self.listing.remove(&number) {
            match signal {
                Some(signal) => self.pacer.finish(now.before(now.since(begun) / pages), now, signal),
                None => self.pacer.release(),
            }
        }
        if end == ListEnd::NotServed {
            self.rediscover.notify_one();
        }
        for answer in self.barriers.finish(number, end, now) {
            self.finish_barrier(answer);
        }
        self.take_reached();
    }

    fn finish_barrier(&mut self, Answer { effect: id, outcome, requests }: Answer) {
        if let Some(Flying { effect, begun }) = self.asked.remove(&id) {
            self.observer.finished(&effect, &outcome, requests, moment().since(begun));
        }
        self.engine.handle(Event::Done(id, outcome));
    }

    /// Asks for effects, one by one while they may go, and sends them.
    fn act(&mut self) -> Rest {
        if self.restraints.is_held() {
            return Rest::Idle;
        }
        self.make_lists();
        let rest = loop {
            let now = moment();
            if let Err(until) = self.pacer.check(now) {
                break Rest::Full(until);
            }
            let Some(effect) = self.engine.poll_effect() else { break Rest::Idle };
            self.observer.decided(&effect);
            self.accept(effect, now);
        };
        self.take_reached();
        self.make_lists();
        rest
    }

    /// Begins the lists that barriers need now, as far as the pacing allows.
    fn make_lists(&mut self) {
        let now = moment();
        while self.pacer.check(now).is_ok()
            && let Some(list) = self.barriers.poll_list(now)
        {
            self.start_list(list, now);
        }
    }

    fn accept(&mut self, effect: Effect, now: Moment) {
        let is_write = !matches!(effect.request, Request::Read { .. } | Request::Barrier { .. });
        let holding = *self.holding.borrow();
        let held = holding.filter(|_| is_write).or_else(|| self.clock_guard.admit(&effect));
        if let Some(by) = held.or_else(|| self.stopped_by_breaker(&effect)) {
            self.answer_at_once(&effect, Outcome::Held(by));
            return;
        }
        match &effect.request {
            Request::Note(note) => {
                self.notes.take(note.clone());
                self.answer_at_once(&effect, Outcome::Applied(None));
            }
            Request::Barrier { resource, namespace, at_least } => {
                let place = Place { resource: *resource, namespace: namespace.clone() };
                self.barriers.ask(effect.id, place, *at_least, now);
                self.asked.insert(effect.id, Flying { effect, begun: now });
            }
            _ => {
                self.pacer.begin();
                let (performer, request) = (self.performer.clone(), effect.request.clone());
                let task = self.requests.spawn(async move { performer.perform(&request).await });
                self.flying.insert(task.id(), Flying { effect, begun: now });
            }
        }
    }

    /// Asks the breaker for a deletion; answers what holds it, if anything does.
    fn stopped_by_breaker(&mut self, effect: &Effect) -> Option<HeldBy> {
        let key = deleted(effect)?;
        let route = self.table.get(key.resource)?;
        let objects = self.engine.objects_of(key.resource).unwrap_or(usize::MAX);
        let deletion = Deletion { resource: &route.name, inferred: is_inferred(&effect.reason), objects };
        self.guard.admit(deletion, steady_now(), &*self.observer)
    }

    fn answer_at_once(&mut self, effect: &Effect, outcome: Outcome) {
        self.observer.finished(effect, &outcome, 0, Duration::ZERO);
        self.engine.handle(Event::Done(effect.id, outcome));
    }

    fn start_list(&mut self, list: List, now: Moment) {
        let number = list.number;
        let Some(route) = self.table.get(list.place.resource) else {
            for answer in self.barriers.finish(number, ListEnd::NotServed, now) {
                self.finish_barrier(answer);
            }
            return;
        };
        self.pacer.begin();
        let (client, sink) = (self.client.clone(), self.list_sink.clone());
        let task = self.lists.spawn(async move { barrier::list(&client, &route, &list, &sink).await });
        self.listing.insert(number, Listing { task, begun: now, pages: 1 });
    }

    fn next_wake(&self, rest: Rest) -> Instant {
        let now = Instant::now();
        // While it is held, what is due stays due.
        let due = self.engine.next_wakeup().filter(|_| !self.restraints.is_held());
        let acted = rest.ends(due.map(|at| now + until(at, self.now)));
        let listed = self
            .barriers
            .next_due()
            .filter(|_| rest == Rest::Idle && !self.restraints.is_held())
            .map(instant);
        acted.into_iter().chain(listed).fold(now + LONGEST_SLEEP, Instant::min)
    }

    /// Sends nothing further, and waits a little for what is in flight.
    async fn land(&mut self) {
        let deadline = Instant::now() + SHUTDOWN_GRACE;
        self.lists.abort_all();
        while let Ok(Some(done)) = tokio::time::timeout_at(deadline, self.requests.join_next_with_id()).await
        {
            self.take_done(done);
        }
        self.requests.abort_all();
    }
}
