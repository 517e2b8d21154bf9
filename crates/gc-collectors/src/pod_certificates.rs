//! Cleaner of PodCertificateRequests (spec `cluster-collectors.md`, section 5), which deletes them a fixed time after their
//! creation, whatever their state. If the API server does not serve them, nothing is ever observed.

#[cfg(test)]
mod tests;

use gc_types::{ObjectKey, PropagationPolicy, Timestamp};

use crate::engine::{Collector, Decision, Observation, reason};
use crate::entry::{CollectorEntry, WATCH_DELETE, Watches, rule};
pub use crate::objects::PodCertificate;
use crate::objects::{Cache, Facts, Kind, time_text};

/// Maximum age of a request, milliseconds.
pub const LIFETIME_MILLISECONDS: i64 = 15 * 60_000;

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "PodCertificateRequests",
    name: "podcertificaterequest-cleaner-controller",
    alias: None,
    account: "podcertificaterequestcleaner",
    event_source: "podcertificaterequest-cleaner-controller",
    on_by_default: true,
    for_every_kind: false,
    watches: Watches::Kinds(&[Kind::PodCertificate]),
    flags: &[],
    rules: &[rule("certificates.k8s.io", "podcertificaterequests", WATCH_DELETE)],
};

/// Returns the decision about a request.
#[must_use]
pub fn verdict(request: &PodCertificate, now: Timestamp) -> Decision {
    let meta = &request.meta;
    let Some(created) = meta.created.filter(|_| !meta.deleting) else { return Decision::Leave };
    let end = created.after(LIFETIME_MILLISECONDS);
    if now < end {
        return Decision::Later(end);
    }
    let delete = Kind::PodCertificate.deletion(meta, PropagationPolicy::Background);
    let fact = format!("it was made at {}, and lives for 15 minutes", time_text(created));
    Decision::Act(
        delete,
        reason(gc_types::codes::POD_CERTIFICATE_REQUEST_EXPIRED, meta.resource_version, &[fact]),
    )
}

/// The cleaner.
#[derive(Debug)]
pub struct PodCertificateCollector {
    requests: Cache<PodCertificate>,
}

impl Default for PodCertificateCollector {
    fn default() -> Self {
        Self { requests: Cache::new(Kind::PodCertificate) }
    }
}

impl Collector for PodCertificateCollector {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::PodCertificate]
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::PodCertificate) => self.requests.list_started(),
            Observation::Observed(Facts::PodCertificate(request)) => dirty.push(self.requests.put(request).0),
            Observation::Removed(key) => drop(self.requests.remove(&key)),
            Observation::Synced(Kind::PodCertificate) => {
                self.requests.forget_unlisted();
                dirty.extend(self.requests.keys().cloned());
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        self.requests.get(key).map_or(Decision::Leave, |request| verdict(request, now))
    }
}
