#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use super::*;
use crate::testing::World;

fn job(name: &str, spec: &Value, annotations: &Value) -> Value {
    let mut whole = json!({
        "parallelism": 1, "completions": 1, "backoffLimit": 6,
        "selector": {"matchLabels": {"job-name": name}},
        "template": {"metadata": {"labels": {"job-name": name}, "annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
    });
    let fields = whole.as_object_mut().unwrap();
    fields.extend(spec.as_object().unwrap().clone());
    fields.retain(|_, value| !value.is_null());
    json!({"metadata": {"name": name}, "spec": whole})
}

fn world(spec: &Value, annotations: &Value) -> World {
    let mut world = World::whole();
    world.create(Kind::Job, job("sum", spec, annotations));
    world.settle();
    world
}

fn status(world: &World) -> Value {
    let mut status = world.get(Kind::Job, "sum")["status"].clone();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        *condition = format!(
            "{} {} {}",
            text(&condition["type"]),
            text(&condition["status"]),
            text(&condition["reason"])
        )
        .into();
    }
    status
}

#[test]
fn a_job_completes_and_its_pods_are_counted_once() {
    let world = world(&json!({"parallelism": 2, "completions": 3}), &json!({}));
    let at = "2023-11-14T22:13:20Z";
    assert_eq!(
        status(&world),
        json!({"startTime": at, "completionTime": at, "succeeded": 3, "ready": 0, "terminating": 0,
            "uncountedTerminatedPods": {},
            "conditions": ["SuccessCriteriaMet True CompletionsReached", "Complete True CompletionsReached"]})
    );
    assert!(world.of_kind(Kind::Pod).iter().all(|pod| pod["metadata"]["finalizers"] == json!([])));
    let events = world.events("sum");
    assert_eq!(events.len(), 4, "{events:?}");
    assert_eq!(events[3], "Completed Job completed");
}

#[test]
fn failures_are_retried_with_pauses_up_to_the_limit() {
    let mut world = world(&json!({"backoffLimit": 2}), &json!({"kubegc.io/fails": "1"}));
    assert_eq!(status(&world)["failed"], 1);
    world.pass(9);
    assert_eq!(status(&world)["failed"], 1);
    world.pass(1);
    assert_eq!(status(&world)["failed"], 2);
    world.pass(20);
    assert_eq!(status(&world)["failed"], 3);
    let expected = json!(["FailureTarget True BackoffLimitExceeded", "Failed True BackoffLimitExceeded"]);
    assert_eq!(status(&world)["conditions"], expected);
    assert_eq!(
        world.events("sum").last().unwrap(),
        "BackoffLimitExceeded Job has reached the specified backoff limit"
    );
}

#[test]
fn indexes_are_completed_one_each() {
    let world = world(&json!({"completionMode": "Indexed", "parallelism": 2, "completions": 3}), &json!({}));
    let status = status(&world);
    assert_eq!((&status["completedIndexes"], &status["succeeded"]), (&json!("0-2"), &json!(3)));
    let pods = world.of_kind(Kind::Pod);
    let mut hosts: Vec<_> = pods.iter().map(|pod| text(&pod["spec"]["hostname"])).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["sum-0", "sum-1", "sum-2"]);
    assert_eq!(pods[0]["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
}

#[test]
fn an_index_fails_by_itself_where_it_has_a_limit_of_its_own() {
    let spec = json!({"completionMode": "Indexed", "parallelism": 2, "completions": 2, "backoffLimitPerIndex": 1,
        "backoffLimit": i32::MAX});
    let mut world = world(&spec, &json!({"kubegc.io/fails": "1"}));
    assert_eq!(status(&world)["failedIndexes"], "");
    world.pass(30);
    let status = status(&world);
    assert_eq!((&status["failedIndexes"], &status["failed"]), (&json!("0,1"), &json!(4)));
    assert_eq!(
        status["conditions"],
        json!(["FailureTarget True FailedIndexes", "Failed True FailedIndexes"])
    );
}

#[test]
fn a_policy_fails_the_job_or_ignores_the_pod() {
    let policy = |action: &str| {
        json!({"podFailurePolicy": {"rules": [{"action": action,
            "onExitCodes": {"operator": "In", "values": [42]}}]}})
    };
    let fails = json!({"kubegc.io/fails": "42"});
    let failed = world(&policy("FailJob"), &fails);
    let expected = json!(["FailureTarget True PodFailurePolicy", "Failed True PodFailurePolicy"]);
    assert_eq!(status(&failed)["conditions"], expected);
    let message = &failed.get(Kind::Job, "sum")["status"]["conditions"][1]["message"];
    let pod = failed.names(Kind::Pod)[0];
    let expected = format!(
        "Container c for pod default/{pod} failed with exit code 42 matching FailJob rule at index 0"
    );
    assert_eq!(*message, expected);
    let mut ignoring = World::whole();
    let mut ignored = job("sum", &policy("Ignore"), &json!({}));
    ignored["spec"]["template"]["metadata"]["annotations"] = json!({"kubegc.io/completes-after": "1h"});
    ignoring.create(Kind::Job, ignored);
    ignoring.settle();
    let pod = ignoring.names(Kind::Pod)[0].to_owned();
    ignoring
        .change(Kind::Pod, &pod, |value| value["metadata"]["annotations"] = json!({"kubegc.io/fails": "42"}));
    ignoring.settle();
    assert_eq!((&status(&ignoring)["failed"], ignoring.names(Kind::Pod).len()), (&Value::Null, 1));
    ignoring.pass(10);
    assert_eq!((&status(&ignoring)["failed"], ignoring.names(Kind::Pod).len()), (&Value::Null, 2));
}

#[test]
fn a_success_policy_ends_what_still_runs() {
    let spec = json!({"completionMode": "Indexed", "parallelism": 3, "completions": 3,
        "successPolicy": {"rules": [{"succeededIndexes": "1-2", "succeededCount": 1}]}});
    let mut world = world(&spec, &json!({"kubegc.io/completes-after": "1h"}));
    let pod = world.names(Kind::Pod).into_iter().find(|name| name.starts_with("sum-2")).unwrap().to_owned();
    world.change(Kind::Pod, &pod, |value| value["status"]["phase"] = "Succeeded".into());
    world.settle();
    let expected = json!(["SuccessCriteriaMet True SuccessPolicy", "Complete True SuccessPolicy"]);
    assert_eq!(status(&world)["conditions"], expected);
    assert_eq!((world.names(Kind::Pod), &status(&world)["failed"]), (vec![&*pod], &Value::Null));
}

#[test]
fn a_job_is_suspended_and_resumed() {
    let mut world = world(&json!({"suspend": true}), &json!({"kubegc.io/completes-after": "1h"}));
    assert_eq!((world.names(Kind::Pod).len(), &status(&world)["startTime"]), (0, &Value::Null));
    assert_eq!(status(&world)["conditions"], json!(["Suspended True JobSuspended"]));
    world.change(Kind::Job, "sum", |value| value["spec"]["suspend"] = false.into());
    world.settle();
    assert_eq!(status(&world)["conditions"], json!(["Suspended False JobResumed"]));
    assert_eq!((&status(&world)["active"], &status(&world)["ready"]), (&json!(1), &json!(1)));
    world.change(Kind::Job, "sum", |value| value["spec"]["suspend"] = true.into());
    world.settle();
    assert_eq!((world.names(Kind::Pod).len(), &status(&world)["active"]), (0, &Value::Null));
    // The pod was dismissed, so it did not fail, and the Job does not run.
    assert_eq!((&status(&world)["failed"], &status(&world)["startTime"]), (&Value::Null, &Value::Null));
    // The earlier Event with the same text is counted up.
    let counts: Vec<_> = world
        .of_kind(Kind::Event)
        .iter()
        .map(|event| (event["reason"].clone(), event["count"].clone()))
        .collect();
    assert!(counts.contains(&(json!("Suspended"), json!(2))), "{counts:?}");
}

#[test]
fn a_job_runs_no_longer_than_its_deadline() {
    let mut world = world(&json!({"activeDeadlineSeconds": 30}), &json!({"kubegc.io/completes-after": "1h"}));
    world.pass(29);
    assert_eq!(status(&world)["active"], 1);
    world.pass(1);
    let expected = json!(["FailureTarget True DeadlineExceeded", "Failed True DeadlineExceeded"]);
    assert_eq!(status(&world)["conditions"], expected);
    assert!(world.names(Kind::Pod).is_empty());
}

#[test]
fn pods_of_a_job_that_is_gone_lose_their_finalizer() {
    let mut world = world(&json!({}), &json!({"kubegc.io/completes-after": "1h"}));
    world.delete(&Kind::Job.key("default", "sum"), None);
    world.settle();
    assert_eq!(world.of_kind(Kind::Pod)[0]["metadata"]["finalizers"], json!([]));
}

#[test]
fn pods_beyond_the_parallelism_are_dismissed_and_do_not_fail() {
    let mut world =
        world(&json!({"parallelism": 3, "completions": 3}), &json!({"kubegc.io/completes-after": "1h"}));
    world.log.clear();
    world.change(Kind::Job, "sum", |value| value["spec"]["parallelism"] = 1.into());
    world.settle();
    assert_eq!((world.names(Kind::Pod).len(), &status(&world)["failed"]), (1, &Value::Null));
    let steps: Vec<_> = world.log.iter().filter(|line| line.contains(" pods/")).collect();
    assert!(
        steps[0].starts_with("job-controller dismissed") && steps[2].starts_with("job-controller surplus"),
        "{steps:?}"
    );
}

#[test]
fn during_the_pause_after_a_failure_no_pod_is_shown_as_active() {
    let mut world =
        world(&json!({"parallelism": 2, "completions": 2}), &json!({"kubegc.io/completes-after": "1h"}));
    let pod = world.names(Kind::Pod)[0].to_owned();
    world.change(Kind::Pod, &pod, |value| {
        value["status"]["phase"] = "Failed".into();
        value["status"]["containerStatuses"] =
            json!([{"state": {"terminated": {"exitCode": 1, "finishedAt": "2023-11-14T22:13:20Z"}}}]);
    });
    world.settle();
    let shown = |world: &World| (status(world)["active"].clone(), status(world)["failed"].clone());
    assert_eq!(shown(&world), (Value::Null, json!(1)));
    world.pass(10);
    assert_eq!(shown(&world), (json!(2), json!(1)));
}

#[test]
fn ignored_failures_of_an_index_are_counted_beside_those_that_count_and_lengthen_the_pause() {
    let spec = json!({"completionMode": "Indexed", "parallelism": 1, "completions": 1, "backoffLimitPerIndex": 1,
        "backoffLimit": i32::MAX, "podFailurePolicy": {"rules": [{"action": "Ignore",
            "onExitCodes": {"operator": "In", "values": [42]}}]}});
    let mut world = world(&spec, &json!({"kubegc.io/fails": "42"}));
    let counts = |world: &World| {
        let mut pods = world.of_kind(Kind::Pod);
        pods.sort_by_key(|pod| text(&pod["metadata"]["creationTimestamp"]).to_owned());
        let annotation = |name| {
            let last = pods.last().unwrap();
            last["metadata"]["annotations"][format!("batch.kubernetes.io/job-index-{name}-count")].clone()
        };
        (pods.len(), annotation("failure"), annotation("ignored-failure"))
    };
    assert_eq!(counts(&world), (1, json!("0"), Value::Null));
    world.pass(10);
    assert_eq!(counts(&world), (2, json!("0"), json!("1")));
    world.pass(19);
    assert_eq!(counts(&world), (2, json!("0"), json!("1")));
    world.pass(1);
    assert_eq!(counts(&world), (3, json!("0"), json!("2")));
    assert_eq!(status(&world)["failedIndexes"], "");
}

/// A pod fails when its last container ends, or else when it ceased to be ready or its deletion was requested.
#[test]
fn the_pause_after_a_failure_begins_when_the_pod_failed() {
    let table = [
        (
            json!({"status": {"containerStatuses": [
            {"state": {"terminated": {"finishedAt": "2023-11-14T22:13:21Z"}}},
            {"state": {"terminated": {"finishedAt": "2023-11-14T22:13:25Z"}}}]}}),
            5,
        ),
        (
            json!({"status": {
            "containerStatuses": [{"state": {"terminated": {"finishedAt": "2023-11-14T22:13:21Z"}}},
                {"state": {"running": {}}}],
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2023-11-14T22:13:24Z"}]}}),
            4,
        ),
        (
            json!({"metadata": {"deletionTimestamp": "2023-11-14T22:13:53Z", "deletionGracePeriodSeconds": 30}}),
            3,
        ),
        (json!({}), 0),
    ];
    for (fields, expected) in table {
        let mut pod =
            json!({"metadata": {"name": "a", "uid": "a", "creationTimestamp": "2023-11-14T22:13:20Z"}});
        for part in ["metadata", "status"] {
            for (name, value) in fields[part].as_object().into_iter().flatten() {
                pod[part][name] = value.clone();
            }
        }
        let pod = Object::new(Kind::Pod, pod).unwrap();
        assert_eq!(creation::ended(&pod), crate::testing::START + expected * SECOND, "{fields}");
    }
}
