//! Known defects, planted between the engine and the world: each is a mistake that a collector or its adapter could
//! make, and that the oracles must notice. Nothing of the product is changed for them.

use std::collections::BTreeMap;

use gc_control::barriers::ListEnd;
use gc_control::breaker::BreakerOptions;
use gc_control::pacing::{PacingOptions, Signal};
use gc_control::requests;
use gc_retention::election::{Record, Reply};
use gc_retention::objects::Facts;
use gc_retention::policies::MOST_DELETIONS_PER_RUN;
use gc_types::{
    Effect, Event, FinalizerName, Marks, ObjectKey, ObservedObject, Outcome, PropagationPolicy, Request,
    ResourceId, ResourceVersion, Scope, Uid,
};
use serde_json::Value;

use crate::candidates::NO_ANSWER;
use crate::requests::Performed;
use crate::retention::Part;
use crate::story::Story;

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is described once, in `DEFECTS`")]
pub enum Defect {
    NoVersionGuard,
    NoGuardAtAll,
    OwnersUnguarded,
    FinalizerByName,
    FinalizerEarly,
    AlwaysBackground,
    ConflictIsSuccess,
    UnservedIsAbsent,
    TimeoutIsAbsent,
    ForbiddenIsAbsent,
    FoundForgotten,
    BarrierNotMade,
    ProgressGuessed,
    RemovedByName,
    OwnersByName,
    SyncedLost,
    RelistAdds,
    Duplicates,
    FailureIsSuccess,
    OutcomeLost,
    AllOwnersTaken,
    FirstOwnerOnly,
    OneNamespace,
    WrongScope,
    StaleReads,
    OrphanUnseen,
    ForegroundUnseen,
    ForegroundForEver,
    HistoryOnlyForward,
    RemovedLost,
    LiveOwnerTaken,
    BlockingForgotten,
    BreakerUnasked,
    BreakerForEver,
    PauseIgnored,
    DryRunIgnored,
    LimitIgnored,
    RetryAfterIgnored,
    RaisedTtlIgnored,
    JobUnguarded,
    PodUnguarded,
    QuarantineSkipped,
    LiveLookSkipped,
    LeaseNodeAssumed,
    NodeByOneAnswer,
    KeepIgnored,
    ClaimListSkipped,
    BoundUnseen,
    OnePodTooMany,
    JobsHurried,
    RetentionAnswersLost,
    ActsOn,
    LeaseDurationUnawaited,
    LeaseUnguarded,
    RenewalAssumed,
    GateUnasked,
    PolicyUnshown,
    PolicyDryRunIgnored,
    PolicyOneTooMany,
    PolicySelectorUnseen,
    PolicyRunUnbounded,
    PolicyUnguarded,
    PolicyListUnfinished,
    PolicyNeverNew,
    PolicySpecAssumed,
    PolicyShownAssumed,
    ClockUncompared,
    ClockNeverBack,
    ClockStepUnnoticed,
    ClockHeldForEver,
    NamespaceUidUnchecked,
    NamespaceDiscoveryAssumed,
    NamespaceListSkipped,
    NamespacePodsUnawaited,
    NamespaceUnansweredForgotten,
    NamespaceInheritanceRefused,
    NamespaceFailureIsSuccess,
    NamespaceAnswersLost,
    NamespacePauseIgnored,
    NamespaceDryRunIgnored,
    NamespaceLimitIgnored,
    NamespaceBreakerUnasked,
}

impl Defect {
    /// Whether it can be noticed in such a world at all. (They are in groups: of ownership and restraints, of retention, of
    /// elections, of policies, of namespaces.)
    #[must_use]
    pub fn can_show_in(self, story: &Story) -> bool {
        if self == Self::NamespaceBreakerUnasked {
            let breaker = story.namespace_restraints().map(|(_, breaker)| breaker.largest_number);
            breaker.is_some_and(|largest| largest != BreakerOptions::default().largest_number)
        } else if self >= Self::NamespacePauseIgnored {
            story.namespace_restraints().is_some()
        } else if self >= Self::NamespaceUidUnchecked {
            story.namespaces
        } else if (Self::BreakerUnasked..Self::PauseIgnored).contains(&self) {
            !story.namespaces && story.has_narrow_breaker()
        } else if self < Self::RaisedTtlIgnored {
            !story.namespaces
        } else if (Self::ActsOn..Self::PolicyUnshown).contains(&self) {
            story.election
        } else {
            story.retention
        }
    }
}

