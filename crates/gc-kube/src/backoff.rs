//! Growing delays with jitter from this process's random source.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Backoff with a random source; see [`gc_controller::backoff::Backoff`].
#[derive(Debug)]
pub struct Backoff(gc_controller::backoff::Backoff);

impl Backoff {
    /// Creates a backoff before any failure.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self(gc_controller::backoff::Backoff::new(first, longest))
    }

    /// Resets to the initial delay, after a success.
    pub fn reset(&mut self) {
        self.0.reset();
    }

    /// Returns the delay after a failure.
    pub fn next_delay(&mut self) -> Duration {
        self.0.next_delay(random_fraction())
    }
}

/// Returns a number in [0, 1). Only good enough to spread requests.
pub(crate) fn random_fraction() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 40;
    #[allow(clippy::cast_precision_loss)] // 24 bits fit
    let fraction = bits as f64 / f64::from(1_u32 << 24);
    fraction
}
