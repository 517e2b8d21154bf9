//! Replays the recorded behaviour of kube-apiserver v1.36.2 against a freshly started server.
//!
//! The recordings stand beside the repository (`../shared/conformance`), and a clone without them passes with
//! a loud line. Scenarios that differ on purpose are in `conformance/excused.toml`, each with its reason; an
//! excuse that is no longer needed fails the test too.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;
#[path = "support/cluster.rs"]
mod support_cluster;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use support::etcd::EtcdServer;
use support::{Kubegc, repository};
use support_cluster::{Admin, Run, privileged_for_all, until};

/// Scenarios named in the excuses of a folder.
fn excused(folder: &str) -> BTreeSet<String> {
    let path = repository().join("conformance/excused.toml");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut section = String::new();
    let mut names = BTreeSet::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
            continue;
        }
        let (name, reason) = line.split_once('=').expect("name = \"reason\"");
        assert!(reason.trim().len() > 10, "{name} needs a reason");
        if section == folder {
            names.insert(format!("{}.http", name.trim().trim_matches('"')));
        }
    }
    names
}

/// Replays a folder; what differs must be what the section excuses, and no more.
fn replay(server: &Kubegc, scenarios: &Path, folder: &str, section: &str) {
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
    let scenarios = repository().join("../shared/conformance");
    if !scenarios.join("run.py").exists() {
        eprintln!("SKIPPED: no recordings at {}", scenarios.display());
        return;
    }
    let server = Kubegc::start("apiserver");
    replay(&server, &scenarios, "api", "api");
}

#[test]
fn the_collectors_end_as_those_of_kube_controller_manager_do() {
    let scenarios = repository().join("../shared/conformance");
    if !scenarios.join("run.py").exists() {
        eprintln!("SKIPPED: no recordings at {}", scenarios.display());
        return;
    }
    let server = Kubegc::start_collectors();
    replay(&server, &scenarios, "gc", "gc");
}

/// The same, with `kubegc run` attached over TLS to a server of its own process, under exactly the
/// permissions that it asks for.
fn replay_attached(arguments: &[&str]) {
    let scenarios = repository().join("../shared/conformance");
    if !scenarios.join("run.py").exists() {
        eprintln!("SKIPPED: no recordings at {}", scenarios.display());
        return;
    }
    let server = Kubegc::start_with("apiserver", arguments);
    let run = Run::with(&privileged_for_all(&server), &["--controllers=*"]);
    until("it leads", || run.leads() && run.is_ready());
    replay(&server, &scenarios, "gc", "gc-run");
    assert_eq!(Admin::of(&server).refusals(403), [] as [String; 0]);
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
