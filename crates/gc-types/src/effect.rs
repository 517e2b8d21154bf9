//! Requests of engines, their reasons and their outcomes.

use std::fmt;
use std::sync::Arc;

use crate::{
    Coordinates, ObjectKey, ObservedObject, OwnerReference, ResourceId, ResourceVersion, Timestamp, Uid,
};

/// Identifies one effect from its creation to its outcome. Never reused within an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EffectId(pub u64);

/// Treatment of dependents by a DELETE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PropagationPolicy {
    /// The object is deleted immediately, and its dependents after it.
    Background,
    /// The object is deleted after the dependents that block it.
    Foreground,
    /// The object is deleted, its dependents stay.
    Orphan,
}

impl PropagationPolicy {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Background, Self::Foreground, Self::Orphan];

    /// Returns the value of the field `propagationPolicy`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }

    /// Returns the policy of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// The two finalizers that the owner-reference collector removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinalizerName {
    /// `orphan`
    Orphan,
    /// `foregroundDeletion`
    ForegroundDeletion,
}

impl fmt::Display for FinalizerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Orphan => "orphan",
            Self::ForegroundDeletion => "foregroundDeletion",
        })
    }
}

/// One request. Every write carries the UID and the version that the decision is based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// DELETE with preconditions. The policy is always sent.
    Delete {
        /// The object.
        key: ObjectKey,
        /// Precondition.
        uid: Uid,
        /// Precondition; `None` only if the spec allows the UID alone (4.5, after a live re-check).
        resource_version: Option<ResourceVersion>,
        /// Propagation.
        policy: PropagationPolicy,
    },
    /// Sets `metadata.ownerReferences` to `remaining`, with UID and version as preconditions.
    SetOwners {
        /// The object.
        key: ObjectKey,
        /// Precondition (422 on a recreated object is [`Outcome::Absent`]).
        uid: Uid,
        /// Precondition.
        resource_version: ResourceVersion,
        /// The complete remaining list in its order; empty is written as `null`.
        remaining: Vec<OwnerReference>,
    },
    /// Removes one finalizer (spec section 8): the adapter reads the object, compares the UID (another one is [`Outcome::Absent`];
    /// a missing finalizer is success), and patches the remaining list with that UID and version, at most four times while the
    /// response is a conflict or a temporary error.
    RemoveFinalizer {
        /// The object.
        key: ObjectKey,
        /// Precondition.
        uid: Uid,
        /// The finalizer.
        finalizer: FinalizerName,
    },
    /// Live read of one object's metadata.
    Read {
        /// The object.
        key: ObjectKey,
    },
    /// Ensures that every object that exists in a resource now has been observed, as required before a finalizer may be
    /// removed. The adapter either waits for its watch to deliver a version not below `at_least`, or makes a list that begins after
    /// this effect was created and shows a state no older than `at_least` (the current state of the store if that is `UNKNOWN`),
    /// and reports the objects in it as `Event::Found`; then it answers [`Outcome::Applied`] without an object.
    Barrier {
        /// The resource.
        resource: ResourceId,
        /// Restricts it to this namespace; the whole resource if `None`.
        namespace: Option<Arc<str>>,
        /// The version to reach; `UNKNOWN` if versions cannot be compared, which requires a list.
        at_least: ResourceVersion,
    },
    /// Writes a Kubernetes Event.
    RecordEvent(EventRecord),
    /// A change by a retention module, with UID and version as preconditions. [`Outcome::Absent`] if another object has the name
    /// now, [`Outcome::Conflict`] if the object has changed since.
    Guarded {
        /// The object.
        key: ObjectKey,
        /// Precondition.
        uid: Uid,
        /// Precondition.
        resource_version: ResourceVersion,
        /// The change.
        change: Change,
    },
    /// An action or a query outside the API server on behalf of an object. The adapter reads the object first:
    /// [`Outcome::Absent`] if another one has the name now, [`Outcome::Conflict`] if it has changed since.
    Outside {
        /// The object.
        key: ObjectKey,
        /// Precondition.
        uid: Uid,
        /// Precondition.
        resource_version: ResourceVersion,
        /// The call.
        call: OutsideCall,
    },
}

