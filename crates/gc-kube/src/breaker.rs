//! The breaker that collectors share; its decisions are in [`gc_controller::breaker`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use gc_controller::breaker::*;
use tokio::sync::watch;

/// A breaker that the collector consults and that others display and reset. Clones share it.
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

    /// Locks the breaker for reading or counting.
    pub fn lock(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the set of stopped resources, and notifies the followers.
    pub fn change<T>(&self, change: impl FnOnce(&mut Breaker) -> T) -> T {
        let answer = change(&mut self.lock());
        self.changed.send_modify(|number| *number += 1);
        answer
    }

    /// Returns a receiver that is notified of every change to the set of stopped resources.
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
