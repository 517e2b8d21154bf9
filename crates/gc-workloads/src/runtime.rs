//! The loop around the controllers, without a clock and without I/O: which object is reconciled next, which requests are sent for
//! it, and when they are retried.
//!
//! There is at most one plan in progress per controller and object. The response to a request is stored before the object is
//! reconciled again, so a controller always sees its own writes; this replaces expectations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::tz::TimeZone;
use serde_json::Value;

use crate::events::Recorder;
use crate::kinds::{Key, Kind};
use crate::object::Object;
use crate::plan::{Action, FailedAction, Failure, FailureReason, Note, Plan, Request, Settings, View};
use crate::queue::{Queue, Turns, Work};
use crate::store::{Change, Store};
use crate::time::{Milliseconds, SECOND};
use crate::workloads::Workload;

/// Maximum number of requests in flight.
pub const MAX_IN_FLIGHT: usize = 64;
/// Maximum number of plans in progress.
pub const MAX_PLANS: usize = 256;
/// Maximum number of queued Events; further ones are dropped and counted.
pub const MAX_WAITING_EVENTS: usize = 10_000;
/// Number of visited objects per millisecond of rest after a reconciliation, so that owners of many objects are not reconciled
/// after each change of one of them.
pub const VISITS_PER_MILLISECOND: usize = 100;
/// Delay after a first failure; it doubles with each further one.
pub const FIRST_RETRY: Milliseconds = 5;
/// Maximum delay between attempts for an object that keeps failing.
pub const LONGEST_RETRY: Milliseconds = 1_000_000;

/// Number of consecutive failures after which the next attempt is far enough away for the controllers to count as settled.
pub const SETTLED_RETRIES: u32 = 8;

/// Time within which something must be due for the controllers to count as not settled.
pub const SOON: Milliseconds = SECOND;

/// Identifies a request until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A request to send now.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Identifier of the request.
    pub id: RequestId,
    /// Sending controller.
    pub workload: Workload,
    /// The request.
    pub action: Action,
    /// Reason.
    pub why: &'static str,
}

/// Result of a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Done; contains the object as the server has it now, if returned.
    Done(Option<Value>),
    /// Not done.
    Failed {
        /// Reason.
        reason: FailureReason,
        /// Message of the server.
        message: String,
    },
}

/// Observation of the API server.
#[derive(Clone, Debug)]
pub enum Observation {
    /// All objects of a kind, as listed.
    Listed(Kind, Vec<Value>),
    /// An object that appeared or changed.
    Present(Kind, Value),
    /// An object that is gone.
    Gone(Kind, Value),
}

/// A plan in progress.
#[derive(Debug)]
struct RunningPlan {
    steps: VecDeque<Vec<Request>>,
    /// Events to write once everything is done.
    notes: Vec<Note>,
    /// Requests of the current step that have not been sent yet.
    waiting: VecDeque<Request>,
    /// Number of requests of the current step that are in flight.
    unanswered: usize,
    failure: Option<Failure>,
    /// True if the plan was made with the failure of the previous one.
    shown: bool,
    again_at: Option<Milliseconds>,
    still_failing: bool,
    /// Versions that this plan's own requests gave to objects.
    versions: BTreeMap<Key, Value>,
}

/// Failure of an object that has not succeeded since.
#[derive(Debug, Default)]
struct Trouble {
    retries: u32,
    /// Failure that its controller has not seen yet.
    unseen: Option<Failure>,
}

/// Counters for logs and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests sent.
    pub requests: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Events dropped because too many were queued.
    pub dropped_events: u64,
    /// Number of plans.
    pub reconciles: u64,
}

