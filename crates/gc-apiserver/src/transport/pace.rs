//! Pace of answers on a connection without credentials: a burst at once, and then a fixed number of requests per second. Further
//! requests wait instead of being refused: the client sends no faster than it is answered, and has no reason to reconnect.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of answers that a connection may have at once...
pub(super) const BURST: u32 = 64;
/// ...and the number per second beyond that: several times the rate of probes and scrapers.
const PER_SECOND: u32 = 8;
/// Time that pays for one answer.
pub(super) const PERIOD: Duration = Duration::from_millis(1000 / PER_SECOND as u64);

/// One request's share of the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Number of answers that the connection has had recently, including this one; each is forgotten after a while.
    pub(super) had: u32,
    /// Delay of this answer.
    pub(super) delay: Duration,
}

/// Pace of a connection; see the module documentation.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Time at which all counted answers are forgotten.
    forgotten: Mutex<Option<Instant>>,
}

impl Pace {
    /// Counts an answer.
    pub(super) fn count(&self, now: Instant) -> Share {
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        let at = forgotten.map_or(now, |at| at.max(now)) + PERIOD;
        *forgotten = Some(at);
        let remembered = at - now;
        let had = u32::try_from(remembered.as_millis() / PERIOD.as_millis()).unwrap_or(u32::MAX);
        Share { had, delay: remembered.saturating_sub(BURST * PERIOD) }
    }

    /// Reports whether the next answer would have to wait.
    pub(super) fn is_used_up(&self, now: Instant) -> bool {
        let forgotten = *self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        forgotten.is_some_and(|at| at.saturating_duration_since(now) + PERIOD > BURST * PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floods_wait_and_probes_do_not() {
        let now = Instant::now();
        let seconds = |seconds: u32| now + Duration::from_secs(seconds.into());
        // Requests at once, seconds between two bursts, number of bursts, delay of the very last request.
        let table = [
            ("a probe", 1, 1, 1_000, Duration::ZERO),
            ("a burst of ten", 10, 2, 1_000, Duration::ZERO),
            ("the pace", PER_SECOND, 1, 1_000, Duration::ZERO),
            ("a burst", BURST, 8, 100, Duration::ZERO),
            ("one more", BURST + 1, 60, 1, PERIOD),
            ("twice the pace", 2 * PER_SECOND, 1, 60, Duration::from_secs(53)),
        ];
        for (what, at_once, period, times, delay) in table {
            let pace = Pace::default();
            let mut last = Share { had: 0, delay: Duration::ZERO };
            for time in 0..times {
                for _ in 0..at_once {
                    last = pace.count(seconds(time * period));
                }
            }
            assert_eq!(last.delay, delay, "{what}");
        }
    }

    #[test]
    fn what_a_connection_had_is_forgotten() {
        let (pace, now) = (Pace::default(), Instant::now());
        assert!(!pace.is_used_up(now));
        let had: Vec<u32> = (0..BURST).map(|_| pace.count(now).had).collect();
        assert_eq!(had, (1..=BURST).collect::<Vec<_>>());
        assert!(pace.is_used_up(now));
        let later = now + Duration::from_secs(4);
        assert!(!pace.is_used_up(later));
        assert_eq!(pace.count(later).had, BURST - 4 * PER_SECOND + 1);
    }
}
