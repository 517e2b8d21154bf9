//! Objects that `kubegc undo` creates again, and objects that it leaves alone: it restores one act and the last object of each
//! name, grants no permissions that were not named, and creates nothing below an owner that is being deleted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use http::Method;
use serde_json::{Value, json};

use super::recorders::Recorder;
use crate::support::Kubegc;
use crate::support_cluster::{Admin, MAPS, kubegc, uid, until};
use crate::support_proxy::{Fault, Proxy};

const HOUR: i64 = 3_600_000;

/// Records of a recorder that neither encrypts nor signs, in a directory.
struct Records {
    folder: PathBuf,
    now: i64,
}

impl Records {
    fn of(server: &Kubegc) -> Self {
        let folder = server.folder.path().join("records");
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder, now: jiff::Timestamp::now().as_millisecond() }
    }

    /// Adds records of objects that were deleted at these times before now, in milliseconds.
    fn add(&self, resource: &str, objects: impl IntoIterator<Item = (i64, Value)>) {
        let file = self.folder.join("deleted-1.jsonl");
        let mut text = std::fs::read_to_string(&file).unwrap_or_default();
        for (ago, object) in objects {
            // Writing to a String cannot fail.
            let _ =
                writeln!(text, "{}", json!({"at": self.now - ago, "resource": resource, "object": object}));
        }
        std::fs::write(file, text).unwrap();
    }

    fn undo(&self, kubeconfig: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
        let records = ["--records", self.folder.to_str().unwrap()];
        kubegc(&[&["undo"], arguments, &records].concat(), kubeconfig)
    }

    /// Returns the actions of a plan by `Kind/name`.
    fn actions(&self, kubeconfig: &Path, arguments: &[&str]) -> BTreeMap<String, String> {
        let (_, out, error) = self.undo(kubeconfig, &[arguments, &["-o", "json"]].concat());
        let plan: Value =
            serde_json::from_str(&out).unwrap_or_else(|_| panic!("{arguments:?}: {out}{error}"));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let step = |step: &Value| {
            let object = &step["object"];
            (format!("{}/{}", text(&object["kind"]), text(&object["name"])), text(&step["action"]))
        };
        plan["items"].as_array().unwrap().iter().map(step).collect()
    }
}

/// Returns an object as it was; its UID is its name unless another one is given.
fn object(api_version: &str, kind: &str, namespace: &str, name: &str, more: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "uid": format!("uid-{name}")}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    merge(&mut object, more);
    object
}

fn merge(object: &mut Value, more: Value) {
    match more {
        Value::Object(fields) => {
            for (name, value) in fields {
                merge(&mut object[name.as_str()], value);
            }
        }
        other => *object = other,
    }
}

fn map(name: &str, more: Value) -> Value {
    object("v1", "ConfigMap", "default", name, more)
}

/// Returns a reference to an owner, which is its controller.
fn owned(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"metadata": {"ownerReferences": [
        {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}]}})
}

fn actions(expected: &[(&str, &str)]) -> BTreeMap<String, String> {
    expected.iter().map(|(object, action)| ((*object).to_owned(), (*action).to_owned())).collect()
}

/// Of several objects with the same name, the last one is created, and the others are named with the command that creates them
/// instead.
#[test]
fn of_several_objects_of_one_name_the_last_comes_back() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let records = Records::of(&server);
    let of = |uid: &str| map("web", json!({"metadata": {"uid": uid}, "data": {"from": uid}}));
    // This is the order of neither of their UIDs.
    records.add("configmaps", [(3 * HOUR, of("b")), (HOUR, of("a")), (2 * HOUR, of("c"))]);
    let path = format!("{MAPS}/web");
    for (choice, expected) in
        [(&["cm/web"][..], "a"), (&["--since", "1d"], "a"), (&["--uid", "c"], "c"), (&["--uid", "b"], "b")]
    {
        let (code, out, error) = records.undo(&server.kubeconfig, choice);
        assert!(code == Some(0) && out.contains("Would create 1 object;"), "{choice:?}: {out}{error}");
        if expected == "a" {
            for other in ["b", "c"] {
                assert!(out.contains(&format!("is left out: --uid {other}")), "{choice:?}: {out}");
            }
        }
        let (code, out, error) = records.undo(&server.kubeconfig, &[choice, &["--yes"]].concat());
        assert_eq!(code, Some(0), "{choice:?}: {out}{error}");
        let made = admin.get(&path).1;
        assert_eq!(
            (&made["data"]["from"], &made["metadata"]["annotations"]["kubegc.io/restored-from"]),
            (&json!(expected), &json!(expected))
        );
        admin.delete("web", "Background");
    }
}

