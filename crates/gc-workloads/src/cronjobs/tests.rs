#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::testing::World;

/// Creates a CronJob of the Job `tick`; tests begin at 22:13:20.
fn world(spec: &Value, annotations: &Value) -> World {
    let mut whole = json!({"schedule": "* * * * *", "concurrencyPolicy": "Allow",
        "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
        "jobTemplate": {"metadata": {"labels": {"app": "tick"}}, "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0,
            "selector": {"matchLabels": {"job": "tick"}}, "template": {
                "metadata": {"labels": {"job": "tick"}, "annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}}}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let mut world = World::whole();
    world.create(Kind::CronJob, json!({"metadata": {"name": "tick"}, "spec": whole}));
    world.settle();
    world
}

fn status(world: &World) -> Value {
    let mut status = world.get(Kind::CronJob, "tick")["status"].clone();
    for entry in status.get_mut("active").and_then(Value::as_array_mut).into_iter().flatten() {
        *entry = entry["name"].clone();
    }
    status
}

/// Returns the name of the Job scheduled this many minutes after 22:13.
fn name(minutes: i64) -> String {
    format!("tick-{}", 28_333_333 + minutes)
}

#[test]
fn a_job_is_created_every_minute_and_three_are_kept() {
    let mut world = world(&json!({}), &json!({}));
    assert_eq!(world.names(Kind::Job), [""; 0]);
    world.pass(41);
    assert_eq!(world.names(Kind::Job), [name(1)]);
    let job = world.get(Kind::Job, &name(1));
    assert_eq!(job["metadata"]["labels"], json!({"app": "tick"}));
    assert_eq!(
        job["metadata"]["annotations"],
        json!({"batch.kubernetes.io/cronjob-scheduled-timestamp": "2023-11-14T22:14:00Z"})
    );
    assert_eq!(
        status(&world),
        json!({"lastScheduleTime": "2023-11-14T22:14:00Z", "lastSuccessfulTime": "2023-11-14T22:14:00Z"})
    );
    world.pass(240);
    assert_eq!(world.names(Kind::Job), [name(3), name(4), name(5)]);
    let events = world.events("tick");
    let first = [
        format!("SuccessfulCreate Created job {}", name(1)),
        format!("SawCompletedJob Saw completed job: {}, condition: Complete", name(1)),
    ];
    assert_eq!(events[..2], first, "{events:#?}");
    assert!(events.contains(&format!("SuccessfulDelete Deleted job {}", name(1))), "{events:#?}");
}

#[test]
fn a_job_that_still_runs_is_joined_replaced_or_waited_for() {
    for (policy, expected) in
        [("Allow", vec![name(1), name(2), name(3)]), ("Forbid", vec![name(1)]), ("Replace", vec![name(3)])]
    {
        let mut world =
            world(&json!({"concurrencyPolicy": policy}), &json!({"kubegc.io/completes-after": "1h"}));
        world.pass(161);
        assert_eq!(world.names(Kind::Job), expected, "{policy}");
        assert_eq!(status(&world)["active"], json!(expected), "{policy}");
    }
}

#[test]
fn what_was_missed_is_made_up_for_once_and_not_after_the_deadline() {
    // The process was asleep for an hour, and starts only the last Job.
    let mut late = world(&json!({}), &json!({}));
    late.now += 3_600_000;
    late.settle();
    assert_eq!(late.names(Kind::Job), [name(60)]);
    let spec = json!({"schedule": "14 * * * *", "startingDeadlineSeconds": 60});
    let mut too_late = world(&spec, &json!({}));
    too_late.now += 600_000;
    too_late.settle();
    assert_eq!(too_late.names(Kind::Job), [""; 0]);
}

#[test]
fn suspended_unreadable_and_zoned_schedules() {
    let mut suspended = world(&json!({"suspend": true}), &json!({}));
    suspended.pass(120);
    assert_eq!(suspended.names(Kind::Job), [""; 0]);
    let unreadable = world(&json!({"schedule": "61 * * * *"}), &json!({}));
    assert_eq!(unreadable.events("tick").len(), 1);
    let unknown = world(&json!({"timeZone": "Nowhere/None"}), &json!({}));
    assert_eq!(
        unknown.events("tick"),
        ["UnknownTimeZone invalid timeZone: \"Nowhere/None\": unknown time zone Nowhere/None"]
    );
    let mut zoned = World::whole();
    let zone = jiff::tz::TimeZone::posix("IST-5:30").unwrap();
    zoned.runtime.learn_time_zone("Asia/Kolkata", zone);
    let mut cron = unknown.get(Kind::CronJob, "tick").clone();
    cron["spec"]["timeZone"] = "Asia/Kolkata".into();
    cron["spec"]["schedule"] = "44 3 * * *".into();
    cron["status"] = Value::Null;
    zoned.create(Kind::CronJob, cron);
    zoned.pass(41);
    let annotations = &zoned.of_kind(Kind::Job)[0]["metadata"]["annotations"];
    assert_eq!(annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"], "2023-11-15T03:44:00+05:30");
}

/// A finished or running Job of the CronJob `tick`: its name, how it ended, and when it started (second of the minute).
type FinishedJob = (&'static str, &'static str, Option<i64>);

/// Scenarios CJ-T of the specification: limits of successful and failed Jobs, the Jobs, and which of them are deleted.
#[test]
fn history_limits_are_those_of_the_specification() {
    let table: [(&str, Value, Value, &[FinishedJob], &[&str]); 6] = [
        ("CJ-T02", json!(2), json!(1), &[("a", "Complete", Some(1))], &[]),
        (
            "CJ-T03",
            json!(0),
            json!(1),
            &[("a", "Complete", Some(1)), ("b", "Complete", Some(2))],
            &["a", "b"],
        ),
        (
            "CJ-T04",
            json!(3),
            json!(1),
            &[("a", "Failed", None), ("b", "Failed", Some(2)), ("c", "Failed", Some(1))],
            &["b", "c"],
        ),
        ("CJ-T05", json!(0), json!(0), &[("a", "", Some(1)), ("b", "", Some(2))], &[]),
        ("CJ-T06", Value::Null, Value::Null, &[("a", "Complete", Some(1)), ("b", "Failed", Some(2))], &[]),
        (
            "one category",
            Value::Null,
            json!(0),
            &[("a", "Complete", Some(1)), ("b", "Failed", Some(2))],
            &["b"],
        ),
    ];
    for (id, successful, failed, jobs, expected) in table {
        let mut world = World::new(&[crate::workloads::Workload::CronJob]);
        let cron = world.create(
            Kind::CronJob,
            json!({"metadata": {"name": "tick"}, "spec": {"schedule": "* * * * *", "suspend": true,
                "successfulJobsHistoryLimit": successful, "failedJobsHistoryLimit": failed}}),
        );
        let owner = |kind: &str, uid: &Value| json!([{"apiVersion": "batch/v1", "kind": kind, "name": "tick", "uid": uid, "controller": true}]);
        let mut create = |name: &str, end: &str, started: Option<i64>, owners: Value| {
            let mut status = json!({});
            if !end.is_empty() {
                status["conditions"] = json!([{"type": end, "status": "True"}]);
            }
            if let Some(second) = started {
                status["startTime"] = format!("2023-11-14T22:00:{second:02}Z").into();
                status["completionTime"] = "2023-11-14T22:01:00Z".into();
            }
            let job =
                json!({"metadata": {"name": name, "ownerReferences": owners}, "spec": {}, "status": status});
            world.create(Kind::Job, job);
        };
        let uid = &cron["metadata"]["uid"];
        for (name, end, started) in jobs {
            create(name, end, *started, owner("CronJob", uid));
        }
        // CJ-T09 and CJ-T10: a Job of another owner with this name, and one of a former CronJob.
        create("of-workflow", "Complete", Some(0), owner("Workflow", &json!("workflow")));
        create("of-former", "Complete", Some(0), owner("CronJob", &json!("former")));
        world.settle();
        let deleted: Vec<&str> = jobs
            .iter()
            .map(|(name, ..)| *name)
            .filter(|name| !world.names(Kind::Job).contains(name))
            .collect();
        assert_eq!(deleted, expected, "{id}");
        assert_eq!(world.names(Kind::Job).len(), jobs.len() + 2 - expected.len(), "{id}");
        if id == "CJ-T03" {
            assert_eq!(status(&world)["lastSuccessfulTime"], "2023-11-14T22:01:00Z", "{id}");
        }
    }
}

/// CJ-T01: the history is cut even while the next Job cannot be created.
#[test]
fn the_history_is_cut_while_jobs_cannot_be_created() {
    let mut world = world(&json!({"successfulJobsHistoryLimit": 2}), &json!({}));
    world.pass(121);
    assert_eq!(world.names(Kind::Job), [name(1), name(2)]);
    world.refused.push(Kind::Job);
    world.change(Kind::CronJob, "tick", |cron| cron["spec"]["successfulJobsHistoryLimit"] = 1.into());
    world.pass(61);
    assert_eq!(world.names(Kind::Job), [name(2)]);
}
