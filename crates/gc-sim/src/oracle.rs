//! Invariants, judged from the store's own history rather than from a collector's view.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::{
    FinalizerName, ObservedObject, Outcome, OwnerReference, PropagationPolicy, Request, Uid, Verdict,
};

use crate::collector::{Collector, Flight};
use crate::performed::Part;
use crate::truth::{OwnerState, TrueChange, TrueObject, Truth};
use crate::verdicts::deletes;
use crate::violation::{Violation, broken};

/// Minimum time in milliseconds for which an owner that orphans its dependents waits for a resource that was withdrawn: the five
/// minutes that the engine waits, less the wait for a resource that lags, which may have begun before.
const WITHDRAWN_WAIT: i64 = 260_000;

/// Cases that the oracles do not judge, with counts; each is explained in `docs/proof.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exemptions {
    /// Number of DELETEs with only the UID that met an object which had changed since (4.5, L16).
    pub uid_only: u64,
    /// Number of deletions whose policy a client changed while they ran, or that another collector ended.
    pub raced: u64,
    /// Number of finalizers that were removed although a resource had not caught up within the configured wait, as the reason says.
    pub gaps: u64,
    /// Number of cases in which discovery hid the kind of the dependent from the collector.
    pub hidden: u64,
    /// Number of second DELETEs by a collector that was delivered an earlier state again after the first was granted.
    pub redelivered: u64,
    /// Number of cases in which the store was put back to a revision between the mark and the removal of an object, so the next
    /// change removed it.
    pub going: u64,
    /// Number of requests that arrived when another candidate held the Lease, but had been sent under it.
    pub late: u64,
    /// Number of requests that were sent under a Lease that a restored store has forgotten.
    pub forgotten: u64,
    /// Number of decisions by a version of an object that another object has since the store was put back.
    pub former: u64,
    /// Number of decisions by a version that a false event had shown before the server gave it, and that its watch had not shown yet.
    pub foretold: u64,
}

impl Exemptions {
    /// Adds the exemptions of another world.
    pub fn add(&mut self, other: &Self) {
        self.uid_only += other.uid_only;
        self.raced += other.raced;
        self.gaps += other.gaps;
        self.hidden += other.hidden;
        self.redelivered += other.redelivered;
        self.going += other.going;
        self.late += other.late;
        self.forgotten += other.forgotten;
        self.former += other.former;
        self.foretold += other.foretold;
    }
}

#[derive(Clone, Debug, Default)]
struct Cost {
    deletes: u64,
    excused: u64,
    /// Collectors whose DELETE was granted and that got the response, with the number of times that each had been set back then: a
    /// collector to which an earlier state is delivered again may ask once more.
    granted: BTreeMap<usize, u64>,
}

/// Judges all actions of collectors.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    costs: BTreeMap<(Part, Uid), Cost>,
    /// Deletions that policy instances were granted, with the number of times that each had been set back then.
    granted_to_policies: BTreeMap<(usize, u64, Uid), u64>,
    /// Number of changes to an object by others.
    changed: BTreeMap<Uid, u64>,
    /// Owners whose finalizer was removed although something was known to be missing, with the revision.
    gaps: BTreeMap<Uid, u64>,
    /// Cases that were not judged.
    pub exemptions: Exemptions,
}

/// Facts about the check of a request.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// State just before the request.
    pub truth: &'a Truth,
    /// Request that is judged.
    pub flight: &'a Flight,
    /// True if deletions by UID alone are part of this world.
    pub uid_only: bool,
}

impl Oracle {
    /// Notes that something else changed an object: a request may have to be repeated.
    pub fn excuse(&mut self, uid: &Uid) {
        *self.changed.entry(uid.clone()).or_default() += 1;
    }

    /// Notes that the store was put back to a revision: earlier counts are void.
    pub fn restored(&mut self, revision: u64) {
        self.costs.clear();
        self.granted_to_policies.clear();
        self.changed.clear();
        self.gaps.retain(|_, at| *at <= revision);
    }

