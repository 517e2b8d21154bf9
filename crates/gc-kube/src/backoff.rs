//! Growing delays with jitter, by the randomness of this process.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// See [`gc_controller::backoff::Backoff`].
#[derive(Debug)]
pub struct Backoff(gc_controller::backoff::Backoff);

impl Backoff {
    /// Nothing has failed yet.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self(gc_controller::backoff::Backoff::new(first, longest))
    }

    /// It has succeeded: the next delay is the first again.
    pub fn reset(&mut self) {
        self.0.reset();
    }

    /// It has failed: the time to wait.
    pub fn next_delay(&mut self) -> Duration {
        self.0.next_delay(random_fraction())
    }
}

/// A number in [0, 1). Good enough to spread requests, and for nothing else.
pub(crate) fn random_fraction() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 40;
    #[allow(clippy::cast_precision_loss)] // 24 bits fit
    let fraction = bits as f64 / f64::from(1_u32 << 24);
    fraction
}
