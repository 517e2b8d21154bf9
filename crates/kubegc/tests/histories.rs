//! Plays the scenarios of `conformance/workloads` under the workload controllers, and compares the histories of all objects with
//! those recorded under kube-controller-manager 1.36.2.
//!
//! Intermediate values of counters are not compared, since they depend on the speed of the machine. `histories.py check` without
//! `--certain` compares them.
//!
//! Intended differences are in `conformance/workloads/excused.toml`, each with its reason; an excuse that is no longer needed fails
//! the test too.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Kubegc, repository};

/// The scenarios bind and start pods themselves, and their nodes send no heartbeats.
const CONTROLLERS: &str = "--controllers=*,-kube-scheduler,-simulated-nodes,-simulated-provisioner,\
                           -node-lifecycle-controller,-taint-eviction-controller";

/// Scenarios that are played one after the other, by the beginnings of their names.
const DEPLOYMENTS: &[&str] = &["deployment-", "replicaset-", "replicationcontroller-"];
const JOBS: &[&str] = &["job-", "cronjob-"];
const OTHERS: &[&str] =
    &["statefulset-", "daemonset-", "service-", "endpoints-", "budget-", "quota-", "claim-", "namespace-"];

/// Maximum number of plays of a scenario until it matches.
const MAX_PLAYS: usize = 3;

fn folder() -> PathBuf {
    repository().join("conformance/workloads")
}

/// Returns the excuses of a section, lines `"scenario | step | object" = "reason"`. A name that ends in `*` covers all names with
/// that prefix.
fn excused(wanted: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder().join("excused.toml")).unwrap();
    let mut section = String::new();
    let mut names = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if section == wanted {
            let (name, reason) =
                line.split_once("\" = \"").expect("\"scenario | step | object\" = \"reason\"");
            assert!(reason.len() > 10, "{name} needs a reason");
            names.push(name.trim_start_matches('"').to_owned());
        }
    }
    names
}

fn covers(excuse: &str, name: &str) -> bool {
    excuse.strip_suffix('*').map_or(excuse == name, |prefix| name.starts_with(prefix))
}

/// Plays scenarios and compares them with the histories in a directory. Returns the output of the script.
fn play(names: &[String], histories: &Path) -> String {
    let quiet = [("KUBEGC_LOG", "error")];
    // They were recorded without accounts, as in tests of operators.
    let plain = "--disable-admission-plugins=ServiceAccount";
    let server = Kubegc::start_under(&quiet, "up", ["--ephemeral", "--nodes", "0", CONTROLLERS, plain]);
    let output = Command::new("python3")
        .arg(folder().join("histories.py"))
        .args([
            "check",
            "--certain",
            "--settle",
            "--server",
            &server.url,
            "--token",
            support::TOKEN,
            "--histories",
        ])
        .arg(histories)
        .args(names.iter().map(|name| format!("^{name}")))
        .output()
        .expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(" passed, "), "{text}{errors}");
    text
}

/// Returns the unexcused differences from the histories, and the excuses without a difference.
fn judge(text: &str, names: &[&str]) -> (Vec<String>, Vec<String>) {
    let varying = excused("varies");
    let (mut unexcused, mut needless) = (Vec::new(), Vec::new());
    let broken = text.lines().filter(|line| line.starts_with("broken: "));
    unexcused.extend(broken.filter_map(|line| Some(format!("broken: {} | ", line.split(": ").nth(1)?))));
    for kind in ["differs", "order"] {
        let prefix = format!("{kind}: ");
        let found: BTreeSet<&str> = text.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        let excuses = excused(kind);
        let is_excused = |name: &str| excuses.iter().chain(&varying).any(|excuse| covers(excuse, name));
        unexcused.extend(found.iter().filter(|name| !is_excused(name)).map(|name| format!("{kind}: {name}")));
        let of_these = excuses.iter().filter(|excuse| names.iter().any(|name| excuse.starts_with(name)));
        needless.extend(of_these.filter(|excuse| !found.iter().any(|name| covers(excuse, name))).cloned());
    }
    (unexcused, needless)
}

/// Plays scenarios. Those that differ are played again, because on a busy machine the steps of a scenario may overlap. A difference
/// that repeats each time is not upstream's behaviour.
fn compare(names: &[&str]) {
    let histories = folder().join("histories");
    let words: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut text = play(&words, &histories);
    let (mut differs, needless) = judge(&text, names);
    assert_eq!(needless, [] as [String; 0], "excuses for what does not differ: {text}");
    let scenario = |line: &String| Some(line.split_once(": ")?.1.split_once(" | ")?.0.to_owned() + "$");
    for _ in 1..MAX_PLAYS {
        let again: BTreeSet<String> = differs.iter().filter_map(scenario).collect();
        if again.is_empty() {
            return;
        }
        eprintln!("played again: {again:?}, because of {differs:?}");
        text = play(&again.into_iter().collect::<Vec<_>>(), &histories);
        differs = judge(&text, names).0;
    }
    assert_eq!(differs, [] as [String; 0], "{text}");
}

/// The groups are played at once, each on a server of its own: their steps mostly wait for the clock.
#[test]
fn workloads_have_upstreams_histories() {
    std::thread::scope(|scope| {
        let groups = [DEPLOYMENTS, JOBS, OTHERS].map(|names| scope.spawn(|| compare(names)));
        for group in groups {
            if let Err(panic) = group.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// Different values in a recorded history, another order, or an additional object are noticed.
#[test]
fn a_history_that_was_changed_is_noticed() {
    let name = "replicaset-deletes-by-cost";
    let golden = std::fs::read_to_string(folder().join("histories").join(format!("{name}.json"))).unwrap();
    let changed = tempfile::tempdir().unwrap();
    let edits: [(&str, &str, &str); 2] = [
        ("\"status.readyReplicas\": 3", "\"status.readyReplicas\": 2", "differs"),
        (
            "\"metadata.managers.kube-controller-manager Update\"",
            "\"metadata.managers.kubelet Update\"",
            "differs",
        ),
    ];
    for (before, after, kind) in edits {
        assert!(golden.contains(before), "{name} has no {before}");
        std::fs::write(changed.path().join(format!("{name}.json")), golden.replace(before, after)).unwrap();
        let text = play(&[name.to_owned()], changed.path());
        let (unexcused, _) = judge(&text, &[name]);
        assert!(unexcused.iter().any(|line| line.starts_with(kind)), "{before} -> {after}: {text}");
    }
}

/// Every scenario is in one of the groups above, and has been recorded.
#[test]
fn every_scenario_is_played_and_recorded() {
    let read = |name: &str| std::fs::read_to_string(folder().join(name)).unwrap();
    let text = format!("{}{}", read("scenarios.py"), read("more_scenarios.py"));
    let scripts = text.split("@scenario\ndef ").skip(1);
    let names: BTreeSet<String> =
        scripts.map(|script| script.split('(').next().unwrap().replace('_', "-")).collect();
    let files = std::fs::read_dir(folder().join("histories")).unwrap();
    let recorded: BTreeSet<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap().trim_end_matches(".json").to_owned())
        .collect();
    assert_eq!(names, recorded);
    let played = [DEPLOYMENTS, JOBS, OTHERS].concat();
    let is_played = |name: &&String| played.iter().any(|prefix| name.starts_with(prefix));
    assert_eq!(names.iter().filter(|name| !is_played(name)).collect::<Vec<_>>(), [] as [&String; 0]);
}
