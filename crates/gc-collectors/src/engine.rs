//! The loop around a collector: when an object is reconciled, and what becomes of the decision.
//!
//! Objects are reconciled when something about them changes and when a deadline of theirs passes, so the work is
//! proportional to the changes and not to the number of objects. An object has at most one request in flight; after a
//! failure it is reconciled again with backoff.

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

/// Requests of one collector that are in flight at a time.
pub const IN_FLIGHT: usize = 64;
/// The delay after a first failure, milliseconds; it doubles with each further one (spec 1.5).
pub const FIRST_RETRY_MILLISECONDS: i64 = 5;
/// The least delay after a second conflict in a row, milliseconds: the watch is about to deliver the change, and with
/// it the object is reconciled at once.
pub const CONFLICT_RETRY_MILLISECONDS: i64 = 250;
/// The longest delay, milliseconds.
pub const LONGEST_RETRY_MILLISECONDS: i64 = 1_000_000;

/// An observation from a watch, or from the list of a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A list of the kind begins: objects that are not observed until it is synced are gone.
    ListStarted(Kind),
    /// The list is complete; from here on every change is observed.
    Synced(Kind),
    /// The current state of an object.
    Observed(Facts),
    /// An object is gone.
    Removed(ObjectKey),
    /// An object as the list of a barrier found it.
    Found(Facts),
    /// The result of looking up the machine of a node.
    Machine {
        /// The node.
        node: ObjectKey,
        /// Its UID.
        uid: Uid,
        /// The state of its machine, or why the provider does not know it.
        state: Result<MachineState, String>,
    },
    /// The result of deleting the storage of a volume.
    StorageDeletion {
        /// The volume.
        volume: ObjectKey,
        /// Its UID.
        uid: Uid,
        /// An additional message, if any.
        remark: Option<String>,
        /// Result of the deletion.
        result: Result<(), StorageFailure>,
    },
}

/// Why storage was not deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageFailure {
    /// It is still in use.
    pub in_use: bool,
    /// The message of the component that should have deleted it.
    pub message: String,
}

/// The state of a machine, according to its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// It exists and is not shut down.
    Running,
    /// It exists and is shut down.
    Shutdown,
    /// It does not exist.
    Absent,
}

/// Decision about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing until something changes.
    Leave,
    /// Nothing before that time.
    Later(Timestamp),
    /// Send this request.
    Act(Request, Reason),
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedRequest<'a> {
    /// The object that it was decided for.
    pub key: &'a ObjectKey,
    /// The request.
    pub request: &'a Request,
    /// Its outcome.
    pub outcome: &'a Outcome,
    /// When it ended.
    pub now: Timestamp,
}

/// Decides for one kind of garbage.
///
/// A decision is a wish: the engine does not send what `kubegc.io/keep` forbids, what was applied or withheld before, or what
/// finds its lane full. So a collector notes in [`Collector::sending`], and not in [`Collector::decide`], what it must know about
/// requests in flight; each of them ends in [`Collector::finished`] or [`Collector::skipped`].
pub trait Collector {
    /// The kinds that it observes; it is not polled before all of them are synced.
    fn kinds(&self) -> &'static [Kind];
    /// Takes an observation, and names the objects to reconcile because of it.
    fn observe(&mut self, observation: Observation, now: Timestamp, dirty: &mut Vec<ObjectKey>);
    /// Decides about one object. It may name others to reconcile.
    fn decide(&mut self, key: &ObjectKey, now: Timestamp, dirty: &mut Vec<ObjectKey>) -> Decision;
    /// The next of the objects of a list, if there are too many to name one by one when it ends. They are reconciled
    /// when nothing else is due.
    fn next_undecided(&mut self) -> Option<ObjectKey> {
        None
    }
    /// The number of those objects.
    fn undecided(&self) -> usize {
        0
    }
    /// The lane of a request of which only a few may be in flight at a time. The engine counts them: an object that finds its
    /// lane full is decided about again when there is room.
    fn lane(&self, _request: &Request) -> Option<Lane> {
        None
    }
    /// A request is about to be sent. Its end follows, exactly once.
    fn sending(&mut self, _key: &ObjectKey, _request: &Request, _reason: &Reason, _now: Timestamp) {}
    /// The object carries `kubegc.io/keep`, so its deletion is not sent. Returns when to decide about it again, if it has to be
    /// although nothing changes.
    fn kept(&mut self, _key: &ObjectKey) -> Option<Timestamp> {
        None
    }
    /// Takes the outcome of a request. After a failure the object is reconciled again in any case.
    fn finished(&mut self, _ended: EndedRequest<'_>, _dirty: &mut Vec<ObjectKey>) {}
    /// A request that was about to be sent has been withheld.
    fn skipped(&mut self, _key: &ObjectKey, _request: &Request) {}
    /// Its queue of Events and measurements, if it has one.
    fn reports(&mut self) -> Option<&mut ReportQueue> {
        None
    }
    /// The wall clock was set, by this number of milliseconds. Times that were taken from it, and from which
    /// durations are measured, are shifted; times in objects are not.
    fn clock_set(&mut self, _by: i64) {}
    /// Its current gauges. Called from time to time: values must be kept up to date, not computed here.
    fn gauges(&self, _into: &mut Vec<Measurement>) {}
}

/// A collector with its schedule, independent of its type.
pub trait AnyCollector: Send + 'static {
    /// The kinds that it observes.
    fn kinds(&self) -> &'static [Kind];
    /// Sets the time, which never decreases.
    fn tick(&mut self, now: Timestamp);
    /// The wall clock was set, forward or back: this is the time now.
    fn set_clock(&mut self, now: Timestamp);
    /// Takes an observation.
    fn observe(&mut self, observation: Observation);
    /// The next thing to do, or `None` if there is nothing to do now.
    fn poll_effect(&mut self) -> Option<Effect>;
    /// Takes the outcome of an effect.
    fn finish(&mut self, id: EffectId, outcome: &Outcome);
    /// When it needs the next `tick`, if at all.
    fn next_wakeup(&self) -> Option<Timestamp>;
    /// The counters since the start.
    fn counts(&self) -> Counts;
    /// An effect will not be performed. It is not returned again before its object changes or its resource is
    /// released.
    fn skip(&mut self, id: EffectId);
    /// Reconciles again what was skipped of a resource, or of all.
    fn release(&mut self, resource: Option<ResourceId>);
    /// The next measurement.
    fn take_measurement(&mut self) -> Option<Measurement>;
    /// The current state of the collector.
    fn standing(&self) -> CollectorState;
}

