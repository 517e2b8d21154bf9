//! Measures the deletion of namespaces with objects, all at once: the time until the last is gone, and the cost.

use std::time::{Duration, Instant};

use clap::Args;
use futures::StreamExt as _;
use http::Method;
use serde_json::json;

use crate::cluster::{Cluster, print_requests};
use kubegc_bench::measure::{Usage, print_usage};

const NAMESPACES: &str = "/api/v1/namespaces";
/// Maximum duration per thousand objects, and the minimum of that bound.
const PATIENCE_PER_THOUSAND: Duration = Duration::from_secs(10);
const PATIENCE_AT_LEAST: Duration = Duration::from_mins(1);
/// Interval between checks for the removal of a namespace.
const PAUSE: Duration = Duration::from_millis(50);

/// Options of `kubegc-bench namespaces`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Namespaces
    #[arg(long, default_value_t = 1000)]
    namespaces: u32,
    /// Objects in each
    #[arg(long, default_value_t = 200)]
    objects: u32,
}

/// Creates the namespaces and objects, deletes the namespaces, and waits until the last is gone.
pub(crate) async fn run(cluster: &Cluster, options: &Options, pid: Option<u32>) -> anyhow::Result<()> {
    let Options { namespaces, objects } = *options;
    let run = format!("bench-{}", jiff::Timestamp::now().as_millisecond());
    let begun = Instant::now();
    let names: Vec<String> = (0..namespaces).map(|number| format!("{run}-{number}")).collect();
    let make = names.iter().map(|name| {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        (NAMESPACES.to_owned(), object)
    });
    cluster.create_all_in(make).await?;
    let fill = names.iter().flat_map(|name| {
        (0..objects).map(move |number| {
            let name_of = format!("object-{number}");
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name_of}});
            (format!("{NAMESPACES}/{name}/configmaps"), object)
        })
    });
    let mut latencies = cluster.create_all_in(fill).await?;
    println!(
        "created     {namespaces} namespaces with {objects} objects each in {:.2} s; {}",
        begun.elapsed().as_secs_f64(),
        latencies.describe()
    );
    let before = cluster.requests().await;
    let used = pid.map(Usage::of).transpose()?;
    let begun = Instant::now();
    let delete = names.iter().map(|name| async move {
        let (code, body) = cluster.call(Method::DELETE, &format!("{NAMESPACES}/{name}"), None).await?;
        anyhow::ensure!(code < 300, "a namespace was not deleted: {code} {}", body["message"]);
        Ok(())
    });
    let mut deleted = futures::stream::iter(delete).buffer_unordered(cluster.in_flight);
    while let Some(answer) = deleted.next().await {
        answer?;
    }
    let patience = PATIENCE_AT_LEAST + PATIENCE_PER_THOUSAND * (namespaces * objects / 1000);
    for name in &names {
        while cluster.call(Method::GET, &format!("{NAMESPACES}/{name}"), None).await?.0 != 404 {
            anyhow::ensure!(begun.elapsed() < patience, "namespace {name} does not go");
            tokio::time::sleep(PAUSE).await;
        }
    }
    let took = begun.elapsed();
    let number = f64::from(namespaces);
    println!(
        "terminated  {namespaces} namespaces in {:.2} s: {:.0} namespaces/s",
        took.as_secs_f64(),
        number / took.as_secs_f64()
    );
    print_requests(before.as_ref(), cluster.requests().await.as_ref(), number);
    if let (Some(pid), Some(used)) = (pid, used) {
        print_usage(used, Usage::of(pid)?, took);
    }
    Ok(())
}
