//! JSON patch (RFC 6902), as interpreted by Kubernetes: negative indices count from the end, `test` treats `null` and an absent
//! field as equal, and `replace` sets an absent field.

mod tree;

use serde_json::{Map, Value};
use tree::{Node, index};

use super::{check_depth, unprocessable};
use crate::error::ApiError;
use crate::schema::{self, json_type};

/// Maximum number of operations in a patch.
pub const MAX_OPERATIONS: usize = 10_000;

/// Maximum total size of JSON added by the `copy` operations of one patch, in bytes.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Maximum number of document nodes that the operations of one patch may visit in addition to those on their paths.
pub(super) const MAX_VISITED: usize = 10_000_000;

/// An operation cannot be applied. The exact error is not reported to clients.
struct DoesNotApply;

/// Reason why an operation ends a patch.
enum Failure {
    DoesNotApply,
    /// A `test` does not match.
    FailedTest,
    /// The patch visits more than `MAX_VISITED` nodes.
    TooMuch,
}

impl From<DoesNotApply> for Failure {
    fn from(_: DoesNotApply) -> Self {
        Self::DoesNotApply
    }
}

/// Applies a patch. After an error, the document is unspecified.
///
/// Fails with 400 if the patch is not a list of objects; with 413 for more than [`MAX_OPERATIONS`] or for visits of more than
/// `MAX_VISITED` nodes; and with 422 if an operation is unknown or incomplete, its path is absent, a test fails, more than
/// [`MAX_COPIED_BYTES`] are copied, or the document would be nested more than [`schema::MAX_DEPTH`] levels deep.
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
    let mut account = Account::default();
    let mut tree = Node::Closed(document.take());
    for operation in operations {
        apply(&mut tree, operation, &mut account).map_err(|failure| match failure {
            Failure::TooMuch => ApiError::new(
                413,
                "RequestEntityTooLarge",
                format!(
                    "Request entity too large: the operations of a JSON patch may visit {MAX_VISITED} values of the \
                     object"
                ),
            ),
            Failure::DoesNotApply | Failure::FailedTest => unprocessable(),
        })?;
    }
    *document = tree.into_value();
    Ok(())
}

/// Applies a patch produced by a policy's expression. Returns `false` if one of its tests failed, in which case the document must
/// stay as it was. An error names the operation that does not apply, in upstream's wording.
pub(crate) fn json_patch_of_policy(document: &mut Value, patch: &Value) -> Result<bool, String> {
    check_depth(patch).map_err(|error| error.message)?;
    let operations = decode(patch).map_err(|error| error.message)?;
    match apply_all(document, &operations) {
        Ok(()) => Ok(true),
        Err((_, Failure::FailedTest)) => Ok(false),
        Err((operation, failure)) => Err(named(operation, &failure)),
    }
}

/// Applies the patch of a webhook, which [`decodable`] has accepted. An error names the operation that does not apply, in
/// upstream's wording.
pub(crate) fn json_patch_of_webhook(document: &mut Value, patch: &Value) -> Result<(), String> {
    check_depth(patch).map_err(|error| error.message)?;
    let nothing = Map::new();
    let items = patch.as_array().map(Vec::as_slice).unwrap_or_default();
    let operations: Vec<_> = items.iter().map(|item| item.as_object().unwrap_or(&nothing)).collect();
    apply_all(document, &operations).map_err(|(operation, failure)| named(operation, &failure))
}

/// Checks that a document is a list of operations, with the errors of Go's decoder. `null` counts as an empty list, and within a
/// list as an empty operation.
pub(crate) fn decodable(patch: &Value) -> Result<(), String> {
    let items = match patch {
        Value::Null => return Ok(()),
        Value::Array(items) => items,
        other => {
            let found = json_type(other);
            return Err(format!("json: cannot unmarshal {found} into Go value of type jsonpatch.Patch"));
        }
    };
    match items.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null()) {
        None => Ok(()),
        Some((at, item)) => {
            let found = json_type(item);
            Err(format!("json: cannot unmarshal {found} into Patch.{at} of type jsonpatch.Operation"))
        }
    }
}

fn apply_all<'a>(
    document: &mut Value,
    operations: &[&'a Map<String, Value>],
) -> Result<(), (&'a Map<String, Value>, Failure)> {
    let mut account = Account::default();
    let mut tree = Node::Closed(document.take());
    for operation in operations {
        apply(&mut tree, operation, &mut account).map_err(|failure| (*operation, failure))?;
    }
    *document = tree.into_value();
    Ok(())
}

