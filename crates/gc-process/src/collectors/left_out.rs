//! Logs the resources on which expiry annotations have no effect.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use gc_collectors::expiry;
use gc_kube::Observer;
use gc_types::{Event, ResourceId};

/// Logs each such resource once.
pub(super) struct LeftOut {
    aggregated_groups: Vec<String>,
    logged: Mutex<BTreeSet<ResourceId>>,
}

impl LeftOut {
    /// Creates the log for these values of `--expiry-aggregated-groups`.
    pub(super) fn new(aggregated_groups: &[String]) -> Self {
        Self { aggregated_groups: aggregated_groups.to_vec(), logged: Mutex::default() }
    }
}

impl Observer for LeftOut {
    fn observed(&self, event: &Event) {
        let Event::ResourceServed(info) = event else { return };
        if !info.watched || expiry::is_honoured(info, &self.aggregated_groups) {
            return;
        }
        if self.logged.lock().unwrap_or_else(PoisonError::into_inner).insert(info.id) {
            tracing::info!(
                group = %info.gvr.group,
                resource = %info.gvr.resource,
                "annotations of expiry have no effect: an aggregated API server serves the resource, or it is not known that \
                 none does; see --expiry-aggregated-groups"
            );
        }
    }
}
