//! Commands that promise to change nothing keep their promise: a proxy before the server counts every write. Each is compared with
//! the same command without the promise, which does write.

use std::path::PathBuf;

use http::Method;
use serde_json::{Value, json};

use super::page::{PageWorld, place_behind};
use crate::support::Kubegc;
use crate::support_cluster::{Admin, LEASE, MAPS, QUICK_LEASE, Run, kubegc, privileged_for_all, until};
use crate::support_proxy::Proxy;

const NODES: &str = "/api/v1/nodes";

/// Returns the requests that would change something. A review only asks a question, as do requests to a page; a dry run of the
/// server has no effect.
pub(crate) fn writes(proxy: &Proxy) -> Vec<String> {
    let changes = |method: &Method, path: &str| {
        *method != Method::GET
            && !path.starts_with("/apis/authorization.k8s.io/")
            && !path.starts_with("/apis/authentication.k8s.io/")
            && !path.starts_with("/kubegc/")
            && !path.contains("dryRun=All")
    };
    let forwarded = proxy.forwarded();
    let writes = forwarded.iter().filter(|request| changes(&request.method, &request.path));
    writes.map(|request| format!("{} {}", request.method, request.path)).collect()
}

/// A server with work for each command, and a proxy before it.
struct World {
    server: Kubegc,
    admin: Admin,
    proxy: Proxy,
    /// UID of an owner that is gone, and UID of its replacement.
    map: String,
    /// Manifests from before a restore that lost the references.
    backup: PathBuf,
    /// Records of an object that was deleted.
    records: PathBuf,
}

const GONE: &str = "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6";

fn world() -> World {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let owner = admin.map("owner", None);
    admin.map("leaf", Some(("owner", &owner)));
    admin.map("restored", Some(("owner", GONE)));
    let stripped = admin.map("stripped", None);
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["acme.dev/hold"]}});
    admin.create(MAPS, &held);
    admin.delete("held", "Background");
    admin.create("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "unused"}}));
    let backup = server.folder.path().join("backup.json");
    let manifest = |name: &str, uid: &str, owners: Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default", "uid": uid, "ownerReferences": owners}})
    };
    let owned = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner}]);
    let items = [manifest("owner", &owner, json!([])), manifest("stripped", &stripped, owned)];
    std::fs::write(&backup, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).unwrap();
    let records = server.folder.path().join("records");
    super::recovery::record(&server, &records, &[], |admin| {
        admin.map("lost", None);
        admin.delete("lost", "Background");
    });
    let proxy = Proxy::start(&server.kubeconfig);
    World { map: format!("{GONE}={owner}"), server, admin, proxy, backup, records }
}

