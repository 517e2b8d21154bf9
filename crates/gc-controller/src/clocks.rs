//! Time where clocks are set, drift, or stand still while the machine sleeps.
//!
//! Timers follow a clock that only runs forward ([`Moment`], [`SteadyClock`]). Whether an object is due is asked of the
//! wall clock, which somebody may have set: [`WallClock`] notices that, and [`ServerClock`] compares it with the clock of
//! the API server, by which the times in objects were written.

use std::fmt;
use std::time::Duration;

use gc_types::{Timestamp, milliseconds};

use crate::Moment;

/// A wall clock that differs by more than this from what has passed since it was read last was set (or the machine slept).
pub const CLOCK_STEP: Duration = Duration::from_secs(2);
/// Deletions that depend on the time pause while this machine's clock and the server's differ by more. Clocks that are
/// synchronized at all differ by far less, and nothing that expires is shorter by an order of magnitude.
pub const LARGEST_CLOCK_DIFFERENCE: Duration = Duration::from_secs(30);
/// The resolution of a `Date` header.
pub const DATE_RESOLUTION: Duration = Duration::from_secs(1);
/// An answer that took longer says too little about when the server wrote its `Date`.
pub const LONGEST_ROUND_TRIP: Duration = Duration::from_secs(10);
/// After this time without a `Date` the server is asked for one.
pub const SERVER_CLOCK_PERIOD: Duration = Duration::from_secs(10);
/// The same while the clocks disagree, or have lately.
pub const SERVER_CLOCK_PERIOD_PAUSED: Duration = Duration::from_secs(1);
/// Minimum time that the clocks must have agreed, with an answer at the end, before deletions continue: one of
/// several servers behind an address may be wrong.
pub const AGREEMENT_PERIOD: Duration = Duration::from_secs(5);

fn signed(moment: Moment) -> i64 {
    milliseconds(moment.since(Moment::default()))
}

/// A wall clock as it was read once, carried on by the monotonic one: setting the wall clock moves no timer of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteadyClock {
    wall: Timestamp,
    started: Moment,
}

impl SteadyClock {
    /// The wall clock shows `wall` at `started`.
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

/// Reading of a wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Time has passed, and it is this time now. Never earlier than the reading before.
    Passed(Timestamp),
    /// It was set. Without that it would be `expected` now.
    Set {
        /// The last reading and the time that has passed since.
        expected: Timestamp,
        /// The time shown.
        now: Timestamp,
    },
}

/// A wall clock, and whether somebody set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallClock {
    now: Timestamp,
    /// Last reading of the machine's clock, and its moment.
    machine: Option<(Timestamp, Moment)>,
}

impl WallClock {
    /// Takes in that it shows `shown`. `machine` is what the machine's clock shows, which is the same but in tests that
    /// move time ahead: that passes then.
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

/// Agreement of the clocks of this machine and the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Agreement {
    /// The server has not said what time it is.
    #[default]
    Unknown,
    /// They agree within [`LARGEST_CLOCK_DIFFERENCE`].
    Agreed,
    /// They disagree, or have within [`AGREEMENT_PERIOD`]. Positive if this machine is ahead; milliseconds.
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

/// When the server's clock was seen. At a moment `m` it shows between `earliest + m` and `latest + m` milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sighting {
    at: Moment,
    earliest: i64,
    latest: i64,
}

/// The server's clock, as its answers show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerClock {
    sighting: Option<Sighting>,
    /// When the clocks disagreed last, and by how much.
    disagreed: Option<(Moment, i64)>,
    asked: Option<Moment>,
}

impl ServerClock {
    /// Takes in the `Date` of an answer to a request that was sent and answered at these moments, the latter when the wall
    /// clock showed `wall`. The server wrote it in between, rounded down to a second.
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

    /// By how much the wall clock is ahead of the server's at least (behind, if negative); nothing where the sighting does
    /// not show it.
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

    /// Compares the clocks now. The server's is carried on from its last answer, so that a wall clock that is set is noticed at
    /// once.
    pub fn compare(&mut self, now: Moment, wall: Timestamp) -> Agreement {
        let Some(sighting) = self.sighting else { return Agreement::Unknown };
        self.note(now, wall);
        match self.disagreed {
            // A clock that was only extrapolated agrees again once an answer confirms it.
            Some((at, by)) if sighting.at.since(at) < AGREEMENT_PERIOD => Agreement::Disagreed(by),
            _ => {
                self.disagreed = None;
                Agreement::Agreed
            }
        }
    }

    /// Reports whether the server is to be asked for an answer, whatever it says: its `Date` matters. True once in a
    /// period, the first of which begins with the first call.
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
