//! Properties of request parsing and of stored contents, as bodies of fuzz targets (`fuzz/` at the root), which also run as tests.
//! Inputs with several parts have one per line.
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::crd;
use crate::crd::json_path::JsonPath;
use crate::metadata::object::{Object, TypeMeta};
use crate::metadata::selector::{FieldSelector, LabelSelector};
use crate::patch::managed_fields::{FieldSet, ManagerRequest, apply};
use crate::patch::{MAX_COPIED_BYTES, json_patch, merge_patch, strategic_merge_patch};
use crate::schema::{Schema, builtin, depth};
use crate::storage::Revision;
use crate::verbs::list::Continue;

/// Parses the JSON of each line; `None` if a line is missing or is not JSON.
fn documents<const N: usize>(data: &[u8]) -> Option<[Value; N]> {
    let mut lines = data.splitn(N, |byte| *byte == b'\n');
    let read: Option<Vec<Value>> = (0..N).map(|_| serde_json::from_slice(lines.next()?).ok()).collect();
    read?.try_into().ok()
}

/// Splits off the text of the first line.
fn first_line(data: &[u8]) -> Option<(&str, &[u8])> {
    let end = data.iter().position(|byte| *byte == b'\n')?;
    Some((std::str::from_utf8(&data[..end]).ok()?, &data[end + 1..]))
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}

/// Checks a document with a JSON patch: the result must be bounded in depth and size, and equal that of applying the operations one
/// by one.
pub fn json_patches(data: &[u8]) {
    let Some([document, patch]) = documents(data) else { return };
    let mut patched = document.clone();
    if json_patch(&mut patched, &patch).is_err() {
        return;
    }
    assert!(depth(&patched).is_some());
    assert!(size(&patched) <= size(&document) + size(&patch) + MAX_COPIED_BYTES);
    let mut stepped = document;
    for operation in patch.as_array().unwrap() {
        json_patch(&mut stepped, &json!([operation])).unwrap();
    }
    assert_eq!(stepped, patched);
}

/// Checks a document with a merge patch: applying it twice must equal applying it once, and an error must change nothing.
pub fn merge_patches(data: &[u8]) {
    let Some([document, patch]) = documents(data) else { return };
    let mut once = document.clone();
    if merge_patch(&mut once, &patch).is_err() {
        assert_eq!(once, document);
        return;
    }
    assert!(depth(&once) <= depth(&document).max(depth(&patch)));
    assert!(size(&once) <= size(&document) + size(&patch));
    let mut twice = once.clone();
    merge_patch(&mut twice, &patch).unwrap();
    assert_eq!(twice, once);
}

/// Returns the schema of kinds with merge keys, sets, maps and atomic parts.
fn schema_of(kind: &str) -> Option<&'static Arc<Schema>> {
    static SCHEMAS: OnceLock<[Arc<Schema>; 4]> = OnceLock::new();
    let [pod, service, deployment, policy] = SCHEMAS.get_or_init(|| {
        [("", "Pod"), ("", "Service"), ("apps", "Deployment"), ("networking.k8s.io", "NetworkPolicy")]
            .map(|(group, kind)| builtin(group, "v1", kind).unwrap())
    });
    match kind {
        "Pod" => Some(pod),
        "Service" => Some(service),
        "Deployment" => Some(deployment),
        "NetworkPolicy" => Some(policy),
        _ => None,
    }
}

