//! Starts the built binary on a free port, and stops it.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)] // a broken assumption should stop the test; not every test uses all

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;

/// The administrator's token.
pub const TOKEN: &str = "conformance-token";

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A running `kubegc`, stopped when dropped.
pub struct Kubegc {
    pub url: String,
    pub kubeconfig: PathBuf,
    pub ca: PathBuf,
    pub folder: tempfile::TempDir,
    child: Child,
}

impl Kubegc {
    /// Starts a subcommand that takes the server's flags, with everything in memory.
    pub fn start(subcommand: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubegc"))
            .args([
                subcommand,
                "--ephemeral",
                "--listen",
                "127.0.0.1:0",
                "--token",
                TOKEN,
                "--write-kubeconfig",
            ])
            .arg(&kubeconfig)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = loop {
            let line = lines.next().expect("the server says that it is ready").unwrap();
            if let Some((_, url)) = line.split_once("ready on ") {
                break url.to_owned();
            }
        };
        // The pipe is kept empty, so that nothing that is printed later blocks the server.
        std::thread::spawn(move || lines.for_each(drop));
        let text = std::fs::read_to_string(&kubeconfig).unwrap();
        let data =
            text.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: ")).unwrap();
        let ca = folder.path().join("ca.crt");
        std::fs::write(&ca, base64::engine::general_purpose::STANDARD.decode(data).unwrap()).unwrap();
        Self { url, kubeconfig, ca, folder, child }
    }
}

impl Drop for Kubegc {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}
