//! Strategic merge patch: a merge patch that uses the schema, so that lists can be merged by key, with directives (`$patch`,
//! `$retainKeys`, `$deleteFromPrimitiveList/…`, `$setElementOrder/…`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::merge::drop_nulls;
use super::{check_depth, unprocessable};
use crate::error::ApiError;
use crate::schema::{List, Node, PatchStrategy, Schema, json_type};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";

type Fields = Map<String, Value>;

/// Reason why a patch cannot be applied.
#[derive(Debug, thiserror::Error, PartialEq)]
enum StrategicError {
    #[error("invalid patch format of primitive list")]
    PrimitiveListFormat,
    #[error("invalid patch format of retainKeys")]
    RetainKeysFormat,
    #[error("invalid patch format of setElementOrder list")]
    SetElementOrderFormat,
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("map: {} does not contain declared merge key: {key}", go_text(item))]
    NoMergeKey { item: Value, key: String },
    #[error("unknown patch type: {} in map: {}", go_text(directive), go_text(item))]
    UnknownDirective { directive: Value, item: Value },
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirectiveInList,
    #[error("cannot merge lists without merge key for struct")]
    ListWithoutMergeKey,
    #[error("list element types are not identical: [{} {}]", go_list(.0), go_list(.1))]
    MixedElements(Vec<Value>, Vec<Value>),
    #[error("no elements in any of the given slices")]
    NoElements,
    #[error("expected a {expected}, but received a {received}")]
    WrongType { expected: &'static str, received: &'static str },
    #[error("value for key {0} is not a map")]
    ItemIsNoMap(usize),
    #[error("unable to find api field in struct {type_name} for the json field {field:?}")]
    UnknownField { type_name: String, field: String },
    #[error("merging an object in json but data type is not struct, instead is: {0}")]
    NotAStruct(&'static str),
    #[error("expected slice or array type, but got: struct")]
    NotAList,
    #[error(
        "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
        go_list(patch),
        go_list(order)
    )]
    OrderMismatch { patch: Vec<Value>, order: Vec<Value> },
}

use StrategicError as Error;

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::PrimitiveListFormat | Error::RetainKeysFormat | Error::SetElementOrderFormat => {
                Self::bad_request(error.to_string())
            }
            Error::ListOfLists => unprocessable(),
            // Upstream returns these as plain errors, which become a 500 without a reason.
            other => Self::new(500, "", other.to_string()),
        }
    }
}

/// Applies a strategic merge patch to an object of the schema. After an error, the object is unchanged.
///
/// Fails with 400 for a patch that is not an object or whose directives are malformed, with 422 for lists of lists, and with 500
/// for anything else that cannot be merged, such as a list item without its merge key.
pub fn strategic_merge_patch(schema: &Schema, document: &mut Value, patch: &Value) -> Result<(), ApiError> {
    check_depth(patch)?;
    // Go decodes null into the empty patch.
    let nothing = Value::Object(Fields::new());
    let patch = if patch.is_null() { &nothing } else { patch };
    let Value::Object(patch) = patch else {
        return Err(ApiError::bad_request(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_type(patch)
        )));
    };
    let original = document.as_object().cloned().unwrap_or_default();
    *document = Value::Object(merge_object(original, patch.clone(), schema)?);
    Ok(())
}

fn merge_object(mut original: Fields, mut patch: Fields, schema: &Schema) -> Result<Fields, Error> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some("delete") => return Ok(Fields::new()),
        _ => {}
    }
    if let Some(directive) = patch.get(DIRECTIVE) {
        return Err(Error::UnknownDirective { directive: directive.clone(), item: Value::Object(patch) });
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, schema)?;
    for (name, value) in patch {
        if let Some(rest) = name.strip_prefix(DELETE_FROM_PRIMITIVE_LIST) {
            let field = rest.strip_prefix('/').ok_or(Error::PrimitiveListFormat)?;
            delete_from_list(&mut original, field, value, schema)?;
        } else {
            merge_field(&mut original, name, value, schema)?;
        }
    }
    Ok(original)
}

