//! The loop that feeds a retention collector from watches and performs what it decides.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use gc_retention::engine::{Collecting, Counts, MachineState, Observation, StorageFailure};
use gc_retention::objects::Kind;
use gc_types::{Effect, HeldBy, ObjectKey, Outcome, OutsideCall, Request, ResourceVersion, Timestamp, Uid};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock::{Clock, ClockReader, moment, steady_now, system_clock, until};
use crate::collector::{QUEUED_BATCHES, SHUTDOWN_GRACE};
use crate::connection::ApiClient;
use crate::facts::{FactsReader, FactsWatcher, list_live};
use crate::notes::{EVENT_SOURCE, Notes};
use crate::observer::Observer;
use crate::requests::{Performed, Performer};
use crate::resources::ResourceTable;
use crate::rest::Rest;
use crate::restraints::{ClockGuard, Deletion, Guard, Restraints, changed, deleted, emptied};
use crate::server_clock;
use gc_control::Moment;
use gc_control::clocks::Reading;
use gc_control::pacing::{Pacer, PacingOptions, Signal};

/// Maximum time between two ticks of the collector.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Time between two reports of the collector's state.
const STANDING_PERIOD: Duration = Duration::from_secs(1);

/// Systems other than the API server: storage, machines.
pub trait Outside: Send + Sync + 'static {
    /// Does or asks something on behalf of an object, which is known to be as it was judged. Must end by itself within
    /// a bounded time.
    fn call(&self, key: ObjectKey, call: OutsideCall) -> BoxFuture<'static, OutsideAnswer>;
}

/// What comes back from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutsideAnswer {
    /// To a deletion of storage: what else is to be said, and whether it was done.
    Storage(Option<String>, Result<(), StorageFailure>),
    /// To a question about a machine: its state, or why it is unknown.
    Machine(Result<MachineState, String>),
}

/// There is nothing but the API server.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingOutside;

impl Outside for NothingOutside {
    fn call(&self, _key: ObjectKey, call: OutsideCall) -> BoxFuture<'static, OutsideAnswer> {
        let message = "nothing outside the API server is configured".to_owned();
        Box::pin(async move {
            match call {
                OutsideCall::DeleteStorage(_) => {
                    OutsideAnswer::Storage(None, Err(StorageFailure { in_use: false, message }))
                }
                OutsideCall::LookUpMachine { .. } => OutsideAnswer::Machine(Err(message)),
            }
        })
    }
}

/// Where the resources are that retention collectors deal with; their effects name resources by it.
#[must_use]
pub fn retention_table() -> ResourceTable {
    ResourceTable::of(Kind::ALL.iter().map(|kind| kind.info()))
}

/// A retention collector over one API server.
pub struct RetentionCollector<C> {
    client: ApiClient,
    collecting: C,
    pacing: PacingOptions,
    dry_run: bool,
    source: &'static str,
    clock: Clock,
    outside: Arc<dyn Outside>,
    restraints: Restraints,
}

impl<C> std::fmt::Debug for RetentionCollector<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RetentionCollector").field("source", &self.source).finish_non_exhaustive()
    }
}

/// What a request came to, and what a live list found.
struct Done {
    performed: Performed,
    found: Vec<Observation>,
    /// How long the API server took of it, where others took part.
    server_took: Option<Duration>,
}

impl Done {
    fn of(performed: Performed) -> Self {
        Self { performed, found: Vec::new(), server_took: None }
    }
}

struct Flying {
    effect: Effect,
    begun: Moment,
}

struct Driver<C> {
    collecting: C,
    client: ApiClient,
    performer: Performer,
    table: ResourceTable,
    observer: Arc<dyn Observer>,
    outside: Arc<dyn Outside>,
    restraints: Restraints,
    guard: Guard,
    clock_guard: ClockGuard,
    notes: Notes,
    pacer: Pacer,
    dry_run: bool,
    clock: ClockReader,
    told_standing: Option<Instant>,
    /// Effects that wait for a place; the collector bounds how many it has in flight.
    flying: HashMap<tokio::task::Id, Flying>,
    requests: JoinSet<Done>,
    now: Timestamp,
}

