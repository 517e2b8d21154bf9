#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::testing::{World, owner};
use crate::workloads::Workload;

fn service(name: &str, spec: &Value) -> Value {
    let mut whole = json!({
        "clusterIP": "10.96.0.10", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}],
    });
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    json!({"metadata": {"name": name, "namespace": "default", "labels": {"team": "shop"}}, "spec": whole})
}

fn with_ports() -> Value {
    json!({"template": {"spec": {"containers": [
        {"name": "web", "image": "web:1", "ports": [{"name": "web", "containerPort": 8080, "protocol": "TCP"}]}]}}})
}

/// Returns the slices of a Service, without the parts that differ between runs.
fn slices(world: &World) -> Vec<Value> {
    let shown = world.of_kind(Kind::EndpointSlice).into_iter().map(|slice| {
        let endpoints = slice["endpoints"].as_array().unwrap().iter().map(|endpoint| {
            json!([endpoint["targetRef"]["name"], endpoint["conditions"], endpoint["hostname"]])
        });
        json!({
            "labels": slice["metadata"]["labels"], "ports": slice["ports"], "addressType": slice["addressType"],
            "owner": slice["metadata"]["ownerReferences"][0]["kind"], "endpoints": endpoints.collect::<Vec<_>>(),
        })
    });
    shown.collect()
}

fn conditions(ready: bool, serving: bool, terminating: bool) -> Value {
    json!({"ready": ready, "serving": serving, "terminating": terminating})
}

#[test]
fn a_service_has_a_slice_and_endpoints_of_its_ready_pods() {
    let mut world = World::whole();
    let first = world.create(Kind::Service, service("web", &json!({})));
    world.settle();
    let labels = json!({"team": "shop", "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"});
    let empty =
        json!({"labels": labels, "ports": [], "addressType": "IPv4", "owner": "Service", "endpoints": []});
    assert_eq!(slices(&world), [empty], "a Service without pods has an empty slice");
    let slice = world.of_kind(Kind::EndpointSlice)[0];
    let trigger = "endpoints.kubernetes.io/last-change-trigger-time";
    assert_eq!(slice["metadata"]["annotations"][trigger], first["metadata"]["creationTimestamp"]);
    let name = slice["metadata"]["name"].clone();

    let mut set = owner("web", &with_ports());
    set["spec"]["replicas"] = 2.into();
    world.create(Kind::ReplicaSet, set);
    world.settle();
    let ports = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
    let pods: Vec<String> = world.names(Kind::Pod).into_iter().map(str::to_owned).collect();
    let endpoint = |pod: &str| json!([pod, conditions(true, true, false), null]);
    let full = json!({"labels": labels, "ports": ports, "addressType": "IPv4", "owner": "Service",
        "endpoints": [endpoint(&pods[0]), endpoint(&pods[1])]});
    let mut shown = slices(&world);
    shown[0]["endpoints"].as_array_mut().unwrap().sort_by_key(Value::to_string);
    assert_eq!(shown, [full]);
    assert_eq!(world.of_kind(Kind::EndpointSlice)[0]["metadata"]["name"], name, "the empty slice is filled");

    let endpoints = world.get(Kind::Endpoints, "web");
    let labels = json!({"team": "shop", "endpoints.kubernetes.io/managed-by": "endpoint-controller"});
    assert_eq!(endpoints["metadata"]["labels"], labels);
    let subset = &endpoints["subsets"][0];
    assert_eq!((&subset["ports"], &subset["notReadyAddresses"]), (&ports, &Value::Null));
    assert_eq!(subset["addresses"].as_array().unwrap().len(), 2);

    world.log.clear();
    world.change(Kind::Pod, &pods[0], |pod| pod["metadata"]["annotations"]["note"] = "x".into());
    world.settle();
    let about = |what: &str| world.log.iter().any(|line| line.contains(what));
    assert!(!about("endpoint"), "what is not shown changes nothing: {:?}", world.log);
}

/// A Service that is deleted with orphaning keeps its slices: the collector releases them while the Service still exists.
#[test]
fn slices_that_are_orphaned_stay() {
    let mut world = World::new(&[Workload::EndpointSlice]);
    world.create(Kind::Service, service("web", &json!({})));
    world.settle();
    let name = world.names(Kind::EndpointSlice)[0].to_owned();
    world.change(Kind::Service, "web", |service| {
        service["metadata"]["deletionTimestamp"] = "2026-09-21T14:00:00Z".into();
        service["metadata"]["finalizers"] = json!(["orphan"]);
    });
    world.change(Kind::EndpointSlice, &name, |slice| slice["metadata"]["ownerReferences"] = Value::Null);
    world.settle();
    assert_eq!(world.names(Kind::EndpointSlice), [name.as_str()]);
}