fn merge_field(original: &mut Fields, name: String, value: Value, schema: &Schema) -> Result<(), Error> {
    if value.is_null() {
        original.remove(&name);
        return Ok(());
    }
    let merged = match (original.remove(&name), value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            let (inner, strategy) = lookup(schema, &name)?;
            Some(Value::Object(if strategy.replace { new } else { merge_object(old, new, inner)? }))
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            let (list, strategy) = lookup_list(schema, &name)?;
            Some(Value::Array(if strategy.merge { merge_list(old, new, list, strategy)? } else { new }))
        }
        (old, mut new) => {
            let same_type = old.is_some_and(|old| go_type(&old) == go_type(&new));
            if !same_type {
                drop_nulls(&mut new);
            }
            without_directives(new)
        }
    };
    if let Some(merged) = merged {
        original.insert(name, merged);
    }
    Ok(())
}

/// Applies `$deleteFromPrimitiveList/field`.
fn delete_from_list(original: &mut Fields, field: &str, value: Value, schema: &Schema) -> Result<(), Error> {
    if value.is_null() {
        original.remove(field);
        return Ok(());
    }
    let (Some(Value::Array(old)), Value::Array(gone)) = (original.get_mut(field), value) else {
        return Ok(());
    };
    if old.is_empty() && gone.is_empty() {
        return Ok(());
    }
    let (list, strategy) = lookup_list(schema, field)?;
    if check_elements(old, &gone)? {
        *old = merge_list(std::mem::take(old), gone, list, strategy)?;
    } else {
        let gone: BTreeSet<String> = gone.iter().map(identity).collect();
        old.retain(|item| !gone.contains(&identity(item)));
    }
    Ok(())
}

/// Applies `$retainKeys`: removes fields that it does not name; fields that the patch sets must be named.
fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Result<(), Error> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(retained) = directive else { return Err(Error::RetainKeysFormat) };
    let retained: BTreeSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let named = |name: &str| retained.contains(name);
    let exempt =
        |name: &str| name.starts_with(DELETE_FROM_PRIMITIVE_LIST) || name.starts_with(SET_ELEMENT_ORDER);
    if patch.iter().any(|(name, value)| !value.is_null() && !exempt(name) && !named(name)) {
        return Err(Error::RetainKeysFormat);
    }
    original.retain(|name, _| named(name));
    Ok(())
}

/// Merges the lists that have a `$setElementOrder/…`, and removes both from the patch. The order is that of the directive, followed
/// by that of the object.
fn merge_ordered_lists(original: &mut Fields, patch: &mut Fields, schema: &Schema) -> Result<(), Error> {
    let directives: Vec<String> =
        patch.keys().filter(|name| name.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let order = as_list(patch.remove(&directive).unwrap_or_default())?;
        let field = directive
            .strip_prefix(SET_ELEMENT_ORDER)
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or(Error::SetElementOrderFormat)?;
        let old = original.get(field).cloned().map(as_list).transpose()?;
        let new = patch.get(field).cloned().map(as_list).transpose()?;
        let (list, strategy) = lookup_list(schema, field)?;
        let key = strategy.merge_key.as_deref();
        check_order(new.as_deref().unwrap_or_default(), &order, key)?;
        let before = old.clone().unwrap_or_default();
        let merged = match (old, new) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
            (Some(old), Some(new)) if strategy.merge => merge_list(old, new, list, strategy)?,
            (Some(_), Some(new)) => new,
        };
        let objects = check_elements(&before, &merged)?;
        original.insert(field.to_owned(), Value::Array(in_order(merged, &order, &before, key, objects)?));
        patch.remove(field);
    }
    Ok(())
}

/// Refuses a patch with items that are missing in the order list, or in another order. Deleted items do not count.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Error> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        loop {
            let Some(next) = rest.next() else {
                return Err(Error::OrderMismatch { patch: patch.to_vec(), order: order.to_vec() });
            };
            if merge_value(item, key)? == merge_value(next, key)? {
                break;
            }
        }
    }
    Ok(())
}