impl<C: Collecting> RetentionCollector<C> {
    /// Nothing is sent before [`RetentionCollector::run`]; with `dry_run` nothing is changed at all.
    #[must_use]
    pub fn new(client: ApiClient, collecting: C, pacing: PacingOptions, dry_run: bool) -> Self {
        Self {
            client,
            collecting,
            pacing,
            dry_run,
            source: EVENT_SOURCE,
            clock: system_clock(),
            outside: Arc::new(NothingOutside),
            restraints: Restraints::default(),
        }
    }

    /// Its Events name this component as their source.
    #[must_use]
    pub fn named(self, source: &'static str) -> Self {
        Self { source, ..self }
    }

    /// The clock that it uses.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Its calls outside go here.
    #[must_use]
    pub fn with_outside(self, outside: Arc<dyn Outside>) -> Self {
        Self { outside, ..self }
    }

    /// Obeys these.
    #[must_use]
    pub fn restrained_by(self, restraints: Restraints) -> Self {
        Self { restraints, ..self }
    }

    /// Runs until `shutdown` is ready; then sends nothing further, gives what is in flight [`SHUTDOWN_GRACE`],
    /// and answers what has been counted.
    pub async fn run(mut self, observer: Arc<dyn Observer>, shutdown: impl Future<Output = ()>) -> Counts {
        let (sink, observations) = mpsc::channel(QUEUED_BATCHES);
        let mut watches = JoinSet::new();
        for kind in self.collecting.kinds() {
            let reader = Arc::new(FactsReader::new(*kind));
            watches.spawn(FactsWatcher::new(self.client.clone(), reader, sink.clone()).run());
        }
        drop(sink);
        let table = retention_table();
        let (notes, writer) = Notes::new(self.client.clone(), table.clone(), self.source);
        watches.spawn(writer);
        watches.spawn(server_clock::follow(self.client.clone()));
        let mut driver = Driver {
            collecting: self.collecting,
            performer: Performer::new(self.client.clone(), table.clone()),
            table,
            clock_guard: ClockGuard::new(&self.client),
            client: self.client,
            observer,
            outside: self.outside,
            guard: Guard::new(self.restraints.breaker.take()),
            restraints: self.restraints,
            notes,
            pacer: Pacer::new(self.pacing),
            dry_run: self.dry_run,
            clock: ClockReader::new(self.clock),
            told_standing: None,
            flying: HashMap::new(),
            requests: JoinSet::new(),
            now: Timestamp::default(),
        };
        driver.run(observations, shutdown).await;
        driver.land().await;
        watches.abort_all();
        driver.collecting.counts()
    }
}

