//! `kubegc run` over TLS against a separate `kubegc apiserver`, and the queries.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

#[path = "run/journal.rs"]
mod journal;
#[path = "run/manners.rs"]
mod manners;
#[path = "run/questions.rs"]
mod questions;
#[path = "run/safety.rs"]
mod safety;
#[path = "run/screens.rs"]
mod screens;
mod support;
#[path = "support/cluster.rs"]
mod support_cluster;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use support::{Kubegc, Signal};
use support_cluster::{Admin, LEASE, MAPS, OWNERS, QUICK_LEASE, Run, ask, effects, kubegc, until};

#[test]
fn cascades_end_right_and_are_in_the_journal() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let journal = server.folder.path().join("journal");
    let mut run = Run::start(&server, &["--journal", journal.to_str().unwrap()]);
    for policy in ["Background", "Foreground", "Orphan"] {
        let lower = policy.to_lowercase();
        let root = admin.map(&lower, None);
        let middle = admin.map(&format!("{lower}-middle"), Some((&lower, &root)));
        admin.map(&format!("{lower}-leaf"), Some((&format!("{lower}-middle"), &middle)));
        admin.map(&format!("{lower}-other"), None);
    }
    until("the graph is complete", || run.is_ready());
    for policy in ["Background", "Foreground", "Orphan"] {
        admin.delete(&policy.to_lowercase(), policy);
    }
    for gone in [
        "background",
        "background-middle",
        "background-leaf",
        "foreground",
        "foreground-middle",
        "foreground-leaf",
        "orphan",
    ] {
        until(&format!("{gone} is gone"), || !admin.exists(gone));
    }
    for stays in ["background-other", "foreground-other", "orphan-other", "orphan-leaf"] {
        assert!(admin.exists(stays), "{stays}");
    }
    let released = admin.get(&format!("{MAPS}/orphan-middle")).1;
    assert_eq!(released["metadata"]["ownerReferences"], Value::Null);

    let graph = run.page("/debug/controllers/garbagecollector/graph");
    assert!(graph.contains("text/vnd.graphviz") && graph.contains("orphan-leaf"), "{graph}");
    let metrics = run.page("/metrics");
    for line in [
        &effects(OWNERS, "delete", "OwnersAbsent", "applied", 2),
        &effects(OWNERS, "delete", "OwnerForegroundDeleting", "applied", 2),
        "leader_election_master_status{name=\"kubegc-garbage-collector\"} 1",
        "garbagecollector_controller_resources_sync_error_total 0",
        "workqueue_depth{name=\"garbage_collector_attempt_to_delete\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }

    run.signal(Signal::TERM);
    assert_eq!(run.wait().code(), Some(0), "{}", run.log());
    assert_eq!(admin.holder(), "", "the lease is released");
    let entries: Vec<Value> = std::fs::read_to_string(&journal)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let leaf = entries
        .iter()
        .find(|entry| entry["verb"] == "delete" && entry["name"] == "background-leaf")
        .expect("the journal has it");
    assert_eq!(leaf["outcome"], "applied");
    assert_eq!(leaf["verdict"], "OwnersAbsent");
    assert_eq!(leaf["owners"][0]["name"], "background-middle");
    let evidence: Vec<&str> =
        leaf["evidence"].as_array().unwrap().iter().map(|fact| fact.as_str().unwrap()).collect();
    assert!(evidence.iter().any(|fact| fact.contains("removal seen at version")), "{leaf}");
}

#[test]
fn a_standby_with_a_warm_graph_takes_over_from_a_killed_leader() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let mut first = Run::start(&server, &QUICK_LEASE);
    until("the first leads", || first.leads() && first.is_ready());
    let second = Run::start(&server, &[&QUICK_LEASE[..], &["--standby=warm"]].concat());
    until("the second is ready", || second.is_ready());
    assert!(!second.leads());
    let root = admin.map("root", None);
    admin.map("leaf", Some(("root", &root)));
    until("the standby sees them", || second.page("/debug/kubegc/graph").contains(&root));
    first.signal(Signal::KILL);
    first.wait();
    admin.delete("root", "Background");
    assert!(admin.exists("leaf"), "no replica leads");
    let killed = Instant::now();
    until("the standby collects", || !admin.exists("leaf"));
    assert!(killed.elapsed() < Duration::from_secs(15), "{:?}", killed.elapsed());
    assert!(second.leads());
    assert_eq!(admin.get(LEASE).1["spec"]["leaseTransitions"], 1);
}

