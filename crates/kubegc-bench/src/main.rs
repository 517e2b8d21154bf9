//! `kubegc-bench`: measures a collector from outside, on any cluster.
//!
//! Each command prints the cost for the cluster: time, latencies, requests by verb (if the server has `apiserver_request_total`),
//! and the CPU time and peak memory of the collector's process (`--pid`).

mod ask;
mod cascade;
mod churn;
mod cluster;
mod failover;
mod finished;
mod namespaces;
mod startup;
mod workloads;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use cluster::Cluster;

/// Measures a collector from outside.
#[derive(Debug, Parser)]
#[command(name = "kubegc-bench", version)]
struct CommandLine {
    /// The cluster to measure [default: as kubectl finds it]
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// The collector's process, to report its CPU time and peak memory
    #[arg(long, value_name = "PID", global = true)]
    pid: Option<u32>,
    /// Requests in flight while objects are made or changed
    #[arg(long, value_name = "N", global = true, default_value_t = 64)]
    in_flight: usize,
    /// The namespace of the objects; made if it is missing
    #[arg(long, value_name = "NAME", global = true, default_value = "kubegc-bench")]
    namespace: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A command such as `kubegc stuck`: its time, peak memory and requests
    Ask(ask::Options),
    /// Owners with dependents, deleted all at once
    Cascade(cascade::Options),
    /// ConfigMaps, for `startup`, `churn` and `ask`
    Fill(startup::FillOptions),
    /// From the start of a collector until it knows all objects
    Startup(startup::Options),
    /// Updates at a fixed rate
    Churn(churn::Options),
    /// Two replicas of a collector, until the second deletes something after the first was killed; and what both cost
    Failover(failover::Options),
    /// Namespaces with objects, deleted all at once
    Namespaces(namespaces::Options),
    /// Finished pods over the threshold of a collector that is started
    Pods(finished::PodOptions),
    /// Finished Jobs that expire one after the other under a collector that is started
    Jobs(finished::JobOptions),
    /// Deployments, until every pod is ready, and then updates of all of them; the objects remain
    Rollout(workloads::RolloutOptions),
    /// Jobs, until each has completed, expired and gone
    Completions(workloads::CompletionOptions),
    /// The CPU time of a process (`--pid`) while nothing changes
    Idle(workloads::IdleOptions),
    /// From the start of `kubegc up` until it says that it is ready
    Launch(startup::LaunchOptions),
}

fn main() -> anyhow::Result<()> {
    let line = CommandLine::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let connect = async || {
            Cluster::connect(line.kubeconfig.as_deref(), &line.namespace, line.in_flight.max(1)).await
        };
        let pid = line.pid;
        match line.command {
            Command::Ask(options) => ask::run(&connect().await?, &options).await,
            Command::Cascade(options) => cascade::run(&connect().await?, &options, pid).await,
            Command::Fill(options) => startup::fill(&connect().await?, &options).await,
            Command::Failover(options) => failover::run(&connect().await?, &options).await,
            Command::Startup(options) => startup::run(&options).await,
            Command::Namespaces(options) => namespaces::run(&connect().await?, &options, pid).await,
            Command::Pods(options) => finished::pods(&connect().await?, &options).await,
            Command::Jobs(options) => finished::jobs(&connect().await?, &options).await,
            Command::Churn(options) => churn::run(&connect().await?, &options, pid).await,
            Command::Rollout(options) => workloads::rollout(&connect().await?, &options, pid).await,
            Command::Completions(options) => workloads::completions(&connect().await?, &options, pid).await,
            Command::Idle(options) => workloads::idle(&options, pid).await,
            Command::Launch(options) => startup::launch(&options).await,
        }
    })
}
