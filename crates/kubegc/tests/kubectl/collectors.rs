//! The collectors of `kubegc up`, seen through kubectl: their actions, Events and metrics. The collectors' clock is set ahead, so
//! the tests need not wait.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::driver::{Driver, Mood};
use crate::support::etcd::port::Port;
use crate::support::with_status;

/// Timeout of every wait here.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// A server with collectors whose clock the test moves.
pub(super) struct Up {
    pub(super) server: Kubegc,
    metrics: String,
    _port: Port,
}

impl Up {
    /// Starts the server; `None`, with a clear message, if there is no kubectl.
    pub(super) fn start(arguments: &[String]) -> Option<Self> {
        Self::start_under(&[], arguments)
    }

    /// Starts the server with these variables in its environment.
    pub(super) fn start_under(environment: &[(&str, &str)], arguments: &[String]) -> Option<Self> {
        super::server()?;
        let port = Port::reserve();
        let metrics = format!("127.0.0.1:{}", port.number());
        let mut all: Vec<String> =
            ["--ephemeral", "--workloads=off", "--metrics-bind-address", &metrics].map(Into::into).to_vec();
        all.extend_from_slice(arguments);
        let server = Kubegc::start_under(environment, "up", all);
        Some(Self { server, metrics, _port: port })
    }

    pub(super) fn apply(&self, object: &Value) {
        kubectl(&self.server, &["create", "-f", "-"], &object.to_string());
    }

    /// Returns kubectl's message about an object that the server refuses.
    pub(super) fn refused(&self, object: &Value) -> String {
        let outcome = super::run(&self.server, &["create", "-f", "-"], &object.to_string());
        assert!(!outcome.success, "{}", outcome.out);
        outcome.err
    }

    pub(super) fn run(&self, arguments: &[&str]) -> String {
        kubectl(&self.server, arguments, "")
    }

    pub(super) fn status(&self, object: &str, status: &Value) {
        let (path, changed) = with_status(&self.run(&["get", object, "-o", "json"]), status);
        kubectl(&self.server, &["replace", "--raw", &path, "-f", "-"], &changed);
    }

    pub(super) fn exists(&self, object: &str) -> bool {
        super::run(&self.server, &["get", object], "").success
    }

    pub(super) fn field(&self, object: &str, path: &str) -> String {
        super::run(&self.server, &["get", object, "-o", &format!("jsonpath={{{path}}}")], "").out
    }

    /// Moves the collectors' clock forward.
    pub(super) fn pass(&self, duration: Duration) {
        let path = format!("/kubegc/v1/clock?advance={}ms", duration.as_millis());
        self.run(&["create", "--raw", &path, "-f", "-"]);
    }

    pub(super) fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < deadline, "{what} did not come about; metrics:\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(super) fn until_gone(&self, object: &str) {
        self.until(&format!("the end of {object}"), || !self.exists(object));
    }

    /// Returns the text of `/metrics`.
    pub(super) fn shown(&self) -> String {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    pub(super) fn until_metric(&self, line: &str) {
        self.until(line, || self.shown().lines().any(|shown| shown == line));
    }

    /// Waits until this component has written an Event with this reason about this object.
    pub(super) fn until_event(&self, object: &str, severity: &str, reason: &str, source: &str) {
        let selector = format!("involvedObject.name={object},reason={reason},type={severity}");
        let arguments =
            ["get", "events", "--field-selector", &selector, "-o", "jsonpath={.items[*].source.component}"];
        self.until(&selector, || self.run(&arguments).split(' ').any(|component| component == source));
    }
}

pub(super) fn claim(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}})
}

/// Creates a volume that is bound to a claim, and the claim.
pub(super) fn bound(up: &Up, name: &str, policy: &str, source: &Value, annotations: &Value) {
    let mut claim = claim(name);
    claim["spec"]["volumeName"] = name.into();
    up.apply(&claim);
    let uid = up.field(&format!("pvc/{name}"), ".metadata.uid");
    let mut volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": annotations}, "spec": {"capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "persistentVolumeReclaimPolicy": policy,
            "claimRef": {"namespace": "default", "name": name, "uid": uid}}});
    for (field, value) in source.as_object().unwrap() {
        volume["spec"][field] = value.clone();
    }
    up.apply(&volume);
    up.status(&format!("pv/{name}"), &json!({"phase": "Bound"}));
}

