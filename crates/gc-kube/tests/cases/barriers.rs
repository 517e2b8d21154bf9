//! Cost of foreground and orphan deletions: the number of lists per resource type must not depend on the number of owners and
//! namespaces.

use std::collections::BTreeMap;

use gc_kube::Observer;
use gc_types::{Outcome, Request};

use super::*;

/// Number of served resource types.
const RESOURCES: usize = 20;
/// Number of owners, each in a separate namespace.
const OWNERS: usize = 60;
/// Version of every resource before the owners are marked for deletion.
const BEFORE: u64 = 50;
/// Version of the first mark.
const MARKED: u64 = 100;

/// Observed deliveries, as shown by the journal and the metrics.
#[derive(Default)]
struct CountingObserver {
    requests: Mutex<BTreeMap<&'static str, usize>>,
    released: Mutex<usize>,
}

impl Observer for CountingObserver {
    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, _took: Duration) {
        let verb = match effect.request {
            Request::Barrier { .. } => "barrier",
            Request::RemoveFinalizer { .. } => "finalizer",
            Request::Read { .. } => "read",
            _ => "other",
        };
        *self.requests.lock().unwrap().entry(verb).or_default() += usize::try_from(round_trips).unwrap();
        if verb == "finalizer" && matches!(outcome, Outcome::Applied(_)) {
            *self.released.lock().unwrap() += 1;
        }
    }
}

