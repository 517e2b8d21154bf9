//! How many requests are in flight: as many as the server carries.
//!
//! Additive increase while latency holds, multiplicative decrease on 429, timeouts and server errors; and where
//! latency rises well above what it was, no increase. Time comes in as an argument.

use std::time::{Duration, Instant};

/// Bounds of the pacing, and an optional fixed rate on top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacingOptions {
    /// Requests in flight at the start.
    pub initial: usize,
    /// Never fewer.
    pub smallest: usize,
    /// Never more.
    pub largest: usize,
    /// `--kube-api-qps`: at most so many requests per second in the long run; none if absent.
    pub queries_per_second: Option<f64>,
    /// `--kube-api-burst`: so many at once on top of the rate.
    pub burst: u32,
}

impl Default for PacingOptions {
    fn default() -> Self {
        Self { initial: 32, smallest: 1, largest: 128, queries_per_second: None, burst: 30 }
    }
}

/// What an answer says about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It answered, whatever the answer.
    Answered,
    /// It is too busy, and may have said for how long.
    Busy(Option<Duration>),
}

/// The figures of the pacing, for metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacingState {
    /// Requests allowed in flight.
    pub limit: usize,
    /// Requests in flight.
    pub in_flight: usize,
    /// Smoothed latency, lately.
    pub latency: Duration,
    /// Smoothed latency, in the long run.
    pub usual_latency: Duration,
}

/// Decides when the next request may go.
#[derive(Clone, Debug)]
pub struct Pacer {
    options: PacingOptions,
    limit: f64,
    in_flight: usize,
    latency: f64,
    usual_latency: f64,
    /// Until then nothing goes.
    paused_until: Option<Instant>,
    /// Requests begun before this moment say nothing new about the server being busy.
    decreased_at: Option<Instant>,
    tokens: f64,
    refilled_at: Option<Instant>,
}

/// What a busy server leaves of the limit.
const DECREASE: f64 = 0.6;
/// Latency of so many times the usual one stops the increase.
const LATENCY_TOLERANCE: f64 = 2.0;
/// Latency below this is never a sign of load, seconds.
const LATENCY_FLOOR: f64 = 0.005;
/// Weight of a new sample in the latency lately, and in the long run.
const RECENT_WEIGHT: f64 = 0.1;
const USUAL_WEIGHT: f64 = 0.002;
/// A server's Retry-After is followed up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Pacer {
    /// Nothing in flight.
    #[must_use]
    pub fn new(options: PacingOptions) -> Self {
        Self {
            limit: count(options.initial.clamp(options.smallest, options.largest)),
            in_flight: 0,
            latency: 0.0,
            usual_latency: 0.0,
            paused_until: None,
            decreased_at: None,
            tokens: f64::from(options.burst),
            refilled_at: None,
            options,
        }
    }

    /// Changes the bounds; what is in flight beyond them ends by itself.
    pub fn set_options(&mut self, options: PacingOptions) {
        self.options = options;
        self.tokens = self.tokens.min(f64::from(options.burst.max(1)));
        self.clamp();
    }

    /// Whether a request may go now; `Err` says when to ask again (`None`: when a request is done). Asked before anything is
    /// decided, so that what is decided goes at once, and never by what was so a while ago.
    ///
    /// # Errors
    ///
    /// If none may go.
    pub fn check(&mut self, now: Instant) -> Result<(), Option<Instant>> {
        if let Some(until) = self.paused_until {
            if now < until {
                return Err(Some(until));
            }
            self.paused_until = None;
        }
        if self.in_flight >= self.allowed() {
            return Err(None);
        }
        if let Some(rate) = self.options.queries_per_second.filter(|rate| *rate > 0.0) {
            let since = self.refilled_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
            self.refilled_at = Some(now);
            let full = f64::from(self.options.burst.max(1));
            self.tokens = (self.tokens + since.as_secs_f64() * rate).min(full);
            if self.tokens < 1.0 {
                return Err(Some(now + Duration::from_secs_f64((1.0 - self.tokens) / rate)));
            }
        }
        Ok(())
    }

    /// A request goes.
    pub fn begin(&mut self) {
        if self.options.queries_per_second.is_some_and(|rate| rate > 0.0) {
            self.tokens -= 1.0;
        }
        self.in_flight += 1;
    }

    /// Gives the place back, with what was learned.
    pub fn finish(&mut self, begun: Instant, now: Instant, signal: Signal) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match signal {
            Signal::Answered => self.answered(now.saturating_duration_since(begun).as_secs_f64()),
            Signal::Busy(wait) => self.busy(begun, now, wait),
        }
    }

    fn answered(&mut self, seconds: f64) {
        if self.usual_latency == 0.0 {
            self.latency = seconds;
            self.usual_latency = seconds;
        }
        self.latency += RECENT_WEIGHT * (seconds - self.latency);
        // The usual latency follows down at once and up slowly, so that load does not become usual soon.
        let weight = if seconds < self.usual_latency { RECENT_WEIGHT } else { USUAL_WEIGHT };
        self.usual_latency += weight * (seconds - self.usual_latency);
        let strained = self.latency > LATENCY_FLOOR && self.latency > LATENCY_TOLERANCE * self.usual_latency;
        if strained {
            self.limit -= 1.0 / self.limit;
        } else {
            self.limit += 1.0 / self.limit;
        }
        self.clamp();
    }

    fn busy(&mut self, begun: Instant, now: Instant, wait: Option<Duration>) {
        if self.decreased_at.is_none_or(|at| begun > at) {
            self.limit *= DECREASE;
            self.decreased_at = Some(now);
            self.clamp();
        }
        if let Some(wait) = wait {
            let until = now + wait.min(LONGEST_PAUSE);
            self.paused_until = Some(self.paused_until.map_or(until, |earlier| earlier.max(until)));
        }
    }

    fn clamp(&mut self) {
        self.limit = self.limit.clamp(count(self.options.smallest.max(1)), count(self.options.largest));
    }

    fn allowed(&self) -> usize {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // clamped to positive, small bounds
        let allowed = self.limit as usize;
        allowed
    }

    /// The present figures.
    #[must_use]
    pub fn state(&self) -> PacingState {
        PacingState {
            limit: self.allowed(),
            in_flight: self.in_flight,
            latency: Duration::from_secs_f64(self.latency),
            usual_latency: Duration::from_secs_f64(self.usual_latency),
        }
    }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Why nothing is sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing is wanted.
    Idle,
    /// The pacing lets nothing go until then, or until a request is done. What is wanted is not decided before.
    Full(Option<Instant>),
}

