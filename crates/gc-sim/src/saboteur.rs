//! Carries out a planted defect: replaces the right behaviour of a simulated collector.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_collectors::objects::Facts;
use gc_collectors::policies::MOST_DELETIONS_PER_RUN;
use gc_controller::barriers::ListEnd;
use gc_controller::concurrency::{ConcurrencyOptions, Signal};
use gc_controller::requests;
use gc_ownership::Shard;
use gc_types::{
    DeletionState, Effect, Event, Evidence, FinalizerName, Marks, ObjectKey, ObservedObject, Outcome,
    PropagationPolicy, Request, ResourceId, ResourceVersion, Scope, Uid,
};
use serde_json::Value;

use crate::defects::Defect;
use crate::liars::Lie;
use crate::performed::{Part, PerformedRequest};

/// A defect in operation.
#[derive(Clone, Debug, Default)]
pub struct Saboteur {
    /// Defect to carry out; `None` is an honest adapter.
    pub defect: Option<Defect>,
    names: BTreeMap<ObjectKey, Uid>,
    waited: Vec<Uid>,
    synced: BTreeMap<ResourceId, u64>,
    lives: BTreeMap<Uid, i64>,
    seen: BTreeMap<Uid, (ObjectKey, u64)>,
    /// Names of nodes that a live read of this part found gone.
    gone: BTreeSet<(Part, Arc<str>)>,
    /// True if a list has lied to the collector.
    is_deceived: bool,
    /// Newest version of any object that it has seen.
    latest: u64,
    events: u64,
    shard: Shard,
}

impl Saboteur {
    /// Creates the saboteur of a collector that just starts.
    #[must_use]
    pub fn new(defect: Option<Defect>) -> Self {
        Self { defect, ..Self::default() }
    }

    /// Returns the saboteur of a shard.
    #[must_use]
    pub fn of_shard(self, shard: Shard) -> Self {
        Self { shard, ..self }
    }

    /// Reports whether this is the planted defect.
    #[must_use]
    pub fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// Replaces an event for the engine.
    pub fn event(&mut self, mut event: Event) -> Option<Event> {
        let defect = self.defect?;
        self.events += 1;
        match (&mut event, defect) {
            (Event::Found(_), Defect::FoundForgotten | Defect::LeftOutForgotten) => return None,
            (Event::Observed(object) | Event::Found(object), Defect::ShardOwnersUnseen)
                if !self.shard.holds(&object.key.namespace) =>
            {
                object.owners = [].into_iter().collect();
            }
            (Event::Removed { key, uid, resource_version }, Defect::RemovalBelieved) => {
                if let Some((known, _)) = self.seen.remove(uid) {
                    *resource_version = ResourceVersion(self.newest(known.resource, *resource_version) + 1);
                    *key = known;
                }
            }
            (
                Event::Observed(object),
                Defect::RemovalBelieved
                | Defect::UnversionedRemovalBelieved
                | Defect::MisnamedRemovalBelieved,
            ) => {
                self.newest(object.key.resource, object.resource_version);
                self.seen.insert(object.uid.clone(), (object.key.clone(), 0));
            }
            (Event::Removed { key, resource_version, .. }, Defect::UnversionedRemovalBelieved)
                if *resource_version == ResourceVersion::UNKNOWN =>
            {
                *resource_version = ResourceVersion(self.newest(key.resource, *resource_version) + 1);
            }
            (Event::Removed { key, uid, .. }, Defect::MisnamedRemovalBelieved) => {
                if let Some((known, _)) = self.seen.remove(uid) {
                    *key = known;
                }
            }
            (Event::Synced { resource, resource_version }, Defect::HistoryOnlyForward) => {
                *resource_version = ResourceVersion(self.newest(*resource, *resource_version));
            }
            (
                Event::Progress { resource, resource_version }
                | Event::Removed { key: ObjectKey { resource, .. }, resource_version, .. }
                | Event::Observed(ObservedObject { key: ObjectKey { resource, .. }, resource_version, .. }),
                Defect::HistoryOnlyForward,
            ) => {
                self.newest(*resource, *resource_version);
            }
            (Event::Observed(object) | Event::Found(object), _) => self.object(object, defect),
            (Event::Removed { key, uid, .. }, Defect::RemovedByName | Defect::OwnersByName) => {
                if let Some(now) = self.names.get(key) {
                    *uid = now.clone();
                }
            }
            (Event::Removed { uid, .. }, Defect::RemovedLost)
                if uid.as_uuid().is_some_and(|bytes| bytes[0] % 3 == 0) =>
            {
                return None;
            }
            (Event::Synced { resource, .. }, Defect::SyncedLost)
                if self.synced.insert(*resource, 1).is_some() =>
            {
                return None;
            }
            (Event::ListStarted(resource), Defect::RelistAdds)
                if self.synced.insert(*resource, 1).is_some() =>
            {
                return None;
            }
            (Event::ResourceServed(info), Defect::WrongScope) if &*info.kind == "ClusterRole" => {
                info.scope = Scope::Namespaced;
            }
            _ => {}
        }
        Some(event)
    }

