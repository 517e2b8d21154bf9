//! Measures workload controllers: Deployments until their pods are ready, updates of them, Jobs until they have expired, and the
//! cost of idle pods. The objects of `rollout` remain, so `idle` can follow.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use gc_kube::wire::frames::Frames;
use gc_kube::wire::metadata::Encoding;
use http::header::ACCEPT;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::cluster::{Cluster, print_requests};
use crate::finished::collection;
use kubegc_bench::measure::{Usage, print_usage};

/// Maximum duration per thousand pods, and the minimum of that bound.
const PATIENCE_PER_THOUSAND: Duration = Duration::from_mins(2);
const PATIENCE_AT_LEAST: Duration = Duration::from_mins(1);
/// No measurement takes longer than a day.
const WATCH_SECONDS: u32 = 86_400;

/// Options of `kubegc-bench rollout`.
#[derive(Debug, Args)]
pub(crate) struct RolloutOptions {
    /// Deployments
    #[arg(long, default_value_t = 1000)]
    deployments: u32,
    /// Replicas of each
    #[arg(long, default_value_t = 3)]
    replicas: u32,
    /// Number of updates of all Deployments that follow, one after the other
    #[arg(long, default_value_t = 0)]
    updates: u32,
}

/// Options of `kubegc-bench completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionOptions {
    /// Jobs of one pod each
    #[arg(long, default_value_t = 10_000)]
    jobs: u32,
    /// ttlSecondsAfterFinished of each
    #[arg(long, default_value_t = 5)]
    ttl: u32,
}

/// Options of `kubegc-bench idle`.
#[derive(Debug, Args)]
pub(crate) struct IdleOptions {
    /// Duration of the measurement, seconds
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Watches the objects with the label of a run. Yields the type of each event, and its object.
async fn watch(
    cluster: &Cluster,
    collection: &str,
    run: &str,
) -> anyhow::Result<impl Stream<Item = anyhow::Result<(String, Value)>> + Unpin + use<>> {
    let (_, list) = cluster.call(Method::GET, &format!("{collection}?limit=1"), None).await?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a version to watch from")?;
    let uri = format!(
        "{collection}?watch=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}\
         &labelSelector=kubegc-bench%3D{run}"
    );
    let request = Request::builder().uri(uri).header(ACCEPT, "application/json").body(Full::default())?;
    let response = cluster.client.open(request).await?;
    anyhow::ensure!(response.status() == 200, "the watch was answered with {}", response.status());
    let state = (Frames::new(Encoding::Json), response.into_body());
    let events = futures::stream::try_unfold(state, |(mut frames, mut body)| async move {
        loop {
            if let Some(frame) = frames.next_frame()? {
                let mut event: Value = serde_json::from_slice(&frame)?;
                anyhow::ensure!(event["type"] != "ERROR", "the watch failed: {}", event["object"]["message"]);
                let kind = event["type"].as_str().unwrap_or_default().to_owned();
                return Ok(Some(((kind, event["object"].take()), (frames, body))));
            }
            let frame = body.frame().await.context("the watch ended")?;
            if let Ok(chunk) = frame.map_err(|error| anyhow::anyhow!(error))?.into_data() {
                frames.push(&chunk);
            }
        }
    });
    Ok(Box::pin(events))
}

/// Readings to compare before and after a measurement.
struct Reading {
    begun: Instant,
    requests: Option<BTreeMap<String, f64>>,
    usage: Option<Usage>,
}

impl Reading {
    async fn take(cluster: &Cluster, pid: Option<u32>) -> anyhow::Result<Self> {
        let (requests, usage) = (cluster.requests().await, pid.map(Usage::of).transpose()?);
        Ok(Self { begun: Instant::now(), requests, usage })
    }

