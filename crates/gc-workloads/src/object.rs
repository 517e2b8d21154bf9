//! Observed objects: their JSON, and the metadata that every controller needs.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::kinds::{Key, Kind};
use crate::time::{self, Milliseconds};

/// An object as the API server has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Key of the object.
    pub key: Key,
    /// UID of the object.
    pub uid: Arc<str>,
    /// `resourceVersion` of the object; 0 if the server's is not a number.
    pub version: u64,
    /// True if it is being deleted.
    pub deleting: bool,
    /// Time at which this process first observed the deletion, whose timestamp has whole seconds only.
    pub deletion_observed: Option<Milliseconds>,
    /// Creation time, in milliseconds since 1970.
    pub created: i64,
    /// UID of the owner that manages it.
    pub controller: Option<Arc<str>>,
    /// True for a pod whose containers have all ended for good.
    pub finished: bool,
    /// True for a pod whose condition `Ready` is true.
    pub ready: bool,
    /// Time since which it is ready, if the condition has one.
    pub ready_since: Option<Milliseconds>,
    /// The object without the parts that no controller reads.
    pub value: Value,
}

/// Fields of a pod's containers that no controller reads and that take much memory.
const UNREAD: [&str; 9] = [
    "args",
    "command",
    "env",
    "envFrom",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "volumeMounts",
];
/// Fields of a pod's volumes that are read.
const VOLUME_FIELDS: [&str; 3] = ["name", "persistentVolumeClaim", "ephemeral"];

fn drop_unread(pod: &mut Value) {
    let mut keep = |list: &str, is_kept: &dyn Fn(&str) -> bool| {
        let parts = pod.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for fields in parts.filter_map(Value::as_object_mut) {
            fields.retain(|name, _| is_kept(name));
        }
    };
    for list in ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"] {
        keep(list, &|name| !UNREAD.contains(&name));
    }
    keep("/spec/volumes", &|name| VOLUME_FIELDS.contains(&name));
}

impl Object {
    /// Reads an object; `None` if it has no name or no UID. Drops its `managedFields`: no controller reads them, and an update
    /// without them leaves them as they are. Also drops much of a pod's specification, because only the status of pods is updated.
    #[must_use]
    pub fn new(kind: Kind, mut value: Value) -> Option<Self> {
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let (name, uid) = (text(&value["metadata"]["name"]), text(&value["metadata"]["uid"]));
        if name.is_empty() || uid.is_empty() {
            return None;
        }
        let is_pod = kind == Kind::Pod;
        if is_pod {
            drop_unread(&mut value);
        }
        let (metadata, status) = (&value["metadata"], &value["status"]);
        let ready = condition(status, "Ready").filter(|ready| is_pod && ready["status"] == "True");
        Some(Self {
            key: kind.key(text(&metadata["namespace"]), text(&metadata["name"])),
            uid: text(&metadata["uid"]).into(),
            version: text(&metadata["resourceVersion"]).parse().unwrap_or_default(),
            deleting: !metadata["deletionTimestamp"].is_null(),
            deletion_observed: None,
            created: time::parse(&metadata["creationTimestamp"]).unwrap_or_default(),
            controller: controller_of(&value).and_then(|owner| owner["uid"].as_str()).map(Into::into),
            finished: is_pod && matches!(text(&status["phase"]), "Succeeded" | "Failed"),
            ready: ready.is_some(),
            ready_since: ready.and_then(|ready| time::parse(&ready["lastTransitionTime"])),
            value,
        })
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// Returns its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.key.namespace
    }

    /// Returns its labels, or null.
    #[must_use]
    pub fn labels(&self) -> &Value {
        &self.value["metadata"]["labels"]
    }

    /// Returns the value of an annotation.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.value["metadata"]["annotations"][name].as_str()
    }

    /// Returns the value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels()[name].as_str()
    }

    /// Returns `metadata.generation`.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.value["metadata"]["generation"].as_i64().unwrap_or_default()
    }

    /// Returns its specification.
    #[must_use]
    pub fn spec(&self) -> &Value {
        &self.value["spec"]
    }

    /// Returns its status.
    #[must_use]
    pub fn status(&self) -> &Value {
        &self.value["status"]
    }

    /// Reports whether it has a finalizer.
    #[must_use]
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.value["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| all.iter().any(|present| present == finalizer))
    }

    /// Returns a copy of the JSON with another status.
    #[must_use]
    pub fn with_status(&self, status: Value) -> Value {
        let mut value = self.value.clone();
        value["status"] = status;
        value
    }

    /// Returns the owner reference with which this object manages the objects that it creates.
    #[must_use]
    pub fn controller_reference(&self) -> Value {
        json!({
            "apiVersion": self.key.kind.api_version(), "kind": self.key.kind.name(), "name": self.name(),
            "uid": &*self.uid, "controller": true, "blockOwnerDeletion": true,
        })
    }

    /// Returns the reference that Events use.
    #[must_use]
    pub fn reference(&self) -> Value {
        let mut reference = json!({
            "apiVersion": self.key.kind.api_version(), "kind": self.key.kind.name(), "name": self.name(),
            "uid": &*self.uid, "resourceVersion": self.version.to_string(),
        });
        if !self.namespace().is_empty() {
            reference["namespace"] = self.namespace().into();
        }
        reference
    }
}

