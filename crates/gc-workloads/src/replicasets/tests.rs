#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use super::*;
use crate::plan::{Action, Failure, FailureReason, Settings};
use crate::testing::{START, World, owner, store, view};
use crate::workloads::Workload;

fn set(replicas: i64, status: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default", "uid": "s", "resourceVersion": "7", "generation": 2},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}},
        "status": status,
    })
}

fn reference() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "s", "controller": true,
        "blockOwnerDeletion": true})
}

/// Returns a pod of the set, ready since the start or not.
fn pod(name: &str, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "8",
            "labels": {"app": "web"}, "ownerReferences": [reference()]},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": status, "lastTransitionTime": "2023-11-14T22:13:20Z"}]},
    })
}

fn status(counts: &[i64; 5]) -> Value {
    let [replicas, labelled, ready, available, generation] = counts;
    let mut status =
        crate::object::without_zeros(json!({"fullyLabeledReplicas": labelled, "readyReplicas": ready,
        "availableReplicas": available, "observedGeneration": generation}));
    status["replicas"] = (*replicas).into();
    status["terminatingReplicas"] = 0.into();
    status
}

fn plan_of(objects: &[(Kind, Value)], failure: Option<&Failure>) -> Plan {
    let (store, settings) = (store(objects), Settings::default());
    reconcile(&View { failure, ..view(&store, &settings) }, &Kind::ReplicaSet.key("default", "web"))
}

fn owner_of(objects: &[(Kind, Value)]) -> Object {
    Object::new(Kind::ReplicaSet, objects[0].1.clone()).unwrap()
}

#[test]
fn missing_pods_are_made_in_growing_batches_and_shown_afterwards() {
    let objects = [(Kind::ReplicaSet, set(4, &json!({"replicas": 0}))), (Kind::Pod, pod("a", true))];
    let made = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []},
        "metadata": {"generateName": "web-", "labels": {"app": "web"}, "ownerReferences": [reference()]}});
    let one = create_pod(&owner_of(&objects), made);
    let shown = owner_of(&objects).with_status(status(&[1, 1, 1, 1, 2]));
    let key = Kind::ReplicaSet.key("default", "web");
    let steps =
        vec![vec![one.clone()], vec![one.clone(), one], vec![Request::update_status(&key, shown, "status")]];
    assert_eq!(plan_of(&objects, None), Plan { steps, ..Plan::default() });
}

#[test]
fn surplus_pods_go_the_least_useful_first() {
    let mut costly = pod("costly", true);
    costly["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": "5"});
    let mut pending = pod("pending", false);
    pending["status"]["phase"] = "Pending".into();
    let mut unbound = pod("unbound", false);
    unbound["spec"] = json!({});
    let mut restarted = pod("restarted", true);
    restarted["status"]["containerStatuses"] = json!([{"restartCount": 3}]);
    let others = [pod("plain", true), costly, pod("unready", false), pending, unbound, restarted];
    let mut objects = vec![(Kind::ReplicaSet, set(0, &status(&[6, 6, 3, 3, 2])))];
    objects.extend(others.into_iter().map(|pod| (Kind::Pod, pod)));
    for (left, expected) in [
        (5, vec!["unbound"]),
        (3, vec!["unbound", "pending", "unready"]),
        (1, vec!["unbound", "pending", "unready", "restarted", "plain"]),
    ] {
        objects[0].1["spec"]["replicas"] = left.into();
        let plan = plan_of(&objects, None);
        let names: Vec<_> =
            plan.steps[0].iter().map(|request| request.action.key().name.to_string()).collect();
        assert_eq!(names, expected);
    }
}

