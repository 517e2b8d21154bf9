//! Observations, which update the graph and queue the items that they concern.

use gc_types::{ObjectKey, ObservedObject, ResourceId, ResourceInfo, ResourceVersion, Uid};

use super::Engine;
use super::clock::Timer;
use crate::graph::{Departure, EdgeId, Flag, NONE, NodeId, ResourceIndex};

/// Source of an object's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A watch.
    Watch,
    /// A list, which is authoritative, whatever was known before.
    List,
    /// The response to one of our requests.
    Answer,
    /// The response to a read that shows an older version than a watch had delivered before it was sent: the server has never had
    /// that version, or was restored.
    Correction,
}

impl Source {
    fn is_answer(self) -> bool {
        matches!(self, Self::Answer | Self::Correction)
    }
}

impl Engine {
    // ---- discovery ----

    pub(super) fn resource_served(&mut self, info: ResourceInfo) {
        let returns = self.graph.resources.withdrawn(&info);
        let withdrawn_at = returns.and_then(|resource| self.graph.resources.get(resource)?.withdrawn_at);
        self.graph.resources.serve(info);
        if let Some(resource) = returns {
            if let Some(at) = withdrawn_at {
                let due = at.after(self.config.withdrawn_wait_milliseconds);
                self.clock.cancel(due, Timer::Withdrawn(resource));
            }
            // Owners that wait for its objects get them with its first list, and may have to wait for a second one.
            self.restart_wait(resource);
            self.wake_held(resource, None);
        }
        self.kinds_changed();
    }

    pub(super) fn resource_gone(&mut self, id: ResourceId) {
        self.note_withdrawal(id);
        let Some(resource) = self.graph.resources.withdraw(id) else { return };
        let now = self.clock.now();
        if let Some(state) = self.graph.resources.get_mut(resource) {
            state.withdrawn_at = Some(now);
        }
        if !self.graph.resources.has_definitions() {
            let due = now.after(self.config.withdrawn_wait_milliseconds);
            self.clock.set(due, Timer::Withdrawn(resource));
        }
        for node in self.graph.slots() {
            if self.graph.has(node, Flag::OBSERVED)
                && self.graph.resource(node) == resource
                && !self.is_seen_elsewhere(node)
            {
                self.depart(node, Departure::Unproven);
            }
        }
        // Proofs about it may not hold when it is served again.
        self.barriers.void(resource, self.effects.next_number());
        self.wake_held(resource, None);
        self.kinds_changed();
        self.wake_awaiting(resource);
    }

    /// Decides about dependents of owners whose removal a watch had reported before discovery ceased to contain their kind.
    pub(super) fn kind_counts_as_removed(&mut self, resource: ResourceIndex) {
        if self.graph.resources.get(resource).is_none_or(|state| state.served) {
            return;
        }
        for owner in self.reported_gone_of(resource).collect::<Vec<_>>() {
            self.enqueue_dependents(owner);
        }
    }

    /// Returns the objects of a resource whose removal was reported and not confirmed.
    pub(super) fn reported_gone_of(&self, resource: ResourceIndex) -> impl Iterator<Item = NodeId> {
        let is_of =
            move |&node: &NodeId| self.graph.resource(node) == resource && self.graph.is_reported_gone(node);
        self.graph.slots().filter(is_of)
    }

    /// Resolves references again after a change of kinds: they may lead elsewhere now, and those of unknown kind have waited for
    /// this.
    fn kinds_changed(&mut self) {
        if !self.graph.resolve_kinds() {
            return;
        }
        self.recount_blocking();
        for node in self.graph.slots() {
            if self.needs_turn(node) {
                self.enqueue(node);
            }
        }
    }

    // ---- lists ----

