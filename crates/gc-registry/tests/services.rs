//! Tests addresses and node ports of services: each is taken once, kept, and released.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::needless_pass_by_value, reason = "a document written in place reads best")]

mod world;

use std::collections::BTreeSet;

use gc_registry::Config;
use gc_registry::api::{DeleteOptions, ListOptions, WriteOptions};
use gc_registry::services::ServiceRanges;
use serde_json::{Value, json};

use world::World;

const SERVICES: &str = "v1/services";
const ADDRESSES: &str = "networking.k8s.io/v1/ipaddresses";

fn small() -> World {
    let service_ranges = ServiceRanges::default()
        .with_addresses("10.0.0.0/29")
        .unwrap()
        .with_node_ports("30000-30002")
        .unwrap();
    World::new(Config { service_ranges, ..Config::default() })
}

fn service(name: &str, spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    for (key, value) in spec.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    service
}

fn address(service: &Value) -> String {
    service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned()
}

/// Returns the addresses that are taken, each with its service.
fn taken(world: &World) -> Vec<String> {
    let list = world::body(&world.list(ADDRESSES, "", ListOptions::default()).unwrap());
    let shown = |object: &Value| {
        let parent = &object["spec"]["parentRef"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        format!(
            "{} {}/{}",
            text(&object["metadata"]["name"]),
            text(&parent["namespace"]),
            text(&parent["name"])
        )
    };
    list.as_array().unwrap().iter().map(shown).collect()
}

fn refused(result: Result<Value, gc_registry::error::ApiError>) -> String {
    let error = result.unwrap_err();
    format!("{} {}", error.code, error.message)
}

#[test]
fn a_service_takes_an_address_with_an_ip_address_object() {
    let world = small();
    assert_eq!(taken(&world), ["10.0.0.1 default/kubernetes"]);
    let created = world.create(SERVICES, service("a", json!({}))).unwrap();
    let of_a = format!("{} default/a", address(&created));
    assert!(taken(&world).contains(&of_a), "{of_a} {:?}", taken(&world));
    let object = world.get(ADDRESSES, &format!("/{}", address(&created))).unwrap();
    assert_eq!(
        object["metadata"]["labels"],
        json!({"ipaddress.kubernetes.io/ip-family": "IPv4",
               "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"})
    );
    world.delete(SERVICES, "default/a", DeleteOptions::default()).unwrap();
    assert_eq!(taken(&world), ["10.0.0.1 default/kubernetes"]);
}

#[test]
fn a_range_is_used_up_without_two_services_on_one_address() {
    let world = small();
    let mut addresses = BTreeSet::from(["10.0.0.1".to_owned()]);
    for number in 0..5 {
        let created = world.create(SERVICES, service(&format!("s{number}"), json!({}))).unwrap();
        assert!(addresses.insert(address(&created)));
    }
    assert_eq!(addresses, (1..=6).map(|host| format!("10.0.0.{host}")).collect());
    assert_eq!(
        refused(world.create(SERVICES, service("more", json!({})))),
        "500 Internal error occurred: failed to allocate a serviceIP: range is full"
    );
    // A service that needs no address is still created.
    world.create(SERVICES, service("headless", json!({"clusterIP": "None"}))).unwrap();
    world.delete(SERVICES, "default/s3", DeleteOptions::default()).unwrap();
    world.create(SERVICES, service("more", json!({}))).unwrap();
}

#[test]
fn what_is_taken_or_outside_is_refused_in_the_words_of_upstream() {
    let world = small();
    let node_port = |port: u32| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    world.create(SERVICES, service("a", json!({"clusterIP": "10.0.0.3"}))).unwrap();
    world.create(SERVICES, service("n", node_port(30_001))).unwrap();
    // The last column states whether a dry run is refused as well.
    let table = [
        (
            json!({"clusterIP": "10.0.0.3"}),
            "spec.clusterIPs: Invalid value: [\"10.0.0.3\"]: failed to allocate IP 10.0.0.3: provided IP is already \
             allocated",
            false,
        ),
        (
            json!({"clusterIP": "11.0.0.1"}),
            "spec.clusterIPs: Invalid value: [\"11.0.0.1\"]: failed to allocate IP 11.0.0.1: the provided \
             network does not match the current range",
            true,
        ),
        (
            json!({"clusterIP": "10.0.0.7"}),
            "spec.clusterIPs: Invalid value: [\"10.0.0.7\"]: failed to allocate IP 10.0.0.7: the provided \
             network does not match the current range",
            true,
        ),
        (
            node_port(30_001),
            "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated",
            true,
        ),
        (
            node_port(80),
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid \
             ports is 30000-30002",
            false,
        ),
        (
            json!({"ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
            true,
        ),
        (
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack \
             services",
            true,
        ),
    ];
    for (spec, why, refuses_dry_run) in table {
        let wanted = format!("422 Service \"b\" is invalid: {why}");
        assert_eq!(refused(world.create(SERVICES, service("b", spec.clone()))), wanted);
        let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
        let dry = world.create_with(SERVICES, "default", service("b", spec), dry);
        let dry = dry.map(|answer| world::body(&answer));
        if refuses_dry_run {
            let range = "the provided network does not match the current range";
            let (before, address) = wanted.split_once(range).map_or(("", ""), |(before, _)| {
                (before, before.trim_end_matches(": ").rsplit(' ').next().unwrap_or_default())
            });
            let wanted = match before {
                "" => wanted,
                before => format!(
                    "{before}the provided IP ({address}) is not in the valid range. The range of valid IPs is 10.0.0.0/29"
                ),
            };
            assert_eq!(refused(dry), wanted);
        } else {
            dry.unwrap();
        }
    }
    let local = json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30_001,
        "allocateLoadBalancerNodePorts": false,
    });
    assert_eq!(
        refused(world.create(SERVICES, service("b", local))),
        "500 Internal error occurred: failed to allocate requested HealthCheck NodePort 30001: provided port is already \
         allocated"
    );
    // An IPAddress created by a user takes its address.
    let parent = json!({"resource": "services", "namespace": "default", "name": "b"});
    world
        .create(ADDRESSES, json!({"metadata": {"name": "10.0.0.4"}, "spec": {"parentRef": parent}}))
        .unwrap();
    assert!(
        refused(world.create(SERVICES, service("b", json!({"clusterIP": "10.0.0.4"}))))
            .contains("already allocated")
    );
}

#[test]
fn places_are_released_with_the_need_for_them() {
    let world = small();
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    let created = world.create(SERVICES, service("a", json!({"type": "NodePort", "ports": ports}))).unwrap();
    let with_all = json!({"type": "NodePort", "ports": [
        {"name": "a", "port": 80}, {"name": "b", "port": 81}, {"name": "c", "port": 82},
    ]});
    assert_eq!(
        refused(world.create(SERVICES, service("b", with_all.clone()))),
        "500 Internal error occurred: failed to allocate a nodePort: range is full"
    );
    let kept = world.merge(SERVICES, "default/a", json!({"metadata": {"labels": {"x": "y"}}})).unwrap();
    assert_eq!(kept["spec"], created["spec"]);
    let moved = refused(world.merge(SERVICES, "default/a", json!({"spec": {"clusterIP": "10.0.0.6"}})));
    assert!(moved.starts_with("422 Service \"a\" is invalid: spec.clusterIPs[0]: Invalid value:"), "{moved}");
    let plain = world.merge(SERVICES, "default/a", json!({"spec": {"type": "ClusterIP"}})).unwrap();
    assert_eq!((&plain["spec"]["ports"][0]["nodePort"], address(&plain)), (&Value::Null, address(&created)));
    world.create(SERVICES, service("b", with_all)).unwrap();

    let external = json!({"spec": {"type": "ExternalName", "externalName": "x.y"}});
    let external = world.merge(SERVICES, "default/a", external).unwrap();
    assert_eq!(external["spec"]["clusterIP"], Value::Null);
    assert!(!taken(&world).iter().any(|taken| taken.ends_with("default/a")));
    let back = world.merge(SERVICES, "default/a", json!({"spec": {"type": "ClusterIP"}})).unwrap();
    assert!(taken(&world).contains(&format!("{} default/a", address(&back))));

    // A deletion that waits for a finalizer keeps the address until the object is gone.
    world.merge(SERVICES, "default/a", json!({"metadata": {"finalizers": ["x.y/z"]}})).unwrap();
    world.delete(SERVICES, "default/a", DeleteOptions::default()).unwrap();
    assert!(taken(&world).iter().any(|taken| taken.ends_with("default/a")));
    world.merge(SERVICES, "default/a", json!({"metadata": {"finalizers": null}})).unwrap();
    assert!(!taken(&world).iter().any(|taken| taken.ends_with("default/a")));
}

#[test]
fn a_port_of_a_service_may_be_moved_and_taken_by_another() {
    let world = small();
    let at = |port: u32| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    world.create(SERVICES, service("a", at(30_000))).unwrap();
    world.merge(SERVICES, "default/a", json!({"spec": at(30_002)})).unwrap();
    world.create(SERVICES, service("b", at(30_000))).unwrap();
    let error = refused(world.merge(SERVICES, "default/b", json!({"spec": at(30_002)})));
    assert!(error.contains("provided port is already allocated"), "{error}");
    // One number for two protocols of a service is a single allocation.
    let both = json!({"type": "NodePort", "ports": [
        {"name": "t", "port": 53, "protocol": "TCP", "nodePort": 30_001},
        {"name": "u", "port": 53, "protocol": "UDP", "nodePort": 30_001},
    ]});
    world.create(SERVICES, service("c", both)).unwrap();
    world.delete(SERVICES, "default/c", DeleteOptions::default()).unwrap();
    world.create(SERVICES, service("d", at(30_001))).unwrap();
}

#[test]
fn services_made_at_the_same_time_share_nothing() {
    // Each round has another order of the same creations.
    for _ in 0..20 {
        let world = small();
        let created: Vec<_> = std::thread::scope(|scope| {
            let make = |number: usize| {
                let world = &world;
                scope.spawn(move || {
                    let spec =
                        json!({"type": "NodePort", "clusterIP": if number < 4 { "10.0.0.5" } else { "" }});
                    world
                        .create(SERVICES, service(&format!("s{number}"), spec))
                        .map(|service| address(&service))
                })
            };
            let threads: Vec<_> = (0..6).map(make).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let addresses: Vec<&String> = created.iter().flatten().collect();
        assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), addresses.len());
        // One service has the address that four wanted, unless a service that named none got it; and there are three ports.
        let is_given_away = created[4..].iter().flatten().any(|address| address == "10.0.0.5");
        assert_eq!(addresses.len(), if is_given_away { 2 } else { 3 }, "{created:?}");
        assert_eq!(taken(&world).len(), addresses.len() + 1);
    }
}

#[test]
fn a_start_notes_the_places_of_services_that_were_stored_without() {
    let world = small();
    let stored = world.create(SERVICES, service("a", json!({"clusterIP": "10.0.0.3"}))).unwrap();
    world.delete(ADDRESSES, "/10.0.0.3", DeleteOptions::default()).unwrap();
    world.with_context(|context| {
        world.registry.bootstrap(context, &gc_registry::bootstrap::ServerFacts::default()).unwrap();
    });
    assert_eq!(taken(&world), ["10.0.0.1 default/kubernetes", "10.0.0.3 default/a"]);
    assert_eq!(world.get(SERVICES, "default/a").unwrap(), stored);
}
