//! The cleaner of PodCertificateRequests (spec `cluster-collectors.md`, section 5): they are deleted a fixed time
//! after their creation, whatever their state. Where the API server does not serve them, nothing is ever observed.

use gc_types::{ObjectKey, PropagationPolicy, Request, Timestamp};
use serde::Deserialize;

use crate::engine::{Collector, Decision, Observation, reason};
use crate::objects::{Cache, Facts, HasMeta, Kind, Meta, WireMeta, time_text};

/// How long a request is kept, milliseconds.
pub const LIFETIME_MILLISECONDS: i64 = 15 * 60_000;

/// What verdicts need of a PodCertificateRequest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WirePodCertificate")]
pub struct PodCertificate {
    /// Its metadata.
    pub meta: Meta,
}

impl HasMeta for PodCertificate {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WirePodCertificate {
    metadata: WireMeta,
}

impl From<WirePodCertificate> for PodCertificate {
    fn from(wire: WirePodCertificate) -> Self {
        Self { meta: Meta::from(&wire.metadata) }
    }
}

/// The decision about a request.
#[must_use]
pub fn verdict(request: &PodCertificate, now: Timestamp) -> Decision {
    let meta = &request.meta;
    let Some(created) = meta.created.filter(|_| !meta.deleting) else { return Decision::Leave };
    let end = created.after(LIFETIME_MILLISECONDS);
    if now < end {
        return Decision::Later(end);
    }
    let delete = Request::Delete {
        key: Kind::PodCertificate.key(&meta.namespace, &meta.name),
        uid: meta.uid.clone(),
        resource_version: Some(meta.resource_version),
        policy: PropagationPolicy::Background,
    };
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
                for key in self.requests.list_ended() {
                    self.requests.remove(&key);
                }
                dirty.extend(self.requests.keys().cloned());
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        self.requests.get(key).map_or(Decision::Leave, |request| verdict(request, now))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::engine::Engine;
    use gc_types::{Outcome, ResourceVersion, Uid};
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
        // PCR-T08: where they are not served, nothing is ever listed.
        assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, None));
        engine.observe(Observation::ListStarted(Kind::PodCertificate));
        engine.observe(Observation::Observed(Facts::PodCertificate(request(0, &Value::Null))));
        engine.observe(Observation::Synced(Kind::PodCertificate));
        assert_eq!(engine.poll_effect(), None);
        assert_eq!(engine.next_wakeup(), Some(at(900)));
        engine.tick(at(900));
        let effect = engine.poll_effect().unwrap();
        // PCR-T07: under its UID; Background is what the server does without a policy.
        let expected = Request::Delete {
            key: Kind::PodCertificate.key(&"shop".into(), &"r".into()),
            uid: Uid::new("u"),
            resource_version: Some(ResourceVersion(5)),
            policy: PropagationPolicy::Background,
        };
        assert_eq!(effect.request, expected);
        // BEAT-PCR-2: a conflict is no error.
        engine.finish(effect.id, &Outcome::Conflict);
        assert_eq!((engine.counts().conflicts, engine.counts().errors), (1, 0));
        engine.tick(at(901));
        let again = engine.poll_effect().unwrap();
        // PCR-T06: it is gone already.
        engine.finish(again.id, &Outcome::Absent);
        assert_eq!((engine.counts().done, engine.counts().errors), (1, 0));
    }
}
