#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use super::*;
use crate::stuck::tests::{NOW, answered, object, owned, terminating};

/// Returns the answer about the object of this name in a cluster of these objects.
fn asked(
    objects: &[(&str, Value)],
    (resource, name): (&str, &str),
    finalizer: Option<&str>,
    has_collectors: bool,
) -> Result<Release, NoFinalizer> {
    answered(objects, |survey, facts| {
        let resource = survey.catalog.find(resource).unwrap()[0].clone();
        let namespace = if resource.is_namespaced() { "n" } else { "" };
        let key = ObjectKey { resource: resource.id, namespace: namespace.into(), name: name.into() };
        release(survey, facts, &Query { key: &key, finalizer, has_collectors })
    })
    .unwrap()
}

fn operator(name: &str, replicas: i64, ready: i64) -> (&'static str, Value) {
    let mut deployment = object(name, json!({}));
    deployment["spec"] =
        json!({"replicas": replicas, "template": {"metadata": {}, "spec": {"containers": []}}});
    deployment["status"] = json!({"readyReplicas": ready});
    ("deployments", deployment)
}

fn lease(name: &str, renewed: &str) -> (&'static str, Value) {
    let mut lease = object(name, json!({"namespace": "kube-system"}));
    lease["spec"] = json!({"holderIdentity": "it", "leaseDurationSeconds": 15, "renewTime": renewed});
    ("leases", lease)
}

#[test]
fn a_controller_that_lives_is_an_objection() {
    let held = || ("configmaps", terminating("c", "widgets.acme.dev/hold"));
    let ask = |more: Vec<(&'static str, Value)>| {
        let objects: Vec<_> = [held()].into_iter().chain(more).collect();
        asked(&objects, ("configmaps", "c"), None, false).unwrap()
    };
    let code = |release: &Release| (release.liveness.code(), release.objection().is_some());
    assert_eq!(code(&ask(vec![])), ("NotFound", false));
    assert_eq!(code(&ask(vec![operator("widgets-operator", 1, 1)])), ("Lives", true));
    assert_eq!(code(&ask(vec![operator("widgets-operator", 1, 0)])), ("Idle", false));
    let scaled = ask(vec![operator("widgets-operator", 0, 0)]);
    assert_eq!(scaled.liveness, Liveness::Idle("deployment n/widgets-operator (scaled to 0)".into()));
    assert_eq!(code(&ask(vec![lease("widgets-acme", "2027-01-15T07:59:59Z")])), ("Lives", true));
    assert_eq!(code(&ask(vec![lease("widgets-acme", "2027-01-15T07:50:00Z")])), ("Idle", false));
    // A working operator of something else proves nothing.
    assert_eq!(code(&ask(vec![operator("gears-operator", 1, 1)])), ("NotFound", false));
}

#[test]
fn a_field_manager_that_wrote_lately_lives() {
    let code = |manager: &str, at: &str| {
        let mut held = terminating("c", "acme.dev/hold");
        let fields = json!({"f:metadata": {"f:finalizers": {"v:\"acme.dev/hold\"": {}}}});
        held["metadata"]["managedFields"] = json!([{"manager": manager, "time": at, "fieldsV1": fields}]);
        asked(&[("configmaps", held)], ("configmaps", "c"), None, false).unwrap().liveness.code()
    };
    assert_eq!(code("acme-operator", "2027-01-15T07:58:00Z"), "Lives");
    // A manager that wrote before the deletion or long ago may have been uninstalled since.
    assert_eq!(code("acme-operator", "2027-01-15T06:58:00Z"), "NotFound");
    assert_eq!(code("acme-operator", "2027-01-15T07:10:00Z"), "NotFound");
    assert_eq!(code("kubectl-edit", "2027-01-15T07:58:00Z"), "NotFound");
}

#[test]
fn built_in_finalizers_belong_to_the_controller_manager() {
    let claim = || ("persistentvolumeclaims", terminating("c", "kubernetes.io/pvc-protection"));
    let code = |objects: &[(&str, Value)], has_collectors: bool| {
        asked(objects, ("persistentvolumeclaims", "c"), None, has_collectors).unwrap().liveness.code()
    };
    assert_eq!(code(&[claim()], false), "Idle");
    assert_eq!(code(&[claim()], true), "Lives");
    let renewed = |at: &str| lease("kube-controller-manager", at);
    assert_eq!(code(&[claim(), renewed("2027-01-15T07:59:59Z")], false), "Lives");
    assert_eq!(code(&[claim(), renewed("2027-01-15T07:00:00Z")], false), "Idle");
}

