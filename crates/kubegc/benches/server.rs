//! Cost of the embedded server on each of its stores: start, writes, lists, watches, memory.
//!
//! `cargo bench -p kubegc --bench server [-- memory redb etcd]`. Client and server share the machine, so rates are what
//! both together reach. Sizes by environment: `SERVER_BENCH_OBJECTS` (default 100000), `SERVER_BENCH_WATCHERS` (100),
//! `SERVER_BENCH_WRITES_PER_SECOND` (1000), `SERVER_BENCH_SECONDS` (10).
#![allow(clippy::unwrap_used, missing_docs)] // a broken assumption should stop the measurement

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use gc_kube::ApiClient;
use gc_kube::wire::frames::Frames;
use gc_kube::wire::metadata::{Encoding, WatchEvent, decode_watch_event};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use kubegc_bench::measure::{Latencies, Usage};
use serde_json::json;
use support::etcd::EtcdServer;
use support::{Kubegc, Signal};

/// Requests in flight.
const IN_FLIGHT: usize = 64;
/// Number of measured starts.
const STARTS: usize = 15;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for store in ["memory", "redb", "etcd"] {
        if asked.is_empty() || asked.iter().any(|name| name == store) {
            println!("{store}");
            runtime.block_on(figures(store));
        }
    }
}

