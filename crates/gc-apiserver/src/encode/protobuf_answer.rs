//! Answers in protobuf: objects, lists and documents of built-in kinds, written from JSON values with the same table of field
//! numbers that decodes requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::protobuf::{self, envelope};
use super::protobuf_request::{FieldType, Fields, MAXIMUM_DEPTH, fields_of, label_of};
use super::protobuf_writer::Writer;

/// Reports whether answers of a kind can be written as protobuf.
pub(crate) fn is_known(api_version: &str, kind: &str) -> bool {
    fields_of(&label_of(api_version, kind)).is_some()
}

/// Writes a complete document of a known kind, or else a Status.
pub(crate) fn document(out: &mut Vec<u8>, value: &Value) {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    // Discovery documents, except the aggregated one, are messages of the meta group although they state the version of the core
    // group.
    let label = if kind.starts_with("API") && !api_version.contains('/') {
        format!("meta/v1.{kind}")
    } else {
        label_of(api_version, kind)
    };
    match (fields_of(&label), value) {
        (Some(fields), Value::Object(map)) => {
            envelope(out, api_version, kind, |raw| message(raw, fields, map, MAXIMUM_DEPTH));
        }
        _ => protobuf::status(out, value),
    }
}

/// Returns the fields of a built-in kind.
pub(super) fn fields(api_version: &str, kind: &str) -> Option<&'static Fields> {
    fields_of(&label_of(api_version, kind))
}

/// Writes the members of an object of a built-in kind.
pub(super) fn members(writer: &mut Writer<'_>, fields: &Fields, object: &Map<String, Value>) {
    message(writer, fields, object, MAXIMUM_DEPTH);
}

fn message(writer: &mut Writer<'_>, fields: &Fields, map: &Map<String, Value>, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    for (number, field) in fields {
        if let FieldType::InLine(label) = &field.kind {
            if let Some(inner) = fields_of(label) {
                writer.message(*number, |writer| message(writer, inner, map, depth));
            }
        } else if let Some(value) = map.get(field.name).filter(|value| !value.is_null()) {
            write(writer, *number, &field.kind, value, depth);
        }
    }
}

/// Writes a field.
pub(super) fn write(writer: &mut Writer<'_>, number: u32, kind: &FieldType, value: &Value, depth: usize) {
    let text = value.as_str().unwrap_or_default();
    match kind {
        FieldType::Text => writer.bytes(number, text.as_bytes()),
        FieldType::Integer => writer.number(number, value.as_i64().unwrap_or_default()),
        FieldType::Boolean => writer.number(number, i64::from(value.as_bool().unwrap_or_default())),
        FieldType::Double => writer.double(number, value.as_f64().unwrap_or_default()),
        FieldType::Bytes => writer.bytes(number, &STANDARD.decode(text).unwrap_or_default()),
        FieldType::Time | FieldType::MicroTime => {
            if let Ok(time) = text.parse::<jiff::Timestamp>() {
                writer.message(number, |writer| {
                    writer.number(1, time.as_second());
                    if *kind == FieldType::MicroTime {
                        writer.number(2, i64::from(time.subsec_nanosecond()));
                    }
                });
            }
        }
        FieldType::Duration => {
            let nanos =
                text.parse::<gc_types::GoDuration>().map_or(0, |duration| duration.to_std().as_nanos());
            writer.message(number, |writer| writer.number(1, i64::try_from(nanos).unwrap_or_default()));
        }
        FieldType::Quantity => {
            let number_text = value.to_string();
            let text = value.as_str().unwrap_or(&number_text);
            writer.message(number, |writer| writer.bytes(1, text.as_bytes()));
        }
        FieldType::IntOrString => writer.message(number, |writer| match value.as_i64() {
            Some(integer) => {
                writer.number(1, 0);
                writer.number(2, integer);
            }
            None => {
                writer.number(1, 1);
                writer.number(2, 0);
                writer.bytes(3, text.as_bytes());
            }
        }),
        FieldType::Raw => writer.message(number, |writer| writer.bytes(1, value.to_string().as_bytes())),
        FieldType::Message(label) | FieldType::InLine(label) => {
            let Some(fields) = fields_of(label) else { return };
            writer.message(number, |writer| match value {
                Value::Object(map) => message(writer, fields, map, depth),
                // A named list is a message with a single nameless field.
                Value::Array(items) => {
                    if let Some((inner, field)) = fields.iter().find(|(_, field)| field.name.is_empty()) {
                        write_all(writer, *inner, &field.kind, items, depth);
                    }
                }
                _ => {}
            });
        }
        FieldType::List(_) => {
            write_all(writer, number, kind, value.as_array().map_or(&[], Vec::as_slice), depth);
        }
        FieldType::Map(values) => {
            for (key, value) in value.as_object().into_iter().flatten() {
                writer.message(number, |writer| {
                    writer.bytes(1, key.as_bytes());
                    if !value.is_null() {
                        write(writer, 2, values, value, depth);
                    }
                });
            }
        }
        FieldType::SchemaOrBoolean | FieldType::SchemaOrList | FieldType::SchemaOrTexts => {
            writer.message(number, |writer| write_choice(writer, kind, value, depth));
        }
    }
}

