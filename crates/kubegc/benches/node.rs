//! What a pass of `kubegc node` costs on a real containerd; what planning alone costs tells `node_plans` of gc-retention.
//!
//! `cargo bench -p kubegc --bench node` (root and containerd needed). Sizes by environment:
//! `NODE_BENCH_IMAGES` (default 1000) and `NODE_BENCH_CONTAINERS` (default 2000). Passes with eight removals at a time
//! are measured against passes with one at a time in the same run, on equal contents.
#![allow(clippy::unwrap_used, missing_docs)] // a broken assumption should stop the measurement

#[path = "../../gc-cri/tests/support/messages.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests")]
mod messages;
#[path = "../tests/support/containerd.rs"]
mod runtime;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use runtime::{Containerd, Pod, TestImage, unavailable};

/// Clock ticks of `/proc/PID/stat` in a second (fixed on Linux).
const TICKS: f64 = 100.0;
/// Calls that fill the runtime, at once.
const FILLERS: u32 = 4;

fn main() {
    if unavailable().is_none() {
        passes();
    }
}

fn size(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[derive(Debug)]
#[allow(dead_code, reason = "printed by Debug")]
struct Cost {
    wall: Duration,
    cpu_seconds: f64,
    peak_rss_kib: u64,
}

/// Runs the agent and samples what the kernel counts of it.
fn measure(mut command: Command) -> Cost {
    let began = Instant::now();
    let mut agent = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut cost = Cost { wall: Duration::ZERO, cpu_seconds: 0.0, peak_rss_kib: 0 };
    while agent.try_wait().unwrap().is_none() {
        let read =
            |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", agent.id())).unwrap_or_default();
        let stat = read("stat");
        let times = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        let ticks: f64 = times.filter_map(|field| field.parse::<f64>().ok()).sum();
        cost.cpu_seconds = cost.cpu_seconds.max(ticks / TICKS);
        let peak = read("status")
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        cost.peak_rss_kib = cost.peak_rss_kib.max(peak.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    cost.wall = began.elapsed();
    cost
}

fn passes() {
    let (images, containers) = (size("NODE_BENCH_IMAGES", 1000), size("NODE_BENCH_CONTAINERS", 2000));
    let containerd = Containerd::start(2048);
    containerd.import(&[TestImage::with_busybox("localhost/app:1", 1, 1 << 10, &["/bin/busybox", "true"])]);
    let pods: Vec<(Pod, String)> = (0..4)
        .map(|number| {
            let pod = Pod::new(&format!("pod-{number}"));
            let sandbox = containerd.run_sandbox(&pod);
            (pod, sandbox)
        })
        .collect();
    let mut found = Vec::new();
    for (round, parallel) in [(0, "1"), (1, "8")] {
        fill(&containerd, &pods, images, containers, round);
        let before = (containerd.images().len(), containerd.containers().len());
        let common = ["--once", "--parallel-removals", parallel, "--collect"];
        let mut agent = containerd.agent(&common);
        agent.arg("containers");
        let of_containers = measure(agent);
        let mut agent = containerd.agent(&common);
        agent.args(["images", "--minimum-image-ttl-duration=0s"]);
        agent.args(["--image-gc-high-threshold=1", "--image-gc-low-threshold=0"]);
        let of_images = measure(agent);
        let after = (containerd.images().len(), containerd.containers().len());
        println!("{parallel} at a time: {} containers, {of_containers:?}", before.1 - after.1);
        println!("{parallel} at a time: {} images, {of_images:?}", before.0 - after.0);
        found.push((of_containers.wall.as_secs_f64(), of_images.wall.as_secs_f64()));
    }
    let (one, many) = (found[0], found[1]);
    println!(
        "eight at a time: containers {:.1} times as fast, images {:.1} times, both {:.1} times",
        one.0 / many.0,
        one.1 / many.1,
        (one.0 + one.1) / (many.0 + many.1)
    );
}

/// Containers that were created and never started are as dead to a collector as ended ones, and made in a tenth of the
/// time.
fn fill(containerd: &Containerd, pods: &[(Pod, String)], images: u32, containers: u32, round: u32) {
    let written: Vec<_> = (0..images)
        .map(|number| {
            let seed = u64::from(round * images + number + 1);
            TestImage::unique(&format!("localhost/image-{round}:{number}"), seed, 4 << 10)
        })
        .collect();
    containerd.import(&written);
    std::thread::scope(|scope| {
        for filler in 0..FILLERS {
            scope.spawn(move || {
                for number in (0..containers).filter(|number| number % FILLERS == filler) {
                    let (pod, sandbox) = &pods[number as usize % pods.len()];
                    let attempt = round * containers + number;
                    let command = ["/bin/busybox", "true"];
                    containerd.create(pod, sandbox, "main", attempt, "localhost/app:1", &command);
                }
            });
        }
    });
}