#[test]
fn volumes_go_with_their_storage_and_stay_when_it_cannot_go() {
    const SOURCE: &str = "persistentvolume-controller";
    let mut driver = Driver::start("disk.example.com");
    let host = tempfile::Builder::new().prefix("kubegc-host").tempdir_in("/tmp").unwrap();
    let endpoint = driver.endpoint();
    let arguments = ["--csi-endpoint", &endpoint, "--csi-timeout", "2s", "--enable-hostpath-provisioner"]
        .map(str::to_owned);
    let Some(up) = Up::start(&arguments) else { return };
    up.run(&["create", "secret", "generic", "array", "--from-literal=user=me"]);
    up.apply(&json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": "disk.example.com", "parameters": {"csi.storage.k8s.io/provisioner-secret-name": "array",
            "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}"}}));
    let annotations = json!({"pv.kubernetes.io/provisioned-by": "disk.example.com"});
    for name in ["a", "kept"] {
        driver.make_volume(name);
        let policy = if name == "a" { "Delete" } else { "Retain" };
        let source = json!({"csi": {"driver": "disk.example.com", "volumeHandle": name}});
        bound(&up, name, policy, &source, &annotations);
    }
    let folder = host.path().join("data");
    std::fs::create_dir(&folder).unwrap();
    bound(&up, "host", "Delete", &json!({"hostPath": {"path": folder}}), &json!({}));
    bound(&up, "outside", "Delete", &json!({"hostPath": {"path": "/etc"}}), &json!({}));
    up.until("the finalizer", || {
        up.field("pv/a", ".metadata.finalizers")
            .contains("external-provisioner.volume.kubernetes.io/finalizer")
    });

    // The driver is away, does not answer, fails, and is a different one: each case is visible, and nothing is removed.
    driver.stop();
    up.run(&["delete", "pvc", "a", "kept", "host", "outside", "--timeout=20s"]);
    let message = |words: &str| up.field("pv/a", ".status.message").contains(words);
    up.until("the outage", || message("cannot reach CSI driver disk.example.com"));
    up.until_event("a", "Warning", "VolumeFailedDelete", SOURCE);
    assert_eq!(up.field("pv/a", ".status.phase"), "Released");
    driver.listen();
    for (mood, words) in [
        (Mood::Silent, "DeadlineExceeded"),
        (Mood::Garbage, "rpc error: code = Internal"),
        (Mood::Named("other".into()), "calls itself"),
        (Mood::Fails(14, "rebooting".into()), "rpc error: code = Unavailable desc = rebooting"),
    ] {
        driver.be(mood);
        let deadline = Instant::now() + PATIENCE;
        while !up.field("pv/a", ".status.message").contains(words) {
            assert!(Instant::now() < deadline, "{words} is not shown: {}", up.field("pv/a", ".status"));
            up.pass(Duration::from_mins(5));
            std::thread::sleep(Duration::from_millis(300));
        }
    }
    assert!(driver.has_volume("a") && up.exists("pv/a"));
    driver.be(Mood::Good);
    up.pass(Duration::from_mins(5));
    up.until_gone("pv/a");
    assert!(!driver.has_volume("a") && driver.has_volume("kept"));
    let (asked, secrets) = driver.state().deletions.last().cloned().unwrap();
    assert_eq!((asked.as_str(), secrets.get("user").map(String::as_str)), ("a", Some("me")));

    up.until_gone("pv/host");
    assert!(!folder.exists() && host.path().exists());
    let refused = "host_path deleter only supports /tmp/.+ but received provided /etc";
    up.until("the refusal", || up.field("pv/outside", ".status.message") == refused);
    assert_eq!(up.field("pv/outside", ".status.phase"), "Failed");
    assert_eq!(up.field("pv/kept", ".status.phase"), "Released");

    // The volume is created again and bound: it must not be destroyed.
    driver.make_volume("again");
    let source = json!({"csi": {"driver": "disk.example.com", "volumeHandle": "again"}});
    bound(&up, "again", "Delete", &source, &annotations);
    up.pass(Duration::from_hours(1));
    up.until_metric("controller_persistentvolume_delete_duration_seconds_count{class=\"fast\"} 1");
    up.until_metric(
        "volume_operation_total_seconds_count{plugin_name=\"disk.example.com\",operation_name=\"delete\"} 1",
    );
    up.until_metric("pv_collector_bound_pv_count{storage_class=\"fast\"} 1");
    up.until_metric(
        "running_managed_controllers{name=\"persistentvolume-binder-controller\",manager=\"kubegc\"} 1",
    );
    let shown = up.shown();
    assert!(shown.contains("controller_persistentvolume_delete_failed_total{class=\"fast\"}"), "{shown}");
    assert!(driver.has_volume("again") && up.exists("pv/again"));
}

