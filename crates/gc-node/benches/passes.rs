//! Passes of the agent, compared with a plain loop that removes the same items one after the other and checks nothing, on a
//! scripted runtime: dead containers, and log directories of pods that are gone. (`cargo bench -p kubegc --bench node` measures a
//! real containerd.)
//!
//! `cargo bench -p gc-node --bench passes`. Each round measures both, in alternating order; the median of their ratios must be at least 1.0,
//! otherwise the exit code is 1. `PASSES_ROUNDS` (default 7) sets the number of rounds.
#![allow(clippy::unwrap_used, missing_docs)] // a broken assumption should stop the measurement

#[path = "../../gc-cri/tests/support/fake.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with tests")]
mod fake;
#[path = "../../gc-cri/tests/support/grpc.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with tests")]
mod grpc;
#[path = "../../gc-cri/tests/support/messages.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with tests")]
mod messages;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use fake::{Fake, container, sandbox};
use gc_collectors::containers::plan::ContainerPolicy;
use gc_collectors::images::patterns::ImagePatterns;
use gc_collectors::images::plan::AgePolicy;
use gc_collectors::images::rules::ReferenceRules;
use gc_collectors::images::space::Thresholds;
use gc_cri::{CriClient, Endpoint};
use gc_kube::ApiClient;
use gc_node::{
    Agent, CheckpointPolicy, Collect, Locks, Metrics, NodeConfig, PodSource, Pods, Stop, TestClock,
};
use gc_types::GoDuration;
use http_body_util::Full;

const EXITED: i32 = 2;
/// Number of files in each log directory.
const FILES: usize = 3;