    /// Reports whether the defect believes a lie about a live read.
    #[must_use]
    pub fn believes(&self, lie: Lie) -> bool {
        let believed = match self.defect {
            Some(Defect::CrossedBelieved) => Lie::Crossed,
            Some(Defect::NotFoundOtherBelieved) => Lie::NotFoundOther,
            Some(Defect::NotFoundElsewhereBelieved) => Lie::NotFoundElsewhere,
            Some(Defect::NotFoundNamelessBelieved) => Lie::NotFoundNameless,
            Some(Defect::NotFoundPageBelieved) => Lie::NotFoundPage,
            Some(Defect::NothingBelieved) => Lie::Nothing,
            Some(Defect::GoneBelieved) => Lie::Gone,
            _ => return false,
        };
        lie == believed
    }

    /// Returns the removals that a defect makes up from a watch's deliveries: everything missing from a list counts as removed.
    pub fn removals(&mut self, event: &Event) -> Vec<Event> {
        if self.is(Defect::RecreationBelieved) {
            return self.recreated(event).into_iter().collect();
        }
        if !self.is(Defect::ListRemoves) && !self.is(Defect::EmptyObjectBelieved) {
            return Vec::new();
        }
        self.events += 1;
        match event {
            Event::Observed(object) => {
                self.latest = self.latest.max(object.resource_version.0);
                self.seen.insert(object.uid.clone(), (object.key.clone(), self.events));
            }
            Event::Removed { uid, .. } => drop(self.seen.remove(uid)),
            Event::ListStarted(resource) => drop(self.synced.insert(*resource, self.events)),
            Event::Synced { resource, resource_version } => {
                let Some(begun) = self.synced.remove(resource) else { return Vec::new() };
                if self.is(Defect::EmptyObjectBelieved) && *resource_version != ResourceVersion::UNKNOWN {
                    return Vec::new();
                }
                let lacking =
                    self.seen.extract_if(.., |_, (key, at)| key.resource == *resource && *at < begun);
                // A removal at no version would be doubted.
                let resource_version = ResourceVersion(resource_version.0.max(self.latest + 1));
                let removed = lacking.map(|(uid, (key, _))| Event::Removed { key, uid, resource_version });
                return removed.collect();
            }
            _ => {}
        }
        Vec::new()
    }

    /// Returns the removal of an object's predecessor, which had the same name and another UID.
    fn recreated(&mut self, event: &Event) -> Option<Event> {
        let Event::Observed(ObservedObject { key, uid, resource_version, .. }) = event else { return None };
        let former = self.names.insert(key.clone(), uid.clone()).filter(|former| former != uid)?;
        let resource_version = ResourceVersion(resource_version.0 + 1);
        Some(Event::Removed { key: key.clone(), uid: former, resource_version })
    }

