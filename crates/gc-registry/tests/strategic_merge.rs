//! Tests strategic merge patches: directives, merge keys, the order of lists, errors.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::sync::Arc;

use gc_registry::patch::strategic_merge_patch;
use gc_registry::schema::{MAX_DEPTH, Schema, builtin};
use proptest::prelude::*;
use serde_json::{Value, json};

fn schema(kind: &str) -> Arc<Schema> {
    let group = if kind == "Deployment" {
        "apps"
    } else if kind == "PodDisruptionBudget" {
        "policy"
    } else {
        ""
    };
    builtin(group, "v1", kind).unwrap()
}

fn patched(kind: &str, object: &Value, patch: &Value) -> Result<Value, (u16, String)> {
    let mut got = object.clone();
    match strategic_merge_patch(&schema(kind), &mut got, patch) {
        Ok(()) => Ok(got),
        Err(error) => {
            assert_eq!(&got, object, "a failed patch changes nothing");
            Err((error.code, error.message))
        }
    }
}

/// Each row: the `spec` of a pod (or `metadata`, for keys that exist there), its patch, and the result.
#[test]
fn merging() {
    for (name, object, patch, want) in [
        (
            "maps merge and null removes",
            json!({"nodeSelector": {"a": "1", "b": "2"}, "hostname": "h"}),
            json!({"nodeSelector": {"b": null, "c": "3"}, "hostname": null, "subdomain": null}),
            json!({"nodeSelector": {"a": "1", "c": "3"}}),
        ),
        (
            "new values lose their nulls and directives",
            json!({}),
            json!({"affinity": {"nodeAffinity": {"x": null}, "podAffinity": {"$patch": "delete"}}, "dnsPolicy": "None"}),
            json!({"affinity": {"nodeAffinity": {}}, "dnsPolicy": "None"}),
        ),
        (
            "lists without strategy are replaced",
            json!({"tolerations": [{"key": "a"}]}),
            json!({"tolerations": [{"key": "b"}]}),
            json!({"tolerations": [{"key": "b"}]}),
        ),
        (
            "lists merge by key",
            json!({"containers": [{"name": "a", "image": "i", "env": [{"name": "X", "value": "1"}]}]}),
            json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}, {"name": "b"}]}),
            json!({"containers": [
                {"name": "a", "image": "i", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]}, {"name": "b"}]}),
        ),
        (
            "the merge key may be a number",
            json!({"containers": [{"name": "a", "ports": [{"containerPort": 80}]}]}),
            json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "http"}]}]}),
            json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "http"}]}]}),
        ),
        (
            "$patch delete of items, of maps and of nothing",
            json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "a"}], "nodeSelector": {"x": "y"}}),
            json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "z", "$patch": "delete"}],
                "nodeSelector": {"$patch": "delete"}, "securityContext": {"$patch": "delete"}}),
            json!({"containers": [{"name": "b"}], "nodeSelector": {}}),
        ),
        (
            "$patch replace of maps and lists",
            json!({"nodeSelector": {"x": "y"}, "containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"nodeSelector": {"$patch": "replace", "z": "1"}, "containers": [{"name": "c"}, {"$patch": "replace"}]}),
            json!({"nodeSelector": {"z": "1"}, "containers": [{"name": "c"}]}),
        ),
        (
            "$patch replace of an item",
            json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
            json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}),
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
        ),
        (
            "$setElementOrder orders, the rest keeps its place",
            json!({"containers": [{"name": "a"}, {"name": "x"}, {"name": "b"}]}),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a", "image": "i"}]}),
            json!({"containers": [{"name": "x"}, {"name": "b"}, {"name": "a", "image": "i"}]}),
        ),
        (
            "$setElementOrder alone",
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
            json!({"containers": [{"name": "b"}, {"name": "a"}]}),
        ),
        (
            "$setElementOrder of a list that is not there",
            json!({}),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "$setElementOrder/volumes": [{"name": "v"}], "containers": [{"name": "a"}, {"name": "d", "$patch": "delete"}]}),
            json!({"containers": [{"name": "a"}]}),
        ),
        (
            "a value of another type is replaced",
            json!({"hostname": "h", "nodeSelector": {"a": "b"}}),
            json!({"hostname": {"a": null}, "nodeSelector": ["x"]}),
            json!({"hostname": {}, "nodeSelector": ["x"]}),
        ),
    ] {
        let want = json!({ "spec": want });
        assert_eq!(patched("Pod", &json!({ "spec": object }), &json!({ "spec": patch })), Ok(want), "{name}");
    }
}

