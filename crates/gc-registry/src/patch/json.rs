//! JSON patch (RFC 6902), with the readings that Kubernetes has of it: negative indices count from the end,
//! `null` and an absent field are the same to `test`, and `replace` sets a field that is absent.

use serde_json::{Map, Value};

use super::{check_depth, unprocessable};
use crate::error::ApiError;
use crate::schema::{self, json_type};

/// How many operations a patch may have.
pub const MAX_OPERATIONS: usize = 10_000;

/// How many bytes of JSON the `copy` operations of one patch may add together.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// An operation that cannot be applied. The exact error is not reported to clients.
struct DoesNotApply;

/// Why an operation ends a patch.
enum Failure {
    DoesNotApply,
    /// What a `test` expects is not there.
    FailedTest,
}

impl From<DoesNotApply> for Failure {
    fn from(_: DoesNotApply) -> Self {
        Self::DoesNotApply
    }
}

/// Applies a patch. The document is unspecified after an error.
///
/// 400 if the patch is no list of objects, 413 for more than [`MAX_OPERATIONS`], 422 if an operation is unknown
/// or incomplete, its path is absent, a test fails, more than [`MAX_COPIED_BYTES`] are copied, or the document
/// would be nested more than [`schema::MAX_DEPTH`] levels deep.
pub fn json_patch(document: &mut Value, patch: &Value) -> Result<(), ApiError> {
    check_depth(patch)?;
    // Go decodes null into the empty patch.
    if patch.is_null() {
        return Ok(());
    }
    let operations = decode(patch)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    let mut copied = 0;
    for operation in operations {
        apply(document, operation, &mut copied).map_err(|_| unprocessable())?;
    }
    Ok(())
}

/// Applies the patch that an expression of a policy made: `false` if a test in it failed, and the document is to stay as
/// it was. An error says which operation does not apply, in upstream's words.
pub(crate) fn json_patch_of_policy(document: &mut Value, patch: &Value) -> Result<bool, String> {
    check_depth(patch).map_err(|error| error.message)?;
    let mut copied = 0;
    for operation in decode(patch).map_err(|error| error.message)? {
        match apply(document, operation, &mut copied) {
            Ok(()) => {}
            Err(Failure::FailedTest) => return Ok(false),
            Err(Failure::DoesNotApply) => {
                let text = |name: &str| operation.get(name).and_then(Value::as_str).unwrap_or_default();
                let (kind, path) = (text("op"), text("path"));
                let last = path.rsplit('/').next().unwrap_or_default();
                return Err(match kind {
                    "remove" => format!(
                        "error in remove for path: '{path}': Unable to remove nonexistent key: {last}: missing value"
                    ),
                    _ => format!(
                        "{kind} operation does not apply: doc is missing path: {path:?}: missing value"
                    ),
                });
            }
        }
    }
    Ok(true)
}

/// What operations hold besides what they consist of, in the words of a warning.
pub(crate) fn unknown_members(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().map(Vec::as_slice).unwrap_or_default().iter().enumerate();
    let members = operations.flat_map(|(index, operation)| {
        operation.as_object().into_iter().flat_map(Map::keys).map(move |name| (index, name))
    });
    members
        .filter(|(_, name)| !matches!(name.as_str(), "op" | "path" | "from" | "value"))
        .map(|(index, name)| format!("json patch unknown field \"[{index}].{name}\""))
        .collect()
}

fn decode(patch: &Value) -> Result<Vec<&Map<String, Value>>, ApiError> {
    let Value::Array(operations) = patch else {
        return Err(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
            json_type(patch)
        )));
    };
    operations
        .iter()
        .map(|operation| {
            operation.as_object().ok_or_else(|| match operation {
                // It decodes as an operation without members, which cannot be applied.
                Value::Null => {
                    ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request")
                }
                other => ApiError::bad_request(format!(
                    "error decoding patch: json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
                    json_type(other)
                )),
            })
        })
        .collect()
}

