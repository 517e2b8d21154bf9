//! Scenarios of spec `api-deletion.md`, sections 16.1 to 16.5.
#![allow(clippy::unwrap_used)] // A test that fails here has failed.

mod world;

use gc_registry::Config;
use gc_registry::api::{DeleteOptions, ListOptions, Operation, PatchType, WriteOptions};
use serde_json::{Value, json};
use world::{World, body, finalizers, grace, kinds, pod, policy, preconditions, uid, version};

const CM: &str = "v1/configmaps";
const A: &str = "default/a";

fn from_now(world: &World) -> ListOptions {
    ListOptions { resource_version: world.version(), ..ListOptions::default() }
}

#[test]
fn d06_to_d08_options_that_are_invalid() {
    let world = World::default();
    world.config_map("a", &[]);
    let both = DeleteOptions { orphan_dependents: Some(true), ..policy("Orphan") };
    let dry = DeleteOptions { dry_run: vec!["Some".into()], ..DeleteOptions::default() };
    for (options, field, reason) in [
        (policy("Sideways"), "propagationPolicy", "FieldValueNotSupported"),
        (policy(""), "propagationPolicy", "FieldValueNotSupported"),
        (both, "propagationPolicy", "FieldValueInvalid"),
        (dry, "dryRun", "FieldValueNotSupported"),
    ] {
        let error = world.delete(CM, A, options).unwrap_err();
        let details = error.details.as_ref().unwrap();
        let cause = &details.causes[0];
        assert_eq!(
            (
                error.code,
                details.group.as_str(),
                details.kind.as_str(),
                cause.field.as_str(),
                cause.reason.as_str()
            ),
            (422, "meta.k8s.io", "DeleteOptions", field, reason)
        );
    }
    assert_eq!(world.get(CM, A).unwrap()["metadata"]["name"], "a");
}

#[test]
fn d13_a_plain_object_is_removed_at_once_and_answered_by_a_status() {
    let world = World::default();
    let object = world.config_map("a", &[]);
    let mut watch = world.watch(CM, "default", &from_now(&world)).unwrap();
    let answer = world.delete(CM, A, grace(300)).unwrap();
    assert_eq!(answer.code, 200);
    assert_eq!(
        body(&answer),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "a", "kind": "configmaps", "uid": uid(&object)}})
    );
    let events = world.events(&mut watch);
    assert_eq!(kinds(&events), ["DELETED a"]);
    let number = |object: &Value| version(object).parse::<u64>().unwrap();
    assert!(number(&events[0].1) > number(&object));
    assert_eq!(world.get(CM, A).unwrap_err().code, 404);
}

#[test]
fn d14_a_service_is_answered_by_itself_at_the_version_of_its_removal() {
    let world = World::default();
    world
        .create("v1/services", json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}))
        .unwrap();
    let mut watch = world.watch("v1/services", "default", &from_now(&world)).unwrap();
    let answer = body(&world.delete("v1/services", A, DeleteOptions::default()).unwrap());
    assert_eq!(world.events(&mut watch), [("DELETED".to_owned(), answer)]);
}