/// A machine is removed, then its node, and then everything on the node (spec 24.1); Jobs, requests and leases are collected as
/// well.
#[test]
fn time_takes_nodes_pods_jobs_requests_and_leases() {
    let folder = tempfile::tempdir().unwrap();
    let inventory = folder.path().join("machines.yaml");
    let write = |machines: &[&str]| {
        let listed: Vec<String> = machines.iter().map(|name| format!("- {{name: {name}}}\n")).collect();
        let text = format!(
            "apiVersion: kubegc.io/v1alpha1\nkind: MachineInventory\ncount: {}\nmachines:\n{}",
            machines.len(),
            listed.concat()
        );
        std::fs::write(folder.path().join("fresh"), text).unwrap();
        std::fs::rename(folder.path().join("fresh"), &inventory).unwrap();
    };
    write(&["one", "two", "three"]);
    let arguments = [
        "--cloud-inventory".to_owned(),
        inventory.display().to_string(),
        "--terminated-pod-gc-threshold=1".to_owned(),
        "--ownerless-node-leases".to_owned(),
    ];
    let Some(up) = Up::start(&arguments) else { return };
    for name in ["one", "two"] {
        up.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        up.status(&format!("node/{name}"), &json!({"conditions": [{"type": "Ready", "status": "Unknown"}]}));
    }
    let pod = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "i"}]}})
    };
    for name in ["finished-1", "finished-2", "lost"] {
        up.apply(&pod(name));
    }
    up.status("pod/lost", &json!({"phase": "Running"}));
    up.status("pod/finished-1", &json!({"phase": "Succeeded"}));
    up.status("pod/finished-2", &json!({"phase": "Succeeded"}));
    up.until("one finished pod to go", || !up.exists("pod/finished-1") || !up.exists("pod/finished-2"));
    up.until_metric(
        "pod_gc_collector_force_delete_pods_total{namespace=\"default\",reason=\"terminated\"} 1",
    );

    up.pass(Duration::from_mins(10));
    up.until("the machines to be asked about", || {
        up.shown().contains("kubegc_node_lookups_total{answer=\"running\"}")
    });
    assert!(up.exists("node/one"));
    write(&["two", "three"]);
    let deadline = Instant::now() + PATIENCE;
    while up.exists("node/one") {
        assert!(Instant::now() < deadline, "the node stays:\n{}", up.shown());
        up.pass(Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(300));
    }
    up.until_event("one", "Normal", "DeletingNode", "cloud-node-lifecycle-controller");
    assert!(up.exists("node/two"));
    while up.exists("pod/lost") {
        assert!(Instant::now() < deadline + PATIENCE, "the pod stays:\n{}", up.shown());
        up.pass(Duration::from_secs(15));
        std::thread::sleep(Duration::from_millis(300));
    }
    let orphaned = "pod_gc_collector_force_delete_pods_total{namespace=\"default\",reason=\"orphaned\"}";
    up.until(orphaned, || up.shown().contains(orphaned));

    // A broken inventory says nothing about any machine.
    std::fs::write(&inventory, "machines: []").unwrap();
    up.pass(Duration::from_mins(10));
    up.until_event("two", "Warning", "NodeLookupFailed", "cloud-node-lifecycle-controller");
    assert!(up.exists("node/two"));

    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {
        "ttlSecondsAfterFinished": 100_000_000, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i"}]}}}});
    up.apply(&job);
    let time = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time, "lastProbeTime": time});
    up.status(
        "job/job",
        &json!({"startTime": time, "completionTime": time,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}),
    );
    up.apply(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "nowhere", "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": "nowhere", "leaseDurationSeconds": 40}}));
    assert!(up.exists("job/job"));
    up.pass(Duration::from_secs(100_000_000));
    up.until_gone("job/job");
    up.until("the lease to go", || {
        !super::run(&up.server, &["get", "lease", "-n", "kube-node-lease", "nowhere"], "").success
    });
    up.until_metric("ttl_after_finished_controller_job_deletion_duration_seconds_count 1");
    for controller in
        ["ttl-after-finished-controller", "stale-lease-controller", "pod-garbage-collector-controller"]
    {
        up.until_metric(&format!("kubegc_collector_synced{{controller=\"{controller}\"}} 1"));
    }
}

