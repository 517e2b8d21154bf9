#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better without references")]

use super::*;
use crate::engine::{AnyCollector, Engine};
use gc_types::{Outcome, ResourceVersion, Uid};
use proptest::prelude::*;

const NOW: i64 = 1_800_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp((NOW + seconds) * 1000)
}

/// Returns a Job with conditions at times relative to now.
fn job(version: u64, ttl: Option<i64>, conditions: &[(&str, Option<i64>)], more: serde_json::Value) -> Job {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(kind, time)| {
            let time = time.map(|seconds| time_text(at(seconds)));
            serde_json::json!({"type": kind, "status": "True", "lastTransitionTime": time})
        })
        .collect();
    let mut object = serde_json::json!({
        "metadata": {"namespace": "shop", "name": "job", "uid": "u", "resourceVersion": version.to_string(),
            "creationTimestamp": time_text(at(-1000))},
        "spec": {"ttlSecondsAfterFinished": ttl},
        "status": {"conditions": conditions},
    });
    if let Some(map) = more.as_object() {
        for (path, value) in map {
            *object.pointer_mut(path).unwrap() = value.clone();
        }
    }
    serde_json::from_value(object).unwrap()
}

fn plain(ttl: Option<i64>, conditions: &[(&str, Option<i64>)]) -> Job {
    job(7, ttl, conditions, serde_json::Value::Null)
}

/// Returns the remaining seconds; `None` if the Job is left alone.
fn remaining(job: &Job) -> Option<i64> {
    match verdict(job, at(0)) {
        Decision::Leave => None,
        Decision::Later(time) => Some(time.since(at(0)) / 1000),
        Decision::Act(..) => Some(0),
    }
}

#[test]
fn the_scenarios_of_expiry() {
    for (scenario, ttl, conditions, expected) in [
        ("TTL-T01", Some(100), &[][..], None),
        ("TTL-T02", None, &[("Complete", Some(0))], None),
        ("TTL-T03", Some(0), &[("Complete", Some(0))], Some(0)),
        ("TTL-T04", Some(10), &[("Complete", Some(0))], Some(10)),
        ("TTL-T05", Some(15), &[("Complete", Some(-10))], Some(5)),
        ("TTL-T06", None, &[("Failed", Some(0))], None),
        ("TTL-T06", Some(0), &[("Failed", Some(0))], Some(0)),
        ("TTL-T06", Some(10), &[("Failed", Some(0))], Some(10)),
        ("TTL-T06", Some(15), &[("Failed", Some(-10))], Some(5)),
        ("TTL-T11", Some(10), &[("Complete", Some(30))], Some(40)),
        ("TTL-T14", Some(0), &[("FailureTarget", Some(-5))], None),
        ("the first one counts", Some(0), &[("Failed", Some(20)), ("Complete", Some(5))], Some(20)),
        ("no condition that ends", Some(0), &[("Suspended", Some(0)), ("SuccessCriteriaMet", Some(0))], None),
        ("an overflowing sum is far away", Some(i64::MAX), &[("Complete", Some(0))], {
            Some((i64::MAX - NOW * 1000) / 1000)
        }),
    ] {
        assert_eq!(remaining(&plain(ttl, conditions)), expected, "{scenario}");
    }
}

/// TTL-T17, and the substitutes for a missing transition time (BEAT-TTL-2).
#[test]
fn a_missing_transition_time_is_made_good() {
    let times = |completion: Option<i64>, start: Option<i64>| {
        let text = |seconds: Option<i64>| seconds.map(|seconds| time_text(at(seconds)));
        serde_json::json!({"/status": {
            "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": null}],
            "completionTime": text(completion), "startTime": text(start),
        }})
    };
    for (completion, start, expected) in
        [(Some(-5), Some(-60), 5), (None, Some(-4), 6), (None, None, 0), (Some(-50), None, 0)]
    {
        assert_eq!(remaining(&job(7, Some(10), &[], times(completion, start))), Some(expected));
    }
}

/// A condition with status False does not mean that the Job has finished.
#[test]
fn a_condition_that_does_not_hold_is_no_end() {
    for status in ["False", "Unknown"] {
        let conditions = serde_json::json!({"/status": {"conditions": [
            {"type": "Complete", "status": status, "lastTransitionTime": time_text(at(-60))},
        ]}});
        assert_eq!(remaining(&job(7, Some(10), &[], conditions)), None, "{status}");
    }
}

/// TTL-T13
#[test]
fn a_terminating_job_is_left_alone() {
    let mut job = plain(Some(0), &[("Complete", Some(-5))]);
    job.meta.deleting = true;
    assert_eq!(verdict(&job, at(0)), Decision::Leave);
}

fn engine(job: Job) -> Engine<JobCollector> {
    let mut engine = Engine::new(JobCollector::default());
    engine.tick(at(0));
    engine.observe(Observation::ListStarted(Kind::Job));
    engine.observe(Observation::Observed(Facts::Job(job)));
    engine.observe(Observation::Synced(Kind::Job));
    engine
}

/// The clock was 25 h ahead and is corrected: a Job that finishes after that gets its whole time to live.
#[test]
fn a_clock_that_is_set_back_makes_nothing_due() {
    let mut engine = Engine::new(JobCollector::default());
    engine.tick(at(25 * 3600));
    engine.observe(Observation::ListStarted(Kind::Job));
    engine.observe(Observation::Synced(Kind::Job));
    engine.set_clock(at(0));
    engine.observe(Observation::Observed(Facts::Job(plain(Some(3600), &[("Complete", Some(0))]))));
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.next_wakeup(), Some(at(3600)));
    // Jobs that were waiting are rescheduled by the new time as well.
    engine.set_clock(at(3601));
    assert!(matches!(engine.poll_effect().unwrap().request, Request::Delete { .. }));
}

