//! Fields unknown to a schema: naming and dropping them, together with everything else that decoding drops.

use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::{Empties, Node, Schema, builtin, definition_name, definition_named, normalize};

/// Fields of an embedded resource that its own schema does not specify.
const RESOURCE_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Returns the schema of the options of a DELETE.
#[must_use]
pub fn delete_options() -> &'static Arc<Schema> {
    static SCHEMA: OnceLock<Arc<Schema>> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        definition_named(&definition_name("meta.k8s.io", "v1", "DeleteOptions")).unwrap_or_default()
    })
}

/// Returns the schema of `metadata`.
#[must_use]
pub fn object_meta() -> &'static Arc<Schema> {
    static SCHEMA: OnceLock<Arc<Schema>> = OnceLock::new();
    SCHEMA.get_or_init(|| match builtin("", "v1", "ConfigMap").as_ref().map(|schema| &schema.node) {
        Some(Node::Object(object)) => object
            .properties
            .get("metadata")
            .map(|metadata| metadata.schema.shared().clone())
            .unwrap_or_default(),
        _ => Arc::default(),
    })
}

/// Maximum number of unknown and duplicate fields to report; upstream's bound.
pub(super) const MAX_PROBLEMS: usize = 100;

/// Returns the fields unknown to the schema, sorted, in the wording of kube-apiserver: `unknown field "spec.ports[0].colour"`.
#[must_use]
pub fn unknown_fields(schema: &Schema, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut path = String::new();
    collect_unknown(schema, value, &mut path, &mut found);
    found.sort();
    found
}

fn collect_unknown(schema: &Schema, value: &Value, path: &mut String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let length = path.len();
                if length > 0 {
                    path.push('.');
                }
                path.push_str(name);
                match known(schema, name) {
                    KnownFields::As(schema) => collect_unknown(schema, value, path, found),
                    KnownFields::Metadata => collect_unknown(object_meta(), value, path, found),
                    KnownFields::Not if found.len() < MAX_PROBLEMS => {
                        found.push(format!("unknown field \"{path}\""));
                    }
                    KnownFields::Anything | KnownFields::Not => {}
                }
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            let Some(schema) = items_of(schema) else { return };
            for (index, item) in items.iter().enumerate() {
                let length = path.len();
                // Writing to a String does not fail.
                let _ = write!(path, "[{index}]");
                collect_unknown(schema, item, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

pub(super) enum KnownFields<'a> {
    As(&'a Schema),
    /// `metadata` of an embedded resource.
    Metadata,
    Anything,
    Not,
}

pub(super) fn known<'a>(schema: &'a Schema, name: &str) -> KnownFields<'a> {
    if schema.embedded_resource && RESOURCE_FIELDS.contains(&name) {
        return if name == "metadata" { KnownFields::Metadata } else { KnownFields::Anything };
    }
    match schema.field(name) {
        Some(field) => KnownFields::As(field),
        None if schema.preserve_unknown || matches!(schema.node, Node::Any) => KnownFields::Anything,
        // This includes scalars and lists where the document has an object.
        None => KnownFields::Not,
    }
}

/// Returns the schema of an array's items; `None` if they may be anything. If the schema permits no list, its items have no fields.
fn items_of(schema: &Schema) -> Option<&Schema> {
    static SCALAR: OnceLock<Schema> = OnceLock::new();
    match &schema.node {
        Node::List(list) => Some(&list.items),
        Node::Any => None,
        _ if schema.preserve_unknown => None,
        _ => Some(SCALAR.get_or_init(|| Schema::of(Node::Boolean))),
    }
}

/// Performs structural pruning: drops everything that the schema of a custom resource does not specify, except below
/// `x-kubernetes-preserve-unknown-fields`. The `metadata` of embedded resources is reduced to the fields of object metadata;
/// `apiVersion` and `kind` stay. The schema of a whole resource has `embedded_resource` set.
pub fn prune(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            match known(schema, name) {
                KnownFields::As(schema) => prune(schema, value),
                KnownFields::Metadata => normalize(object_meta(), value, Empties::Kept),
                KnownFields::Anything => {}
                KnownFields::Not => return false,
            }
            true
        }),
        Value::Array(items) => {
            if let Some(schema) = items_of(schema) {
                for item in items {
                    prune(schema, item);
                }
            }
        }
        _ => {}
    }
}

/// Drops the fields whose features are off in the served version, according to the facts.
pub(crate) fn drop_off(schema: &Schema, value: &mut Value) {
    match (value, &schema.node) {
        (Value::Object(fields), Node::Object(object)) => fields.retain(|name, value| {
            let Some(property) = object.properties.get(name.as_str()) else { return true };
            if !property.is_off {
                drop_off(&property.schema, value);
            }
            !property.is_off
        }),
        (Value::Object(fields), Node::Map(map)) => {
            for value in fields.values_mut() {
                drop_off(&map.values, value);
            }
        }
        (Value::Array(items), Node::List(list)) => {
            for item in items {
                drop_off(&list.items, item);
            }
        }
        _ => {}
    }
}

