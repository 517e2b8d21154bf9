//! `kubegc run` beside a server, with exactly the permissions of deploy/run.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)] // a broken assumption should stop the test; not every test uses all

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gc_kube::ApiClient;
use http::Method;
use serde_json::{Value, json};

use crate::support::{Kubegc, Signal, collection_of, repository};

/// Timeout of every wait here.
pub const PATIENCE: Duration = Duration::from_mins(1);
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kubegc-garbage-collector";
/// Flags with short durations, so a takeover takes little time.
pub const QUICK_LEASE: [&str; 3] = [
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=200ms",
];

/// Name of the owner-reference collector.
pub const OWNERS: &str = "garbage-collector-controller";

/// Returns the metrics line about the outcomes of a collector's requests.
pub fn effects(controller: &str, verb: &str, verdict: &str, outcome: &str, number: usize) -> String {
    format!(
        "kubegc_collector_requests_total{{controller=\"{controller}\",verb=\"{verb}\",verdict=\"{verdict}\",outcome=\"{outcome}\"}} {number}"
    )
}

/// Waits until a condition holds.
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    within(PATIENCE, what, holds);
}

/// Waits until a condition holds, for at most this long.
pub fn within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come about within {patience:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns every document of the YAML files in a directory of the repository.
pub fn manifests(folder: &str, files: &[&str]) -> Vec<Value> {
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(repository().join(folder).join(file)).unwrap();
        found.extend(serde_saphyr::from_multiple::<Value>(&text).unwrap());
    }
    found
}

/// Sends requests as the administrator.
pub struct Admin {
    runtime: tokio::runtime::Runtime,
    client: ApiClient,
}