#[test]
fn nothing_is_sent_after_the_lease_is_lost() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let mut run = Run::start(&server, &QUICK_LEASE);
    until("it leads", || run.leads() && run.is_ready());
    let root = admin.map("root", None);
    admin.map("leaf", Some(("root", &root)));
    let taken = json!({"spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 3600,
                                "renewTime": "2099-01-01T00:00:00.000000Z"}});
    assert_eq!(admin.send(Method::PATCH, LEASE, &taken).0, 200);
    assert_eq!(run.wait().code(), Some(1));
    until("it says why", || {
        run.log().contains("leader election lost: lease kube-system/kubegc-garbage-collector is held by")
    });
    admin.delete("root", "Background");
    // Another replica stands by, with everything in its graph, and does nothing either.
    let standby = Run::start(&server, &[&QUICK_LEASE[..], &["--standby=warm"]].concat());
    until("the standby has seen it", || standby.is_ready());
    until("the standby knows who leads", || standby.log().contains("somebody-else"));
    assert!(admin.exists("leaf"));
    assert_eq!(admin.holder(), "somebody-else");
    assert!(
        standby
            .page("/metrics")
            .contains("leader_election_master_status{name=\"kubegc-garbage-collector\"} 0")
    );
}

#[test]
fn a_leader_that_slept_past_its_time_sends_nothing_when_it_wakes() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let run = Run::start(&server, &QUICK_LEASE);
    until("it leads", || run.leads() && run.is_ready());
    let root = admin.map("root", None);
    admin.map("leaf", Some(("root", &root)));
    until("it sees them", || run.page("/debug/kubegc/graph").contains(&root));
    run.signal(Signal::STOP);
    let stopped = Instant::now();
    let taken = json!({"spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 3600}});
    assert_eq!(admin.send(Method::PATCH, LEASE, &taken).0, 200);
    admin.delete("root", "Background");
    until("its time is over", || stopped.elapsed() > Duration::from_millis(2_500));
    run.signal(Signal::CONT);
    until("it stands by", || {
        let log = run.log();
        log.contains("leader election lost") && log.contains("somebody-else")
    });
    assert!(!run.leads());
    until("it sees the deletion", || run.metric("kubegc_graph_virtual_owners 1"));
    assert!(admin.exists("leaf"), "{}", run.log());
}

#[test]
fn a_dry_run_deletes_nothing_and_says_what_it_would() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let run = Run::start(&server, &["--dry-run"]);
    until("it is ready", || run.is_ready());
    let root = admin.map("root", None);
    admin.map("leaf", Some(("root", &root)));
    admin.delete("root", "Background");
    until("it is reported", || {
        run.log()
            .lines()
            .any(|line| line.contains("dry run: would do") && line.contains("configmaps default/leaf"))
    });
    assert!(admin.exists("leaf"));
    assert_eq!(admin.get(LEASE).0, 404, "a dry run takes no lease");
    assert!(run.metric(&effects(OWNERS, "delete", "OwnersAbsent", "dry-run", 1)));
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let server = Kubegc::start("apiserver");
    let file = |name: &str, change: &dyn Fn(String) -> String| {
        let path = server.folder.path().join(name);
        std::fs::write(&path, change(std::fs::read_to_string(&server.kubeconfig).unwrap())).unwrap();
        path
    };
    let run = ["run", "--bind-address=127.0.0.1:0", "--log-level=warn"];
    let (code, _, error) = kubegc(&run, Path::new("/nowhere/kubeconfig"));
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("/nowhere/kubeconfig"), "{error}");

    let garbage = file("garbage", &|_| "not: [a kubeconfig".into());
    let (code, _, error) = kubegc(&run, &garbage);
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");

    let (code, _, error) = kubegc(&["run", "--leader-elect-renew-deadline=20s"], &server.kubeconfig);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("must be longer than --leader-elect-renew-deadline"), "{error}");

    let url = server.url.clone();
    let unreachable = file("unreachable", &|text| text.replace(&url, "https://127.0.0.1:1"));
    let (code, _, error) = kubegc(&["stuck"], &unreachable);
    assert_eq!((code, error.lines().count()), (Some(1), 1), "{error}");
    assert!(error.starts_with("error: cannot reach https://127.0.0.1:1"), "{error}");
}

#[test]
fn credentials_and_permissions_that_do_not_suffice_are_told() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let ca = server.ca.display().to_string();
    let with_token = |name: &str, token: &str| {
        let path = server.folder.path().join(name);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": ca}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        path
    };
    let run = ["run", "--bind-address=127.0.0.1:0", "--log-level=warn"];
    let (code, _, error) = kubegc(&run, &with_token("expired", "expired"));
    assert_eq!((code, error.lines().count()), (Some(1), 1), "{error}");
    assert!(error.contains("401 Unauthorized"), "{error}");

    let robots = "/api/v1/namespaces/default/serviceaccounts";
    let robot = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    assert_eq!(admin.send(Method::POST, robots, &robot).0, 201);
    let ask = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let (_, token) = admin.send(Method::POST, &format!("{robots}/robot/token"), &ask);
    let token = token["status"]["token"].as_str().unwrap();
    let (code, _, error) = kubegc(&run, &with_token("robot", token));
    assert_eq!((code, error.lines().count()), (Some(1), 1), "{error}");
    assert!(
        error.contains("add to our ClusterRole: {apiGroups: [\"*\"], resources: [\"*\"], verbs: ["),
        "{error}"
    );
}

