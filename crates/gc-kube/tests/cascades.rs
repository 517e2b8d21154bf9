//! Cost of cascades on the embedded server, in requests and in time: the shipped collector with the engine of owner references,
//! compared with a bare loop of requests.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use gc_apiserver::{RunningServer, Server, ServerConfig};
use gc_kube::concurrency::ConcurrencyOptions;
use gc_kube::{ApiClient, CollectorOptions, MetadataCollector, NoObserver};
use gc_registry::{Config, Registry};
use gc_store::MemoryStorage;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};

#[path = "cases/lifecycle.rs"]
mod lifecycle;

/// Timeout of all waits.
const PATIENCE: Duration = Duration::from_mins(1);

/// Delay of an answer, which depends only on its number in the sequence.
type Latency = fn(u64) -> Duration;

fn none(_number: u64) -> Duration {
    Duration::ZERO
}

/// Returns 30 to 370 ms, 200 ms on average.
fn scattered(number: u64) -> Duration {
    Duration::from_millis(30 + number.wrapping_mul(6_364_136_223_846_793_005) % 341)
}

/// A server, its administrator, and a client whose requests are counted and delayed.
struct World {
    _server: RunningServer,
    admin: ApiClient,
    late: ApiClient,
    /// Number of requests by kind: `list`, `delete`, …
    asked: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    /// Watched resources.
    watched: Arc<Mutex<BTreeSet<String>>>,
    /// Live reads in flight, and their maximum.
    reading: Arc<[AtomicUsize; 2]>,
}

fn verb(request: &Request<Full<Bytes>>) -> Option<&'static str> {
    let query = request.uri().query().unwrap_or_default();
    match *request.method() {
        Method::DELETE => Some("delete"),
        Method::PATCH => Some("patch"),
        Method::GET if query.contains("watch=") => None,
        Method::GET if query.contains("limit=") => Some("list"),
        // These are live reads; other GETs belong to discovery.
        Method::GET => request.uri().path().contains("/namespaces/").then_some("get"),
        _ => None,
    }
}

impl World {
    async fn start(latency: Latency) -> Self {
        let registry = Registry::open(Arc::new(MemoryStorage::default()), Config::default()).unwrap();
        let config = ServerConfig::at("127.0.0.1:0".parse().unwrap());
        let server = Server::start(config, Arc::new(registry)).await.unwrap();
        let (way, late_way) = (server.in_process("admin"), server.in_process("admin"));
        let asked = Arc::<Mutex<BTreeMap<&'static str, usize>>>::default();
        let watched = Arc::<Mutex<BTreeSet<String>>>::default();
        let (counted, number) = (Arc::clone(&asked), Arc::new(AtomicU64::new(0)));
        let watches = Arc::clone(&watched);
        let reading = Arc::<[AtomicUsize; 2]>::default();
        let reads = Arc::clone(&reading);
        let late = ApiClient::in_process(move |request: Request<Full<Bytes>>| {
            let verb = verb(&request);
            if request.uri().query().unwrap_or_default().contains("watch=") {
                watches.lock().unwrap().insert(request.uri().path().to_owned());
            }
            if let Some(verb) = verb {
                *counted.lock().unwrap().entry(verb).or_default() += 1;
            }
            let wait = verb.map_or(Duration::ZERO, |_| latency(number.fetch_add(1, Ordering::Relaxed)));
            let is_read = verb == Some("get");
            if is_read {
                let present = reads[0].fetch_add(1, Ordering::SeqCst) + 1;
                reads[1].fetch_max(present, Ordering::SeqCst);
            }
            let (answer, reads) = (late_way.call(request), Arc::clone(&reads));
            async move {
                tokio::time::sleep(wait).await;
                let answer = answer.await;
                reads[0].fetch_sub(usize::from(is_read), Ordering::SeqCst);
                answer
            }
        });
        let admin = ApiClient::in_process(move |request| way.call(request));
        Self { _server: server, admin, late, asked, watched, reading }
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json").header("accept", "application/json");
        let answer = self.admin.call(request.body(Full::new(Bytes::from(text))).unwrap()).await.unwrap();
        (answer.head.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    /// Creates a ConfigMap; returns its UID.
    async fn create(&self, namespace: &str, name: &str, owner: Option<(&str, &str)>) -> String {
        let references: Vec<Value> = owner
            .into_iter()
            .map(|(name, uid)| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true})
            })
            .collect();
        let object = json!({"metadata": {"name": name, "ownerReferences": references}});
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let (code, made) = self.send(Method::POST, &path, &object).await;
        assert_eq!(code, 201, "{made}");
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    async fn delete(&self, namespace: &str, name: &str, policy: &str) {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        let (code, answer) = self.send(Method::DELETE, &path, &options).await;
        assert!(code < 300, "{answer}");
    }