/// Checks that setting one field of each item in a list merged by this key changes that item, and nothing else.
fn merged_by_key(schema: &Schema, object: &Value, (list, key): (&str, &str), wrap: &dyn Fn(Value) -> Value) {
    let Some(items) = object.pointer(list).and_then(Value::as_array) else { return };
    let names: Vec<&str> = items.iter().filter_map(|item| item[key].as_str()).collect();
    let is_distinct = names.iter().collect::<std::collections::BTreeSet<_>>().len() == items.len();
    if !is_distinct || items.iter().any(|item| !item.is_object()) {
        return;
    }
    for (place, name) in names.iter().enumerate() {
        let mut patched = object.clone();
        let patch = wrap(json!([{key: name, "image": "of the patch"}]));
        strategic_merge_patch(schema, &mut patched, &patch).unwrap();
        let mut expected = object.clone();
        expected.pointer_mut(list).unwrap()[place]["image"] = "of the patch".into();
        assert_eq!(patched, expected, "{name}");
    }
    // A key that no item has creates another item.
    let mut patched = object.clone();
    let other = "fuzz-is-none-of-these";
    strategic_merge_patch(schema, &mut patched, &wrap(json!([{key: other}]))).unwrap();
    let merged = patched.pointer(list).unwrap().as_array().unwrap();
    assert_eq!(merged.len(), items.len() + usize::from(!names.contains(&other)));
    assert!(items.iter().all(|item| merged.contains(item)));
}

/// Checks a kind, an object and a strategic merge patch: an error must change nothing, the result must contain nothing that neither
/// input had, the empty patch must change nothing, labels must merge as in a merge patch, and a container must be identified by its
/// name alone.
pub fn strategic_merge_patches(data: &[u8]) {
    let Some((kind, rest)) = first_line(data) else { return };
    let (Some(schema), Some([object, patch])) = (schema_of(kind), documents(rest)) else { return };
    let mut patched = object.clone();
    if strategic_merge_patch(schema, &mut patched, &patch).is_err() {
        assert_eq!(patched, object);
        return;
    }
    assert!(depth(&patched) <= depth(&object).max(depth(&patch)).max(Some(1)));
    assert!(size(&patched) <= size(&object) + size(&patch));
    if !object.is_object() {
        return;
    }
    let mut same = object.clone();
    strategic_merge_patch(schema, &mut same, &json!({})).unwrap();
    assert_eq!(same, object);
    let labels = json!({"metadata": {"labels": {"fuzz": "set", "absent": null}}});
    let (mut strategic, mut plain) = (object.clone(), object.clone());
    strategic_merge_patch(schema, &mut strategic, &labels).unwrap();
    merge_patch(&mut plain, &labels).unwrap();
    assert_eq!(strategic, plain);
    match kind {
        "Pod" => merged_by_key(
            schema,
            &object,
            ("/spec/containers", "name"),
            &|list| json!({"spec": {"containers": list}}),
        ),
        "Deployment" => merged_by_key(
            schema,
            &object,
            ("/spec/template/spec/containers", "name"),
            &|list| json!({"spec": {"template": {"spec": {"containers": list}}}}),
        ),
        _ => {}
    }
}

/// Checks a kind (or none, which distinguishes fields without a schema), a live object and an applied configuration: after a forced
/// apply, the same apply without force must succeed and change nothing.
pub fn server_side_apply(data: &[u8]) {
    let Some((kind, rest)) = first_line(data) else { return };
    let Some([live, applied]) = documents(rest) else { return };
    let request = |manager| ManagerRequest {
        manager,
        api_version: applied["apiVersion"].as_str().unwrap_or("v1"),
        kind: applied["kind"].as_str().unwrap_or("Pod"),
        subresource: "",
        now: jiff::Timestamp::UNIX_EPOCH,
        schema: schema_of(kind).map(|schema| &**schema),
        reset: &[&["status"]],
    };
    let live = Some(&live).filter(|live| !live.is_null());
    for manager in ["fuzz", "kubectl"] {
        let Ok(once) = apply(live, &applied, &request(manager), true) else { continue };
        for entry in once["metadata"]["managedFields"].as_array().into_iter().flatten() {
            let fields = FieldSet::decode(&entry["fieldsV1"]).unwrap();
            assert!(!fields.is_empty());
        }
        assert_eq!(apply(Some(&once), &applied, &request(manager), false).as_ref(), Ok(&once));
    }
}

