//! Tests server-side apply and the ownership of fields, step by step.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::sync::Arc;

use gc_registry::error::ApiError;
use gc_registry::patch::managed_fields::{FieldSet, ManagerRequest, apply, update};
use gc_registry::schema::{List, ListType, MAX_DEPTH, Node, Object, Property, Schema, builtin};
use proptest::prelude::*;
use serde_json::{Value, json};

/// An object that is written repeatedly, one second apart.
struct World {
    api_version: &'static str,
    kind: &'static str,
    schema: Option<Arc<Schema>>,
    live: Option<Value>,
    seconds: i64,
}

impl World {
    fn new(group: &'static str, kind: &'static str) -> Self {
        let api_version: &'static str = if group.is_empty() { "v1" } else { format!("{group}/v1").leak() };
        Self { api_version, kind, schema: builtin(group, "v1", kind), live: None, seconds: 0 }
    }

    fn request<'a>(&'a self, manager: &'a str, subresource: &'a str) -> ManagerRequest<'a> {
        ManagerRequest {
            manager,
            api_version: self.api_version,
            kind: self.kind,
            subresource,
            now: jiff::Timestamp::from_second(self.seconds).unwrap(),
            schema: self.schema.as_deref(),
            reset: if subresource == "status" { &[&["spec"]] } else { &[&["status"]] },
        }
    }

    fn complete(&self, mut object: Value) -> Value {
        object["apiVersion"] = self.api_version.into();
        object["kind"] = self.kind.into();
        object["metadata"]["name"] = "x".into();
        object
    }

    fn apply(&mut self, manager: &str, object: Value, force: bool) -> Result<(), ApiError> {
        self.seconds += 1;
        let applied = self.complete(object);
        let next = apply(self.live.as_ref(), &applied, &self.request(manager, ""), force)?;
        self.live = Some(next);
        Ok(())
    }

    fn update(&mut self, manager: &str, subresource: &str, change: impl FnOnce(&mut Value)) {
        self.seconds += 1;
        let mut next = self.live.clone().unwrap_or_else(|| self.complete(json!({})));
        change(&mut next);
        update(self.live.as_ref(), &mut next, &self.request(manager, subresource));
        self.live = Some(next);
    }

    fn at(&self, path: &str) -> Value {
        self.live.as_ref().unwrap().pointer(path).cloned().unwrap_or_default()
    }

    /// Returns `[manager, operation, subresource, second, fields]` of each entry.
    fn managers(&self) -> Value {
        let entries = self.at("/metadata/managedFields");
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries
            .into_iter()
            .map(|entry| {
                assert_eq!(
                    (&entry["fieldsType"], &entry["apiVersion"]),
                    (&json!("FieldsV1"), &json!(self.api_version))
                );
                let second =
                    entry["time"].as_str().map(|time| time.parse::<jiff::Timestamp>().unwrap().as_second());
                json!([entry["manager"], entry["operation"], entry["subresource"], second, entry["fieldsV1"]])
            })
            .collect()
    }
}

#[test]
fn a_creator_owns_what_it_set() {
    let mut world = World::new("", "ConfigMap");
    world.update("me", "", |object| {
        object["data"] = json!({"a": "1", "b": "2"});
        object["metadata"]["labels"] = json!({"l": "v"});
        object["metadata"]["uid"] = "u".into();
        object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    });
    let want = json!([["me", "Update", null, 1, {
        "f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:metadata": {"f:labels": {".": {}, "f:l": {}}}}]]);
    assert_eq!(world.managers(), want);
}

/// Checks the fields that `kubectl get --show-managed-fields` shows for a Deployment: structs that are not pointers in Go have no
/// owner of their own, selectors are a single unit, containers are identified by name, and ports by number and protocol.
#[test]
fn a_deployment_is_owned_field_by_field() {
    let mut world = World::new("apps", "Deployment");
    world.update("me", "", |object| {
        object["spec"] = json!({
            "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "containers": [{"name": "c", "image": "i", "resources": {}, "args": ["x"],
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "env": [{"name": "E", "value": "v"}]}],
                "nodeSelector": {"n": "m"}, "securityContext": {}}},
        });
        object["status"] = json!({"replicas": 5});
    });
    let want = json!([["me", "Update", null, 1, {"f:spec": {
        "f:replicas": {}, "f:selector": {},
        "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
        "f:template": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {
            "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:resources": {}, "f:args": {},
                "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                    ".": {}, "f:containerPort": {}, "f:protocol": {}}},
                "f:env": {".": {}, "k:{\"name\":\"E\"}": {".": {}, "f:name": {}, "f:value": {}}}}},
            "f:nodeSelector": {}, "f:securityContext": {}}}}}]]);
    assert_eq!(world.managers(), want);
}