    pub(super) fn list_started(&mut self, id: ResourceId) {
        let Some(resource) = self.graph.resources.index(id) else { return };
        self.lose_sight(resource);
        let Some(state) = self.graph.resources.get_mut(resource).filter(|state| state.served) else { return };
        state.confirmed = false;
        if !state.listing {
            state.listing = true;
            state.parity = !state.parity;
            return;
        }
        // The previous list was interrupted, so no object counts as seen yet.
        let unseen = !state.parity;
        for node in self.graph.slots() {
            if self.graph.has(node, Flag::OBSERVED) && self.graph.resource(node) == resource {
                self.graph.set(node, Flag::PARITY, unseen);
            }
        }
    }

    pub(super) fn synced(&mut self, id: ResourceId, version: ResourceVersion) {
        let Some(resource) = self.graph.resources.index(id) else { return };
        let Some(state) = self.graph.resources.get_mut(resource).filter(|state| state.served) else { return };
        let (was_listing, parity, newest) =
            (state.listing, state.parity, state.delivered.max(state.answered));
        let is_again = was_listing && state.ever_synced;
        state.listing = false;
        state.synced = true;
        state.ever_synced = true;
        if was_listing {
            state.listed = version;
        }
        let comparable = state.info.comparable_versions && version != ResourceVersion::UNKNOWN;
        if was_listing {
            self.missed(resource, parity);
        }
        if comparable && version < newest {
            self.graph.resources.went_back(resource, newest);
            self.history_went_back();
        }
        if comparable {
            self.progressed(resource, version);
        }
        if is_again {
            self.doubt_marks_of(resource);
        }
        if was_listing {
            // Owners that this list has shown wait for its end.
            self.wake_held(resource, None);
        }
        self.wake_awaiting(resource);
    }

    /// Handles a list that is older than an earlier delivery: the server was restored from a backup, or its cache is stale.
    /// Everything that was proven by that history must be proven again: absence by live reads, progress by new lists, changes and
    /// barriers. Each resource detects this from its own lists (`delivered` stays), because each may have been served by another
    /// server.
    fn history_went_back(&mut self) {
        for state in self.graph.resources.iter_mut().filter(|state| state.info.comparable_versions) {
            state.progress = ResourceVersion::UNKNOWN;
        }
        self.barriers.forget_proofs();
        self.doubt_marks();
        self.doubt_absence();
    }

    pub(super) fn stale(&mut self, id: ResourceId) {
        if let Some(resource) = self.graph.resources.index(id) {
            self.lose_sight(resource);
        }
    }

    pub(super) fn progress(&mut self, id: ResourceId, version: ResourceVersion) {
        if let Some(resource) = self.graph.resources.index(id) {
            self.delivered(resource, version);
        }
    }

    // ---- objects ----

    /// Takes an object in the list of a barrier. It matters only for owners that wait, and only if the watch is behind: an unknown
    /// object that the watch has delivered has been removed since. One that only the list of the watch could have shown may have
    /// been left out of it, so it is read. So is a known one that is shown otherwise in the version that is known: one of the two
    /// is false.
    pub(super) fn found(&mut self, object: &ObservedObject) {
        let known = self.graph.find(&object.uid).filter(|&node| self.graph.has(node, Flag::OBSERVED));
        if let Some(node) = known.filter(|&node| self.contradicts_known(node, object)) {
            self.reread(node);
            return;
        }
        let mut overtaken = false;
        if known.is_none() {
            let Some(state) = self
                .graph
                .resources
                .index(object.key.resource)
                .and_then(|index| self.graph.resources.get(index))
            else {
                return;
            };
            let was_delivered = state.info.comparable_versions && state.progress >= object.resource_version;
            let awaiting = |orphan: bool| {
                object.owners.iter().any(|owner| {
                    let owner = self.graph.find(&owner.coordinates.uid);
                    let waiting = owner.and_then(|owner| self.waiting.get(&owner));
                    waiting.is_some_and(|waiting| waiting.orphan || !orphan)
                })
            };
            // With a request in flight, the object was known, and its removal was delivered after the list was made. If an owner
            // orphans it, what the watch claims to have delivered does not count, because the list was made to check that.
            let was_left_out = !object.owners.is_empty()
                && self.effects.asked(&object.uid).is_none()
                && (state.should_have_listed(object.resource_version) || was_delivered && awaiting(true));
            if (was_delivered || !awaiting(false)) && !was_left_out {
                return;
            }
            // Since history went backwards, earlier deliveries no longer count; but if this history has already reported the
            // object's removal, nothing will report it again. Without comparable versions, that cannot be known.
            overtaken =
                was_left_out || !state.info.comparable_versions || state.delivered >= object.resource_version;
        }
        self.observed(object, Source::Answer);
        if overtaken && let Some(node) = self.graph.find(&object.uid) {
            self.reread(node);
        }
    }

