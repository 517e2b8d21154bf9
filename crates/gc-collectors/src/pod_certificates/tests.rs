#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::engine::Engine;
use gc_types::{Outcome, Request, ResourceVersion, Uid};
use serde_json::{Value, json};

const NOW: i64 = 1_800_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp((NOW + seconds) * 1000)
}

fn request(age_seconds: i64, conditions: &Value) -> PodCertificate {
    let created = time_text(at(-age_seconds));
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "r", "uid": "u", "resourceVersion": "5",
            "creationTimestamp": created},
        "spec": {"podName": "web-0"}, "status": {"conditions": conditions},
    }))
    .unwrap()
}

#[test]
fn the_scenarios() {
    let denied = json!([{"type": "Denied", "status": "True"}]);
    for (scenario, age, conditions, is_deleted) in [
        ("PCR-T01", 899, &Value::Null, false),
        ("PCR-T02", 901, &Value::Null, true),
        ("PCR-T03", 899, &denied, false),
        ("PCR-T04", 901, &denied, true),
        ("PCR-T05", 900, &Value::Null, true),
    ] {
        let waits = match verdict(&request(age, conditions), at(0)) {
            Decision::Act(..) => None,
            other => Some(other),
        };
        assert_eq!(waits, (!is_deleted).then(|| Decision::Later(at(900 - age))), "{scenario}");
    }
}

#[test]
fn one_that_is_being_deleted_is_left_alone() {
    let mut terminating = request(901, &Value::Null);
    terminating.meta.deleting = true;
    assert_eq!(verdict(&terminating, at(0)), Decision::Leave);
}

#[test]
fn the_deadline_is_woken_for_and_a_replaced_request_is_decided_again() {
    let mut engine = Engine::new(PodCertificateCollector::default());
    engine.tick(at(0));
    // PCR-T08: if they are not served, nothing is ever listed.
    assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, None));
    engine.observe(Observation::ListStarted(Kind::PodCertificate));
    engine.observe(Observation::Observed(Facts::PodCertificate(request(0, &Value::Null))));
    engine.observe(Observation::Synced(Kind::PodCertificate));
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.next_wakeup(), Some(at(900)));
    engine.tick(at(900));
    let effect = engine.poll_effect().unwrap();
    // PCR-T07: conditional on its UID; Background is what the server does without a policy.
    let expected = Request::Delete {
        key: Kind::PodCertificate.key(&"shop".into(), &"r".into()),
        uid: Uid::new("u"),
        resource_version: Some(ResourceVersion(5)),
        policy: PropagationPolicy::Background,
    };
    assert_eq!(effect.request, expected);
    // BEAT-PCR-2: a conflict is not an error.
    engine.finish(effect.id, &Outcome::Conflict);
    assert_eq!((engine.counts().conflicts, engine.counts().errors), (1, 0));
    engine.tick(at(901));
    let again = engine.poll_effect().unwrap();
    // PCR-T06: it is gone already.
    engine.finish(again.id, &Outcome::Absent);
    assert_eq!((engine.counts().done, engine.counts().errors), (1, 0));
}
