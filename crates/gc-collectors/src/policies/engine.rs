//! Loop of one policy: the set of due objects, and the runs that delete them.
//!
//! The set of due objects is updated with each change and as time passes; nothing is ever scanned. A run takes the first due
//! objects, at most as many as the policy allows, and deletes them with UID and version as preconditions. No run deletes before a
//! status of the current generation has shown what would be deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{
    Effect, EffectId, EventRecord, ObjectKey, Outcome, Reason, Request, ResourceId, ResourceVersion,
    Severity, Timestamp, Uid, WithheldBy,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::cron::Schedule;
use super::look::{Assessment, Group, Item};
use super::unused::is_recent;
use super::{Join, Policy, Problem};
use crate::division::{Division, MovedItems};
use crate::engine::{Collector, Decision, EndedRequest, Engine, FIRST_EVENT, Observation, reason};
use crate::objects::{Kind, parse_time, time_text};

/// Time between the starts of two runs of a policy without a schedule, milliseconds.
pub const CONTINUOUS_PAUSE_MILLISECONDS: i64 = 10_000;
/// Number of consecutive failures after which an object is left to the next run.
pub const TRIES_PER_RUN: u32 = 3;
/// The reason of the Event that announces a deletion.
pub const NOTICE: &str = "RetentionNotice";
/// Maximum number of commands in the status that restore the objects deleted by a run.
const UNDO_COMMANDS: usize = 10;
/// Number of bytes of a SHA-256 that identify a specification.
const DIGEST_BYTES: usize = 16;

/// Position of an object in its group: its time, then its name.
type Turn = (Timestamp, ObjectKey);

/// A run, in progress or past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) begun: Timestamp,
    pub(super) deleted: u64,
    pub(super) failed: u64,
    /// Message of the last failure.
    pub(super) error: Option<String>,
    /// Commands that restore the first of the objects that it has deleted as unused.
    pub(super) undo: Vec<String>,
}

/// Objects that are due under one policy.
#[derive(Debug)]
pub(super) struct PolicyCollector {
    /// Name of the policy.
    name: Arc<str>,
    policy: Arc<Policy>,
    items: BTreeMap<ObjectKey, Item>,
    /// Objects that a list in progress has not contained yet.
    unseen: BTreeSet<ObjectKey>,
    groups: BTreeMap<Group, Division<Turn>>,
    /// Objects that are not among the newest of their group.
    surplus: BTreeSet<ObjectKey>,
    expiring: BTreeSet<(Timestamp, ObjectKey)>,
    expired: BTreeSet<ObjectKey>,
    /// All surplus or expired objects, oldest first.
    due: BTreeSet<Turn>,
    /// Due objects that the next run takes: without skipped deletions, until their object changes.
    open: BTreeSet<Turn>,
    /// Skipped deletions that have been reported, with the version of the object.
    reported: BTreeMap<ObjectKey, ResourceVersion>,
    kept: BTreeSet<ObjectKey>,
    unclear: BTreeMap<ObjectKey, String>,
    /// Objects that the current run is to delete.
    chosen: BTreeSet<ObjectKey>,
    run: Option<Run>,
    failures: BTreeMap<ObjectKey, u32>,
    notices: Notices,
    /// True once the first list is complete, after which observations are new or changed objects.
    has_been_listed: bool,
    /// Time of the last check that has found an object unused.
    newest_look: Option<Timestamp>,
    /// True while a recorder records deleted objects, as far as a policy needs one.
    is_recorded: bool,
}

/// Notice of one object.
#[derive(Debug)]
struct NoticeState {
    uid: Uid,
    at: Timestamp,
}

/// Deletions that have been announced.
#[derive(Debug, Default)]
pub(super) struct Notices {
    noticed: BTreeMap<ObjectKey, NoticeState>,
    /// Objects whose notice is due now, in the order of their deletion times.
    waiting: BTreeSet<(Timestamp, ObjectKey)>,
    /// Deletion time of the last object that this process or an earlier one announced. Notices are given in the order of deletion
    /// times, so every object with an earlier one has had its notice.
    pub(super) until: Option<Timestamp>,
}

