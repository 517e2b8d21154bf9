//! What adapters report to the engines.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    EffectId, Gvr, Marks, ObjectKey, Outcome, OwnerReference, ResourceId, ResourceVersion, Timestamp, Uid,
};

/// Whether objects of a resource live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// In a namespace.
    Namespaced,
    /// At cluster scope.
    Cluster,
}

/// What discovery says of one resource that is (or was) served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceInfo {
    /// Its number.
    pub id: ResourceId,
    /// Under which group, version and name it is watched (the preferred version).
    pub gvr: Gvr,
    /// Its kind.
    pub kind: Arc<str>,
    /// Its scope.
    pub scope: Scope,
    /// Every `apiVersion` under which the same kind is served (the watched one included).
    pub served_api_versions: Vec<Arc<str>>,
    /// Whether it is watched: it can be listed, watched and deleted, and is not ignored by configuration.
    pub watched: bool,
    /// Whether its resourceVersions count on the same scale as those of the built-in resources (one etcd).
    /// False for aggregated APIs with a store of their own: their progress is then proven by barriers alone.
    pub comparable_versions: bool,
}

/// How far an object's deletion has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeletionState {
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// It carries the `foregroundDeletion` finalizer.
    pub foreground: bool,
    /// It carries the `orphan` finalizer.
    pub orphan: bool,
    /// It carries any other finalizer.
    pub foreign_finalizers: bool,
}

/// The metadata of one object that verdicts need; nothing else of an object is ever kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedObject {
    /// Where it is.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: Uid,
    /// The version that this is the metadata of.
    pub resource_version: ResourceVersion,
    /// Its owners, in the order written.
    pub owners: SmallVec<[OwnerReference; 1]>,
    /// Its deletion.
    pub deletion: DeletionState,
}

/// One thing that was observed.
///
/// What an adapter promises:
/// * per watched resource, `ListStarted`, the listed objects as `Observed`, `Synced`, and then every change in
///   the order of the watch; after a lost watch either a resumed one without any event, or `ListStarted` again;
/// * every effect gets exactly one `Done`, whatever happens (an unknown fate is `Outcome::Failed`);
/// * `Marked` right after the `Observed` of each object that has such annotations;
/// * `Tick` before the other events of a batch, and again at `Engine::next_wakeup` at the latest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Discovery knows this resource (first sight, or changed).
    ResourceServed(ResourceInfo),
    /// A complete, successful discovery no longer lists this resource. (A failed one says nothing.)
    ResourceGone(ResourceId),
    /// The first round of discovery is over: every resource that is known now has been announced. Nothing is
    /// done before it, nor before those resources are `Synced` or the start-up wait has passed.
    Discovered,
    /// A list of the resource begins: what is not seen until `Synced` is gone.
    ListStarted(ResourceId),
    /// The list is complete; from here on every change arrives as an event.
    Synced {
        /// Which resource.
        resource: ResourceId,
        /// The version of the list (`UNKNOWN` if the server gave none).
        resource_version: ResourceVersion,
    },
    /// The watch has delivered every change up to this version (bookmarks and progress notifications).
    Progress {
        /// Which resource.
        resource: ResourceId,
        /// Up to which version.
        resource_version: ResourceVersion,
    },
    /// The watch is broken or stale; verdicts that need the resource wait, or use live reads.
    Stale(ResourceId),
    /// An object as it is now.
    Observed(ObservedObject),
    /// What the annotations of the object just observed say about its retention.
    Marked {
        /// Which.
        key: ObjectKey,
        /// What they say.
        marks: Arc<Marks>,
    },
    /// An object as the list of a barrier found it; says nothing about how far the watch has come.
    Found(ObservedObject),
    /// An object was removed; the resourceVersion is that of the removal (`UNKNOWN` if found by a relist).
    Removed {
        /// Where it was.
        key: ObjectKey,
        /// Its UID.
        uid: Uid,
        /// Version of the removal.
        resource_version: ResourceVersion,
    },
    /// What became of an effect.
    Done(EffectId, Outcome),
    /// Held effects ([`Outcome::Held`]) of one resource, or of all, may be requested again.
    Released(Option<ResourceId>),
    /// The current time. Never decreases; an adapter whose clock does repeats the last value.
    Tick(Timestamp),
}
