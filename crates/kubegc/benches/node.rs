//! What a pass of `kubegc node` costs on a real containerd, whose files lie where temporary files do: on a disk, unless TMPDIR
//! says otherwise; what planning alone costs tells `node_plans` of gc-retention.
//!
//! `cargo bench -p kubegc --bench node` (root and containerd needed). Sizes by environment:
//! `NODE_BENCH_IMAGES` (default 1000) and `NODE_BENCH_CONTAINERS` (default 2000); `NODE_BENCH_KUBEGC` is the binary that is
//! measured, if not the one that is built with this. Passes with 32 removals at a time, the default,
//! are measured against passes with one at a time in the same run, on equal contents.
#![allow(clippy::unwrap_used, missing_docs)] // a broken assumption should stop the measurement

#[path = "../../gc-cri/tests/support/messages.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests")]
mod messages;
#[path = "../tests/support/containerd.rs"]
mod runtime;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kubegc_bench::measure::Usage;
use runtime::{Containerd, Pod, TestImage, unavailable};

/// How often a running agent is looked at.
const SAMPLE_PERIOD: Duration = Duration::from_millis(5);
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

/// Runs the agent, samples what the kernel counts of it, and says how long it took.
fn run(mut command: Command, what: &str) -> f64 {
    let began = Instant::now();
    let mut agent = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut last = None;
    while agent.try_wait().unwrap().is_none() {
        // A process that has just ended has no memory to read any more.
        last = Usage::of(agent.id()).ok().or(last);
        std::thread::sleep(SAMPLE_PERIOD);
    }
    let (seconds, usage) = (began.elapsed().as_secs_f64(), last.unwrap());
    println!(
        "{what}: {seconds:.2} s, {:.2} s of CPU, peak {:.1} MB",
        usage.cpu.as_secs_f64(),
        megabytes(usage.peak_kib)
    );
    seconds
}

#[allow(clippy::cast_precision_loss, reason = "memory of a process, for people")]
fn megabytes(kib: u64) -> f64 {
    (kib * 1024) as f64 / 1e6
}

fn passes() {
    let (images, containers) = (size("NODE_BENCH_IMAGES", 1000), size("NODE_BENCH_CONTAINERS", 2000));
    let kubegc = std::env::var_os("NODE_BENCH_KUBEGC").unwrap_or_else(|| env!("CARGO_BIN_EXE_kubegc").into());
    let kubegc = PathBuf::from(kubegc);
    let containerd = Containerd::start_on_disk();
    containerd.import(&[TestImage::with_busybox("localhost/app:1", 1, 1 << 10, &["/bin/busybox", "true"])]);
    let pods: Vec<(Pod, String)> = (0..4)
        .map(|number| {
            let pod = Pod::new(&format!("pod-{number}"));
            let sandbox = containerd.run_sandbox(&pod);
            (pod, sandbox)
        })
        .collect();
    let mut found = Vec::new();
    for (round, parallel) in [(0, "1"), (1, "32")] {
        fill(&containerd, &pods, images, containers, round);
        let before = (containerd.images().len(), containerd.containers().len());
        let common = ["--once", "--parallel-removals", parallel, "--collect"];
        let mut agent = containerd.agent_of(&kubegc, &common);
        agent.arg("containers");
        let of_containers = run(agent, &format!("{parallel} at a time, containers"));
        let mut agent = containerd.agent_of(&kubegc, &common);
        agent.args(["images", "--minimum-image-ttl-duration=0s"]);
        agent.args(["--image-gc-high-threshold=1", "--image-gc-low-threshold=0"]);
        let of_images = run(agent, &format!("{parallel} at a time, images"));
        let after = (containerd.images().len(), containerd.containers().len());
        println!(
            "{parallel} at a time: {} containers and {} images went",
            before.1 - after.1,
            before.0 - after.0
        );
        found.push((of_containers, of_images));
    }
    let (one, many) = (found[0], found[1]);
    println!(
        "32 at a time: containers {:.1} times as fast, images {:.1} times, both {:.1} times",
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
