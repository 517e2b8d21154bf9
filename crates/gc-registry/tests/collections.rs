//! Scenarios of spec `api-deletion.md`, section 16.6, and tests of lists.
#![allow(clippy::unwrap_used)] // A test that fails here has failed.

mod world;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gc_registry::Config;
use gc_registry::api::{
    DeleteOptions, ListOptions, ObjectList, Operation, ResponseBody, VersionMatch, WatchEvent,
};
use gc_registry::error::ApiError;
use gc_registry::storage::{Storage as _, Transaction, Write};
use gc_store::{HistoryOptions, MemoryOptions, MemoryStorage};
use serde_json::{Value, json};
use world::{World, kinds, pod};

const CM: &str = "v1/configmaps";

fn labelled(world: &World, name: &str, label: &str) {
    world.create(CM, json!({"metadata": {"name": name, "labels": {"l": label}}})).unwrap();
}

fn list(world: &World, resource: &str, options: ListOptions) -> Result<ObjectList, ApiError> {
    match world.list(resource, "default", options)?.body {
        ResponseBody::List(list) => Ok(list),
        other => panic!("{other:?}"),
    }
}

#[test]
fn component_statuses_are_those_of_the_store_and_of_what_runs_beside_it() {
    let world =
        World::new(gc_registry::Config { components: &["scheduler"], ..gc_registry::Config::default() });
    let status = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": name},
            "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]})
    };
    let listed = list(&world, "v1/componentstatuses", ListOptions::default()).unwrap();
    assert_eq!(names(&listed), ["scheduler", "etcd-0"]);
    for name in ["scheduler", "etcd-0"] {
        assert_eq!(world.get("v1/componentstatuses", &format!("/{name}")).unwrap(), status(name));
    }
    let missing = world.get("v1/componentstatuses", "/controller-manager").unwrap_err();
    assert_eq!(
        (missing.code, missing.message.as_str()),
        (404, "componentstatus \"controller-manager\" not found")
    );
}

