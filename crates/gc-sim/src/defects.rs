//! Known defects, planted between the engine and the world: each is a mistake that a collector or its adapter could make, and that
//! the oracles must notice. Nothing in the product is changed for them.

use gc_controller::breaker::BreakerOptions;

use crate::liars::{Liar, Lie};
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
    FinalizersAll,
    RemovedLost,
    LiveOwnerTaken,
    BlockingForgotten,
    WithdrawalUnawaited,
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
    RequestsHurried,
    ExpiryHurried,
    TaintAssumed,
    NodeProofForEver,
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
    PolicyFormerDelivery,
    PolicyRepeats,
    PolicyScheduleUnmet,
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
    ShardMissing,
    ShardOwnersUnseen,
    ShardUnelected,
    ShardLeaseShared,
    CrossedBelieved,
    NotFoundOtherBelieved,
    AbsenceUnread,
    NotFoundElsewhereBelieved,
    NotFoundNamelessBelieved,
    NotFoundPageBelieved,
    NothingBelieved,
    GoneBelieved,
    ListRemoves,
    RemovalBelieved,
    SecondListUnmade,
    LeftOutForgotten,
    ClaimUsersUnread,
    NodeAbsenceUnread,
    LeaseNodeUnread,
    EmptyObjectBelieved,
    RecreationBelieved,
    UnversionedRemovalBelieved,
    MisnamedRemovalBelieved,
    ReportedRemovalBelieved,
    ReportedWaitingBelieved,
    ReportedOrphaningBelieved,
    BookmarkBelieved,
}

impl Defect {
    /// Reports whether the defect believes a single answer: such a defect is searched for in worlds with a liar.
    #[must_use]
    pub fn is_credulity(self) -> bool {
        self >= Self::CrossedBelieved
    }

    /// Reports whether the defect is one of shards: such a defect is searched for in worlds of shards.
    #[must_use]
    pub fn is_of_shards(self) -> bool {
        matches!(self, Self::ShardMissing | Self::ShardOwnersUnseen) || self.is_of_elected_shards()
    }

    /// Reports whether the defect is one of the elections of shards.
    #[must_use]
    pub fn is_of_elected_shards(self) -> bool {
        matches!(self, Self::ShardUnelected | Self::ShardLeaseShared)
    }

