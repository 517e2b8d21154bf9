//! A whole object, read defensively: anything missing or of another type reads as absent.

use std::sync::Arc;

use gc_types::Timestamp;
use serde_json::Value;

/// A whole object. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object(Arc<Value>);

/// Author of a part of an object, with the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The field manager.
    pub manager: String,
    /// Time of the last write, if known.
    pub at: Option<Timestamp>,
}

impl Object {
    /// Wraps the JSON of an object.
    #[must_use]
    pub fn new(value: Value) -> Self {
        Self(Arc::new(value))
    }

    /// Returns the object's JSON.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// Returns the string at a JSON pointer; empty if there is none.
    #[must_use]
    pub fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the number at a JSON pointer.
    #[must_use]
    pub fn number(&self, pointer: &str) -> Option<i64> {
        self.0.pointer(pointer).and_then(Value::as_i64)
    }

    /// Returns the time at a JSON pointer.
    #[must_use]
    pub fn time(&self, pointer: &str) -> Option<Timestamp> {
        parse_time(self.text(pointer))
    }

    /// Returns the items of the array at a JSON pointer.
    pub fn items(&self, pointer: &str) -> impl Iterator<Item = &Value> {
        self.0.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
    }

    /// Returns the strings of the array at a JSON pointer.
    pub fn texts(&self, pointer: &str) -> impl Iterator<Item = &str> {
        self.items(pointer).filter_map(Value::as_str)
    }

    /// Returns `metadata.name`
    #[must_use]
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Returns `metadata.namespace`; empty at cluster scope.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// Returns `metadata.uid`
    #[must_use]
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// Reports whether it has a deletionTimestamp.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        !self.text("/metadata/deletionTimestamp").is_empty()
    }

    /// Returns an annotation; empty if it has none of this name.
    #[must_use]
    pub fn annotation(&self, name: &str) -> &str {
        self.0["metadata"]["annotations"][name].as_str().unwrap_or_default()
    }

    /// Returns a label; empty if it has none of this name.
    #[must_use]
    pub fn label(&self, name: &str) -> &str {
        self.0["metadata"]["labels"][name].as_str().unwrap_or_default()
    }

    /// Returns the condition of this type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Value> {
        self.items("/status/conditions").find(|condition| condition["type"] == kind)
    }

    /// Reports whether the condition of this type is `True`.
    #[must_use]
    pub fn is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition["status"] == "True")
    }

    /// Returns the field managers that own a finalizer.
    pub fn finalizer_writers(&self, finalizer: &str) -> impl Iterator<Item = Writer> {
        let field = format!("v:\"{finalizer}\"");
        self.items("/metadata/managedFields")
            .filter(move |entry| entry["fieldsV1"]["f:metadata"]["f:finalizers"].get(&field).is_some())
            .map(writer)
    }

    /// Returns the last author of the object.
    #[must_use]
    pub fn last_writer(&self) -> Option<Writer> {
        self.items("/metadata/managedFields").map(writer).max_by_key(|writer| writer.at)
    }
}

fn writer(entry: &Value) -> Writer {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    Writer { manager: text("manager").to_owned(), at: parse_time(text("time")) }
}

/// Parses a time as the API writes it.
#[must_use]
pub fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(|time| Timestamp(time.as_millisecond()))
}
