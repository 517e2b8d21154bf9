//! Determines the fields of an object, and the fields in which two objects differ.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::position::{ItemError, Position, Shape, item_element};
use super::set::{FieldSet, PathElement};
use crate::metadata::names::quoted;
use crate::patch::shown::go_value;
use crate::schema::{List, Node, Schema, StringFormat};

/// Fields in which a new object differs from an old one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Only the new object has them.
    pub(super) added: FieldSet,
    /// Both have them, with different values.
    pub(super) modified: FieldSet,
    /// Only the old object has them.
    pub(super) removed: FieldSet,
}

/// Change of a single path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Added,
    Modified,
    Removed,
}

impl Comparison {
    fn put(&mut self, element: impl Fn() -> PathElement, change: Change, below: Comparison) {
        for (set, kind, children) in [
            (&mut self.added, Change::Added, below.added),
            (&mut self.modified, Change::Modified, below.modified),
            (&mut self.removed, Change::Removed, below.removed),
        ] {
            if change == kind || !children.is_empty() {
                set.put(element(), change == kind, children);
            }
        }
    }
}

/// Compares two objects by their fields, except `metadata.managedFields`.
pub(super) fn compare(schema: Position<'_>, old: &Value, new: &Value) -> Result<Comparison, ItemError> {
    let (_, comparison) = compare_at(schema, Some(old), Some(new))?;
    Ok(comparison)
}

fn compare_at(
    position: Position<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Result<(Change, Comparison), ItemError> {
    let existence = match (old, new) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        (Some(old), Some(new)) if old == new => return Ok((Change::None, Comparison::default())),
        _ => Change::None,
    };
    let leaf = if existence == Change::None { Change::Modified } else { existence };
    let old_shape = position.shape(old.or(new));
    let new_shape = position.shape(new.or(old));
    match (old_shape, new_shape) {
        (Shape::Leaf, Shape::Leaf) => Ok((leaf, Comparison::default())),
        // A deduced scalar became a map, or the reverse.
        (Shape::Leaf, _) => {
            Ok((Change::Modified, compare_fields(position, None, new.and_then(Value::as_object))?))
        }
        (_, Shape::Leaf) => {
            Ok((Change::Modified, compare_fields(position, old.and_then(Value::as_object), None)?))
        }
        (Shape::Items(list), _) => {
            let (old, new) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
            if old.is_none_or(Vec::is_empty) && new.is_none_or(Vec::is_empty) {
                return Ok((leaf, Comparison::default()));
            }
            Ok((existence, compare_items(list, old, new)?))
        }
        (Shape::Fields, _) => {
            let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            if old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty) {
                return Ok((leaf, Comparison::default()));
            }
            Ok((existence, compare_fields(position, old, new)?))
        }
    }
}

fn compare_fields(
    position: Position<'_>,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
) -> Result<Comparison, ItemError> {
    let mut comparison = Comparison::default();
    // A field that always exists is present only if the object is.
    let (had, has) = (old.is_some(), new.is_some());
    let mut old = old.into_iter().flatten().peekable();
    let mut new = new.into_iter().flatten().peekable();
    loop {
        // Both maps are sorted, so take the smaller of the two next names.
        let order = match (old.peek(), new.peek()) {
            (None, None) => return Ok(comparison),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((new, _))) => old.cmp(new),
        };
        let before = if order == Ordering::Greater { None } else { old.next() };
        let after = if order == Ordering::Less { None } else { new.next() };
        let Some((name, _)) = before.or(after) else { return Ok(comparison) };
        let (before, after) = (before.map(|(_, value)| value), after.map(|(_, value)| value));
        if before == after {
            continue;
        }
        let field = position.field(name);
        let (change, below) = compare_at(
            field.position,
            before.or(field.always.filter(|_| had)),
            after.or(field.always.filter(|_| has)),
        )?;
        comparison.put(|| PathElement::Field(name.as_str().into()), change, below);
    }
}

fn compare_items(
    list: &List,
    old: Option<&Vec<Value>>,
    new: Option<&Vec<Value>>,
) -> Result<Comparison, ItemError> {
    let mut items: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old.into_iter().flatten() {
        items.entry(item_element(list, item)?).or_default().0.push(item);
    }
    for item in new.into_iter().flatten() {
        items.entry(item_element(list, item)?).or_default().1.push(item);
    }
    let position = Position::Known(&list.items);
    let mut comparison = Comparison::default();
    for (element, (old, new)) in items {
        // Duplicates form a single unit, which appears and disappears with the second item of the same key.
        let (change, below) = match (old.as_slice(), new.as_slice()) {
            ([] | [_], [] | [_]) => compare_at(position, old.first().copied(), new.first().copied())?,
            ([_, _, ..], [_, _, ..]) => {
                (if old == new { Change::None } else { Change::Modified }, Comparison::default())
            }
            (_, []) => (Change::Removed, Comparison::default()),
            ([], _) => (Change::Added, Comparison::default()),
            (_, [item]) => {
                let (_, below) = compare_at(position, None, Some(item))?;
                comparison.put(|| element.clone(), Change::Added, Comparison::default());
                (Change::Removed, below)
            }
            ([item], _) => {
                let (_, below) = compare_at(position, Some(item), None)?;
                comparison.put(|| element.clone(), Change::Removed, Comparison::default());
                (Change::Added, below)
            }
        };
        comparison.put(|| element.clone(), change, below);
    }
    Ok(comparison)
}

