//! Lists and watches against a scripted server: tests the events that the engine receives, and the requests that were sent.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

#[path = "cases/barriers.rs"]
mod barriers;
#[path = "cases/driver.rs"]
mod driver;
#[path = "cases/facts.rs"]
mod facts;
#[path = "cases/serving.rs"]
mod serving;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use gc_kube::{
    ApiClient, CollectorOptions, EventEngine, MetadataCollector, NoObserver, StatusBoard, SyncState,
};
use gc_types::{Effect, Event, ResourceId, Timestamp};
use http::Response;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};
use tokio::sync::mpsc;

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// One scripted answer to a request for the collection.
enum Script {
    Answer(u16, Value),
    /// A watch with these events, which then stays open or is cut off.
    Watch(Vec<Value>, End),
    /// A watch with this text in one piece, which stays open.
    Raw(String),
}

#[derive(Clone, Copy)]
enum End {
    Open,
    Cut,
}

fn whole(code: u16, body: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

fn stream(events: Vec<Value>, end: End) -> Response<Body> {
    let lines = events.into_iter().map(|event| Ok(http_body::Frame::data(Bytes::from(format!("{event}\n")))));
    let lines = futures::stream::iter(lines);
    let body = match end {
        End::Open => StreamBody::new(lines.chain(futures::stream::pending())).boxed_unsync(),
        End::Cut => {
            let cut = futures::stream::once(async { Err(std::io::Error::other("cut")) });
            StreamBody::new(lines.chain(cut)).boxed_unsync()
        }
    };
    Response::new(body)
}

fn raw(text: String) -> Response<Body> {
    let text = futures::stream::once(async move { Ok(http_body::Frame::data(Bytes::from(text + "\n"))) });
    Response::new(StreamBody::new(text.chain(futures::stream::pending())).boxed_unsync())
}

/// An engine that passes on its observations, and wants nothing.
struct Passive<F>(F);

impl<F: FnMut(Event) + Send + 'static> EventEngine for Passive<F> {
    fn handle(&mut self, event: Event) {
        (self.0)(event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        None
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        None
    }

    fn set_clock(&mut self, _now: Timestamp) {}

    fn objects_of(&self, _resource: ResourceId) -> Option<usize> {
        None
    }
}

/// Creates an engine that records the events for which `line` returns text.
fn recorder(
    report: mpsc::UnboundedSender<String>,
    line: impl Fn(Event) -> Option<String> + Send + 'static,
) -> impl EventEngine {
    Passive(move |event| {
        if let Some(line) = line(event) {
            let _ = report.send(line);
        }
    })
}

fn of_objects(event: Event) -> Option<String> {
    Some(match event {
        Event::ListStarted(_) => "list".into(),
        Event::Synced { resource_version, .. } => format!("synced {resource_version}"),
        Event::Progress { resource_version, .. } => format!("progress {resource_version}"),
        Event::Stale(_) => "stale".into(),
        Event::Observed(object) => format!("{} {}", object.key.name, object.resource_version),
        Event::Removed { key, resource_version, .. } => format!("-{} {resource_version}", key.name),
        Event::ResourceGone(_) => "gone".into(),
        _ => return None,
    })
}

struct Run {
    reported: mpsc::UnboundedReceiver<String>,
    asked: Arc<Mutex<Vec<String>>>,
    board: StatusBoard,
}

fn discovery(resources: &[&str]) -> Value {
    let resources: Vec<_> = resources
        .iter()
        .map(|name| {
            json!({"resource": name, "scope": "Namespaced", "responseKind": {"kind": name},
                "verbs": ["list", "watch", "delete"]})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "items": [
        {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": resources}]},
    ]})
}

/// Runs a collector over one resource whose requests are answered by the script, in order; further requests get no answer.
fn run(script: Vec<Script>) -> Run {
    let script = Arc::new(Mutex::new(VecDeque::from(script)));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let client = ApiClient::in_process(move |request| {
        let (script, log) = (Arc::clone(&script), Arc::clone(&log));
        async move {
            match request.uri().path() {
                "/api" => return whole(200, &discovery(&["configmaps"])),
                "/apis" => return whole(200, &json!({"kind": "APIGroupDiscoveryList", "items": []})),
                "/api/v1/configmaps" => {}
                _ => return whole(404, &Value::Null),
            }
            let query = request.uri().query().unwrap_or_default();
            // The duration of a watch is random.
            let query: Vec<_> = query.split('&').filter(|pair| !pair.starts_with("timeoutSeconds")).collect();
            log.lock().unwrap().push(query.join("&"));
            let next = script.lock().unwrap().pop_front();
            match next {
                Some(Script::Answer(code, body)) => whole(code, &body),
                Some(Script::Watch(events, end)) => stream(events, end),
                Some(Script::Raw(text)) => raw(text),
                None => std::future::pending().await,
            }
        }
    });
    let (report, reported) = mpsc::unbounded_channel();
    let collector = MetadataCollector::new(client, CollectorOptions::default());
    let board = collector.board();
    let engine = recorder(report, of_objects);
    tokio::spawn(collector.run(engine, Arc::new(NoObserver), std::future::pending()));
    Run { reported, asked, board }
}

impl Run {
    async fn expect(&mut self, expected: &[&str]) {
        for (index, line) in expected.iter().enumerate() {
            let reported = tokio::time::timeout(Duration::from_secs(5), self.reported.recv()).await;
            let reported = reported
                .unwrap_or_else(|_| panic!("nothing was reported where {line:?} ({index}) was expected"));
            assert_eq!(reported.unwrap(), *line, "at {index} of {expected:?}");
        }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn state(&self) -> (SyncState, String) {
        let all = self.board.all();
        let status = all.values().next().unwrap();
        (status.state, status.why.clone())
    }
}

fn object(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string()}})
}

