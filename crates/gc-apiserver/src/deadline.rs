//! Deadline of a request, and its user.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gc_registry::api::UserInfo;

/// Maximum duration of a request that is neither a watch nor a connection, as upstream; `?timeout=` shortens it.
pub(crate) const REQUEST_PATIENCE: Duration = Duration::from_mins(1);
/// Maximum duration of a write, as upstream.
pub(crate) const WRITE_PATIENCE: Duration = Duration::from_secs(34);

/// The deadline of a request. It expires early if the client disconnects.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    start: Instant,
    end: Instant,
    is_abandoned: Arc<AtomicBool>,
}

impl Deadline {
    /// Creates the deadline of a request that starts now.
    pub(crate) fn after(patience: Duration) -> Self {
        let start = Instant::now();
        Self { start, end: start + patience, is_abandoned: Arc::default() }
    }

    /// Shortens the deadline to this duration, counted from the start of the request.
    pub(crate) fn shorten(&mut self, patience: Duration) {
        self.end = self.start.checked_add(patience).map_or(self.end, |end| end.min(self.end));
    }

    /// Shortens the deadline to this duration, counted from now.
    pub(crate) fn shorten_from_now(&mut self, patience: Duration) {
        self.shorten(self.start.elapsed() + patience);
    }

    pub(crate) fn end(&self) -> Instant {
        self.end
    }

    /// Returns the remaining time: zero if the client has disconnected.
    pub(crate) fn time_left(&self) -> Duration {
        if self.is_abandoned.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        self.end.saturating_duration_since(Instant::now())
    }

    /// Returns a guard that abandons the request when dropped; the task that drives the request holds it.
    pub(crate) fn abandoned_by(&self) -> Abandonment {
        Abandonment(Arc::clone(&self.is_abandoned))
    }
}

/// Abandons a request when it is dropped.
#[derive(Debug)]
pub(crate) struct Abandonment(Arc<AtomicBool>);

impl Drop for Abandonment {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The user behind a request, and its deadline.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) user: UserInfo,
    /// The default field manager.
    pub(crate) manager: String,
    pub(crate) deadline: Deadline,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_ends_by_the_clock_or_with_the_client() {
        let mut deadline = Deadline::after(REQUEST_PATIENCE);
        deadline.shorten(Duration::MAX);
        assert!(deadline.time_left() > WRITE_PATIENCE, "nothing makes it longer");
        let other = deadline.clone();
        drop(other.abandoned_by());
        assert_eq!(deadline.time_left(), Duration::ZERO);
        let mut deadline = Deadline::after(REQUEST_PATIENCE);
        deadline.shorten_from_now(WRITE_PATIENCE);
        assert!(deadline.time_left() <= WRITE_PATIENCE);
        deadline.shorten(Duration::ZERO);
        assert_eq!(deadline.time_left(), Duration::ZERO);
    }
}
