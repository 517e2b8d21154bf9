//! Growing delays with jitter.

use std::time::Duration;

/// Delays that double from `first` to `longest`. Each is spread over the upper half of its length, so that many resources that fail
/// together do not return together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Creates a backoff before any failure.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// Resets to the first delay after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the delay after a failure. `fraction` is random, in [0, 1).
    pub fn next_delay(&mut self, fraction: f64) -> Duration {
        let delay = self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        delay.mul_f64(0.5 + 0.5 * fraction.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_start_again() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(500));
        for full in [100, 200, 400, 500, 500] {
            let mut other = backoff.clone();
            assert_eq!(other.next_delay(0.0), Duration::from_millis(full / 2));
            assert_eq!(backoff.next_delay(1.0), Duration::from_millis(full));
        }
        backoff.reset();
        assert_eq!(backoff.next_delay(1.0), Duration::from_millis(100));
    }
}
