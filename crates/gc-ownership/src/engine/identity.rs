//! Identity of a claim.

use std::sync::Arc;

use crate::graph::{NodeId, ResourceIndex};

/// A place at which an owner is claimed to be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) owner: NodeId,
    pub(super) resource: ResourceIndex,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}
