//! The form in which a typed server writes an object: absent values are omitted.

use serde_json::Value;

use crate::kinds::access::Members;
use crate::schema::{self, Node, Schema};
use crate::target::Target;

/// Members that are maps of texts or of quantities, and are omitted when empty, wherever they occur.
const MAPS: [&str; 20] = [
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "data",
    "binaryData",
    "stringData",
    "limits",
    "requests",
    "capacity",
    "allocatable",
    "allocatedResources",
    "hard",
    "used",
    "max",
    "min",
    "defaultRequest",
    "maxLimitRequestRatio",
    "overhead",
    "volumeAttributes",
];

/// Drops nulls, empty lists and empty maps.
pub(crate) fn normalize(target: Target<'_>, object: &mut Value) {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let schema = schema::builtin(target.group, target.version, kind);
    let Some(members) = object.as_object_mut() else { return };
    let managed = managed_fields(members);
    tidy(schema.as_deref(), members);
    if let (Some(managed), Some(metadata)) = (managed, members.get_mut("metadata")) {
        metadata["managedFields"] = managed;
    }
}

/// Takes out the server's data about field managers, which is not normalized.
fn managed_fields(members: &mut Members) -> Option<Value> {
    members
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .and_then(|metadata| metadata.remove("managedFields"))
}

fn tidy(schema: Option<&Schema>, members: &mut Members) {
    for (key, value) in members.iter_mut() {
        if !schema.is_some_and(|schema| schema::is_metadata_of_template(schema, key)) {
            tidy_value(member(schema, key), value);
        }
    }
    members.retain(|key, value| match value {
        Value::Null => false,
        Value::Array(items) => {
            !items.is_empty()
                || is_raw(member(schema, key))
                || schema.is_some_and(|schema| schema::is_refused_when_empty(schema, key))
        }
        Value::Object(inner) => !inner.is_empty() || !is_dropped_map(member(schema, key), key),
        _ => true,
    });
}

fn tidy_value(schema: Option<&Schema>, value: &mut Value) {
    match value {
        // Raw data belongs to the client.
        _ if is_raw(schema) => {}
        Value::Object(members) => tidy(schema, members),
        Value::Array(items) => {
            let inner = match schema.map(|schema| &schema.node) {
                Some(Node::List(list)) => Some(&*list.items),
                _ => None,
            };
            for item in items {
                tidy_value(inner, item);
            }
        }
        _ => {}
    }
}

/// Returns the schema of a member.
fn member<'a>(schema: Option<&'a Schema>, key: &str) -> Option<&'a Schema> {
    match &schema?.node {
        Node::Object(object) => object.properties.get(key).map(|property| &*property.schema),
        Node::Map(map) => Some(&*map.values),
        _ => None,
    }
}

fn is_raw(schema: Option<&Schema>) -> bool {
    schema.is_some_and(|schema| schema.node == Node::Any)
}

/// Reports whether an empty member is dropped: structs may have the name of a map elsewhere, but are kept.
fn is_dropped_map(schema: Option<&Schema>, key: &str) -> bool {
    let is_map = schema.is_none_or(|schema| matches!(schema.node, Node::Map(_)));
    is_map && MAPS.contains(&key)
}
