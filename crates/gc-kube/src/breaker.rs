//! The breaker that collectors share; what it decides is in [`gc_controller::breaker`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use gc_controller::breaker::*;
use tokio::sync::watch;

/// A breaker that the collector asks and others show and reset. Clones share it.
#[derive(Clone, Debug)]
pub struct SharedBreaker {
    breaker: Arc<Mutex<Breaker>>,
    changed: watch::Sender<u64>,
}

impl SharedBreaker {
    /// Shares a breaker.
    #[must_use]
    pub fn new(breaker: Breaker) -> Self {
        Self { breaker: Arc::new(Mutex::new(breaker)), changed: watch::Sender::new(0) }
    }

    /// Reads or counts.
    pub fn lock(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is stopped, and notifies the followers.
    pub fn change<T>(&self, change: impl FnOnce(&mut Breaker) -> T) -> T {
        let answer = change(&mut self.lock());
        self.changed.send_modify(|number| *number += 1);
        answer
    }

    /// Follows every change of what is stopped.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl Default for SharedBreaker {
    fn default() -> Self {
        Self::new(Breaker::new(BreakerOptions::default()))
    }
}
