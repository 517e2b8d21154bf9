//! The real kubectl against the embedded server.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

#[path = "support/aws.rs"]
mod aws;
#[path = "kubectl/chains.rs"]
mod chains;
#[path = "kubectl/collectors.rs"]
mod collectors;
#[path = "../../gc-external/tests/support/driver.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests of gc-external")]
mod driver;
#[path = "../../gc-cri/tests/support/grpc.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests of gc-cri and gc-external")]
mod grpc;
#[path = "kubectl/machines.rs"]
mod machines;
#[path = "kubectl/pasted.rs"]
mod pasted;
#[path = "kubectl/protection.rs"]
mod protection;
#[path = "../../gc-inspect/tests/cluster/situations/shared/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    clippy::needless_pass_by_value,
    reason = "shared with the tests of gc-inspect"
)]
mod situations;
#[path = "kubectl/storage.rs"]
mod storage;
mod support;
#[path = "kubectl/switches.rs"]
mod switches;
#[path = "kubectl/workloads.rs"]
mod workloads;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::{Kubegc, kubectl_minor_version};

/// Returns a running server and the kubectl of this machine; `None`, with a clear message, if there is no kubectl.
fn server() -> Option<Kubegc> {
    server_of("apiserver")
}

fn server_of(subcommand: &str) -> Option<Kubegc> {
    kubectl_is_there().then(|| Kubegc::start(subcommand))
}

fn kubectl_is_there() -> bool {
    let found = Command::new("kubectl")
        .args(["version", "--client"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "kubectl is not on PATH, and CI must have it");
        eprintln!("SKIPPED: kubectl is not on PATH");
    }
    found
}

struct Outcome {
    success: bool,
    out: String,
    err: String,
}

/// Flags that the kubectl of Debian 12 (1.20), which scripts/setup installs if there is none, does not know.
const RECENT_FLAGS: [&str; 3] = ["--subresource", "--for=jsonpath", "--validate=strict"];

