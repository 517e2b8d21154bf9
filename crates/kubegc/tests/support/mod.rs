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
use serde_json::Value;

/// Token of the administrator.
pub const TOKEN: &str = "conformance-token";

/// Returns the root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the collection in which an object of a manifest is created.
pub fn collection_of(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let prefix = if version.contains('/') { "apis" } else { "api" };
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let plural = if kind.ends_with('y') { kind.replace("policy", "policies") } else { format!("{kind}s") };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{prefix}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/{prefix}/{version}/{plural}"),
    }
}

/// Returns the path of an object's status, and the object with these fields in its status: what `kubectl patch
/// --subresource=status` makes of them, which the kubectl of some distributions does not know. For `kubectl replace --raw PATH -f
/// -`.
pub fn with_status(object: &str, fields: &Value) -> (String, String) {
    let mut object: Value = serde_json::from_str(object).unwrap();
    for (name, value) in fields.as_object().unwrap() {
        object["status"][name] = value.clone();
    }
    let path = format!("{}/{}/status", collection_of(&object), object["metadata"]["name"].as_str().unwrap());
    (path, object.to_string())
}

/// Returns the minor version of kubectl: Debian's is 1.20, and lacks some commands.
pub fn kubectl_minor_version() -> u32 {
    let output = Command::new("kubectl").args(["version", "--client", "-o", "json"]).output().unwrap();
    let version: Value = serde_json::from_slice(&output.stdout).unwrap();
    version["clientVersion"]["minor"].as_str().unwrap().trim_end_matches('+').parse().unwrap()
}

/// A running `kubegc`, stopped when dropped.
pub struct Kubegc {
    pub url: String,
    pub kubeconfig: PathBuf,
    pub ca: PathBuf,
    pub folder: tempfile::TempDir,
    /// Time from the start of the process until it reported that it is ready.
    pub ready_after: Duration,
    child: Child,
}

impl Kubegc {
    /// Starts a subcommand that takes the server's flags, with everything in memory.
    pub fn start(subcommand: &str) -> Self {
        Self::start_with(subcommand, ["--ephemeral"])
    }

    /// Starts `up` with only its collectors: the tests set the fields that workload controllers would.
    pub fn start_collectors() -> Self {
        Self::start_with("up", ["--ephemeral", "--workloads=off"])
    }

    /// Starts a subcommand that takes the server's flags, with additional flags.
    pub fn start_with<A: Into<OsString>>(subcommand: &str, arguments: impl IntoIterator<Item = A>) -> Self {
        Self::start_under(&[], subcommand, arguments)
    }

    /// Starts a subcommand with these variables in its environment.
    pub fn start_under<A: Into<OsString>>(
        environment: &[(&str, &str)],
        subcommand: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        Self::launch(environment, subcommand, arguments, Stdio::inherit())
    }

    /// Starts a subcommand that writes its log to a file.
    pub fn start_logged<A: Into<OsString>>(
        log: &Path,
        subcommand: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        Self::launch(&[], subcommand, arguments, std::fs::File::create(log).unwrap())
    }

    fn launch<A: Into<OsString>>(
        environment: &[(&str, &str)],
        subcommand: &str,
        arguments: impl IntoIterator<Item = A>,
        log: impl Into<Stdio>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let begun = Instant::now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubegc"))
            .args([subcommand, "--bind-address", "127.0.0.1:0", "--token", TOKEN, "--write-kubeconfig"])
            .arg(&kubeconfig)
            .args(arguments.into_iter().map(Into::into))
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log)
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
        // The pipe is kept empty so that later output never blocks the server.
        std::thread::spawn(move || lines.for_each(drop));
        let text = std::fs::read_to_string(&kubeconfig).unwrap();
        let data =
            text.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: ")).unwrap();
        let ca = folder.path().join("ca.crt");
        std::fs::write(&ca, base64::engine::general_purpose::STANDARD.decode(data).unwrap()).unwrap();
        Self { url, kubeconfig, ca, folder, ready_after, child }
    }

    /// Returns a client of this server, as kube-rs creates it from the kubeconfig.
    pub async fn client(&self) -> kube::Client {
        let kubeconfig = kube::config::Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        // A test must see the first response, whatever it is.
        config.default_retry = false;
        kube::Client::try_from(config).unwrap()
    }

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, waits until the process has ended, and returns its exit status and the time that it took.
    pub fn end(mut self, signal: Signal) -> (ExitStatus, Duration) {
        let begun = Instant::now();
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
        (self.child.wait().unwrap(), begun.elapsed())
    }
}

impl Drop for Kubegc {
    fn drop(&mut self) {
        // The id of a process that was waited for may belong to another process by now.
        if let Ok(None) = self.child.try_wait() {
            let id = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(id, Signal::TERM);
            let _ = self.child.wait();
        }
    }
}