    /// Judges one change that a request made.
    pub fn judge(&mut self, scene: &Scene<'_>, change: &TrueChange) -> Result<(), Violation> {
        let Some(before) = &change.before else {
            return broken("scope", "a collector created something".to_owned());
        };
        match &scene.flight.effect.request {
            Request::Delete { uid, policy, .. } => {
                same_object(before, uid)?;
                self.judge_delete(scene, before, *policy)
            }
            Request::SetOwners { uid, .. } => {
                same_object(before, uid)?;
                self.judge_owners(scene, before, change.after.as_ref())
            }
            Request::RemoveFinalizer { uid, finalizer, .. } => {
                same_object(before, uid)?;
                self.judge_finalizer(scene, (before, change), *finalizer)
            }
            Request::Read { .. }
            | Request::Barrier { .. }
            | Request::RecordEvent(_)
            | Request::Guarded { .. }
            | Request::Outside { .. } => broken("scope", format!("a read changed {}", before.show())),
        }
    }

    /// Reports whether the collector could not know the owner's current state.
    fn is_raced(scene: &Scene<'_>, owner: &Uid) -> bool {
        scene.truth.mind_changed(owner) || scene.truth.unwaited_by_another(owner, scene.flight.collector)
    }

    fn judge_delete(
        &mut self,
        scene: &Scene<'_>,
        target: &TrueObject,
        policy: PropagationPolicy,
    ) -> Result<(), Violation> {
        let object = &target.object;
        let without_version =
            matches!(scene.flight.effect.request, Request::Delete { resource_version: None, .. });
        if without_version && scene.uid_only && object.resource_version.0 > scene.flight.decided {
            self.exemptions.uid_only += 1;
            return Ok(());
        }
        if object.deletion.deleting {
            return broken("safety", format!("{} is deleted again: it was being deleted", target.show()));
        }
        if object.owners.is_empty() {
            return broken("safety", format!("{} is deleted and has no owner", target.show()));
        }
        for owner in &object.owners {
            let state = scene.truth.owner_state(object, owner);
            let uid = &owner.coordinates.uid;
            match state {
                OwnerState::Waits => {}
                OwnerState::Absent => self.judge_orphan(scene, target, owner)?,
                OwnerState::Lives | OwnerState::Orphans if Self::is_raced(scene, uid) => {
                    self.exemptions.raced += 1;
                }
                OwnerState::Lives | OwnerState::Orphans | OwnerState::Undecidable => {
                    let owner = format!("{}/{}={uid}", owner.coordinates.kind, owner.coordinates.name);
                    return broken("safety", format!("{} is deleted, and {owner}: {state:?}", target.show()));
                }
            }
        }
        if scene.flight.effect.reason.verdict == Verdict::OwnerWaiting
            && policy != PropagationPolicy::Foreground
        {
            Self::judge_order(scene, target)?;
        }
        Ok(())
    }

    /// Checks that dependents survive when their owner is deleted to orphan them.
    fn judge_orphan(
        &mut self,
        scene: &Scene<'_>,
        target: &TrueObject,
        owner: &OwnerReference,
    ) -> Result<(), Violation> {
        let uid = &owner.coordinates.uid;
        let Some(past) = scene.truth.past(uid) else { return Ok(()) };
        let object = &target.object;
        let written = scene.truth.written(&object.uid, &owner.coordinates);
        let before_mark = match (written, scene.truth.orphaning_since(uid)) {
            (Some(written), Some(mark)) => written <= mark,
            _ => false,
        };
        if !past.object.deletion.orphan || !before_mark || !Truth::leads_to(object, owner, past) {
            return Ok(());
        }
        if self.gaps.contains_key(uid) {
            self.exemptions.gaps += 1;
            return Ok(());
        }
        if scene.truth.mind_changed(uid) {
            self.exemptions.raced += 1;
            return Ok(());
        }
        broken("orphans", format!("{} is deleted and was to be orphaned by {}", target.show(), past.show()))
    }

    /// Checks that a tree of blocking references disappears leaves first.
    fn judge_order(scene: &Scene<'_>, target: &TrueObject) -> Result<(), Violation> {
        for dependent in scene.truth.objects().filter(|other| other.object.uid != target.object.uid) {
            let delivered = scene.flight.delivered[dependent.kind];
            let object = &dependent.object;
            let since = |owner: &OwnerReference| scene.truth.blocks_since(&object.uid, &owner.coordinates);
            let blocks = object.owners.iter().any(|owner| {
                Truth::leads_to(object, owner, target) && since(owner).is_some_and(|since| since <= delivered)
            });
            if blocks {
                let message =
                    format!("{} is deleted before {}, which blocks it", target.show(), dependent.show());
                return broken("order", message);
            }
        }
        Ok(())
    }