impl Rest {
    /// When it ends by itself, if something is `due` next: what is due is no reason to look while nothing may go.
    pub(crate) fn ends(self, due: Option<tokio::time::Instant>) -> Option<tokio::time::Instant> {
        match self {
            Self::Idle => due,
            Self::Full(until) => until.map(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_millis(10);

    fn begin(pacer: &mut Pacer, now: Instant) -> Result<(), Option<Instant>> {
        pacer.check(now).map(|()| pacer.begin())
    }

    fn run(pacer: &mut Pacer, now: &mut Instant, rounds: usize, latency: Duration, signal: Signal) {
        for _ in 0..rounds {
            let mut begun = 0;
            while begin(pacer, *now).is_ok() {
                begun += 1;
            }
            let start = *now;
            *now += latency;
            for _ in 0..begun {
                pacer.finish(start, *now, signal);
            }
        }
    }

    #[test]
    fn the_limit_grows_while_latency_holds_and_stays_in_its_bounds() {
        let mut now = Instant::now();
        let mut pacer = Pacer::new(PacingOptions::default());
        run(&mut pacer, &mut now, 10, FAST, Signal::Answered);
        let grown = pacer.state().limit;
        assert!((40..=44).contains(&grown), "{grown}");
        run(&mut pacer, &mut now, 500, FAST, Signal::Answered);
        assert_eq!(pacer.state().limit, PacingOptions::default().largest);
    }

    #[test]
    fn a_busy_server_shrinks_it_once_per_round() {
        let mut now = Instant::now();
        let mut pacer = Pacer::new(PacingOptions::default());
        run(&mut pacer, &mut now, 1, FAST, Signal::Busy(None));
        assert_eq!(pacer.state().limit, 19);
        run(&mut pacer, &mut now, 50, FAST, Signal::Busy(None));
        assert_eq!(pacer.state().limit, 1);
    }

    #[test]
    fn rising_latency_stops_the_growth() {
        let mut now = Instant::now();
        let mut pacer = Pacer::new(PacingOptions::default());
        run(&mut pacer, &mut now, 5, FAST, Signal::Answered);
        let before = pacer.state().limit;
        run(&mut pacer, &mut now, 5, FAST * 10, Signal::Answered);
        assert!(pacer.state().limit <= before + 1, "{} after {before}", pacer.state().limit);
    }

    #[test]
    fn retry_after_pauses_everything() {
        let now = Instant::now();
        let mut pacer = Pacer::new(PacingOptions::default());
        assert_eq!(begin(&mut pacer, now), Ok(()));
        pacer.finish(now, now, Signal::Busy(Some(Duration::from_secs(2))));
        let until = now + Duration::from_secs(2);
        assert_eq!(begin(&mut pacer, now + Duration::from_secs(1)), Err(Some(until)));
        assert_eq!(begin(&mut pacer, until), Ok(()));
    }

    #[test]
    fn a_fixed_rate_caps_it() {
        let now = Instant::now();
        let options = PacingOptions { queries_per_second: Some(10.0), burst: 2, ..PacingOptions::default() };
        let mut pacer = Pacer::new(options);
        let answers: Vec<_> = (0..3).map(|_| begin(&mut pacer, now)).collect();
        assert_eq!(answers, [Ok(()), Ok(()), Err(Some(now + Duration::from_millis(100)))]);
        assert_eq!(begin(&mut pacer, now + Duration::from_millis(100)), Ok(()));
    }

    #[test]
    fn new_bounds_hold_at_once() {
        let now = Instant::now();
        let mut pacer = Pacer::new(PacingOptions::default());
        pacer.set_options(PacingOptions { largest: 2, ..PacingOptions::default() });
        assert_eq!(
            [begin(&mut pacer, now), begin(&mut pacer, now), begin(&mut pacer, now)],
            [Ok(()), Ok(()), Err(None)]
        );
        let slow = PacingOptions { queries_per_second: Some(1.0), burst: 1, ..PacingOptions::default() };
        pacer.set_options(slow);
        pacer.finish(now, now, Signal::Answered);
        assert_eq!(begin(&mut pacer, now), Ok(()));
        pacer.finish(now, now, Signal::Answered);
        assert_eq!(begin(&mut pacer, now), Err(Some(now + Duration::from_secs(1))));
    }
}
