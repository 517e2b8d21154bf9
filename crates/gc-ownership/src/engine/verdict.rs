//! Decision about one object (docs/spec/ownership-gc.md, sections 4.3 and 4.4).

use gc_types::{
    EventRecord, Evidence, OwnerReference, PropagationPolicy, Reason, Request, ResourceVersion, Severity,
    Timestamp, Verdict,
};
use smallvec::SmallVec;

use super::Engine;
use super::effects::{Action, Context, HeldLanes, PendingEffect};
use super::verifications::{Finding, Verification};
use crate::graph::{CLUSTER, EdgeFlag, EdgeId, Flag, NodeId, Target};

/// State of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceState {
    /// The owner is living, even if it is being deleted without waiting for its dependents.
    Lives,
    /// The owner is in foreground deletion.
    Waiting(Evidence),
    /// The owner is proven absent.
    Absent(Evidence),
    /// The owner orphans its dependents.
    Orphaning(Evidence),
    /// The owner cannot be resolved (unknown kind, impossible scope, failing reads) and counts as living.
    Undecidable,
    /// The owner has not been verified yet.
    Unverified,
}

/// References with their states.
pub(super) type Classes = SmallVec<[(EdgeId, ReferenceState); 2]>;

impl Engine {
    /// Reconciles one item.
    pub(super) fn evaluate(&mut self, node: NodeId) {
        self.graph.set(node, Flag::QUEUED, false);
        if !self.graph.has(node, Flag::OBSERVED) {
            return;
        }
        if self.graph.has(node, Flag::IN_FLIGHT) {
            self.graph.set(node, Flag::DIRTY, true);
            return;
        }
        if self.retries.delays(node, self.clock.now()) {
            return;
        }
        let is_ours = self.acts_on(node);
        if is_ours {
            self.report_wrong_references(node);
        }
        if self.graph.has(node, Flag::GRANTED) || self.must_await(node) {
            return;
        }
        if self.graph.has(node, Flag::UNCLEAR) {
            // An owner of ours may wait for an object of another shard.
            self.want_read(node);
            return;
        }
        if is_ours {
            if self.release(node) {
                return;
            }
            if self.graph.has(node, Flag::WAITING) {
                self.evaluate_waiting(node);
            } else if !self.graph.has(node, Flag::DELETING) {
                let classes = self.classify(node);
                self.decide(node, &classes);
            }
        } else if self.graph.has(node, Flag::WAITING) && !self.is_shown_waiting(node) {
            // Dependents of ours wait for a second answer about an owner of another shard, also after a list has voided the first.
            self.read_reported(node);
        }
        if !self.graph.has(node, Flag::IN_FLIGHT) {
            // Nothing is left to do, so earlier failures do not matter.
            self.retries.forget(node, &mut self.clock);
        }
    }

    /// Reports whether this engine acts on an object, rather than that of another shard.
    pub(super) fn acts_on(&self, node: NodeId) -> bool {
        let shard = self.config.shard;
        shard.is_whole() || shard.holds(&self.graph.namespace_text(self.graph.namespace(node)))
    }

    /// Removes the references to owners that orphan their dependents. Returns true if there are any, or if a live read has to
    /// decide. (A reference with the UID of such an owner but other coordinates is not a dependent's, and is decided separately.)
    fn release(&mut self, node: NodeId) -> bool {
        let is_released = |&edge: &EdgeId| {
            self.is_orphaned_by(node, edge) && self.is_in_sight(self.graph.resource(self.graph.owner(edge)))
        };
        let edges: SmallVec<[EdgeId; 2]> = self.graph.edges_of(node).filter(is_released).collect();
        let mut dead: SmallVec<[EdgeId; 2]> = SmallVec::new();
        let mut is_unverified = false;
        for edge in edges {
            match self.class_of(edge) {
                ReferenceState::Orphaning(_) => dead.push(edge),
                ReferenceState::Unverified => is_unverified = true,
                _ => {}
            }
        }
        if dead.is_empty() {
            return is_unverified;
        }
        let evidence = dead
            .iter()
            .map(|&edge| self.graph.owner(edge))
            .map(|owner| Evidence::Orphaning {
                owner: self.graph.uid(owner),
                resource_version: self.graph.version(owner),
            })
            .collect();
        let reason = Reason { verdict: Verdict::OwnerOrphans, owners: self.listed(&dead), evidence };
        let remaining = self.references_without(node, &dead);
        self.want_owners(node, remaining, reason);
        true
    }

    fn listed(&self, edges: &[EdgeId]) -> Vec<gc_types::Coordinates> {
        edges.iter().take(Reason::OWNERS_LISTED).map(|&edge| self.graph.coordinates(edge)).collect()
    }