/// The same answers as kube-apiserver 1.36.2 gives.
#[test]
fn pods_are_selected_by_their_first_address_in_one_field_only() {
    let world = World::default();
    world.create("v1/pods", pod("a", "", json!({}), json!({}))).unwrap();
    let status = json!({"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}});
    world.merge("v1/pods/status", "default/a", status).unwrap();
    for (selector, found) in [
        ("status.podIP=10.0.0.1", true),
        ("status.podIP=10.0.0.2", false),
        ("status.podIPs=10.0.0.1", false),
        ("status.podIPs=", true),
    ] {
        let options = ListOptions { field_selector: selector.into(), ..ListOptions::default() };
        assert_eq!(!names(&list(&world, "v1/pods", options).unwrap()).is_empty(), found, "{selector}");
    }
}

/// Regression test: the pages were read between the deletions, which pushed the state of the first page out of the history.
#[test]
fn a_collection_larger_than_the_history_is_deleted_whole() {
    /// More than one page.
    const OBJECTS: usize = 12_000;
    let history = HistoryOptions { changes: 4000, bytes: 1 << 20 };
    let storage = Arc::new(MemoryStorage::new(MemoryOptions { history, ..MemoryOptions::default() }));
    let world = World::over(Arc::clone(&storage) as _, Arc::clone(&storage), Config::default());
    world.config_map("first", &[]);
    fill(&storage, OBJECTS);
    let deleted = delete_collection(&world, CM, ListOptions::default(), DeleteOptions::default()).unwrap();
    assert_eq!(deleted.items.len(), OBJECTS + 1);
    assert_eq!((deleted.continue_token, deleted.remaining_item_count), (String::new(), None));
    let left = world::body(&world.list(CM, "default", ListOptions::default()).unwrap());
    assert_eq!(left, json!([]));
}

/// Writes this number of further ConfigMaps, including `first`, into a store.
fn fill(storage: &MemoryStorage, objects: usize) {
    let one = storage.get("/core/configmaps/default/first", None).unwrap().item.unwrap();
    let text = std::str::from_utf8(&one.value).unwrap();
    let put = |n: usize| {
        let name = format!("m{n:05}");
        let value = text.replace("first", &name).into_bytes();
        Write::Put(format!("/core/configmaps/default/{name}").into(), value.into())
    };
    let writes = (0..objects).map(put).collect();
    storage.commit(Transaction { conditions: Vec::new(), writes }).unwrap();
}

/// Long lists and initial states are both read in pages, between which other requests write and delete.
#[test]
fn long_lists_and_initial_states_of_watches_are_of_one_version() {
    const OBJECTS: usize = 9000;
    let history = HistoryOptions { changes: 10, bytes: 1 << 20 };
    let storage = Arc::new(MemoryStorage::new(MemoryOptions { history, ..MemoryOptions::default() }));
    let world = World::over(Arc::clone(&storage) as _, Arc::clone(&storage), Config::default());
    world.config_map("first", &[]);
    fill(&storage, OBJECTS);
    let version = storage.revision().unwrap().to_string();
    let options = ListOptions {
        send_initial_events: Some(true),
        allow_watch_bookmarks: true,
        resource_version_match: Some(VersionMatch::NotOlderThan),
        ..ListOptions::default()
    };
    let target = world.target(CM, "default", "");
    let mut watch = world.registry.watch(&target, &options).unwrap();
    let listed = list(&world, CM, ListOptions { in_pages: true, ..ListOptions::default() }).unwrap();
    let mut rest = listed.rest.unwrap();
    let again = rest.clone();
    // More changes than the history holds, but less than twice as many.
    for n in 0..15 {
        let key = format!("/core/configmaps/default/m{:05}", OBJECTS - 1 - n);
        storage
            .commit(Transaction { conditions: Vec::new(), writes: vec![Write::Delete(key.into())] })
            .unwrap();
    }
    for mut rest in [again, rest.clone()] {
        let mut count = listed.items.len();
        loop {
            let page = rest.read().unwrap();
            if page.is_empty() {
                break;
            }
            count += page.len();
        }
        assert_eq!((count, &listed.resource_version), (OBJECTS + 1, &version));
    }
    let mut context = Context::from_waker(Waker::noop());
    for n in 0..=OBJECTS {
        assert!(matches!(watch.poll_next(&mut context), Poll::Ready(Some(WatchEvent::Added(_)))), "{n}");
    }
    let Poll::Ready(Some(WatchEvent::Bookmark { resource_version, initial_events_end: true })) =
        watch.poll_next(&mut context)
    else {
        panic!("the initial state has no end");
    };
    assert_eq!(resource_version, version);
    // A reader that is too slow must cost the store no more than twice its history.
    for n in 0..15 {
        let key = format!("/core/configmaps/default/x{n}");
        let writes = vec![Write::Put(key.into(), "{}".into())];
        storage.commit(Transaction { conditions: Vec::new(), writes }).unwrap();
    }
    assert_eq!(rest.read().unwrap_err().code, 410);
}

fn delete_collection(
    world: &World,
    resource: &str,
    options: ListOptions,
    delete: DeleteOptions,
) -> Result<ObjectList, ApiError> {
    match world.run(resource, "default", Operation::DeleteCollection(options, delete))?.body {
        ResponseBody::List(list) => Ok(list),
        other => panic!("{other:?}"),
    }
}

fn names(list: &ObjectList) -> Vec<String> {
    list.items.iter().map(|item| item.metadata().unwrap()["name"].as_str().unwrap().to_owned()).collect()
}

fn left(world: &World, resource: &str) -> Vec<String> {
    names(&list(world, resource, ListOptions::default()).unwrap())
}

#[test]
fn d60_to_d65_collections() {
    let world = World::default();
    for name in ["a", "b", "c"] {
        labelled(&world, name, "1");
    }
    labelled(&world, "d", "2");
    let dry = DeleteOptions { dry_run: vec!["All".into()], ..DeleteOptions::default() };
    let all = delete_collection(&world, CM, ListOptions::default(), dry).unwrap();
    assert_eq!(names(&all), ["a", "b", "c", "d"]);
    assert_eq!(left(&world, CM), ["a", "b", "c", "d"]);
    let page = ListOptions { limit: 2, ..ListOptions::default() };
    let page = delete_collection(&world, CM, page, DeleteOptions::default()).unwrap();
    assert_eq!(names(&page), ["a", "b"]);
    assert!(!page.continue_token.is_empty());
    let selected = ListOptions { label_selector: "l=1".into(), ..ListOptions::default() };
    assert_eq!(
        names(&delete_collection(&world, CM, selected.clone(), DeleteOptions::default()).unwrap()),
        ["c"]
    );
    assert_eq!(left(&world, CM), ["d"]);
    assert_eq!(names(&delete_collection(&world, CM, selected, DeleteOptions::default()).unwrap()), [""; 0]);
}

/// The selection applies to an earlier version; the current object with the same name is a different one, and was never selected.
#[test]
fn s03_what_was_made_anew_meanwhile_survives_the_deletion_of_its_collection() {
    let world = World::default();
    labelled(&world, "a", "1");
    labelled(&world, "b", "1");
    let then = world.version();
    world.delete(CM, "default/a", DeleteOptions::default()).unwrap();
    labelled(&world, "a", "2");
    let selected = ListOptions {
        label_selector: "l=1".into(),
        resource_version: then,
        resource_version_match: Some(VersionMatch::Exact),
        ..ListOptions::default()
    };
    let deleted = delete_collection(&world, CM, selected, DeleteOptions::default()).unwrap();
    assert_eq!(
        (names(&deleted), left(&world, CM)),
        (vec!["a".to_owned(), "b".to_owned()], vec!["a".to_owned()])
    );
}

#[test]
fn s05_a_version_selects_what_is_listed_and_guards_nothing() {
    let world = World::default();
    labelled(&world, "a", "1");
    let then = world.version();
    world.merge(CM, "default/a", json!({"data": {"k": "v"}})).unwrap();
    let options = ListOptions {
        resource_version: then,
        resource_version_match: Some(VersionMatch::NotOlderThan),
        ..ListOptions::default()
    };
    assert_eq!(names(&delete_collection(&world, CM, options, DeleteOptions::default()).unwrap()), ["a"]);
    assert_eq!(left(&world, CM), [""; 0]);
}

#[test]
fn d66_scheduled_pods_stay_for_their_grace_period() {
    let world = World::default();
    for (name, node) in [("a", "n"), ("b", "")] {
        world.create("v1/pods", pod(name, node, json!({}), json!({}))).unwrap();
    }
    let options = ListOptions { resource_version: world.version(), ..ListOptions::default() };
    let mut watch = world.watch("v1/pods", "default", &options).unwrap();
    let answer =
        delete_collection(&world, "v1/pods", ListOptions::default(), DeleteOptions::default()).unwrap();
    assert_eq!(names(&answer), ["a", "b"]);
    assert!(
        answer.items.iter().all(|item| item.metadata().unwrap().get("deletionTimestamp").is_none()),
        "as listed"
    );
    assert_eq!(kinds(&world.events(&mut watch)), ["MODIFIED a", "MODIFIED b", "DELETED b"]);
    assert_eq!(left(&world, "v1/pods"), ["a"]);
}

#[test]
fn d67_namespaces_are_not_deleted_by_collection() {
    let world = World::default();
    let error = delete_collection(&world, "v1/namespaces", ListOptions::default(), DeleteOptions::default())
        .unwrap_err();
    assert_eq!((error.code, &*error.reason), (405, "MethodNotAllowed"));
}

#[test]
fn pages_of_a_list_are_one_snapshot() {
    let world = World::default();
    for name in ["e", "c", "a", "b-2", "b.1"] {
        labelled(&world, name, "1");
    }
    let first = list(&world, CM, ListOptions { limit: 2, ..ListOptions::default() }).unwrap();
    assert_eq!((names(&first), first.remaining_item_count), (vec!["a".to_owned(), "b-2".into()], Some(3)));
    world.delete(CM, "default/b.1", DeleteOptions::default()).unwrap();
    labelled(&world, "d", "1");
    let next =
        ListOptions { limit: 2, continue_token: first.continue_token.clone(), ..ListOptions::default() };
    let second = list(&world, CM, next).unwrap();
    assert_eq!((names(&second), second.remaining_item_count), (vec!["b.1".to_owned(), "c".into()], Some(1)));
    assert_eq!(second.resource_version, first.resource_version);
    let rest = ListOptions { continue_token: second.continue_token, ..ListOptions::default() };
    let third = list(&world, CM, rest).unwrap();
    assert_eq!(
        (names(&third), third.continue_token.as_str(), third.remaining_item_count),
        (vec!["e".to_owned()], "", None)
    );
    let old = ListOptions {
        resource_version: first.resource_version,
        resource_version_match: Some(VersionMatch::Exact),
        ..ListOptions::default()
    };
    assert_eq!(names(&list(&world, CM, old).unwrap()), ["a", "b-2", "b.1", "c", "e"]);
}

/// The first page counts the objects that follow: counting them for every page would take time quadratic in the size of the
/// collection.
#[test]
fn what_follows_a_page_is_counted_once() {
    let world = World::default();
    for name in ["a", "b", "c", "d", "e"] {
        labelled(&world, name, "1");
    }
    let list_page = |token: &str| {
        let options = ListOptions { limit: 2, continue_token: token.to_owned(), ..ListOptions::default() };
        let page = list(&world, CM, options).unwrap();
        (names(&page), page.remaining_item_count, page.continue_token)
    };
    let (_, counted, token) = list_page("");
    assert_eq!(counted, Some(3));
    // (number that the token states, number that the next page states)
    for (said, expected) in [(Some(3), 1), (Some(700), 698), (Some(0), 1), (None, 1)] {
        let mut content: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(&token).unwrap()).unwrap();
        assert_eq!(content["remaining"], 3);
        content["remaining"] = said.into();
        let token = URL_SAFE_NO_PAD.encode(content.to_string());
        let (items, remaining, next) = list_page(&token);
        assert_eq!((items, remaining), (vec!["c".to_owned(), "d".into()], Some(expected)));
        assert_eq!(list_page(&next), (vec!["e".to_owned()], None, String::new()));
    }
}

#[test]
fn pages_with_a_selector_are_full_and_do_not_count_the_rest() {
    let world = World::default();
    for (name, label) in [("a", "1"), ("b", "2"), ("c", "1"), ("d", "2"), ("e", "1")] {
        labelled(&world, name, label);
    }
    let options = ListOptions { limit: 2, label_selector: "l=1".into(), ..ListOptions::default() };
    let first = list(&world, CM, options.clone()).unwrap();
    assert_eq!((names(&first), first.remaining_item_count), (vec!["a".to_owned(), "c".into()], None));
    let next = ListOptions { continue_token: first.continue_token, ..options };
    let second = list(&world, CM, next).unwrap();
    assert_eq!((names(&second), second.continue_token.as_str()), (vec!["e".to_owned()], ""));
}

#[test]
fn options_of_lists_that_are_refused() {
    let world = World::default();
    labelled(&world, "a", "1");
    labelled(&world, "b", "1");
    let page = list(&world, CM, ListOptions { limit: 1, ..ListOptions::default() }).unwrap();
    let base = ListOptions::default;
    let cases = [
        (
            ListOptions { resource_version: "888888888888".into(), ..base() },
            504,
            "Timeout: Too large resource version: 888888888888, current: ",
        ),
        (
            ListOptions {
                resource_version: "888888888888".into(),
                resource_version_match: Some(VersionMatch::Exact),
                ..base()
            },
            504,
            "Timeout: Too large resource version: 888888888888, current: ",
        ),
        (
            ListOptions { resource_version: "x".into(), ..base() },
            400,
            "invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
        (ListOptions { continue_token: "rubbish".into(), ..base() }, 400, "invalid continue token: "),
        (
            ListOptions { continue_token: page.continue_token, resource_version: "1".into(), ..base() },
            400,
            "specifying resource version is not allowed when using continue",
        ),
        (
            ListOptions { resource_version_match: Some(VersionMatch::Exact), ..base() },
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            ListOptions {
                resource_version_match: Some(VersionMatch::Exact),
                resource_version: "0".into(),
                ..base()
            },
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        (
            ListOptions { send_initial_events: Some(true), ..base() },
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ),
        (
            ListOptions { label_selector: "app in".into(), ..base() },
            400,
            "unable to parse requirement: found '' expected: '('",
        ),
        (
            ListOptions { label_selector: "bad key=v".into(), ..base() },
            400,
            "unable to parse requirement: found 'key', expected: in, notin, =, ==, !=, gt, lt",
        ),
        (
            ListOptions { field_selector: "data.k=v".into(), ..base() },
            400,
            "\"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (
            ListOptions { field_selector: "metadata.name".into(), ..base() },
            400,
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
        ),
    ];
    for (options, code, message) in cases {
        let error = list(&world, CM, options.clone()).unwrap_err();
        assert_eq!(error.code, code, "{options:?}");
        assert!(error.message.starts_with(message), "{options:?}: {}", error.message);
        // A client that asks for an exact version does not have to retry.
        let waits = code == 504 && options.resource_version_match.is_none();
        let told = error.details.is_some_and(|details| details.retry_after_seconds.is_some());
        assert_eq!(told, waits, "{options:?}");
    }
}

#[test]
fn label_selectors() {
    let world = World::default();
    for (name, labels) in [("a", json!({"app": "x", "n": "5"})), ("b", json!({"app": "y"})), ("c", json!({}))]
    {
        world.create("v1/secrets", json!({"metadata": {"name": name, "labels": labels}})).unwrap();
    }
    let cases: &[(&str, &[&str])] = &[
        ("", &["a", "b", "c"]),
        ("app=x", &["a"]),
        ("app==x", &["a"]),
        ("app!=x", &["b", "c"]),
        ("app in (x, y)", &["a", "b"]),
        ("app notin (x)", &["b", "c"]),
        ("app", &["a", "b"]),
        ("!app", &["c"]),
        ("n>4", &["a"]),
        ("n<5", &[]),
        ("app in (x,y),!n", &["b"]),
        ("app=", &[]),
    ];
    for (selector, expected) in cases {
        let options = ListOptions { label_selector: (*selector).into(), ..ListOptions::default() };
        assert_eq!(names(&list(&world, "v1/secrets", options).unwrap()), *expected, "{selector}");
    }
}

#[test]
fn tokens_to_continue_with_are_read_as_upstream_reads_them() {
    let world = World::default();
    let encoded = |token: &str| URL_SAFE_NO_PAD.encode(token);
    for (token, why) in [
        ("a".to_owned(), ": illegal base64 data at input byte 0"),
        (encoded(r#"{"v":"v9","rv":1,"start":"a"}"#), ": server does not recognize this encoded version v9"),
        (
            encoded(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (
            encoded(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
            ": encoded start key empty (version meta.k8s.io/v1)",
        ),
        (encoded(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../a"}"#), ": ../a"),
        (encoded(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a//b"}"#), ": a//b"),
        (encoded(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"./a"}"#), ": ./a"),
    ] {
        let options = ListOptions { continue_token: token.clone(), ..ListOptions::default() };
        let error = list(&world, CM, options).unwrap_err();
        let expected = format!("invalid continue token: continue key is not valid{why}");
        assert_eq!((error.code, error.message), (400, expected), "{token}");
    }
}

#[test]
fn a_list_whose_first_state_is_gone_may_go_on_in_the_newest_one() {
    let world = World::default();
    for name in ["a", "b", "c"] {
        labelled(&world, name, "1");
    }
    let limited = |continue_token: String| ListOptions { limit: 1, continue_token, ..ListOptions::default() };
    let first = list(&world, CM, limited(String::new())).unwrap();
    assert_eq!(names(&first), ["a"]);
    labelled(&world, "bb", "1");
    let newest = world.registry.forget_history(None).unwrap();
    // The first call only records the current end of the history.
    let second = list(&world, CM, limited(first.continue_token.clone())).unwrap();
    assert_eq!(names(&second), ["b"]);
    assert_eq!(world.registry.forget_history(Some(newest)).unwrap(), newest);
    let error = list(&world, CM, limited(first.continue_token)).unwrap_err();
    let status = error.to_status();
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")));
    let token = status["metadata"]["continue"].as_str().unwrap();
    let read: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap();
    assert_eq!(read, json!({"v": "meta.k8s.io/v1", "rv": -1, "start": "a\u{0}"}));
    let second = list(&world, CM, limited(token.to_owned())).unwrap();
    let third = list(&world, CM, limited(second.continue_token.clone())).unwrap();
    assert_eq!(names(&second), ["b"]);
    assert_eq!(names(&third), ["bb"]);
    assert_eq!(second.resource_version, newest.to_string());
}

/// A list of any version has no pages, except for Events.
#[test]
fn lists_of_any_version_have_no_pages() {
    let world = World::default();
    for name in ["a", "b", "c"] {
        world.create(CM, json!({"metadata": {"name": name}})).unwrap();
        let event = json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}});
        world.create("v1/events", event).unwrap();
    }
    let all = |resource: &str, version: &str, limit: i64| {
        let options = ListOptions { limit, resource_version: version.to_owned(), ..ListOptions::default() };
        let page = list(&world, resource, options).unwrap();
        (page.items.len(), page.remaining_item_count, page.continue_token.is_empty())
    };
    let (whole, page) = ((3, None, true), (1, Some(2), false));
    for (resource, version, expected) in
        [(CM, "0", whole), (CM, "", page), ("v1/events", "0", page), ("events.k8s.io/v1/events", "0", page)]
    {
        assert_eq!(all(resource, version, 1), expected, "{resource} of {version:?}");
    }
}
