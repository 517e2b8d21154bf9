#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::testing::{World, owner};

fn budget(spec: &Value) -> Value {
    let mut whole = json!({"selector": {"matchLabels": {"app": "web"}}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"metadata": {"name": "web"}, "spec": whole})
}

/// Creates four pods of a Deployment, and a budget for them.
fn world(spec: &Value) -> World {
    let mut world = World::whole();
    world.create(
        Kind::Deployment,
        owner("web", &json!({"replicas": 4, "strategy": {"type": "RollingUpdate"}})),
    );
    world.create(Kind::PodDisruptionBudget, budget(spec));
    world.settle();
    world
}

/// Returns allowed disruptions, healthy pods, desired healthy pods, and expected pods.
fn counts(world: &World) -> [Option<i64>; 4] {
    let status = &world.get(Kind::PodDisruptionBudget, "web")["status"];
    ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"]
        .map(|name| status[name].as_i64())
}

#[test]
fn disruptions_are_what_is_left_above_the_minimum() {
    for (spec, expected) in [
        (json!({"minAvailable": 3}), [1, 4, 3, 4]),
        (json!({"minAvailable": "50%"}), [2, 4, 2, 4]),
        (json!({"maxUnavailable": 1}), [1, 4, 3, 4]),
        (json!({"maxUnavailable": "30%"}), [2, 4, 2, 4]),
        (json!({"minAvailable": 9}), [0, 4, 9, 4]),
        (json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "other"}}}), [0, 0, 1, 0]),
    ] {
        assert_eq!(counts(&world(&spec)), expected.map(Some), "{spec}");
    }
}

#[test]
fn a_budget_follows_its_pods_and_their_owner() {
    let mut world = world(&json!({"maxUnavailable": 1}));
    let pod = world.names(Kind::Pod)[0].to_owned();
    world.change(Kind::Pod, &pod, |pod| {
        let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
        for one in
            conditions.iter_mut().filter(|one| one["type"] == "Ready" || one["type"] == "ContainersReady")
        {
            one["status"] = "False".into();
        }
    });
    world.settle();
    assert_eq!(counts(&world), [0, 3, 3, 4].map(Some));
    let condition = &world.get(Kind::PodDisruptionBudget, "web")["status"]["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&"False".into(), &"InsufficientPods".into()));
    world.change(Kind::Deployment, "web", |value| value["spec"]["replicas"] = 2.into());
    world.settle();
    assert_eq!(counts(&world), [1, 2, 1, 2].map(Some));
}

#[test]
fn an_evicted_pod_counts_as_disrupted_until_it_goes_or_two_minutes_pass() {
    let mut world = world(&json!({"minAvailable": 1}));
    let pod = world.names(Kind::Pod)[0].to_owned();
    let now = crate::time::format(world.now);
    world.change(Kind::PodDisruptionBudget, "web", |budget| {
        budget["status"]["disruptedPods"] = json!({&*pod: now});
    });
    world.settle();
    assert_eq!(counts(&world), [2, 3, 1, 4].map(Some));
    world.pass(130);
    assert_eq!(counts(&world), [3, 4, 1, 4].map(Some));
    assert_eq!(world.get(Kind::PodDisruptionBudget, "web")["status"]["disruptedPods"], Value::Null);
    assert_eq!(
        world.events(&pod).last().unwrap(),
        "NotDeleted Pod was expected by PDB default/web to be deleted but it wasn't"
    );
}

#[test]
fn nothing_may_be_disrupted_while_the_pods_cannot_be_counted() {
    let mut world = world(&json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": "job"}}}));
    let pod = json!({"metadata": {"name": "one", "labels": {"app": "job"}, "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "sum", "uid": "u", "controller": true}]},
        "spec": {"containers": [{"name": "c"}]}});
    world.create(Kind::Pod, pod);
    world.settle();
    let condition = &world.get(Kind::PodDisruptionBudget, "web")["status"]["conditions"][0];
    assert_eq!(condition["reason"], "SyncFailed");
    assert_eq!(condition["message"], "jobs.batch does not implement the scale subresource");
    assert_eq!(counts(&world)[0], Some(0));
}

#[test]
fn a_selector_is_shown_as_upstream_shows_it() {
    let selector = json!({"matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["x", "y"]}, {"key": "z", "operator": "Exists"}]});
    let expected = "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{\
                    LabelSelectorRequirement{Key:tier,Operator:In,Values:[x y],},\
                    LabelSelectorRequirement{Key:z,Operator:Exists,Values:[],},},}";
    assert_eq!(super::selector_text(&selector), expected);
}
