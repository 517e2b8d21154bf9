//! Owners that have not been observed where a reference claims them to be: one live read per claim, shared by every
//! dependent that makes it; owners that live but never arrive on a watch are read again with growing delays.

use std::sync::Arc;

use gc_types::{Evidence, ObjectKey, Outcome, Reason, Request, Timestamp, Verdict};

use super::absent::Claim;
use super::retry::backoff;
use super::{Context, Engine, HeldLanes, Timer, Wanted};
use crate::graph::{EdgeId, Flag, NONE, NodeId, ResourceIndex, Target};

/// A place at which an owner is claimed to be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) owner: NodeId,
    pub(crate) resource: ResourceIndex,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

/// The result of the live read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// None yet.
    Nothing,
    /// The owner, and whether it waits in foreground deletion.
    There { waiting: bool },
    /// A proof that it does not exist there.
    Absent { at: Timestamp },
}

/// The state of one claim.
#[derive(Clone, Debug)]
pub(crate) struct Verification {
    pub(crate) finding: Finding,
    pub(crate) failures: u32,
    /// Live reads that found the owner there.
    reads: u32,
    next: NextRead,
}

/// The state of the next live read. A claim has at most one, so its timer is removed with it, and an answer for a
/// claim that was dropped and created again does not start a second series of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextRead {
    /// None is scheduled.
    Never,
    /// A timer runs until then.
    At(Timestamp),
    /// It is at this position in the queue.
    Queued(u64),
    InFlight,
}

impl Verification {
    /// Whether the claim is decided, even if it cannot be known.
    pub(super) fn is_settled(&self, tolerated: u32) -> bool {
        self.finding != Finding::Nothing || self.failures >= tolerated
    }
}

