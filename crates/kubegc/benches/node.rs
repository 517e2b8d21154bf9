//! Cost of a `kubegc node` pass on a real containerd, beside a plain loop that removes the same items one after the
//! other over one connection and checks nothing. Their files lie where temporary files do: on a disk, unless TMPDIR
//! says otherwise. (What planning alone costs, `node_plans` of gc-collectors says.)
//!
//! `cargo bench -p kubegc --bench node [-- installed 1.7 2]` (root needed): the releases of containerd to measure, by default all
//! that there are (`scripts/containerd` unpacks the newer ones). Sizes by environment: `NODE_BENCH_CONTAINERS` (default
//! "300 2000"), `NODE_BENCH_IMAGES` (default "300 1000"), `NODE_BENCH_ROUNDS` (default 3); `NODE_BENCH_KUBEGC` is the binary that
//! is measured, if not the one that is built with this. Each round measures both, on equal contents, in alternating order. Sizes that
//! have a bar get a verdict; if one is missed, the exit code is 1.
#![allow(clippy::unwrap_used, missing_docs)] // a broken assumption should stop the measurement

#[path = "../../gc-cri/tests/support/messages.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests")]
mod messages;
#[path = "../tests/support/containerd.rs"]
mod runtime;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kubegc_bench::measure::Usage;
use runtime::{Containerd, Pod, Release, TestImage, unavailable_release};

/// Interval of the measurements of a running agent.
const SAMPLE_PERIOD: Duration = Duration::from_millis(5);
/// Calls that fill the runtime, at once.
const FILLERS: u32 = 4;
const PODS: u32 = 4;
const IMAGE: &str = "localhost/app:1";

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let kubegc = std::env::var_os("NODE_BENCH_KUBEGC").unwrap_or_else(|| env!("CARGO_BIN_EXE_kubegc").into());
    let kubegc = PathBuf::from(kubegc);
    let mut missed = 0;
    for (name, release) in [("installed", Release::Installed), ("1.7", Release::V1_7), ("2", Release::V2)] {
        let wanted = asked.is_empty() || asked.iter().any(|one| one == name);
        if wanted && unavailable_release(release).is_none() {
            println!("containerd {name}");
            for containers in sizes("NODE_BENCH_CONTAINERS", &[300, 2000]) {
                missed += u32::from(!measure(&Containers { number: containers }, release, &kubegc));
            }
            for images in sizes("NODE_BENCH_IMAGES", &[300, 1000]) {
                missed += u32::from(!measure(&Images { number: images }, release, &kubegc));
            }
        }
    }
    if missed > 0 {
        println!("{missed} of the bars are missed");
        std::process::exit(1);
    }
}

fn sizes(name: &str, default: &[u32]) -> Vec<u32> {
    let text = std::env::var(name).ok();
    text.map_or(default.to_vec(), |text| text.split_whitespace().map(|one| one.parse().unwrap()).collect())
}

/// Items to remove.
trait Work {
    fn name(&self) -> String;
    /// Returns the required ratio to the loop's speed, if there is a bar.
    fn bar(&self) -> Option<f64>;
    /// Fills the runtime; what the agent would remove, in any order.
    fn fill(&self, containerd: &Containerd, round: u32) -> Vec<String>;
    fn remove(&self, containerd: &Containerd, id: &str);
    fn arguments(&self) -> &'static [&'static str];
    /// Returns the number of remaining items.
    fn left(&self, containerd: &Containerd) -> usize;
    /// Removes what the agent keeps.
    fn clear(&self, containerd: &Containerd);
}

/// Containers that were created and never started are as dead to a collector as ended ones, and made in a tenth of the time.
struct Containers {
    number: u32,
}

impl Work for Containers {
    fn name(&self) -> String {
        format!("{} containers", self.number)
    }

    fn bar(&self) -> Option<f64> {
        (self.number == 300).then_some(1.0)
    }

    fn fill(&self, containerd: &Containerd, round: u32) -> Vec<String> {
        containerd.import(&[TestImage::with_busybox(IMAGE, 1, 1 << 10, &["/bin/busybox", "true"])]);
        let pods: Vec<(Pod, String)> = (0..PODS)
            .map(|number| {
                let pod = Pod { attempt: round, ..Pod::new(&format!("pod-{number}")) };
                let sandbox = containerd.run_sandbox(&pod);
                (pod, sandbox)
            })
            .collect();
        std::thread::scope(|scope| {
            for filler in 0..FILLERS {
                let pods = &pods;
                scope.spawn(move || {
                    for number in (0..self.number).filter(|number| number % FILLERS == filler) {
                        let (pod, sandbox) = &pods[(number % PODS) as usize];
                        containerd.create(pod, sandbox, "main", number, IMAGE, &["/bin/busybox", "true"]);
                    }
                });
            }
        });
        // The newest of each name stays.
        let mut listed = containerd.containers();
        listed.sort_by_key(|one| one.metadata.as_ref().map(|metadata| metadata.attempt));
        let removed = listed.len() - PODS as usize;
        listed.into_iter().take(removed).map(|one| one.id).collect()
    }

