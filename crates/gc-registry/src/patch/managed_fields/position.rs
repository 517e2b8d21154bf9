//! Schema facts of server-side apply at a position of an object.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::set::PathElement;
use crate::schema::{List, ListType, Node, Object, Ownership, Property, Schema, object_meta};

/// A position in an object, as described by the schema.
#[derive(Clone, Copy, Debug)]
pub(super) enum Position<'a> {
    /// Described by a schema.
    Known(&'a Schema),
    /// Described by the schema of an object type that is a unit elsewhere, but owned field by field here.
    Granular(&'a Schema),
    /// A unit, whatever its type.
    Atomic,
    /// Not described: maps are granular, lists are atomic.
    Deduced,
}

/// Granularity of ownership at a position.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    /// As a unit: scalars, atomic lists, atomic maps.
    Leaf,
    /// Field by field.
    Fields,
    /// Item by item.
    Items(&'a List),
}

/// Value and schema of a field.
pub(super) struct Field<'a> {
    /// Position of the field.
    pub(super) position: Position<'a>,
    /// True if it is a field of an object type rather than a key of a map.
    pub(super) named: bool,
    /// Value when nothing was set: `{}` for objects and `null` for lists that always exist.
    pub(super) always: Option<&'static Value>,
}

/// Returns an empty object that always exists.
fn empty_object() -> &'static Value {
    static EMPTY: std::sync::OnceLock<Value> = std::sync::OnceLock::new();
    EMPTY.get_or_init(|| Value::Object(Map::new()))
}

impl<'a> Position<'a> {
    /// Returns the granularity of ownership; without a schema, the value decides.
    pub(super) fn shape(self, value: Option<&Value>) -> Shape<'a> {
        match self {
            Self::Atomic => Shape::Leaf,
            Self::Granular(_) => Shape::Fields,
            Self::Deduced => deduced(value),
            Self::Known(schema) => match &schema.node {
                Node::Any => deduced(value),
                Node::Object(Object { map_type: Ownership::Granular, .. }) => Shape::Fields,
                Node::Map(map) if map.map_type == Ownership::Granular => Shape::Fields,
                Node::List(list) if list.list_type.is_associative() => Shape::Items(list),
                _ => Shape::Leaf,
            },
        }
    }

    /// Returns a field of this position.
    pub(super) fn field(self, name: &str) -> Field<'a> {
        let unknown = Field { position: Self::Deduced, named: false, always: None };
        let (Self::Known(schema) | Self::Granular(schema)) = self else { return unknown };
        match &schema.node {
            Node::Object(object) => match object.properties.get(name) {
                Some(property) if !(schema.embedded_resource && name == "metadata") => known_field(property),
                _ if schema.embedded_resource && name == "metadata" => {
                    let metadata: &'static Arc<Schema> = object_meta();
                    Field { position: Self::Known(metadata), named: true, always: Some(empty_object()) }
                }
                _ => unknown,
            },
            Node::Map(map) => Field { position: Self::Known(&map.values), named: false, always: None },
            _ => unknown,
        }
    }

    /// Reports whether a field is permitted.
    pub(super) fn declares(self, name: &str) -> bool {
        let (Self::Known(schema) | Self::Granular(schema)) = self else { return true };
        match &schema.node {
            Node::Object(object) => {
                object.properties.contains_key(name)
                    || schema.preserve_unknown
                    || schema.embedded_resource && matches!(name, "apiVersion" | "kind" | "metadata")
            }
            _ => true,
        }
    }
}

fn known_field(property: &Property) -> Field<'_> {
    let always = match &property.schema.node {
        Node::Object(_) if property.always && !property.pointer => Some(empty_object()),
        Node::List(list) if property.always && list.list_type.is_associative() => Some(&Value::Null),
        _ => None,
    };
    let position = match (&property.schema.node, property.map_type) {
        _ if property.atomic => Position::Atomic,
        (Node::Object(Object { map_type: Ownership::Atomic, .. }), Some(Ownership::Granular)) => {
            Position::Granular(&property.schema)
        }
        _ => Position::Known(&property.schema),
    };
    Field { position, named: true, always }
}

fn deduced(value: Option<&Value>) -> Shape<'static> {
    match value {
        Some(Value::Object(_)) | None => Shape::Fields,
        Some(_) => Shape::Leaf,
    }
}

/// Reason why an item of a list has no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ItemError {
    #[error("associative list with keys may not have a null element")]
    NullItem,
    #[error("associative list with keys may not have non-map elements")]
    NoMap,
    #[error(
        "associative list with keys has an element that omits all key fields {0:?} (and doesn't have default values for any key fields)"
    )]
    NoKeys(Vec<String>),
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
}

/// Returns the path element of an item in a list that is owned item by item.
pub(super) fn item_element(list: &List, item: &Value) -> Result<PathElement, ItemError> {
    let ListType::Map(keys) = &list.list_type else {
        return match item {
            Value::Object(_) => Err(ItemError::MapInSet),
            Value::Array(_) => Err(ItemError::ListInSet),
            Value::Null => Err(ItemError::NullInSet),
            scalar => Ok(PathElement::Value(scalar.clone())),
        };
    };
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err(ItemError::NullItem),
        _ => return Err(ItemError::NoMap),
    };
    let mut values: Vec<(Box<str>, Value)> = Vec::with_capacity(keys.len());
    for key in keys {
        let default = || list.items.field(key).and_then(|field| field.default.as_ref());
        if let Some(value) = fields.get(&**key).or_else(default) {
            values.push(((**key).into(), value.clone()));
        }
    }
    if values.is_empty() {
        return Err(ItemError::NoKeys(keys.iter().map(ToString::to_string).collect()));
    }
    values.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(PathElement::Key(values))
}
