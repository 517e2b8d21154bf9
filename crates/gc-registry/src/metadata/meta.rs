//! Object metadata inside a document: reads, writes and normalizes it for storage.

use serde_json::{Map, Value};

/// Returns the `metadata` of a document; an empty map if there is none.
pub(crate) fn metadata(object: &Value) -> &Map<String, Value> {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    object.get("metadata").and_then(Value::as_object).unwrap_or(&EMPTY)
}

/// Returns the mutable `metadata`, which is created if missing.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    member_map(object, "metadata")
}

/// Returns a member that is an object, which is created if missing or something else.
pub(crate) fn member_map<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(map) = object else { unreachable!("made an object above") };
    let member = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if !member.is_object() {
        *member = Value::Object(Map::new());
    }
    let Value::Object(member) = member else { unreachable!("made an object above") };
    member
}

/// Returns a text field of the metadata; empty if absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    metadata(object).get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Returns `metadata.name`.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "name")
}

/// Returns `metadata.uid`.
pub(crate) fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// Reports whether `metadata.deletionTimestamp` is set.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// Returns `metadata.deletionGracePeriodSeconds`.
pub(crate) fn grace_period(object: &Value) -> Option<i64> {
    metadata(object).get("deletionGracePeriodSeconds").and_then(Value::as_i64)
}

/// Returns `metadata.generation`; 0 if absent.
pub(crate) fn generation(object: &Value) -> i64 {
    metadata(object).get("generation").and_then(Value::as_i64).unwrap_or_default()
}

/// Returns a list of texts in the metadata.
pub(crate) fn texts<'a>(map: &'a Map<String, Value>, field: &str) -> Vec<&'a str> {
    map.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns `metadata.finalizers`.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    texts(metadata(object), "finalizers")
}

/// Replaces `metadata.finalizers`; an empty list removes the field.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    set_or_remove(metadata_mut(object), "finalizers", finalizers.into());
}

/// Returns `metadata.ownerReferences`.
pub(crate) fn owner_references(object: &Value) -> &[Value] {
    metadata(object).get("ownerReferences").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Inserts a value, or removes the field if the value is empty (null, "", [], {}).
pub(crate) fn set_or_remove(map: &mut Map<String, Value>, field: &str, value: Value) {
    let empty = match &value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    if empty {
        map.remove(field);
    } else {
        map.insert(field.into(), value);
    }
}

/// Formats a time like `metav1.Time`: whole seconds, UTC.
pub(crate) fn time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Normalizes metadata sent by a client for storage: omits empty fields. Numbers in other fields are not changed, because the
/// schema has already checked them.
pub(crate) fn normalize(object: &mut Value) {
    let map = metadata_mut(object);
    map.retain(|field, value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        // An empty list of managed fields requests to forget all managers.
        Value::Array(items) => !items.is_empty() || field == "managedFields",
        Value::Object(items) => !items.is_empty(),
        Value::Number(number) => field != "generation" || number.as_i64() != Some(0),
        Value::Bool(_) => true,
    });
    for field in ["labels", "annotations"] {
        // Go's decoder reads a null in a map of strings as the empty string.
        for (_, value) in map.get_mut(field).and_then(Value::as_object_mut).into_iter().flatten() {
            if value.is_null() {
                *value = Value::String(String::new());
            }
        }
    }
    for reference in map.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(reference) = reference {
            reference.retain(|_, value| !value.is_null());
        }
    }
}

/// Returns a random (version 4) UUID.
pub(crate) fn new_uid(random: u128) -> String {
    let bits = random & !(0xf << 76) & !(0b11 << 62) | 0x4 << 76 | 0b10 << 62;
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Characters of generated names: no vowels, and no digits that look like one.
const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Number of random characters after `generateName`.
const RANDOM_SUFFIX: usize = 5;
/// Maximum length of a `generateName` in the result, so that the name fits into a label's 63 characters.
const MAX_PREFIX: usize = 63 - RANDOM_SUFFIX;

/// Generates a name from `generateName`.
pub(crate) fn generate_name(prefix: &str, mut random: u128) -> String {
    let mut name: String = prefix.chars().take(MAX_PREFIX).collect();
    let letters = NAME_ALPHABET.len() as u128;
    for _ in 0..RANDOM_SUFFIX {
        let index = usize::try_from(random % letters).unwrap_or_default();
        name.push(char::from(NAME_ALPHABET[index]));
        random /= letters;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn uids_are_version_4() {
        assert_eq!(new_uid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(new_uid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn generated_names_keep_58_characters_of_the_prefix() {
        assert_eq!(generate_name("web-", 0), "web-bbbbb");
        assert_eq!(generate_name(&"x".repeat(100), 26), format!("{}9bbbb", "x".repeat(58)));
    }

    #[test]
    fn empty_metadata_is_left_out() {
        let mut object = json!({"metadata": {"name": "a", "labels": {}, "annotations": {"k": null}, "finalizers": [],
            "creationTimestamp": null, "generation": 0}});
        normalize(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "a", "annotations": {"k": ""}}}));
    }
}