/// Every defect, its name on the command line, and what it is.
pub const DEFECTS: [(Defect, &str, &str); 82] = [
    (Defect::NoVersionGuard, "no-version-guard", "a DELETE without the resourceVersion of the verdict"),
    (Defect::NoGuardAtAll, "no-guard", "a DELETE without any precondition"),
    (Defect::OwnersUnguarded, "owners-unguarded", "references are patched without UID and version"),
    (Defect::FinalizerByName, "finalizer-by-name", "a finalizer is removed without comparing the UID (L06)"),
    (
        Defect::FinalizerEarly,
        "finalizer-early",
        "a finalizer is removed as soon as the owner is marked (L02)",
    ),
    (
        Defect::AlwaysBackground,
        "always-background",
        "dependents with dependents are not deleted in the foreground",
    ),
    (Defect::ConflictIsSuccess, "conflict-is-success", "a conflict counts as success"),
    (
        Defect::UnservedIsAbsent,
        "unserved-is-absent",
        "a 404 from a path that is not served proves absence (L28)",
    ),
    (Defect::TimeoutIsAbsent, "timeout-is-absent", "a request without an answer proves absence"),
    (Defect::ForbiddenIsAbsent, "forbidden-is-absent", "a 403 proves absence"),
    (Defect::FoundForgotten, "found-forgotten", "objects found by a barrier's list are not reported"),
    (Defect::BarrierNotMade, "barrier-not-made", "a barrier is answered without a read (R-2)"),
    (Defect::ProgressGuessed, "progress-guessed", "the progress of one watch counts for all watches"),
    (Defect::RemovedByName, "removed-by-name", "a removal is reported for the object that now has the name"),
    (Defect::OwnersByName, "owners-by-name", "owners are compared by name in place of UID"),
    (Defect::SyncedLost, "synced-lost", "the end of a repeated list is not reported"),
    (Defect::RelistAdds, "relist-adds", "a repeated list only adds: lost removals stay lost"),
    (Defect::Duplicates, "duplicates", "every DELETE is sent twice"),
    (Defect::FailureIsSuccess, "failure-is-success", "a request without an answer counts as done"),
    (Defect::OutcomeLost, "outcome-lost", "every fifth outcome is lost"),
    (Defect::AllOwnersTaken, "all-owners-taken", "a patch of references removes all of them"),
    (Defect::FirstOwnerOnly, "first-owner-only", "only the first reference of an object is seen"),
    (Defect::OneNamespace, "one-namespace", "owners are looked up in one namespace only"),
    (Defect::WrongScope, "wrong-scope", "a cluster-scoped kind is treated as namespaced"),
    (Defect::StaleReads, "stale-reads", "owners are looked up in a cache that is behind"),
    (Defect::OrphanUnseen, "orphan-unseen", "the finalizer `orphan` is not seen"),
    (Defect::ForegroundUnseen, "foreground-unseen", "the finalizer `foregroundDeletion` is not seen"),
    (Defect::ForegroundForEver, "foreground-for-ever", "an owner that waited once waits forever (L13)"),
    (Defect::HistoryOnlyForward, "history-only-forward", "versions that went back are not reported (L11)"),
    (Defect::RemovedLost, "removed-lost", "removals of every third object are not reported"),
    (Defect::LiveOwnerTaken, "live-owner-taken", "a patch of references takes the first living one as well"),
    (Defect::BlockingForgotten, "blocking-forgotten", "`blockOwnerDeletion` is not seen"),
    (Defect::BreakerUnasked, "breaker-unasked", "the circuit breaker is not asked"),
    (Defect::BreakerForEver, "breaker-for-ever", "what the breaker held is never decided again"),
    (Defect::PauseIgnored, "pause-ignored", "an operator's pause is not obeyed"),
    (Defect::DryRunIgnored, "dry-run-ignored", "a dry run changes something"),
    (Defect::LimitIgnored, "limit-ignored", "more requests are in flight than the concurrency limit allows"),
    (Defect::RetryAfterIgnored, "retry-after-ignored", "a server that asks for a pause gets none"),
    (Defect::RaisedTtlIgnored, "raised-ttl-ignored", "the first TTL of a Job counts forever"),
    (Defect::JobUnguarded, "job-unguarded", "a finished Job is deleted without its resourceVersion"),
    (Defect::PodUnguarded, "pod-unguarded", "a pod is removed without any precondition"),
    (Defect::QuarantineSkipped, "quarantine-skipped", "a missing node is looked up at once"),
    (Defect::LiveLookSkipped, "live-look-skipped", "a node that is not known counts as looked up"),
    (Defect::LeaseNodeAssumed, "lease-node-assumed", "the node of an old lease counts as looked up"),
    (Defect::NodeByOneAnswer, "node-by-one-answer", "one answer says that a machine is gone"),
    (Defect::KeepIgnored, "keep-ignored", "`kubegc.io/keep` is not seen"),
    (Defect::ClaimListSkipped, "claim-list-skipped", "pods that use a claim are not listed"),
    (Defect::BoundUnseen, "bound-unseen", "the phase of a volume is not seen"),
    (Defect::OnePodTooMany, "one-pod-too-many", "one finished pod fewer is kept"),
    (Defect::JobsHurried, "jobs-hurried", "Jobs are judged by a clock that is a minute ahead"),
    (
        Defect::RetentionAnswersLost,
        "retention-answers-lost",
        "every fifth answer to a retention collector is lost",
    ),
    (Defect::ActsOn, "acts-on", "a leader acts on past the renew deadline"),
    (
        Defect::LeaseDurationUnawaited,
        "lease-unawaited",
        "a held Lease is taken without waiting for its duration",
    ),
    (Defect::LeaseUnguarded, "lease-unguarded", "the Lease is written without comparing its version"),
    (Defect::RenewalAssumed, "renewal-assumed", "a renewal without an answer counts as granted"),
    (Defect::GateUnasked, "gate-unasked", "what was decided under the Lease is sent without asking again"),
    (Defect::PolicyUnshown, "policy-unshown", "a policy acts before its status has shown what would go"),
    (Defect::PolicyDryRunIgnored, "policy-dry-run-ignored", "a policy that is not enforced is"),
    (Defect::PolicyOneTooMany, "policy-one-too-many", "a policy keeps one fewer of the newest"),
    (Defect::PolicySelectorUnseen, "policy-selector-unseen", "a policy does not see its selector"),
    (Defect::PolicyRunUnbounded, "policy-run-unbounded", "a run of a policy deletes all that is due"),
    (Defect::PolicyUnguarded, "policy-unguarded", "a policy deletes without the resourceVersion"),
    (
        Defect::PolicyListUnfinished,
        "policy-list-unfinished",
        "a policy acts while its objects are being listed",
    ),
    (Defect::PolicyNeverNew, "policy-never-new", "a changed policy keeps acting by its former specification"),
    (
        Defect::PolicySpecAssumed,
        "policy-spec-assumed",
        "the generation alone says whether a policy has changed",
    ),
    (
        Defect::PolicyShownAssumed,
        "policy-shown-assumed",
        "a status that met a changed policy counts as shown",
    ),
    (Defect::ClockUncompared, "clock-uncompared", "what expires is deleted while clocks disagree"),
    (Defect::ClockNeverBack, "clock-never-back", "a wall clock that is set back is not believed"),
    (
        Defect::ClockStepUnnoticed,
        "clock-step-unnoticed",
        "a wall clock that is set counts as time that has passed",
    ),
    (
        Defect::ClockHeldForEver,
        "clock-held-for-ever",
        "what was held while clocks disagreed is never decided again",
    ),
    (
        Defect::NamespaceUidUnchecked,
        "namespace-uid-unchecked",
        "a namespace is finalized without comparing UID and version",
    ),
    (
        Defect::NamespaceDiscoveryAssumed,
        "namespace-discovery-assumed",
        "groups that cannot be discovered count as having nothing (D91)",
    ),
    (
        Defect::NamespaceListSkipped,
        "namespace-list-skipped",
        "what was asked to go from a namespace counts as gone",
    ),
    (
        Defect::NamespacePodsUnawaited,
        "namespace-pods-unawaited",
        "pods of a namespace that were asked to go count as gone (S15)",
    ),
    (
        Defect::NamespaceUnansweredForgotten,
        "namespace-unanswered",
        "a deletion of a collection that was not answered counts as never made",
    ),
    (
        Defect::NamespaceInheritanceRefused,
        "namespace-inheritance",
        "requests that a previous controller may have sent are not waited for",
    ),
    (
        Defect::NamespaceFailureIsSuccess,
        "namespace-failure-is-success",
        "a refusal, or no answer, counts as done",
    ),
    (Defect::NamespaceAnswersLost, "namespace-answers-lost", "every fifth answer to a pass is lost"),
    (Defect::NamespacePauseIgnored, "namespace-pause-ignored", "passes continue while collectors are paused"),
    (Defect::NamespaceDryRunIgnored, "namespace-dry-run-ignored", "a pass deletes in a dry run"),
    (
        Defect::NamespaceLimitIgnored,
        "namespace-limit-ignored",
        "passes have more requests in flight than the concurrency limit allows",
    ),
    (Defect::NamespaceBreakerUnasked, "namespace-breaker-unasked", "passes do not ask the circuit breaker"),
];