#[test]
fn an_update_takes_what_it_changes() {
    let mut world = World::new("", "ConfigMap");
    world.update("one", "", |object| object["data"] = json!({"a": "1", "b": "2"}));
    world.update("two", "", |object| object["data"]["a"] = "changed".into());
    let both = json!([
        ["one", "Update", null, 1, {"f:data": {".": {}, "f:b": {}}}],
        ["two", "Update", null, 2, {"f:data": {"f:a": {}}}]]);
    assert_eq!(world.managers(), both);
    world.update("three", "", |_| {});
    assert_eq!(world.managers(), both, "a write without change owns nothing and moves no time");
    world.update("one", "", |object| drop(object["data"].as_object_mut().unwrap().remove("a")));
    assert_eq!(world.managers(), json!([["one", "Update", null, 1, {"f:data": {".": {}, "f:b": {}}}]]));
    world.update("one", "", |object| object["data"]["c"] = "3".into());
    let grown = json!([["one", "Update", null, 5, {"f:data": {".": {}, "f:b": {}, "f:c": {}}}]]);
    assert_eq!(world.managers(), grown);
}

#[test]
fn status_and_spec_have_their_own_entries() {
    let mut world = World::new("apps", "Deployment");
    world.update("user", "", |object| {
        object["spec"] = json!({"replicas": 1});
        object["status"] = json!({"replicas": 9});
    });
    world.update("controller", "status", |object| {
        object["status"] = json!({"replicas": 1});
        object["spec"]["paused"] = true.into();
    });
    let want = json!([
        ["user", "Update", null, 1, {"f:spec": {"f:replicas": {}}}],
        ["controller", "Update", "status", 2, {"f:status": {"f:replicas": {}}}]]);
    assert_eq!(world.managers(), want);
}

#[test]
fn apply_merges_and_removes_what_it_owned() {
    let mut world = World::new("", "ConfigMap");
    world.apply("one", json!({"data": {"a": "1", "b": "2"}}), false).unwrap();
    world.apply("two", json!({"data": {"b": "2", "c": "3"}}), false).unwrap();
    assert_eq!(world.at("/data"), json!({"a": "1", "b": "2", "c": "3"}));
    let want = json!([
        ["one", "Apply", null, 1, {"f:data": {"f:a": {}, "f:b": {}}}],
        ["two", "Apply", null, 2, {"f:data": {"f:b": {}, "f:c": {}}}]]);
    assert_eq!(world.managers(), want, "both own b, with the same value");
    world.apply("one", json!({"data": {}}), false).unwrap();
    assert_eq!(world.at("/data"), json!({"b": "2", "c": "3"}), "a went, b is still owned");
    world.apply("two", json!({}), false).unwrap();
    assert_eq!(world.at("/data"), json!({}), "the field that one still applies stays");
    world.apply("one", json!({}), false).unwrap();
    assert_eq!(world.at("/data"), Value::Null);
    assert_eq!(world.managers(), json!([]));
}

#[test]
fn apply_without_change_changes_nothing() {
    let mut world = World::new("", "ConfigMap");
    world.apply("one", json!({"data": {"a": "1"}}), false).unwrap();
    let before = world.live.clone();
    world.apply("one", json!({"data": {"a": "1"}}), false).unwrap();
    assert_eq!(world.live, before);
    world.apply("one", json!({"data": {"a": "2"}}), false).unwrap();
    assert_eq!(world.managers(), json!([["one", "Apply", null, 3, {"f:data": {"f:a": {}}}]]));
}

