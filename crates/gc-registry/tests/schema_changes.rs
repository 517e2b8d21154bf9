//! Tests custom resources whose definition changes after they were stored.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::needless_pass_by_value, reason = "a document written in place reads best")]

mod world;

use std::sync::Arc;

use serde_json::{Value, json};

use gc_registry::api::{DeleteOptions, ListOptions, WriteOptions};
use gc_registry::storage::{KeyValue, RangeOptions, Revision, Storage as _, Transaction, Write};
use gc_store::MemoryStorage;
use world::World;

const THINGS: &str = "example.com/v1/things";

fn definition(versions: Value) -> Value {
    json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": versions,
        },
    })
}

fn version(name: &str, storage: bool, spec: Value) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    })
}

fn with_definition(versions: Value) -> World {
    let world = World::default();
    world.create("apiextensions.k8s.io/v1/customresourcedefinitions", definition(versions)).unwrap();
    world
}

fn change(world: &World, versions: Value) {
    let patch = json!({"spec": {"versions": versions}});
    world.merge("apiextensions.k8s.io/v1/customresourcedefinitions", "/things.example.com", patch).unwrap();
}

#[test]
fn another_version_shows_the_fields_that_it_has() {
    let fields = |names: &[&str]| {
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "integer"}))).collect();
        json!({"type": "object", "properties": properties})
    };
    let versions = [version("v1", true, fields(&["a", "b"])), version("v2", false, fields(&["a", "z"]))];
    let world = with_definition(json!(versions));
    world.create(THINGS, json!({"metadata": {"name": "t"}, "spec": {"a": 1, "b": 2}})).unwrap();
    let second = "example.com/v2/things";
    assert_eq!(world.get(second, "default/t").unwrap()["spec"], json!({"a": 1}));
    let listed =
        world::body(&world.list(second, "default", gc_registry::api::ListOptions::default()).unwrap());
    assert_eq!(listed[0]["spec"], json!({"a": 1}));
    assert_eq!(world.get(THINGS, "default/t").unwrap()["spec"], json!({"a": 1, "b": 2}));
    // A change through this version keeps its visible fields.
    world.merge(second, "default/t", json!({"metadata": {"labels": {"x": "y"}}})).unwrap();
    assert_eq!(world.get(THINGS, "default/t").unwrap()["spec"], json!({"a": 1}));
}

