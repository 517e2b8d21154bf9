//! The loop around a collector: when an object is reconciled, and what happens to the decision.
//!
//! An object is reconciled when something about it changes and when one of its deadlines passes, so the work is proportional to the
//! number of changes and not of objects. An object has at most one request in flight; after a failure it is reconciled again with
//! backoff.

mod lanes;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use gc_types::{
    Effect, EffectId, Evidence, ObjectKey, Outcome, Reason, Request, ResourceId, ResourceVersion, Timestamp,
    Uid, Verdict,
};

use crate::measures::{Measurement, ReportQueue};
use crate::objects::{Facts, Kind};
pub use lanes::Lane;
use lanes::WaitingObjects;

/// Maximum number of a collector's requests in flight.
pub const IN_FLIGHT: usize = 64;
/// Delay after a first failure, milliseconds; it doubles with each further one (spec 1.5).
pub const FIRST_RETRY_MILLISECONDS: i64 = 5;
/// Minimum delay after a second conflict in a row, milliseconds. The watch is about to deliver the change, which triggers an
/// immediate reconcile.
pub const CONFLICT_RETRY_MILLISECONDS: i64 = 250;
/// Maximum delay, milliseconds.
pub const LONGEST_RETRY_MILLISECONDS: i64 = 1_000_000;

/// An observation from a watch, or from the list of a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A list of the kind begins: objects that are not observed until it is synced are gone.
    ListStarted(Kind),
    /// The list is complete; from now on, every change is observed.
    Synced(Kind),
    /// The current state of an object.
    Observed(Facts),
    /// The object is gone.
    Removed(ObjectKey),
    /// An object, as found by the list of a barrier.
    Found(Facts),
    /// Result of looking up the machine of a node.
    Machine {
        /// The node.
        node: ObjectKey,
        /// UID of the object.
        uid: Uid,
        /// State of its machine, or why the provider does not know it.
        state: Result<MachineState, String>,
    },
    /// Result of deleting the storage of a volume.
    StorageDeletion {
        /// The volume.
        volume: ObjectKey,
        /// UID of the object.
        uid: Uid,
        /// Additional message, if any.
        remark: Option<String>,
        /// Result of the deletion.
        result: Result<(), StorageFailure>,
    },
}

/// Reason why storage was not deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageFailure {
    /// True if it is still in use.
    pub in_use: bool,
    /// Message of the component that should have deleted it.
    pub message: String,
}

/// State of a machine, according to its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// Exists and is not shut down.
    Running,
    /// Exists and is shut down.
    Shutdown,
    /// Does not exist.
    Absent,
}

/// Decision about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Leave it until something changes.
    Leave,
    /// Leave it until this time.
    Later(Timestamp),
    /// Send this request.
    Act(Request, Reason),
}

/// A completed request.
#[derive(Clone, Copy, Debug)]
pub struct EndedRequest<'a> {
    /// Object that it was decided for.
    pub key: &'a ObjectKey,
    /// The request.
    pub request: &'a Request,
    /// Outcome of the request.
    pub outcome: &'a Outcome,
    /// Time of completion.
    pub now: Timestamp,
}

