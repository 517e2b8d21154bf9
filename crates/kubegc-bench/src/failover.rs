//! Measures a change of leader: two replicas of a collector, of which the leader is killed, and the time until the other deletes its
//! first object.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use http::Method;
use serde_json::json;
use tokio::process::{Child, Command};

use crate::cluster::{Cluster, print_requests};
use kubegc_bench::measure::{Latencies, Usage};

/// Interval at which the Lease and the dependent are read.
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum time until a replica leads, and until the dependent is deleted.
const PATIENCE: Duration = Duration::from_mins(2);

/// Options of `kubegc-bench failover`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of leaders to kill, one after the other
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    kills: u32,
    /// Time for which both replicas run before a leader is killed, seconds; requests are counted meanwhile
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    rest: u32,
    /// The Lease, as NAMESPACE/NAME
    #[arg(long, default_value = "kube-system/kubegc-garbage-collector")]
    lease: String,
    /// The collector, with its arguments; two run at once, so its pages need a free port: --bind-address=127.0.0.1:0
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

struct Lease {
    holder: String,
    seconds: u64,
}

async fn lease(cluster: &Cluster, name: &str) -> anyhow::Result<Lease> {
    let (namespace, name) = name.split_once('/').context("--lease is NAMESPACE/NAME")?;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    let (_, lease) = cluster.call(Method::GET, &path, None).await?;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    Ok(Lease { holder, seconds: lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or_default() })
}

fn start(command: &[String]) -> anyhow::Result<Child> {
    let (program, arguments) = command.split_first().context("a command")?;
    let child = Command::new(program).args(arguments).kill_on_drop(true).spawn();
    child.with_context(|| format!("cannot start {program}"))
}

/// Waits until the Lease has another holder than `former`, and returns it.
async fn next_holder(cluster: &Cluster, name: &str, former: &str) -> anyhow::Result<String> {
    let changed = async {
        loop {
            let holder = lease(cluster, name).await?.holder;
            if !holder.is_empty() && holder != former {
                return anyhow::Ok(holder);
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(PATIENCE, changed).await.context("no replica leads")?
}

/// Creates an owner with a dependent, and returns their paths.
async fn family(cluster: &Cluster, number: u32) -> anyhow::Result<[String; 2]> {
    let names = [format!("failover-owner-{number}"), format!("failover-leaf-{number}")];
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": names[0]}});
    let uid = cluster.create_in(&cluster.config_maps, &owner).await?;
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": names[0], "uid": uid}]);
    let metadata = json!({"name": names[1], "ownerReferences": owners});
    let leaf = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    cluster.create_in(&cluster.config_maps, &leaf).await?;
    Ok(names.map(|name| format!("{}/{name}", cluster.config_maps)))
}

/// Starts two replicas, kills the leader, and starts another, as often as configured.
pub(crate) async fn run(cluster: &Cluster, options: &Options) -> anyhow::Result<()> {
    let name = &*options.lease;
    let former = lease(cluster, name).await?.holder;
    let mut leader = start(&options.command)?;
    let mut holder = next_holder(cluster, name, &former).await?;
    let mut latencies = Latencies::default();
    for number in 0..options.kills {
        let standby = start(&options.command)?;
        let before = cluster.requests().await;
        let rest = Duration::from_secs(u64::from(options.rest));
        tokio::time::sleep(rest).await;
        if number == 0 {
            println!("requests per second, of both replicas and their starts:");
            print_requests(before.as_ref(), cluster.requests().await.as_ref(), rest.as_secs_f64());
        }
        let resident = |child: &Child| Usage::of(child.id().context("a replica has ended")?);
        let [ours, theirs] = [resident(&leader)?, resident(&standby)?];
        let [owner, leaf] = family(cluster, number).await?;
        let seconds = lease(cluster, name).await?.seconds;
        leader.start_kill()?;
        let killed = Instant::now();
        leader.wait().await?;
        cluster.call(Method::DELETE, &format!("{owner}?propagationPolicy=Background"), None).await?;
        let deleted = async {
            while cluster.call(Method::GET, &leaf, None).await?.0 != 404 {
                tokio::time::sleep(PAUSE).await;
            }
            anyhow::Ok(killed.elapsed())
        };
        let took = tokio::time::timeout(PATIENCE, deleted).await.context("nothing is deleted")??;
        latencies.add(took);
        println!(
            "killed      lease {seconds} s; leader {} MiB, standby {} MiB (CPU {:.2} s); first deletion after {:.2} s",
            ours.resident_kib >> 10,
            theirs.resident_kib >> 10,
            theirs.cpu.as_secs_f64(),
            took.as_secs_f64()
        );
        holder = next_holder(cluster, name, &holder).await?;
        leader = standby;
    }
    println!("failover    {} kills: {}", latencies.count(), latencies.describe());
    leader.kill().await?;
    Ok(())
}
