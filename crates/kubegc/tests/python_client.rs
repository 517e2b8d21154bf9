//! The official Python client, and Helm's own code as a Python library, against `kubegc up`: see `python_client.py` and
//! `helm_lifecycle.py` beside this file.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::path::PathBuf;
use std::process::Command;

use support::{Kubegc, repository};

/// Returns the Python of scripts/setup; `None`, with a clear message, if it lacks a package.
fn python_with(package: &str) -> Option<PathBuf> {
    let python = repository().join("target/python/bin/python");
    let import = format!("import {package}");
    let is_usable =
        Command::new(&python).args(["-c", &import]).output().is_ok_and(|output| output.status.success());
    if !is_usable {
        let message = format!("{} has no package {package}; run scripts/setup", python.display());
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{message}");
        eprintln!("SKIPPED: {message}");
    }
    is_usable.then_some(python)
}

#[test]
fn the_official_python_client_works() {
    python_client_works_with("1.36");
}

#[test]
fn the_official_python_client_works_with_1_37() {
    python_client_works_with("1.37");
}

fn python_client_works_with(version: &str) {
    let Some(python) = python_with("kubernetes") else { return };
    let server =
        Kubegc::start_with("up", ["--ephemeral", "--workloads=off", "--kubernetes-version", version]);
    let script = repository().join("crates/kubegc/tests/python_client.py");
    let output = Command::new(python).arg(script).arg(&server.kubeconfig).arg(version).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.ends_with("0 failed\n"), "{text}");
}

#[test]
fn helm_waits_for_what_it_installs() {
    let Some(python) = python_with("helm_python") else { return };
    let server = Kubegc::start("up");
    let chart = tempfile::tempdir().unwrap();
    let script = repository().join("crates/kubegc/tests/helm_lifecycle.py");
    let output = Command::new(python).arg(script).arg(&server.kubeconfig).arg(chart.path()).output().unwrap();
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{error}");
    let expected = ["watcher", "legacy"]
        .map(|wait| format!("{wait}: installed, upgraded, rolled back, uninstalled\n"))
        .concat();
    assert_eq!(text, expected);
}