/// State of all controllers together.
#[derive(Debug)]
pub struct Runtime {
    store: Store,
    settings: Settings,
    workloads: Vec<Workload>,
    unlisted: BTreeSet<Kind>,
    ready: Queue,
    queued: BTreeSet<Work>,
    running: BTreeMap<Work, RunningPlan>,
    /// Work whose object changed while its plan was in progress.
    dirty: BTreeSet<Work>,
    /// Work whose current step has requests that are not sent yet.
    sendable: Turns,
    in_flight: BTreeMap<RequestId, (Work, Request)>,
    events_in_flight: BTreeSet<RequestId>,
    timers: BTreeSet<(Milliseconds, Work)>,
    /// Time at which each timer is due; an object has at most one.
    due: BTreeMap<Work, Milliseconds>,
    /// Time until which owners of many objects rest.
    resting: BTreeMap<Work, Milliseconds>,
    /// Work whose object changed while it rests.
    deferred: BTreeSet<Work>,
    troubles: BTreeMap<Work, Trouble>,
    /// Work that is due again soon: after fewer failures than [`SETTLED_RETRIES`], or before [`SOON`].
    soon: BTreeSet<Work>,
    events: VecDeque<(Workload, Action)>,
    recorder: Recorder,
    next_request: u64,
    counts: Counts,
}

impl Runtime {
    /// Creates a runtime that knows no objects.
    #[must_use]
    pub fn new(mut settings: Settings, workloads: Vec<Workload>) -> Self {
        settings.keeps_nodes = workloads.contains(&Workload::Kubelet);
        let unlisted = workloads.iter().flat_map(|workload| workload.observes()).copied().collect();
        Self {
            store: Store::default(),
            settings,
            workloads,
            unlisted,
            ready: Queue::default(),
            queued: BTreeSet::new(),
            running: BTreeMap::new(),
            dirty: BTreeSet::new(),
            sendable: Turns::default(),
            in_flight: BTreeMap::new(),
            events_in_flight: BTreeSet::new(),
            timers: BTreeSet::new(),
            due: BTreeMap::new(),
            resting: BTreeMap::new(),
            deferred: BTreeSet::new(),
            troubles: BTreeMap::new(),
            soon: BTreeSet::new(),
            events: VecDeque::new(),
            recorder: Recorder::default(),
            next_request: 0,
            counts: Counts::default(),
        }
    }

    /// Returns the kinds that have to be listed and watched.
    #[must_use]
    pub fn kinds(&self) -> BTreeSet<Kind> {
        self.workloads.iter().flat_map(|workload| workload.observes()).copied().collect()
    }

    /// Returns the observed objects.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Adds the rules of a time zone. A driver that has none under a name need not report it.
    pub fn learn_time_zone(&mut self, name: &str, zone: TimeZone) {
        self.settings.time_zones.insert(name.to_owned(), zone);
    }

    /// Reports whether the rules of a time zone are known.
    #[must_use]
    pub fn knows_time_zone(&self, name: &str) -> bool {
        self.settings.time_zones.contains_key(name)
    }