    fn remove(&self, containerd: &Containerd, id: &str) {
        containerd.remove_container(id);
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["--once", "--collect", "containers"]
    }

    fn left(&self, containerd: &Containerd) -> usize {
        containerd.containers().len() - PODS as usize
    }

    fn clear(&self, containerd: &Containerd) {
        containerd.remove_pods();
    }
}

/// Images that nothing uses.
struct Images {
    number: u32,
}

impl Work for Images {
    fn name(&self) -> String {
        format!("{} images", self.number)
    }

    fn bar(&self) -> Option<f64> {
        match self.number {
            300 => Some(3.0),
            1000 => Some(6.0),
            _ => None,
        }
    }

    fn fill(&self, containerd: &Containerd, round: u32) -> Vec<String> {
        let written: Vec<_> = (0..self.number)
            .map(|number| {
                let seed = u64::from(round * self.number + number + 1);
                TestImage::unique(&format!("localhost/image-{round}:{number}"), seed, 4 << 10)
            })
            .collect();
        containerd.import(&written);
        let ours = |name: &String| name.starts_with("localhost/image-");
        containerd.images().into_iter().filter(|(name, _)| ours(name)).map(|(_, id)| id).collect()
    }

    fn remove(&self, containerd: &Containerd, id: &str) {
        containerd.remove_image(id);
    }

    fn arguments(&self) -> &'static [&'static str] {
        &[
            "--once",
            "--collect",
            "images",
            "--minimum-image-ttl-duration=0s",
            "--image-gc-high-threshold=1",
            "--image-gc-low-threshold=0",
            "--protect-image",
            IMAGE,
        ]
    }

    fn left(&self, containerd: &Containerd) -> usize {
        containerd.images().keys().filter(|name| name.starts_with("localhost/image-")).count()
    }

    fn clear(&self, _containerd: &Containerd) {}
}

/// Measures and prints both. Returns whether the bar is met, if there is one.
fn measure(work: &impl Work, release: Release, kubegc: &Path) -> bool {
    let containerd = Containerd::start_on_disk(release);
    let rounds = sizes("NODE_BENCH_ROUNDS", &[3])[0];
    let mut took = [0.0, 0.0];
    let mut used = None;
    for round in 0..rounds {
        for turn in 0..2 {
            let ids = work.fill(&containerd, 2 * round + turn);
            // The two take turns in starting.
            let by_agent = (round + turn) % 2 == 1;
            if by_agent {
                let (seconds, usage) = run(&mut containerd.agent_of(kubegc, work.arguments()));
                (took[1], used) = (took[1] + seconds, Some(usage));
            } else {
                let began = Instant::now();
                for id in &ids {
                    work.remove(&containerd, id);
                }
                took[0] += began.elapsed().as_secs_f64();
            }
            assert_eq!(work.left(&containerd), 0, "by the agent: {by_agent}");
            work.clear(&containerd);
        }
    }
    let [by_loop, by_agent] = took.map(|seconds| seconds / f64::from(rounds));
    let usage: Usage = used.unwrap();
    let gain = by_loop / by_agent;
    let is_met = work.bar().is_none_or(|bar| gain >= bar);
    let verdict = work.bar().map_or_else(String::new, |bar| {
        format!("; at least {bar} times: {}", if is_met { "met" } else { "MISSED" })
    });
    println!(
        "{:<18} loop {by_loop:6.2} s, kubegc {by_agent:6.2} s: {gain:4.1} times as fast; {:.2} s of CPU, peak {:.1} MB{verdict}",
        work.name(),
        usage.cpu.as_secs_f64(),
        megabytes(usage.peak_kib)
    );
    is_met
}

/// Runs the agent, samples what the kernel counts of it, and says how long it took.
fn run(command: &mut Command) -> (f64, Usage) {
    let began = Instant::now();
    let mut agent = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut last = None;
    while agent.try_wait().unwrap().is_none() {
        // A process that has just ended has no memory to read any more.
        last = Usage::of(agent.id()).ok().or(last);
        std::thread::sleep(SAMPLE_PERIOD);
    }
    (began.elapsed().as_secs_f64(), last.unwrap())
}

#[allow(clippy::cast_precision_loss, reason = "memory of a process, for people")]
fn megabytes(kib: u64) -> f64 {
    (kib * 1024) as f64 / 1e6
}
