//! Owners that have not been observed where a reference claims them to be: one live read per claim, shared by every dependent that
//! makes it; owners that exist but never arrive on a watch are read again with growing delays.

use std::sync::Arc;

use gc_types::{Evidence, ObjectKey, ObservedObject, Outcome, Reason, Request, Timestamp, Uid, Verdict};

use super::Engine;
use super::absent::Claim;
use super::effects::{Context, HeldLanes, PendingEffect};
use super::identity::Identity;
use super::observe::Source;
use super::verifications::{Finding, Verification};
use crate::graph::{CLUSTER, EdgeId, Flag, Graph, NONE, NodeId, ResourceIndex, Target};

/// Number of live reads that must find an owner absent if all objects of its kind vanished in one list.
const READS_OF_VANISHED: u32 = 2;

impl Engine {
    /// Returns the state of the claim that a reference makes; the first call starts the live read.
    pub(super) fn verification(&mut self, edge: EdgeId, resource: ResourceIndex) -> &Verification {
        let identity = self.identity(edge, resource);
        let (graph, owner) = (&self.graph, identity.owner);
        let is_known = graph.is_reported_gone(owner) || graph.has(owner, Flag::WAITING);
        // The watch has reported what a read is to confirm, and nothing better will arrive.
        let is_reported = is_known && self.is_in_sight(graph.resource(owner));
        let patience = if is_reported { 0 } else { self.config.verify_patience_milliseconds };
        let claim = |identity: &Identity| claim(graph, identity);
        self.verifications.begin(identity, claim, patience, &mut self.clock)
    }

    /// Handles a report from the watch of an owner that a second answer has to confirm. Its dependents are decided on then; only
    /// those that claim it to be elsewhere are decided immediately.
    pub(super) fn confirm_report(&mut self, owner: NodeId) {
        if !self.is_in_sight(self.graph.resource(owner)) || self.is_definition_removed(owner) {
            self.enqueue_dependents(owner);
            return;
        }
        let mut cursor = self.graph.first_dependent(owner);
        while cursor != NONE {
            if !self.graph.matches(cursor) {
                self.enqueue(self.graph.dependent(cursor));
            }
            cursor = self.graph.next_dependent(cursor);
        }
        self.read_reported(owner);
    }

    /// Reads an owner after a report from its watch, once for all dependents; not while the response to our DELETE of it is still
    /// to come, which serves as well, and not if neither it nor any dependent is of our shard.
    pub(super) fn read_reported(&mut self, owner: NodeId) {
        let is_ours = self.acts_on(owner);
        if !is_ours && self.graph.namespace(owner) != CLUSTER {
            return;
        }
        let concerns_us = |edge: &EdgeId| is_ours || self.acts_on(self.graph.dependent(*edge));
        let claimed = self.other_dependents(owner).find(concerns_us);
        if let Some(edge) = claimed.filter(|_| !self.is_being_deleted(owner)) {
            self.verification(edge, self.graph.resource(owner));
        }
    }

    /// Returns the state of such a claim, without starting anything.
    pub(super) fn known_verification(&self, edge: EdgeId, resource: ResourceIndex) -> Option<&Verification> {
        self.verifications.get(&self.identity(edge, resource))
    }

    fn identity(&self, edge: EdgeId, resource: ResourceIndex) -> Identity {
        let dependent = self.graph.dependent(edge);
        let namespace = if self.graph.resources.is_namespaced(resource) {
            self.graph.namespace_text(self.graph.namespace(dependent))
        } else {
            Arc::from("")
        };
        let name = self.graph.edge_name(edge).into();
        Identity { owner: self.graph.owner(edge), resource, namespace, name }
    }

    fn makes_claim(&self, edge: EdgeId, identity: &Identity) -> bool {
        match self.graph.target(edge) {
            Target::Place(resource, namespace) => {
                resource == identity.resource
                    && self.graph.edge_name(edge) == &*identity.name
                    && *self.graph.namespace_text(namespace) == *identity.namespace
            }
            Target::UnknownKind | Target::InvalidScope => false,
        }
    }