impl Request {
    /// Reports whether it deletes something.
    #[must_use]
    pub const fn deletes(&self) -> bool {
        matches!(
            self,
            Self::Delete { .. }
                | Self::Guarded { change: Change::ForceDelete, .. }
                | Self::Outside { call: OutsideCall::DeleteStorage(_), .. }
        )
    }
}

/// An action or a query outside the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutsideCall {
    /// Deletes the storage of a PersistentVolume. It is repeated if the response was lost, so it must be idempotent.
    DeleteStorage(Box<Storage>),
    /// Looks up the machine of a node; the result comes back as an observation.
    LookUpMachine {
        /// `spec.providerID`; empty if the node has none.
        provider_id: Arc<str>,
    },
}

/// The storage behind a PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Storage of a CSI driver.
    Csi {
        /// Name of the driver.
        driver: Arc<str>,
        /// `spec.csi.volumeHandle`
        handle: Arc<str>,
        /// Source of the secrets for the deletion.
        secret: DeletionSecret,
    },
    /// A directory on this machine.
    HostPath {
        /// Path of the directory.
        path: Arc<str>,
    },
}

/// Source of the secrets for deleting storage (spec `cluster-collectors.md`, 9.7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletionSecret {
    /// The annotation `volume.kubernetes.io/provisioner-deletion-secret-name`.
    pub name: Option<Arc<str>>,
    /// The annotation `volume.kubernetes.io/provisioner-deletion-secret-namespace`.
    pub namespace: Option<Arc<str>>,
    /// The storage class, if the annotations do not name a secret.
    pub class: Option<Arc<str>>,
    /// Namespace and name of the claim that the volume belonged to.
    pub claim: Option<(Arc<str>, Arc<str>)>,
}

/// A change of one object beyond ownership and deletion by policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// DELETE with `gracePeriodSeconds: 0`.
    ForceDelete,
    /// Sets `metadata.finalizers`, in this order; empty is written as `null`.
    Finalizers(Vec<Arc<str>>),
    /// Strategic merge patch of the `status` subresource: the value of `status`, as JSON text.
    Status(Arc<str>),
    /// JSON merge patch of the `status` subresource: the value of `status`, as JSON text.
    MergeStatus(Arc<str>),
    /// JSON merge patch of the object, as JSON text; the preconditions are added to its metadata.
    Merge(Arc<str>),
}

/// The `type` of a Kubernetes Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// `Normal`
    Normal,
    /// `Warning`
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        })
    }
}

/// A Kubernetes Event about an object. For a cluster-scoped object, it is written to the namespace `default`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// The object.
    pub about: ObjectKey,
    /// UID of the object.
    pub uid: Uid,
    /// `type` of the Event.
    pub severity: Severity,
    /// Event reason, such as `OwnerRefInvalidNamespace`.
    pub reason: &'static str,
    /// Event message.
    pub message: String,
}

/// A request with its identity and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Number of the effect.
    pub id: EffectId,
    /// The request.
    pub request: Request,
    /// Reason.
    pub reason: Reason,
}

/// Conclusion about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Every owner is gone.
    OwnersAbsent,
    /// An owner is in foreground deletion, and no other owner is living.
    OwnerWaiting,
    /// Some owners are gone or in foreground deletion, others are living: the dangling references are removed.
    ReferencesDead,
    /// The owner is being deleted with its dependents orphaned.
    OwnerOrphans,
    /// Nothing blocks the owner any more.
    NothingBlocks,
    /// All dependents have been released.
    AllOrphaned,
    /// A cycle of objects that wait for each other is broken.
    RingOpened,
    /// The owner must be verified to exist.
    OwnerUnknown,
    /// The object itself must be read again, because the server disagreed with what was observed.
    ObjectUnclear,
    /// A resource must catch up before a finalizer may be removed.
    CatchUp,
    /// A reference crosses namespaces.
    CrossNamespace,
    /// A reference has the UID of an object that its other coordinates do not match.
    WrongCoordinates,
    /// A verdict of a retention module, by its code (see [`codes`](crate::codes)).
    Retention(&'static str),
}