#[test]
fn primitive_lists() {
    for (old, patch, want) in [
        (json!(["a", "b"]), json!({"finalizers": ["c", "b"]}), json!(["c", "a", "b"])),
        (json!(["a", "b"]), json!({"finalizers": ["b", "c"]}), json!(["a", "b", "c"])),
        (
            json!(["a", "b", "c"]),
            json!({"$deleteFromPrimitiveList/finalizers": ["b", "z"]}),
            json!(["a", "c"]),
        ),
        (json!(["a"]), json!({"$deleteFromPrimitiveList/finalizers": ["a"]}), json!([])),
        (
            json!(["a"]),
            json!({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["b"]}),
            json!(["b"]),
        ),
        (json!(["a", "b"]), json!({"$setElementOrder/finalizers": ["b", "a"]}), json!(["b", "a"])),
        (
            json!(["a", "b"]),
            json!({"$setElementOrder/finalizers": ["c", "b", "a"], "finalizers": ["c"]}),
            json!(["c", "b", "a"]),
        ),
    ] {
        let got =
            patched("ConfigMap", &json!({"metadata": {"finalizers": old}}), &json!({ "metadata": patch }));
        assert_eq!(got, Ok(json!({"metadata": {"finalizers": want}})), "{patch}");
    }
    let nothing = patched(
        "ConfigMap",
        &json!({}),
        &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
    );
    assert_eq!(nothing, Ok(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}})));
}

#[test]
fn objects_that_are_replaced_or_retain_keys() {
    let budget = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}});
    let patch = json!({"spec": {"selector": {"matchLabels": {"c": "d"}}}});
    assert_eq!(patched("PodDisruptionBudget", &budget, &patch), Ok(patch));
    let deployment =
        json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    assert_eq!(
        patched("Deployment", &deployment, &patch),
        Ok(json!({"spec": {"strategy": {"type": "Recreate"}}}))
    );
}