#[test]
fn conflicts_name_the_managers_and_fields() {
    let mut world = World::new("", "ConfigMap");
    world.update("updater", "", |object| object["data"] = json!({"u": "1"}));
    world.apply("one", json!({"data": {"a": "1", "b": "1"}}), false).unwrap();
    let before = world.live.clone();
    let one = world.apply("two", json!({"data": {"a": "2"}}), false).unwrap_err();
    assert_eq!(
        one.to_status(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 409, "reason": "Conflict",
            "message": "Apply failed with 1 conflict: conflict with \"one\": .data.a",
            "details": {"causes": [
                {"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.a"}]},
        })
    );
    let many = world.apply("two", json!({"data": {"a": "2", "b": "2", "u": "2"}}), false).unwrap_err();
    assert_eq!(
        many.message,
        "Apply failed with 3 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b\nconflicts with \"updater\" using v1:\n- .data.u"
    );
    assert_eq!(world.live, before);
    world.apply("two", json!({"data": {"a": "2", "u": "2"}}), true).unwrap();
    assert_eq!(world.at("/data"), json!({"a": "2", "b": "1", "u": "2"}));
    let want = json!([
        ["one", "Apply", null, 2, {"f:data": {"f:b": {}}}],
        ["two", "Apply", null, 5, {"f:data": {"f:a": {}, "f:u": {}}}],
        ["updater", "Update", null, 1, {"f:data": {}}]]);
    assert_eq!(world.managers(), want);
}

#[test]
fn conflicts_in_lists_name_the_item() {
    let mut world = World::new("", "Pod");
    world.apply("one", json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}), false).unwrap();
    let error = world
        .apply("two", json!({"spec": {"containers": [{"name": "c", "image": "j"}]}}), false)
        .unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"one\": .spec.containers[name=\"c\"].image"
    );
}

#[test]
fn keyed_lists_merge_and_keep_their_order() {
    let names = |world: &World| {
        let containers = world.at("/spec/containers");
        containers
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect::<String>()
    };
    for (live, applied, want) in [
        ("abc", "bd", "abcd"),
        ("ab", "ba", "ba"),
        ("axby", "ba", "xbya"),
        ("ab", "cab", "cab"),
        ("abc", "xcy", "abxcy"),
        ("", "ab", "ab"),
    ] {
        let list = |names: &str| {
            let items: Vec<Value> = names.chars().map(|name| json!({"name": name.to_string()})).collect();
            json!({"spec": {"containers": items}})
        };
        let mut world = World::new("", "Pod");
        world.update("one", "", |object| object["spec"] = list(live)["spec"].clone());
        world.apply("two", list(applied), false).unwrap();
        assert_eq!(names(&world), want, "{live} with {applied}");
    }
}

#[test]
fn items_go_when_their_last_owner_lets_them_go() {
    let mut world = World::new("", "Pod");
    let pod = |names: &[&str]| {
        let items: Vec<Value> = names.iter().map(|name| json!({"name": name, "image": "i"})).collect();
        json!({"spec": {"containers": items}})
    };
    world.apply("one", pod(&["a", "b"]), false).unwrap();
    world.apply("two", json!({"spec": {"containers": [{"name": "b", "tty": true}]}}), false).unwrap();
    world.apply("one", pod(&["a"]), false).unwrap();
    let want = json!([{"name": "a", "image": "i"}, {"name": "b", "tty": true}]);
    assert_eq!(world.at("/spec/containers"), want);
    world.update("three", "", |object| object["spec"]["containers"][1]["stdin"] = true.into());
    world.apply("two", json!({}), false).unwrap();
    let want = json!([{"name": "a", "image": "i"}]);
    assert_eq!(world.at("/spec/containers"), want, "the item itself has no owner any more");
}

#[test]
fn keys_have_defaults() {
    let mut world = World::new("", "Service");
    world.update("one", "", |object| {
        object["spec"] = json!({"ports": [{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}]});
    });
    world.apply("two", json!({"spec": {"ports": [{"port": 80, "name": "http"}]}}), false).unwrap();
    let want = json!([{"port": 80, "protocol": "TCP", "name": "http"}, {"port": 80, "protocol": "UDP"}]);
    assert_eq!(world.at("/spec/ports"), want);
}

#[test]
fn sets_and_atomic_lists() {
    let mut world = World::new("", "ConfigMap");
    world.apply("one", json!({"metadata": {"finalizers": ["a/a", "b/b"]}}), false).unwrap();
    world.apply("two", json!({"metadata": {"finalizers": ["b/b", "c/c"]}}), false).unwrap();
    assert_eq!(world.at("/metadata/finalizers"), json!(["a/a", "b/b", "c/c"]));
    world.apply("one", json!({}), false).unwrap();
    assert_eq!(world.at("/metadata/finalizers"), json!(["b/b", "c/c"]));
    let fields = json!([["two", "Apply", null, 2, {"f:metadata": {"f:finalizers": {"v:\"b/b\"": {}, "v:\"c/c\"": {}}}}]]);
    assert_eq!(world.managers(), fields);

    let mut world = World::new("", "Pod");
    world.apply("one", json!({"spec": {"tolerations": [{"key": "a"}]}}), false).unwrap();
    let error = world.apply("two", json!({"spec": {"tolerations": [{"key": "b"}]}}), false).unwrap_err();
    assert_eq!(error.message, "Apply failed with 1 conflict: conflict with \"one\": .spec.tolerations");
    world.apply("two", json!({"spec": {"tolerations": [{"key": "b"}]}}), true).unwrap();
    assert_eq!(world.at("/spec/tolerations"), json!([{"key": "b"}]));
}

