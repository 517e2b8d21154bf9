//! Loop of a controller: observe, decide, act.
//!
//! A [`Controller`] owns an [`Engine`], which decides, and everything between its decisions and a server: the Lease and an
//! operator's pause, a dry run, the comparison of clocks, the circuit breaker, the concurrency limit and barriers. An engine cannot
//! reach a server past them. Its requests come as [`Step`]s, whose results are reported back. It neither sends nor waits: `gc-kube`
//! drives it over HTTP, and `gc-sim` over the registry.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gc_types::{
    Change, Effect, EffectId, Event, EventRecord, ObjectKey, Outcome, OutsideCall, Request, ResourceId,
    Timestamp, WithheldBy,
};

use crate::Moment;
use crate::barriers::{Answer, Barriers, List, ListEnd, ListScope};
use crate::breaker::{Admission, Breaker, Ticket, Trip, is_inferred, vanished_kinds};
use crate::clocks::Reading;
use crate::concurrency::{ConcurrencyOptions, ConcurrencyState, Pacer, Signal};
use crate::requests::PerformedRequest;

/// Maximum time between two ticks of an engine.
pub const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Minimum time before the tick for something that is overdue.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// A decision maker: a synchronous function of its observations.
pub trait Engine {
    /// Source of an effect, if several share an engine.
    type Origin: Clone;

    /// Sets the time: of the clock by which objects age, and of one that is never set.
    fn tick(&mut self, now: Timestamp, steady: Timestamp);
    /// Sets the time after the clock by which objects age was set, forward or back.
    fn set_clock(&mut self, now: Timestamp);
    /// Returns the next thing to do, or `None` if there is nothing to do now. `may_delete` reports whether anything of a resource
    /// may be deleted at all; an engine that does not ask is answered [`Outcome::Withheld`].
    fn poll_effect(&mut self, may_delete: &dyn Fn(ResourceId) -> bool) -> Option<(Self::Origin, Effect)>;
    /// Takes the outcome of an effect. A withheld one is not requested again before a release.
    fn finish(&mut self, origin: &Self::Origin, id: EffectId, outcome: Outcome);
    /// Decides again about withheld effects of one resource, or of all.
    fn release(&mut self, resource: Option<ResourceId>);
    /// Returns when it needs the next tick, if at all, by the clock by which objects age.
    fn next_wakeup(&self, may_delete: &dyn Fn(ResourceId) -> bool) -> Option<Timestamp>;
    /// Returns the number of known objects of a resource, if it is counted.
    fn objects_of(&self, resource: ResourceId) -> Option<usize>;
}

/// Restraints on a controller from outside, and its observer. Everything is required, so that none can be forgotten.
pub trait Surroundings {
    /// Reports whether nothing may be decided, because another replica leads or an operator has paused the collectors.
    fn is_held(&self) -> bool;
    /// Returns the reason to withhold every change, if any.
    fn dry_run(&self) -> Option<WithheldBy>;
    /// Reports whether deletions that depend on the time pause.
    fn clocks_disagree(&self) -> bool;
    /// Passes the breaker that the controllers of a process share to `ask`; `None` if there is none.
    fn ask_breaker<T>(&self, ask: impl FnOnce(&mut Breaker) -> T) -> Option<T>;
    /// Returns `resource.group`, as the breaker counts deletions; `None` if the resource is no longer known.
    fn resource_name(&self, resource: ResourceId) -> Option<Arc<str>>;
    /// Called when an effect is decided.
    fn decided(&self, effect: &Effect);
    /// Called when an effect has an outcome, after a number of requests and a duration.
    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: Duration);
    /// Called when the breaker has stopped the collection of a resource.
    fn tripped(&self, trip: &Trip);
}

/// Action for the adapter to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this request, and report its end to [`Controller::finished`].
    Send {
        /// Number of the request.
        number: u64,
        /// The request.
        request: Request,
    },
    /// Make this list, and report its end to [`Controller::listed`].
    List(List),
    /// The list of this number is no longer needed: its end need not be reported.
    CancelList(u64),
    /// Write this Kubernetes Event.
    RecordEvent(EventRecord),
}

/// Reason why nothing is sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing is requested, or nothing may be decided.
    Idle,
    /// The concurrency limit allows no request until this time, or until a request is done. Nothing is decided before.
    Full(Option<Moment>),
}

/// An effect in flight.
#[derive(Clone, Debug)]
pub struct Flight<O> {
    /// Source of the request.
    pub origin: O,
    /// The effect.
    pub effect: Effect,
    /// Start of the request.
    pub begun: Moment,
    /// Ticket of the breaker, if it was counted.
    pub ticket: Option<Ticket>,
}

