//! Fair order of work: one lane per owner, served in turn, so that a giant cascade does not starve a small one.

use std::collections::{BTreeMap, VecDeque};

use crate::graph::NodeId;

#[derive(Clone, Debug, Default)]
struct Lane {
    items: VecDeque<NodeId>,
    in_flight: usize,
    /// True if it is part of the order of turns.
    has_turn: bool,
}

/// Number of empty slots of removed nodes above which they are dropped, unless more slots than that are in use.
const VACANCIES: usize = 1_024;

/// Queue of items. Each node is in it at most once (its `QUEUED` flag), and the slots of removed nodes are dropped in time, so the
/// size of the graph bounds it.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    by_owner: BTreeMap<NodeId, Lane>,
    turns: VecDeque<NodeId>,
    /// Number of slots, including empty ones.
    places: usize,
    vacant: usize,
}

impl Lanes {
    pub(super) fn push(&mut self, lane: NodeId, item: NodeId) {
        let entry = self.by_owner.entry(lane).or_default();
        entry.items.push_back(item);
        self.places += 1;
        if !entry.has_turn {
            entry.has_turn = true;
            self.turns.push_back(lane);
        }
    }

    /// Returns the next item and its lane.
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
                self.places -= 1;
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

    /// Reports whether nothing waits or is in flight in a lane.
    pub(super) fn is_idle(&self, lane: NodeId) -> bool {
        !self.by_owner.contains_key(&lane)
    }

    /// Returns the number of waiting items.
    pub(super) fn queued(&self) -> usize {
        self.places.saturating_sub(self.vacant)
    }

    /// Returns the number of slots, and how many of them are empty.
    pub(super) fn places(&self) -> (usize, usize) {
        (self.places, self.vacant)
    }

    /// Records that a queued node was removed.
    pub(super) fn vacated(&mut self) {
        self.vacant += 1;
    }

    /// Records that the slot just taken was empty.
    pub(super) fn skipped(&mut self) {
        self.vacant = self.vacant.saturating_sub(1);
    }

    pub(super) fn has_many_vacancies(&self) -> bool {
        self.vacant > VACANCIES.max(self.queued())
    }

    /// Keeps the slots for which `keep` is true and drops the empty ones. Returns the lanes that are now idle.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(NodeId) -> bool) -> Vec<NodeId> {
        self.places = 0;
        self.vacant = 0;
        let mut idle = Vec::new();
        self.by_owner.retain(|&lane, entry| {
            entry.items.retain(|&item| keep(item));
            self.places += entry.items.len();
            let in_use = !entry.items.is_empty() || entry.in_flight > 0;
            if !in_use {
                idle.push(lane);
            }
            in_use
        });
        idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all that waits, in the order of turns, as (lane, item).
    fn drain(lanes: &mut Lanes) -> Vec<(NodeId, NodeId)> {
        std::iter::from_fn(|| lanes.pop()).collect()
    }

    #[test]
    fn lanes_take_turns() {
        let mut lanes = Lanes::default();
        for (lane, item) in [(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (3, 31)] {
            lanes.push(lane, item);
        }
        assert_eq!((lanes.queued(), lanes.is_idle(1), lanes.is_idle(4)), (6, false, true));
        assert_eq!(lanes.pop(), Some((1, 10)));
        lanes.push(1, 13);
        assert_eq!(drain(&mut lanes), [(2, 20), (3, 30), (1, 11), (3, 31), (1, 12), (1, 13)]);
        assert_eq!((lanes.queued(), lanes.is_idle(1)), (0, true));
    }

    #[test]
    fn a_lane_is_idle_when_its_last_request_is_answered() {
        let mut lanes = Lanes::default();
        lanes.push(1, 10);
        assert_eq!(lanes.pop(), Some((1, 10)));
        lanes.started(1);
        lanes.started(1);
        lanes.finished(1);
        assert!(!lanes.is_idle(1), "one of two is in flight");
        lanes.push(1, 11);
        lanes.finished(1);
        assert!(!lanes.is_idle(1), "one waits");
        assert_eq!(drain(&mut lanes), [(1, 11)]);
        assert!(lanes.is_idle(1));
        lanes.finished(9);
        assert!(lanes.is_idle(9), "nothing was in flight there");
    }

    /// The slots of nodes that were removed count neither as waiting nor for ever.
    #[test]
    fn empty_slots_are_dropped() {
        let mut lanes = Lanes::default();
        for item in 0..2_000 {
            lanes.push(item % 3, item);
        }
        lanes.started(2);
        for item in 0..1_025 {
            assert!(!lanes.has_many_vacancies(), "{item}");
            lanes.vacated();
        }
        assert_eq!((lanes.queued(), lanes.places()), (975, (2_000, 1_025)));
        assert!(lanes.has_many_vacancies());
        // Those that are left are all in lane 1.
        let is_left = |item: NodeId| item >= 1_025 && item % 3 == 1;
        assert_eq!(lanes.retain(is_left), [0]);
        let left: Vec<(NodeId, NodeId)> =
            (0..2_000).filter(|&item| is_left(item)).map(|item| (1, item)).collect();
        assert_eq!((lanes.queued(), lanes.places()), (left.len(), (left.len(), 0)));
        assert_eq!(
            [0, 1, 2].map(|lane| lanes.is_idle(lane)),
            [true, false, false],
            "2 has a request in flight"
        );
        lanes.vacated();
        lanes.skipped();
        lanes.skipped();
        assert_eq!(lanes.places(), (left.len(), 0));
        assert_eq!(drain(&mut lanes), left);
    }

    #[test]
    fn a_long_queue_may_have_as_many_empty_slots_as_others() {
        let mut lanes = Lanes::default();
        for item in 0..5_000 {
            lanes.push(0, item);
        }
        let empty = (0..5_000).position(|_| {
            lanes.vacated();
            lanes.has_many_vacancies()
        });
        assert_eq!(empty, Some(2_500), "more than half");
    }
}