    fn judge_owners(
        &mut self,
        scene: &Scene<'_>,
        before: &TrueObject,
        after: Option<&TrueObject>,
    ) -> Result<(), Violation> {
        let Some(after) = after else {
            if was_going(before) {
                self.exemptions.going += 1;
                return Ok(());
            }
            return broken("scope", format!("{} went by a change of its references", before.show()));
        };
        if after.object.deletion != before.object.deletion {
            return broken(
                "scope",
                format!("a change of references changed the deletion of {}", before.show()),
            );
        }
        let mut kept = after.object.owners.iter().peekable();
        for owner in &before.object.owners {
            if kept.peek().is_some_and(|next| next.coordinates == owner.coordinates) {
                kept.next();
                continue;
            }
            let uid = &owner.coordinates.uid;
            let state = scene.truth.owner_state(&before.object, owner);
            match state {
                OwnerState::Waits | OwnerState::Absent | OwnerState::Orphans => {}
                // A dependent written while the orphaning of its owner ends may be freed as well: that deletes nothing.
                OwnerState::Lives if scene.truth.orphaning_since(uid).is_some() => {}
                OwnerState::Lives if Self::is_raced(scene, uid) => self.exemptions.raced += 1,
                OwnerState::Lives | OwnerState::Undecidable => {
                    let owner = format!("{}/{}={uid}", owner.coordinates.kind, owner.coordinates.name);
                    return broken("safety", format!("{} loses its owner {owner}: {state:?}", before.show()));
                }
            }
        }
        if let Some(gained) = kept.next() {
            let owner = &gained.coordinates;
            return broken(
                "safety",
                format!("{} gains the owner {}/{}", before.show(), owner.kind, owner.name),
            );
        }
        Ok(())
    }

    fn judge_finalizer(
        &mut self,
        scene: &Scene<'_>,
        (before, change): (&TrueObject, &TrueChange),
        finalizer: FinalizerName,
    ) -> Result<(), Violation> {
        let mut expected = before.object.deletion;
        match finalizer {
            FinalizerName::Orphan => expected.orphan = false,
            FinalizerName::ForegroundDeletion => expected.foreground = false,
        }
        let held = expected.foreground || expected.orphan || expected.foreign_finalizers;
        let as_expected = match &change.after {
            Some(after) => after.object.deletion == expected && after.object.owners == before.object.owners,
            None => !held,
        };
        if !as_expected {
            return broken("scope", format!("{} lost more than {finalizer}", before.show()));
        }
        if finalizer == FinalizerName::Orphan {
            Self::judge_withdrawals(scene, before)?;
        }
        let uid = &before.object.uid;
        if scene.flight.gave_up_on_a_gap() {
            self.gaps.insert(uid.clone(), change.revision);
            self.exemptions.gaps += 1;
            return Ok(());
        }
        let mark = match finalizer {
            FinalizerName::Orphan => scene.truth.orphaning_since(uid),
            FinalizerName::ForegroundDeletion => scene.truth.waiting_since(uid),
        };
        let Some(mark) = mark else {
            return broken("finalizers", format!("{} loses {finalizer} and was never marked", before.show()));
        };
        for dependent in scene.truth.objects().filter(|other| other.object.uid != *uid) {
            if !Self::is_unfinished(scene, dependent, before, finalizer, mark) {
                continue;
            }
            if !scene.flight.known[dependent.kind] {
                self.exemptions.hidden += 1;
                self.gaps.insert(uid.clone(), change.revision);
                continue;
            }
            if scene.truth.mind_changed(uid) {
                self.exemptions.raced += 1;
                continue;
            }
            let message = format!("{} loses {finalizer} before {} is done", before.show(), dependent.show());
            return broken("finalizers", message);
        }
        Ok(())
    }

    /// Checks that an owner which was waiting when a resource was withdrawn keeps the finalizer `orphan` for a while: the resource
    /// may come back, and its objects would be dependents of a missing owner.
    fn judge_withdrawals(scene: &Scene<'_>, owner: &TrueObject) -> Result<(), Violation> {
        let (truth, flight) = (scene.truth, scene.flight);
        let uid = &owner.object.uid;
        let Some(mark) = truth.orphaning_since(uid) else { return Ok(()) };
        if truth.mind_changed(uid) {
            return Ok(());
        }
        for dependent in truth.objects().filter(|other| other.object.uid != *uid) {
            let Some(withdrawal) = flight.withdrawn.get(&dependent.kind) else { continue };
            let is_short = flight.steady - withdrawal.since < WITHDRAWN_WAIT;
            let was_waiting = mark <= withdrawal.delivered[owner.kind];
            if is_short
                && was_waiting
                && Self::is_unfinished(scene, dependent, owner, FinalizerName::Orphan, mark)
            {
                let message =
                    format!("{} loses orphan, and {} is withdrawn just now", owner.show(), dependent.show());
                return broken("finalizers", message);
            }
        }
        Ok(())
    }

