//! Tests the built-in admission plugins.
#![allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
#![allow(clippy::needless_pass_by_value)] // documents are written where they are passed

mod world;

use gc_registry::Config;
use gc_registry::admission::{Plugin, Plugins};
use gc_registry::api::{DeleteOptions, Operation, WriteOptions};
use serde_json::{Value, json};
use world::{World, body, pod, request};

const DRY: WriteOptions =
    WriteOptions { dry_run: true, field_manager: String::new(), field_validation: None, force: None };

/// Creates an object in a dry run; returns the object, or the code and the message.
fn tried(world: &World, resource: &str, object: Value) -> Result<Value, String> {
    world
        .create_with(resource, "default", object, DRY)
        .map(|response| body(&response))
        .map_err(|error| format!("{} {}", error.code, error.message))
}

fn container(resources: Value) -> Value {
    json!({"containers": [{"name": "c", "image": "i", "resources": resources}]})
}

#[test]
fn pods_get_tolerations_and_a_priority_unless_the_plugins_are_off() {
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let made = tried(&World::default(), "v1/pods", pod("p", "", json!({}), json!({}))).unwrap();
    assert_eq!(
        made["spec"]["tolerations"],
        json!([toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")])
    );
    assert_eq!(
        (&made["spec"]["priority"], &made["spec"]["preemptionPolicy"]),
        (&0.into(), &"PreemptLowerPriority".into())
    );
    let plugins =
        Plugins::default().with(Plugin::DefaultTolerationSeconds, false).with(Plugin::Priority, false);
    let world = World::new(Config { plugins, ..Config::default() });
    let made = tried(&world, "v1/pods", pod("p", "", json!({}), json!({}))).unwrap();
    assert_eq!((made["spec"].get("tolerations"), made["spec"].get("priority")), (None, None));
}

#[test]
fn containers_are_privileged_only_where_the_cluster_allows_it() {
    let world = World::new(Config { allow_privileged: false, ..Config::default() });
    let spec = json!({"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]});
    let made = |world: &World| tried(world, "v1/pods", pod("p", "", spec.clone(), json!({})));
    assert_eq!(
        made(&world).unwrap_err(),
        "422 Pod \"p\" is invalid: spec.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy"
    );
    made(&World::default()).unwrap();
}

#[test]
fn plugins_are_known_by_their_names() {
    for name in Plugins::names() {
        let (on, off) =
            (Plugins::default().with_named(name, true), Plugins::default().with_named(name, false));
        assert_ne!(on.unwrap(), off.unwrap(), "{name}");
    }
    let error = Plugins::default().with_named("Nonsense", true).unwrap_err().to_string();
    assert!(
        error.starts_with("Nonsense is no admission plugin of this server; it has NamespaceLifecycle,"),
        "{error}"
    );
}

/// Requests created by openssl for a user of these groups: `dev`; `dev` and `system:masters`.
const REQUESTS: [&str; 2] = [include_str!("requests/dev.csr"), include_str!("requests/masters.csr")];

#[test]
fn nobody_asks_to_become_an_administrator() {
    let world = World::default();
    let [dev, masters] = REQUESTS;
    let asked = |pem: &str| {
        let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem);
        let spec = json!({"request": encoded, "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"]});
        let request = json!({"metadata": {"name": "c"}, "spec": spec});
        let made = tried(&world, "certificates.k8s.io/v1/certificatesigningrequests", request);
        made.map_or_else(|why| why, |_| "ok".to_owned())
    };
    let refused = "403 certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: use of \
        kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    for (pem, outcome) in [
        (dev.to_owned(), "ok"),
        (masters.to_owned(), refused),
        // Regression test: text before the block was decoded with it, so no name was found.
        (format!("some text\n{masters}"), refused),
        (masters.replace('\n', "\r\n"), refused),
        (format!("{masters}\nmore text\n"), refused),
    ] {
        assert_eq!(asked(&pem), outcome, "{pem}");
    }
    let broken = masters.replace("MIH", "AIH");
    for pem in
        [format!("{dev}{masters}"), broken, "-----BEGIN CERTIFICATE REQUEST-----\n".to_owned(), String::new()]
    {
        let outcome = asked(&pem);
        assert!(outcome.starts_with("422 ") && outcome.contains("spec.request: Invalid value"), "{outcome}");
    }
}

#[test]
fn a_priority_class_becomes_a_number() {
    let world = World::default();
    let class = "scheduling.k8s.io/v1/priorityclasses";
    let named = |name: &str| pod("p", "", json!({"priorityClassName": name}), json!({}));
    world
        .create(class, json!({"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"}))
        .unwrap();
    let made = tried(&world, "v1/pods", named("high")).unwrap();
    assert_eq!((&made["spec"]["priority"], &made["spec"]["preemptionPolicy"]), (&7.into(), &"Never".into()));
    assert_eq!(
        tried(&world, "v1/pods", named("low")).unwrap_err(),
        "403 pods \"p\" is forbidden: no PriorityClass with name low was found"
    );
    world.create(class, json!({"metadata": {"name": "usual"}, "value": 5, "globalDefault": true})).unwrap();
    let made = tried(&world, "v1/pods", pod("p", "", json!({}), json!({}))).unwrap();
    assert_eq!((&made["spec"]["priority"], &made["spec"]["priorityClassName"]), (&5.into(), &"usual".into()));
    let other = json!({"metadata": {"name": "other"}, "value": 6, "globalDefault": true});
    assert_eq!(
        tried(&world, class, other).unwrap_err(),
        "403 priorityclasses.scheduling.k8s.io \"other\" is forbidden: PriorityClass usual is already marked as default. Only one default can exist"
    );
}

#[test]
fn what_is_in_use_is_protected_and_new_nodes_are_tainted() {
    let world = World::default();
    let node = tried(&world, "v1/nodes", json!({"metadata": {"name": "n"}})).unwrap();
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    let claim = json!({"metadata": {"name": "c", "finalizers": ["kubernetes.io/pvc-protection"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let made = tried(&world, "v1/persistentvolumeclaims", claim).unwrap();
    assert_eq!(world::finalizers(&made), ["kubernetes.io/pvc-protection"]);
}

#[test]
fn classes_that_are_the_default_are_filled_in() {
    let world = World::default();
    for (name, is_default) in [("a", "true"), ("b", "false")] {
        world
            .create(
                "storage.k8s.io/v1/storageclasses",
                json!({"metadata": {"name": name, "annotations": {
                    "storageclass.kubernetes.io/is-default-class": is_default}}, "provisioner": "example.com/p"}),
            )
            .unwrap();
        world
            .create(
                "networking.k8s.io/v1/ingressclasses",
                json!({"metadata": {"name": name, "annotations": {
                    "ingressclass.kubernetes.io/is-default-class": is_default}},
                    "spec": {"controller": "example.com/c"}}),
            )
            .unwrap();
    }
    let claim = |class: Value| {
        let mut claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}});
        if !class.is_null() {
            claim["spec"]["storageClassName"] = class;
        }
        tried(&world, "v1/persistentvolumeclaims", claim).unwrap()["spec"]["storageClassName"].clone()
    };
    assert_eq!(
        (claim(Value::Null), claim("".into()), claim("b".into())),
        ("a".into(), "".into(), "b".into())
    );
    let ingress = json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 1}}}}});
    let made = tried(&world, "networking.k8s.io/v1/ingresses", ingress).unwrap();
    assert_eq!(made["spec"]["ingressClassName"], "a");
}

