//! Scenarios of spec `api-deletion.md`, section 16.7: references, finalizer names, admission.
#![allow(clippy::unwrap_used)] // A test that fails here has failed.

mod world;

use gc_registry::api::{Operation, PatchType, WriteOptions};
use serde_json::{Value, json};
use world::{World, body, finalizers};

const CM: &str = "v1/configmaps";
const A: &str = "default/a";

fn reference(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid})
}

fn blocking(kind: &str, name: &str, uid: &str) -> Value {
    let mut reference = reference(kind, name, uid);
    reference["blockOwnerDeletion"] = true.into();
    reference
}

#[test]
fn d71_references_are_validated() {
    let owner = || reference("ConfigMap", "o", "u");
    let without = |field: &str| {
        let mut owner = owner();
        owner.as_object_mut().unwrap().remove(field);
        json!([owner])
    };
    let with = |field: &str, value: Value| {
        let mut owner = owner();
        owner[field] = value;
        owner
    };
    let controller = with("controller", true.into());
    let cases = [
        (without("uid"), Some("metadata.ownerReferences.uid")),
        (without("name"), Some("metadata.ownerReferences.name")),
        (without("kind"), Some("metadata.ownerReferences.kind")),
        (without("apiVersion"), Some("metadata.ownerReferences.apiVersion")),
        (json!([with("apiVersion", "a/b/c".into())]), Some("metadata.ownerReferences.apiVersion")),
        (json!([with("kind", "Event".into())]), Some("metadata.ownerReferences")),
        (
            json!([controller.clone(), {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "v", "controller": true}]),
            Some("metadata.ownerReferences"),
        ),
        (json!([controller, with("name", "p".into())]), None),
    ];
    for (references, field) in cases {
        let world = World::default();
        let created = world.create(CM, json!({"metadata": {"name": "a", "ownerReferences": references}}));
        let found = created.err().map(|error| {
            assert_eq!(error.code, 422);
            error.details.unwrap().causes[0].field.clone()
        });
        assert_eq!(found.as_deref(), field, "{references}");
    }
}

#[test]
fn d72_and_d73_duplicates_are_dropped_with_a_warning() {
    let world = World::default();
    let (a, b) = (reference("ConfigMap", "o", "u"), reference("ConfigMap", "p", "u"));
    let object = json!({"metadata": {"name": "a", "ownerReferences": [a, a]}});
    let created = world.create_with(CM, "default", object.clone(), WriteOptions::default()).unwrap();
    assert_eq!(body(&created)["metadata"]["ownerReferences"], json!([a]));
    assert_eq!(created.warnings.len(), 1);
    assert!(created.warnings[0].ends_with("duplicate UID(s) observed: u"));
    let updated =
        world.run(CM, A, Operation::Update(world::request(object), WriteOptions::default())).unwrap();
    assert_eq!(updated.warnings, created.warnings);
    let patch = json!({"metadata": {"ownerReferences": [a, b, a]}});
    let patched = world
        .run(CM, A, Operation::Patch(PatchType::Merge, world::request(patch), WriteOptions::default()))
        .unwrap();
    assert_eq!(body(&patched)["metadata"]["ownerReferences"], json!([a, b]), "same UID, another owner");
    assert!(patched.warnings[0].contains("after mutating admission happens"));
}

#[test]
fn d74_finalizer_names() {
    let cases: &[(&[&str], Option<u16>)] = &[
        (&["foo"], Some(422)),
        (&["foo bar"], Some(422)),
        (&["orphan", "foregroundDeletion"], Some(422)),
        (&["example.com/foo"], None),
        (&["kubernetes"], None),
    ];
    for (names, code) in cases {
        let world = World::default();
        let created = world.create(CM, json!({"metadata": {"name": "a", "finalizers": names}}));
        assert_eq!(created.as_ref().err().map(|error| error.code), *code, "{names:?}");
        if let Ok(object) = created {
            assert_eq!(finalizers(&object), *names);
        }
    }
}