fn size(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A place for data that a server can be started on.
struct DataLocation {
    folder: tempfile::TempDir,
    etcd: Option<EtcdServer>,
}

impl DataLocation {
    fn new(store: &str) -> Option<Self> {
        let etcd = if store == "etcd" { Some(EtcdServer::start()?) } else { None };
        Some(Self { folder: tempfile::tempdir().unwrap(), etcd })
    }

    fn start(&self, store: &str) -> Kubegc {
        let data = self.folder.path().join("data");
        match (&self.etcd, store) {
            (Some(etcd), _) => {
                let endpoint = etcd.endpoint();
                let flags = ["--ephemeral", "--storage", "etcd", "--etcd-endpoints", &endpoint];
                Kubegc::start_with("apiserver", flags)
            }
            (None, "redb") => {
                Kubegc::start_with("apiserver", ["--data-dir".into(), data.as_os_str().to_owned()])
            }
            (None, _) => Kubegc::start("apiserver"),
        }
    }
}

async fn figures(store: &str) {
    let Some(place) = DataLocation::new(store) else { return };
    // The first start on an empty store makes keys and base objects; later ones find them.
    let mut starts: Vec<Duration> = Vec::new();
    for _ in 0..STARTS {
        let fresh = DataLocation::new(store).unwrap();
        let server = fresh.start(store);
        starts.push(server.ready_after);
        server.end(Signal::TERM);
    }
    starts.sort();
    println!(
        "  ready on an empty store     median {:.1} ms, slowest of {STARTS} {:.1} ms",
        starts[STARTS / 2].as_secs_f64() * 1e3,
        starts[STARTS - 1].as_secs_f64() * 1e3
    );

    let server = place.start(store);
    let client = ApiClient::from_kubeconfig(&server.kubeconfig).await.unwrap();
    let objects = size("SERVER_BENCH_OBJECTS", 100_000);
    let empty = usage(&server).resident_kib << 10;
    rate(&server, "creates", objects, |number| create(&client, format!("m{number}"))).await;
    let full = usage(&server).resident_kib << 10;
    println!(
        "  memory                      {:.1} MB empty, {:.1} MB with {objects} objects: {:.1} MB for 100,000",
        megabytes(empty),
        megabytes(full),
        megabytes(full.saturating_sub(empty)) * 1e5 / f64::from(objects)
    );
    for (name, accept, query) in [
        ("list, JSON", "application/json", ""),
        ("list, indented JSON", "application/json", "?pretty=true"),
        ("list, YAML", "application/yaml", ""),
        ("list, table", "application/json;as=Table;g=meta.k8s.io;v=v1", ""),
        ("list, protobuf", "application/vnd.kubernetes.protobuf", ""),
        (
            "list, protobuf metadata",
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            "",
        ),
        ("list, JSON, pages of 500", "application/json", "?limit=500"),
    ] {
        list(&server, &client, name, accept, query).await;
    }
    watch(&server, &client).await;
    rate(&server, "deletes", objects, |number| delete(&client, format!("m{number}"))).await;
    drop(client);
    if store != "memory" {
        server.end(Signal::TERM);
        let again = place.start(store);
        println!("  ready after all that        {:.1} ms", again.ready_after.as_secs_f64() * 1e3);
    }
}

/// Does something often, [`IN_FLIGHT`] at a time, and says how fast that went.
async fn rate<F: Future<Output = ()>>(server: &Kubegc, what: &str, number: u32, work: impl Fn(u32) -> F) {
    let (began, cpu) = (Instant::now(), cpu_seconds(server));
    let mut latencies = Latencies::default();
    let mut ended = futures::stream::iter(0..number)
        .map(|number| {
            let work = work(number);
            async move {
                let began = Instant::now();
                work.await;
                began.elapsed()
            }
        })
        .buffer_unordered(IN_FLIGHT);
    while let Some(took) = ended.next().await {
        latencies.add(took);
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "  {what:<27} {:.0}/s, {}, {:.0} µs of server CPU each",
        f64::from(number) / seconds,
        latencies.describe(),
        (cpu_seconds(server) - cpu) * 1e6 / f64::from(number),
    );
}

async fn list(server: &Kubegc, client: &ApiClient, name: &str, accept: &str, query: &str) {
    // The peak of the list itself is separated from earlier use.
    std::fs::write(format!("/proc/{}/clear_refs", server.id()), "5").unwrap();
    let (began, cpu) = (Instant::now(), cpu_seconds(server));
    let (mut bytes, mut next) = (0, String::new());
    loop {
        let uri = format!("{CONFIG_MAPS}{query}{next}");
        let request = Request::builder().uri(uri).header(ACCEPT, accept).body(Full::default()).unwrap();
        let answer = client.call(request).await.unwrap();
        assert_eq!(answer.head.status.as_u16(), 200);
        bytes += answer.body.len();
        // The token stands in the first bytes of a list.
        let head = String::from_utf8_lossy(&answer.body[..answer.body.len().min(2000)]).into_owned();
        let token = head.split_once("\"continue\":\"").and_then(|(_, rest)| rest.split_once('"'));
        match token {
            Some((token, _)) if query.starts_with("?limit") && !token.is_empty() => {
                next = format!("&continue={}", token.replace('+', "%2B").replace('=', "%3D"));
            }
            _ => break,
        }
    }
    println!(
        "  {name:<27} {:.0} ms, {:.1} MB, {:.0} ms of server CPU, peak {:.1} MB",
        began.elapsed().as_secs_f64() * 1e3,
        megabytes(bytes as u64),
        (cpu_seconds(server) - cpu) * 1e3,
        megabytes(usage(server).peak_kib << 10),
    );
}

/// Watchers under a steady rate of writes: whether they keep up, and how late events are.
async fn watch(server: &Kubegc, client: &ApiClient) {
    let watchers = size("SERVER_BENCH_WATCHERS", 100);
    let (per_second, seconds) =
        (size("SERVER_BENCH_WRITES_PER_SECOND", 1000), size("SERVER_BENCH_SECONDS", 10));
    let writes = per_second * seconds;
    let version = {
        let uri = format!("{CONFIG_MAPS}?limit=1");
        let request = Request::builder().uri(uri).body(Full::default()).unwrap();
        let body: serde_json::Value =
            serde_json::from_slice(&client.call(request).await.unwrap().body).unwrap();
        body["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    };
    let began = Instant::now();
    let received = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for number in 0..watchers {
        let (client, version, received) = (client.clone(), version.clone(), Arc::clone(&received));
        // One watcher takes the times; a hundred would measure the client.
        let timed = number == 0;
        tasks.push(tokio::spawn(async move {
            follow(&client, &version, writes, &received, timed.then_some(began)).await
        }));
    }
    let cpu = cpu_seconds(server);
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    let writing = async {
        let mut sent = Vec::new();
        let mut in_flight = futures::stream::FuturesUnordered::new();
        for batch in 0..seconds * 100 {
            tick.tick().await;
            for number in 0..per_second / 100 {
                let name = format!("w{}", batch * (per_second / 100) + number);
                sent.push(began.elapsed());
                in_flight.push(create(client, name));
            }
            while let Some(Some(())) = futures::FutureExt::now_or_never(in_flight.next()) {}
        }
        while in_flight.next().await.is_some() {}
        (sent, began.elapsed().as_secs_f64())
    };
    let (sent, ended) = writing.await;
    let mut latencies = Latencies::default();
    for task in tasks {
        for (number, at) in task.await.unwrap() {
            latencies.add(at.saturating_sub(sent[number]));
        }
    }
    println!(
        "  {watchers} watchers                {:.0} writes/s, {:.0} events/s, {} from the request to the event, {:.0} % of a core, peak {:.1} MB",
        f64::from(writes) / ended,
        f64::from(u32::try_from(received.load(Ordering::Relaxed)).unwrap()) / began.elapsed().as_secs_f64(),
        latencies.describe(),
        (cpu_seconds(server) - cpu) * 100.0 / ended,
        megabytes(usage(server).peak_kib << 10),
    );
}

/// Follows until it has seen this number of creations; with a beginning it notes when it saw which.
async fn follow(
    client: &ApiClient,
    version: &str,
    number: u32,
    received: &AtomicU64,
    began: Option<Instant>,
) -> Vec<(usize, Duration)> {
    let uri = format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}");
    let request = Request::builder().uri(uri).header(ACCEPT, METADATA).body(Full::default()).unwrap();
    let response = client.open(request).await.unwrap();
    let encoding = Encoding::of_content_type(response.headers().get(CONTENT_TYPE));
    let (mut frames, mut body) = (Frames::new(encoding), response.into_body());
    let (mut seen, mut times) = (0, Vec::new());
    while seen < number {
        let Ok(chunk) = body.frame().await.unwrap().unwrap().into_data() else { continue };
        frames.push(&chunk);
        while let Some(frame) = frames.next_frame().unwrap() {
            seen += 1;
            received.fetch_add(1, Ordering::Relaxed);
            if let Some(began) = began
                && let WatchEvent::Present(object) = decode_watch_event(encoding, &frame).unwrap()
                && let Some(index) = object.name.strip_prefix('w')
            {
                times.push((index.parse().unwrap(), began.elapsed()));
            }
        }
    }
    times
}

async fn create(client: &ApiClient, name: String) {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"},
    });
    assert_eq!(call(client, Method::POST, CONFIG_MAPS, object.to_string()).await, 201);
}

async fn delete(client: &ApiClient, name: String) {
    assert_eq!(call(client, Method::DELETE, &format!("{CONFIG_MAPS}/{name}"), String::new()).await, 200);
}

async fn call(client: &ApiClient, method: Method, path: &str, body: String) -> u16 {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    client.call(request).await.unwrap().head.status.as_u16()
}

/// Returns the resources that the server has used so far.
fn usage(server: &Kubegc) -> Usage {
    Usage::of(server.id()).unwrap()
}

fn cpu_seconds(server: &Kubegc) -> f64 {
    usage(server).cpu.as_secs_f64()
}

#[allow(clippy::cast_precision_loss, reason = "bytes of a machine's memory, for people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
