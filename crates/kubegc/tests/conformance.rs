//! Replays the recorded behaviour of kube-apiserver v1.36.2 against a freshly started server.
//!
//! The recordings are in `conformance/recordings`. Intended differences are in `conformance/excused.toml`, each scenario with its
//! reason; an excuse that is no longer needed fails the test too.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;
#[path = "support/cluster.rs"]
mod support_cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use support::etcd::EtcdServer;
use support::{Kubegc, repository};
use support_cluster::{Admin, Run, privileged_for_all, until};

/// Returns the lines `name = "value"` of a section of a file in `conformance`.
fn section(file: &str, wanted: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(repository().join("conformance").join(file)).unwrap();
    let mut section = String::new();
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
            continue;
        }
        let (name, value) = line.split_once('=').expect("name = \"value\"");
        if section == wanted {
            let bare = |text: &str| text.trim().trim_matches('"').to_owned();
            lines.push((bare(name), bare(value)));
        }
    }
    lines
}

/// Returns the excused entries of a directory, each with its reason.
fn excuses(folder: &str) -> Vec<String> {
    let lines = section("excused.toml", folder).into_iter();
    lines
        .map(|(name, reason)| {
            assert!(reason.len() > 10, "{name} needs a reason");
            name
        })
        .collect()
}

/// Returns the scenarios that are excused in a directory.
fn excused(folder: &str) -> BTreeSet<String> {
    excuses(folder).into_iter().map(|name| format!("{name}.http")).collect()
}

/// Returns a directory of the recordings.
fn recordings(folder: &str) -> PathBuf {
    repository().join("conformance/recordings").join(folder)
}

/// Replays the scenarios of a directory; the differences must be exactly those that the section excuses.
fn replay(server: &Kubegc, folder: &str, section: &str) {
    let scenarios = recordings("scenarios");
    let output = Command::new("python3")
        .arg(scenarios.join("run.py"))
        .args(["check", "--jobs", "4", "--server", &server.url, "--token", support::TOKEN, "--ca"])
        .arg(&server.ca)
        .arg(scenarios.join(folder))
        .output()
        .expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let differs: BTreeSet<String> =
        text.lines().filter_map(|line| line.strip_prefix("differs: ")).map(str::to_owned).collect();
    assert!(text.contains(" passed, "), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(differs, excused(section), "{text}");
}

#[test]
fn the_server_answers_as_kube_apiserver_does() {
    let server = Kubegc::start("apiserver");
    replay(&server, "api", "api");
}

/// Replays generated stories; returns the output of the runner, and whether nothing differed.
fn replay_stories(server: &Kubegc, arguments: &[&str]) -> (String, bool) {
    let stories = recordings("stories");
    let output = Command::new("python3")
        .arg(stories.join("apidiff.py"))
        .args(["check", "--server", &server.url, "--token", support::TOKEN, "--ca"])
        .arg(&server.ca)
        .args(arguments)
        .arg(stories.join("cases.jsonl.xz"))
        .output()
        .expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(" stories in "), "{text}{}", String::from_utf8_lossy(&output.stderr));
    (text, output.status.success())
}

/// Returns the percentages of equal answers by theme, from the second table that the runner prints.
fn figures(text: &str) -> BTreeMap<String, Vec<f64>> {
    let rows = text.lines().skip_while(|line| !line.starts_with("theme")).skip(1);
    rows.take_while(|line| !line.is_empty())
        .map(|line| {
            let mut words = line.split_ascii_whitespace();
            let theme = words.next().unwrap().to_owned();
            let shares = words.skip(1).map(|word| word.trim_end_matches('%').parse().unwrap()).collect();
            (theme, shares)
        })
        .collect()
}

