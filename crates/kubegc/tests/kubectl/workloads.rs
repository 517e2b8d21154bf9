//! Workloads live on `kubegc up`: the official tutorial "Use Cascading Deletion in a Cluster", the README's example, and what
//! kubectl does with rollouts and Jobs.

use serde_json::Value;

use super::{Kubegc, is_gone, kubectl, kubectl_is_there, run};

/// The Deployment of the tutorial.
const NGINX: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: nginx-deployment
  labels:
    app: nginx
spec:
  replicas: 3
  selector:
    matchLabels:
      app: nginx
  template:
    metadata:
      labels:
        app: nginx
    spec:
      containers:
      - name: nginx
        image: nginx:1.14.2
        ports:
        - containerPort: 80
";

fn up() -> Option<Kubegc> {
    kubectl_is_there().then(|| Kubegc::start("up"))
}

fn get(server: &Kubegc, arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["get", "-o", "json"].into_iter().chain(arguments.iter().copied()).collect();
    serde_json::from_str(&kubectl(server, &all, "")).unwrap()
}

fn wait_until_gone(server: &Kubegc, what: &str) {
    let outcome = run(server, &["wait", "--for=delete", what, "-l", "app=nginx", "--timeout=30s"], "");
    assert!(is_gone(&outcome), "{}", outcome.err);
}

#[test]
fn the_tutorial_on_cascading_deletion_works_word_by_word() {
    let Some(server) = up() else { return };
    let create = || {
        kubectl(&server, &["apply", "-f", "-"], NGINX);
        let status = ["rollout", "status", "deployment/nginx-deployment", "--timeout=30s"];
        let printed = kubectl(&server, &status, "");
        assert!(printed.contains("successfully rolled out"), "{printed}");
    };
    // Check owner references on your pods.
    create();
    let pods = get(&server, &["pods", "-l", "app=nginx"]);
    let pods = pods["items"].as_array().unwrap();
    assert_eq!(pods.len(), 3);
    for pod in pods {
        let owner = &pod["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["controller"]), (&"ReplicaSet".into(), &true.into()));
        assert_eq!(pod["status"]["phase"], "Running");
    }
    // Use foreground cascading deletion: kubectl returns when everything is gone.
    kubectl(
        &server,
        &["delete", "deployment", "nginx-deployment", "--cascade=foreground", "--timeout=30s"],
        "",
    );
    assert_eq!(kubectl(&server, &["get", "replicasets,pods", "-l", "app=nginx", "-o", "name"], ""), "");
    // Use background cascading deletion.
    create();
    kubectl(&server, &["delete", "deployment", "nginx-deployment", "--cascade=background"], "");
    wait_until_gone(&server, "replicasets");
    wait_until_gone(&server, "pods");
    // Delete owner objects and orphan dependents.
    create();
    kubectl(&server, &["delete", "deployment", "nginx-deployment", "--cascade=orphan"], "");
    let sets = get(&server, &["replicasets", "-l", "app=nginx"]);
    assert_eq!(sets["items"].as_array().unwrap().len(), 1);
    assert_eq!(sets["items"][0]["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(get(&server, &["pods", "-l", "app=nginx"])["items"].as_array().unwrap().len(), 3);
    // The same Deployment, created again, adopts what was left.
    create();
    let sets = get(&server, &["replicasets", "-l", "app=nginx"]);
    assert_eq!(sets["items"].as_array().unwrap().len(), 1);
    assert_eq!(sets["items"][0]["metadata"]["ownerReferences"][0]["kind"], "Deployment");
}

#[test]
fn rollouts_are_followed_undone_and_scaled() {
    let Some(server) = up() else { return };
    let follow = || kubectl(&server, &["rollout", "status", "deployment/web", "--timeout=30s"], "");
    kubectl(&server, &["create", "deployment", "web", "--image=nginx:1"], "");
    follow();
    kubectl(&server, &["set", "image", "deployment/web", "nginx=nginx:2"], "");
    follow();
    let history = kubectl(&server, &["rollout", "history", "deployment/web"], "");
    assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
    kubectl(&server, &["rollout", "undo", "deployment/web"], "");
    follow();
    let image = "jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(kubectl(&server, &["get", "deployment", "web", "-o", image], ""), "nginx:1");
    kubectl(&server, &["rollout", "restart", "deployment/web"], "");
    follow();
    kubectl(&server, &["scale", "deployment/web", "--replicas=4"], "");
    follow();
    kubectl(&server, &["wait", "pods", "-l", "app=web", "--for=condition=Ready", "--timeout=30s"], "");
    kubectl(&server, &["delete", "deployment", "web", "--cascade=foreground", "--timeout=30s"], "");
    assert_eq!(kubectl(&server, &["get", "replicasets,pods", "-o", "name"], ""), "");
}

#[test]
fn jobs_complete_and_nodes_drain() {
    let Some(server) = up() else { return };
    kubectl(&server, &["create", "job", "sum", "--image=busybox", "--", "true"], "");
    kubectl(&server, &["wait", "--for=condition=complete", "job/sum", "--timeout=30s"], "");
    kubectl(&server, &["create", "deployment", "web", "--image=nginx"], "");
    kubectl(&server, &["rollout", "status", "deployment/web", "--timeout=30s"], "");
    kubectl(&server, &["drain", "kubegc-node-0", "--force", "--timeout=30s"], "");
    let running = ["get", "pods", "--field-selector=status.phase=Running", "-o", "name"];
    assert_eq!(kubectl(&server, &running, ""), "");
    kubectl(&server, &["uncordon", "kubegc-node-0"], "");
    kubectl(&server, &["rollout", "status", "deployment/web", "--timeout=30s"], "");
}