#[test]
fn limit_ranges_default_and_bound_containers() {
    let world = World::default();
    world
        .create(
            "v1/limitranges",
            json!({"metadata": {"name": "l"}, "spec": {"limits": [
                {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"},
                    "max": {"cpu": "2"}, "min": {"cpu": "50m"}},
                {"type": "Pod", "max": {"memory": "1Gi"}, "maxLimitRequestRatio": {"cpu": "10"}}]}}),
        )
        .unwrap();
    let memory = json!({"memory": "1Mi"});
    let try_pod = |resources: Value| tried(&world, "v1/pods", pod("p", "", container(resources), json!({})));
    let made = try_pod(json!({"limits": memory})).unwrap();
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "1", "memory": "1Mi"}, "requests": {"cpu": "100m", "memory": "1Mi"}})
    );
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    for (resources, why) in [
        (
            json!({"limits": {"cpu": "3", "memory": "1Mi"}}),
            "maximum cpu usage per Container is 2, but limit is 3",
        ),
        (
            json!({"limits": {"cpu": "100m", "memory": "1Mi"}, "requests": {"cpu": "10m"}}),
            "minimum cpu usage per Container is 50m, but request is 10m",
        ),
        (json!({"limits": {"memory": "2Gi"}}), "maximum memory usage per Pod is 1Gi, but limit is 2Gi"),
        (json!({}), "maximum memory usage per Pod is 1Gi.  No limit is specified"),
        (
            json!({"limits": {"cpu": "1500m", "memory": "1Mi"}}),
            "cpu max limit to request ratio per Pod is 10, but provided ratio is 15.000000",
        ),
    ] {
        // The default of the request is filled in; if the limit is given, decoding has already set the request.
        let mut resources = resources;
        if resources["limits"]["cpu"] == "1500m" {
            resources["requests"] = json!({"cpu": "100m"});
        }
        assert_eq!(try_pod(resources).unwrap_err(), format!("403 pods \"p\" is forbidden: {why}"));
    }
}