fn run(server: &Kubegc, arguments: &[&str], input: &str) -> Outcome {
    let recent = arguments.iter().find(|word| RECENT_FLAGS.iter().any(|flag| word.starts_with(flag)));
    assert_eq!(recent, None, "Debian's kubectl does not know this flag");
    let mut child = Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(&server.kubeconfig)
        .args(arguments)
        .env("HOME", server.folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Outcome {
        success: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Reports whether `kubectl wait --for=delete` found the object gone. An old kubectl fails if there is nothing to wait for.
fn is_gone(outcome: &Outcome) -> bool {
    let nothing = outcome.err.contains("NotFound") || outcome.err.contains("no matching resources found");
    outcome.success || (kubectl_minor_version() < 28 && nothing)
}

/// Runs kubectl, which must succeed; returns its output.
fn kubectl(server: &Kubegc, arguments: &[&str], input: &str) -> String {
    let outcome = run(server, arguments, input);
    assert!(outcome.success, "kubectl {arguments:?}: {}{}", outcome.out, outcome.err);
    outcome.out
}

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, labels: {app: shop}}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
      - {name: web, image: 'nginx:1', ports: [{containerPort: 80}]}
";

const CUSTOM: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: What the widget should be.
            properties: {size: {type: integer, description: How large it is.}}
";

#[test]
fn objects_are_created_applied_and_shown() {
    let Some(server) = server() else { return };
    kubectl(&server, &["create", "configmap", "settings", "--from-literal=a=1"], "");
    let again = run(&server, &["create", "configmap", "settings"], "");
    assert!(!again.success && again.err.contains("already exists"), "{}", again.err);

    let applied = kubectl(&server, &["apply", "-f", "-"], DEPLOYMENT);
    assert_eq!(applied.trim(), "deployment.apps/shop created");
    let unchanged = kubectl(&server, &["apply", "-f", "-"], DEPLOYMENT);
    assert_eq!(unchanged.trim(), "deployment.apps/shop unchanged");
    let changed = kubectl(&server, &["apply", "-f", "-"], &DEPLOYMENT.replace("replicas: 2", "replicas: 3"));
    assert_eq!(changed.trim(), "deployment.apps/shop configured");
    let misspelt = run(&server, &["apply", "-f", "-"], &DEPLOYMENT.replace("replicas: 2", "replicsa: 2"));
    assert!(!misspelt.success && misspelt.err.contains("unknown field"), "{}", misspelt.err);

    let table = kubectl(&server, &["get", "deployments"], "");
    assert!(table.starts_with("NAME   READY   UP-TO-DATE   AVAILABLE   AGE\nshop   0/3"), "{table}");
    let wide = kubectl(&server, &["get", "deploy", "-o", "wide"], "");
    assert!(wide.contains("CONTAINERS") && wide.contains("nginx:1"), "{wide}");
    assert_eq!(kubectl(&server, &["get", "deploy", "-o", "name"], "").trim(), "deployment.apps/shop");
    let object: Value =
        serde_json::from_str(&kubectl(&server, &["get", "deploy", "shop", "-o", "json"], "")).unwrap();
    assert_eq!(object["spec"]["replicas"], 3);
    let yaml = kubectl(&server, &["get", "deploy", "shop", "-o", "yaml"], "");
    assert!(yaml.contains("image: nginx:1"), "{yaml}");
    for (form, want) in [
        ("jsonpath={.spec.replicas}", "3"),
        ("go-template={{.spec.replicas}}", "3"),
        ("custom-columns=N:.metadata.name,R:.spec.replicas", "N      R\nshop   3\n"),
    ] {
        assert_eq!(kubectl(&server, &["get", "deploy", "shop", "-o", form], ""), want);
    }
    let chosen = ["get", "deploy", "--field-selector=metadata.name=shop", "--show-labels", "--no-headers"];
    assert!(kubectl(&server, &chosen, "").trim_end().ends_with("app=shop"));
    let described = kubectl(&server, &["describe", "deployment", "shop"], "");
    assert!(described.contains("Replicas:") && described.contains("nginx:1"), "{described}");
    kubectl(&server, &["scale", "deployment", "shop", "--replicas=5"], "");
    assert_eq!(kubectl(&server, &["get", "deploy", "shop", "-o", "jsonpath={.spec.replicas}"], ""), "5");
    kubectl(&server, &["label", "deployment", "shop", "tier=front"], "");
    assert_eq!(
        kubectl(&server, &["get", "deploy", "-l", "tier=front", "-o", "name"], "").trim(),
        "deployment.apps/shop"
    );
    kubectl(&server, &["get", "all", "-A"], "");
}

#[test]
fn server_side_apply_keeps_managers_apart() {
    let Some(server) = server() else { return };
    let body = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": {"k": value}})
            .to_string()
    };
    let one = ["apply", "--server-side", "--field-manager=one", "-f", "-"];
    let two = ["apply", "--server-side", "--field-manager=two", "-f", "-"];
    assert_eq!(kubectl(&server, &one, &body("a")).trim(), "configmap/s serverside-applied");
    let conflict = run(&server, &two, &body("b"));
    assert!(!conflict.success && conflict.err.contains("conflict"), "{}", conflict.err);
    let mut forced = two.to_vec();
    forced.push("--force-conflicts");
    kubectl(&server, &forced, &body("b"));
    assert_eq!(kubectl(&server, &["get", "cm", "s", "-o", "jsonpath={.data.k}"], ""), "b");
}

#[test]
fn custom_resources_are_served_shown_and_explained() {
    let Some(server) = server() else { return };
    kubectl(&server, &["apply", "-f", "-"], CUSTOM);
    kubectl(
        &server,
        &["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=10s"],
        "",
    );
    kubectl(
        &server,
        &["apply", "-f", "-"],
        "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 5}\n",
    );
    let table = kubectl(&server, &["get", "wd"], "");
    assert_eq!(table.split_whitespace().collect::<Vec<_>>(), ["NAME", "SIZE", "w", "5"]);
    let explained = kubectl(&server, &["explain", "widgets.spec.size"], "");
    assert!(explained.contains("How large it is."), "{explained}");
    kubectl(&server, &["delete", "crd", "widgets.example.com", "--timeout=20s"], "");
    assert!(!run(&server, &["get", "wd"], "").success);
}

#[test]
fn discovery_explain_and_permissions_answer() {
    let Some(server) = server() else { return };
    let resources = kubectl(&server, &["api-resources"], "");
    for line in ["deployments", "leases", "customresourcedefinitions", "endpointslices"] {
        assert!(resources.contains(line), "{line} in {resources}");
    }
    assert!(kubectl(&server, &["api-versions"], "").contains("apps/v1"));
    assert!(kubectl(&server, &["explain", "pod.spec.containers"], "").contains("FIELDS"));
    assert!(kubectl(&server, &["explain", "deployment", "--recursive"], "").contains("replicas"));
    assert!(kubectl(&server, &["version"], "").contains("v1.36.2"));
    assert_eq!(kubectl(&server, &["auth", "can-i", "delete", "pods"], "").trim(), "yes");
    let no = run(&server, &["auth", "can-i", "delete", "pods", "--as", "stranger"], "");
    assert_eq!((no.success, no.out.trim()), (false, "no"));
    assert!(kubectl(&server, &["auth", "can-i", "--list"], "").contains("*.*"));
    kubectl(&server, &["create", "serviceaccount", "robot"], "");
    if kubectl_minor_version() >= 28 {
        assert!(kubectl(&server, &["auth", "whoami"], "").contains("kubegc-admin"));
        assert!(kubectl(&server, &["create", "token", "robot"], "").starts_with("ey"));
        kubectl(&server, &["events"], "");
    }
    kubectl(&server, &["create", "role", "r", "--verb=get", "--resource=pods"], "");
    kubectl(&server, &["create", "rolebinding", "b", "--role=r", "--serviceaccount=default:robot"], "");
    kubectl(&server, &["get", "events"], "");
    kubectl(&server, &["get", "--raw", "/readyz?verbose"], "");
}

#[test]
fn kinds_of_another_version_are_explained_applied_and_shown() {
    if !kubectl_is_there() {
        return;
    }
    let server = Kubegc::start_with("apiserver", ["--ephemeral", "--kubernetes-version=1.37"]);
    assert!(kubectl(&server, &["version"], "").contains("v1.37.0"));
    let explained = kubectl(&server, &["explain", "storageversionmigration.spec.resource"], "");
    assert!(explained.contains("The resource that is being migrated"), "{explained}");
    let migration = json!({
        "apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
        "metadata": {"name": "secrets"}, "spec": {"resource": {"group": "", "resource": "secrets"}},
    });
    let text = migration.to_string();
    kubectl(&server, &["apply", "--server-side", "-f", "-"], &text);
    kubectl(&server, &["apply", "--server-side", "-f", "-"], &text);
    let table = kubectl(&server, &["get", "storageversionmigrations", "--no-headers"], "");
    assert!(table.starts_with("secrets "), "{table}");
    kubectl(&server, &["delete", "storageversionmigration", "secrets"], "");
}

#[test]
fn watching_waiting_and_deleting_work() {
    let Some(server) = server() else { return };
    kubectl(&server, &["create", "configmap", "a"], "");
    let mut watcher = Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(&server.kubeconfig)
        .args(["get", "configmaps", "-w", "-o", "name"])
        .env("HOME", server.folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.by_ref().any(|line| line == "configmap/a"));
    kubectl(&server, &["create", "configmap", "b"], "");
    assert!(lines.any(|line| line == "configmap/b"));
    let _ = watcher.kill();
    let _ = watcher.wait();

    // Deletion by each policy; foreground and orphan deletions wait for the collector, which does not run here.
    assert!(kubectl(&server, &["delete", "configmap", "a", "--cascade=background"], "").contains("deleted"));
    for (policy, finalizer) in [("foreground", "foregroundDeletion"), ("orphan", "orphan")] {
        kubectl(&server, &["create", "configmap", policy], "");
        kubectl(
            &server,
            &["delete", "configmap", policy, "--wait=false", &format!("--cascade={policy}")],
            "",
        );
        let path = "jsonpath={.metadata.finalizers[0]}";
        assert_eq!(kubectl(&server, &["get", "configmap", policy, "-o", path], ""), finalizer);
        let waiting =
            run(&server, &["wait", "--for=delete", &format!("configmap/{policy}"), "--timeout=100ms"], "");
        assert!(!waiting.success, "{policy} is not gone yet");
        kubectl(
            &server,
            &["patch", "configmap", policy, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#],
            "",
        );
        let gone =
            run(&server, &["wait", "--for=delete", &format!("configmap/{policy}"), "--timeout=5s"], "");
        assert!(is_gone(&gone), "{}", gone.err);
    }
    kubectl(&server, &["run", "p", "--image=i"], "");
    let described = kubectl(&server, &["describe", "pod", "p"], "");
    assert!(described.contains("Image:"), "{described}");
    kubectl(&server, &["delete", "pod", "p", "--now"], "");
    kubectl(&server, &["create", "namespace", "n"], "");
    kubectl(&server, &["get", "ns"], "");
}

/// With the collector, kubectl waits for the objects that it deletes, and each policy leaves the objects that it should.
#[test]
fn each_cascade_ends_as_it_should() {
    let Some(server) = kubectl_is_there().then(Kubegc::start_collectors) else { return };
    for (policy, left) in [("background", ""), ("foreground", ""), ("orphan", "configmap/dependent\n")] {
        kubectl(&server, &["create", "configmap", "owner"], "");
        let uid = kubectl(&server, &["get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}"], "");
        let dependent = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "dependent", "ownerReferences": [{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": true,
            }]},
        });
        kubectl(&server, &["create", "-f", "-"], &dependent.to_string());
        let cascade = format!("--cascade={policy}");
        kubectl(&server, &["delete", "configmap", "owner", &cascade, "--timeout=20s"], "");
        if policy == "background" {
            let wait = ["wait", "--for=delete", "configmap/dependent", "--timeout=20s"];
            let outcome = run(&server, &wait, "");
            assert!(is_gone(&outcome), "{}", outcome.err);
        }
        assert_eq!(kubectl(&server, &["get", "configmaps", "-o", "name"], ""), left, "{policy}");
        let references = ["get", "configmaps", "-o", "jsonpath={.items[*].metadata.ownerReferences}"];
        assert_eq!(kubectl(&server, &references, ""), "", "{policy}");
    }
    // A namespace is deleted with everything in it, and kubectl waits for that.
    kubectl(&server, &["create", "namespace", "shop"], "");
    kubectl(&server, &["-n", "shop", "create", "configmap", "stock"], "");
    kubectl(&server, &["delete", "namespace", "shop", "--timeout=20s"], "");
    assert!(!run(&server, &["-n", "shop", "get", "configmap", "stock"], "").success);
}