/// Runs every command that can change something, first with its promise not to, and then without.
#[test]
fn a_command_without_consent_writes_nothing() {
    let world = world();
    let (records, backup) = (world.records.to_str().unwrap(), world.backup.to_str().unwrap());
    let undo = ["undo", "cm/lost", "--records", records, "--accept-unsigned"];
    let by_map = ["relink", "--map", &world.map];
    let by_backup = ["relink", "--from", backup];
    let release = ["release", "cm/held", "--force"];
    let protect = ["protect", "--marked"];
    let kubeconfig = world.proxy.kubeconfig();
    // Commands that only show, each with a part of their output.
    for (command, shown) in [
        (&undo[..], "Would create 1 object"),
        (&by_map, "Would change 1 object"),
        (&by_backup, "Would change"),
        (&["relink", "--prepare"], "Then restore"),
        (&protect, "would be written"),
        (&["protect", "--marked", "-o", "yaml"], "ValidatingAdmissionPolicy"),
        (&[&release[..], &["--dry-run"]].concat(), "would be removed"),
        (&["plan", "delete", "cm/owner"], "2 objects"),
        (&["delete", "cm/leaf"], "1 object"),
        (&release, "acme.dev/hold"),
        (&["why", "cm/leaf"], "owner"),
        (&["tree", "cm/owner"], "leaf"),
        (&["stuck"], "acme.dev/hold"),
        (&["garbage"], ""),
        (&["garbage", "--quarantine", "--older-than", "0s"], "Would mark"),
        (&["garbage", "--end-quarantine"], "Would mark"),
        (&["doctor", "--fail-on", "never"], "stuck"),
    ] {
        let (code, out, error) = kubegc(command, &kubeconfig);
        assert!(out.contains(shown), "{command:?}: {code:?} {out}{error}");
        assert_eq!(writes(&world.proxy), [""; 0], "{command:?} has changed something");
    }
    // kubectl's flag for delete is a different command here, which does not delete instead.
    let (code, _, error) = kubegc(&["delete", "cm/owner", "--dry-run"], &kubeconfig);
    assert!(code == Some(2) && error.contains("kubegc plan delete"), "{error}");
    assert_eq!(writes(&world.proxy), [""; 0]);

    // With consent, each of them writes, as the counter shows.
    let mark = ["garbage", "--quarantine", "--older-than", "0s"];
    for (command, written) in [
        (&mark[..], "PATCH /api/v1/namespaces/default/secrets/unused"),
        (&["garbage", "--end-quarantine"], "PATCH /api/v1/namespaces/default/secrets/unused"),
        (&undo, "POST /api/v1/namespaces/default/configmaps"),
        (&by_map, "PATCH /api/v1/namespaces/default/configmaps/restored"),
        (&by_backup, "PATCH /api/v1/namespaces/default/configmaps/stripped"),
        (&protect, "/validatingadmissionpolicies"),
        (&release, "PATCH /api/v1/namespaces/default/configmaps/held"),
        (&["delete", "cm/leaf"], "DELETE /api/v1/namespaces/default/configmaps/leaf"),
    ] {
        let before = writes(&world.proxy).len();
        let (code, out, error) = kubegc(&[command, &["-y"]].concat(), &kubeconfig);
        let new = writes(&world.proxy).split_off(before);
        assert!(
            new.iter().any(|write| write.contains(written)),
            "{command:?}: {code:?} {new:?} {out}{error}"
        );
    }
    assert!(world.admin.exists("lost") && !world.admin.exists("held"), "{}", world.server.url);
}

/// Returns an administrator with an object that is due for collection, and the kubeconfig of an account that may collect it.
fn with_work(server: &Kubegc) -> (Admin, PathBuf) {
    let admin = Admin::of(server);
    let account = privileged_for_all(server);
    for definition in crate::support_cluster::manifests("deploy/crds", &["retentionpolicies.yaml"]) {
        admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    }
    admin.map("stray", Some(("none", GONE)));
    (admin, account)
}

/// A paused leader only writes its Lease.
#[test]
fn a_pause_leaves_nothing_but_the_renewals_of_the_lease() {
    let server = Kubegc::start("apiserver");
    let (admin, account) = with_work(&server);
    let (code, out, error) = kubegc(&["pause", "--beforehand"], &server.kubeconfig);
    assert_eq!(code, Some(0), "{out}{error}");
    let proxy = Proxy::start(&account);
    let run = Run::with(&proxy.kubeconfig(), &[&QUICK_LEASE[..], &["--controllers=*"]].concat());
    until("it leads, paused", || run.is_ready() && run.leads() && run.metric("kubegc_paused 1"));
    let renewals =
        || writes(&proxy).iter().filter(|write| write.contains("/leases/kubegc-garbage-collector")).count();
    let begun = renewals();
    until("the Lease is renewed a few times", || renewals() > begun + 5);
    let others: Vec<String> = writes(&proxy).into_iter().filter(|write| !write.contains("/leases")).collect();
    assert_eq!(others, [""; 0]);
    assert!(admin.exists("stray"));
    let (code, _, error) = kubegc(&["resume"], &server.kubeconfig);
    assert_eq!(code, Some(0), "{error}");
    until("it continues", || !admin.exists("stray"));
}