/// Names the operation that does not apply, in upstream's wording.
fn named(operation: &Map<String, Value>, failure: &Failure) -> String {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let kind = text("op").unwrap_or("unknown");
    if !matches!(kind, "add" | "remove" | "replace" | "move" | "copy" | "test") {
        return format!("Unexpected kind: {kind}");
    }
    let Some(path) = text("path") else {
        return format!("{kind} operation failed to decode path: missing value");
    };
    let last = path.rsplit('/').next().unwrap_or_default();
    match (failure, kind) {
        (Failure::FailedTest, _) => format!("testing value {path} failed: test failed"),
        (_, "remove") => {
            format!(
                "error in remove for path: '{path}': Unable to remove nonexistent key: {last}: missing value"
            )
        }
        _ => format!("{kind} operation does not apply: doc is missing path: {path:?}: missing value"),
    }
}

/// Returns a warning for each unknown member of the operations.
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
                // It is decoded as an operation without members, which cannot be applied.
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

/// Cost of a patch's operations so far, and the depth that they may have given the document.
#[derive(Default)]
struct Account {
    copied_bytes: usize,
    visited: usize,
    /// Upper bound of the document's depth; unknown before the first `move`.
    depth: Option<usize>,
}

impl Account {
    /// Refuses to nest a value of the patch too deeply: the result of the operations must stay within the recursion limit.
    fn place(&mut self, path_depth: usize, value: &Value) -> Result<(), DoesNotApply> {
        let depth = schema::depth(value).ok_or(DoesNotApply)?;
        self.place_of_depth(path_depth + depth)
    }

    fn place_of_depth(&mut self, depth: usize) -> Result<(), DoesNotApply> {
        if depth > schema::MAX_DEPTH {
            return Err(DoesNotApply);
        }
        self.depth = self.depth.map(|known| known.max(depth));
        Ok(())
    }

    /// Refuses to nest a moved part of the document too deeply. The part is visited only if the bound is inconclusive, because a
    /// patch may move the same large part thousands of times.
    fn place_moved(&mut self, document: &Node, part: &Node, from: usize, to: usize) -> Result<(), Failure> {
        let known = match self.depth {
            Some(known) => known,
            None => self.visit(document)?.max(from + self.visit(part)?),
        };
        self.depth = Some(known);
        let bound = to + known.saturating_sub(from);
        let depth = if bound <= schema::MAX_DEPTH { bound } else { to + self.visit(part)? };
        Ok(self.place_of_depth(depth)?)
    }

    fn visit(&mut self, node: &Node) -> Result<usize, Failure> {
        let depth = node.depth(&mut self.visited);
        if self.visited > MAX_VISITED {
            return Err(Failure::TooMuch);
        }
        Ok(depth.ok_or(DoesNotApply)?)
    }
}

fn apply(document: &mut Node, operation: &Map<String, Value>, account: &mut Account) -> Result<(), Failure> {
    let member = |name: &str| operation.get(name).and_then(Value::as_str).ok_or(DoesNotApply);
    let value = operation.get("value").unwrap_or(&Value::Null);
    let path = member("path")?;
    match member("op")? {
        "add" => add(document, path, value.clone(), account)?,
        "remove" => drop(remove(document, path)?),
        "replace" => replace(document, path, value.clone(), account)?,
        "move" => {
            let (from, to) = (member("from")?, keys(path)?.len());
            let moved = remove(document, from)?;
            account.place_moved(document, &moved, keys(from)?.len(), to)?;
            insert(document, path, moved)?;
        }
        "copy" => {
            let source = get(document, member("from")?)?.map_or(Value::Null, |source| source.to_value());
            account.copied_bytes += source.to_string().len();
            if account.copied_bytes > MAX_COPIED_BYTES {
                return Err(Failure::DoesNotApply);
            }
            add(document, path, source, account)?;
        }
        "test" => {
            let found = if path.is_empty() { Some(&mut *document) } else { get(document, path)? };
            if !found.map_or(value.is_null(), |found| found.equals(value)) {
                return Err(Failure::FailedTest);
            }
        }
        _ => return Err(Failure::DoesNotApply),
    }
    Ok(())
}

/// Returns the keys of a path. Text before the first `/` is ignored; a text without one is not a path.
fn keys(path: &str) -> Result<Vec<String>, DoesNotApply> {
    let (_, keys) = path.split_once('/').ok_or(DoesNotApply)?;
    Ok(keys.split('/').map(|key| key.replace("~1", "/").replace("~0", "~")).collect())
}

/// Returns the container that a path leads into, and the last key.
fn container<'a>(document: &'a mut Node, path: &str) -> Result<(&'a mut Node, String), DoesNotApply> {
    let mut keys = keys(path)?;
    let last = keys.pop().ok_or(DoesNotApply)?;
    let mut at = document;
    for key in &keys {
        at = at.step(key)?;
    }
    Ok((at.opened(), last))
}