/// Behaviour of a webhook.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Silent,
    Garbage,
    /// Reports every machine as missing.
    Lies,
    /// Reports the machines of all nodes except `n1` as running.
    Knows,
}

/// Starts a webhook that knows machines, on this machine; returns its address.
fn webhook(manner: Arc<Mutex<Manner>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/machines", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        // Connections without a response are kept so that they stay open.
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut question = Vec::new();
            let mut part = [0; 4096];
            // The question is one JSON object; the connection may also end before it is complete.
            let node = loop {
                let read = stream.read(&mut part).unwrap_or_default();
                question.extend_from_slice(&part[..read]);
                let text = String::from_utf8_lossy(&question);
                let body = text
                    .split_once("\r\n\r\n")
                    .and_then(|(_, body)| serde_json::from_str::<Value>(body).ok());
                match body {
                    Some(body) => break Some(body["node"].clone()),
                    None if read == 0 => break None,
                    None => {}
                }
            };
            let Some(node) = node else { continue };
            let text = match *manner.lock().unwrap() {
                Manner::Silent => {
                    kept.push(stream);
                    continue;
                }
                Manner::Garbage => "<html>".to_owned(),
                manner @ (Manner::Lies | Manner::Knows) => {
                    let is_absent = manner == Manner::Lies || node["name"] == "n1";
                    json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "MachineLookup", "node": node,
                    "machine": {"state": if is_absent { "Absent" } else { "Running" }}})
                    .to_string()
                }
            };
            let length = text.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
            );
        }
    });
    url
}

