//! Resources whose watch has broken or lists again. The server may have been restored meanwhile, so what was known of them is not what
//! anything is deleted for: their objects wait for the next list, or until the watch is resumed; of their owners a live read tells.

use smallvec::SmallVec;

use super::Engine;
use super::verdict::ReferenceState;
use crate::graph::{EdgeId, Flag, NodeId, ResourceIndex};

impl Engine {
    /// Returns true if the watch of a resource delivers every change, or nothing better is to come.
    pub(super) fn is_in_sight(&self, resource: ResourceIndex) -> bool {
        !self.config.awaits_lists
            || self.graph.resources.get(resource).is_none_or(crate::graph::Resource::is_current)
    }

    /// Returns true if a decision about an object has to wait for its resource. That, and what its owners' resources have to say, makes
    /// up for it.
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

    /// The watch of a resource has broken, or its list begins. Owners that a live read did not find there, or where no watch would show
    /// them, are read again.
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

    /// The state of a reference that something may be deleted for. `None` if it leads elsewhere, or a live read has to tell.
    pub(super) fn present_class(&self, edge: EdgeId) -> Option<ReferenceState> {
        let class = self.seen_class(edge)?;
        let resource = self.graph.resource(self.graph.owner(edge));
        match class {
            ReferenceState::Lives | ReferenceState::Undecidable | ReferenceState::Unverified => Some(class),
            _ if self.is_in_sight(resource) => Some(class),
            // A read does not tell whether an owner orphans.
            ReferenceState::Orphaning(_) => Some(ReferenceState::Unverified),
            ReferenceState::Waiting(_) | ReferenceState::Absent(_) => None,
        }
    }

    /// A resource is current again: whatever waited for that is decided.
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
