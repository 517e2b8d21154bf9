//! Scenarios of spec `api-deletion.md`, sections 16.8 and 16.9.
#![allow(clippy::unwrap_used)] // A test that fails here has failed.

mod world;

use std::sync::Arc;

use gc_registry::api::{DeleteOptions, ListOptions, Operation, PatchType, WriteOptions};
use gc_registry::error::ApiError;
use gc_registry::storage::{RangeOptions, Storage as _, Transaction, Write};
use serde_json::{Value, json};
use world::{World, body, finalizers, kinds, policy};

const NS: &str = "v1/namespaces";
const CRD: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "example.com/v1/widgets";

#[allow(clippy::needless_pass_by_value, reason = "a document written in place reads best")]
fn create(world: &World, name: &str, metadata: Value) -> Value {
    let mut object = json!({"metadata": {"name": name}});
    for (key, value) in metadata.as_object().into_iter().flatten() {
        object["metadata"][key] = value.clone();
    }
    world.create(NS, object).unwrap()
}

fn finalize(world: &World, name: &str, finalizers: &[&str], metadata: &[&str]) -> Result<Value, ApiError> {
    let object =
        json!({"metadata": {"name": name, "finalizers": metadata}, "spec": {"finalizers": finalizers}});
    world.update("v1/namespaces/finalize", &format!("/{name}"), object)
}

#[test]
fn d80_a_new_namespace() {
    let world = World::default();
    let object = world.create(NS, json!({"metadata": {"generateName": "n-"}})).unwrap();
    assert_eq!(object["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(object["status"]["phase"], "Active");
    assert_eq!(object["metadata"]["labels"]["kubernetes.io/metadata.name"], object["metadata"]["name"]);
}

#[test]
fn d81_the_first_deletion_marks_and_sets_its_own_finalizers() {
    let orphan = |value| DeleteOptions { orphan_dependents: Some(value), ..DeleteOptions::default() };
    let cases: &[(DeleteOptions, &[&str], &[&str])] = &[
        (DeleteOptions::default(), &[], &[]),
        (DeleteOptions::default(), &["orphan"], &["orphan"]),
        (policy("Background"), &["orphan"], &[]),
        (policy("Background"), &["foregroundDeletion"], &[]),
        (policy("Foreground"), &[], &["foregroundDeletion"]),
        (policy("Foreground"), &["orphan"], &["foregroundDeletion"]),
        (policy("Orphan"), &["foregroundDeletion"], &["orphan"]),
        (orphan(true), &[], &["orphan"]),
        (orphan(false), &[], &["foregroundDeletion"]),
    ];
    for (options, before, after) in cases {
        let world = World::default();
        create(&world, "n", json!({"finalizers": before}));
        let answer = body(&world.delete(NS, "/n", options.clone()).unwrap());
        assert_eq!(finalizers(&answer), *after, "{options:?} {before:?}");
        assert_eq!(answer["status"]["phase"], "Terminating");
        assert_eq!(answer["metadata"].get("deletionGracePeriodSeconds"), None);
        let again = body(&world.delete(NS, "/n", policy("Orphan")).unwrap());
        assert_eq!(again, answer, "D82");
    }
}

#[test]
fn d83_to_d85_finalize() {
    let world = World::default();
    create(&world, "n", json!({}));
    let plain =
        world.update(NS, "/n", json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["x/x"]}})).unwrap();
    assert_eq!(plain["spec"]["finalizers"], json!(["kubernetes"]), "only through finalize");
    let more = finalize(&world, "n", &["kubernetes", "x/x"], &[]).unwrap();
    assert_eq!(more["spec"]["finalizers"], json!(["kubernetes", "x/x"]));
    world.delete(NS, "/n", DeleteOptions::default()).unwrap();
    finalize(&world, "n", &["x/x"], &[]).unwrap();
    assert!(world.get(NS, "/n").is_ok());
    finalize(&world, "n", &[], &[]).unwrap();
    assert_eq!(world.get(NS, "/n").unwrap_err().code, 404);

    create(&world, "m", json!({"finalizers": ["x/x"]}));
    world.delete(NS, "/m", DeleteOptions::default()).unwrap();
    finalize(&world, "m", &[], &["x/x"]).unwrap();
    assert!(world.get(NS, "/m").is_ok());
    world.merge(NS, "/m", json!({"metadata": {"finalizers": null}})).unwrap();
    assert_eq!(world.get(NS, "/m").unwrap_err().code, 404);
}

#[test]
fn d86_and_d89_admission() {
    let world = World::default();
    create(&world, "n", json!({}));
    let place = |name: &str| json!({"metadata": {"name": name}});
    let post = |namespace: &str, name: &str| {
        world.create_with("v1/configmaps", namespace, place(name), WriteOptions::default())
    };
    post("n", "a").unwrap();
    let missing = post("missing", "a").unwrap_err();
    assert_eq!((missing.code, missing.message.as_str()), (404, "namespaces \"missing\" not found"));
    world.delete(NS, "/n", DeleteOptions::default()).unwrap();
    let error = post("n", "b").unwrap_err();
    let cause = &error.details.as_ref().unwrap().causes[0];
    assert_eq!(
        (error.code, cause.reason.as_str(), cause.field.as_str()),
        (403, "NamespaceTerminating", "metadata.namespace")
    );
    world.merge("v1/configmaps", "n/a", json!({"data": {"k": "v"}})).unwrap();
    let apply = |name: &str| {
        let configuration =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}});
        let options =
            WriteOptions { field_manager: "one".into(), force: Some(true), ..WriteOptions::default() };
        world.run(
            "v1/configmaps",
            &format!("n/{name}"),
            Operation::Patch(PatchType::Apply, world::request(configuration), options),
        )
    };
    assert_eq!(apply("c").unwrap_err().code, 403);
    assert_eq!(apply("a").unwrap().code, 200);
    world.delete("v1/configmaps", "n/a", DeleteOptions::default()).unwrap();
    for name in ["default", "kube-system", "kube-public"] {
        assert_eq!(world.delete(NS, &format!("/{name}"), DeleteOptions::default()).unwrap_err().code, 403);
    }
    let class = "scheduling.k8s.io/v1/priorityclasses";
    assert_eq!(
        world.delete(class, "/system-node-critical", DeleteOptions::default()).unwrap_err().code,
        403,
        "D105"
    );
}

