//! The time, and the wish to stop.

use std::time::{SystemTime, UNIX_EPOCH};

use gc_types::UnixNanoseconds;
use tokio::sync::watch;

/// The wall clock.
#[must_use]
pub(super) fn now() -> UnixNanoseconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanoseconds(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// Whether the process was asked to end. Work under way ends; nothing new begins.
#[derive(Clone, Debug)]
pub(super) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// A pair: sending true requests a stop.
    #[must_use]
    pub(super) fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Whether it was.
    #[must_use]
    pub(super) fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Ends when it is requested (or can no longer be).
    pub(super) async fn requested(&self) {
        let _ = self.0.clone().wait_for(|stop| *stop).await;
    }
}
