//! Go's encoding of built-in types: zero values that are always printed, and empty ones that never are.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::metadata::quantity;

use super::types::scalar;
use super::{Node, Property, Schema, StringFormat, definition_named, without_line_breaks};

/// Handling of empty lists and maps whose fields are always encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empties {
    /// Empty ones are kept: the object was decoded from JSON.
    Kept,
    /// Empty ones become null: the object was stored as protobuf, which has no empty lists.
    Null,
}

/// Fields that may be absent but not empty; validation has to see the empty list or map.
const REFUSED_WHEN_EMPTY: [(&str, &str); 5] = [
    ("io.k8s.api.autoscaling.v2.HPAScalingRules", "policies"),
    (EPHEMERAL, "ports"),
    (EPHEMERAL, "resizePolicy"),
    (EPHEMERAL, "restartPolicyRules"),
    (JSON_SCHEMA, "dependencies"),
];
const EPHEMERAL: &str = "io.k8s.api.core.v1.EphemeralContainer";
const JSON_SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
const SCHEMA_OR_LIST: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray";
/// Types with their own decoders, which drop everything that is not in a schema.
const SCHEMAS_OR_OTHERS: [&str; 3] = [
    SCHEMA_OR_LIST,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
];
/// Templates whose metadata may only contain labels and annotations, and no other list, not even an empty one.
const TEMPLATES: [&str; 2] =
    ["io.k8s.api.core.v1.PersistentVolumeClaimTemplate", "io.k8s.api.resource.v1.ResourceClaimTemplateSpec"];
const LISTS_OF_METADATA: [&str; 2] = ["finalizers", "ownerReferences"];

/// Reports whether an empty list or map in this field must reach validation.
pub(crate) fn is_refused_when_empty(schema: &Schema, field: &str) -> bool {
    REFUSED_WHEN_EMPTY.iter().any(|(of, name)| field == *name && is_one_of(schema, &[of]))
}

/// Reports whether this is the metadata of a template, whose empty lists must reach validation.
pub(crate) fn is_metadata_of_template(schema: &Schema, field: &str) -> bool {
    field == "metadata" && is_one_of(schema, &TEMPLATES)
}

/// Normalizes a document of a built-in kind as if it had been decoded into Go's type and encoded again: drops unknown fields,
/// treats `null` as absent, drops empty values that may be absent, and adds zero values that are always encoded.
pub fn normalize(schema: &Schema, value: &mut Value, empties: Empties) {
    match (value, &schema.node) {
        (Value::Object(fields), Node::Object(object)) => {
            fields.retain(|name, value| {
                let Some(property) = object.properties.get(name.as_str()) else {
                    return schema.preserve_unknown;
                };
                if value.is_null() || is_no_schema(&property.schema, value) {
                    return false;
                }
                if is_metadata_of_template(schema, name) {
                    normalize_metadata_of_template(&property.schema, value, empties);
                    return true;
                }
                normalize(&property.schema, value, empties);
                if is_refused_when_empty(schema, name) {
                    return true;
                }
                // An empty list of managers requests to forget them, which happens later.
                name == "managedFields" || !is_dropped(property, value, empties)
            });
            for name in &object.always {
                if !fields.contains_key(&**name)
                    && let Some(property) = object.properties.get(name)
                {
                    fields.insert(name.to_string(), zero_of(property));
                }
            }
        }
        (Value::Object(fields), Node::Map(map)) => {
            let of_resources = schema.go.as_ref().is_some_and(|go| go.name == "v1.ResourceList");
            for value in fields.values_mut() {
                normalize_element(&map.values, value, empties);
                if of_resources {
                    quantity::round_up_to_milli(value);
                }
            }
        }
        (Value::Array(items), Node::List(list)) => {
            for item in items {
                normalize_element(&list.items, item, empties);
            }
        }
        (value @ Value::Object(_), Node::Any) if is_one_of(schema, &SCHEMAS_OR_OTHERS) => {
            if let Some(inner) = definition_named(JSON_SCHEMA) {
                normalize(&inner, value, empties);
            }
        }
        (value, Node::Quantity) => quantity::canonicalize(value),
        (value @ Value::Array(_), Node::String(StringFormat::Byte)) => *value = encoded_bytes(value).into(),
        (Value::String(text), Node::String(StringFormat::Byte)) => {
            if let Cow::Owned(plain) = without_line_breaks(text) {
                *text = plain;
            }
        }
        (Value::String(text), Node::String(format)) => {
            if let Some(canonical) = canonical_time(format, text) {
                *text = canonical;
            }
        }
        _ => {}
    }
}

/// Reports whether Go's decoder ignores this value in place of a schema or several schemas.
fn is_no_schema(schema: &Schema, value: &Value) -> bool {
    let is_empty = value.as_array().is_none_or(Vec::is_empty);
    is_one_of(schema, &[SCHEMA_OR_LIST]) && !value.is_object() && is_empty
}

fn is_one_of(schema: &Schema, names: &[&str]) -> bool {
    schema.name.as_deref().is_some_and(|name| names.contains(&name))
}

fn normalize_metadata_of_template(schema: &Schema, metadata: &mut Value, empties: Empties) {
    let empty = |name: &&&str| metadata.get(**name).and_then(Value::as_array).is_some_and(Vec::is_empty);
    let kept: Vec<_> = LISTS_OF_METADATA.iter().filter(empty).collect();
    normalize(schema, metadata, empties);
    if let Some(members) = metadata.as_object_mut() {
        members.extend(kept.into_iter().map(|name| ((*name).to_owned(), Value::Array(Vec::new()))));
    }
}