impl Verdict {
    /// All verdicts except those of retention modules.
    pub const OWNERSHIP: [Self; 12] = [
        Self::AllOrphaned,
        Self::CatchUp,
        Self::CrossNamespace,
        Self::NothingBlocks,
        Self::ObjectUnclear,
        Self::OwnerOrphans,
        Self::OwnersAbsent,
        Self::OwnerUnknown,
        Self::OwnerWaiting,
        Self::ReferencesDead,
        Self::RingOpened,
        Self::WrongCoordinates,
    ];

    /// Returns the stable code for programs: in metrics, the journal and data output. It never changes its meaning.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::OwnersAbsent => "OwnersAbsent",
            Self::OwnerWaiting => "OwnerForegroundDeleting",
            Self::ReferencesDead => "ReferencesDead",
            Self::OwnerOrphans => "OwnerOrphaning",
            Self::NothingBlocks => "NothingBlocks",
            Self::AllOrphaned => "AllOrphaned",
            Self::RingOpened => "OwnershipCycle",
            Self::OwnerUnknown => "OwnerUnknown",
            Self::ObjectUnclear => "ObjectUnclear",
            Self::CatchUp => "ResourceLagging",
            Self::CrossNamespace => "OwnerInOtherNamespace",
            Self::WrongCoordinates => "OwnerCoordinatesWrong",
            Self::Retention(code) => code,
        }
    }

    /// Returns the human-readable message. Its wording may be improved at any time.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::OwnersAbsent => "every owner is absent",
            Self::OwnerWaiting => "its owner is in foreground deletion and it has no other living owner",
            Self::ReferencesDead => "some owners are absent or wait, others live",
            Self::OwnerOrphans => "the owner is deleted and orphans its dependents",
            Self::NothingBlocks => "nothing blocks the owner any more",
            Self::AllOrphaned => "every dependent has been released",
            Self::RingOpened => "a ring of objects that wait for each other is opened",
            Self::OwnerUnknown => "whether the owner exists must be verified",
            Self::ObjectUnclear => "the object must be read again",
            Self::CatchUp => "the resource must catch up before a finalizer may be removed",
            Self::CrossNamespace => "the reference crosses namespaces",
            Self::WrongCoordinates => "the reference does not lead to the object with its uid",
            Self::Retention(code) => crate::codes::message(code),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