    /// Sends the due live read, if the claim still exists and the owner was not observed there in the meantime.
    pub(super) fn read_owner(&mut self, identity: Identity) {
        let used = self
            .graph
            .dependents_of(identity.owner)
            .any(|edge| self.makes_claim(edge, &identity) && self.present_class(edge).is_none());
        if !used {
            self.verifications.drop_due(&identity);
            // The observation in the meantime answers the remaining claims.
            self.enqueue_claimants(&identity);
            return;
        }
        self.verifications.sent(&identity);
        let uid = self.graph.uid(identity.owner);
        let key = ObjectKey {
            resource: self.graph.resource_id(identity.resource),
            namespace: identity.namespace.clone(),
            name: identity.name.clone(),
        };
        let owners = self
            .graph
            .dependents_of(identity.owner)
            .find(|&edge| self.makes_claim(edge, &identity))
            .map(|edge| self.graph.coordinates(edge));
        self.effects.decide(PendingEffect {
            request: Request::Read { key },
            reason: Reason {
                verdict: Verdict::OwnerUnknown,
                owners: owners.into_iter().collect(),
                evidence: self.reported_state(identity.owner).into_iter().collect(),
            },
            context: Context::OwnerRead(identity, uid),
            lanes: HeldLanes::new(),
        });
    }

    /// Returns the watch's report about an owner, if a live read has to confirm it.
    pub(super) fn reported_state(&self, owner: NodeId) -> Option<Evidence> {
        let (uid, resource_version) = (self.graph.uid(owner), self.graph.version(owner));
        if self.graph.is_reported_gone(owner) {
            return Some(Evidence::RemovalSeen { owner: uid, resource_version });
        }
        Some(if self.waiting.get(&owner)?.orphan {
            Evidence::Orphaning { owner: uid, resource_version }
        } else {
            Evidence::Waiting { owner: uid, resource_version }
        })
    }

    /// Takes the answer to a live read.
    pub(super) fn owner_read(&mut self, identity: &Identity, uid: &Uid, outcome: Outcome) {
        if self.graph.find(uid) != Some(identity.owner) {
            return;
        }
        let state = self.graph.resources.get(identity.resource);
        let needed =
            if state.is_some_and(|state| state.vanished_at.is_some()) { READS_OF_VANISHED } else { 1 };
        let outcome = self.unless_crossed(outcome, identity.resource);
        if let Outcome::Found(object) = &outcome
            && object.uid == *uid
        {
            self.waiting_confirmed(identity, object);
            self.missed_owner_found(identity, object);
        }
        let answer = (uid, outcome);
        if self.verifications.answered(identity, answer, needed, &self.config, &mut self.clock) {
            self.removal_confirmed(identity);
            self.enqueue_claimants(identity);
        }
    }

    /// Reports whether a claim is about the place where the working watch of its resource has last shown the owner.
    fn is_where_shown(&self, identity: &Identity) -> bool {
        let owner = identity.owner;
        self.graph.resource(owner) == identity.resource
            && self.graph.name(owner) == &*identity.name
            && self.graph.namespace_text(self.graph.namespace(owner)) == identity.namespace
            && self.is_in_sight(identity.resource)
    }

    /// Handles a live read that found an owner. If that waits for its dependents, as its watch says, nothing more is read.
    fn waiting_confirmed(&mut self, identity: &Identity, object: &ObservedObject) {
        if self.is_where_shown(identity) {
            self.shown(identity.owner, object);
            let is_shown = self.waiting.get(&identity.owner).is_some_and(|waiting| waiting.is_shown);
            // Owners that only a stale list has shown are still decided by the result of the read.
            if is_shown && !self.graph.resources.is_behind(identity.resource) {
                self.verifications.forget(identity, &mut self.clock);
                self.enqueue_claimants(identity);
            }
        }
    }

    /// Handles a live read that found an owner which waits for us, and which the watch of its resource should have shown: no event would
    /// ever show it, and it would wait for ever. So it counts as shown, and is read once more, because its removal may have been
    /// delivered while this read was in flight. Owners that live are read again from time to time instead: that watch may miss their
    /// removal as well.
    fn missed_owner_found(&mut self, identity: &Identity, object: &ObservedObject) {
        let state = self.graph.resources.get(identity.resource);
        let should_be_known = object.key.resource == self.graph.resource_id(identity.resource)
            && state.is_some_and(|state| state.synced && state.should_have_shown(object.resource_version));
        if object.deletion.waits_for_dependents()
            && should_be_known
            && !self.graph.has(identity.owner, Flag::OBSERVED)
        {
            self.observed(object, Source::Answer);
            self.reread(identity.owner);
        }
    }