impl<C: Collecting> Driver<C> {
    async fn run(
        &mut self,
        mut observations: mpsc::Receiver<Vec<Observation>>,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut shutdown = std::pin::pin!(shutdown);
        self.tick();
        loop {
            let rest = self.act();
            self.tell();
            let wake = self.next_wake(rest);
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                Ok(()) = self.restraints.held.changed() => self.tick(),
                () = self.guard.changed() => self.release_resumed(),
                () = changed(&mut self.restraints.bounds) => self.take_bounds(),
                Some(done) = self.requests.join_next_with_id() => self.take_done(done),
                batch = observations.recv() => {
                    let Some(batch) = batch else { return };
                    self.tick();
                    for observation in batch {
                        self.collecting.observe(observation);
                    }
                }
                () = tokio::time::sleep_until(wake) => self.tick(),
            }
        }
    }

    fn tick(&mut self) {
        match self.clock.read() {
            Reading::Passed(now) => {
                self.now = now;
                self.collecting.tick(now);
            }
            Reading::Set { expected, now } => {
                self.now = now;
                self.collecting.tick(expected);
                self.collecting.set_clock(now);
            }
        }
        for resource in self.clock_guard.resumed() {
            self.collecting.release(Some(resource));
        }
    }

    fn take_bounds(&mut self) {
        if let Some(bounds) = &self.restraints.bounds {
            self.pacer.set_options(*bounds.borrow());
        }
    }

    /// Held effects of resources that may continue are decided again.
    fn release_resumed(&mut self) {
        self.tick();
        let resumed = self.guard.resumed();
        for route in self.table.all().into_iter().filter(|route| resumed.contains(&route.name)) {
            self.collecting.release(Some(route.info.id));
        }
    }

    /// What holds an effect back, if anything does.
    fn holds(&mut self, effect: &Effect) -> Option<HeldBy> {
        if self.dry_run && changes(&effect.request) {
            return Some(HeldBy::DryRun);
        }
        if let Some(by) = self.clock_guard.admit(effect) {
            return Some(by);
        }
        if let Some(route) = emptied(effect).and_then(|key| self.table.get(key.resource)) {
            return self.guard.admit_uncounted(&route.name);
        }
        let route = deleted(effect).and_then(|key| self.table.get(key.resource))?;
        let deletion = Deletion { resource: &route.name, inferred: false, objects: usize::MAX };
        self.guard.admit(deletion, steady_now(), &*self.observer)
    }

    /// Asks for effects, one by one while they may go, and sends them.
    fn act(&mut self) -> Rest {
        if self.restraints.is_held() {
            return Rest::Idle;
        }
        loop {
            let now = moment();
            if let Err(until) = self.pacer.check(now) {
                return Rest::Full(until);
            }
            let Some(effect) = self.collecting.poll_effect() else { return Rest::Idle };
            self.observer.decided(&effect);
            if let Some(by) = self.holds(&effect) {
                self.observer.finished(&effect, &Outcome::Held(by), 0, Duration::ZERO);
                self.collecting.skip(effect.id);
                continue;
            }
            if let Request::Note(note) = &effect.request {
                self.notes.take(note.clone());
                self.observer.finished(&effect, &Outcome::Applied(None), 1, Duration::ZERO);
                self.collecting.finish(effect.id, &Outcome::Applied(None));
                continue;
            }
            self.pacer.begin();
            let (client, performer) = (self.client.clone(), self.performer.clone());
            let (request, outside) = (effect.request.clone(), Arc::clone(&self.outside));
            let task =
                self.requests.spawn(async move { perform(&client, &performer, &*outside, &request).await });
            self.flying.insert(task.id(), Flying { effect, begun: now });
        }
    }

    fn take_done(&mut self, done: Result<(tokio::task::Id, Done), tokio::task::JoinError>) {
        self.tick();
        let (id, done) = match done {
            Ok(answer) => answer,
            // A request that died without an answer: its fate is unknown.
            Err(error) => (error.id(), Done::of(unknown(error.to_string()))),
        };
        let Some(Flying { effect, begun }) = self.flying.remove(&id) else { return };
        let now = moment();
        let took = now.since(begun);
        let Performed { outcome, signal, round_trips } = done.performed;
        // How long others took says nothing about the API server.
        let request_took = done.server_took.unwrap_or(took) / round_trips.max(1);
        self.pacer.finish(now.before(request_took), now, signal);
        for observation in done.found {
            self.collecting.observe(observation);
        }
        if let Some(route) = deleted(&effect).and_then(|key| self.table.get(key.resource)) {
            self.guard.finished(&route.name, false, &outcome);
        }
        self.observer.finished(&effect, &outcome, round_trips, took);
        self.collecting.finish(effect.id, &outcome);
    }

    /// Tells what was measured, and from time to time how things stand.
    fn tell(&mut self) {
        while let Some(measurement) = self.collecting.take_measurement() {
            self.observer.measured(&measurement);
        }
        let now = Instant::now();
        if self.told_standing.is_none_or(|told| now.saturating_duration_since(told) >= STANDING_PERIOD) {
            self.told_standing = Some(now);
            self.observer.standing(&self.collecting.standing());
        }
    }

    fn next_wake(&self, rest: Rest) -> Instant {
        let now = Instant::now();
        // While it is held, what is due stays due.
        let due = self.collecting.next_wakeup().filter(|_| !self.restraints.is_held());
        let acted = rest.ends(due.map(|at| now + until(at, self.now)));
        acted.map_or(now + LONGEST_SLEEP, |at| at.min(now + LONGEST_SLEEP))
    }

    /// Sends nothing further, and waits a little for what is in flight.
    async fn land(&mut self) {
        let deadline = Instant::now() + SHUTDOWN_GRACE;
        while let Ok(Some(done)) = tokio::time::timeout_at(deadline, self.requests.join_next_with_id()).await
        {
            self.take_done(done);
        }
        self.requests.abort_all();
    }
}

