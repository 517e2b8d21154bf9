//! Observed objects: their JSON, and the metadata that every controller asks for.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::kinds::{Key, Kind};
use crate::time;

/// An object as the API server has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Which object.
    pub key: Key,
    /// Its UID.
    pub uid: Arc<str>,
    /// Its resourceVersion; 0 where the server's is not a number.
    pub version: u64,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// When it was created, in milliseconds since 1970.
    pub created: i64,
    /// The UID of the owner that manages it.
    pub controller: Option<Arc<str>>,
    /// The whole object.
    pub value: Value,
}

impl Object {
    /// Reads an object; `None` where it has no name or no UID. Its `managedFields` are dropped: no controller reads them, and
    /// an update without them leaves them as they are.
    #[must_use]
    pub fn new(kind: Kind, mut value: Value) -> Option<Self> {
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let metadata = &value["metadata"];
        let text = |name: &str| metadata[name].as_str().unwrap_or_default();
        let (name, uid) = (text("name"), text("uid"));
        if name.is_empty() || uid.is_empty() {
            return None;
        }
        let controller = controller_of(&value).and_then(|owner| owner["uid"].as_str()).map(Into::into);
        Some(Self {
            key: kind.key(text("namespace"), name),
            uid: uid.into(),
            version: text("resourceVersion").parse().unwrap_or_default(),
            deleting: !metadata["deletionTimestamp"].is_null(),
            created: time::parse(&metadata["creationTimestamp"]).unwrap_or_default(),
            controller,
            value,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.key.namespace
    }

    /// Its labels, or null.
    #[must_use]
    pub fn labels(&self) -> &Value {
        &self.value["metadata"]["labels"]
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.value["metadata"]["annotations"][name].as_str()
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels()[name].as_str()
    }

    /// `metadata.generation`.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.value["metadata"]["generation"].as_i64().unwrap_or_default()
    }

    /// Its specification.
    #[must_use]
    pub fn spec(&self) -> &Value {
        &self.value["spec"]
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> &Value {
        &self.value["status"]
    }

    /// Whether it has a finalizer.
    #[must_use]
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.value["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| all.iter().any(|present| present == finalizer))
    }

    /// A copy of the JSON with another status.
    #[must_use]
    pub fn with_status(&self, status: Value) -> Value {
        let mut value = self.value.clone();
        value["status"] = status;
        value
    }

    /// The owner reference by which this object manages those that it creates.
    #[must_use]
    pub fn controller_reference(&self) -> Value {
        json!({
            "apiVersion": self.key.kind.api_version(), "kind": self.key.kind.name(), "name": self.name(),
            "uid": &*self.uid, "controller": true, "blockOwnerDeletion": true,
        })
    }

    /// How Events refer to it.
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

/// The owner reference that has `controller: true`.
#[must_use]
pub fn controller_of(value: &Value) -> Option<&Value> {
    value["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

/// An integer at a path of fields, or a default.
#[must_use]
pub fn int(value: &Value, default: i64) -> i64 {
    value.as_i64().unwrap_or(default)
}

/// A text, or the empty one.
#[must_use]
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The entries of an array; none if it is missing.
pub fn items(value: &Value) -> impl DoubleEndedIterator<Item = &Value> + Clone {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

/// A map from a value that is absent or null otherwise.
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

/// The condition of a type.
#[must_use]
pub fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    items(&status["conditions"]).find(|condition| condition["type"] == kind)
}

/// Whether a condition of a type is true.
#[must_use]
pub fn has_condition(status: &Value, kind: &str) -> bool {
    condition(status, kind).is_some_and(|condition| condition["status"] == "True")
}
