//! Floods of watches, over connections and within the process: watches that are never read must hold little memory, and end.
//! `KUBEGC_ATTACK_SECONDS=1` also measures a minute later.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::time::{Duration, Instant};

use bytes::Bytes;
use gc_apiserver::InProcess;
use gc_registry::api::UserInfo;
use http::Request;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use support::{Lines, TestServer};

/// The allocator that `kubegc` uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WATCHES: usize = 2_000;
/// Number of changes written while no watch is read, and the size of each in bytes.
const CHANGES: usize = 600;
const BYTES: usize = 64 << 10;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Time within which a watch makes progress on any machine; not an estimate of the time that it takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Returns the resident memory in MiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() >> 10
}

type Body = UnsyncBoxBody<Bytes, gc_apiserver::CutOff>;

async fn call(server: &InProcess, method: &str, path: &str, body: &Value) -> http::Response<Body> {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    server.call(request.body(Full::new(body)).unwrap()).await
}

/// Watches are opened within the process, as the page and the collectors do, for a user without any standing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_in_the_process_that_are_not_read_hold_little() {
    let server = TestServer::start().await;
    let administrator = server.server.in_process("kubegc");
    let rules = json!({"metadata": {"name": "watcher"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    assert_eq!(server.post(&format!("{rbac}/clusterroles"), &rules).await.code, 201);
    let binding = json!({"metadata": {"name": "watcher"}, "subjects": [{"kind": "User", "name": "ann"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "watcher"}});
    assert_eq!(server.post(&format!("{rbac}/clusterrolebindings"), &binding).await.code, 201);
    let user =
        UserInfo { name: "ann".into(), groups: vec!["system:authenticated".into()], ..UserInfo::default() };
    let ann = administrator.as_user(&user);
    // The authorizer follows roles by its own watch.
    let begun = Instant::now();
    while call(&ann, "GET", CONFIG_MAPS, &Value::Null).await.status() != 200 {
        assert!(begun.elapsed() < PATIENCE, "the role is not in force");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let before = resident();
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let answer = call(&ann, "GET", &format!("{CONFIG_MAPS}?watch=true"), &Value::Null).await;
        match answer.status().as_u16() {
            200 => watches.push(answer.into_body()),
            code => assert_eq!(code, 429, "refused for want of a place"),
        }
    }
    assert!(!watches.is_empty());
    let opened = resident();
    // The administrator writes and watches at the same time.
    let mut own = Lines::new(server.open("GET", &format!("{CONFIG_MAPS}?watch=true"), &[], "").await);
    let (mut peak, mut waited) = (opened, Vec::new());
    for number in 0..CHANGES {
        let object = json!({"metadata": {"name": format!("c{number}")}, "data": {"k": "x".repeat(BYTES)}});
        let begun = Instant::now();
        assert_eq!(call(&administrator, "POST", CONFIG_MAPS, &object).await.status(), 201);
        let name = loop {
            let event = tokio::time::timeout(PATIENCE, own.next()).await.expect("the watch moves").unwrap();
            let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
            if event["type"] == "ADDED" && name.starts_with('c') {
                break name;
            }
        };
        assert_eq!(name, format!("c{number}"));
        waited.push(begun.elapsed());
        peak = peak.max(resident());
    }
    let written = (CHANGES * BYTES) >> 20;
    waited.sort_unstable();
    println!(
        "{} watches: {before} MiB before, {opened} opened, {peak} at most while {written} MiB were written; an event of each waited {:?} \
         (median), {:?} (p99)",
        watches.len(),
        waited[CHANGES / 2],
        waited[CHANGES * 99 / 100],
    );
    // Objects are held by the store, a second time in the window of changes and possibly encoded; but not once per watch.
    assert!(peak <= opened + 8 * written, "{opened} MiB with the watches, {peak} at most");
    assert!(opened <= before + 256, "{before} MiB before, {opened} with the watches");
    // Each watch must end, or continue with the changes that it missed: none may be left out silently.
    for watch in watches.iter_mut().take(5) {
        let mut text = Vec::new();
        while text.len() < 3 * BYTES {
            let Ok(Some(frame)) = tokio::time::timeout(PATIENCE, watch.frame()).await else { break };
            text.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
        }
        let text = String::from_utf8_lossy(&text);
        let first = text.lines().find(|line| !line.is_empty()).unwrap_or_default();
        assert!(
            first.contains("\"name\":\"kube-root-ca.crt\"")
                || first.contains("\"name\":\"c0\"")
                || first.contains("\"ERROR\""),
            "{first}"
        );
    }
    drop(watches);
    server.config_map("after").await;
    if std::env::var_os("KUBEGC_ATTACK_SECONDS").is_some() {
        tokio::time::sleep(Duration::from_mins(1)).await;
        println!("{} MiB a minute later, {written} of them written", resident());
    }
}
