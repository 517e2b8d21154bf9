//! Chains of several collectors under `kubegc run` (spec 24), while others write and while the server fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use serde_json::{Value, json};

use super::others::finished_job;
use crate::support::Kubegc;
use crate::support_cluster::{Admin, MAPS, Run, privileged_for_all, uid, until};
use crate::support_proxy::{Fault, Proxy};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const PODS: &str = "/api/v1/namespaces/default/pods";
const NAMESPACES: &str = "/api/v1/namespaces";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// Creates a Service with a number of slices, as its controller makes them.
fn service(admin: &Admin, name: &str, slices: usize) {
    let spec = json!({"ports": [{"port": 80}], "selector": {"app": name}});
    let service = uid(&admin.create(SERVICES, &json!({"metadata": {"name": name}, "spec": spec})));
    for number in 0..slices {
        let owner = json!({"apiVersion": "v1", "kind": "Service", "name": name, "uid": service, "controller": true,
            "blockOwnerDeletion": true});
        let labels = json!({"kubernetes.io/service-name": name,
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"});
        let metadata =
            json!({"name": format!("{name}-{number}"), "labels": labels, "ownerReferences": [owner]});
        admin.create(SLICES, &json!({"metadata": metadata, "addressType": "IPv4", "endpoints": []}));
    }
}

/// X-T05: slices are deleted with their Service while a client keeps writing them, and do not come back. EPS-T02: with `Orphan`
/// they stay, without an owner. EPS-T03: with `Foreground` the Service waits for them.
#[test]
fn slices_go_with_their_service_although_they_are_being_written() {
    const COUNT: usize = 6;
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let run = Run::start(&server, &[]);
    for name in ["busy", "orphan", "front"] {
        service(&admin, name, COUNT);
    }
    until("the graph is complete", || run.is_ready() && run.is_synced() && run.leads());
    // One slice of the third Service is held, so the objects that wait for it can be observed.
    let hold = |finalizers: Value| {
        let patch = json!({"metadata": {"finalizers": finalizers}});
        assert_eq!(admin.send(Method::PATCH, &format!("{SLICES}/front-0"), &patch).0, 200);
    };
    hold(json!(["example.com/hold"]));
    let over = Arc::new(AtomicBool::new(false));
    let writer = {
        let (over, admin) = (Arc::clone(&over), Admin::of(&server));
        std::thread::spawn(move || {
            let mut written = 0;
            while !over.load(Ordering::Relaxed) {
                for number in 0..COUNT {
                    let patch = json!({"metadata": {"annotations": {"at": written.to_string()}}});
                    let (code, _) = admin.send(Method::PATCH, &format!("{SLICES}/busy-{number}"), &patch);
                    assert!(code == 200 || code == 404, "{code}");
                    written += usize::from(code == 200);
                }
            }
            written
        })
    };
    let slice = |name: &str| admin.get(&format!("{SLICES}/{name}"));
    until("it is being written", || slice("busy-0").1["metadata"]["annotations"]["at"].is_string());
    admin.delete_at(&format!("{SERVICES}/busy"), "Background");
    admin.delete_at(&format!("{SERVICES}/orphan"), "Orphan");
    admin.delete_at(&format!("{SERVICES}/front"), "Foreground");
    for number in 0..COUNT {
        until("X-T05", || slice(&format!("busy-{number}")).0 == 404);
    }
    until("EPS-T02: the Service is deleted", || admin.get(&format!("{SERVICES}/orphan")).0 == 404);
    for number in 0..COUNT {
        let (code, left) = slice(&format!("orphan-{number}"));
        assert_eq!((code, &left["metadata"]["ownerReferences"]), (200, &Value::Null), "EPS-T02");
    }
    for number in 1..COUNT {
        until("EPS-T03: the other slices go", || slice(&format!("front-{number}")).0 == 404);
    }
    assert_eq!((slice("front-0").0, admin.get(&format!("{SERVICES}/front")).0), (200, 200), "EPS-T03");
    hold(Value::Null);
    until("EPS-T03: the last one", || slice("front-0").0 == 404);
    until("EPS-T03: then the Service", || admin.get(&format!("{SERVICES}/front")).0 == 404);
    over.store(true, Ordering::Relaxed);
    assert!(writer.join().unwrap() > 0);
    let left = admin.get(SLICES).1["items"].as_array().unwrap().len();
    assert_eq!(left, COUNT + 1, "X-T05: only the orphans are left, and the slice of the API server");
}

/// EPS-T05: slices that mirror Endpoints are deleted with them, in whichever order they are deleted. EPS-T06: Endpoints without a
/// Service stay. NB-T06: the claim that a StatefulSet has given to a pod is deleted after the pod.
#[test]
fn what_its_controller_has_given_an_owner_goes_with_it() {
    const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
    const COUNT: usize = 20;
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let leader =
        json!({"name": "elected", "annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}});
    admin.create(ENDPOINTS, &json!({"metadata": leader}));
    let mirrored = uid(&admin.create(ENDPOINTS, &json!({"metadata": {"name": "mirrored"}})));
    for number in 0..COUNT {
        let owner = json!({"apiVersion": "v1", "kind": "Endpoints", "name": "mirrored", "uid": mirrored, "controller": true,
            "blockOwnerDeletion": true});
        let labels = json!({"kubernetes.io/service-name": "mirrored",
            "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io"});
        let metadata =
            json!({"name": format!("mirrored-{number}"), "labels": labels, "ownerReferences": [owner]});
        admin.create(SLICES, &json!({"metadata": metadata, "addressType": "IPv4", "endpoints": []}));
    }
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-2"}}]);
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "volumes": volumes});
    let pod = uid(&admin.create(PODS, &json!({"metadata": {"name": "web-2"}, "spec": spec})));
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "web-2", "uid": pod});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let data = json!({"metadata": {"name": "data-web-2", "ownerReferences": [owner]}, "spec": spec});
    admin.create(CLAIMS, &data);
    let run = Run::with(&privileged_for_all(&server), &["--controllers=*"]);
    until("all collectors know all", || run.is_ready() && run.is_synced() && run.is_idle());
    admin.delete_at(&format!("{ENDPOINTS}/mirrored"), "Background");
    for number in (0..COUNT).rev() {
        let (code, answer) = admin.send(Method::DELETE, &format!("{SLICES}/mirrored-{number}"), &Value::Null);
        assert!(code == 200 || code == 404, "EPS-T05: {code} {answer}");
    }
    // The slice of the API server itself stays.
    let names = |slices: &Value| -> Vec<String> {
        let items = slices["items"].as_array().into_iter().flatten();
        items.filter_map(|slice| slice["metadata"]["name"].as_str()).map(str::to_owned).collect()
    };
    until("EPS-T05", || names(&admin.get(SLICES).1) == ["kubernetes"]);
    admin.delete_at(&format!("{PODS}/web-2"), "Background");
    until("NB-T06", || admin.get(&format!("{CLAIMS}/data-web-2")).0 == 404);
    until("all is done", || run.is_idle());
    let page = run.page("/metrics");
    let failed = |line: &&str| {
        line.contains("effects_total{")
            && (line.contains("\"failed\"") || line.contains("\"refused\""))
            && !line.ends_with(" 0")
    };
    assert_eq!(page.lines().filter(failed).collect::<Vec<_>>(), [] as [&str; 0], "no 404 is an error");
    assert_eq!(admin.get(&format!("{ENDPOINTS}/elected")).0, 200, "EPS-T06");
}

