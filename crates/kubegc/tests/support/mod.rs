//! Starts the built binary on a free port, and stops it.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)] // a broken assumption should stop the test; not every test uses all

#[path = "../../../gc-store/tests/support/etcd.rs"]
pub mod etcd;

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
pub use rustix::process::Signal;

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
    /// From the start of the process until it said that it is ready.
    pub ready_after: Duration,
    child: Child,
}

impl Kubegc {
    /// Starts a subcommand that takes the server's flags, with everything in memory.
    pub fn start(subcommand: &str) -> Self {
        Self::start_with(subcommand, ["--ephemeral"])
    }

    /// Starts `up` with its collectors alone: the tests set what workload controllers would.
    pub fn start_collectors() -> Self {
        Self::start_with("up", ["--ephemeral", "--workloads=off"])
    }

    /// Starts a subcommand that takes the server's flags, with further ones.
    pub fn start_with<A: Into<OsString>>(subcommand: &str, arguments: impl IntoIterator<Item = A>) -> Self {
        Self::start_under(&[], subcommand, arguments)
    }

    /// The same with these variables in its environment.
    pub fn start_under<A: Into<OsString>>(
        environment: &[(&str, &str)],
        subcommand: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let begun = Instant::now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubegc"))
            .args([subcommand, "--listen", "127.0.0.1:0", "--token", TOKEN, "--write-kubeconfig"])
            .arg(&kubeconfig)
            .args(arguments.into_iter().map(Into::into))
            .envs(environment.iter().copied())
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
        let ready_after = begun.elapsed();
        // The pipe is kept empty, so that nothing that is printed later blocks the server.
        std::thread::spawn(move || lines.for_each(drop));
        let text = std::fs::read_to_string(&kubeconfig).unwrap();
        let data =
            text.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: ")).unwrap();
        let ca = folder.path().join("ca.crt");
        std::fs::write(&ca, base64::engine::general_purpose::STANDARD.decode(data).unwrap()).unwrap();
        Self { url, kubeconfig, ca, folder, ready_after, child }
    }

    /// A client of this server, as kube-rs makes it from the kubeconfig.
    pub async fn client(&self) -> kube::Client {
        let kubeconfig = kube::config::Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        // A test sees the first answer, whatever it is.
        config.default_retry = false;
        kube::Client::try_from(config).unwrap()
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, waits until the process has ended, and says how and how soon.
    pub fn end(mut self, signal: Signal) -> (ExitStatus, Duration) {
        let begun = Instant::now();
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
        (self.child.wait().unwrap(), begun.elapsed())
    }
}

impl Drop for Kubegc {
    fn drop(&mut self) {
        // The id of a process that was waited for may be another's by now.
        if let Ok(None) = self.child.try_wait() {
            let id = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(id, Signal::TERM);
            let _ = self.child.wait();
        }
    }
}
