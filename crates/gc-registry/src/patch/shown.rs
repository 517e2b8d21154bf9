//! The document that results from a refused patch, in the format of kube-apiserver's error.

use std::fmt::Write as _;

use serde_json::Value;

use crate::api::PatchType;
use crate::metadata::numbers::go_float;
use crate::resource::ResourceDefinition;
use crate::schema::definition_name;
use crate::schema::shown::{OpenedObjects, Part, patched, untyped};

/// Returns the document for the error that refuses the patch. For JSON and merge patches, this is the patched document; upstream's
/// library sorts the members of objects that it opens, and copies others as they were encoded. For a strategic merge patch, it is
/// the patch itself. `name` is that of the type of the documents before and after.
pub(crate) fn shown(
    name: Option<String>,
    kind: PatchType,
    patch: &Value,
    before: &Value,
    document: &Value,
) -> String {
    let opened = match kind {
        PatchType::Json => opened_by_operations(patch),
        PatchType::Merge => opened_by_merge(patch, before),
        PatchType::StrategicMerge | PatchType::Apply => {
            return go_value(patch);
        }
    };
    match name {
        None => untyped(document).compact(),
        Some(name) => patched(&name, document, &opened).compact(),
    }
}

/// Returns the name of a resource's type, if it is a built-in one.
pub(crate) fn type_name(resource: &ResourceDefinition) -> Option<String> {
    let is_built_in = resource.custom.is_none();
    is_built_in.then(|| definition_name(&resource.group, &resource.version, &resource.kind))
}

/// Determines the objects that a merge patch opens: those for which it contains objects. All other values that it sets stay as
/// sent.
fn opened_by_merge(patch: &Value, before: &Value) -> OpenedObjects {
    let part = |name: &str, value: &Value| match before.get(name) {
        Some(before) if before.is_object() && value.is_object() => {
            Part::Opened(opened_by_merge(value, before))
        }
        _ => Part::Sent,
    };
    let members = patch.as_object().into_iter().flatten();
    OpenedObjects(members.map(|(name, value)| (name.clone(), part(name, value))).collect())
}

/// Determines the objects that a JSON patch opens: those on its paths.
fn opened_by_operations(patch: &Value) -> OpenedObjects {
    let mut root = OpenedObjects::default();
    for operation in patch.as_array().into_iter().flatten() {
        for path in ["path", "from"].iter().filter_map(|name| operation.get(name).and_then(Value::as_str)) {
            let mut steps: Vec<&str> = path.split('/').skip(1).collect();
            steps.pop();
            let mut here = &mut root;
            for step in steps {
                let name = step.replace("~1", "/").replace("~0", "~");
                let part = here.0.entry(name).or_insert_with(|| Part::Opened(OpenedObjects::default()));
                let Part::Opened(inner) = part else { break };
                here = inner;
            }
        }
    }
    root
}

/// Formats a decoded document like Go's `%v`.
pub(super) fn go_value(value: &Value) -> String {
    let mut out = String::new();
    print(value, &mut out);
    out
}

fn print(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                print(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push_str("map[");
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| name.as_str());
            for (index, (name, value)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                let _ = write!(out, "{name}:");
                print(value, out);
            }
            out.push(']');
        }
        Value::Number(number) if !number.is_i64() => {
            out.push_str(&number.as_f64().map(go_float).unwrap_or_default());
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_that_a_patch_opens_are_sorted() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "bogus": 1, "type": "Opaque", "data": {"k": "dg=="},
            "metadata": {"uid": "u", "name": "a", "managedFields": [{"fieldsType": "FieldsV1", "fieldsV1": {"f:type": {}},
            "manager": "m", "operation": "Update", "apiVersion": "v1"}]}});
        let show = |opened: &OpenedObjects| patched("io.k8s.api.core.v1.Secret", &secret, opened).compact();
        assert_eq!(
            show(&opened_by_merge(&json!({"bogus": 1, "metadata": {}}), &json!({"metadata": {}}))),
            "{\"apiVersion\":\"v1\",\"bogus\":1,\"data\":{\"k\":\"dg==\"},\"kind\":\"Secret\",\"metadata\":\
             {\"managedFields\":[{\"manager\":\"m\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\
             \"fieldsType\":\"FieldsV1\",\"fieldsV1\":{\"f:type\":{}}}],\"name\":\"a\",\"uid\":\"u\"},\"type\":\"Opaque\"}"
        );
        assert_eq!(
            show(&opened_by_operations(&json!([{"op": "add", "path": "/bogus", "value": 1}]))),
            "{\"apiVersion\":\"v1\",\"bogus\":1,\"data\":{\"k\":\"dg==\"},\"kind\":\"Secret\",\"metadata\":\
             {\"name\":\"a\",\"uid\":\"u\",\"managedFields\":[{\"manager\":\"m\",\"operation\":\"Update\",\
             \"apiVersion\":\"v1\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{\"f:type\":{}}}]},\"type\":\"Opaque\"}"
        );
    }

    #[test]
    fn what_a_merge_patch_sets_is_shown_as_it_was_sent() {
        let name = Some("io.k8s.api.core.v1.Secret".to_owned());
        let before = json!({"kind": "Secret", "data": {"k": "dg=="}, "type": "Opaque"});
        for (patch, after, want) in [
            (
                json!({"metadata": "x"}),
                json!({"kind": "Secret", "metadata": "x"}),
                r#"{"kind":"Secret","metadata":"x"}"#,
            ),
            (
                json!({"metadata": {"name": 7, "bogus": []}}),
                json!({"metadata": {"name": 7, "bogus": []}}),
                r#"{"metadata":{"bogus":[],"name":7}}"#,
            ),
        ] {
            assert_eq!(shown(name.clone(), PatchType::Merge, &patch, &before, &after), want);
        }
    }

    #[test]
    fn a_strategic_merge_patch_is_shown_itself() {
        let out = go_value(
            &json!({"b": [1, "x", null, 1e3, 1.5, 1e6, 9_223_372_036_854_775_808_u64], "a": {"c": true}}),
        );
        assert_eq!(out, "map[a:map[c:true] b:[1 x <nil> 1000 1.5 1e+06 9.223372036854776e+18]]");
    }
}
