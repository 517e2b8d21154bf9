//! Cost of the collectors when a whole cluster's backlog is deleted, without a server: wall time, requests, decisions, memory.
//!
//! `cargo run --release -p gc-collectors --example scale -- [part of the real size, 1 by default]`. Every deletion is answered
//! immediately and then shown by the watch, as a server does it, so only the engines' work is measured.
#![allow(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a report"
)]

use std::time::Instant;

use gc_collectors::engine::{Collector, Engine, Observation};
use gc_collectors::jobs::JobCollector;
use gc_collectors::objects::{Facts, Kind};
use gc_collectors::pods::PodCollector;
use gc_collectors::policies::engine::PolicyEngine;
use gc_types::{Change, Outcome, Request, ResourceId, Timestamp};
use serde_json::{Value, json};

const NOW: i64 = 1_800_000_000;
const HOUR: i64 = 3600;

fn at(seconds: i64) -> Timestamp {
    Timestamp((NOW + seconds) * 1000)
}

fn text(seconds: i64) -> String {
    jiff::Timestamp::from_second(NOW + seconds).unwrap().to_string()
}

/// Reads a value from `/proc/self/status`, in MiB; 0 if there is none.
fn memory(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// Returns the processor seconds used so far.
fn processor() -> f64 {
    /// Clock ticks per second (fixed on Linux).
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS
}

struct Clock(Instant, f64);

impl Clock {
    fn start() -> Self {
        Self(Instant::now(), processor())
    }

    fn show(&self, what: &str, number: usize) {
        let (wall, cpu) = (self.0.elapsed().as_secs_f64(), processor() - self.1);
        println!(
            "  {what:<44} {wall:>8.3} s wall {cpu:>8.2} s cpu {:>9.0}/s  rss {:>6.0} MiB",
            number as f64 / wall.max(1e-9),
            memory("VmRSS:")
        );
    }
}

fn list<J: Collector>(engine: &mut Engine<J>, kind: Kind, objects: impl Iterator<Item = Value>) {
    engine.observe(Observation::ListStarted(kind));
    for object in objects {
        engine.observe(Observation::Observed(Facts::read(kind, object.to_string().as_bytes()).unwrap()));
    }
    engine.observe(Observation::Synced(kind));
}

/// Performs all current requests, and returns their number.
fn drain<J: Collector>(engine: &mut Engine<J>) -> usize {
    let mut requests = 0;
    while let Some(effect) = engine.poll_effect() {
        requests += 1;
        if let Request::Delete { key, .. } | Request::Guarded { key, change: Change::ForceDelete, .. } =
            &effect.request
        {
            engine.observe(Observation::Removed(key.clone()));
        }
        engine.finish(effect.id, &Outcome::Applied(None));
    }
    requests
}

fn pod(number: usize, held: bool) -> Value {
    let mut pod = json!({
        "metadata": {"namespace": format!("team-{}", number % 200), "name": format!("worker-{number:07}"),
            "uid": format!("0e2f1a34-5b6c-4d7e-8f90-{number:012x}"), "resourceVersion": (number + 1).to_string(),
            "creationTimestamp": text(-(number as i64))},
        "spec": {"nodeName": format!("node-{}", number % 1000)},
        "status": {"phase": "Succeeded"},
    });
    if held {
        pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
        pod["metadata"]["deletionTimestamp"] = text(-HOUR).into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    }
    pod
}

/// Deletes 360,000 finished pods, 340,000 of them over the threshold, of which finalizers block 10,000.
fn pods(part: f64) {
    let size = |number: f64| (number * part) as usize;
    let (all, kept, held) = (size(360_000.0), size(20_000.0), size(10_000.0));
    println!("pods: {all} finished, threshold {kept}, {held} held by finalizers");
    let mut engine = Engine::new(PodCollector::new(i32::try_from(kept).unwrap()));
    engine.tick(at(0));
    let clock = Clock::start();
    list(&mut engine, Kind::Node, (0..1000).map(|n| json!({"metadata": {"name": format!("node-{n}")}})));
    // Finalizers block the oldest, which still count against the threshold.
    list(&mut engine, Kind::Pod, (0..all).map(|n| pod(n, n >= all - held)));
    clock.show("read and observed", all);
    let clock = Clock::start();
    let requests = drain(&mut engine);
    clock.show(&format!("{requests} deletions"), requests);
    assert_eq!(requests, all - kept - held);
    let decisions = engine.counts().decisions;
    let clock = Clock::start();
    for pass in 1..=1000 {
        engine.tick(at(20 * pass));
        assert_eq!(drain(&mut engine), 0);
    }
    clock.show("1000 further ticks, 20 s apart", 1000);
    println!(
        "  decisions: {decisions}, {} of them by the further ticks",
        engine.counts().decisions - decisions
    );
}

/// Deletes 50,000 finished Jobs whose time to live ends within an hour.
fn jobs(part: f64) {
    let all = (50_000.0 * part) as usize;
    println!("jobs: {all} finished, expiring over an hour");
    let mut engine = Engine::new(JobCollector::default());
    engine.tick(at(0));
    let clock = Clock::start();
    list(
        &mut engine,
        Kind::Job,
        (0..all).map(|number| {
            let ended = number as i64 * HOUR / all as i64;
            json!({
                "metadata": {"namespace": format!("team-{}", number % 200), "name": format!("job-{number:06}"),
                    "uid": format!("0e2f1a34-5b6c-4d7e-8f90-{number:012x}"), "resourceVersion": "5"},
                "spec": {"ttlSecondsAfterFinished": HOUR},
                "status": {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": text(ended - HOUR)}]},
            })
        }),
    );
    clock.show("read and observed", all);
    let decisions = engine.counts().decisions;
    let clock = Clock::start();
    let (mut requests, mut now) = (drain(&mut engine), at(0));
    let mut ticks = 0;
    // Wakes only when something is due.
    while let Some(next) = engine.next_wakeup() {
        now = now.max(next);
        engine.tick(now);
        requests += drain(&mut engine);
        ticks += 1;
    }
    clock.show(&format!("{requests} deletions in {ticks} wake-ups"), requests);
    assert_eq!(requests, all);
    println!(
        "  decisions: {} in all, {decisions} while listing; ended {} s after the first",
        engine.counts().decisions,
        now.since(at(0)) / 1000
    );
}

/// Applies a policy to the same pods: the newest hundred in each of 200 namespaces stay.
fn policy(part: f64) {
    let all = (360_000.0 * part) as usize;
    println!("policy: {all} finished pods, the newest 100 of each namespace stay");
    let object = json!({"metadata": {"generation": 1}, "spec": {
        "enforce": true, "target": {"apiVersion": "v1", "kind": "Pod"}, "maxDeletionsPerRun": 10_000,
        "condition": "object.status.phase in ['Succeeded', 'Failed']",
        "keepNewest": {"count": 100, "per": "Namespace"},
    }});
    let mut engine = PolicyEngine::new(&object, ResourceId(1));
    engine.tick(at(0));
    engine.list_started();
    let clock = Clock::start();
    let policy = engine.policy().unwrap().clone();
    for number in 0..all {
        let pod = pod(number, false);
        let metadata = &pod["metadata"];
        engine.observed(
            metadata["namespace"].as_str().unwrap(),
            metadata["name"].as_str().unwrap(),
            policy.look(&pod, at(0)),
        );
    }
    engine.synced();
    engine.shown();
    clock.show("assessed", all);
    let clock = Clock::start();
    let (mut requests, mut runs) = (0, 0);
    loop {
        engine.tick(at(10 * runs));
        let before = requests;
        while let Some(effect) = engine.poll_effect() {
            let Request::Delete { key, .. } = &effect.request else { break };
            let key = key.clone();
            engine.finish(effect.id, &Outcome::Applied(None));
            engine.removed(&key.namespace, &key.name);
            requests += 1;
        }
        if requests == before {
            break;
        }
        runs += 1;
        // The end of a run is noticed before the next one begins.
        engine.tick(at(10 * runs - 1));
    }
    clock.show(&format!("{requests} deletions in {runs} runs"), requests);
    assert_eq!(requests, all - (200 * 100).min(all));
}

fn main() {
    let part: f64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    pods(part);
    jobs(part);
    policy(part);
    println!("peak rss {:.0} MiB", memory("VmHWM:"));
}