/// Decides about one kind of garbage.
///
/// A decision is only a proposal: the engine does not send what `kubegc.io/keep` forbids, what was applied or withheld before, or
/// what finds its lane full. A collector therefore tracks requests in flight in [`Collector::sending`] and not in
/// [`Collector::decide`]; each of them ends in [`Collector::finished`] or [`Collector::skipped`].
pub trait Collector {
    /// Returns the kinds that it observes. The engine does not poll it before all of them are synced.
    fn kinds(&self) -> &'static [Kind];
    /// Takes an observation, and names the objects to reconcile because of it.
    fn observe(&mut self, observation: Observation, now: Timestamp, dirty: &mut Vec<ObjectKey>);
    /// Decides about one object. It may name others to reconcile.
    fn decide(&mut self, key: &ObjectKey, now: Timestamp, dirty: &mut Vec<ObjectKey>) -> Decision;
    /// Returns the next object of a completed list, if there are too many to name them all when the list ends. They are reconciled
    /// when nothing else is due.
    fn next_undecided(&mut self) -> Option<ObjectKey> {
        None
    }
    /// Returns the number of those objects.
    fn undecided(&self) -> usize {
        0
    }
    /// Returns the lane of a request of which only a few may be in flight at a time. The engine counts them; an object that finds
    /// its lane full is reconciled again when there is room.
    fn lane(&self, _request: &Request) -> Option<Lane> {
        None
    }
    /// Called when a request is about to be sent. Its end follows, exactly once.
    fn sending(&mut self, _key: &ObjectKey, _request: &Request, _reason: &Reason, _now: Timestamp) {}
    /// Called when a deletion is not sent because the object carries `kubegc.io/keep`. Returns when to decide about it again, if
    /// that has to happen without a change.
    fn kept(&mut self, _key: &ObjectKey) -> Option<Timestamp> {
        None
    }
    /// Takes the outcome of a request. After a failure, the object is reconciled again in any case.
    fn finished(&mut self, _ended: EndedRequest<'_>, _dirty: &mut Vec<ObjectKey>) {}
    /// Called when a request that was about to be sent has been withheld.
    fn skipped(&mut self, _key: &ObjectKey, _request: &Request) {}
    /// Returns its queue of Events and measurements, if it has one.
    fn reports(&mut self) -> Option<&mut ReportQueue> {
        None
    }
    /// Called when the wall clock was set, by this number of milliseconds. Shifts times that were taken from it to measure
    /// durations; times in objects stay as they are.
    fn clock_set(&mut self, _by: i64) {}
    /// Adds its current gauges. Called periodically, so values must be kept up to date rather than computed here.
    fn gauges(&self, _into: &mut Vec<Measurement>) {}
}

/// A collector with its schedule, independent of its type.
pub trait AnyCollector: Send + 'static {
    /// Returns the kinds that it observes.
    fn kinds(&self) -> &'static [Kind];
    /// Sets the time, which never decreases.
    fn tick(&mut self, now: Timestamp);
    /// Sets the time after the wall clock was set, forward or back.
    fn set_clock(&mut self, now: Timestamp);
    /// Takes an observation.
    fn observe(&mut self, observation: Observation);
    /// Returns the next thing to do, or `None` if there is nothing to do now.
    fn poll_effect(&mut self) -> Option<Effect>;
    /// Takes the outcome of an effect.
    fn finish(&mut self, id: EffectId, outcome: &Outcome);
    /// Returns when it needs the next `tick`, if at all.
    fn next_wakeup(&self) -> Option<Timestamp>;
    /// Returns the counters since the start.
    fn counts(&self) -> Counts;
    /// Skips an effect that will not be performed. It is not returned again before its object changes or its resource is released.
    fn skip(&mut self, id: EffectId);
    /// Reconciles the skipped objects of a resource again, or of all resources.
    fn release(&mut self, resource: Option<ResourceId>);
    /// Returns the next measurement.
    fn take_measurement(&mut self) -> Option<Measurement>;
    /// Returns the current state of the collector.
    fn standing(&self) -> CollectorState;
}

/// The current state of a collector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectorState {
    /// Counters since the start.
    pub counts: Counts,
    /// Objects to reconcile, now or later.
    pub waiting: usize,
    /// Delay of the most overdue object, milliseconds.
    pub overdue_milliseconds: i64,
    /// True if everything that it watches has been listed.
    pub synced: bool,
    /// The collector's own gauges.
    pub gauges: Vec<Measurement>,
}