fn apply(document: &mut Value, operation: &Map<String, Value>, copied: &mut usize) -> Result<(), Failure> {
    let member = |name: &str| operation.get(name).and_then(Value::as_str).ok_or(DoesNotApply);
    let value = operation.get("value").unwrap_or(&Value::Null);
    let path = member("path")?;
    match member("op")? {
        "add" => add(document, path, value.clone())?,
        "remove" => drop(remove(document, path)?),
        "replace" => replace(document, path, value.clone())?,
        "move" => {
            let from = member("from")?;
            let moved = remove(document, from)?;
            add(document, path, moved)?;
        }
        "copy" => {
            let source = get(document, member("from")?)?.cloned().unwrap_or(Value::Null);
            *copied += source.to_string().len();
            if *copied > MAX_COPIED_BYTES {
                return Err(Failure::DoesNotApply);
            }
            add(document, path, source)?;
        }
        "test" => {
            let found = if path.is_empty() { Some(&*document) } else { get(document, path)? };
            if found.unwrap_or(&Value::Null) != value {
                return Err(Failure::FailedTest);
            }
        }
        _ => return Err(Failure::DoesNotApply),
    }
    Ok(())
}

/// The keys of a path. What stands before the first `/` is ignored; a path without one is none.
fn keys(path: &str) -> Result<Vec<String>, DoesNotApply> {
    let (_, keys) = path.split_once('/').ok_or(DoesNotApply)?;
    Ok(keys.split('/').map(|key| key.replace("~1", "/").replace("~0", "~")).collect())
}

/// An index, counted from the end where it is negative, below `bound`.
fn index(key: &str, bound: usize) -> Result<usize, DoesNotApply> {
    let number: i64 = key.parse().map_err(|_| DoesNotApply)?;
    let bound = i64::try_from(bound).map_err(|_| DoesNotApply)?;
    let index = if number < 0 { number + bound } else { number };
    if (0..bound).contains(&index) {
        usize::try_from(index).map_err(|_| DoesNotApply)
    } else {
        Err(DoesNotApply)
    }
}

fn step<'a>(container: &'a mut Value, key: &str) -> Result<&'a mut Value, DoesNotApply> {
    match container {
        Value::Object(fields) => fields.get_mut(key).ok_or(DoesNotApply),
        Value::Array(items) => {
            let index = index(key, items.len())?;
            Ok(&mut items[index])
        }
        _ => Err(DoesNotApply),
    }
}

/// The container that a path leads into, and the last key.
fn container<'a>(
    document: &'a mut Value,
    path: &str,
) -> Result<(&'a mut Value, String, usize), DoesNotApply> {
    let mut keys = keys(path)?;
    let depth = keys.len();
    let last = keys.pop().ok_or(DoesNotApply)?;
    let mut at = document;
    for key in &keys {
        at = step(at, key)?;
    }
    Ok((at, last, depth))
}

