//! Consequences of a node's health: nodes that stop reporting, taints by condition, and the eviction of pods that do
//! not tolerate them.

use serde_json::{Value, json};

use super::is_kept;
use super::scheduler::tolerates;
use crate::kinds::{Key, Kind};
use crate::object::{Object, condition, items, text};
use crate::plan::{Note, Plan, Request, View};
use crate::pods;
use crate::store::Change;
use crate::time::{self, Milliseconds, SECOND};

/// Time without Lease renewal or report after which a node is unreachable.
const GRACE: Milliseconds = 50 * SECOND;
const LEASES: &str = "kube-node-lease";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Taints that represent conditions of a node: type, status, key.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Conditions that become unknown when a node is silent.
const OF_KUBELET: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

pub(crate) fn wakes_nodes(change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    match object.key.kind {
        Kind::Node => keys.push(object.key.clone()),
        Kind::Lease if object.namespace() == LEASES => keys.push(Kind::Node.key("", object.name())),
        _ => {}
    }
}

/// Plans health and taints of a node.
pub(crate) fn reconcile_node(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(node) = view.store.get(key).filter(|node| !node.deleting) else { return plan };
    let silent_at = last_heard(view, node) + GRACE;
    let mut status = node.status().clone();
    // The Lease of a node that this process simulates can only be late because the clock was set ahead.
    let is_kept_here = view.settings.keeps_nodes && is_kept(node);
    if silent_at > view.now {
        plan.again_at(silent_at);
    } else if !is_kept_here && fall_silent(view, &mut status) {
        let was_ready = condition(node.status(), "Ready").is_some_and(|ready| ready["status"] == "True");
        let note = was_ready.then(|| {
            let message = format!("Node {} status is now: NodeNotReady", node.name());
            Note::normal(node, "NodeNotReady", message)
        });
        if was_ready {
            // The pods come first: if this fails, the node is still ready and everything is retried.
            plan.together(pods_not_ready(view, node));
        }
        let request = Request::update_status(key, node.with_status(status.clone()), "silent");
        plan.then(request.noting(note, None));
    }
    let taints = wanted_taints(view, node, &status);
    let known: Vec<Value> = items(&node.spec()["taints"]).cloned().collect();
    if taints != known {
        let mut patch = json!({"metadata": {"uid": &*node.uid}, "spec": {"taints": taints}});
        if plan.steps.is_empty() {
            patch["metadata"]["resourceVersion"] = node.version.to_string().into();
        }
        plan.then(Request::patch(key, patch, "taints"));
    }
    plan
}

/// Marks the pods of a silent node as not ready, because nothing is known about them.
fn pods_not_ready(view: &View<'_>, node: &Object) -> Vec<Request> {
    let ready = view.store.pods_on(node.name()).filter(|pod| pod.ready);
    let requests = ready.map(|pod| {
        let mut status = pod.status().clone();
        let conditions = status["conditions"].as_array_mut().into_iter().flatten();
        for condition in conditions.filter(|condition| condition["type"] == "Ready") {
            condition["status"] = "False".into();
            condition["lastTransitionTime"] = time::format(view.now);
        }
        let note = Note::warning(pod, "NodeNotReady", "Node is not ready");
        Request::update_status(&pod.key, pod.with_status(status), "silent").noting(note, None)
    });
    requests.collect()
}

fn last_heard(view: &View<'_>, node: &Object) -> Milliseconds {
    let lease = view.store.find(Kind::Lease, LEASES, node.name());
    let renewed = lease.and_then(|lease| time::parse(&lease.spec()["renewTime"]));
    let ready = condition(node.status(), "Ready");
    let reported = ready.and_then(|ready| time::parse(&ready["lastHeartbeatTime"]));
    renewed.max(reported).unwrap_or(node.created).max(node.created)
}

