//! The cleaner of CertificateSigningRequests (spec `cluster-collectors.md`, section 4).

use std::collections::BTreeMap;

use base64::Engine as _;
use gc_types::{ObjectKey, PropagationPolicy, Request, Timestamp, Uid};
use serde::Deserialize;

use crate::engine::{Collector, Decision, Observation, reason};
use crate::objects::{Cache, Facts, HasMeta, Kind, Meta, WireCondition, WireMeta, parse_time};
use crate::x509;

const HOUR: i64 = 3_600_000;
/// How long an issued request is kept after its approval, and after its certificate was first seen;
/// milliseconds.
pub const ISSUED_MILLISECONDS: i64 = HOUR;
/// How long a denied or failed request is kept, milliseconds.
pub const DENIED_MILLISECONDS: i64 = HOUR;
/// How long a request without a decision or a certificate is kept, milliseconds.
pub const PENDING_MILLISECONDS: i64 = 24 * HOUR;

/// What verdicts need of a CertificateSigningRequest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireRequest")]
pub struct SigningRequest {
    /// Its metadata.
    pub meta: Meta,
    /// When it was approved: `None` if it is not; the time may be unknown.
    pub approved: Option<Option<Timestamp>>,
    /// When it was denied.
    pub denied: Option<Option<Timestamp>>,
    /// When signing failed.
    pub failed: Option<Option<Timestamp>>,
    /// Whether it has a certificate.
    pub issued: bool,
    /// When the certificate ends, if it can be read.
    pub not_after: Option<Timestamp>,
}

impl HasMeta for SigningRequest {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireRequest {
    metadata: WireMeta,
    status: WireRequestStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireRequestStatus {
    certificate: Option<String>,
    conditions: Option<Vec<WireCondition>>,
}

impl From<WireRequest> for SigningRequest {
    fn from(wire: WireRequest) -> Self {
        let updated = |kind: &str| {
            let mut conditions = wire.status.conditions.iter().flatten();
            let condition = conditions.find(|condition| condition.r#type == kind)?;
            Some(parse_time(condition.last_update_time.as_deref()))
        };
        let certificate = wire.status.certificate.as_deref().filter(|text| !text.is_empty());
        let pem = certificate.and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
        Self {
            approved: updated("Approved"),
            denied: updated("Denied"),
            failed: updated("Failed"),
            issued: certificate.is_some(),
            not_after: pem.and_then(|pem| x509::not_after(&pem)),
            meta: Meta::from(&wire.metadata),
        }
    }
}

/// The decision about a request. `issued_seen`: when its certificate was first observed, if it was; the hour in which
/// it can be read counts from then (BEAT-CSR-2).
#[must_use]
pub fn verdict(request: &SigningRequest, issued_seen: Option<Timestamp>, now: Timestamp) -> Decision {
    if request.meta.deleting {
        return Decision::Leave;
    }
    // Strictly older: the first moment at which it is too old.
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
        // Pending, or without any time that could age (BEAT-CSR-5).
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
    let delete = Request::Delete {
        key: Kind::SigningRequest.key(&meta.namespace, &meta.name),
        uid: meta.uid.clone(),
        resource_version: Some(meta.resource_version),
        policy: PropagationPolicy::Background,
    };
    let why = [why.to_owned()];
    Decision::Act(delete, reason(gc_types::codes::SIGNING_REQUEST_EXPIRED, meta.resource_version, &why))
}

/// The cleaner.
#[derive(Debug)]
pub struct CertificateCollector {
    requests: Cache<SigningRequest>,
    /// When the certificate of a request that had none appeared.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::engine::Engine;
    use crate::objects::time_text;
    use gc_types::ResourceVersion;

    const MINUTE: i64 = 60;
    const NOW: i64 = 1_800_000_000;
    const VALID: &str = "280101000000Z";
    const EXPIRED: &str = "260101000000Z";

    fn at(seconds: i64) -> Timestamp {
        Timestamp((NOW + seconds) * 1000)
    }

    fn text(minutes_ago: i64) -> String {
        time_text(at(-minutes_ago * MINUTE))
    }

