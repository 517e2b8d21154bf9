//! Compares the manifests, chart, alerts and dashboard with the code, and with a server.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use http::Method;
use serde_json::{Value, json};

use super::chart::{assert_shards, rendered_chart};
use super::others::finished_job;
use crate::support::{Kubegc, collection_of, kubectl_minor_version, repository};
use crate::support_cluster::{Admin, Run, manifests, privileged_for, until};

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

pub(crate) fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Returns the permissions that the command prints.
pub(crate) fn rbac(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kubegc")).arg("rbac").args(arguments).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_permissions_are_those_that_the_code_asks_for() {
    assert_eq!(
        read("deploy/run/rbac.yaml"),
        rbac(&[]),
        "deploy/run/rbac.yaml is not the output of kubegc rbac"
    );
    assert_eq!(read("deploy/node/policies.yaml"), rbac(&["--node-policies", "--namespace=kubegc"]));
    let jobs = ["--controllers=ttl-after-finished-controller", "--name=few", "--namespace=jobs"];
    let with_events = yaml(rbac(&jobs).split("---").next().unwrap());
    assert_eq!(
        with_events["rules"][0],
        yaml("{apiGroups: [''], resources: [events], verbs: [create, patch]}")
    );
    let few = rbac(&[jobs.as_slice(), &["--deletion-events=false"]].concat());
    let role = yaml(few.split("---").next().unwrap());
    assert_eq!(
        role["rules"],
        yaml(
            "[{apiGroups: [batch], resources: [jobs], verbs: [delete, list, watch]}, \
              {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}, \
              {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}]"
        )
    );
    assert_eq!(role["metadata"]["name"], "few");
    // Without the star, the Lease and the Event about it need rules of their own.
    let on_lease = yaml(few.split("---").nth(2).unwrap());
    assert_eq!(on_lease["rules"][1]["verbs"], yaml("[get, update, list, patch, watch]"));
    assert_eq!(on_lease["rules"][2], yaml("{apiGroups: [''], resources: [events], verbs: [create]}"));
}

/// First minor version of kubectl whose `apply -k` knows `labels`.
const KUSTOMIZES_LABELS: u32 = 22;

/// Runs a program. Returns `None` where it is missing, which CI must not do.
fn output_of(program: &str, arguments: &[&str]) -> Option<Output> {
    let output = Command::new(program).args(arguments).output();
    if output.is_err() {
        assert!(std::env::var_os("CI").is_none(), "{program} is not on PATH, and CI must have it");
        eprintln!("SKIPPED: {program} is not on PATH");
    }
    output.ok()
}

fn kubectl(arguments: &[&str]) -> Option<Output> {
    output_of("kubectl", arguments)
}

/// Reports whether kubectl is present and new enough for the manifests.
fn can_kustomize() -> bool {
    if kubectl(&["version", "--client"]).is_none() {
        return false;
    }
    let is_old = kubectl_minor_version() < KUSTOMIZES_LABELS;
    if is_old {
        eprintln!(
            "SKIPPED: kubectl is older than 1.{KUSTOMIZES_LABELS}, whose `apply -k` does not know `labels`"
        );
    }
    !is_old
}

