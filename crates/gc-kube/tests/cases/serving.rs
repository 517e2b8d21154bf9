//! Tests changes to the served resources while the collector runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/shop.example.com/v1/widgets";

fn group(name: &str, resource: &str, scope: &str) -> Value {
    json!({"metadata": {"name": name}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
        {"resource": resource, "scope": scope, "responseKind": {"kind": resource},
         "verbs": ["list", "watch", "delete"]}]}]})
}

/// A server of definitions, and of widgets while `served` is true.
struct World {
    served: Arc<AtomicBool>,
    /// Sender of frames for the watch of definitions.
    definitions: mpsc::UnboundedSender<Value>,
    watched_at: Arc<Mutex<Option<Instant>>>,
    reported: mpsc::UnboundedReceiver<String>,
    board: StatusBoard,
}

/// Returns the event as text if it concerns resources.
fn of_resources(event: Event) -> Option<String> {
    Some(match event {
        Event::ResourceServed(info) => format!("served {}", info.gvr.resource),
        Event::ResourceGone(_) => "gone".into(),
        Event::Discovered => "discovered".into(),
        _ => return None,
    })
}

/// Starts a collector. `first_list` is the list of definitions.
fn world(first_list: Vec<Value>) -> World {
    let served = Arc::new(AtomicBool::new(false));
    let watched_at: Arc<Mutex<Option<Instant>>> = Arc::default();
    let (definitions, frames) = mpsc::unbounded_channel::<Value>();
    let frames = Arc::new(Mutex::new(Some((first_list, frames))));
    let (shown, at) = (Arc::clone(&served), Arc::clone(&watched_at));
    let client = ApiClient::in_process(move |request| {
        let (shown, at, frames) = (Arc::clone(&shown), Arc::clone(&at), Arc::clone(&frames));
        async move {
            let is_shown = shown.load(Ordering::SeqCst);
            match request.uri().path() {
                "/api" => whole(200, &discovery(&[])),
                "/apis" => {
                    let mut groups =
                        vec![group("apiextensions.k8s.io", "customresourcedefinitions", "Cluster")];
                    if is_shown {
                        groups.push(group("shop.example.com", "widgets", "Namespaced"));
                    }
                    whole(200, &json!({"kind": "APIGroupDiscoveryList", "items": groups}))
                }
                DEFINITIONS => {
                    let Some((first, later)) = frames.lock().unwrap().take() else {
                        return std::future::pending().await;
                    };
                    if !first.is_empty() {
                        // The definition is created while the list is in transit: after discovery, and before the watch.
                        shown.store(true, Ordering::SeqCst);
                    }
                    let first = futures::stream::iter(first).chain(futures::stream::iter([end_of_list(5)]));
                    let later = futures::stream::unfold(later, |mut later| async {
                        later.recv().await.map(|frame| (frame, later))
                    });
                    let lines = first.chain(later);
                    let lines =
                        lines.map(|event| Ok(http_body::Frame::data(Bytes::from(format!("{event}\n")))));
                    Response::new(StreamBody::new(lines).boxed_unsync())
                }
                WIDGETS if is_shown => {
                    at.lock().unwrap().get_or_insert_with(Instant::now);
                    stream(vec![end_of_list(6)], End::Open)
                }
                _ => whole(404, &Value::Null),
            }
        }
    });
    let (report, reported) = mpsc::unbounded_channel();
    let collector = MetadataCollector::new(client, CollectorOptions::default());
    let board = collector.board();
    let engine = recorder(report, of_resources);
    tokio::spawn(collector.run(engine, Arc::new(NoObserver), std::future::pending()));
    World { served, definitions, watched_at, reported, board }
}

impl World {
    async fn expect(&mut self, expected: &str) {
        let reported = tokio::time::timeout(Duration::from_secs(10), self.reported.recv()).await;
        assert_eq!(reported.unwrap_or_else(|_| panic!("{expected} was not reported")).unwrap(), expected);
    }

