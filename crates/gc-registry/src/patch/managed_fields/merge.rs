//! Merges an applied configuration into an object, and removes fields from an object.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::position::{ItemError, Position, Shape, item_element};
use super::set::{FieldSet, PathElement};
use crate::schema::List;

/// Merges a configuration into the live object.
pub(super) fn merge(position: Position<'_>, live: &Value, applied: &Value) -> Result<Value, ItemError> {
    match (position.shape(Some(applied)), live, applied) {
        (Shape::Fields, Value::Object(live), Value::Object(applied)) => {
            let mut merged = live.clone();
            for (name, new) in applied {
                let value = match live.get(name) {
                    Some(old) => merge(position.field(name).position, old, new)?,
                    None => new.clone(),
                };
                merged.insert(name.clone(), value);
            }
            Ok(Value::Object(merged))
        }
        (Shape::Items(list), Value::Array(live), Value::Array(applied)) => {
            merge_items(list, live, applied).map(Value::Array)
        }
        // Applying null to a part with individually owned fields changes nothing.
        (Shape::Fields | Shape::Items(_), Value::Object(_) | Value::Array(_), Value::Null) => {
            Ok(live.clone())
        }
        _ => Ok(applied.clone()),
    }
}

/// Merges lists item by item. Items of the configuration are in its order; items that only the object has keep their position
/// relative to items that both have, and precede new ones.
fn merge_items(list: &List, live: &[Value], applied: &[Value]) -> Result<Vec<Value>, ItemError> {
    let elements = |items: &[Value]| -> Result<Vec<PathElement>, ItemError> {
        items.iter().map(|item| item_element(list, item)).collect()
    };
    let (live_elements, applied_elements) = (elements(live)?, elements(applied)?);
    // An item that occurs more than once in the object is replaced, not merged.
    let mut live_items: BTreeMap<&PathElement, Option<&Value>> = BTreeMap::new();
    for (element, item) in live_elements.iter().zip(live) {
        live_items.entry(element).and_modify(|known| *known = None).or_insert(Some(item));
    }
    let in_applied: BTreeMap<&PathElement, usize> =
        applied_elements.iter().enumerate().map(|(index, element)| (element, index)).collect();

    let mut merged = Vec::with_capacity(live.len() + applied.len());
    let mut cursor = live_elements.iter().zip(live).peekable();
    for (index, (element, item)) in applied_elements.iter().zip(applied).enumerate() {
        // The next item that both lists have; the object's items before it come first.
        let meeting = applied_elements[index..].iter().find(|element| live_items.contains_key(element));
        while let Some((next, old)) = cursor.next_if(|(next, _)| Some(*next) != meeting) {
            if !in_applied.contains_key(next) {
                merged.push(old.clone());
            }
        }
        merged.push(match live_items.get(element) {
            Some(Some(old)) => merge(Position::Known(&list.items), old, item)?,
            _ => item.clone(),
        });
        if meeting == Some(element) {
            cursor.next_if(|(next, _)| *next == element);
        }
    }
    merged
        .extend(cursor.filter(|(element, _)| !in_applied.contains_key(element)).map(|(_, old)| old.clone()));
    Ok(merged)
}

/// Removes the paths of a set from a value.
pub(super) fn remove(position: Position<'_>, value: &mut Value, set: &FieldSet) {
    if set.is_empty() {
        return;
    }
    match (position.shape(Some(value)), value) {
        (Shape::Fields, Value::Object(fields)) => remove_fields(position, fields, set),
        (Shape::Items(list), Value::Array(items)) => items.retain_mut(|item| {
            let Ok(element) = item_element(list, item) else { return true };
            let Some(entry) = set.get(&element) else { return true };
            if !entry.member {
                remove(Position::Known(&list.items), item, &entry.children);
            }
            !entry.member
        }),
        _ => {}
    }
}

fn remove_fields(position: Position<'_>, fields: &mut Map<String, Value>, set: &FieldSet) {
    for (element, entry) in set.entries() {
        let PathElement::Field(name) = element else { continue };
        if entry.member {
            fields.remove(&**name);
        } else if let Some(value) = fields.get_mut(&**name) {
            remove(position.field(name).position, value, &entry.children);
        }
    }
}
