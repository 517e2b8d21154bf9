//! Measures a command that queries a cluster: its time, its peak memory, and its requests.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use tokio::io::AsyncReadExt as _;

use crate::cluster::{Cluster, print_requests};
use kubegc_bench::measure::{Latencies, Usage};

/// Interval of reading the command's memory. The kernel records the peak until the process ends.
const PAUSE: Duration = Duration::from_millis(2);

/// Options of `kubegc-bench ask`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of times to run the command
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The command, with its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the command, and prints its time, memory and requests.
pub(crate) async fn run(cluster: &Cluster, options: &Options) -> anyhow::Result<()> {
    let (program, arguments) = options.command.split_first().context("a command")?;
    let before = cluster.requests().await;
    let (mut latencies, mut peak_kib, mut written) = (Latencies::default(), 0, 0);
    for _ in 0..options.runs {
        let begun = Instant::now();
        let mut child = tokio::process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let pid = child.id().context("the command has ended at once")?;
        let mut stdout = child.stdout.take().context("its output")?;
        let mut output = Vec::new();
        let watched = async {
            loop {
                // A process that has ended reports no memory.
                peak_kib = Usage::of(pid).map_or(peak_kib, |usage| usage.peak_kib.max(peak_kib));
                tokio::time::sleep(PAUSE).await;
            }
        };
        let ended = async {
            stdout.read_to_end(&mut output).await?;
            child.wait().await
        };
        let status = tokio::select! {
            ended = ended => ended?,
            () = watched => unreachable!("it is watched until it ends"),
        };
        latencies.add(begun.elapsed());
        written = output.len();
        // Exit codes above 1 are answers: with 2, `kubegc plan` reports that something would get stuck.
        anyhow::ensure!(status.code().is_some_and(|code| code != 1), "{program} ended with {status}");
    }
    println!("answered    {} times: {}", latencies.count(), latencies.describe());
    println!("process     peak {} MiB, wrote {} KiB", peak_kib >> 10, written >> 10);
    print_requests(before.as_ref(), cluster.requests().await.as_ref(), f64::from(options.runs));
    Ok(())
}