#[test]
fn the_first_apply_finds_an_object_without_managers() {
    let mut world = World::new("", "ConfigMap");
    world.live = Some(world.complete(json!({"data": {"a": "1", "b": "1"}})));
    let error = world.apply("one", json!({"data": {"a": "2"}}), false).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a"
    );
    world.update("unmanaged", "", |object| object["data"]["c"] = "1".into());
    assert_eq!(world.managers(), json!([]), "an object that is not tracked stays so under updates");
}

#[test]
fn clients_may_edit_the_managers() {
    let entry = json!({"manager": "me", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}}});
    let tracked = json!([["one", "Update", null, 1, {"f:data": {".": {}, "f:a": {}}}]]);
    for (sent, subresource, want) in [
        (json!([{}]), "", json!([])),
        (json!([]), "", json!([])),
        (json!([{}]), "status", tracked.clone()),
        (json!([{"manager": "bad"}]), "", tracked.clone()),
        (json!("bad"), "", tracked.clone()),
        (Value::Null, "", tracked.clone()),
        (json!([entry]), "", json!([["me", "Apply", null, null, {"f:data": {"f:a": {}}}]])),
    ] {
        let mut world = World::new("", "ConfigMap");
        world.update("one", "", |object| object["data"] = json!({"a": "1"}));
        world.update("two", subresource, |object| object["metadata"]["managedFields"] = sent.clone());
        assert_eq!(world.managers(), want, "{sent}");
    }
}

#[test]
fn the_oldest_updates_are_folded_into_one() {
    let mut world = World::new("", "ConfigMap");
    world.apply("applier", json!({"data": {"x": "1"}}), false).unwrap();
    for index in 0..12 {
        world.update(&format!("m{index:02}"), "", |object| {
            object["data"][format!("k{index:02}")] = "v".into();
        });
    }
    let managers = world.managers();
    let names: Vec<&str> =
        managers.as_array().unwrap().iter().map(|entry| entry[0].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["applier", "ancient-changes", "m03", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11"]
    );
    assert_eq!(
        managers[1],
        json!(["ancient-changes", "Update", null, 4, {"f:data": {"f:k00": {}, "f:k01": {}, "f:k02": {}}}])
    );
}

#[test]
fn what_does_not_fit_is_refused() {
    for (object, code, message) in [
        (json!({"apiVersion": "v2"}), 400, "invalid object type: /v2, Kind=ConfigMap"),
        (json!({"metadata": {"managedFields": []}}), 400, "metadata.managedFields must be nil"),
        (
            json!({"colour": 1}),
            500,
            "failed to create typed patch object (/x; /v1, Kind=ConfigMap): .colour: field not declared in schema",
        ),
        (
            json!({"data": {"a": 1}, "metadata": {"x": 1}}),
            500,
            "failed to create typed patch object (/x; /v1, Kind=ConfigMap): errors:\n  .data.a: expected string, got &value.valueUnstructured{Value:1}\n  .metadata.x: field not declared in schema",
        ),
        (
            json!({"metadata": {"finalizers": ["a", "a"]}}),
            500,
            "failed to create typed patch object (/x; /v1, Kind=ConfigMap): .metadata.finalizers: duplicate entries for key [=\"a\"]",
        ),
    ] {
        let mut world = World::new("", "ConfigMap");
        let mut applied = world.complete(object.clone());
        if let Some(version) = object.get("apiVersion") {
            applied["apiVersion"] = version.clone();
        }
        let error = apply(None, &applied, &world.request("one", ""), false).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (code, message));
        world.live = None;
    }
}

