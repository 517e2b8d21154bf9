//! Manifests, chart, alerts and dashboard against the code, and against a server.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use http::Method;
use serde_json::{Value, json};

use super::others::finished_job;
use crate::support::{Kubegc, collection_of, kubectl_minor_version, repository};
use crate::support_cluster::{Admin, Run, manifests, privileged_for, until};

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// What the command says that it needs.
fn rbac(arguments: &[&str]) -> String {
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

/// Every file under a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// The templates of the chart contain no other rules than those of `kubegc rbac`: what stands between `rules:` and
/// the next key is not templated.
#[test]
fn the_chart_grants_the_same() {
    let rules = |text: &str| -> Vec<Value> {
        let documents = text.split("\n---").filter(|document| document.contains("\nrules:"));
        documents
            .map(|document| {
                let block = document.split_once("\nrules:\n").unwrap().1;
                let end = block.find("{{").unwrap_or(block.len());
                yaml(&block[..end])
            })
            .collect()
    };
    let expected = rules(&rbac(&[]));
    assert_eq!(expected.len(), 2);
    assert_eq!(rules(&read("deploy/helm/kubegc/templates/rbac.yaml")), expected);
}

/// Every value that a template uses has a default, and every default has a schema.
#[test]
fn the_values_of_the_chart_are_complete() {
    let values = yaml(&read("deploy/helm/kubegc/values.yaml"));
    let schema: Value = serde_json::from_str(&read("deploy/helm/kubegc/values.schema.json")).unwrap();
    for file in files(&repository().join("deploy/helm/kubegc/templates")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for rest in text.split(".Values.").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
            let path = format!("/{}", rest[..end].replace('.', "/"));
            assert!(values.pointer(&path).is_some(), "{path} of {} has no default", file.display());
        }
    }
    fn check(values: &Value, schema: &Value, path: &str) {
        for (name, value) in values.as_object().into_iter().flatten() {
            let known = &schema["properties"][name];
            let path = format!("{path}/{name}");
            assert!(known.is_object(), "{path} is not in the schema");
            if known["properties"].is_object() {
                assert_eq!(known["additionalProperties"], false, "{path}");
                check(value, known, &path);
            }
        }
    }
    assert_eq!(schema["additionalProperties"], false);
    check(&values, &schema, "");
}

/// What the chart and the manifests share is the same.
#[test]
fn the_chart_says_what_the_manifests_say() {
    let rule = &manifests("deploy/monitoring", &["prometheusrule.yaml"])[0]["spec"];
    assert_eq!(*rule, yaml(&read("deploy/helm/kubegc/files/alerts.yaml")));
    assert_eq!(read("deploy/monitoring/dashboard.json"), read("deploy/helm/kubegc/files/dashboard.json"));
    let Some(rendered) = rendered_chart(&[]) else { return };
    let rendered = rendered.unwrap();
    for kind in ["PriorityLevelConfiguration", "StatefulSet", "PodDisruptionBudget"] {
        let of = |objects: &[Value]| {
            let object = objects.iter().find(|object| object["kind"] == kind).unwrap();
            let mut spec = object["spec"].clone();
            // Labels differ by the release; arguments by what only a chart can ask for.
            spec["selector"] = Value::Null;
            if kind == "StatefulSet" {
                let template = &mut spec["template"];
                template["metadata"] = Value::Null;
                let pod = &mut template["spec"];
                pod["topologySpreadConstraints"] = Value::Null;
                for field in ["args", "image", "imagePullPolicy"] {
                    pod["containers"][0][field] = Value::Null;
                }
            }
            spec
        };
        let files = ["statefulset.yaml", "flowcontrol.yaml", "poddisruptionbudget.yaml"];
        assert_eq!(of(&rendered), of(&manifests("deploy/run", &files)), "{kind}");
    }
}

