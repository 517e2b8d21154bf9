//! Metrics, under upstream's names where they exist.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gc_metrics::Catalogue;
use gc_registry::storage::StoreStatus;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::exposition::{Histograms, exposition, histograms, registered};
use crate::fairness::seats::Limits;
use crate::flow_metrics::FlowMetrics;
use crate::loss_metrics::LossMetrics;
use crate::transport::account::{Account, ClientStanding};
use crate::webhook_metrics::WebhookMetrics;
use crate::work::WatchPlace;

/// Labels of the request counters. Values come from the table of resources and from fixed sets, never from clients, so their number
/// is bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    /// Upper-case verb.
    pub(crate) verb: String,
    /// Group.
    pub(crate) group: String,
    /// Version.
    pub(crate) version: String,
    /// Resource.
    pub(crate) resource: String,
    /// Subresource.
    pub(crate) subresource: String,
    /// `cluster`, `namespace` or `resource`.
    pub(crate) scope: String,
    /// Status code.
    pub(crate) code: u16,
}

/// Labels of the request durations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct DurationLabels {
    /// Upper-case verb.
    pub(crate) verb: String,
    /// Group.
    pub(crate) group: String,
    /// Resource.
    pub(crate) resource: String,
}

impl DurationLabels {
    fn of(labels: &RequestLabels) -> Self {
        Self { verb: labels.verb.clone(), group: labels.group.clone(), resource: labels.resource.clone() }
    }
}

/// Labels of a health check. Its names and endpoints come from fixed sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckLabels {
    /// Name of the check.
    name: String,
    /// `healthz`, `livez` or `readyz`.
    r#type: String,
}

/// Label for clients by the credentials that they have presented.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StandingLabels {
    /// `anonymous`, `authenticated` or `privileged`.
    standing: &'static str,
}

/// Labels of the counter of health check results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckOutcomeLabels {
    /// Name of the check.
    name: String,
    /// `healthz`, `livez` or `readyz`.
    r#type: String,
    /// `success` or `error`.
    status: &'static str,
}

const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Returns the metrics of `/metrics` and those of `/metrics/slis`.
#[must_use]
pub fn catalogues() -> [Catalogue; 2] {
    let metrics = Metrics::new();
    [metrics.catalogue, metrics.service_levels]
}

/// The server's metrics.
pub(crate) struct Metrics {
    catalogue: Catalogue,
    /// Metrics of `/metrics/slis`.
    service_levels: Catalogue,
    checks: Family<CheckLabels, Gauge>,
    check_outcomes: Family<CheckOutcomeLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    durations: Histograms<DurationLabels>,
    /// Labels of all requests so far, so that those of removed definitions can be forgotten.
    seen: Mutex<BTreeSet<RequestLabels>>,
    watches: Gauge,
    /// Requests in progress.
    pub(crate) in_flight: Gauge,
    /// Requests that were refused because of overload.
    pub(crate) rejected: Counter,
    /// Requests that wait for a seat; set when metrics are read.
    waiting: Gauge,
    /// Requests by flow schema and priority level.
    pub(crate) flows: Arc<FlowMetrics>,
    /// Open connections.
    pub(crate) connections: Gauge,
    /// Connections and streams that were ended by force.
    pub(crate) losses: LossMetrics,
    /// Bytes held for clients; set when metrics are read.
    held: Family<StandingLabels, Gauge>,
    budget: Gauge,
    /// Calls of admission webhooks.
    pub(crate) webhooks: WebhookMetrics,
    store: StoreMetrics,
}

/// Size and revisions of the store.
struct StoreMetrics {
    bytes: Family<StoreLabels, Gauge>,
    bytes_in_use: Gauge,
    value_bytes_in_memory: Gauge,
    value_bytes_on_disk: Gauge,
    values_read: Gauge,
    is_full: Gauge,
    newest: Gauge,
    oldest: Gauge,
}

