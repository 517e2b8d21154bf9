//! Schemas of the built-in types, made at the first use of a kind.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};

use super::facts::{self, Parts};
use super::kinds::KINDS;
use super::{
    IntegerFormat, List, MapNode, Node, Object, Ownership, Property, Schema, SchemaRef, StringFormat,
};

/// Where the generator puts definitions; references start with it.
const DEFINITIONS_PATH: &str = "#/$defs/";

/// Definitions by name. Grows with the kinds that are asked for and is bounded by their number.
static DEFINITIONS: Mutex<BTreeMap<Arc<str>, Arc<Schema>>> = Mutex::new(BTreeMap::new());

/// The schema of a built-in kind, or `None` if there is no such kind. The first call for a kind costs about a
/// millisecond, later ones a look-up.
#[must_use]
pub fn builtin(group: &str, version: &str, kind: &str) -> Option<Arc<Schema>> {
    static ROOTS: Mutex<BTreeMap<usize, Arc<Schema>>> = Mutex::new(BTreeMap::new());
    let index = KINDS.binary_search_by(|row| (row.0, row.1, row.2).cmp(&(group, version, kind))).ok()?;
    if let Some(schema) = ROOTS.lock().unwrap_or_else(PoisonError::into_inner).get(&index) {
        return Some(schema.clone());
    }
    let mut generator = schemars::SchemaGenerator::default();
    let reference = (KINDS[index].3)(&mut generator);
    let name = reference_name(reference.as_value())?;
    let described = generator.take_definitions(true);
    {
        let mut definitions = DEFINITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, value) in &described {
            if !definitions.contains_key(name.as_str()) {
                definitions.insert(name.as_str().into(), Arc::new(convert_definition(name, value)));
            }
        }
    }
    let schema = definition(&name);
    ROOTS.lock().unwrap_or_else(PoisonError::into_inner).insert(index, schema.clone());
    Some(schema)
}

/// The definition of a name that a converted schema refers to. Every reference of a definition is converted
/// together with it, so the fallback to "anything" is never taken; it stands in place of a panic.
pub(super) fn definition(name: &str) -> Arc<Schema> {
    let definitions = DEFINITIONS.lock().unwrap_or_else(PoisonError::into_inner);
    definitions.get(name).cloned().unwrap_or_default()
}

fn reference_name(value: &Value) -> Option<Arc<str>> {
    Some(value.get("$ref")?.as_str()?.strip_prefix(DEFINITIONS_PATH)?.into())
}

fn convert_definition(name: &str, value: &Value) -> Schema {
    let mut schema = match special(name) {
        Some(node) => Schema { preserve_unknown: node == Node::Any, ..Schema::of(node) },
        None => Schema::of(convert_object(name, value)),
    };
    schema.name = Some(name.into());
    schema.description = text(value, "description");
    schema
}

/// Types that decode themselves, by the last parts of their names.
fn special(name: &str) -> Option<Node> {
    let (path, last) = name.rsplit_once('.')?;
    Some(match last {
        "Time" if path.ends_with("meta.v1") => Node::String(StringFormat::DateTime),
        "MicroTime" if path.ends_with("meta.v1") => Node::String(StringFormat::MicroTime),
        "Quantity" if path.ends_with("api.resource") => Node::Quantity,
        "IntOrString" => Node::IntOrString,
        "RawExtension"
        | "FieldsV1"
        | "JSON"
        | "JSONSchemaPropsOrArray"
        | "JSONSchemaPropsOrBool"
        | "JSONSchemaPropsOrStringArray" => Node::Any,
        _ => return None,
    })
}

fn convert_object(name: &str, value: &Value) -> Node {
    let short = name.strip_prefix(facts::PREFIX).unwrap_or(name);
    let empty = Map::new();
    let properties = value.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    Node::Object(Object {
        properties: properties
            .iter()
            .map(|(field, value)| (field.as_str().into(), convert_property(short, field, value)))
            .collect(),
        required: value
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).map(Into::into).collect())
            .unwrap_or_default(),
        map_type: if facts::ATOMIC_TYPES.binary_search(&short).is_ok() {
            Ownership::Atomic
        } else {
            Ownership::Granular
        },
    })
}

fn convert_property(definition: &str, field: &str, value: &Value) -> Property {
    let row = facts::FIELDS
        .binary_search_by(|row| (row.0, row.1).cmp(&(definition, field)))
        .ok()
        .map(|index| &facts::FIELDS[index]);
    let parts = row.map_or(Parts::Plain, |row| row.2);
    let schema = match reference_name(value) {
        Some(name) => SchemaRef::named(name),
        None => {
            let mut schema = convert_inline(value);
            match &mut schema.node {
                Node::List(list) => list.list_type = parts.list_type(),
                Node::Map(map) if matches!(parts, Parts::Atomic) => map.map_type = Ownership::Atomic,
                _ => {}
            }
            schema.default = facts::KEY_DEFAULTS
                .iter()
                .find(|row| (row.0, row.1) == (definition, field))
                .map(|row| row.2.into());
            schema.into()
        }
    };
    // The one pointer among the fields of these names is a list of options of custom resource definitions.
    let always = facts::ALWAYS.binary_search(&(definition, field)).is_ok()
        || facts::ALWAYS_NAMES.contains(&field) && !definition.ends_with(".CustomResourceSubresources");
    Property {
        schema,
        description: text(value, "description"),
        patch: row.map(|row| row.3.to_patch_strategy()).unwrap_or_default(),
        atomic: matches!(parts, Parts::Atomic),
        always,
    }
}