/// The undo of a namespace, or of an owner, restores the objects that were deleted with it, but no objects deleted earlier and none
/// that grant permissions.
#[test]
fn only_what_one_act_has_deleted_comes_back() {
    const RBAC: &str = "rbac.authorization.k8s.io/v1";
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let records = Records::of(&server);
    let deleted_at = jiff::Timestamp::from_millisecond(records.now - 60_000).unwrap().to_string();
    let within = |kind: &str, name: &str| object("v1", kind, "shop", name, json!({}));
    let namespace =
        object("v1", "Namespace", "", "shop", json!({"metadata": {"deletionTimestamp": deleted_at}}));
    records.add("namespaces", [(30_000, namespace)]);
    let owner = || owned("v1", "ConfigMap", "owner", "uid-owner");
    let mut dependent = within("ConfigMap", "along");
    merge(&mut dependent, owner());
    let mut earlier = within("ConfigMap", "removed-before");
    merge(&mut earlier, owner());
    records.add(
        "configmaps",
        [
            (5 * HOUR, earlier),
            (HOUR, within("ConfigMap", "unrelated")),
            (50_000, within("ConfigMap", "owner")),
            (45_000, dependent),
        ],
    );
    let binding = |name: &str| {
        let subject = json!({"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"});
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
        object(RBAC, "RoleBinding", "shop", name, json!({"subjects": [subject], "roleRef": role}))
    };
    records.add(
        "rolebindings.rbac.authorization.k8s.io",
        [(3 * 24 * HOUR, binding("revoked")), (40_000, binding("went-along"))],
    );
    let whole = [
        ("Namespace/shop", "Create"),
        ("ConfigMap/owner", "Create"),
        ("ConfigMap/along", "Create"),
        ("RoleBinding/went-along", "Withheld"),
    ];
    let planned = |choice: &[&str]| records.actions(&server.kubeconfig, choice);
    assert_eq!(planned(&["ns/shop"]), actions(&whole));
    assert_eq!(planned(&["--since", "10m"]), actions(&whole));
    assert_eq!(planned(&["cm/owner", "-n", "shop"]), actions(&whole[1..3]));
    assert_eq!(
        planned(&["cm/removed-before", "-n", "shop"]),
        actions(&[("ConfigMap/removed-before", "Create")])
    );
    let (code, out, error) = records.undo(&server.kubeconfig, &["ns/shop", "--yes"]);
    assert_eq!(code, Some(0), "{out}{error}");
    let there = |path: &str| admin.get(path).0 == 200;
    let maps = "/api/v1/namespaces/shop/configmaps";
    assert!(["owner", "along"].iter().all(|name| there(&format!("{maps}/{name}"))), "{out}");
    let bindings = format!("/apis/{RBAC}/namespaces/shop/rolebindings");
    assert_eq!(admin.get(&bindings).1["items"], json!([]), "{out}");
    // If it is named, it is shown in full, and created.
    let named = ["rolebinding/went-along", "-n", "shop"];
    let (code, out, error) = records.undo(&server.kubeconfig, &named);
    let shown = ["RoleBinding/went-along grants:", "cluster-admin", "mallory"];
    assert!(code == Some(0) && shown.iter().all(|words| out.contains(words)), "{out}{error}");
    let (code, out, error) = records.undo(&server.kubeconfig, &[&named[..], &["--yes"]].concat());
    assert!(code == Some(0) && there(&format!("{bindings}/went-along")), "{out}{error}");
}

