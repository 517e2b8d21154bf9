//! Questions of controllers about pods, and the creation of pods from templates.

use serde_json::{Map, Value, json};

use crate::object::{Object, int, items, text};
use crate::time::{Milliseconds, SECOND};

/// Name of this crate's scheduler, which handles pods that name no other.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Reports whether a pod waits for the default scheduler.
pub(crate) fn is_unscheduled(pod: &Object) -> bool {
    let spec = pod.spec();
    let ours = spec["schedulerName"].as_str().is_none_or(|name| name == DEFAULT_SCHEDULER);
    ours && node_name(pod).is_empty() && is_active(pod) && items(&spec["schedulingGates"]).next().is_none()
}

/// Reports whether a pod counts as a replica: neither finished nor terminating.
#[must_use]
pub fn is_active(pod: &Object) -> bool {
    !pod.deleting && !pod.finished
}

/// Reports whether a pod is terminating while its containers still run.
#[must_use]
pub fn is_terminating(pod: &Object) -> bool {
    pod.deleting && !pod.finished
}

/// Reports whether a pod has been ready for at least this many seconds.
#[must_use]
pub fn is_available(pod: &Object, minimum_ready_seconds: i64, now: Milliseconds) -> bool {
    pod.ready
        && (minimum_ready_seconds == 0
            || pod.ready_since.is_some_and(|since| since + minimum_ready_seconds * SECOND <= now))
}

/// Returns when a ready pod will be available; `None` if it is not ready, or already available.
#[must_use]
pub fn available_at(pod: &Object, minimum_ready_seconds: i64, now: Milliseconds) -> Option<Milliseconds> {
    if !pod.ready || is_available(pod, minimum_ready_seconds, now) {
        return None;
    }
    Some(pod.ready_since? + minimum_ready_seconds * SECOND)
}

/// Returns the node it is bound to; empty if none.
#[must_use]
pub fn node_name(pod: &Object) -> &str {
    text(&pod.spec()["nodeName"])
}

/// Returns the highest restart count of its containers.
#[must_use]
pub fn restarts(pod: &Object) -> i64 {
    let all = crate::object::items(&pod.status()["containerStatuses"]);
    all.map(|container| int(&container["restartCount"], 0)).max().unwrap_or_default()
}

/// Maximum length of the prefix of a generated name: a pod's name has at most 253 characters.
const LONGEST_PREFIX: usize = 252;

/// Returns a pod that an owner creates from a template. The server generates its name.
#[must_use]
pub fn from_template(template: &Value, owner: &Object) -> Value {
    let metadata = &template["metadata"];
    let mut made = Map::new();
    for name in ["labels", "annotations", "finalizers"] {
        let part = &metadata[name];
        if part.as_object().is_some_and(|map| !map.is_empty())
            || part.as_array().is_some_and(|all| !all.is_empty())
        {
            made.insert(name.into(), part.clone());
        }
    }
    // Upstream omits the dash if it would make the name too long.
    let name = owner.name();
    let prefix = if name.len() < LONGEST_PREFIX { format!("{name}-") } else { name.to_owned() };
    made.insert("generateName".into(), prefix.into());
    made.insert("ownerReferences".into(), json!([owner.controller_reference()]));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": template["spec"].clone()})
}
