//! Containers of objects, and the time of their contents' deletion.

use std::cell::Cell;

use gc_ownership::{Leaf, Progress};
use gc_types::{ObjectKey, Uid};

/// Time horizon of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Horizon {
    /// Only what Kubernetes does by itself.
    AtOnce,
    /// Controllers that work remove their finalizers.
    InTime,
    /// Every finalizer is removed, by hand if need be.
    InTheEnd,
}

/// Cause of a deletion other than owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeletionCause {
    /// It was asked for.
    Asked,
    /// Its container is being deleted. All but the pods of a namespace wait for these pods.
    Contained { container: Uid, follows_pods: bool },
    /// An object that it belongs to is gone: the claim of a volume, the node of a pod.
    Gone(Uid),
}

/// An object that ends when everything in it is gone: a namespace, a definition.
pub(super) struct Container {
    pub(super) key: ObjectKey,
    /// Contents without leaves.
    pub(super) inside: Vec<Uid>,
    /// The pods among them, for which the rest of a namespace waits.
    pub(super) pods: Vec<Uid>,
    /// Leaves that are deleted when the pods are gone.
    pub(super) followers: Vec<Leaf>,
    /// When they are deleted.
    pub(super) followed: Cell<Option<Horizon>>,
    /// Why its contents cannot be listed, which holds it up.
    pub(super) unlisted: Option<String>,
}

impl Container {
    pub(super) fn is_empty(&self) -> bool {
        self.inside.is_empty() && self.followers.is_empty()
    }

    /// Reports whether the rest of the contents needs to wait no longer.
    pub(super) fn has_no_pods(&self, progress: &Progress) -> bool {
        self.pods.iter().all(|pod| progress.gone.contains(pod))
    }
}