#[test]
fn a_webhook_that_is_silent_talks_nonsense_or_lies_deletes_nothing() {
    const SOURCE: &str = "cloud-node-lifecycle-controller";
    const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
    let manner = Arc::new(Mutex::new(Manner::Silent));
    let url = webhook(Arc::clone(&manner));
    let arguments = ["--cloud-webhook".to_owned(), url, "--cloud-timeout=500ms".to_owned()];
    let Some(up) = Up::start(&arguments) else { return };
    for name in NODES {
        up.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        up.status(&format!("node/{name}"), &json!({"conditions": [{"type": "Ready", "status": "Unknown"}]}));
    }
    let reported = |up: &Up, reason: &str, words: &str| {
        let selector = format!("involvedObject.name=n1,reason={reason}");
        let said =
            up.run(&["get", "events", "--field-selector", &selector, "-o", "jsonpath={.items[*].message}"]);
        said.contains(words)
    };
    for (next, reason, words) in [
        (Manner::Silent, "NodeLookupFailed", "no answer within 500ms"),
        (Manner::Garbage, "NodeLookupFailed", "malformed"),
        (Manner::Lies, "NodeDeletionHalted", "machines are missing"),
    ] {
        *manner.lock().unwrap() = next;
        let deadline = Instant::now() + PATIENCE;
        while !reported(&up, reason, words)
            || (next == Manner::Lies && !up.shown().contains("kubegc_node_breaker_open 1"))
        {
            assert!(Instant::now() < deadline, "{reason} {words:?} is not reported:\n{}", up.shown());
            up.pass(Duration::from_mins(2));
            std::thread::sleep(Duration::from_millis(300));
        }
    }
    up.until_event("n1", "Warning", "NodeDeletionHalted", SOURCE);
    // The first screen shows this to users who may list nodes.
    let breaker = |user: &[&str]| {
        let arguments = [&["get", "--raw", "/kubegc/v1/overview"], user].concat();
        let overview: Value = serde_json::from_str(&up.run(&arguments)).unwrap();
        overview["nodeBreaker"].clone()
    };
    up.until("the breaker to be shown", || breaker(&[])["missing"] == NODES.len());
    assert_eq!(breaker(&["--as=ann", "--as-group=system:authenticated"]), Value::Null);
    assert!(up.shown().contains("kubegc_node_lookups_total{answer=\"error\"}"), "{}", up.shown());
    assert!(NODES.iter().all(|name| up.exists(&format!("node/{name}"))));
}

/// While one node reboots, the provider is asked in another account, which has none of this cluster's machines: the ready nodes
/// that it does not find show that.
#[test]
fn a_webhook_that_knows_no_ready_node_deletes_none() {
    const SOURCE: &str = "cloud-node-lifecycle-controller";
    const NODES: [&str; 6] = ["n1", "n2", "n3", "n4", "n5", "n6"];
    let manner = Arc::new(Mutex::new(Manner::Lies));
    let arguments = ["--cloud-webhook".to_owned(), webhook(Arc::clone(&manner))];
    let Some(up) = Up::start(&arguments) else { return };
    for name in NODES {
        up.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        let status = if name == "n1" { "Unknown" } else { "True" };
        up.status(&format!("node/{name}"), &json!({"conditions": [{"type": "Ready", "status": status}]}));
    }
    let halted = "involvedObject.name=n1,reason=NodeDeletionHalted";
    let deadline = Instant::now() + PATIENCE;
    while up.run(&["get", "events", "--field-selector", halted, "-o", "name"]).is_empty() {
        assert!(Instant::now() < deadline, "nothing halts it:\n{}", up.shown());
        up.pass(Duration::from_mins(1));
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(NODES.iter().all(|name| up.exists(&format!("node/{name}"))));
    *manner.lock().unwrap() = Manner::Knows;
    let deadline = Instant::now() + PATIENCE;
    while up.exists("node/n1") {
        assert!(Instant::now() < deadline, "the node stays:\n{}", up.shown());
        up.pass(Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(300));
    }
    up.until_event("n1", "Normal", "DeletingNode", SOURCE);
    assert!(NODES[1..].iter().all(|name| up.exists(&format!("node/{name}"))));
}

/// Unusable AWS credentials in the environment are an error at the start: the role of the instance may belong to another account.
#[test]
fn credentials_of_aws_that_are_not_supported_are_refused() {
    for (variable, value, words) in [
        (
            "AWS_PROFILE",
            "prod",
            "--cloud-aws-region: EC2: no credentials: AWS_PROFILE is set, and profiles are not supported",
        ),
        (
            "AWS_ROLE_ARN",
            "arn:aws:iam::1:role/r",
            "of AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, only one is set",
        ),
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "http://example.com/x",
            "expected https:// or an address of this instance",
        ),
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_kubegc"))
            .args(["up", "--ephemeral", "--cloud-aws-region=eu-central-1"])
            .env(variable, value)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && text.contains(words),
            "{variable}: {:?} {text}",
            output.status
        );
    }
}

