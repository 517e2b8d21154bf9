//! Commands find the leading collector without its address, with the permissions of their user.

use http::Method;
use serde_json::{Value, json};

use crate::support::Kubegc;
use crate::support_cluster::{Admin, LEASE, QUICK_LEASE, Run, kubeconfig, kubegc, privileged_for, until};

const PODS: &str = "/api/v1/namespaces/kube-system/pods";

fn token(admin: &Admin, name: &str) -> String {
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    admin.create(accounts, &json!({"metadata": {"name": name}}));
    let ask = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let made = admin.create(&format!("{accounts}/{name}/token"), &ask);
    made["status"]["token"].as_str().unwrap().to_owned()
}

/// Lets an account of `kube-system` read this resource.
fn permit(admin: &Admin, group: &str, resource: &str, account: &str) {
    let rules = json!([{"apiGroups": [group], "resources": [resource], "verbs": ["get"]}]);
    let role = json!({"metadata": {"name": resource}, "rules": rules});
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role);
    bind(admin, resource, account);
}

/// Binds a ClusterRole to an account of `kube-system`.
fn bind(admin: &Admin, role: &str, account: &str) {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"metadata": {"name": format!("{role}-{account}")},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": account}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role}});
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding);
}

/// Creates the pod that holds the Lease, at this address.
fn leader_pod(admin: &Admin, address: &str) {
    let (host, port) = address.rsplit_once(':').unwrap();
    let lease = admin.get(LEASE).1;
    let name = lease["spec"]["holderIdentity"].as_str().unwrap().split('_').next().unwrap().to_owned();
    let ports = json!([{"name": "metrics", "containerPort": port.parse::<u16>().unwrap()}]);
    let spec = json!({"containers": [{"name": "kubegc", "image": "kubegc", "ports": ports}]});
    let pod = admin.create(PODS, &json!({"metadata": {"name": name}, "spec": spec}));
    let mut there = pod.clone();
    there["status"]["podIP"] = host.into();
    let (code, said) = admin.send(Method::PUT, &format!("{PODS}/{name}/status"), &there);
    assert_eq!(code, 200, "{said}");
}

#[test]
fn why_and_journal_ask_the_collector_that_leads() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let mut arguments = vec!["--bind-address=0.0.0.0:0", "--journal=none"];
    arguments.extend(QUICK_LEASE);
    let run = Run::with(&privileged_for(&server, "garbage-collector-controller"), &arguments);
    until("it leads", || admin.get(LEASE).1["spec"]["holderIdentity"].is_string());
    let file = |name: &str| {
        let (file, token) = (server.folder.path().join(name), token(&admin, name));
        kubeconfig(&file, &server.url, &server.ca, &token);
        file
    };
    let (root, reader) = (file("root"), file("reader"));
    bind(&admin, "cluster-admin", "root");
    permit(&admin, "", "configmaps", "reader");
    let owner = admin.map("owner", None);
    admin.map("leaf", Some(("owner", &owner)));
    admin.delete("owner", "Background");
    until("it is collected", || !admin.exists("leaf"));

    // Without its pod, nothing shows the address of the leader.
    let (code, _, error) = kubegc(&["why", "cm/leaf"], &root);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("there is no pod ") && error.contains("not found"), "{error}");
    leader_pod(&admin, &run.address().replace("0.0.0.0", "127.0.0.1"));

    let (code, why, error) = kubegc(&["why", "cm/leaf"], &root);
    assert_eq!(code, Some(0), "{error}");
    assert!(why.starts_with("configmaps/leaf in default\nIt was collected at "), "{why}");
    let (code, table, error) = kubegc(&["journal", "--object=configmaps/leaf", "-n", "default"], &root);
    assert_eq!((code, table.contains("OwnersAbsent")), (Some(0), true), "{table}{error}");

    // A finalizer holds this object; the question is who deleted it.
    let held = json!({"metadata": {"name": "held", "finalizers": ["acme.io/hold"], "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner}]}});
    let maps = "/api/v1/namespaces/default/configmaps";
    admin.create(maps, &held);
    let is_held = || admin.get(&format!("{maps}/held")).1["metadata"]["deletionTimestamp"].is_string();
    until("its deletion begins", is_held);
    let (_, why, error) = kubegc(&["why", "cm/held", "-o", "json"], &root);
    let why: Value = serde_json::from_str(&why).unwrap_or_else(|_| panic!("{why}{error}"));
    let by = why["requestedBy"][0].as_str().unwrap_or_default();
    assert!(by.starts_with("garbage-collector-controller at "), "{why}");
    assert!(by.contains("(the journal of https://127.0.0.1:"), "{why}");

    // A user who may not read the Lease or the journal is informed that something was not seen.
    let says = |expected: &str| {
        let (code, _, error) = kubegc(&["why", "cm/leaf"], &reader);
        code == Some(1) && error.contains(expected) && error.contains("not found")
    };
    // The server recognizes a new permission only a moment after its creation.
    until("the Lease is not seen", || says("whether a collector leads cannot be seen: "));
    permit(&admin, "coordination.k8s.io", "leases", "reader");
    until("its pod is not seen", || says("its pod cannot be read: "));
    permit(&admin, "", "pods", "reader");
    until("its journal is not seen", || says("cannot be read: 403: "));
}
