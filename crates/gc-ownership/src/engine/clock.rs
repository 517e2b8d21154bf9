//! The time of the engine, and what happens at which time.

use std::collections::BTreeSet;

use gc_types::Timestamp;

use super::identity::Identity;
use crate::graph::{NodeId, ResourceIndex};

/// Event at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The wait at start is over.
    StartUp,
    /// An item is retried.
    Item(NodeId),
    /// An owner has waited long enough for resources that lag behind.
    GiveUp(NodeId),
    /// The owner of a claim is verified by a live read.
    OwnerRead(Identity),
    /// A resource is asked to catch up again.
    Barrier(ResourceIndex),
}

/// The time of the last tick, and the timers. Who sets one for something sets at most one, and cancels it by its time.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    now: Timestamp,
    timers: BTreeSet<(Timestamp, Timer)>,
}

impl Clock {
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Time passes; it never goes back.
    pub(super) fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    pub(super) fn set(&mut self, due: Timestamp, timer: Timer) {
        self.timers.insert((due, timer));
    }

    pub(super) fn cancel(&mut self, due: Timestamp, timer: Timer) {
        self.timers.remove(&(due, timer));
    }

    /// No live read of an owner is due any more.
    pub(super) fn cancel_owner_reads(&mut self) {
        self.timers.retain(|(_, timer)| !matches!(timer, Timer::OwnerRead(_)));
    }

    /// The next timer that has expired.
    pub(super) fn pop_expired(&mut self) -> Option<Timer> {
        if self.next()? > self.now {
            return None;
        }
        self.timers.pop_first().map(|(_, timer)| timer)
    }

    /// When the next timer expires.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// The timers that are set.
    pub(super) fn timers(&self) -> impl Iterator<Item = &Timer> {
        self.timers.iter().map(|(_, timer)| timer)
    }
}