/// Maximum time of a collector for immediate work.
const PATIENCE: std::time::Duration = std::time::Duration::from_mins(1);

/// Returns a server with all collectors, including the expiry of annotated objects.
fn up() -> Option<Kubegc> {
    kubectl_is_there().then(|| {
        Kubegc::start_with("up", ["--ephemeral", "--workloads=off", "--controllers", "*,expiry-controller"])
    })
}

/// Waits until an object is gone.
fn until_gone(server: &Kubegc, object: &str) {
    until(server, &["get", object, "--ignore-not-found", "-o", "name"], str::is_empty);
}

/// Asks kubectl until the output fits; fails with its last output.
fn until(server: &Kubegc, arguments: &[&str], fits: impl Fn(&str) -> bool) -> String {
    let begun = std::time::Instant::now();
    loop {
        let said = run(server, arguments, "").out;
        if fits(&said) {
            return said;
        }
        assert!(begun.elapsed() < PATIENCE, "kubectl {arguments:?} says: {said}");
    }
}

const ANNOTATED: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: soon, annotations: {kubegc.io/ttl: 1s}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: past, annotations: {kubegc.io/expires-at: '2020-01-01T00:00:00Z'}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, annotations: {kubegc.io/ttl: 1s, kubegc.io/keep: 'true'}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: wrong, annotations: {kubegc.io/ttl: 1y}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: finished, annotations: {kubegc.io/ttl: 1s}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: running, annotations: {kubegc.io/ttl: 1s}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
";

