//! Growing delays with jitter.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Doubles from `first` to `longest`; each delay is spread over the upper half of its length, so that many
/// resources that fail together do not return together.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Nothing has failed yet.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// It has succeeded: the next delay is the first again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// It has failed: the time to wait.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        delay.mul_f64(0.5 + 0.5 * random_fraction())
    }
}

/// A number in [0, 1). Good enough to spread requests, and for nothing else.
pub(crate) fn random_fraction() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 40;
    #[allow(clippy::cast_precision_loss)] // 24 bits fit
    let fraction = bits as f64 / f64::from(1_u32 << 24);
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_start_anew() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_millis(500));
        let mut backoff = Backoff::new(first, longest);
        for full in [100, 200, 400, 500, 500] {
            let delay = backoff.next_delay();
            let full = Duration::from_millis(full);
            assert!(delay >= full / 2 && delay <= full, "{delay:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= first);
    }
}