/// Returns the value at a path; `None` for an absent field of an existing object.
fn get<'a>(document: &'a mut Node, path: &str) -> Result<Option<&'a mut Node>, DoesNotApply> {
    let (container, key) = container(document, path)?;
    match container {
        Node::Object(fields) => Ok(fields.get_mut(&key)),
        array => array.step(&key).map(Some),
    }
}

fn add(document: &mut Node, path: &str, value: Value, account: &mut Account) -> Result<(), DoesNotApply> {
    account.place(keys(path)?.len(), &value)?;
    insert(document, path, Node::Closed(value))
}

fn insert(document: &mut Node, path: &str, node: Node) -> Result<(), DoesNotApply> {
    let (container, key) = container(document, path)?;
    match container {
        Node::Object(fields) => {
            fields.insert(key, node);
        }
        Node::Array(items) => {
            let length = items.len();
            let at = if key == "-" { length } else { index(&key, length + 1)? };
            items.insert(at, node);
        }
        Node::Closed(_) => return Err(DoesNotApply),
    }
    Ok(())
}

fn remove(document: &mut Node, path: &str) -> Result<Node, DoesNotApply> {
    let (container, key) = container(document, path)?;
    match container {
        Node::Object(fields) => fields.remove(&key).ok_or(DoesNotApply),
        Node::Array(items) => {
            let at = index(&key, items.len())?;
            items.remove(at).ok_or(DoesNotApply)
        }
        Node::Closed(_) => Err(DoesNotApply),
    }
}

fn replace(document: &mut Node, path: &str, value: Value, account: &mut Account) -> Result<(), DoesNotApply> {
    if path.is_empty() {
        let fits = value.is_object() || value.is_array();
        account.place(0, &value)?;
        *document = Node::Closed(value);
        return if fits { Ok(()) } else { Err(DoesNotApply) };
    }
    account.place(keys(path)?.len(), &value)?;
    let (container, key) = container(document, path)?;
    match container {
        Node::Object(fields) => {
            fields.insert(key, Node::Closed(value));
        }
        array => *array.step(&key)? = Node::Closed(value),
    }
    Ok(())
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

    /// A document that copies itself into its own end, which doubles its depth each time, must stay within the limit.
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

    /// The cost of a patch must not depend on the size of the parts that it moves.
    #[test]
    fn large_parts_are_moved_without_being_visited() {
        let large: Value = (0..200_000).map(|number| json!([number])).collect();
        let document = json!({"a": large, "list": (0..80_000).collect::<Value>()});
        let there = json!({"op": "move", "from": "/a", "path": "/b"});
        let back = json!({"op": "move", "from": "/b", "path": "/a"});
        let turn = json!({"op": "move", "from": "/list/0", "path": "/list/40000"});
        let operations: Vec<Value> =
            [there, back, turn.clone(), turn].into_iter().cycle().take(MAX_OPERATIONS).collect();
        let mut tree = Node::Closed(document.clone());
        let mut account = Account::default();
        for operation in &operations {
            assert!(apply(&mut tree, operation.as_object().unwrap(), &mut account).is_ok());
        }
        // The document is visited once, to determine its depth.
        let parts = 3 + 400_001 + 80_001;
        assert!(account.visited <= parts, "{}", account.visited);
        let after = tree.into_value();
        assert_eq!((&after["a"], &after["list"][35_001]), (&document["a"], &json!(0)));
        assert_eq!(patched(&document, &Value::Array(operations)), Ok(after));
    }

    /// Parts that are moved deeper and deeper are visited if the bound does not show how deep they are, but only within the budget
    /// of a patch.
    #[test]
    fn visits_are_bounded() {
        let deep = (0..120).fold(json!({}), |inner, _| json!({"d": inner}));
        let large: Value = (0..20_000).map(|number| json!([number])).collect();
        let end = "/d".repeat(120);
        let operations: Vec<Value> = (0..MAX_OPERATIONS / 2)
            .flat_map(|_| {
                [
                    json!({"op": "move", "from": "/a", "path": format!("/deep{end}/a")}),
                    json!({"op": "move", "from": format!("/deep{end}/a"), "path": "/a"}),
                ]
            })
            .collect();
        let document = json!({"a": large, "deep": deep});
        assert_eq!(patched(&document, &Value::Array(operations[..200].to_vec())), Ok(document.clone()));
        assert_eq!(patched(&document, &Value::Array(operations)), Err(413));
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
        /// Applying a difference computed by an independent implementation must give the target.
        #[test]
        fn a_difference_leads_to_the_target(from in document(), to in document()) {
            let difference = serde_json::to_value(json_patch::diff(&from, &to)).unwrap();
            prop_assert_eq!(patched(&from, &difference), Ok(to), "{}", difference);
        }
    }
}
