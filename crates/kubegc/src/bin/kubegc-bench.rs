//! `kubegc-bench`: measures a collector from outside, on any cluster.
//!
//! `kubegc-bench cascade --kubeconfig F --dependents 10000` makes one owner with so many dependents, deletes the
//! owner in the background (or foreground), and says how long it took until the last dependent was gone, and how
//! many requests of each verb the server took for it (from its `/metrics`, where it has them).
//!
//! `kubegc-bench namespaces --namespaces 1000 --objects 200` makes so many namespaces with so many ConfigMaps each,
//! deletes them all at once, and says how long it took until the last was gone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use clap::{Parser, Subcommand};
use futures::StreamExt as _;
use gc_kube::ApiClient;
use gc_kube::wire::frames::Frames;
use gc_kube::wire::metadata::{Encoding, WatchEvent, decode_watch_event};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

/// Requests in flight while objects are made.
const IN_FLIGHT: usize = 64;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// How long a cascade may take for each thousand dependents, and in all at least.
const PATIENCE_PER_THOUSAND: Duration = Duration::from_secs(10);
const PATIENCE_AT_LEAST: Duration = Duration::from_mins(1);

/// Measures a collector from outside.
#[derive(Debug, Parser)]
#[command(name = "kubegc-bench", version)]
struct CommandLine {
    /// The cluster to measure [default: as kubectl finds it]
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Owners with dependents, deleted all at once
    Cascade {
        /// Dependents in all
        #[arg(long, default_value_t = 10_000)]
        dependents: usize,
        /// Owners that share them
        #[arg(long, default_value_t = 1)]
        owners: usize,
        /// Delete in the foreground
        #[arg(long)]
        foreground: bool,
    },
    /// Namespaces with objects, deleted all at once
    Namespaces {
        /// Namespaces
        #[arg(long, default_value_t = 1000)]
        namespaces: usize,
        /// Objects in each
        #[arg(long, default_value_t = 200)]
        objects: usize,
    },
}

fn main() -> anyhow::Result<()> {
    let line = CommandLine::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = match &line.kubeconfig {
            Some(file) => ApiClient::from_kubeconfig(file).await?,
            None => ApiClient::infer().await?,
        };
        match line.command {
            Command::Cascade { dependents, owners, foreground } => {
                cascade(&client, dependents, owners.max(1), foreground).await
            }
            Command::Namespaces { namespaces, objects } => terminate(&client, namespaces, objects).await,
        }
    })
}

async fn cascade(
    client: &ApiClient,
    dependents: usize,
    owners: usize,
    foreground: bool,
) -> anyhow::Result<()> {
    let run = format!("bench-{}", jiff::Timestamp::now().as_millisecond());
    let begun = Instant::now();
    let mut owner_uids = Vec::new();
    for number in 0..owners {
        let owner = config_map(&format!("{run}-owner-{number}"), &run, None);
        owner_uids.push(create(client, owner).await?);
    }
    let work = (0..dependents).map(|number| {
        let owner = number % owners;
        let reference = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": format!("{run}-owner-{owner}"),
            "uid": owner_uids[owner], "blockOwnerDeletion": true,
        }]);
        create(client, config_map(&format!("{run}-{number}"), &run, Some(reference)))
    });
    let made: Vec<_> = futures::stream::iter(work).buffer_unordered(IN_FLIGHT).collect().await;
    made.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let seconds = begun.elapsed().as_secs_f64();
    println!("created     {dependents} dependents of {owners} owners in {seconds:.2} s");

    // What the collector has seen by now is not known from outside; it gets a moment.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, list) = call(client, Method::GET, format!("{CONFIG_MAPS}?limit=1"), None).await?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a version to watch from")?;
    let before = requests(client).await;
    let gone = watch_until_gone(client, &run, version, dependents + owners);
    let policy = if foreground { "Foreground" } else { "Background" };
    let delete = async {
        let begun = Instant::now();
        for number in 0..owners {
            let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
            let path = format!("{CONFIG_MAPS}/{run}-owner-{number}");
            let (code, body) = call(client, Method::DELETE, path, Some(options)).await?;
            anyhow::ensure!(code < 300, "the owner was not deleted: {code} {}", body["message"]);
        }
        anyhow::Ok(begun)
    };
    let patience =
        PATIENCE_PER_THOUSAND.mul_f64(f64::from(u32::try_from(dependents)?) / 1000.0).max(PATIENCE_AT_LEAST);
    let both = async { futures::try_join!(gone, delete) };
    let ((), begun) = tokio::time::timeout(patience, both).await.context("the cascade did not end")??;
    let seconds = begun.elapsed().as_secs_f64();
    let number = f64::from(u32::try_from(dependents)?);
    println!(
        "collected   {policy}: {dependents} dependents in {seconds:.2} s: {:.0} deletes/s",
        number / seconds
    );
    show_requests(client, before, number, "dependent").await;
    Ok(())
}

