//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

use super::check_depth;
use crate::error::ApiError;
use crate::schema::json_type;

/// Merges a patch into a document. Fails with a 400 if the patch is not an object.
///
/// As in upstream's implementation, `null` inside objects that the patch adds is dropped, even inside arrays; the RFC does not
/// change arrays.
pub fn merge_patch(document: &mut Value, patch: &Value) -> Result<(), ApiError> {
    check_depth(patch)?;
    match patch {
        Value::Object(patch) => merge_object(document, patch),
        Value::Null => return Err(ApiError::bad_request("Invalid JSON Patch")),
        other => {
            return Err(ApiError::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                json_type(other)
            )));
        }
    }
    Ok(())
}

fn merge_object(document: &mut Value, patch: &Map<String, Value>) {
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    let Value::Object(fields) = document else { return };
    for (name, new) in patch {
        match (new, fields.get_mut(name)) {
            (Value::Null, _) => {
                fields.remove(name);
            }
            (Value::Object(inner), Some(old)) if old.is_object() => merge_object(old, inner),
            _ => {
                let mut new = new.clone();
                drop_nulls(&mut new);
                fields.insert(name.clone(), new);
            }
        }
    }
}

/// Removes all fields that are `null`. Elements of arrays stay.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// The examples of RFC 7386, appendix A, that patch objects with objects; and cases with arrays.
    #[test]
    fn examples() {
        for (document, patch, want) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({"a": "text"}), json!({"a": {"b": {"c": null, "d": 1}}}), json!({"a": {"b": {"d": 1}}})),
            (json!({}), json!({"a": [{"b": null, "c": 1}, null]}), json!({"a": [{"c": 1}, null]})),
            (json!({"a": {"b": 1}}), json!({"a": {}}), json!({"a": {"b": 1}})),
        ] {
            let mut got = document.clone();
            merge_patch(&mut got, &patch).unwrap();
            assert_eq!(got, want, "{document} with {patch}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for (patch, message) in [
            (json!(null), "Invalid JSON Patch"),
            (
                json!([1]),
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
        ] {
            let mut document = json!({"a": 1});
            assert_eq!(merge_patch(&mut document, &patch), Err(ApiError::bad_request(message)));
            assert_eq!(document, json!({"a": 1}));
        }
    }

    /// Generates documents of objects and scalars. Patches are the same, with nulls.
    fn document(nulls: bool) -> impl Strategy<Value = Value> {
        let leaf = if nulls {
            prop_oneof![Just(Value::Null), (0..3i64).prop_map(Value::from)].boxed()
        } else {
            (0..3i64).prop_map(Value::from).boxed()
        };
        let object = leaf.prop_recursive(3, 24, 4, |inner| {
            proptest::collection::btree_map("[a-c]", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect()))
        });
        proptest::collection::btree_map("[a-c]", object, 0..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
    }

    /// Returns the patch that changes one document into the other.
    fn diff(from: &Value, to: &Value) -> Value {
        let (Value::Object(old), Value::Object(new)) = (from, to) else { return to.clone() };
        let gone = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null));
        let changed =
            new.iter().filter(|(name, value)| old.get(*name) != Some(value)).map(|(name, value)| {
                (name.clone(), old.get(name).map_or_else(|| value.clone(), |before| diff(before, value)))
            });
        Value::Object(gone.chain(changed).collect())
    }

    proptest! {
        #[test]
        fn patching_twice_is_patching_once(start in document(false), patch in document(true)) {
            let mut once = start;
            merge_patch(&mut once, &patch).unwrap();
            let mut twice = once.clone();
            merge_patch(&mut twice, &patch).unwrap();
            prop_assert_eq!(once, twice);
        }

        #[test]
        fn a_difference_leads_to_the_target(from in document(false), to in document(false)) {
            let mut got = from.clone();
            merge_patch(&mut got, &diff(&from, &to)).unwrap();
            prop_assert_eq!(got, to);
        }
    }
}
