//! Observations that adapters report to the engines.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    EffectId, Gvr, Marks, ObjectKey, Outcome, OwnerReference, Recreator, ResourceId, ResourceVersion,
    Timestamp, Uid,
};

/// Scope of a resource: namespaced, or the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// In a namespace.
    Namespaced,
    /// At cluster scope.
    Cluster,
}

/// A resource that is (or was) served, according to discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceInfo {
    /// Number of the resource.
    pub id: ResourceId,
    /// The group, version and name under which it is watched (the preferred version).
    pub gvr: Gvr,
    /// Kind of the resource.
    pub kind: Arc<str>,
    /// Scope of the resource.
    pub scope: Scope,
    /// Every `apiVersion` under which the same kind is served (the watched one included).
    pub served_api_versions: Vec<Arc<str>>,
    /// True if it is watched: it can be listed, watched and deleted, and is not ignored by configuration.
    pub watched: bool,
    /// True if its resourceVersions are comparable with those of the built-in resources (one etcd). False for aggregated APIs with
    /// their own store, whose progress only barriers can prove.
    pub comparable_versions: bool,
}

/// Progress of an object's deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeletionState {
    /// True if it has a deletionTimestamp.
    pub deleting: bool,
    /// True if it carries the `foregroundDeletion` finalizer.
    pub foreground: bool,
    /// True if it carries the `orphan` finalizer.
    pub orphan: bool,
    /// True if it carries any other finalizer.
    pub foreign_finalizers: bool,
}

impl DeletionState {
    /// Reports whether the object waits for its dependents, to be deleted or to be orphaned.
    #[must_use]
    pub fn waits_for_dependents(self) -> bool {
        self.deleting && (self.foreground || self.orphan)
    }
}

/// Metadata of one object that decisions need; nothing else of an object is ever stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedObject {
    /// Key of the object.
    pub key: ObjectKey,
    /// UID of the object.
    pub uid: Uid,
    /// Version of this metadata.
    pub resource_version: ResourceVersion,
    /// Owner references of the object, in the original order.
    pub owners: SmallVec<[OwnerReference; 1]>,
    /// Progress of its deletion.
    pub deletion: DeletionState,
    /// Recreator according to its labels and annotations. No verdict depends on it, but plans name it.
    pub recreator: Option<Recreator>,
}

/// One observation.
///
/// The contract of an adapter:
/// * per watched resource, `ListStarted`, the listed objects as `Observed`, `Synced`, and then every change in
///   the order of the watch; after a lost watch either a resumed one without any event, or `ListStarted` again;
/// * every effect gets exactly one `Done`, whatever happens (an unknown outcome is `Outcome::Failed`);
/// * `Marked` right after the `Observed` of each object that has such annotations;
/// * `Tick` before the other events of a batch, and again at `Engine::next_wakeup` at the latest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Discovery contains this resource (for the first time, or changed).
    ResourceServed(ResourceInfo),
    /// A complete, successful discovery no longer contains this resource. (A failed one proves nothing.)
    ResourceGone(ResourceId),
    /// The first round of discovery is over, and every known resource has been announced. No effect is requested before it, nor
    /// before those resources are `Synced` or the wait at start is over.
    Discovered,
    /// A list of the resource begins: objects that are not observed until `Synced` are gone.
    ListStarted(ResourceId),
    /// The list is complete; from now on, every change arrives as an event.
    Synced {
        /// The resource.
        resource: ResourceId,
        /// Version of the list (`UNKNOWN` if the server returned none).
        resource_version: ResourceVersion,
    },
    /// The watch has delivered every change up to this version (bookmarks and progress notifications).
    Progress {
        /// The resource.
        resource: ResourceId,
        /// The version.
        resource_version: ResourceVersion,
    },
    /// The watch is broken or stale; decisions that need the resource wait, or use live reads.
    Stale(ResourceId),
    /// Current state of an object.
    Observed(ObservedObject),
    /// The retention annotations of the object that was just observed.
    Marked {
        /// The object.
        key: ObjectKey,
        /// Annotations of the object.
        marks: Arc<Marks>,
    },
    /// An object in the list of a barrier; it says nothing about the progress of the watch.
    Found(ObservedObject),
    /// An object was removed. The resourceVersion is that of the removal (`UNKNOWN` if found by a list).
    Removed {
        /// Key of the object.
        key: ObjectKey,
        /// UID of the object.
        uid: Uid,
        /// Version of the removal.
        resource_version: ResourceVersion,
    },
    /// The outcome of an effect.
    Done(EffectId, Outcome),
    /// Withheld effects ([`Outcome::Withheld`]) of one resource, or of all, may be requested again.
    Released(Option<ResourceId>),
    /// The current time. It never decreases; an adapter whose clock does repeats the last value.
    Tick(Timestamp),
}
