//! The duration of a lease, by how quickly the server has renewed it lately.
//!
//! A short lease is taken over soon after its holder died, but a server that is slow for a moment costs its holder the lease. So a
//! lease is short only while the server answers quickly.

use std::time::Duration;

/// A lease lasts this many times the slowest recent renewal.
const RENEWALS_PER_LEASE: u32 = 20;
/// Number of granted renewals before a lease becomes shorter than its longest duration.
const RENEWALS_BEFORE_SHORT: u32 = 5;
/// Number of intervals that a slow renewal is remembered for, and their length.
const INTERVALS: usize = 5;
const INTERVAL: Duration = Duration::from_mins(1);
/// Shortest time between two renewals of a shortened lease, unless its renew deadline has no room for [`TRIES`] of them.
const SHORTEST_RETRY: Duration = Duration::from_millis(500);
/// Shortest time after which a request is given up.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(1);
/// Attempts to renew a shortened lease before its renew deadline.
const TRIES: u32 = 4;

/// Durations of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time after which another candidate may take the Lease, from its last change. Written to the Lease in whole seconds, rounded up.
    pub lease_duration: Duration,
    /// Time for which the holder may act, from when it requested the last renewal that was granted.
    pub renew_deadline: Duration,
    /// Time between two rounds.
    pub retry_period: Duration,
}

impl Timing {
    /// Returns the time after which a request about the Lease is given up.
    #[must_use]
    pub fn patience(&self) -> Duration {
        (self.renew_deadline / 2).max(SHORTEST_PATIENCE)
    }

    /// Returns the durations of a lease of this many seconds, in the same proportions. They are never longer than these.
    #[must_use]
    pub fn scaled(&self, seconds: u64) -> Self {
        let lease_duration = Duration::from_secs(seconds);
        if lease_duration >= self.lease_duration {
            return *self;
        }
        let scale = |duration: Duration| {
            duration.mul_f64(lease_duration.as_secs_f64() / self.lease_duration.as_secs_f64())
        };
        let renew_deadline = scale(self.renew_deadline);
        let at_least = SHORTEST_RETRY.min(renew_deadline / TRIES).min(self.retry_period);
        Self { lease_duration, renew_deadline, retry_period: scale(self.retry_period).max(at_least) }
    }
}

/// Chooses the duration of the next lease between two bounds.
#[derive(Clone, Debug)]
pub struct Pace {
    longest: Timing,
    shortest_seconds: u64,
    granted: u32,
    /// Slowest renewal in each of the last intervals, with the number of the interval.
    slowest: [(u128, Duration); INTERVALS],
}

impl Pace {
    /// Creates a pace between `shortest` and the durations `longest`. If `shortest` is not shorter, every lease is the longest.
    #[must_use]
    pub fn new(longest: Timing, shortest: Duration) -> Self {
        let shortest_seconds = whole_seconds(shortest).max(1);
        Self { longest, shortest_seconds, granted: 0, slowest: [(0, Duration::ZERO); INTERVALS] }
    }

    /// Takes in that a renewal was granted, or has not been granted yet, this long after it was due.
    pub fn renewed(&mut self, took: Duration, is_granted: bool, now: Duration) {
        self.granted = self.granted.saturating_add(u32::from(is_granted));
        let interval = now.as_nanos() / INTERVAL.as_nanos();
        let index = usize::try_from(interval % INTERVALS as u128).unwrap_or(0);
        if let Some((since, slowest)) = self.slowest.get_mut(index) {
            *slowest = if *since == interval { took.max(*slowest) } else { took };
            *since = interval;
        }
    }

    /// Returns the durations of a lease that is renewed now.
    #[must_use]
    pub fn timing(&self, now: Duration) -> Timing {
        if self.granted < RENEWALS_BEFORE_SHORT {
            return self.longest;
        }
        let oldest = (now.as_nanos() / INTERVAL.as_nanos()).saturating_sub(INTERVALS as u128 - 1);
        let recent = self.slowest.iter().filter(|(interval, _)| *interval >= oldest);
        let slowest = recent.map(|(_, took)| *took).max().unwrap_or_default();
        let needed = whole_seconds(slowest.saturating_mul(RENEWALS_PER_LEASE));
        self.longest.scaled(needed.max(self.shortest_seconds))
    }