fn define(world: &World) -> Value {
    world
        .create(CRD, json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}))
        .unwrap()
}

#[test]
fn a_definition_is_served_at_once() {
    let world = World::default();
    // The creator gets an answer before the names are accepted, as upstream.
    let created = define(&world);
    assert_eq!(created["status"]["acceptedNames"], json!({"kind": "", "plural": ""}));
    let definition = world.get(CRD, "/widgets.example.com").unwrap();
    let condition = |kind: &str| {
        let conditions = definition["status"]["conditions"].as_array().unwrap();
        conditions.iter().find(|condition| condition["type"] == kind).unwrap()["status"].clone()
    };
    assert_eq!((condition("NamesAccepted"), condition("Established")), (json!("True"), json!("True")));
    let widget = world.create(WIDGETS, json!({"metadata": {"name": "w"}, "spec": {"size": 1}})).unwrap();
    assert_eq!(
        (widget["kind"].as_str(), widget["metadata"]["generation"].as_i64()),
        (Some("Widget"), Some(1))
    );
    let merged = world.merge(WIDGETS, "default/w", json!({"spec": {"size": 2}})).unwrap();
    assert_eq!(merged["metadata"]["generation"], 2);
    let strategic =
        Operation::Patch(PatchType::StrategicMerge, world::request(json!({})), WriteOptions::default());
    assert_eq!(world.run(WIDGETS, "default/w", strategic).unwrap_err().code, 415, "D102");
}

#[test]
fn d99_to_d101_a_definition_waits_for_its_instances() {
    let world = World::default();
    define(&world);
    world.create(WIDGETS, json!({"metadata": {"name": "plain"}})).unwrap();
    world.create(WIDGETS, json!({"metadata": {"name": "held", "finalizers": ["x.com/x"]}})).unwrap();
    let options = ListOptions { resource_version: world.version(), ..ListOptions::default() };
    let mut watch = world.watch(WIDGETS, "default", &options).unwrap();
    let marked = body(&world.delete(CRD, "/widgets.example.com", policy("Orphan")).unwrap());
    assert_eq!(finalizers(&marked), ["customresourcecleanup.apiextensions.k8s.io"]);
    assert_eq!(world.create(WIDGETS, json!({"metadata": {"name": "new"}})).unwrap_err().code, 403);
    world.maintain();
    assert_eq!(world.get(WIDGETS, "default/plain").unwrap_err().code, 404);
    assert!(world.get(WIDGETS, "default/held").is_ok());
    assert!(world.get(CRD, "/widgets.example.com").is_ok());
    world.merge(WIDGETS, "default/held", json!({"metadata": {"finalizers": null}})).unwrap();
    assert_eq!(kinds(&world.events(&mut watch)), ["MODIFIED held", "DELETED plain", "DELETED held"]);
    world.maintain();
    assert_eq!(world.get(CRD, "/widgets.example.com").unwrap_err().code, 404);
    assert!(world.registry.catalog().find("example.com", "v1", "widgets").is_none());
    assert_eq!(kinds(&world.events(&mut watch)), ["END"]);
}

/// Regression test: the first object that could not be deleted ended the run, and all later ones stayed, as did later definitions.
#[test]
fn what_cannot_be_deleted_with_its_definition_holds_up_nothing_else() {
    let world = World::default();
    define(&world);
    for name in ["a-broken", "b"] {
        world.create(WIDGETS, json!({"metadata": {"name": name}})).unwrap();
    }
    let prefix = "/example.com/widgets/default/a-broken";
    let page = world.storage.range(prefix, &RangeOptions::default()).unwrap();
    let put = Write::Put(Arc::clone(&page.items[0].key), b"not an object".as_slice().into());
    world.storage.commit(Transaction { conditions: Vec::new(), writes: vec![put] }).unwrap();
    world.delete(CRD, "/widgets.example.com", policy("Background")).unwrap();
    let failed = world.with_context(|context| world.registry.maintain(context)).unwrap_err();
    assert_eq!(failed.code, 500, "{}", failed.message);
    assert_eq!(world.get(WIDGETS, "default/b").unwrap_err().code, 404);
    assert!(world.get(CRD, "/widgets.example.com").is_ok());
}

/// EV-T01, EV-T02
#[test]
fn events_expire_an_hour_after_their_last_write() {
    let world = World::default();
    let event = |name: &str| {
        let about = json!({"kind": "Pod", "name": "p", "namespace": "default"});
        world.create("v1/events", json!({"metadata": {"name": name}, "involvedObject": about})).unwrap();
    };
    event("a");
    event("b");
    world.maintain();
    world.advance(1800);
    world.merge("v1/events", "default/b", json!({"count": 2})).unwrap();
    world.maintain();
    world.advance(1800);
    world.maintain();
    assert_eq!(world.get("v1/events", "default/a").unwrap_err().code, 404);
    assert!(world.get("v1/events", "default/b").is_ok());
    world.advance(1800);
    world.maintain();
    assert_eq!(world.get("v1/events", "default/b").unwrap_err().code, 404);
}
