//! Time, as the collectors get it.

use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use gc_control::Moment;
use gc_control::clocks::{Reading, SteadyClock, WallClock};
use gc_types::Timestamp;
use tokio::time::Instant;

/// What tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The clock of this machine.
#[must_use]
pub fn system_clock() -> Clock {
    Arc::new(machine_clock)
}

/// The wall clock at the time of this call, continued by the monotonic clock: for timers.
#[must_use]
pub fn steady_clock() -> Clock {
    let clock = SteadyClock::new(machine_clock(), moment());
    Arc::new(move || clock.at(moment()))
}

/// Where the moments of this process begin.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Now, on a clock of this process that only runs forward.
#[must_use]
pub fn moment() -> Moment {
    Moment::from_start(START.elapsed())
}

/// What the clock of this machine shows.
pub(crate) fn machine_clock() -> Timestamp {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
}

/// Now, on the monotonic clock of this machine, with which its wall clock is compared: tests that stop the runtime's time
/// stop neither.
pub(crate) fn machine_moment() -> Moment {
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    Moment::from_start(START.elapsed())
}

/// The wall clock at the start of this process, continued by the monotonic clock.
pub(crate) fn steady_now() -> Timestamp {
    static CLOCK: LazyLock<SteadyClock> = LazyLock::new(|| SteadyClock::new(machine_clock(), moment()));
    CLOCK.at(moment())
}

/// A moment as the timers know it.
pub(crate) fn instant(moment: Moment) -> Instant {
    *START + moment.since(Moment::default())
}

/// A clock that a collector reads again and again.
pub(crate) struct ClockReader {
    clock: Clock,
    wall: WallClock,
}

impl ClockReader {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, wall: WallClock::default() }
    }

    /// Reads it. That it was set is logged.
    pub(crate) fn read(&mut self) -> Reading {
        let reading = self.wall.read((self.clock)(), machine_clock(), machine_moment());
        if let Reading::Set { expected, now } = reading {
            let seconds = now.since(expected) / 1000;
            tracing::warn!(seconds, "the clock was set; decisions that depend on time are repeated");
        }
        reading
    }
}