/// The generated stories are answered at least as well as when `conformance/fidelity.toml` was written; excused stories still
/// differ.
#[test]
fn all_generated_stories_are_answered_as_well_as_ever() {
    // The stories were recorded with kube-apiserver's own default range of Service addresses.
    let server =
        Kubegc::start_with("apiserver", ["--ephemeral", "--service-cluster-ip-range", "10.0.0.0/24"]);
    let excused = excuses("fidelity").join("|");
    let (text, _) = replay_stories(&server, &["--only", &format!("^(?!{excused})")]);
    let reached = figures(&text);
    let mut fallen = Vec::new();
    for (theme, floor) in section("fidelity.toml", "floor") {
        let floor: Vec<f64> = floor.split(' ').map(|share| share.parse().unwrap()).collect();
        let Some(shares) = reached.get(&theme) else {
            fallen.push(format!("{theme}: no story of it is left"));
            continue;
        };
        if shares.len() != floor.len() || shares.iter().zip(&floor).any(|(share, floor)| share < floor) {
            fallen.push(format!("{theme}: {shares:?} is below {floor:?} (core, body, wording)"));
        }
    }
    for theme in reached.keys() {
        let known = section("fidelity.toml", "floor").iter().any(|(name, _)| name == theme);
        assert!(known, "conformance/fidelity.toml has no floor for {theme}");
    }
    assert_eq!(fallen, [] as [String; 0], "{text}");
    let (text, equal) = replay_stories(&server, &["--only", &format!("^({excused})")]);
    assert!(!equal, "excused stories match after all: {text}");
}

/// Regression test: a Service got at random the address that a later step of its story sends, and the answers differed once in some
/// thirty runs.
#[test]
fn a_story_is_played_again_if_a_service_gets_an_address_of_it_by_chance() {
    let script = repository().join("crates/kubegc/tests/conformance/coincidence.py");
    for (allocated, expected) in [
        ("10.0.0.40", "1 <ip>"),
        ("10.0.0.99 10.0.0.40", "2 <ip>"),
        // The runner compares an address that is part of another one.
        ("10.0.0.9 10.0.0.99 10.0.0.40", "3 <ip>"),
        ("10.0.0.99", "4 10.0.0.99"),
    ] {
        // Without -B, Python writes into the recordings.
        let mut python = Command::new("python3");
        python.arg("-B").arg(&script).arg(recordings("stories")).args(allocated.split(' '));
        let output = python.output().expect("python3 runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.trim(), expected, "{allocated}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Aggregated discovery lists the same groups, versions, resources and verbs, in the same order.
#[test]
fn discovery_is_what_was_recorded() {
    let server = Kubegc::start("apiserver");
    for (path, file) in [("api", "discovery-api.json"), ("apis", "discovery-apis.json")] {
        let output = Command::new("curl")
            .args(["--silent", "--fail", "--cacert"])
            .arg(&server.ca)
            .args(["--header", &format!("Authorization: Bearer {}", support::TOKEN)])
            .args([
                "--header",
                "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            ])
            .arg(format!("{}/{path}", server.url))
            .output()
            .expect("curl runs");
        assert!(output.status.success(), "/{path}: {}", String::from_utf8_lossy(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let recorded = std::fs::read_to_string(recordings("facts").join(file)).unwrap();
        let recorded: Value = serde_json::from_str(&recorded).unwrap();
        assert_eq!(answer, recorded, "/{path}");
    }
}

#[test]
fn the_collectors_end_as_those_of_kube_controller_manager_do() {
    let server = Kubegc::start_collectors();
    replay(&server, "gc", "gc");
}

/// Replays the scenarios with `kubegc run` attached over TLS to a server in its own process, with exactly the permissions that it
/// asks for.
fn replay_attached(arguments: &[&str]) {
    let server = Kubegc::start_with("apiserver", arguments);
    let run = Run::with(&privileged_for_all(&server), &["--controllers=*"]);
    until("it leads", || run.leads() && run.is_ready());
    replay(&server, "gc", "gc-run");
    // The scenarios delete namespaces, which accept no new Events while they terminate; a collector that may not write Events at
    // all says so in its log.
    let mut refusals = Admin::of(&server).refusals(403);
    refusals.retain(|line| !line.contains("verb=\"CREATE\",group=\"\",version=\"v1\",resource=\"events\""));
    assert_eq!(refusals, [] as [String; 0]);
    assert!(!run.log().contains("no Events about deletions"), "{}", run.log());
}

#[test]
fn attached_collectors_end_alike_over_redb() {
    let folder = tempfile::tempdir().unwrap();
    replay_attached(&["--data-dir", folder.path().to_str().unwrap()]);
}

#[test]
fn attached_collectors_end_alike_over_etcd() {
    let Some(etcd) = EtcdServer::start() else { return };
    replay_attached(&["--ephemeral", "--storage", "etcd", "--etcd-endpoints", &etcd.endpoint()]);
}
