#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::engine::Engine;
use crate::objects::time_text;
use base64::Engine as _;
use gc_types::{Request, ResourceVersion};

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

fn request(created: i64, conditions: &[(&str, Option<i64>)], certificate: Option<&[u8]>) -> SigningRequest {
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
    let valid = crate::objects::x509::tests::certificate(0x17, VALID, true);
    let expired = crate::objects::x509::tests::certificate(0x17, EXPIRED, true);
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
    let Decision::Act(Request::Delete { uid, resource_version, .. }, _) = gone else { panic!("{gone:?}") };
    // CSR-T19: a new request of the same name is not deleted.
    assert_eq!((uid, resource_version), (Uid::new("u"), Some(ResourceVersion(5))));
}

/// CSR-T17
#[test]
fn a_certificate_stays_readable_for_an_hour_after_it_appeared() {
    let valid = crate::objects::x509::tests::certificate(0x17, VALID, true);
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
    let valid = crate::objects::x509::tests::certificate(0x17, VALID, true);
    let approved = |issued: bool, uid: &str| {
        let mut request = request(120, &[("Approved", Some(120))], issued.then_some(valid.as_slice()));
        request.meta.uid = Uid::new(uid);
        Observation::Observed(Facts::SigningRequest(request))
    };
    // Replaced before and after it was issued, with and without its removal being observed.
    for (before, is_observed) in [(vec![false], false), (vec![false, true], false), (vec![false, true], true)]
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
