//! Claims about owners that were not observed, and the live reads that verify them.

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_types::{Outcome, ResourceId, Timestamp, Uid};

use super::absent::{AbsentOwners, Claim};
use super::clock::{Clock, Timer};
use super::config::Config;
use super::identity::Identity;
use super::retry::backoff;
use crate::graph::{NodeId, ResourceIndex};

/// Result of the live read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// There is none yet.
    Nothing,
    /// The owner exists; `waiting` if it is in foreground deletion.
    There { waiting: bool },
    /// A proof that the owner does not exist there.
    Absent { at: Timestamp },
}

/// State of one claim.
#[derive(Clone, Debug)]
pub(crate) struct Verification {
    pub(crate) finding: Finding,
    pub(crate) failures: u32,
    /// Number of live reads that found the owner there.
    reads: u32,
    /// Number of live reads since then that found it absent.
    absences: u32,
    next: NextRead,
}

/// State of the next live read. A claim has at most one, so its timer is removed with it, and an answer for a claim that was
/// dropped and created again does not start a second series of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextRead {
    /// None is scheduled.
    Never,
    /// A timer runs until this time.
    At(Timestamp),
    /// At this position in the queue.
    Queued(u64),
    InFlight,
}

impl Verification {
    /// Takes the answer to a live read. Returns the delay before the next one, if there is to be one.
    fn learn(
        &mut self,
        uid: &Uid,
        outcome: Outcome,
        needed: u32,
        config: &Config,
        now: Timestamp,
    ) -> Option<i64> {
        let (first, longest) = (config.poll_first_milliseconds, config.poll_longest_milliseconds);
        match outcome {
            Outcome::Found(object) if object.uid == *uid => {
                self.failures = 0;
                self.reads = self.reads.saturating_add(1);
                self.absences = 0;
                let waiting =
                    object.deletion.deleting && object.deletion.foreground && !object.deletion.orphan;
                self.finding = Finding::There { waiting };
                Some(backoff(first, longest, self.reads))
            }
            Outcome::Found(_) | Outcome::Absent => {
                self.failures = 0;
                self.absences = self.absences.saturating_add(1);
                if self.absences < needed {
                    return Some(first);
                }
                self.finding = Finding::Absent { at: now };
                None
            }
            Outcome::NotServed
            | Outcome::Withheld(_)
            | Outcome::Refused { .. }
            | Outcome::Failed { .. }
            | Outcome::Conflict
            | Outcome::Applied(_) => {
                self.failures = self.failures.saturating_add(1);
                let asked = match outcome {
                    Outcome::Failed { retry_after_milliseconds: Some(wait), .. } => {
                        i64::try_from(wait).unwrap_or(0)
                    }
                    _ => 0,
                };
                Some(backoff(first, longest, self.failures).max(asked.min(longest)))
            }
        }
    }

    /// Reports whether the claim is decided, including that the answer cannot be known.
    fn is_settled(&self, tolerated: u32) -> bool {
        self.finding != Finding::Nothing || self.failures >= tolerated
    }
}

/// All claims, and what is remembered of those that were proven false.
#[derive(Clone, Debug)]
pub(super) struct Verifications {
    by_claim: BTreeMap<Identity, Verification>,
    /// Claims whose owner is to be read, by their position.
    queue: BTreeMap<u64, Identity>,
    next_place: u64,
    absent: AbsentOwners,
}

impl Verifications {
    /// Creates an empty table that will remember this number of proofs of absence.
    pub(super) fn new(absent_owners: usize) -> Self {
        Self {
            by_claim: BTreeMap::new(),
            queue: BTreeMap::new(),
            next_place: 0,
            absent: AbsentOwners::new(absent_owners),
        }
    }

    pub(super) fn get(&self, identity: &Identity) -> Option<&Verification> {
        self.by_claim.get(identity)
    }

    /// Returns the state of a claim. The first call begins to verify it, after some time for its owner to arrive, unless it was
    /// proven false before.
    pub(super) fn begin(
        &mut self,
        identity: Identity,
        claim: impl FnOnce(&Identity) -> Claim,
        patience_milliseconds: i64,
        clock: &mut Clock,
    ) -> &Verification {
        let Self { by_claim, absent, queue, next_place } = self;
        by_claim.entry(identity).or_insert_with_key(|identity| {
            let known = absent.recall(&claim(identity));
            let finding = known.map_or(Finding::Nothing, |at| Finding::Absent { at });
            let next = if finding != Finding::Nothing {
                NextRead::Never
            } else if patience_milliseconds > 0 {
                let due = clock.now().after(patience_milliseconds);
                clock.set(due, Timer::OwnerRead(identity.clone()));
                NextRead::At(due)
            } else {
                let place = *next_place;
                *next_place += 1;
                queue.insert(place, identity.clone());
                NextRead::Queued(place)
            };
            Verification { finding, failures: 0, reads: 0, absences: 0, next }
        })
    }

    /// Handles the expired timer of a live read.
    pub(super) fn read_due(&mut self, identity: Identity) {
        let Some(verification) = self.by_claim.get_mut(&identity) else { return };
        let place = self.next_place;
        self.next_place += 1;
        verification.next = NextRead::Queued(place);
        self.queue.insert(place, identity);
    }