    pub(super) fn observed(&mut self, object: &ObservedObject, source: Source) {
        let Some(resource) = self.graph.resources.index(object.key.resource) else { return };
        let Some(state) = self.graph.resources.get_mut(resource) else { return };
        if !state.served {
            return;
        }
        if source.is_answer() {
            state.answered = state.answered.max(object.resource_version);
        }
        let (listing, parity) = (state.listing, state.parity);
        let version = object.resource_version;
        let known = self.graph.find(&object.uid).filter(|&node| self.graph.has(node, Flag::OBSERVED));
        let source = if listing && source == Source::Watch { Source::List } else { source };
        let (mut other_view, mut contradicts) = (false, false);
        if let Some(node) = known {
            let at = self.graph.resource(node);
            // An object is known only where its resource is served.
            other_view = at != resource;
            if other_view && !source.is_answer() {
                self.seen_in_view(node, resource);
            } else if !source.is_answer() {
                if self.graph.has(node, Flag::PARITY) != parity
                    && let Some(state) = self.graph.resources.get_mut(resource)
                {
                    state.confirmed = true;
                }
                self.graph.set(node, Flag::PARITY, parity);
            }
            let present = self.graph.version(node);
            let known_versions = version != ResourceVersion::UNKNOWN && present != ResourceVersion::UNKNOWN;
            // One of our responses overtook the watch, or was overtaken by it. A list is authoritative: after a restored backup,
            // its lower versions are right. A list made to catch up is not. (Versions of one object can be compared even if those
            // of different resources cannot.)
            let older =
                known_versions && version < present && matches!(source, Source::Watch | Source::Answer);
            let relisted = source == Source::List && self.graph.has(node, Flag::GRANTED);
            // The same version has another meaning after a restored backup, which a list shows, or if the watch has shown a version
            // that the server never had: then a read decides.
            let is_same = known_versions && version == present;
            let differs = (source == Source::List || !other_view) && self.contradicts_known(node, object);
            contradicts = differs && source == Source::Watch;
            if older || (is_same && !relisted && !differs) {
                if source == Source::Watch && !older {
                    self.delivered(resource, version);
                }
                if source == Source::Answer && !other_view {
                    self.shown(node, object);
                    let hidden = if older { self.hidden_orphaning_owners(node, object) } else { Vec::new() };
                    if !hidden.is_empty() {
                        let known = self.graph.edges_of(node).map(|edge| self.graph.reference(edge));
                        let owners = known.chain(hidden).collect();
                        self.absorb_doubted(node, object, (resource, parity != listing), (owners, source));
                    }
                }
                return;
            }
            let dropped = if !other_view && !source.is_answer() {
                self.dropped_orphaning_owners(node, object)
            } else {
                Vec::new()
            };
            if !dropped.is_empty() {
                let owners = object.owners.iter().cloned().chain(dropped).collect();
                self.absorb_doubted(node, object, (resource, parity), (owners, source));
                if source == Source::Watch {
                    self.delivered(resource, version);
                }
                return;
            }
        }
        // An object that only one of our responses has shown must still appear in the list in progress, or be proven gone by it.
        let seen = parity != (listing && source.is_answer());
        self.absorb(object, resource, known.filter(|_| other_view), seen, source);
        if let Some(node) = known.filter(|_| contradicts) {
            self.reread(node);
        }
        if source == Source::Watch && !other_view {
            self.delivered(resource, version);
        }
    }

