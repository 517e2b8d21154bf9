//! Objects that a list lacks, that one view of them has lost, or whose removal one watch reports. All are suspicions: an owner is
//! not proven gone, so its dependents are decided only after a second answer; a dependent that is being orphaned is read itself.

use gc_types::{ObjectKey, ObservedObject, OwnerReference, ResourceVersion};

use super::Engine;
use super::observe::Source;
use crate::graph::{Departure, EdgeId, Flag, NodeId, ResourceIndex};

impl Engine {
    /// Handles a complete list; objects with another mark are not in it.
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

    /// Notes if a list contains none of the known objects although some of them are referred to: then the server, or something in
    /// front of it, is more likely to be wrong than the cluster.
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

    /// Handles an object that may no longer exist.
    fn doubt(&mut self, node: NodeId, mark: bool) {
        if self.is_seen_elsewhere(node) {
            return;
        }
        if !self.is_being_orphaned(node) {
            self.depart(node, Departure::Unproven);
            return;
        }
        // Without this object its owner would be done; if the object still exists, it would be deleted instead of orphaned.
        self.graph.set(node, Flag::PARITY, mark);
        self.reread(node);
    }

    /// Reports whether an owner waits for this object to lose its reference.
    fn is_being_orphaned(&self, node: NodeId) -> bool {
        self.graph.edges_of(node).any(|edge| self.is_orphaned_by(node, edge))
    }

    /// Reports whether the owner of a reference of this object orphans its dependents.
    pub(super) fn is_orphaned_by(&self, node: NodeId, edge: EdgeId) -> bool {
        let owner = self.graph.owner(edge);
        owner != node && self.orphans(owner) && self.graph.matches(edge)
    }

    /// Reports whether an owner orphans its dependents.
    fn orphans(&self, owner: NodeId) -> bool {
        self.waiting.get(&owner).is_some_and(|waiting| waiting.orphan)
    }

    /// Returns the references to owners that orphan their dependents that an event or a list shows an object without, although no
    /// request of ours may have removed them. Like the removal of such an object, that is believed after a read.
    pub(super) fn dropped_orphaning_owners(
        &self,
        node: NodeId,
        object: &ObservedObject,
    ) -> Vec<OwnerReference> {
        let is_ours = self.graph.has(node, Flag::IN_FLIGHT) || self.graph.has(node, Flag::GRANTED);
        if is_ours || !self.config.awaits_lists || self.waiting.is_empty() {
            return Vec::new();
        }
        let is_dropped = |edge: &EdgeId| {
            self.is_orphaned_by(node, *edge) && {
                let uid = self.graph.uid(self.graph.owner(*edge));
                !object.owners.iter().any(|reference| reference.coordinates.uid == uid)
            }
        };
        self.graph.edges_of(node).filter(is_dropped).map(|edge| self.graph.reference(edge)).collect()
    }

    /// Returns the references to owners that orphan their dependents that only a response shows, in an older version of the object
    /// than its watch has delivered. The watch may have shown a version that the server never had: without such a reference the
    /// owner would be done, and the object would be deleted instead of orphaned.
    pub(super) fn hidden_orphaning_owners(
        &self,
        node: NodeId,
        object: &ObservedObject,
    ) -> Vec<OwnerReference> {
        if self.graph.deletion(node) != object.deletion {
            return Vec::new();
        }
        let is_hidden = |reference: &&OwnerReference| {
            let owner = self.graph.find(&reference.coordinates.uid).filter(|&owner| owner != node);
            owner.is_some_and(|owner| self.orphans(owner))
                && !self.graph.edges_of(node).any(|edge| Some(self.graph.owner(edge)) == owner)
        };
        object.owners.iter().filter(is_hidden).cloned().collect()
    }

    /// Takes an object with references that may or may not be there. Until a read has decided, they count, and its answer does
    /// whatever its version.
    pub(super) fn absorb_doubted(
        &mut self,
        node: NodeId,
        object: &ObservedObject,
        (resource, is_seen): (ResourceIndex, bool),
        (owners, source): (Vec<OwnerReference>, Source),
    ) {
        let resource_version = ResourceVersion::UNKNOWN;
        let doubted = ObservedObject { owners: owners.into(), resource_version, ..object.clone() };
        self.absorb(&doubted, resource, None, is_seen, source);
        self.reread(node);
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

    /// Handles a known object whose removal a watch has reported.
    pub(super) fn removal_seen(
        &mut self,
        node: NodeId,
        (key, resource): (&ObjectKey, ResourceIndex),
        version: ResourceVersion,
    ) {
        let at = self.graph.resource(node);
        if at != resource {
            // Another view has lost the object: it may have been deleted, or be hidden from us there. Its own resource decides.
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
            // The report is older than the object, does not say when it was removed, or is about another object of its name.
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

    /// Records that another resource shows an object, too.
    pub(super) fn seen_in_view(&mut self, node: NodeId, view: ResourceIndex) {
        self.views.insert(node, view);
    }

    /// Moves an object that its own resource has lost to another served resource that has shown it, and reads it there. References
    /// to its former place need a live read.
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