#[test]
fn annotated_objects_expire() {
    let Some(server) = up() else { return };
    kubectl(&server, &["create", "-f", "-"], ANNOTATED);
    let mut job: Value =
        serde_json::from_str(&kubectl(&server, &["get", "job", "finished", "-o", "json"], "")).unwrap();
    job["status"] = json!({"startTime": "2026-01-01T00:00:00Z", "conditions": [
        {"type": "FailureTarget", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"},
        {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"},
    ]});
    let path = "/apis/batch/v1/namespaces/default/jobs/finished/status";
    kubectl(&server, &["replace", "--raw", path, "-f", "-"], &job.to_string());
    for gone in ["configmap/soon", "configmap/past", "job/finished"] {
        until_gone(&server, gone);
    }
    let message = until(
        &server,
        &[
            "get",
            "events",
            "--field-selector",
            "reason=InvalidRetentionAnnotation",
            "-o",
            "jsonpath={.items[*].message}",
        ],
        |said| !said.is_empty(),
    );
    assert_eq!(
        message,
        "annotation kubegc.io/ttl: \"1y\" has the unknown unit \"y\"; expected one of ns, us, ms, s, m, h, d, w"
    );
    let left =
        kubectl(&server, &["get", "configmap/kept", "configmap/wrong", "job/running", "-o", "name"], "");
    assert_eq!(left.split_whitespace().count(), 3, "{left}");

    // A kept object outlives the removal of the annotation only by its time to live, and is deleted with its owner whatever the
    // annotation says.
    let owner = kubectl(&server, &["get", "configmap", "wrong", "-o", "jsonpath={.metadata.uid}"], "");
    let dependent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "dependent", "annotations": {"kubegc.io/keep": "true"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "wrong", "uid": owner}],
    }});
    kubectl(&server, &["create", "-f", "-"], &dependent.to_string());
    kubectl(&server, &["delete", "configmap", "wrong"], "");
    until_gone(&server, "configmap/dependent");
    kubectl(&server, &["annotate", "configmap", "kept", "kubegc.io/keep-"], "");
    until_gone(&server, "configmap/kept");
}

