//! What stops a collector from outside while it runs: that another replica leads, an operator's pause, the breaker.

use std::collections::BTreeSet;
use std::sync::Arc;

use gc_types::{Change, Effect, HeldBy, ObjectKey, Outcome, OutsideCall, Request, ResourceId, Timestamp};
use tokio::sync::watch;

use crate::breaker::{Admission, SharedBreaker};
use crate::connection::ApiClient;
use crate::observer::Observer;
use crate::server_clock::SharedServerClock;
use gc_control::pacing::PacingOptions;

/// What a collector obeys beside its engine. By default nothing stops it.
#[derive(Clone, Debug)]
pub struct Restraints {
    /// Nothing is decided or sent while this says true; what is watched stays up to date.
    pub held: watch::Receiver<bool>,
    /// Is asked before each deletion.
    pub breaker: Option<SharedBreaker>,
    /// The bounds of the pacing, where they may change.
    pub bounds: Option<watch::Receiver<PacingOptions>>,
}

impl Default for Restraints {
    fn default() -> Self {
        Self { held: watch::channel(false).1, breaker: None, bounds: None }
    }
}

impl Restraints {
    pub(crate) fn is_held(&self) -> bool {
        *self.held.borrow()
    }
}

/// Ready when there is something that changes, and it has.
pub(crate) async fn changed<T>(changes: &mut Option<watch::Receiver<T>>) {
    if let Some(changes) = changes
        && changes.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// A deletion as the breaker counts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deletion<'a> {
    /// `resource.group`.
    pub(crate) resource: &'a Arc<str>,
    /// See [`crate::breaker::is_inferred`].
    pub(crate) inferred: bool,
    /// How many objects of the resource are known; `usize::MAX` if they are not counted, so that there is no share.
    pub(crate) objects: usize,
}

/// The breaker as one collector sees it.
pub(crate) struct Guard {
    breaker: Option<SharedBreaker>,
    changes: Option<watch::Receiver<u64>>,
    /// The resources of which something was held.
    held: BTreeSet<Arc<str>>,
}

impl Guard {
    pub(crate) fn new(breaker: Option<SharedBreaker>) -> Self {
        let changes = breaker.as_ref().map(SharedBreaker::changes);
        Self { breaker, changes, held: BTreeSet::new() }
    }

    /// Counts one deletion; returns what holds it, if anything does. A trip is reported.
    pub(crate) fn admit(
        &mut self,
        deletion: Deletion<'_>,
        now: Timestamp,
        observer: &dyn Observer,
    ) -> Option<HeldBy> {
        let breaker = self.breaker.as_ref()?;
        let Deletion { resource, inferred, objects } = deletion;
        let admission = breaker.lock().admit(resource, inferred, objects, now);
        let by = match admission {
            Admission::Admitted => return None,
            Admission::Held(by) => by,
            Admission::Tripped(trip) => {
                tracing::error!(resource = %trip.resource, "{trip}; `kubegc resume` continues");
                breaker.change(|_| ());
                observer.tripped(&trip);
                HeldBy::Breaker
            }
        };
        self.held.insert(Arc::clone(resource));
        Some(by)
    }

    /// The same for what is not counted.
    pub(crate) fn admit_uncounted(&mut self, resource: &Arc<str>) -> Option<HeldBy> {
        let by = self.holds(resource)?;
        self.held.insert(Arc::clone(resource));
        Some(by)
    }

    /// What holds deletions of a resource now, if anything does. Nothing is counted.
    pub(crate) fn holds(&self, resource: &str) -> Option<HeldBy> {
        self.breaker.as_ref()?.lock().holds(resource)
    }

    /// A deletion that was admitted came to this. Of unknown fate or not: what was deleted after all is not asked for
    /// again, and what was not is counted when it is.
    pub(crate) fn finished(&self, resource: &str, inferred: bool, outcome: &Outcome) {
        if !matches!(outcome, Outcome::Applied(_)) {
            self.refund(resource, inferred);
        }
    }

    /// A deletion that was admitted is not asked for after all.
    pub(crate) fn refund(&self, resource: &str, inferred: bool) {
        if let Some(breaker) = &self.breaker {
            breaker.lock().refund(resource, inferred);
        }
    }

    /// Ready when what is stopped has changed.
    pub(crate) async fn changed(&mut self) {
        changed(&mut self.changes).await;
    }

    /// The resources of which something was held and nothing is any more.
    pub(crate) fn resumed(&mut self) -> BTreeSet<Arc<str>> {
        let Some(breaker) = &self.breaker else { return BTreeSet::new() };
        let breaker = breaker.lock();
        let (held, resumed) =
            std::mem::take(&mut self.held).into_iter().partition(|name| breaker.holds(name).is_some());
        self.held = held;
        resumed
    }
}

/// What depends on the time, held while the clocks of this machine and of the server disagree.
pub(crate) struct ClockGuard {
    clock: Option<SharedServerClock>,
    /// The resources of which something was held.
    held: BTreeSet<ResourceId>,
}

impl ClockGuard {
    pub(crate) fn new(client: &ApiClient) -> Self {
        Self { clock: client.server_clock().cloned(), held: BTreeSet::new() }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.clock.as_ref().is_some_and(|clock| clock.agreement().pauses())
    }

    /// What holds an effect, if it depends on the time and this pauses.
    pub(crate) fn admit(&mut self, effect: &Effect) -> Option<HeldBy> {
        let resource = match &effect.request {
            Request::Delete { key, .. }
            | Request::SetOwners { key, .. }
            | Request::RemoveFinalizer { key, .. }
            | Request::Guarded { key, .. }
            | Request::Outside { key, .. } => key.resource,
            Request::Read { .. } | Request::Barrier { .. } | Request::Note(_) => return None,
        };
        if !effect.reason.is_timed() || !self.is_paused() {
            return None;
        }
        self.held.insert(resource);
        Some(HeldBy::Clock)
    }

    /// The resources of which something was held, once it may continue.
    pub(crate) fn resumed(&mut self) -> BTreeSet<ResourceId> {
        if self.held.is_empty() || self.is_paused() {
            return BTreeSet::new();
        }
        std::mem::take(&mut self.held)
    }
}

/// The object that an effect deletes, if it deletes one.
pub(crate) fn deleted(effect: &Effect) -> Option<&ObjectKey> {
    match &effect.request {
        Request::Delete { key, .. } | Request::Guarded { key, change: Change::ForceDelete, .. } => Some(key),
        _ => None,
    }
}

/// The object whose storage an effect destroys, if it does. The object itself is deleted, and counted, afterwards.
pub(crate) fn emptied(effect: &Effect) -> Option<&ObjectKey> {
    match &effect.request {
        Request::Outside { key, call: OutsideCall::DeleteStorage(_), .. } => Some(key),
        _ => None,
    }
}
