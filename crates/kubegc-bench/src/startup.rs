//! Measures a cold start: from the start of the collector's process until it has observed all objects.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use crate::cluster::Cluster;
use kubegc_bench::measure::{Latencies, Usage, print_usage};

/// Interval of the readiness checks.
const PAUSE: Duration = Duration::from_millis(20);

/// Options of `kubegc-bench fill`.
#[derive(Debug, Args)]
pub(crate) struct FillOptions {
    /// Objects in all, `b-0` and on
    #[arg(long, default_value_t = 200_000)]
    objects: u32,
    /// The number of the first: those before it exist
    #[arg(long, default_value_t = 0)]
    from: u32,
    /// Owners among which the objects are divided, `owner-0` and on [default: none]
    #[arg(long, default_value_t = 0)]
    owners: u32,
    /// Number of objects that are deleted and stay because of a finalizer
    #[arg(long, default_value_t = 0)]
    held: u32,
}

/// Creates ConfigMaps.
pub(crate) async fn fill(cluster: &Cluster, options: &FillOptions) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut owners = Vec::new();
    for number in 0..options.owners {
        let name = format!("owner-{number}");
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let uid = cluster.create_in(&cluster.config_maps, &owner).await?;
        owners.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}));
    }
    let objects = (options.from..options.objects).map(|number| {
        let mut object = config_map(number);
        if !owners.is_empty() {
            object["metadata"]["ownerReferences"] = json!([owners[number as usize % owners.len()]]);
        }
        if number < options.held {
            object["metadata"]["finalizers"] = json!(["kubegc.io/bench"]);
        }
        object
    });
    let mut latencies = cluster.create_all(objects).await?;
    for number in options.from..options.held.min(options.objects) {
        let path = format!("{}/b-{number}", cluster.config_maps);
        let (code, answer) = cluster.call(http::Method::DELETE, &path, None).await?;
        anyhow::ensure!(code == 200, "{path} was not deleted: {code} {}", answer["message"]);
    }
    let (number, seconds) = (latencies.count(), begun.elapsed().as_secs_f64());
    println!(
        "created     {number} objects in {seconds:.2} s: {:.0}/s; {}",
        f64::from(u32::try_from(number)?) / seconds,
        latencies.describe()
    );
    Ok(())
}

fn config_map(number: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("b-{number}")},
           "data": {"number": number.to_string()}})
}

/// Options of `kubegc-bench startup`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where the collector serves /readyz
    #[arg(long, value_name = "ADDRESS:PORT")]
    ready: SocketAddr,
    /// Maximum duration, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 170)]
    patience: u64,
    /// The collector, with its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Starts the collector, waits until it is ready, prints the cost, and ends it.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let (program, arguments) = options.command.split_first().context("a command")?;
    let begun = Instant::now();
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let pid = child.id().context("the collector has ended at once")?;
    let ready = async {
        while !is_ready(options.ready).await {
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        ended = child.wait() => anyhow::bail!("the collector has ended: {}", ended?),
        ready = tokio::time::timeout(Duration::from_secs(options.patience), ready) => {
            ready.context("the collector did not become ready")?;
        }
    }
    let took = begun.elapsed();
    println!("ready       after {:.2} s", took.as_secs_f64());
    let none = Usage { cpu: Duration::ZERO, peak_kib: 0, resident_kib: 0 };
    print_usage(none, Usage::of(pid)?, took);
    child.kill().await?;
    Ok(())
}

/// Options of `kubegc-bench launch`.
#[derive(Debug, Args)]
pub(crate) struct LaunchOptions {
    /// Number of starts, one after the other
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
    /// Wait between readiness and the reading of memory, seconds
    #[arg(long, default_value_t = 2)]
    rest: u32,
    /// The server, with its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Line that `kubegc up` prints when it is ready.
const READY: &str = "is ready on";

/// Starts the server, waits until it prints that it is ready, and ends it; repeats this the configured number of times.
pub(crate) async fn launch(options: &LaunchOptions) -> anyhow::Result<()> {
    let (program, arguments) = options.command.split_first().context("a command")?;
    let mut latencies = Latencies::default();
    for number in 1..=options.starts {
        let begun = Instant::now();
        let mut child = tokio::process::Command::new(program)
            .args(arguments)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let pid = child.id().context("the server has ended at once")?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        while !lines.next_line().await?.context("the server did not become ready")?.contains(READY) {}
        let took = begun.elapsed();
        latencies.add(took);
        tokio::time::sleep(Duration::from_secs(u64::from(options.rest))).await;
        if number == options.starts {
            let none = Usage { cpu: Duration::ZERO, peak_kib: 0, resident_kib: 0 };
            print_usage(none, Usage::of(pid)?, begun.elapsed());
        }
        // Send a signal instead of killing the server, because it has temporary files to remove.
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process ID")?;
        kill_process(process, Signal::TERM)?;
        child.wait().await?;
    }
    println!("ready       {} starts: {}", latencies.count(), latencies.describe());
    Ok(())
}

async fn is_ready(address: SocketAddr) -> bool {
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: collector\r\nConnection: close\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok::<_, std::io::Error>(text.starts_with("HTTP/1.1 200"))
    };
    ask.await.unwrap_or(false)
}
