//! Origin of the page: a server in this process, or collectors beside a server elsewhere.

use std::sync::{Arc, OnceLock};

use gc_apiserver::WeakInProcess;
use gc_inspect::resident::Resident;
use gc_kube::ApiClient;
use gc_kube::breaker::{SharedBreaker, Trip};
use gc_process::journal::Journal;
use gc_process::lease::LeaseName;
use gc_process::lease::election::Leadership;
use gc_types::WithheldBy;
use tokio::sync::watch;

use super::overview::{Mode, StoppedResource};

/// Origin of the page.
pub(super) enum Home {
    /// A server in this process with its collectors: access on behalf of users, and its address. Set once the server has begun,
    /// which owns the page.
    Embedded(OnceLock<WeakInProcess>),
    /// Collectors beside a server elsewhere.
    Attached(AttachedCollectors),
}

/// Collectors beside a server elsewhere.
pub struct AttachedCollectors {
    /// Client that writes orders to the Lease, with the permissions of the collectors.
    pub client: ApiClient,
    /// Lease with the orders.
    pub lease: LeaseName,
    /// Leadership of these collectors.
    pub leadership: Leadership,
    /// Reason to withhold all writes, if any.
    pub holding: watch::Receiver<Option<WithheldBy>>,
    /// Resources that the circuit breaker stops.
    pub breaker: SharedBreaker,
    /// Their journal, which has the orders of users, too.
    pub journal: Arc<Journal>,
    /// True if the page takes orders.
    pub takes_orders: bool,
    /// Graph of the owner-reference collector, if it runs.
    pub resident: Option<Arc<dyn Resident>>,
}

impl AttachedCollectors {
    pub(crate) fn mode(&self) -> Mode {
        match *self.holding.borrow() {
            Some(WithheldBy::DryRun) => Mode::DryRun,
            Some(_) => Mode::Observing,
            None if self.leadership.leads() => Mode::Acting,
            None => Mode::Standby,
        }
    }

    /// Returns the resources that the circuit breaker has stopped. The reasons count objects of all namespaces.
    pub(crate) fn stopped(&self, sees_all: bool) -> Vec<StoppedResource> {
        let stopped = |trip: Trip| StoppedResource {
            resource: trip.resource.to_string(),
            since: trip.since,
            why: sees_all.then(|| trip.why.to_string()),
        };
        self.breaker.lock().tripped().into_iter().map(stopped).collect()
    }
}