/// One fact that a verdict is based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The owner's removal was observed (`UNKNOWN`: found by a list).
    RemovalSeen {
        /// The owner.
        owner: Uid,
        /// Version of the removal.
        resource_version: ResourceVersion,
    },
    /// A live read proved that no object with the reference's coordinates and UID exists.
    ReadAbsent {
        /// The owner.
        owner: Uid,
        /// The time.
        at: Timestamp,
    },
    /// One list contained none of the known objects of an owner's kind, although some of them were referred to.
    KindVanished {
        /// The kind's resource.
        resource: ResourceId,
        /// Time at which the list was complete.
        at: Timestamp,
    },
    /// The owner is in foreground deletion.
    Waiting {
        /// The owner.
        owner: Uid,
        /// As of this version.
        resource_version: ResourceVersion,
    },
    /// The owner has been marked for deletion and orphans its dependents.
    Orphaning {
        /// The owner.
        owner: Uid,
        /// As of this version.
        resource_version: ResourceVersion,
    },
    /// The owner is living.
    Lives {
        /// The owner.
        owner: Uid,
    },
    /// The owner's kind is not served, or its scope makes the reference unsatisfiable: it counts as living.
    Undecidable {
        /// The owner.
        owner: Uid,
    },
    /// The object itself, as observed.
    ObservedAt {
        /// The version of the object that the decision is based on.
        resource_version: ResourceVersion,
    },
    /// Every resource has caught up with this version, at which the deletion was observed.
    CaughtUp {
        /// The version.
        resource_version: ResourceVersion,
    },
    /// A resource could not catch up within the configured wait, which has ended.
    GapGivenUp {
        /// The resource.
        resource: ResourceId,
    },
    /// Any other fact, as text.
    Fact(Arc<str>),
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RemovalSeen { owner, resource_version: ResourceVersion::UNKNOWN } => {
                write!(f, "owner {owner}: removal found by a list")
            }
            Self::RemovalSeen { owner, resource_version } => {
                write!(f, "owner {owner}: removal seen at version {resource_version}")
            }
            Self::ReadAbsent { owner, at } => {
                write!(f, "owner {owner}: a live read at {at} found nothing")
            }
            Self::KindVanished { resource, at } => {
                write!(f, "every known object of resource {} was missing from a list at {at}", resource.0)
            }
            Self::Waiting { owner, resource_version } => {
                write!(f, "owner {owner}: waits in foreground deletion since version {resource_version}")
            }
            Self::Orphaning { owner, resource_version } => {
                write!(f, "owner {owner}: orphans its dependents since version {resource_version}")
            }
            Self::Lives { owner } => write!(f, "owner {owner}: lives"),
            Self::Undecidable { owner } => write!(f, "owner {owner}: cannot be looked up, counts as living"),
            Self::ObservedAt { resource_version } => {
                write!(f, "object observed at version {resource_version}")
            }
            Self::CaughtUp { resource_version } => {
                write!(f, "every resource has caught up with version {resource_version}")
            }
            Self::GapGivenUp { resource } => write!(f, "resource {} did not catch up in time", resource.0),
            Self::Fact(text) => f.write_str(text),
        }
    }
}

/// Reason for an effect, which the log, the journal, the Event and `why` all print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Conclusion.
    pub verdict: Verdict,
    /// Owners that it is based on, at most [`Reason::OWNERS_LISTED`] of them.
    pub owners: Vec<Coordinates>,
    /// Further facts that it is based on.
    pub evidence: Vec<Evidence>,
}

impl Reason {
    /// Maximum number of owners in a reason.
    pub const OWNERS_LISTED: usize = 8;

    /// Returns the stable code of its verdict.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.verdict.code()
    }

    /// Returns the message of its verdict.
    #[must_use]
    pub fn message(&self) -> &'static str {
        self.verdict.message()
    }

    /// Reports whether its verdict depends on the time.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        crate::codes::TIMED.contains(&self.code())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict)?;
        for (index, fact) in self.evidence.iter().enumerate() {
            f.write_str(if index == 0 { ": " } else { "; " })?;
            write!(f, "{fact}")?;
        }
        Ok(())
    }
}

/// Reason why an effect was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WithheldBy {
    /// A dry run, in which effects are only reported.
    DryRun,
    /// Observing, in which effects are only compared with the actions of another collector.
    Observe,
    /// The circuit breaker of the resource has tripped, until an operator resumes it.
    Breaker,
    /// The configuration excludes every object of the resource.
    Configuration,
    /// The verdict depends on the time, and the clocks of this machine and the API server disagree.
    Clock,
}

/// The outcome of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not sent, so nothing happened. It is not requested again before the object changes, or before `Event::Released`.
    Withheld(WithheldBy),
    /// Done, with the object that the server returned, if it did (for a DELETE only if the object still exists).
    Applied(Option<ObservedObject>),
    /// Response to a read.
    Found(ObservedObject),
    /// Proven: a Status with reason NotFound that names the requested object, or the namespace it would be in;
    /// or, for a write with a UID as precondition, that another object has the name now.
    Absent,
    /// A precondition did not hold, or the version was outdated.
    Conflict,
    /// The path is not served (404 without an object-level Status), which proves nothing.
    NotServed,
    /// Refused by the server (403, 422, …); retried with a long delay.
    Refused {
        /// HTTP status code.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// The result is unknown, or the server was too busy; retried.
    Failed {
        /// The error message.
        message: String,
        /// Delay that the server requested, in milliseconds.
        retry_after_milliseconds: Option<u64>,
    },
}