impl<J: Collector + Send + 'static> AnyCollector for Engine<J> {
    fn kinds(&self) -> &'static [Kind] {
        self.collector.kinds()
    }

    fn tick(&mut self, now: Timestamp) {
        Self::tick(self, now);
    }

    fn set_clock(&mut self, now: Timestamp) {
        Self::set_clock(self, now);
    }

    fn observe(&mut self, observation: Observation) {
        Self::observe(self, observation);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        Self::poll_effect(self)
    }

    fn finish(&mut self, id: EffectId, outcome: &Outcome) {
        Self::finish(self, id, outcome);
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        Self::next_wakeup(self)
    }

    fn counts(&self) -> Counts {
        Self::counts(self)
    }

    fn skip(&mut self, id: EffectId) {
        Self::skip(self, id);
    }

    fn release(&mut self, resource: Option<ResourceId>) {
        Self::release(self, resource);
    }

    fn take_measurement(&mut self) -> Option<Measurement> {
        self.collector.reports()?.take_measurement()
    }

    fn standing(&self) -> CollectorState {
        Self::standing(self)
    }
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Decisions.
    pub decisions: u64,
    /// Requests that were applied, or whose object was already gone.
    pub done: u64,
    /// Requests whose preconditions no longer held.
    pub conflicts: u64,
    /// Requests that failed or were refused.
    pub errors: u64,
    /// Deletions that were not sent because the object carries `kubegc.io/keep`.
    pub kept: u64,
}

/// A request whose outcome is awaited.
#[derive(Debug)]
struct Flight {
    key: ObjectKey,
    request: Request,
    /// Lane of the request, or of the request that it leads to.
    lane: Option<Lane>,
}

/// A collector with its schedule. Driven like the ownership engine: it takes observations and ticks, and is polled for effects.
#[derive(Debug)]
pub struct Engine<J> {
    collector: J,
    unsynced: BTreeSet<Kind>,
    now: Timestamp,
    next_effect: u64,
    due: BTreeSet<(Timestamp, ObjectKey)>,
    when: BTreeMap<ObjectKey, Timestamp>,
    /// Time at which the list was completed whose objects have not all been reconciled yet.
    listed: Timestamp,
    flying: BTreeMap<EffectId, Flight>,
    /// Objects that wait for room in a lane.
    waiting: WaitingObjects,
    busy: BTreeSet<ObjectKey>,
    failures: BTreeMap<ObjectKey, u32>,
    /// The last applied request, which is not repeated while the watch has yet to show its effect.
    done: BTreeMap<ObjectKey, Request>,
    /// Skipped requests, which are reported once for each version of an object.
    skipped: BTreeMap<ObjectKey, Request>,
    /// Skipped objects that a list in progress has not contained yet.
    unseen: BTreeSet<ObjectKey>,
    /// A decision that waits for its Events to be taken.
    ready: Option<Effect>,
    /// Objects with `kubegc.io/keep`, which no collector deletes.
    kept: BTreeSet<ObjectKey>,
    counts: Counts,
}