    async fn watched_at(&self) -> Instant {
        let watched = async {
            loop {
                if let Some(at) = *self.watched_at.lock().unwrap() {
                    return at;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), watched).await.unwrap()
    }
}

fn definition(version: u64) -> Value {
    event(
        "ADDED",
        &json!({"metadata": {"name": "widgets.shop.example.com", "uid": "d",
                                        "resourceVersion": version.to_string()}}),
    )
}

/// Regression test: such a definition was only found by the next poll, half a minute later.
#[tokio::test]
async fn a_definition_made_during_start_up_is_seen_at_once() {
    let begun = Instant::now();
    let mut world = world(vec![definition(3)]);
    for reported in ["served customresourcedefinitions", "discovered", "served widgets"] {
        world.expect(reported).await;
    }
    let watched = world.watched_at().await - begun;
    assert!(watched < gc_kube::DISCOVERY_PERIOD / 3, "{watched:?}");
}

/// A definition is served a moment after it becomes visible, and must be found before the next poll.
#[tokio::test]
async fn a_new_resource_is_watched_as_soon_as_it_is_served_and_a_vanished_one_forgotten() {
    for moment in [0, 300, 900, 1_600] {
        let mut world = world(vec![]);
        world.expect("served customresourcedefinitions").await;
        world.expect("discovered").await;
        world.definitions.send(definition(7)).unwrap();
        // This is the server's own delay, which no condition could replace.
        tokio::time::sleep(Duration::from_millis(moment)).await;
        let served = Instant::now();
        world.served.store(true, Ordering::SeqCst);
        world.expect("served widgets").await;
        let took = world.watched_at().await - served;
        assert!(took < gc_kube::DISCOVERY_PERIOD / 3, "{took:?} after {moment} ms");
        assert!(world.board.all().values().any(|status| status.name == "widgets.shop.example.com"));

        world.served.store(false, Ordering::SeqCst);
        world.definitions.send(event("DELETED", &definition(8)["object"])).unwrap();
        world.expect("gone").await;
        assert!(world.board.all().values().all(|status| status.name != "widgets.shop.example.com"));
    }
}

/// Regression test: a resource that could no longer be collected kept the state of its last watch, and nothing settled until it was
/// gone.
#[tokio::test]
async fn a_resource_that_is_no_longer_watched_has_no_state() {
    let is_collectable = Arc::new(AtomicBool::new(true));
    let shown = Arc::clone(&is_collectable);
    let (definitions, frames) = mpsc::unbounded_channel::<Value>();
    let frames = Arc::new(Mutex::new(Some(frames)));
    let client = ApiClient::in_process(move |request| {
        let (shown, frames) = (Arc::clone(&shown), Arc::clone(&frames));
        async move {
            match request.uri().path() {
                "/api" => whole(200, &discovery(&[])),
                "/apis" => {
                    let mut widgets = group("shop.example.com", "widgets", "Namespaced");
                    if !shown.load(Ordering::SeqCst) {
                        widgets["versions"][0]["resources"][0]["verbs"] = json!(["list", "watch"]);
                    }
                    let own = group("apiextensions.k8s.io", "customresourcedefinitions", "Cluster");
                    whole(200, &json!({"kind": "APIGroupDiscoveryList", "items": [own, widgets]}))
                }
                DEFINITIONS => {
                    let Some(later) = frames.lock().unwrap().take() else {
                        return std::future::pending().await;
                    };
                    let later = futures::stream::unfold(later, |mut later| async {
                        later.recv().await.map(|frame| (frame, later))
                    });
                    let lines = futures::stream::iter([end_of_list(5)]).chain(later);
                    let lines =
                        lines.map(|event| Ok(http_body::Frame::data(Bytes::from(format!("{event}\n")))));
                    Response::new(StreamBody::new(lines).boxed_unsync())
                }
                _ => whole(503, &Value::Null),
            }
        }
    });
    let (report, _reported) = mpsc::unbounded_channel();
    let collector = MetadataCollector::new(client, CollectorOptions::default());
    let board = collector.board();
    tokio::spawn(collector.run(recorder(report, of_resources), Arc::new(NoObserver), std::future::pending()));
    let has_state = async |expected: bool| {
        let seen = async {
            while board.all().values().any(|status| status.name == "widgets.shop.example.com") != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), seen).await.unwrap();
    };
    has_state(true).await;
    is_collectable.store(false, Ordering::SeqCst);
    definitions.send(definition(7)).unwrap();
    has_state(false).await;
}

/// A discovery that fails as a whole, or in one half, must be shown as a gap, and be retried.
#[tokio::test]
async fn failing_discovery_is_shown_and_got_over() {
    let healthy = Arc::new(Mutex::new(0));
    let stage = Arc::clone(&healthy);
    let client = ApiClient::in_process(move |request| {
        let stage = *stage.lock().unwrap();
        async move {
            let away = json!({"kind": "Status", "message": "away"});
            match (request.uri().path(), stage) {
                ("/api", 1..) => whole(200, &discovery(&["pods"])),
                ("/apis", 2..) => whole(200, &json!({"kind": "APIGroupDiscoveryList", "items": []})),
                ("/api/v1/pods", _) => stream(vec![end_of_list(5)], End::Open),
                _ => whole(503, &away),
            }
        }
    });
    let (report, mut reported) = mpsc::unbounded_channel();
    let collector = MetadataCollector::new(client, CollectorOptions::default());
    let board = collector.board();
    let engine = recorder(report, of_resources);
    tokio::spawn(collector.run(engine, Arc::new(NoObserver), std::future::pending()));
    let shows = async |what: &dyn Fn(&gc_kube::DiscoveryStatus) -> bool| {
        let seen = async {
            while !what(&board.discovery()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), seen).await.unwrap();
    };
    shows(&|status| {
        !status.ever_done && status.failing.as_ref().is_some_and(|(_, why)| why.contains("503: away"))
    })
    .await;
    *healthy.lock().unwrap() = 1;
    shows(&|status| {
        let failed = status.failed_groups.get("*").is_some_and(|why| why.contains("503: away"));
        status.ever_done && status.failing.is_none() && failed
    })
    .await;
    // One half is served and watched in the meantime.
    assert_eq!(reported.recv().await.unwrap(), "served pods");
    // The other half does not have to wait for the next round, half a minute later.
    *healthy.lock().unwrap() = 2;
    shows(&|status| status.failed_groups.is_empty()).await;
}
