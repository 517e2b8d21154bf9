//! Owners with dependents, deleted all at once: how long until the last dependent is gone, and at which cost.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use gc_kube::wire::frames::Frames;
use gc_kube::wire::metadata::{Encoding, WatchEvent, decode_watch_event};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::cluster::{Cluster, print_requests};
use kubegc_bench::measure::{Latencies, Usage, print_usage};

const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// How long a cascade may take for each thousand dependents, and in all at least.
const PATIENCE_PER_THOUSAND: Duration = Duration::from_secs(10);
const PATIENCE_AT_LEAST: Duration = Duration::from_mins(1);
/// The server ends a watch that names no time after half an hour to an hour; no measurement takes longer than a day.
const WATCH_SECONDS: u32 = 86_400;

/// Options of `kubegc-bench cascade`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Dependents in all
    #[arg(long, default_value_t = 10_000)]
    dependents: u32,
    /// Owners that share them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    owners: u32,
    /// Delete in the foreground
    #[arg(long)]
    foreground: bool,
}

/// Makes them, deletes the owners, and waits until nothing is left.
pub(crate) async fn run(cluster: &Cluster, options: &Options, pid: Option<u32>) -> anyhow::Result<()> {
    let Options { dependents, owners, foreground } = *options;
    let run = format!("bench-{}", jiff::Timestamp::now().as_millisecond());
    let begun = Instant::now();
    let mut owner_uids = Vec::new();
    for number in 0..owners {
        owner_uids.push(cluster.create(&config_map(&format!("{run}-owner-{number}"), &run, None)).await?);
    }
    let objects = (0..dependents).zip((0..owners).cycle()).map(|(number, owner)| {
        let reference = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": format!("{run}-owner-{owner}"),
            "uid": owner_uids[owner as usize], "blockOwnerDeletion": true,
        }]);
        config_map(&format!("{run}-{number}"), &run, Some(reference))
    });
    let mut latencies = cluster.create_all(objects).await?;
    let (number, seconds) = (f64::from(dependents), begun.elapsed().as_secs_f64());
    println!(
        "created     {dependents} dependents of {owners} owners in {seconds:.2} s: {:.0}/s; {}",
        number / seconds,
        latencies.describe()
    );

    // What the collector has seen by now is not known from outside; it gets a moment.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, list) = cluster.call(Method::GET, &format!("{}?limit=1", cluster.config_maps), None).await?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a version to watch from")?;
    let before = cluster.requests().await;
    let used = pid.map(Usage::of).transpose()?;
    let gone = async {
        let gone =
            watch_until_gone(cluster, &cluster.config_maps, &run, version, dependents + owners).await?;
        anyhow::Ok(gone.into_iter().map(|(_, at)| at))
    };
    let policy = if foreground { "Foreground" } else { "Background" };
    let delete = async {
        let begun = Instant::now();
        for number in 0..owners {
            let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
            let path = format!("{}/{run}-owner-{number}", cluster.config_maps);
            let (code, body) = cluster.call(Method::DELETE, &path, Some(&options)).await?;
            anyhow::ensure!(code < 300, "the owner was not deleted: {code} {}", body["message"]);
        }
        anyhow::Ok(begun)
    };
    let patience = PATIENCE_PER_THOUSAND.mul_f64(number / 1000.0).max(PATIENCE_AT_LEAST);
    let both = async { futures::try_join!(gone, delete) };
    let (times, begun) = tokio::time::timeout(patience, both).await.context("the cascade did not end")??;
    let took = begun.elapsed();
    let mut after_deletion = Latencies::default();
    for at in times {
        after_deletion.add(at.saturating_duration_since(begun));
    }
    println!(
        "collected   {policy}: {dependents} dependents in {:.2} s: {:.0} deletes/s; each after the deletion: {}",
        took.as_secs_f64(),
        number / took.as_secs_f64(),
        after_deletion.describe()
    );
    print_requests(before.as_ref(), cluster.requests().await.as_ref(), number);
    if let (Some(pid), Some(used)) = (pid, used) {
        print_usage(used, Usage::of(pid)?, took);
    }
    Ok(())
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

/// Names of the objects with the label of a run, and when each was seen to be removed.
pub(crate) async fn watch_until_gone(
    cluster: &Cluster,
    collection: &str,
    run: &str,
    version: &str,
    number: u32,
) -> anyhow::Result<Vec<(String, Instant)>> {
    let uri = format!(
        "{collection}?watch=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}\
         &labelSelector=kubegc-bench%3D{run}"
    );
    let request = Request::builder().uri(uri).header(ACCEPT, METADATA).body(Full::default())?;
    let response = cluster.client.open(0, request).await?;
    anyhow::ensure!(response.status() == 200, "the watch was answered with {}", response.status());
    let encoding = Encoding::of_content_type(response.headers().get(CONTENT_TYPE));
    let mut frames = Frames::new(encoding);
    let mut body = response.into_body();
    let mut times = Vec::new();
    while times.len() < number as usize {
        let frame = body.frame().await.context("the watch ended")?.map_err(|error| anyhow::anyhow!(error))?;
        let Ok(chunk) = frame.into_data() else { continue };
        frames.push(&chunk);
        while let Some(frame) = frames.next_frame()? {
            match decode_watch_event(encoding, &frame)? {
                WatchEvent::Deleted(object) => times.push((object.name.into_owned(), Instant::now())),
                WatchEvent::Error(status) => anyhow::bail!("the watch failed: {}", status.message),
                _ => {}
            }
        }
    }
    Ok(times)
}
