//! Whose turn it is: one lane per owner, served in turn, so that a giant cascade does not starve a small one.

use std::collections::{BTreeMap, VecDeque};

use crate::graph::NodeId;

#[derive(Clone, Debug, Default)]
struct Lane {
    items: VecDeque<NodeId>,
    in_flight: usize,
    /// It has a place in the order of turns.
    has_turn: bool,
}

/// Items to be looked at. Each node is in it at most once (its `QUEUED` flag), so the graph bounds it.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    by_owner: BTreeMap<NodeId, Lane>,
    turns: VecDeque<NodeId>,
    queued: usize,
}

impl Lanes {
    pub(super) fn push(&mut self, lane: NodeId, item: NodeId) {
        let entry = self.by_owner.entry(lane).or_default();
        entry.items.push_back(item);
        self.queued += 1;
        if !entry.has_turn {
            entry.has_turn = true;
            self.turns.push_back(lane);
        }
    }

    /// The next item and its lane.
    pub(super) fn pop(&mut self) -> Option<(NodeId, NodeId)> {
        while let Some(lane) = self.turns.pop_front() {
            let Some(entry) = self.by_owner.get_mut(&lane) else { continue };
            let item = entry.items.pop_front();
            entry.has_turn = !entry.items.is_empty();
            if entry.has_turn {
                self.turns.push_back(lane);
            } else if entry.in_flight == 0 {
                self.by_owner.remove(&lane);
            }
            if let Some(item) = item {
                self.queued -= 1;
                return Some((lane, item));
            }
        }
        None
    }

    pub(super) fn started(&mut self, lane: NodeId) {
        self.by_owner.entry(lane).or_default().in_flight += 1;
    }

    pub(super) fn finished(&mut self, lane: NodeId) {
        if let Some(entry) = self.by_owner.get_mut(&lane) {
            entry.in_flight = entry.in_flight.saturating_sub(1);
            if entry.in_flight == 0 && entry.items.is_empty() {
                self.by_owner.remove(&lane);
            }
        }
    }

    /// Nothing waits or is in flight there.
    pub(super) fn is_idle(&self, lane: NodeId) -> bool {
        !self.by_owner.contains_key(&lane)
    }

    pub(super) fn queued(&self) -> usize {
        self.queued
    }
}
