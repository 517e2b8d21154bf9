#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::engine::Engine;
use gc_types::Request;
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

/// Returns an engine that has listed one candidate, which was last renewed two hours ago.
fn engine() -> Engine<LeaseCandidateCollector> {
    let mut engine = Engine::new(LeaseCandidateCollector::default());
    engine.tick(at(0));
    engine.observe(Observation::ListStarted(Kind::LeaseCandidate));
    engine.observe(Observation::Observed(Facts::LeaseCandidate(candidate(Some(-7200)))));
    engine.observe(Observation::Synced(Kind::LeaseCandidate));
    engine
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
    let mut engine = engine();
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
    let mut engine = engine();
    assert_eq!(engine.poll_effect(), None);
    engine.tick(at(60));
    engine.observe(Observation::Observed(Facts::LeaseCandidate(candidate(Some(-7100)))));
    engine.tick(at(HALF_HOUR + 1));
    assert_eq!(engine.poll_effect(), None);
    engine.tick(at(HALF_HOUR + 61));
    assert!(matches!(engine.poll_effect().unwrap().request, Request::Delete { .. }));
}

/// A candidate that was removed, or that a list lacks, is forgotten: the same one starts over when it comes back.
#[test]
fn a_removed_candidate_is_forgotten() {
    for is_listed in [false, true] {
        let mut engine = engine();
        engine.tick(at(60));
        if is_listed {
            engine.observe(Observation::ListStarted(Kind::LeaseCandidate));
            engine.observe(Observation::Synced(Kind::LeaseCandidate));
        } else {
            let key = Kind::LeaseCandidate.key(&"kube-system".into(), &"scheduler-a".into());
            engine.observe(Observation::Removed(key));
        }
        engine.tick(at(HALF_HOUR + 1));
        assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, None), "listed: {is_listed}");
        engine.observe(Observation::Observed(Facts::LeaseCandidate(candidate(Some(-7200)))));
        assert_eq!(engine.poll_effect(), None, "listed: {is_listed}");
        assert_eq!(engine.next_wakeup(), Some(at(2 * HALF_HOUR + 1).after(1)), "listed: {is_listed}");
    }
}

/// Being observed again is no renewal, and the time is over one millisecond after it has passed.
#[test]
fn a_candidate_that_is_seen_again_is_not_renewed() {
    let mut engine = engine();
    engine.tick(at(60));
    engine.observe(Observation::Observed(Facts::LeaseCandidate(candidate(Some(-7200)))));
    assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, Some(at(HALF_HOUR).after(1))));
    let end = at(HALF_HOUR).after(1);
    assert_eq!(verdict(&candidate(Some(0)), at(0), at(HALF_HOUR)), Decision::Later(end));
    assert!(matches!(verdict(&candidate(Some(0)), at(0), end), Decision::Act(..)));
}