#[test]
fn d15_to_d17_a_finalizer_keeps_an_object() {
    let world = World::default();
    world.config_map("a", &["foo.com/x"]);
    let mut watch = world.watch(CM, "default", &from_now(&world)).unwrap();
    let first = world.delete(CM, A, DeleteOptions::default()).unwrap();
    let first = (first.code, body(&first));
    assert_eq!(first.0, 200);
    assert_eq!(first.1["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(first.1["metadata"]["deletionGracePeriodSeconds"], 0);
    world.advance(60);
    let second = world.delete(CM, A, DeleteOptions::default()).unwrap();
    assert_eq!((second.code, body(&second)), first, "a repeated deletion changes nothing");
    assert_eq!(kinds(&world.events(&mut watch)), ["MODIFIED a"]);
    let kept = world.merge(CM, A, json!({"data": {"k": "v"}})).unwrap();
    assert_eq!(finalizers(&kept), ["foo.com/x"]);
    let answer = world.merge(CM, A, json!({"metadata": {"finalizers": null}})).unwrap();
    assert_eq!(finalizers(&answer), [""; 0]);
    assert_eq!(version(&answer), version(&kept), "what was answered was never stored");
    let events = world.events(&mut watch);
    assert_eq!(kinds(&events), ["MODIFIED a", "DELETED a"]);
    assert_eq!(finalizers(&events[1].1), ["foo.com/x"], "the last stored state");
    assert_eq!(world.get(CM, A).unwrap_err().code, 404);
}

#[test]
fn d19_and_d20_preconditions() {
    let world = World::default();
    let object = world.config_map("a", &[]);
    let cases = [
        (preconditions(Some("11111111-2222-3333-4444-555555555555"), None), 409),
        (preconditions(None, Some("1")), 409),
        (preconditions(Some(uid(&object)), Some("1")), 409),
        (preconditions(Some(uid(&object)), Some(version(&object))), 200),
        (preconditions(Some(uid(&object)), None), 404),
    ];
    for (options, code) in cases {
        match world.delete(CM, A, options.clone()) {
            Ok(answer) => assert_eq!(answer.code, code, "{options:?}"),
            Err(error) => {
                assert_eq!(error.code, code, "{options:?}");
                let kind = if code == 409 { "ConfigMap" } else { "configmaps" };
                assert_eq!(error.details.unwrap().kind, kind, "{options:?}");
            }
        }
    }
}

#[test]
fn d23_create_while_the_old_object_is_deleting() {
    let world = World::default();
    world.config_map("a", &["foo.com/x"]);
    world.delete(CM, A, DeleteOptions::default()).unwrap();
    let error = world.create(CM, json!({"metadata": {"name": "a"}})).unwrap_err();
    assert_eq!((error.code, &*error.reason), (409, "AlreadyExists"));
    assert_eq!(error.message, "object is being deleted: configmaps \"a\" already exists");
}

#[test]
fn d26_to_d34_which_gc_finalizers_are_set() {
    let orphan = |value| DeleteOptions { orphan_dependents: Some(value), ..DeleteOptions::default() };
    let none = DeleteOptions::default;
    let rc = "v1/replicationcontrollers";
    let job = "batch/v1/jobs";
    let event = "v1/events";
    // Columns: finalizers and options; remaining finalizers, `None` for a removed object.
    let cases: &[(&str, DeleteOptions, &[&str], Option<&[&str]>)] = &[
        (CM, orphan(true), &["x/x", "orphan", "y/y"], Some(&["x/x", "orphan", "y/y"])),
        (CM, orphan(true), &["x/x", "y/y"], Some(&["x/x", "y/y", "orphan"])),
        (CM, orphan(true), &[], Some(&["orphan"])),
        (CM, orphan(true), &["orphan"], Some(&["orphan"])),
        (rc, orphan(false), &["x/x", "orphan", "y/y"], Some(&["x/x", "y/y"])),
        (rc, orphan(false), &["x/x", "y/y"], Some(&["x/x", "y/y"])),
        (rc, orphan(false), &[], None),
        (rc, orphan(false), &["orphan"], None),
        (CM, none(), &["x/x", "orphan", "y/y"], Some(&["x/x", "orphan", "y/y"])),
        (CM, none(), &["x/x", "y/y"], Some(&["x/x", "y/y"])),
        (CM, none(), &[], None),
        (CM, none(), &["orphan"], Some(&["orphan"])),
        (rc, none(), &["x/x", "y/y"], Some(&["x/x", "y/y", "orphan"])),
        (rc, none(), &[], Some(&["orphan"])),
        (job, none(), &[], Some(&["orphan"])),
        (job, policy("Background"), &[], None),
        (CM, policy("Foreground"), &[], Some(&["foregroundDeletion"])),
        (CM, policy("Foreground"), &["orphan"], Some(&["foregroundDeletion"])),
        (rc, policy("Foreground"), &["foregroundDeletion"], Some(&["foregroundDeletion"])),
        (CM, policy("Background"), &[], None),
        (CM, policy("Background"), &["orphan"], None),
        (rc, policy("Background"), &["foregroundDeletion"], None),
        (CM, policy("Orphan"), &["foregroundDeletion"], Some(&["orphan"])),
        (rc, policy("Orphan"), &[], Some(&["orphan"])),
        (CM, none(), &["foregroundDeletion"], Some(&["foregroundDeletion"])),
        (rc, none(), &["foregroundDeletion"], Some(&["foregroundDeletion"])),
        (event, policy("Foreground"), &[], None),
    ];
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    for (resource, options, before, expected) in cases {
        let world = World::default();
        let mut object = json!({"metadata": {"name": "a", "finalizers": before}});
        match *resource {
            "batch/v1/jobs" => object["spec"] = json!({"template": template}),
            "v1/replicationcontrollers" => {
                let mut template = template.clone();
                template["spec"]["restartPolicy"] = "Always".into();
                object["spec"] = json!({"selector": {"a": "b"}, "template": template});
            }
            "v1/events" => {
                object["involvedObject"] = json!({"kind": "Pod", "name": "p", "namespace": "default"});
            }
            _ => {}
        }
        world.create(resource, object).unwrap();
        let what = format!("{resource} {options:?} {before:?}");
        let answer = world.delete(resource, A, options.clone()).unwrap();
        let after = world.get(resource, A).ok().map(|object| finalizers(&object));
        let expected = expected.map(|list| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(after, expected, "{what}");
        let code = if expected.is_some() && options.orphan_dependents == Some(false) { 202 } else { 200 };
        assert_eq!(answer.code, code, "{what}");
        let warns = *resource == job && options.propagation_policy.is_none();
        assert_eq!(answer.warnings.len(), usize::from(warns), "{what}");
    }
}

#[test]
fn d35_without_a_collector_gc_finalizers_are_left_alone() {
    let world = World::new(Config { garbage_collector: false, ..Config::default() });
    world.config_map("a", &[]);
    world.config_map("b", &["orphan"]);
    world.delete(CM, A, policy("Foreground")).unwrap();
    world.delete(CM, "default/b", policy("Background")).unwrap();
    assert_eq!(world.get(CM, A).unwrap_err().code, 404);
    assert_eq!(finalizers(&world.get(CM, "default/b").unwrap()), ["orphan"]);
}

#[test]
fn d36_to_d40_a_later_deletion_can_change_the_policy() {
    let world = World::default();
    world.config_map("a", &[]);
    let mut watch = world.watch(CM, "default", &from_now(&world)).unwrap();
    world.delete(CM, A, policy("Foreground")).unwrap();
    let orphaned = body(&world.delete(CM, A, policy("Orphan")).unwrap());
    assert_eq!(finalizers(&orphaned), ["orphan"]);
    world.delete(CM, A, policy("Foreground")).unwrap();
    world.delete(CM, A, policy("Background")).unwrap();
    let events = world.events(&mut watch);
    assert_eq!(kinds(&events), ["MODIFIED a", "MODIFIED a", "MODIFIED a", "DELETED a"]);
    assert_eq!(finalizers(&events[3].1), ["foregroundDeletion"]);
}

#[test]
fn d38_foreground_again_adds_its_finalizer_to_a_deleting_object() {
    let world = World::default();
    world.config_map("a", &["x/x", "y/y"]);
    world.delete(CM, A, policy("Foreground")).unwrap();
    world.merge(CM, A, json!({"metadata": {"finalizers": ["x/x", "y/y"]}})).unwrap();
    let again = body(&world.delete(CM, A, policy("Foreground")).unwrap());
    assert_eq!(finalizers(&again), ["x/x", "y/y", "foregroundDeletion"]);
}

#[test]
fn d39_background_with_the_right_version_removes_a_waiting_object() {
    let world = World::default();
    world.config_map("a", &[]);
    let waiting = body(&world.delete(CM, A, policy("Foreground")).unwrap());
    let options = DeleteOptions {
        propagation_policy: Some("Background".into()),
        ..preconditions(None, Some(version(&waiting)))
    };
    assert_eq!(world.delete(CM, A, options).unwrap().code, 200);
    assert_eq!(world.get(CM, A).unwrap_err().code, 404);
}

#[test]
fn d41_to_d44_first_deletions_of_pods() {
    let unset: Option<i64> = None;
    // spec period, node, phase, option -> stored period, or `None` for a removed object
    let cases: &[(i64, &str, &str, Option<i64>, Option<i64>)] = &[
        (30, "n", "Pending", Some(30), Some(30)),
        (30, "n", "Running", unset, Some(30)),
        (30, "n", "Running", Some(5), Some(5)),
        (30, "n", "Failed", Some(30), None),
        (30, "n", "Succeeded", Some(30), None),
        (30, "", "Running", Some(30), None),
        (30, "n", "Running", Some(0), None),
        (30, "n", "Running", Some(-5), Some(1)),
    ];
    for (spec, node, phase, option, expected) in cases {
        let what = format!("{spec} {node} {phase} {option:?}");
        let world = World::default();
        let pod = pod("a", node, json!({"terminationGracePeriodSeconds": spec}), json!({}));
        world.create("v1/pods", pod).unwrap();
        world.merge("v1/pods/status", A, json!({"status": {"phase": phase}})).unwrap();
        let mut watch = world.watch("v1/pods", "default", &from_now(&world)).unwrap();
        let options = DeleteOptions { grace_period_seconds: *option, ..DeleteOptions::default() };
        let answer = world.delete("v1/pods", A, options).unwrap();
        assert_eq!((answer.code, body(&answer)["kind"].as_str()), (200, Some("Pod")), "{what}");
        let stored = world.get("v1/pods", A).ok();
        let period =
            stored.as_ref().map(|pod| pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap());
        assert_eq!(period, *expected, "{what}");
        assert_eq!(body(&answer)["metadata"]["generation"], 2, "{what}");
        let events = kinds(&world.events(&mut watch));
        match expected {
            Some(seconds) => {
                let due: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
                let due = due.checked_add(jiff::SignedDuration::from_secs(*seconds)).unwrap();
                let marked = stored.unwrap()["metadata"]["deletionTimestamp"].clone();
                assert_eq!(marked, due.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "{what}");
                assert_eq!(events, ["MODIFIED a"], "{what}");
            }
            None => assert_eq!(events, ["MODIFIED a", "DELETED a"], "{what}"),
        }
    }
}

#[test]
fn d45_a_grace_period_is_only_shortened() {
    // stored period, option -> period afterwards; `None` for a removed object
    let cases: &[(i64, i64, Option<i64>)] = &[
        (1, -1, Some(1)),
        (1, 1, Some(1)),
        (1, 2, Some(1)),
        (2, 2, Some(2)),
        (1, 0, None),
        (2, -1, Some(1)),
        (2, 1, Some(1)),
        (2, 0, None),
    ];
    for (stored, option, expected) in cases {
        let world = World::default();
        world.create("v1/pods", pod("a", "n", json!({}), json!({}))).unwrap();
        let first = body(&world.delete("v1/pods", A, grace(*stored)).unwrap());
        let second = body(&world.delete("v1/pods", A, grace(*option)).unwrap());
        let after = world.get("v1/pods", A).ok();
        let period = after.map(|pod| pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap());
        assert_eq!(period, *expected, "{stored} {option}");
        let silent = *expected == Some(*stored);
        assert_eq!(first == second, silent, "{stored} {option}");
        assert_eq!(second["metadata"]["generation"], 2, "no second rise: {stored} {option}");
    }
}

#[test]
fn d46_a_period_that_has_passed() {
    for (option, expected) in [(50, Some(1)), (0, None)] {
        let world = World::default();
        world.create("v1/pods", pod("a", "n", json!({}), json!({}))).unwrap();
        world.delete("v1/pods", A, grace(60)).unwrap();
        world.advance(120);
        let answer = body(&world.delete("v1/pods", A, grace(option)).unwrap());
        assert_eq!(answer["metadata"]["deletionTimestamp"], "2026-01-01T00:02:00Z");
        let after = world.get("v1/pods", A).ok();
        assert_eq!(
            after.map(|pod| pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap()),
            expected
        );
    }
}

#[test]
fn d44_the_mark_does_not_break_its_own_precondition() {
    let world = World::default();
    let object = world.create("v1/pods", pod("a", "n", json!({}), json!({}))).unwrap();
    let options = DeleteOptions {
        grace_period_seconds: Some(0),
        ..preconditions(Some(uid(&object)), Some(version(&object)))
    };
    assert_eq!(world.delete("v1/pods", A, options).unwrap().code, 200);
    assert_eq!(world.get("v1/pods", A).unwrap_err().code, 404);
}

#[test]
fn d47_to_d49_pods_with_finalizers() {
    let world = World::default();
    world.create("v1/pods", pod("a", "n", json!({}), json!({"finalizers": ["x/x"]}))).unwrap();
    let first = body(&world.delete("v1/pods", A, grace(30)).unwrap());
    let pending = body(&world.delete("v1/pods", A, policy("Orphan")).unwrap());
    assert_eq!(first, pending, "a pending deletion takes no new policy");
    let left = world.merge("v1/pods", A, json!({"metadata": {"finalizers": null}})).unwrap();
    assert_eq!(left["metadata"]["deletionGracePeriodSeconds"], 30, "the kubelet has the last word");
    assert_eq!(world.get("v1/pods", A).unwrap(), left);
    world.delete("v1/pods", A, grace(0)).unwrap();
    assert_eq!(world.get("v1/pods", A).unwrap_err().code, 404);

    world.create("v1/pods", pod("b", "n", json!({}), json!({"finalizers": ["x/x"]}))).unwrap();
    let kept = body(&world.delete("v1/pods", "default/b", grace(0)).unwrap());
    assert_eq!(kept["metadata"]["deletionGracePeriodSeconds"], 0);
    world.merge("v1/pods", "default/b", json!({"metadata": {"finalizers": null}})).unwrap();
    assert_eq!(world.get("v1/pods", "default/b").unwrap_err().code, 404);
}

#[test]
fn d51_binding_and_status_of_deleting_pods() {
    let world = World::default();
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}]);
    world
        .create("v1/pods", pod("a", "", json!({}), json!({"finalizers": ["x/x"], "ownerReferences": owner})))
        .unwrap();
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}});
    let bind = || {
        world.run(
            "v1/pods/binding",
            A,
            Operation::Create(world::request(binding.clone()), WriteOptions::default()),
        )
    };
    world.delete("v1/pods", A, grace(0)).unwrap();
    assert_eq!(bind().unwrap_err().code, 409);
    let changed = json!({"metadata": {"ownerReferences": null}, "status": {"phase": "Running"}});
    let after = world.merge("v1/pods/status", A, changed).unwrap();
    assert_eq!(after["metadata"]["ownerReferences"], owner);
    assert_eq!(after["status"]["phase"], "Running");

    world.create("v1/pods", pod("b", "", json!({}), json!({}))).unwrap();
    let binding = json!({"metadata": {"name": "b"}, "target": {"kind": "Node", "name": "n"}});
    let bind = world.run(
        "v1/pods/binding",
        "default/b",
        Operation::Create(world::request(binding), WriteOptions::default()),
    );
    assert_eq!(bind.unwrap().code, 201);
    assert_eq!(world.get("v1/pods", "default/b").unwrap()["spec"]["nodeName"], "n");
}