impl<J: Collector> Engine<J> {
    /// Creates an engine without any knowledge.
    #[must_use]
    pub fn new(collector: J) -> Self {
        Self {
            unsynced: collector.kinds().iter().copied().collect(),
            collector,
            now: Timestamp::default(),
            next_effect: 0,
            due: BTreeSet::new(),
            when: BTreeMap::new(),
            listed: Timestamp::default(),
            flying: BTreeMap::new(),
            waiting: WaitingObjects::default(),
            busy: BTreeSet::new(),
            failures: BTreeMap::new(),
            done: BTreeMap::new(),
            skipped: BTreeMap::new(),
            unseen: BTreeSet::new(),
            ready: None,
            kept: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Sets the time; an earlier one has no effect.
    pub fn tick(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// Sets the time after the wall clock was set, forward or back. Reconciles everything that waits for a time, because it is
    /// unknown which of these times come from objects.
    pub fn set_clock(&mut self, now: Timestamp) {
        let by = now.since(self.now);
        self.now = now;
        self.listed = self.listed.after(by);
        self.collector.clock_set(by);
        let keys: Vec<ObjectKey> = self.when.keys().cloned().collect();
        (self.when, self.due) = (BTreeMap::new(), BTreeSet::new());
        self.schedule_all(keys);
    }

    /// Takes an observation.
    pub fn observe(&mut self, observation: Observation) {
        match &observation {
            // Until the list is complete, removed objects still count, because nothing is decided before that.
            Observation::ListStarted(kind) if self.collector.kinds().contains(kind) => {
                self.unsynced.insert(*kind);
                self.kept.retain(|key| key.resource != kind.resource());
                let skipped = self.skipped.keys().filter(|key| key.resource == kind.resource());
                self.unseen.extend(skipped.cloned());
            }
            Observation::Synced(kind) => {
                self.unsynced.remove(kind);
                if self.collector.undecided() == 0 {
                    self.listed = self.now;
                }
                let resource = kind.resource();
                self.forget_done(resource);
                let (gone, unseen) =
                    std::mem::take(&mut self.unseen).into_iter().partition(|key| key.resource == resource);
                self.unseen = unseen;
                self.forget_skipped(gone);
            }
            Observation::Observed(facts) => {
                self.track_kept(facts);
                if !self.unseen.is_empty() {
                    self.unseen.remove(&facts.key());
                }
            }
            Observation::Removed(key) => self.forget(key),
            _ => {}
        }
        let mut dirty = Vec::new();
        self.collector.observe(observation, self.now, &mut dirty);
        self.schedule_all(dirty);
    }

    /// Forgets applied requests when the list of a resource is complete. It may come from a restored server, in which they were
    /// never applied, so objects that still exist are reconciled again.
    pub fn forget_done(&mut self, resource: ResourceId) {
        let done: Vec<_> = self.done.keys().filter(|key| key.resource == resource).cloned().collect();
        for key in done {
            self.done.remove(&key);
            self.schedule(key, self.now);
        }
    }

    fn forget_skipped(&mut self, keys: BTreeSet<ObjectKey>) {
        for key in keys {
            self.skipped.remove(&key);
        }
    }

    fn track_kept(&mut self, facts: &Facts) {
        if facts.meta().keeps() {
            self.kept.insert(facts.key());
        } else if !self.kept.is_empty() {
            self.kept.remove(&facts.key());
        }
    }

    /// Reports whether the outcome of a request is still unknown.
    pub(crate) fn is_in_flight(&self) -> bool {
        !self.flying.is_empty()
    }

    /// Returns the collector.
    pub(crate) fn collector(&self) -> &J {
        &self.collector
    }

    /// Updates the collector by something other than an observation, and reconciles the objects that it names.
    pub(crate) fn update<R>(
        &mut self,
        update: impl FnOnce(&mut J, Timestamp, &mut Vec<ObjectKey>) -> R,
    ) -> R {
        let mut dirty = Vec::new();
        let answer = update(&mut self.collector, self.now, &mut dirty);
        self.schedule_all(dirty);
        answer
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        self.kept.remove(key);
        self.done.remove(key);
        self.skipped.remove(key);
        self.unseen.remove(key);
        self.failures.remove(key);
        self.waiting.remove(key);
        self.unschedule(key);
    }

    fn unschedule(&mut self, key: &ObjectKey) {
        if let Some(time) = self.when.remove(key) {
            self.due.remove(&(time, key.clone()));
        }
    }

    /// Returns the next object to reconcile, if any: those that are due, those that waited for a lane, then the rest of a list.
    fn next_due(&mut self) -> Option<ObjectKey> {
        let key = match self.due.first() {
            Some((time, key)) if *time <= self.now => key.clone(),
            _ => match self.waiting.call(&self.flying) {
                Some(key) => key,
                None => self.collector.next_undecided()?,
            },
        };
        self.unschedule(&key);
        Some(key)
    }

    fn schedule_all(&mut self, dirty: Vec<ObjectKey>) {
        for key in dirty {
            self.schedule(key, self.now);
        }
    }

    /// Schedules a reconcile; only an earlier time replaces the current one.
    fn schedule(&mut self, key: ObjectKey, time: Timestamp) {
        if let Some(&set) = self.when.get(&key) {
            if set <= time {
                return;
            }
            self.due.remove(&(set, key.clone()));
        }
        self.when.insert(key.clone(), time);
        self.due.insert((time, key));
    }

    /// Returns when it needs the next `tick`, if at all.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        if !self.unsynced.is_empty() || self.flying.len() >= IN_FLIGHT {
            return None;
        }
        if self.collector.undecided() > 0 || self.waiting.has_room(&self.flying) {
            return Some(self.now);
        }
        self.due.first().map(|(time, _)| *time)
    }

    /// Returns its current state.
    #[must_use]
    pub fn standing(&self) -> CollectorState {
        let mut gauges = Vec::new();
        self.collector.gauges(&mut gauges);
        let due = self.due.first().map(|(time, _)| *time);
        let undecided = self.collector.undecided();
        let listed = (undecided > 0).then_some(self.listed);
        let first = due.into_iter().chain(listed).min().unwrap_or(self.now);
        CollectorState {
            counts: self.counts,
            waiting: self.due.len() + self.waiting.len() + undecided,
            overdue_milliseconds: self.now.since(first).max(0),
            synced: self.unsynced.is_empty(),
            gauges,
        }
    }

    /// Skips an effect that will not be performed (a dry run, the circuit breaker). It is not returned again before its object
    /// changes or its resource is released.
    pub fn skip(&mut self, id: EffectId) {
        if let Some(Flight { key, request, .. }) = self.flying.remove(&id) {
            self.busy.remove(&key);
            self.collector.skipped(&key, &request);
            self.skipped.insert(key, request);
        }
    }

    /// Reconciles the skipped objects of a resource again, or of all resources.
    pub fn release(&mut self, resource: Option<ResourceId>) {
        let is_released = |key: &&ObjectKey| resource.is_none_or(|resource| key.resource == resource);
        let released: Vec<_> = self.skipped.keys().filter(is_released).cloned().collect();
        for key in released {
            self.skipped.remove(&key);
            self.schedule(key, self.now);
        }
    }

    fn next_id(&mut self) -> EffectId {
        let id = EffectId(self.next_effect);
        self.next_effect += 1;
        id
    }

    /// Returns the next thing to do, or `None` if there is nothing to do now.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        loop {
            if let Some((note, reason)) = self.collector.reports().and_then(ReportQueue::take_event) {
                return Some(Effect { id: self.next_id(), request: Request::RecordEvent(note), reason });
            }
            if let Some(effect) = self.ready.take() {
                return Some(effect);
            }
            if !self.unsynced.is_empty() || self.flying.len() >= IN_FLIGHT {
                return None;
            }
            let key = self.next_due()?;
            // An object with a request in flight is reconciled once the outcome is known.
            if self.busy.contains(&key) {
                continue;
            }
            let mut dirty = Vec::new();
            let decision = self.collector.decide(&key, self.now, &mut dirty);
            self.counts.decisions += 1;
            self.schedule_all(dirty);
            let called = self.waiting.remove(&key);
            match decision {
                Decision::Leave => {
                    self.failures.remove(&key);
                    self.done.remove(&key);
                }
                Decision::Later(time) => self.schedule_later(key, time),
                Decision::Act(request, _) if self.done.get(&key) == Some(&request) => {}
                Decision::Act(request, _)
                    if self.skipped.get(&key).is_some_and(|skipped| is_again(skipped, &request)) => {}
                Decision::Act(request, _) if request.deletes() && self.kept.contains(&key) => {
                    self.counts.kept += 1;
                    if let Some(time) = self.collector.kept(&key) {
                        self.schedule_later(key, time);
                    }
                }
                Decision::Act(request, reason) => self.send(key, request, reason, called),
            }
        }
    }

    fn schedule_later(&mut self, key: ObjectKey, time: Timestamp) {
        self.schedule(key, time.max(self.now.after(1)));
    }

    /// Sends a request if its lane has room. If the object was called to a lane and this request only leads to one of that lane, it
    /// already occupies the lane, so no other object is called meanwhile.
    fn send(&mut self, key: ObjectKey, request: Request, reason: Reason, called: Option<Lane>) {
        let own = self.collector.lane(&request);
        if let Some(lane) = &own
            && !lanes::has_room(lane, &self.flying)
        {
            self.waiting.insert(lane, key);
            return;
        }
        let id = self.next_id();
        self.collector.sending(&key, &request, &reason, self.now);
        self.busy.insert(key.clone());
        self.flying.insert(id, Flight { key, request: request.clone(), lane: own.or(called) });
        // Its Events are taken first.
        self.ready = Some(Effect { id, request, reason });
    }

    /// Takes the outcome of an effect.
    pub fn finish(&mut self, id: EffectId, outcome: &Outcome) {
        let Some(Flight { key, request, lane }) = self.flying.remove(&id) else { return };
        self.busy.remove(&key);
        let asked = match outcome {
            Outcome::Applied(_) | Outcome::Found(_) | Outcome::Absent => {
                self.counts.done += 1;
                self.failures.remove(&key);
                None
            }
            Outcome::Conflict => {
                self.counts.conflicts += 1;
                let again = self.failures.contains_key(&key);
                Some(if again { CONFLICT_RETRY_MILLISECONDS.unsigned_abs() } else { 0 })
            }
            Outcome::Failed { retry_after_milliseconds, .. } => {
                self.counts.errors += 1;
                Some(retry_after_milliseconds.unwrap_or_default())
            }
            Outcome::NotServed | Outcome::Refused { .. } | Outcome::Withheld(_) => {
                self.counts.errors += 1;
                Some(0)
            }
        };
        let mut dirty = Vec::new();
        let ended = EndedRequest { key: &key, request: &request, outcome, now: self.now };
        self.collector.finished(ended, &mut dirty);
        self.schedule_all(dirty);
        match asked {
            Some(asked) => {
                let failures = self.failures.entry(key.clone()).or_default();
                let delay = FIRST_RETRY_MILLISECONDS << (*failures).min(20);
                *failures = failures.saturating_add(1);
                let delay =
                    delay.min(LONGEST_RETRY_MILLISECONDS).max(i64::try_from(asked).unwrap_or(i64::MAX));
                self.schedule(key, self.now.after(delay));
            }
            None => {
                if let Some(lane) = lane.filter(|_| self.collector.lane(&request).is_none()) {
                    self.waiting.calling(&key, lane);
                }
                if matches!(request, Request::Delete { .. } | Request::Guarded { .. }) {
                    self.done.insert(key.clone(), request);
                }
                // Something may have changed while the request was in flight.
                self.schedule(key, self.now);
            }
        }
    }
}

/// Reports whether a request equals the one skipped before for the same version of the object; their bodies may differ, because
/// they may contain the time.
fn is_again(skipped: &Request, request: &Request) -> bool {
    let is_same_change = match (skipped, request) {
        (
            Request::Guarded { key, uid, resource_version, change },
            Request::Guarded {
                key: key_now,
                uid: uid_now,
                resource_version: version_now,
                change: change_now,
            },
        ) => {
            (key, uid, resource_version, discriminant(change))
                == (key_now, uid_now, version_now, discriminant(change_now))
        }
        _ => false,
    };
    is_same_change || skipped == request
}

/// First number that an engine around this one uses for its Events.
pub(crate) const FIRST_EVENT: u64 = 1 << 63;

/// Creates a reason of a retention module.
pub(crate) fn reason(code: &'static str, observed: ResourceVersion, facts: &[String]) -> Reason {
    let mut evidence = vec![Evidence::ObservedAt { resource_version: observed }];
    evidence.extend(facts.iter().map(|fact| Evidence::Fact(fact.as_str().into())));
    Reason { verdict: Verdict::Retention(code), owners: Vec::new(), evidence }
}

#[cfg(test)]
mod tests;