#[test]
fn kubectl_takes_over_from_client_side_apply() {
    let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1", "b": "1"}});
    let mut world = World::new("", "ConfigMap");
    world.update("kubectl-client-side-apply", "", |object| {
        object["metadata"]["annotations"] =
            json!({"kubectl.kubernetes.io/last-applied-configuration": last.to_string()});
        object["data"] = json!({"a": "1", "b": "changed"});
    });
    let error = world.apply("kubectl", json!({"data": {"a": "2", "b": "2"}}), false).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.b"
    );
    assert_eq!(world.apply("other", json!({"data": {"a": "2"}}), false).unwrap_err().code, 409);
    world.apply("kubectl", json!({"data": {"a": "2"}}), false).unwrap();
    assert_eq!(world.at("/data"), json!({"a": "2", "b": "changed"}));
    assert_eq!(
        world.at("/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"),
        json!(
            "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"2\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"x\"}}\n"
        )
    );
}

/// Without a schema, maps are merged and lists are single units.
#[test]
fn objects_without_schema_are_deduced() {
    let mut world = World { api_version: "a/v1", kind: "W", schema: None, live: None, seconds: 0 };
    world
        .update("one", "", |object| object["spec"] = json!({"m": {"a": 1}, "l": [{"name": "x"}], "n": null}));
    let want = json!([["one", "Update", null, 1, {
        "f:spec": {".": {}, "f:l": {}, "f:m": {".": {}, "f:a": {}}, "f:n": {}}}]]);
    assert_eq!(world.managers(), want);
    world.apply("two", json!({"spec": {"m": {"b": 2}}}), false).unwrap();
    assert_eq!(world.at("/spec/m"), json!({"a": 1, "b": 2}));
    world.apply("two", json!({"spec": {"m": 5}}), true).unwrap();
    assert_eq!(world.at("/spec/m"), json!(5));
}

/// For custom resources, every path is tracked, because none of them is a Go struct.
#[test]
fn custom_resources_merge_lists_by_set_and_key() {
    let string = || Schema::of(Node::String(gc_registry::schema::StringFormat::Plain));
    let object = |fields: Vec<(&str, Schema)>| {
        Schema::of(Node::Object(Object {
            properties: fields
                .into_iter()
                .map(|(name, schema)| {
                    (name.into(), Property { schema: schema.into(), ..Property::default() })
                })
                .collect(),
            ..Object::default()
        }))
    };
    let list = |items: Schema, list_type| Schema::of(Node::List(List { items: items.into(), list_type }));
    let item = object(vec![("key", string()), ("value", string())]);
    let spec = object(vec![
        ("set", list(string(), ListType::Set)),
        ("map", list(item, ListType::Map(vec!["key".into()]))),
    ]);
    let mut root = object(vec![("spec", spec)]);
    root.embedded_resource = true;
    let mut world =
        World { api_version: "a/v1", kind: "W", schema: Some(Arc::new(root)), live: None, seconds: 0 };
    world.apply("one", json!({"spec": {"set": ["a"], "map": [{"key": "x", "value": "1"}]}}), false).unwrap();
    world.apply("two", json!({"spec": {"set": ["b"], "map": [{"key": "y", "value": "2"}]}}), false).unwrap();
    assert_eq!(
        world.at("/spec"),
        json!({"set": ["a", "b"], "map": [{"key": "x", "value": "1"}, {"key": "y", "value": "2"}]})
    );
    world.update("three", "", |object| object["spec"]["set"] = json!(["c"]));
    let want = json!([
        ["one", "Apply", null, 1, {"f:spec": {"f:map": {"k:{\"key\":\"x\"}": {".": {}, "f:key": {}, "f:value": {}}}}}],
        ["two", "Apply", null, 2, {"f:spec": {"f:map": {"k:{\"key\":\"y\"}": {".": {}, "f:key": {}, "f:value": {}}}}}],
        ["three", "Update", null, 3, {"f:spec": {"f:set": {"v:\"c\"": {}}}}]]);
    assert_eq!(world.managers(), want);
}

fn nested(levels: usize) -> Value {
    (0..levels)
        .fold(Value::from(1), |inner, _| Value::Object([("a".to_owned(), inner)].into_iter().collect()))
}

#[test]
fn documents_are_bounded_in_depth() {
    let outcome = |levels| {
        let world = World { api_version: "a/v1", kind: "W", schema: None, live: None, seconds: 0 };
        let mut applied = world.complete(json!({}));
        applied["spec"] = nested(levels);
        let first = apply(None, &applied, &world.request("one", ""), false).map_err(|error| error.code)?;
        let mut changed = first.clone();
        changed["spec"] = 1.into();
        update(Some(&first), &mut changed, &world.request("two", ""));
        apply(Some(&changed), &applied, &world.request("one", ""), true)
            .map(|_| ())
            .map_err(|error| error.code)
    };
    assert_eq!(outcome(MAX_DEPTH - 1), Ok(()));
    assert_eq!(outcome(MAX_DEPTH), Err(400));
    // Only building and dropping this value needs the stack.
    let deep = std::thread::Builder::new().stack_size(1 << 28).spawn(move || outcome(10_000)).unwrap();
    assert_eq!(deep.join().unwrap(), Err(400));
}