/// A policy that is not enforced counts the due objects in its status, and deletes none of them.
#[test]
fn a_policy_that_is_not_enforced_writes_its_status_alone() {
    let server = Kubegc::start("apiserver");
    let (admin, account) = with_work(&server);
    let proxy = Proxy::start(&account);
    let policies = "/apis/kubegc.io/v1alpha1/retentionpolicies";
    let policy = |enforce: bool| {
        json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy", "metadata": {"name": "old"},
            "spec": {"target": {"apiVersion": "v1", "kind": "ConfigMap"}, "maxAge": "1ns", "enforce": enforce,
                "selector": {"matchLabels": {"app": "old"}}}})
    };
    let old = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "old", "labels": {"app": "old"}}});
    admin.create(MAPS, &old);
    until("policies are served", || admin.send(Method::POST, policies, &policy(false)).0 == 201);
    let _run = Run::with(&proxy.kubeconfig(), &["--controllers=retention-policy-controller"]);
    until("it is counted", || admin.get(&format!("{policies}/old")).1["status"]["due"] == 1);
    let deletions =
        || writes(&proxy).into_iter().filter(|write| write.starts_with("DELETE ")).collect::<Vec<_>>();
    assert_eq!(deletions(), [""; 0]);
    let of_objects: Vec<String> =
        writes(&proxy).into_iter().filter(|write| write.contains("/configmaps")).collect();
    assert_eq!(of_objects, [""; 0]);
    let enforced = json!({"spec": {"enforce": true}});
    assert_eq!(admin.send(Method::PATCH, &format!("{policies}/old"), &enforced).0, 200);
    until("it is deleted", || !admin.exists("old"));
    assert_eq!(deletions(), [format!("DELETE {MAPS}/old")]);
}

/// Without `--ui-orders`, no order from the page reaches the server, even with all permissions.
#[test]
fn a_page_without_orders_passes_none_on() {
    for (flags, takes_orders) in [(&[][..], false), (&["--ui-orders"], true)] {
        let mut proxy = None;
        let place = place_behind(flags, |account| proxy.insert(Proxy::start(account)).kubeconfig());
        let proxy = proxy.expect("the collector is behind it");
        let object = place.admin.map("plain", None);
        until("it leads", || place.run.is_ready() && place.run.leads());
        let order = json!({"resource": "configmaps", "namespace": "default", "name": "plain", "uid": object,
            "policy": "background", "objects": 1, "lostVolumes": 0});
        let token = format!("Bearer {}", place.tokens[0]);
        let root = [("authorization", token.as_str())];
        let is_order = |write: &&String| !write.contains("/leases");
        let before = writes(&proxy).iter().filter(is_order).count();
        let (code, _, status) = place.browser.ask(Method::POST, "/kubegc/v1/delete", &root, &order);
        assert_eq!(code == 403 && status["reason"] == "ReadOnly", !takes_orders, "{code} {status}");
        assert_eq!(
            writes(&proxy).iter().filter(is_order).count() > before,
            takes_orders,
            "{flags:?}: {:?}",
            writes(&proxy)
        );
        assert_eq!(place.admin.exists("plain"), !takes_orders);
        let (code, _, status) =
            place.browser.ask(Method::POST, "/kubegc/v1/pause", &root, &json!({"reason": "no"}));
        assert_eq!(code == 403 && status["reason"] == "ReadOnly", !takes_orders, "{code} {status}");
        a_finalizer_is_released(&place, &proxy, takes_orders);
        let paused = &place.admin.get(LEASE).1["metadata"]["annotations"]["kubegc.io/paused"];
        assert_eq!(paused.is_string(), takes_orders, "{flags:?}");
    }
}