impl Admin {
    pub fn of(server: &Kubegc) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(ApiClient::from_kubeconfig(&server.kubeconfig)).unwrap();
        Self { runtime, client }
    }

    pub fn send(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .header("accept", "application/json")
            .body(http_body_util::Full::new(text.into()))
            .unwrap();
        let answer = self.runtime.block_on(self.client.call(request)).unwrap();
        (answer.head.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    pub fn get(&self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, &Value::Null)
    }

    /// Creates an object, which must succeed; returns it.
    pub fn create(&self, collection: &str, object: &Value) -> Value {
        let (code, made) = self.send(Method::POST, collection, object);
        assert_eq!(code, 201, "{collection}: {made}");
        made
    }

    /// Creates a ConfigMap, with an owner (and `blockOwnerDeletion`) or without; returns its UID.
    pub fn map(&self, name: &str, owner: Option<(&str, &str)>) -> String {
        self.map_of(name, owner.as_slice())
    }

    /// Creates a ConfigMap with several owners; returns its UID.
    pub fn map_of(&self, name: &str, owners: &[(&str, &str)]) -> String {
        let owners: Vec<Value> = owners
            .iter()
            .map(|(name, uid)| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true})
            })
            .collect();
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
                          "metadata": {"name": name, "ownerReferences": owners}});
        uid(&self.create(MAPS, &body))
    }

    pub fn delete(&self, name: &str, policy: &str) {
        self.delete_at(&format!("{MAPS}/{name}"), policy);
    }

    pub fn delete_at(&self, path: &str, policy: &str) {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
        let (code, answer) = self.send(Method::DELETE, path, &options);
        assert!(code < 300, "{answer}");
    }

    pub fn exists(&self, name: &str) -> bool {
        self.get(&format!("{MAPS}/{name}")).0 == 200
    }

    pub fn holder(&self) -> String {
        self.get(LEASE).1["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the metrics of the server.
    pub fn metrics(&self) -> String {
        let request = http::Request::builder().uri("/metrics").body(http_body_util::Full::default()).unwrap();
        let answer = self.runtime.block_on(self.client.call(request)).unwrap();
        String::from_utf8(answer.body.to_vec()).unwrap()
    }

    /// Returns the requests that the server has refused with this code.
    pub fn refusals(&self, code: u16) -> Vec<String> {
        let text = self.metrics();
        let wanted = format!("code=\"{code}\"");
        let lines = text.lines().filter(|line| line.starts_with("apiserver_request_total{"));
        lines.filter(|line| line.contains(&wanted)).map(str::to_owned).collect()
    }
}

pub fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Writes a kubeconfig with a token.
pub fn kubeconfig(file: &Path, url: &str, ca: &Path, token: &str) {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority": ca}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(file, config.to_string()).unwrap();
}

/// Creates the account of deploy/run with exactly its permissions; returns a kubeconfig for it.
pub fn least_privileged(server: &Kubegc) -> PathBuf {
    account(server, manifests("deploy/run", &["rbac.yaml"]))
}

/// Creates the account with the permissions that all collectors need; returns a kubeconfig for it.
pub fn privileged_for_all(server: &Kubegc) -> PathBuf {
    privileged_for(server, "*")
}

/// Creates the account with exactly the permissions that these collectors need; returns a kubeconfig for it.
pub fn privileged_for(server: &Kubegc, controllers: &str) -> PathBuf {
    account(server, permissions_for(controllers))
}

/// Returns the permissions that `kubegc rbac` prints for these collectors.
pub fn permissions_for(controllers: &str) -> Vec<Value> {
    let controllers = format!("--controllers={controllers}");
    let output = Command::new(env!("CARGO_BIN_EXE_kubegc")).args(["rbac", &controllers]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// Creates the account of deploy/run with these permissions; returns a kubeconfig for it.
pub fn account(server: &Kubegc, permissions: Vec<Value>) -> PathBuf {
    let file = server.folder.path().join("least-privileged");
    if file.exists() {
        return file;
    }
    let admin = Admin::of(server);
    for object in manifests("deploy/run", &["serviceaccount.yaml"]).into_iter().chain(permissions) {
        let (code, answer) = admin.send(Method::POST, &collection_of(&object), &object);
        assert!(code == 201 || code == 409, "{answer}");
    }
    let ask = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = "/api/v1/namespaces/kube-system/serviceaccounts/kubegc/token";
    let token = admin.create(path, &ask);
    kubeconfig(&file, &server.url, &server.ca, token["status"]["token"].as_str().unwrap());
    file
}

/// Runs a command to its end; returns its exit code, its output and its errors.
pub fn kubegc(arguments: &[&str], kubeconfig: &Path) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kubegc"))
        .args(arguments)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .env("XDG_DATA_HOME", kubeconfig.with_file_name("data"))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Runs a command that must succeed, as the administrator; returns its output.
pub fn ask(server: &Kubegc, arguments: &[&str]) -> String {
    let (code, out, error) = kubegc(arguments, &server.kubeconfig);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}: {out}");
    out
}

/// A running `kubegc run`, killed when dropped.
pub struct Run {
    child: Child,
    address: String,
    log: Arc<Mutex<String>>,
}

impl Run {
    /// Starts the collector with the permissions of deploy/run.
    pub fn start(server: &Kubegc, arguments: &[&str]) -> Self {
        Self::with(&least_privileged(server), arguments)
    }

    pub fn with(kubeconfig: &Path, arguments: &[&str]) -> Self {
        let has_address = arguments.iter().any(|argument| argument.starts_with("--bind-address="));
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubegc"))
            .args(["run", "--log-format", "json", "--kubeconfig"])
            .arg(kubeconfig)
            .args((!has_address).then_some("--bind-address=127.0.0.1:0"))
            .args(arguments)
            // Its journal must not be that of the user who runs the tests.
            .env("XDG_DATA_HOME", kubeconfig.with_file_name("data"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let address = loop {
            let line = lines.next().expect("it says where it listens");
            let entry: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(address) = entry["fields"]["address"].as_str() {
                break address.to_owned();
            }
        };
        let log = Arc::<Mutex<String>>::default();
        let written = Arc::clone(&log);
        std::thread::spawn(move || {
            lines.for_each(|line| {
                let mut log = written.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            });
        });
        Self { child, address, log }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the address that serves metrics, health and debugging.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub fn page(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    pub fn is_ready(&self) -> bool {
        self.page("/readyz").starts_with("HTTP/1.1 200")
    }

    pub fn leads(&self) -> bool {
        self.page("/debug/kubegc/resources").contains("\"leading\":true")
    }

    /// Reports whether its metrics contain this line.
    pub fn metric(&self, line: &str) -> bool {
        self.page("/metrics").lines().any(|shown| shown == line)
    }

    /// Returns the state of each resource, and of everything that stops collection.
    pub fn state(&self) -> Value {
        let page = self.page("/debug/kubegc/resources");
        serde_json::from_str(page.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Reports whether nothing is in progress, and nothing waits for a retry.
    pub fn is_idle(&self) -> bool {
        let metrics = self.page("/metrics");
        ["kubegc_requests_in_flight 0\n", "kubegc_retrying 0\n", "kubegc_http_requests_in_flight 0\n"]
            .iter()
            .all(|line| metrics.contains(line))
    }

    /// Reports whether the watch of every resource is as it should be.
    pub fn is_synced(&self) -> bool {
        let state = self.state();
        let Some(resources) = state["resources"].as_array() else { return false };
        !resources.is_empty() && resources.iter().all(|resource| resource["state"] == "synced")
    }

    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
