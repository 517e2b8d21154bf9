//! Scenarios of spec `api-deletion.md`, section 16.
#![allow(clippy::unwrap_used)] // A test that fails here has failed.
#![allow(dead_code)] // Each test file uses a part of the world.

mod world;

use gc_registry::api::{DeleteOptions, ListOptions};
use serde_json::{Value, json};
use world::{World, body, finalizers, policy};

#[test]
fn d13_a_plain_object_is_removed_at_once_and_answered_by_a_status() {
    let world = World::default();
    let object = world.config_map("a", &[]);
    let mut watch = world
        .watch(
            "v1/configmaps",
            "default",
            &ListOptions { resource_version: world.version(), ..ListOptions::default() },
        )
        .unwrap();
    let answer = world.delete("v1/configmaps", "default/a", world::grace(300)).unwrap();
    assert_eq!(answer.code, 200);
    assert_eq!(
        body(&answer),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "a", "kind": "configmaps", "uid": object["metadata"]["uid"]}})
    );
    let events = world.events(&mut watch);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].0, "DELETED");
    let version =
        |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(version(&events[0].1) > version(&object));
    assert_eq!(world.get("v1/configmaps", "default/a").unwrap_err().code, 404);
}

#[test]
fn d26_to_d32_gc_finalizers() {
    let orphan = |value| DeleteOptions { orphan_dependents: Some(value), ..DeleteOptions::default() };
    let none = DeleteOptions::default;
    let kept = |list: &[&str]| Some(list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let (cm, rc) = ("v1/configmaps", "v1/replicationcontrollers");
    let cases: Vec<(&str, DeleteOptions, &[&str], Option<Vec<String>>)> = vec![
        (cm, orphan(true), &["x/x", "orphan", "y/y"], kept(&["x/x", "orphan", "y/y"])),
        (cm, orphan(true), &["x/x", "y/y"], kept(&["x/x", "y/y", "orphan"])),
        (cm, orphan(true), &[], kept(&["orphan"])),
        (cm, orphan(true), &["orphan"], kept(&["orphan"])),
        (rc, orphan(false), &["x/x", "orphan", "y/y"], kept(&["x/x", "y/y"])),
        (rc, orphan(false), &["x/x", "y/y"], kept(&["x/x", "y/y"])),
        (rc, orphan(false), &[], None),
        (rc, orphan(false), &["orphan"], None),
        (cm, none(), &["x/x", "orphan", "y/y"], kept(&["x/x", "orphan", "y/y"])),
        (cm, none(), &["x/x", "y/y"], kept(&["x/x", "y/y"])),
        (cm, none(), &[], None),
        (cm, none(), &["orphan"], kept(&["orphan"])),
        (rc, none(), &["x/x", "y/y"], kept(&["x/x", "y/y", "orphan"])),
        (rc, none(), &[], kept(&["orphan"])),
        (cm, policy("Foreground"), &[], kept(&["foregroundDeletion"])),
        (cm, policy("Foreground"), &["orphan"], kept(&["foregroundDeletion"])),
        (rc, policy("Foreground"), &["foregroundDeletion"], kept(&["foregroundDeletion"])),
        (cm, policy("Background"), &[], None),
        (cm, policy("Background"), &["orphan"], None),
        (rc, policy("Background"), &["foregroundDeletion"], None),
        (cm, policy("Orphan"), &["foregroundDeletion"], kept(&["orphan"])),
        (rc, policy("Orphan"), &[], kept(&["orphan"])),
        (rc, none(), &["foregroundDeletion"], kept(&["foregroundDeletion"])),
    ];
    for (resource, options, before, expected) in cases {
        let world = World::default();
        let spec = json!({"selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}});
        let mut object = json!({"metadata": {"name": "a", "finalizers": before}});
        if resource == rc {
            object["spec"] = spec;
        }
        world.create(resource, object).unwrap();
        let what = format!("{resource} {options:?} {before:?}");
        let answer = world.delete(resource, "default/a", options.clone()).unwrap();
        let after = world.get(resource, "default/a").ok().map(|object| finalizers(&object));
        assert_eq!(after, expected, "{what}");
        let code = if expected.is_some() && options.orphan_dependents == Some(false) { 202 } else { 200 };
        assert_eq!(answer.code, code, "{what}");
    }
}
