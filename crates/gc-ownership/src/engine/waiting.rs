//! Owners that wait for their dependents: foreground deletion (section 5) and orphaning (section 7).

use std::collections::BTreeSet;

use gc_types::{
    Evidence, FinalizerName, ObjectKey, ObservedObject, Reason, Request, ResourceId, ResourceVersion, Scope,
    Timestamp, Verdict,
};

use super::Engine;
use super::clock::Timer;
use super::effects::Action;
use crate::graph::{CLUSTER, EdgeFlag, EdgeId, Flag, NONE, NodeId, Resource, ResourceIndex, UnlinkedOwner};

/// An owner that is marked for deletion and carries `foregroundDeletion` or `orphan`.
#[derive(Clone, Debug)]
pub(crate) struct WaitingOwner {
    /// True for `orphan`, which is processed before `foregroundDeletion`.
    pub(crate) orphan: bool,
    /// True once a response to a request of ours has shown that it waits. Its watch alone is not enough to delete or release its
    /// dependents.
    pub(crate) is_shown: bool,
    /// Version at which the mark was seen; not below that of the mark itself.
    pub(crate) mark: ResourceVersion,
    /// First effect number after the mark was seen.
    pub(crate) mark_effect: u64,
    pub(crate) since: Timestamp,
    /// Time since which only lagging resources block it.
    pub(crate) ready_since: Option<Timestamp>,
    /// Number of references that block it.
    pub(crate) blocking: usize,
    /// Resource whose progress it waits for.
    pub(crate) held_by: Option<ResourceIndex>,
    /// Time at which it stops waiting for lagging resources.
    pub(crate) give_up: Option<Timestamp>,
    /// Resources that were served when it was marked and have been withdrawn since, and that had or may have had dependents of it.
    pub(crate) withdrawn: BTreeSet<ResourceIndex>,
}

impl Engine {
    /// Updates the table of waiting owners with an observation of one. `is_shown` is true for a response to a request of ours.
    pub(super) fn update_waiting(&mut self, node: NodeId, is_shown: bool) {
        let deletion = self.graph.deletion(node);
        let should = deletion.waits_for_dependents();
        match self.waiting.get(&node) {
            Some(waiting) if should && waiting.orphan == deletion.orphan => {}
            Some(_) => {
                self.end_waiting(node);
                if should {
                    self.begin_waiting(node, deletion.orphan, is_shown);
                }
            }
            None if should => self.begin_waiting(node, deletion.orphan, is_shown),
            None => {}
        }
    }

    /// Returns the resources that were withdrawn recently. An owner that orphans its dependents may have been marked, and seen to
    /// wait, before: a stale list shows it as it was until its watch delivers the mark again.
    fn withdrawn_lately(&self) -> BTreeSet<ResourceIndex> {
        let resources = self.graph.resources.iter();
        let withdrawn = resources.filter(|(_, state)| {
            !state.served
                && state.info.watched
                && !state.definition_removed
                && self.was_withdrawn_lately(state)
        });
        withdrawn.map(|(index, _)| index).collect()
    }

    /// Reports whether discovery contained a resource until recently.
    pub(super) fn was_withdrawn_lately(&self, state: &Resource) -> bool {
        let longest = self.config.withdrawn_wait_milliseconds;
        state.withdrawn_at.is_some_and(|at| self.clock.now() < at.after(longest))
    }

    fn begin_waiting(&mut self, node: NodeId, orphan: bool, is_shown: bool) {
        let withdrawn = if orphan { self.withdrawn_lately() } else { BTreeSet::new() };
        self.graph.set(node, Flag::WAITING, true);
        self.waiting.insert(
            node,
            WaitingOwner {
                orphan,
                is_shown,
                mark: self.graph.version(node),
                mark_effect: self.effects.next_number(),
                since: self.clock.now(),
                ready_since: None,
                blocking: 0,
                held_by: None,
                give_up: None,
                withdrawn,
            },
        );
        self.count_blocking(node);
        // Dependents come first; the owner is decided on after them.
        if self.is_shown_waiting(node) {
            self.enqueue_dependents(node);
        } else {
            self.confirm_report(node);
        }
        self.enqueue(node);
    }