#[test]
fn what_was_stored_before_is_read_by_the_schema_of_today() {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let world = with_definition(json!([version("v1", true, anything)]));
    world.create(THINGS, json!({"metadata": {"name": "a"}, "spec": {"old": 1, "kept": "x"}})).unwrap();
    let tight = json!({"type": "object", "properties": {
        "kept": {"type": "string"}, "size": {"type": "integer", "default": 3},
    }});
    change(&world, json!([version("v1", true, tight)]));
    let read = world.get(THINGS, "default/a").unwrap();
    assert_eq!(
        (&read["spec"], &read["metadata"]["generation"]),
        (&json!({"kept": "x", "size": 3}), &json!(1))
    );
    let listed =
        world::body(&world.list(THINGS, "default", gc_registry::api::ListOptions::default()).unwrap());
    assert_eq!(listed[0]["spec"], json!({"kept": "x", "size": 3}));
    // A change of labels does not change the spec.
    let labelled = world.merge(THINGS, "default/a", json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
    assert_eq!(labelled["metadata"]["generation"], 1);
}

/// Regression test: the revisions of an object and of its definition decided whether the object had been pruned and defaulted. A
/// restore or a reset makes them equal, and they say nothing about a write that the old schema judged.
#[test]
fn what_was_stored_by_another_schema_is_read_by_the_one_of_today() {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let tight = json!({"type": "object", "properties": {
        "kept": {"type": "string"}, "size": {"type": "integer", "default": 3},
    }});
    let world = with_definition(json!([version("v1", true, anything.clone())]));
    let thing = |name: &str| json!({"metadata": {"name": name}, "spec": {"old": 1, "kept": "x"}});
    world.create(THINGS, thing("a")).unwrap();
    let stored = |world: &World| world.storage.range("", &RangeOptions::default()).unwrap();
    let key = "/example.com/things/default/a";
    let old = world.storage.get(key, None).unwrap().item.unwrap();
    change(&world, json!([version("v1", true, tight.clone())]));
    let shown = json!({"kept": "x", "size": 3});
    let check = |world: &World, what: &str| {
        assert_eq!(world.get(THINGS, "default/a").unwrap()["spec"], shown, "{what}");
        let listed = world::body(&world.list(THINGS, "default", ListOptions::default()).unwrap());
        assert_eq!(listed[0]["spec"], shown, "{what}");
        let options = ListOptions { resource_version: "0".into(), ..ListOptions::default() };
        let mut watch = world.watch(THINGS, "default", &options).unwrap();
        assert_eq!(world.events(&mut watch)[0].1["spec"], shown, "{what}");
    };
    check(&world, "after the change");
    // A write that was judged by the old schema ends after the definition was changed.
    let put = |value: bytes::Bytes| Transaction {
        conditions: Vec::new(),
        writes: vec![Write::Put(key.into(), value)],
    };
    world.storage.commit(put(old.value.clone())).unwrap();
    check(&world, "written late");
    // The form in which earlier programs stored it.
    let text = std::str::from_utf8(&old.value).unwrap();
    let (plain, _) = text.rsplit_once(",\"apiVersion\"").unwrap();
    world.storage.commit(put(format!("{plain}}}").into())).unwrap();
    check(&world, "without a mark");
    // Everything has the same revision.
    let items =
        stored(&world).items.into_iter().map(|item| KeyValue { mod_revision: Revision(5000), ..item });
    let restored = Arc::new(MemoryStorage::with_items(Revision(5000), items.collect::<Vec<_>>()));
    let restored = World::over(Arc::clone(&restored) as _, restored, gc_registry::Config::default());
    check(&restored, "restored");
    let items = stored(&world).items;
    world
        .delete(
            "apiextensions.k8s.io/v1/customresourcedefinitions",
            "/things.example.com",
            DeleteOptions::default(),
        )
        .unwrap();
    world.storage.reset(&items).unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(world.registry.poll_pump(&mut context).is_pending());
    check(&world, "reset");
    // An object that conforms to the current schema is not changed, and its mark is not visible.
    world.merge(THINGS, "default/a", json!({"spec": {"size": 4}})).unwrap();
    let read = world.get(THINGS, "default/a").unwrap();
    assert_eq!((&read["apiVersion"], &read["spec"]["size"]), (&json!("example.com/v1"), &json!(4)));
}

#[test]
fn versions_share_what_the_stored_one_has() {
    let small = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let large = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    let mut old = version("v1", true, small);
    old["deprecated"] = true.into();
    let world = with_definition(json!([old, version("v2", false, large)]));
    let thing = json!({"metadata": {"name": "a"}, "spec": {"a": "1", "b": "2"}});
    let created = world.create("example.com/v2/things", thing).unwrap();
    assert_eq!(created["spec"], json!({"a": "1"}));
    let read =
        world.create_with(THINGS, "default", json!({"metadata": {"name": "b"}}), WriteOptions::default());
    assert_eq!(read.unwrap().warnings, ["example.com/v1 Thing is deprecated; use example.com/v2 Thing"]);
}

#[test]
fn rules_over_what_does_not_change_warn() {
    let field = |rules: Value| json!({"type": "object", "properties": {"f": {"type": "string", "x-kubernetes-validations": rules}}});
    let world = with_definition(json!([version("v1", true, field(json!([])))]));
    world.create(THINGS, json!({"metadata": {"name": "a"}, "spec": {"f": "a"}})).unwrap();
    change(&world, json!([version("v1", true, field(json!([{"rule": "self == 'b'"}])))]));
    let patch = gc_registry::api::Operation::Patch(
        gc_registry::api::PatchType::Merge,
        world::request(json!({"metadata": {"labels": {"x": "y"}}})),
        WriteOptions::default(),
    );
    let answer = world.run(THINGS, "default/a", patch).unwrap();
    assert_eq!(answer.warnings, ["spec.f: Invalid value: \"a\": failed rule: self == 'b'"]);
    let refused = world.create(THINGS, json!({"metadata": {"name": "b"}, "spec": {"f": "a", "g": 1}}));
    let refused = refused.unwrap_err();
    assert_eq!((refused.code, refused.warnings), (422, vec!["unknown field \"spec.g\"".to_owned()]));
}

/// Go treats an empty bundle as absent, so the definition is the same with and without it.
#[test]
fn an_empty_bundle_of_a_definition_is_no_change() {
    let definitions = "apiextensions.k8s.io/v1/customresourcedefinitions";
    let world = World::default();
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let with_client = |client: Value| {
        let mut definition = definition(json!([version("v1", true, anything.clone())]));
        definition["spec"]["conversion"] = json!({"strategy": "Webhook",
            "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client}});
        definition
    };
    world.create(definitions, with_client(json!({"url": "https://h/c", "caBundle": ""}))).unwrap();
    let place = "/things.example.com";
    let stored = world.get(definitions, place).unwrap();
    let client = |object: &Value| object["spec"]["conversion"]["webhook"]["clientConfig"].clone();
    assert_eq!(client(&stored), json!({"url": "https://h/c"}));
    for bundle in [json!(""), Value::Null] {
        let patch = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}});
        let patched = world.merge(definitions, place, patch).unwrap();
        assert_eq!((client(&patched), &patched["metadata"]["generation"]), (client(&stored), &json!(1)));
    }
}
