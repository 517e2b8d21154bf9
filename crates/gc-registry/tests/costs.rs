//! Tests the cost of large documents: time must be proportional to their size.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a broken assumption should stop the test; measuring needs a clock

mod world;

use std::time::{Duration, Instant};

use gc_registry::api::{Operation, PatchType, RequestBody, WriteOptions};
use serde_json::{Value, json};
use world::World;

/// Maximum growth of the time for twice the size (a quadratic algorithm would have 4).
const RATIO: f64 = 2.9;

/// Returns the minimum of several measurements, which is the least disturbed one.
fn shortest(mut measured: impl FnMut() -> Duration) -> Duration {
    (0..3).map(|_| measured()).min().unwrap()
}

/// Measures at two sizes, and repeats if the machine was busy with something else.
fn assert_linear(what: &str, size: usize, cost: impl Fn(usize) -> Duration) {
    let mut last = 0.0;
    for _ in 0..5 {
        let (once, twice) = (shortest(|| cost(size)), shortest(|| cost(2 * size)));
        last = twice.as_secs_f64() / once.as_secs_f64();
        println!("{what}: {size} in {once:?}, {} in {twice:?}: {last:.2}", 2 * size);
        if last < RATIO {
            return;
        }
    }
    panic!("{what}: twice the size takes {last:.2} times as long");
}

fn apply(world: &World, resource: &str, object: &Value) {
    let place = format!("default/{}", object["metadata"]["name"].as_str().unwrap());
    let options = WriteOptions { field_manager: "test".into(), force: Some(true), ..WriteOptions::default() };
    let body = RequestBody::from(object.clone());
    world.run(resource, &place, Operation::Patch(PatchType::Apply, body, options)).unwrap();
}

fn patch(world: &World, resource: &str, name: &str, kind: PatchType, patch: Value) {
    let body = RequestBody::from(patch);
    let place = format!("default/{name}");
    world.run(resource, &place, Operation::Patch(kind, body, WriteOptions::default())).unwrap();
}

fn service(ports: usize) -> Value {
    let ports: Vec<Value> =
        (0..ports).map(|n| json!({"name": format!("p{n}"), "port": n + 1, "protocol": "TCP"})).collect();
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": ports}})
}

fn pod(variables: usize) -> Value {
    let env: Vec<Value> = (0..variables).map(|n| json!({"name": format!("V{n}"), "value": "x"})).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}})
}

#[test]
fn applying_again_costs_as_much_as_the_list_is_long() {
    assert_linear("apply a map list again", 500, |size| {
        let world = World::default();
        apply(&world, "v1/services", &service(size));
        let mut changed = service(size);
        changed["metadata"]["labels"] = json!({"a": "b"});
        let started = Instant::now();
        apply(&world, "v1/services", &changed);
        started.elapsed()
    });
    assert_linear("apply a set again", 1_000, |size| {
        let finalizers = |size: usize| (0..size).map(|n| format!("example.com/f{n}")).collect::<Vec<_>>();
        let object = |value: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": finalizers(size)},
                "data": {"k": value}})
        };
        let world = World::default();
        apply(&world, "v1/configmaps", &object("a"));
        let started = Instant::now();
        apply(&world, "v1/configmaps", &object("b"));
        started.elapsed()
    });
}

#[test]
fn owner_references_cost_as_much_as_they_are_many() {
    let references = |size: usize| -> Vec<Value> {
        (0..size)
            .map(|n| {
                json!({"apiVersion": "v1", "kind": "Node", "name": format!("n{n}"), "uid": format!("u{n}"),
                    "blockOwnerDeletion": true})
            })
            .collect()
    };
    assert_linear("owner references", 1_000, |size| {
        let world = World::default();
        let object = json!({"metadata": {"name": "c", "ownerReferences": references(size)}});
        let started = Instant::now();
        world.create("v1/configmaps", object).unwrap();
        let change = json!({"metadata": {"labels": {"a": "b"}, "ownerReferences": references(size + 1)}});
        patch(&world, "v1/configmaps", "c", PatchType::Merge, change);
        started.elapsed()
    });
}

#[test]
fn strategic_merges_cost_as_much_as_their_lists_are_long() {
    assert_linear("strategic merge of a map list", 500, |size| {
        let world = World::default();
        world.create("v1/services", service(size)).unwrap();
        let started = Instant::now();
        let change =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"ports": service(size)["spec"]["ports"]}});
        patch(&world, "v1/services", "s", PatchType::StrategicMerge, change);
        started.elapsed()
    });
    assert_linear("strategic merge of finalizers", 2_000, |size| {
        let world = World::default();
        let finalizers: Vec<String> = (0..size).map(|n| format!("example.com/f{n}")).collect();
        world.create("v1/configmaps", json!({"metadata": {"name": "c", "finalizers": finalizers}})).unwrap();
        let started = Instant::now();
        let change = json!({"metadata": {"labels": {"a": "b"}, "finalizers": finalizers}});
        patch(&world, "v1/configmaps", "c", PatchType::StrategicMerge, change);
        started.elapsed()
    });
}