/// A server with strict validation accepts the whole base, twice, and `kubegc run` works with the permissions that it grants.
#[test]
fn the_base_is_applied_to_a_server() {
    if !can_kustomize() {
        return;
    }
    let server = Kubegc::start_collectors();
    let base = repository().join("deploy/run");
    let config = format!("--kubeconfig={}", server.kubeconfig.display());
    for expected in ["created", "unchanged"] {
        // `true` means `strict`, and older versions of kubectl also accept it.
        let arguments = ["apply", "--validate=true", &config, "-k", base.to_str().unwrap()];
        let Some(output) = kubectl(&arguments) else { return };
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(out.lines().count(), 14, "{out}");
        // kubectl replaces the selector of a budget and the claim templates of a StatefulSet each time, as their schemas require,
        // and reports them as configured.
        let is_replaced =
            |line: &str| line.starts_with("poddisruptionbudget") || line.starts_with("statefulset");
        let as_expected = |line: &str| line.ends_with(expected) || is_replaced(line);
        assert!(out.lines().all(as_expected), "{out}");
    }
    // Everything in `deploy/` that needs neither an operator nor its own namespace is accepted at once, and so are the shards.
    for (folder, replicas) in [("deploy", "kubegc-recorder"), ("deploy/shards", "kubegc-shard-1")] {
        let all = repository().join(folder);
        let arguments =
            ["apply", "--dry-run=server", "--validate=true", &config, "-k", all.to_str().unwrap()];
        let Some(output) = kubectl(&arguments) else { return };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{folder}: {said}");
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(out.contains(&format!("statefulset.apps/{replicas}")), "{folder}: {out}");
    }
    let admin = Admin::of(&server);
    let replicas = admin.get("/apis/apps/v1/namespaces/kube-system/statefulsets/kubegc").1;
    assert_eq!(replicas["spec"]["replicas"], 2);
    // The arguments of the container are valid.
    let arguments = replicas["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    let arguments: Vec<&str> = arguments.iter().map(|argument| argument.as_str().unwrap()).collect();
    let output = Command::new(env!("CARGO_BIN_EXE_kubegc"))
        .args(&arguments)
        .args(["--kubeconfig=/nowhere/kubeconfig"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("/nowhere/kubeconfig"), "{said}");
    // The server accepts the chart as well.
    let Some(rendered) = rendered_chart(&["serviceMonitor.enabled=true", "dashboard.enabled=true"]) else {
        return;
    };
    for object in rendered.unwrap().iter().filter(|object| object["kind"] != "ServiceMonitor") {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", collection_of(object));
        let (code, answer) = admin.send(Method::POST, &path, object);
        assert!(code == 201 || code == 409, "{answer}");
    }
}

/// The overlay with shards has what the chart has with `shards`, and nothing of the collector without shards.
#[test]
fn the_manifests_start_every_shard() {
    if !can_kustomize() {
        return;
    }
    let folder = repository().join("deploy/shards");
    let Some(output) = kubectl(&["kustomize", folder.to_str().unwrap()]) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_shards(&serde_saphyr::from_multiple::<Value>(&text).unwrap(), 2);
}

/// Prometheus reads the alerts, and those about leaders and the circuit breaker fire when they should.
#[test]
fn the_alerts_fire_when_they_should() {
    for (check, file) in [
        ("check", "deploy/helm/kubegc/files/alerts.yaml"),
        ("test", "crates/kubegc/tests/attached/alerts.yaml"),
    ] {
        let file = repository().join(file);
        let arguments = [check, "rules", file.to_str().unwrap()];
        let Some(output) = output_of("promtool", &arguments) else { return };
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}

/// Returns the names of metrics in an expression: words with an underscore that are neither functions nor labels.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut in_quotes = false;
    let mut in_braces = false;
    let mut word = String::new();
    for c in expression.chars().chain([' ']) {
        match c {
            '"' => in_quotes = !in_quotes,
            '{' => in_braces = true,
            '}' => in_braces = false,
            _ => {}
        }
        if !in_quotes && (c.is_ascii_alphanumeric() || c == '_') {
            word.push(c);
            continue;
        }
        let done = std::mem::take(&mut word);
        let is_metric = ["kubegc_", "workqueue_", "garbagecollector_", "leader_election_"]
            .iter()
            .any(|prefix| done.starts_with(prefix));
        if is_metric && (!in_braces || c == '{') {
            names.insert(done);
        }
    }
    names
}

/// Returns the names that a page of metrics declares, in the form in which they are queried.
fn declared(page: &str) -> BTreeSet<String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.flat_map(|line| {
        let (name, kind) = line.split_once(' ').unwrap();
        match kind {
            "histogram" => ["bucket", "sum", "count"].map(|part| format!("{name}_{part}")).to_vec(),
            _ => vec![name.to_owned()],
        }
    });
    names.collect()
}

#[test]
fn every_metric_of_alerts_dashboard_and_manual_exists() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let journal = server.folder.path().join("journal");
    let flags = ["--journal", journal.to_str().unwrap(), "--breaker-max-deletions=2"];
    let account = privileged_for(&server, "garbagecollector,ttl-after-finished");
    let run =
        Run::with(&account, &[&flags[..], &["--controllers=garbagecollector,ttl-after-finished"]].concat());
    let root = admin.map("root", None);
    admin.map("leaf", Some(("root", &root)));
    until("it leads", || run.leads() && run.is_ready());
    // Its dependent is not deleted, so the owner waits, and is named after a while.
    let slow = admin.map("slow", None);
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "slow", "uid": slow, "blockOwnerDeletion": true});
    let held =
        json!({"metadata": {"name": "held", "finalizers": ["acme.dev/hold"], "ownerReferences": [owner]}});
    admin.create("/api/v1/namespaces/default/configmaps", &held);
    admin.delete("slow", "Foreground");
    admin.delete("root", "Foreground");
    until("the cascade is over", || !admin.exists("root"));
    // A series appears once it has a value: a collected Job, and a breaker that trips.
    for name in ["a", "b", "c"] {
        finished_job(&admin, name);
    }
    until("the breaker trips", || run.page("/metrics").contains("kubegc_breaker_tripped{"));
    let waiting = "kubegc_waiting_owner_seconds{owner_resource=\"configmaps\",owner_namespace=\"default\",owner_name=\"slow\"}";
    until("the owner that waits is named", || run.page("/metrics").contains(waiting));
    let declared = declared(&run.page("/metrics"));
    let mut wanted = BTreeSet::new();
    let rule = &manifests("deploy/monitoring", &["prometheusrule.yaml"])[0];
    for alert in rule["spec"]["groups"][0]["rules"].as_array().unwrap() {
        let found = metrics_of(alert["expr"].as_str().unwrap());
        assert!(!found.is_empty(), "{alert}");
        wanted.extend(found);
        for part in ["summary", "description"] {
            assert!(alert["annotations"][part].is_string(), "{alert}");
        }
    }
    let dashboard: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let found = metrics_of(target["expr"].as_str().unwrap());
            assert!(!found.is_empty(), "{target}");
            wanted.extend(found);
        }
    }
    assert!(wanted.len() > 15, "{wanted:?}");
    // Another process exports these, or a flag enables them; the reference lists them.
    let reference = read("docs/reference/metrics.md");
    let is_elsewhere = |name: &String| {
        let of_others = ["kubegc_recorder_", "kubegc_garbage_"];
        of_others.iter().any(|prefix| name.starts_with(prefix)) && reference.contains(&format!("`{name}`"))
    };
    wanted.retain(|name| !is_elsewhere(name));
    let missing: Vec<_> = wanted.difference(&declared).collect();
    assert!(missing.is_empty(), "{missing:?} are not among {declared:?}");
}

