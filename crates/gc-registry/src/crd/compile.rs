//! Compiles `openAPIV3Schema` to the schema type that built-in and custom kinds share.
//!
//! Accepts any input: definitions are validated before they are served ([`super::structural`]), and a defect in an old stored one
//! must not take the server down.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::schema::{
    IntegerFormat, List, ListType, MapNode, Node, Object, Ownership, Property, Schema, SchemaRef,
    StringFormat, Validations,
};

/// Compiles a structural schema.
pub(super) fn compile(source: &Value) -> Schema {
    let Some(source) = source.as_object() else { return Schema::default() };
    let flag = |key: &str| source.get(key).and_then(Value::as_bool).unwrap_or(false);
    Schema {
        name: None,
        go: None,
        node: node(source),
        nullable: flag("nullable"),
        default: source.get("default").filter(|value| !value.is_null()).cloned(),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag("x-kubernetes-embedded-resource"),
        validations: validations(source),
    }
}

fn node(source: &Map<String, Value>) -> Node {
    if source.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return Node::IntOrString;
    }
    let format = source.get("format").and_then(Value::as_str).filter(|format| !format.is_empty());
    match source.get("type").and_then(Value::as_str) {
        Some("object") => object(source),
        Some("array") => list(source),
        Some("string") => {
            Node::String(format.map_or(StringFormat::Plain, |format| StringFormat::Other(format.into())))
        }
        Some("integer") if format == Some("int32") => Node::Integer(IntegerFormat::Int32),
        Some("integer") => Node::Integer(IntegerFormat::Int64),
        Some("number") => Node::Number,
        Some("boolean") => Node::Boolean,
        _ if source.contains_key("properties") || source.contains_key("required") => object(source),
        _ if source.contains_key("items") => list(source),
        _ => Node::Any,
    }
}

fn object(source: &Map<String, Value>) -> Node {
    let map_type = match source.get("x-kubernetes-map-type").and_then(Value::as_str) {
        Some("atomic") => Ownership::Atomic,
        _ => Ownership::Granular,
    };
    let properties = source.get("properties").and_then(Value::as_object);
    if properties.is_none_or(Map::is_empty) {
        match source.get("additionalProperties") {
            Some(Value::Bool(true)) => {
                let values = Schema { nullable: true, ..Schema::default() };
                return Node::Map(MapNode { values: values.into(), map_type });
            }
            Some(values @ Value::Object(_)) => {
                return Node::Map(MapNode { values: compile(values).into(), map_type });
            }
            _ => {}
        }
    }
    let properties = properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| {
            let schema = compile(schema).into();
            (Arc::from(name.as_str()), Property { schema, ..Property::default() })
        })
        .collect::<BTreeMap<_, _>>();
    Node::Object(Object { properties, required: texts(source, "required"), map_type, ..Object::default() })
}

fn list(source: &Map<String, Value>) -> Node {
    let list_type = match source.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(texts(source, "x-kubernetes-list-map-keys")),
        _ => ListType::Atomic,
    };
    let items = source.get("items").map_or_else(Schema::default, compile);
    Node::List(List { items: items.into(), list_type })
}

fn texts(source: &Map<String, Value>, key: &str) -> Vec<Arc<str>> {
    source
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(Arc::from)
        .collect()
}

fn validations(source: &Map<String, Value>) -> Option<Box<Validations>> {
    let number = |key: &str| source.get(key).and_then(Value::as_f64);
    let count = |key: &str| source.get(key).and_then(Value::as_u64);
    let flag = |key: &str| source.get(key).and_then(Value::as_bool).unwrap_or(false);
    let branches = |key: &str| -> Vec<SchemaRef> {
        let branches = source.get(key).and_then(Value::as_array).into_iter().flatten();
        // `x-kubernetes-int-or-string` is written out with types below anyOf; the node already represents it.
        branches
            .filter(|branch| !is_int_or_string_pattern(branch))
            .map(|branch| compile(branch).into())
            .collect()
    };
    let any_of_types = source.get("anyOf").is_some_and(is_integer_and_string);
    let mut found = Validations {
        enumeration: source.get("enum").and_then(Value::as_array).cloned(),
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        pattern: source.get("pattern").and_then(Value::as_str).filter(|text| !text.is_empty()).map(Arc::from),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag("uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        all_of: branches("allOf"),
        any_of: if any_of_types { Vec::new() } else { branches("anyOf") },
        is_integer_or_string: any_of_types,
        number_format: number_format(source),
        one_of: branches("oneOf"),
        not: source.get("not").filter(|value| value.is_object()).map(|branch| compile(branch).into()),
        rules: source.get("x-kubernetes-validations").and_then(Value::as_array).cloned().unwrap_or_default(),
    };
    // A map cannot represent the names that it requires.
    let has_properties =
        source.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    let is_map = !has_properties
        && source.get("additionalProperties").is_some_and(|values| values.is_object() || *values == true);
    let required = texts(source, "required");
    if is_map && !required.is_empty() {
        let object = Object { required, ..Object::default() };
        found.all_of.push(Schema::of(Node::Object(object)).into());
    }
    (found != Validations::default()).then(|| Box::new(found))
}

fn number_format(source: &Map<String, Value>) -> Option<&'static str> {
    let format = source.get("format").and_then(Value::as_str)?;
    match source.get("type").and_then(Value::as_str)? {
        "integer" => ["int32", "int64"].into_iter().find(|known| *known == format),
        "number" => ["float", "double"].into_iter().find(|known| *known == format),
        _ => None,
    }
}

/// Reports whether branches are `[{type: integer}, {type: string}]`.
pub(super) fn is_integer_and_string(branches: &Value) -> bool {
    let Some([first, second]) = branches.as_array().map(Vec::as_slice) else { return false };
    *first == serde_json::json!({"type": "integer"}) && *second == serde_json::json!({"type": "string"})
}

/// Reports whether a branch is `{anyOf: [{type: integer}, {type: string}]}`.
fn is_int_or_string_pattern(branch: &Value) -> bool {
    branch.as_object().is_some_and(|map| map.len() == 1)
        && branch.get("anyOf").is_some_and(is_integer_and_string)
}