    /// Reports whether every kind has been listed, so that controllers act.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.unlisted.is_empty()
    }

    /// Takes in what was observed.
    pub fn observe(&mut self, observation: Observation, now: Milliseconds) {
        match observation {
            Observation::Listed(kind, values) => {
                let objects: Vec<Object> =
                    values.into_iter().filter_map(|value| Object::new(kind, value)).collect();
                for change in self.store.retain(kind, &objects) {
                    self.wake(&change, now);
                }
                for object in objects {
                    self.take_in(object, now);
                }
                if self.unlisted.remove(&kind) && self.unlisted.is_empty() {
                    self.begin(now);
                }
            }
            Observation::Present(kind, value) => {
                if let Some(object) = Object::new(kind, value) {
                    self.take_in(object, now);
                }
            }
            Observation::Gone(kind, value) => {
                let Some(object) = Object::new(kind, value) else { return };
                if let Some(change) = self.store.vanish(&object.key, Some(&object.uid)) {
                    self.wake(&change, now);
                }
            }
        }
    }

    /// Reconciles each object once, now that everything is known.
    fn begin(&mut self, now: Milliseconds) {
        for workload in self.workloads.clone() {
            for key in workload.first_keys(&self.settings) {
                self.enqueue((workload, key), now);
            }
        }
        for kind in self.kinds() {
            let objects: Vec<Arc<Object>> = self.store.all(kind).cloned().collect();
            for object in objects {
                self.wake(&Change { before: None, after: Some(object) }, now);
            }
        }
    }

    fn take_in(&mut self, object: Object, now: Milliseconds) {
        if let Some(change) = self.store.observe(object, now) {
            self.wake(&change, now);
        }
    }

    fn wake(&mut self, change: &Change, now: Milliseconds) {
        if !self.unlisted.is_empty() {
            return;
        }
        let view = View { store: &self.store, now, settings: &self.settings, failure: None };
        let mut woken = Vec::new();
        for &workload in &self.workloads {
            let mut keys = Vec::new();
            workload.wakes(&view, change, &mut keys);
            woken.extend(keys.into_iter().map(|key| (workload, key)));
        }
        for work in woken {
            self.enqueue(work, now);
        }
    }

    fn enqueue(&mut self, work: Work, now: Milliseconds) {
        if self.running.contains_key(&work) {
            self.dirty.insert(work);
            return;
        }
        if let Some(&until) = self.resting.get(&work) {
            if until > now {
                let at = self.due.get(&work).map_or(until, |due| until.min(*due));
                self.set_timer(&work, Some(at));
                self.deferred.insert(work);
                return;
            }
            self.resting.remove(&work);
        }
        if self.queued.insert(work.clone()) {
            self.ready.push(work);
        }
    }

    /// Returns the next request to send; `None` until there is a response, an observation, or something due.
    pub fn next_request(&mut self, now: Milliseconds) -> Option<Sent> {
        self.ring(now);
        loop {
            if self.in_flight.len() + self.events_in_flight.len() >= MAX_IN_FLIGHT {
                return None;
            }
            if let Some(sent) = self.send_of_plans() {
                return Some(sent);
            }
            if self.running.len() < MAX_PLANS
                && let Some(work) = self.ready.pop()
            {
                self.queued.remove(&work);
                self.reconcile(work, now);
                continue;
            }
            let (workload, action) = self.events.pop_front()?;
            let id = self.new_id();
            self.events_in_flight.insert(id);
            return Some(Sent { id, workload, action, why: "event" });
        }
    }

    /// Returns when to ask for requests again, if nothing happens before.
    #[must_use]
    pub fn next_timer(&self) -> Option<Milliseconds> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn ring(&mut self, now: Milliseconds) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, work)) = self.timers.pop_first() {
                self.due.remove(&work);
                self.deferred.remove(&work);
                self.enqueue(work, now);
            }
        }
    }

    fn set_timer(&mut self, work: &Work, at: Option<Milliseconds>) {
        if let Some(before) = self.due.remove(work) {
            self.timers.remove(&(before, work.clone()));
        }
        if let Some(at) = at {
            self.due.insert(work.clone(), at);
            self.timers.insert((at, work.clone()));
        }
    }

    fn new_id(&mut self) -> RequestId {
        self.next_request += 1;
        self.counts.requests += 1;
        RequestId(self.next_request)
    }

    fn send_of_plans(&mut self) -> Option<Sent> {
        while let Some(work) = self.sendable.pop() {
            let next = self.running.get_mut(&work).and_then(|running| {
                let request = running.waiting.pop_front()?;
                running.unanswered += 1;
                Some((
                    with_own_version(&request.action, &running.versions),
                    request,
                    running.waiting.is_empty(),
                ))
            });
            let Some((action, request, last)) = next else { continue };
            if !last {
                self.sendable.put_back(work.clone());
            }
            let id = self.new_id();
            let sent = Sent { id, workload: work.0, action, why: request.why };
            self.in_flight.insert(id, (work, request));
            return Some(sent);
        }
        None
    }

    fn reconcile(&mut self, work: Work, now: Milliseconds) {
        self.counts.reconciles += 1;
        let failure = self.troubles.get_mut(&work).and_then(|trouble| trouble.unseen.take());
        let view = View { store: &self.store, now, settings: &self.settings, failure: failure.as_ref() };
        let Plan { steps, notes, again_at, still_failing } = work.0.reconcile(&view, &work.1);
        let running = RunningPlan {
            steps: steps.into(),
            notes,
            waiting: VecDeque::new(),
            unanswered: 0,
            failure: None,
            shown: failure.is_some(),
            again_at,
            still_failing: still_failing && failure.is_some(),
            versions: BTreeMap::new(),
        };
        self.running.insert(work.clone(), running);
        self.advance(work, now);
    }

    /// Continues a plan whose current step is complete.
    fn advance(&mut self, work: Work, now: Milliseconds) {
        let Some(running) = self.running.get_mut(&work) else { return };
        if running.unanswered > 0 || !running.waiting.is_empty() {
            return;
        }
        if running.failure.is_none() {
            while let Some(step) = running.steps.pop_front() {
                if !step.is_empty() {
                    running.waiting = step.into();
                    self.sendable.push(work);
                    return;
                }
            }
        }
        let Some(ended) = self.running.remove(&work) else { return };
        self.ready.ended(&work);
        self.end(work, ended, now);
    }

    fn end(&mut self, work: Work, ended: RunningPlan, now: Milliseconds) {
        let woken = self.dirty.remove(&work);
        let mut again_at = ended.again_at.map(|at| at.max(now + 1));
        let mut at_once = woken;
        self.soon.remove(&work);
        if ended.failure.is_none() {
            for note in ended.notes {
                self.note(work.0, note, now);
            }
        }
        match ended.failure {
            Some(failure) if failure.reason == FailureReason::NamespaceTerminating => {
                self.troubles.remove(&work);
            }
            Some(failure) => {
                let trouble = self.troubles.entry(work.clone()).or_default();
                let show = is_reported(&failure) && !ended.shown && work.0.handles_failures();
                if show {
                    trouble.unseen = Some(failure);
                    at_once = true;
                } else {
                    again_at = Some(self.retry(&work, now));
                }
            }
            None if ended.still_failing => again_at = Some(self.retry(&work, now)),
            None => {
                self.troubles.remove(&work);
            }
        }
        self.set_timer(&work, again_at);
        if again_at.is_some_and(|at| at < now + SOON) {
            self.soon.insert(work.clone());
        }
        let visited = self.store.dependents(&work.1) / VISITS_PER_MILLISECOND;
        match Milliseconds::try_from(visited).unwrap_or(LONGEST_RETRY) {
            0 => self.resting.remove(&work),
            rest => self.resting.insert(work.clone(), now + rest),
        };
        if at_once {
            self.enqueue(work, now);
        }
    }

    /// Counts a failure, and returns when the next attempt is due.
    fn retry(&mut self, work: &Work, now: Milliseconds) -> Milliseconds {
        let trouble = self.troubles.entry(work.clone()).or_default();
        let at = now + delay(trouble.retries);
        trouble.retries += 1;
        if trouble.retries < SETTLED_RETRIES {
            self.soon.insert(work.clone());
        }
        at
    }

    /// Takes the response to a request.
    pub fn answered(&mut self, id: RequestId, answer: Answer, now: Milliseconds) {
        if self.events_in_flight.remove(&id) {
            return;
        }
        let Some((work, request)) = self.in_flight.remove(&id) else { return };
        let answer = as_wanted(&request.action, answer);
        match answer {
            Answer::Done(value) => self.done(&work, request, value, now),
            Answer::Failed { reason, message } => {
                self.counts.failures += 1;
                let failure = Failure { action: failed_action(&request.action), reason, message };
                if let Some(note) = request.failed.filter(|_| is_reported(&failure)) {
                    let message = note.message.replace("{}", &failure.message);
                    self.note(work.0, Note { message, ..note }, now);
                }
                if let Some(running) = self.running.get_mut(&work) {
                    running.failure = Some(failure);
                }
            }
        }
        if let Some(running) = self.running.get_mut(&work) {
            running.unanswered -= 1;
        }
        self.advance(work, now);
    }

    fn done(&mut self, work: &Work, request: Request, value: Option<Value>, now: Milliseconds) {
        let mut key = request.action.key();
        let answered = value.and_then(|value| Object::new(key.kind, value));
        if let Some(note) = request.done {
            let name =
                answered.as_ref().map_or_else(|| key.name.to_string(), |object| object.name().to_owned());
            let message = note.message.replace("{}", &name);
            self.note(work.0, Note { message, ..note }, now);
        }
        match (&request.action, answered) {
            (Action::Delete { uid, .. }, object) if object.as_ref().is_none_or(is_gone) => {
                if let Some(change) = self.store.removed(&key, uid) {
                    self.wake(&change, now);
                }
            }
            (Action::Bind { uid, node, .. }, _) => {
                // The scheduler must immediately know what is taken; the node learns it from the watch, with the version.
                self.store.bound(&key, uid, node);
            }
            (Action::Confirm { .. }, _) | (_, None) => {}
            (_, Some(object)) => {
                key.name = Arc::clone(&object.key.name);
                let version = object.value["metadata"]["resourceVersion"].clone();
                if let Some(running) = self.running.get_mut(work) {
                    running.versions.insert(key, version);
                }
                self.take_in(object, now);
            }
        }
    }

    fn note(&mut self, workload: Workload, note: Note, now: Milliseconds) {
        let Some(action) = self.recorder.record(workload, note, now) else { return };
        if self.events.len() >= MAX_WAITING_EVENTS {
            self.events.pop_front();
            self.counts.dropped_events += 1;
        }
        self.events.push_back((workload, action));
    }

    /// Returns the number of objects and Events that are being handled, or will be within a second; 0 once the controllers have
    /// settled.
    #[must_use]
    pub fn moving(&self) -> usize {
        let unlisted = usize::from(!self.unlisted.is_empty());
        let events = self.events.len() + self.events_in_flight.len();
        let waiting = self.queued.len() + self.soon.len() + self.deferred.len();
        unlisted + waiting + self.running.len() + events
    }
}