    /// Reports whether an object is shown otherwise than it is known, in the same version.
    fn contradicts_known(&self, node: NodeId, object: &ObservedObject) -> bool {
        object.resource_version != ResourceVersion::UNKNOWN
            && self.graph.version(node) == object.resource_version
            && (self.graph.deletion(node) != object.deletion
                || !self.graph.owners_equal(node, &object.owners))
    }

    pub(super) fn absorb(
        &mut self,
        object: &ObservedObject,
        resource: ResourceIndex,
        other_view: Option<NodeId>,
        seen: bool,
        source: Source,
    ) {
        let (node, placed) = match other_view {
            Some(node) => (node, false),
            None => self.graph.place(&object.uid, &object.key, resource),
        };
        if placed {
            self.graph.set(node, Flag::PARITY, seen);
            self.graph.set(node, Flag::IN_FLIGHT, self.effects.asked(&object.uid).is_some());
        }
        let former = self.graph.deletion(node);
        let new_version = self.graph.version(node) != object.resource_version;
        self.graph.set_state(node, object.resource_version, object.deletion);
        self.graph.set_recreator(node, object.recreator.as_ref());
        let owners_changed = !self.graph.owners_equal(node, &object.owners);
        let mut unlinked = Vec::new();
        if owners_changed {
            unlinked = self.graph.set_owners(node, &object.owners);
            self.uncount(&unlinked);
        }
        if owners_changed || placed {
            let edges: Vec<EdgeId> = self.graph.edges_of(node).collect();
            for edge in edges {
                self.count_edge(edge);
            }
        }
        if placed {
            self.claims_confirmed(node);
            self.first_seen(node);
        }
        self.after_unlink(&unlinked);
        if new_version {
            // The observation includes the applied change, whatever its source: the watch will deliver nothing newer.
            self.graph.set(node, Flag::GRANTED, false);
        }
        if new_version || source == Source::List {
            self.ended.remove(&node);
        }
        // After a removal with an unknown outcome, only a read shows whether the finalizer is gone.
        let finishing = self.finishing.contains(&node) && !self.graph.has(node, Flag::IN_FLIGHT);
        if (new_version && source == Source::Watch) || source == Source::List {
            self.graph.set(node, Flag::GRANTED, false);
            self.graph.set(node, Flag::UNCLEAR, finishing);
            self.graph.set(node, Flag::FRESH, false);
        } else if new_version && finishing && object.deletion.foreground {
            // A barrier shows it again after a restored backup; later reports of this version are not new.
            self.graph.set(node, Flag::UNCLEAR, true);
        }
        let deletion_changed = former != object.deletion;
        let was_orphaning = former.deleting && former.orphan;
        if deletion_changed || placed {
            if placed {
                self.end_waiting(node);
            }
            if deletion_changed {
                // Earlier results of reads say nothing about it, and dependents that waited for one may need another.
                if let Some(claim) = self.claims_confirmed(node) {
                    self.enqueue_claimants(&claim);
                }
            }
            self.update_waiting(node, source.is_answer() && other_view.is_none());
            if was_orphaning != (object.deletion.deleting && object.deletion.orphan) {
                self.enqueue_dependents(node);
            }
        }
        match source {
            Source::Answer | Source::Correction if other_view.is_none() => self.shown(node, object),
            Source::List => self.doubt_waiting(node),
            _ => {}
        }
        if owners_changed || deletion_changed || placed || new_version || source == Source::List {
            if owners_changed || deletion_changed {
                self.retries.retry_now(node, &mut self.clock);
            }
            if self.needs_turn(node) {
                self.enqueue(node);
            } else {
                // Nothing is left to do, so earlier failures do not matter.
                self.retries.forget(node, &mut self.clock);
            }
        }
    }

    /// Reports whether there may be something to do: not if it waits for nothing and all its owners are certainly living.
    fn needs_turn(&self, node: NodeId) -> bool {
        self.graph.has(node, Flag::WAITING)
            || self.graph.edges_of(node).any(|edge| {
                let owner = self.graph.owner(edge);
                !self.graph.has(owner, Flag::OBSERVED)
                    || self.graph.has(owner, Flag::DELETING)
                    || !self.graph.matches(edge)
            })
    }

