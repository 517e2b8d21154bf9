//! Measures the deletion of owners with dependents, all at once: the time until the last dependent is gone, and the cost.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use futures::StreamExt as _;
use gc_kube::wire::frames::Frames;
use gc_kube::wire::metadata::{Encoding, WatchEvent, decode_watch_event};
use gc_types::PropagationPolicy;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::cluster::{Cluster, print_requests};
use kubegc_bench::measure::{Latencies, Usage, print_usage};

const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// Maximum duration of a cascade per thousand dependents, and the minimum of that bound.
const PATIENCE_PER_THOUSAND: Duration = Duration::from_secs(10);
const PATIENCE_AT_LEAST: Duration = Duration::from_mins(1);
/// Without a timeout, the server ends a watch after half an hour to an hour. No measurement takes longer than a day.
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
    /// Namespaces over which owners and their dependents are spread, each named like the namespace of `--namespace` with a
    /// number; created if they are missing
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    namespaces: Option<u32>,
    /// Propagation policy of the owners' deletion
    #[arg(long, default_value = "background", value_parser = policies())]
    policy: PropagationPolicy,
    /// Delete in the foreground; the same as `--policy foreground`
    #[arg(long, conflicts_with = "policy")]
    foreground: bool,
}

/// Parses the policies by their names on the command line.
fn policies() -> impl TypedValueParser<Value = PropagationPolicy> {
    let named = |name: String| {
        let found =
            PropagationPolicy::ALL.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(&name));
        found.ok_or("no such policy")
    };
    PossibleValuesParser::new(["background", "foreground", "orphan"]).try_map(named)
}

/// The collections of a round. Owners are spread over them in turn; dependents are created beside their owner.
struct Collections(Vec<String>);

impl Collections {
    async fn of(cluster: &Cluster, namespaces: Option<u32>) -> anyhow::Result<Self> {
        let Some(number) = namespaces else { return Ok(Self(vec![cluster.config_maps.clone()])) };
        let names = cluster.namespaces(number).await?;
        Ok(Self(names.iter().map(|name| format!("/api/v1/namespaces/{name}/configmaps")).collect()))
    }

    fn of_owner(&self, owner: u32) -> &str {
        &self.0[owner as usize % self.0.len()]
    }

    /// Returns the collection that contains all of them.
    fn watched(&self) -> &str {
        match self.0.as_slice() {
            [only] => only,
            _ => "/api/v1/configmaps",
        }
    }
}

/// Creates the objects, deletes the owners, and waits until the last object to be deleted is gone.
pub(crate) async fn run(cluster: &Cluster, options: &Options, pid: Option<u32>) -> anyhow::Result<()> {
    let Options { dependents, owners, .. } = *options;
    let policy = if options.foreground { PropagationPolicy::Foreground } else { options.policy };
    let run = format!("bench-{}", jiff::Timestamp::now().as_millisecond());
    let places = Collections::of(cluster, options.namespaces).await?;
    create(cluster, options, &places, &run).await?;
    // The collector's progress is not visible from outside, so give it a moment to observe the objects.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let watched = places.watched();
    let (_, list) = cluster.call(Method::GET, &format!("{watched}?limit=1"), None).await?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a version to watch from")?;
    let before = cluster.requests().await;
    let used = pid.map(Usage::of).transpose()?;
    // Orphans stay.
    let leaving = if policy == PropagationPolicy::Orphan { owners } else { dependents + owners };
    let gone = async {
        let gone = watch_until_gone(cluster, watched, &run, version, leaving).await?;
        anyhow::Ok(gone.into_iter().map(|(_, at)| at))
    };
    let patience = PATIENCE_PER_THOUSAND.mul_f64(f64::from(leaving) / 1000.0).max(PATIENCE_AT_LEAST);
    let both = async { futures::try_join!(gone, delete_owners(cluster, options, policy, &places, &run)) };
    let (times, begun) = tokio::time::timeout(patience, both).await.context("the cascade did not end")??;
    let took = begun.elapsed();
    let mut after_deletion = Latencies::default();
    for at in times {
        after_deletion.add(at.saturating_duration_since(begun));
    }
    println!(
        "collected   {}: {leaving} objects in {:.2} s: {:.0} deletes/s; each after the deletion: {}",
        policy.name(),
        took.as_secs_f64(),
        f64::from(leaving) / took.as_secs_f64(),
        after_deletion.describe()
    );
    print_requests(before.as_ref(), cluster.requests().await.as_ref(), f64::from(leaving));
    if let (Some(pid), Some(used)) = (pid, used) {
        print_usage(used, Usage::of(pid)?, took);
    }
    if policy == PropagationPolicy::Orphan {
        for place in &places.0 {
            let path = format!("{place}?labelSelector=kubegc-bench%3D{run}");
            cluster.call(Method::DELETE, &path, None).await?;
        }
    }
    Ok(())
}

async fn create(cluster: &Cluster, options: &Options, places: &Collections, run: &str) -> anyhow::Result<()> {
    let Options { dependents, owners, .. } = *options;
    let begun = Instant::now();
    let mut owner_uids = Vec::new();
    for number in 0..owners {
        let owner = config_map(&format!("{run}-owner-{number}"), run, None);
        owner_uids.push(cluster.create_in(places.of_owner(number), &owner).await?);
    }
    let objects = (0..dependents).zip((0..owners).cycle()).map(|(number, owner)| {
        let reference = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": format!("{run}-owner-{owner}"),
            "uid": owner_uids[owner as usize], "blockOwnerDeletion": true,
        }]);
        (places.of_owner(owner).to_owned(), config_map(&format!("{run}-{number}"), run, Some(reference)))
    });
    let mut latencies = cluster.create_all_in(objects).await?;
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "created     {owners} owners with {dependents} dependents in {seconds:.2} s: {:.0}/s; {}",
        f64::from(dependents) / seconds,
        latencies.describe()
    );
    Ok(())
}

/// Deletes the owners, with the configured number of requests in flight. Returns the time at which it started.
async fn delete_owners(
    cluster: &Cluster,
    options: &Options,
    policy: PropagationPolicy,
    places: &Collections,
    run: &str,
) -> anyhow::Result<Instant> {
    let begun = Instant::now();
    let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy.name()});
    let body = &body;
    let deletions = (0..options.owners).map(|number| async move {
        let path = format!("{}/{run}-owner-{number}", places.of_owner(number));
        let (code, answer) = cluster.call(Method::DELETE, &path, Some(body)).await?;
        anyhow::ensure!(code < 300, "the owner was not deleted: {code} {}", answer["message"]);
        Ok(())
    });
    let mut deleted = futures::stream::iter(deletions).buffer_unordered(cluster.in_flight);
    while let Some(answer) = deleted.next().await {
        answer?;
    }
    Ok(begun)
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

/// Watches until the objects with the label of a run are gone. Returns their names and when each was removed.
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
    let response = cluster.client.open(request).await?;
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