/// A barrier's list in progress.
#[derive(Clone, Copy, Debug)]
struct Listing {
    begun: Moment,
    pages: u32,
}

/// An engine with its restraints. See the module.
#[derive(Debug)]
pub struct Controller<E: Engine> {
    engine: E,
    pacer: Pacer,
    /// Requests in flight, bounded by the concurrency limit.
    flights: BTreeMap<u64, Flight<E::Origin>>,
    next_number: u64,
    /// Barriers, unless they are sent as requests like any other.
    barriers: Option<Barriers>,
    /// Requested barriers, bounded by the engine.
    asked: BTreeMap<EffectId, Flight<E::Origin>>,
    lists: BTreeMap<u64, Listing>,
    /// Resources with effects that the breaker withheld, each with the resource that it has stopped: the same, or that of owners.
    held_by_breaker: BTreeSet<(ResourceId, ResourceId)>,
    /// Resources with effects that were withheld because clocks disagree.
    held_by_clock: BTreeSet<ResourceId>,
    steps: VecDeque<Step>,
    now: Timestamp,
    steady: Timestamp,
}

impl<E: Engine> Controller<E> {
    /// Creates a controller with nothing in flight. Barriers are sent as requests like all others.
    #[must_use]
    pub fn new(engine: E, concurrency: ConcurrencyOptions) -> Self {
        Self {
            engine,
            pacer: Pacer::new(concurrency),
            flights: BTreeMap::new(),
            next_number: 0,
            barriers: None,
            asked: BTreeMap::new(),
            lists: BTreeMap::new(),
            held_by_breaker: BTreeSet::new(),
            held_by_clock: BTreeSet::new(),
            steps: VecDeque::new(),
            now: Timestamp::default(),
            steady: Timestamp::default(),
        }
    }

    /// Answers barriers by the deliveries of watches, or by lists (see [`crate::barriers`]).
    #[must_use]
    pub fn with_barriers(self) -> Self {
        Self { barriers: Some(Barriers::default()), ..self }
    }

    /// Returns the engine.
    #[must_use]
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Returns the engine, to pass it observations.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Returns the engine at the end.
    #[must_use]
    pub fn into_engine(self) -> E {
        self.engine
    }

    /// Returns the figures of the concurrency limit.
    #[must_use]
    pub fn concurrency(&self) -> ConcurrencyState {
        self.pacer.state()
    }

    /// Changes the bounds of the concurrency limit.
    pub fn set_concurrency(&mut self, options: ConcurrencyOptions) {
        self.pacer.set_options(options);
    }

    /// Returns the request in flight with this number.
    #[must_use]
    pub fn flight(&self, number: u64) -> Option<&Flight<E::Origin>> {
        self.flights.get(&number)
    }

    /// Returns the reading of the clock by which objects age, at the last tick.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the next step to carry out.
    pub fn poll_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    // ---- observe ----

    /// Advances the time. Call it before anything else, and before [`Controller::act`].
    pub fn tick(&mut self, reading: Reading, steady: Timestamp, surroundings: &impl Surroundings) {
        self.steady = steady;
        match reading {
            Reading::Passed(now) => self.now = now,
            Reading::Set { expected, now } => {
                self.now = now;
                self.engine.tick(expected, steady);
                self.engine.set_clock(now);
            }
        }
        self.engine.tick(self.now, steady);
        if !self.held_by_clock.is_empty() && !surroundings.clocks_disagree() {
            for resource in std::mem::take(&mut self.held_by_clock) {
                self.engine.release(Some(resource));
            }
        }
    }

    /// Records an event from discovery, or from a resource's own list or watch, for barriers that wait for it. The engine gets it
    /// separately.
    pub fn delivered(&mut self, event: &Event) {
        if let Some(barriers) = &mut self.barriers {
            barriers.observe(event);
        }
    }

    /// Applies a change of the breaker: withheld effects of resources that may continue are decided again.
    pub fn breaker_changed(&mut self, surroundings: &impl Surroundings) {
        let resumed: BTreeSet<ResourceId> = self
            .held_by_breaker
            .extract_if(.., |(_, by)| stopped(*by, surroundings).is_none())
            .map(|(resource, _)| resource)
            .collect();
        for resource in resumed {
            self.engine.release(Some(resource));
        }
    }

    /// Handles the beginning or end of a dry run: withheld effects are decided again once it has ended.
    pub fn dry_run_changed(&mut self, surroundings: &impl Surroundings) {
        if surroundings.dry_run().is_none() {
            self.engine.release(None);
        }
    }

