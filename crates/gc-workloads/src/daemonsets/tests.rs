#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::testing::{World, owner};

fn node(name: &str, labels: &Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels, "annotations": {"kubegc.io/simulated": "true"}},
        "status": {"allocatable": {"pods": "10"}, "conditions": [{"type": "Ready", "status": "True",
            "lastHeartbeatTime": "2023-11-14T22:13:20Z"}]}})
}

fn world(spec: &Value) -> World {
    let mut world = World::whole();
    world.create(Kind::Node, node("a", &json!({"disk": "ssd"})));
    world.create(Kind::Node, node("b", &json!({})));
    let mut whole =
        json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    world.create(Kind::DaemonSet, owner("agent", &whole));
    world.settle();
    world
}

fn nodes(world: &World) -> Vec<&str> {
    let pods = world.of_kind(Kind::Pod);
    let mut nodes: Vec<&str> =
        pods.into_iter().map(|pod| pod["spec"]["nodeName"].as_str().unwrap()).collect();
    nodes.sort_unstable();
    nodes
}

#[test]
fn each_node_has_a_pod_and_new_ones_get_theirs() {
    let mut world = world(&json!({}));
    assert_eq!(nodes(&world), ["a", "b", "kubegc-node-0"]);
    assert_eq!(
        world.get(Kind::DaemonSet, "agent")["status"],
        json!({"observedGeneration": 1, "currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberReady": 3,
            "numberAvailable": 3, "updatedNumberScheduled": 3, "numberMisscheduled": 0})
    );
    world.create(Kind::Node, node("c", &json!({})));
    world.change(Kind::Node, "b", |value| {
        value["spec"]["taints"] = json!([{"key": "k", "effect": "NoExecute"}]);
    });
    world.settle();
    assert_eq!(nodes(&world), ["a", "c", "kubegc-node-0"]);
    let revision = world.of_kind(Kind::ControllerRevision)[0].clone();
    let hash = &revision["metadata"]["labels"]["controller-revision-hash"];
    let template = &world.get(Kind::DaemonSet, "agent")["spec"]["template"];
    assert_eq!(*hash, crate::hash::pod_template_hash(template, None));
    assert_eq!(world.of_kind(Kind::Pod)[0]["metadata"]["labels"]["controller-revision-hash"], *hash);
}

#[test]
fn a_selector_chooses_the_nodes() {
    let template = json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "c"}]}});
    let mut world = world(&json!({ "template": template }));
    assert_eq!(nodes(&world), ["a"]);
    world.change(Kind::Node, "a", |value| value["metadata"]["labels"] = json!({}));
    world.settle();
    assert_eq!(nodes(&world), [""; 0]);
}

#[test]
fn a_new_template_replaces_the_pods_one_by_one() {
    let mut world = world(&json!({}));
    let log = world.log.len();
    world.change(Kind::DaemonSet, "agent", |value| {
        value["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into();
    });
    world.settle();
    let images: Vec<_> = world
        .of_kind(Kind::Pod)
        .into_iter()
        .map(|pod| pod["spec"]["containers"][0]["image"].clone())
        .collect();
    assert_eq!(images, ["web:2", "web:2", "web:2"]);
    let steps: Vec<_> = world.log[log..]
        .iter()
        .filter(|line| {
            line.starts_with("daemonset-controller surplus")
                || line.starts_with("daemonset-controller missing")
        })
        .map(|line| line.split(' ').nth(1).unwrap())
        .collect();
    assert_eq!(steps, ["surplus", "missing", "surplus", "missing", "surplus", "missing"]);
    assert_eq!(world.names(Kind::ControllerRevision).len(), 2);
}

#[test]
fn a_surge_has_the_new_pod_available_before_the_old_one_goes() {
    let surge = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    let mut world = world(&json!({"updateStrategy": surge, "minReadySeconds": 10}));
    world.pass(20);
    world.change(Kind::DaemonSet, "agent", |value| {
        value["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into();
    });
    world.settle();
    assert_eq!(nodes(&world), ["a", "a", "b", "kubegc-node-0"], "one node has both");
    world.pass(10);
    assert_eq!(nodes(&world), ["a", "b", "b", "kubegc-node-0"]);
    world.pass(40);
    assert_eq!(nodes(&world), ["a", "b", "kubegc-node-0"]);
    let images = world.of_kind(Kind::Pod).into_iter().map(|pod| &pod["spec"]["containers"][0]["image"]);
    assert_eq!(images.collect::<Vec<_>>(), ["web:2"; 3]);
}

#[test]
fn a_revision_whose_name_is_taken_gets_another_hash() {
    let mut world = World::whole();
    let set = owner("agent", &json!({"updateStrategy": {"type": "RollingUpdate"}}));
    let hash = crate::hash::pod_template_hash(&set["spec"]["template"], None);
    let taken = json!({"metadata": {"name": format!("agent-{hash}"), "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "other", "uid": "other", "controller": true}]}});
    world.create(Kind::ControllerRevision, taken);
    world.create(Kind::DaemonSet, set);
    world.settle();
    assert_eq!(world.get(Kind::DaemonSet, "agent")["status"]["collisionCount"], 1);
    assert_eq!(world.of_kind(Kind::ControllerRevision).len(), 2);
    assert_eq!(nodes(&world), ["kubegc-node-0"]);
}

#[test]
fn the_oldest_pod_of_a_node_is_shown_while_it_is_replaced() {
    let surge = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    let mut world = world(&json!({"updateStrategy": surge, "minReadySeconds": 10}));
    world.pass(20);
    world.change(Kind::DaemonSet, "agent", |value| {
        value["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into();
    });
    world.settle();
    let shown = |world: &World| {
        let status = world.get(Kind::DaemonSet, "agent")["status"].clone();
        ["numberAvailable", "updatedNumberScheduled"].map(|name| status[name].as_i64())
    };
    assert_eq!(nodes(&world).len(), 4, "one node has both");
    assert_eq!(shown(&world), [Some(3), None]);
    world.pass(60);
    assert_eq!(shown(&world), [Some(3), Some(3)]);
}

#[test]
fn pods_and_revisions_of_a_set_of_the_same_name_are_adopted() {
    let mut world = world(&json!({}));
    let pods: Vec<String> = world.names(Kind::Pod).into_iter().map(str::to_owned).collect();
    let revisions: Vec<String> =
        world.names(Kind::ControllerRevision).into_iter().map(str::to_owned).collect();
    world.delete(&Kind::DaemonSet.key("default", "agent"), None);
    for (kind, names) in [(Kind::Pod, &pods), (Kind::ControllerRevision, &revisions)] {
        for name in names {
            world.change(kind, name, |value| value["metadata"]["ownerReferences"] = json!([]));
        }
    }
    world.settle();
    let strategy =
        json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}});
    world.create(Kind::DaemonSet, owner("agent", &strategy));
    world.settle();
    assert_eq!(world.names(Kind::Pod), pods);
    assert_eq!(world.names(Kind::ControllerRevision), revisions);
    assert_eq!(world.get(Kind::DaemonSet, "agent")["status"]["collisionCount"], Value::Null);
}
