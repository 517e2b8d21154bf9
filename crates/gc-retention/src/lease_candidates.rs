//! LeaseCandidates that are no longer renewed (spec `cluster-collectors.md`, 12.2): leftovers of coordinated
//! leader election. Where the API server does not serve them, nothing is ever observed.

use std::collections::BTreeMap;

use gc_types::{ObjectKey, PropagationPolicy, Request, Timestamp, Uid};
use serde::Deserialize;

use crate::engine::{Collector, Decision, Observation, reason};
use crate::objects::{Cache, Facts, HasMeta, Kind, Meta, WireMeta, parse_time, time_text};

/// A candidate that has not been renewed for this long has expired, milliseconds.
pub const UNRENEWED_MILLISECONDS: i64 = 30 * 60_000;

/// What verdicts need of a LeaseCandidate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireCandidate")]
pub struct LeaseCandidate {
    /// Its metadata.
    pub meta: Meta,
    /// `spec.renewTime`
    pub renewed: Option<Timestamp>,
}

impl HasMeta for LeaseCandidate {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireCandidate {
    metadata: WireMeta,
    spec: WireCandidateSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCandidateSpec {
    renew_time: Option<String>,
}

impl From<WireCandidate> for LeaseCandidate {
    fn from(wire: WireCandidate) -> Self {
        Self { renewed: parse_time(wire.spec.renew_time.as_deref()), meta: Meta::from(&wire.metadata) }
    }
}

/// The decision about a candidate whose present `renewTime` was first seen at `unchanged_since`: as with identity
/// leases, a single wrong clock does not decide (BEAT-AL-3).
#[must_use]
pub fn verdict(candidate: &LeaseCandidate, unchanged_since: Timestamp, now: Timestamp) -> Decision {
    let meta = &candidate.meta;
    if meta.deleting {
        return Decision::Leave;
    }
    let fact = match candidate.renewed {
        Some(renewed) => {
            let end = renewed.max(unchanged_since).after(UNRENEWED_MILLISECONDS).after(1);
            if now < end {
                return Decision::Later(end);
            }
            format!("renewed last at {}", time_text(renewed))
        }
        None => "it has no renewTime".to_owned(),
    };
    let delete = Request::Delete {
        key: Kind::LeaseCandidate.key(&meta.namespace, &meta.name),
        uid: meta.uid.clone(),
        resource_version: Some(meta.resource_version),
        policy: PropagationPolicy::Background,
    };
    Decision::Act(delete, reason(gc_types::codes::LEASE_CANDIDATE_EXPIRED, meta.resource_version, &[fact]))
}

/// The collector of candidates.
#[derive(Debug)]
pub struct LeaseCandidateCollector {
    candidates: Cache<LeaseCandidate>,
    /// Since when a candidate has had its `renewTime`.
    unchanged: BTreeMap<ObjectKey, (Uid, Option<Timestamp>, Timestamp)>,
}

impl Default for LeaseCandidateCollector {
    fn default() -> Self {
        Self { candidates: Cache::new(Kind::LeaseCandidate), unchanged: BTreeMap::new() }
    }
}

impl LeaseCandidateCollector {
    fn put(&mut self, candidate: LeaseCandidate, now: Timestamp) -> ObjectKey {
        let (uid, renewed) = (candidate.meta.uid.clone(), candidate.renewed);
        let (key, _) = self.candidates.put(candidate);
        match self.unchanged.get(&key) {
            Some((known, time, _)) if *known == uid && *time == renewed => {}
            _ => drop(self.unchanged.insert(key.clone(), (uid, renewed, now))),
        }
        key
    }

    fn remove(&mut self, key: &ObjectKey) {
        self.candidates.remove(key);
        self.unchanged.remove(key);
    }
}

impl Collector for LeaseCandidateCollector {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::LeaseCandidate]
    }

    fn clock_set(&mut self, by: i64) {
        for (_, _, since) in self.unchanged.values_mut() {
            *since = since.after(by);
        }
    }