    // ---- act ----

    /// Reports whether anything besides effects (a status) may be written.
    pub fn may_write(surroundings: &impl Surroundings) -> bool {
        !surroundings.is_held() && surroundings.dry_run().is_none()
    }

    /// Polls the engine for at most `most` effects, while they may be sent. The results are steps.
    pub fn act(&mut self, now: Moment, most: usize, surroundings: &impl Surroundings) -> Rest {
        self.end_reached(now, surroundings);
        if surroundings.is_held() {
            return Rest::Idle;
        }
        self.make_lists(now);
        let rest = self.take_effects(now, most, surroundings);
        // Every barrier that was requested before a list begins shares it.
        self.end_reached(now, surroundings);
        self.make_lists(now);
        rest
    }

    fn take_effects(&mut self, now: Moment, most: usize, surroundings: &impl Surroundings) -> Rest {
        for _ in 0..most {
            if let Err(until) = self.pacer.check(now) {
                return Rest::Full(until);
            }
            let clocks_disagree = OnceCell::new();
            let may_delete = |resource| may_delete(resource, &clocks_disagree, surroundings);
            let Some((origin, effect)) = self.engine.poll_effect(&may_delete) else { return Rest::Idle };
            surroundings.decided(&effect);
            self.accept(Flight { origin, effect, begun: now, ticket: None }, surroundings);
        }
        Rest::Idle
    }

    fn accept(&mut self, mut flight: Flight<E::Origin>, surroundings: &impl Surroundings) {
        match self.restrain(&flight.effect, surroundings) {
            Ok(ticket) => flight.ticket = ticket,
            Err(by) => return self.answer_at_once(&flight, Outcome::Withheld(by), surroundings),
        }
        match (&flight.effect.request, &mut self.barriers) {
            (Request::RecordEvent(note), _) => {
                self.steps.push_back(Step::RecordEvent(note.clone()));
                self.answer_at_once(&flight, Outcome::Applied(None), surroundings);
            }
            (Request::Barrier { resource, namespace, at_least }, Some(barriers)) => {
                let place = ListScope { resource: *resource, namespace: namespace.clone() };
                barriers.ask(flight.effect.id, place, *at_least, flight.begun);
                self.asked.insert(flight.effect.id, flight);
            }
            (request, _) => {
                self.pacer.begin();
                let number = self.next_number;
                self.next_number += 1;
                self.steps.push_back(Step::Send { number, request: request.clone() });
                self.flights.insert(number, flight);
            }
        }
    }

    fn answer_at_once(
        &mut self,
        flight: &Flight<E::Origin>,
        outcome: Outcome,
        surroundings: &impl Surroundings,
    ) {
        surroundings.finished(&flight.effect, &outcome, 0, Duration::ZERO);
        self.engine.finish(&flight.origin, flight.effect.id, outcome);
    }

    /// Returns the reason to withhold an effect, if any. A deletion without one is counted.
    fn restrain(
        &mut self,
        effect: &Effect,
        surroundings: &impl Surroundings,
    ) -> Result<Option<Ticket>, WithheldBy> {
        if let Some(by) = surroundings.dry_run().filter(|_| changes(&effect.request)) {
            return Err(by);
        }
        if let Some(resource) = changed_resource(&effect.request)
            && effect.reason.is_timed()
            && surroundings.clocks_disagree()
        {
            self.held_by_clock.insert(resource);
            return Err(WithheldBy::Clock);
        }
        let (resource, admitted) = if let Some(key) = emptied(&effect.request) {
            // Its volume is deleted afterwards, and counted then.
            (key.resource, stopped(key.resource, surroundings).map_or(Ok(None), Err))
        } else if let Some(key) = deleted(&effect.request) {
            if let Some(owners) = self.vanished_owners(effect, surroundings) {
                self.held_by_breaker.insert((key.resource, owners));
                return Err(WithheldBy::Breaker);
            }
            (key.resource, self.admit(key.resource, is_inferred(&effect.reason), surroundings))
        } else {
            return Ok(None);
        };
        if admitted.is_err() {
            self.held_by_breaker.insert((resource, resource));
        }
        admitted
    }

    /// Returns the resource of owners because of which the breaker withholds a deletion: all of them vanished at once.
    fn vanished_owners(&self, effect: &Effect, surroundings: &impl Surroundings) -> Option<ResourceId> {
        vanished_kinds(&effect.reason).find_map(|(owners, at)| {
            let name = surroundings.resource_name(owners)?;
            let admitted =
                surroundings.ask_breaker(|breaker| breaker.admit_dependent(&name, at, self.steady))?;
            if let Admission::Tripped(trip) = admitted.err()? {
                surroundings.tripped(&trip);
            }
            Some(owners)
        })
    }

