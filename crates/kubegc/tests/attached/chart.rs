//! Compares the chart with the code and with the manifests, and installs it on a server.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use gc_collectors::permissions::{self, Controller, Rule};
use gc_explain::protect;
use http::Method;
use serde_json::{Value, json};

use super::manifests::{rbac, read, yaml};
use crate::support::{Kubegc, collection_of, repository};
use crate::support_cluster::{Admin, Run, account, manifests, until};

const CHART: &str = "deploy/helm/kubegc";
/// Definitions that the chart contains.
const DEFINITIONS: [&str; 2] = ["nodecollectionpolicies", "retentionpolicies"];

/// Returns every file below a directory.
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

fn rule_of(rule: &Rule) -> String {
    json!({"group": rule.group, "resource": rule.resource, "names": rule.names, "verbs": rule.verbs})
        .to_string()
}

/// Returns the permissions of each collector, for the templates.
fn permissions() -> String {
    let mut text = String::from(
        "# Written from the code: UPDATE_CHART=1 cargo nextest run -p kubegc -E 'test(chart_has_the_permissions)'\ncollectors:\n",
    );
    for controller in Controller::ALL {
        let names: Vec<&str> = std::iter::once(controller.name()).chain(controller.alias()).collect();
        writeln!(text, "- names: {}", json!(names)).unwrap();
        writeln!(text, "  onByDefault: {}", controller.collector().on_by_default).unwrap();
        writeln!(text, "  rules:").unwrap();
        for rule in controller.rules() {
            writeln!(text, "  - {}", rule_of(rule)).unwrap();
        }
    }
    writeln!(text, "deletionEvents: {}", rule_of(&permissions::DELETION_EVENTS)).unwrap();
    writeln!(text, "garbageMetrics: {}", rule_of(&permissions::LOOK_FOR_GARBAGE)).unwrap();
    text
}

/// Checks that a file of the chart has this text from the code, or writes it.
fn assert_written(name: &str, text: &str) {
    let file = repository().join(CHART).join(name);
    if std::env::var_os("UPDATE_CHART").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(written, text, "UPDATE_CHART=1 writes {}", file.display());
}

#[test]
fn the_chart_has_the_permissions_of_every_collector() {
    assert_written("files/permissions.yaml", &permissions());
}

/// Returns the rules of the roles that belong to `kubegc run` among these objects, in the order of their names.
fn run_rules(objects: &[Value]) -> Vec<Value> {
    let roles = ["kubegc", "kubegc-leader-election"];
    let role_of = |name: &str| {
        let is_role = |object: &&Value| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role"));
        objects.iter().filter(is_role).find(|object| object["metadata"]["name"] == name).unwrap()["rules"]
            .clone()
    };
    roles.map(role_of).to_vec()
}

/// The chart grants what `kubegc rbac` prints, rule by rule, for every value of `controllers`.
#[test]
fn the_chart_grants_what_its_controllers_need() {
    let mut cases: Vec<(String, bool)> =
        Controller::ALL.map(|controller| (controller.name().to_owned(), true)).to_vec();
    let lists = ["*", "*,expiry-controller", "-podgc,*,pod-garbage-collector-controller"];
    cases.extend(lists.map(|list| (list.to_owned(), true)));
    let without_events = ["*", "ttl-after-finished-controller", "*,-garbage-collector-controller"];
    cases.extend(without_events.map(|list| (list.to_owned(), false)));
    for (list, events) in cases {
        let expressions = [format!("controllers={{{list}}}"), format!("deletionEvents={events}")];
        let expressions: Vec<&str> = expressions.iter().map(String::as_str).collect();
        let Some(rendered) = rendered_chart(&expressions) else { return };
        let printed = rbac(&[&format!("--controllers={list}"), &format!("--deletion-events={events}")]);
        let printed: Vec<Value> = serde_saphyr::from_multiple(&printed).unwrap();
        assert_eq!(run_rules(&rendered.unwrap()), run_rules(&printed), "{list}, Events: {events}");
    }
    // Searches for leftovers read everything, whatever the collectors need.
    for list in ["ttl-after-finished-controller", "*"] {
        let values = [format!("controllers={{{list}}}"), "garbageMetricsInterval=1h".to_owned()];
        let Some(rendered) = rendered_chart(&[&values[0], &values[1]]) else { return };
        let printed = rbac(&[&format!("--controllers={list}"), "--garbage-metrics"]);
        let printed: Vec<Value> = serde_saphyr::from_multiple(&printed).unwrap();
        assert_eq!(run_rules(&rendered.unwrap()), run_rules(&printed), "{list}");
        assert!(run_rules(&printed)[0][0]["verbs"].as_array().unwrap().contains(&json!("list")), "{list}");
    }
    let Some(refused) = rendered_chart(&["controllers={nosuch}"]) else { return };
    let refused = refused.unwrap_err();
    assert!(
        refused.contains("\"nosuch\" is not a collector; known are: *, garbage-collector-controller"),
        "{refused}"
    );
}

