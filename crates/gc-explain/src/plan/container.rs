//! Containers of objects, and when their contents are deleted.

use std::cell::Cell;

use gc_ownership::{Leaf, Progress};
use gc_types::{ObjectKey, Uid};

/// Time horizon of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Horizon {
    /// Only what Kubernetes does by itself.
    AtOnce,
    /// Working controllers remove their finalizers.
    InTime,
    /// Every finalizer is removed, by hand if necessary.
    InTheEnd,
}

/// Cause of a deletion other than owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeletionCause {
    /// Requested.
    Asked,
    /// Its container is being deleted. In a namespace, all other objects wait for the pods.
    Contained { container: Uid, follows_pods: bool },
    /// An object that it belongs to is gone: the claim of a volume, the node of a pod.
    Gone(Uid),
}

/// An object that is removed once everything in it is gone: a namespace, a definition.
pub(super) struct Container {
    pub(super) key: ObjectKey,
    /// Contents without leaves.
    pub(super) inside: Vec<Uid>,
    /// The pods among them, which the rest of a namespace waits for.
    pub(super) pods: Vec<Uid>,
    /// Leaves that are deleted once the pods are gone.
    pub(super) followers: Vec<Leaf>,
    /// Horizon in which the followers are deleted.
    pub(super) followed: Cell<Option<Horizon>>,
    /// Reason why its contents cannot be listed, which blocks its deletion.
    pub(super) unlisted: Option<String>,
}

impl Container {
    pub(super) fn is_empty(&self) -> bool {
        self.inside.is_empty() && self.followers.is_empty()
    }

    /// Reports whether the rest of the contents no longer needs to wait for pods.
    pub(super) fn has_no_pods(&self, progress: &Progress) -> bool {
        self.pods.iter().all(|pod| progress.gone.contains(pod))
    }
}