/// Returns a resource of OpenShift as served there.
fn openshift(group: &str, plural: &str, kind: &str, scope: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": scope,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

/// Permissions of OpenShift and credentials of the cluster are restored only when they are named, after everything that they grant
/// is shown; secrets are not shown.
#[test]
fn rights_of_openshift_and_bootstrap_tokens_have_to_be_named() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for (group, plural, kind, scope) in [
        ("authorization.openshift.io", "rolebindings", "RoleBinding", "Namespaced"),
        ("security.openshift.io", "securitycontextconstraints", "SecurityContextConstraints", "Cluster"),
        ("oauth.openshift.io", "oauthclients", "OAuthClient", "Cluster"),
    ] {
        admin.create(definitions, &openshift(group, plural, kind, scope));
        until("it is served", || admin.get(&format!("/apis/{group}/v1/{plural}")).0 == 200);
    }
    let records = Records::of(&server);
    let token = object(
        "v1",
        "Secret",
        "kube-system",
        "bootstrap-token-abcdef",
        json!({
        "type": "bootstrap.kubernetes.io/token", "data": {"token-secret": "aHVudGVyMg=="}}),
    );
    let constraints = object(
        "security.openshift.io/v1",
        "SecurityContextConstraints",
        "",
        "open",
        json!({
        "metadata": {"labels": {"team": "shop"}}, "allowPrivilegedContainer": true, "allowHostDirVolumePlugin": true,
        "runAsUser": {"type": "RunAsAny"}, "users": [], "groups": ["system:authenticated"]}),
    );
    let binding = object(
        "authorization.openshift.io/v1",
        "RoleBinding",
        "default",
        "admins",
        json!({
        "subjects": [{"kind": "Group", "name": "everybody"}], "roleRef": {"name": "cluster-admin"}}),
    );
    let client = object(
        "oauth.openshift.io/v1",
        "OAuthClient",
        "",
        "console",
        json!({
        "secret": "hunter2", "redirectURIs": ["https://evil.example.com"], "grantMethod": "auto"}),
    );
    let withheld = [
        ("secrets", "Secret/bootstrap-token-abcdef", token, &["bootstrap.kubernetes.io/token"][..]),
        (
            "securitycontextconstraints.security.openshift.io",
            "SecurityContextConstraints/open",
            constraints,
            &[
                "system:authenticated",
                "allowPrivilegedContainer: true",
                "allowHostDirVolumePlugin: true",
                "RunAsAny",
            ],
        ),
        (
            "rolebindings.authorization.openshift.io",
            "RoleBinding/admins",
            binding,
            &["everybody", "cluster-admin"],
        ),
        (
            "oauthclients.oauth.openshift.io",
            "OAuthClient/console",
            client,
            &["https://evil.example.com", "grantMethod: \"auto\""],
        ),
    ];
    for (resource, _, object, _) in &withheld {
        records.add(resource, [(1_000, object.clone())]);
    }
    records.add("configmaps", [(1_000, map("plain", json!({})))]);
    let all: Vec<(&str, &str)> = withheld.iter().map(|(_, title, ..)| (*title, "Withheld")).collect();
    let planned = records.actions(&server.kubeconfig, &["--since", "10m"]);
    assert_eq!(planned, actions(&[&all[..], &[("ConfigMap/plain", "Create")]].concat()));
    let (code, out, error) = records.undo(&server.kubeconfig, &["--since", "10m", "--yes"]);
    assert!(code == Some(0) && admin.exists("plain"), "{out}{error}");
    for (resource, title, object, words) in &withheld {
        let name = title.split_once('/').unwrap().1;
        let namespace = object["metadata"]["namespace"].as_str();
        let path = match (resource.split_once('.'), namespace) {
            (None, Some(namespace)) => format!("/api/v1/namespaces/{namespace}/{resource}/{name}"),
            (Some((plural, group)), Some(namespace)) => {
                format!("/apis/{group}/v1/namespaces/{namespace}/{plural}/{name}")
            }
            (Some((plural, group)), None) => format!("/apis/{group}/v1/{plural}/{name}"),
            (None, None) => format!("/api/v1/{resource}/{name}"),
        };
        assert_eq!(admin.get(&path).0, 404, "{title}");
        let reference = format!("{resource}/{name}");
        let named = [&reference, "-n", namespace.unwrap_or("default")];
        let (code, out, error) = records.undo(&server.kubeconfig, &named);
        let is_shown =
            out.contains(&format!("{title} grants:")) && words.iter().all(|word| out.contains(word));
        assert!(code == Some(0) && is_shown, "{title}: {out}{error}");
        assert!(!out.contains("hunter2") && !out.contains("aHVudGVyMg"), "{out}");
        let (code, out, error) = records.undo(&server.kubeconfig, &[&named[..], &["--yes"]].concat());
        assert!(code == Some(0) && admin.get(&path).0 == 200, "{title}: {out}{error}");
    }
}