    /// Handles a response to a request of ours that shows an object. If it waits there, as its watch says, its dependents are
    /// decided on.
    pub(super) fn shown(&mut self, node: NodeId, object: &ObservedObject) {
        let deletion = object.deletion;
        let next_effect = self.effects.next_number();
        let Some(waiting) = self.waiting.get_mut(&node) else { return };
        if !deletion.waits_for_dependents()
            || waiting.orphan != deletion.orphan
            || std::mem::replace(&mut waiting.is_shown, true)
        {
            return;
        }
        let former = waiting.mark;
        if waiting.orphan && object.resource_version > former {
            // Its watch may have shown a mark that the server never had. The real one may be as new as this response.
            (waiting.mark, waiting.mark_effect) = (object.resource_version, next_effect);
            if let Some(held_by) = waiting.held_by.take() {
                self.barriers.free(held_by, former, node);
            }
        }
        self.enqueue_dependents(node);
        self.enqueue(node);
    }

    /// Reports whether a response to a request of ours has shown that an owner waits.
    pub(super) fn is_shown_waiting(&self, owner: NodeId) -> bool {
        !self.config.awaits_lists || self.waiting.get(&owner).is_some_and(|waiting| waiting.is_shown)
    }

    /// Doubts earlier responses about an owner that a list shows: they may belong to another history.
    pub(super) fn doubt_waiting(&mut self, node: NodeId) {
        if let Some(waiting) = self.waiting.get_mut(&node) {
            waiting.is_shown = false;
        }
    }

    pub(super) fn end_waiting(&mut self, node: NodeId) {
        if self.is_finishing(node) {
            self.finishing.remove(&node);
            self.enqueue_dependents(node);
        }
        let Some(waiting) = self.waiting.remove(&node) else { return };
        if let Some(resource) = waiting.held_by {
            self.barriers.free(resource, waiting.mark, node);
        }
        if let Some(give_up) = waiting.give_up {
            self.clock.cancel(give_up, Timer::GiveUp(node));
        }
        self.graph.set(node, Flag::WAITING, false);
        let mut cursor = self.graph.first_dependent(node);
        while cursor != NONE {
            self.graph.set_edge(cursor, EdgeFlag::COUNTED, false);
            cursor = self.graph.next_dependent(cursor);
        }
        if self.waiting.is_empty() {
            self.barriers.forget_proofs();
        }
    }

    /// Counts the references that block a waiting owner.
    fn count_blocking(&mut self, owner: NodeId) {
        let mut cursor = self.graph.first_dependent(owner);
        while cursor != NONE {
            self.count_edge(cursor);
            cursor = self.graph.next_dependent(cursor);
        }
    }

    /// Counts one reference for its owner, if that is in foreground deletion and the reference blocks. It must really lead to the
    /// owner; one to itself would never be released.
    pub(super) fn count_edge(&mut self, edge: EdgeId) {
        let owner = self.graph.owner(edge);
        if !self.graph.has(owner, Flag::WAITING)
            || self.graph.edge_has(edge, EdgeFlag::COUNTED)
            || !self.graph.blocks(edge)
            || self.graph.dependent(edge) == owner
            || !self.graph.matches(edge)
        {
            return;
        }
        if let Some(waiting) = self.waiting.get_mut(&owner).filter(|waiting| !waiting.orphan) {
            waiting.blocking += 1;
            self.graph.set_edge(edge, EdgeFlag::COUNTED, true);
        }
    }

    /// Counts again after discovery changed where references lead.
    pub(super) fn recount_blocking(&mut self) {
        for owner in self.waiting.keys().copied().collect::<Vec<_>>() {
            if let Some(waiting) = self.waiting.get_mut(&owner) {
                waiting.blocking = 0;
            }
            let mut cursor = self.graph.first_dependent(owner);
            while cursor != NONE {
                self.graph.set_edge(cursor, EdgeFlag::COUNTED, false);
                self.count_edge(cursor);
                cursor = self.graph.next_dependent(cursor);
            }
            self.enqueue(owner);
        }
    }

    /// Uncounts references that were removed. Call it before new ones of the same dependent are counted.
    pub(super) fn uncount(&mut self, unlinked: &[UnlinkedOwner]) {
        for lost in unlinked.iter().filter(|lost| lost.counted) {
            if let Some(waiting) = self.waiting.get_mut(&lost.owner) {
                waiting.blocking = waiting.blocking.saturating_sub(1);
            }
        }
    }

    /// Checks owners that lost a reference: waiting ones may be done, others may have no dependents left.
    pub(super) fn after_unlink(&mut self, unlinked: &[UnlinkedOwner]) {
        for lost in unlinked {
            if let Some(waiting) = self.waiting.get(&lost.owner) {
                let done = if waiting.orphan {
                    !self.has_other_dependents(lost.owner)
                } else {
                    waiting.blocking == 0
                };
                if done {
                    self.enqueue(lost.owner);
                }
            } else if self.graph.is_live(lost.owner) {
                self.release_owner(lost.owner);
            }
        }
    }