#[test]
fn a_pod_that_is_being_deleted_serves_until_it_ends() {
    let mut world = World::new(&[Workload::EndpointSlice, Workload::Endpoints]);
    world.create(
        Kind::Node,
        json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "a"}}}),
    );
    world.create(Kind::Service, service("web", &json!({"ports": [{"port": 80, "targetPort": 80}]})));
    let pod = json!({
        "metadata": {"name": "one", "labels": {"app": "web"}, "finalizers": ["example.com/hold"]},
        "spec": {"nodeName": "n", "hostname": "first", "subdomain": "web"},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2023-11-14T22:13:20Z"}]},
    });
    world.create(Kind::Pod, pod);
    world.settle();
    let shown = &world.of_kind(Kind::EndpointSlice)[0]["endpoints"][0];
    assert_eq!(
        *shown,
        json!({
            "addresses": ["10.0.0.1"], "conditions": conditions(true, true, false), "nodeName": "n", "zone": "a",
            "hostname": "first",
            "targetRef": {"kind": "Pod", "namespace": "default", "name": "one", "uid": shown["targetRef"]["uid"]},
        })
    );
    world.delete(&Kind::Pod.key("default", "one"), None);
    world.settle();
    let slice = world.of_kind(Kind::EndpointSlice)[0];
    assert_eq!(slice["endpoints"][0]["conditions"], conditions(false, true, true));
    assert_eq!(world.get(Kind::Endpoints, "web")["subsets"], json!([]), "Endpoints do not show it any more");
    world.change(Kind::Pod, "one", |pod| pod["status"]["phase"] = "Failed".into());
    world.settle();
    assert_eq!(slices(&world)[0]["endpoints"], json!([]));
}

#[test]
fn slices_hold_a_hundred_endpoints_and_change_as_little_as_possible() {
    let mut world = World::new(&[Workload::EndpointSlice]);
    world.create(Kind::Node, json!({"metadata": {"name": "n"}}));
    world.create(Kind::Service, service("web", &json!({"clusterIP": "None", "ports": null})));
    let pod = |number: u32| {
        json!({"metadata": {"name": format!("pod-{number:03}"), "labels": {"app": "web"}}, "spec": {"nodeName": "n"},
            "status": {"phase": "Running", "podIP": format!("10.0.0.{number}"),
                "podIPs": [{"ip": format!("10.0.0.{number}")}]}})
    };
    for number in 0..150 {
        world.create(Kind::Pod, pod(number));
    }
    world.settle();
    let sizes = |world: &World| {
        let all = slices(world);
        all.iter().map(|slice| slice["endpoints"].as_array().unwrap().len()).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&world), [100, 50]);
    assert_eq!(slices(&world)[0]["labels"]["service.kubernetes.io/headless"], "");
    world.log.clear();
    world.delete(&Kind::Pod.key("default", "pod-007"), Some(0));
    world.create(Kind::Pod, pod(200));
    world.pass(1);
    assert_eq!(sizes(&world), [100, 50], "the new pod takes the place of the old one");
    assert_eq!(
        world.log.iter().filter(|line| line.contains("endpointslices/")).count(),
        1,
        "{:?}",
        world.log
    );
    for number in 0..150 {
        world.delete(&Kind::Pod.key("default", &format!("pod-{number:03}")), Some(0));
    }
    world.delete(&Kind::Pod.key("default", "pod-200"), Some(0));
    world.pass(1);
    assert_eq!(sizes(&world), [0], "one slice is left, without endpoints");
}

#[test]
fn each_address_family_has_slices_and_those_of_others_go() {
    let mut world = World::new(&[Workload::EndpointSlice]);
    world.create(Kind::Service, service("web", &json!({"ipFamilies": ["IPv4", "IPv6"]})));
    world.settle();
    let families = |world: &World| {
        let mut all: Vec<Value> = slices(world).iter().map(|slice| slice["addressType"].clone()).collect();
        all.sort_by_key(Value::to_string);
        all
    };
    assert_eq!(families(&world), ["IPv4", "IPv6"]);
    world.change(Kind::Service, "web", |service| service["spec"]["ipFamilies"] = json!(["IPv6"]));
    world.settle();
    assert_eq!(families(&world), ["IPv6"]);
}