#[test]
fn d75_changing_references_needs_permission_to_delete() {
    let world = World::default();
    world.refuse("delete configmaps");
    world.refuse("update */finalizers");
    let owner = reference("ConfigMap", "o", "u");
    world.create(CM, json!({"metadata": {"name": "a", "ownerReferences": [owner]}})).unwrap();
    world.merge(CM, A, json!({"data": {"k": "v"}})).unwrap();
    let add = json!({"metadata": {"ownerReferences": [owner, reference("ConfigMap", "p", "v")]}});
    assert_eq!(world.merge(CM, A, add.clone()).unwrap_err().code, 403);
    assert_eq!(world.merge(CM, A, json!({"metadata": {"ownerReferences": null}})).unwrap_err().code, 403);
    world.allow_all();
    world.merge(CM, A, add).unwrap();
}

#[test]
fn d76_to_d79_blocking_references_need_permission_on_finalizers() {
    let rc = "ReplicationController";
    let plain = || reference(rc, "r", "u");
    let block = || blocking(rc, "r", "u");
    let unblock = || {
        let mut reference = plain();
        reference["blockOwnerDeletion"] = false.into();
        reference
    };
    let daemon_set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "blockOwnerDeletion": true});
    // Columns: before, after, allowed.
    let cases = [
        (None, json!([block()]), false),
        (None, json!([unblock()]), true),
        (None, json!([daemon_set]), true),
        (None, json!([blocking("Nowhere", "n", "u")]), false),
        (Some(json!([unblock()])), json!([block()]), false),
        (Some(json!([plain()])), json!([block()]), false),
        (Some(json!([])), json!([block()]), false),
        (Some(json!([block()])), json!([unblock()]), true),
        (Some(json!([])), json!([plain()]), true),
        // D79 (S09): the UID is known, but the owner is a different one.
        (Some(json!([block()])), json!([blocking(rc, "other", "u")]), false),
    ];
    for (before, after, allowed) in cases {
        let world = World::default();
        let what = format!("{before:?} {after}");
        let outcome = |world: &World| match &before {
            None => world.create(CM, json!({"metadata": {"name": "a", "ownerReferences": after}})),
            Some(_) => world.merge(CM, A, json!({"metadata": {"ownerReferences": after}})),
        };
        if let Some(before) = &before {
            world.create(CM, json!({"metadata": {"name": "a", "ownerReferences": before}})).unwrap();
        }
        world.refuse("update replicationcontrollers/finalizers");
        world.refuse("update */finalizers");
        let first = outcome(&world);
        assert_eq!(first.as_ref().err().map(|error| error.code), (!allowed).then_some(403), "{what}");
        if !allowed {
            world.allow_all();
            outcome(&world).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}

/// Some kinds leave their metadata to the generic API server, which checks it after all other checks have passed.
#[test]
fn metadata_is_looked_at_last_where_a_kind_does_not_look_at_it() {
    let world = World::default();
    let budget = |name: &str, least: i64| {
        let object = json!({"metadata": {"name": name}, "spec": {"minAvailable": least}});
        world.create("policy/v1/poddisruptionbudgets", object)
    };
    let class = json!({"metadata": {"name": "u", "generateName": "x/y"}, "spec": {}});
    let problem =
        |answer: Result<Value, _>| answer.err().map(|error: gc_registry::error::ApiError| error.message);
    let said = |why: &str| Some(format!("PodDisruptionBudget.policy \"b/d\" is invalid: {why}"));
    let found = [budget("b/d", -1), budget("b/d", 1), budget("b", 1)].map(problem);
    let wanted = [
        said("spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"),
        said("metadata.name: Invalid value: \"b/d\": may not contain '/'"),
        None,
    ];
    assert_eq!(found, wanted);
    assert_eq!(
        problem(world.create("resource.k8s.io/v1/deviceclasses", class)).as_deref(),
        Some(
            "DeviceClass.resource.k8s.io \"u\" is invalid: metadata.generateName: Invalid value: \"x/y\": may not contain '/'"
        )
    );
}