#[test]
fn errors() {
    let pod = json!({
        "metadata": {"finalizers": ["f"], "labels": {"l": "v"}},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], "x": {"y": 1}}});
    for (patch, code, message) in [
        (json!([]), 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (
            json!({"spec": {"containers": [{"image": "no-name"}]}}),
            500,
            "map: map[image:no-name] does not contain declared merge key: name",
        ),
        (
            json!({"spec": {"containers": [{"$patch": "delete"}]}}),
            500,
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (
            json!({"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"spec": {"containers": [{"name": "a", "$patch": "explode"}]}}),
            500,
            "unknown patch type: explode in map: map[$patch:explode name:a]",
        ),
        (
            json!({"metadata": {"labels": {"$patch": "explode", "a": "b"}}}),
            500,
            "unknown patch type: explode in map: map[$patch:explode a:b]",
        ),
        (
            json!({"spec": {"containers": [["a"]]}}),
            500,
            "list element types are not identical: [[map[name:a] map[name:b]] [[a]]]",
        ),
        (
            json!({"spec": {"containers": ["a"]}}),
            500,
            "list element types are not identical: [[map[name:a] map[name:b]] [a]]",
        ),
        (json!({"metadata": {"finalizers": [1]}}), 500, "list element types are not identical: [[f] [1]]"),
        (json!({"metadata": {"$retainKeys": "labels"}}), 400, "invalid patch format of retainKeys"),
        (
            json!({"metadata": {"labels": {"$retainKeys": ["a"], "b": "c"}}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList": ["f"]}}),
            400,
            "invalid patch format of primitive list",
        ),
        (
            json!({"metadata": {"$setElementOrder": ["f"]}}),
            400,
            "invalid patch format of setElementOrder list",
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": "f"}}),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}}),
            500,
            "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
        ),
        (
            json!({"spec": {"$setElementOrder/containers": [{}], "containers": [{"name": "a"}]}}),
            500,
            "map: map[] does not contain declared merge key: name",
        ),
        (
            json!({"spec": {"x": {"y": 2}}}),
            500,
            "unable to find api field in struct PodSpec for the json field \"x\"",
        ),
    ] {
        assert_eq!(patched("Pod", &pod, &patch), Err((code, message.to_owned())), "{patch}");
    }
}

#[test]
fn patches_are_bounded_in_depth() {
    let nested = |levels: usize| {
        (0..levels).fold(Value::from(1), |inner, _| {
            Value::Object([("metadata".to_owned(), inner)].into_iter().collect())
        })
    };
    assert!(patched("Pod", &json!({}), &nested(MAX_DEPTH)).is_ok());
    assert_eq!(patched("Pod", &json!({}), &nested(MAX_DEPTH + 1)).unwrap_err().0, 400);
}

fn names(object: &Value) -> Vec<String> {
    let containers =
        object.pointer("/spec/containers").and_then(Value::as_array).cloned().unwrap_or_default();
    containers.iter().map(|container| container["name"].as_str().unwrap().to_owned()).collect()
}

fn pod(names: &[String]) -> Value {
    let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    json!({"spec": {"containers": containers}})
}

/// Generates distinct names in any order.
fn some_names() -> impl Strategy<Value = Vec<String>> {
    proptest::sample::subsequence(vec!["a", "b", "c", "d", "e", "f"], 0..6)
        .prop_shuffle()
        .prop_map(|names| names.into_iter().map(str::to_owned).collect())
}

fn in_order_of(names: &[String], order: &[String]) -> Vec<String> {
    names.iter().filter(|name| order.contains(name)).cloned().collect()
}

proptest! {
    /// Items of the patch must be in its order, those that only the object has in the object's, and none may be lost.
    #[test]
    fn merged_lists_keep_both_orders(old in some_names(), new in some_names()) {
        prop_assume!(!(old.is_empty() && new.is_empty()));
        let merged = names(&patched("Pod", &pod(&old), &pod(&new)).unwrap());
        prop_assert_eq!(in_order_of(&merged, &new), new.clone());
        let only_old: Vec<String> = old.iter().filter(|name| !new.contains(name)).cloned().collect();
        prop_assert_eq!(in_order_of(&merged, &only_old), only_old.clone());
        prop_assert_eq!(merged.len(), new.len() + only_old.len());
    }

    #[test]
    fn patching_twice_is_patching_once(old in some_names(), new in some_names()) {
        let once = patched("Pod", &pod(&old), &pod(&new)).unwrap();
        prop_assert_eq!(patched("Pod", &once, &pod(&new)).unwrap(), once);
    }

    #[test]
    fn the_order_directive_orders(old in some_names(), order in some_names()) {
        prop_assume!(!old.is_empty());
        let order_items: Vec<Value> = order.iter().map(|name| json!({"name": name})).collect();
        let patch = json!({"spec": {"$setElementOrder/containers": order_items}});
        let merged = names(&patched("Pod", &pod(&old), &patch).unwrap());
        let want: Vec<String> = order.iter().filter(|name| old.contains(name)).cloned().collect();
        prop_assert_eq!(in_order_of(&merged, &order), want);
        prop_assert_eq!(merged.len(), old.len());
    }
}