#[test]
fn endpoints_of_a_service_without_selector_are_mirrored() {
    let mut world = World::whole();
    world.create(Kind::Service, service("db", &json!({"selector": null})));
    let endpoints = json!({"metadata": {"name": "db", "namespace": "default", "labels": {"team": "shop"}}, "subsets": [{
        "addresses": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}], "notReadyAddresses": [{"ip": "192.0.2.2"}],
        "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]}]});
    world.create(Kind::Endpoints, endpoints);
    world.settle();
    let mut shown: Vec<Value> = world
        .of_kind(Kind::EndpointSlice)
        .into_iter()
        .map(|slice| {
            json!([
                slice["addressType"],
                slice["ports"],
                slice["endpoints"],
                slice["metadata"]["ownerReferences"][0]["kind"],
                slice["metadata"]["labels"]
            ])
        })
        .collect();
    shown.sort_by_key(Value::to_string);
    let ports = json!([{"name": "sql", "port": 5432, "protocol": "TCP"}]);
    let endpoint = |ip: &str, ready: bool| json!({"addresses": [ip], "conditions": {"ready": ready}});
    let labels = json!({"team": "shop", "kubernetes.io/service-name": "db",
        "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io"});
    let slice = |family: &str, endpoints: &[Value]| json!([family, ports, endpoints, "Endpoints", labels]);
    assert_eq!(
        shown,
        [
            slice("IPv4", &[endpoint("192.0.2.1", true), endpoint("192.0.2.2", false)]),
            slice("IPv6", &[endpoint("2001:db8::1", true)]),
        ]
    );
    world.change(Kind::Endpoints, "db", |endpoints| {
        endpoints["subsets"][0]["addresses"] = json!([{"ip": "192.0.2.3"}]);
    });
    world.settle();
    let left = world.of_kind(Kind::EndpointSlice);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["endpoints"], json!([endpoint("192.0.2.2", false), endpoint("192.0.2.3", true)]));
    world.change(Kind::Service, "db", |service| service["spec"]["selector"] = json!({"app": "db"}));
    world.settle();
    let managers: Vec<&Value> = world
        .of_kind(Kind::EndpointSlice)
        .into_iter()
        .map(|slice| &slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"])
        .collect();
    assert_eq!(
        managers,
        ["endpointslice-controller.k8s.io"],
        "a Service with a selector has slices of its own"
    );
    world.delete(&Kind::Service.key("default", "db"), None);
    world.settle();
    assert_eq!(world.names(Kind::Endpoints), <[&str; 0]>::default());
}

#[test]
fn a_load_balancer_gets_an_address_and_holds_its_service_until_it_is_gone() {
    let mut world = World::new(&[Workload::LoadBalancer]);
    world.create(Kind::Service, service("shop", &json!({"type": "LoadBalancer"})));
    world.create(
        Kind::Service,
        service("other", &json!({"type": "LoadBalancer", "loadBalancerClass": "a.b/c"})),
    );
    world.create(
        Kind::Service,
        service("asked", &json!({"type": "LoadBalancer", "loadBalancerIP": "198.51.100.7"})),
    );
    world.settle();
    let ingress = |name: &str| world.get(Kind::Service, name)["status"]["loadBalancer"]["ingress"].clone();
    assert!(ingress("shop")[0]["ip"].as_str().unwrap().starts_with("172."));
    assert_eq!(ingress("asked"), json!([{"ip": "198.51.100.7", "ipMode": "VIP"}]));
    assert_eq!(ingress("other"), Value::Null, "another class is another controller's");
    let events = ["EnsuringLoadBalancer Ensuring load balancer", "EnsuredLoadBalancer Ensured load balancer"];
    assert_eq!(world.events("shop"), events);
    world.change(Kind::Service, "asked", |service| service["spec"]["type"] = "ClusterIP".into());
    world.settle();
    let asked = world.get(Kind::Service, "asked");
    assert_eq!(asked["metadata"]["finalizers"], json!([]));
    assert_eq!(asked["status"]["loadBalancer"], Value::Null);
    world.delete(&Kind::Service.key("default", "shop"), None);
    world.settle();
    assert_eq!(world.names(Kind::Service), ["asked", "other"]);
}