    /// Replaces an outcome for the ownership engine; `None` if it is lost.
    pub fn outcome(&mut self, mut outcome: Outcome) -> Option<Outcome> {
        let Some(defect) = self.defect else { return Some(outcome) };
        self.events += 1;
        if defect == Defect::OutcomeLost && self.events.is_multiple_of(5) {
            return None;
        }
        outcome_instead(&mut outcome, defect);
        // A read that shows the owner as it is would make up for what was remembered of it.
        if defect == Defect::ForegroundForEver
            && let Outcome::Found(object) | Outcome::Applied(Some(object)) = &mut outcome
        {
            self.object(object, defect);
        }
        Some(outcome)
    }

    /// Returns the part of a result that a controller takes.
    #[must_use]
    pub fn plain(&self, performed: PerformedRequest) -> requests::PerformedRequest {
        let PerformedRequest { outcome, signal, round_trips, .. } = performed;
        let signal = match signal {
            Signal::Busy(Some(_)) if self.is(Defect::RetryAfterIgnored) => Signal::Busy(None),
            signal => signal,
        };
        requests::PerformedRequest { outcome, signal, round_trips }
    }

    /// Replaces the bounds of a concurrency limit.
    #[must_use]
    pub fn concurrency(&self, concurrency: ConcurrencyOptions) -> ConcurrencyOptions {
        if self.is(Defect::LimitIgnored) { ConcurrencyOptions::default() } else { concurrency }
    }

    /// Replaces the end of a barrier's list.
    #[must_use]
    pub fn list_end(&self, end: ListEnd) -> ListEnd {
        match end {
            ListEnd::Failed(_) | ListEnd::CacheBehind if self.is(Defect::FailureIsSuccess) => {
                ListEnd::Complete
            }
            end => end,
        }
    }

    /// Returns the lead of a part's clock in milliseconds.
    #[must_use]
    pub fn haste(&self, part: Part) -> i64 {
        match self.defect {
            Some(Defect::JobsHurried) if part == Part::Jobs => 60_000,
            Some(Defect::RequestsHurried) if part == Part::Certificates => 60_000,
            Some(Defect::ExpiryHurried) if matches!(part, Part::Finished | Part::Marked) => 60_000,
            _ => 0,
        }
    }

    /// Replaces facts for retention.
    #[must_use]
    pub fn facts(&mut self, mut facts: Facts) -> Facts {
        if self.is(Defect::KeepIgnored) {
            let meta = facts.meta_mut();
            let marks = meta.marks.take().map(|marks| Marks { keep: None, ..(*marks).clone() });
            meta.marks = marks.filter(|marks| !marks.is_empty()).map(Into::into);
        }
        match &mut facts {
            Facts::Job(job) if self.is(Defect::RaisedTtlIgnored) => {
                if let Some(ttl) = job.ttl_seconds {
                    job.ttl_seconds = Some(*self.lives.entry(job.meta.uid.clone()).or_insert(ttl));
                }
            }
            Facts::Volume(volume) if self.is(Defect::BoundUnseen) => volume.phase = "".into(),
            Facts::Node(node) if self.is(Defect::TaintAssumed) => {
                (node.ready, node.out_of_service) = (false, true);
            }
            _ => {}
        }
        facts
    }