#[test]
fn a_runtime_class_adds_its_overhead_and_scheduling() {
    let world = World::default();
    world
        .create(
            "node.k8s.io/v1/runtimeclasses",
            json!({"metadata": {"name": "r"}, "handler": "h", "overhead": {"podFixed": {"cpu": "250m"}},
                "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]}}),
        )
        .unwrap();
    let try_pod = |spec: Value| tried(&world, "v1/pods", pod("p", "", spec, json!({})));
    let made = try_pod(json!({"runtimeClassName": "r"})).unwrap();
    assert_eq!(
        (&made["spec"]["overhead"], &made["spec"]["nodeSelector"]),
        (&json!({"cpu": "250m"}), &json!({"a": "b"}))
    );
    assert_eq!(made["spec"]["tolerations"][2], json!({"key": "k", "operator": "Exists"}));
    for (spec, why) in [
        (json!({"runtimeClassName": "x"}), "pod rejected: RuntimeClass \"x\" not found"),
        (
            json!({"runtimeClassName": "r", "nodeSelector": {"a": "c"}}),
            "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c",
        ),
        (
            json!({"overhead": {"cpu": "1"}}),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            json!({"runtimeClassName": "r", "overhead": {"cpu": "1"}}),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
    ] {
        assert_eq!(try_pod(spec).unwrap_err(), format!("403 pods \"p\" is forbidden: {why}"));
    }
}

fn quota(world: &World, hard: Value, used: Value, scopes: Value) {
    world
        .create(
            "v1/resourcequotas",
            json!({"metadata": {"name": "q"}, "spec": {"hard": hard, "scopes": scopes}}),
        )
        .unwrap();
    world
        .merge("v1/resourcequotas/status", "default/q", json!({"status": {"hard": hard, "used": used}}))
        .unwrap();
}

fn used(world: &World) -> Value {
    world.get("v1/resourcequotas", "default/q").unwrap()["status"]["used"].clone()
}

#[test]
fn a_quota_is_charged_with_the_write_and_only_with_it() {
    let world = World::default();
    let hard = json!({"configmaps": "1", "pods": "2", "requests.cpu": "1", "count/secrets": "0"});
    quota(
        &world,
        hard,
        json!({"configmaps": "0", "pods": "0", "requests.cpu": "0", "count/secrets": "0"}),
        Value::Null,
    );
    let map = |name: &str| json!({"metadata": {"name": name}});
    // Neither a dry run nor a failed create is charged.
    tried(&world, "v1/configmaps", map("a")).unwrap();
    world.create("v1/configmaps", json!({"metadata": {"name": "Bad!"}})).unwrap_err();
    assert_eq!(used(&world)["configmaps"], "0");
    world.create("v1/configmaps", map("a")).unwrap();
    assert_eq!(
        used(&world),
        json!({"configmaps": "1", "pods": "0", "requests.cpu": "0", "count/secrets": "0"})
    );
    assert_eq!(
        tried(&world, "v1/configmaps", map("b")).unwrap_err(),
        "403 configmaps \"b\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1"
    );
    assert_eq!(
        tried(&world, "v1/secrets", map("s")).unwrap_err(),
        "403 secrets \"s\" is forbidden: exceeded quota: q, requested: count/secrets=1, used: count/secrets=0, limited: count/secrets=0"
    );
    let try_pod = |resources: Value| tried(&world, "v1/pods", pod("p", "", container(resources), json!({})));
    assert_eq!(
        try_pod(json!({})).unwrap_err(),
        "403 pods \"p\" is forbidden: failed quota: q: must specify requests.cpu for: c"
    );
    assert_eq!(
        try_pod(json!({"requests": {"cpu": "2"}})).unwrap_err(),
        "403 pods \"p\" is forbidden: exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1"
    );
    world
        .create("v1/pods", pod("p", "", container(json!({"requests": {"cpu": "600m"}})), json!({})))
        .unwrap();
    assert_eq!((&used(&world)["pods"], &used(&world)["requests.cpu"]), (&"1".into(), &"600m".into()));
    // An update that does not increase the usage is not charged.
    world.merge("v1/configmaps", "default/a", json!({"data": {"k": "v"}})).unwrap();
    assert_eq!(used(&world)["configmaps"], "1");
}

#[test]
fn quotas_look_at_their_scopes_and_at_what_grows() {
    let world = World::default();
    quota(&world, json!({"pods": "0"}), json!({"pods": "0"}), json!(["BestEffort"]));
    let try_pod = |resources: Value| tried(&world, "v1/pods", pod("p", "", container(resources), json!({})));
    assert!(try_pod(json!({})).unwrap_err().contains("exceeded quota: q"));
    try_pod(json!({"requests": {"cpu": "1"}})).unwrap();

    let world = World::default();
    let none = json!({"services.nodeports": "0"});
    quota(&world, none.clone(), none, Value::Null);
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}});
    world.create("v1/services", service).unwrap();
    let patch = json!({"spec": {"type": "NodePort"}});
    let error = world.merge("v1/services", "default/s", patch).unwrap_err();
    assert_eq!(
        error.message,
        "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=0, limited: services.nodeports=0"
    );
}

