//! Orders of operators outlive their Lease: one that is deleted, one from an older backup, and one from an earlier installation.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};

use super::faults::copy;
use crate::support::{Kubegc, Signal};
use crate::support_cluster::{Admin, LEASE, QUICK_LEASE, Run, ask, kubeconfig, least_privileged, uid, until};
use crate::support_proxy::Proxy;

/// An owner that never existed.
const GONE: (&str, &str) = ("gone", "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6");
const PAUSED: &str = "kubegc.io/paused";
const TRIPPED: &str = "kubegc.io/tripped";

/// Returns an annotation of the Lease; empty if there is none.
fn ordered(admin: &Admin, name: &str) -> String {
    admin.get(LEASE).1["metadata"]["annotations"][name].as_str().unwrap_or_default().to_owned()
}

fn annotate(admin: &Admin, name: &str, value: &Value) {
    let patch = json!({"metadata": {"annotations": {name: value}}});
    assert_eq!(admin.send(Method::PATCH, LEASE, &patch).0, 200);
}

/// Deletes the Lease, and waits for the next one with the expected content.
fn lose_lease(admin: &Admin, what: &str, expected: impl Fn() -> bool) {
    let lost = uid(&admin.get(LEASE).1);
    assert_eq!(admin.send(Method::DELETE, LEASE, &Value::Null).0, 200);
    until(what, || {
        let (code, lease) = admin.get(LEASE);
        code == 200 && uid(&lease) != lost && expected()
    });
}

/// Waits until the leader has worked for a while: until one renewal, and then another.
fn rest(admin: &Admin) {
    for _ in 0..2 {
        let renewed = admin.get(LEASE).1["spec"]["renewTime"].clone();
        until("the lease is renewed", || admin.get(LEASE).1["spec"]["renewTime"] != renewed);
    }
}

#[test]
fn a_pause_and_a_trip_outlive_a_deleted_lease() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let flags = [&QUICK_LEASE[..], &["--breaker-max-deletions=1"]].concat();
    let run = Run::start(&server, &flags);
    until("it leads", || run.is_ready() && run.leads());
    let root = admin.map("root", None);
    for name in ["a", "b"] {
        admin.map(name, Some(("root", &root)));
    }
    admin.delete("root", "Background");
    until("it trips", || ordered(&admin, TRIPPED).contains("\"configmaps\""));
    let left = || ["a", "b"].into_iter().filter(|name| admin.exists(name)).count();
    assert_eq!(left(), 1);
    ask(&server, &["pause", "--reason", "restoring etcd"]);
    until("it is paused", || run.metric("kubegc_paused 1"));

    lose_lease(&admin, "the orders to be written again", || {
        ordered(&admin, PAUSED).ends_with(": restoring etcd")
            && ordered(&admin, TRIPPED).contains("\"configmaps\"")
    });
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": GONE.0, "uid": GONE.1});
    let secrets = "/api/v1/namespaces/default/secrets";
    admin.create(secrets, &json!({"metadata": {"name": "s", "ownerReferences": [owner]}}));
    rest(&admin);
    assert!(run.metric("kubegc_paused 1"));
    assert_eq!((admin.get(&format!("{secrets}/s")).0, left()), (200, 1));

    // Each order ends when the Lease no longer shows it.
    annotate(&admin, PAUSED, &Value::Null);
    until("the secret is collected", || admin.get(&format!("{secrets}/s")).0 == 404);
    assert_eq!(left(), 1);
    assert_eq!(
        ask(&server, &["resume", "--resource", "configmaps"]),
        "Collection resumed for: configmaps.\n"
    );
    until("the rest is collected", || left() == 0);
}

/// Stopped resources that cannot be read stop everything, even on the next Lease, until an operator resumes.
#[test]
fn stopped_resources_that_cannot_be_read_stop_everything() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let run = Run::start(&server, &QUICK_LEASE);
    until("it leads", || run.is_ready() && run.leads());
    let complaints = || run.log().matches("the annotation cannot be parsed").count();
    annotate(&admin, TRIPPED, &json!("configmaps, I think"));
    until("it says so", || complaints() == 1);
    admin.map("stray", Some(GONE));
    rest(&admin);
    assert!(admin.exists("stray"));
    lose_lease(&admin, "the same annotation", || ordered(&admin, TRIPPED) == "configmaps, I think");
    rest(&admin);
    assert!(admin.exists("stray"));
    ask(&server, &["resume"]);
    until("the stray is collected", || !admin.exists("stray"));
    assert_eq!(ordered(&admin, TRIPPED), "");
    // Correcting the annotation also ends this.
    annotate(&admin, TRIPPED, &json!("{"));
    until("it says so again", || complaints() == 2);
    admin.map("stray", Some(GONE));
    rest(&admin);
    assert!(admin.exists("stray"));
    annotate(&admin, TRIPPED, &json!("{}"));
    until("the next stray is collected", || !admin.exists("stray"));
}