impl Notices {
    /// Reports whether an earlier process has announced the deletion of an object that the first list contains.
    fn is_known(&self, at: Timestamp, is_first_list: bool) -> bool {
        is_first_list && self.until.is_some_and(|until| at <= until)
    }
}

impl PolicyCollector {
    fn new(name: Arc<str>, policy: Arc<Policy>, announced_until: Option<Timestamp>) -> Self {
        Self {
            name,
            notices: Notices { until: announced_until, ..Notices::default() },
            has_been_listed: false,
            newest_look: None,
            is_recorded: policy.recorder().is_none(),
            policy,
            items: BTreeMap::new(),
            unseen: BTreeSet::new(),
            groups: BTreeMap::new(),
            surplus: BTreeSet::new(),
            expiring: BTreeSet::new(),
            expired: BTreeSet::new(),
            due: BTreeSet::new(),
            open: BTreeSet::new(),
            reported: BTreeMap::new(),
            kept: BTreeSet::new(),
            unclear: BTreeMap::new(),
            chosen: BTreeSet::new(),
            run: None,
            failures: BTreeMap::new(),
        }
    }

    fn put(&mut self, key: ObjectKey, look: Assessment, now: Timestamp) {
        self.remove(&key);
        match look {
            Assessment::Aside => {}
            Assessment::Kept => drop(self.kept.insert(key)),
            Assessment::Unclear(why) => drop(self.unclear.insert(key, why)),
            Assessment::Selected(item) => self.put_item(key, item, now),
        }
    }

    fn put_item(&mut self, key: ObjectKey, item: Item, now: Timestamp) {
        if self.notices.noticed.get(&key).is_some_and(|noticed| noticed.uid != item.uid) {
            self.notices.noticed.remove(&key);
        }
        if let (Some(before), Some((at, _))) = (self.policy.notice(), &item.expires)
            && self.notices.is_known(*at, !self.has_been_listed)
        {
            let noticed = NoticeState { uid: item.uid.clone(), at: at.after(-before) };
            self.notices.noticed.entry(key.clone()).or_insert(noticed);
        }
        self.newest_look = self.newest_look.max(item.seen);
        let (order, group) = (item.order, item.group.clone());
        match self.wakes(&key, &item) {
            // Notices are given when the time is next set, which also starts the delay after them.
            Some(at) if at <= now && !self.lacks_notice(&key) => drop(self.expired.insert(key.clone())),
            Some(at) => drop(self.expiring.insert((at, key.clone()))),
            None => {}
        }
        self.items.insert(key.clone(), item);
        if let Some(group) = group {
            let count = self.policy.rules.newest.as_ref().map_or(usize::MAX, |newest| newest.count);
            let division = self.groups.entry(group).or_insert_with(|| Division::new(count));
            let moved = division.insert((order, key.clone()));
            self.move_surplus(moved);
        }
        self.settle((order, key));
    }

    /// Reports whether the object needs a notice before it may be due.
    fn lacks_notice(&self, key: &ObjectKey) -> bool {
        self.policy.notice().is_some() && !self.notices.noticed.contains_key(key)
    }

    /// Returns when the passing of time changes something about an object: its notice, then its deletion.
    fn wakes(&self, key: &ObjectKey, item: &Item) -> Option<Timestamp> {
        let (at, _) = item.expires.as_ref()?;
        Some(match (self.policy.notice(), self.notices.noticed.get(key)) {
            (None, _) => *at,
            (Some(before), None) => at.after(-before),
            (Some(before), Some(noticed)) => noticed.at.after(before).max(*at),
        })
    }

    /// Updates the sets of due objects, and reports whether the rules make an object due.
    fn settle(&mut self, turn: Turn) {
        let (is_surplus, is_expired) = (self.surplus.contains(&turn.1), self.expired.contains(&turn.1));
        if self.policy.rules.apply(is_surplus, is_expired) && self.items.contains_key(&turn.1) {
            self.add_due(turn);
        } else {
            self.drop_due(&turn);
        }
    }