#[test]
fn quotas_of_claims_look_at_their_classes() {
    let table: [(&str, Value, &[&str]); 4] = [
        ("In", json!(["gold"]), &["gold"]),
        ("NotIn", json!(["gold"]), &["", "silver"]),
        ("Exists", json!([]), &["gold", "silver"]),
        ("DoesNotExist", json!([]), &[""]),
    ];
    for (operator, values, concerned) in table {
        let world = World::default();
        let none = json!({"persistentvolumeclaims": "0"});
        let selector = json!({"matchExpressions": [
            {"scopeName": "VolumeAttributesClass", "operator": operator, "values": values}]});
        let spec = json!({"hard": none, "scopeSelector": selector});
        world.create("v1/resourcequotas", json!({"metadata": {"name": "q"}, "spec": spec})).unwrap();
        let status = json!({"status": {"hard": none, "used": none}});
        world.merge("v1/resourcequotas/status", "default/q", status).unwrap();
        for class in ["", "gold", "silver"] {
            let mut claim = json!({"metadata": {"name": "c"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
            if !class.is_empty() {
                claim["spec"]["volumeAttributesClassName"] = class.into();
            }
            let refused = tried(&world, "v1/persistentvolumeclaims", claim).is_err();
            assert_eq!(refused, concerned.contains(&class), "{operator} {class}");
        }
    }
}

#[test]
fn a_pod_that_gets_a_deadline_is_charged_to_the_quota_of_such_pods() {
    let world = World::default();
    let one = json!({"pods": "1"});
    quota(&world, one.clone(), json!({"pods": "0"}), json!(["Terminating"]));
    let ending = json!({"activeDeadlineSeconds": 60});
    world.create("v1/pods", pod("a", "", json!({}), json!({}))).unwrap();
    assert_eq!(used(&world), json!({"pods": "0"}));
    world.merge("v1/pods", "default/a", json!({"spec": ending})).unwrap();
    assert_eq!(used(&world), one);
    let refused = tried(&world, "v1/pods", pod("b", "", ending, json!({}))).unwrap_err();
    assert!(
        refused.contains("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"),
        "{refused}"
    );
    tried(&world, "v1/pods", pod("b", "", json!({}), json!({}))).unwrap();
}

#[test]
fn quotas_count_devices_by_their_class() {
    let world = World::new(Config { counts_quotas: true, ..Config::default() });
    let gold = "gold.deviceclass.resource.k8s.io/devices";
    let silver = "silver.deviceclass.resource.k8s.io/devices";
    let hard = json!({"count/resourceclaims.resource.k8s.io": "5", gold: "5", silver: "40"});
    world.create("v1/resourcequotas", json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).unwrap();
    world.maintain();
    let claims = "resource.k8s.io/v1/resourceclaims";
    let claim = |name: &str, requests: Value| json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}});
    let requests = json!([
        {"name": "a", "exactly": {"deviceClassName": "gold", "count": 2}},
        {"name": "b", "exactly": {"deviceClassName": "silver", "allocationMode": "All"}},
        {"name": "c", "firstAvailable": [
            {"name": "x", "deviceClassName": "gold"}, {"name": "y", "deviceClassName": "gold", "count": 2},
            {"name": "z", "deviceClassName": "silver", "count": 3}]},
    ]);
    world.create(claims, claim("a", requests)).unwrap();
    let expected = json!({"count/resourceclaims.resource.k8s.io": "1", gold: "4", silver: "35"});
    assert_eq!(used(&world), expected);
    let two = json!([{"name": "a", "exactly": {"deviceClassName": "gold", "count": 2}}]);
    let refused = tried(&world, claims, claim("b", two)).unwrap_err();
    assert!(
        refused.contains(&format!("requested: {gold}=2, used: {gold}=4, limited: {gold}=5")),
        "{refused}"
    );
    world.delete(claims, "default/a", DeleteOptions::default()).unwrap();
    world.maintain();
    let expected = json!({"count/resourceclaims.resource.k8s.io": "0", gold: "0", silver: "0"});
    assert_eq!(used(&world), expected);
}

