//! The visibility of `kubegc recorder`: kinds that it does not record, and its errors, appear in its metrics, its Lease and `kubegc
//! doctor`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use http::Method;
use serde_json::{Value, json};

use crate::support::{Kubegc, Signal, collection_of};
use crate::support_cluster::{Admin, MAPS, kubegc, manifests, until};

/// Lease that these recorders renew.
const LEASE: &str = "kube-system/kubegc-recorder";
const LEASE_PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kubegc-recorder";
/// Keys of a user of a bucket.
pub(super) const AWS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];

/// A running `kubegc recorder`, killed when dropped.
pub(super) struct Recorder {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Recorder {
    /// Starts a recorder with these flags, as the administrator unless they select another user.
    pub(super) fn start(server: &Kubegc, records: &Path, flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubegc"))
            .args(["recorder", "--log-level=debug", "--records"])
            .arg(records)
            .args(flags)
            .env("KUBECONFIG", &server.kubeconfig)
            .envs(AWS)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::<Mutex<String>>::default();
        let written = Arc::clone(&log);
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| {
                let mut log = written.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            });
        });
        Self { child, log }
    }

    pub(super) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Returns a page of its listener.
    fn page(&self, path: &str) -> String {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("metrics and health")).unwrap();
        let address = line.split_once("address=").unwrap().1.split_whitespace().next().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    pub(super) fn is_ready(&self) -> bool {
        self.log().contains("metrics and health") && self.page("/readyz").starts_with("HTTP/1.1 200")
    }

    /// Reports whether its metrics contain this line.
    fn metric(&self, line: &str) -> bool {
        self.page("/metrics").lines().any(|shown| shown == line)
    }

    /// Ends the recorder as an operator does.
    pub(super) fn end(mut self) -> ExitStatus {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }

    /// Waits until the recorder has ended by itself.
    fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a directory for records, and flags with a policy, metrics and the Lease.
fn flags(server: &Kubegc, policy: &str) -> Vec<String> {
    let file = server.folder.path().join("recorder.yaml");
    std::fs::write(&file, policy).unwrap();
    vec![
        format!("--policy={}", file.display()),
        "--metrics-bind-address=127.0.0.1:0".to_owned(),
        format!("--lease={LEASE}"),
    ]
}

fn started(server: &Kubegc, policy: &str, more: &[&str]) -> Recorder {
    let flags = flags(server, policy);
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Recorder::start(server, &server.folder.path().join("records"), &flags)
}

/// Returns the findings of `kubegc doctor` about recorders: state and message.
fn findings(server: &Kubegc) -> Vec<(String, String)> {
    let (_, out, error) = kubegc(&["doctor", "-o", "json", "--no-collector"], &server.kubeconfig);
    let answer: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
    let items = answer["items"].as_array().unwrap().iter();
    let text = |item: &Value, field: &str| item[field].as_str().unwrap().to_owned();
    let about = items.filter(|item| item["check"] == "recorder");
    about.map(|item| (text(item, "state"), text(item, "message"))).collect()
}

fn says(server: &Kubegc, state: &str, part: &str) -> bool {
    findings(server).iter().any(|(found, message)| found == state && message.contains(part))
}

/// Lets a user list and watch these resources of the core group, and renew the Lease.
fn permit(admin: &Admin, user: &str, resources: &[&str]) {
    let role = |kind: &str, rules: Value| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": user, "namespace": if kind == "Role" { json!("kube-system") } else { Value::Null }},
            "rules": rules})
    };
    let lists = json!([{"apiGroups": [""], "resources": resources, "verbs": ["list", "watch"]}]);
    let renews = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "patch"]}]);
    for (kind, rules) in [("ClusterRole", lists), ("Role", renews)] {
        let object = role(kind, rules);
        admin.create(&collection_of(&object), &object);
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
            "metadata": object["metadata"],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        admin.create(&collection_of(&binding), &binding);
    }
}

/// One resource is misspelt and another one forbidden: both are named at once in the log, metrics, Lease and doctor, and the
/// remaining ones are recorded. Permissions that are added or removed later count without a restart.
#[test]
fn what_a_recorder_does_not_record_is_said_everywhere() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    permit(&admin, "recorder", &["configmaps"]);
    assert_eq!(findings(&server), [], "nothing is said of a recorder that nobody has started or needs");
    let policy = "resources: [configmap, configmaps, services]\n";
    let recorder = started(&server, policy, &["--as=recorder"]);
    let gap = |resource: &str, reason: &str| {
        format!("kubegc_recorder_unrecorded{{resource=\"{resource}\",reason=\"{reason}\"}} 1")
    };
    until("it has begun", || recorder.is_ready());
    until("the gaps are metrics", || {
        recorder.metric(&gap("configmap", "NotServed")) && recorder.metric(&gap("services", "Forbidden"))
    });
    until("one of three is recorded", || recorder.metric("kubegc_recorder_resources 1"));
    let log = recorder.log();
    assert!(log.contains("the policy names what the server does not serve"), "{log}");
    assert!(log.contains("this account may not list or watch it"), "{log}");
    until("the Lease says so", || {
        let lease = admin.get(LEASE_PATH).1;
        lease["metadata"]["annotations"]["kubegc.io/not-recorded"] == "configmap=NotServed,services=Forbidden"
    });
    assert!(
        says(&server, "wrong", "deletions of configmap are not recorded: NotServed"),
        "{:?}",
        findings(&server)
    );
    assert!(
        says(&server, "wrong", "deletions of services are not recorded: Forbidden"),
        "{:?}",
        findings(&server)
    );

    // Resources that may be listed are recorded, and counted.
    admin.map("lost", None);
    admin.delete("lost", "Background");
    until("it is counted", || recorder.metric("kubegc_recorder_records_total{resource=\"configmaps\"} 1"));
    assert!(!recorder.metric("kubegc_recorder_last_write_timestamp_seconds 0"));

    let rights = |resources: Value| {
        let rules =
            json!({"rules": [{"apiGroups": [""], "resources": resources, "verbs": ["list", "watch"]}]});
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/recorder";
        assert_eq!(admin.send(Method::PATCH, path, &rules).0, 200);
    };
    rights(json!(["configmaps", "services"]));
    until("it records what it may list now", || recorder.metric("kubegc_recorder_resources 2"));
    assert!(!recorder.metric(&gap("services", "Forbidden")));
    assert!(recorder.end().success());
}