/// Checks two `fieldsV1`: they must read back as written, and union, intersection and difference must be those of sets.
pub fn field_sets(data: &[u8]) {
    let Some([one, other]) = documents(data) else { return };
    let (Ok(one), Ok(other)) = (FieldSet::decode(&one), FieldSet::decode(&other)) else { return };
    assert_eq!(FieldSet::decode(&one.encode()).as_ref(), Ok(&one));
    assert!(one.paths().iter().all(|path| one.contains(path)));
    let (both, either) = (one.intersection(&other), one.clone().union(&other));
    assert_eq!(both, other.intersection(&one));
    assert_eq!(either, other.clone().union(&one));
    assert!(both.paths().iter().all(|path| one.contains(path) && other.contains(path)));
    assert_eq!(one.clone().difference(&other).union(&both), one);
    assert!(one.clone().difference(&one).is_empty());
    assert_eq!(either.paths().len() + both.paths().len(), one.paths().len() + other.paths().len());
}

/// Checks two label selectors and labels: each must read back as printed, and both together must match exactly what each of them
/// matches.
pub fn label_selectors(data: &[u8]) {
    let Some((first, rest)) = first_line(data) else { return };
    let Some((second, labels)) = first_line(rest) else { return };
    let labels: Option<Value> = serde_json::from_slice(labels).ok();
    let (Ok(one), Ok(other)) = (LabelSelector::parse(first), LabelSelector::parse(second)) else { return };
    let printed = one.to_string();
    let again = LabelSelector::parse(&printed).unwrap();
    assert_eq!(again.to_string(), printed);
    assert_eq!(again.matches(labels.as_ref()), one.matches(labels.as_ref()));
    if !one.is_empty() && !other.is_empty() {
        let both = LabelSelector::parse(&format!("{first},{second}")).unwrap();
        let each = one.matches(labels.as_ref()) && other.matches(labels.as_ref());
        assert_eq!(both.matches(labels.as_ref()), each);
    }
}

/// Checks a field selector and metadata: it must read back as printed, and match only objects with the name that it states.
pub fn field_selectors(data: &[u8]) {
    let Some((text, metadata)) = first_line(data) else { return };
    let known = ["status.phase", "spec.nodeName"];
    let Ok(selector) = FieldSelector::parse(text, &known, Some("{}"), true) else { return };
    let again = FieldSelector::parse(&selector.to_string(), &known, None, true).unwrap();
    assert_eq!(again, selector);
    let metadata: Value = serde_json::from_slice(metadata).unwrap_or_default();
    let fields = [("status.phase".to_owned(), "Running".to_owned())];
    if let (true, Some(name)) = (selector.matches(&metadata, &fields), selector.exact_name()) {
        assert_eq!(metadata["name"].as_str().unwrap_or_default(), name);
    }
}

/// Checks that an accepted continue token keeps its meaning when written again.
pub fn continue_token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(token) = Continue::decode(text) {
        assert_eq!(Continue::decode(&token.encode()).as_ref(), Ok(&token));
    }
}

/// Returns every value of a document, starting with itself.
fn nodes(document: &Value) -> Vec<&Value> {
    let mut all = vec![document];
    let mut next = 0;
    while let Some(value) = all.get(next).copied() {
        match value {
            Value::Array(items) => all.extend(items),
            Value::Object(fields) => all.extend(fields.values()),
            _ => {}
        }
        next += 1;
    }
    all
}

/// Checks the paths of this document's own fields and items, individually and combined, against another reader.
fn own_paths(document: &Value) {
    let find =
        |path: &str| JsonPath::parse(path).unwrap().find(document).into_iter().cloned().collect::<Vec<_>>();
    match document {
        Value::Object(fields) => {
            let plain = fields
                .iter()
                .filter(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic()));
            for (name, value) in plain {
                assert_eq!(find(&format!(".{name}")), std::slice::from_ref(value), "{name}");
                assert_eq!(find(&format!("['{name}']")), std::slice::from_ref(value), "{name}");
                assert_eq!(
                    find(&format!(".{name}.absent")),
                    value.get("absent").cloned().as_slice(),
                    "{name}"
                );
            }
            assert_eq!(find("[*]"), fields.values().cloned().collect::<Vec<_>>());
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate().take(8) {
                assert_eq!(find(&format!("[{number}]")), std::slice::from_ref(item), "{number}");
            }
            assert_eq!(find("[-1:]"), items.last().cloned().as_slice());
            assert_eq!(find("[*]"), *items);
        }
        _ => assert!(find(".absent").is_empty()),
    }
}