#[test]
fn administrative_access_to_devices_needs_a_label_on_the_namespace() {
    let world = World::default();
    let claim = json!({"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "d", "adminAccess": true}}]}});
    let objects = [
        (
            "ResourceClaim",
            "resource.k8s.io/v1/resourceclaims",
            json!({"metadata": {"name": "c"}, "spec": claim}),
        ),
        (
            "ResourceClaimTemplate",
            "resource.k8s.io/v1/resourceclaimtemplates",
            json!({"metadata": {"name": "c"}, "spec": {"spec": claim}}),
        ),
    ];
    for (kind, resource, object) in &objects {
        let why = format!(
            "422 {kind}.resource.k8s.io \"c\" is invalid: spec.devices.requests[0].adminAccess: Forbidden: admin access to \
             devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
        );
        assert_eq!(tried(&world, resource, object.clone()).unwrap_err(), why);
    }
    // It is refused before all other checks.
    let mut worse = objects[0].2.clone();
    worse["spec"]["devices"]["requests"][0]["name"] = "Bad Name!".into();
    let error = tried(&world, objects[0].1, worse).unwrap_err();
    let first = "is invalid: [spec.devices.requests[0].adminAccess: Forbidden";
    assert!(error.contains(first), "{error}");
    let labels = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    world.merge("v1/namespaces", "/default", labels).unwrap();
    for (_, resource, object) in objects {
        tried(&world, resource, object).unwrap();
    }
}

#[test]
fn a_server_that_counts_quotas_gives_back_what_is_deleted() {
    let world = World::new(Config { counts_quotas: true, ..Config::default() });
    let hard = json!({"configmaps": "1", "count/deployments.apps": "3", "requests.cpu": "1", "requests.storage": "1Gi"});
    world.create("v1/configmaps", json!({"metadata": {"name": "a"}})).unwrap();
    world
        .create("v1/pods", pod("p", "", container(json!({"requests": {"cpu": "300m"}})), json!({})))
        .unwrap();
    world.create("v1/resourcequotas", json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).unwrap();
    world.maintain();
    let quota = world.get("v1/resourcequotas", "default/q").unwrap();
    assert_eq!(quota["status"]["hard"], hard);
    let mut counted = json!({"configmaps": "1", "count/deployments.apps": "0", "requests.cpu": "300m", "requests.storage": "0"});
    assert_eq!(used(&world), counted);
    world.create("v1/configmaps", json!({"metadata": {"name": "b"}})).unwrap_err();
    world.delete("v1/configmaps", "default/a", world::grace(0)).unwrap();
    world.maintain();
    counted["configmaps"] = "0".into();
    assert_eq!(used(&world), counted);
    world.create("v1/configmaps", json!({"metadata": {"name": "b"}})).unwrap();
}

fn namespace(world: &World, name: &str, labels: Value) -> Result<Value, String> {
    let object = json!({"metadata": {"name": name, "labels": labels}});
    world
        .create_with("v1/namespaces", "", object, WriteOptions::default())
        .map(|response| body(&response))
        .map_err(|error| error.message)
}

fn pod_in(world: &World, namespace: &str, spec: Value) -> (Vec<String>, Option<String>) {
    match world.create_with("v1/pods", namespace, pod("p", "", spec, json!({})), DRY) {
        Ok(response) => (response.warnings, None),
        Err(error) => (Vec::new(), Some(error.message)),
    }
}

#[test]
fn labels_of_a_namespace_say_how_privileged_its_pods_may_be() {
    const LEVEL: &str = "pod-security.kubernetes.io/enforce";
    const VERSION: &str = "pod-security.kubernetes.io/enforce-version";
    let world = World::default();
    namespace(&world, "baseline", json!({LEVEL: "baseline"})).unwrap();
    namespace(&world, "restricted", json!({LEVEL: "restricted"})).unwrap();
    namespace(&world, "old", json!({LEVEL: "restricted", VERSION: "v1.0"})).unwrap();
    namespace(&world, "warned", json!({"pod-security.kubernetes.io/warn": "baseline"})).unwrap();
    assert_eq!(
        namespace(&world, "odd", json!({LEVEL: "odd"})).unwrap_err(),
        "Namespace \"odd\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"odd\": must be one of privileged, baseline, restricted"
    );
    let refused = |namespace: &str, spec: Value| pod_in(&world, namespace, spec).1;
    let says = |why: &str| Some(format!("pods \"p\" is forbidden: violates PodSecurity {why}"));
    let context =
        |context: Value| json!({"containers": [{"name": "c", "image": "i", "securityContext": context}]});
    for (spec, why) in [
        (json!({"hostNetwork": true, "hostPID": true}), "host namespaces (hostNetwork=true, hostPID=true)"),
        (json!({"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}), "hostPath volumes (volume \"h\")"),
        (
            json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 1}]}]}),
            "hostPort (container \"c\" uses hostPort 1)",
        ),
        (
            context(json!({"capabilities": {"add": ["SYS_ADMIN", "KILL"]}})),
            "non-default capabilities (container \"c\" must not include \"SYS_ADMIN\" in securityContext.capabilities.add)",
        ),
        (
            json!({"securityContext": {"seLinuxOptions": {"type": "spc_t", "user": "u"}}}),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"spc_t\"; user may not be set)",
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
            "forbidden sysctls (kernel.msgmax)",
        ),
    ] {
        assert_eq!(refused("baseline", spec.clone()), says(&format!("\"baseline:latest\": {why}")));
        assert_eq!(
            pod_in(&world, "warned", spec),
            (vec![format!("would violate PodSecurity \"baseline:latest\": {why}")], None)
        );
    }
    assert_eq!(refused("baseline", json!({})), None);
    assert_eq!(
        refused("restricted", json!({})),
        says(
            "\"restricted:latest\": allowPrivilegeEscalation != false (container \"c\" must set \
             securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set \
             securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set \
             securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set \
             securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
        )
    );
    assert_eq!(
        refused("old", json!({})),
        says(
            "\"restricted:v1.0\": runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true)"
        )
    );
    let mut good = context(json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}));
    good["securityContext"] = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    assert_eq!(refused("restricted", good), None);
}

