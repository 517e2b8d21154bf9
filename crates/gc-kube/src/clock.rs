//! Time, as the collectors get it.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gc_control::Moment;
use gc_types::Timestamp;
use tokio::time::Instant;

/// What tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The clock of this machine.
#[must_use]
pub fn system_clock() -> Clock {
    Arc::new(|| {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
    })
}

/// The wall clock at the time of this call, continued by the monotonic clock: for timers.
#[must_use]
pub fn steady_clock() -> Clock {
    let clock = SteadyClock::started();
    Arc::new(move || clock.at(Instant::now()))
}

/// Where the moments of this process begin.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Now, on a clock of this process that only runs forward.
#[must_use]
pub fn moment() -> Moment {
    Moment::from_start(START.elapsed())
}

/// The wall clock at the start of this process, continued by the monotonic clock.
pub(crate) fn steady_now() -> Timestamp {
    static CLOCK: LazyLock<SteadyClock> = LazyLock::new(SteadyClock::started);
    CLOCK.at(Instant::now())
}

/// A moment as the timers know it.
pub(crate) fn instant(moment: Moment) -> Instant {
    *START + moment.since(Moment::default())
}

/// If a given clock goes back by less than this, it is waited for; by more, it was set.
pub(crate) const CLOCK_STEP: Duration = Duration::from_secs(2);

/// What a clock that may be set says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Time has passed, and it is this time now.
    Passed(Timestamp),
    /// It was set back, to this time.
    Set(Timestamp),
}

/// Reads a clock on which `before` was the last time.
pub(crate) fn read(clock: &Clock, before: Timestamp) -> Reading {
    let now = clock();
    if before.since(now) > i64::try_from(CLOCK_STEP.as_millis()).unwrap_or(i64::MAX) {
        let seconds = before.since(now) / 1000;
        tracing::warn!(seconds, "the clock was set back; decisions that depend on time are repeated");
        return Reading::Set(now);
    }
    Reading::Passed(before.max(now))
}

/// How long it is until then; nothing if it is past.
#[must_use]
pub fn until(then: Timestamp, now: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(then.0.saturating_sub(now.0)).unwrap_or_default())
}

/// The time of engines: the wall clock as it was at the start, continued by the monotonic clock. A wall clock
/// that is set forward or back moves no timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SteadyClock {
    wall: Timestamp,
    started: Instant,
}

impl SteadyClock {
    pub(crate) fn started() -> Self {
        Self { wall: system_clock()(), started: Instant::now() }
    }

    pub(crate) fn at(&self, now: Instant) -> Timestamp {
        let passed = now.saturating_duration_since(self.started).as_millis();
        self.wall.after(i64::try_from(passed).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timers follow a clock that only runs forward, whatever is done to the wall clock after the start.
    #[test]
    fn time_is_carried_on_from_the_start() {
        let started = Instant::now();
        let clock = SteadyClock { wall: Timestamp(1_790_000_000_000), started };
        for (passed, expected) in [
            (Duration::ZERO, 1_790_000_000_000),
            (Duration::from_micros(999), 1_790_000_000_000),
            (Duration::from_millis(1), 1_790_000_000_001),
            (Duration::from_hours(24), 1_790_086_400_000),
        ] {
            assert_eq!(clock.at(started + passed), Timestamp(expected), "{passed:?}");
        }
        let before = started.checked_sub(Duration::from_secs(1)).unwrap_or(started);
        assert_eq!(clock.at(before), Timestamp(1_790_000_000_000));
    }
}
