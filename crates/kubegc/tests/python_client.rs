//! The official Python client against `kubegc up`: see `python_client.py` beside this file.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::process::Command;

use support::{Kubegc, repository};

#[test]
fn the_official_python_client_works() {
    let python = repository().join("target/python/bin/python");
    let usable = Command::new(&python)
        .args(["-c", "import kubernetes"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !usable {
        let message = format!("{} has no kubernetes package; run scripts/setup", python.display());
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{message}");
        eprintln!("SKIPPED: {message}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let offset = folder.path().join("offset");
    std::fs::write(&offset, "0s").unwrap();
    let arguments = ["--ephemeral", "--workloads=off", "--collector-clock-offset"].map(Into::into);
    let server = Kubegc::start_with("up", arguments.into_iter().chain([offset.clone().into_os_string()]));
    let script = repository().join("crates/kubegc/tests/python_client.py");
    let output = Command::new(python)
        .arg(script)
        .arg(&server.kubeconfig)
        .env("KUBEGC_CLOCK_OFFSET", &offset)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.ends_with("0 failed\n"), "{text}");
}