#[test]
fn a_level_that_rises_names_the_pods_that_violate_it() {
    let world = World::default();
    namespace(&world, "n", json!({})).unwrap();
    for name in ["a", "b"] {
        let pod = pod(name, "", json!({"hostNetwork": true}), json!({}));
        world.create_with("v1/pods", "n", pod, WriteOptions::default()).unwrap();
    }
    let patch = request(json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}));
    let operation = Operation::Patch(gc_registry::api::PatchType::Merge, patch, WriteOptions::default());
    let response = world.run("v1/namespaces", "/n", operation).unwrap();
    assert_eq!(
        response.warnings,
        [
            "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "a (and 1 other pod): host namespaces",
        ]
    );
}

#[test]
fn templates_only_warn() {
    let world = World::default();
    namespace(&world, "n", json!({"pod-security.kubernetes.io/enforce": "baseline"})).unwrap();
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"hostNetwork": true,
            "containers": [{"name": "c", "image": "i"}]}}}});
    let response = world.create_with("apps/v1/deployments", "n", deployment, DRY).unwrap();
    assert_eq!(
        response.warnings,
        ["would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)"]
    );
}

#[test]
fn claims_grow_only_where_their_class_lets_them() {
    let world = World::default();
    for (name, grows) in [("grows", true), ("stays", false)] {
        world
            .create(
                "storage.k8s.io/v1/storageclasses",
                json!({"metadata": {"name": name}, "provisioner": "example.com/p", "allowVolumeExpansion": grows}),
            )
            .unwrap();
        let claim = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": name, "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}}});
        world.create("v1/persistentvolumeclaims", claim).unwrap();
    }
    let bigger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let place = |name: &str| format!("default/{name}");
    let resource = "v1/persistentvolumeclaims";
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    for name in ["grows", "stays"] {
        world.merge("v1/persistentvolumeclaims/status", &place(name), bound.clone()).unwrap();
    }
    world.merge(resource, &place("grows"), bigger.clone()).unwrap();
    assert_eq!(
        world.merge(resource, &place("stays"), bigger).unwrap_err().message,
        "persistentvolumeclaims \"stays\" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
    );
}