    fn observe(&mut self, observation: Observation, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::LeaseCandidate) => self.candidates.list_started(),
            Observation::Observed(Facts::LeaseCandidate(candidate)) => dirty.push(self.put(candidate, now)),
            Observation::Removed(key) => self.remove(&key),
            Observation::Synced(Kind::LeaseCandidate) => {
                for key in self.candidates.list_ended() {
                    self.remove(&key);
                }
                dirty.extend(self.candidates.keys().cloned());
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        match (self.candidates.get(key), self.unchanged.get(key)) {
            (Some(candidate), Some((_, _, since))) => verdict(candidate, *since, now),
            _ => Decision::Leave,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::engine::Engine;
    use serde_json::json;

    const NOW: i64 = 1_800_000_000;
    const HALF_HOUR: i64 = 1800;

    fn at(seconds: i64) -> Timestamp {
        Timestamp((NOW + seconds) * 1000)
    }

    fn candidate(renewed: Option<i64>) -> LeaseCandidate {
        serde_json::from_value(json!({
            "metadata": {"namespace": "kube-system", "name": "scheduler-a", "uid": "u", "resourceVersion": "3"},
            "spec": {"leaseName": "scheduler", "renewTime": renewed.map(|seconds| time_text(at(seconds)))},
        }))
        .unwrap()
    }

    #[test]
    fn half_an_hour_without_a_renewal_ends_it() {
        for (case, renewed, unchanged_since, is_deleted) in [
            ("renewed now", Some(0), 0, false),
            ("renewed half an hour ago", Some(-HALF_HOUR), -HALF_HOUR, false),
            ("renewed longer ago", Some(-HALF_HOUR - 1), -HALF_HOUR - 1, true),
            ("longer ago by its clock alone", Some(-2 * HALF_HOUR), -60, false),
            ("never renewed", None, 0, true),
        ] {
            let decision = verdict(&candidate(renewed), at(unchanged_since), at(0));
            assert_eq!(matches!(decision, Decision::Act(..)), is_deleted, "{case}: {decision:?}");
        }
    }

    /// A recreated candidate starts over, even with the `renewTime` of the former one.
    #[test]
    fn a_recreated_candidate_starts_over() {
        let mut engine = Engine::new(LeaseCandidateCollector::default());
        engine.tick(at(0));
        engine.observe(Observation::ListStarted(Kind::LeaseCandidate));
        engine.observe(Observation::Observed(Facts::LeaseCandidate(candidate(Some(-7200)))));
        engine.observe(Observation::Synced(Kind::LeaseCandidate));
        engine.tick(at(60));
        let mut successor = candidate(Some(-7200));
        successor.meta.uid = Uid::new("another");
        engine.observe(Observation::Observed(Facts::LeaseCandidate(successor)));
        engine.tick(at(HALF_HOUR + 1));
        assert_eq!(engine.poll_effect(), None);
        assert_eq!(engine.next_wakeup(), Some(at(HALF_HOUR + 60).after(1)));
    }

    #[test]
    fn a_renewal_counts_from_when_it_was_seen() {
        let mut engine = Engine::new(LeaseCandidateCollector::default());
        engine.tick(at(0));
        engine.observe(Observation::ListStarted(Kind::LeaseCandidate));
        engine.observe(Observation::Observed(Facts::LeaseCandidate(candidate(Some(-7200)))));
        engine.observe(Observation::Synced(Kind::LeaseCandidate));
        assert_eq!(engine.poll_effect(), None);
        engine.tick(at(60));
        engine.observe(Observation::Observed(Facts::LeaseCandidate(candidate(Some(-7100)))));
        engine.tick(at(HALF_HOUR + 1));
        assert_eq!(engine.poll_effect(), None);
        engine.tick(at(HALF_HOUR + 61));
        assert!(matches!(engine.poll_effect().unwrap().request, Request::Delete { .. }));
    }
}
