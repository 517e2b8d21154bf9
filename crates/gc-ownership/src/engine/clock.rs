//! Time of the engine, and its timers.

use std::collections::BTreeSet;

use gc_types::Timestamp;

use super::identity::Identity;
use crate::graph::{NodeId, ResourceIndex};

/// Event at a certain time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The wait at start ends.
    StartUp,
    /// An item is retried.
    Item(NodeId),
    /// An owner has waited long enough for resources that lag behind.
    GiveUp(NodeId),
    /// A live read verifies the owner of a claim.
    OwnerRead(Identity),
    /// A resource is asked again to catch up.
    Barrier(ResourceIndex),
    /// Discovery has not contained a resource for so long that its kind counts as removed.
    Withdrawn(ResourceIndex),
}

/// Time of the last tick, and the timers. Each user sets at most one timer for a purpose, and cancels it by its time.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    now: Timestamp,
    timers: BTreeSet<(Timestamp, Timer)>,
}

impl Clock {
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Advances the time, which never goes back.
    pub(super) fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    pub(super) fn set(&mut self, due: Timestamp, timer: Timer) {
        self.timers.insert((due, timer));
    }

    pub(super) fn cancel(&mut self, due: Timestamp, timer: Timer) {
        self.timers.remove(&(due, timer));
    }

    /// Cancels all live reads of owners.
    pub(super) fn cancel_owner_reads(&mut self) {
        self.timers.retain(|(_, timer)| !matches!(timer, Timer::OwnerRead(_)));
    }

    /// Returns the next timer that has expired.
    pub(super) fn pop_expired(&mut self) -> Option<Timer> {
        if self.next()? > self.now {
            return None;
        }
        self.timers.pop_first().map(|(_, timer)| timer)
    }

    /// Returns when the next timer expires.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Returns the timers that are set.
    pub(super) fn timers(&self) -> impl Iterator<Item = &Timer> {
        self.timers.iter().map(|(_, timer)| timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_expire_in_order_and_time_never_goes_back() {
        let read =
            || Timer::OwnerRead(Identity { owner: 7, resource: 0, namespace: "n".into(), name: "a".into() });
        let mut clock = Clock::default();
        let set = [
            (5, Timer::Item(1)),
            (3, read()),
            (9, Timer::Barrier(2)),
            (5, Timer::GiveUp(1)),
            (7, Timer::Item(1)),
        ];
        for (due, timer) in set {
            clock.set(Timestamp(due), timer);
        }
        clock.cancel(Timestamp(7), Timer::Item(1));
        clock.cancel(Timestamp(6), Timer::Barrier(2));
        assert_eq!(
            (clock.next(), clock.pop_expired()),
            (Some(Timestamp(3)), None),
            "it is too early for all"
        );
        let mut expired = |now: i64| {
            clock.advance(Timestamp(now));
            let timers: Vec<Timer> = std::iter::from_fn(|| clock.pop_expired()).collect();
            (clock.now(), timers)
        };
        assert_eq!(expired(5), (Timestamp(5), vec![read(), Timer::Item(1), Timer::GiveUp(1)]));
        assert_eq!(expired(4), (Timestamp(5), vec![]));
        assert_eq!(expired(9), (Timestamp(9), vec![Timer::Barrier(2)]));
        assert_eq!(clock.next(), None);
    }

    #[test]
    fn reads_of_owners_are_cancelled_and_nothing_else() {
        let mut clock = Clock::default();
        let others = [Timer::StartUp, Timer::Item(1), Timer::GiveUp(2), Timer::Barrier(3)];
        for (due, timer) in (0..).zip(others.iter().cloned()) {
            let read = Identity { owner: 7, resource: 0, namespace: "n".into(), name: "a".into() };
            clock.set(Timestamp(due), timer);
            clock.set(Timestamp(due), Timer::OwnerRead(read));
        }
        clock.cancel_owner_reads();
        assert_eq!(clock.timers().cloned().collect::<Vec<_>>(), others);
    }
}
