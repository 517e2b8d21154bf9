//! Messages of `kubegc run` about problems, and its exit codes. More are tested in tests/run.rs.

use std::time::Instant;

use serde_json::Value;

use crate::support::Kubegc;
use crate::support_cluster::{
    Admin, QUICK_LEASE, Run, account, kubegc, least_privileged, permissions_for, until,
};
use crate::support_proxy::{Fault, Proxy};

/// Returns the error output, which includes the log, as plain text.
fn errors(run: &Run) -> Vec<String> {
    run.log().lines().filter(|line| line.starts_with("error: ")).map(str::to_owned).collect()
}

#[test]
fn a_server_of_another_version_is_told_and_tried() {
    fn older(document: &mut Value) {
        document["minor"] = "29".into();
        document["gitVersion"] = "v1.29.3".into();
    }
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let proxy = Proxy::start(&least_privileged(&server));
    proxy.inject(|_, path| path == "/version", Fault::Rewrite(older));
    let run = Run::with(&proxy.kubeconfig(), &[]);
    until("it says so", || {
        run.log().contains(
            "the server is v1.29.3; Kubernetes 1.30 and newer are supported, and other versions are not tested",
        )
    });
    let root = admin.map("root", None);
    admin.map("leaf", Some(("root", &root)));
    until("it leads", || run.is_ready() && run.leads());
    admin.delete("root", "Background");
    until("it collects all the same", || !admin.exists("leaf"));
}

#[test]
fn a_forbidden_lease_ends_it_with_the_rule_to_add() {
    let server = Kubegc::start("apiserver");
    let mut permissions = permissions_for("garbagecollector");
    permissions.retain(|object| object["kind"].as_str().unwrap().starts_with("Cluster"));
    let config = account(&server, permissions);
    let (code, _, error) = kubegc(&["run", "--bind-address=127.0.0.1:0", "--log-level=error"], &config);
    assert_eq!(
        (code, error.as_str()),
        (
            Some(1),
            "error: the server forbids to create leases.coordination.k8s.io in namespace kube-system: add to our \
             Role: {apiGroups: [\"coordination.k8s.io\"], resources: [\"leases\"], verbs: [\"create\"]}\n"
        )
    );
}

/// Each rule that the enabled collectors lack is named, and none for the others.
#[test]
fn every_missing_rule_is_told() {
    let server = Kubegc::start("apiserver");
    let config = account(&server, permissions_for("ttl-after-finished"));
    let flags = ["run", "--bind-address=127.0.0.1:0", "--log-level=error"];
    let with = |controllers| kubegc(&[&flags[..], &[controllers]].concat(), &config);
    let (code, _, error) = with("--controllers=ttl-after-finished,stale-lease-controller");
    assert_eq!(
        (code, error.as_str()),
        (
            Some(1),
            "error: the server forbids to get, list, watch nodes: add to our ClusterRole: {apiGroups: [\"\"], \
             resources: [\"nodes\"], verbs: [\"get\", \"list\", \"watch\"]}; the server forbids to delete, list, \
             watch leases.coordination.k8s.io: add to our ClusterRole: {apiGroups: [\"coordination.k8s.io\"], resources: \
             [\"leases\"], verbs: [\"delete\", \"list\", \"watch\"]}\n"
        )
    );
}

/// If a token expires while the leader works, it can renew nothing, so it ends with an explanation.
#[test]
fn credentials_that_run_out_end_a_leader_in_time() {
    let server = Kubegc::start("apiserver");
    let proxy = Proxy::start(&least_privileged(&server));
    let mut run = Run::with(&proxy.kubeconfig(), &QUICK_LEASE);
    until("it leads", || run.is_ready() && run.leads());
    proxy.inject(|_, _| true, Fault::Answer { code: 401, retry_after: None });
    let begun = Instant::now();
    assert_eq!(run.wait().code(), Some(1), "{}", run.log());
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    until("it says why", || !errors(&run).is_empty());
    let said = errors(&run);
    assert!(said[0].contains("401 Unauthorized"), "{said:?}");
    assert!(run.log().contains("leader election lost"), "{}", run.log());
}