/// After the chart is installed on a server with every part enabled, everything that it starts works with exactly the permissions
/// that it grants: `kubegc run` with every collector becomes ready, and no request is refused.
#[test]
fn an_installed_chart_runs_with_its_rights() {
    let values = [
        "controllers={*}",
        "node.enabled=true",
        "recorder.enabled=true",
        "ui.enabled=true",
        "dashboard.enabled=true",
        "protection.marked=true",
        "protection.volumes=true",
        "protection.kinds[0].name=keys,protection.kinds[0].resources={secrets},protection.kinds[0].namespaces={prod}",
    ];
    let Some(rendered) = rendered_chart(&values) else { return };
    let objects = rendered.unwrap();
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    for name in DEFINITIONS {
        let definition: Value = yaml(&read(&format!("{CHART}/crds/{name}.yaml")));
        admin.create(&collection_of(&definition), &definition);
    }
    for object in &objects {
        let path = format!("{}?fieldValidation=Strict", collection_of(object));
        let (code, answer) = admin.send(Method::POST, &path, object);
        assert_eq!(code, 201, "{answer}");
    }
    let of = |kind: &str, name: &str| {
        objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap()
    };
    let arguments = &of("StatefulSet", "kubegc")["spec"]["template"]["spec"]["containers"][0]["args"];
    assert!(arguments.as_array().unwrap().contains(&json!("--controllers=*")), "{arguments}");
    // This is the account of the chart, with the roles that were just installed.
    let run = Run::with(&account(&server, Vec::new()), &["--controllers=*"]);
    until("it leads", || run.leads() && run.is_ready());
    assert_eq!(admin.refusals(403), [] as [String; 0]);
}

