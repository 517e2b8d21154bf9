//! Proofs of absence that outlive the graph's nodes (1.7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{ResourceId, Timestamp, Uid};

/// The place at which a reference claims its owner to be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) uid: Uid,
    pub(super) resource: ResourceId,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

/// Proofs of absence, of which the least recently used make room for new ones.
#[derive(Clone, Debug)]
pub(super) struct AbsentOwners {
    capacity: usize,
    proofs: BTreeMap<Claim, (Timestamp, u64)>,
    by_use: BTreeSet<(u64, Claim)>,
    uses: u64,
}

impl AbsentOwners {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, proofs: BTreeMap::new(), by_use: BTreeSet::new(), uses: 0 }
    }

    pub(super) fn remember(&mut self, claim: Claim, at: Timestamp) {
        self.uses += 1;
        if let Some((_, used)) = self.proofs.insert(claim.clone(), (at, self.uses)) {
            self.by_use.remove(&(used, claim.clone()));
        }
        self.by_use.insert((self.uses, claim));
        while self.proofs.len() > self.capacity {
            let Some((_, oldest)) = self.by_use.pop_first() else { return };
            self.proofs.remove(&oldest);
        }
    }

    /// Returns when a claim was proven false, if it was.
    pub(super) fn recall(&mut self, claim: &Claim) -> Option<Timestamp> {
        let (at, used) = self.proofs.get_mut(claim)?;
        let former = std::mem::replace(used, self.uses + 1);
        let at = *at;
        self.uses += 1;
        self.by_use.remove(&(former, claim.clone()));
        self.by_use.insert((self.uses, claim.clone()));
        Some(at)
    }

    /// Voids the proofs of absence of an owner that has been observed (L11).
    pub(super) fn forget(&mut self, uid: &Uid) {
        let first = Claim {
            uid: uid.clone(),
            resource: ResourceId(0),
            namespace: Arc::from(""),
            name: Arc::from(""),
        };
        while let Some((claim, &(_, used))) = self.proofs.range(&first..).next() {
            if claim.uid != *uid {
                return;
            }
            let claim = claim.clone();
            self.proofs.remove(&claim);
            self.by_use.remove(&(used, claim));
        }
    }

    /// Forgets the proofs about owners of some resources.
    pub(super) fn forget_in(&mut self, resources: &BTreeSet<ResourceId>) {
        let by_use = &mut self.by_use;
        self.proofs.retain(|claim, &mut (_, used)| {
            let stays = !resources.contains(&claim.resource);
            if !stays {
                by_use.remove(&(used, claim.clone()));
            }
            stays
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.proofs.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.proofs.clear();
        self.by_use.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(uid: &str, resource: u32) -> Claim {
        Claim { uid: Uid::new(uid), resource: ResourceId(resource), namespace: "n".into(), name: uid.into() }
    }

    /// Returns which of these claims are remembered, without using any.
    fn known(absent: &AbsentOwners) -> Vec<&str> {
        let known: Vec<&str> = absent.proofs.keys().map(|claim| &*claim.name).collect();
        let mut used: Vec<&str> = absent.by_use.iter().map(|(_, claim)| &*claim.name).collect();
        used.sort_unstable();
        assert_eq!(known, used, "both tables have the same claims");
        known
    }

    #[test]
    fn the_least_recently_used_proof_makes_room() {
        let mut absent = AbsentOwners::new(3);
        for (at, uid) in [(1, "a"), (2, "b"), (3, "c")] {
            absent.remember(claim(uid, 0), Timestamp(at));
        }
        assert_eq!(known(&absent), ["a", "b", "c"], "there is room for three");
        assert_eq!(absent.recall(&claim("a", 0)), Some(Timestamp(1)));
        absent.remember(claim("b", 0), Timestamp(4));
        assert_eq!(absent.recall(&claim("?", 0)), None);
        absent.remember(claim("d", 0), Timestamp(5));
        assert_eq!(known(&absent), ["a", "b", "d"], "c was used least recently");
        absent.remember(claim("e", 0), Timestamp(6));
        assert_eq!(known(&absent), ["b", "d", "e"], "then a");
        for _ in 0..2 {
            assert_eq!(absent.recall(&claim("b", 0)), Some(Timestamp(4)), "the newer proof counts");
        }
        assert_eq!(known(&absent), ["b", "d", "e"]);
    }

    #[test]
    fn proofs_are_forgotten_by_owner_by_resource_and_all() {
        let mut absent = AbsentOwners::new(9);
        assert!(absent.is_empty());
        for (uid, resource) in [("a", 0), ("a", 1), ("b", 0), ("c", 2)] {
            absent.remember(claim(uid, resource), Timestamp(1));
        }
        absent.forget(&Uid::new("a"));
        assert_eq!(known(&absent), ["b", "c"]);
        absent.forget_in(&BTreeSet::from([ResourceId(2), ResourceId(7)]));
        assert_eq!(known(&absent), ["b"]);
        assert!(!absent.is_empty());
        absent.clear();
        assert_eq!(known(&absent), [""; 0]);
        assert!(absent.is_empty());
    }
}