fn config() -> impl Strategy<Value = Value> {
    let value = || "[a-c]";
    let containers =
        proptest::collection::btree_map("[a-c]", proptest::option::of(value()), 1..4).prop_map(|items| {
            items
                .into_iter()
                .map(|(name, image)| {
                    image.map_or_else(|| json!({"name": name}), |image| json!({"name": name, "image": image}))
                })
                .collect::<Value>()
        });
    let labels = proptest::collection::btree_map("[a-c]", value(), 0..4);
    (proptest::option::of(containers), proptest::option::of(labels)).prop_map(|(containers, labels)| {
        let mut object = json!({});
        if let Some(containers) = containers {
            object["spec"]["containers"] = containers;
        }
        if let Some(labels) = labels {
            object["metadata"]["labels"] = json!(labels);
        }
        object
    })
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(first in config(), second in config()) {
        let mut world = World::new("", "Pod");
        world.apply("one", first, false).unwrap();
        world.apply("two", second.clone(), true).unwrap();
        let once = world.live.clone();
        world.apply("two", second, false).unwrap();
        prop_assert_eq!(world.live, once);
    }

    /// Every applied field must be present afterwards.
    #[test]
    fn what_is_applied_is_there(first in config(), second in config()) {
        let mut world = World::new("", "Pod");
        world.apply("one", first, false).unwrap();
        world.apply("two", second.clone(), true).unwrap();
        for container in second.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten() {
            let live = world.at("/spec/containers");
            let twin = live.as_array().unwrap().iter().find(|other| other["name"] == container["name"]).unwrap();
            if container.get("image").is_some() {
                prop_assert_eq!(&twin["image"], &container["image"]);
            }
        }
        for (name, value) in second.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten() {
            prop_assert_eq!(&world.at("/metadata/labels")[name], value);
        }
    }

    /// If a single manager applies several configurations in turn, only the last one remains.
    #[test]
    fn a_lone_applier_replaces(first in config(), second in config()) {
        let mut world = World::new("", "Pod");
        world.apply("one", first, false).unwrap();
        world.apply("one", second.clone(), false).unwrap();
        let names = |value: Value| -> Vec<Value> {
            let items = value.as_array().cloned().unwrap_or_default();
            items.into_iter().map(|item| item["name"].clone()).collect()
        };
        prop_assert_eq!(
            names(world.at("/spec/containers")),
            names(second.pointer("/spec/containers").cloned().unwrap_or_default())
        );
    }

    #[test]
    fn sets_obey_the_laws_of_sets(a in fields(), b in fields()) {
        let (a, b) = (FieldSet::decode(&a).unwrap(), FieldSet::decode(&b).unwrap());
        let union = a.clone().union(&b);
        let both = a.intersection(&b);
        prop_assert_eq!(&both, &b.intersection(&a));
        prop_assert_eq!(&union, &b.clone().union(&a));
        prop_assert_eq!(a.clone().difference(&b).union(&both), a.clone());
        prop_assert!(a.clone().difference(&b).intersection(&b).is_empty());
        prop_assert_eq!(FieldSet::decode(&union.encode()).unwrap(), union.clone());
        prop_assert!(a.paths().iter().all(|path| union.contains(path)));
    }
}

/// Generates `FieldsV1` documents.
fn fields() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        "f:[ab]",
        Just("k:{\"name\":\"x\"}".to_owned()),
        Just("v:1".to_owned()),
        Just("i:0".to_owned())
    ];
    let leaf = Just(json!({}));
    let tree = leaf.prop_recursive(3, 16, 3, move |inner| {
        (any::<bool>(), proptest::collection::btree_map(name.clone(), inner, 1..3)).prop_map(
            |(own, below)| {
                let mut node = json!(below);
                if own {
                    node["."] = json!({});
                }
                node
            },
        )
    });
    proptest::collection::btree_map("f:[cd]", tree, 0..3).prop_map(|fields| json!(fields))
}