    /// Reports whether a reference of another object leads to this owner.
    fn has_other_dependents(&self, owner: NodeId) -> bool {
        self.other_dependents(owner).next().is_some()
    }

    /// Returns the references of other objects that lead to this owner.
    pub(crate) fn other_dependents(&self, owner: NodeId) -> impl Iterator<Item = EdgeId> {
        self.graph
            .dependents_of(owner)
            .filter(move |&edge| self.graph.dependent(edge) != owner && self.graph.matches(edge))
    }

    /// Reconciles a waiting owner, which may be done.
    pub(super) fn evaluate_waiting(&mut self, node: NodeId) {
        let Some(waiting) = self.waiting.get(&node) else { return };
        let (orphan, blocked) = (waiting.orphan, waiting.blocking > 0);
        if !self.is_shown_waiting(node) {
            if self.has_other_dependents(node) {
                // Its dependents come first, and a second answer comes before them.
                self.read_reported(node);
                return;
            }
            if orphan {
                // If it does not wait, it may be marked before the finalizer is removed, with dependents that are not known yet.
                let evidence = self.reported_state(node).into_iter().collect();
                let reason = Reason { verdict: Verdict::OwnerUnknown, owners: Vec::new(), evidence };
                self.want(node, Request::Read { key: self.graph.key(node) }, reason, Action::Read);
                return;
            }
        }
        if blocked {
            self.open_ring(node);
            return;
        }
        if orphan && self.has_other_dependents(node) {
            return;
        }
        // Its dependents come first (G134). The end of their requests queues it again.
        if !self.lanes.is_idle(node) {
            return;
        }
        if !self.caught_up(node) {
            return;
        }
        let Some(waiting) = self.waiting.get(&node) else { return };
        let mark = waiting.mark;
        let mut evidence = vec![Evidence::ObservedAt { resource_version: self.graph.version(node) }];
        let gaps = self.lagging_resources(node);
        if gaps.is_empty() {
            evidence.push(Evidence::CaughtUp { resource_version: mark });
        }
        self.counters.gaps_given_up += gaps.len() as u64;
        evidence.extend(gaps.into_iter().map(|resource| Evidence::GapGivenUp { resource }));
        let (finalizer, verdict) = if orphan {
            (FinalizerName::Orphan, Verdict::AllOrphaned)
        } else {
            (FinalizerName::ForegroundDeletion, Verdict::NothingBlocks)
        };
        if !orphan {
            self.finishing.insert(node);
        }
        let request =
            Request::RemoveFinalizer { key: self.graph.key(node), uid: self.graph.uid(node), finalizer };
        self.want(node, request, Reason { verdict, owners: Vec::new(), evidence }, Action::Finalizer);
    }

    /// Reports whether all objects of a resource that existed when the owner was marked have been observed. Dependents of an owner
    /// that orphans them are lost if one of them is not known, so two answers must show that none was left out: the progress of the
    /// watch is one, and each list since the mark another.
    pub(super) fn has_caught_up(
        &self,
        node: NodeId,
        waiting: &WaitingOwner,
        resource: ResourceIndex,
    ) -> bool {
        let Some(state) = self.graph.resources.get(resource) else { return true };
        if !state.served {
            return !waiting.withdrawn.contains(&resource);
        }
        if !state.info.watched {
            return true;
        }
        if self.is_listed_with(node, resource) {
            // Only the end of a list shows whether the server was restored. Until then, the version of the mark may belong to
            // another history than the progress of the other resources.
            return false;
        }
        if self.graph.namespace(node) != CLUSTER && state.info.scope == Scope::Cluster {
            // A cluster-scoped object cannot be its dependent.
            return true;
        }
        let is_reached = self.is_in_sight(resource)
            && self.is_comparable(node, resource)
            && state.progress >= waiting.mark;
        if is_reached && !waiting.orphan {
            return true;
        }
        let namespace = self.graph.namespace(node);
        let namespace = (namespace != CLUSTER).then(|| self.graph.namespace_text(namespace));
        let answers = self.barriers.covering(resource, namespace.as_deref(), waiting.mark_effect);
        let needed = if waiting.orphan { 2 } else { 1 };
        answers + usize::from(is_reached) >= needed
    }

