//! Changes of clocks: they are set forward and back, drift, and stand still while a machine sleeps.

use super::World;
use crate::clocks::ServerDate;
use crate::random::Random;
use crate::violation::Violation;

/// By how much a clock is set, milliseconds.
const JUMPS_MILLISECONDS: [i64; 7] = [-90_000_000, -3_600_000, -5_000, 5_000, 45_000, 3_600_000, 90_000_000];
/// The same for the server's, by which objects are stamped: what is stamped in the future is not due for so long.
const SERVER_JUMPS_MILLISECONDS: [i64; 5] = [-90_000_000, -3_600_000, -45_000, 45_000, 3_600_000];
/// Speed of a clock relative to the world's, in thousandths.
const DRIFTS: [i64; 4] = [-20, -1, 1, 20];
/// For how long a machine sleeps, milliseconds.
const SLEEPS_MILLISECONDS: [i64; 3] = [3_000, 60_000, 7_200_000];
/// Number of questions for the time per thousand that are not answered.
const UNANSWERED: u32 = 300;
/// Clocks that differ by more than this are set right when faults stop: what differs by less stays as it is.
const WORTH_SETTING_MILLISECONDS: i64 = 10_000;

impl World<'_> {
    /// Returns the evidence of an answer about the server's clock now.
    pub(super) fn server_date(&self) -> ServerDate {
        let shown = self.server.now;
        ServerDate { date: shown - shown.rem_euclid(1_000), server_error: self.server_error }
    }

    /// One of the clocks is disturbed. (In an election, it does not matter what a wall clock shows.)
    pub(super) fn disturb_clocks(&mut self, salt: u64) -> Result<(), Violation> {
        let mut random = Random::new(salt);
        let Some(index) = self.moving(&mut random) else { return Ok(()) };
        let jump = random.pick(&JUMPS_MILLISECONDS);
        let what = if self.story.retention { random.weighted(&[4, 3, 2, 2]) } else { 0 };
        let clocks = &mut self.collectors[index].clocks;
        match what {
            // A wrong clock is often corrected, which moves it by as much as before.
            0 => {
                let jump = if clocks.error != 0 && random.chance(500) { -clocks.error } else { jump };
                clocks.error += jump;
                self.report.note_happened("clock jumps");
                self.note(|| format!("  the clock jumps by {jump} ms"));
            }
            1 => {
                let jump = random.pick(&SERVER_JUMPS_MILLISECONDS);
                self.server_error += jump;
                self.server.now += jump;
                self.server_ahead = self.server_ahead.max(self.server_error);
                self.report.note_happened("server clock jumps");
                self.note(|| format!("  the server's clock jumps by {jump} ms"));
            }
            2 => {
                let slept = random.pick(&SLEEPS_MILLISECONDS);
                clocks.slept += slept;
                self.report.note_happened("machines slept");
                self.note(|| format!("  a machine sleeps for {slept} ms"));
                return self.pass(slept);
            }
            _ => {
                clocks.drift = random.pick(&DRIFTS);
                self.report.note_happened("clocks drifted");
                self.note(|| "  a clock begins to drift".to_owned());
            }
        }
        self.pass(0)
    }

    /// Collectors that have not had an answer for a while ask for one, whatever it says.
    pub(super) fn ask_for_the_time(&mut self) {
        let (now, date) = (self.now, self.server_date());
        let mut random = Random::new(self.story.seed ^ now.unsigned_abs());
        for collector in self.collectors.iter_mut().filter(|collector| !collector.paused) {
            let sent = collector.clocks.steady_at(now);
            if collector.clocks.poll_question(now) && !random.chance(UNANSWERED) {
                collector.clocks.observe(&date, sent, now);
            }
        }
    }

    /// Somebody sets the clocks right, and they stay so.
    pub(super) fn synchronize_clocks(&mut self) -> Result<(), Violation> {
        if self.server_error.abs() > WORTH_SETTING_MILLISECONDS {
            self.server.now -= self.server_error;
            self.server_error = 0;
        }
        for collector in &mut self.collectors {
            collector.clocks.drift = 0;
            if collector.clocks.error.abs() > WORTH_SETTING_MILLISECONDS {
                collector.clocks.error = 0;
            }
        }
        self.pass(0)
    }
}