fn is_any(_: &Method, path: &str) -> bool {
    !path.contains("/leases/kubegc") && !path.contains("/selfsubject")
}

fn claim(admin: &Admin, name: &str) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    admin.create(CLAIMS, &json!({"metadata": {"name": name}, "spec": spec}));
}

/// X-T08: a third of all requests, of any kind, gets an error from the server. All garbage is still deleted, and nothing else.
#[test]
fn all_collectors_survive_a_server_that_fails_a_third_of_all_requests() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let proxy = Proxy::start(&privileged_for_all(&server));
    let mut gone = Vec::new();
    let mut stays = Vec::new();
    for number in 0..5 {
        finished_job(&admin, &format!("done-{number}"));
        gone.push(format!("{JOBS}/done-{number}"));
        admin.map(&format!("stray-{number}"), Some(("gone", "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6")));
        gone.push(format!("{MAPS}/stray-{number}"));
        let expired = json!({"metadata": {"name": format!("expired-{number}"),
            "annotations": {"kubegc.io/expires-at": "2026-01-01T00:00:00Z"}}});
        admin.create(MAPS, &expired);
        gone.push(format!("{MAPS}/expired-{number}"));
        claim(&admin, &format!("unused-{number}"));
        gone.push(format!("{CLAIMS}/unused-{number}"));
    }
    let root = admin.map("root", None);
    for number in 0..5 {
        admin.map(&format!("leaf-{number}"), Some(("root", &root)));
        stays.push(format!("{MAPS}/leaf-{number}"));
        let kept = json!({"metadata": {"name": format!("kept-{number}"),
            "annotations": {"kubegc.io/expires-at": "2026-01-01T00:00:00Z", "kubegc.io/keep": "true"}}});
        admin.create(MAPS, &kept);
        stays.push(format!("{MAPS}/kept-{number}"));
    }
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    admin.create(
        JOBS,
        &json!({"metadata": {"name": "runs"}, "spec": {"template": template, "ttlSecondsAfterFinished": 0}}),
    );
    stays.push(format!("{JOBS}/runs"));
    admin.create("/api/v1/nodes", &json!({"metadata": {"name": "n"}}));
    claim(&admin, "used");
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "used"}}]);
    let user = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "volumes": volumes});
    admin.create(PODS, &json!({"metadata": {"name": "user"}, "spec": user}));
    stays.extend([format!("{CLAIMS}/used"), format!("{PODS}/user")]);
    admin.create(NAMESPACES, &json!({"metadata": {"name": "shop"}}));
    admin.create(&format!("{NAMESPACES}/shop/configmaps"), &json!({"metadata": {"name": "a"}}));
    let before: Vec<String> = stays.iter().map(|path| uid(&admin.get(path).1)).collect();

    proxy.inject_one_of(3, is_any, Fault::Answer { code: 500, retry_after: None });
    let run = Run::with(&proxy.kubeconfig(), &["--controllers=*,expiry-controller"]);
    // Namespaces that are terminating when the controller begins to lead stay for a minute: an earlier leader could still have
    // requests in progress there.
    let begun = "kubegc_collector_synced{controller=\"namespace-controller\"} 1";
    until("what is terminating is known", || run.metric(begun));
    for path in (0..5).map(|number| format!("{CLAIMS}/unused-{number}")).chain([format!("{CLAIMS}/used")]) {
        admin.delete_at(&path, "Background");
    }
    admin.delete_at(&format!("{NAMESPACES}/shop"), "Background");
    for path in &gone {
        until(&format!("the end of {path}"), || admin.get(path).0 == 404);
    }
    // The namespace ends without any pass in which all requests succeed.
    until("the end of the namespace", || admin.get(&format!("{NAMESPACES}/shop")).0 == 404);
    assert!(proxy.heal()[0] > 10, "it has failed");
    until("everything is well again", || run.is_ready() && run.is_synced() && run.is_idle());
    let after: Vec<String> = stays.iter().map(|path| uid(&admin.get(path).1)).collect();
    assert_eq!(after, before);
    assert_eq!(admin.refusals(403), [] as [String; 0]);
}