    fn add_due(&mut self, turn: Turn) {
        let version = self.items.get(&turn.1).map(|item| item.resource_version);
        if version.is_some() && self.reported.get(&turn.1).copied() == version {
            self.open.remove(&turn);
        } else {
            self.open.insert(turn.clone());
        }
        self.due.insert(turn);
    }

    fn drop_due(&mut self, turn: &Turn) {
        self.open.remove(turn);
        self.due.remove(turn);
    }

    fn move_surplus(&mut self, moved: MovedItems<Turn>) {
        for (order, key) in moved.going {
            self.surplus.insert(key.clone());
            self.settle((order, key));
        }
        for (order, key) in moved.staying {
            self.surplus.remove(&key);
            self.settle((order, key));
        }
    }

    fn remove(&mut self, key: &ObjectKey) {
        self.unseen.remove(key);
        self.kept.remove(key);
        self.unclear.remove(key);
        let Some(item) = self.items.remove(key) else { return };
        let turn = (item.order, key.clone());
        self.surplus.remove(key);
        self.expired.remove(key);
        self.drop_due(&turn);
        if let Some(at) = self.wakes(key, &item) {
            let wake = (at, key.clone());
            self.expiring.remove(&wake);
            self.notices.waiting.remove(&wake);
        }
        if let Some(group) = item.group
            && let Some(division) = self.groups.get_mut(&group)
        {
            let moved = division.remove(&turn);
            if division.is_empty() {
                self.groups.remove(&group);
            }
            self.move_surplus(moved);
        }
    }

    fn list_started(&mut self) {
        self.unseen = self.items.keys().chain(&self.kept).chain(self.unclear.keys()).cloned().collect();
    }

    fn list_ended(&mut self) {
        for key in std::mem::take(&mut self.unseen) {
            self.forget(&key);
        }
        self.has_been_listed = true;
    }

    /// Forgets an object that is gone.
    fn forget(&mut self, key: &ObjectKey) {
        self.remove(key);
        self.chosen.remove(key);
        self.reported.remove(key);
        self.notices.noticed.remove(key);
    }

    /// Updates the expired objects as time passes, and returns whether there are new ones.
    fn ripen(&mut self, now: Timestamp) -> bool {
        let mut has_changed = false;
        while let Some((at, _)) = self.expiring.first()
            && *at <= now
            && let Some((at, key)) = self.expiring.pop_first()
        {
            has_changed = true;
            if self.lacks_notice(&key) {
                self.notices.waiting.insert((at, key));
                continue;
            }
            let order = self.items.get(&key).map(|item| item.order);
            self.expired.insert(key.clone());
            if let Some(order) = order {
                self.settle((order, key));
            }
        }
        has_changed
    }

    /// Returns the next notice to give. The time until the deletion begins now.
    fn take_notice(&mut self, now: Timestamp) -> Option<(EventRecord, Reason)> {
        while let Some((_, key)) = self.notices.waiting.pop_first() {
            let Some(item) = self.items.get(&key) else { continue };
            let Some((at, why)) = item.expires.clone() else { continue };
            self.notices.noticed.insert(key.clone(), NoticeState { uid: item.uid.clone(), at: now });
            self.notices.until = self.notices.until.max(Some(at));
            let deleted_at = self.wakes(&key, item).unwrap_or(at);
            let note = EventRecord {
                about: key.clone(),
                uid: item.uid.clone(),
                severity: Severity::Warning,
                reason: NOTICE,
                message: format!("Will be deleted at {} or later: {why}", time_text(deleted_at)),
            };
            let code = gc_types::codes::DELETION_NOTICE;
            let reason = reason(code, item.resource_version, std::slice::from_ref(&note.message));
            self.expiring.insert((deleted_at, key));
            return Some((note, reason));
        }
        None
    }

