//! Measures how a collector keeps up with updates at a fixed rate.

use std::time::{Duration, Instant};

use clap::Args;
use tokio::task::JoinSet;

use crate::cluster::{Cluster, print_requests};
use kubegc_bench::measure::{Latencies, Usage, print_usage};

/// Maximum number of updates in flight; further ones are sent late, and counted.
const WAITING: usize = 1024;

/// Options of `kubegc-bench churn`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Objects that `fill` has made
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    objects: u32,
    /// Updates per second
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// For how long
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

/// Updates the objects in turn.
pub(crate) async fn run(cluster: &Cluster, options: &Options, pid: Option<u32>) -> anyhow::Result<()> {
    let total = options.rate * options.seconds;
    let before = cluster.requests().await;
    let used = pid.map(Usage::of).transpose()?;
    let begun = Instant::now();
    let mut latencies = Latencies::default();
    let mut late = 0_u32;
    let mut waiting: JoinSet<anyhow::Result<Duration>> = JoinSet::new();
    for number in 0..total {
        let due = begun + Duration::from_secs_f64(f64::from(number) / f64::from(options.rate));
        tokio::time::sleep_until(due.into()).await;
        while waiting.len() >= WAITING {
            late += 1;
            take(waiting.join_next().await, &mut latencies)?;
        }
        while let Some(done) = waiting.try_join_next() {
            take(Some(done), &mut latencies)?;
        }
        let path = format!("{}/b-{}", cluster.config_maps, number % options.objects);
        let update = cluster.update(path, number);
        waiting.spawn(update);
    }
    while !waiting.is_empty() {
        take(waiting.join_next().await, &mut latencies)?;
    }
    let took = begun.elapsed();
    println!(
        "updated     {total} times in {:.2} s: {:.0}/s, {late} late; {}",
        took.as_secs_f64(),
        f64::from(total) / took.as_secs_f64(),
        latencies.describe()
    );
    print_requests(before.as_ref(), cluster.requests().await.as_ref(), f64::from(total));
    if let (Some(pid), Some(used)) = (pid, used) {
        print_usage(used, Usage::of(pid)?, took);
    }
    Ok(())
}

type DoneSignal = Result<anyhow::Result<Duration>, tokio::task::JoinError>;

fn take(done: Option<DoneSignal>, latencies: &mut Latencies) -> anyhow::Result<()> {
    if let Some(done) = done {
        latencies.add(done??);
    }
    Ok(())
}