async fn terminate(client: &ApiClient, namespaces: usize, objects: usize) -> anyhow::Result<()> {
    const NAMESPACES: &str = "/api/v1/namespaces";
    let run = format!("bench-{}", jiff::Timestamp::now().as_millisecond());
    let begun = Instant::now();
    let names: Vec<String> = (0..namespaces).map(|number| format!("{run}-{number}")).collect();
    let make = names.iter().map(|name| {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create_in(client, NAMESPACES.to_owned(), object)
    });
    let made: Vec<_> = futures::stream::iter(make).buffer_unordered(IN_FLIGHT).collect().await;
    made.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let fill = names.iter().flat_map(|name| {
        (0..objects).map(move |number| {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("object-{number}")},
            });
            create_in(client, format!("{NAMESPACES}/{name}/configmaps"), object)
        })
    });
    let filled: Vec<_> = futures::stream::iter(fill).buffer_unordered(IN_FLIGHT).collect().await;
    filled.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    println!(
        "created     {namespaces} namespaces with {objects} objects each in {:.2} s",
        begun.elapsed().as_secs_f64()
    );
    let before = requests(client).await;
    let begun = Instant::now();
    let delete = names.iter().map(|name| call(client, Method::DELETE, format!("{NAMESPACES}/{name}"), None));
    let deleted: Vec<_> = futures::stream::iter(delete).buffer_unordered(IN_FLIGHT).collect().await;
    for answer in deleted {
        let (code, body) = answer?;
        anyhow::ensure!(code < 300, "a namespace was not deleted: {code} {}", body["message"]);
    }
    let patience = PATIENCE_AT_LEAST + PATIENCE_PER_THOUSAND * u32::try_from(namespaces * objects / 1000)?;
    for name in &names {
        while call(client, Method::GET, format!("{NAMESPACES}/{name}"), None).await?.0 != 404 {
            anyhow::ensure!(begun.elapsed() < patience, "namespace {name} does not go");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let number = f64::from(u32::try_from(namespaces)?);
    println!("terminated  {namespaces} namespaces in {seconds:.2} s: {:.0} namespaces/s", number / seconds);
    show_requests(client, before, number, "namespace").await;
    Ok(())
}

/// What the server took since, by verb and resource.
async fn show_requests(client: &ApiClient, before: Option<BTreeMap<String, f64>>, number: f64, per: &str) {
    if let (Some(before), Some(after)) = (before, requests(client).await) {
        for (verb, count) in &after {
            let more = count - before.get(verb).copied().unwrap_or_default();
            if more > 0.0 {
                println!("requests    {verb:<28} {more:>8}  {:.4} per {per}", more / number);
            }
        }
    }
}

fn config_map(name: &str, run: &str, owners: Option<Value>) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"kubegc-bench": run}},
    });
    if let Some(owners) = owners {
        object["metadata"]["ownerReferences"] = owners;
    }
    object
}

async fn create(client: &ApiClient, object: Value) -> anyhow::Result<String> {
    create_in(client, CONFIG_MAPS.to_owned(), object).await
}

async fn create_in(client: &ApiClient, collection: String, object: Value) -> anyhow::Result<String> {
    let (code, body) = call(client, Method::POST, collection, Some(object)).await?;
    anyhow::ensure!(code == 201, "an object was not created: {code} {}", body["message"]);
    Ok(body["metadata"]["uid"].as_str().context("a uid")?.to_owned())
}

async fn watch_until_gone(client: &ApiClient, run: &str, version: &str, number: usize) -> anyhow::Result<()> {
    let uri =
        format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}&labelSelector=kubegc-bench%3D{run}");
    let request = Request::builder().uri(uri).header(ACCEPT, METADATA).body(Full::default())?;
    let response = client.open(0, request).await?;
    anyhow::ensure!(response.status() == 200, "the watch was answered with {}", response.status());
    let encoding = Encoding::of_content_type(response.headers().get(CONTENT_TYPE));
    let mut frames = Frames::new(encoding);
    let mut body = response.into_body();
    let mut left = number;
    while left > 0 {
        let frame = body.frame().await.context("the watch ended")?.map_err(|error| anyhow::anyhow!(error))?;
        let Ok(chunk) = frame.into_data() else { continue };
        frames.push(&chunk);
        while let Some(frame) = frames.next_frame()? {
            match decode_watch_event(encoding, &frame)? {
                WatchEvent::Deleted(_) => left = left.saturating_sub(1),
                WatchEvent::Error(status) => anyhow::bail!("the watch failed: {}", status.message),
                _ => {}
            }
        }
    }
    Ok(())
}

async fn call(
    client: &ApiClient,
    method: Method,
    path: impl Into<String>,
    body: Option<Value>,
) -> anyhow::Result<(u16, Value)> {
    let bytes = body.map(|value| Bytes::from(value.to_string())).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path.into())
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(bytes))?;
    let answer = client.call(request).await?;
    Ok((answer.head.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or_default()))
}

/// `apiserver_request_total`, by verb and resource; `None` where the server has no such metric.
async fn requests(client: &ApiClient) -> Option<BTreeMap<String, f64>> {
    let request = Request::builder().uri("/metrics").body(Full::default()).ok()?;
    let answer = client.call(request).await.ok()?;
    let text = std::str::from_utf8(&answer.body).ok()?;
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let (labels, value) = line.rsplit_once(' ')?;
        let label = |name: &str| {
            let rest = labels.split_once(&format!("{name}=\""))?.1;
            rest.split_once('"').map(|(value, _)| value)
        };
        let key = format!("{} {}", label("verb").unwrap_or("?"), label("resource").unwrap_or("-"));
        *counts.entry(key).or_default() += value.parse::<f64>().ok()?;
    }
    (!counts.is_empty()).then_some(counts)
}
