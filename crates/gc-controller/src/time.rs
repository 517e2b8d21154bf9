//! Points on a clock that only runs forward.

use std::fmt;
use std::time::Duration;

/// A point on a monotonic clock: the time that has passed since a fixed start, which all compared points share. Unlike the wall
/// clock, it is never set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// Creates the point at this distance from the start of the clock.
    #[must_use]
    pub const fn from_start(passed: Duration) -> Self {
        Self(passed)
    }

    /// Returns the point this much later.
    #[must_use]
    pub fn after(self, passed: Duration) -> Self {
        Self(self.0.saturating_add(passed))
    }

    /// Returns the point this much earlier, but not before the start.
    #[must_use]
    pub fn before(self, passed: Duration) -> Self {
        Self(self.0.saturating_sub(passed))
    }

    /// Returns the time since another moment; zero if it is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_apart_by_what_was_added_and_never_before_the_start() {
        let seconds = Duration::from_secs;
        let moment = Moment::from_start(seconds(5));
        assert_eq!(moment.after(seconds(3)), Moment::from_start(seconds(8)));
        assert_eq!(moment.before(seconds(3)), Moment::from_start(seconds(2)));
        assert_eq!(moment.before(seconds(9)), Moment::default());
        assert_eq!(moment.after(Duration::MAX).since(Moment::default()), Duration::MAX);
        assert_eq!(moment.since(Moment::from_start(seconds(2))), seconds(3));
        assert_eq!(moment.since(Moment::from_start(seconds(7))), Duration::ZERO);
        assert_eq!(moment.to_string(), "5s");
    }
}