    /// Returns the lies that the defect believes.
    #[must_use]
    pub fn believed(self) -> &'static [Lie] {
        match self {
            Self::CrossedBelieved => &[Lie::Crossed],
            Self::NotFoundOtherBelieved => &[Lie::NotFoundOther],
            Self::NotFoundElsewhereBelieved => &[Lie::NotFoundElsewhere],
            Self::NotFoundNamelessBelieved => &[Lie::NotFoundNameless],
            Self::NotFoundPageBelieved => &[Lie::NotFoundPage],
            Self::NothingBelieved => &[Lie::Nothing],
            Self::GoneBelieved => &[Lie::Gone],
            Self::RemovalBelieved => &[Lie::RemovedBefore, Lie::RemovedElsewhere],
            Self::EmptyObjectBelieved => &[Lie::Unreadable],
            Self::RecreationBelieved => &[Lie::OtherUids],
            Self::UnversionedRemovalBelieved => &[Lie::RemovedUnversioned],
            Self::MisnamedRemovalBelieved => &[Lie::RemovedUnderAnotherName],
            Self::ReportedRemovalBelieved => &[Lie::RemovedLater],
            Self::ReportedWaitingBelieved => &[Lie::MarkedWaiting],
            Self::ReportedOrphaningBelieved => &[Lie::MarkedOrphaning],
            Self::BookmarkBelieved => &[Lie::BookmarkWhileOrphaning],
            _ if self.is_credulity() => &Lie::OMISSIONS,
            _ => &[],
        }
    }

    /// Reports whether the defect believes a removal that a watch reports, without a second answer.
    #[must_use]
    pub fn believes_removals(self) -> bool {
        matches!(
            self,
            Self::RemovedByName
                | Self::OwnersByName
                | Self::ListRemoves
                | Self::RemovalBelieved
                | Self::EmptyObjectBelieved
                | Self::RecreationBelieved
                | Self::UnversionedRemovalBelieved
                | Self::MisnamedRemovalBelieved
                | Self::ReportedRemovalBelieved
        )
    }

    /// Reports whether the defect can be noticed in such a world at all. (Defects are grouped: ownership and restraints, retention,
    /// elections, policies, namespaces, shards, lies.)
    #[must_use]
    pub fn can_show_in(self, story: &Story) -> bool {
        if self.is_of_shards() {
            return story.shards && story.election == self.is_of_elected_shards();
        }
        if self.is_credulity() {
            let is_of_retention =
                matches!(self, Self::ClaimUsersUnread | Self::NodeAbsenceUnread | Self::LeaseNodeUnread);
            let is_there = story.retention || !is_of_retention;
            return !story.namespaces && is_there && self.believed().contains(&Liar::of(story).lie);
        }
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

/// Every defect with its name on the command line and its description.
pub const DEFECTS: [(Defect, &str, &str); 118] = [
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
    (Defect::OwnersByName, "owners-by-name", "owners are compared by name instead of UID"),
    (Defect::SyncedLost, "synced-lost", "the end of a repeated list is not reported"),
    (Defect::RelistAdds, "relist-adds", "a repeated list only adds: lost removals stay lost"),
    (Defect::Duplicates, "duplicates", "every DELETE is sent twice"),
    (Defect::FailureIsSuccess, "failure-is-success", "a request without an answer counts as done"),
    (Defect::OutcomeLost, "outcome-lost", "every fifth outcome is lost"),
    (Defect::AllOwnersTaken, "all-owners-taken", "a patch of references removes all of them"),
    (Defect::FirstOwnerOnly, "first-owner-only", "only the first reference of an object is seen"),
    (Defect::OneNamespace, "one-namespace", "owners are looked up in one namespace only"),
    (Defect::WrongScope, "wrong-scope", "a cluster-scoped kind is treated as namespaced"),
    (Defect::StaleReads, "stale-reads", "owners are read from a stale cache"),
    (Defect::OrphanUnseen, "orphan-unseen", "the finalizer `orphan` is not seen"),
    (Defect::ForegroundUnseen, "foreground-unseen", "the finalizer `foregroundDeletion` is not seen"),
    (Defect::ForegroundForEver, "foreground-for-ever", "an owner that waited once waits forever (L13)"),
    (Defect::HistoryOnlyForward, "history-only-forward", "versions that went back are not reported (L11)"),
    (Defect::FinalizersAll, "finalizers-all", "a finalizer is removed together with those of others"),
    (Defect::RemovedLost, "removed-lost", "removals of every third object are not reported"),
    (Defect::LiveOwnerTaken, "live-owner-taken", "a patch of references also removes the first living one"),
    (Defect::BlockingForgotten, "blocking-forgotten", "`blockOwnerDeletion` is not seen"),
    (
        Defect::WithdrawalUnawaited,
        "withdrawal-unawaited",
        "an owner lets its dependents go as soon as discovery does not list their resource",
    ),
    (Defect::BreakerUnasked, "breaker-unasked", "the circuit breaker is not asked"),
    (Defect::BreakerForEver, "breaker-for-ever", "what the breaker held is never decided again"),
    (Defect::PauseIgnored, "pause-ignored", "an operator's pause is not obeyed"),
    (Defect::DryRunIgnored, "dry-run-ignored", "a dry run changes something"),
    (Defect::LimitIgnored, "limit-ignored", "more requests are in flight than the concurrency limit allows"),
    (Defect::RetryAfterIgnored, "retry-after-ignored", "a server that asks for a pause gets none"),
    (Defect::RaisedTtlIgnored, "raised-ttl-ignored", "the first TTL of a Job counts forever"),
    (Defect::JobUnguarded, "job-unguarded", "a finished Job is deleted without its resourceVersion"),
    (Defect::PodUnguarded, "pod-unguarded", "a pod is removed without any precondition"),
    (
        Defect::QuarantineSkipped,
        "quarantine-skipped",
        "a missing node is verified at once, without the quarantine",
    ),
    (Defect::LiveLookSkipped, "live-look-skipped", "an unknown node counts as verified by a live read"),
    (
        Defect::LeaseNodeAssumed,
        "lease-node-assumed",
        "the node of an old lease counts as verified by a live read",
    ),
    (Defect::NodeByOneAnswer, "node-by-one-answer", "a single answer suffices to delete a node"),
    (Defect::KeepIgnored, "keep-ignored", "`kubegc.io/keep` is not seen"),
    (Defect::ClaimListSkipped, "claim-list-skipped", "pods that use a claim are not listed"),
    (Defect::BoundUnseen, "bound-unseen", "the phase of a volume is not seen"),
    (Defect::OnePodTooMany, "one-pod-too-many", "one finished pod fewer is kept"),
    (Defect::JobsHurried, "jobs-hurried", "Jobs are decided by a clock that is a minute ahead"),
    (
        Defect::RequestsHurried,
        "requests-hurried",
        "signing requests are judged by a clock that is a minute ahead",
    ),
    (Defect::ExpiryHurried, "expiry-hurried", "annotations are judged by a clock that is a minute ahead"),
    (Defect::TaintAssumed, "taint-assumed", "every node counts as out of service"),
    (Defect::NodeProofForEver, "node-proof-for-ever", "a live read that found a node gone counts for ever"),
    (
        Defect::RetentionAnswersLost,
        "retention-answers-lost",
        "every fifth answer to a retention collector is lost",
    ),
    (Defect::ActsOn, "acts-on", "a leader still acts after the renew deadline"),
    (
        Defect::LeaseDurationUnawaited,
        "lease-unawaited",
        "a held Lease is taken without waiting for its duration",
    ),
    (Defect::LeaseUnguarded, "lease-unguarded", "the Lease is written without comparing its version"),
    (Defect::RenewalAssumed, "renewal-assumed", "a renewal without an answer counts as granted"),
    (
        Defect::GateUnasked,
        "gate-unasked",
        "what was decided under the Lease is sent without checking it again",
    ),
    (
        Defect::PolicyUnshown,
        "policy-unshown",
        "a policy acts before its status has shown what would be deleted",
    ),
    (Defect::PolicyDryRunIgnored, "policy-dry-run-ignored", "a policy acts although it is not enforced"),
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
    (
        Defect::PolicyFormerDelivery,
        "policy-former-delivery",
        "a changed policy gets a list that was assessed by its former specification",
    ),
    (Defect::PolicyRepeats, "policy-repeats", "a policy sends every DELETE twice"),
    (Defect::PolicyScheduleUnmet, "policy-schedule-unmet", "a policy with a schedule runs once a year"),
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
        "objects whose deletion was requested count as gone without a list",
    ),
    (
        Defect::NamespacePodsUnawaited,
        "namespace-pods-unawaited",
        "pods whose deletion was requested count as gone (S15)",
    ),
    (
        Defect::NamespaceUnansweredForgotten,
        "namespace-unanswered",
        "an unanswered DELETECOLLECTION counts as never sent",
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
    (Defect::ShardMissing, "shard-missing", "shards divide the objects by one more than there are"),
    (
        Defect::ShardOwnersUnseen,
        "shard-owners-unseen",
        "a shard does not see the owner references of objects that other shards act on",
    ),
    (
        Defect::ShardUnelected,
        "shard-unelected",
        "the candidates of every shard but the first act without their Lease",
    ),
    (Defect::ShardLeaseShared, "shard-lease-shared", "the candidates of all shards stand for one Lease"),
    (
        Defect::CrossedBelieved,
        "crossed-believed",
        "the answer to another live read counts as the answer to this one",
    ),
    (
        Defect::NotFoundOtherBelieved,
        "not-found-other-believed",
        "a 404 about any object proves that this one is absent",
    ),
    (
        Defect::AbsenceUnread,
        "absence-unread",
        "whatever a list does not contain is absent: no live read confirms it",
    ),
    (
        Defect::NotFoundElsewhereBelieved,
        "not-found-elsewhere-believed",
        "a 404 about another resource proves that an object is absent",
    ),
    (
        Defect::NotFoundNamelessBelieved,
        "not-found-nameless-believed",
        "a 404 that names no object proves that one is absent",
    ),
    (
        Defect::NotFoundPageBelieved,
        "not-found-page-believed",
        "a proxy's page with 404 proves that an object is absent",
    ),
    (Defect::NothingBelieved, "nothing-believed", "a success without an object proves that it is absent"),
    (Defect::GoneBelieved, "gone-believed", "a 410 proves that an object is absent"),
    (Defect::ListRemoves, "list-removes", "whatever a list does not contain was removed by its UID"),
    (
        Defect::RemovalBelieved,
        "removal-believed",
        "a removal is believed whatever resource and version it is of",
    ),
    (Defect::SecondListUnmade, "second-list-unmade", "what one list does not contain is not orphaned"),
    (Defect::LeftOutForgotten, "left-out-forgotten", "what only the second list contains is not reported"),
    (
        Defect::ClaimUsersUnread,
        "claim-users-unread",
        "nothing uses a claim because the list of a watch says so: no other list confirms it",
    ),
    (
        Defect::NodeAbsenceUnread,
        "node-absence-unread",
        "the node of a pod is gone because a list lacks it: no live read confirms it",
    ),
    (
        Defect::LeaseNodeUnread,
        "lease-node-unread",
        "the node of a lease is gone because a list lacks it: no live read confirms it",
    ),
    (
        Defect::EmptyObjectBelieved,
        "empty-object-believed",
        "what is not a list is an empty one without a version, which proves that everything was removed",
    ),
    (
        Defect::RecreationBelieved,
        "recreation-believed",
        "an object that has another UID in a list was recreated: no live read confirms that the former one is gone",
    ),
    (
        Defect::UnversionedRemovalBelieved,
        "unversioned-removal-believed",
        "a removal at no version counts as one that is newer than the object",
    ),
    (
        Defect::MisnamedRemovalBelieved,
        "misnamed-removal-believed",
        "a removal under the name of another object counts as that of the object with its UID",
    ),
    (
        Defect::ReportedRemovalBelieved,
        "reported-removal-believed",
        "a removal at a later version is believed without a second answer",
    ),
    (
        Defect::ReportedWaitingBelieved,
        "reported-waiting-believed",
        "an event that an owner waits is believed without a second answer",
    ),
    (
        Defect::ReportedOrphaningBelieved,
        "reported-orphaning-believed",
        "an event that an owner orphans is believed without a second answer",
    ),
    (
        Defect::BookmarkBelieved,
        "bookmark-believed",
        "the progress of a watch stands in for the list that is to check it",
    ),
];

/// Returns the defect with a name.
#[must_use]
pub fn by_name(name: &str) -> Option<Defect> {
    DEFECTS.iter().find(|row| row.1 == name).map(|row| row.0)
}