/// Below an owner that is being deleted, or that may be gone, a new object would be collected at once; a controller that is being
/// deleted recreates nothing.
#[test]
fn nothing_is_created_below_an_owner_that_goes_or_cannot_be_read() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let records = Records::of(&server);
    let held = json!({"metadata": {"name": "dying", "finalizers": ["acme.dev/hold"]}});
    let dying = uid(&admin.create(MAPS, &held));
    admin.delete("dying", "Background");
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let set = json!({"metadata": {"name": "web", "finalizers": ["acme.dev/hold"]}, "spec": {"replicas": 0,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod}}});
    let set = uid(&admin.create(sets, &set));
    admin.delete_at(&format!("{sets}/web"), "Background");
    let secret = admin.create("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "unread"}}));
    records.add(
        "configmaps",
        [
            (1_000, map("below", owned("v1", "ConfigMap", "dying", &dying))),
            (1_000, map("unclear", owned("v1", "Secret", "unread", &uid(&secret)))),
        ],
    );
    let mut of_set = object("v1", "Pod", "default", "web-1", json!({"spec": pod}));
    merge(&mut of_set, owned("apps/v1", "ReplicaSet", "web", &set));
    records.add("pods", [(1_000, of_set)]);
    let everything = ["--since", "10m"];
    let of_dying = [("ConfigMap/below", "Impossible"), ("Pod/web-1", "Impossible")];
    let as_admin = actions(&[&of_dying[..], &[("ConfigMap/unclear", "Create")]].concat());
    assert_eq!(records.actions(&server.kubeconfig, &everything), as_admin);

    // This user may not read Secrets.
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rule = json!({"apiGroups": ["", "apps"], "resources": ["configmaps", "pods", "replicasets"],
        "verbs": ["get", "list", "create"]});
    admin.create(&format!("{rbac}/roles"), &json!({"metadata": {"name": "maps"}, "rules": [rule]}));
    let binding = json!({"metadata": {"name": "maps"}, "subjects": [{"kind": "User", "name": "ann"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps"}});
    admin.create(&format!("{rbac}/rolebindings"), &binding);
    let as_ann = ["--since", "10m", "-n", "default", "--as", "ann"];
    let expected = actions(&[&of_dying[..], &[("ConfigMap/unclear", "Impossible")]].concat());
    until("the role is in effect", || records.actions(&server.kubeconfig, &as_ann) == expected);
    let (_, out, error) = records.undo(&server.kubeconfig, &as_ann);
    for why in ["its owner is being deleted, and would take it along", "its owner could not be read"] {
        assert!(out.contains(why), "{out}{error}");
    }
    records.undo(&server.kubeconfig, &[&as_ann[..], &["--yes"]].concat());
    assert!(!admin.exists("below") && !admin.exists("unclear"));
}

/// Returns the budget in a record, whose owner is gone.
fn budget() -> Value {
    object(
        "policy/v1",
        "PodDisruptionBudget",
        "default",
        "budget",
        json!({
        "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "uid-gone"}]},
        "spec": {"maxUnavailable": 1}, "status": {"currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": 1,
            "expectedPods": 3, "observedGeneration": 1}}),
    )
}

/// A run that ended between an object and its status is repeated, although its owner is gone; an object that somebody else has put
/// in its place meanwhile stays as it is.
#[test]
fn an_undo_that_was_interrupted_is_finished_by_the_next() {
    const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    fn of_another(document: &mut Value) {
        document["metadata"]["annotations"]["kubegc.io/restored-from"] = "uid-of-another".into();
    }
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let records = Records::of(&server);
    records.add("poddisruptionbudgets.policy", [(1_000, budget())]);
    // The first run leaves this behind when it ends before the status.
    let created = json!({"metadata": {"name": "budget", "annotations": {"kubegc.io/restored-from": "uid-budget"}},
        "spec": {"maxUnavailable": 1}});
    admin.create(BUDGETS, &created);
    let path = format!("{BUDGETS}/budget");
    let healthy = || admin.get(&path).1["status"]["currentHealthy"].as_i64().unwrap_or_default();
    let choice = ["pdb/budget"];
    assert_eq!(
        records.actions(&server.kubeconfig, &choice),
        actions(&[("PodDisruptionBudget/budget", "Complete")])
    );

    // Between the plan and the status, another object takes the name.
    let proxy = Proxy::start(&server.kubeconfig);
    let watched = path.clone();
    proxy.inject_every(
        2,
        move |method, asked| method == Method::GET && asked.split('?').next() == Some(&watched),
        Fault::Rewrite(of_another),
    );
    let yes = [&choice[..], &["--yes"]].concat();
    let (code, out, error) = records.undo(&proxy.kubeconfig(), &yes);
    let said = "another object has its name; it was not overwritten";
    assert!(code == Some(1) && error.contains(said), "{code:?} {out}{error}");
    assert_eq!(healthy(), 0);

    for _ in 0..2 {
        let (code, out, error) = records.undo(&server.kubeconfig, &yes);
        assert_eq!((code, healthy()), (Some(0), 3), "{out}{error}");
    }
    assert_eq!(admin.get(&path).1["metadata"]["ownerReferences"], Value::Null);
}

/// An object with the name of an owner is not that owner: its former dependents come back without the reference, and stay.
#[test]
fn a_namesake_does_not_adopt() {
    let server = Kubegc::start_collectors();
    let admin = Admin::of(&server);
    let records = Records::of(&server);
    admin.map("owner", None);
    records.add(
        "configmaps",
        [
            (2_000, map("owner", json!({}))),
            (1_000, map("leaf", owned("v1", "ConfigMap", "owner", "uid-owner"))),
        ],
    );
    let choice = ["--since", "10m"];
    let expected = [("ConfigMap/owner", "Exists"), ("ConfigMap/leaf", "Create")];
    assert_eq!(records.actions(&server.kubeconfig, &choice), actions(&expected));
    let (code, out, error) = records.undo(&server.kubeconfig, &[&choice[..], &["--yes"]].concat());
    assert_eq!(code, Some(0), "{out}{error}");
    let owners = || admin.get(&format!("{MAPS}/leaf")).1["metadata"]["ownerReferences"].clone();
    assert_eq!(owners(), Value::Null);
    // A working collector deletes a stray, but not this one.
    admin.map("stray", Some(("owner", "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6")));
    until("the stray is collected", || !admin.exists("stray"));
    assert!(admin.exists("leaf"));
}

/// Only objects that controllers demonstrably make are left to them: the current revision, slices of the Service, pods of a set.
/// Objects that a rollback needs, past Jobs of a CronJob and objects of other controllers are created.
#[test]
fn only_what_controllers_make_again_is_left_to_them() {
    const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let records = Records::of(&server);
    let labels = json!({"app": "web"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let number =
        |number: &str| json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": number}}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
    let of = |kind: &str, name: &str, owner: Value, more: Value| {
        let mut made = object("apps/v1", kind, "default", name, more);
        merge(&mut made, owner);
        made
    };
    // One Deployment was deleted with its sets; the other one was never deleted.
    let mut deployment = object("apps/v1", "Deployment", "default", "web", json!({"spec": spec}));
    merge(&mut deployment, number("2"));
    let living = json!({"metadata": {"name": "living", "annotations": {"deployment.kubernetes.io/revision": "2"}},
        "spec": spec});
    let living = uid(&admin.create("/apis/apps/v1/namespaces/default/deployments", &living));
    let set = |name: &str, revision: &str, owner: Value| {
        let mut made = of("ReplicaSet", name, owner, json!({"spec": spec}));
        merge(&mut made, number(revision));
        (1_000, made)
    };
    let by_web = || owned("apps/v1", "Deployment", "web", "uid-web");
    let by_living = || owned("apps/v1", "Deployment", "living", &living);
    records.add("deployments.apps", [(2_000, deployment)]);
    records.add(
        "replicasets.apps",
        [
            set("web-1", "1", by_web()),
            set("web-2", "2", by_web()),
            set("living-1", "1", by_living()),
            set("living-2", "2", by_living()),
        ],
    );
    let stateful = object(
        "apps/v1",
        "StatefulSet",
        "default",
        "db",
        json!({"spec": {"serviceName": "db",
        "selector": {"matchLabels": labels}, "template": template}}),
    );
    let revision = |name: &str, revision: i64| {
        let owner = owned("apps/v1", "StatefulSet", "db", "uid-db");
        (
            1_000,
            of(
                "ControllerRevision",
                name,
                owner,
                json!({"revision": revision, "data": {"spec": {"replicas": 1}}}),
            ),
        )
    };
    records.add("statefulsets.apps", [(2_000, stateful)]);
    records.add("controllerrevisions.apps", [revision("db-1", 1), revision("db-2", 2)]);
    let cron = json!({"metadata": {"name": "nightly"}, "spec": {"schedule": "0 3 * * *",
        "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}});
    let cron = uid(&admin.create("/apis/batch/v1/namespaces/default/cronjobs", &cron));
    let mut job = object(
        "batch/v1",
        "Job",
        "default",
        "nightly-1",
        json!({"spec": {"template": {"spec":
        {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
    );
    merge(&mut job, owned("batch/v1", "CronJob", "nightly", &cron));
    records.add("jobs.batch", [(1_000, job)]);
    let service = object(
        "v1",
        "Service",
        "default",
        "front",
        json!({"spec": {"selector": labels, "ports": [{"port": 80}]}}),
    );
    records.add("services", [(2_000, service)]);
    let mut endpoints = object("v1", "Endpoints", "default", "front", json!({"subsets": []}));
    endpoints["metadata"]["uid"] = "uid-of-endpoints".into();
    records.add("endpoints", [(1_000, endpoints)]);
    let slice = |name: &str, manager: &str| {
        let mut slice = object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "default",
            name,
            json!({"metadata": {"labels": {MANAGED_BY: manager}}, "addressType": "IPv4", "endpoints": []}),
        );
        merge(&mut slice, owned("v1", "Service", "front", "uid-front"));
        (1_000, slice)
    };
    records.add(
        "endpointslices.discovery.k8s.io",
        [slice("front-a", "endpointslice-controller.k8s.io"), slice("front-b", "acme.dev")],
    );
    records
        .add("configmaps", [(1_000, map("settings", owned("acme.dev/v1", "Deployment", "living", &living)))]);
    let expected = [
        ("Deployment/web", "Create"),
        ("ReplicaSet/web-1", "Create"),
        ("ReplicaSet/web-2", "Recreated"),
        ("ReplicaSet/living-1", "Create"),
        ("ReplicaSet/living-2", "Recreated"),
        ("StatefulSet/db", "Create"),
        ("ControllerRevision/db-1", "Create"),
        ("ControllerRevision/db-2", "Recreated"),
        ("Job/nightly-1", "Create"),
        ("Service/front", "Create"),
        ("Endpoints/front", "Recreated"),
        ("EndpointSlice/front-a", "Recreated"),
        ("EndpointSlice/front-b", "Create"),
        ("ConfigMap/settings", "Create"),
    ];
    assert_eq!(records.actions(&server.kubeconfig, &["--since", "10m"]), actions(&expected));
    let (code, out, error) = records.undo(&server.kubeconfig, &["--since", "10m", "--yes"]);
    assert_eq!(code, Some(0), "{out}{error}");
    let old = admin.get("/apis/apps/v1/namespaces/default/replicasets/web-1").1;
    assert_eq!(
        old["metadata"]["ownerReferences"][0]["uid"],
        admin.get("/apis/apps/v1/namespaces/default/deployments/web").1["metadata"]["uid"]
    );
}

/// A claim gets its former volume back if that volume has kept its data; a recycled volume is emptied, whatever is bound to it.
#[test]
fn a_claim_is_bound_to_its_retained_volume_and_to_no_recycled_one() {
    const VOLUMES: &str = "/api/v1/persistentvolumes";
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let records = Records::of(&server);
    let (size, modes) = (json!({"storage": "1Gi"}), json!(["ReadWriteOnce"]));
    for (name, policy) in [("kept", "Retain"), ("emptied", "Recycle")] {
        let volume = json!({"metadata": {"name": name}, "spec": {"capacity": size, "accessModes": modes,
            "persistentVolumeReclaimPolicy": policy, "nfs": {"server": "nfs.example.com", "path": "/data"},
            "claimRef": {"namespace": "default", "name": name, "uid": format!("uid-{name}")}}});
        admin.create(VOLUMES, &volume);
        let released = json!({"status": {"phase": "Released"}});
        assert_eq!(admin.send(Method::PATCH, &format!("{VOLUMES}/{name}/status"), &released).0, 200);
        let spec = json!({"spec": {"accessModes": modes, "storageClassName": "", "volumeName": name,
            "resources": {"requests": size}}});
        let claim = object("v1", "PersistentVolumeClaim", "default", name, spec);
        records.add("persistentvolumeclaims", [(1_000, claim)]);
    }
    let (code, out, error) = records.undo(&server.kubeconfig, &["--since", "10m", "--yes"]);
    assert_eq!(code, Some(0), "{out}{error}");
    for (name, is_bound) in [("kept", true), ("emptied", false)] {
        let claim = admin.get(&format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}")).1;
        let volume = admin.get(&format!("{VOLUMES}/{name}")).1;
        assert_eq!(volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"], is_bound, "{volume}");
    }
}

/// A bare pod that ran comes back, although its last state is a finished one; a namespace comes back, and objects that controllers
/// have made again there meanwhile do not count as failures.
#[test]
fn a_pod_that_ran_and_a_namespace_come_back() {
    const SHOP: &str = "/api/v1/namespaces/shop";
    let server = Kubegc::start_with("up", ["--ephemeral"]);
    let admin = Admin::of(&server);
    let records = Records::of(&server);
    let recorder = Recorder::start(&server, &records.folder, &["--metrics-bind-address=127.0.0.1:0"]);
    until("it records", || recorder.is_ready());
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}}));
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    admin.create(&format!("{SHOP}/pods"), &json!({"metadata": {"name": "bare"}, "spec": pod}));
    admin.create(
        &format!("{SHOP}/configmaps"),
        &json!({"metadata": {"name": "settings"}, "data": {"k": "v"}}),
    );
    let labels = json!({"app": "web"});
    let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod}}});
    admin.create("/apis/apps/v1/namespaces/shop/deployments", &web);
    let running = |labels: &str| {
        let pods = admin.get(&format!("{SHOP}/pods?labelSelector={labels}")).1;
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count()
    };
    let is_recorded = |name: &str| {
        let files = std::fs::read_dir(&records.folder).unwrap().map(|file| file.unwrap().path());
        files
            .into_iter()
            .any(|file| std::fs::read_to_string(file).unwrap().contains(&format!("\"name\":\"{name}\"")))
    };
    until("all pods run", || running("") == 2);
    admin.delete_at(&format!("{SHOP}/pods/bare"), "Background");
    until("the pod is gone", || admin.get(&format!("{SHOP}/pods/bare")).0 == 404 && is_recorded("bare"));
    let (code, out, error) = records.undo(&server.kubeconfig, &["pod/bare", "-n", "shop", "--yes"]);
    assert!(code == Some(0) && !out.contains("Impossible"), "{out}{error}");
    until("it runs again", || running("") == 2);

    admin.delete_at(SHOP, "Background");
    until("the namespace is gone", || admin.get(SHOP).0 == 404 && is_recorded("shop"));
    let (code, out, error) = records.undo(&server.kubeconfig, &["ns/shop", "--yes"]);
    assert!(code == Some(0) && out.contains("Recreated"), "{out}{error}");
    assert_eq!(admin.get(&format!("{SHOP}/configmaps/settings")).1["data"]["k"], "v");
    until("everything runs again", || running("app%3Dweb") == 1 && running("") == 2);
    // A second run finds everything present.
    let (code, out, error) = records.undo(&server.kubeconfig, &["ns/shop", "--yes"]);
    assert_eq!(code, Some(0), "{out}{error}");
    assert!(recorder.end().success());
}

/// Prints the peak memory of a command in KiB, and its output.
const MEASURED: &str = "import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)";

/// The records are not kept in memory: to restore one object from 25 MiB of records takes little more than for that one alone.
#[test]
fn records_are_read_without_being_held() {
    let server = Kubegc::start("apiserver");
    let records = Records::of(&server);
    records.add("configmaps", [(1_000, map("wanted", json!({"data": {"k": "v"}})))]);
    let used = || {
        let output = Command::new("python3")
            .args(["-c", MEASURED, env!("CARGO_BIN_EXE_kubegc"), "undo", "cm/wanted", "--records"])
            .arg(&records.folder)
            .arg("--kubeconfig")
            .arg(&server.kubeconfig)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap()
    };
    let before = used();
    let data: BTreeMap<String, &str> = (0..20_000).map(|number| (format!("key-{number}"), "value")).collect();
    records.add(
        "configmaps",
        (0..70).map(|number| (2_000, map(&format!("other-{number}"), json!({"data": data})))),
    );
    let bytes = std::fs::metadata(records.folder.join("deleted-1.jsonl")).unwrap().len();
    assert!(bytes > 25 << 20, "{bytes}");
    let after = used();
    assert!(after < before + (20 << 10), "{before} KiB before, {after} KiB with {bytes} bytes of records");
}