/// Maximum size of the JSON that defaults may add to one object, because no larger one can be stored. Counted while defaults are
/// added, because a definition may have a large default for each item of a list.
pub const MAX_DEFAULTED_BYTES: usize = 8 << 20;

/// Performs structural defaulting: sets absent fields to their defaults. A `null` that is not permitted counts as absent: it
/// becomes the default, or is removed if there is none. Returns false if the defaults exceed [`MAX_DEFAULTED_BYTES`], and omits the
/// excess.
pub fn apply_defaults(schema: &Schema, value: &mut Value) -> bool {
    Defaults { drops_nulls: true, left_bytes: Some(MAX_DEFAULTED_BYTES) }.apply(schema, value)
}

/// Sets defaults like [`apply_defaults`], but keeps a null without a default.
pub fn apply_defaults_beside_nulls(schema: &Schema, value: &mut Value) -> bool {
    Defaults { drops_nulls: false, left_bytes: Some(MAX_DEFAULTED_BYTES) }.apply(schema, value)
}

/// State of defaulting one object.
struct Defaults {
    drops_nulls: bool,
    /// Number of bytes that defaults may still add; `None` once one did not fit.
    left_bytes: Option<usize>,
}

impl Defaults {
    fn apply(mut self, schema: &Schema, value: &mut Value) -> bool {
        self.below(schema, value);
        self.left_bytes.is_some()
    }

    /// Returns a copy of a default, if it still fits.
    fn copy(&mut self, default: &Value) -> Option<Value> {
        self.left_bytes = self.left_bytes.and_then(|left| left.checked_sub(json_bytes(default, left)?));
        self.left_bytes.map(|_| default.clone())
    }

    fn below(&mut self, schema: &Schema, value: &mut Value) {
        match (value, &schema.node) {
            (Value::Object(fields), Node::Object(object)) => {
                for (name, property) in &object.properties {
                    let absent = match fields.get(&**name) {
                        None => true,
                        Some(value) => value.is_null() && !property.schema.nullable,
                    };
                    if !absent {
                        continue;
                    }
                    match &property.schema.default {
                        Some(default) => {
                            if let Some(default) = self.copy(default) {
                                fields.insert(name.to_string(), default);
                            }
                        }
                        None if self.drops_nulls => drop(fields.remove(&**name)),
                        None => {}
                    }
                }
                for (name, value) in fields {
                    if let Some(property) = object.properties.get(name.as_str()) {
                        self.below(&property.schema, value);
                    }
                }
            }
            (Value::Object(fields), Node::Map(map)) => fields.retain(|_, value| {
                if value.is_null() && !map.values.nullable {
                    match &map.values.default {
                        Some(default) => *value = self.copy(default).unwrap_or_default(),
                        None => return !self.drops_nulls,
                    }
                }
                self.below(&map.values, value);
                true
            }),
            (Value::Array(items), Node::List(list)) => {
                for item in items {
                    if let (true, false, Some(default)) =
                        (item.is_null(), list.items.nullable, &list.items.default)
                    {
                        *item = self.copy(default).unwrap_or_default();
                    }
                    self.below(&list.items, item);
                }
            }
            _ => {}
        }
    }
}

/// Returns the minimum size of a value as JSON in bytes, if that is at most `most`.
fn json_bytes(value: &Value, most: usize) -> Option<usize> {
    let bytes = match value {
        Value::Null | Value::Bool(true) => 4,
        Value::Bool(false) => 5,
        Value::Number(_) => 1,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => {
            let parts = items
                .iter()
                .try_fold(0, |sum: usize, item| Some(sum + 1 + json_bytes(item, most.checked_sub(sum)?)?));
            parts?.max(1) + 1
        }
        Value::Object(fields) => {
            let parts = fields.iter().try_fold(0, |sum: usize, (name, value)| {
                Some(sum + name.len() + 4 + json_bytes(value, most.checked_sub(sum)?)?)
            });
            parts?.max(1) + 1
        }
    };
    (bytes <= most).then_some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn the_size_of_a_value_is_never_overestimated() {
        for value in [
            json!(null),
            json!(false),
            json!(12),
            json!("ab"),
            json!([]),
            json!({}),
            json!([1, [2], {}]),
            json!({"a": {"b": [true]}}),
        ] {
            let bytes = json_bytes(&value, 100).unwrap();
            let length = value.to_string().len();
            assert!(bytes <= length && 2 * bytes >= length, "{value}: {bytes}");
            assert_eq!(json_bytes(&value, bytes - 1), None, "{value}");
        }
    }
}