/// The defect with a name.
#[must_use]
pub fn by_name(name: &str) -> Option<Defect> {
    DEFECTS.iter().find(|row| row.1 == name).map(|row| row.0)
}

/// A defect at work.
#[derive(Clone, Debug, Default)]
pub struct Saboteur {
    /// Which; none is an honest adapter.
    pub defect: Option<Defect>,
    names: BTreeMap<ObjectKey, Uid>,
    waited: Vec<Uid>,
    synced: BTreeMap<ResourceId, u64>,
    lives: BTreeMap<Uid, i64>,
    events: u64,
}

impl Saboteur {
    /// At work for a collector that just starts.
    #[must_use]
    pub fn new(defect: Option<Defect>) -> Self {
        Self { defect, ..Self::default() }
    }

    /// Whether this is the defect.
    #[must_use]
    pub fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// What the engine gets in place of an event.
    pub fn event(&mut self, mut event: Event) -> Option<Event> {
        let defect = self.defect?;
        self.events += 1;
        match (&mut event, defect) {
            (Event::Found(_), Defect::FoundForgotten) => return None,
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

    /// What the ownership engine gets in place of an outcome; `None` if it is lost.
    pub fn outcome(&mut self, mut outcome: Outcome) -> Option<Outcome> {
        let Some(defect) = self.defect else { return Some(outcome) };
        self.events += 1;
        if defect == Defect::OutcomeLost && self.events.is_multiple_of(5) {
            return None;
        }
        outcome_instead(&mut outcome, defect);
        Some(outcome)
    }

    /// What a controller takes of what a request came to.
    #[must_use]
    pub fn plain(&self, performed: Performed) -> requests::Performed {
        let Performed { outcome, signal, round_trips, .. } = performed;
        let signal = match signal {
            Signal::Busy(Some(_)) if self.is(Defect::RetryAfterIgnored) => Signal::Busy(None),
            signal => signal,
        };
        requests::Performed { outcome, signal, round_trips }
    }

    /// The bounds of a concurrency limit, in place of these.
    #[must_use]
    pub fn pacing(&self, pacing: PacingOptions) -> PacingOptions {
        if self.is(Defect::LimitIgnored) { PacingOptions::default() } else { pacing }
    }

    /// How the list of a barrier ended, in place of how it did.
    #[must_use]
    pub fn list_end(&self, end: ListEnd) -> ListEnd {
        match end {
            ListEnd::Failed(_) | ListEnd::CacheBehind if self.is(Defect::FailureIsSuccess) => {
                ListEnd::Complete
            }
            end => end,
        }
    }

    /// How far the clock of a part is ahead, milliseconds.
    #[must_use]
    pub fn haste(&self, part: Part) -> i64 {
        match self.defect {
            Some(Defect::JobsHurried) if part == Part::Jobs => 60_000,
            _ => 0,
        }
    }

    /// What retention gets in place of facts.
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
            _ => {}
        }
        facts
    }