#[test]
fn one_finalizer_is_removed_from_one_version() {
    let mut held = terminating("c", "a.dev/first");
    held["metadata"]["finalizers"] = json!(["a.dev/first", "b.dev/second"]);
    let objects = [("configmaps", held)];
    let several = asked(&objects, ("configmaps", "c"), None, false).unwrap_err();
    assert_eq!(
        several.to_string(),
        "ConfigMap/c has several finalizers: name one with --finalizer: a.dev/first, b.dev/second"
    );
    let other = asked(&objects, ("configmaps", "c"), Some("c.dev/third"), false).unwrap_err();
    assert_eq!(
        other.to_string(),
        "ConfigMap/c does not have the finalizer c.dev/third; it has a.dev/first, b.dev/second"
    );
    let second = asked(&objects, ("configmaps", "c"), Some("b.dev/second"), false).unwrap();
    assert_eq!(
        second.patch(),
        json!([
            {"op": "test", "path": "/metadata/uid", "value": "c"},
            {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
            {"op": "test", "path": "/metadata/finalizers/1", "value": "b.dev/second"},
            {"op": "remove", "path": "/metadata/finalizers/1"},
        ])
    );
    assert_eq!(second.consequences, ["ConfigMap/c still waits for a.dev/first"]);
    let none = asked(&[("configmaps", object("d", json!({})))], ("configmaps", "d"), None, false);
    assert_eq!(none.unwrap_err().to_string(), "ConfigMap/d has no finalizer");
}

#[test]
fn the_fate_of_dependents_is_said() {
    let mut shared = owned("shared", "ConfigMap", "c");
    let living = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other"});
    shared["metadata"]["ownerReferences"].as_array_mut().unwrap().push(living);
    let objects = [
        ("configmaps", terminating("c", "acme.dev/hold")),
        ("configmaps", object("other", json!({}))),
        ("configmaps", owned("leaf", "ConfigMap", "c")),
        ("configmaps", shared),
    ];
    let release = asked(&objects, ("configmaps", "c"), None, false).unwrap();
    assert_eq!(
        release.consequences,
        [
            "ConfigMap/c is gone at once",
            "1 dependent deleted by the garbage collector, no other owner lives: ConfigMap/leaf",
            "1 dependent kept, another owner lives: ConfigMap/shared",
        ]
    );
    let living = asked(
        &[("configmaps", object("l", json!({"finalizers": ["a.dev/x"]})))],
        ("configmaps", "l"),
        None,
        false,
    );
    let living = living.unwrap();
    assert_eq!(
        living.objection().unwrap(),
        "ConfigMap/l is not being deleted, and needs a.dev/x until it is"
    );
}

#[test]
fn a_namespace_keeps_its_finalizers_in_two_places() {
    let mut namespace = json!({"kind": "Namespace", "metadata": {
        "name": "n", "uid": "n", "resourceVersion": "7", "deletionTimestamp": "2027-01-15T07:00:00Z"},
        "spec": {"finalizers": ["kubernetes"]}});
    let objects = [("namespaces", namespace.clone()), ("configmaps", object("left", json!({})))];
    let release = asked(&objects, ("namespaces", "n"), None, false).unwrap();
    assert!(release.is_in_specification);
    assert_eq!(
        release.consequences,
        [
            "Namespace/n is gone at once",
            "1 object of it left in the store, where nothing shows or deletes them"
        ]
    );
    namespace["metadata"]["finalizers"] = json!(["controller.cattle.io/namespace-auth"]);
    let release = asked(
        &[("namespaces", namespace)],
        ("namespaces", "n"),
        Some("controller.cattle.io/namespace-auth"),
        false,
    );
    let release = release.unwrap();
    assert!(!release.is_in_specification);
    assert_eq!(release.known_remover, Some("Rancher"));
    assert_eq!(release.remaining, ["kubernetes"]);
}

#[test]
fn things_outside_of_the_cluster_are_named() {
    let mut service = terminating("c", "service.kubernetes.io/load-balancer-cleanup");
    service["status"] =
        json!({"loadBalancer": {"ingress": [{"hostname": "a.elb.example"}, {"ip": "192.0.2.1"}]}});
    service["metadata"]["annotations"] = json!({"crossplane.io/external-name": "db-1"});
    let release = asked(&[("configmaps", service)], ("configmaps", "c"), None, false).unwrap();
    assert_eq!(release.is_outside, Some(true));
    assert_eq!(
        release.outside,
        [
            "status.loadBalancer.ingress.hostname: a.elb.example",
            "status.loadBalancer.ingress.ip: 192.0.2.1",
            "crossplane.io/external-name: db-1",
        ]
    );
    let headings: Vec<&str> = release.lines(NOW).into_iter().map(|(heading, _)| heading).collect();
    assert!(headings.contains(&"Leaks outside"), "{headings:?}");
}