    /// Returns the outcome of a read of an owner that is not sent because its watch is believed instead.
    #[must_use]
    pub fn confirmed(&self, effect: &Effect) -> Option<Outcome> {
        let (defect, Request::Read { key }) = (self.defect?, &effect.request) else { return None };
        let waits = |owner: &Uid, orphan: bool| {
            let deletion =
                DeletionState { deleting: true, foreground: !orphan, orphan, ..DeletionState::default() };
            let (key, uid, resource_version) = (key.clone(), owner.clone(), ResourceVersion(1));
            let owners = smallvec::SmallVec::new();
            Some(Outcome::Found(ObservedObject {
                key,
                uid,
                resource_version,
                owners,
                deletion,
                recreator: None,
            }))
        };
        match effect.reason.evidence.first()? {
            Evidence::RemovalSeen { .. } if defect.believes_removals() => Some(Outcome::Absent),
            Evidence::Waiting { owner, .. } if defect == Defect::ReportedWaitingBelieved => {
                waits(owner, false)
            }
            Evidence::Orphaning { owner, .. } if defect == Defect::ReportedOrphaningBelieved => {
                waits(owner, true)
            }
            _ => None,
        }
    }

    /// Returns the outcome of a request that is not sent.
    #[must_use]
    pub fn made_up(&self, part: Part, request: &Request) -> Option<Outcome> {
        match (self.defect?, part, request) {
            (Defect::LiveLookSkipped, Part::Pods, Request::Read { .. })
            | (Defect::LeaseNodeAssumed, Part::Leases, Request::Read { .. }) => Some(Outcome::Absent),
            (Defect::NodeAbsenceUnread, Part::Pods, Request::Read { .. })
            | (Defect::LeaseNodeUnread, Part::Leases, Request::Read { .. })
                if self.is_deceived =>
            {
                Some(Outcome::Absent)
            }
            (Defect::NodeProofForEver, _, Request::Read { key })
                if self.gone.contains(&(part, Arc::clone(&key.name))) =>
            {
                Some(Outcome::Absent)
            }
            (Defect::ClaimListSkipped | Defect::ClaimUsersUnread, Part::Claims, Request::Barrier { .. }) => {
                Some(Outcome::Applied(None))
            }
            _ => None,
        }
    }

    /// Notes that a list is about to lie. A defect that believes incomplete lists can only be noticed if a list is incomplete.
    pub fn deceive(&mut self) {
        self.is_deceived = true;
    }

    /// Records the result of a live read of a node.
    pub fn looked(&mut self, part: Part, name: &Arc<str>, is_gone: bool) {
        if is_gone && self.is(Defect::NodeProofForEver) {
            self.gone.insert((part, Arc::clone(name)));
        }
    }

    /// Changes a request of retention.
    pub fn retention_effect(&self, part: Part, effect: &mut Effect) {
        let unguarded = match part {
            Part::Jobs => self.is(Defect::JobUnguarded),
            Part::Policies => self.is(Defect::PolicyUnguarded),
            _ => false,
        };
        if let (Request::Delete { resource_version, .. }, true) = (&mut effect.request, unguarded) {
            *resource_version = None;
        }
    }

    /// Reports whether a response to a retention collector is lost.
    pub fn loses_retention_answer(&mut self) -> bool {
        self.events += u64::from(self.is(Defect::RetentionAnswersLost));
        self.is(Defect::RetentionAnswersLost) && self.events.is_multiple_of(5)
    }

    /// Returns the newest version of a resource so far.
    fn newest(&mut self, resource: ResourceId, version: ResourceVersion) -> u64 {
        let newest = self.synced.entry(resource).or_default();
        *newest = version.0.max(*newest);
        *newest
    }

    fn object(&mut self, object: &mut gc_types::ObservedObject, defect: Defect) {
        match defect {
            Defect::RemovedByName => {
                self.names.insert(object.key.clone(), object.uid.clone());
            }
            Defect::OwnersByName => {
                self.names.insert(object.key.clone(), object.uid.clone());
                for owner in &mut object.owners {
                    let named = self.names.iter().find(|(key, _)| {
                        key.name == owner.coordinates.name && key.namespace == object.key.namespace
                    });
                    if let Some((_, uid)) = named {
                        owner.coordinates.uid = uid.clone();
                    }
                }
            }
            Defect::FirstOwnerOnly => object.owners.truncate(1),
            Defect::OrphanUnseen => object.deletion.orphan = false,
            Defect::ForegroundUnseen => object.deletion.foreground = false,
            Defect::ForegroundForEver => {
                if object.deletion.deleting && object.deletion.foreground {
                    self.waited.push(object.uid.clone());
                } else if self.waited.contains(&object.uid) {
                    object.deletion.foreground = true;
                }
            }
            Defect::BlockingForgotten => {
                for owner in &mut object.owners {
                    owner.block_owner_deletion = None;
                }
            }
            _ => {}
        }
    }

