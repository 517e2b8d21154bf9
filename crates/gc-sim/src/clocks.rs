//! The clocks of a simulated collector: a wall clock that is set and drifts, a monotonic clock that stands still while the machine
//! sleeps, and an estimate of the server's clock. [`gc_controller::clocks`] decides what follows from them.

use std::time::Duration;

use gc_controller::Moment;
use gc_controller::clocks::{
    DATE_RESOLUTION, LARGEST_CLOCK_DIFFERENCE, LONGEST_ROUND_TRIP, Reading, ServerClock, SteadyClock,
    WallClock,
};
use gc_types::{Timestamp, milliseconds};

use crate::defects::Defect;

use crate::saboteur::Saboteur;
use crate::server::BEGINNING_MILLISECONDS;

/// Evidence in a response about the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerDate {
    /// `Date` of the response: to the second, as of the time when the request was carried out.
    pub date: i64,
    /// Difference between the server's clock and the world's at that time, which no header shows.
    pub server_error: i64,
}

/// Clocks of one collector.
#[derive(Clone, Debug)]
pub struct Clocks {
    wall: WallClock,
    server: ServerClock,
    steady: SteadyClock,
    shown: i64,
    moment: Moment,
    /// Difference between its wall clock and the world's.
    pub error: i64,
    /// Speed relative to the world's, in thousandths.
    pub drift: i64,
    /// Time that its machine has slept.
    pub slept: i64,
    /// Difference between the server's clock and the world's according to the last response in time.
    server_error: Option<i64>,
}

impl Default for Clocks {
    fn default() -> Self {
        let beginning = Timestamp(BEGINNING_MILLISECONDS);
        Self {
            wall: WallClock::default(),
            server: ServerClock::default(),
            steady: SteadyClock::new(beginning, Moment::default()),
            shown: BEGINNING_MILLISECONDS,
            moment: Moment::default(),
            error: 0,
            drift: 0,
            slept: 0,
            server_error: None,
        }
    }
}

impl Clocks {
    /// Lets this time pass in the world.
    pub fn pass(&mut self, milliseconds: i64) {
        self.error += milliseconds * self.drift / 1_000;
    }

    /// Reads the clocks at the world time `now`.
    pub fn read(&mut self, now: i64, saboteur: &Saboteur) -> Reading {
        self.shown = now + self.error;
        self.moment = self.moment_at(now);
        let shown = Timestamp(self.shown);
        let reading = self.wall.read(shown, shown, self.moment);
        match reading {
            Reading::Set { expected, .. } if saboteur.is(Defect::ClockNeverBack) => {
                Reading::Passed(expected.max(shown))
            }
            Reading::Set { now, .. } if saboteur.is(Defect::ClockStepUnnoticed) => Reading::Passed(now),
            reading => reading,
        }
    }

    /// Returns the reading as a moment at the world time `now`.
    #[must_use]
    pub fn moment_at(&self, now: i64) -> Moment {
        let passed = now - BEGINNING_MILLISECONDS - self.slept;
        Moment::from_start(Duration::from_millis(u64::try_from(passed).unwrap_or_default()))
    }

    /// Returns the last reading of the wall clock.
    #[must_use]
    pub fn shown(&self) -> i64 {
        self.shown
    }

    /// Returns the time by a clock that is never set.
    #[must_use]
    pub fn steady(&self) -> i64 {
        self.steady.at(self.moment).0
    }

    /// Returns the time at the world time `now`, by a clock that is never set.
    #[must_use]
    pub fn steady_at(&self, now: i64) -> i64 {
        self.steady.at(self.moment_at(now)).0
    }

    /// Takes in the response to a request that was sent at that time by the steady clock.
    pub fn observe(&mut self, date: &ServerDate, sent: i64, now: i64) {
        let answered = self.moment_at(now);
        let sent = u64::try_from(sent - BEGINNING_MILLISECONDS).unwrap_or_default();
        let sent = Moment::from_start(Duration::from_millis(sent));
        self.server.observe(Timestamp(date.date), sent, answered, Timestamp(now + self.error));
        if answered.since(sent) <= LONGEST_ROUND_TRIP {
            // A response that waited while the machine slept is older than the machine can know: its estimate of the server's time
            // is wrong by the duration of the sleep, and nothing follows from it.
            let age = now - (date.date - date.server_error);
            let is_fresh = age <= milliseconds(LONGEST_ROUND_TRIP + DATE_RESOLUTION);
            self.server_error = is_fresh.then_some(date.server_error);
        }
    }

    /// Reports whether the collector should now ask the server for the time.
    pub fn poll_question(&mut self, now: i64) -> bool {
        let moment = self.moment_at(now);
        self.server.poll_question(moment)
    }

    /// Reports whether decisions that depend on the time are paused.
    pub fn is_paused(&mut self, now: i64) -> bool {
        let moment = self.moment_at(now);
        self.server.compare(moment, Timestamp(now + self.error)).pauses()
    }

    /// Reports whether the collector can know that its clock and the server's disagree, based on the real difference: the oracle
    /// decides this without reading a header.
    #[must_use]
    pub fn must_pause(&self) -> bool {
        let bound = LARGEST_CLOCK_DIFFERENCE + DATE_RESOLUTION + LONGEST_ROUND_TRIP;
        self.server_error.is_some_and(|server| (self.error - server).abs() > milliseconds(bound))
    }
}
