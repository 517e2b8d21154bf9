//! Answers of the commands that were once wrong: permissions of the user, the clock of the collectors, volumes, Services, and the
//! component that removes a finalizer.

use std::path::{Path, PathBuf};

use http::Method;
use serde_json::{Value, json};

use super::refusals::stuck;
use crate::support::Kubegc;
use crate::support_cluster::{Admin, MAPS, kubeconfig, kubegc, uid, until};
use crate::support_proxy::Proxy;

const NAMESPACES: &str = "/api/v1/namespaces";
const SHOP: &str = "/api/v1/namespaces/shop";
const USER: &str = "system:serviceaccount:shop:reader";

/// Returns the output of a plan or a question, which may find problems.
fn said(kubeconfig: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let (code, out, error) = kubegc(arguments, kubeconfig);
    (code, out + &error)
}

/// Creates the namespace `shop` with the ConfigMap `a`, and an account that may only read ConfigMaps there. Returns its kubeconfig.
fn reader(server: &Kubegc, admin: &Admin) -> PathBuf {
    admin.create(NAMESPACES, &json!({"metadata": {"name": "shop"}}));
    admin.create(&format!("{SHOP}/configmaps"), &json!({"metadata": {"name": "a"}}));
    admin.create(&format!("{SHOP}/serviceaccounts"), &json!({"metadata": {"name": "reader"}}));
    let group = "rbac.authorization.k8s.io";
    let rbac = format!("/apis/{group}/v1");
    let subject = json!([{"kind": "ServiceAccount", "namespace": "shop", "name": "reader"}]);
    let reads =
        |resource: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs});
    let of_maps = json!({"metadata": {"name": "reader"}, "rules": [reads("configmaps", &["get", "list"])]});
    admin.create(&format!("{rbac}/namespaces/shop/roles"), &of_maps);
    let bound = |kind: &str| {
        json!({"metadata": {"name": "reader"}, "subjects": subject,
        "roleRef": {"apiGroup": group, "kind": kind, "name": "reader"}})
    };
    admin.create(&format!("{rbac}/namespaces/shop/rolebindings"), &bound("Role"));
    let mut of_shop = json!({"metadata": {"name": "reader"}, "rules": [reads("namespaces", &["get"])]});
    of_shop["rules"][0]["resourceNames"] = json!(["shop"]);
    admin.create(&format!("{rbac}/clusterroles"), &of_shop);
    admin.create(&format!("{rbac}/clusterrolebindings"), &bound("ClusterRole"));
    let ask = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = admin.create(&format!("{SHOP}/serviceaccounts/reader/token"), &ask);
    let file = server.folder.path().join("reader");
    kubeconfig(&file, &server.url, &server.ca, token["status"]["token"].as_str().unwrap());
    file
}

/// Returns the lists beyond the namespace `shop` among the requests that a proxy has passed on.
fn wider_lists(proxy: &Proxy) -> Vec<String> {
    let forwarded = proxy.forwarded().into_iter().filter(|request| request.method == Method::GET);
    let lists = forwarded.map(|request| request.path).filter(|path| path.contains("limit="));
    lists.filter(|path| !path.contains("/namespaces/shop/")).collect()
}

/// The first line names the objects that the user may not delete, with a token of its own as well as impersonated; outside its
/// namespace, nothing is listed.
#[test]
fn the_headline_says_what_the_asker_may_not_delete() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let own = reader(&server, &admin);
    until("its rights", || kubegc(&["why", "cm/a", "-n", "shop"], &own).0 == Some(0));
    let proxy = Proxy::start(&own);
    for (kubeconfig, flags) in [(&proxy.kubeconfig(), &[][..]), (&server.kubeconfig, &["--as", USER])] {
        for (line, object) in [
            (&["plan", "delete", "cm/a", "-n", "shop"][..], "ConfigMap/a"),
            (&["plan", "delete", "ns/shop"], "Namespace/shop"),
            (&["delete", "cm/a", "-n", "shop", "--yes"], "ConfigMap/a"),
            (&["delete", "ns/shop", "--yes"], "Namespace/shop"),
        ] {
            let (code, text) = said(kubeconfig, &[line, flags].concat());
            let headline = text.lines().next().unwrap_or_default();
            let forbidden = format!("this user may not delete {object}");
            assert!(headline.contains(&forbidden), "{line:?} {flags:?}: {text}");
            assert_eq!(code, Some(3), "{line:?} {flags:?}: {text}");
        }
        let (_, answer) = said(kubeconfig, &[&["plan", "delete", "ns/shop", "-o", "json"], flags].concat());
        assert!(answer.contains("\"forbidden\"") && answer.contains("Namespace/shop"), "{answer}");
    }
    assert_eq!(wider_lists(&proxy), [""; 0]);
    assert_eq!(admin.get(&format!("{SHOP}/configmaps/a")).0, 200);
    // The administrator's own headline does not mention this.
    let (code, text) = said(&server.kubeconfig, &["plan", "delete", "cm/a", "-n", "shop"]);
    assert!(code == Some(0) && !text.contains("may not delete"), "{text}");
}