/// If a flag enables them, leftovers are metrics of the leader.
#[test]
fn leftovers_are_metrics_where_a_flag_asks_for_them() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let account = privileged_for(&server, "garbagecollector");
    admin.map("leftover", None);
    let run = Run::with(&account, &["--garbage-metrics-interval=1m"]);
    let certain =
        "kubegc_garbage_objects{kind=\"ConfigMap\",code=\"UnusedConfigMap\",certainty=\"Certain\"} 1";
    until("it is counted", || run.metric(certain));
    assert!(run.metric("kubegc_garbage_unseen 0") && run.metric("kubegc_garbage_look_failures_total 0"));
    let output = Command::new(env!("CARGO_BIN_EXE_kubegc"))
        .args(["run", "--garbage-metrics-interval=1s"])
        .arg("--kubeconfig")
        .arg(&account)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("1s is shorter than 60 s"), "{said}");
}

/// Alerts and panels about nodes and the recorder only use metrics of these processes that the reference lists.
#[test]
fn alerts_and_panels_about_nodes_and_the_recorder_name_metrics_that_there_are() {
    let reference = read("docs/reference/metrics.md");
    let mut wanted = BTreeSet::new();
    let rule = &manifests("deploy/monitoring", &["prometheusrule.yaml"])[0];
    let groups = rule["spec"]["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 3);
    for alert in groups[1..].iter().flat_map(|group| group["rules"].as_array().unwrap()) {
        wanted.extend(metrics_of(alert["expr"].as_str().unwrap()));
        for part in ["summary", "description"] {
            assert!(alert["annotations"][part].is_string(), "{alert}");
        }
    }
    let dashboard = read("deploy/monitoring/dashboard-node.json");
    assert_eq!(dashboard, read("deploy/helm/kubegc/files/dashboard-node.json"));
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            wanted.extend(metrics_of(target["expr"].as_str().unwrap()));
        }
    }
    assert!(wanted.len() > 4, "{wanted:?}");
    for metric in wanted {
        assert!(reference.contains(&format!("`{metric}`")), "{metric}");
    }
}
