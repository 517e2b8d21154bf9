//! Cleaner of CertificateSigningRequests (spec `cluster-collectors.md`, section 4).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use gc_types::{ObjectKey, PropagationPolicy, Timestamp, Uid};

use crate::engine::{Collector, Decision, Observation, reason};
use crate::entry::{CollectorEntry, WATCH_DELETE, Watches, rule};
pub use crate::objects::SigningRequest;
use crate::objects::{Cache, Facts, Kind};

const HOUR: i64 = 3_600_000;

/// Retention of an issued request after its approval, and after its certificate was first seen; milliseconds.
pub const ISSUED_MILLISECONDS: i64 = HOUR;

/// Retention of a denied or failed request, milliseconds.
pub const DENIED_MILLISECONDS: i64 = HOUR;

/// Retention of a request without a decision or a certificate, milliseconds.
pub const PENDING_MILLISECONDS: i64 = 24 * HOUR;

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "CertificateSigningRequests",
    name: "certificatesigningrequest-cleaner-controller",
    alias: Some("csrcleaner"),
    account: "certificate-controller",
    event_source: "certificatesigningrequest-cleaner-controller",
    on_by_default: true,
    for_every_kind: false,
    watches: Watches::Kinds(&[Kind::SigningRequest]),
    flags: &[],
    rules: &[rule("certificates.k8s.io", "certificatesigningrequests", WATCH_DELETE)],
};

/// Returns the decision about a request. `issued_seen` is when its certificate was first observed, if it was; the hour during which
/// it stays readable counts from then (BEAT-CSR-2).
#[must_use]
pub fn verdict(request: &SigningRequest, issued_seen: Option<Timestamp>, now: Timestamp) -> Decision {
    if request.meta.deleting {
        return Decision::Leave;
    }
    // One more, because a request must be strictly older to be deleted.
    let after = |time: Timestamp, milliseconds: i64| time.after(milliseconds).after(1);
    let approved_at = request.approved.flatten();
    let mut ends: Vec<(Timestamp, &str)> = Vec::new();
    let mut add = |time: Option<Timestamp>, milliseconds: i64, why: &'static str| {
        ends.extend(time.map(|time| (after(time, milliseconds), why)));
    };
    if request.issued {
        add(
            approved_at.map(|at| at.max(issued_seen.unwrap_or(at))),
            ISSUED_MILLISECONDS,
            "it was issued over an hour ago",
        );
        if request.approved.is_some() {
            add(request.not_after, 0, "its certificate has expired");
        }
    } else {
        add(approved_at, PENDING_MILLISECONDS, "it was approved over a day ago, and not issued");
    }
    add(request.denied.flatten(), DENIED_MILLISECONDS, "it was denied over an hour ago");
    add(request.failed.flatten(), DENIED_MILLISECONDS, "it failed over an hour ago");
    if ends.is_empty() {
        // Pending, or without any other time to count from (BEAT-CSR-5).
        let created = request
            .meta
            .created
            .map(|time| (after(time, PENDING_MILLISECONDS), "it is over a day old, and undecided"));
        ends.extend(created);
    }
    let Some((end, why)) = ends.into_iter().min() else { return Decision::Leave };
    if now < end {
        return Decision::Later(end);
    }
    let meta = &request.meta;
    let delete = Kind::SigningRequest.deletion(meta, PropagationPolicy::Background);
    let why = [why.to_owned()];
    Decision::Act(delete, reason(gc_types::codes::SIGNING_REQUEST_EXPIRED, meta.resource_version, &why))
}

/// The cleaner.
#[derive(Debug)]
pub struct CertificateCollector {
    requests: Cache<SigningRequest>,
    /// Time at which the certificate of a request that had none appeared.
    issued_seen: BTreeMap<ObjectKey, (Uid, Timestamp)>,
}

impl Default for CertificateCollector {
    fn default() -> Self {
        Self { requests: Cache::new(Kind::SigningRequest), issued_seen: BTreeMap::new() }
    }
}

impl CertificateCollector {
    fn remove(&mut self, key: &ObjectKey) {
        self.requests.remove(key);
        self.issued_seen.remove(key);
    }
}

impl Collector for CertificateCollector {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::SigningRequest]
    }

    fn clock_set(&mut self, by: i64) {
        for (_, at) in self.issued_seen.values_mut() {
            *at = at.after(by);
        }
    }

    fn observe(&mut self, observation: Observation, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::SigningRequest) => self.requests.list_started(),
            Observation::Observed(Facts::SigningRequest(request)) => {
                let (uid, issued) = (request.meta.uid.clone(), request.issued);
                let (key, before) = self.requests.put(request);
                match before {
                    Some(before) if before.meta.uid == uid && !before.issued && issued => {
                        self.issued_seen.insert(key.clone(), (uid, now));
                    }
                    _ => {}
                }
                dirty.push(key);
            }
            Observation::Removed(key) => self.remove(&key),
            Observation::Synced(Kind::SigningRequest) => {
                for key in self.requests.list_ended() {
                    self.remove(&key);
                }
                dirty.extend(self.requests.keys().cloned());
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        let Some(request) = self.requests.get(key) else { return Decision::Leave };
        let seen = self.issued_seen.get(key).filter(|(uid, _)| *uid == request.meta.uid);
        verdict(request, seen.map(|(_, at)| *at), now)
    }
}
