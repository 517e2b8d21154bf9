//! Clock of the collectors: the machine's, or the machine's with an offset that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use gc_kube::{Clock, Restraints, system_clock};
use gc_types::Timestamp;
use tokio::sync::watch;

/// The machine's clock with an offset, and a way to notify collectors when it changes. Cheap to clone.
#[derive(Clone)]
pub struct CollectorClock {
    /// Offset in milliseconds.
    ahead: Arc<AtomicI64>,
    /// `true` while the collectors are paused; they read the time again on each change.
    changed: watch::Sender<bool>,
}

impl Default for CollectorClock {
    fn default() -> Self {
        Self { ahead: Arc::default(), changed: watch::Sender::new(false) }
    }
}

impl CollectorClock {
    /// Returns the clock of the collectors.
    #[must_use]
    pub fn clock(&self) -> Clock {
        let (system, ahead) = (system_clock(), Arc::clone(&self.ahead));
        Arc::new(move || {
            let Timestamp(now) = system();
            Timestamp(now.saturating_add(ahead.load(Ordering::Relaxed)))
        })
    }

    /// Returns the server's clock for timestamps. It shows the same time, so that objects created after a test set the clock ahead
    /// are new.
    #[must_use]
    pub fn of_objects(&self) -> gc_apiserver::Clock {
        let ahead = Arc::clone(&self.ahead);
        gc_apiserver::Clock::new(move || {
            let ahead = jiff::SignedDuration::from_millis(ahead.load(Ordering::Relaxed));
            let now = jiff::Timestamp::now();
            // There is no later time than the last one that exists.
            now.checked_add(ahead).unwrap_or(jiff::Timestamp::MAX)
        })
    }

    /// Returns the restraints that pause the collectors, which read the time when the offset changes.
    #[must_use]
    pub fn restraints(&self) -> Restraints {
        Restraints { held: self.changed.subscribe(), ..Restraints::default() }
    }

    /// Returns the offset in milliseconds.
    #[must_use]
    pub fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Sets the offset, in milliseconds.
    pub fn set(&self, ahead: i64) {
        self.ahead.store(ahead, Ordering::Relaxed);
        self.changed.send_modify(|_| ());
    }

    /// Pauses the collectors, or lets them continue.
    pub fn hold(&self, held: bool) {
        self.changed.send_replace(held);
    }

    /// Increases the offset by this.
    pub fn advance(&self, by: Duration) {
        let by = gc_types::milliseconds(by);
        self.set(self.ahead().saturating_add(by));
    }
}