/// A request for a certificate that is never answered.
const SIGNING_REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----\nMIHsMIGUAgEAMDIxFTATBgNVBAoMDHN5c3RlbTpub2RlczEZMBcGA1UEAwwQc3lz\ndGVtOm5vZGU6bm9kZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABE4nB68aukqi\n93rYSYfdjucRwACyEbH1aQNC83UDurp6Nj2Q72LoXaWjU5SmC6fmp3rwHI6ge10D\nKEfU635UCqugADAKBggqhkjOPQQDAgNHADBEAiAQ64vaTbXKCs4YEGJGXNJVhvOD\npSuboRCG+8HjEHxNywIgS0/ckw93zrjCikfZN62xABMH7j06Ot8UiujyAyDHJcw=\n-----END CERTIFICATE REQUEST-----\n";

/// Defines a kind that the server does not serve by default.
fn gated(up: &Up, group: &str, version: &str, kind: &str, scope: &str) {
    let singular = kind.to_lowercase();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    up.apply(&json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, served behind a gate elsewhere"}},
        "spec": {"group": group, "scope": scope,
            "names": {"plural": format!("{singular}s"), "singular": singular, "kind": kind},
            "versions": [{"name": version, "served": true, "storage": true, "schema": schema,
                "subresources": {"status": {}}}]}}));
    up.until(kind, || super::run(&up.server, &["get", &format!("{singular}s.{group}")], "").success);
}

/// Certificates, tokens, leases and storage versions are collected in due time; kinds that upstream has behind gates are collected
/// once they are served.
#[test]
fn time_takes_certificates_tokens_leases_and_storage_versions() {
    const TOKEN: &str = "legacy-serviceaccount-token-cleaner-controller";
    let Some(up) = Up::start(&[]) else { return };
    gated(&up, "certificates.k8s.io", "v1beta1", "PodCertificateRequest", "Namespaced");
    gated(&up, "coordination.k8s.io", "v1beta1", "LeaseCandidate", "Namespaced");
    gated(&up, "internal.apiserver.k8s.io", "v1alpha1", "StorageVersion", "Cluster");
    for name in ["denied", "pending"] {
        use base64::Engine as _;
        let request = base64::engine::general_purpose::STANDARD.encode(SIGNING_REQUEST);
        up.apply(&json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {"signerName": "example.com/signer", "usages": ["client auth"], "request": request}}));
    }
    up.run(&["certificate", "deny", "denied"]);
    up.apply(&json!({"apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest",
        "metadata": {"name": "web"}, "spec": {"podName": "web-0"}}));
    let lease = |kind: &str, version: &str, name: &str, spec: &Value| {
        up.apply(&json!({"apiVersion": format!("coordination.k8s.io/{version}"), "kind": kind,
            "metadata": {"name": name, "namespace": "default"}, "spec": spec}));
    };
    let renewed = "2026-01-01T00:00:00.000000Z";
    lease(
        "Lease",
        "v1",
        "leader",
        &json!({"holderIdentity": "somebody", "leaseDurationSeconds": 15, "renewTime": renewed}),
    );
    lease("LeaseCandidate", "v1beta1", "candidate", &json!({"leaseName": "leader", "renewTime": renewed}));
    up.apply(&json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": "apps.deployments"}, "spec": {}}));
    up.status(
        "storageversion/apps.deployments",
        &json!({"storageVersions": [{"apiServerID": "gone", "encodingVersion": "v1"}]}),
    );
    up.until_gone("storageversion/apps.deployments");
    up.until_event("leader", "Warning", "StaleLease", "stale-lease-controller");
    up.until_metric("kubegc_leases_stale{namespace=\"default\"} 1");

    let tracking = ["cm/kube-apiserver-legacy-service-account-token-tracking", "--namespace=kube-system"];
    let since = json!({"data": {"since": "2020-01-01"}}).to_string();
    up.run(&["patch", tracking[0], tracking[1], "--type=merge", "-p", &since]);
    up.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "builder"},
        "secrets": [{"name": "unused"}, {"name": "mounted"}]}));
    let account = up.field("sa/builder", ".metadata.uid");
    for name in ["unused", "mounted"] {
        up.apply(
            &json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "builder",
                "kubernetes.io/service-account.uid": account}}}),
        );
    }
    up.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user"}, "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "secret": {"secretName": "mounted"}}]}}));

    up.pass(Duration::from_mins(14));
    assert!(up.exists("podcertificaterequest/web"));
    up.pass(Duration::from_mins(2));
    up.until_gone("podcertificaterequest/web");
    assert!(up.exists("csr/denied") && up.exists("leasecandidate/candidate"));
    up.pass(Duration::from_hours(1));
    up.until_gone("csr/denied");
    up.until_gone("leasecandidate/candidate");
    assert!(up.exists("csr/pending"));
    up.pass(Duration::from_hours(24));
    up.until_gone("csr/pending");
    let label = ".metadata.labels.kubernetes\\.io/legacy-token-invalid-since";
    assert_eq!(up.field("secret/unused", label), "");
    up.pass(Duration::from_hours(366 * 24));
    up.until("the label", || !up.field("secret/unused", label).is_empty());
    up.until_event("builder", "Warning", "LegacyTokenInvalidated", TOKEN);
    up.pass(Duration::from_hours(367 * 24));
    up.until_gone("secret/unused");
    up.until_event("builder", "Normal", "DeletingLegacyToken", TOKEN);
    assert!(up.exists("secret/mounted") && up.field("secret/mounted", label).is_empty());
    assert!(up.exists("lease/leader"));
    for line in [
        format!(
            "kubegc_collector_requests_total{{controller=\"{TOKEN}\",verb=\"delete\",verdict=\"LegacyTokenExpired\",outcome=\"applied\"}} 1"
        ),
        "running_managed_controllers{name=\"podcertificaterequest-cleaner-controller\",manager=\"kubegc\"} 1"
            .to_owned(),
    ] {
        up.until_metric(&line);
    }
}