    fn request(
        created: i64,
        conditions: &[(&str, Option<i64>)],
        certificate: Option<&[u8]>,
    ) -> SigningRequest {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, ago)| serde_json::json!({"type": kind, "status": "True", "lastUpdateTime": ago.map(text)}))
            .collect();
        let certificate = certificate.map(|pem| base64::engine::general_purpose::STANDARD.encode(pem));
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "csr", "uid": "u", "resourceVersion": "5", "creationTimestamp": text(created)},
            "status": {"conditions": conditions, "certificate": certificate},
        }))
        .unwrap()
    }

    fn is_deleted(request: &SigningRequest) -> bool {
        matches!(verdict(request, None, at(0)), Decision::Act(..))
    }

    #[test]
    fn the_scenarios_of_age() {
        let valid = x509::tests::certificate(0x17, VALID, true);
        let expired = x509::tests::certificate(0x17, EXPIRED, true);
        let (valid, expired) = (Some(valid.as_slice()), Some(expired.as_slice()));
        let garbage = Some(&b"garbage"[..]);
        for (scenario, created, conditions, certificate, expected) in [
            ("CSR-T01", 60, &[("Approved", Some(50))][..], valid, false),
            ("CSR-T02", 60, &[("Approved", Some(50))], None, false),
            ("CSR-T03", 130, &[("Approved", Some(120))], valid, true),
            ("CSR-T04", 60, &[("Denied", Some(50))], None, false),
            ("CSR-T05", 130, &[("Denied", Some(120))], None, true),
            ("CSR-T06", 130, &[("Approved", Some(120)), ("Failed", Some(50))], None, false),
            ("CSR-T07", 130, &[("Approved", Some(120)), ("Failed", Some(120))], None, true),
            ("CSR-T08", 300, &[], None, false),
            ("CSR-T09", 1500, &[], None, true),
            ("CSR-T10", 1510, &[("Approved", Some(1500))], None, true),
            ("CSR-T11", 310, &[("Approved", Some(300))], None, false),
            ("CSR-T12", 60, &[("Approved", Some(50))], expired, true),
            ("CSR-T13", 130, &[("Approved", Some(120))], garbage, true),
            ("CSR-T14", 60, &[("Approved", Some(50))], garbage, false),
            ("CSR-T15", 525_600, &[("Denied", None)], None, true),
            ("CSR-T16", 70, &[("Denied", Some(60))], None, false),
            ("unknown conditions age like none", 1500, &[("Example", Some(1))], None, true),
            ("an expired certificate that was never approved", 60, &[], expired, false),
        ] {
            assert_eq!(is_deleted(&request(created, conditions, certificate)), expected, "{scenario}");
        }
    }

    #[test]
    fn the_deadline_is_woken_for_and_not_polled() {
        let denied = request(60, &[("Denied", Some(60))], None);
        assert_eq!(verdict(&denied, None, at(0)), Decision::Later(at(0).after(1)));
        let gone = verdict(&denied, None, at(0).after(1));
        let Decision::Act(Request::Delete { uid, resource_version, .. }, _) = gone else {
            panic!("{gone:?}")
        };
        // CSR-T19: a new request under the same name is safe.
        assert_eq!((uid, resource_version), (Uid::new("u"), Some(ResourceVersion(5))));
    }

    /// CSR-T17
    #[test]
    fn a_certificate_stays_readable_for_an_hour_after_it_appeared() {
        let valid = x509::tests::certificate(0x17, VALID, true);
        let mut engine = Engine::new(CertificateCollector::default());
        engine.tick(at(-5));
        engine.observe(Observation::ListStarted(Kind::SigningRequest));
        engine.observe(Observation::Observed(Facts::SigningRequest(request(
            120,
            &[("Approved", Some(120))],
            None,
        ))));
        engine.observe(Observation::Synced(Kind::SigningRequest));
        let issued = request(120, &[("Approved", Some(120))], Some(&valid));
        engine.observe(Observation::Observed(Facts::SigningRequest(issued)));
        engine.tick(at(0));
        assert_eq!(engine.poll_effect(), None);
        assert_eq!(engine.next_wakeup(), Some(at(3595).after(1)));
        engine.tick(at(3595).after(1));
        assert!(engine.poll_effect().is_some());
    }

    /// Observations of one request do not apply to another of the same name, and its approval may come last.
    #[test]
    fn what_was_seen_counts_for_one_request() {
        let valid = x509::tests::certificate(0x17, VALID, true);
        let approved = |issued: bool, uid: &str| {
            let mut request = request(120, &[("Approved", Some(120))], issued.then_some(valid.as_slice()));
            request.meta.uid = Uid::new(uid);
            Observation::Observed(Facts::SigningRequest(request))
        };
        // Replaced before it was issued, and after: with the removal observed, and without.
        for (before, is_observed) in
            [(vec![false], false), (vec![false, true], false), (vec![false, true], true)]
        {
            let mut engine = Engine::new(CertificateCollector::default());
            engine.tick(at(0));
            engine.observe(Observation::ListStarted(Kind::SigningRequest));
            engine.observe(Observation::Synced(Kind::SigningRequest));
            for issued in before {
                engine.observe(approved(issued, "u"));
            }
            if is_observed {
                let key = Kind::SigningRequest.key(&"".into(), &"csr".into());
                engine.observe(Observation::Removed(key));
                assert!(engine.collector().issued_seen.is_empty());
            }
            engine.observe(approved(true, "another"));
            assert!(engine.poll_effect().is_some(), "observed: {is_observed}");
        }
        let late = request(60, &[("Approved", Some(30))], Some(&valid));
        assert_eq!(verdict(&late, Some(at(-7200)), at(0)), Decision::Later(at(1800).after(1)));
    }

    /// CSR-T18
    #[test]
    fn what_is_overdue_is_deleted_as_soon_as_the_list_is_complete() {
        let mut engine = Engine::new(CertificateCollector::default());
        engine.tick(at(0));
        assert_eq!(engine.poll_effect(), None);
        engine.observe(Observation::ListStarted(Kind::SigningRequest));
        engine.observe(Observation::Observed(Facts::SigningRequest(request(
            130,
            &[("Denied", Some(120))],
            None,
        ))));
        assert_eq!(engine.poll_effect(), None);
        engine.observe(Observation::Synced(Kind::SigningRequest));
        assert!(engine.poll_effect().is_some());
    }
}