/// What Helm's own code makes of the chart under these `--set` expressions, or why it makes nothing of it; `None` (said
/// loudly) where scripts/setup could not install it.
fn rendered_chart(expressions: &[&str]) -> Option<Result<Vec<Value>, String>> {
    let python = repository().join("target/python/bin/python");
    let has_helm = Command::new(&python).args(["-c", "import helm_python"]).output();
    if !has_helm.is_ok_and(|output| output.status.success()) {
        assert!(
            std::env::var_os("CI").is_none(),
            "{} has no helm_python; run scripts/setup",
            python.display()
        );
        eprintln!("SKIPPED: {} has no helm_python, so that the chart is not rendered", python.display());
        return None;
    }
    let script = repository().join("crates/kubegc/tests/attached/render_chart.py");
    let chart = repository().join("deploy/helm/kubegc");
    let output = Command::new(python).arg(script).arg(chart).args(expressions).output().unwrap();
    if !output.status.success() {
        return Some(Err(String::from_utf8(output.stderr).unwrap()));
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    Some(Ok(objects.into_iter().filter(|object| !object.is_null()).collect()))
}

/// Each value of the chart does what it says, and a value that is none is refused with its name.
#[test]
fn the_values_of_the_chart_reach_the_container() {
    let container = |expressions: &[&str]| {
        let objects = rendered_chart(expressions)?.unwrap();
        let replicas = objects.into_iter().find(|object| object["kind"] == "StatefulSet").unwrap();
        let mut pod = replicas["spec"]["template"]["spec"].clone();
        pod["claims"] = replicas["spec"]["volumeClaimTemplates"].clone();
        Some(pod)
    };
    let Some(default) = container(&[]) else { return };
    let plain = container(&["journal.enabled=false"]).unwrap();
    let base = json!([
        "run",
        "--bind-address=0.0.0.0:10357",
        "--log-format=json",
        "--leader-elect-resource-namespace=kube-system",
        "--controllers=garbage-collector-controller",
        "--journal=none"
    ]);
    assert_eq!(plain["containers"][0]["args"], base);
    assert_eq!((&plain["volumes"], &plain["claims"]), (&Value::Null, &Value::Null));
    assert_eq!(default["volumes"], Value::Null);
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "128Mi"}}});
    assert_eq!(default["claims"][0]["spec"], claim);
    let short = container(&["journal.persistent=false"]).unwrap();
    assert_eq!(short["volumes"][0]["emptyDir"], json!({"sizeLimit": "128Mi"}));
    assert_eq!(short["claims"], Value::Null);
    let full = container(&[
        "dryRun=true",
        "journal.maxSize=5",
        "journal.maxFiles=3",
        "journal.storageClassName=fast",
        "extraArgs={--kube-api-qps=7,--kube-api-burst=9}",
        "controllers={*,-namespace-controller}",
        "image.repository=example.test/kubegc",
        "image.tag=v9",
        "imagePullSecrets[0].name=pull",
        "nodeSelector.disk=fast",
        "tolerations[0].operator=Exists",
    ]);
    let full = full.unwrap();
    let arguments = json!([
        "run",
        "--bind-address=0.0.0.0:10357",
        "--log-format=json",
        "--leader-elect-resource-namespace=kube-system",
        "--controllers=*,-namespace-controller",
        "--dry-run",
        "--journal=/journal/journal.jsonl",
        "--journal-max-size=5",
        "--journal-max-files=3",
        "--kube-api-qps=7",
        "--kube-api-burst=9"
    ]);
    assert_eq!(full["containers"][0]["args"], arguments);
    assert_eq!(full["containers"][0]["image"], "example.test/kubegc:v9");
    assert_eq!(full["imagePullSecrets"], json!([{"name": "pull"}]));
    assert_eq!(full["nodeSelector"], json!({"disk": "fast"}));
    assert_eq!(full["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(full["claims"][0]["spec"]["resources"]["requests"], json!({"storage": "25Mi"}));
    assert_eq!(full["claims"][0]["spec"]["storageClassName"], "fast");
    let refused = rendered_chart(&["replica=3"]).unwrap().unwrap_err();
    assert!(refused.contains("additional properties 'replica' not allowed"), "{refused}");
}

/// The page is off, and where it is on, its port, its address and who reaches it belong together.
#[test]
fn the_chart_serves_the_page_only_where_it_is_enabled() {
    let Some(default) = rendered_chart(&[]) else { return };
    let page_of = |objects: &[Value]| {
        let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
        let container = &of("StatefulSet")["spec"]["template"]["spec"]["containers"][0];
        let arguments = container["args"].as_array().unwrap().iter().filter_map(Value::as_str);
        let arguments: Vec<&str> = arguments.filter(|word| word.starts_with("--ui")).collect();
        let named = objects.iter().any(|object| object["metadata"]["name"] == "kubegc-page");
        json!([
            arguments,
            container["ports"][1],
            of("Service")["spec"]["ports"][1],
            of("NetworkPolicy")["spec"]["ingress"][1],
            named
        ])
    };
    assert_eq!(page_of(&default.unwrap()), json!([[], null, null, null, false]));
    let from = "ui.from[0].podSelector.matchLabels.app=gate";
    let enabled = rendered_chart(&["ui.enabled=true", "ui.orders=true", from]).unwrap().unwrap();
    let gate = json!({"from": [{"podSelector": {"matchLabels": {"app": "gate"}}}],
        "ports": [{"port": "ui", "protocol": "TCP"}]});
    assert_eq!(
        page_of(&enabled),
        json!([
            ["--ui-bind-address=0.0.0.0:10358", "--ui-orders"],
            {"name": "ui", "containerPort": 10358},
            {"name": "ui", "port": 10358, "targetPort": "ui"},
            gate,
            true
        ])
    );
}

/// The first minor version of kubectl whose `apply -k` knows `labels`.
const KUSTOMIZES_LABELS: u32 = 22;

fn kubectl(arguments: &[&str]) -> Option<Output> {
    let output = Command::new("kubectl").args(arguments).output();
    if output.is_err() {
        assert!(std::env::var_os("CI").is_none(), "kubectl is not on PATH, and CI must have it");
        eprintln!("SKIPPED: kubectl is not on PATH");
    }
    output.ok()
}

/// The whole base is taken by a server that validates strictly, twice, and `kubegc run` works under what it grants.
#[test]
fn the_base_is_applied_to_a_server() {
    if kubectl(&["version", "--client"]).is_none() {
        return;
    }
    if kubectl_minor_version() < KUSTOMIZES_LABELS {
        eprintln!(
            "SKIPPED: kubectl is older than 1.{KUSTOMIZES_LABELS}, whose `apply -k` does not know `labels`"
        );
        return;
    }
    let server = Kubegc::start_collectors();
    let base = repository().join("deploy/run");
    let config = format!("--kubeconfig={}", server.kubeconfig.display());
    for expected in ["created", "unchanged"] {
        // `true` is `strict`, and older kubectl know it as well.
        let arguments = ["apply", "--validate=true", &config, "-k", base.to_str().unwrap()];
        let Some(output) = kubectl(&arguments) else { return };
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(out.lines().count(), 14, "{out}");
        // kubectl replaces the selector of a budget and the claim templates of a StatefulSet each time, as their schemas
        // say, and calls that configured.
        let is_replaced =
            |line: &str| line.starts_with("poddisruptionbudget") || line.starts_with("statefulset");
        let as_expected = |line: &str| line.ends_with(expected) || is_replaced(line);
        assert!(out.lines().all(as_expected), "{out}");
    }
    let admin = Admin::of(&server);
    let replicas = admin.get("/apis/apps/v1/namespaces/kube-system/statefulsets/kubegc").1;
    assert_eq!(replicas["spec"]["replicas"], 2);
    // The arguments of the container are understood.
    let arguments = replicas["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    let arguments: Vec<&str> = arguments.iter().map(|argument| argument.as_str().unwrap()).collect();
    let output = Command::new(env!("CARGO_BIN_EXE_kubegc"))
        .args(&arguments)
        .args(["--kubeconfig=/nowhere/kubeconfig"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("/nowhere/kubeconfig"), "{said}");
    // The chart is taken as well.
    let Some(rendered) = rendered_chart(&["serviceMonitor.enabled=true", "dashboard.enabled=true"]) else {
        return;
    };
    for object in rendered.unwrap().iter().filter(|object| object["kind"] != "ServiceMonitor") {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", collection_of(object));
        let (code, answer) = admin.send(Method::POST, &path, object);
        assert!(code == 201 || code == 409, "{answer}");
    }
}

/// The names of metrics in an expression: words with an underscore that are neither functions nor labels.
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

/// The names that a page of metrics declares, as they are queried.
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
    // Its dependent does not go, so that it waits, and is named after a while.
    let slow = admin.map("slow", None);
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "slow", "uid": slow, "blockOwnerDeletion": true});
    let held =
        json!({"metadata": {"name": "held", "finalizers": ["acme.dev/hold"], "ownerReferences": [owner]}});
    admin.create("/api/v1/namespaces/default/configmaps", &held);
    admin.delete("slow", "Foreground");
    admin.delete("root", "Foreground");
    until("the cascade is over", || !admin.exists("root"));
    // A series is shown once there is something to show: a collected Job, and a breaker that trips.
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
    let missing: Vec<_> = wanted.difference(&declared).collect();
    assert!(missing.is_empty(), "{missing:?} are not among {declared:?}");
}
