#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::testing::World;

/// A CronJob of the Job `tick`; tests begin at 22:13:20.
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

/// The name of the Job of this many minutes after 22:13.
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
    // The process slept for an hour: only the last time is served.
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