    /// Explains why an object is due.
    pub(super) fn why(&self, key: &ObjectKey) -> Option<String> {
        let item = self.items.get(key)?;
        let rules = &self.policy.rules;
        let (is_surplus, is_expired) = (self.surplus.contains(key), self.expired.contains(key));
        if !rules.apply(is_surplus, is_expired) {
            return None;
        }
        let by_time = item.expires.as_ref().filter(|_| is_expired).map(|(_, why)| why.to_string());
        let by_number = rules.newest.as_ref().filter(|_| is_surplus).map(|newest| {
            format!("not among the {} newest ({}.keepNewest)", newest.count, rules.join.path())
        });
        match (by_time, by_number) {
            (Some(time), Some(number)) if rules.join == Join::All => Some(format!("{time}, and {number}")),
            (time, number) => time.or(number),
        }
    }

    /// Returns the deletion time of the last announced object.
    pub(super) fn noticed_until(&self) -> Option<Timestamp> {
        self.policy.notice().and(self.notices.until)
    }

    pub(super) fn due(&self) -> &BTreeSet<Turn> {
        &self.due
    }

    pub(super) fn selected(&self) -> usize {
        self.items.len()
    }

    pub(super) fn kept(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn unclear(&self) -> &BTreeMap<ObjectKey, String> {
        &self.unclear
    }

    /// Reports whether a recent check has confirmed that an object is unused, if the policy requires it.
    fn is_confirmed(&self, key: &ObjectKey, now: Timestamp) -> bool {
        self.policy.recorder().is_none()
            || self.items.get(key).and_then(|item| item.seen).is_some_and(|seen| is_recent(seen, now))
    }

    /// Reports whether a run would find anything that it may delete.
    fn has_confirmed(&self, now: Timestamp) -> bool {
        self.policy.recorder().is_none()
            || self.is_recorded
                && self.newest_look.is_some_and(|seen| is_recent(seen, now))
                && self.open.iter().any(|(_, key)| self.is_confirmed(key, now))
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    fn begin(&mut self, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        let confirmed = self.open.iter().map(|(_, key)| key).filter(|key| self.is_confirmed(key, now));
        self.chosen = confirmed.take(self.policy.most_per_run).cloned().collect();
        self.run = Some(Run { begun: now, ..Run::default() });
        dirty.extend(self.chosen.iter().cloned());
    }

    /// Returns the run that has just ended, if one has.
    fn take_ended(&mut self) -> Option<Run> {
        if !self.chosen.is_empty() {
            return None;
        }
        self.failures.clear();
        self.run.take()
    }
}

impl Collector for PolicyCollector {
    fn kinds(&self) -> &'static [Kind] {
        &[]
    }

    fn observe(&mut self, _observation: Observation, _now: Timestamp, _dirty: &mut Vec<ObjectKey>) {}

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        if !self.chosen.contains(key) {
            return Decision::Leave;
        }
        if !self.is_recorded || !self.is_confirmed(key, now) {
            self.chosen.remove(key);
            return Decision::Leave;
        }
        let (Some(item), Some(why)) = (self.items.get(key), self.why(key)) else {
            // The object has changed since the run began, and is no longer due.
            self.chosen.remove(key);
            return Decision::Leave;
        };
        let request = Request::Delete {
            key: key.clone(),
            uid: item.uid.clone(),
            resource_version: Some(item.resource_version),
            policy: self.policy.propagation,
        };
        let undo = self.policy.recorder().map(|_| format!("{} restores it", self.policy.undo_command(key)));
        let facts: Vec<String> = [why, super::fact(&self.name)].into_iter().chain(undo).collect();
        Decision::Act(request, reason(gc_types::codes::DUE_BY_POLICY, item.resource_version, &facts))
    }