/// Returns a time as Go writes it, in UTC and without fractions of a second, if it is not already in that form.
fn canonical_time(format: &StringFormat, text: &str) -> Option<String> {
    const SECONDS: usize = "2006-01-02T15:04:05Z".len();
    const MICROSECONDS: usize = "2006-01-02T15:04:05.000000Z".len();
    let (length, written) = match format {
        StringFormat::DateTime => (SECONDS, "%Y-%m-%dT%H:%M:%SZ"),
        StringFormat::MicroTime => (MICROSECONDS, "%Y-%m-%dT%H:%M:%S.%6fZ"),
        _ => return None,
    };
    if text.len() == length && text.ends_with('Z') {
        return None;
    }
    Some(text.parse::<jiff::Timestamp>().ok()?.strftime(written).to_string())
}

/// Encodes bytes given as a list of numbers.
fn encoded_bytes(list: &Value) -> String {
    let byte = |item: &Value| item.as_u64().and_then(|byte| u8::try_from(byte).ok()).unwrap_or_default();
    STANDARD.encode(list.as_array().into_iter().flatten().map(byte).collect::<Vec<u8>>())
}

/// Normalizes an element of a list or map, in which `null` is the zero value.
fn normalize_element(schema: &Schema, value: &mut Value, empties: Empties) {
    if value.is_null() {
        *value = zero(schema);
    } else {
        normalize(schema, value, empties);
    }
}

/// Reports whether a field is dropped because its value is empty. Fields that are always encoded are added again as zero.
fn is_dropped(property: &Property, value: &Value, empties: Empties) -> bool {
    match (value, &property.schema.node) {
        (Value::Object(fields), Node::Map(_)) if fields.is_empty() => {
            property.omit_empty || empties == Empties::Null
        }
        (Value::Array(items), Node::List(_)) if items.is_empty() => {
            property.omit_empty || empties == Empties::Null
        }
        // Types that encode themselves are structs, which are never empty.
        (_, Node::String(StringFormat::DateTime | StringFormat::MicroTime | StringFormat::Duration)) => false,
        (Value::String(text), Node::String(_)) => property.omit_empty && !property.pointer && text.is_empty(),
        (Value::Number(number), Node::Integer(_) | Node::Number) => {
            property.omit_empty && !property.pointer && number.as_f64() == Some(0.0)
        }
        (Value::Bool(value), Node::Boolean) => property.omit_empty && !property.pointer && !value,
        _ => false,
    }
}

fn zero_of(property: &Property) -> Value {
    // Bytes that were not sent are `nil`, which Go encodes as `null`.
    let is_bytes = property.schema.node == Node::String(StringFormat::Byte);
    if property.pointer || is_bytes { Value::Null } else { zero(&property.schema) }
}

/// Returns Go's encoding of a value that was not decoded.
fn zero(schema: &Schema) -> Value {
    match &schema.node {
        Node::Object(_) => {
            let mut value = Value::Object(Map::new());
            normalize(schema, &mut value, Empties::Null);
            value
        }
        Node::Quantity => "0".into(),
        Node::IntOrString => 0.into(),
        Node::String(StringFormat::Byte) => "".into(),
        node => scalar(node).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::builtin;
    use super::*;

    #[test]
    fn documents_have_the_form_that_go_encodes() {
        for (group, kind, sent, want) in [
            (
                "",
                "Event",
                json!({"metadata": {"name": "a"}, "count": 0, "firstTimestamp": "2020-01-01T01:00:00.5+01:00"}),
                json!({"metadata": {"name": "a"}, "eventTime": null, "firstTimestamp": "2020-01-01T00:00:00Z",
                    "involvedObject": {}, "lastTimestamp": null, "reportingComponent": "",
                    "reportingInstance": "", "source": {}}),
            ),
            (
                "storage.k8s.io",
                "CSINode",
                json!({"spec": {"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 5}}]}}),
                json!({"metadata": {}, "spec": {"drivers": [
                    {"name": "d", "nodeID": "n", "topologyKeys": null, "allocatable": {"count": 5}}]}}),
            ),
            (
                "storage.k8s.io",
                "CSINode",
                json!({"spec": {"drivers": []}}),
                json!({"metadata": {}, "spec": {"drivers": null}}),
            ),
            (
                "",
                "Secret",
                json!({"data": {"a": [1, 2, null], "b": null, "c": "YQ=="}}),
                json!({"metadata": {}, "data": {"a": "AQIA", "b": "", "c": "YQ=="}}),
            ),
            (
                "",
                "LimitRange",
                json!({"spec": {"limits": [{"max": {"cpu": 1, "memory": "1024Ki"}}]}}),
                json!({"metadata": {}, "spec": {"limits": [{"type": "", "max": {"cpu": "1", "memory": "1Mi"}}]}}),
            ),
            (
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"properties": {
                    "a": {"items": "x"}, "b": {"items": []}, "c": {"items": {"type": "string", "bogus": 1}}}}}}]}}),
                json!({"metadata": {}, "status": {"acceptedNames": {"kind": "", "plural": ""}, "conditions": null,
                    "storedVersions": null},
                    "spec": {"group": "", "names": {"kind": "", "plural": ""}, "scope": "", "versions": [{
                        "name": "v1", "served": false, "storage": false, "schema": {"openAPIV3Schema": {
                            "properties": {"a": {}, "b": {}, "c": {"items": {"type": "string"}}}}}}]}}),
            ),
        ] {
            let schema = builtin(group, "v1", kind).expect("built in");
            let mut document = sent;
            normalize(&schema, &mut document, Empties::Null);
            assert_eq!(document, want, "{kind}");
            let before = document.clone();
            normalize(&schema, &mut document, Empties::Null);
            assert_eq!(document, before, "{kind} is not stable");
        }
    }
}
