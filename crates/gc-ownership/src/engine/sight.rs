//! Resources whose watch has broken, or which are being listed again. The server may have been restored in the meantime, so nothing
//! is deleted because of earlier knowledge of them: their objects wait for the next list or for the watch to be resumed, and live
//! reads verify their owners.

use smallvec::SmallVec;

use super::Engine;
use super::verdict::ReferenceState;
use crate::graph::{EdgeId, Flag, NodeId, ResourceIndex};

impl Engine {
    /// Reports whether the watch of a resource delivers every change, or nothing better is to be expected.
    pub(super) fn is_in_sight(&self, resource: ResourceIndex) -> bool {
        !self.config.awaits_lists
            || self.graph.resources.get(resource).is_none_or(crate::graph::Resource::is_current)
    }

    /// Reports whether a decision about an object has to wait for its own resource. Waiting for that, and for the resources of its
    /// owners, makes up for the gap.
    pub(super) fn must_await(&mut self, node: NodeId) -> bool {
        let owners = self.graph.edges_of(node).map(|edge| self.graph.resource(self.graph.owner(edge)));
        let own = self.graph.resource(node);
        let awaited: SmallVec<[ResourceIndex; 2]> =
            owners.chain([own]).filter(|&resource| !self.is_in_sight(resource)).collect();
        for &resource in &awaited {
            if let Some(state) = self.graph.resources.get_mut(resource) {
                state.is_awaited = true;
            }
        }
        awaited.contains(&own)
    }

    /// Handles a resource whose watch has broken, or whose list begins. Owners that a live read did not find there, or that no
    /// watch would show, are read again.
    pub(super) fn lose_sight(&mut self, resource: ResourceIndex) {
        let Some(state) = self.graph.resources.get_mut(resource) else { return };
        if !std::mem::replace(&mut state.synced, false) {
            return;
        }
        if self.verifications.is_empty() && !self.verifications.remembers_absent() {
            return;
        }
        let unseen = self.graph.resources.iter().filter(|(_, state)| !state.synced);
        let doubted = unseen.map(|(index, state)| (index, state.info.id)).collect();
        for identity in self.verifications.doubt_in(&doubted, &mut self.clock) {
            self.enqueue_claimants(&identity);
        }
    }

    /// Returns the state of a reference on which a deletion may be based. `None` if it leads elsewhere, or needs a live read.
    pub(super) fn present_class(&self, edge: EdgeId) -> Option<ReferenceState> {
        let class = self.seen_class(edge)?;
        let resource = self.graph.resource(self.graph.owner(edge));
        match class {
            ReferenceState::Lives | ReferenceState::Undecidable | ReferenceState::Unverified => Some(class),
            _ if self.is_in_sight(resource) => Some(class),
            // A read does not show whether an owner orphans its dependents.
            ReferenceState::Orphaning(_) => Some(ReferenceState::Unverified),
            ReferenceState::Waiting(_) | ReferenceState::Absent(_) => None,
        }
    }

    /// Decides everything that waited for a resource to become current.
    pub(super) fn wake_awaiting(&mut self, resource: ResourceIndex) {
        let state = self.graph.resources.get_mut(resource);
        if !state.is_some_and(|state| std::mem::take(&mut state.is_awaited)) {
            return;
        }
        let nodes: Vec<NodeId> =
            self.graph.slots().filter(|&node| self.graph.resource(node) == resource).collect();
        for node in nodes {
            self.enqueue(node);
            if self.graph.has(node, Flag::GONE) || self.graph.has(node, Flag::DELETING) {
                self.enqueue_dependents(node);
            }
        }
    }
}