    fn references_without(&self, node: NodeId, dead: &[EdgeId]) -> Vec<OwnerReference> {
        self.graph
            .edges_of(node)
            .filter(|edge| !dead.contains(edge))
            .map(|edge| self.graph.reference(edge))
            .collect()
    }

    /// Returns the state of each reference of an object, starting any live reads that this needs.
    pub(super) fn classify(&mut self, node: NodeId) -> Classes {
        let edges: SmallVec<[EdgeId; 2]> = self.graph.edges_of(node).collect();
        edges.into_iter().map(|edge| (edge, self.class_of(edge))).collect()
    }

    /// Returns the state of a reference, starting the live read that this may need.
    fn class_of(&mut self, edge: EdgeId) -> ReferenceState {
        if let Some(class) = self.present_class(edge) {
            return class;
        }
        match self.graph.target(edge) {
            Target::UnknownKind | Target::InvalidScope => ReferenceState::Undecidable,
            Target::Place(resource, _) => {
                let tolerated = self.config.failures_before_undecidable;
                let verification = self.verification(edge, resource).clone();
                self.found_class(edge, &verification, tolerated)
            }
        }
    }

    /// Returns the state of a reference to where its owner is, or was; `None` if it leads elsewhere, or needs a live read. That an
    /// owner is gone, or waits for its dependents, takes two answers: its watch, and the response to our DELETE of it, to a read,
    /// or to the list of a barrier.
    pub(super) fn seen_class(&self, edge: EdgeId) -> Option<ReferenceState> {
        if !self.graph.matches(edge) && !self.graph.matched_before_its_kind_went(edge) {
            return None;
        }
        let owner = self.graph.owner(edge);
        let resource_version = self.graph.version(owner);
        if self.graph.is_reported_gone(owner) && !self.is_definition_removed(owner) {
            return self.is_being_deleted(owner).then_some(ReferenceState::Unverified);
        }
        if self.graph.has(owner, Flag::GONE) {
            let uid = self.graph.uid(owner);
            return Some(ReferenceState::Absent(if self.graph.has(owner, Flag::GONE_BY_READ) {
                let at = i64::try_from(resource_version.0).unwrap_or_default();
                Evidence::ReadAbsent { owner: uid, at: Timestamp(at) }
            } else {
                Evidence::RemovalSeen { owner: uid, resource_version }
            }));
        }
        if !self.graph.has(owner, Flag::OBSERVED) {
            return None;
        }
        let deletion = self.graph.deletion(owner);
        let orphans = deletion.orphan && owner != self.graph.dependent(edge);
        if !deletion.deleting || !orphans && !deletion.foreground {
            return Some(ReferenceState::Lives);
        }
        if !self.is_shown_waiting(owner) {
            return self.is_being_deleted(owner).then_some(ReferenceState::Unverified);
        }
        let uid = self.graph.uid(owner);
        if orphans {
            return Some(ReferenceState::Orphaning(Evidence::Orphaning { owner: uid, resource_version }));
        }
        if self.is_finishing(owner) {
            // It may have stopped waiting already, and still exist because of other finalizers.
            return Some(ReferenceState::Unverified);
        }
        if self.graph.resources.is_behind(self.graph.resource(owner)) {
            // Only a stale list has shown this state, so it may no longer wait.
            return None;
        }
        Some(ReferenceState::Waiting(Evidence::Waiting { owner: uid, resource_version }))
    }

    /// Reports whether a DELETE of ours is unanswered, whose response will show the state of an owner.
    pub(super) fn is_being_deleted(&self, owner: NodeId) -> bool {
        self.graph.has(owner, Flag::IN_FLIGHT)
            && self.effects.asked(&self.graph.uid(owner)) == Some(Action::Delete)
    }

    /// Reports whether the definition of an owner's kind was removed, too, which means that all objects of the kind were deleted
    /// before. If no watch covers definitions, discovery decides, once it has not contained the kind for a while: it may leave out
    /// one that is served, and then the removal of an owner that its watch has reported can be verified later.
    pub(super) fn is_definition_removed(&self, owner: NodeId) -> bool {
        let state = self.graph.resources.get(self.graph.resource(owner));
        state.is_some_and(|state| {
            state.definition_removed
                || !state.served
                    && !self.graph.resources.has_definitions()
                    && !self.was_withdrawn_lately(state)
        })
    }

    /// Reports whether an owner may have stopped waiting for its dependents, whatever has been observed since the request.
    pub(super) fn is_finishing(&self, owner: NodeId) -> bool {
        let asked = || self.effects.asked(&self.graph.uid(owner));
        self.finishing.contains(&owner)
            || self.graph.has(owner, Flag::IN_FLIGHT) && asked() == Some(Action::Finalizer)
    }