/// Returns a list of metadata.
fn list(metadata: &Value, items: &[Value]) -> Value {
    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items})
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

fn end_of_list(version: u64) -> Value {
    event(
        "BOOKMARK",
        &json!({"metadata": {"resourceVersion": version.to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"}}}),
    )
}

fn bookmark(version: u64) -> Value {
    event("BOOKMARK", &json!({"metadata": {"resourceVersion": version.to_string()}}))
}

fn error(code: u16) -> Value {
    event("ERROR", &json!({"kind": "Status", "code": code, "message": "m"}))
}

const STREAMED: &str =
    "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

#[tokio::test]
async fn a_streamed_list_goes_over_into_a_watch() {
    let mut run = run(vec![Script::Watch(
        vec![
            event("ADDED", &object("a", 3)),
            event("ADDED", &object("b", 2)),
            end_of_list(5),
            event("MODIFIED", &object("a", 6)),
            event("DELETED", &object("b", 7)),
            bookmark(9),
        ],
        End::Open,
    )]);
    run.expect(&["list", "a 3", "b 2", "synced 5", "a 6", "-b 7", "progress 9"]).await;
    assert_eq!(run.asked(), [STREAMED]);
    assert_eq!(run.state(), (SyncState::Synced, String::new()));
}

/// Like kube-apiserver over an old etcd, and servers without streamed lists.
#[tokio::test]
async fn a_server_without_streamed_lists_is_listed_in_pages() {
    for refusal in [
        Script::Watch(vec![error(500)], End::Open),
        Script::Answer(422, json!({"kind": "Status", "message": "sendInitialEvents is forbidden"})),
        Script::Answer(400, json!({"kind": "Status", "message": "m"})),
        Script::Watch(vec![event("ADDED", &object("x", 1)), error(400)], End::Open),
    ] {
        let begun = match &refusal {
            Script::Watch(events, _) if events.len() > 1 => &["list", "x 1"][..],
            Script::Watch(..) => &["list"][..],
            Script::Answer(..) | Script::Raw(_) => &[][..],
        };
        let mut run = run(vec![
            refusal,
            Script::Answer(200, list(&json!({"resourceVersion": "5", "continue": "a+b"}), &[object("a", 3)])),
            Script::Answer(200, list(&json!({"resourceVersion": "5"}), &[object("b", 2)])),
            Script::Watch(vec![event("ADDED", &object("c", 6))], End::Open),
        ]);
        run.expect(begun).await;
        run.expect(&["list", "a 3", "b 2", "synced 5", "c 6"]).await;
        assert_eq!(
            run.asked(),
            [
                STREAMED,
                "limit=1000",
                "limit=1000&continue=a%2Bb",
                "watch=true&allowWatchBookmarks=true&resourceVersion=5",
            ]
        );
    }
}

#[tokio::test]
async fn a_watch_that_was_cut_is_resumed_where_it_was() {
    let mut run = run(vec![
        Script::Watch(vec![end_of_list(5), event("ADDED", &object("a", 6))], End::Cut),
        newest(7),
        Script::Watch(vec![event("ADDED", &object("b", 7)), bookmark(8)], End::Cut),
        newest(8),
        Script::Watch(vec![event("ADDED", &object("c", 9))], End::Open),
    ]);
    run.expect(&["list", "synced 5", "a 6", "stale", "synced 6", "b 7", "progress 8"]).await;
    run.expect(&["stale", "synced 8", "c 9"]).await;
    assert_eq!(
        run.asked()[1..],
        [
            "limit=1",
            "watch=true&allowWatchBookmarks=true&resourceVersion=6",
            "limit=1",
            "watch=true&allowWatchBookmarks=true&resourceVersion=8",
        ]
    );
}

/// A server that was restored from an older backup sends nothing to a watch from its own future.
#[tokio::test]
async fn a_server_that_has_gone_back_in_time_is_listed_again() {
    let mut run = run(vec![
        Script::Watch(vec![end_of_list(5), event("ADDED", &object("a", 6))], End::Cut),
        newest(4),
        Script::Watch(vec![event("ADDED", &object("b", 3)), end_of_list(4)], End::Open),
    ]);
    run.expect(&["list", "synced 5", "a 6", "stale", "list", "b 3", "synced 4"]).await;
    assert_eq!(run.asked(), [STREAMED, "limit=1", STREAMED]);
}

/// Returns the answer of a server to a request for its newest version.
fn newest(version: u64) -> Script {
    Script::Answer(200, list(&json!({"resourceVersion": version.to_string()}), &[]))
}

/// The list reveals deletions that no watch delivered: the engine receives its beginning and its end.
#[tokio::test]
async fn an_expired_version_leads_to_a_new_list() {
    for expired in [
        Script::Watch(vec![error(410)], End::Open),
        Script::Answer(410, json!({"kind": "Status", "code": 410, "message": "too old"})),
    ] {
        let told_of_error: &[&str] = match expired {
            Script::Watch(..) => &["stale", "synced 5", "stale"],
            Script::Answer(..) | Script::Raw(_) => &["stale"],
        };
        let mut run = run(vec![
            Script::Watch(vec![event("ADDED", &object("a", 3)), end_of_list(5)], End::Cut),
            newest(8),
            expired,
            Script::Watch(vec![event("ADDED", &object("b", 8)), end_of_list(9)], End::Open),
        ]);
        run.expect(&["list", "a 3", "synced 5"]).await;
        run.expect(told_of_error).await;
        run.expect(&["list", "b 8", "synced 9"]).await;
        assert_eq!(run.asked()[3], STREAMED);
    }
}

#[tokio::test]
async fn a_forbidden_list_says_so_and_is_tried_again() {
    let forbidden = || Script::Answer(403, json!({"kind": "Status", "message": "configmaps is forbidden"}));
    let mut run =
        run(vec![forbidden(), forbidden(), Script::Answer(200, list(&json!({"resourceVersion": "5"}), &[]))]);
    run.expect(&["list", "list", "synced 5"]).await;
    assert_eq!(run.asked()[..3], [STREAMED, "limit=1000", "limit=1000"]);
}

#[tokio::test]
async fn a_failing_resource_shows_why() {
    let mut run = run(vec![
        Script::Answer(400, json!({"kind": "Status", "message": "m"})),
        Script::Answer(500, json!({"kind": "Status", "message": "conversion webhook failed"})),
    ]);
    run.expect(&["list"]).await;
    let shown = async {
        while run.state().0 != SyncState::Failing {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), shown).await.unwrap();
    assert_eq!(
        run.state(),
        (SyncState::Failing, "the server answered 500: conversion webhook failed".to_owned())
    );
}

#[tokio::test]
async fn a_server_that_refuses_protobuf_is_asked_for_json() {
    let mut run = run(vec![
        Script::Answer(406, json!({"kind": "Status", "message": "only application/json"})),
        Script::Watch(vec![end_of_list(5)], End::Open),
    ]);
    run.expect(&["list", "synced 5"]).await;
    assert_eq!(run.asked(), [STREAMED, STREAMED]);
}

/// Events before a malformed one must be delivered, and the watch resumed after them.
#[tokio::test]
async fn nothing_is_lost_before_a_malformed_event() {
    let of_other = json!({"kind": "Secret", "metadata": {"name": "s", "uid": "s", "resourceVersion": "8"}});
    let nameless = json!({"metadata": {"uid": "s", "resourceVersion": "8"}});
    for malformed in [json!({"type": 5}), event("ADDED", &of_other), event("DELETED", &nameless)] {
        // In one chunk, as they may arrive.
        let together = format!("{}\n{malformed}", event("ADDED", &object("a", 7)));
        let mut run = run(vec![
            Script::Watch(vec![end_of_list(5)], End::Cut),
            newest(7),
            Script::Raw(together),
            Script::Watch(vec![event("ADDED", &object("b", 9))], End::Open),
        ]);
        run.expect(&["list", "synced 5", "stale", "synced 5", "a 7", "stale", "synced 7", "b 9"]).await;
        let resumed = "watch=true&allowWatchBookmarks=true&resourceVersion=7";
        assert_eq!(run.asked().last().map(String::as_str), Some(resumed), "{malformed}");
    }
}

/// An answer that is not the requested list must not count as one: nothing becomes synced, and the list is requested again.
#[tokio::test]
async fn what_is_not_the_list_is_asked_for_again() {
    let other =
        json!({"kind": "SecretList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": []});
    let repeated = list(&json!({"resourceVersion": "5", "continue": "x"}), &[]);
    for (lies, requests) in [
        (vec![json!({})], 2),
        (vec![Value::Null], 2),
        (vec![json!({"metadata": {"resourceVersion": "5"}, "items": []})], 2),
        (vec![json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}})], 2),
        (vec![list(&json!({}), &[])], 2),
        (vec![other], 2),
        (vec![repeated.clone(), repeated], 3),
    ] {
        let mut script = vec![Script::Answer(422, json!({"kind": "Status", "message": "m"}))];
        script.extend(lies.iter().map(|lie| Script::Answer(200, lie.clone())));
        let truth = list(&json!({"resourceVersion": "6"}), &[object("a", 3)]);
        script.push(Script::Answer(200, truth));
        let mut run = run(script);
        run.expect(&["list", "list", "a 3", "synced 6"]).await;
        assert_eq!(run.asked()[1..=requests].len(), requests, "{lies:?}");
    }
}