/// The current state of a collector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectorState {
    /// The counters since the start.
    pub counts: Counts,
    /// Objects to reconcile, now or later.
    pub waiting: usize,
    /// Delay of the most overdue object, milliseconds.
    pub overdue_milliseconds: i64,
    /// True if everything that it watches has been listed.
    pub synced: bool,
    /// Gauges of its own.
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
    /// The lane that it is in, alone or on the way to a request of that lane.
    lane: Option<Lane>,
}

/// A collector with its schedule. Driven like the ownership engine: it takes observations and ticks, and is polled
/// for effects.
#[derive(Debug)]
pub struct Engine<J> {
    collector: J,
    unsynced: BTreeSet<Kind>,
    now: Timestamp,
    next_effect: u64,
    due: BTreeSet<(Timestamp, ObjectKey)>,
    when: BTreeMap<ObjectKey, Timestamp>,
    /// When the list was complete whose objects have not all been reconciled yet.
    listed: Timestamp,
    flying: BTreeMap<EffectId, Flight>,
    /// Objects that wait for room in a lane.
    waiting: WaitingObjects,
    busy: BTreeSet<ObjectKey>,
    failures: BTreeMap<ObjectKey, u32>,
    /// The last request that was applied, until the watch shows its effect: not repeated.
    done: BTreeMap<ObjectKey, Request>,
    /// Skipped requests: reported once for each version of an object.
    skipped: BTreeMap<ObjectKey, Request>,
    /// Skipped objects that a list in progress has not contained yet.
    unseen: BTreeSet<ObjectKey>,
    /// A decision that waits until its Events have been taken.
    ready: Option<Effect>,
    /// Objects with `kubegc.io/keep`: no collector deletes them.
    kept: BTreeSet<ObjectKey>,
    counts: Counts,
}

impl<J: Collector> Engine<J> {
    /// An engine without any knowledge.
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

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Sets the time; an earlier one has no effect.
    pub fn tick(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// The wall clock was set, forward or back: this is the time now. Whatever waits for a time is reconciled now, as
    /// it is unknown which of these times come from objects.
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
            // Until the list is complete, removed objects still count: nothing is decided before that.
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

    /// A list of a resource is complete. It may come from a restored server, in which nothing has been done yet:
    /// objects that still exist are reconciled again.
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

    /// The collector.
    pub(crate) fn collector(&self) -> &J {
        &self.collector
    }

    /// Updates the collector by something other than an observation; the objects that it names are reconciled.
    pub(crate) fn update<R>(
        &mut self,
        update: impl FnOnce(&mut J, Timestamp, &mut Vec<ObjectKey>) -> R,
    ) -> R {
        let mut dirty = Vec::new();
        let answer = update(&mut self.collector, self.now, &mut dirty);
        self.schedule_all(dirty);
        answer
    }

    /// An object is gone.
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

    /// The next object to reconcile, if any: those that are due, those that waited for a lane, then the rest of a list.
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

    /// Only an earlier time replaces the current one.
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

    /// When it needs the next `tick`, if at all.
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

    /// Its current state.
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

    /// An effect will not be performed (a dry run, the circuit breaker). It is not returned again before its object
    /// changes or its resource is released.
    pub fn skip(&mut self, id: EffectId) {
        if let Some(Flight { key, request, .. }) = self.flying.remove(&id) {
            self.busy.remove(&key);
            self.collector.skipped(&key, &request);
            self.skipped.insert(key, request);
        }
    }

    /// Reconciles again what was skipped of a resource, or of all.
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

    /// The next thing to do, or `None` if there is nothing to do now.
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
            // An object with a request in flight is reconciled when its outcome is known.
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

    /// Sends a request if its lane has room. One that leads to a request of the lane that its object was `called` to
    /// occupies that lane, so no other object is called meanwhile.
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
        // Its Events come first.
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

/// Reports whether a request is the same as the one skipped before, for the same version of the object: its
/// contents may include the time.
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

/// Numbers from which an engine around this one numbers its Events.
pub(crate) const FIRST_EVENT: u64 = 1 << 63;

/// A reason of a retention module.
pub(crate) fn reason(code: &'static str, observed: ResourceVersion, facts: &[String]) -> Reason {
    let mut evidence = vec![Evidence::ObservedAt { resource_version: observed }];
    evidence.extend(facts.iter().map(|fact| Evidence::Fact(fact.as_str().into())));
    Reason { verdict: Verdict::Retention(code), owners: Vec::new(), evidence }
}

#[cfg(test)]
mod tests;