fn main() {
    let rounds = std::env::var("PASSES_ROUNDS").ok().map_or(7, |text| text.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut missed = 0;
    for (delay, what) in [(0, "that answers at once"), (1, "that removes one in a millisecond")] {
        let delay = Duration::from_millis(delay);
        for number in [100, 300, 1_000] {
            let title = format!("{number} containers, of a runtime {what}");
            missed += u32::from(!compare(&title, rounds, |by_agent| {
                runtime.block_on(containers(number, delay, by_agent))
            }));
        }
    }
    let title = "3000 log folders";
    missed += u32::from(!compare(title, rounds, |by_agent| runtime.block_on(log_folders(3_000, by_agent))));
    if missed > 0 {
        println!("{missed} of the bars are missed");
        std::process::exit(1);
    }
}

/// Measures both in turn, and prints the results. Returns true if the agent was not slower.
fn compare(title: &str, rounds: usize, measure: impl Fn(bool) -> Duration) -> bool {
    let mut taken: Vec<[f64; 2]> = (0..rounds)
        .map(|round| {
            let first = measure(round % 2 == 1).as_secs_f64();
            let second = measure(round % 2 == 0).as_secs_f64();
            if round % 2 == 1 { [second, first] } else { [first, second] }
        })
        .collect();
    taken.sort_by(|a, b| (a[0] / a[1]).total_cmp(&(b[0] / b[1])));
    let ratio = |pair: [f64; 2]| pair[0] / pair[1];
    let [by_loop, by_agent] = taken[rounds / 2];
    let median = ratio(taken[rounds / 2]);
    println!(
        "{title:<60} loop {:7.1} ms, agent {:7.1} ms: {median:4.2} times as fast ({:4.2} to {:4.2}){}",
        by_loop * 1e3,
        by_agent * 1e3,
        ratio(taken[0]),
        ratio(taken[rounds - 1]),
        if median < 1.0 { "; MISSED" } else { "" }
    );
    median >= 1.0
}

async fn connect(fake: &Fake) -> CriClient {
    let endpoint = Endpoint::parse(&fake.endpoint()).unwrap();
    CriClient::connect(endpoint, gc_cri::Options::default()).await.unwrap().0
}

/// Returns the defaults of `kubegc node`, with directories of this runtime.
fn config(fake: &Fake) -> NodeConfig {
    NodeConfig {
        thresholds: Thresholds { high_percent: 85, low_percent: 80 },
        ages: AgePolicy { minimum_age: GoDuration::from_seconds(120), maximum_age: None },
        containers: ContainerPolicy::default(),
        eviction: Vec::new(),
        pod_logs_dir: fake.folder().join("logs"),
        container_log_links_dir: fake.folder().join("links"),
        forget_ages: false,
        image_loop: false,
        protection: ImagePatterns::new(["pause"]).unwrap(),
        rules: ReferenceRules::default(),
        parallel_removals: 32,
        below_cri: false,
        below_cri_minimum_age: GoDuration::from_seconds(24 * 3600),
        checkpoints: CheckpointPolicy::default(),
    }
}

/// Makes one pass over containers and logs.
async fn pass(fake: &Fake, pods: PodSource, clock: TestClock) -> Duration {
    let agent = Agent::new(connect(fake).await, config(fake), Pods::new(pods), None, Metrics::default());
    let endpoint = Endpoint::parse(&fake.endpoint()).unwrap();
    let locks = Locks::take(&endpoint, &fake.folder().join("state")).unwrap();
    let agent = agent.with_clock(clock).alone(locks).unwrap();
    let (_sender, stop) = Stop::new();
    let began = Instant::now();
    let done = agent.once(&[Collect::Containers], &stop).await;
    let took = began.elapsed();
    assert_eq!(done.failure, None);
    took
}

/// Removes all but the newest of the dead containers of a pod.
async fn containers(number: u32, delay: Duration, by_agent: bool) -> Duration {
    let fake = Fake::start();
    {
        let mut state = fake.state();
        state.sandboxes = vec![sandbox("pod", 0)];
        state.containers = (0..=number).map(|attempt| container("pod", "main", attempt, EXITED, 1)).collect();
        state.rule(move |_, method, _| {
            // Removals run one after the other, as in containerd, which answers nothing else meanwhile.
            if method == "RemoveContainer" {
                std::thread::sleep(delay);
            }
            None
        });
    }
    let took = if by_agent {
        pass(&fake, PodSource::None, TestClock::default()).await
    } else {
        let client = connect(&fake).await;
        let began = Instant::now();
        let listed = client.containers(&client.sandboxes().await.unwrap()).await.unwrap();
        let mut all: Vec<_> = listed.into_iter().map(|one| one.container).collect();
        all.sort_by_key(|one| one.created_at);
        for one in all.iter().take(all.len() - 1) {
            client.remove_container(&one.id).await.unwrap();
        }
        began.elapsed()
    };
    assert_eq!(fake.state().containers.len(), 1, "by the agent: {by_agent}");
    took
}

/// Removes the log directories of pods that are gone.
async fn log_folders(number: usize, by_agent: bool) -> Duration {
    let fake = Fake::start();
    let logs = fake.folder().join("logs");
    let old = SystemTime::now() - Duration::from_hours(2);
    let folders: Vec<PathBuf> = (0..number)
        .map(|number| {
            // What does not look like the UID of a pod belongs to none, and stays.
            let uid = format!("00000000-0000-4000-8000-{number:012}");
            let folder = logs.join(format!("default_pod-{number}_{uid}"));
            std::fs::create_dir_all(folder.join("main")).unwrap();
            for file in 0..FILES {
                std::fs::write(folder.join(format!("main/{file}.log")), "a line\n").unwrap();
            }
            std::fs::File::open(&folder).unwrap().set_modified(old).unwrap();
            folder
        })
        .collect();
    let took = if by_agent {
        let clock = TestClock::default();
        // The first pass learns that the pods are unknown; the second is certain.
        pass(&fake, no_pods(), clock.clone()).await;
        assert_eq!(count(&logs), number);
        clock.advance(Duration::from_mins(10));
        pass(&fake, no_pods(), clock).await
    } else {
        let began = Instant::now();
        for folder in &folders {
            std::fs::remove_dir_all(folder).unwrap();
        }
        began.elapsed()
    };
    assert_eq!(count(&logs), 0, "by the agent: {by_agent}");
    took
}

fn count(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Returns a cluster that has this node, and no pods.
fn no_pods() -> PodSource {
    let client = ApiClient::in_process(|request: http::Request<Full<Bytes>>| async move {
        let list =
            |kind: &str| serde_json::json!({"kind": kind, "metadata": {"resourceVersion": "1"}, "items": []});
        let body = match request.uri().path() {
            path if path.ends_with("/pods") => list("PodList"),
            path if path.ends_with("/namespaces") => list("NamespaceList"),
            _ => serde_json::json!({"kind": "Node", "metadata": {"name": "node-1"}}),
        };
        http::Response::new(Full::new(Bytes::from(body.to_string())))
    });
    PodSource::Api { client, node: "node-1".to_owned(), protected_namespaces: Vec::new() }
}