    /// Returns the number of ConfigMaps whose names begin with `prefix`.
    async fn left(&self, prefix: &str) -> usize {
        let (_, list) = self.send(Method::GET, "/api/v1/configmaps", &Value::Null).await;
        let names = list["items"].as_array().unwrap().iter();
        names.filter(|one| one["metadata"]["name"].as_str().unwrap().starts_with(prefix)).count()
    }

    async fn until(&self, prefix: &str, left: usize) {
        let begun = Instant::now();
        while self.left(prefix).await != left {
            assert!(begun.elapsed() < PATIENCE, "{prefix} stay: {}", self.left(prefix).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts the collector, and waits until it is synced: an orphan planted before is then gone.
    async fn collect(&self) {
        self.create("default", "planted", Some(("absent", "00000000-0000-4000-8000-000000000000"))).await;
        self.start_collector();
        self.until("planted", 0).await;
        self.asked.lock().unwrap().clear();
    }

    fn start_collector(&self) {
        let collector = MetadataCollector::new(self.late.clone(), CollectorOptions::default());
        let engine = gc_ownership::Engine::new(gc_ownership::Config::default());
        tokio::spawn(collector.run(engine, Arc::new(NoObserver), std::future::pending()));
    }
}

/// A start over many objects costs one streamed list per resource type. In a cascade, each dependent costs one request, and the
/// owner one read that confirms the watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_background_cascade_costs_one_read_of_its_owner() {
    const DEPENDENTS: usize = 2_000;
    let world = World::start(none).await;
    let uid = world.create("default", "cascade-owner", None).await;
    for number in 0..DEPENDENTS {
        world.create("default", &format!("cascade-{number}"), Some(("cascade-owner", &uid))).await;
    }
    world.create("default", "planted", Some(("absent", "00000000-0000-4000-8000-000000000000"))).await;
    world.start_collector();
    world.until("planted", 0).await;
    let start = std::mem::take(&mut *world.asked.lock().unwrap());
    println!("a start over {DEPENDENTS} objects: {start:?}, {} watches", world.watched.lock().unwrap().len());
    assert_eq!(start, BTreeMap::from([("delete", 1), ("get", 1)]), "for the planted object alone");
    world.delete("default", "cascade-owner", "Background").await;
    world.until("cascade-", 0).await;
    let cascade = world.asked.lock().unwrap().clone();
    println!("a background cascade of {DEPENDENTS} objects: {cascade:?}");
    assert_eq!(cascade, BTreeMap::from([("delete", DEPENDENTS), ("get", 1)]));
}

/// The worst case of the read that confirms what a watch reports: each owner has one dependent, and somebody else deletes all owners. Each
/// costs one read beside the deletion of its dependent, and never more reads at a time than the concurrency limit allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_with_one_dependent_each_cost_a_read_each() {
    const OWNERS: usize = 500;
    let world = World::start(none).await;
    for number in 0..OWNERS {
        let uid = world.create("default", &format!("owner-{number}"), None).await;
        let dependent = format!("cascade-{number}");
        world.create("default", &dependent, Some((&format!("owner-{number}"), &uid))).await;
    }
    world.collect().await;
    for number in 0..OWNERS {
        world.delete("default", &format!("owner-{number}"), "Background").await;
    }
    world.until("cascade-", 0).await;
    let asked = world.asked.lock().unwrap().clone();
    let most = world.reading[1].load(Ordering::SeqCst);
    println!("{OWNERS} owners of one object each: {asked:?}, at most {most} reads at a time");
    assert_eq!(asked, BTreeMap::from([("delete", OWNERS), ("get", OWNERS)]));
    assert!(most <= ConcurrencyOptions::default().largest, "{most}");
}

/// After a start, references to owners that are gone cost one live read for each owner, whatever it owns, and no more at a time than the
/// concurrency limit allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_reads_each_absent_owner_once() {
    const OWNERS: usize = 200;
    const DEPENDENTS: usize = 5;
    let world = World::start(scattered).await;
    for owner in 0..OWNERS {
        let uid = format!("00000000-0000-4000-8000-{owner:012}");
        for number in 0..DEPENDENTS {
            let name = format!("cascade-{owner}-{number}");
            world.create("default", &name, Some((&format!("gone-{owner}"), &uid))).await;
        }
    }
    world.start_collector();
    world.until("cascade-", 0).await;
    let asked = world.asked.lock().unwrap().clone();
    let most = world.reading[1].load(Ordering::SeqCst);
    println!(
        "{OWNERS} absent owners of {DEPENDENTS} objects each: {asked:?}, at most {most} reads at a time"
    );
    assert_eq!(asked, BTreeMap::from([("delete", OWNERS * DEPENDENTS), ("get", OWNERS)]));
    assert!(most <= ConcurrencyOptions::default().largest, "{most}");
}