/// The definitions and the recorded kinds are those of the manifests.
#[test]
fn the_chart_has_the_definitions_and_the_recorder_of_the_manifests() {
    for name in DEFINITIONS {
        assert_eq!(read(&format!("{CHART}/crds/{name}.yaml")), read(&format!("deploy/crds/{name}.yaml")));
    }
    let Some(rendered) = rendered_chart(&["recorder.enabled=true", "node.enabled=true"]) else { return };
    let rendered = rendered.unwrap();
    let of = |objects: &[Value], kind: &str, name: &str| {
        objects
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
            .unwrap()
            .clone()
    };
    let ours = manifests("deploy/recorder", &["rbac.yaml", "policy.yaml"]);
    for kind in ["ClusterRole", "Role"] {
        let role = |objects: &[Value]| of(objects, kind, "kubegc-recorder")["rules"].clone();
        assert_eq!(role(&rendered), role(&ours));
    }
    let policy = |objects: &[Value]| {
        yaml(of(objects, "ConfigMap", "kubegc-recorder")["data"]["policy.yaml"].as_str().unwrap())
    };
    assert_eq!(policy(&rendered), policy(&ours));
    let node = manifests("deploy/node", &["daemonset.yaml"]);
    let role = |objects: &[Value]| of(objects, "ClusterRole", "kubegc-node")["rules"].clone();
    assert_eq!(role(&rendered), role(&node));
    // One more value also adds the permission to know which images workloads will need.
    let keeping = rendered_chart(&["node.enabled=true", "node.keepWorkloadImages=168h"]).unwrap().unwrap();
    let arguments =
        &of(&keeping, "DaemonSet", "kubegc-node")["spec"]["template"]["spec"]["containers"][0]["args"];
    assert!(arguments.as_array().unwrap().contains(&json!("--keep-workload-images=168h")), "{arguments}");
    let workloads =
        of(&manifests("deploy/node", &["workloads.yaml"]), "ClusterRole", "kubegc-node-workloads");
    let all =
        [role(&node), workloads["rules"].clone()].map(|rules| rules.as_array().unwrap().clone()).concat();
    assert_eq!(role(&keeping), json!(all));
    let following = rendered_chart(&["node.enabled=true", "node.policies=true"]).unwrap().unwrap();
    let arguments =
        &of(&following, "DaemonSet", "kubegc-node")["spec"]["template"]["spec"]["containers"][0]["args"];
    assert!(arguments.as_array().unwrap().contains(&json!("--policies")), "{arguments}");
    let policies = of(&manifests("deploy/node", &["policies.yaml"]), "ClusterRole", "kubegc-node-policies");
    let all =
        [role(&node), policies["rules"].clone()].map(|rules| rules.as_array().unwrap().clone()).concat();
    assert_eq!(role(&following), json!(all));
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
    fn check(readme: &str, values: &Value, schema: &Value, path: &str) {
        for (name, value) in values.as_object().into_iter().flatten() {
            let known = &schema["properties"][name];
            let path = format!("{path}/{name}");
            assert!(known.is_object(), "{path} is not in the schema");
            let listed = format!("`{}`", path[1..].replace('/', "."));
            assert!(
                value.is_object() || readme.contains(&listed),
                "{listed} is not in the README of the chart"
            );
            if known["properties"].is_object() {
                assert_eq!(known["additionalProperties"], false, "{path}");
                check(readme, value, known, &path);
            }
        }
    }
    assert_eq!(schema["additionalProperties"], false);
    check(&read(&format!("{CHART}/README.md")), &values, &schema, "");
}