    /// Handles live reads that found no owner. If its watch says the same, nothing more is read.
    fn removal_confirmed(&mut self, identity: &Identity) {
        let is_absent = self
            .verifications
            .get(identity)
            .is_some_and(|claim| matches!(claim.finding, Finding::Absent { .. }));
        if is_absent && self.graph.is_reported_gone(identity.owner) && self.is_where_shown(identity) {
            self.graph.confirm_gone(identity.owner);
            self.verifications.forget(identity, &mut self.clock);
        }
    }

    /// Treats a response that shows an object known under another resource as the response to another request.
    pub(super) fn unless_crossed(&self, outcome: Outcome, resource: ResourceIndex) -> Outcome {
        let Outcome::Found(object) = &outcome else { return outcome };
        let is_crossed = self.graph.find(&object.uid).is_some_and(|node| {
            self.graph.has(node, Flag::OBSERVED)
                && self.graph.resource(node) != resource
                && !self.views.contains_key(&node)
        });
        if !is_crossed {
            return outcome;
        }
        let message = "the answer is about an object of another resource".to_owned();
        Outcome::Failed { message, retry_after_milliseconds: None }
    }

    pub(super) fn enqueue_claimants(&mut self, identity: &Identity) {
        let mut cursor = self.graph.first_dependent(identity.owner);
        while cursor != NONE {
            if self.makes_claim(cursor, identity) {
                self.enqueue(self.graph.dependent(cursor));
            }
            cursor = self.graph.next_dependent(cursor);
        }
    }

    /// Ends the live reads for claims about the place at which the owner was observed, and returns the claim if there was one.
    pub(super) fn claims_confirmed(&mut self, owner: NodeId) -> Option<Identity> {
        if self.verifications.remembers_absent() {
            self.verifications.forget_absent(&self.graph.uid(owner));
        }
        if self.verifications.is_empty() {
            return None;
        }
        let identity = Identity {
            owner,
            resource: self.graph.resource(owner),
            namespace: self.graph.namespace_text(self.graph.namespace(owner)),
            name: self.graph.name(owner).into(),
        };
        self.verifications.forget(&identity, &mut self.clock).then_some(identity)
    }

    /// Forgets an owner that does not exist and has no dependents left; the proof of its absence is remembered.
    pub(super) fn release_owner(&mut self, owner: NodeId) {
        if self.graph.has_dependents(owner) {
            return;
        }
        self.release_claims(owner);
        if self.graph.has(owner, Flag::GONE) && !self.graph.is_reported_gone(owner) {
            let key = self.graph.key(owner);
            let claim = Claim {
                uid: self.graph.uid(owner),
                resource: key.resource,
                namespace: key.namespace,
                name: key.name,
            };
            self.verifications.remember_absent(claim, self.clock.now());
        }
        self.prune(owner);
    }

    pub(super) fn release_claims(&mut self, owner: NodeId) {
        if self.verifications.is_empty() {
            return;
        }
        while let Some((identity, verification)) = self.verifications.of_owner(owner) {
            let identity = identity.clone();
            if let Finding::Absent { at } = verification.finding {
                let claim = claim(&self.graph, &identity);
                self.verifications.remember_absent(claim, at);
            }
            self.verifications.forget(&identity, &mut self.clock);
        }
    }

    /// Voids all proofs of absence because history went backwards, so that every claim is verified again.
    pub(super) fn doubt_absence(&mut self) {
        // Items that waited for a live read have to request it again, even if the owner is known at another place.
        for identity in self.verifications.doubt(&mut self.clock) {
            self.enqueue_claimants(&identity);
        }
        for owner in self.graph.slots() {
            if self.graph.has(owner, Flag::GONE) {
                self.graph.forget_place(owner);
                self.enqueue_dependents(owner);
            }
        }
        for owner in self.graph.slots().filter(|&owner| self.graph.is_live(owner)).collect::<Vec<_>>() {
            if !self.graph.has(owner, Flag::OBSERVED) {
                self.enqueue_dependents(owner);
            }
        }
    }

    /// Returns the evidence for a claim that was proven false.
    pub(super) fn absence(&self, owner: NodeId, at: Timestamp) -> Evidence {
        Evidence::ReadAbsent { owner: self.graph.uid(owner), at }
    }
}

fn claim(graph: &Graph, identity: &Identity) -> Claim {
    Claim {
        uid: graph.uid(identity.owner),
        resource: graph.resource_id(identity.resource),
        namespace: identity.namespace.clone(),
        name: identity.name.clone(),
    }
}