#[test]
fn orphans_are_adopted_after_a_live_read_and_strangers_released() {
    let mut orphan = pod("orphan", true);
    orphan["metadata"]["ownerReferences"] = json!([]);
    let mut stranger = pod("stranger", true);
    stranger["metadata"]["labels"] = json!({"app": "other"});
    let objects = [(Kind::ReplicaSet, set(2, &json!({}))), (Kind::Pod, orphan), (Kind::Pod, stranger)];
    let patch = |name: &str, reference: Value, why| {
        let patch = json!({"metadata": {"uid": name, "ownerReferences": [reference]}});
        Request::patch(&Kind::Pod.key("default", name), patch, why)
    };
    let steps = vec![
        vec![patch("stranger", json!({"$patch": "delete", "uid": "s"}), "release")],
        vec![Request::confirm(&owner_of(&objects), "adopt")],
        vec![patch("orphan", reference(), "adopt")],
    ];
    assert_eq!(plan_of(&objects, None), Plan { steps, ..Plan::default() });
    // A ReplicaSet that is being deleted leaves both alone.
    let mut deleting = objects.clone();
    deleting[0].1["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z".into();
    let actions: Vec<Action> =
        plan_of(&deleting, None).steps.into_iter().flatten().map(|request| request.action).collect();
    assert!(matches!(actions.as_slice(), [Action::UpdateStatus { .. }]), "{actions:?}");
}

#[test]
fn a_pod_that_cannot_be_created_is_a_condition() {
    let failure = Failure {
        action: FailedAction::Create(Kind::Pod),
        reason: FailureReason::Refused,
        message: "over quota".into(),
    };
    let objects = [(Kind::ReplicaSet, set(2, &json!({"replicas": 0})))];
    let mut shown = status(&[0, 0, 0, 0, 2]);
    shown["conditions"] = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
        "message": "over quota", "lastTransitionTime": "2023-11-14T22:13:20Z"}]);
    let key = Kind::ReplicaSet.key("default", "web");
    let request = Request::update_status(&key, owner_of(&objects).with_status(shown), "status");
    let expected = Plan { steps: vec![vec![request]], still_failing: true, ..Plan::default() };
    assert_eq!(plan_of(&objects, Some(&failure)), expected);
}

#[test]
fn pods_count_as_available_after_min_ready_seconds() {
    let mut objects = [(Kind::ReplicaSet, set(1, &status(&[1, 1, 1, 0, 2]))), (Kind::Pod, pod("a", true))];
    objects[0].1["spec"]["minReadySeconds"] = 30.into();
    assert_eq!(plan_of(&objects, None), Plan { again_at: Some(START + 30_000), ..Plan::default() });
}

#[test]
fn a_refused_pod_is_tried_again_ever_more_slowly() {
    let mut world = World::new(&[Workload::ReplicaSet]);
    world.refused.push(Kind::Pod);
    world.create(Kind::ReplicaSet, crate::testing::owner("web", &json!({"replicas": 2})));
    world.pass(10);
    let failed = world.log.iter().filter(|line| line.ends_with("failed")).count();
    // Immediately, again as the condition is written, and after 10 ms, 20 ms and so on: eleven times in ten seconds.
    assert_eq!(failed, 11, "{:#?}", world.log);
    let condition = &world.get(Kind::ReplicaSet, "web")["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["message"]), (&json!("ReplicaFailure"), &json!("Refused")));
    assert_eq!(world.events("web"), ["FailedCreate Error creating: Refused"]);
    world.refused.clear();
    world.pass(30);
    assert_eq!(world.names(Kind::Pod).len(), 2);
    assert_eq!(world.get(Kind::ReplicaSet, "web")["status"]["conditions"], Value::Null);
}

#[test]
fn an_owner_of_many_pods_is_not_reconciled_after_each_of_their_changes() {
    let mut world = World::new(&[Workload::ReplicaSet]);
    world.create(Kind::ReplicaSet, owner("web", &json!({"replicas": 1000})));
    world.pass(1);
    let pods: Vec<String> = world.names(Kind::Pod).into_iter().map(str::to_owned).collect();
    assert_eq!(pods.len(), 1000);
    let before = world.runtime.counts().reconciles;
    for pod in &pods {
        world.change(Kind::Pod, pod, |pod| {
            pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        });
        world.settle();
    }
    let reconciles = world.runtime.counts().reconciles - before;
    assert!(reconciles <= 2, "{reconciles} at one moment");
    assert!(world.runtime.moving() > 0, "its status has yet to be written");
    world.pass(1);
    assert_eq!(world.get(Kind::ReplicaSet, "web")["status"]["readyReplicas"], 1000);
    assert_eq!(world.runtime.moving(), 0);
}