    /// Returns the next claim whose owner is to be read.
    pub(super) fn next_due(&mut self) -> Option<Identity> {
        self.queue.pop_first().map(|(_, identity)| identity)
    }

    /// Records that the live read of a claim was sent.
    pub(super) fn sent(&mut self, identity: &Identity) {
        if let Some(verification) = self.by_claim.get_mut(identity) {
            verification.next = NextRead::InFlight;
        }
    }

    /// Drops a claim whose live read was due but which no dependent makes any more.
    pub(super) fn drop_due(&mut self, identity: &Identity) {
        self.by_claim.remove(identity);
    }

    /// Takes the answer to a live read, of which `needed` have to find nothing to prove the absence. Returns whether it changes the
    /// decisions about dependents.
    pub(super) fn answered(
        &mut self,
        identity: &Identity,
        (uid, outcome): (&Uid, Outcome),
        needed: u32,
        config: &Config,
        clock: &mut Clock,
    ) -> bool {
        let claim = self.by_claim.get_mut(identity);
        let Some(verification) = claim.filter(|claim| claim.next == NextRead::InFlight) else { return false };
        verification.next = NextRead::Never;
        let (finding, failures) = (verification.finding.clone(), verification.failures);
        if let Some(delay) = verification.learn(uid, outcome, needed, config, clock.now()) {
            let due = clock.now().after(delay);
            verification.next = NextRead::At(due);
            clock.set(due, Timer::OwnerRead(identity.clone()));
        }
        let tolerated = config.failures_before_undecidable;
        verification.finding != finding || failures < tolerated && verification.failures >= tolerated
    }

    /// Forgets a claim that no longer needs verification. Reports whether there was one.
    pub(super) fn forget(&mut self, identity: &Identity, clock: &mut Clock) -> bool {
        let Some(claim) = self.by_claim.remove(identity) else { return false };
        match claim.next {
            NextRead::At(due) => clock.cancel(due, Timer::OwnerRead(identity.clone())),
            NextRead::Queued(place) => drop(self.queue.remove(&place)),
            NextRead::Never | NextRead::InFlight => {}
        }
        true
    }

    /// Returns a claim about this owner, if there is one.
    pub(super) fn of_owner(&self, owner: NodeId) -> Option<(&Identity, &Verification)> {
        let first = Identity { owner, resource: 0, namespace: Arc::from(""), name: Arc::from("") };
        self.by_claim.range(first..).next().filter(|(identity, _)| identity.owner == owner)
    }

    /// Forgets and returns all claims, and forgets all proofs.
    pub(super) fn doubt(&mut self, clock: &mut Clock) -> impl Iterator<Item = Identity> + use<> {
        self.absent.clear();
        clock.cancel_owner_reads();
        self.queue.clear();
        std::mem::take(&mut self.by_claim).into_keys()
    }

    /// Forgets and returns the claims about owners of some resources that are not known to be living, and forgets the absences
    /// there.
    pub(super) fn doubt_in(
        &mut self,
        resources: &BTreeMap<ResourceIndex, ResourceId>,
        clock: &mut Clock,
    ) -> Vec<Identity> {
        self.absent.forget_in(&resources.values().copied().collect());
        let is_doubted = |(identity, claim): &(&Identity, &Verification)| {
            resources.contains_key(&identity.resource) && claim.finding != Finding::There { waiting: false }
        };
        let doubted: Vec<Identity> =
            self.by_claim.iter().filter(is_doubted).map(|(identity, _)| identity.clone()).collect();
        for identity in &doubted {
            self.forget(identity, clock);
        }
        doubted
    }

    /// Remembers that an owner does not exist where a reference claims it.
    pub(super) fn remember_absent(&mut self, claim: Claim, at: Timestamp) {
        self.absent.remember(claim, at);
    }

    /// Reports whether the absence of an owner is remembered.
    pub(super) fn remembers_absent(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Forgets the absence of the owner with this UID, which was observed.
    pub(super) fn forget_absent(&mut self, uid: &Uid) {
        self.absent.forget(uid);
    }

    /// Reports whether there is no claim.
    pub(super) fn is_empty(&self) -> bool {
        self.by_claim.is_empty()
    }

    /// Reports whether a claim is decided, including that the answer cannot be known, or does not exist.
    pub(super) fn is_settled(&self, identity: &Identity, config: &Config) -> bool {
        let tolerated = config.failures_before_undecidable;
        self.get(identity).is_none_or(|claim| claim.is_settled(tolerated))
    }

    /// Reports whether every claim whose owner is to be read next is decided.
    pub(super) fn are_queued_settled(&self, config: &Config) -> bool {
        self.queue.values().all(|identity| self.is_settled(identity, config))
    }

    /// Returns every broken invariant, as text.
    pub(super) fn verify(&self, is_live: impl Fn(NodeId) -> bool) -> impl Iterator<Item = String> {
        let broken = self.queue.len() > self.by_claim.len();
        let queued = broken.then(|| "more live reads are queued than are wanted".to_owned());
        let freed = self.by_claim.keys().filter(move |identity| !is_live(identity.owner));
        queued
            .into_iter()
            .chain(freed.map(|identity| format!("a claim on freed node {} is kept", identity.owner)))
    }
}