/// The shared parts of the chart and the manifests are the same.
#[test]
fn the_chart_says_what_the_manifests_say() {
    let rule = &manifests("deploy/monitoring", &["prometheusrule.yaml"])[0]["spec"];
    assert_eq!(*rule, yaml(&read("deploy/helm/kubegc/files/alerts.yaml")));
    assert_eq!(read("deploy/monitoring/dashboard.json"), read("deploy/helm/kubegc/files/dashboard.json"));
    for name in ["expiry", "retention-policies"] {
        let file = format!("deploy/helm/kubegc/files/admission-{name}.yaml");
        assert_eq!(read(&format!("deploy/admission/{name}.yaml")), read(&file));
    }
    let Some(rendered) = rendered_chart(&[]) else { return };
    let rendered = rendered.unwrap();
    for kind in ["PriorityLevelConfiguration", "StatefulSet", "PodDisruptionBudget"] {
        let of = |objects: &[Value]| {
            let object = objects.iter().find(|object| object["kind"] == kind).unwrap();
            let mut spec = object["spec"].clone();
            // Labels differ by the release, and arguments by options that only a chart can have.
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

/// The policies about who may have objects deleted are installed with the controllers that delete them.
#[test]
fn the_chart_installs_the_admission_policies_of_its_controllers() {
    let (expiry, policies) = ("kubegc-expiry-needs-delete", "kubegc-retention-policy-needs-delete");
    for (expressions, expected) in [
        (&[][..], &[][..]),
        (&["controllers={garbage-collector-controller,expiry-controller}"], &[expiry]),
        (&["controllers={*}"], &[policies]),
        (&["controllers={*,expiry-controller}"], &[expiry, policies]),
        (&["controllers={*,-retention-policy-controller,expiry-controller}"], &[expiry]),
        (&["controllers={*,expiry-controller}", "admissionPolicies.enabled=false"], &[]),
    ] {
        let Some(objects) = rendered_chart(expressions) else { return };
        let objects = objects.unwrap();
        let bindings = objects.iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicyBinding");
        let found: Vec<&str> = bindings.filter_map(|object| object["metadata"]["name"].as_str()).collect();
        assert_eq!(found, expected, "{expressions:?}");
    }
}

/// Returns the objects of a rule, as `kubegc protect` writes them.
fn protecting(rule: &protect::Rule) -> Vec<Value> {
    vec![rule.policy(), rule.binding()]
}

/// Returns a rule about kinds.
fn about_kinds(name: &str, resources: &[(&str, &str)], namespaces: &[&str]) -> protect::Rule {
    let resources = resources.iter().map(|(group, resource)| ((*group).to_owned(), (*resource).to_owned()));
    let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
    protect::Rule::Kinds { name: name.to_owned(), resources: resources.collect(), namespaces }
}

/// Returns the policies for the template, which fills in the name, the resources and the namespaces of a rule about kinds.
fn protection() -> String {
    let mut text = String::from(
        "# Written from the code: UPDATE_CHART=1 cargo nextest run -p kubegc -E 'test(chart_has_the_policies)'\n",
    );
    for (key, rule) in [
        ("marked", protect::Rule::Marked),
        ("volumes", protect::Rule::Volumes),
        ("kinds", about_kinds("NAME", &[], &[])),
    ] {
        writeln!(text, "{key}:").unwrap();
        for object in protecting(&rule) {
            writeln!(text, "- {object}").unwrap();
        }
    }
    text
}

#[test]
fn the_chart_has_the_policies_of_every_protection() {
    assert_written("files/protection.yaml", &protection());
}

/// The chart installs the objects that `kubegc protect` writes for the same rules, on a server that takes and enforces them.
#[test]
fn the_chart_protects_as_the_command_does() {
    let kinds = "protection.kinds[0].name=keys,protection.kinds[0].resources={secrets,roles.rbac.authorization.k8s.io},\
                 protection.kinds[0].namespaces={prod,shop}";
    let everywhere = "protection.kinds[0].name=keys,protection.kinds[0].resources={issuers.cert-manager.io}";
    let rbac = "rbac.authorization.k8s.io";
    let in_two = about_kinds("keys", &[("", "secrets"), (rbac, "roles")], &["prod", "shop"]);
    let all = about_kinds("keys", &[("cert-manager.io", "issuers")], &[]);
    for (expressions, expected) in [
        (&[][..], vec![]),
        (&["protection.marked=true"][..], vec![protect::Rule::Marked]),
        (&["protection.volumes=true"], vec![protect::Rule::Volumes]),
        (&[everywhere], vec![all]),
        (
            &["protection.marked=true", "protection.volumes=true", kinds],
            vec![protect::Rule::Marked, protect::Rule::Volumes, in_two],
        ),
    ] {
        let Some(objects) = rendered_chart(expressions) else { return };
        let is_ours = |object: &Value| {
            object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(protect::PREFIX))
        };
        let found: Vec<Value> = objects.unwrap().into_iter().filter(is_ours).collect();
        let expected: Vec<Value> = expected.iter().flat_map(protecting).collect();
        assert_eq!(found, expected, "{expressions:?}");
    }
    let refused = rendered_chart(&["protection.kinds[0].name=Keys"]).unwrap().unwrap_err();
    assert!(refused.contains("resources") && refused.contains("name"), "{refused}");
}

/// Renders the chart with Helm's own code with these `--set` expressions, or returns the error. Returns `None`, with a clear
/// message, if scripts/setup could not install Helm.
pub(crate) fn rendered_chart(expressions: &[&str]) -> Option<Result<Vec<Value>, String>> {
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

/// Each value of the chart has its effect, and an unknown value is refused with its name.
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
        "standby=cold",
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
        "--standby=cold",
        "--dry-run",
        "--journal=/journal/journal.jsonl",
        "--journal-max-size=5",
        "--journal-max-files=3",
        "--kube-api-qps=7",
        "--kube-api-burst=9"
    ]);
    assert_eq!(full["containers"][0]["args"], arguments);
    assert_eq!(full["containers"][0]["image"], "example.test/kubegc:v9");
    // This is the image that releases push, in the version of the chart.
    assert_eq!(default["containers"][0]["image"], "ghcr.io/kubegc/kubegc:0.1.0");
    assert_eq!(full["imagePullSecrets"], json!([{"name": "pull"}]));
    assert_eq!(full["nodeSelector"], json!({"disk": "fast"}));
    assert_eq!(full["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(full["claims"][0]["spec"]["resources"]["requests"], json!({"storage": "25Mi"}));
    assert_eq!(full["claims"][0]["spec"]["storageClassName"], "fast");
    let refused = rendered_chart(&["replica=3"]).unwrap().unwrap_err();
    assert!(refused.contains("additional properties 'replica' not allowed"), "{refused}");
}

/// Checks that each shard has a StatefulSet and a budget, whose pods no other selects, and the permissions for its Lease.
pub(crate) fn assert_shards(objects: &[Value], count: usize) {
    let of = |kind: &str| -> Vec<&Value> { objects.iter().filter(|object| object["kind"] == kind).collect() };
    let names = |objects: &[&Value]| -> Vec<Value> {
        objects.iter().map(|object| object["metadata"]["name"].clone()).collect()
    };
    let (sets, budgets) = (of("StatefulSet"), of("PodDisruptionBudget"));
    let expected: Vec<String> = (0..count).map(|index| format!("kubegc-shard-{index}")).collect();
    assert_eq!(names(&sets), expected);
    assert_eq!(names(&budgets), expected);
    let all = of("Service")[0]["spec"]["selector"].as_object().unwrap();
    for (index, (set, budget)) in sets.iter().zip(budgets).enumerate() {
        let pod = &set["spec"]["template"];
        let arguments = pod["spec"]["containers"][0]["args"].as_array().unwrap();
        assert!(arguments.contains(&json!(format!("--shard={index}/{count}"))), "{arguments:?}");
        let selector = &set["spec"]["selector"]["matchLabels"];
        assert_eq!(selector["kubegc.io/shard"], index.to_string());
        assert_eq!(budget["spec"]["selector"]["matchLabels"], *selector);
        let spread = &pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"];
        assert_eq!(spread, selector);
        let labels = pod["metadata"]["labels"].as_object().unwrap();
        assert!(selector.as_object().unwrap().iter().chain(all).all(|(key, value)| labels[key] == *value));
    }
    let printed: Vec<Value> = serde_saphyr::from_multiple(&rbac(&[&format!("--shards={count}")])).unwrap();
    assert_eq!(run_rules(objects), run_rules(&printed));
    // Users of the page find the leader of each shard.
    let page = objects.iter().find(|object| object["metadata"]["name"] == "kubegc-page").unwrap();
    let leases = &run_rules(&printed)[1][1]["resourceNames"];
    assert_eq!((&page["rules"][0]["resourceNames"], leases.as_array().unwrap().len()), (leases, count + 1));
    let pods = (0..count).flat_map(|index| [0, 1].map(|pod| format!("kubegc-shard-{index}-{pod}")));
    assert_eq!(page["rules"][1]["resourceNames"], pods.collect::<Value>());
}

#[test]
fn the_chart_starts_every_shard() {
    let Some(rendered) = rendered_chart(&["shards=3", "ui.enabled=true", "replicas=2"]) else { return };
    assert_shards(&rendered.unwrap(), 3);
    let single = rendered_chart(&[]).unwrap().unwrap();
    assert!(!single.iter().any(|object| object.to_string().contains("shard")), "one shard is no shard");
    let refused = rendered_chart(&["shards=2", "controllers={podgc}"]).unwrap().unwrap_err();
    assert!(refused.contains("only garbage-collector-controller is divided into shards"), "{refused}");
    assert!(rendered_chart(&["shards=0"]).unwrap().is_err());
}

/// The page is off by default; if it is on, its port, its address and its network policy match.
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