/// Whether a request changes anything anywhere.
fn changes(request: &Request) -> bool {
    match request {
        Request::Read { .. }
        | Request::Barrier { .. }
        | Request::Outside { call: OutsideCall::LookUpMachine { .. }, .. } => false,
        Request::Delete { .. }
        | Request::SetOwners { .. }
        | Request::RemoveFinalizer { .. }
        | Request::Guarded { .. }
        | Request::Note(_)
        | Request::Outside { call: OutsideCall::DeleteStorage(_), .. } => true,
    }
}

async fn perform(
    client: &ApiClient,
    performer: &Performer,
    outside: &dyn Outside,
    request: &Request,
) -> Done {
    if let Request::Outside { key, uid, resource_version, call } = request {
        return call_outside(performer, outside, (key, uid, *resource_version), call).await;
    }
    let Request::Barrier { resource, namespace, .. } = request else {
        return Done::of(performer.perform(request).await);
    };
    let Some(kind) = Kind::ALL.iter().copied().find(|kind| kind.resource() == *resource) else {
        return Done::of(unknown("no such resource is watched".to_owned()));
    };
    match list_live(client, kind, namespace.as_deref().unwrap_or_default()).await {
        Ok(found) => {
            let found = found.into_iter().map(Observation::Found).collect();
            let outcome = Outcome::Applied(None);
            let performed = Performed { outcome, signal: Signal::Answered, round_trips: 1 };
            Done { found, ..Done::of(performed) }
        }
        Err(error) => Done::of(unknown(error.to_string())),
    }
}

/// What other systems do cannot be guarded by preconditions: the object is read, from the store, immediately before.
async fn call_outside(
    performer: &Performer,
    outside: &dyn Outside,
    (key, uid, version): (&ObjectKey, &Uid, ResourceVersion),
    call: &OutsideCall,
) -> Done {
    let begun = moment();
    let read = performer.perform(&Request::Read { key: key.clone() }).await;
    let outcome = match &read.outcome {
        Outcome::Found(found) if found.uid != *uid => Some(Outcome::Absent),
        Outcome::Found(found) if version == ResourceVersion::UNKNOWN || found.resource_version != version => {
            Some(Outcome::Conflict)
        }
        Outcome::Found(_) => None,
        other => Some(other.clone()),
    };
    if let Some(outcome) = outcome {
        return Done::of(Performed { outcome, ..read });
    }
    let server_took = Some(moment().since(begun));
    let failed =
        |message: &String| Outcome::Failed { message: message.clone(), retry_after_milliseconds: None };
    let (key, uid) = (key.clone(), uid.clone());
    let (failure, found) = match outside.call(key.clone(), call.clone()).await {
        OutsideAnswer::Storage(remark, result) => {
            let failure = result.as_ref().err().map(|failure| failed(&failure.message));
            (failure, Observation::StorageDeletion { volume: key, uid, remark, result })
        }
        OutsideAnswer::Machine(state) => {
            let failure = state.as_ref().err().map(failed);
            (failure, Observation::Machine { node: key, uid, state })
        }
    };
    let outcome = failure.unwrap_or(Outcome::Applied(None));
    Done { performed: Performed { outcome, ..read }, found: vec![found], server_took }
}

fn unknown(message: String) -> Performed {
    let outcome = Outcome::Failed { message, retry_after_milliseconds: None };
    Performed { outcome, signal: Signal::Answered, round_trips: 1 }
}
