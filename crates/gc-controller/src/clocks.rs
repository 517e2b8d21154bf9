//! Time on machines whose clocks are set, drift, or stand still during sleep.
//!
//! Timers follow a clock that only runs forward ([`Moment`], [`SteadyClock`]). Whether an object is due depends on the wall clock,
//! which somebody may have set: [`WallClock`] notices that, and [`ServerClock`] compares it with the clock of the API server, which
//! wrote the times in objects.

use std::fmt;
use std::time::Duration;

use gc_types::{Timestamp, milliseconds};

use crate::Moment;

/// Difference between the wall clock and the time elapsed since its last reading above which it was set (or the machine slept).
pub const CLOCK_STEP: Duration = Duration::from_secs(2);
/// Difference between this machine's clock and the server's above which deletions that depend on the time pause. Clocks that are
/// synchronized at all differ by far less, and nothing that expires has a lifetime within an order of magnitude of it.
pub const LARGEST_CLOCK_DIFFERENCE: Duration = Duration::from_secs(30);
/// Resolution of a `Date` header.
pub const DATE_RESOLUTION: Duration = Duration::from_secs(1);
/// Maximum round trip: a slower response says too little about when the server wrote its `Date`.
pub const LONGEST_ROUND_TRIP: Duration = Duration::from_secs(10);
/// Time without a `Date` after which the server is asked for one.
pub const SERVER_CLOCK_PERIOD: Duration = Duration::from_secs(10);
/// The same period while the clocks disagree, or have recently.
pub const SERVER_CLOCK_PERIOD_PAUSED: Duration = Duration::from_secs(1);
/// Minimum time for which the clocks must have agreed, with a response at the end, before deletions continue: one of several
/// servers behind an address may be wrong.
pub const AGREEMENT_PERIOD: Duration = Duration::from_secs(5);

fn signed(moment: Moment) -> i64 {
    milliseconds(moment.since(Moment::default()))
}

/// A wall clock that was read once, continued by the monotonic clock, so that setting the wall clock moves none of its timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteadyClock {
    wall: Timestamp,
    started: Moment,
}

impl SteadyClock {
    /// Creates a clock that shows `wall` at `started`.
    #[must_use]
    pub fn new(wall: Timestamp, started: Moment) -> Self {
        Self { wall, started }
    }

    /// Returns the reading at a moment.
    #[must_use]
    pub fn at(self, now: Moment) -> Timestamp {
        self.wall.after(milliseconds(now.since(self.started)))
    }
}

/// A reading of a wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Time has passed, and this is the time now. Never earlier than the previous reading.
    Passed(Timestamp),
    /// The clock was set. Otherwise it would now show `expected`.
    Set {
        /// The last reading plus the time elapsed since.
        expected: Timestamp,
        /// Time that it shows.
        now: Timestamp,
    },
}

/// A wall clock that detects being set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallClock {
    now: Timestamp,
    /// Last reading of the machine's clock, and its moment.
    machine: Option<(Timestamp, Moment)>,
}

impl WallClock {
    /// Takes a reading. `machine` is the reading of the machine's clock, which is the same except in tests that advance the time;
    /// that counts as elapsed time.
    pub fn read(&mut self, shown: Timestamp, machine: Timestamp, now: Moment) -> Reading {
        let before = self.machine.replace((machine, now));
        let passed = before.map_or(0, |(_, read)| milliseconds(now.since(read)));
        let step = before.map_or(0, |(at, _)| machine.since(at).saturating_sub(passed));
        let bound = milliseconds(CLOCK_STEP);
        let last = self.now;
        if step.abs() > bound {
            self.now = shown;
            let expected = last.max(shown.after(step.saturating_neg()));
            return Reading::Set { expected, now: shown };
        }
        if last.since(shown) > bound {
            self.now = shown;
            return Reading::Set { expected: last, now: shown };
        }
        self.now = last.max(shown);
        Reading::Passed(self.now)
    }
}

/// Agreement between the clocks of this machine and the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Agreement {
    /// The server's time is not known.
    #[default]
    Unknown,
    /// Agree within [`LARGEST_CLOCK_DIFFERENCE`].
    Agreed,
    /// Disagree, or have within [`AGREEMENT_PERIOD`]. Positive if this machine is ahead; milliseconds.
    Disagreed(i64),
}

