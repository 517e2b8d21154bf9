//! What kube-apiserver's default admission plugins add to objects that are created: tolerations and priority of
//! pods, protection of volumes in use, the first taint of nodes.

use serde_json::{Value, json};

use crate::kinds::access::{Members, child, is_unset};
use crate::resource::Target;

/// How long a pod stays on a node that does not answer, unless it says otherwise.
const TOLERATION_SECONDS: i64 = 300;

/// The priority classes that every cluster has.
const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// Adds what the default plugins add.
pub(super) fn on_create(target: Target<'_>, object: &mut Value) {
    let Some(members) = object.as_object_mut() else { return };
    match (target.group, target.resource) {
        ("", "pods") => {
            if let Some(spec) = child(members, "spec") {
                tolerations(spec);
                priority(spec);
            }
        }
        ("", "persistentvolumes") => protect(members, "kubernetes.io/pv-protection"),
        ("", "persistentvolumeclaims") => protect(members, "kubernetes.io/pvc-protection"),
        ("", "nodes") => taint(members),
        ("storage.k8s.io", "volumeattributesclasses") => protect(members, "kubernetes.io/vac-protection"),
        _ => {}
    }
}

/// Tolerations come back when an update drops them.
pub(super) fn on_pod_update(object: &mut Value) {
    if let Some(spec) = object.as_object_mut().and_then(|members| child(members, "spec")) {
        tolerations(spec);
    }
}

fn tolerations(spec: &mut Members) {
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list.iter().any(|toleration| {
            let text = |key: &str| toleration.get(key).and_then(Value::as_str).unwrap_or_default();
            (text("key") == key || text("key").is_empty()) && matches!(text("effect"), "NoExecute" | "")
        });
        if !tolerated {
            list.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS,
            }));
        }
    }
}

/// Pods without a class have priority 0; the priority of a class of the cluster's own is looked up by the caller.
fn priority(spec: &mut Members) {
    let value = if is_unset(spec, "priorityClassName") {
        Some(0)
    } else {
        let class = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default();
        SYSTEM_PRIORITIES.iter().find(|(name, _)| *name == class).map(|(_, value)| *value)
    };
    if let Some(value) = value {
        spec.entry("priority").or_insert_with(|| value.into());
        spec.entry("preemptionPolicy").or_insert_with(|| "PreemptLowerPriority".into());
    }
}

fn protect(members: &mut Members, finalizer: &str) {
    let Some(metadata) = child(members, "metadata") else { return };
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|have| have == finalizer)
    {
        finalizers.push(finalizer.into());
    }
}

fn taint(members: &mut Members) {
    let Some(spec) = child(members, "spec") else { return };
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    if let Some(taints) = taints.as_array_mut() {
        let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let has = |key: &str| taints.iter().any(|taint| taint.get(key) == not_ready.get(key));
        if !(has("key") && has("effect")) {
            taints.push(not_ready);
        }
    }
}