    /// Returns the state of a reference as far as it is known now, without starting anything.
    pub(crate) fn known_class(&self, edge: EdgeId) -> Option<ReferenceState> {
        if let Some(class) = self.seen_class(edge) {
            return Some(class);
        }
        match self.graph.target(edge) {
            Target::UnknownKind | Target::InvalidScope => Some(ReferenceState::Undecidable),
            Target::Place(resource, _) => {
                let verification = self.known_verification(edge, resource);
                let Some(found) = verification.filter(|known| known.finding != Finding::Nothing) else {
                    return self.reported_class(edge).or_else(|| {
                        Some(self.found_class(edge, verification?, self.config.failures_before_undecidable))
                    });
                };
                Some(self.found_class(edge, found, self.config.failures_before_undecidable))
            }
        }
    }

    /// Returns the state of a reference according to its owner's watch, which a read has to confirm.
    fn reported_class(&self, edge: EdgeId) -> Option<ReferenceState> {
        let fact = self.reported_state(self.graph.owner(edge)).filter(|_| self.graph.matches(edge))?;
        Some(match fact {
            Evidence::Orphaning { .. } => ReferenceState::Orphaning(fact),
            Evidence::Waiting { .. } => ReferenceState::Waiting(fact),
            _ => ReferenceState::Absent(fact),
        })
    }

    fn found_class(&self, edge: EdgeId, verification: &Verification, tolerated: u32) -> ReferenceState {
        let owner = self.graph.owner(edge);
        match verification.finding {
            Finding::Absent { at } => ReferenceState::Absent(self.absence(owner, at)),
            Finding::There { waiting: true } => ReferenceState::Waiting(Evidence::Waiting {
                owner: self.graph.uid(owner),
                resource_version: ResourceVersion::UNKNOWN,
            }),
            Finding::There { waiting: false } => ReferenceState::Lives,
            Finding::Nothing if verification.failures >= tolerated => ReferenceState::Undecidable,
            Finding::Nothing => ReferenceState::Unverified,
        }
    }