/// `stuck`, `--for` and `why` use the clock of the collectors, which may be ahead.
#[test]
fn ages_are_those_of_the_clock_of_the_collectors() {
    let server = Kubegc::start_collectors();
    let admin = Admin::of(&server);
    admin.create(MAPS, &json!({"metadata": {"name": "held", "finalizers": ["widgets.acme.dev/hold"]}}));
    admin.delete("held", "Background");
    let (code, answer) = admin.send(Method::POST, "/kubegc/v1/clock?advance=30m", &Value::Null);
    assert_eq!(code, 200, "{answer}");
    for flags in [&[][..], &["--no-collector"]] {
        let asked = |arguments: &[&str]| said(&server.kubeconfig, &[arguments, flags].concat());
        assert!(asked(&["stuck", "--for", "20m"]).1.contains("ConfigMap/held"), "{flags:?}");
        assert_eq!(
            asked(&["stuck", "--for", "40m"]),
            (Some(0), "Nothing is stuck.\n".to_owned()),
            "{flags:?}"
        );
        assert_eq!(asked(&["stuck", "--for", "20m", "--exit-code"]).0, Some(1), "{flags:?}");
        let (_, answer) = asked(&["stuck", "-o", "json"]);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let age = answer["items"][0]["ageSeconds"].as_i64().unwrap();
        assert!((1_800..3_600).contains(&age), "{flags:?}: {age}");
        let (_, why) = asked(&["why", "cm/held"]);
        assert!(why.contains("FinalizerHeld") && why.contains("last touched 30m ago"), "{flags:?}: {why}");
    }
    // A controller that has not acted within ten seconds of that clock counts as absent, not as still within its time.
    let bare = Kubegc::start_with(
        "up",
        ["--ephemeral", "--workloads=off", "--controllers=ttl-after-finished-controller"],
    );
    let admin = Admin::of(&bare);
    admin.map("waiting", None);
    admin.delete("waiting", "Foreground");
    let (_, text) = said(&bare.kubeconfig, &["stuck"]);
    assert!(!text.contains("CollectorAbsent"), "{text}");
    assert_eq!(admin.send(Method::POST, "/kubegc/v1/clock?advance=30m", &Value::Null).0, 200);
    let (_, text) = said(&bare.kubeconfig, &["stuck", "--for", "20m"]);
    assert!(text.contains("CollectorAbsent"), "{text}");
}