fn write_all(writer: &mut Writer<'_>, number: u32, kind: &FieldType, items: &[Value], depth: usize) {
    let FieldType::List(item) = kind else { return };
    for value in items {
        write(writer, number, item, value, depth);
    }
}

/// Writes a schema or an alternative to it, as JSON schemas allow in some places.
fn write_choice(writer: &mut Writer<'_>, kind: &FieldType, value: &Value, depth: usize) {
    const SCHEMA: FieldType = FieldType::Message("apiextensions/v1.JSONSchemaProps");
    let schema_number = if *kind == FieldType::SchemaOrBoolean { 2 } else { 1 };
    match value {
        Value::Bool(allows) => writer.number(1, i64::from(*allows)),
        Value::Object(_) => {
            if *kind == FieldType::SchemaOrBoolean {
                writer.number(1, 1);
            }
            if let Some(depth) = depth.checked_sub(1) {
                write(writer, schema_number, &SCHEMA, value, depth);
            }
        }
        Value::Array(items) => {
            let item = if *kind == FieldType::SchemaOrTexts { FieldType::Text } else { SCHEMA };
            let Some(depth) = depth.checked_sub(1) else { return };
            for value in items {
                write(writer, 2, &item, value, depth);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::super::protobuf_request;
    use super::*;
    use serde_json::json;

    /// Objects survive a round trip.
    #[test]
    fn objects_come_back_as_they_were_written() {
        for value in [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"a": "", "b": "c"}},
                "data": {"k": "v"}, "binaryData": {"b": "aGk="}, "immutable": true}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {
                "replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "strategy": {"type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
                "template": {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i",
                    "livenessProbe": {"httpGet": {"port": 80, "path": "/"}, "periodSeconds": 1},
                    "resources": {"limits": {"cpu": "100m"}}}]}}}, "status": {}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"},
            "spec": {"group": "b", "scope": "Cluster", "names": {"plural": "a", "kind": "A"}, "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "a": {"type": "array", "items": {"type": "string", "default": "x", "enum": ["x", 1, null]}},
                    "b": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1.5}},
                    "c": {"type": "object", "additionalProperties": true, "x-kubernetes-validations": [{"rule": "self.x"}]},
                }}}}]}}),
            json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {},
                "spec": {"request": "aGk=", "signerName": "a.b/c", "usages": ["any"], "extra": {"k": ["v", "w"]}}, "status": {}}),
        ] {
            let text = |name: &str| value[name].as_str().unwrap().to_owned();
            let (api_version, kind) = (text("apiVersion"), text("kind"));
            let fields = fields_of(&label_of(&api_version, &kind)).unwrap();
            let mut out = Vec::new();
            message(&mut Writer(&mut out), fields, value.as_object().unwrap(), MAXIMUM_DEPTH);
            let back = protobuf_request::object(&api_version, &kind, &out).unwrap().unwrap();
            assert_eq!(back, value, "{kind}");
        }
    }

    #[test]
    fn discovery_has_a_protobuf_form() {
        let mut out = Vec::new();
        document(&mut out, &json!({"kind": "APIGroup", "apiVersion": "v1", "name": "apps", "versions": []}));
        assert!(out.windows(4).any(|window| window == b"apps"));
    }
}