/// A page that takes orders removes a finalizer with the user's token, and journals it with the user; another page writes nothing.
fn a_finalizer_is_released(place: &PageWorld, proxy: &Proxy, takes_orders: bool) {
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["acme.dev/hold"]}});
    place.admin.create(MAPS, &held);
    place.admin.delete("held", "Background");
    let token = format!("Bearer {}", place.tokens[0]);
    let root = [("authorization", token.as_str())];
    let about =
        "/kubegc/v1/finalizer?resource=configmaps&namespace=default&name=held&finalizer=acme.dev/hold";
    let (code, _, shown) = place.browser.ask(Method::GET, about, &root, &Value::Null);
    assert_eq!(code, 200, "{shown}");
    let order = json!({"resource": "configmaps", "namespace": "default", "name": "held", "uid": shown["object"]["uid"],
        "resourceVersion": shown["resourceVersion"], "finalizer": "acme.dev/hold"});
    let (code, _, answer) = place.browser.ask(Method::POST, "/kubegc/v1/release", &root, &order);
    let patched = writes(proxy).iter().any(|write| write.contains("/configmaps/held"));
    assert_eq!(patched, takes_orders, "{:?}", writes(proxy));
    if takes_orders {
        assert_eq!((code, &answer["remaining"]), (200, &json!([])), "{answer}");
        assert!(!place.admin.exists("held"));
    } else {
        assert_eq!((code, &answer["reason"]), (403, &json!("ReadOnly")), "{answer}");
        assert!(place.admin.exists("held"));
    }
}

/// A node without a machine gets an Event in place of its deletion. The provider is a command, which knows the machine of its
/// argument.
#[test]
fn a_dry_run_of_node_deletions_deletes_no_node() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let account = privileged_for_all(&server);
    let provider = server.folder.path().join("provider");
    std::fs::write(&provider, PROVIDER).unwrap();
    std::fs::set_permissions(&provider, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (name, ready) in [("found", "True"), ("lost", "Unknown")] {
        admin.create(NODES, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        let condition =
            json!({"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"conditions": [condition]}});
        let (code, answer) = admin.send(Method::PATCH, &format!("{NODES}/{name}/status"), &status);
        assert_eq!(code, 200, "{answer}");
    }
    let proxy = Proxy::start(&account);
    let flags = [
        "--controllers=cloud-node-lifecycle-controller",
        "--cloud-exec",
        provider.to_str().unwrap(),
        "--cloud-exec-argument=--machine",
        "--cloud-exec-argument=found",
        "--node-monitor-period=50ms",
        "--node-missing-confirmations=2",
        "--node-missing-period=100ms",
        "--node-breaker-fraction=1",
    ];
    let flags = [&QUICK_LEASE[..], &flags].concat();
    let dry = Run::with(&proxy.kubeconfig(), &[&flags[..], &["--node-deletion-dry-run"]].concat());
    let reasons = || {
        let events = admin.get("/api/v1/namespaces/default/events").1;
        let about = events["items"].as_array().unwrap().iter();
        about.filter_map(|event| event["reason"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    until("an Event says that it would be deleted", || {
        reasons().iter().any(|reason| reason == "DeletingNodeDryRun")
    });
    let of_nodes: Vec<String> =
        writes(&proxy).into_iter().filter(|write| write.contains("/api/v1/nodes")).collect();
    assert_eq!(of_nodes, [""; 0]);
    assert_eq!(admin.get(&format!("{NODES}/lost")).0, 200);
    drop(dry);
    let _run = Run::with(&proxy.kubeconfig(), &flags);
    until("without the flag it is deleted", || admin.get(&format!("{NODES}/lost")).0 == 404);
    assert_eq!(admin.get(&format!("{NODES}/found")).0, 200);
}

/// Provider that reports the machine given by `--machine` as running, and any other as missing.
const PROVIDER: &str = r#"#!/usr/bin/env python3
import json, sys
asked = json.load(sys.stdin)
assert sys.argv[1] == "--machine"
asked["machine"] = {"state": "Running" if asked["node"]["name"] == sys.argv[2] else "Absent"}
print(json.dumps(asked))
"#;
