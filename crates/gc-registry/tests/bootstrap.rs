//! Tests the initial objects of every cluster.
#![allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test

mod world;

use gc_registry::api::{ListOptions, Operation, ResponseBody, WriteOptions};
use gc_registry::bootstrap::ServerFacts;
use serde_json::{Value, json};
use world::{World, request};

const ROLES: &str = "rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "rbac.authorization.k8s.io/v1/clusterrolebindings";

fn start(world: &World, facts: &ServerFacts) {
    world.with_context(|context| world.registry.bootstrap(context, facts)).unwrap();
}

fn facts() -> ServerFacts {
    ServerFacts {
        address: Some("192.0.2.1".parse().unwrap()),
        port: 6443,
        client_ca: "PEM".into(),
        ..ServerFacts::default()
    }
}

fn listed(world: &World, resource: &str) -> Vec<Value> {
    match world.list(resource, "", ListOptions::default()).unwrap().body {
        ResponseBody::List(list) => list.items.iter().map(|item| (**item.value().unwrap()).clone()).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_of_it_is_valid_and_a_second_start_writes_nothing() {
    let world = World::default();
    start(&world, &facts());
    let version = world.version();
    let mut count = 0;
    for resource in [
        "v1/namespaces",
        "v1/configmaps",
        "v1/services",
        "v1/endpoints",
        "discovery.k8s.io/v1/endpointslices",
        "networking.k8s.io/v1/servicecidrs",
        "apiregistration.k8s.io/v1/apiservices",
        "scheduling.k8s.io/v1/priorityclasses",
        "flowcontrol.apiserver.k8s.io/v1/flowschemas",
        "flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
        ROLES,
        BINDINGS,
        "rbac.authorization.k8s.io/v1/roles",
        "rbac.authorization.k8s.io/v1/rolebindings",
    ] {
        for object in listed(&world, resource) {
            count += 1;
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            let place = format!("{}/{}", text("namespace"), text("name"));
            let options = WriteOptions { dry_run: true, ..WriteOptions::default() };
            let update = Operation::Update(request(object.clone()), options);
            world.run(resource, &place, update).unwrap_or_else(|error| panic!("{resource} {place}: {error}"));
        }
    }
    assert!(count > 150, "{count}");
    start(&world, &facts());
    assert_eq!(world.version(), version);
}

#[test]
fn the_service_leads_to_where_the_server_listens_now() {
    let world = World::default();
    let find = |resource: &str| world.get(resource, "default/kubernetes");
    assert_eq!(find("v1/services").unwrap()["spec"]["clusterIP"], "10.96.0.1");
    // Without an address that others can use, it has no endpoints.
    assert_eq!(find("v1/endpoints").unwrap_err().code, 404);
    start(&world, &facts());
    start(&world, &ServerFacts { port: 7443, ..facts() });
    assert_eq!(
        find("v1/endpoints").unwrap()["subsets"],
        json!([{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"name": "https", "port": 7443, "protocol": "TCP"}]}])
    );
    let slice = find("discovery.k8s.io/v1/endpointslices").unwrap();
    assert_eq!((&slice["addressType"], &slice["ports"][0]["port"]), (&"IPv4".into(), &7443.into()));
}

#[test]
fn the_policy_is_brought_up_to_date_unless_it_is_kept() {
    let world = World::default();
    let (discovery, viewer) = ("system:discovery", "system:public-info-viewer");
    let place = |name: &str| format!("/{name}");
    world.delete(BINDINGS, &place(discovery), world::grace(0)).unwrap();
    world.merge(ROLES, &place(discovery), json!({"rules": []})).unwrap();
    let keep = json!({"rules": [], "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}});
    world.merge(ROLES, &place(viewer), keep).unwrap();
    start(&world, &ServerFacts::default());
    let role = |name: &str| world.get(ROLES, &place(name)).unwrap();
    assert_eq!(role(discovery)["rules"][0]["verbs"], json!(["get"]));
    assert_eq!(role(viewer).get("rules").cloned().unwrap_or_default().as_array().map_or(0, Vec::len), 0);
    assert_eq!(
        world.get(BINDINGS, &place(discovery)).unwrap()["subjects"],
        json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}])
    );
}