/// In the documentation's own example, an older snapshot of etcd that is restored during a pause does not have the pause.
#[test]
fn a_pause_outlives_a_server_that_is_restored_from_an_older_backup() {
    restored(true);
}

/// The snapshot may even be older than the collectors.
#[test]
fn a_pause_outlives_a_server_that_is_restored_from_a_backup_without_a_lease() {
    restored(false);
}

fn restored(has_lease: bool) {
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let start = |data: &Path| Kubegc::start_with("apiserver", ["--data-dir".as_ref(), data.as_os_str()]);
    let server = start(&data);
    let account = std::fs::read_to_string(least_privileged(&server)).unwrap();
    let account: Value = serde_json::from_str(&account).unwrap();
    let token = account["users"][0]["user"]["token"].as_str().unwrap();
    let account_of = |server: &Kubegc| {
        let file = server.folder.path().join("account");
        kubeconfig(&file, &server.url, &server.ca, token);
        file
    };
    if has_lease {
        let mut first = Run::with(&account_of(&server), &["--leader-elect=false"]);
        until("there is a Lease", || Admin::of(&server).get(LEASE).0 == 200);
        first.signal(Signal::TERM);
        first.wait();
    }
    drop(server);
    copy(&data, &backup);

    let server = start(&data);
    let admin = Admin::of(&server);
    let proxy = Proxy::start(&account_of(&server));
    let journal = folder.path().join("journal");
    let flags = ["--leader-elect=false", "--journal", journal.to_str().unwrap()];
    let mut run = Run::with(&proxy.kubeconfig(), &flags);
    until("the graph is complete", || run.is_ready() && run.is_synced());
    ask(&server, &["pause", "--beforehand", "--reason", "restoring etcd"]);
    until("it is paused", || run.metric("kubegc_paused 1"));
    drop(admin);
    drop(server);

    // The restored server may have reached the same revision as the other one, with different content.
    let server = start(&backup);
    let admin = Admin::of(&server);
    assert_eq!((admin.get(LEASE).0 == 200, ordered(&admin, PAUSED)), (has_lease, String::new()));
    for number in 0..100 {
        admin.map(&format!("other-{number}"), None);
    }
    proxy.redirect(&account_of(&server));
    until("the pause is written back", || ordered(&admin, PAUSED).ends_with(": restoring etcd"));
    let stray = admin.map("stray", Some(GONE));
    until("it sees the stray", || run.page("/debug/kubegc/graph").contains(&stray));
    assert!(run.metric("kubegc_paused 1") && admin.exists("stray"));

    // A collector that restarts meanwhile reads the orders beside its journal.
    run.signal(Signal::TERM);
    run.wait();
    assert_eq!(admin.send(Method::DELETE, LEASE, &Value::Null).0, 200);
    let run = Run::with(&proxy.kubeconfig(), &flags);
    until("it is ready", || run.is_ready() && run.is_synced());
    until("the pause is written back again", || ordered(&admin, PAUSED).ends_with(": restoring etcd"));
    assert!(run.metric("kubegc_paused 1") && admin.exists("stray"));
    assert_eq!(ask(&server, &["resume"]), "Resumed.\n");
    until("the stray is collected", || !admin.exists("stray"));
}

/// A Lease that an earlier installation left behind, and whose observation ended long ago, does not let the next installation act
/// at once.
#[test]
fn the_observation_of_an_earlier_installation_has_not_observed_for_this_one() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let (until_then, collection) = ("kubegc.io/observe-until", LEASE.rsplit_once('/').unwrap().0);
    let old = "2026-01-01T00:00:00Z";
    let lease = json!({"metadata": {"name": "kubegc-garbage-collector",
            "annotations": {until_then: old, "kubegc.io/observed-by": "another-account"}},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 3, "renewTime": "2026-01-01T00:00:00.000000Z"}});
    admin.create(collection, &lease);
    admin.map("stray", Some(GONE));
    let run = Run::start(&server, &[&QUICK_LEASE[..], &["--observe-for=1h"]].concat());
    until("it would collect", || run.metric("kubegc_requests_withheld 1"));
    until("the end of its own observation is on the Lease", || ordered(&admin, until_then).as_str() > old);
    assert!(admin.exists("stray"));
    assert_eq!(run.state()["mode"], "observe");
    let account = uid(&admin.get("/api/v1/namespaces/kube-system/serviceaccounts/kubegc").1);
    assert_eq!(ordered(&admin, "kubegc.io/observed-by"), account);
}
