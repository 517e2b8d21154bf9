//! Attacks on a process beside an administrator who lists namespaces. With `KUBEGC_ATTACK_SECONDS` an attack lasts that long, and
//! the measurements are printed, and again a minute later; otherwise it lasts for a few requests of the administrator.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)] // a broken assumption should stop the test; not every test uses all

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use kube::client::Body;
use serde_json::Value;
use tokio::task::JoinSet;

/// Minimum number of the administrator's requests during an attack, and of hostile ones.
const REQUESTS: usize = 10;
/// Pause between two requests of the administrator.
const PAUSE: Duration = Duration::from_millis(20);
/// Time within which a request is answered on any machine; not a measure of how long it takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Sends a request and returns the code of its response; 0 without one.
pub async fn code(
    client: &kube::Client,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> u16 {
    let mut request =
        http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    match client.send(request.body(Body::from(body)).unwrap()).await {
        Ok(answer) => {
            let code = answer.status().as_u16();
            let _ = answer.into_body().collect_bytes().await;
            code
        }
        Err(_) => 0,
    }
}

/// Returns the memory of a process in MiB by this line of its status; `None` if it has ended.
pub fn memory(process: u32, line: &str) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|text| text.strip_prefix(line))?;
    line.split_whitespace().next()?.parse::<usize>().ok().map(|kibibytes| kibibytes >> 10)
}

fn resident(process: u32) -> usize {
    memory(process, "VmRSS:").expect("the process lives")
}

/// Returns the duration of a measurement, if this is one.
fn measured() -> Option<Duration> {
    std::env::var("KUBEGC_ATTACK_SECONDS").ok().map(|text| Duration::from_secs(text.parse().unwrap()))
}

/// Bounds of an attack.
pub struct Bounds {
    /// Maximum growth of memory in MiB.
    pub more: usize,
    /// True if the administrator must get 200 all the time, not only when the attack is over.
    pub answers: bool,
}

/// Lets an attack count its attempts in its own tasks, while the administrator sends requests. Fails unless the process survives
/// and the administrator gets answers, also afterwards.
pub async fn withstand(
    name: &str,
    (administrator, process): (&kube::Client, u32),
    bounds: Bounds,
    attack: impl FnOnce(&Arc<AtomicUsize>, &mut JoinSet<()>),
) {
    let ask = async || {
        let begun = Instant::now();
        let asked = code(administrator, Method::GET, "/api/v1/namespaces", &[], &Value::Null);
        let code = tokio::time::timeout(PATIENCE, asked).await.expect("the administrator is answered");
        (code, begun.elapsed())
    };
    for _ in 0..5 {
        assert_eq!(ask().await.0, 200, "{name}");
    }
    let before = resident(process);
    let (tried, mut tasks) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    attack(&tried, &mut tasks);
    let (begun, mut waited, mut failed, mut peak) = (Instant::now(), Vec::new(), 0, before);
    let goes_on = |asked: usize, tried: usize, begun: Instant| {
        measured().map_or(asked < REQUESTS || tried < REQUESTS, |time| begun.elapsed() < time)
    };
    while goes_on(waited.len(), tried.load(Ordering::Relaxed), begun) {
        let (code, took) = ask().await;
        assert!(code == 200 || !bounds.answers, "{name}: {code}");
        failed += usize::from(code != 200);
        waited.push(took);
        peak = peak.max(resident(process));
        tokio::time::sleep(PAUSE).await;
    }
    tasks.shutdown().await;
    waited.sort_unstable();
    let part = |of_thousand: usize| waited[(waited.len() * of_thousand / 1_000).min(waited.len() - 1)];
    println!(
        "{name}: {} tried in {:?}; {} requests beside them waited {:?} (median), {:?} (p99), {failed} failed; {before} MiB before, \
         {peak} at most",
        tried.load(Ordering::Relaxed),
        begun.elapsed(),
        waited.len(),
        part(500),
        part(990),
    );
    if measured().is_some() {
        tokio::time::sleep(Duration::from_mins(1)).await;
        println!("{name}: {} MiB a minute later", resident(process));
    }
    let deadline = Instant::now() + PATIENCE;
    while ask().await.0 != 200 {
        assert!(Instant::now() < deadline, "{name}: the administrator is answered when it is over");
        tokio::time::sleep(PAUSE).await;
    }
    assert!(peak <= before + bounds.more, "{name}: {before} MiB before, {peak} MiB at most");
}
