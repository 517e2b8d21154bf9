//! Reads and fills untyped objects as a typed server would: a field of the wrong type counts as absent (the kind's schema has
//! already refused it), and nothing here panics.

use serde_json::{Map, Value};

/// The members of an object.
pub(crate) type Members = Map<String, Value>;

/// Returns the value at a path of object members.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// Returns the text at a path; empty if absent.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the integer at a path.
pub(crate) fn integer(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// Returns the boolean at a path.
pub(crate) fn flag(value: &Value, path: &[&str]) -> Option<bool> {
    at(value, path).and_then(Value::as_bool)
}

/// Returns the items at a path; empty if absent.
pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the members at a path.
pub(crate) fn members<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Members> {
    at(value, path).and_then(Value::as_object)
}

/// Reports whether a member is absent, null or the empty text, all of which a typed server reads as an unset text.
pub(crate) fn is_unset(members: &Members, key: &str) -> bool {
    match members.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// Sets a member that is absent, null or the empty text.
pub(crate) fn fill(members: &mut Members, key: &str, value: impl Into<Value>) {
    if is_unset(members, key) {
        members.insert(key.into(), value.into());
    }
}

/// Sets a member that is absent or null; the empty text is a value (a pointer upstream).
pub(crate) fn fill_absent(members: &mut Members, key: &str, value: impl Into<Value>) {
    if members.get(key).is_none_or(Value::is_null) {
        members.insert(key.into(), value.into());
    }
}

/// Sets a number that is absent or zero (not a pointer upstream).
pub(crate) fn fill_zero(members: &mut Members, key: &str, value: i64) {
    if members.get(key).is_none_or(|value| value.is_null() || value.as_i64() == Some(0)) {
        members.insert(key.into(), value.into());
    }
}

/// Returns the object member `key`, which is created if absent; `None` if it is not an object.
pub(crate) fn child<'a>(members: &'a mut Members, key: &str) -> Option<&'a mut Members> {
    let value = members.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Members::new());
    }
    value.as_object_mut()
}

/// Returns the object member `key`, if it exists.
pub(crate) fn existing<'a>(members: &'a mut Members, key: &str) -> Option<&'a mut Members> {
    members.get_mut(key)?.as_object_mut()
}

/// Returns the object items of the list member `key`.
pub(crate) fn items<'a>(members: &'a mut Members, key: &str) -> impl Iterator<Item = &'a mut Members> {
    members.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Copies the member `key` from `from` to `to`, or removes it there if `from` has none.
pub(crate) fn keep(to: &mut Value, from: &Value, key: &str) {
    let Some(members) = to.as_object_mut() else { return };
    match from.get(key) {
        Some(value) => {
            members.insert(key.into(), value.clone());
        }
        None => {
            members.remove(key);
        }
    }
}

/// Sets the value at a path, creating the objects on the way; does nothing if something else is in the way.
pub(crate) fn put(object: &mut Value, path: &[&str], value: Value) {
    let Some((last, way)) = path.split_last() else { return };
    let Some(mut members) = object.as_object_mut() else { return };
    for key in way {
        match child(members, key) {
            Some(next) => members = next,
            None => return,
        }
    }
    members.insert((*last).into(), value);
}

/// Removes the value at a path.
pub(crate) fn remove(object: &mut Value, path: &[&str]) {
    let Some((last, way)) = path.split_last() else { return };
    let mut here = object;
    for key in way {
        match here.get_mut(*key) {
            Some(next) => here = next,
            None => return,
        }
    }
    if let Some(members) = here.as_object_mut() {
        members.remove(*last);
    }
}

/// Copies a metadata member from the stored object.
pub(crate) fn keep_metadata(new: &mut Value, old: &Value, key: &str) {
    let path = ["metadata", key];
    // Not `at`: a stored null must stay, so that an update without changes writes nothing.
    match old.get("metadata").and_then(|metadata| metadata.get(key)) {
        Some(value) => put(new, &path, value.clone()),
        None => remove(new, &path),
    }
}

/// Copies the metadata that most subresources do not change.
pub(crate) fn keep_own_metadata(new: &mut Value, old: &Value) {
    for key in ["labels", "annotations", "ownerReferences", "finalizers"] {
        keep_metadata(new, old, key);
    }
}
