//! What engines want done, why, and what became of it.

use std::fmt;
use std::sync::Arc;

use crate::{Coordinates, ObjectKey, ObservedObject, OwnerReference, ResourceVersion, Uid};

/// Identifies one effect from its making to its outcome. Never reused within an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EffectId(pub u64);

/// What a DELETE does with dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PropagationPolicy {
    /// The object goes at once, its dependents after it.
    Background,
    /// The object goes after the dependents that block it.
    Foreground,
    /// The object goes, its dependents stay.
    Orphan,
}

/// The two finalizers that the owner-reference collector takes off.
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

/// One request to the world. Every write names the UID and the version that the verdict was reached on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// DELETE with preconditions. The policy is always sent.
    Delete {
        /// What.
        key: ObjectKey,
        /// Precondition.
        uid: Uid,
        /// Precondition; `None` only where the spec allows the UID alone (4.5, after a live re-check).
        resource_version: Option<ResourceVersion>,
        /// Propagation.
        policy: PropagationPolicy,
    },
    /// Sets `metadata.ownerReferences` to `remaining`, guarded by UID and version.
    SetOwners {
        /// Whose.
        key: ObjectKey,
        /// Guard.
        uid: Uid,
        /// Guard.
        resource_version: ResourceVersion,
        /// The complete list afterwards.
        remaining: Vec<OwnerReference>,
    },
    /// Takes one finalizer off, guarded by UID and version (the adapter reads the list if it must).
    RemoveFinalizer {
        /// Whose.
        key: ObjectKey,
        /// Guard.
        uid: Uid,
        /// Which.
        finalizer: FinalizerName,
    },
    /// Live read of one object's metadata.
    Read {
        /// Which.
        key: ObjectKey,
    },
    /// A live, consistent list of the dependents' resource, needed before a finalizer may go.
    Barrier {
        /// The resource whose watch must have caught up with the server's present version.
        resource: crate::ResourceId,
    },
    /// Writes a Kubernetes Event.
    Note(EventNote),
}

/// A Kubernetes Event to be written about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventNote {
    /// About which object.
    pub about: ObjectKey,
    /// Its UID.
    pub uid: Uid,
    /// Event reason, such as `OwnerRefInvalidNamespace`.
    pub reason: &'static str,
    /// Event message.
    pub message: String,
}

/// A request with its identity and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Its number.
    pub id: EffectId,
    /// What to do.
    pub request: Request,
    /// Why.
    pub reason: Reason,
}

/// What was concluded about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Every owner is gone.
    OwnersAbsent,
    /// An owner waits in foreground deletion and no other owner lives.
    OwnerWaiting,
    /// Some owners are gone or wait, others live: the dead references go.
    ReferencesDead,
    /// The owner is being deleted with its dependents orphaned.
    OwnerOrphans,
    /// Nothing blocks the owner any more.
    NothingBlocks,
    /// All dependents have been released.
    AllOrphaned,
    /// A ring in which everyone waits for everyone is opened.
    RingOpened,
    /// Whether an owner exists must be verified.
    OwnerUnknown,
    /// A reference crosses namespaces.
    CrossNamespace,
    /// A verdict of a retention module, by its name.
    Retention(&'static str),
}

/// Why an effect is wanted: data that the log, the journal, the event and `why` all print from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The conclusion.
    pub verdict: Verdict,
    /// The owners it rests on.
    pub owners: Vec<Coordinates>,
    /// What else it rests on, one fact each (such as `absent: removal seen at version 812`).
    pub evidence: Vec<Arc<str>>,
}

/// What became of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done; the object as the server returned it, if it did.
    Applied(Option<ObservedObject>),
    /// Answer to a read.
    Found(ObservedObject),
    /// The server proved with an object-level Status that the object does not exist.
    Absent,
    /// A precondition did not hold, or the version was outdated.
    Conflict,
    /// The path is not served (404 without an object-level Status): proves nothing.
    NotServed,
    /// Refused for good reasons of the server's (403, 422, …); retried late.
    Refused {
        /// HTTP status code.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// Not known whether it happened, or the server was too busy: retried.
    Failed {
        /// What went wrong.
        message: String,
        /// The server asked to wait for so many milliseconds.
        retry_after_milliseconds: Option<u64>,
    },
}