/// A schema that stands in a field, in items or in values.
fn convert_inline(value: &Value) -> Schema {
    let format = value.get("format").and_then(Value::as_str).unwrap_or_default();
    let node = match value.get("type").and_then(Value::as_str).unwrap_or_default() {
        "object" => match value.get("additionalProperties") {
            Some(values) => {
                Node::Map(MapNode { values: convert_reference(values), map_type: Ownership::Granular })
            }
            None => Node::Any,
        },
        "array" => Node::List(List {
            items: value.get("items").map(convert_reference).unwrap_or_default(),
            ..List::default()
        }),
        "string" => Node::String(match format {
            "" => StringFormat::Plain,
            "byte" => StringFormat::Byte,
            "date-time" => StringFormat::DateTime,
            other => StringFormat::Other(other.into()),
        }),
        "integer" if format == "int32" => Node::Integer(IntegerFormat::Int32),
        "integer" => Node::Integer(IntegerFormat::Int64),
        "number" => Node::Number,
        "boolean" => Node::Boolean,
        _ => Node::Any,
    };
    Schema { preserve_unknown: node == Node::Any, ..Schema::of(node) }
}

fn convert_reference(value: &Value) -> SchemaRef {
    match reference_name(value) {
        Some(name) => SchemaRef::named(name),
        None => convert_inline(value).into(),
    }
}

fn text(value: &Value, member: &str) -> Option<Arc<str>> {
    value.get(member).and_then(Value::as_str).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind converts, and every row of the tables of facts names a definition and a field that exist,
    /// of a type that the fact can be about.
    #[test]
    fn facts_name_existing_types_and_fields() {
        for (group, version, kind, _) in KINDS {
            let schema = builtin(group, version, kind).unwrap_or_else(|| panic!("{group}/{version} {kind}"));
            assert!(schema.field("metadata").is_some(), "{kind} has no metadata");
        }
        for (name, field, parts, strategy) in facts::FIELDS {
            let schema = definition(&format!("{}{name}", facts::PREFIX));
            let Node::Object(object) = &schema.node else { panic!("{name} is no object") };
            let property = object.properties.get(*field).unwrap_or_else(|| panic!("{name} has no {field}"));
            let fits = match (parts, &property.schema.node) {
                (Parts::Plain, _)
                | (Parts::Set, Node::List(_))
                | (Parts::Atomic, Node::Map(_) | Node::Object(_) | Node::Any) => true,
                (Parts::Keyed(keys), Node::List(list)) => {
                    keys.iter().all(|key| list.items.field(key).is_some())
                }
                _ => false,
            };
            assert!(fits, "{name}.{field}: {parts:?}");
            if let Some(key) = strategy.to_patch_strategy().merge_key {
                let Node::List(list) = &property.schema.node else { panic!("{name}.{field} is no list") };
                assert!(list.items.field(&key).is_some(), "{name}.{field} has no merge key {key}");
            }
        }
        for name in facts::ATOMIC_TYPES {
            let schema = definition(&format!("{}{name}", facts::PREFIX));
            assert!(matches!(&schema.node, Node::Object(o) if o.map_type == Ownership::Atomic), "{name}");
        }
        for (name, field) in facts::ALWAYS {
            let schema = definition(&format!("{}{name}", facts::PREFIX));
            assert!(matches!(schema.field(field).map(|s| &s.node), Some(Node::Object(_))), "{name}.{field}");
        }
        for (name, field, _) in facts::KEY_DEFAULTS {
            let schema = definition(&format!("{}{name}", facts::PREFIX));
            assert!(schema.field(field).is_some_and(|field| field.default.is_some()), "{name}.{field}");
        }
    }

    #[test]
    fn tables_are_sorted() {
        assert!(facts::FIELDS.is_sorted_by_key(|row| (row.0, row.1)));
        assert!(facts::ATOMIC_TYPES.is_sorted());
        assert!(facts::ALWAYS.is_sorted());
        assert!(KINDS.is_sorted_by_key(|row| (row.0, row.1, row.2)));
    }

    #[test]
    fn unknown_kinds_have_no_schema() {
        for (group, version, kind) in
            [("", "v2", "Pod"), ("apps", "v1", "Pod"), ("example.com", "v1", "Widget")]
        {
            assert_eq!(builtin(group, version, kind), None, "{group} {version} {kind}");
        }
    }
}