    /// Reports whether a dependent still needs the finalizer of its owner.
    fn is_unfinished(
        scene: &Scene<'_>,
        dependent: &TrueObject,
        owner: &TrueObject,
        finalizer: FinalizerName,
        mark: u64,
    ) -> bool {
        let object = &dependent.object;
        object.owners.iter().filter(|reference| Truth::leads_to(object, reference, owner)).any(|reference| {
            let since = match finalizer {
                FinalizerName::Orphan => scene.truth.written(&object.uid, &reference.coordinates),
                FinalizerName::ForegroundDeletion => {
                    scene.truth.blocks_since(&object.uid, &reference.coordinates)
                }
            };
            since.is_some_and(|since| since <= mark)
        })
    }

    /// Checks economy: one DELETE per object, plus one for each answer that was not a grant, each change by others, and each
    /// collector that started.
    pub fn count(&mut self, flight: &Flight, outcome: &Outcome, collectors: usize) -> Result<(), Violation> {
        let (Request::Delete { key, uid, .. } | Request::Guarded { key, uid, .. }) = &flight.effect.request
        else {
            return Ok(());
        };
        if !deletes(&flight.effect.request) {
            return Ok(());
        }
        if flight.part == Part::Policies {
            return self.count_of_policy(flight, uid, outcome);
        }
        let changed = self.changed.get(uid).copied().unwrap_or_default();
        let cost = self.costs.entry((flight.part, uid.clone())).or_default();
        cost.deletes += 1;
        if cost.granted.get(&flight.collector) == Some(&flight.set_back) {
            let message = format!("{} is deleted again, and the first DELETE was granted", key.name);
            return broken("economy", message);
        }
        self.exemptions.redelivered += u64::from(cost.granted.contains_key(&flight.collector));
        if matches!(outcome, Outcome::Applied(_)) {
            let again = cost.granted.insert(flight.collector, flight.set_back).is_some();
            cost.excused += u64::from(again);
        } else {
            cost.excused += 1;
        }
        if cost.deletes > collectors as u64 + cost.excused + changed {
            let excused = cost.excused + changed;
            let message = format!("{} needed {} deletions, {excused} excused", key.name, cost.deletes);
            return broken("economy", message);
        }
        Ok(())
    }

    /// Counts a DELETE whose sender had given up the answer before it arrived: a further one is no waste.
    pub fn count_given_up(&mut self, flight: &Flight) {
        if let Request::Delete { uid, .. } | Request::Guarded { uid, .. } = &flight.effect.request
            && deletes(&flight.effect.request)
            && flight.part != Part::Policies
        {
            let cost = self.costs.entry((flight.part, uid.clone())).or_default();
            cost.deletes += 1;
            cost.excused += 1;
        }
    }

    /// Notes that a collector has given up the answer to a request: it never learns that a DELETE was granted.
    pub fn give_up(&mut self, flight: &Flight) {
        if let Request::Delete { uid, .. } | Request::Guarded { uid, .. } = &flight.effect.request
            && let Some(cost) = self.costs.get_mut(&(flight.part, uid.clone()))
            && cost.granted.remove(&flight.collector).is_some()
        {
            cost.excused += 1;
        }
    }

    /// Checks the economy of policies. Two of them may want the same deletion, and a run may repeat what an earlier one could not
    /// delete; but none asks again for a deletion that it was granted.
    fn count_of_policy(&mut self, flight: &Flight, uid: &Uid, outcome: &Outcome) -> Result<(), Violation> {
        let Some(member) = &flight.policy else { return Ok(()) };
        let grant = (flight.collector, member.epoch, uid.clone());
        if self.granted_to_policies.get(&grant) == Some(&flight.set_back) {
            return broken(
                "economy",
                format!("a policy deletes {uid} again, and the first DELETE was granted"),
            );
        }
        if matches!(outcome, Outcome::Applied(_)) {
            self.granted_to_policies.insert(grant, flight.set_back);
        }
        Ok(())
    }
}