    /// The outcome that a request has without being sent.
    #[must_use]
    pub fn made_up(&self, part: Part, request: &Request) -> Option<Outcome> {
        match (self.defect?, part, request) {
            (Defect::LiveLookSkipped, Part::Pods, Request::Read { .. })
            | (Defect::LeaseNodeAssumed, Part::Leases, Request::Read { .. }) => Some(Outcome::Absent),
            (Defect::ClaimListSkipped, Part::Claims, Request::Barrier { .. }) => Some(Outcome::Applied(None)),
            _ => None,
        }
    }

    /// Changes what retention sends.
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

    /// Whether an answer to a retention collector is lost.
    pub fn loses_retention_answer(&mut self) -> bool {
        self.events += u64::from(self.is(Defect::RetentionAnswersLost));
        self.is(Defect::RetentionAnswersLost) && self.events.is_multiple_of(5)
    }

    /// The newest version of a resource so far.
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

    /// An effect that the saboteur wants on its own when the engine gets something.
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

    /// Changes an effect before it is sent; true if it is to be sent twice.
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

/// What an election gets in place of a reply.
#[must_use]
pub fn lease_reply(defect: Option<Defect>, reply: Reply) -> Reply {
    match (reply, defect) {
        (Reply::Found(record), Some(Defect::LeaseDurationUnawaited)) => {
            Reply::Found(Record { duration_seconds: 0, ..record })
        }
        (Reply::Failed(why), Some(Defect::RenewalAssumed)) if why == NO_ANSWER => Reply::Written,
        (reply, _) => reply,
    }
}

/// What a policy looks like in place of itself.
pub fn policy(defect: Option<Defect>, object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match defect {
        Some(Defect::PolicyDryRunIgnored) => drop(spec.insert("enforce".to_owned(), true.into())),
        Some(Defect::PolicySelectorUnseen) => drop(spec.remove("selector")),
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