const POLICY: &str = "
apiVersion: kubegc.io/v1alpha1
kind: RetentionPolicy
metadata: {name: newest}
spec:
  target: {apiVersion: v1, kind: ConfigMap}
  selector: {matchLabels: {app: web}}
  condition: has(object.data.stale) && object.data.stale == 'yes'
  keepNewest: {count: 2, per: Namespace}
";

#[test]
fn a_policy_shows_what_would_go_and_then_lets_it_go() {
    let Some(server) = up() else { return };
    for number in 1..=5 {
        let name = format!("c{number}");
        kubectl(&server, &["create", "configmap", &name, "--from-literal=stale=yes"], "");
        kubectl(&server, &["label", "configmap", &name, "app=web"], "");
    }
    let kept = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"stale": "yes"}, "metadata": {
        "name": "kept", "labels": {"app": "web"}, "annotations": {"kubegc.io/keep": "true"}}});
    kubectl(&server, &["create", "-f", "-"], &kept.to_string());
    kubectl(&server, &["create", "configmap", "fresh", "--from-literal=stale=no"], "");
    kubectl(&server, &["label", "configmap", "fresh", "app=web"], "");
    kubectl(&server, &["create", "-f", "-"], POLICY);
    let wait = |path: &str, value: &str| {
        let path = format!("jsonpath={path}");
        until(&server, &["get", "retentionpolicy", "newest", "-o", &path], |said| said == value);
    };
    wait("{.status.due}", "3");
    let status = |path: &str| {
        kubectl(&server, &["get", "retentionpolicy", "newest", "-o", &format!("jsonpath={path}")], "")
    };
    assert_eq!(status("{.status.selected} {.status.kept} {.status.deleted}"), "5 1 0");
    assert_eq!(status("{.status.examples[*].name}"), "c1 c2 c3");
    assert_eq!(status("{.status.conditions[?(@.type==\"Enforced\")].reason}"), "DryRun");
    let names = || {
        let names = kubectl(&server, &["get", "configmaps", "-l", "app=web", "-o", "name"], "");
        names
            .split_whitespace()
            .map(|name| name.trim_start_matches("configmap/").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names().len(), 7);

    kubectl(&server, &["patch", "rp", "newest", "--type=merge", "-p", "{\"spec\":{\"enforce\":true}}"], "");
    wait("{.status.deleted}", "3");
    assert_eq!(names(), ["c4", "c5", "fresh", "kept"]);
    wait("{.status.due}", "0");
    assert_eq!(status("{.status.conditions[?(@.type==\"Enforced\")].status}"), "True");
    let table = kubectl(&server, &["get", "rp"], "");
    assert!(table.starts_with("NAME     TARGET      VALID   ENFORCED   SELECTED   DUE   DELETED   AGE\nnewest   ConfigMap   True    True       2          0     3 "), "{table}");
}

