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
            let Some(schema) = items_of(schema) else { return };
            for (index, item) in items.iter().enumerate() {
                let length = path.len();
                // Writing to a string cannot fail.
                let _ = write!(path, "[{index}]");
                collect_unknown(schema, item, path, found);
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
        // Also of a scalar or a list where the document has an object.
        None => Known::Not,
    }
}

/// The schema of the items of an array; none where they may be anything. Where the schema knows no list, its items have
/// no fields.
fn items_of(schema: &Schema) -> Option<&Schema> {
    static SCALAR: OnceLock<Schema> = OnceLock::new();
    match &schema.node {
        Node::List(list) => Some(&list.items),
        Node::Any => None,
        _ if schema.preserve_unknown => None,
        _ => Some(SCALAR.get_or_init(|| Schema::of(Node::Boolean))),
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
            if let Some(schema) = items_of(schema) {
                for item in items {
                    prune(schema, item);
                }
            }
        }
        _ => {}
    }
}

/// Structural defaulting: fills absent fields with their defaults. `null` where it is not allowed counts as
/// absent: it becomes the default, or is removed if there is none.
pub fn apply_defaults(schema: &Schema, value: &mut Value) {
    default_below(schema, value, true);
}

/// As [`apply_defaults`], but a null without a default stays.
pub fn apply_defaults_beside_nulls(schema: &Schema, value: &mut Value) {
    default_below(schema, value, false);
}

fn default_below(schema: &Schema, value: &mut Value, drops_nulls: bool) {
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
                    None if drops_nulls => drop(fields.remove(&**name)),
                    None => {}
                }
            }
            for (name, value) in fields {
                if let Some(property) = object.properties.get(name.as_str()) {
                    default_below(&property.schema, value, drops_nulls);
                }
            }
        }
        (Value::Object(fields), Node::Map(map)) => fields.retain(|_, value| {
            if value.is_null() && !map.values.nullable {
                match &map.values.default {
                    Some(default) => *value = default.clone(),
                    None => return !drops_nulls,
                }
            }
            default_below(&map.values, value, drops_nulls);
            true
        }),
        (Value::Array(items), Node::List(list)) => {
            for item in items {
                if let (true, false, Some(default)) =
                    (item.is_null(), list.items.nullable, &list.items.default)
                {
                    *item = default.clone();
                }
                default_below(&list.items, item, drops_nulls);
            }
        }
        _ => {}
    }
}