    /// Asks the breaker to admit a deletion.
    fn admit(
        &self,
        resource: ResourceId,
        inferred: bool,
        surroundings: &impl Surroundings,
    ) -> Result<Option<Ticket>, WithheldBy> {
        let Some(name) = surroundings.resource_name(resource) else { return Ok(None) };
        let objects = self.engine.objects_of(resource);
        match surroundings.ask_breaker(|breaker| breaker.admit(&name, inferred, objects, self.steady)) {
            None => Ok(None),
            Some(Admission::Admitted(ticket)) => Ok(Some(ticket)),
            Some(Admission::Withheld(by)) => Err(by),
            Some(Admission::Tripped(trip)) => {
                surroundings.tripped(&trip);
                Err(WithheldBy::Breaker)
            }
        }
    }

    /// Begins the lists that barriers need now, as far as the concurrency limit allows.
    fn make_lists(&mut self, now: Moment) {
        let Some(barriers) = &mut self.barriers else { return };
        while self.pacer.check(now).is_ok()
            && let Some(list) = barriers.poll_list(now)
        {
            self.pacer.begin();
            self.lists.insert(list.number, Listing { begun: now, pages: 1 });
            self.steps.push_back(Step::List(list));
        }
    }

    // ---- outcomes ----

    /// Ends a request. `server_took` is the API server's part of its duration, if other servers took part.
    pub fn finished(
        &mut self,
        number: u64,
        performed: PerformedRequest,
        server_took: Option<Duration>,
        now: Moment,
        surroundings: &impl Surroundings,
    ) {
        let Some(Flight { origin, effect, begun, ticket }) = self.flights.remove(&number) else { return };
        let PerformedRequest { outcome, signal, round_trips } = performed;
        let took = now.since(begun);
        // The latency of other servers is not evidence about the API server.
        let per_call = server_took.unwrap_or(took) / round_trips.max(1);
        self.pacer.finish(now.before(per_call), now, signal);
        // Even if the fate is unknown: an object that was deleted after all is not requested again, and otherwise it is counted
        // when it is.
        if !matches!(outcome, Outcome::Applied(_))
            && let Some(ticket) = ticket
            && let Some(name) =
                deleted(&effect.request).and_then(|key| surroundings.resource_name(key.resource))
        {
            surroundings.ask_breaker(|breaker| breaker.refund(&name, ticket));
        }
        surroundings.finished(&effect, &outcome, round_trips, took);
        // That a deleted object still exists matters to observers only: its watch delivers the consequences.
        let outcome = match outcome {
            Outcome::Applied(Some(_)) if deleted(&effect.request).is_some() => Outcome::Applied(None),
            other => other,
        };
        self.engine.finish(&origin, effect.id, outcome);
    }

    /// Records that a page of a list has arrived, and another one is requested.
    pub fn list_continued(&mut self, number: u64) {
        if let Some(barriers) = &mut self.barriers {
            barriers.continued(number);
        }
        if let Some(listing) = self.lists.get_mut(&number) {
            listing.pages += 1;
        }
    }

    /// Ends a list, after everything in it was passed on; `signal` is the evidence from its last response about the server, if any.
    pub fn listed(
        &mut self,
        number: u64,
        end: ListEnd,
        signal: Option<Signal>,
        now: Moment,
        surroundings: &impl Surroundings,
    ) {
        match (self.lists.remove(&number), signal) {
            (Some(Listing { begun, pages }), Some(signal)) => {
                self.pacer.finish(now.before(now.since(begun) / pages), now, signal);
            }
            (Some(_), None) => self.pacer.release(),
            // The list was cancelled while its response was in flight, but the server's demand still counts.
            (None, Some(Signal::Busy(wait))) => self.pacer.refused(now, wait),
            (None, _) => {}
        }
        let Some(barriers) = &mut self.barriers else { return };
        for answer in barriers.finish(number, end, now) {
            self.end_barrier(answer, now, surroundings);
        }
        self.end_reached(now, surroundings);
    }

    /// Ends the barriers that watches have reached, and the lists that are no longer needed.
    fn end_reached(&mut self, now: Moment, surroundings: &impl Surroundings) {
        let Some(barriers) = &mut self.barriers else { return };
        let (reached, cancelled) = (barriers.take_reached(), barriers.take_cancelled());
        for answer in reached {
            self.end_barrier(answer, now, surroundings);
        }
        for number in cancelled {
            if self.lists.remove(&number).is_some() {
                self.pacer.release();
                self.steps.push_back(Step::CancelList(number));
            }
        }
    }