    fn finished(
        &mut self,
        EndedRequest { key, request, outcome, .. }: EndedRequest<'_>,
        _dirty: &mut Vec<ObjectKey>,
    ) {
        let Some(run) = &mut self.run else { return };
        let error = match outcome {
            Outcome::Applied(_) | Outcome::Found(_) | Outcome::Absent => {
                let is_deleted = matches!(outcome, Outcome::Applied(_));
                run.deleted += u64::from(is_deleted);
                if is_deleted && self.policy.recorder().is_some() && run.undo.len() < UNDO_COMMANDS {
                    run.undo.push(self.policy.undo_command(key));
                }
                self.chosen.remove(key);
                // If it still exists, the watch delivers it; the watch may already have delivered a recreated one.
                if let (Some(item), Request::Delete { uid, resource_version, .. }) =
                    (self.items.get(key), request)
                    && (&item.uid, Some(item.resource_version)) == (uid, *resource_version)
                {
                    self.remove(key);
                }
                return;
            }
            // A withheld request is not a failure. If nothing is ever sent, it is reported once.
            Outcome::Withheld(by) => {
                self.chosen.remove(key);
                if matches!(by, WithheldBy::DryRun | WithheldBy::Observe)
                    && let Some(item) = self.items.get(key)
                {
                    self.reported.insert(key.clone(), item.resource_version);
                    self.open.remove(&(item.order, key.clone()));
                }
                return;
            }
            // The object has changed, and is reconciled again when the change is observed.
            Outcome::Conflict => "it kept changing".to_owned(),
            Outcome::NotServed => "the resource is not served".to_owned(),
            Outcome::Refused { message, .. } | Outcome::Failed { message, .. } => message.clone(),
        };
        let failures = self.failures.entry(key.clone()).or_default();
        *failures += 1;
        if *failures >= TRIES_PER_RUN {
            run.failed += 1;
            run.error = Some(format!("{}: {error}", named(key)));
            self.chosen.remove(key);
        }
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

pub(super) fn named(key: &ObjectKey) -> String {
    if key.namespace.is_empty() { key.name.to_string() } else { format!("{}/{}", key.namespace, key.name) }
}

/// Returns a short hash of a specification. A status names the specification that it is about, because a restored store reuses
/// generations for other specifications, and may then receive a status that was meant for an earlier one.
#[must_use]
pub fn digest(spec: &Value) -> String {
    let digest = Sha256::digest(spec.to_string().as_bytes());
    gc_types::hexadecimal(&digest[..DIGEST_BYTES])
}

/// One active policy. Driven like the other engines, and given what it needs to know about its objects.
#[derive(Debug)]
pub struct PolicyEngine {
    name: Arc<str>,
    pub(super) policy: Result<Arc<Policy>, Vec<Problem>>,
    pub(super) generation: i64,
    /// The `spec` that it was compiled from, and its hash.
    spec: Value,
    pub(super) spec_digest: String,
    pub(super) engine: Engine<PolicyCollector>,
    resource: ResourceId,
    /// Reason why its objects are not watched, while they are not.
    pub(super) unwatched: Option<String>,
    /// True if the watch has failed, as opposed to not having started yet.
    pub(super) was_refused: bool,
    pub(super) synced: bool,
    /// True once a status of this generation has shown what would be deleted.
    pub(super) shown: bool,
    pub(super) last_run: Option<Run>,
    pub(super) next_run: Option<Timestamp>,
    pub(super) deleted: u64,
    /// Time of the last tick.
    now: Timestamp,
    next_event: u64,
}

impl PolicyEngine {
    /// Creates the engine from a stored policy: its `metadata.name` and `metadata.generation`, `spec`, and the last `status`.
    /// `resource` is the number of its objects' resource.
    #[must_use]
    pub fn new(object: &Value, resource: ResourceId) -> Self {
        let policy = Policy::compile(&object["spec"]).map(Arc::new);
        let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
        let status = &object["status"];
        let spec_digest = digest(&object["spec"]);
        let is_shown = status["observedGeneration"].as_i64() == Some(generation)
            && status["observedSpec"] == *spec_digest
            && !status["due"].is_null();
        let stand_in = || Arc::new(Policy::none());
        let is_same = status["observedSpec"] == *spec_digest;
        let announced_until = parse_time(status["noticedUntil"].as_str()).filter(|_| is_same);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let understood = policy.as_ref().map_or_else(|_| stand_in(), Arc::clone);
        let collector = PolicyCollector::new(name.into(), understood, announced_until);
        let last_run = parse_time(status["lastRun"]["time"].as_str()).map(|begun| Run {
            begun,
            deleted: status["lastRun"]["deleted"].as_u64().unwrap_or_default(),
            failed: status["lastRun"]["failed"].as_u64().unwrap_or_default(),
            error: status["lastRun"]["error"].as_str().map(str::to_owned),
            undo: texts(&status["lastRun"]["undo"]),
        });
        Self {
            name: name.into(),
            policy,
            generation,
            spec: object["spec"].clone(),
            spec_digest,
            engine: Engine::new(collector),
            resource,
            unwatched: Some("its objects have not been listed yet".to_owned()),
            was_refused: false,
            synced: false,
            shown: is_shown,
            last_run,
            next_run: None,
            deleted: status["deleted"].as_u64().unwrap_or_default(),
            now: Timestamp::default(),
            next_event: FIRST_EVENT,
        }
    }

    /// Returns the engine of the same policy with this status, before any of its objects has been observed.
    #[must_use]
    pub fn restarted(&self, status: &Value) -> Self {
        let metadata = serde_json::json!({"name": &*self.name, "generation": self.generation});
        let object = serde_json::json!({"metadata": metadata, "spec": self.spec, "status": status});
        Self::new(&object, self.resource)
    }

    /// Returns the policy, if it is valid.
    #[must_use]
    pub fn policy(&self) -> Option<&Arc<Policy>> {
        self.policy.as_ref().ok()
    }

    /// Returns the number of its objects' resource.
    #[must_use]
    pub fn resource(&self) -> ResourceId {
        self.resource
    }

    /// Reports whether this is the engine of the policy as stored now. The generation alone does not identify it, because a
    /// restored store reuses generations for other specifications.
    #[must_use]
    pub fn is_of(&self, object: &Value) -> bool {
        object["metadata"]["generation"].as_i64().unwrap_or_default() == self.generation
            && object["spec"] == self.spec
    }

    /// Returns the generation of the policy.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.generation
    }

    fn key(&self, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { resource: self.resource, namespace: namespace.into(), name: name.into() }
    }

    /// Begins a list of its objects: those that are not observed until it is synced are gone.
    pub fn list_started(&mut self) {
        self.synced = false;
        self.engine.update(|collector, _, _| collector.list_started());
    }

    /// Completes the list; from now on, every change is observed.
    pub fn synced(&mut self) {
        self.engine.update(|collector, _, _| collector.list_ended());
        (self.synced, self.unwatched, self.was_refused) = (true, None, false);
    }

    /// Records why its objects cannot be watched. Nothing is deleted until they are.
    pub fn unwatched(&mut self, why: &str) {
        (self.synced, self.unwatched, self.was_refused) = (false, Some(why.to_owned()), true);
    }

    /// Takes the assessment of an object's current state.
    pub fn observed(&mut self, namespace: &str, name: &str, look: Assessment) {
        let key = self.key(namespace, name);
        self.engine.update(|collector, now, dirty| {
            collector.put(key.clone(), look, now);
            if collector.chosen.contains(&key) {
                dirty.push(key);
            }
        });
    }

    /// Reports whether the policy selects this object, due or not.
    #[must_use]
    pub fn selects(&self, namespace: &str, name: &str) -> bool {
        self.engine.collector().items.contains_key(&self.key(namespace, name))
    }

    /// Removes an object that is gone.
    pub fn removed(&mut self, namespace: &str, name: &str) {
        let key = self.key(namespace, name);
        self.engine.update(|collector, _, _| collector.forget(&key));
        self.engine.forget(&key);
    }

    /// Records that a status showing the due objects has been written for this generation, which may now be enforced.
    pub fn shown(&mut self) {
        self.shown = true;
    }

    /// Takes the policy as the server stored it with a status of this engine. Returns false if the policy has changed, which the
    /// watch is about to deliver: the effect of the new one has not been shown.
    pub fn written(&mut self, object: &Value) -> bool {
        if !self.is_of(object) {
            return false;
        }
        if !object["status"]["due"].is_null() {
            self.shown();
            self.tick(self.now);
        }
        true
    }

    /// Reports whether runs delete now.
    pub(super) fn enforces(&self) -> bool {
        self.shown && self.synced && self.policy().is_some_and(|policy| policy.enforce)
    }

    /// Sets the time, which never decreases here. Returns whether the status may have changed.
    pub fn tick(&mut self, now: Timestamp) -> bool {
        self.now = self.now.max(now);
        self.engine.tick(now);
        // The watch may report that an object is gone before its deletion is answered, but a run ends only with its last response.
        let is_answered = !self.engine.is_in_flight();
        let (ripe, ended) = self.engine.update(|collector, now, _| {
            (collector.ripen(now), if is_answered { collector.take_ended() } else { None })
        });
        let mut changed = ripe || ended.is_some();
        if let Some(run) = ended {
            self.deleted += run.deleted;
            self.last_run = Some(run);
            self.next_run = None;
        }
        let Some(policy) = self.policy().cloned() else { return changed };
        changed |= self.next_run.is_none();
        // A run that was recorded by a fast clock must not delay later runs.
        let last = self.last_run.as_ref().map(|run| run.begun.min(self.now));
        let next = *self
            .next_run
            .get_or_insert_with(|| policy.schedule.next(last, CONTINUOUS_PAUSE_MILLISECONDS, self.now));
        let running = self.engine.collector().run.is_some();
        // Without a schedule, there is a run when something is due. A schedule runs in any case, and the status shows it. Unused
        // objects are deleted after a check, whenever that is.
        let wanted = self.wants_run(&policy);
        if self.enforces() && !running && wanted && self.now >= next {
            self.engine.update(PolicyCollector::begin);
        }
        changed
    }

    fn wants_run(&self, policy: &Policy) -> bool {
        let collector = self.engine.collector();
        let is_wanted = policy.schedule != Schedule::Continuous || !collector.open.is_empty();
        is_wanted && collector.has_confirmed(self.now)
    }

    /// Records whether a recorder keeps deleted objects from now on, and returns whether that has changed.
    pub(super) fn set_recorded(&mut self, is_recorded: bool) -> bool {
        self.engine.update(|collector, _, _| {
            std::mem::replace(&mut collector.is_recorded, is_recorded) != is_recorded
        })
    }

    /// Returns the next thing to do, or `None` if there is nothing to do now.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if !self.enforces() {
            return None;
        }
        let now = self.now;
        if let Some((note, reason)) = self.engine.update(|collector, _, _| collector.take_notice(now)) {
            let id = EffectId(self.next_event);
            self.next_event += 1;
            return Some(Effect { id, request: Request::RecordEvent(note), reason });
        }
        self.engine.poll_effect()
    }

    /// Takes the outcome of an effect.
    pub fn finish(&mut self, id: EffectId, outcome: &Outcome) {
        self.engine.finish(id, outcome);
    }

    /// Returns when it needs the next `tick`, if at all.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let collector = self.engine.collector();
        let ripe = collector.expiring.first().map(|(at, _)| *at);
        let run = match (&collector.run, self.next_run) {
            // The run is only waiting for responses, each of which is followed by a tick.
            (Some(_), _) if collector.chosen.is_empty() && self.engine.is_in_flight() => None,
            // The next tick notices that an empty run has ended.
            (Some(_), _) if collector.chosen.is_empty() => Some(self.now),
            (Some(_), _) => self.engine.next_wakeup(),
            (None, Some(next)) if self.enforces() => {
                self.policy().is_some_and(|policy| self.wants_run(policy)).then_some(next)
            }
            _ => None,
        };
        ripe.into_iter().chain(run).min()
    }

    /// Returns the number of objects that are due.
    #[must_use]
    pub fn due(&self) -> usize {
        self.engine.collector().due().len()
    }

    /// Returns the number of objects about which it stores facts, for measurements of memory and work.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.engine.counts().decisions
    }
}
