//! Limit on requests in flight, which adapts to the server.
//!
//! A gradient algorithm, modelled on Gradient2 in Netflix's concurrency-limits: the latency of the last round of requests compared
//! to the usual one shows whether requests queue at the server. The limit grows slightly while they do not, and shrinks in
//! proportion while they do; 429, 503, 504 and timeouts reduce it by a larger part immediately. Differences:
//!
//! * a round is judged by its mean, and what is usual has an error, so that latencies that merely
//!   scatter (30 to 370 ms) are no sign of load;
//! * what is usual is measured, from time to time, by a round at the floor ([`PROBE_PERIOD`]): so load that lasts does not
//!   become usual, a server that has become slower by itself does, and a collector that comes second learns the same;
//! * rounds in which the limit was not made use of change nothing.

use std::time::Duration;

use crate::Moment;

/// Bounds of the concurrency, and an optional fixed rate on top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConcurrencyOptions {
    /// Requests in flight at the start.
    pub initial: usize,
    /// Minimum number in flight, unless `largest` is smaller.
    pub smallest: usize,
    /// Maximum number in flight.
    pub largest: usize,
    /// `--kube-api-qps`: the maximum average number of requests per second; `None` means no limit.
    pub queries_per_second: Option<f64>,
    /// `--kube-api-burst`: the number of requests that may exceed the rate at once.
    pub burst: u32,
}

impl Default for ConcurrencyOptions {
    fn default() -> Self {
        Self { initial: 32, smallest: 8, largest: 128, queries_per_second: None, burst: 30 }
    }
}

/// Evidence about the server from a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Answered, with whatever result.
    Answered,
    /// Too busy, and may have said for how long.
    Busy(Option<Duration>),
}

impl Signal {
    /// Interprets the status code of a response. `retry_after` is only read if the server is busy.
    #[must_use]
    pub fn of_answer(code: u16, retry_after: impl FnOnce() -> Option<Duration>) -> Self {
        if matches!(code, 429 | 503 | 504) { Self::Busy(retry_after()) } else { Self::Answered }
    }
}

/// Figures of the concurrency limit, for metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConcurrencyState {
    /// Requests allowed in flight.
    pub limit: usize,
    /// Requests in flight.
    pub in_flight: usize,
    /// Mean latency of the last round.
    pub latency: Duration,
    /// Smoothed long-term latency.
    pub usual_latency: Duration,
}

/// Responses since the limit was last adapted.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// True if it measures the usual latency: at most as many requests as the floor are in flight, and this many responses do not
    /// count yet, so that neither earlier requests nor only the fastest responses are measured.
    probe: bool,
    uncounted: usize,
    answers: usize,
    seconds: f64,
    /// Sum of the squares of the latencies.
    squares: f64,
    /// Maximum number of requests that were in flight.
    in_flight: usize,
}

/// Decides when the next request may be sent.
#[derive(Clone, Debug)]
pub struct Pacer {
    options: ConcurrencyOptions,
    limit: f64,
    in_flight: usize,
    round: Round,
    latency: f64,
    /// Zero until the first round is over.
    usual_latency: f64,
    /// Standard error of the usual latency.
    usual_error: f64,
    /// Time at which the usual latency was last measured.
    probed_at: Moment,
    /// Time until which nothing is sent.
    paused_until: Option<Moment>,
    /// Moment before which requests that began give no new evidence that the server is busy.
    decreased_at: Option<Moment>,
    tokens: f64,
    refilled_at: Option<Moment>,
}

