//! Fields that a schema does not know: naming them, dropping them, and what else decoding drops.

use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::{Empties, Node, Schema, builtin, definition_name, definition_named, normalize};

/// The fields of an embedded resource that its own schema does not specify.
const RESOURCE_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The schema of the options of a DELETE.
#[must_use]
pub fn delete_options() -> &'static Arc<Schema> {
    static SCHEMA: OnceLock<Arc<Schema>> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        definition_named(&definition_name("meta.k8s.io", "v1", "DeleteOptions")).unwrap_or_default()
    })
}

/// The schema of `metadata`.
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

/// How many unknown and duplicate fields are reported; upstream's bound.
pub(super) const MAX_PROBLEMS: usize = 100;

/// The fields that the schema does not know, sorted, each as kube-apiserver words it:
/// `unknown field "spec.ports[0].colour"`.
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
                    Known::As(schema) => collect_unknown(schema, value, path, found),
                    Known::Metadata => collect_unknown(object_meta(), value, path, found),
                    Known::Not if found.len() < MAX_PROBLEMS => {
                        found.push(format!("unknown field \"{path}\""));
                    }
                    Known::Anything | Known::Not => {}
                }
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            let Node::List(list) = &schema.node else { return };
            for (index, item) in items.iter().enumerate() {
                let length = path.len();
                // Writing to a string cannot fail.
                let _ = write!(path, "[{index}]");
                collect_unknown(&list.items, item, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

pub(super) enum Known<'a> {
    As(&'a Schema),
    /// `metadata` of an embedded resource.
    Metadata,
    Anything,
    Not,
}

pub(super) fn known<'a>(schema: &'a Schema, name: &str) -> Known<'a> {
    if schema.embedded_resource && RESOURCE_FIELDS.contains(&name) {
        return if name == "metadata" { Known::Metadata } else { Known::Anything };
    }
    match schema.field(name) {
        Some(field) => Known::As(field),
        None if schema.preserve_unknown || matches!(schema.node, Node::Any) => Known::Anything,
        // A scalar where the document has an object: the types are checked elsewhere.
        None if !matches!(schema.node, Node::Object(_)) => Known::Anything,
        None => Known::Not,
    }
}

/// Structural pruning: drops what the schema of a custom resource does not specify, except below
/// `x-kubernetes-preserve-unknown-fields`. The `metadata` of embedded resources is pruned to what object
/// metadata has; `apiVersion` and `kind` stay. A schema of a whole resource has `embedded_resource` set.
pub fn prune(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            match known(schema, name) {
                Known::As(schema) => prune(schema, value),
                Known::Metadata => normalize(object_meta(), value, Empties::Kept),
                Known::Anything => {}
                Known::Not => return false,
            }
            true
        }),
        Value::Array(items) => {
            if let Node::List(list) = &schema.node {
                for item in items {
                    prune(&list.items, item);
                }
            }
        }
        _ => {}
    }
}

/// Structural defaulting: fills absent fields with their defaults. `null` where it is not allowed counts as
/// absent: it becomes the default, or is removed if there is none.
pub fn apply_defaults(schema: &Schema, value: &mut Value) {
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
                    Some(default) => drop(fields.insert(name.to_string(), default.clone())),
                    None => drop(fields.remove(&**name)),
                }
            }
            for (name, value) in fields {
                if let Some(property) = object.properties.get(name.as_str()) {
                    apply_defaults(&property.schema, value);
                }
            }
        }
        (Value::Object(fields), Node::Map(map)) => fields.retain(|_, value| {
            if value.is_null() && !map.values.nullable {
                let Some(default) = &map.values.default else { return false };
                *value = default.clone();
            }
            apply_defaults(&map.values, value);
            true
        }),
        (Value::Array(items), Node::List(list)) => {
            for item in items {
                if let (true, false, Some(default)) =
                    (item.is_null(), list.items.nullable, &list.items.default)
                {
                    *item = default.clone();
                }
                apply_defaults(&list.items, item);
            }
        }
        _ => {}
    }
}