/// Sets the conditions of a silent node to unknown. Returns whether that changed anything.
fn fall_silent(view: &View<'_>, status: &mut Value) -> bool {
    let before = status.clone();
    let mut conditions: Vec<Value> = items(&status["conditions"]).cloned().collect();
    for kind in OF_KUBELET {
        let now = time::format(view.now);
        match conditions.iter_mut().find(|condition| condition["type"] == kind) {
            Some(known) if known["status"] != "Unknown" => {
                known["status"] = "Unknown".into();
                known["reason"] = "NodeStatusUnknown".into();
                known["message"] = "Kubelet stopped posting node status.".into();
                known["lastTransitionTime"] = now;
            }
            Some(_) => {}
            None => conditions.push(json!({
                "type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            })),
        }
    }
    status["conditions"] = conditions.into();
    *status != before
}

fn wanted_taints(view: &View<'_>, node: &Object, status: &Value) -> Vec<Value> {
    let managed = |taint: &Value| {
        let (key, effect) = (text(&taint["key"]), text(&taint["effect"]));
        let by_condition = BY_CONDITION.iter().any(|(_, _, known)| *known == key) || key == UNSCHEDULABLE;
        (effect == "NoSchedule" && by_condition)
            || (effect == "NoExecute" && [NOT_READY, UNREACHABLE].contains(&key))
    };
    let known: Vec<&Value> = items(&node.spec()["taints"]).collect();
    let mut wanted = Vec::new();
    for (kind, value, key) in BY_CONDITION {
        if condition(status, kind).is_some_and(|condition| condition["status"] == value) {
            wanted.push((key, "NoSchedule"));
            if kind == "Ready" {
                wanted.push((key, "NoExecute"));
            }
        }
    }
    if node.spec()["unschedulable"] == true {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let is = |taint: &Value, (key, effect): (&str, &str)| taint["key"] == key && taint["effect"] == effect;
    let mut taints: Vec<Value> = known
        .iter()
        .filter(|taint| !managed(taint) || wanted.iter().any(|wanted| is(taint, *wanted)))
        .map(|taint| (*taint).clone())
        .collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| is(taint, (key, effect))) {
            taints.push(json!({"key": key, "effect": effect, "timeAdded": time::format(view.now)}));
        }
    }
    taints
}

/// Reconciles a pod when it changes, and all pods of a node when its taints change.
pub(crate) fn wakes_pods(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.after.as_ref() else { return };
    match object.key.kind {
        Kind::Pod if !pods::node_name(object).is_empty() && change.differs(Object::spec) => {
            keys.push(object.key.clone());
        }
        Kind::Node if change.differs(|node| &node.spec()["taints"]) => {
            keys.extend(view.store.pods_on(object.name()).map(|pod| pod.key.clone()));
        }
        _ => {}
    }
}

/// Deletes a pod from a node whose taints it does not tolerate, or no longer does.
pub(crate) fn evict(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(pod) = view.store.get(key).filter(|pod| !pod.deleting) else { return plan };
    let Some(node) = view.store.find(Kind::Node, "", pods::node_name(pod)) else { return plan };
    let taints: Vec<&Value> =
        items(&node.spec()["taints"]).filter(|taint| taint["effect"] == "NoExecute").collect();
    let Some(at) = leaves_at(view, pod, &taints) else { return plan };
    if at > view.now {
        plan.again_at(at);
        return plan;
    }
    let mut status = pod.status().clone();
    let mut conditions: Vec<Value> =
        items(&status["conditions"]).filter(|known| known["type"] != "DisruptionTarget").cloned().collect();
    conditions.push(json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": time::format(view.now), "observedGeneration": pod.generation(),
    }));
    status["conditions"] = conditions.into();
    plan.then(Request::update_status(key, pod.with_status(status), "taint"));
    let message = format!("Marking for deletion Pod {}/{}", key.namespace, key.name);
    plan.then(Request::delete(pod, "taint").noting(Note::normal(pod, "TaintManagerEviction", message), None));
    plan
}

/// Returns when a pod has to leave; `None` if it may stay.
fn leaves_at(view: &View<'_>, pod: &Object, taints: &[&Value]) -> Option<Milliseconds> {
    let mut earliest = None;
    for taint in taints {
        let added = time::parse(&taint["timeAdded"]).unwrap_or(view.now);
        let tolerations = items(&pod.spec()["tolerations"]).filter(|toleration| tolerates(toleration, taint));
        let limits: Vec<Option<i64>> =
            tolerations.map(|toleration| toleration["tolerationSeconds"].as_i64()).collect();
        let at = match limits.iter().flatten().min() {
            _ if limits.is_empty() => view.now,
            Some(seconds) => added + (*seconds).max(0) * SECOND,
            None => continue,
        };
        earliest = Some(earliest.map_or(at, |earlier: i64| earlier.min(at)));
    }
    earliest
}