    /// Returns an additional request that the saboteur makes when the engine gets an event.
    #[must_use]
    pub fn temptation(&self, event: &Event) -> Option<Request> {
        match event {
            Event::Observed(object)
                if self.is(Defect::FinalizerEarly)
                    && object.deletion.deleting
                    && object.deletion.foreground =>
            {
                Some(Request::RemoveFinalizer {
                    key: object.key.clone(),
                    uid: object.uid.clone(),
                    finalizer: FinalizerName::ForegroundDeletion,
                })
            }
            Event::Observed(object)
                if self.is(Defect::FinalizerEarly) && object.deletion.deleting && object.deletion.orphan =>
            {
                Some(Request::RemoveFinalizer {
                    key: object.key.clone(),
                    uid: object.uid.clone(),
                    finalizer: FinalizerName::Orphan,
                })
            }
            _ => None,
        }
    }

    /// Changes an effect before it is sent; returns true if it must be sent twice.
    pub fn effect(&self, effect: &mut Effect) -> bool {
        let Some(defect) = self.defect else { return false };
        match (&mut effect.request, defect) {
            (Request::Delete { resource_version, .. }, Defect::NoVersionGuard | Defect::NoGuardAtAll) => {
                *resource_version = None;
            }
            (Request::Delete { policy, .. }, Defect::AlwaysBackground) => {
                *policy = PropagationPolicy::Background;
            }
            (Request::SetOwners { remaining, .. }, Defect::AllOwnersTaken) => remaining.clear(),
            (Request::SetOwners { remaining, .. }, Defect::LiveOwnerTaken) if !remaining.is_empty() => {
                remaining.remove(0);
            }
            (Request::Delete { .. }, Defect::Duplicates) => return true,
            _ => {}
        }
        false
    }
}

/// Applies the defect to a policy.
pub fn policy(defect: Option<Defect>, object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match defect {
        Some(Defect::PolicyDryRunIgnored) => drop(spec.insert("enforce".to_owned(), true.into())),
        Some(Defect::PolicySelectorUnseen) => drop(spec.remove("selector")),
        Some(Defect::PolicyScheduleUnmet) if spec.contains_key("schedule") => {
            spec.insert("schedule".to_owned(), "@yearly".into());
        }
        Some(Defect::PolicyRunUnbounded) => {
            spec.insert("maxDeletionsPerRun".to_owned(), MOST_DELETIONS_PER_RUN.into());
        }
        Some(Defect::PolicyOneTooMany) => {
            if let Some(count) = spec.get_mut("keepNewest").and_then(|newest| newest.get_mut("count")) {
                *count = (count.as_i64().unwrap_or_default() - 1).max(0).into();
            }
        }
        _ => {}
    }
}

fn outcome_instead(outcome: &mut Outcome, defect: Defect) {
    let instead = match (&*outcome, defect) {
        (Outcome::Conflict, Defect::ConflictIsSuccess)
        | (Outcome::Failed { .. }, Defect::FailureIsSuccess) => Outcome::Applied(None),
        (Outcome::NotServed, Defect::UnservedIsAbsent)
        | (Outcome::Failed { .. }, Defect::TimeoutIsAbsent)
        | (Outcome::Refused { code: 403, .. }, Defect::ForbiddenIsAbsent) => Outcome::Absent,
        _ => return,
    };
    *outcome = instead;
}
