//! Cycles of objects that wait for each other in foreground deletion.

use std::collections::BTreeSet;

use gc_types::{Evidence, Reason, Verdict};

use super::Engine;
use crate::graph::{EdgeFlag, EdgeId, Flag, NONE, NodeId};

impl Engine {
    /// If a blocked waiting owner is in a cycle of blocking references between waiting owners, makes its own reference in that
    /// cycle non-blocking. A dependent that waits for other reasons is not in one.
    pub(super) fn open_ring(&mut self, node: NodeId) {
        let Some(edge) = self.reference_in_ring(node) else { return };
        let mut remaining: Vec<_> = Vec::new();
        for own in self.graph.edges_of(node) {
            let mut reference = self.graph.reference(own);
            if own == edge {
                reference.block_owner_deletion = Some(false);
            }
            remaining.push(reference);
        }
        let owner = self.graph.owner(edge);
        let reason = Reason {
            verdict: Verdict::RingOpened,
            owners: vec![self.graph.coordinates(edge)],
            evidence: vec![Evidence::Waiting {
                owner: self.graph.uid(owner),
                resource_version: self.graph.version(owner),
            }],
        };
        self.want_owners(node, remaining, reason);
    }

    /// Returns the node's reference that lies on a cycle through it. Searches upward (from dependents to owners) and downward in
    /// alternate steps and ends when either side is exhausted, so that a long chain on one side costs no more than the short one on
    /// the other.
    ///
    /// A reference of an object with a request in flight does not count: it may be becoming non-blocking right now, and the outcome
    /// queues that object anyway.
    fn reference_in_ring(&self, node: NodeId) -> Option<EdgeId> {
        let counted = |edge: &EdgeId| {
            self.graph.edge_has(*edge, EdgeFlag::COUNTED)
                && !self.graph.has(self.graph.dependent(*edge), Flag::IN_FLIGHT)
        };
        let mut up: Vec<(NodeId, EdgeId)> =
            self.graph.edges_of(node).filter(counted).map(|edge| (self.graph.owner(edge), edge)).collect();
        let mut up_seen: BTreeSet<NodeId> = BTreeSet::new();
        let mut down = vec![self.graph.first_dependent(node)];
        let mut down_seen: BTreeSet<NodeId> = BTreeSet::new();
        loop {
            let (owner, first) = up.pop()?;
            if owner == node {
                return Some(first);
            }
            if up_seen.insert(owner) {
                let owners = self.graph.edges_of(owner).filter(counted);
                up.extend(owners.map(|edge| (self.graph.owner(edge), first)));
            }
            let mut edge = down.pop()?;
            while edge == NONE {
                edge = down.pop()?;
            }
            down.push(self.graph.next_dependent(edge));
            let dependent = self.graph.dependent(edge);
            if !counted(&edge) {
                continue;
            }
            if dependent == node {
                return Some(edge);
            }
            if self.graph.has(dependent, Flag::WAITING) && down_seen.insert(dependent) {
                down.push(self.graph.first_dependent(dependent));
            }
        }
    }
}