    /// Reports whether an owner that orphans its dependents waits for a list of a resource.
    pub(super) fn needs_list(&self, node: NodeId, waiting: &WaitingOwner, resource: ResourceIndex) -> bool {
        waiting.orphan && !self.has_caught_up(node, waiting, resource)
    }

    /// Reports whether this is the owner's own resource, in the middle of a list.
    fn is_listed_with(&self, node: NodeId, resource: ResourceIndex) -> bool {
        resource == self.graph.resource(node)
            && self.graph.resources.get(resource).is_some_and(|state| state.listing)
    }

    pub(super) fn is_comparable(&self, node: NodeId, resource: ResourceIndex) -> bool {
        let comparable =
            |index| self.graph.resources.get(index).is_some_and(|state| state.info.comparable_versions);
        comparable(resource)
            && comparable(self.graph.resource(node))
            && self.waiting.get(&node).is_some_and(|waiting| waiting.mark != ResourceVersion::UNKNOWN)
    }

    /// Notes that a resource is about to be withdrawn: its objects will no longer be known, and may come back with it. Owners that
    /// wait for some of them, or did not know all of them yet, wait for the resource.
    pub(super) fn note_withdrawal(&mut self, id: ResourceId) {
        let Some(resource) = self.graph.resources.index(id) else { return };
        if self.graph.resources.get(resource).is_some_and(|state| state.definition_removed) {
            return;
        }
        let concerned = |&(&owner, waiting): &(&NodeId, &WaitingOwner)| {
            !self.has_caught_up(owner, waiting, resource)
                || self
                    .other_dependents(owner)
                    .any(|edge| self.graph.resource(self.graph.dependent(edge)) == resource)
        };
        let owners: Vec<NodeId> = self.waiting.iter().filter(concerned).map(|(&owner, _)| owner).collect();
        for owner in owners {
            if let Some(waiting) = self.waiting.get_mut(&owner)
                && waiting.withdrawn.insert(resource)
            {
                // The time that it has waited for others does not count towards this absence.
                waiting.ready_since = None;
            }
        }
    }

    /// Restarts the wait for a resource that is served again: the time of its absence does not count towards its lists, nor towards
    /// another absence.
    pub(super) fn restart_wait(&mut self, resource: ResourceIndex) {
        for waiting in self.waiting.values_mut() {
            if waiting.withdrawn.remove(&resource) {
                waiting.ready_since = None;
            }
        }
    }

    /// Handles the removal of a CustomResourceDefinition: all its objects were deleted before, so none of them comes back, and no
    /// owner waits for their resource.
    pub(super) fn definition_removed(&mut self, node: NodeId) {
        if self.is_of_definitions(self.graph.resource(node)) {
            self.release_defined(&self.graph.key(node).name);
        }
    }

    /// Handles the removal, reported by a watch, of an object that the graph does not know or that a live read did not find. If it
    /// was a definition, the same follows.
    pub(super) fn absence_confirmed(&mut self, key: &ObjectKey, resource: ResourceIndex) {
        let is_there = |node: NodeId| {
            self.graph.has(node, Flag::OBSERVED)
                && self.graph.resource(node) == resource
                && self.graph.key(node).name == key.name
        };
        if self.is_of_definitions(resource) && !self.graph.slots().any(is_there) {
            self.release_defined(&key.name);
        }
    }

    fn is_of_definitions(&self, resource: ResourceIndex) -> bool {
        self.graph.resources.get(resource).is_some_and(Resource::is_of_definitions)
    }

    /// Stops all waiting for the resources of a definition with this name.
    fn release_defined(&mut self, name: &str) {
        for resource in self.graph.resources.defined_by(name) {
            if let Some(state) = self.graph.resources.get_mut(resource) {
                state.definition_removed = true;
            }
            let mut released = Vec::new();
            for (&owner, waiting) in &mut self.waiting {
                if waiting.withdrawn.remove(&resource) {
                    released.push(owner);
                }
            }
            for owner in released {
                self.enqueue(owner);
            }
            // Removals of its objects that its watch has reported need no read, because the definition's removal confirms them.
            for node in self.graph.slots() {
                if self.graph.is_reported_gone(node) && self.graph.resource(node) == resource {
                    self.enqueue_dependents(node);
                }
            }
        }
    }

