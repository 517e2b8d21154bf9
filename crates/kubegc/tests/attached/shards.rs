//! Two shards on one server: each acts in its own namespaces, and orders reach both.

use std::process::Command;

use http::Method;
use serde_json::{Value, json};

use super::manifests::rbac;
use crate::support::{Kubegc, Signal};
use crate::support_cluster::{Admin, LEASE, QUICK_LEASE, Run, account, ask, kubegc, uid, until};
use crate::support_proxy::{Fault, Proxy};

/// Of two shards, the first acts in `default`, and the second in this namespace.
const SECOND: &str = "monitoring";
const NAMESPACES: [&str; 2] = ["default", SECOND];
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

fn maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// A server and both shards, each behind its own proxy.
struct Shards {
    admin: Admin,
    proxies: [Proxy; 2],
    runs: [Run; 2],
    server: Kubegc,
}

fn start_shard(proxy: &Proxy, shard: &'static str) -> Run {
    Run::with(&proxy.kubeconfig(), &[&QUICK_LEASE[..], &["--shard", shard, "--journal=none"]].concat())
}

impl Shards {
    fn start() -> Self {
        let server = Kubegc::start("apiserver");
        let admin = Admin::of(&server);
        admin.create("/api/v1/namespaces", &json!({"metadata": {"name": SECOND}}));
        let permissions = serde_saphyr::from_multiple::<Value>(&rbac(&["--shards=2"])).unwrap();
        let account = account(&server, permissions);
        let proxies = [Proxy::start(&account), Proxy::start(&account)];
        let runs = [start_shard(&proxies[0], "0/2"), start_shard(&proxies[1], "1/2")];
        let shards = Self { admin, proxies, runs, server };
        shards.act();
        shards
    }

    fn act(&self) {
        for run in &self.runs {
            until("a shard leads", || run.leads() && run.is_ready() && run.is_synced());
            assert!(run.metric("kubegc_shards 2"), "the alert about leaders compares with it");
        }
    }

    /// Creates a ClusterRole that owns a ConfigMap in both namespaces.
    fn wide_owner(&self, name: &str) {
        let role = self.admin.create(ROLES, &json!({"metadata": {"name": name}, "rules": []}));
        let owner = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": name,
                           "uid": uid(&role), "blockOwnerDeletion": true});
        for namespace in NAMESPACES {
            let map = json!({"metadata": {"name": name, "ownerReferences": [owner]}});
            self.admin.create(&maps(namespace), &map);
        }
    }

    fn delete_owner(&self, name: &str, policy: &str) {
        self.admin.delete_at(&format!("{ROLES}/{name}"), policy);
    }

    fn owner_exists(&self, name: &str) -> bool {
        self.admin.get(&format!("{ROLES}/{name}")).0 == 200
    }

    /// Reports in which of the namespaces the ConfigMap exists.
    fn exist(&self, name: &str) -> [bool; 2] {
        NAMESPACES.map(|namespace| self.admin.get(&format!("{}/{name}", maps(namespace))).0 == 200)
    }

    /// Checks that each shard has changed ConfigMaps, and only in its own namespace.
    fn acted_apart(&self) {
        for (proxy, namespace) in self.proxies.iter().zip(NAMESPACES) {
            let changes: Vec<String> = proxy
                .forwarded()
                .into_iter()
                .filter(|request| [Method::DELETE, Method::PATCH].contains(&request.method))
                .map(|request| request.path)
                .filter(|path| path.contains("/configmaps/"))
                .collect();
            let of_it = |path: &String| path.starts_with(&format!("{}/", maps(namespace)));
            assert!(!changes.is_empty() && changes.iter().all(of_it), "{namespace}: {changes:?}");
        }
    }
}

#[test]
fn each_shard_acts_in_its_namespaces_and_a_killed_one_continues_later() {
    let mut shards = Shards::start();
    let admin = &shards.admin;
    shards.wide_owner("wide");
    shards.delete_owner("wide", "Background");
    until("the dependents are gone", || shards.exist("wide") == [false, false]);

    shards.wide_owner("kept");
    shards.delete_owner("kept", "Orphan");
    until("the owner is gone", || !shards.owner_exists("kept"));
    for namespace in NAMESPACES {
        let map = admin.get(&format!("{}/kept", maps(namespace))).1;
        assert!(map["metadata"]["ownerReferences"].is_null(), "{map}");
    }
    shards.acted_apart();

    shards.runs[1].signal(Signal::KILL);
    shards.runs[1].wait();
    shards.wide_owner("late");
    shards.delete_owner("late", "Foreground");
    until("the first shard has done its part", || shards.exist("late") == [false, true]);
    assert!(shards.owner_exists("late"));
    shards.runs[1] = start_shard(&shards.proxies[1], "1/2");
    until("the second shard has done its part", || shards.exist("late") == [false, false]);
    until("the owner is gone", || !shards.owner_exists("late"));
    shards.acted_apart();

    let holder = |lease: &str| shards.admin.get(lease).1["spec"]["holderIdentity"].clone();
    assert_eq!(holder(LEASE), Value::Null);
    for index in 0..2 {
        assert!(holder(&format!("{LEASE}-shard-{index}-of-2")).is_string());
    }
    assert_eq!(shards.admin.refusals(403), [] as [String; 0]);
}