/// Returns the identity of an item: the item itself, or the value of its merge key.
fn merge_value<'a>(item: &'a Value, key: Option<&str>) -> Result<&'a Value, Error> {
    match (key, item) {
        (None, item) => Ok(item),
        (Some(key), Value::Object(fields)) => {
            fields.get(key).ok_or_else(|| Error::NoMergeKey { item: item.clone(), key: key.to_owned() })
        }
        (Some(_), other) => Err(Error::WrongType {
            expected: "map[string]interface {}",
            received: go_type(other).unwrap_or("nil"),
        }),
    }
}

/// Merges lists with the merge strategy.
fn merge_list(
    old: Vec<Value>,
    new: Vec<Value>,
    list: &List,
    strategy: &PatchStrategy,
) -> Result<Vec<Value>, Error> {
    if old.is_empty() && new.is_empty() {
        return Ok(old);
    }
    if !check_elements(&old, &new)? {
        let mut seen = BTreeSet::new();
        let merged = old.iter().chain(&new).filter(|item| seen.insert(identity(item))).cloned().collect();
        return in_order(merged, &new, &old, None, false);
    }
    let key = strategy.merge_key.as_deref().ok_or(Error::ListWithoutMergeKey)?;
    let (old, new) = apply_item_directives(old, new, key)?;
    let mut merged = old.clone();
    let mut places = first_places(merged.iter().map(|item| item.get(key)));
    for item in &new {
        let value = identity(merge_value(item, Some(key))?);
        match (places.get(&value).copied(), item) {
            (Some(index), Value::Object(item)) => {
                let Value::Object(before) = std::mem::take(&mut merged[index]) else {
                    return Err(Error::ItemIsNoMap(index));
                };
                merged[index] = Value::Object(merge_object(before, item.clone(), &list.items)?);
            }
            _ => {
                places.insert(value, merged.len());
                merged.push(item.clone());
            }
        }
    }
    // Merged items kept their keys, so the lists from before merging determine the order.
    in_order(merged, &new, &old, Some(key), true)
}

/// Removes the items with a `$patch` directive from a patch, and applies them. With `replace`, the rest of the patch is the
/// complete new list.
fn apply_item_directives(
    mut old: Vec<Value>,
    new: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let mut replace = false;
    let mut deleted = BTreeSet::new();
    let mut rest = Vec::with_capacity(new.len());
    for item in new {
        let Some(directive) = item.get(DIRECTIVE) else {
            rest.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                deleted.insert(identity(merge_value(&item, Some(key))?));
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(Error::MergeDirectiveInList),
            _ => return Err(Error::UnknownDirective { directive: directive.clone(), item }),
        }
    }
    old.retain(|item| !item.get(key).is_some_and(|value| deleted.contains(&identity(value))));
    Ok(if replace { (rest, Vec::new()) } else { (old, rest) })
}

/// Returns a text that is the same exactly for equal values: objects are written in the order of their keys. Lists are indexed by
/// it, so merging takes time proportional to their length.
fn identity(value: &Value) -> String {
    value.to_string()
}

/// Returns the first index of each value.
fn first_places<'a>(values: impl Iterator<Item = Option<&'a Value>>) -> BTreeMap<String, usize> {
    let mut places = BTreeMap::new();
    for (index, value) in values.enumerate() {
        if let Some(value) = value {
            places.entry(identity(value)).or_insert(index);
        }
    }
    places
}

/// Orders a merged list: items known to the patch as in `patch_order`, the others as in `old_order`. Of the next item of each, the
/// object's comes first only if the object had them in that order.
fn in_order(
    merged: Vec<Value>,
    patch_order: &[Value],
    old_order: &[Value],
    key: Option<&str>,
    objects: bool,
) -> Result<Vec<Value>, Error> {
    let key = if objects { key } else { None };
    let places = |order: &[Value]| -> Result<BTreeMap<String, usize>, Error> {
        let values: Vec<&Value> =
            order.iter().map(|item| merge_value(item, key)).collect::<Result<_, Error>>()?;
        Ok(first_places(values.into_iter().map(Some)))
    };
    let (patch_order, old_order) = (places(patch_order)?, places(old_order)?);
    let mut from_patch = Vec::new();
    let mut from_old = Vec::new();
    for item in merged {
        let value = identity(merge_value(&item, key)?);
        let in_old = old_order.get(&value).copied();
        match patch_order.get(&value).copied() {
            Some(index) => from_patch.push((index, in_old, item)),
            None => from_old.push((in_old, item)),
        }
    }
    from_patch.sort_by_key(|(index, ..)| *index);
    from_old.sort_by_key(|(index, _)| *index);
    let mut ordered = Vec::with_capacity(from_patch.len() + from_old.len());
    let mut from_old = from_old.into_iter().peekable();
    for (_, patch_index, item) in from_patch {
        while let Some((_, before)) =
            from_old.next_if(|(index, _)| matches!((*index, patch_index), (Some(a), Some(b)) if a < b))
        {
            ordered.push(before);
        }
        ordered.push(item);
    }
    ordered.extend(from_old.map(|(_, item)| item));
    Ok(ordered)
}

