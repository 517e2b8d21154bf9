//! Clocks of the collectors.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use gc_controller::Moment;
use gc_controller::clocks::{Reading, SteadyClock, WallClock};
use gc_types::{Timestamp, milliseconds};
use tokio::time::Instant;

/// A clock.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Returns the clock of this machine.
#[must_use]
pub fn system_clock() -> Clock {
    Arc::new(machine_clock)
}

/// Returns the wall clock at the time of this call, continued by the monotonic clock; meant for timers.
#[must_use]
pub fn steady_clock() -> Clock {
    let clock = SteadyClock::new(machine_clock(), moment());
    Arc::new(move || clock.at(moment()))
}

/// Start of this process's moments.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns the current moment, on a clock of this process that only moves forward.
#[must_use]
pub fn moment() -> Moment {
    Moment::from_start(START.elapsed())
}

/// Reads the clock of this machine.
pub(crate) fn machine_clock() -> Timestamp {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(milliseconds(elapsed))
}

/// Returns the current moment on the monotonic clock of this machine, which its wall clock is compared with. Tests that pause the
/// runtime's time pause neither.
pub(crate) fn machine_moment() -> Moment {
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    Moment::from_start(START.elapsed())
}

/// Returns the wall clock at the start of this process, continued by the monotonic clock.
pub(crate) fn steady_now() -> Timestamp {
    static CLOCK: LazyLock<SteadyClock> = LazyLock::new(|| SteadyClock::new(machine_clock(), moment()));
    CLOCK.at(moment())
}

/// Converts a moment to the type that timers use.
pub(crate) fn instant(moment: Moment) -> Instant {
    *START + moment.since(Moment::default())
}

/// Maximum difference between two collectors' readings of the same clock setting, in milliseconds.
const SAME_SETTING_MILLISECONDS: i64 = 1_000;

/// Last logged setting of the wall clock, as its difference to the monotonic clock.
#[derive(Debug, Default)]
struct LoggedSetting(Option<i64>);

impl LoggedSetting {
    /// Reports whether no collector of this process has logged this setting yet.
    fn is_new(&mut self, now: Timestamp, moment: Moment) -> bool {
        let running = milliseconds(moment.since(Moment::default()));
        let distance = now.0.saturating_sub(running);
        let is_known = |known: i64| distance.abs_diff(known) < SAME_SETTING_MILLISECONDS.unsigned_abs();
        if self.0.is_some_and(is_known) {
            return false;
        }
        self.0 = Some(distance);
        true
    }
}

/// A clock that a collector reads repeatedly.
pub(crate) struct ClockReader {
    clock: Clock,
    wall: WallClock,
}

impl ClockReader {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, wall: WallClock::default() }
    }

    /// Reads the clock. If it was set, this is logged once, by the first collector that notices.
    pub(crate) fn read(&mut self) -> Reading {
        static LOGGED: Mutex<LoggedSetting> = Mutex::new(LoggedSetting(None));
        let moment = machine_moment();
        let reading = self.wall.read((self.clock)(), machine_clock(), moment);
        if let Reading::Set { expected, now } = reading
            && LOGGED.lock().unwrap_or_else(PoisonError::into_inner).is_new(now, moment)
        {
            let seconds = now.since(expected) / 1000;
            tracing::warn!(seconds, "the clock was set; decisions that depend on time are repeated");
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_collectors_logs_that_the_clock_was_set() {
        let mut logged = LoggedSetting::default();
        // Columns: reading of the clock, moment, and whether it is logged.
        for (clock_seconds, moment_seconds, is_logged) in [
            (3_600, 10, true),
            // Others notice it immediately, and much later.
            (3_600, 10, false),
            (4_200, 610, false),
            // The clock is set ahead by another hour, and back.
            (7_800, 610, true),
            (4_201, 611, true),
            (4_202, 612, false),
        ] {
            let moment = Moment::from_start(std::time::Duration::from_secs(moment_seconds));
            let is_new = logged.is_new(Timestamp(clock_seconds * 1_000), moment);
            assert_eq!(is_new, is_logged, "{clock_seconds} at {moment_seconds}");
        }
    }
}
