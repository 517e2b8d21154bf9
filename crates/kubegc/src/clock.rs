//! The clock of the collectors: the machine's, or the machine's with an offset that a test sets.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use gc_kube::{Clock, Restraints, system_clock};
use gc_types::{GoDuration, Timestamp};
use tokio::sync::watch;

use crate::UsageError;

/// How often the file is checked.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

fn offset(path: &PathBuf) -> Result<i64, UsageError> {
    let unusable = |error: &dyn std::fmt::Display| {
        UsageError::new(format!("--collector-clock-offset {}: {error}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| unusable(&error))?;
    let ahead: GoDuration = text.trim().parse().map_err(|error| unusable(&error))?;
    Ok(i64::try_from(ahead.to_std().as_millis()).unwrap_or(i64::MAX))
}

/// The machine's clock with an offset, and a way to notify collectors when it changes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CollectorClock {
    /// Milliseconds.
    ahead: Arc<AtomicI64>,
    /// Whether the collectors are held; they read the time again when this is written to.
    changed: watch::Sender<bool>,
}

impl Default for CollectorClock {
    fn default() -> Self {
        Self { ahead: Arc::default(), changed: watch::Sender::new(false) }
    }
}

impl CollectorClock {
    /// One that follows a file with a duration, if there is one. The file is read again and again; while it cannot be
    /// read, its last content counts. Must be called within a tokio runtime.
    pub(crate) fn following(path: Option<&PathBuf>) -> Result<Self, UsageError> {
        let clock = Self::default();
        let Some(path) = path.cloned() else { return Ok(clock) };
        let mut known = offset(&path)?;
        clock.set(known);
        let (ahead, changed) = (Arc::downgrade(&clock.ahead), clock.changed.clone());
        tokio::spawn(async move {
            let mut look = tokio::time::interval(LOOK_PERIOD);
            loop {
                look.tick().await;
                let Some(ahead) = ahead.upgrade() else { return };
                if let Ok(read) = offset(&path)
                    && read != known
                {
                    known = read;
                    Self { ahead, changed: changed.clone() }.set(read);
                }
            }
        });
        Ok(clock)
    }

    /// What collectors go by.
    pub(crate) fn clock(&self) -> Clock {
        let (system, ahead) = (system_clock(), Arc::clone(&self.ahead));
        Arc::new(move || {
            let Timestamp(now) = system();
            Timestamp(now.saturating_add(ahead.load(Ordering::Relaxed)))
        })
    }

    /// What stops collectors: that they are held. They read the time when the offset changes.
    pub(crate) fn restraints(&self) -> Restraints {
        Restraints { held: self.changed.subscribe(), ..Restraints::default() }
    }

    /// By how many milliseconds it is ahead.
    pub(crate) fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Sets the offset, in milliseconds.
    pub(crate) fn set(&self, ahead: i64) {
        self.ahead.store(ahead, Ordering::Relaxed);
        self.changed.send_modify(|_| ());
    }

    /// Holds the collectors, or lets them continue.
    pub(crate) fn hold(&self, held: bool) {
        self.changed.send_replace(held);
    }

    /// Sets it ahead by so much more.
    pub(crate) fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.set(self.ahead().saturating_add(by));
    }
}