#[test]
fn creating_costs_as_much_as_the_document_is_large() {
    assert_linear("a pod with many variables", 1_000, |size| {
        let world = World::default();
        let started = Instant::now();
        world.create("v1/pods", pod(size)).unwrap();
        started.elapsed()
    });
    assert_linear("a service with many ports", 1_000, |size| {
        let world = World::default();
        let started = Instant::now();
        world.create("v1/services", service(size)).unwrap();
        started.elapsed()
    });
    assert_linear("a role with many rules", 2_000, |size| {
        let rules: Vec<Value> = (0..size)
            .map(|n| json!({"apiGroups": [""], "resources": [format!("r{n}")], "verbs": ["get"]}))
            .collect();
        let world = World::default();
        let started = Instant::now();
        world
            .create("rbac.authorization.k8s.io/v1/roles", json!({"metadata": {"name": "r"}, "rules": rules}))
            .unwrap();
        started.elapsed()
    });
}

#[test]
fn definitions_cost_as_much_as_their_schemas_are_large() {
    let definition = |size: usize| {
        let properties: serde_json::Map<String, Value> = (0..size)
            .map(|n| (format!("f{n}"), json!({"type": "string", "pattern": format!("^[a-z]{{1,10}}x{n}$")})))
            .collect();
        json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}}]}})
    };
    assert_linear("a definition of many patterns", 200, |size| {
        let world = World::default();
        let started = Instant::now();
        world.create("apiextensions.k8s.io/v1/customresourcedefinitions", definition(size)).unwrap();
        started.elapsed()
    });
    assert_linear("an object of many patterns", 400, |size| {
        let world = World::default();
        world.create("apiextensions.k8s.io/v1/customresourcedefinitions", definition(size)).unwrap();
        let started = Instant::now();
        let spec: serde_json::Map<String, Value> =
            (0..size).map(|n| (format!("f{n}"), json!(format!("ax{n}")))).collect();
        world.create("example.com/v1/widgets", json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})).unwrap();
        started.elapsed()
    });
}

#[test]
fn policies_cost_as_much_as_their_variables_are_many() {
    let group = "admissionregistration.k8s.io/v1";
    let policy = |kind: &str, size: usize| {
        let variables: Vec<Value> = (0..size)
            .map(|n| {
                let before = n.saturating_sub(1);
                let expression = if n == 0 { "1".to_owned() } else { format!("variables.v{before} + 1") };
                json!({"name": format!("v{n}"), "expression": expression})
            })
            .collect();
        let constraints = json!({"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
        }]});
        let last = size - 1;
        let rules: Vec<Value> = (0..size)
            .map(|n| {
                json!({"expression": format!("variables.v{n} + variables.v{last} > 0"),
                    "messageExpression": format!("string(variables.v{n})")})
            })
            .collect();
        let patch = format!("Object{{data: {{'a': string(variables.v{last})}}}}");
        let mut spec = json!({"matchConstraints": constraints, "variables": variables});
        if kind == "Mutating" {
            spec["reinvocationPolicy"] = "Never".into();
            spec["mutations"] =
                json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": patch}}]);
        } else {
            spec["validations"] = rules.into();
        }
        json!({"metadata": {"name": "p"}, "spec": spec})
    };
    for kind in ["Validating", "Mutating"] {
        let resource = |end: &str| format!("{group}/{}admissionpolic{end}", kind.to_lowercase());
        assert_linear(&format!("a {kind} policy of many variables"), 400, |size| {
            let world = World::default();
            let started = Instant::now();
            world.create(&resource("ies"), policy(kind, size)).unwrap();
            started.elapsed()
        });
        assert_linear(&format!("an object before a {kind} policy of many variables"), 1_000, |size| {
            let world = World::default();
            world.create(&resource("ies"), policy(kind, size)).unwrap();
            let mut binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p"}});
            if kind == "Validating" {
                binding["spec"]["validationActions"] = json!(["Deny"]);
            }
            world.create(&resource("ybindings"), binding).unwrap();
            let started = Instant::now();
            world.create("v1/configmaps", json!({"metadata": {"name": "c"}, "data": {"k": "v"}})).unwrap();
            started.elapsed()
        });
    }
}
