//! Workloads run on `kubegc up`: the official tutorial "Use Cascading Deletion in a Cluster", the README's example, and kubectl's
//! rollouts and Jobs.

use std::time::{Duration, Instant};

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

/// A pod that is created with its namespace runs as the namespace's account, which a controller creates.
#[test]
fn pods_run_as_the_account_of_their_namespace() {
    let Some(server) = up() else { return };
    let pod = |namespace: &str, name: &str, account: &str| {
        serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
            "spec": {"serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]}})
        .to_string()
    };
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: fresh}";
    kubectl(&server, &["create", "-f", "-"], &format!("{namespace}\n---\n{}", pod("fresh", "a", "")));
    let created = get(&server, &["pod", "a", "--namespace", "fresh"]);
    let mounted = &created["spec"]["containers"][0]["volumeMounts"][0]["mountPath"];
    assert_eq!(
        (created["spec"]["serviceAccountName"].as_str(), mounted.as_str()),
        (Some("default"), Some("/var/run/secrets/kubernetes.io/serviceaccount"))
    );
    let outcome = run(&server, &["create", "-f", "-"], &pod("fresh", "b", "none"));
    assert!(outcome.err.contains("serviceaccount \"none\" not found"), "{}", outcome.err);
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
    // The same Deployment, created again, adopts the remaining objects.
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

/// Waits until a field in the output of `kubectl get` has a value; older versions of kubectl cannot `wait` for that.
fn reaches(server: &Kubegc, what: &[&str], path: &str, expected: &str) {
    let path = format!("jsonpath={path}");
    let all: Vec<&str> = ["get", "-o", &path].into_iter().chain(what.iter().copied()).collect();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let outcome = run(server, &all, "");
        if outcome.out == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{what:?} shows {:?} {}", outcome.out, outcome.err);
    }
}

#[test]
fn a_paused_rollout_waits_until_it_is_resumed() {
    let Some(server) = up() else { return };
    let follow = || kubectl(&server, &["rollout", "status", "deployment/web", "--timeout=30s"], "");
    kubectl(&server, &["create", "deployment", "web", "--image=nginx:1"], "");
    follow();
    kubectl(&server, &["rollout", "pause", "deployment/web"], "");
    let progress = "{.status.conditions[?(@.type==\"Progressing\")].reason}";
    reaches(&server, &["deployment/web"], progress, "DeploymentPaused");
    kubectl(&server, &["set", "image", "deployment/web", "nginx=nginx:2"], "");
    reaches(&server, &["deployment/web"], "{.status.observedGeneration}", "3");
    assert_eq!(get(&server, &["replicasets"])["items"].as_array().unwrap().len(), 1);
    kubectl(&server, &["rollout", "resume", "deployment/web"], "");
    follow();
    assert_eq!(get(&server, &["replicasets"])["items"].as_array().unwrap().len(), 2);
}

#[test]
fn services_claims_and_budgets_follow_their_pods() {
    let Some(server) = up() else { return };
    let reaches = |what: &[&str], path: &str, expected: &str| reaches(&server, what, path, expected);
    kubectl(&server, &["create", "deployment", "web", "--image=nginx", "--replicas=2"], "");
    kubectl(&server, &["rollout", "status", "deployment/web", "--timeout=30s"], "");
    kubectl(&server, &["expose", "deployment", "web", "--port=80", "--type=LoadBalancer"], "");
    let slices = ["endpointslice", "-l", "kubernetes.io/service-name=web"];
    reaches(&slices, "{.items[*].endpoints[*].conditions.ready}", "true true");
    reaches(&["endpoints/web"], "{.subsets[*].ports[*].port}", "80");
    reaches(&["service/web"], "{.status.loadBalancer.ingress[*].ipMode}", "VIP");
    let budget = "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
";
    kubectl(&server, &["apply", "-f", "-"], budget);
    reaches(&["poddisruptionbudget/web"], "{.status.disruptionsAllowed}", "1");
    let claim = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
";
    kubectl(&server, &["apply", "-f", "-"], claim);
    reaches(&["pvc/data"], "{.status.phase}", "Bound");
    kubectl(&server, &["delete", "pvc", "data", "--timeout=30s"], "");
    reaches(&["pv"], "{.items[*].metadata.name}", "");
    kubectl(&server, &["delete", "service", "web", "--timeout=30s"], "");
}

#[test]
fn objects_without_effect_are_answered_with_a_warning() {
    let Some(server) = up() else { return };
    let spec = |kind: &str| match kind {
        "HorizontalPodAutoscaler" => {
            "{maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}"
        }
        "Ingress" => "{defaultBackend: {service: {name: web, port: {number: 80}}}}",
        "IngressClass" => "{controller: example.com/ingress}",
        "ResourceClaim" => "{}",
        _ => "{podSelector: {}}",
    };
    for (api_version, kind) in [
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("networking.k8s.io/v1", "Ingress"),
        ("networking.k8s.io/v1", "IngressClass"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("resource.k8s.io/v1", "ResourceClaim"),
    ] {
        let object = format!(
            "apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: web}}\nspec: {}\n",
            spec(kind)
        );
        let created = run(&server, &["create", "-f", "-"], &object);
        assert!(created.success, "{}", created.err);
        assert_eq!(created.err, format!("Warning: no controller acts on {kind} here\n"));
        let labeled = run(&server, &["label", &kind.to_lowercase(), "web", "a=b"], "");
        assert_eq!((labeled.success, labeled.err.as_str()), (true, ""), "only its creation is warned of");
    }
}

#[test]
fn a_pod_on_a_simulated_node_says_that_nothing_runs_in_it() {
    let Some(server) = up() else { return };
    kubectl(&server, &["run", "web", "--image=nginx"], "");
    kubectl(&server, &["wait", "--for=condition=Ready", "pod/web", "--timeout=30s"], "");
    let ways: [&[&str]; 3] =
        [&["logs", "web"], &["exec", "web", "--", "true"], &["port-forward", "web", ":80"]];
    for way in ways {
        let outcome = run(&server, way, "");
        let why = "pod web has no running containers: its node is simulated; no container runs";
        assert!(!outcome.success && outcome.err.contains(why), "{way:?}: {}", outcome.err);
    }
}
