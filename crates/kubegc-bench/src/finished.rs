//! Measures the collection of finished objects: pods over a threshold, and Jobs whose TTL expires. The collector starts only once
//! everything has been created, so the measurement includes its list.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cascade::watch_until_gone;
use crate::cluster::{Cluster, print_requests};
use kubegc_bench::measure::{Latencies, Usage, print_usage};

/// Maximum duration per thousand objects, and the minimum of that bound.
const PATIENCE_PER_THOUSAND: Duration = Duration::from_secs(10);
const PATIENCE_AT_LEAST: Duration = Duration::from_mins(1);

/// Options of `kubegc-bench pods`.
#[derive(Debug, Args)]
pub(crate) struct PodOptions {
    /// Finished pods
    #[arg(long, default_value_t = 360_000)]
    pods: u32,
    /// The collector's --terminated-pod-gc-threshold
    #[arg(long, default_value_t = 20_000)]
    threshold: u32,
    /// Number of those above it that a finalizer blocks
    #[arg(long, default_value_t = 10_000)]
    held: u32,
    /// The collector, with its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Options of `kubegc-bench jobs`.
#[derive(Debug, Args)]
pub(crate) struct JobOptions {
    /// Finished Jobs
    #[arg(long, default_value_t = 50_000)]
    jobs: u32,
    /// Time over which they expire evenly, seconds
    #[arg(long, default_value_t = 3600)]
    over: u32,
    /// Time until the first expires, seconds; all must have been created by then
    #[arg(long, default_value_t = 120)]
    lead: u32,
    /// Namespaces over which they are spread, each named like the namespace of `--namespace` with a number; created if they
    /// are missing
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    namespaces: Option<u32>,
    /// The collector of Jobs and of owners, with its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn label() -> String {
    format!("bench-{}", Timestamp::now().as_millisecond())
}

/// Returns the path of another resource's collection in the namespace.
pub(crate) fn collection(cluster: &Cluster, prefix: &str, resource: &str) -> String {
    format!("{prefix}/namespaces/{}/{resource}", cluster.namespace)
}

/// Starts the collector, waits until this number of objects are gone, prints the cost, and kills the collector. Returns when each
/// object was removed.
async fn collect(
    cluster: &Cluster,
    (objects, run, number): (&str, &str, u32),
    command: &[String],
    patience: Duration,
) -> anyhow::Result<Vec<(String, Instant)>> {
    let (_, list) = cluster.call(Method::GET, &format!("{objects}?limit=1"), None).await?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a version to watch from")?;
    let before = cluster.requests().await;
    let (program, arguments) = command.split_first().context("a command")?;
    let begun = Instant::now();
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let pid = child.id().context("the collector has ended at once")?;
    let gone = watch_until_gone(cluster, objects, run, version, number);
    let gone = tokio::select! {
        ended = child.wait() => anyhow::bail!("the collector has ended: {}", ended?),
        gone = tokio::time::timeout(patience, gone) => gone.context("they do not go")??,
    };
    let took = begun.elapsed();
    println!(
        "collected   {number} in {:.2} s from the start of the collector: {:.0}/s",
        took.as_secs_f64(),
        f64::from(number) / took.as_secs_f64()
    );
    print_requests(before.as_ref(), cluster.requests().await.as_ref(), f64::from(number));
    let none = Usage { cpu: Duration::ZERO, peak_kib: 0, resident_kib: 0 };
    print_usage(none, Usage::of(pid)?, took);
    child.kill().await?;
    Ok(gone)
}

/// Creates the pods, starts the collector, and waits until it has removed all that are over the threshold and not held.
pub(crate) async fn pods(cluster: &Cluster, options: &PodOptions) -> anyhow::Result<()> {
    let PodOptions { pods, threshold, held, .. } = *options;
    let over = pods.checked_sub(threshold).filter(|over| *over >= held).context("so few pods are over it")?;
    let (run, pods_of) = (label(), collection(cluster, "/api/v1", "pods"));
    let begun = Instant::now();
    // The collector removes the oldest first. The held pods are among them, every second one.
    let objects = (0..pods).map(|number| {
        let finalizers = if number % 2 == 0 && number / 2 < held { json!(["example.com/held"]) } else { Value::Null };
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("p-{number}"), "labels": {"kubegc-bench": run}, "finalizers": finalizers},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        (pods_of.clone(), pod, json!({"phase": "Succeeded"}))
    });
    cluster.create_with_status(objects).await?;
    println!("created     {pods} finished pods in {:.2} s", begun.elapsed().as_secs_f64());
    let patience = PATIENCE_AT_LEAST + PATIENCE_PER_THOUSAND * (over / 1000);
    collect(cluster, (&pods_of, &run, over - held), &options.command, patience).await?;
    Ok(())
}

/// Creates the Jobs, starts the collector, waits until all are gone, and prints how late each was removed.
pub(crate) async fn jobs(cluster: &Cluster, options: &JobOptions) -> anyhow::Result<()> {
    let JobOptions { jobs, over, lead, .. } = *options;
    let run = label();
    let (places, watched) = match options.namespaces {
        None => (vec![cluster.namespace.clone()], collection(cluster, "/apis/batch/v1", "jobs")),
        Some(number) => (cluster.namespaces(number).await?, "/apis/batch/v1/jobs".to_owned()),
    };
    let (begun, wall) = (Instant::now(), Timestamp::now());
    let now = wall.as_second();
    let expires_after =
        |number: u32| u64::from(lead) + u64::from(number) * u64::from(over) / u64::from(jobs.max(1));
    let objects = (0..jobs).zip(places.iter().cycle()).map(|(number, namespace)| {
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": format!("j-{number}"), "labels": {"kubegc-bench": run}},
            "spec": {"ttlSecondsAfterFinished": expires_after(number), "template": template},
        });
        let at = Timestamp::from_second(now).map(|at| at.to_string()).unwrap_or_default();
        let condition = |kind: &str| {
            json!({"type": kind, "status": "True", "lastTransitionTime": at, "lastProbeTime": at})
        };
        let conditions = [condition("SuccessCriteriaMet"), condition("Complete")];
        let status = json!({"startTime": at, "completionTime": at, "conditions": conditions});
        (format!("/apis/batch/v1/namespaces/{namespace}/jobs"), job, status)
    });
    cluster.create_with_status(objects).await?;
    println!("created     {jobs} finished Jobs in {:.2} s", begun.elapsed().as_secs_f64());
    anyhow::ensure!(
        begun.elapsed().as_secs() < u64::from(lead),
        "that took longer than --lead: some have expired"
    );
    let patience = PATIENCE_AT_LEAST + Duration::from_secs(u64::from(lead) + u64::from(over));
    let gone = collect(cluster, (&watched, &run, jobs), &options.command, patience).await?;
    // Times in conditions are whole seconds, so the Jobs' TTL started earlier than our clock by this fraction.
    let before = Duration::from_millis(u64::try_from(wall.as_millisecond() - now * 1000)?);
    let mut late = Latencies::default();
    for (name, at) in gone {
        let number: u32 = name.trim_start_matches("j-").parse()?;
        let due = begun + Duration::from_secs(expires_after(number)).saturating_sub(before);
        late.add(at.saturating_duration_since(due));
    }
    println!("lateness    {}", late.describe());
    Ok(())
}