#[test]
fn d52_to_d55_what_an_update_of_a_deleting_object_may_change() {
    let world = World::default();
    let living = world.config_map("l", &[]);
    world.config_map("a", &["x/x", "y/y"]);
    let deleting = body(&world.delete(CM, A, DeleteOptions::default()).unwrap());
    let with = |object: &Value, field: &str, value: Value| {
        let mut changed = object.clone();
        changed["metadata"][field] = value;
        changed["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        changed
    };
    let cause = |error: gc_registry::error::ApiError| {
        let cause = &error.details.as_ref().unwrap().causes[0];
        (error.code, cause.reason.clone(), cause.field.clone())
    };
    let add = world.update(CM, A, with(&deleting, "finalizers", json!(["x/x", "y/y", "z/z"]))).unwrap_err();
    assert_eq!(cause(add), (422, "FieldValueForbidden".into(), "metadata.finalizers".into()));
    let reordered = world.update(CM, A, with(&deleting, "finalizers", json!(["y/y", "x/x"]))).unwrap();
    assert_eq!(finalizers(&reordered), ["y/y", "x/x"]);
    let fewer = world.update(CM, A, with(&deleting, "finalizers", json!(["y/y"]))).unwrap();
    assert_eq!(finalizers(&fewer), ["y/y"]);
    let mark = with(&living, "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let mark = world.update(CM, "default/l", mark).unwrap_err();
    assert_eq!(cause(mark), (422, "FieldValueInvalid".into(), "metadata.deletionTimestamp".into()));
    let moved =
        world.update(CM, A, with(&fewer, "deletionTimestamp", json!("2027-01-01T00:00:00Z"))).unwrap();
    assert_eq!(moved["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    let longer = world.update(CM, A, with(&fewer, "deletionGracePeriodSeconds", json!(5))).unwrap_err();
    assert_eq!(
        cause(longer),
        (422, "FieldValueInvalid".into(), "metadata.deletionGracePeriodSeconds".into())
    );
    let omitted = world.update(CM, A, with(&fewer, "deletionGracePeriodSeconds", Value::Null)).unwrap();
    assert_eq!(omitted["metadata"]["deletionGracePeriodSeconds"], 0);
    let other = json!("11111111-2222-3333-4444-555555555555");
    assert_eq!(world.update(CM, A, with(&fewer, "uid", other.clone())).unwrap_err().code, 409);
    assert_eq!(world.merge(CM, A, json!({"metadata": {"uid": other}})).unwrap_err().code, 422);
}

#[test]
fn d54_a_create_drops_what_the_server_sets() {
    let world = World::default();
    let object = world
        .create(
            CM,
            json!({"metadata": {"name": "a", "uid": "u", "deletionTimestamp": "2020-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 5, "creationTimestamp": "2020-01-01T00:00:00Z"}}),
        )
        .unwrap();
    let metadata = &object["metadata"];
    assert_ne!(metadata["uid"], "u");
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!((metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")), (None, None));
}

#[test]
fn d56_to_d58_the_update_that_removes() {
    let world = World::default();
    world
        .create(CM, json!({"metadata": {"name": "a", "finalizers": ["x/x"]}, "data": {"k": "old"}}))
        .unwrap();
    world.delete(CM, A, DeleteOptions::default()).unwrap();
    let patch = json!({"metadata": {"finalizers": []}, "data": {"k": "new"}});
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let answer =
        world.run(CM, A, Operation::Patch(PatchType::Merge, world::request(patch.clone()), dry)).unwrap();
    assert_eq!(answer.code, 200);
    assert_eq!(finalizers(&world.get(CM, A).unwrap()), ["x/x"]);
    let mut watch = world.watch(CM, "default", &from_now(&world)).unwrap();
    assert_eq!(world.merge(CM, A, patch).unwrap()["data"]["k"], "new");
    let events = world.events(&mut watch);
    assert_eq!(kinds(&events), ["DELETED a"]);
    assert_eq!(events[0].1["data"]["k"], "old");
}

#[test]
fn d59_concurrent_patches_lose_nothing() {
    const WRITERS: usize = 100;
    let world = World::default();
    let reference = |i: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("o{i}"), "uid": format!("u{i}")});
    let references: Vec<Value> = (0..WRITERS).map(reference).collect();
    world.create(CM, json!({"metadata": {"name": "a", "ownerReferences": references}})).unwrap();
    std::thread::scope(|scope| {
        for i in 0..WRITERS {
            let world = &world;
            scope.spawn(move || {
                let patch = json!({"metadata": {"labels": {format!("l{i}"): "1"},
                    "ownerReferences": [{"$patch": "delete", "uid": format!("u{i}")}]}});
                let patch = Operation::Patch(
                    PatchType::StrategicMerge,
                    world::request(patch),
                    WriteOptions::default(),
                );
                world.run(CM, A, patch).unwrap();
            });
        }
    });
    let after = world.get(CM, A).unwrap();
    assert_eq!(after["metadata"].get("ownerReferences"), None);
    assert_eq!(after["metadata"]["labels"].as_object().unwrap().len(), WRITERS);
}

#[test]
fn d104_dry_run_deletions_change_nothing() {
    let world = World::default();
    world.config_map("a", &[]);
    world.config_map("b", &["x/x"]);
    world.create("v1/pods", pod("p", "n", json!({}), json!({}))).unwrap();
    let dry = DeleteOptions { dry_run: vec!["All".into()], ..DeleteOptions::default() };
    let before = world.version();
    for (resource, place) in
        [(CM, A), (CM, "default/b"), ("v1/pods", "default/p"), ("v1/namespaces", "/kube-node-lease")]
    {
        let place = if resource == "v1/namespaces" { "default/kube-node-lease" } else { place };
        assert_eq!(world.delete(resource, place, dry.clone()).unwrap().code, 200);
        assert_eq!(world.get(resource, place).unwrap()["metadata"].get("deletionTimestamp"), None);
    }
    assert_eq!(world.version(), before);
}
