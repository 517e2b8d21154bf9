//! Observes what the collector does, and remembers when and why.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gc_kube::Observer;
use gc_types::{Effect, Event, Outcome, Request, Uid};
use tokio::sync::Notify;

/// State of one object.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenObject {
    /// True once the watch has shown the object.
    pub(super) observed: bool,
    /// Time at which the watch reported the object's removal.
    pub(super) removed: Option<Instant>,
    /// Reason of the collector's last request for the object.
    pub(super) reason: Option<String>,
    /// Number of the collector's requests for the object.
    pub(super) requests: u32,
    /// Number of effects that were decided on and have no outcome yet.
    pub(super) pending: u32,
}

/// An observer for people.
#[derive(Debug, Default)]
pub(super) struct AuditSink {
    seen: Mutex<HashMap<Uid, SeenObject>>,
    changed: Notify,
}

impl AuditSink {
    pub(super) fn of(&self, uid: &Uid) -> SeenObject {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned().unwrap_or_default()
    }

    fn note(&self, uid: &Uid, change: impl FnOnce(&mut SeenObject)) {
        change(self.seen.lock().unwrap_or_else(PoisonError::into_inner).entry(uid.clone()).or_default());
        self.changed.notify_waiters();
    }

    /// Waits until a condition holds. Returns false if it does not hold in time.
    pub(super) async fn until(&self, patience: Duration, holds: impl Fn(&Self) -> bool) -> bool {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if holds(self) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(patience, waiting).await.is_ok()
    }
}

fn subject(request: &Request) -> Option<&Uid> {
    match request {
        Request::Delete { uid, .. }
        | Request::SetOwners { uid, .. }
        | Request::RemoveFinalizer { uid, .. } => Some(uid),
        _ => None,
    }
}

impl Observer for AuditSink {
    fn observed(&self, event: &Event) {
        match event {
            Event::Observed(object) => self.note(&object.uid, |seen| seen.observed = true),
            Event::Removed { uid, .. } => self.note(uid, |seen| seen.removed = Some(Instant::now())),
            _ => {}
        }
    }

    fn decided(&self, effect: &Effect) {
        if let Some(uid) = subject(&effect.request) {
            self.note(uid, |seen| seen.pending += 1);
        }
    }

    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, _took: Duration) {
        let Some(uid) = subject(&effect.request) else { return };
        self.note(uid, |seen| {
            seen.pending = seen.pending.saturating_sub(1);
            seen.requests += round_trips;
            if matches!(outcome, Outcome::Applied(_)) {
                seen.reason = Some(effect.reason.verdict.to_string());
            }
        });
    }
}