/// Reports whether an object is marked and held by nothing: a store that was put back to a revision between the mark and the
/// removal has such objects, and the next change removes them.
fn was_going(object: &TrueObject) -> bool {
    let deletion = object.object.deletion;
    let held = deletion.foreground || deletion.orphan || deletion.foreign_finalizers || object.graceful;
    deletion.deleting && !held
}

fn same_object(target: &TrueObject, uid: &Uid) -> Result<(), Violation> {
    if target.object.uid == *uid {
        return Ok(());
    }
    broken("identity", format!("a request about {uid} changed {} ({})", target.show(), target.object.uid))
}

/// Checks liveness: when everything has arrived and nothing is left to do, all garbage is gone or being deleted, and no owner waits
/// for work that is done.
pub fn judge_rest(truth: &Truth, collector: &Collector) -> Result<(), Violation> {
    for target in truth.objects() {
        let object = &target.object;
        let states = truth.owner_states(object);
        let dead = |state: &OwnerState| {
            matches!(state, OwnerState::Waits | OwnerState::Absent | OwnerState::Orphans)
        };
        if !object.deletion.deleting && !states.is_empty() && states.iter().all(dead) {
            return broken("liveness", format!("{} is garbage ({states:?}) and still there", target.show()));
        }
        if !object.deletion.deleting && states.iter().any(dead) && states.iter().any(|state| !dead(state)) {
            return broken("liveness", format!("{} keeps dead references ({states:?})", target.show()));
        }
        if object.deletion.deleting && object.deletion.orphan {
            return broken("liveness", format!("{} still waits to orphan its dependents", target.show()));
        }
        if object.deletion.deleting
            && object.deletion.foreground
            && !is_held(truth, object, &mut BTreeSet::new())
        {
            return broken("liveness", format!("{} waits in foreground deletion for nothing", target.show()));
        }
    }
    let broken_invariants = collector.engine().verify();
    if let Some(first) = broken_invariants.first() {
        return broken("invariants", first.clone());
    }
    let stats = collector.engine().stats();
    if stats.objects != truth.objects().count() {
        let message =
            format!("the engine knows {} objects, there are {}", stats.objects, truth.objects().count());
        return broken("liveness", message);
    }
    if stats.queued > 0 {
        return broken("bounds", format!("{} items are queued forever", stats.queued));
    }
    if stats.in_flight > 0 {
        return broken("liveness", format!("{} effects are never answered", stats.in_flight));
    }
    Ok(())
}

/// Reports whether a foreground deletion waits rightly: for a blocking dependent that finalizers of others hold.
fn is_held(truth: &Truth, owner: &ObservedObject, seen: &mut BTreeSet<Uid>) -> bool {
    seen.insert(owner.uid.clone())
        && truth.objects().filter(|other| other.object.uid != owner.uid).any(|other| {
            let dependent = &other.object;
            let blocks = dependent.owners.iter().any(|reference| {
                reference.coordinates.uid == owner.uid
                    && reference.block_owner_deletion == Some(true)
                    && truth.owner_state(dependent, reference) == OwnerState::Waits
            });
            blocks
                && dependent.deletion.deleting
                && (dependent.deletion.foreign_finalizers
                    || other.graceful
                    || was_going(other)
                    || is_held(truth, dependent, seen))
        })
}

/// Checks that queues and caches stay within their bounds.
pub fn judge_bounds(collector: &Collector) -> Result<(), Violation> {
    let stats = collector.engine().stats();
    let config = collector.engine().config();
    if stats.in_flight > config.effects_in_flight {
        return broken("bounds", format!("{} effects in flight", stats.in_flight));
    }
    if stats.retrying > stats.objects || stats.waiting_owners > stats.objects {
        return broken("bounds", format!("{} retrying, {} waiting", stats.retrying, stats.waiting_owners));
    }
    if stats.virtual_owners > stats.references {
        return broken(
            "bounds",
            format!("{} virtual owners, {} references", stats.virtual_owners, stats.references),
        );
    }
    if stats.queued > stats.objects + stats.virtual_owners {
        return broken("bounds", format!("{} queued, {} objects", stats.queued, stats.objects));
    }
    let broken_invariants = collector.engine().verify();
    match broken_invariants.first() {
        Some(first) => broken("invariants", first.clone()),
        None => Ok(()),
    }
}