/// Owners in the same number of namespaces, each with a dependent that blocks its deletion, are deleted at once. Upstream's
/// collector needs no lists for this; this one needs at most as many per second as there are resource types, independent of the
/// number of owners.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_owners_in_sixty_namespaces_cost_few_lists() {
    const OWNERS: usize = 60;
    for (policy, gone) in [("Foreground", 0), ("Orphan", OWNERS)] {
        let world = World::start(none).await;
        for number in 0..OWNERS {
            let namespace = format!("n{number}");
            let object = json!({"metadata": {"name": namespace}});
            assert_eq!(world.send(Method::POST, "/api/v1/namespaces", &object).await.0, 201);
            let uid = world.create(&namespace, "cascade-owner", None).await;
            world.create(&namespace, "cascade-dependent", Some(("cascade-owner", &uid))).await;
        }
        world.collect().await;
        let begun = Instant::now();
        for number in 0..OWNERS {
            world.delete(&format!("n{number}"), "cascade-owner", policy).await;
        }
        world.until("cascade-", gone).await;
        let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap() + 1;
        let asked = world.asked.lock().unwrap().clone();
        let (count, resources) =
            (|verb| asked.get(verb).copied().unwrap_or_default(), world.watched.lock().unwrap().len());
        println!("{policy}: {asked:?} for {resources} resource types in {:?}", begun.elapsed());
        assert!(resources > 40, "{resources}");
        assert!(count("list") <= resources * seconds, "{policy}: {asked:?} in {seconds} s");
        // For each finalizer, a read and a patch; for each dependent, a deletion, or a patch of its references.
        let (deletes, patches) = if policy == "Foreground" { (OWNERS, OWNERS) } else { (0, 2 * OWNERS) };
        assert_eq!((count("delete"), count("patch")), (deletes, patches), "{policy}: {asked:?}");
    }
}

/// On a server that answers after 30 to 370 ms and refuses nothing, a cascade must be as fast as a loop that keeps as many requests
/// in flight as the collector's initial limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cascades_keep_up_with_a_bare_loop_on_a_slow_server() {
    const DEPENDENTS: usize = 800;
    let fill = async |world: &World| {
        let uid = world.create("default", "cascade-owner", None).await;
        for number in 0..DEPENDENTS {
            world.create("default", &format!("cascade-{number}"), Some(("cascade-owner", &uid))).await;
        }
    };
    let bare = async {
        let world = World::start(scattered).await;
        fill(&world).await;
        let begun = Instant::now();
        let deletions = futures::stream::iter(0..DEPENDENTS).map(|number| {
            let path = format!("/api/v1/namespaces/default/configmaps/cascade-{number}");
            let request = Request::delete(path).body(Full::<Bytes>::default()).unwrap();
            let late = &world.late;
            async move { assert_eq!(late.call(request).await.unwrap().head.status, 200) }
        });
        deletions.buffer_unordered(ConcurrencyOptions::default().initial).collect::<()>().await;
        begun.elapsed()
    };
    let cascade = async |policy: &str| {
        let world = World::start(scattered).await;
        fill(&world).await;
        world.collect().await;
        let begun = Instant::now();
        world.delete("default", "cascade-owner", policy).await;
        world.until("cascade-", 0).await;
        begun.elapsed()
    };
    let (bare, background, foreground) = futures::join!(bare, cascade("Background"), cascade("Foreground"));
    println!("bare {bare:?}, background {background:?}, foreground {foreground:?}");
    assert!(background.mul_f64(0.9) <= bare, "background {background:?}, bare {bare:?}");
    assert!(foreground.mul_f64(0.8) <= bare, "foreground {foreground:?}, bare {bare:?}");
}
