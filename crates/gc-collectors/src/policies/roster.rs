//! All policies of a collector: which are active, which watches they need, which one may delete next, and when their statuses are
//! written. Pure: the driver runs the watches, sends the requests, and sets the time.
//!
//! Policies about one kind share a watch. When the set of policies that share it changes, the watch is restarted; until its new
//! list is complete, none of them deletes anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{Effect, EffectId, Outcome, ResourceId, Timestamp};
use serde_json::{Value, json};

use super::engine::PolicyEngine;
use super::unused::{Heartbeat, Recorders, kind_name};
use super::{Assessment, NOW_PERIOD_MILLISECONDS, Policy};

/// Minimum time between two writes of a status, milliseconds.
pub const STATUS_PAUSE_MILLISECONDS: i64 = 1_000;
/// Delay before a failed status write is retried, milliseconds.
pub const STATUS_RETRY_MILLISECONDS: i64 = 5_000;
/// Maximum wait for the first list of a new policy, milliseconds, before its status reports that there is none.
pub const FIRST_LIST_MILLISECONDS: i64 = 500;
/// Maximum number of active policies.
pub const MOST_POLICIES: usize = 1_000;

/// One instance of a policy's engine. Requests and statuses of other instances do not concern it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name of the policy.
    pub name: Arc<str>,
    /// UID of the policy.
    pub uid: Arc<str>,
    /// Generation of the policy.
    pub generation: i64,
    /// Number of the instance.
    pub epoch: u64,
}

/// Resource and namespace that a watch covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// `apiVersion` of the objects.
    pub api_version: Arc<str>,
    /// Their kind.
    pub kind: Arc<str>,
    /// True if they are read whole, and not only their metadata.
    pub whole: bool,
    /// True if conditions depend on the time, so the objects are listed again every [`super::NOW_PERIOD_MILLISECONDS`].
    pub depends_on_time: bool,
}

/// A required watch.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Resource and namespace that it covers.
    pub target: Target,
    /// Number of its resource in effects.
    pub resource: ResourceId,
    /// Policies that share it.
    pub members: Vec<Member>,
    /// The compiled policies, in the same order.
    pub policies: Vec<Arc<Policy>>,
    /// Value of `now` in their conditions.
    now: Timestamp,
    /// Time by the monotonic clock at which it has to be listed again.
    refresh_at: Option<Timestamp>,
    listing: bool,
}

impl Watch {
    /// Returns the assessment of an object by each of its policies.
    #[must_use]
    pub fn looks(&self, object: &Value) -> Vec<Assessment> {
        self.policies.iter().map(|policy| policy.look(object, self.now)).collect()
    }
}

/// An observation from a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A list begins: objects that are not delivered until it is complete are gone.
    ListStarted,
    /// The list is complete; from now on, every change is delivered.
    Synced,
    /// The objects cannot be watched, for this reason.
    Failed(String),
    /// Current state of an object.
    Observed {
        /// Namespace of the object; empty at cluster scope.
        namespace: String,
        /// Name of the object.
        name: String,
        /// Assessment of the object by each of the policies; see [`Watch::looks`].
        looks: Vec<Assessment>,
    },
    /// The object is gone.
    Removed {
        /// Namespace of the object; empty at cluster scope.
        namespace: String,
        /// Name of the object.
        name: String,
    },
}

/// A status to write.
#[derive(Clone, Debug)]
pub struct StatusWrite {
    /// Policy that it belongs to.
    pub member: Member,
    /// Merge patch for the subresource `status`.
    pub patch: Value,
}

/// There are already [`MOST_POLICIES`] active policies, so this one is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MOST_POLICIES} policies are active, which is the maximum")]
pub struct TooManyPolicies;

#[derive(Debug)]
struct Active {
    member: Member,
    engine: PolicyEngine,
    /// Status as stored.
    stored: Value,
    /// The last requested status, and what was stored. A server with an older definition of the kind stores less than was
    /// requested.
    granted: Option<(Value, Value)>,
    seen: bool,
    /// True if its status may be outdated.
    unsaid: bool,
    writing: bool,
    write_after: Timestamp,
    /// Problem that was reported last.
    reported: Option<String>,
}

/// Policies of a collector.
#[derive(Debug, Default)]
pub struct Roster {
    active: BTreeMap<Arc<str>, Active>,
    listing: bool,
    known: bool,
    watches: BTreeMap<u64, Watch>,
    last_number: u64,
    /// Policy whose turn it is.
    turn: Arc<str>,
    recorders: Recorders,
    now: Timestamp,
    steady: Timestamp,
}