/// Returns the owner reference that has `controller: true`.
#[must_use]
pub fn controller_of(value: &Value) -> Option<&Value> {
    value["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

/// Returns an integer at a path of fields, or a default.
#[must_use]
pub fn int(value: &Value, default: i64) -> i64 {
    value.as_i64().unwrap_or(default)
}

/// Returns a text, or the empty one.
#[must_use]
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the entries of an array; none if it is missing.
pub fn items(value: &Value) -> impl DoubleEndedIterator<Item = &Value> + Clone {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

/// Returns a map; empty if the value is absent or null.
#[must_use]
pub fn map(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Removes fields that Go's encoder omits: zero numbers, empty texts, empty lists and nulls.
#[must_use]
pub fn without_zeros(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| match field {
            Value::Null => false,
            Value::Number(number) => number.as_i64() != Some(0),
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            _ => true,
        });
    }
    value
}

/// Returns the condition of a type.
#[must_use]
pub fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    items(&status["conditions"]).find(|condition| condition["type"] == kind)
}

/// Reports whether a condition of a type is true.
#[must_use]
pub fn has_condition(status: &Value, kind: &str) -> bool {
    condition(status, kind).is_some_and(|condition| condition["status"] == "True")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Returns a pod as the server has it, and as it is stored.
    fn pod(status: &Value) -> (Value, Value) {
        let metadata = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2023-11-14T22:13:20Z"});
        let mut sent = json!({"metadata": metadata, "status": status, "spec": {
        "nodeName": "node",
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}],
            "command": ["sh"], "args": ["-c"], "env": [{"name": "A", "value": "1"}], "envFrom": [],
            "lifecycle": {}, "livenessProbe": {}, "readinessProbe": {}, "startupProbe": {},
            "volumeMounts": [{"name": "token", "mountPath": "/token"}]}],
        "volumes": [
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}},
        ]}});
        sent["metadata"]["managedFields"] = json!([{"manager": "kubelet"}]);
        let kept = json!({"metadata": metadata, "status": status, "spec": {
        "nodeName": "node",
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}],
        "volumes": [
            {"name": "token"},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}},
        ]}});
        (sent, kept)
    }

    #[test]
    fn a_pod_is_kept_without_what_nobody_reads_and_with_what_is_often_asked() {
        let condition = |status: &str| json!([{"type": "Ready", "status": status, "lastTransitionTime": "2023-11-14T22:13:21Z"}]);
        let created = 1_700_000_000_000;
        for (status, finished, ready, ready_since) in [
            (json!({}), false, false, None),
            (json!({"phase": "Running", "conditions": condition("True")}), false, true, Some(created + 1000)),
            (json!({"conditions": [{"type": "Ready", "status": "True"}]}), false, true, None),
            (json!({"phase": "Running", "conditions": condition("False")}), false, false, None),
            (json!({"phase": "Failed"}), true, false, None),
            (json!({"phase": "Succeeded"}), true, false, None),
        ] {
            let (sent, value) = pod(&status);
            let expected = Object {
                key: Kind::Pod.key("n", "a"),
                uid: "u".into(),
                version: 7,
                deleting: false,
                deletion_observed: None,
                created,
                controller: None,
                finished,
                ready,
                ready_since,
                value,
            };
            assert_eq!(Object::new(Kind::Pod, sent), Some(expected), "{status}");
        }
    }

    #[test]
    fn other_kinds_are_kept_whole_but_for_their_managers() {
        let value = json!({"metadata": {"name": "a", "uid": "u"}, "status": {"phase": "Failed"},
            "spec": {"containers": [{"env": []}], "volumes": [{"name": "a", "emptyDir": {}}]}});
        let mut sent = value.clone();
        sent["metadata"]["managedFields"] = json!([]);
        let known = Object::new(Kind::Job, sent).unwrap();
        assert_eq!((known.value, known.finished), (value, false));
    }
}