#[test]
fn questions_are_answered_from_the_graph() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let shop = admin.map("shop", None);
    let till = admin.map("till", Some(("shop", &shop)));
    admin.map("receipt", Some(("till", &till)));
    admin.map("stock", Some(("shop", &shop)));
    admin.map("stray", Some(("gone", "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6")));
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
                      "metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    assert_eq!(admin.send(Method::POST, MAPS, &held).0, 201);
    admin.delete("held", "Background");
    let ask = |arguments: &[&str]| ask(&server, arguments);
    let tree = ask(&["tree", "cm/shop"]);
    let rows: Vec<Vec<&str>> = tree.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["OBJECT", "NAMESPACE", "READY", "STATUS", "AGE", "STATE"]);
    let age = |cell: &str| cell.strip_suffix('s').is_some_and(|seconds| seconds.parse::<u32>().is_ok());
    for (row, expected) in rows[1..].iter().zip([
        &["ConfigMap/shop", "default"][..],
        &["├─", "ConfigMap/stock", "default"],
        &["└─", "ConfigMap/till", "default"],
        &["└─", "ConfigMap/receipt", "default"],
    ]) {
        let (last, before) = row.split_last().unwrap();
        assert!(before == expected && age(last), "{tree}");
    }
    assert_eq!(
        ask(&["why", "configmaps/receipt", "-n", "default"]),
        "ConfigMap/receipt in default\n\
         Nothing deletes it: an owner lives.\n\n\
         Owners:\n  \
           ConfigMap/till (lives)\n    \
             ConfigMap/shop (lives)\n"
    );
    let stray: Value = serde_json::from_str(&ask(&["why", "cm/stray", "-o", "json"])).unwrap();
    assert_eq!(stray["conclusion"], "ToBeDeleted", "{stray}");
    assert_eq!(stray["owners"][0]["state"], "absent");
    let stuck: Value = serde_json::from_str(&ask(&["stuck", "-n", "default", "-o", "json"])).unwrap();
    let row = &stuck["items"][0];
    assert_eq!(
        (&row["code"], &row["objects"][0]["name"], &stuck["items"][1]),
        (&json!("FinalizerHeld"), &json!("held"), &Value::Null),
        "{stuck}"
    );
    assert_eq!(ask(&["stuck", "--for", "1h"]), "Nothing is stuck.\n");
    let (code, out, _) = kubegc(&["stuck", "--exit-code", "-o", "name"], &server.kubeconfig);
    assert_eq!((code, &*out), (Some(1), "configmaps/held\n"));
    let background = ask(&["plan", "delete", "ConfigMap/shop"]);
    assert_eq!(
        background,
        "4 objects: 4 ConfigMaps; nothing gets stuck\n\n\
         FATE      NAMESPACE   OBJECT              REMARK\n\
         Deleted   default     ConfigMap/receipt\n\
         Deleted   default     ConfigMap/shop\n\
         Deleted   default     ConfigMap/stock\n\
         Deleted   default     ConfigMap/till\n"
    );
    let (code, out, _) = kubegc(&["plan", "delete", "cm", "held"], &server.kubeconfig);
    assert_eq!((code, out.lines().next()), (Some(3), Some("1 object: 1 ConfigMap; 1 stuck")));
    let orphan: Value =
        serde_json::from_str(&ask(&["plan", "delete", "cm/shop", "--cascade", "orphan", "-o", "json"]))
            .unwrap();
    let names = |fate: &str| {
        let mut names: Vec<String> = orphan["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|item| item["fate"] == fate)
            .map(|item| item["name"].as_str().unwrap().into())
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        (names("Deleted"), names("Released")),
        (vec!["shop".to_owned()], vec!["stock".into(), "till".into()])
    );
    for name in ["shop", "till", "receipt", "stock", "stray"] {
        assert!(admin.exists(name), "a question deleted {name}");
    }
    let (code, _, error) = kubegc(&["why", "cm/nothing"], &server.kubeconfig);
    assert_eq!(
        (code, error.trim()),
        (Some(1), "error: configmaps \"nothing\" not found in namespace \"default\"")
    );
    // Of several objects, the existing ones are answered.
    for question in [&["why"][..], &["tree"], &["plan", "delete"]] {
        let arguments = [question, &["cm", "nothing", "stray", "nil", "-o", "name"]].concat();
        let (code, out, error) = kubegc(&arguments, &server.kubeconfig);
        let missing: Vec<&str> = error.lines().filter(|line| line.starts_with("error: ")).collect();
        let not_found = |name| format!("error: configmaps \"{name}\" not found in namespace \"default\"");
        assert_eq!((code, missing), (Some(1), vec![&*not_found("nothing"), &*not_found("nil")]), "{error}");
        assert!(out.trim().ends_with("/stray"), "{question:?}: {out}");
    }
}

#[test]
fn the_plugin_is_the_same_binary_under_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-gc");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kubegc"), &plugin).unwrap();
    let output = Command::new(plugin).args(["why", "--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Usage: kubectl gc why"), "{text}");
}