/// A recorder that would record nothing ends with an error, and its Lease and doctor explain why it does not run.
#[test]
fn a_recorder_that_would_record_nothing_ends_and_is_not_forgotten() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    permit(&admin, "recorder", &["pods"]);
    let mut recorder = started(&server, "resources: [configmap, configmaps]\n", &["--as=recorder"]);
    assert!(!recorder.wait().success());
    until("its log is complete", || recorder.log().contains("nothing would be recorded"));
    let annotations = admin.get(LEASE_PATH).1["metadata"]["annotations"].clone();
    let error = annotations["kubegc.io/recorder-error"].as_str().unwrap();
    assert!(error.contains(" Stopped: nothing would be recorded"), "{annotations}");
    assert_eq!(annotations["kubegc.io/recorded"], "");
    // It renews the Lease at its end: until the Lease is old, doctor names the missing resources; after that, it reports that no
    // recorder runs.
    assert!(says(&server, "wrong", "configmap are not recorded: NotServed"), "{:?}", findings(&server));
    let old = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
    assert_eq!(admin.send(Method::PATCH, LEASE_PATH, &old).0, 200);
    assert!(
        says(
            &server,
            "wrong",
            "no recorder renews lease kube-system/kubegc-recorder: it was renewed last at 2026-01-01T00:00:00Z; its last error:"
        ),
        "{:?}",
        findings(&server)
    );
}

/// A policy that deletes unused objects needs a recorder: without one, or with one that records other kinds, doctor reports it as a
/// failure.
#[test]
fn doctor_says_which_policy_waits_for_a_recorder() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    for definition in manifests("deploy/crds", &["retentionpolicies.yaml"]) {
        admin.create(&collection_of(&definition), &definition);
    }
    let policy = json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy", "metadata": {"name": "unused-maps"},
        "spec": {"target": {"apiVersion": "v1", "kind": "ConfigMap"}, "unused": {"for": "168h"}}});
    let policies = "/apis/kubegc.io/v1alpha1/retentionpolicies";
    until("the policy is served", || [201, 409].contains(&admin.send(Method::POST, policies, &policy).0));
    assert!(
        says(
            &server,
            "wrong",
            "there is no lease kube-system/kubegc-recorder: 1 policy deletes what is unused only while it is renewed (unused-maps)"
        ),
        "{:?}",
        findings(&server)
    );
    // One namespace is excluded, so not every deletion is recorded.
    let partly = "resources: [configmaps]\nnamespaces: {exclude: [kube-system]}\n";
    let recorder = started(&server, partly, &[]);
    until("it runs", || says(&server, "wrong", "does not record every deletion of ConfigMap"));
    assert!(recorder.end().success());
    let recorder = started(&server, "resources: [configmaps]\n", &[]);
    until("all are recorded", || says(&server, "ok", "deletions of 1 kind are recorded"));
    assert!(recorder.end().success());
}

/// On a full disk the oldest records are deleted first, and the new one is written; the log, metrics and doctor report the loss.
#[test]
fn a_full_disk_prunes_first_and_is_reported() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let records = server.folder.path().join("records");
    std::fs::create_dir(&records).unwrap();
    // The next file is on a disk that accepts nothing until the older files have made room.
    let newest = jiff::Timestamp::now().as_millisecond() + 365 * 86_400_000;
    for number in 0..2 {
        std::fs::write(records.join(format!("deleted-{}.jsonl", newest - number)), "-\n").unwrap();
    }
    std::os::unix::fs::symlink("/dev/full", records.join(format!("deleted-{}.jsonl", newest + 1))).unwrap();
    let recorder = started(&server, "resources: [configmaps]\n", &[]);
    until("it records", || recorder.is_ready() && recorder.metric("kubegc_recorder_resources 1"));
    let body = json!({"metadata": {"name": "lost"}, "data": {"k": "v"}});
    admin.create(MAPS, &body);
    admin.delete("lost", "Background");
    until("it is recorded", || recorder.metric("kubegc_recorder_records_total{resource=\"configmaps\"} 1"));
    assert!(recorder.metric("kubegc_recorder_errors_total{error=\"DiskFull\"} 2"), "{}", recorder.log());
    assert!(recorder.log().contains("the oldest records were removed"), "{}", recorder.log());
    until("doctor says so", || says(&server, "wrong", "DiskFull: "));
    assert!(recorder.end().success());
    let (code, out, error) =
        kubegc(&["undo", "cm/lost", "--records", records.to_str().unwrap(), "--yes"], &server.kubeconfig);
    assert!(code == Some(0) && admin.exists("lost"), "{out}{error}");
}