fn owner(number: usize, finalizer: &str, marked: bool) -> Value {
    let version = if marked { MARKED + number as u64 } else { 10 };
    let mut object = json!({"metadata": {
        "name": "o", "namespace": format!("n{number}"), "uid": format!("u{number}"),
        "resourceVersion": version.to_string(), "finalizers": [finalizer],
    }});
    if marked {
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    object
}

/// Behaviour of the server's cache.
#[derive(Clone, Copy, PartialEq)]
enum Cache {
    Fresh,
    /// As with etcd 3.4: the server reports after a while that its cache does not reach the version.
    Behind,
}

struct Cluster {
    counted: Arc<CountingObserver>,
    /// Requests received by the server, other than watches: `list from cache` and so on.
    seen: Arc<Mutex<Vec<(std::time::Instant, String)>>>,
    frames: mpsc::UnboundedSender<Value>,
}

/// Creates a collector, and a server that never reports progress in other resources to its watches, as real ones do not for a
/// minute. `configmaps` contains the owners.
fn cluster(finalizer: &'static str, cache: Cache, marked: bool) -> Cluster {
    let names: Vec<String> = (1..RESOURCES).map(|number| format!("things{number}")).collect();
    let seen: Arc<Mutex<Vec<(std::time::Instant, String)>>> = Arc::default();
    let log = Arc::clone(&seen);
    let (frames, later) = mpsc::unbounded_channel::<Value>();
    let later = Arc::new(Mutex::new(Some(later)));
    let client = ApiClient::in_process(move |request| {
        let names = names.clone();
        let (log, later) = (Arc::clone(&log), Arc::clone(&later));
        async move {
            let path = request.uri().path().to_owned();
            let query = request.uri().query().unwrap_or_default().to_owned();
            match &*path {
                "/api" => {
                    let all: Vec<&str> = names.iter().map(String::as_str).chain(["configmaps"]).collect();
                    return whole(200, &discovery(&all));
                }
                "/apis" => return whole(200, &json!({"kind": "APIGroupDiscoveryList", "items": []})),
                _ => {}
            }
            let owners = path == "/api/v1/configmaps";
            if query.contains("watch=true") {
                let count = if owners { OWNERS } else { 0 };
                let first = (0..count).map(|number| event("ADDED", &owner(number, finalizer, marked)));
                let version = if owners && marked { MARKED + OWNERS as u64 } else { BEFORE };
                let first = first.chain([end_of_list(version)]).collect::<Vec<_>>();
                let later = if owners { later.lock().unwrap().take() } else { None };
                let later = futures::stream::unfold(later, |later| async {
                    let Some(mut later) = later else { return std::future::pending().await };
                    let frame = later.recv().await?;
                    Some((frame, Some(later)))
                });
                let lines = futures::stream::iter(first).chain(later);
                let lines = lines.map(|event| Ok(http_body::Frame::data(Bytes::from(format!("{event}\n")))));
                return Response::new(StreamBody::new(lines).boxed_unsync());
            }
            let note = |what: &str| log.lock().unwrap().push((std::time::Instant::now(), what.to_owned()));
            if path.ends_with("/o") {
                note(request.method().as_str());
                let number: usize = path.split('/').nth(4).unwrap()[1..].parse().unwrap();
                return whole(200, &owner(number, finalizer, true));
            }
            if !query.contains("limit=") {
                return whole(404, &Value::Null);
            }
            if query.contains("NotOlderThan") {
                note("list from cache");
                if cache == Cache::Behind {
                    return whole(504, &json!({"kind": "Status", "code": 504, "reason": "Timeout"}));
                }
            } else {
                note("list from store");
            }
            whole(200, &super::list(&json!({"resourceVersion": "1000"}), &[]))
        }
    });
    let counted = Arc::new(CountingObserver::default());
    let collector = MetadataCollector::new(client, CollectorOptions::default());
    let engine = gc_ownership::Engine::new(gc_ownership::Config::default());
    tokio::spawn(collector.run(engine, Arc::clone(&counted) as Arc<dyn Observer>, std::future::pending()));
    Cluster { counted, seen, frames }
}

impl Cluster {
    async fn released(&self, number: usize) {
        let done = async {
            while *self.counted.released.lock().unwrap() < number {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), done).await.expect("owners wait still");
    }

    fn seen(&self) -> BTreeMap<String, usize> {
        let mut seen = BTreeMap::new();
        for (_, what) in &*self.seen.lock().unwrap() {
            *seen.entry(what.clone()).or_default() += 1;
        }
        seen
    }
}

fn expected(rows: &[(&str, usize)]) -> BTreeMap<String, usize> {
    rows.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect()
}

const LISTS: usize = RESOURCES - 1;

/// Each owner used to cost a list of each resource type in its namespace: 1,140 here. For owners that orphan their dependents, two
/// answers must agree: this takes a read of each owner, two lists of each resource with a silent watch, and one of the owners' resource.
#[tokio::test]
async fn sixty_owners_in_as_many_namespaces_cost_one_list_per_resource() {
    for (finalizer, from, lists, reads) in [
        ("foregroundDeletion", "list from cache", LISTS, 0),
        ("orphan", "list from store", 2 * LISTS + 1, OWNERS),
    ] {
        let cluster = cluster(finalizer, Cache::Fresh, true);
        cluster.released(OWNERS).await;
        assert_eq!(
            cluster.seen(),
            expected(&[("GET", reads + OWNERS), ("PATCH", OWNERS), (from, lists)]),
            "{finalizer}"
        );
        // Every request is counted, in both the metrics and the journal.
        let counted = cluster.counted.requests.lock().unwrap().clone();
        let mut requests = BTreeMap::from([("barrier", lists), ("finalizer", 2 * OWNERS), ("read", reads)]);
        requests.retain(|_, count| *count > 0);
        assert_eq!(counted, requests, "{finalizer}");
    }
}

#[tokio::test]
async fn a_cache_that_is_behind_is_asked_a_few_times_and_the_store_instead() {
    let cluster = cluster("foregroundDeletion", Cache::Behind, true);
    cluster.released(OWNERS).await;
    let seen = cluster.seen();
    assert_eq!(seen["list from store"], LISTS);
    assert!(seen["list from cache"] <= gc_controller::barriers::BARRIER_LISTS, "{seen:?}");
    let lists = seen["list from store"] + seen["list from cache"];
    assert_eq!(cluster.counted.requests.lock().unwrap()["barrier"], lists);
}

/// Owners are deleted one after another: within a second, no more lists may begin than there are resource types.
#[tokio::test]
async fn owners_that_come_one_by_one_cost_no_more_lists_a_second() {
    let cluster = cluster("foregroundDeletion", Cache::Fresh, false);
    for number in 0..OWNERS {
        cluster.frames.send(event("MODIFIED", &owner(number, "foregroundDeletion", true))).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cluster.released(OWNERS).await;
    let seen = cluster.seen.lock().unwrap();
    let lists: Vec<_> = seen.iter().filter(|(_, what)| what.starts_with("list")).map(|(at, _)| *at).collect();
    assert!(lists.len() <= 4 * RESOURCES, "{}", lists.len());
    for window in lists.windows(RESOURCES + 1) {
        // Requests sent over a second may arrive in slightly less.
        let took = window[RESOURCES] - window[0];
        assert!(took >= Duration::from_millis(900), "{took:?}, {seen:?}");
    }
}