/// Namespaces report what holds them; policies and annotations follow the collectors' clock.
#[test]
fn time_takes_what_policies_and_annotations_say_and_namespaces_tell_what_holds_them() {
    let Some(up) = Up::start(&["--controllers=*,expiry-controller".to_owned()]) else { return };
    up.run(&["create", "namespace", "doomed"]);
    up.apply(
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "namespace": "doomed",
        "finalizers": ["example.com/hold"]}}),
    );
    up.apply(&json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "doomed"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}));
    up.run(&["delete", "namespace", "doomed", "--wait=false"]);
    let condition =
        |kind: &str| up.field("ns/doomed", &format!(".status.conditions[?(@.type==\"{kind}\")].message"));
    up.until("the condition", || {
        condition("NamespaceContentRemaining")
            == "Some resources are remaining: configmaps. has 1 resource instances"
    });
    assert_eq!(
        condition("NamespaceFinalizersRemaining"),
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    );
    up.run(&[
        "patch",
        "configmap",
        "held",
        "-n",
        "doomed",
        "--type=merge",
        "-p",
        "{\"metadata\":{\"finalizers\":null}}",
    ]);
    up.until_gone("ns/doomed");
    up.until_metric("kubegc_namespace_termination_duration_seconds_count 1");
    assert!(up.shown().contains("kubegc_namespace_passes_total{end=\"waiting\"}"), "{}", up.shown());
    up.until_metric("kubegc_collector_waiting{controller=\"namespace-controller\"} 0");

    let old = |name: &str, metadata: &Value| {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        object["metadata"]["name"] = name.into();
        up.apply(&object);
    };
    old("annotated", &json!({"annotations": {"kubegc.io/ttl": "48h"}}));
    old("selected", &json!({"labels": {"app": "web"}}));
    old("other", &json!({}));
    up.apply(&json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy", "metadata": {"name": "old"}, "spec": {
        "target": {"apiVersion": "v1", "kind": "ConfigMap"}, "selector": {"matchLabels": {"app": "web"}},
        "maxAge": "24h", "enforce": true}}));
    let file = up.server.folder.path().join("policy.yaml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_kubegc"))
            .args(["policy", "check", &file.display().to_string(), "--kubeconfig"])
            .arg(&up.server.kubeconfig)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let policy = "apiVersion: kubegc.io/v1alpha1\nkind: RetentionPolicy\nmetadata: {name: all}\nspec:\n  \
                  target: {apiVersion: v1, kind: ConfigMap}\n  selector: {matchLabels: {app: web}}\n  \
                  keepNewest: {count: 0}\n";
    let (code, said) = check(policy);
    assert!(code == Some(0) && said.contains("all: 1 selected, 1 due now, 0 kept"), "{code:?} {said}");
    assert!(said.contains("  default/selected: "), "{said}");
    let (code, said) = check(&policy.replace("count: 0", "count: -1"));
    assert!(code == Some(1) && said.starts_with("all: spec.keepNewest.count: "), "{code:?} {said}");
    assert_eq!(check("a: [").0, Some(2));
    up.until("the first look", || up.field("retentionpolicy/old", ".status.selected") == "1");
    up.pass(Duration::from_hours(25));
    up.until_gone("configmap/selected");
    assert!(up.exists("configmap/annotated"));
    up.pass(Duration::from_hours(24));
    up.until_gone("configmap/annotated");
    assert!(up.exists("configmap/other"));
}