    fn end_barrier(&mut self, answer: Answer, now: Moment, surroundings: &impl Surroundings) {
        let Answer { effect: id, outcome, requests } = answer;
        let Some(Flight { origin, effect, begun, .. }) = self.asked.remove(&id) else { return };
        surroundings.finished(&effect, &outcome, requests, now.since(begun));
        self.engine.finish(&origin, id, outcome);
    }

    // ---- rest ----

    /// Returns when to continue if nothing happens before, given the result of [`Controller::act`].
    #[must_use]
    pub fn next_wake(&self, rest: Rest, now: Moment, surroundings: &impl Surroundings) -> Moment {
        let latest = now.after(LONGEST_SLEEP);
        self.next_due(rest, now, surroundings).map_or(latest, |due| due.min(latest))
    }

    /// Returns when there is something to do again, if nothing happens before and restraints stay as they are.
    #[must_use]
    pub fn next_due(&self, rest: Rest, now: Moment, surroundings: &impl Surroundings) -> Option<Moment> {
        // While it is held, due work stays due.
        if surroundings.is_held() {
            return None;
        }
        // Clocks are compared repeatedly.
        let paused = (!self.held_by_clock.is_empty()).then(|| now.after(LONGEST_SLEEP));
        let wanted = match rest {
            Rest::Full(until) => until,
            Rest::Idle => {
                let clocks_disagree = OnceCell::new();
                let may_delete = |resource| may_delete(resource, &clocks_disagree, surroundings);
                let due = self.engine.next_wakeup(&may_delete);
                let due = due.map(|at| now.after(until(at, self.now).max(SHORTEST_SLEEP)));
                let listed = self.barriers.as_ref().and_then(Barriers::next_due);
                due.into_iter().chain(listed).min()
            }
        };
        wanted.into_iter().chain(paused).min()
    }
}

/// Returns the time until then; zero if it is past.
#[must_use]
pub fn until(then: Timestamp, now: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(then.0.saturating_sub(now.0)).unwrap_or_default())
}

/// Reports whether objects of a resource may be deleted now, according to the breaker, the configuration and the agreement of
/// clocks.
fn may_delete(
    resource: ResourceId,
    clocks_disagree: &OnceCell<bool>,
    surroundings: &impl Surroundings,
) -> bool {
    !*clocks_disagree.get_or_init(|| surroundings.clocks_disagree())
        && stopped(resource, surroundings).is_none()
}

/// Returns the reason to withhold deletions of a resource now, if any. Nothing is counted.
fn stopped(resource: ResourceId, surroundings: &impl Surroundings) -> Option<WithheldBy> {
    let name = surroundings.resource_name(resource)?;
    surroundings.ask_breaker(|breaker| breaker.holds(&name))?
}

/// Reports whether a request changes anything anywhere.
#[must_use]
pub fn changes(request: &Request) -> bool {
    match request {
        Request::Read { .. }
        | Request::Barrier { .. }
        | Request::Outside { call: OutsideCall::LookUpMachine { .. }, .. } => false,
        Request::Delete { .. }
        | Request::SetOwners { .. }
        | Request::RemoveFinalizer { .. }
        | Request::Guarded { .. }
        | Request::RecordEvent(_)
        | Request::Outside { call: OutsideCall::DeleteStorage(_), .. } => true,
    }
}

/// Returns the resource of the object that a request is about, if it may change something on its behalf.
fn changed_resource(request: &Request) -> Option<ResourceId> {
    match request {
        Request::Delete { key, .. }
        | Request::SetOwners { key, .. }
        | Request::RemoveFinalizer { key, .. }
        | Request::Guarded { key, .. }
        | Request::Outside { key, .. } => Some(key.resource),
        Request::Read { .. } | Request::Barrier { .. } | Request::RecordEvent(_) => None,
    }
}

/// Returns the object that a request deletes, if it deletes one.
fn deleted(request: &Request) -> Option<&ObjectKey> {
    match request {
        Request::Delete { key, .. } | Request::Guarded { key, change: Change::ForceDelete, .. } => Some(key),
        _ => None,
    }
}

/// Returns the object whose storage a request destroys, if it does.
fn emptied(request: &Request) -> Option<&ObjectKey> {
    match request {
        Request::Outside { key, call: OutsideCall::DeleteStorage(_), .. } => Some(key),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