/// A volume of a host path with the policy Delete fails when its claim is gone; nothing waits for it.
#[test]
fn a_host_path_with_the_policy_delete_fails_and_holds_nothing() {
    const VOLUMES: &str = "/api/v1/persistentvolumes";
    let server = Kubegc::start_collectors();
    let admin = Admin::of(&server);
    let size = json!({"storage": "1Gi"});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = json!({"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "volumeName": "path", "resources": {"requests": size}}});
    let claim = uid(&admin.create(claims, &claim));
    let volume = json!({"metadata": {"name": "path"}, "spec": {"capacity": size, "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": "/tmp/kubegc-test"},
        "claimRef": {"namespace": "default", "name": "d", "uid": claim}}});
    admin.create(VOLUMES, &volume);
    for path in [format!("{claims}/d"), format!("{VOLUMES}/path")] {
        let bound = json!({"status": {"phase": "Bound"}});
        assert_eq!(admin.send(Method::PATCH, &format!("{path}/status"), &bound).0, 200);
    }
    let (code, plan) = said(&server.kubeconfig, &["plan", "delete", "pvc/d"]);
    assert!(code == Some(0) && plan.contains("nothing gets stuck"), "{plan}");
    assert!(plan.contains("Volumes that stay without a claim:\n  path"), "{plan}");
    let (code, text) = said(&server.kubeconfig, &["delete", "pvc/d", "--yes"]);
    assert_eq!(code, Some(0), "{text}");
    until("the volume has failed", || admin.get(&format!("{VOLUMES}/path")).1["status"]["phase"] == "Failed");
    let (_, why) = said(&server.kubeconfig, &["why", "pv/path"]);
    assert!(why.contains("its deletion has failed: "), "{why}");
    let (_, doctor) = said(&server.kubeconfig, &["doctor"]);
    assert!(doctor.contains("FailedVolume"), "{doctor}");
}

/// A Service takes its Endpoints, which name no owner, and its slices with it. With orphaning, it leaves its slices, and its
/// controller deletes none of them.
#[test]
fn a_service_takes_its_endpoints_and_leaves_orphaned_slices() {
    const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let server = Kubegc::start_with("up", ["--ephemeral"]);
    let admin = Admin::of(&server);
    let services = "/api/v1/namespaces/default/services";
    let slices = |service: &str| -> Vec<Value> {
        let path = format!("{SLICES}?labelSelector=kubernetes.io%2Fservice-name%3D{service}");
        admin.get(&path).1["items"].as_array().unwrap().clone()
    };
    for name in ["gone", "kept"] {
        let service =
            json!({"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}});
        admin.create(services, &service);
        let endpoints = format!("/api/v1/namespaces/default/endpoints/{name}");
        until("its slices and Endpoints", || slices(name).len() == 1 && admin.get(&endpoints).0 == 200);
    }
    let (code, plan) = said(&server.kubeconfig, &["plan", "delete", "svc/gone"]);
    assert_eq!(code, Some(0), "{plan}");
    for object in ["Service/gone", "Endpoints/gone", "EndpointSlice/gone-"] {
        assert!(plan.contains(object), "{object}: {plan}");
    }
    let (code, text) = said(&server.kubeconfig, &["delete", "svc/gone", "--yes"]);
    assert!(code == Some(0) && text.contains("3 objects deleted"), "{text}");
    assert_eq!(admin.get("/api/v1/namespaces/default/endpoints/gone").0, 404);

    let before = uid(&slices("kept")[0]);
    let (code, plan) = said(&server.kubeconfig, &["plan", "delete", "svc/kept", "--cascade=orphan"]);
    assert!(code == Some(0) && plan.contains("Released"), "{plan}");
    admin.delete_at(&format!("{services}/kept"), "Orphan");
    until("the end of the Service", || admin.get(&format!("{services}/kept")).0 == 404);
    let (code, answer) = admin.send(Method::POST, "/kubegc/v1/settle?timeout=30s", &Value::Null);
    assert_eq!(code, 200, "{answer}");
    let left = slices("kept");
    assert!(left.len() == 1 && uid(&left[0]) == before, "{left:?}");
    assert_eq!(left[0]["metadata"]["ownerReferences"], Value::Null);
}

/// The component that removes a finalizer is guessed only from evidence: not from a Lease that shares a word with it, nor from the
/// object's own workload, nor from one that carries the same finalizer.
#[test]
fn the_owner_of_a_finalizer_is_guessed_from_evidence() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let labels = json!({"app": "gears"});
    let deployment = |name: &str, finalizers: Value| {
        json!({"metadata": {"name": name, "finalizers": finalizers},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    };
    let owner = uid(&admin.create(deployments, &deployment("gears", json!(["gears.acme.dev/hold"]))));
    admin.create(deployments, &deployment("other", json!(["gears.acme.dev/hold"])));
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    let lease = json!({"metadata": {"name": "acme"}, "spec": {"holderIdentity": "one", "leaseDurationSeconds": 600, "renewTime": now}});
    admin.create("/apis/coordination.k8s.io/v1/namespaces/default/leases", &lease);
    let owners = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "gears", "uid": owner}]);
    let held = json!({"metadata": {"name": "held", "finalizers": ["gears.acme.dev/hold"], "ownerReferences": owners}});
    admin.create(MAPS, &held);
    admin.delete("held", "Background");
    admin.delete_at(&format!("{deployments}/gears"), "Background");
    for name in ["held", "gears"] {
        let rows = stuck(&server, name);
        let [(code, message)] = &rows[..] else { panic!("{name}: {rows:?}") };
        assert!(
            code == "FinalizerHeld" && message.contains("no controller was found that removes it"),
            "{message}"
        );
    }
    // A workload with the same name is evidence.
    admin.create(deployments, &deployment("gears-operator", json!([])));
    let rows = stuck(&server, "held");
    assert!(rows[0].1.contains("it seems to belong to deployment default/gears-operator"), "{rows:?}");
}

/// The commands that `stuck` prints for two finalizers of one object work one after the other, in the printed order.
#[test]
fn printed_commands_for_two_finalizers_work_in_their_order() {
    if std::process::Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "kubectl is not on PATH, and CI must have it");
        return;
    }
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let finalizers = json!(["z.acme.dev/last", "a.acme.dev/first", "m.acme.dev/middle"]);
    admin.create(MAPS, &json!({"metadata": {"name": "held", "finalizers": finalizers}}));
    admin.delete("held", "Background");
    let (_, text) = said(&server.kubeconfig, &["stuck"]);
    let commands: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("by force:")).collect();
    assert_eq!(commands.len(), 3, "{text}");
    for command in commands {
        let mut shell = std::process::Command::new("sh");
        let done = shell.args(["-c", command.trim()]).env("KUBECONFIG", &server.kubeconfig).output().unwrap();
        assert!(done.status.success(), "{command}: {done:?}");
    }
    assert!(!admin.exists("held"));
}