/// Returns the fields of an object, which a manager that applies it owns.
pub(super) fn field_set(position: Position<'_>, value: &Value) -> Result<FieldSet, ItemError> {
    field_set_at(position, value).map(|(_, fields)| fields)
}

/// Returns whether the position itself is owned, and the fields owned below it.
fn field_set_at(position: Position<'_>, value: &Value) -> Result<(bool, FieldSet), ItemError> {
    let mut set = FieldSet::default();
    match (position.shape(Some(value)), value) {
        (Shape::Fields, Value::Object(fields)) => {
            for (name, value) in fields {
                let field = position.field(name);
                let (owned, below) = field_set_at(field.position, value)?;
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                set.put(PathElement::Field(name.as_str().into()), owned || empty || !field.named, below);
            }
            Ok((false, set))
        }
        (Shape::Items(list), Value::Array(items)) => {
            let elements: Vec<PathElement> =
                items.iter().map(|item| item_element(list, item)).collect::<Result<_, _>>()?;
            let mut counts: BTreeMap<&PathElement, usize> = BTreeMap::new();
            for element in &elements {
                *counts.entry(element).or_default() += 1;
            }
            for (element, item) in elements.iter().zip(items) {
                let below = if counts.get(element) == Some(&1) {
                    field_set_at(Position::Known(&list.items), item)?.1
                } else {
                    FieldSet::default()
                };
                set.put(element.clone(), true, below);
            }
            Ok((false, set))
        }
        (Shape::Leaf, _) => Ok((true, set)),
        _ => Ok((false, set)),
    }
}

/// Returns the set together with the object fields on the way to its paths. Such fields are not tracked, but are removed with the
/// last path below them.
pub(super) fn with_named_parents(position: Position<'_>, set: &FieldSet) -> FieldSet {
    let mut whole = set.clone();
    add_named_parents(position, &mut whole);
    whole
}

fn add_named_parents(position: Position<'_>, set: &mut FieldSet) {
    for (element, entry) in set.entries_mut() {
        let below = match element {
            PathElement::Field(name) => {
                let field = position.field(name);
                entry.member |= field.named && !entry.children.is_empty();
                field.position
            }
            _ => match position {
                Position::Known(Schema { node: Node::List(list), .. }) => Position::Known(&list.items),
                _ => Position::Deduced,
            },
        };
        add_named_parents(below, &mut entry.children);
    }
}

/// Returns the errors of an applied configuration, in upstream's wording.
pub(super) fn validate(position: Position<'_>, value: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    validate_at(position, value, &mut String::new(), &mut errors);
    errors
}

fn validate_at(position: Position<'_>, value: &Value, path: &mut String, errors: &mut Vec<String>) {
    let Position::Known(schema) = position else { return };
    if value.is_null() {
        return;
    }
    if let Some(expected) = mismatch(schema, value) {
        errors.push(format!("{path}: expected {expected}"));
        return;
    }
    let length = path.len();
    match (&schema.node, value) {
        (Node::Object(_) | Node::Map(_), Value::Object(fields)) => {
            for (name, value) in fields {
                path.push('.');
                path.push_str(name);
                if position.declares(name) {
                    validate_at(inner(position, name), value, path, errors);
                } else {
                    errors.push(format!("{path}: field not declared in schema"));
                }
                path.truncate(length);
            }
        }
        (Node::List(list), Value::Array(items)) => {
            let mut seen: BTreeSet<PathElement> = BTreeSet::new();
            let keyed = matches!(position.shape(Some(value)), Shape::Items(_));
            for (index, item) in items.iter().enumerate() {
                let step = if keyed {
                    match item_element(list, item) {
                        Ok(element) => {
                            let step = element.to_string();
                            if !seen.insert(element) {
                                errors.push(format!("{path}: duplicate entries for key {step}"));
                            }
                            step
                        }
                        Err(error) => {
                            errors.push(format!("{path}: element {index}: {error}"));
                            return;
                        }
                    }
                } else {
                    format!("[{index}]")
                };
                path.push_str(&step);
                validate_at(Position::Known(&list.items), item, path, errors);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Returns the schema position of a field, even if its parent owns it as a unit.
fn inner<'a>(position: Position<'a>, name: &str) -> Position<'a> {
    if let Position::Known(schema) = position
        && !schema.embedded_resource
        && let Some(field) = schema.field(name)
    {
        return Position::Known(field);
    }
    position.field(name).position
}

/// Returns the expected type if a value has another one.
fn mismatch(schema: &Schema, value: &Value) -> Option<String> {
    let shown = || format!("&{{{}}}", go_value(value));
    let scalar = !value.is_object() && !value.is_array();
    match &schema.node {
        Node::Object(_) | Node::Map(_) if !value.is_object() => Some(format!("map, got {}", shown())),
        Node::List(_) if !value.is_array() => Some(format!("list, got {}", shown())),
        Node::String(StringFormat::DateTime | StringFormat::MicroTime)
        | Node::IntOrString
        | Node::Quantity
            if !scalar =>
        {
            Some(format!("any scalar, got {}", shown()))
        }
        Node::String(
            StringFormat::Plain | StringFormat::Byte | StringFormat::Duration | StringFormat::Other(_),
        ) if !value.is_string() => {
            Some(format!("string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value)))
        }
        Node::Integer(_) | Node::Number if !value.is_number() => {
            Some(format!("numeric (int or float), got {}", go_kind(value)))
        }
        Node::Boolean if !value.is_boolean() => Some(format!("boolean, got {}", shown())),
        _ => None,
    }
}

/// Formats a value like Go's `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{}:{}", quoted(name), go_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        other => go_value(other),
    }
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