    /// Prints the differences since this reading, for this number of units of work.
    async fn print(&self, cluster: &Cluster, pid: Option<u32>, units: f64) -> anyhow::Result<()> {
        let took = self.begun.elapsed();
        print_requests(self.requests.as_ref(), cluster.requests().await.as_ref(), units);
        if let (Some(pid), Some(usage)) = (pid, self.usage) {
            print_usage(usage, Usage::of(pid)?, took);
        }
        Ok(())
    }
}

fn patience(units: u32) -> Duration {
    PATIENCE_AT_LEAST + PATIENCE_PER_THOUSAND.mul_f64(f64::from(units) / 1000.0)
}

fn run_label() -> String {
    format!("bench-{}", jiff::Timestamp::now().as_millisecond())
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Reports whether `kubectl rollout status` would consider a Deployment rolled out.
fn is_rolled_out(deployment: &Value) -> bool {
    let (wanted, status) = (deployment["spec"]["replicas"].as_i64(), &deployment["status"]);
    let is_observed = status["observedGeneration"].as_i64() >= deployment["metadata"]["generation"].as_i64();
    let counts = ["replicas", "updatedReplicas", "availableReplicas"];
    is_observed && counts.iter().all(|count| Some(status[count].as_i64().unwrap_or_default()) == wanted)
}

/// Creates Deployments, waits until every pod is ready, and updates the Deployments the configured number of times.
pub(crate) async fn rollout(
    cluster: &Cluster,
    options: &RolloutOptions,
    pid: Option<u32>,
) -> anyhow::Result<()> {
    let RolloutOptions { deployments, replicas, updates } = *options;
    let (run, path) = (run_label(), collection(cluster, "/apis/apps/v1", "deployments"));
    let pods = deployments.saturating_mul(replicas);
    let mut events = watch(cluster, &path, &run).await?;
    let objects = (0..deployments).map(|number| {
        let labels = json!({"kubegc-bench": run, "app": format!("{run}-{number}")});
        let template = json!({"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i:0"}]}});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": format!("{run}-{number}"), "labels": {"kubegc-bench": run}},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        });
        (path.clone(), deployment)
    });
    let create = async {
        let begun = Instant::now();
        let mut latencies = cluster.create_all_in(objects).await?;
        anyhow::Ok((begun.elapsed(), latencies.describe()))
    };
    let reading = Reading::take(cluster, pid).await?;
    let ready = all_rolled_out(&mut events, deployments, 1);
    let both = async { futures::try_join!(create, ready) };
    let ((took, latencies), ()) =
        tokio::time::timeout(patience(pods), both).await.context("the pods do not become ready")??;
    println!("created     {deployments} Deployments in {:.2} s; {latencies}", took.as_secs_f64());
    print_rate("ready", &format!("{deployments} Deployments with {pods} pods"), pods, &reading);
    reading.print(cluster, pid, f64::from(pods)).await?;
    for update in 1..=updates {
        let reading = Reading::take(cluster, pid).await?;
        let paths = (0..deployments).map(|number| format!("{path}/{run}-{number}"));
        let change = change_image(cluster, paths, update);
        let ready = all_rolled_out(&mut events, deployments, i64::from(update) + 1);
        let both = async { futures::try_join!(change, ready) };
        tokio::time::timeout(patience(pods), both).await.context("the update does not end")??;
        print_rate("updated", &format!("{deployments} Deployments with {pods} pods"), pods, &reading);
        reading.print(cluster, pid, f64::from(pods)).await?;
    }
    Ok(())
}

/// Waits until this number of Deployments have been rolled out in this generation.
async fn all_rolled_out(
    events: &mut (impl Stream<Item = anyhow::Result<(String, Value)>> + Unpin),
    deployments: u32,
    generation: i64,
) -> anyhow::Result<()> {
    let mut rolled_out = BTreeSet::new();
    while rolled_out.len() < deployments as usize {
        let (_, object) = events.try_next().await?.context("the watch ended")?;
        if object["metadata"]["generation"].as_i64() >= Some(generation) && is_rolled_out(&object) {
            rolled_out.insert(name_of(&object));
        }
    }
    Ok(())
}

