//! Objects that a list lacks, that one view of them has lost, or whose removal one watch reports. All are suspicions: the owner is not
//! proven gone, so that whatever it owns is decided on only after a second answer; a dependent that is being orphaned is read itself.

use gc_types::{ObjectKey, ResourceVersion};

use super::Engine;
use crate::graph::{Departure, Flag, NodeId, ResourceIndex};

impl Engine {
    /// A list is complete; objects with another mark are not in it.
    pub(super) fn missed(&mut self, resource: ResourceIndex, mark: bool) {
        self.note_vanished_kind(resource, mark);
        for node in self.graph.slots() {
            if self.is_missed(node, resource, mark) {
                self.doubt(node, mark);
            }
        }
    }

    fn is_missed(&self, node: NodeId, resource: ResourceIndex, mark: bool) -> bool {
        self.graph.has(node, Flag::OBSERVED)
            && self.graph.resource(node) == resource
            && self.graph.has(node, Flag::PARITY) != mark
    }

    /// If a list contains none of the objects that were known, and some of them are referred to, the server or what stands before
    /// it is more likely to be wrong than the cluster.
    fn note_vanished_kind(&mut self, resource: ResourceIndex, mark: bool) {
        let is_confirmed = self.graph.resources.get(resource).is_none_or(|state| state.confirmed);
        let has_vanished = !is_confirmed
            && self
                .graph
                .slots()
                .any(|node| self.is_missed(node, resource, mark) && self.graph.has_dependents(node));
        if has_vanished && let Some(state) = self.graph.resources.get_mut(resource) {
            state.vanished_at = Some(self.clock.now());
        }
    }

    /// An object may not exist any more.
    fn doubt(&mut self, node: NodeId, mark: bool) {
        if self.is_seen_elsewhere(node) {
            return;
        }
        if !self.is_being_orphaned(node) {
            self.depart(node, Departure::Unproven);
            return;
        }
        // Without it its owner would be done, and if it is still there, it would be deleted in place of being orphaned.
        self.graph.set(node, Flag::PARITY, mark);
        self.reread(node);
    }

    /// Returns true if an owner waits for this object to lose its reference.
    fn is_being_orphaned(&self, node: NodeId) -> bool {
        self.graph.edges_of(node).any(|edge| {
            let owner = self.graph.owner(edge);
            let orphans = self.waiting.get(&owner).is_some_and(|waiting| waiting.orphan);
            orphans && owner != node && self.graph.matches(edge)
        })
    }

    /// Reads an object before anything else is decided about it.
    pub(super) fn reread(&mut self, node: NodeId) {
        if self.graph.has(node, Flag::IN_FLIGHT) {
            self.rereads.insert(node);
        }
        self.graph.set(node, Flag::GRANTED, false);
        self.graph.set(node, Flag::FRESH, false);
        self.graph.set(node, Flag::UNCLEAR, true);
        self.retries.retry_now(node, &mut self.clock);
        self.enqueue(node);
    }

    /// The removal of a known object was reported by a watch.
    pub(super) fn removal_seen(
        &mut self,
        node: NodeId,
        (key, resource): (&ObjectKey, ResourceIndex),
        version: ResourceVersion,
    ) {
        let at = self.graph.resource(node);
        if at != resource && self.is_served(at) {
            // Another view of it has lost it: it may have been deleted, or be hidden from us there. Its own resource decides.
            if self.views.get(&node) == Some(&resource) {
                self.views.remove(&node);
            }
            return;
        }
        if self.is_seen_elsewhere(node) {
            return;
        }
        let known = self.graph.version(node);
        let is_later = known == ResourceVersion::UNKNOWN || version > known;
        let known_key = self.graph.key(node);
        let is_about_it = (&known_key.name, &known_key.namespace) == (&key.name, &key.namespace);
        if !is_later || !is_about_it {
            // It is older than the object, does not say when it was removed, or is about the name of another one.
            let mark = self.graph.has(node, Flag::PARITY);
            self.doubt(node, mark);
        } else if self.ended.contains(&node) || !self.config.awaits_lists {
            self.depart(node, Departure::Removed(version));
        } else if self.is_being_orphaned(node) {
            self.reread(node);
        } else {
            self.depart(node, Departure::Reported(version));
        }
    }

    /// Another resource shows an object, too.
    pub(super) fn seen_in_view(&mut self, node: NodeId, view: ResourceIndex) {
        self.views.insert(node, view);
    }

    /// If another resource that is served has shown an object which its own has lost, it moves there, and is read there. References
    /// to where it was need a live read.
    pub(super) fn is_seen_elsewhere(&mut self, node: NodeId) -> bool {
        let Some(view) = self.views.remove(&node).filter(|view| self.is_served(*view)) else { return false };
        self.end_waiting(node);
        let mut key = self.graph.key(node);
        key.resource = self.graph.resource_id(view);
        self.graph.place(&self.graph.uid(node), &key, view);
        let mark = self.graph.resources.get(view).is_some_and(|state| state.parity);
        self.graph.set(node, Flag::PARITY, mark);
        self.reread(node);
        self.update_waiting(node, false);
        self.enqueue_dependents(node);
        true
    }

    fn is_served(&self, resource: ResourceIndex) -> bool {
        self.graph.resources.get(resource).is_some_and(|state| state.served)
    }
}