/// The value at a path; `None` for a field that is absent in an object that is there.
fn get<'a>(document: &'a mut Value, path: &str) -> Result<Option<&'a Value>, DoesNotApply> {
    let (container, key, _) = container(document, path)?;
    match container {
        Value::Object(fields) => Ok(fields.get(&key)),
        array => step(array, &key).map(|item| Some(&*item)),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), DoesNotApply> {
    let (container, key, depth) = container(document, path)?;
    check_placed_depth(depth, &value)?;
    match container {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let index = index(&key, items.len() + 1)?;
            items.insert(index, value);
        }
        _ => return Err(DoesNotApply),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, DoesNotApply> {
    let (container, key, _) = container(document, path)?;
    match container {
        Value::Object(fields) => fields.remove(&key).ok_or(DoesNotApply),
        Value::Array(items) => {
            let index = index(&key, items.len())?;
            Ok(items.remove(index))
        }
        _ => Err(DoesNotApply),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), DoesNotApply> {
    if path.is_empty() {
        let fits = value.is_object() || value.is_array();
        *document = value;
        return if fits { Ok(()) } else { Err(DoesNotApply) };
    }
    let (container, key, depth) = container(document, path)?;
    check_placed_depth(depth, &value)?;
    match container {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        array => *step(array, &key)? = value,
    }
    Ok(())
}

/// Keeps what operations build out of parts within the bound of all recursion.
fn check_placed_depth(path_depth: usize, value: &Value) -> Result<(), DoesNotApply> {
    match schema::depth(value) {
        Some(depth) if path_depth + depth <= schema::MAX_DEPTH => Ok(()),
        _ => Err(DoesNotApply),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn patched(document: &Value, patch: &Value) -> Result<Value, u16> {
        let mut document = document.clone();
        json_patch(&mut document, patch).map(|()| document).map_err(|error| error.code)
    }

    #[test]
    fn operations() {
        let document = json!({"a": {"b": 1}, "l": [1, 2, 3], "x/y": {"m~n": 0}, "n": null});
        for (operation, path, want) in [
            (json!({"op": "add", "path": "/a/c", "value": 2}), "/a", Ok(json!({"b": 1, "c": 2}))),
            (json!({"op": "add", "path": "/a/c"}), "/a", Ok(json!({"b": 1, "c": null}))),
            (json!({"op": "add", "path": "/a/b", "value": 2}), "/a", Ok(json!({"b": 2}))),
            (json!({"op": "add", "path": "/l/-", "value": 4}), "/l", Ok(json!([1, 2, 3, 4]))),
            (json!({"op": "add", "path": "/l/3", "value": 4}), "/l", Ok(json!([1, 2, 3, 4]))),
            (json!({"op": "add", "path": "/l/0", "value": 0}), "/l", Ok(json!([0, 1, 2, 3]))),
            (json!({"op": "add", "path": "/l/-1", "value": 4}), "/l", Ok(json!([1, 2, 3, 4]))),
            (json!({"op": "add", "path": "/l/4", "value": 4}), "", Err(422)),
            (json!({"op": "add", "path": "/l/x", "value": 4}), "", Err(422)),
            (json!({"op": "add", "path": "/no/c", "value": 2}), "", Err(422)),
            (json!({"op": "add", "path": "/a/b/c", "value": 2}), "", Err(422)),
            (json!({"op": "add", "path": "", "value": {}}), "", Err(422)),
            (json!({"op": "add", "value": {}}), "", Err(422)),
            (json!({"op": "remove", "path": "/a/b"}), "/a", Ok(json!({}))),
            (json!({"op": "remove", "path": "/l/1"}), "/l", Ok(json!([1, 3]))),
            (json!({"op": "remove", "path": "/l/-1"}), "/l", Ok(json!([1, 2]))),
            (json!({"op": "remove", "path": "/a/no"}), "", Err(422)),
            (json!({"op": "remove", "path": "/l/3"}), "", Err(422)),
            (json!({"op": "remove", "path": "/l/-4"}), "", Err(422)),
            (json!({"op": "remove", "path": "/x~1y/m~0n"}), "/x~1y", Ok(json!({}))),
            (json!({"op": "replace", "path": "/a/b", "value": 2}), "/a", Ok(json!({"b": 2}))),
            (json!({"op": "replace", "path": "/a/new", "value": 2}), "/a", Ok(json!({"b": 1, "new": 2}))),
            (json!({"op": "replace", "path": "/l/0", "value": 9}), "/l", Ok(json!([9, 2, 3]))),
            (json!({"op": "replace", "path": "/l/3", "value": 9}), "", Err(422)),
            (json!({"op": "replace", "path": "", "value": {"new": 1}}), "", Ok(json!({"new": 1}))),
            (json!({"op": "replace", "path": "", "value": 1}), "", Err(422)),
            (json!({"op": "move", "from": "/a/b", "path": "/l/0"}), "/l", Ok(json!([1, 1, 2, 3]))),
            (json!({"op": "move", "from": "/a", "path": "/a/b"}), "", Err(422)),
            (json!({"op": "move", "from": "/no", "path": "/a/b"}), "", Err(422)),
            (json!({"op": "move", "path": "/a/b"}), "", Err(422)),
            (json!({"op": "copy", "from": "/l", "path": "/a/b"}), "/a", Ok(json!({"b": [1, 2, 3]}))),
            (json!({"op": "copy", "from": "/no", "path": "/a/b"}), "/a", Ok(json!({"b": null}))),
            (json!({"op": "test", "path": "/a", "value": {"b": 1}}), "/a", Ok(json!({"b": 1}))),
            (json!({"op": "test", "path": "/no", "value": null}), "/a", Ok(json!({"b": 1}))),
            (json!({"op": "test", "path": "/n", "value": null}), "/a", Ok(json!({"b": 1}))),
            (json!({"op": "test", "path": "/no", "value": 1}), "", Err(422)),
            (json!({"op": "test", "path": "/a/b", "value": 1.0}), "", Err(422)),
            (json!({"op": "test", "path": "/l/9", "value": null}), "", Err(422)),
            (json!({"op": "increment", "path": "/a/b"}), "", Err(422)),
            (json!({"path": "/a/b"}), "", Err(422)),
            (json!("add"), "", Err(400)),
        ] {
            let got = patched(&document, &json!([operation]));
            let at = |document: Value| document.pointer(path).cloned().unwrap();
            assert_eq!(got.map(at), want, "{operation}");
        }
        assert_eq!(patched(&document, &json!({})), Err(400));
        assert_eq!(patched(&document, &json!(null)), Ok(document.clone()));
    }

    #[test]
    fn errors_are_worded_as_upstream_does() {
        let error = json_patch(&mut json!({}), &json!([{"op": "remove", "path": "/a"}])).unwrap_err();
        assert_eq!(
            error.to_status(),
            json!({
                "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 422,
                "reason": "Invalid", "details": {},
                "message": "the server rejected our request due to an error in our request",
            })
        );
        let many = vec![json!({"op": "add", "path": "/a", "value": 1}); MAX_OPERATIONS + 1];
        let error = json_patch(&mut json!({}), &Value::Array(many)).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (
                413,
                "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
            )
        );
    }

    #[test]
    fn copies_are_bounded_in_bytes() {
        let document = json!({"a": "x".repeat(100_000)});
        let copy = json!({"op": "copy", "from": "/a", "path": "/b"});
        assert!(patched(&document, &Value::Array(vec![copy.clone(); 31])).is_ok());
        assert_eq!(patched(&document, &Value::Array(vec![copy; 32])), Err(422));
    }

    /// A document that copies itself into its own end, doubling its depth each time, stays within the bound.
    #[test]
    fn what_operations_build_is_bounded_in_depth() {
        let mut document = json!({"a": {"a": {}}});
        let mut end = "/a/a".to_owned();
        let mut outcome = Ok(());
        for _ in 0..20 {
            let operation = json!([{"op": "copy", "from": "/a", "path": format!("{end}/a")}]);
            outcome = json_patch(&mut document, &operation);
            if outcome.is_err() {
                break;
            }
            end = format!("{end}{end}");
        }
        assert_eq!(outcome.unwrap_err().code, 422);
        assert!(schema::depth(&document).is_some());
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            (0..3i64).prop_map(Value::from),
            "[a-b/~]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                proptest::collection::btree_map("[a-b/~]{1,2}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
        .prop_map(|value| json!({"root": value}))
    }

    proptest! {
        /// An independent implementation computes differences; applying them leads to the target.
        #[test]
        fn a_difference_leads_to_the_target(from in document(), to in document()) {
            let difference = serde_json::to_value(json_patch::diff(&from, &to)).unwrap();
            prop_assert_eq!(patched(&from, &difference), Ok(to), "{}", difference);
        }
    }
}