impl Engine {
    /// The state of the claim that a reference makes; the first call starts the live read.
    pub(super) fn verification(&mut self, edge: EdgeId, resource: ResourceIndex) -> &Verification {
        let identity = self.identity(edge, resource);
        if !self.verifications.contains_key(&identity) {
            let known = self.absent.recall(&self.claim(&identity));
            let finding = known.map_or(Finding::Nothing, |at| Finding::Absent { at });
            let next = if finding == Finding::Nothing {
                let due = self.now.after(self.config.verify_patience_milliseconds);
                self.timers.insert((due, Timer::OwnerRead(identity.clone())));
                NextRead::At(due)
            } else {
                NextRead::Never
            };
            self.verifications
                .insert(identity.clone(), Verification { finding, failures: 0, reads: 0, next });
        }
        &self.verifications[&identity]
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

    fn claim(&self, identity: &Identity) -> Claim {
        Claim {
            uid: self.graph.uid(identity.owner),
            resource: self.graph.resource_id(identity.resource),
            namespace: identity.namespace.clone(),
            name: identity.name.clone(),
        }
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

    /// The timer of a live read expired.
    pub(super) fn read_due(&mut self, identity: Identity) {
        let Some(verification) = self.verifications.get_mut(&identity) else { return };
        let place = self.next_read;
        self.next_read += 1;
        verification.next = NextRead::Queued(place);
        self.read_queue.insert(place, identity);
    }

    /// Sends the due live read, if the claim still exists and the owner was not observed there in the meantime.
    pub(super) fn read_owner(&mut self, identity: Identity) {
        let used = self
            .graph
            .dependents_of(identity.owner)
            .any(|edge| self.makes_claim(edge, &identity) && self.seen_class(edge).is_none());
        if !used {
            self.verifications.remove(&identity);
            // The observation in the meantime answers the remaining claims.
            self.enqueue_claimants(&identity);
            return;
        }
        if let Some(verification) = self.verifications.get_mut(&identity) {
            verification.next = NextRead::InFlight;
        }
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
        self.decided = Some(Wanted {
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
    pub(super) fn owner_read(&mut self, identity: &Identity, uid: &gc_types::Uid, outcome: Outcome) {
        if self.graph.find(uid) != Some(identity.owner) {
            return;
        }
        let now = self.now;
        let Some(verification) =
            self.verifications.get_mut(identity).filter(|claim| claim.next == NextRead::InFlight)
        else {
            return;
        };
        verification.next = NextRead::Never;
        let former = verification.finding.clone();
        let mut again = None;
        let mut newly_undecidable = false;
        match outcome {
            Outcome::Found(object) if object.uid == *uid => {
                verification.failures = 0;
                verification.reads = verification.reads.saturating_add(1);
                let waiting =
                    object.deletion.deleting && object.deletion.foreground && !object.deletion.orphan;
                verification.finding = Finding::There { waiting };
                let (first, longest) =
                    (self.config.poll_first_milliseconds, self.config.poll_longest_milliseconds);
                again = Some(backoff(first, longest, verification.reads));
            }
            Outcome::Found(_) | Outcome::Absent => {
                verification.failures = 0;
                verification.finding = Finding::Absent { at: now };
            }
            Outcome::NotServed
            | Outcome::Held(_)
            | Outcome::Refused { .. }
            | Outcome::Failed { .. }
            | Outcome::Conflict
            | Outcome::Applied(_) => {
                verification.failures = verification.failures.saturating_add(1);
                newly_undecidable = verification.failures == self.config.failures_before_undecidable;
                let asked = match outcome {
                    Outcome::Failed { retry_after_milliseconds: Some(wait), .. } => {
                        i64::try_from(wait).unwrap_or(0)
                    }
                    _ => 0,
                };
                let (first, longest) =
                    (self.config.poll_first_milliseconds, self.config.poll_longest_milliseconds);
                again = Some(backoff(first, longest, verification.failures).max(asked.min(longest)));
            }
        }
        let changed = verification.finding != former || newly_undecidable;
        if let Some(delay) = again {
            verification.next = NextRead::At(now.after(delay));
            self.timers.insert((now.after(delay), Timer::OwnerRead(identity.clone())));
        }
        if changed {
            self.enqueue_claimants(identity);
        }
    }

    fn enqueue_claimants(&mut self, identity: &Identity) {
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
        if !self.absent.is_empty() {
            self.absent.forget(&self.graph.uid(owner));
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
        self.forget_claim(&identity);
    }

    fn forget_claim(&mut self, identity: &Identity) {
        match self.verifications.remove(identity).map(|claim| claim.next) {
            Some(NextRead::At(due)) => {
                self.timers.remove(&(due, Timer::OwnerRead(identity.clone())));
            }
            Some(NextRead::Queued(place)) => {
                self.read_queue.remove(&place);
            }
            Some(NextRead::Never | NextRead::InFlight) | None => {}
        }
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
            self.absent.remember(claim, self.now);
        }
        self.prune(owner);
    }

    pub(super) fn release_claims(&mut self, owner: NodeId) {
        if self.verifications.is_empty() {
            return;
        }
        let first = Identity { owner, resource: 0, namespace: Arc::from(""), name: Arc::from("") };
        while let Some((identity, verification)) = self.verifications.range(&first..).next() {
            if identity.owner != owner {
                break;
            }
            let identity = identity.clone();
            if let Finding::Absent { at } = verification.finding {
                let claim = self.claim(&identity);
                self.absent.remember(claim, at);
            }
            self.forget_claim(&identity);
        }
    }

    /// History went backwards: no proof of absence is valid any more, and every claim is verified again.
    pub(super) fn doubt_absence(&mut self) {
        self.absent.clear();
        self.timers.retain(|(_, timer)| !matches!(timer, Timer::OwnerRead(_)));
        self.read_queue.clear();
        // Items that waited for a live read have to request it again, also where the owner is known at another place.
        for identity in std::mem::take(&mut self.verifications).keys() {
            self.enqueue_claimants(identity);
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
