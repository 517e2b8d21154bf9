//! Writes that make a collector delete or reveal objects on behalf of their authors: retention annotations, and policies.

use gc_collectors::expiry;
use gc_collectors::policies::unused::{UNUSED_SEEN, UNUSED_SINCE};
use gc_kube::KEEP_OBJECTS;
use gc_registry::advisor::{PermissionScope, RequiredPermission};
use gc_types::ForeignMark;
use serde_json::{Map, Value};

use super::{PREFIX, marks};

/// Returns the permission to bring the deletion of an object nearer.
pub(super) const fn of_mark() -> RequiredPermission {
    RequiredPermission {
        verb: "delete",
        scope: PermissionScope::Written,
        why: "the change of its retention annotations lets a collector delete it, or delete it earlier",
    }
}

/// Reports whether an update brings the deletion of an object nearer, or that of the objects of a definition.
pub(super) fn is_deleted_sooner(new: &Value, old: &Value) -> bool {
    let keeps_objects = |object: &Value| {
        object["metadata"]["annotations"][KEEP_OBJECTS].as_str().is_some_and(|text| text != "false")
    };
    let is_marked = |name: &&str| {
        let mark = |object: &Value| object["metadata"]["annotations"][*name].as_str().map(str::to_owned);
        mark(new).is_some_and(|text| !text.is_empty()) && mark(new) != mark(old)
    };
    keeps_objects(old) && !keeps_objects(new)
        || [UNUSED_SINCE, UNUSED_SEEN].iter().any(is_marked)
        || expiry::deletes_sooner(&marks(new), &marks(old))
}

/// Returns the permissions required to write a policy, which shows which objects meet a condition, and deletes them. A change that
/// leaves the specification alone needs none.
pub(super) fn of_policy(new: &Value, old: Option<&Value>) -> Vec<RequiredPermission> {
    let spec = &new["spec"];
    if old.is_some_and(|old| old["spec"] == *spec) {
        return Vec::new();
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let included: Vec<String> =
        spec["namespaces"]["include"].as_array().into_iter().flatten().map(text).collect();
    // A pattern matches namespaces that do not exist yet.
    let namespaces = if included.iter().any(|name| name.contains('*')) { Vec::new() } else { included };
    let scope = || PermissionScope::Kind {
        api_version: text(&spec["target"]["apiVersion"]),
        kind: text(&spec["target"]["kind"]),
        namespaces: namespaces.clone(),
    };
    let required = |verb, why| RequiredPermission { verb, scope: scope(), why };
    vec![
        required("list", "a policy shows which objects meet its condition"),
        required("delete", "a policy deletes the objects that it selects"),
    ]
}

/// Restores kubegc's and other tools' annotations and labels as they are in `old`.
pub(super) fn restore(new: &mut Value, old: &Value) -> Vec<String> {
    let mut restored = Vec::new();
    for (map, is_label) in [("annotations", false), ("labels", true)] {
        let is_guarded = |name: &str| {
            name.starts_with(PREFIX)
                || ForeignMark::ALL.iter().any(|mark| mark.is_label() == is_label && mark.key() == name)
        };
        let none = Map::new();
        let members = |object: &Value| object["metadata"][map].as_object().unwrap_or(&none).clone();
        let (before, mut after) = (members(old), members(new));
        let mut names: Vec<String> =
            before.keys().chain(after.keys()).filter(|name| is_guarded(name)).cloned().collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| before.get(name) != after.get(name));
        for name in &names {
            match before.get(name) {
                Some(value) => after.insert(name.clone(), value.clone()),
                None => after.remove(name),
            };
        }
        if names.is_empty() {
            continue;
        }
        if let Some(metadata) = new["metadata"].as_object_mut() {
            if after.is_empty() {
                metadata.remove(map);
            } else {
                metadata.insert(map.into(), after.into());
            }
        }
        restored.append(&mut names);
    }
    restored
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_needs_the_permissions_that_it_uses() {
        let policy = |namespaces: Value| {
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"enforce": false,
            "target": {"apiVersion": "batch/v1", "kind": "Job"}, "namespaces": namespaces}})
        };
        let scopes = |new: &Value, old: Option<&Value>| {
            let required = of_policy(new, old).into_iter();
            required
                .map(|permission| match permission.scope {
                    PermissionScope::Kind { api_version, kind, namespaces } => {
                        format!("{} {api_version} {kind} {}", permission.verb, namespaces.join(","))
                    }
                    PermissionScope::Written => permission.verb.to_owned(),
                })
                .collect::<Vec<_>>()
        };
        let everywhere = ["list batch/v1 Job ", "delete batch/v1 Job "];
        for (namespaces, expected) in [
            (json!(null), everywhere),
            (json!({"exclude": ["a"]}), everywhere),
            (json!({"include": ["a", "b-*"]}), everywhere),
            (json!({"include": ["a", "b"]}), ["list batch/v1 Job a,b", "delete batch/v1 Job a,b"]),
        ] {
            assert_eq!(scopes(&policy(namespaces.clone()), None), expected, "{namespaces}");
        }
        let mut labelled = policy(json!(null));
        labelled["metadata"]["labels"] = json!({});
        assert!(scopes(&labelled, Some(&policy(json!(null)))).is_empty());
        let mut enforced = policy(json!(null));
        enforced["spec"]["enforce"] = true.into();
        assert_eq!(scopes(&enforced, Some(&policy(json!(null)))), everywhere);
    }

    #[test]
    fn what_is_ours_is_put_back() {
        let object = |annotations: Value, labels: Value| json!({"metadata": {"annotations": annotations, "labels": labels}});
        let old = object(json!({"kubegc.io/keep": "true", "a": "b"}), json!({"x": "y"}));
        let mut new = object(
            json!({"kubegc.io/ttl": "1s", "janitor/ttl": "1s", "kubegc.io/stopped": "true", "a": "c"}),
            json!({"cleanup.kyverno.io/ttl": "1s", "janitor/ttl": "a label of somebody else", "x": "z"}),
        );
        let restored = restore(&mut new, &old);
        let expected =
            ["janitor/ttl", "kubegc.io/keep", "kubegc.io/stopped", "kubegc.io/ttl", "cleanup.kyverno.io/ttl"];
        assert_eq!(restored, expected);
        let labels = json!({"janitor/ttl": "a label of somebody else", "x": "z"});
        assert_eq!(new, object(json!({"kubegc.io/keep": "true", "a": "c"}), labels));
        let mut bare = json!({"metadata": {"annotations": {"kubegc.io/ttl": "1s"}}});
        assert_eq!(restore(&mut bare, &json!({"metadata": {}})), ["kubegc.io/ttl"]);
        assert_eq!(bare, json!({"metadata": {}}));
        assert!(restore(&mut bare.clone(), &bare).is_empty());
    }
}
