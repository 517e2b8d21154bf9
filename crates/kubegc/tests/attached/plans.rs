//! Predictions of `kubegc plan`: the data that is lost, the objects that come back, the order in which a namespace is emptied; and
//! its exit codes.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};

use crate::support::Kubegc;
use crate::support_cluster::{Admin, MAPS, kubegc, uid, until};
use crate::support_proxy::{Fault, Proxy};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";

/// Returns the plan of a deletion, which may get stuck or be refused in parts.
fn planned(kubeconfig: &Path, object: &str) -> Value {
    let (_, out, error) = kubegc(&["plan", "delete", object, "-o", "json"], kubeconfig);
    serde_json::from_str(&out).unwrap_or_else(|_| panic!("{object}: {out}{error}"))
}

/// Creates a claim that is bound to a volume with this reclaim policy.
fn bound(admin: &Admin, name: &str, policy: &str) {
    let size = json!({"storage": "1Gi"});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
            "resources": {"requests": size}}});
    let made = admin.create(CLAIMS, &claim);
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": size, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": policy,
            "nfs": {"server": "nfs.example.com", "path": "/data"},
            "claimRef": {"namespace": "default", "name": name, "uid": uid(&made)}}});
    admin.create(VOLUMES, &volume);
    for path in [format!("{CLAIMS}/{name}"), format!("{VOLUMES}/{name}")] {
        let (code, said) =
            admin.send(Method::PATCH, &format!("{path}/status"), &json!({"status": {"phase": "Bound"}}));
        assert_eq!(code, 200, "{said}");
    }
}

/// The data of a recycled volume is lost, although the volume stays.
#[test]
fn recycled_data_is_lost_and_retained_data_is_not() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    for (name, policy) in [("kept", "Retain"), ("recycled", "Recycle")] {
        bound(&admin, name, policy);
    }
    for (name, lost, retained) in
        [("kept", json!([]), json!(["kept"])), ("recycled", json!(["recycled"]), json!([]))]
    {
        let plan = planned(&server.kubeconfig, &format!("pvc/{name}"));
        let volumes = plan["lostVolumes"].as_array().unwrap().iter().map(|volume| volume["name"].clone());
        assert_eq!((volumes.collect::<Value>(), &plan["retainedVolumes"]), (lost, &retained), "{plan}");
    }
    let (_, out, error) = kubegc(&["plan", "delete", "pvc/recycled"], &server.kubeconfig);
    assert!(out.contains("1 volume with 1 GiB is lost"), "{out}{error}");
}

/// From 1.33 on, the pods of a namespace are deleted first, so a held pod delays everything else.
#[test]
fn the_version_of_the_server_says_in_which_order_a_namespace_is_emptied() {
    fn older(document: &mut Value) {
        document["minor"] = "32".into();
        document["gitVersion"] = "v1.32.4".into();
    }
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}}));
    let pod = json!({"metadata": {"name": "held", "finalizers": ["acme.dev/hold"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    admin.create("/api/v1/namespaces/shop/pods", &pod);
    admin.create("/api/v1/namespaces/shop/configmaps", &json!({"metadata": {"name": "alone"}}));
    let proxy = Proxy::start(&server.kubeconfig);
    let fate = || {
        let plan = planned(&proxy.kubeconfig(), "ns/shop");
        let items = plan["items"].as_array().unwrap().clone();
        let found = items.into_iter().find(|item| item["name"] == "alone");
        found.unwrap_or_else(|| panic!("{plan}"))["fate"].clone()
    };
    assert_eq!(fate(), "DeletedLater");
    proxy.inject(|_, path| path == "/version", Fault::Rewrite(older));
    assert_eq!(fate(), "Deleted");
}

/// "Will recreate" is only promised of objects that Kubernetes' own controllers make; a CronJob does not make past Jobs again, and
/// of other controllers nothing is known.
#[test]
fn only_what_is_known_to_come_back_is_promised() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let template = json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let batch = "/apis/batch/v1/namespaces/default";
    let cron = json!({"metadata": {"name": "nightly"}, "spec": {"schedule": "0 3 * * *",
        "jobTemplate": {"spec": {"template": template}}}});
    let cron = uid(&admin.create(&format!("{batch}/cronjobs"), &cron));
    let mut always = template.clone();
    always["spec"]["restartPolicy"] = "Always".into();
    let set = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}},
        "replicas": 1, "template": always}});
    let set = uid(&admin.create("/apis/apps/v1/namespaces/default/replicasets", &set));
    let map = admin.map("operator", None);
    let owned = |version: &str, kind: &str, name: &str, uid: &str| {
        json!([{"apiVersion": version, "kind": kind,
        "name": name, "uid": uid, "controller": true}])
    };
    let job = json!({"metadata": {"name": "nightly-1", "ownerReferences": owned("batch/v1", "CronJob", "nightly", &cron)},
        "spec": {"template": template}});
    admin.create(&format!("{batch}/jobs"), &job);
    let pod = json!({"metadata": {"name": "web-1", "labels": {"app": "web"},
        "ownerReferences": owned("apps/v1", "ReplicaSet", "web", &set)}, "spec": always["spec"]});
    admin.create("/api/v1/namespaces/default/pods", &pod);
    let settings = json!({"metadata": {"name": "settings",
        "ownerReferences": owned("v1", "ConfigMap", "operator", &map)}});
    admin.create(MAPS, &settings);
    for (object, expected) in [
        ("job/nightly-1", json!([])),
        ("pod/web-1", json!(["Pod/web-1: ReplicaSet web will recreate this"])),
        ("cm/settings", json!(["ConfigMap/settings: ConfigMap operator may recreate this"])),
    ] {
        assert_eq!(planned(&server.kubeconfig, object)["recreated"], expected, "{object}");
    }
}

/// Scripts can distinguish success, failure, wrong usage and stuck objects.
#[test]
fn each_exit_code_of_a_plan_has_one_meaning() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    admin.map("fine", None);
    let held = json!({"metadata": {"name": "held", "finalizers": ["acme.dev/hold"]}});
    admin.create(MAPS, &held);
    for (line, expected) in [
        (&["plan", "delete", "cm/fine"][..], 0),
        (&["plan", "delete", "cm/nothing"], 1),
        (&["plan", "delete", "cm/fine", "--cascade=sideways"], 2),
        (&["plan", "delete", "cm/fine", "--no-such-flag"], 2),
        (&["plan", "delete", "cm/held"], 3),
        (&["delete", "cm/fine"], 2),
        (&["delete", "cm/held", "--yes"], 3),
        (&["delete", "cm/fine", "--yes"], 0),
        (&["stuck"], 0),
        (&["stuck", "--for", "0s", "--exit-code"], 1),
    ] {
        let (code, out, error) = kubegc(line, &server.kubeconfig);
        assert_eq!(code, Some(expected), "{line:?}: {out}{error}");
    }
    until("it is gone", || !admin.exists("fine"));
}