impl Roster {
    /// Sets the time by which objects age, and that of a monotonic clock, by which statuses wait. Earlier times have no effect.
    pub fn tick(&mut self, now: Timestamp, steady: Timestamp) {
        (self.now, self.steady) = (self.now.max(now), self.steady.max(steady));
        for active in self.active.values_mut() {
            let policy = active.engine.policy();
            let recorded = policy.and_then(|policy| {
                let kind = kind_name(&policy.api_version, &policy.kind);
                Some(self.recorders.record(policy.recorder()?, &kind, self.steady))
            });
            active.unsaid |= recorded.is_some_and(|recorded| active.engine.set_recorded(recorded));
            active.unsaid |= active.engine.tick(self.now);
        }
        self.refresh();
    }

    /// Returns the Leases of the recorders that policies need, as `NAMESPACE/NAME`.
    #[must_use]
    pub fn recorders(&self) -> BTreeSet<Arc<str>> {
        let policies = self.active.values().filter_map(|active| active.engine.policy());
        policies.filter_map(|policy| policy.recorder().cloned()).collect()
    }

    /// Takes what was read of such a Lease; `None` if it does not exist or could not be read.
    pub fn take_heartbeat(&mut self, lease: &str, heartbeat: Option<Heartbeat>) {
        self.recorders.keep(&self.recorders());
        self.recorders.read(lease, heartbeat, self.steady);
        self.tick(self.now, self.steady);
    }

    /// Replaces the watches whose conditions were evaluated too long ago.
    fn refresh(&mut self) {
        let is_old = |watch: &Watch| watch.refresh_at.is_some_and(|at| at <= self.steady);
        let old: Vec<u64> =
            self.watches.iter().filter(|(_, watch)| is_old(watch)).map(|(number, _)| *number).collect();
        for number in old {
            let Some(mut watch) = self.watches.remove(&number) else { continue };
            (watch.now, watch.listing) = (self.now, false);
            watch.refresh_at = Some(self.steady.after(NOW_PERIOD_MILLISECONDS));
            // A list that takes no longer than a policy's first one should not show in the statuses.
            let write_after = self.steady.after(FIRST_LIST_MILLISECONDS);
            for member in &watch.members {
                if let Some(active) = current(&mut self.active, member) {
                    active.write_after = active.write_after.max(write_after);
                }
            }
            self.last_number += 1;
            self.watches.insert(self.last_number, watch);
        }
    }

    /// Returns the number of the newest watch. If it is greater than any that the driver has seen, there are watches to start.
    #[must_use]
    pub fn newest_watch(&self) -> u64 {
        self.watches.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// Handles a change of the wall clock, forward or back. It has determined the due objects, so every policy starts over with new
    /// watches.
    pub fn set_clock(&mut self, now: Timestamp) {
        self.now = now;
        for active in self.active.values_mut() {
            self.last_number += 1;
            active.member.epoch = self.last_number;
            active.engine = active.engine.restarted(&active.stored);
            active.engine.tick(now);
            (active.unsaid, active.writing) = (true, false);
        }
        self.rewatch();
    }

    // ---- the policies ----

    /// Begins a list of the policies: those that are not observed until it is complete are gone.
    pub fn list_started(&mut self) {
        (self.listing, self.known) = (true, false);
        for active in self.active.values_mut() {
            active.seen = false;
        }
    }

    /// Completes the list; from now on, every change is observed.
    pub fn synced(&mut self) {
        if std::mem::take(&mut self.listing) {
            self.known = true;
            self.active.retain(|_, active| active.seen);
            self.rewatch();
        }
    }

    /// Reports whether the policies have been listed.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.known
    }

