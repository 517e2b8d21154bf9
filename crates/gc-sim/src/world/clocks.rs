//! Changes of clocks: they are set forward and back, drift, and stand still while a machine sleeps.

use super::World;
use crate::clocks::ServerDate;
use crate::random::Random;
use crate::violation::Violation;

/// Amounts by which a clock is set, in milliseconds.
const JUMPS_MILLISECONDS: [i64; 7] = [-90_000_000, -3_600_000, -5_000, 5_000, 45_000, 3_600_000, 90_000_000];
/// Amounts for the server's clock, which stamps objects: an object stamped in the future is not due for that long.
const SERVER_JUMPS_MILLISECONDS: [i64; 5] = [-90_000_000, -3_600_000, -45_000, 45_000, 3_600_000];
/// Speed of a clock relative to the world's, in thousandths.
const DRIFTS: [i64; 4] = [-20, -1, 1, 20];
/// Durations for which a machine sleeps, in milliseconds.
const SLEEPS_MILLISECONDS: [i64; 3] = [3_000, 60_000, 7_200_000];
/// Number of requests for the time per thousand that are not answered.
const UNANSWERED: u32 = 300;
/// Difference above which clocks are set right when faults stop; smaller differences remain.
const WORTH_SETTING_MILLISECONDS: i64 = 10_000;

impl World<'_> {
    /// Returns the evidence in a response about the server's clock now.
    pub(super) fn server_date(&self) -> ServerDate {
        let shown = self.server.now;
        ServerDate { date: shown - shown.rem_euclid(1_000), server_error: self.server_error }
    }

    /// Disturbs one of the clocks. (In an election, the reading of a wall clock does not matter.)
    pub(super) fn disturb_clocks(&mut self, salt: u64) -> Result<(), Violation> {
        let mut random = Random::new(salt);
        let Some(index) = self.moving(&mut random) else { return Ok(()) };
        let jump = random.pick(&JUMPS_MILLISECONDS);
        let what = if self.story.retention { random.weighted(&[4, 3, 2, 2]) } else { 0 };
        let clocks = &mut self.collectors[index].clocks;
        match what {
            // A wrong clock is often corrected, which sets it back by the same amount.
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

    /// Lets collectors without a response for a while request one, whatever its content.
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

    /// Sets the clocks right for good.
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