    /// Returns the durations for a lease of another candidate, who chose this duration.
    #[must_use]
    pub fn of_other(&self, seconds: u64) -> Timing {
        self.longest.scaled(seconds.max(self.shortest_seconds))
    }
}

/// Returns a duration in seconds, rounded up.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Timing = Timing {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };

    fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// Returns the seconds of a lease at this time after renewals, each with the time at which it ended and how long it took.
    fn lease_after(renewals: &[(u64, u64)], now: u64) -> u64 {
        let mut pace = Pace::new(LONGEST, Duration::from_secs(3));
        for (ended, took) in renewals {
            pace.renewed(milliseconds(*took), true, Duration::from_secs(*ended));
        }
        pace.timing(Duration::from_secs(now)).lease_duration.as_secs()
    }

    #[test]
    fn a_lease_is_short_while_renewals_are_quick() {
        let quick = [(2, 10), (4, 150), (6, 10), (8, 10), (10, 10)];
        let with = |more: &[(u64, u64)]| [&quick[..], more].concat();
        for (renewals, now, expected) in [
            (vec![], 0, 15),
            (quick[..4].to_vec(), 9, 15),
            (quick.to_vec(), 11, 3),
            // 20 times the slowest.
            (with(&[(12, 151)]), 13, 4),
            (with(&[(12, 400)]), 13, 8),
            (with(&[(12, 9_000)]), 13, 15),
            // A slow one counts for up to five minutes, and not longer.
            (with(&[(12, 400), (290, 10)]), 299, 8),
            (with(&[(12, 400), (290, 10)]), 300, 3),
            (with(&[(12, 400), (301, 10)]), 301, 3),
        ] {
            assert_eq!(lease_after(&renewals, now), expected, "{renewals:?} at {now} s");
        }
    }

    #[test]
    fn a_renewal_that_is_not_granted_yet_makes_the_lease_longer_but_never_shorter() {
        let mut pace = Pace::new(LONGEST, Duration::from_secs(3));
        for _ in 0..RENEWALS_BEFORE_SHORT {
            assert_eq!(pace.timing(Duration::ZERO), LONGEST);
            pace.renewed(milliseconds(10), false, Duration::ZERO);
        }
        assert_eq!(pace.timing(Duration::ZERO), LONGEST);
        for _ in 0..RENEWALS_BEFORE_SHORT {
            pace.renewed(milliseconds(10), true, Duration::ZERO);
        }
        assert_eq!(pace.timing(Duration::ZERO).lease_duration, Duration::from_secs(3));
        pace.renewed(milliseconds(500), false, Duration::ZERO);
        assert_eq!(pace.timing(Duration::ZERO).lease_duration, Duration::from_secs(10));
    }

    #[test]
    fn a_shorter_lease_keeps_its_proportions() {
        let short = LONGEST.scaled(3);
        assert_eq!((short.lease_duration, short.renew_deadline), (milliseconds(3_000), milliseconds(2_000)));
        assert_eq!(short.retry_period, milliseconds(500));
        assert_eq!(LONGEST.scaled(6).retry_period, milliseconds(800));
        assert_eq!((LONGEST.scaled(15), LONGEST.scaled(u64::MAX)), (LONGEST, LONGEST));
        for seconds in 1..=15 {
            let timing = LONGEST.scaled(seconds);
            let ratio = timing.lease_duration.as_secs_f64() / timing.renew_deadline.as_secs_f64();
            assert!((ratio - 1.5).abs() < 1e-6, "{timing:?}");
            assert!(timing.renew_deadline >= timing.retry_period * 2, "{timing:?}");
        }
        // A period that is already short does not become longer.
        let quick = Timing { retry_period: milliseconds(200), ..LONGEST };
        assert_eq!(quick.scaled(3).retry_period, milliseconds(200));
    }

    #[test]
    fn the_shortest_lease_is_never_longer_than_the_longest() {
        let mut pace = Pace::new(LONGEST, Duration::from_mins(1));
        for _ in 0..RENEWALS_BEFORE_SHORT {
            pace.renewed(Duration::ZERO, true, Duration::ZERO);
        }
        assert_eq!(pace.timing(Duration::ZERO), LONGEST);
        let pace = Pace::new(LONGEST, Duration::from_secs(3));
        let others = [0, 2, 4, u64::MAX].map(|seconds| pace.of_other(seconds).lease_duration.as_secs());
        assert_eq!(others, [3, 3, 4, 15], "a lease of no duration makes others not ask all the time");
    }
}