    /// Takes a policy as stored now. `number` returns the number of the resource for an `apiVersion` and kind.
    ///
    /// # Errors
    ///
    /// There are too many policies.
    pub fn observed(
        &mut self,
        object: &Value,
        number: impl FnOnce(&str, &str) -> ResourceId,
    ) -> Result<(), TooManyPolicies> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (name, uid) = (text("/metadata/name"), text("/metadata/uid"));
        if let Some(active) = self.active.get_mut(name)
            && *active.member.uid == *uid
            && active.engine.is_of(object)
        {
            (active.seen, active.unsaid) = (true, true);
            active.stored = object["status"].clone();
            return Ok(());
        }
        if self.active.len() >= MOST_POLICIES && !self.active.contains_key(name) {
            return Err(TooManyPolicies);
        }
        let resource = number(text("/spec/target/apiVersion"), text("/spec/target/kind"));
        let mut engine = PolicyEngine::new(object, resource);
        engine.tick(self.now);
        self.last_number += 1;
        let generation = engine.generation();
        let member = Member { name: name.into(), uid: uid.into(), generation, epoch: self.last_number };
        let active = Active {
            member,
            engine,
            stored: object["status"].clone(),
            granted: None,
            seen: true,
            unsaid: true,
            writing: false,
            write_after: self.steady.after(FIRST_LIST_MILLISECONDS),
            reported: None,
        };
        self.active.insert(name.into(), active);
        self.rewatch();
        Ok(())
    }

    /// Removes a policy that is gone.
    pub fn removed(&mut self, name: &str) {
        self.active.remove(name);
        self.rewatch();
    }

    // ---- their watches ----

    /// Returns the required watches by number; numbers are never reused.
    #[must_use]
    pub fn watches(&self) -> &BTreeMap<u64, Watch> {
        &self.watches
    }

    /// Updates the watches to match the policies, once those are known.
    fn rewatch(&mut self) {
        if !self.known {
            return;
        }
        let mut wanted: BTreeMap<Target, Watch> = BTreeMap::new();
        for active in self.active.values() {
            let Some(policy) = active.engine.policy() else { continue };
            let (api_version, kind) = (Arc::clone(&policy.api_version), Arc::clone(&policy.kind));
            let depends_on_time = policy.depends_on_time();
            let target = Target { api_version, kind, whole: policy.needs_content(), depends_on_time };
            let refresh_at = depends_on_time.then(|| self.steady.after(NOW_PERIOD_MILLISECONDS));
            let watch = wanted.entry(target.clone()).or_insert_with(|| Watch {
                target,
                resource: active.engine.resource(),
                members: Vec::new(),
                policies: Vec::new(),
                now: self.now,
                refresh_at,
                listing: false,
            });
            watch.members.push(active.member.clone());
            watch.policies.push(Arc::clone(policy));
        }
        self.watches.retain(|_, watch| {
            let stays = wanted.get(&watch.target).is_some_and(|wanted| wanted.members == watch.members);
            if stays {
                wanted.remove(&watch.target);
            }
            stays
        });
        for watch in wanted.into_values() {
            // Later observations from the former watch are dropped.
            for member in &watch.members {
                if let Some(active) = current(&mut self.active, member) {
                    active.engine.list_started();
                    active.unsaid = true;
                }
            }
            self.last_number += 1;
            self.watches.insert(self.last_number, watch);
        }
    }

    /// Takes an observation from a watch. Observations from an earlier watch are outdated and dropped.
    pub fn observe(&mut self, number: u64, mut observation: Observation) {
        let Some(watch) = self.watches.get_mut(&number) else { return };
        let mut looks = Vec::new();
        match &mut observation {
            Observation::ListStarted => watch.listing = true,
            // A resumed watch has no list to end.
            Observation::Synced if !std::mem::take(&mut watch.listing) => return,
            Observation::Observed { looks: observed, .. } => looks = std::mem::take(observed),
            _ => {}
        }
        let mut looks = looks.into_iter();
        for member in &watch.members {
            let look = looks.next();
            // If a policy was found changed in a list of the policies, it gets its own watch only when that list is complete.
            let Some(active) = current(&mut self.active, member) else { continue };
            active.unsaid = true;
            match &observation {
                Observation::ListStarted => active.engine.list_started(),
                Observation::Synced => {
                    active.engine.synced();
                    active.write_after = active.write_after.min(self.steady);
                }
                Observation::Failed(why) => active.engine.unwatched(why),
                Observation::Removed { namespace, name } => active.engine.removed(namespace, name),
                Observation::Observed { namespace, name, .. } => {
                    active.engine.observed(namespace, name, look.unwrap_or(Assessment::Aside));
                }
            }
        }
    }

    // ---- their requests ----

    /// Returns the next thing to do for a policy whose resource may be acted on now. Returns nothing while the policies are being
    /// listed: those missing from that list were deleted, and while it fails (for example, because their definition was deleted)
    /// that may be any of them.
    pub fn poll_effect(&mut self, may_act: impl Fn(ResourceId) -> bool) -> Option<(Member, Effect)> {
        if !self.known {
            return None;
        }
        let poll = |active: &mut Active| {
            let effect = if may_act(active.engine.resource()) { active.engine.poll_effect() } else { None };
            effect.map(|effect| (active.member.clone(), effect))
        };
        let turn = Arc::clone(&self.turn);
        let (before, from) = (..Arc::clone(&turn), turn..);
        let found = self.active.range_mut(from).find_map(|(_, active)| poll(active));
        let found = found.or_else(|| self.active.range_mut(before).find_map(|(_, active)| poll(active)))?;
        // A policy keeps its turn until it has nothing more to do.
        self.turn = Arc::clone(&found.0.name);
        Some(found)
    }

    /// Takes the outcome of an effect.
    pub fn finish(&mut self, member: &Member, id: EffectId, outcome: &Outcome) {
        if let Some(active) = current(&mut self.active, member) {
            active.engine.finish(id, outcome);
            active.unsaid = true;
        }
    }

    /// Returns when it needs the next `tick`: by the clock by which objects age, and by the monotonic one.
    #[must_use]
    pub fn next_wakeup(
        &self,
        may_act: impl Fn(ResourceId) -> bool,
    ) -> (Option<Timestamp>, Option<Timestamp>) {
        let acting = self.active.values().filter(|active| self.known && may_act(active.engine.resource()));
        let refreshes = self.watches.values().filter_map(|watch| watch.refresh_at);
        let unsaid = self.active.values().filter(|active| self.known && active.unsaid && !active.writing);
        (
            acting.filter_map(|active| active.engine.next_wakeup()).min(),
            unsaid
                .map(|active| active.write_after.max(self.steady))
                .chain(refreshes)
                .chain(self.recorders.next_end(self.steady))
                .min(),
        )
    }

    // ---- their statuses ----

    /// Returns the statuses to write now: one at a time per policy, and not too often.
    pub fn statuses(&mut self) -> Vec<StatusWrite> {
        if !self.known {
            return Vec::new();
        }
        let (now, steady) = (self.now, self.steady);
        let may_write =
            |active: &&mut Active| active.unsaid && !active.writing && active.write_after <= steady;
        self.active
            .values_mut()
            .filter(may_write)
            .filter_map(|active| active.status_to_write(now, steady))
            .collect()
    }

    /// Takes the result of writing a status: the policy as stored now, or `None` if the write apparently failed.
    pub fn written(&mut self, write: &StatusWrite, stored: Option<&Value>) {
        let retry = self.steady.after(STATUS_RETRY_MILLISECONDS);
        let Some(active) = current(&mut self.active, &write.member) else { return };
        (active.writing, active.unsaid) = (false, true);
        match stored {
            Some(object) if active.engine.written(object) => {
                active.stored = object["status"].clone();
                active.granted = Some((write.patch["status"].clone(), active.stored.clone()));
            }
            // The status was not written, or was written to a policy that has changed.
            _ => active.write_after = retry,
        }
    }

    // ---- for metrics and operators ----

    /// Returns the engines with their policies.
    pub fn engines(&self) -> impl Iterator<Item = (&Member, &PolicyEngine)> {
        self.active.values().map(|active| (&active.member, &active.engine))
    }

    /// Returns unreported problems that an operator has to solve, as reason and message of an Event.
    pub fn new_troubles(&mut self) -> Vec<(Member, &'static str, String)> {
        let mut troubles = Vec::new();
        for active in self.active.values_mut() {
            let trouble = active.engine.trouble();
            let message = trouble.as_ref().map(|(_, message)| message);
            if message != active.reported.as_ref() {
                active.reported = message.cloned();
                troubles.extend(trouble.map(|(reason, message)| (active.member.clone(), reason, message)));
            }
        }
        troubles
    }
}

/// Returns the engine of a member, if it still exists.
fn current<'a>(active: &'a mut BTreeMap<Arc<str>, Active>, member: &Member) -> Option<&'a mut Active> {
    active.get_mut(&member.name).filter(|active| active.member == *member)
}

impl Active {
    fn status_to_write(&mut self, now: Timestamp, steady: Timestamp) -> Option<StatusWrite> {
        self.write_after = steady.after(STATUS_PAUSE_MILLISECONDS);
        let was_shown = self.engine.shown;
        let status = self.engine.status_to_write(&self.stored, now);
        let is_granted = |status: &Value| {
            self.granted.as_ref().is_some_and(|(asked, kept)| asked == status && *kept == self.stored)
        };
        let Some(status) = status.filter(|status| !is_granted(status)) else {
            // If the status has only just become current, the next one will say so.
            self.unsaid = was_shown != self.engine.shown;
            return None;
        };
        self.writing = true;
        let patch = json!({"metadata": {"uid": &*self.member.uid}, "status": status});
        Some(StatusWrite { member: self.member.clone(), patch })
    }
}

#[cfg(test)]
mod tests;