#[test]
fn switches_are_understood() {
    let kubegc = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_kubegc")).arg("up").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (arguments, expected) in [
        (&["--controllers", "nonsense"][..], "\"nonsense\" is not in the list of known controllers"),
        (&["--controllers", "cloud-node-lifecycle"], "needs a machine provider"),
        (&["--cloud-inventory", "/nonexistent"], "No such file"),
        (&["--cloud-webhook", "http://example.com/"], "http:// is only allowed for this machine"),
        (&["--cloud-exec", "relative"], "expected an absolute path"),
        (&["--cloud-inventory", "/a", "--cloud-exec", "/b"], "cannot be used with"),
        // SAT-T17
        (&["--legacy-service-account-token-clean-up-period", "0s"], "it must be more than 0"),
        (&["--csi-endpoint", "disk.example.com"], "expected DRIVER=unix:///path/to/socket"),
        (&["--csi-endpoint", "d=tcp://127.0.0.1:1"], "is not supported"),
        (&["--node-missing-confirmations", "1"], "1 is not in 2.."),
        (&["--node-breaker-fraction", "2"], "expected a number from 0 to 1"),
        (&["--node-monitor-period", "0s"], "it must be more than 0"),
    ] {
        let mut all = vec!["--ephemeral", "--bind-address", "127.0.0.1:0"];
        all.extend_from_slice(arguments);
        let (code, said) = kubegc(&all);
        assert!(code == Some(2) && said.contains(expected), "{arguments:?}: {code:?} {said}");
    }
}

/// As described in docs/run.md, even before any pause: orders are annotations of a Lease, which exists from the start.
#[test]
fn kubectl_pauses_and_resumes_by_an_annotation_alone() {
    let Some(up) = Up::start(&[]) else { return };
    let annotate = |value: &str| {
        up.run(&["-n", "kube-system", "annotate", "lease", "kubegc-garbage-collector", value]);
    };
    let is_in = |state: &str| {
        let overview: Value =
            serde_json::from_str(&up.run(&["get", "--raw", "/kubegc/v1/overview"])).unwrap();
        overview["mode"]["state"] == state
    };
    annotate("kubegc.io/paused=true");
    up.until("the pause", || is_in("Paused"));
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "no-such-uid"});
    up.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "stray", "ownerReferences": [owner]}}));
    assert!(up.exists("cm/stray"));
    annotate("kubegc.io/paused-");
    up.until_gone("cm/stray");
    // A Lease that is deleted by hand, as by a reset, is created again.
    up.run(&["-n", "kube-system", "delete", "lease", "kubegc-garbage-collector"]);
    up.until("another Lease", || {
        up.run(&["-n", "kube-system", "get", "leases", "-o", "name"]).contains("kubegc-garbage-collector")
    });
    annotate("kubegc.io/paused=true");
    up.until("the next pause", || is_in("Paused"));
}
