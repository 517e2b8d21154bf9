//! What the namespace controller reads and writes, as documents.

use std::collections::BTreeMap;

use gc_kube::discovery::ServedResource;
use gc_retention::namespaces::{Condition, Remaining};
use gc_types::Timestamp;
use serde_json::{Value, json};

/// As the API writes times.
pub(crate) fn time_text(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_millisecond(time.0).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(crate) fn collection_path(served: &ServedResource, namespace: &str) -> String {
    let (group, version, resource) = (&served.group, &served.version, &served.resource);
    if group.is_empty() {
        format!("/api/{version}/namespaces/{namespace}/{resource}")
    } else {
        format!("/apis/{group}/{version}/namespaces/{namespace}/{resource}")
    }
}

pub(crate) fn delete_options(uid: Option<&str>) -> Value {
    let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    if let Some(uid) = uid {
        options["preconditions"] = json!({ "uid": uid });
    }
    options
}

pub(crate) fn problem(path: &str, code: u16, body: &Value) -> String {
    format!("{path} was answered with {code}: {}", body["message"].as_str().unwrap_or("(no message)"))
}

pub(crate) fn remaining(resource: String, items: &[Value], terminating_seconds: i64) -> Remaining {
    let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
    let mut grace_seconds = 0;
    for item in items {
        let metadata = &item["metadata"];
        for finalizer in metadata["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            *finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
        grace_seconds =
            grace_seconds.max(metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default());
    }
    // Grace periods began with the namespace's deletion at the latest.
    if grace_seconds <= terminating_seconds {
        grace_seconds = 0;
    }
    Remaining { resource, objects: items.len(), finalizers, grace_seconds }
}

pub(crate) fn spec_finalizers(namespace: &Value) -> Vec<String> {
    let list = namespace["spec"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

pub(crate) fn conditions(namespace: &Value) -> Vec<Condition> {
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let list = namespace["status"]["conditions"].as_array();
    list.into_iter()
        .flatten()
        .map(|value| Condition {
            kind: text(value, "type"),
            status: text(value, "status"),
            reason: text(value, "reason"),
            message: text(value, "message"),
            last_transition_time: text(value, "lastTransitionTime"),
        })
        .collect()
}

pub(crate) fn condition_value(condition: &Condition) -> Value {
    json!({
        "type": condition.kind, "status": condition.status, "reason": condition.reason,
        "message": condition.message, "lastTransitionTime": condition.last_transition_time,
    })
}