impl Agreement {
    /// Reports whether deletions that depend on the time pause.
    #[must_use]
    pub fn pauses(self) -> bool {
        matches!(self, Self::Disagreed(_))
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = LARGEST_CLOCK_DIFFERENCE.as_secs();
        match *self {
            Self::Unknown => f.write_str("the server's clock is not known"),
            Self::Agreed => write!(f, "the clocks of this machine and of the server agree within {bound} s"),
            Self::Disagreed(by) => {
                let seconds = by.unsigned_abs() / 1000;
                let word = if by < 0 { "behind" } else { "ahead of" };
                write!(
                    f,
                    "this machine's clock is {seconds} s {word} the server's, more than {bound} s lately"
                )
            }
        }
    }
}

/// A sighting of the server's clock. At a moment `m` it shows between `earliest + m` and `latest + m` milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sighting {
    at: Moment,
    earliest: i64,
    latest: i64,
}

/// The server's clock, as seen in its responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerClock {
    sighting: Option<Sighting>,
    /// Last time at which the clocks disagreed, and by how much.
    disagreed: Option<(Moment, i64)>,
    asked: Option<Moment>,
}

impl ServerClock {
    /// Takes the `Date` of a response to a request that was sent and answered at these moments; at the second one the wall clock
    /// showed `wall`. The server wrote it in between, rounded down to a second.
    pub fn observe(&mut self, date: Timestamp, sent: Moment, answered: Moment, wall: Timestamp) {
        let is_stale = self.sighting.is_some_and(|known| known.at > answered);
        if is_stale || answered.since(sent) > LONGEST_ROUND_TRIP {
            return;
        }
        let earliest = date.0.saturating_sub(signed(answered));
        let latest = date.0.saturating_add(milliseconds(DATE_RESOLUTION)).saturating_sub(signed(sent));
        self.sighting = Some(Sighting { at: answered, earliest, latest });
        self.note(answered, wall);
    }

    /// Returns the minimum lead of the wall clock over the server's (lag, if negative); `None` if the sighting does not show it.
    #[must_use]
    pub fn difference_milliseconds(&self, now: Moment, wall: Timestamp) -> Option<i64> {
        let Sighting { earliest, latest, .. } = self.sighting?;
        let moment = signed(now);
        let least = wall.0.saturating_sub(latest.saturating_add(moment));
        let most = wall.0.saturating_sub(earliest.saturating_add(moment));
        Some(if least > 0 { least } else { most.min(0) })
    }

    fn note(&mut self, now: Moment, wall: Timestamp) {
        if let Some(by) = self.difference_milliseconds(now, wall)
            && by.abs() > milliseconds(LARGEST_CLOCK_DIFFERENCE)
        {
            self.disagreed = Some((now, by));
        }
    }

    /// Compares the clocks now. The server's is extrapolated from its last response, so a wall clock that is set is noticed
    /// immediately.
    pub fn compare(&mut self, now: Moment, wall: Timestamp) -> Agreement {
        let Some(sighting) = self.sighting else { return Agreement::Unknown };
        self.note(now, wall);
        match self.disagreed {
            // A clock that was only extrapolated agrees again once a response confirms it.
            Some((at, by)) if sighting.at.since(at) < AGREEMENT_PERIOD => Agreement::Disagreed(by),
            _ => {
                self.disagreed = None;
                Agreement::Agreed
            }
        }
    }

    /// Reports whether to send the server a request, only for the `Date` of its response. True once per period, the first of which
    /// begins with the first call.
    pub fn poll_question(&mut self, now: Moment) -> bool {
        let period = if self.disagreed.is_some() { SERVER_CLOCK_PERIOD_PAUSED } else { SERVER_CLOCK_PERIOD };
        let is_recent = |at: Moment| now.since(at) < period;
        let asked = *self.asked.get_or_insert(now);
        if is_recent(asked) || self.sighting.is_some_and(|known| is_recent(known.at)) {
            return false;
        }
        self.asked = Some(now);
        true
    }
}

#[cfg(test)]
mod tests;