    /// Handles an owner that was referred to before it was observed (3.1): queues references that meant another object, or that
    /// wait for it.
    fn first_seen(&mut self, owner: NodeId) {
        let mut cursor = self.graph.first_dependent(owner);
        while cursor != NONE {
            self.count_edge(cursor);
            let dependent = self.graph.dependent(cursor);
            if self.graph.has_several_references(dependent) || !self.graph.matches(cursor) {
                self.enqueue(dependent);
            }
            cursor = self.graph.next_dependent(cursor);
        }
    }

    pub(super) fn removed(&mut self, key: &ObjectKey, uid: &Uid, version: ResourceVersion) {
        let Some(resource) = self.graph.resources.index(key.resource) else { return };
        let found = self.graph.find(uid);
        if found.is_none_or(|node| self.graph.has(node, Flag::GONE)) && self.is_news(resource, version) {
            self.absence_confirmed(key, resource);
        }
        if let Some(node) = found {
            if self.graph.has(node, Flag::OBSERVED) {
                self.removal_seen(node, (key, resource), version);
            } else if !self.graph.has(node, Flag::GONE) && self.is_news(resource, version) {
                // First observed by its removal.
                self.graph.place(uid, key, resource);
                self.claims_confirmed(node);
                self.depart(node, Departure::Reported(version));
            }
        }
        self.delivered(resource, version);
    }

    /// Reports whether a watch delivers this version for the first time: a repeated one may be out of date.
    fn is_news(&self, resource: ResourceIndex, version: ResourceVersion) -> bool {
        let state = self.graph.resources.get(resource);
        state.is_none_or(|state| !state.info.comparable_versions || version > state.delivered)
    }

    /// Records that the watch of a resource has delivered every change up to a version, if it is known to deliver them all.
    fn delivered(&mut self, resource: ResourceIndex, version: ResourceVersion) {
        if self
            .graph
            .resources
            .get(resource)
            .is_some_and(|state| state.synced && state.info.comparable_versions)
        {
            self.progressed(resource, version);
        }
    }

    /// Removes an object that no longer exists.
    pub(super) fn depart(&mut self, node: NodeId, how: Departure) {
        if matches!(how, Departure::Removed(_) | Departure::Reported(_)) {
            self.definition_removed(node);
        }
        self.end_waiting(node);
        self.retries.forget(node, &mut self.clock);
        self.views.remove(&node);
        self.ended.remove(&node);
        self.rereads.remove(&node);
        let unlinked = self.graph.depart(node, how);
        self.uncount(&unlinked);
        self.after_unlink(&unlinked);
        // An object that owned itself may be gone with its own reference.
        if !self.graph.is_live(node) {
            return;
        }
        if !self.graph.has_dependents(node) {
            self.release_claims(node);
            self.prune(node);
        } else if self.graph.is_reported_gone(node) {
            self.confirm_report(node);
        } else {
            self.enqueue_dependents(node);
        }
    }

    /// Forgets a node that does not exist and has no dependents. Its slot in the queue stays empty.
    pub(super) fn prune(&mut self, node: NodeId) {
        let queued = self.graph.has(node, Flag::QUEUED);
        if self.graph.prune(node) && queued {
            self.lanes.vacated();
            if self.lanes.has_many_vacancies() {
                self.close_ranks();
            }
        }
    }

    /// Removes the empty slots from the queue.
    fn close_ranks(&mut self) {
        let graph = &mut self.graph;
        let mut kept = Vec::new();
        // The number of a removed node may be reused: the first slot is the one that counts.
        let idle = self.lanes.retain(|node| {
            let queued = graph.has(node, Flag::QUEUED);
            if queued {
                graph.set(node, Flag::QUEUED, false);
                kept.push(node);
            }
            queued
        });
        for node in kept {
            self.graph.set(node, Flag::QUEUED, true);
        }
        for lane in idle {
            self.lane_drained(lane);
        }
    }
}