/// Checks a JSONPath and a document: the results must be values of the document itself, in document order if each is found once,
/// and the same each time; the document's own fields and items must be found where they are.
pub fn json_path(data: &[u8]) {
    let Some((text, document)) = first_line(data) else { return };
    let (Ok(path), Ok(document)) = (JsonPath::parse(text), serde_json::from_slice::<Value>(document)) else {
        return;
    };
    let found = path.find(&document);
    assert_eq!(found, path.find(&document));
    let all = nodes(&document);
    for value in &found {
        assert!(all.iter().any(|node| std::ptr::eq(*node, *value)), "{text}: {value} is not of the document");
    }
    own_paths(&document);
}

/// Checks a definition's `spec`, an object of it and the previous object: defaulting and pruning must be idempotent, and a valid
/// definition must be servable.
pub fn definitions(data: &[u8]) {
    let Some([spec, object, old]) = documents(data) else { return };
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": spec,
    });
    crd::apply_defaults(&mut definition);
    let defaulted = definition.clone();
    crd::apply_defaults(&mut definition);
    assert_eq!(definition, defaulted);
    crd::prepare_create(&mut definition);
    let problems = crd::validate_create(&definition);
    let _ = (crd::validate_update(&definition, &old), crd::warnings(&definition, Some(&old)));
    let served = crd::definitions(&definition);
    assert!(!problems.is_empty() || served.is_ok(), "a valid definition cannot be served");
    for version in served.unwrap_or_default().into_iter().filter_map(|served| served.custom) {
        instance(&version, object.clone(), &old);
    }
}

fn instance(version: &crd::CustomVersion, mut object: Value, old: &Value) {
    version.prune(&mut object);
    let mut twice = object.clone();
    assert_eq!(version.prune(&mut twice), Vec::<String>::new());
    assert_eq!(twice, object);
    version.apply_defaults(&mut object);
    let mut twice = object.clone();
    version.apply_defaults(&mut twice);
    assert_eq!(twice, object);
    let _ = (version.validate(&object, Some(old)), version.validate_status(&object, old));
    let _ = (version.scale(&object), version.selectable_values(&object));
    for column in version.columns() {
        let _ = column.cell(&object, jiff::Timestamp::UNIX_EPOCH);
    }
    version.prepare_update(&mut object, old, "status");
}

/// Checks that a stored document is either corrupt, or is sent with exactly its contents.
pub fn stored_object(data: &[u8]) {
    let type_meta = Arc::new(TypeMeta { api_version: "example.com/v1".into(), kind: "Widget".into() });
    let stored = Object::from_stored(Arc::clone(&type_meta), Bytes::copy_from_slice(data), Revision(7));
    let mut sent = Vec::new();
    let written = stored.write_json(&mut sent, true);
    let metadata = Object::from_stored(Arc::clone(&type_meta), Bytes::copy_from_slice(data), Revision(7));
    let metadata = metadata.metadata().cloned();
    let Ok(value) = stored.value() else { return };
    // Documents of the registry have neither of these, and no duplicate fields.
    let plain: Value = serde_json::from_slice(data).unwrap();
    let fields = ["kind", "apiVersion"].map(|name| plain.get(name).is_some());
    if written.is_err() || fields.contains(&true) || plain["metadata"].get("resourceVersion").is_some() {
        return;
    }
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    if plain.to_string().len() == data.len() {
        assert_eq!(sent, **value);
        assert_eq!(metadata.unwrap(), value["metadata"]);
    }
}

#[cfg(test)]
gc_fuzz_replay::replay_tests!(
    json_patches,
    merge_patches,
    strategic_merge_patches,
    server_side_apply,
    field_sets,
    label_selectors,
    field_selectors,
    continue_token,
    json_path,
    definitions,
    stored_object,
);
