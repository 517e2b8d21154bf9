//! Owners that have not been observed where a reference claims them to be: one live read per claim, shared by every
//! dependent that makes it; owners that live but never arrive on a watch are read again with growing delays.

use std::sync::Arc;

use gc_types::{Evidence, ObjectKey, Outcome, Reason, Request, Timestamp, Uid, Verdict};

use super::Engine;
use super::absent::Claim;
use super::effects::{Context, HeldLanes, PendingEffect};
use super::identity::Identity;
use super::verifications::{Finding, Verification};
use crate::graph::{EdgeId, Flag, Graph, NONE, NodeId, ResourceIndex, Target};

/// Number of live reads that must find an owner absent of whose kind every object vanished in one list.
const READS_OF_VANISHED: u32 = 2;

impl Engine {
    /// The state of the claim that a reference makes; the first call starts the live read.
    pub(super) fn verification(&mut self, edge: EdgeId, resource: ResourceIndex) -> &Verification {
        let identity = self.identity(edge, resource);
        let graph = &self.graph;
        let claim = |identity: &Identity| claim(graph, identity);
        self.verifications.begin(identity, claim, &self.config, &mut self.clock)
    }

    /// The state of that claim, without starting anything.
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
                evidence: Vec::new(),
            },
            context: Context::OwnerRead(identity, uid),
            lanes: HeldLanes::new(),
        });
    }

    /// The answer to a live read.
    pub(super) fn owner_read(&mut self, identity: &Identity, uid: &Uid, outcome: Outcome) {
        if self.graph.find(uid) != Some(identity.owner) {
            return;
        }
        let state = self.graph.resources.get(identity.resource);
        let needed =
            if state.is_some_and(|state| state.vanished_at.is_some()) { READS_OF_VANISHED } else { 1 };
        let outcome = self.unless_crossed(outcome, identity.resource);
        let answer = (uid, outcome);
        if self.verifications.answered(identity, answer, needed, &self.config, &mut self.clock) {
            self.enqueue_claimants(identity);
        }
    }

    /// An answer that shows an object which is known as one of another resource is the answer to another request.
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

    /// The owner was observed at its place: claims of that place need no more live reads.
    pub(super) fn claims_confirmed(&mut self, owner: NodeId) {
        if self.verifications.remembers_absent() {
            self.verifications.forget_absent(&self.graph.uid(owner));
        }
        if self.verifications.is_empty() {
            return;
        }
        let identity = Identity {
            owner,
            resource: self.graph.resource(owner),
            namespace: self.graph.namespace_text(self.graph.namespace(owner)),
            name: self.graph.name(owner).into(),
        };
        self.verifications.forget(&identity, &mut self.clock);
    }

    /// This owner does not exist and has no dependents left: it is forgotten, and the proof of its absence is
    /// remembered.
    pub(super) fn release_owner(&mut self, owner: NodeId) {
        if self.graph.has_dependents(owner) {
            return;
        }
        self.release_claims(owner);
        if self.graph.has(owner, Flag::GONE) {
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

    /// History went backwards: no proof of absence is valid any more, and every claim is verified again.
    pub(super) fn doubt_absence(&mut self) {
        // Items that waited for a live read have to request it again, also where the owner is known at another place.
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

    /// Evidence for a claim that was proven false.
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