async fn change_image(
    cluster: &Cluster,
    paths: impl Iterator<Item = String>,
    update: u32,
) -> anyhow::Result<()> {
    let containers = json!([{"name": "c", "image": format!("i:{update}")}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let work = paths.map(|path| {
        let patch = &patch;
        async move {
            let (code, body) = cluster.call(Method::PATCH, &path, Some(patch)).await?;
            anyhow::ensure!(code == 200, "{path} was not changed: {code} {}", body["message"]);
            anyhow::Ok(())
        }
    });
    let mut changed = futures::stream::iter(work).buffer_unordered(cluster.in_flight);
    while let Some(answer) = changed.next().await {
        answer?;
    }
    Ok(())
}

fn print_rate(verb: &str, what: &str, units: u32, reading: &Reading) {
    let seconds = reading.begun.elapsed().as_secs_f64();
    println!("{verb:<11} {what} in {seconds:.2} s: {:.0} pods/s", f64::from(units) / seconds);
}

/// Reports whether a Job is complete.
fn is_complete(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Complete" && one["status"] == "True")
}

/// Creates Jobs and waits until all of them have completed, expired and gone.
pub(crate) async fn completions(
    cluster: &Cluster,
    options: &CompletionOptions,
    pid: Option<u32>,
) -> anyhow::Result<()> {
    let CompletionOptions { jobs, ttl } = *options;
    let (run, path) = (run_label(), collection(cluster, "/apis/batch/v1", "jobs"));
    let mut events = watch(cluster, &path, &run).await?;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let objects = (0..jobs).map(|number| {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": format!("{run}-{number}"), "labels": {"kubegc-bench": run}},
            "spec": {"ttlSecondsAfterFinished": ttl, "template": template},
        });
        (path.clone(), job)
    });
    let create = async {
        let begun = Instant::now();
        let mut latencies = cluster.create_all_in(objects).await?;
        anyhow::Ok((begun.elapsed(), latencies.describe()))
    };
    let reading = Reading::take(cluster, pid).await?;
    let follow = async {
        let (mut complete, mut gone, mut last_complete) = (BTreeSet::new(), 0, Duration::ZERO);
        while gone < jobs {
            let (event, job) = events.try_next().await?.context("the watch ended")?;
            if is_complete(&job) && complete.insert(name_of(&job)) {
                last_complete = reading.begun.elapsed();
            }
            gone += u32::from(event == "DELETED");
        }
        anyhow::Ok((complete.len(), last_complete))
    };
    let patience = patience(jobs) + Duration::from_secs(u64::from(ttl));
    let both = async { futures::try_join!(create, follow) };
    let ((created, latencies), (complete, last_complete)) =
        tokio::time::timeout(patience, both).await.context("the Jobs do not go")??;
    println!("created     {jobs} Jobs in {:.2} s; {latencies}", created.as_secs_f64());
    println!("completed   {complete} Jobs in {:.2} s", last_complete.as_secs_f64());
    print_rate("expired", &format!("{jobs} Jobs, {ttl} s after they had completed,"), jobs, &reading);
    reading.print(cluster, pid, f64::from(jobs)).await
}

/// Measures the CPU time that a process uses while nothing changes.
pub(crate) async fn idle(options: &IdleOptions, pid: Option<u32>) -> anyhow::Result<()> {
    let pid = pid.context("name the process with --pid")?;
    let (before, begun) = (Usage::of(pid)?, Instant::now());
    tokio::time::sleep(Duration::from_secs(u64::from(options.seconds))).await;
    print_usage(before, Usage::of(pid)?, begun.elapsed());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_is_rolled_out_when_every_replica_is_new_and_available() {
        let deployment = |generation: i64, status: Value| json!({"metadata": {"generation": generation}, "spec": {"replicas": 2}, "status": status});
        let status = |observed: i64, replicas: i64, updated: i64, available: i64| {
            json!({"observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated,
                "availableReplicas": available})
        };
        let table = [
            (deployment(1, status(1, 2, 2, 2)), true),
            (deployment(2, status(1, 2, 2, 2)), false),
            (deployment(2, status(2, 3, 2, 3)), false),
            (deployment(2, status(2, 2, 1, 2)), false),
            (deployment(2, status(2, 2, 2, 1)), false),
            (deployment(1, Value::Null), false),
        ];
        for (deployment, expected) in table {
            assert_eq!(is_rolled_out(&deployment), expected, "{deployment}");
        }
    }
}