    /// Applies the decision table of 4.4.
    fn decide(&mut self, node: NodeId, classes: &Classes) {
        let mut dead: SmallVec<[EdgeId; 2]> = SmallVec::new();
        let (mut living, mut waiting) = (false, false);
        let mut evidence = vec![Evidence::ObservedAt { resource_version: self.graph.version(node) }];
        for (edge, class) in classes {
            match class {
                // The live read queues the item again.
                ReferenceState::Unverified => return,
                ReferenceState::Lives => {
                    living = true;
                    evidence.push(Evidence::Lives { owner: self.graph.uid(self.graph.owner(*edge)) });
                }
                ReferenceState::Undecidable => {
                    living = true;
                    evidence.push(Evidence::Undecidable { owner: self.graph.uid(self.graph.owner(*edge)) });
                }
                ReferenceState::Waiting(fact) => {
                    waiting = true;
                    dead.push(*edge);
                    evidence.push(fact.clone());
                }
                ReferenceState::Absent(fact) => {
                    dead.push(*edge);
                    evidence.push(fact.clone());
                    let vanished = self.vanished_kind(*edge).filter(|vanished| !evidence.contains(vanished));
                    evidence.extend(vanished);
                }
                ReferenceState::Orphaning(fact) => {
                    dead.push(*edge);
                    evidence.push(fact.clone());
                }
            }
        }
        if dead.is_empty() {
            return;
        }
        let owners = self.listed(&dead);
        if living {
            let remaining = self.references_without(node, &dead);
            self.want_owners(node, remaining, Reason { verdict: Verdict::ReferencesDead, owners, evidence });
            return;
        }
        let verdict = if waiting { Verdict::OwnerWaiting } else { Verdict::OwnersAbsent };
        let policy = if waiting && self.graph.has_dependents(node) {
            PropagationPolicy::Foreground
        } else if self.graph.has(node, Flag::ORPHAN) {
            PropagationPolicy::Orphan
        } else if self.graph.has(node, Flag::FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        self.want_delete(node, policy, Reason { verdict, owners, evidence });
    }

    /// Returns the evidence that every object of an owner's kind vanished in one list, if the owner is taken for absent because of
    /// that.
    fn vanished_kind(&self, edge: EdgeId) -> Option<Evidence> {
        let Target::Place(resource, _) = self.graph.target(edge) else { return None };
        if self.present_class(edge).is_some() {
            return None;
        }
        let at = self.graph.resources.get(resource)?.vanished_at?;
        Some(Evidence::KindVanished { resource: self.graph.resource_id(resource), at })
    }

    /// Reports whether an object must be read right before a request about it, because its version is unknown.
    fn must_read(&self, node: NodeId) -> bool {
        self.graph.version(node) == ResourceVersion::UNKNOWN && !self.graph.has(node, Flag::FRESH)
    }

    fn want_delete(&mut self, node: NodeId, policy: PropagationPolicy, reason: Reason) {
        if self.must_read(node) {
            self.want_read(node);
            return;
        }
        let busy = self
            .retries
            .get(node)
            .is_some_and(|retry| retry.conflicts >= self.config.conflicts_before_uid_only);
        let version = self.graph.version(node);
        let guard = !busy && version != ResourceVersion::UNKNOWN;
        let request = Request::Delete {
            key: self.graph.key(node),
            uid: self.graph.uid(node),
            resource_version: guard.then_some(version),
            policy,
        };
        self.want(node, request, reason, Action::Delete);
    }

    pub(super) fn want_owners(&mut self, node: NodeId, remaining: Vec<OwnerReference>, reason: Reason) {
        if self.must_read(node) {
            self.want_read(node);
            return;
        }
        let request = Request::SetOwners {
            key: self.graph.key(node),
            uid: self.graph.uid(node),
            resource_version: self.graph.version(node),
            remaining,
        };
        self.want(node, request, reason, Action::Owners);
    }

    pub(super) fn want_read(&mut self, node: NodeId) {
        let request = Request::Read { key: self.graph.key(node) };
        let evidence = vec![Evidence::ObservedAt { resource_version: self.graph.version(node) }];
        let reason = Reason { verdict: Verdict::ObjectUnclear, owners: Vec::new(), evidence };
        self.want(node, request, reason, Action::Read);
    }

    pub(super) fn want(&mut self, node: NodeId, request: Request, reason: Reason, action: Action) {
        self.graph.set(node, Flag::IN_FLIGHT, true);
        let uid = self.graph.uid(node);
        let context = Context::Item(uid.clone(), action, self.graph.version(node));
        let lanes: HeldLanes = self.lanes_of(node).collect();
        for &lane in &lanes {
            self.lanes.started(lane);
        }
        self.effects.decide_about(uid, action, PendingEffect { request, reason, context, lanes });
    }

    /// Writes one Kubernetes Event per wrong reference (10.2, R-13), once the owner was observed elsewhere.
    fn report_wrong_references(&mut self, node: NodeId) {
        let edges: SmallVec<[EdgeId; 2]> = self.graph.edges_of(node).collect();
        for edge in edges {
            let owner = self.graph.owner(edge);
            if self.graph.edge_has(edge, EdgeFlag::NOTED)
                || !self.graph.has(owner, Flag::OBSERVED)
                || self.graph.matches(edge)
            {
                continue;
            }
            let Some((verdict, reason, message)) = self.complaint(node, edge, owner) else { continue };
            self.graph.set_edge(edge, EdgeFlag::NOTED, true);
            let (about, uid) = (self.graph.key(node), self.graph.uid(node));
            let complaint = EventRecord { about, uid, severity: Severity::Warning, reason, message };
            self.effects.push_event(PendingEffect {
                request: Request::RecordEvent(complaint),
                reason: Reason {
                    verdict,
                    owners: vec![self.graph.coordinates(edge)],
                    evidence: vec![Evidence::Lives { owner: self.graph.uid(owner) }],
                },
                context: Context::RecordEvent,
                lanes: HeldLanes::new(),
            });
        }
    }

    fn complaint(
        &self,
        node: NodeId,
        edge: EdgeId,
        owner: NodeId,
    ) -> Option<(Verdict, &'static str, String)> {
        let coordinates = self.graph.coordinates(edge);
        let namespace = self.graph.namespace_text(self.graph.namespace(node));
        let written = format!(
            "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}]",
            coordinates.api_version, coordinates.kind, coordinates.name, coordinates.uid
        );
        let owner_namespace = self.graph.namespace(owner);
        if owner_namespace != CLUSTER && owner_namespace != self.graph.namespace(node) {
            let message = format!("{written} does not exist in namespace {}", gc_types::quoted(&namespace));
            return Some((Verdict::CrossNamespace, "OwnerRefInvalidNamespace", message));
        }
        // The other place may be another view of the same object: only a proof makes the reference wrong.
        let Target::Place(..) = self.graph.target(edge) else { return None };
        let Some(ReferenceState::Absent(_)) = self.known_class(edge) else { return None };
        let resource = self.graph.resources.get(self.graph.resource(owner))?;
        let message = format!(
            "{written} does not lead to the object with that uid, which is {}/{}, namespace: {}, name: {}",
            resource.info.gvr.api_version(),
            resource.info.kind,
            self.graph.namespace_text(owner_namespace),
            self.graph.name(owner)
        );
        Some((Verdict::WrongCoordinates, "OwnerRefInvalidCoordinates", message))
    }
}