/// Labels of a store; upstream numbers several stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreLabels {
    /// `etcd-0`, or `local`.
    storage_cluster_id: &'static str,
}

impl StoreMetrics {
    fn new(all: &mut Catalogue) -> Self {
        Self {
            bytes: registered(
                all,
                "apiserver_storage_size_bytes",
                "Bytes that the store occupies on its disk",
            ),
            bytes_in_use: registered(
                all,
                "kubegc_apiserver_storage_used_bytes",
                "Bytes of the store in use, as far as it is known",
            ),
            value_bytes_in_memory: registered(
                all,
                "kubegc_apiserver_storage_memory_bytes",
                "Bytes of the present objects that the store holds in memory (redb)",
            ),
            value_bytes_on_disk: registered(
                all,
                "kubegc_apiserver_storage_disk_only_bytes",
                "Bytes of the present objects that are not in memory but read from the file (redb; see `--object-memory`)",
            ),
            values_read: registered(
                all,
                "kubegc_apiserver_storage_objects_read",
                "Objects that were read from the file since the start of the server (redb)",
            ),
            is_full: registered(
                all,
                "kubegc_apiserver_storage_full",
                "1 while the store refuses what would make it larger: a full disk, or etcd's alarm NOSPACE",
            ),
            newest: registered(all, "kubegc_apiserver_storage_revision", "Newest revision of the store"),
            oldest: registered(
                all,
                "kubegc_apiserver_storage_compacted_revision",
                "Oldest revision of the store that this server can read",
            ),
        }
    }
}

impl Metrics {
    /// Registers all metrics.
    pub(crate) fn new() -> Self {
        let (mut catalogue, mut service_levels) = (Catalogue::default(), Catalogue::default());
        let (levels, all) = (&mut service_levels, &mut catalogue);
        Self {
            checks: registered(
                levels,
                "kubernetes_healthcheck",
                "How the last run of a health check ended: 1 is well",
            ),
            check_outcomes: registered(
                levels,
                "kubernetes_healthchecks",
                "Runs of health checks by their end",
            ),
            requests: registered(all, "apiserver_request", "Requests by verb, resource and code"),
            durations: histograms(
                all,
                "apiserver_request_duration_seconds",
                "Time to answer a request, without watches",
                || Histogram::new(BUCKETS),
            ),
            watches: registered(all, "apiserver_longrunning_requests", "Watches that are open"),
            in_flight: registered(
                all,
                "apiserver_current_inflight_requests",
                "Requests that are being worked on, without watches",
            ),
            rejected: registered(
                all,
                "kubegc_apiserver_rejected_requests",
                "Requests refused with 429 because too many were in flight",
            ),
            losses: LossMetrics::new(all),
            held: registered(all, "kubegc_apiserver_held_bytes", "Bytes that are held for clients"),
            budget: registered(
                all,
                "kubegc_apiserver_memory_budget_bytes",
                "Bytes that may be held for clients (`--memory-budget`)",
            ),
            waiting: registered(
                all,
                "apiserver_current_inqueue_requests",
                "Requests that wait for a place by priority and fairness",
            ),
            flows: Arc::new(FlowMetrics::new(all)),
            connections: registered(all, "kubegc_apiserver_connections", "Open connections"),
            webhooks: WebhookMetrics::new(all),
            store: StoreMetrics::new(all),
            seen: Mutex::default(),
            catalogue,
            service_levels,
        }
    }