/// Checks that the elements of both lists have the same type; returns whether they are objects.
fn check_elements(old: &[Value], new: &[Value]) -> Result<bool, Error> {
    let mut elements = old.iter().chain(new);
    let first = elements.next().ok_or(Error::NoElements)?;
    if first.is_array() {
        return Err(Error::ListOfLists);
    }
    if elements.any(|element| go_type(element) != go_type(first)) {
        return Err(Error::MixedElements(old.to_vec(), new.to_vec()));
    }
    Ok(first.is_object())
}

fn as_list(value: Value) -> Result<Vec<Value>, Error> {
    match value {
        Value::Array(items) => Ok(items),
        other => {
            Err(Error::WrongType { expected: "[]interface {}", received: go_type(&other).unwrap_or("nil") })
        }
    }
}

/// Returns a new value without the parts that are directives; `None` if the value itself is one.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(
            fields
                .into_iter()
                .filter_map(|(name, value)| without_directives(value).map(|value| (name, value)))
                .collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

/// Returns schema and strategy of a field.
fn lookup<'a>(schema: &'a Schema, name: &str) -> Result<(&'a Schema, &'a PatchStrategy), Error> {
    static DEFAULT: PatchStrategy =
        PatchStrategy { merge: false, replace: false, retain_keys: false, merge_key: None };
    match &schema.node {
        Node::Map(map) => Ok((&map.values, &DEFAULT)),
        Node::Object(object) => match object.properties.get(name) {
            Some(property) => Ok((&property.schema, &property.patch)),
            None => Err(unknown_field(schema, name)),
        },
        Node::Any => Err(unknown_field(schema, name)),
        Node::List(_) => Err(Error::NotAStruct("slice")),
        Node::Boolean => Err(Error::NotAStruct("bool")),
        Node::Integer(_) | Node::Number => Err(Error::NotAStruct("int")),
        Node::String(_) | Node::IntOrString | Node::Quantity => Err(Error::NotAStruct("string")),
    }
}

fn unknown_field(schema: &Schema, name: &str) -> Error {
    let type_name = schema.name.as_deref().unwrap_or_default();
    let type_name = type_name.rsplit('.').next().unwrap_or_default();
    Error::UnknownField { type_name: type_name.to_owned(), field: name.to_owned() }
}

fn lookup_list<'a>(schema: &'a Schema, name: &str) -> Result<(&'a List, &'a PatchStrategy), Error> {
    match lookup(schema, name)? {
        (Schema { node: Node::List(list), .. }, strategy) => Ok((list, strategy)),
        _ => Err(Error::NotAList),
    }
}

/// Returns the Go type that a value is decoded into; `None` for `null`.
fn go_type(value: &Value) -> Option<&'static str> {
    match value {
        Value::Null => None,
        Value::Bool(_) => Some("bool"),
        Value::Number(number) if number.is_i64() => Some("int64"),
        Value::Number(_) => Some("float64"),
        Value::String(_) => Some("string"),
        Value::Array(_) => Some("[]interface {}"),
        Value::Object(_) => Some("map[string]interface {}"),
    }
}

/// Formats a value like Go's `%v`.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => go_list(items),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", go_text(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

fn go_list(items: &[Value]) -> String {
    let items: Vec<String> = items.iter().map(go_text).collect();
    format!("[{}]", items.join(" "))
}