/// TTL-T15
#[test]
fn the_request_is_foreground_and_guarded() {
    let effect = engine(plain(Some(0), &[("Complete", Some(0))])).poll_effect().unwrap();
    let expected = Request::Delete {
        key: Kind::Job.key(&"shop".into(), &"job".into()),
        uid: Uid::new("u"),
        resource_version: Some(ResourceVersion(7)),
        policy: PropagationPolicy::Foreground,
    };
    assert_eq!(effect.request, expected);
    assert_eq!(
        effect.reason.to_string(),
        "the job's time to live after it finished is over: object observed at version 7; its time to live of \
         0 s ended at 2027-01-15T08:00:00Z"
    );
}

/// TTL-T08, TTL-T09, TTL-T16: the server refuses because the version has changed, and the new version decides.
#[test]
fn a_time_to_live_that_is_raised_in_the_last_moment_is_honoured() {
    for (ttl, wakeup) in [(Some(3600), Some(at(3600))), (None, None)] {
        let mut engine = engine(plain(Some(0), &[("Complete", Some(0))]));
        let effect = engine.poll_effect().unwrap();
        engine.finish(effect.id, &Outcome::Conflict);
        let raised = job(8, ttl, &[("Complete", Some(0))], serde_json::Value::Null);
        engine.observe(Observation::Observed(Facts::Job(raised)));
        engine.tick(at(1));
        assert_eq!(engine.poll_effect(), None);
        assert_eq!(engine.next_wakeup(), wakeup);
    }
}

/// TTL-T12
#[test]
fn a_failure_is_tried_again_later_and_later() {
    let mut engine = engine(plain(Some(0), &[("Complete", Some(0))]));
    let failed = Outcome::Failed { message: "500".into(), retry_after_milliseconds: None };
    let mut now = at(0);
    for delay in [5, 10, 20, 40] {
        let effect = engine.poll_effect().unwrap();
        engine.finish(effect.id, &failed);
        assert_eq!(engine.poll_effect(), None);
        assert_eq!(engine.next_wakeup(), Some(now.after(delay)));
        now = now.after(delay);
        engine.tick(now);
    }
    let effect = engine.poll_effect().unwrap();
    engine.finish(effect.id, &Outcome::Absent);
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.next_wakeup(), None);
}

/// TTL-T07: deleted once its time is over, and only once; after that, only the finalizer is left.
#[test]
fn a_job_that_a_finalizer_holds_is_deleted_once() {
    let mut engine = engine(plain(Some(10), &[("Complete", Some(0))]));
    engine.tick(at(10).after(-1));
    assert_eq!(engine.poll_effect(), None);
    engine.tick(at(10));
    let effect = engine.poll_effect().unwrap();
    engine.finish(effect.id, &Outcome::Applied(None));
    let mut held = job(8, Some(10), &[("Complete", Some(0))], serde_json::Value::Null);
    held.meta.deleting = true;
    engine.observe(Observation::Observed(Facts::Job(held)));
    engine.tick(at(3600));
    assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, None));
}

/// TTL-T10: a new Job of the same name is decided independently.
#[test]
fn a_job_of_the_same_name_inherits_nothing() {
    let mut engine = engine(plain(Some(10), &[("Complete", Some(0))]));
    assert_eq!(engine.poll_effect(), None);
    engine.observe(Observation::Removed(Kind::Job.key(&"shop".into(), &"job".into())));
    engine.observe(Observation::Observed(Facts::Job(job(9, Some(10), &[], serde_json::Value::Null))));
    engine.tick(at(11));
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.next_wakeup(), None);
}

/// The metric measures from the expiry to the response; requests that were not sent are not counted.
#[test]
fn a_deletion_is_as_late_as_its_answer() {
    for (seconds, late) in [(0, 0.0), (7, 7.0)] {
        let mut engine = engine(plain(Some(0), &[("Complete", Some(0))]));
        let effect = engine.poll_effect().unwrap();
        engine.tick(at(seconds));
        engine.finish(effect.id, &Outcome::Applied(None));
        let measured = AnyCollector::take_measurement(&mut engine).unwrap();
        assert_eq!(measured.metric.name, JOB_DELETION_LATENESS.name);
        assert!((measured.value - late).abs() < f64::EPSILON, "{measured:?}");
    }
    let mut engine = engine(plain(Some(0), &[("Complete", Some(0))]));
    let effect = engine.poll_effect().unwrap();
    engine.skip(effect.id);
    assert!(engine.collector().expired.is_empty());
}

proptest! {
    /// Nothing is deleted before its time, and everything is at its time.
    #[test]
    fn the_deadline_is_exact(finished in -100_i64..100, ttl in 0_i64..200, now in -400_i64..400) {
        let decision = verdict(&plain(Some(ttl), &[("Complete", Some(finished))]), at(now));
        let expires = at(finished + ttl);
        match decision {
            Decision::Act(..) => prop_assert!(at(now) >= expires),
            Decision::Later(time) => prop_assert!(at(now) < expires && time == expires),
            Decision::Leave => prop_assert!(false),
        }
    }
}