    /// Returns the resources that have not caught up with an owner's mark.
    fn lagging(&self, node: NodeId) -> Vec<ResourceIndex> {
        let Some(waiting) = self.waiting.get(&node) else { return Vec::new() };
        self.graph
            .resources
            .iter()
            .map(|(index, _)| index)
            .filter(|&index| !self.has_caught_up(node, waiting, index))
            .collect()
    }

    /// Returns the resources that have not caught up with an owner's mark, by number.
    pub(crate) fn lagging_resources(&self, node: NodeId) -> Vec<ResourceId> {
        self.lagging(node).into_iter().map(|index| self.graph.resource_id(index)).collect()
    }

    /// reports whether all objects that existed when the owner was marked have been observed, or the wait for resources that
    /// cannot catch up is over. Otherwise asks the lagging ones to catch up; their progress queues the owner again.
    fn caught_up(&mut self, node: NodeId) -> bool {
        let (now, lagging) = (self.clock.now(), self.lagging(node));
        let Some(&first) = lagging.first() else { return true };
        let state = |resource: ResourceIndex| self.graph.resources.get(resource);
        let is_withdrawn = lagging.iter().any(|&resource| state(resource).is_some_and(|state| !state.served));
        // A resource that is not served cannot be listed, and one that is being listed need not be.
        let listable = |&resource: &ResourceIndex| {
            state(resource).is_some_and(|state| state.served && !self.is_listed_with(node, resource))
        };
        let lagging: Vec<ResourceIndex> = lagging.into_iter().filter(listable).collect();
        let Some(waiting) = self.waiting.get_mut(&node) else { return true };
        if waiting.ready_since.is_none() {
            self.barriers.wait_began(now);
        }
        let ready_since = *waiting.ready_since.get_or_insert(now);
        // Dependents of an owner that orphans them outlive it: they would be deleted when their resource comes back.
        let longest = if waiting.orphan && is_withdrawn {
            self.config.withdrawn_wait_milliseconds
        } else {
            self.config.gap_wait_milliseconds
        };
        let give_up = ready_since.after(longest);
        if now >= give_up {
            return true;
        }
        if let Some(former) = waiting.give_up.replace(give_up) {
            self.clock.cancel(former, Timer::GiveUp(node));
        }
        let mark = waiting.mark;
        if let Some(former) = waiting.held_by.replace(first) {
            self.barriers.free(former, mark, node);
        }
        self.barriers.hold(first, mark, node);
        self.clock.set(give_up, Timer::GiveUp(node));
        for resource in lagging {
            self.barriers.ask(resource, &self.config, &mut self.clock);
        }
        false
    }

    /// Voids earlier barriers because history went backwards; waiting owners request new ones.
    pub(super) fn doubt_marks(&mut self) {
        let next_effect = self.effects.next_number();
        for waiting in self.waiting.values_mut() {
            waiting.mark_effect = next_effect;
        }
        for node in self.waiting.keys().copied().collect::<Vec<_>>() {
            self.enqueue(node);
        }
    }

    /// Voids earlier proofs for owners of a resource that was listed again: their marks may belong to another history.
    pub(super) fn doubt_marks_of(&mut self, resource: ResourceIndex) {
        let next_effect = self.effects.next_number();
        let is_of = |owner: &NodeId| self.graph.resource(*owner) == resource;
        for owner in self.waiting.keys().copied().filter(is_of).collect::<Vec<_>>() {
            let mark = self.graph.version(owner);
            let Some(waiting) = self.waiting.get_mut(&owner) else { continue };
            let former = std::mem::replace(&mut waiting.mark, mark);
            waiting.mark_effect = next_effect;
            if let Some(held_by) = waiting.held_by.take() {
                self.barriers.free(held_by, former, owner);
            }
            self.enqueue(owner);
        }
    }

    /// Queues owners that a resource blocks: all of them, or those whose mark it has reached.
    pub(super) fn wake_held(&mut self, resource: ResourceIndex, reached: Option<ResourceVersion>) {
        while let Some(node) = self.barriers.free_next(resource, reached) {
            if let Some(waiting) = self.waiting.get_mut(&node) {
                waiting.held_by = None;
            }
            self.enqueue(node);
        }
    }

    /// Records that all changes of a resource up to a version have been observed.
    pub(super) fn progressed(&mut self, resource: ResourceIndex, version: ResourceVersion) {
        let Some(state) = self.graph.resources.get_mut(resource) else { return };
        state.delivered = state.delivered.max(version);
        if version > state.progress {
            state.progress = version;
            if !self.barriers.holds_none() {
                self.wake_held(resource, Some(version));
            }
        }
    }
}