/// Factor by which a busy server reduces the limit.
const DECREASE: f64 = 0.6;
/// Multiple of the usual latency up to which latency is not a sign of load.
const LATENCY_TOLERANCE: f64 = 1.5;
/// Number of standard errors of the usual latency that are added.
const ERRORS_TOLERATED: f64 = 2.0;
/// Latency in seconds below which it is never a sign of load.
const LATENCY_FLOOR: f64 = 0.005;
/// Minimum factor by which one round changes the limit, before smoothing.
const SMALLEST_GRADIENT: f64 = 0.5;
/// Number of requests that may queue at the server: the limit grows by this while none do, before smoothing.
const QUEUE_ALLOWANCE: f64 = 4.0;
/// Weight of one round's result in the limit.
const SMOOTHING: f64 = 0.25;
/// Minimum number of responses in a round.
const SMALLEST_ROUND: usize = 10;
/// Number of responses in a measurement of the usual latency.
const PROBE_ANSWERS: usize = 24;
/// Weight of such a measurement, and of rounds that did not use the whole limit, in the usual latency.
const PROBE_WEIGHT: f64 = 0.5;
/// Interval of the rounds at the floor that measure the usual latency while the limit is in use.
pub const PROBE_PERIOD: Duration = Duration::from_secs(15);
/// The same interval while the limit is at most twice its floor, when a high latency is hardly caused by this process.
pub const PROBE_PERIOD_WHEN_LOW: Duration = Duration::from_secs(2);
/// Tolerance for a missing part of a token, so that a caller who waited exactly as long as required has one.
const TOKEN_TOLERANCE: f64 = 1e-6;
/// Maximum Retry-After that is followed.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Pacer {
    /// Creates a limiter with nothing in flight.
    #[must_use]
    pub fn new(options: ConcurrencyOptions) -> Self {
        let mut pacer = Self {
            limit: count(options.initial),
            in_flight: 0,
            round: Round::default(),
            latency: 0.0,
            usual_latency: 0.0,
            usual_error: 0.0,
            probed_at: Moment::default(),
            paused_until: None,
            decreased_at: None,
            tokens: f64::from(options.burst),
            refilled_at: None,
            options,
        };
        pacer.clamp();
        pacer
    }

    /// Changes the bounds; requests in flight beyond them end by themselves.
    pub fn set_options(&mut self, options: ConcurrencyOptions) {
        self.options = options;
        self.tokens = self.tokens.min(f64::from(options.burst.max(1)));
        self.clamp();
    }

    /// Reports whether a request may be sent now; `Err` contains when to ask again (`None`: when a request is done). Ask before
    /// anything is decided, so that a decision is sent immediately and is never based on an older state.
    ///
    /// # Errors
    ///
    /// No request may be sent now.
    pub fn check(&mut self, now: Moment) -> Result<(), Option<Moment>> {
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
            let since = self.refilled_at.map_or(Duration::ZERO, |at| now.since(at));
            self.refilled_at = Some(now);
            let full = f64::from(self.options.burst.max(1));
            self.tokens = (self.tokens + since.as_secs_f64() * rate).min(full);
            if self.tokens < 1.0 - TOKEN_TOLERANCE {
                return Err(Some(now.after(Duration::from_secs_f64((1.0 - self.tokens) / rate))));
            }
        }
        Ok(())
    }

    /// Counts a request that is sent.
    pub fn begin(&mut self) {
        if self.options.queries_per_second.is_some_and(|rate| rate > 0.0) {
            self.tokens -= 1.0;
        }
        self.in_flight += 1;
        self.round.in_flight = self.round.in_flight.max(self.in_flight);
    }

    /// Frees the slot of a request, with the evidence from it.
    pub fn finish(&mut self, begun: Moment, now: Moment, signal: Signal) {
        self.release();
        match signal {
            Signal::Answered => self.answered(begun, now),
            Signal::Busy(wait) => self.busy(begun, now, wait),
        }
    }

    /// Frees the slot of a request without evidence.
    pub fn release(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Records that the server is too busy, from the response to a request whose slot was already freed.
    pub fn refused(&mut self, now: Moment, wait: Option<Duration>) {
        self.busy(now, now, wait);
    }

    fn answered(&mut self, begun: Moment, now: Moment) {
        if self.round.uncounted > 0 {
            self.round.uncounted -= 1;
            return;
        }
        let seconds = now.since(begun).as_secs_f64();
        self.round.answers += 1;
        self.round.seconds += seconds;
        self.round.squares += seconds * seconds;
        if self.round.answers
            >= self.allowed().max(if self.round.probe { PROBE_ANSWERS } else { SMALLEST_ROUND })
        {
            let next = Round { in_flight: self.in_flight, ..Round::default() };
            let round = std::mem::replace(&mut self.round, next);
            self.judge(&round, now);
        }
    }

    /// Evaluates a completed round of requests.
    fn judge(&mut self, round: &Round, now: Moment) {
        self.latency = round.mean();
        if self.usual_latency == 0.0 {
            (self.usual_latency, self.usual_error) = (self.latency, round.error_of_mean());
        }
        let made_use_of = round.in_flight * 2 >= self.allowed();
        if round.probe || !made_use_of {
            // Far more than usual is a change and no coincidence.
            let weight = if self.latency > self.tolerated() { 1.0 } else { PROBE_WEIGHT };
            self.usual_latency += weight * (self.latency - self.usual_latency);
            self.usual_error += weight * (round.error_of_mean() - self.usual_error);
            return;
        }
        let gradient = (self.tolerated() / self.latency.max(f64::MIN_POSITIVE)).clamp(SMALLEST_GRADIENT, 1.0);
        let wanted = self.limit * gradient + QUEUE_ALLOWANCE;
        self.limit += SMOOTHING * (wanted - self.limit);
        self.clamp();
        let period = if self.is_low() { PROBE_PERIOD_WHEN_LOW } else { PROBE_PERIOD };
        if now.since(self.probed_at) >= period {
            self.probed_at = now;
            self.round.probe = true;
            self.round.uncounted = self.in_flight + self.allowed();
        }
    }

    /// Returns the latency up to which there is no sign of load.
    fn tolerated(&self) -> f64 {
        (LATENCY_TOLERANCE * self.usual_latency + ERRORS_TOLERATED * self.usual_error).max(LATENCY_FLOOR)
    }

    fn busy(&mut self, begun: Moment, now: Moment, wait: Option<Duration>) {
        if self.decreased_at.is_none_or(|at| begun > at) {
            self.limit *= DECREASE;
            self.decreased_at = Some(now);
            self.clamp();
        }
        if let Some(wait) = wait {
            let until = now.after(wait.min(LONGEST_PAUSE));
            self.paused_until = Some(self.paused_until.map_or(until, |earlier| earlier.max(until)));
        }
    }

    fn clamp(&mut self) {
        let (floor, largest) = (self.floor(), count(self.options.largest.max(1)));
        self.limit = self.limit.clamp(floor.min(largest), largest);
    }

    fn floor(&self) -> f64 {
        count(self.options.smallest.max(1))
    }

    fn is_low(&self) -> bool {
        self.limit <= 2.0 * self.floor()
    }

    fn allowed(&self) -> usize {
        whole(if self.round.probe { self.limit.min(self.floor()) } else { self.limit })
    }

    /// Returns the current figures.
    #[must_use]
    pub fn state(&self) -> ConcurrencyState {
        ConcurrencyState {
            limit: whole(self.limit),
            in_flight: self.in_flight,
            latency: Duration::from_secs_f64(self.latency),
            usual_latency: Duration::from_secs_f64(self.usual_latency),
        }
    }
}

impl Round {
    fn mean(&self) -> f64 {
        self.seconds / count(self.answers.max(1))
    }

    /// Returns the standard error of the mean.
    fn error_of_mean(&self) -> f64 {
        let answers = count(self.answers.max(1));
        let variance = (self.squares / answers - self.mean().powi(2)).max(0.0);
        (variance / answers).sqrt()
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to positive, small bounds"
)]
fn whole(limit: f64) -> usize {
    limit as usize
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