    /// Counts an answered request.
    pub(crate) fn answered(&self, labels: &RequestLabels, took: Duration, long_running: bool) {
        self.requests.get_or_create(labels).inc();
        if !long_running {
            self.durations.get_or_create(&DurationLabels::of(labels)).observe(took.as_secs_f64());
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.contains(labels) {
            seen.insert(labels.clone());
        }
    }

    /// Forgets the requests for resources, given by group and name, that are no longer served.
    pub(crate) fn forget_removed(&self, is_served: impl Fn(&str, &str) -> bool) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|labels| {
            let is_kept = labels.resource.is_empty() || is_served(&labels.group, &labels.resource);
            if !is_kept {
                self.requests.remove(labels);
                self.durations.remove(&DurationLabels::of(labels));
            }
            is_kept
        });
    }

    /// Counts a completed health check.
    pub(crate) fn checked(&self, name: &str, endpoint: &str, is_well: bool) {
        let (name, endpoint) = (name.to_owned(), endpoint.to_owned());
        let labels = CheckLabels { name: name.clone(), r#type: endpoint.clone() };
        self.checks.get_or_create(&labels).set(is_well.into());
        let status = if is_well { "success" } else { "error" };
        self.check_outcomes.get_or_create(&CheckOutcomeLabels { name, r#type: endpoint, status }).inc();
    }

    /// Returns the content type and text of `/metrics/slis`.
    pub(crate) fn service_levels(&self, accept: Option<&str>) -> (&'static str, String) {
        exposition(self.service_levels.registry(), accept)
    }

    /// Counts a watch for as long as the guard lives.
    pub(crate) fn watch(&self, place: WatchPlace) -> WatchGuard {
        self.watches.inc();
        WatchGuard { open: self.watches.clone(), _place: place }
    }

    /// Updates the number of bytes held for clients.
    pub(crate) fn set_held(&self, account: &Account) {
        self.budget.set(i64::try_from(account.budget()).unwrap_or(i64::MAX));
        for standing in ClientStanding::ALL {
            let held = i64::try_from(account.held(standing)).unwrap_or(i64::MAX);
            self.held.get_or_create(&StandingLabels { standing: standing.name() }).set(held);
        }
    }

    /// Sets the metrics of the store.
    pub(crate) fn set_store(&self, status: &StoreStatus, is_remote: bool) {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let storage_cluster_id = if is_remote { "etcd-0" } else { "local" };
        if let Some(bytes) = status.bytes {
            self.store.bytes.get_or_create(&StoreLabels { storage_cluster_id }).set(number(bytes));
        }
        self.store.bytes_in_use.set(number(status.bytes_in_use.unwrap_or_default()));
        self.store.value_bytes_in_memory.set(number(status.value_bytes_in_memory.unwrap_or_default()));
        self.store.value_bytes_on_disk.set(number(status.value_bytes_on_disk.unwrap_or_default()));
        self.store.values_read.set(number(status.values_read.unwrap_or_default()));
        self.store.is_full.set(status.is_full.into());
        self.store.newest.set(number(status.newest.0));
        self.store.oldest.set(number(status.oldest.unwrap_or_default().0));
    }

    /// Returns the content type and text of `/metrics`, after updating the number of waiting requests and the seats of priority
    /// levels.
    pub(crate) fn shown(
        &self,
        accept: Option<&str>,
        waiting: usize,
        limits: Vec<(Arc<str>, Limits)>,
    ) -> (&'static str, String) {
        self.flows.set_limits(limits);
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        exposition(self.catalogue.registry(), accept)
    }
}

/// Counts one open watch.
pub(crate) struct WatchGuard {
    open: Gauge,
    _place: WatchPlace,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.open.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_of_a_removed_definition_are_forgotten() {
        let metrics = Metrics::new();
        for resource in ["pods", "widgets", ""] {
            let labels = RequestLabels { resource: resource.into(), code: 200, ..RequestLabels::default() };
            metrics.answered(&labels, Duration::ZERO, false);
        }
        let shown = |resource: &str| {
            metrics.shown(None, 0, Vec::new()).1.matches(&format!("resource=\"{resource}\"")).count() > 0
        };
        assert!(shown("pods") && shown("widgets"));
        metrics.forget_removed(|_, resource| resource == "pods");
        assert!(shown("pods") && shown("") && !shown("widgets"));
    }
}