#[test]
fn service_accounts_are_mounted_where_the_plugin_is_on() {
    let plugins = Plugins::default().with(Plugin::ServiceAccount, true);
    let world = World::new(Config { plugins, ..Config::default() });
    let plain = || pod("p", "", json!({}), json!({}));
    assert_eq!(
        tried(&world, "v1/pods", plain()).unwrap_err(),
        "403 pods \"p\" is forbidden: error looking up service account default/default: serviceaccount \"default\" not found"
    );
    world
        .create(
            "v1/serviceaccounts",
            json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "s"}]}),
        )
        .unwrap();
    let made = tried(&world, "v1/pods", plain()).unwrap();
    assert_eq!(
        (&made["spec"]["serviceAccountName"], &made["spec"]["imagePullSecrets"]),
        (&"default".into(), &json!([{"name": "s"}]))
    );
    let volume = &made["spec"]["volumes"][0];
    assert_eq!(
        made["spec"]["containers"][0]["volumeMounts"],
        json!([{"name": volume["name"], "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}])
    );
    assert_eq!(volume["projected"]["sources"].as_array().map(Vec::len), Some(3));
}

/// Every answer is that of kube-apiserver 1.36.
#[test]
fn accounts_bound_what_pods_refer_to() {
    let plugins = Plugins::default().with(Plugin::ServiceAccount, true);
    let world = World::new(Config { plugins, ..Config::default() });
    let annotations = json!({"kubernetes.io/enforce-mountable-secrets": "true"});
    let strict = json!({"metadata": {"name": "strict", "annotations": annotations},
        "secrets": [{"name": "mine"}], "imagePullSecrets": [{"name": "pull"}]});
    for account in [json!({"metadata": {"name": "default"}}), strict] {
        world.create("v1/serviceaccounts", account).unwrap();
    }
    let mirror = |spec: Value, container: &Value| {
        let annotations = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
        let mut pod = pod("p", "", spec, annotations);
        pod["spec"]["containers"][0].as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        tried(&world, "v1/pods", pod).map(drop)
    };
    let variable =
        json!({"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}]});
    let whole = json!({"envFrom": [{"secretRef": {"name": "other"}}]});
    let projected = |source: Value| json!({"volumes": [{"name": "v", "projected": {"sources": [source]}}]});
    let volume = |secret: &str| json!([{"name": "v", "secret": {"secretName": secret}}]);
    let none = json!({});
    for (spec, container, refusal) in [
        (json!({"serviceAccountName": "default"}), &none, "reference service accounts"),
        (json!({"volumes": volume("s")}), &none, "reference secrets"),
        (none.clone(), &variable, "reference secrets"),
        (none.clone(), &whole, "reference secrets"),
        (json!({"imagePullSecrets": [{"name": "x"}]}), &none, "reference secrets"),
        (projected(json!({"secret": {"name": "s"}})), &none, "reference secrets"),
        (
            projected(json!({"serviceAccountToken": {"path": "t"}})),
            &none,
            "use ServiceAccountToken volume projections",
        ),
    ] {
        let text = format!("403 pods \"p\" is forbidden: a mirror pod may not {refusal}");
        assert_eq!(mirror(spec.clone(), container), Err(text), "{spec} {container}");
    }
    let owned = |mut spec: Value, container: &Value| {
        spec["serviceAccountName"] = "strict".into();
        let mut pod = pod("p", "", spec, json!({}));
        pod["spec"]["containers"][0].as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        tried(&world, "v1/pods", pod).map(drop)
    };
    let not_named = "is not allowed because service account strict does not reference that";
    let mut init = variable.clone();
    init["name"] = "i".into();
    init["image"] = "i".into();
    for (spec, container, refusal) in [
        (none.clone(), &variable, "container c with envVar E referencing secret.secretName=\"other\""),
        (none.clone(), &whole, "container c with envFrom referencing secret.secretName=\"other\""),
        (json!({"volumes": volume("other")}), &none, "volume with secret.secretName=\"other\""),
        (
            json!({"initContainers": [init]}),
            &none,
            "init container i with envVar E referencing secret.secretName=\"other\"",
        ),
        (
            json!({"imagePullSecrets": [{"name": "pull"}, {"name": "q"}]}),
            &none,
            "imagePullSecrets[1].name=\"q\"",
        ),
    ] {
        let what = if refusal.starts_with("image") { "imagePullSecret" } else { "secret" };
        let text = format!("403 pods \"p\" is forbidden: {refusal} {not_named} {what}");
        assert_eq!(owned(spec.clone(), container), Err(text), "{spec} {container}");
    }
    let fitting = json!({"serviceAccountName": "strict", "volumes": volume("mine")});
    world.create("v1/pods", pod("fits", "", fitting, json!({}))).unwrap();
    let mut ephemeral = variable;
    ephemeral["name"] = "e".into();
    ephemeral["image"] = "i".into();
    let patch = json!({"spec": {"ephemeralContainers": [ephemeral]}});
    let error = world.merge("v1/pods/ephemeralcontainers", "default/fits", patch).unwrap_err();
    let text = format!(
        "ephemeral container e with envVar E referencing secret.secretName=\"other\" {not_named} secret"
    );
    assert_eq!((error.code, &*error.reason, error.message), (500, "", text));
}

/// A volume with the name of a token's volume is used as such, as upstream.
#[test]
fn given_volumes_of_tokens_are_used() {
    let plugins = Plugins::default().with(Plugin::ServiceAccount, true);
    let world = World::new(Config { plugins, ..Config::default() });
    world.create("v1/serviceaccounts", json!({"metadata": {"name": "default"}})).unwrap();
    let spec = json!({"volumes": [{"name": "kube-api-access-given", "emptyDir": {}}]});
    let made = tried(&world, "v1/pods", pod("p", "", spec.clone(), json!({}))).unwrap();
    assert_eq!(made["spec"]["volumes"], spec["volumes"]);
    assert_eq!(made["spec"]["containers"][0]["volumeMounts"][0]["name"], "kube-api-access-given");
}

#[test]
fn evictions_spend_what_a_budget_allows() {
    let world = World::default();
    let running = |name: &str| {
        let labels = json!({"labels": {"app": "a"}});
        world.create("v1/pods", pod(name, "", json!({}), labels)).unwrap();
        let ready =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        world.merge("v1/pods/status", &format!("default/{name}"), ready).unwrap();
    };
    running("a");
    running("b");
    world
        .create(
            "policy/v1/poddisruptionbudgets",
            json!({"metadata": {"name": "p"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}}),
        )
        .unwrap();
    let evict = |name: &str| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let operation = Operation::Create(request(eviction), WriteOptions::default());
        world.run("v1/pods/eviction", &format!("default/{name}"), operation)
    };
    let why = |name: &str| evict(name).unwrap_err().details.unwrap().causes[0].message.clone();
    assert_eq!(why("a"), "The disruption budget p is still being processed by the server.");
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
        "desiredHealthy": 1, "expectedPods": 2}});
    world.merge("policy/v1/poddisruptionbudgets/status", "default/p", status).unwrap();
    evict("a").unwrap();
    let budget = world.get("policy/v1/poddisruptionbudgets", "default/p").unwrap();
    assert_eq!(
        (&budget["status"]["disruptionsAllowed"], &budget["status"]["disruptedPods"]),
        (&0.into(), &json!({"a": "2026-01-01T00:00:00Z"}))
    );
    let error = evict("b").unwrap_err();
    assert_eq!((error.code, &*error.reason), (429, "TooManyRequests"));
    assert_eq!(why("b"), "The disruption budget p needs 1 healthy pods and has 2 currently");
}
