//! Tests API watches: windows, resuming, selectors, initial events, bookmarks.
#![allow(clippy::unwrap_used)] // A test that fails here has failed.

mod world;

use gc_registry::api::{DeleteOptions, ListOptions, VersionMatch, WatchEvent};
use gc_registry::hub::WINDOW_CHANGES;
use serde_json::json;
use world::{World, kinds};

const CM: &str = "v1/configmaps";

fn from(version: &str) -> ListOptions {
    ListOptions { resource_version: version.to_owned(), ..ListOptions::default() }
}

#[test]
fn a_watch_without_version_begins_with_the_present_state() {
    let world = World::default();
    world.config_map("b", &[]);
    world.config_map("a", &[]);
    for version in ["", "0"] {
        let mut watch = world.watch(CM, "default", &from(version)).unwrap();
        assert_eq!(kinds(&world.events(&mut watch)), ["ADDED a", "ADDED b"]);
    }
    let mut watch = world.watch(CM, "default", &from("")).unwrap();
    world.delete(CM, "default/a", DeleteOptions::default()).unwrap();
    assert_eq!(kinds(&world.events(&mut watch)), ["ADDED a", "ADDED b", "DELETED a"]);
}

#[test]
fn a_watch_resumes_where_it_ended() {
    let world = World::default();
    let first = world.config_map("a", &[]);
    world.config_map("b", &[]);
    world.merge(CM, "default/a", json!({"data": {"k": "v"}})).unwrap();
    let mut watch = world.watch(CM, "default", &from(world::version(&first))).unwrap();
    assert_eq!(kinds(&world.events(&mut watch)), ["ADDED b", "MODIFIED a"]);
    assert_eq!(kinds(&world.events(&mut watch)), [""; 0]);
}

#[test]
fn a_streamed_list_ends_with_a_bookmark() {
    let world = World::default();
    world.config_map("a", &[]);
    let options = ListOptions {
        send_initial_events: Some(true),
        resource_version_match: Some(VersionMatch::NotOlderThan),
        allow_watch_bookmarks: true,
        ..ListOptions::default()
    };
    let mut watch = world.watch(CM, "default", &options).unwrap();
    assert!(watch.bookmark().is_none(), "not before the state was sent");
    assert_eq!(kinds(&world.events(&mut watch)), ["ADDED a", "BOOKMARK"]);
    world.create("v1/secrets", json!({"metadata": {"name": "s"}})).unwrap();
    assert_eq!(kinds(&world.events(&mut watch)), [""; 0]);
    let Some(WatchEvent::Bookmark { resource_version, initial_events_end: false }) = watch.bookmark() else {
        panic!("an idle watch has a bookmark")
    };
    assert_eq!(resource_version, world.version(), "it moves on with writes of other kinds");
    let silent = ListOptions { allow_watch_bookmarks: false, ..options.clone() };
    assert_eq!(kinds(&world.events(&mut world.watch(CM, "default", &silent).unwrap())), ["ADDED a"]);
    for wrong in [
        ListOptions { resource_version_match: None, ..options.clone() },
        ListOptions { resource_version_match: Some(VersionMatch::Exact), ..options.clone() },
        ListOptions { send_initial_events: None, ..options },
    ] {
        assert_eq!(world.watch(CM, "default", &wrong).unwrap_err().code, 422);
    }
}

#[test]
fn objects_come_and_go_with_a_selector() {
    let world = World::default();
    let options = ListOptions { label_selector: "l=1".into(), ..from(&world.version()) };
    let mut watch = world.watch(CM, "default", &options).unwrap();
    world.config_map("a", &[]);
    world.merge(CM, "default/a", json!({"metadata": {"labels": {"l": "1"}}})).unwrap();
    world.merge(CM, "default/a", json!({"data": {"k": "v"}})).unwrap();
    let left = world.merge(CM, "default/a", json!({"metadata": {"labels": {"l": "2"}}})).unwrap();
    world.delete(CM, "default/a", DeleteOptions::default()).unwrap();
    let events = world.events(&mut watch);
    assert_eq!(kinds(&events), ["ADDED a", "MODIFIED a", "DELETED a"]);
    assert_eq!(events[2].1["metadata"]["labels"]["l"], "1", "the state before");
    assert_eq!(world::version(&events[2].1), world::version(&left), "at the version of the change");
}

#[test]
fn a_watch_sees_its_scope_only() {
    let world = World::default();
    let one = world.target(CM, "default", "a");
    let mut one = world.registry.watch(&one, &from(&world.version())).unwrap();
    let mut all = world.watch(CM, "", &from(&world.version())).unwrap();
    let mut other = world.watch(CM, "kube-system", &from(&world.version())).unwrap();
    world.config_map("a", &[]);
    world.config_map("ab", &[]);
    assert_eq!(kinds(&world.events(&mut one)), ["ADDED a"]);
    assert_eq!(kinds(&world.events(&mut all)), ["ADDED a", "ADDED ab"]);
    assert_eq!(kinds(&world.events(&mut other)), [""; 0]);
}

#[test]
fn events_are_seen_through_both_groups() {
    let world = World::default();
    let mut watch = world.watch("events.k8s.io/v1/events", "default", &from(&world.version())).unwrap();
    let about = json!({"kind": "Pod", "name": "p", "namespace": "default"});
    world
        .create("v1/events", json!({"metadata": {"name": "e"}, "involvedObject": about, "message": "text"}))
        .unwrap();
    let events = world.events(&mut watch);
    assert_eq!(kinds(&events), ["ADDED e"]);
    assert_eq!(
        (&events[0].1["apiVersion"], &events[0].1["note"], &events[0].1["regarding"]),
        (&json!("events.k8s.io/v1"), &json!("text"), &about)
    );
}

#[test]
fn a_watch_that_falls_behind_is_closed_and_an_idle_one_is_not() {
    let world = World::default();
    world.config_map("a", &[]);
    let start = world.version();
    let mut slow = world.watch(CM, "default", &from(&start)).unwrap();
    let mut idle = world.watch(CM, "kube-system", &from(&start)).unwrap();
    assert_eq!(kinds(&world.events(&mut idle)), [""; 0]);
    for i in 0..=WINDOW_CHANGES {
        world.merge(CM, "default/a", json!({"data": {"k": i.to_string()}})).unwrap();
    }
    assert_eq!(kinds(&world.events(&mut idle)), [""; 0]);
    let events = world.events(&mut slow);
    assert_eq!(
        (events[0].0.as_str(), &events[0].1["code"], &events[0].1["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
    assert_eq!(events[1].0, "END");
    let events = world.events(&mut world.watch(CM, "default", &from(&start)).unwrap());
    assert_eq!((events[0].0.as_str(), &events[0].1["code"]), ("ERROR", &json!(410)));
}