/// Reports whether the response to a deletion shows that the object is gone, because nothing blocks it any more.
fn is_gone(object: &Object) -> bool {
    let metadata = &object.value["metadata"];
    let held = metadata["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    !held && (!object.deleting || grace == 0)
}

fn delay(retries: u32) -> Milliseconds {
    FIRST_RETRY.saturating_mul(1 << retries.min(30)).min(LONGEST_RETRY)
}

/// Reports whether users are informed of a failure; requests that were merely outdated are retried quietly.
fn is_reported(failure: &Failure) -> bool {
    !matches!(
        failure.reason,
        FailureReason::Conflict | FailureReason::NotConfirmed | FailureReason::NamespaceTerminating
    )
}

fn failed_action(action: &Action) -> FailedAction {
    match action {
        Action::Create { kind, .. } => FailedAction::Create(*kind),
        Action::Delete { key, .. } => FailedAction::Delete(key.kind),
        _ => FailedAction::Other,
    }
}

/// Treats a deletion of a missing object, or of one that was replaced, as done.
fn as_wanted(action: &Action, answer: Answer) -> Answer {
    match (action, answer) {
        (
            Action::Delete { version: None, .. },
            Answer::Failed { reason: FailureReason::NotFound | FailureReason::Conflict, .. },
        ) => Answer::Done(None),
        (Action::Confirm { uid, .. }, Answer::Done(Some(value))) => {
            let same = value["metadata"]["uid"].as_str() == Some(&**uid);
            if same && value["metadata"]["deletionTimestamp"].is_null() {
                Answer::Done(Some(value))
            } else {
                Answer::Failed {
                    reason: FailureReason::NotConfirmed,
                    message: "it is gone or being deleted".into(),
                }
            }
        }
        (_, answer) => answer,
    }
}

/// Makes a plan that writes an object twice continue from the version that its first request created.
fn with_own_version(action: &Action, versions: &BTreeMap<Key, Value>) -> Action {
    let mut action = action.clone();
    if let Action::Update { key, object } | Action::UpdateStatus { key, object } = &mut action
        && let Some(version) = versions.get(key)
    {
        object["metadata"]["resourceVersion"] = version.clone();
    }
    action
}
