//! Whose page it is: that of a server in this process, or that of collectors beside a server elsewhere.

use std::sync::{Arc, OnceLock};

use gc_apiserver::WeakInProcess;
use gc_kube::ApiClient;
use gc_kube::breaker::{SharedBreaker, Trip};
use gc_types::WithheldBy;
use tokio::sync::watch;

use super::overview::{Mode, Stopped};
use crate::questions::resident::Resident;
use crate::run::Leadership;
use crate::run::control::LeaseName;

/// Whose page it is.
pub(super) enum Home {
    /// That of a server in this process and its collectors: the way to ask it as others, and its address. Known once the
    /// server has begun, which keeps its page.
    Embedded(OnceLock<WeakInProcess>),
    /// That of collectors beside a server elsewhere.
    Attached(Attached),
}

/// Collectors beside a server elsewhere.
pub(crate) struct Attached {
    /// Writes orders to the Lease, with the rights of the collectors.
    pub(crate) client: ApiClient,
    /// That Lease.
    pub(crate) lease: LeaseName,
    /// Whether these collectors lead.
    pub(crate) leadership: Leadership,
    /// What holds all writes, if anything does.
    pub(crate) holding: watch::Receiver<Option<WithheldBy>>,
    /// What is stopped.
    pub(crate) breaker: SharedBreaker,
    /// Whether the page takes orders.
    pub(crate) takes_orders: bool,
    /// The graph of the owner-reference collector, if it runs.
    pub(crate) resident: Option<Arc<dyn Resident>>,
}

impl Attached {
    pub(super) fn mode(&self) -> Mode {
        match *self.holding.borrow() {
            Some(WithheldBy::DryRun) => Mode::DryRun,
            Some(_) => Mode::Observing,
            None if self.leadership.leads() => Mode::Acting,
            None => Mode::Standby,
        }
    }

    /// What the circuit breaker has stopped. Its reasons count objects of all namespaces.
    pub(super) fn stopped(&self, sees_all: bool) -> Vec<Stopped> {
        let stopped = |trip: Trip| Stopped {
            resource: trip.resource.to_string(),
            since: trip.since,
            why: sees_all.then(|| trip.why.to_string()),
        };
        self.breaker.lock().tripped().into_iter().map(stopped).collect()
    }
}