#[test]
fn a_bad_policy_says_what_is_wrong_and_deletes_nothing() {
    let Some(server) = up() else { return };
    kubectl(&server, &["create", "configmap", "a"], "");
    // The server refuses an object that the schema forbids at once.
    let impossible = run(&server, &["create", "-f", "-"], &POLICY.replace("per: Namespace", "per: Galaxy"));
    assert!(
        !impossible.success && impossible.err.contains("Unsupported value: \"Galaxy\""),
        "{}",
        impossible.err
    );
    let policy = |name: &str, more: &str| {
        format!(
            "---\n{{apiVersion: kubegc.io/v1alpha1, kind: RetentionPolicy, metadata: {{name: {name}}}, \
             spec: {{enforce: true, {more}}}}}"
        )
    };
    let config_maps = "target: {apiVersion: v1, kind: ConfigMap}";
    for (name, more, expected) in [
        ("years", "maxAge: 1y", "spec.maxAge"),
        ("nothing", "schedule: \"@daily\"", "at least one of keepNewest, maxAge and ttlAfter is required"),
        ("syntax", "maxAge: 1d, condition: \"object.a ==\"", "spec.condition: Invalid value: "),
        ("time", "maxAge: 1d, schedule: \"60 * * * *\"", "end of range (60) above maximum (59): 60"),
    ] {
        let refused = run(&server, &["create", "-f", "-"], &policy(name, &format!("{config_maps}, {more}")));
        assert!(!refused.success && refused.err.contains(expected), "{name}: {}", refused.err);
    }
    let unserved = "target: {apiVersion: example.com/v1, kind: Widget}, maxAge: 1s";
    kubectl(&server, &["create", "-f", "-"], &policy("unserved", unserved));
    let path = "jsonpath={.status.conditions[?(@.type==\"Observing\")].message}";
    until(&server, &["get", "rp", "unserved", "-o", path], |said| {
        said == "the server serves no Widget in example.com/v1"
    });
    // A kind that is defined later is found.
    kubectl(&server, &["create", "-f", "-"], CUSTOM);
    let widget = "---\n{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}";
    until(
        &server,
        &[
            "get",
            "crd",
            "widgets.example.com",
            "-o",
            "jsonpath={.status.conditions[?(@.type==\"Established\")].status}",
        ],
        |said| said == "True",
    );
    kubectl(&server, &["create", "-f", "-"], widget);
    until_gone(&server, "widget/w");
    kubectl(&server, &["get", "configmap", "a"], "");
}