#[test]
fn orders_reach_every_shard() {
    let mut shards = Shards::start();
    let paused = ask(&shards.server, &["pause", "--reason", "upgrade"]);
    assert!(paused.starts_with("Paused: "), "{paused}");
    for run in &shards.runs {
        until("a shard is paused", || run.metric("kubegc_paused 1"));
    }
    shards.wide_owner("wide");
    shards.delete_owner("wide", "Background");
    // A shard that starts during the pause obeys it as well.
    shards.runs[1].signal(Signal::TERM);
    shards.runs[1].wait();
    shards.runs[1] = start_shard(&shards.proxies[1], "1/2");
    until("it is paused", || shards.runs[1].leads() && shards.runs[1].metric("kubegc_paused 1"));
    assert_eq!(shards.exist("wide"), [true, true]);
    // The Lease comes back with the pause and with the number of shards.
    assert_eq!(shards.admin.send(Method::DELETE, LEASE, &Value::Null).0, 200);
    until("the lease is back", || {
        let annotations = shards.admin.get(LEASE).1["metadata"]["annotations"].clone();
        annotations["kubegc.io/shards"] == "2" && annotations["kubegc.io/paused"].is_string()
    });
    let config = shards.server.kubeconfig.clone();
    let doctor = || kubegc(&["doctor"], &config).1;
    let said = doctor();
    assert!(
        said.contains("each of the 2 shards of lease kube-system/kubegc-garbage-collector leads"),
        "{said}"
    );
    assert_eq!(ask(&shards.server, &["resume"]), "Resumed.\n");
    until("the dependents are gone", || shards.exist("wide") == [false, false]);

    // A user who may write that Lease alone can pause them, and is informed of what was not seen.
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system";
    let rules = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                        "resourceNames": ["kubegc-garbage-collector"], "verbs": ["get", "patch"]}]);
    shards.admin.create(&format!("{rbac}/roles"), &json!({"metadata": {"name": "pauses"}, "rules": rules}));
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"metadata": {"name": "pauses"},
        "subjects": [{"kind": "User", "apiGroup": group, "name": "ann"}],
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "pauses"}});
    shards.admin.create(&format!("{rbac}/rolebindings"), &binding);
    until("the user can pause", || {
        let (code, _, error) = kubegc(&["pause", "--as", "ann"], &config);
        code == Some(0) && error.contains("which shards lead is not known")
    });
    for run in &shards.runs {
        until("a shard is paused again", || run.metric("kubegc_paused 1"));
    }

    // From elsewhere, the commands do not choose one of the journals.
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("config");
    std::fs::copy(&config, &copy).unwrap();
    let (code, _, error) = kubegc(&["journal"], &copy);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("divided into 2 shards") && error.contains("--collector ADDRESS:PORT"), "{error}");

    shards.runs[1].signal(Signal::KILL);
    shards.runs[1].wait();
    until("its absence is seen", || {
        doctor().contains("no replica leads these shards of lease kube-system/kubegc-garbage-collector: 1/2")
    });
}

/// A standby whose watch of that Lease is broken reads the orders before it leads.
#[test]
fn a_new_leader_of_a_shard_reads_the_orders_first() {
    let mut shards = Shards::start();
    let own = Proxy::start(&shards.server.folder.path().join("least-privileged"));
    let of_watch = |method: &Method, path: &str| {
        method == Method::GET && path.contains("/kube-system/leases") && !path.contains("/leases/")
    };
    own.inject(of_watch, Fault::Reset);
    let standby = start_shard(&own, "1/2");
    until("it stands by", || standby.is_ready() && standby.log().contains("standing by"));
    ask(&shards.server, &["pause"]);
    until("the shard is paused", || shards.runs[1].metric("kubegc_paused 1"));
    shards.wide_owner("wide");
    shards.delete_owner("wide", "Background");
    shards.runs[1].signal(Signal::KILL);
    shards.runs[1].wait();
    until("the standby leads", || standby.leads());
    assert!(standby.metric("kubegc_paused 1") && own.is_exercised());
    assert_eq!(shards.exist("wide"), [true, true]);
}

#[test]
fn a_wrong_shard_is_a_usage_error() {
    for shard in ["2/2", "1", "0/0"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_kubegc")).args(["run", "--shard", shard]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("--shard") && error.contains(shard), "{error}");
    }
}

#[test]
fn the_permissions_cover_the_leases_of_all_shards() {
    let role = rbac(&["--shards=3"]);
    let name = "kubegc-garbage-collector";
    let names: Vec<String> = (0..3).map(|index| format!("\"{name}-shard-{index}-of-3\"")).collect();
    assert!(role.contains(&format!("resourceNames: [\"{name}\", {}]", names.join(", "))), "{role}");
    assert!(!rbac(&["--shards=1"]).contains("-shard-"));
}
