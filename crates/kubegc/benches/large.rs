//! The embedded server over a store with very many objects: its start and memory, lists in each representation, and the size of the
//! data file while half of the objects are deleted.
//!
//! `cargo bench -p kubegc --bench large`. Sizes by environment: `LARGE_BENCH_OBJECTS` (default 1000000), `LARGE_BENCH_BYTES` (1000) of
//! each object.
#![allow(clippy::unwrap_used, missing_docs)] // a broken assumption should stop the measurement
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use gc_kube::ApiClient;
use gc_store::RedbStorage;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use kubegc_bench::measure::Usage;
use serde_json::json;
use support::{Kubegc, Signal};

const CONFIG_MAPS: &str = "/api/v1/configmaps";
/// Namespaces that the objects are spread over.
const NAMESPACES: u64 = 64;
/// Namespaces whose objects are deleted at a time. More would not be done within the time that a request may take (a minute).
const AT_A_TIME: usize = 8;
/// Time in which the data file may become smaller after deletions.
const SHRINKING: Duration = Duration::from_mins(2);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(figures());
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

async fn figures() {
    let (objects, bytes) = (setting("LARGE_BENCH_OBJECTS", 1_000_000), setting("LARGE_BENCH_BYTES", 1000));
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let begun = Instant::now();
    fill(&data, objects, bytes);
    let file = || megabytes(std::fs::metadata(data.join("kubegc.redb")).unwrap().len());
    println!("{objects} ConfigMaps of {bytes} bytes");
    println!("  restored           {:.1} s, file {:.0} MB", begun.elapsed().as_secs_f64(), file());

    let server = start(&data);
    let rest = usage(&server).resident_kib << 10;
    println!(
        "  started            {:.1} s, {:.1} s of CPU, resident {:.0} MB, {:.0} bytes an object beyond its size",
        server.ready_after.as_secs_f64(),
        usage(&server).cpu.as_secs_f64(),
        megabytes(rest),
        rest as f64 / objects as f64 - bytes as f64,
    );
    let client = ApiClient::from_kubeconfig(&server.kubeconfig).await.unwrap();
    let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for (name, accept, query, encoding) in [
        // The length of the collection is not known yet.
        ("protobuf, at once", "application/vnd.kubernetes.protobuf", "", "identity"),
        ("JSON", "application/json", "", "identity"),
        ("JSON, gzip", "application/json", "", "gzip"),
        ("indented JSON", "application/json", "?pretty=true", "identity"),
        ("YAML", "application/yaml", "", "identity"),
        ("table", "application/json;as=Table;g=meta.k8s.io;v=v1", "", "identity"),
        (
            "metadata, JSON",
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            "",
            "identity",
        ),
        ("metadata, protobuf", metadata, "", "identity"),
        ("protobuf", "application/vnd.kubernetes.protobuf", "", "identity"),
    ] {
        list(&server, &client, name, (accept, query, encoding)).await;
    }

    let (begun, cpu) = (Instant::now(), usage(&server).cpu);
    let before = file();
    let deletions = futures::stream::iter(0..NAMESPACES / 2).map(|number| delete(&client, number));
    let deleted: Vec<u64> = deletions.buffer_unordered(AT_A_TIME).collect().await;
    let bytes: u64 = deleted.into_iter().sum();
    println!(
        "  half deleted       {:.0} MB of answers in {:.1} s, {:.1} s of CPU, file {before:.0} MB before and {:.0} MB after",
        megabytes(bytes),
        begun.elapsed().as_secs_f64(),
        usage(&server).cpu.saturating_sub(cpu).as_secs_f64(),
        file(),
    );
    let begun = Instant::now();
    let large = file();
    while file() >= large && begun.elapsed() < SHRINKING {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("  file               {:.0} MB {:.1} s later", file(), begun.elapsed().as_secs_f64());
    drop(client);
    server.end(Signal::TERM);
    let again = start(&data);
    println!(
        "  started again      {:.1} s, resident {:.0} MB, file {:.0} MB",
        again.ready_after.as_secs_f64(),
        megabytes(usage(&again).resident_kib << 10),
        file(),
    );
}

fn start(data: &Path) -> Kubegc {
    Kubegc::start_with("apiserver", ["--data-dir".into(), data.as_os_str().to_owned()])
}

fn fill(data: &Path, objects: u64, bytes: u64) {
    let object = |number: u64| {
        let (name, namespace) = (format!("m{number:08}"), format!("n{:02}", number % NAMESPACES));
        let metadata = json!({
            "name": name, "namespace": namespace, "uid": format!("00000000-0000-4000-8000-{number:012x}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        });
        // What is stored begins with metadata.
        let begin = format!("{{\"metadata\":{metadata},\"data\":{{\"padding\":\"");
        let padding = "x".repeat(usize::try_from(bytes).unwrap().saturating_sub(begin.len() + 3));
        let object = format!("{begin}{padding}\"}}}}");
        let revision = gc_store_api::Revision(2);
        Ok::<_, Infallible>(gc_store_api::KeyValue {
            key: format!("/core/configmaps/{namespace}/{name}").into(),
            value: object.into_bytes().into(),
            create_revision: revision,
            mod_revision: revision,
        })
    };
    RedbStorage::restore(data, gc_store_api::Revision(2), (0..objects).map(object)).unwrap();
}

/// Reads one list to its end.
async fn list(
    server: &Kubegc,
    client: &ApiClient,
    name: &str,
    (accept, query, encoding): (&str, &str, &str),
) {
    let rest = usage(server).resident_kib;
    // The peak of the list itself is separated from earlier use.
    std::fs::write(format!("/proc/{}/clear_refs", server.id()), "5").unwrap();
    let (begun, cpu) = (Instant::now(), usage(server).cpu);
    let request = Request::builder()
        .uri(format!("{CONFIG_MAPS}{query}"))
        .header(ACCEPT, accept)
        .header(ACCEPT_ENCODING, encoding)
        .body(Full::default())
        .unwrap();
    let answer = client.open(request).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let (mut body, mut bytes, mut first) = (answer.into_body(), 0, None);
    while let Some(frame) = body.frame().await {
        first.get_or_insert_with(|| begun.elapsed());
        bytes += frame.unwrap().into_data().map_or(0, |data| data.len() as u64);
    }
    println!(
        "  {name:<18} first byte {:.0} ms, {:.0} ms, {:.0} MB, {:.1} s of CPU, peak {:.1} MB above rest",
        first.unwrap_or_default().as_secs_f64() * 1e3,
        begun.elapsed().as_secs_f64() * 1e3,
        megabytes(bytes),
        usage(server).cpu.saturating_sub(cpu).as_secs_f64(),
        megabytes(usage(server).peak_kib.saturating_sub(rest) << 10),
    );
}

/// Deletes the objects of a namespace. Returns the size of the answer.
async fn delete(client: &ApiClient, number: u64) -> u64 {
    let uri = format!("/api/v1/namespaces/n{number:02}/configmaps");
    let request = Request::builder().method(Method::DELETE).uri(uri).body(Full::default()).unwrap();
    let answer = client.open(request).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let (mut body, mut bytes) = (answer.into_body(), 0);
    while let Some(frame) = body.frame().await {
        bytes += frame.unwrap().into_data().map_or(0, |data| data.len() as u64);
    }
    bytes
}

fn usage(server: &Kubegc) -> Usage {
    Usage::of(server.id()).unwrap()
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
