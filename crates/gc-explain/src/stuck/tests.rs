#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better without references")]

use gc_types::ResourceVersion;

use super::*;
use crate::catalog::Catalog;
use crate::facts::{Knowledge, Need};

/// 2027-01-15T08:00:00Z
pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);

const RESOURCES: [(&str, &str, &str); 7] = [
    ("", "namespaces", "Namespace"),
    ("", "configmaps", "ConfigMap"),
    ("", "pods", "Pod"),
    ("", "persistentvolumeclaims", "PersistentVolumeClaim"),
    ("coordination.k8s.io", "leases", "Lease"),
    ("apps", "deployments", "Deployment"),
    ("apps", "replicasets", "ReplicaSet"),
];

fn catalog() -> Catalog {
    let group = |name: &str| {
        let own = RESOURCES.iter().filter(|(group, ..)| *group == name);
        let resources: Vec<Value> = own
            .map(|(_, resource, kind)| {
                let scope = if *resource == "namespaces" { "Cluster" } else { "Namespaced" };
                json!({"resource": resource, "responseKind": {"kind": kind}, "scope": scope, "verbs": ["list", "delete"]})
            })
            .collect();
        json!({"metadata": {"name": name}, "versions": [{"version": "v1", "freshness": "Current", "resources": resources}]})
    };
    let core = json!({"items": [group("")]}).to_string();
    let named = json!({"items": [group("coordination.k8s.io"), group("apps")]}).to_string();
    Catalog::read(core.as_bytes(), named.as_bytes()).unwrap()
}

/// Diagnoses a cluster of exactly these objects, each given with its resource.
fn stuck(objects: &[(&str, Value)]) -> Vec<Row> {
    answered(objects, diagnose)
}

/// Returns the answer for a cluster of exactly these objects, each given with its resource.
pub(crate) fn answered<T>(objects: &[(&str, Value)], ask: impl Fn(&Survey, &Facts) -> T) -> T {
    let mut survey = Survey::new(catalog(), NOW);
    let mut facts = Facts::at(NOW);
    for (name, object) in objects {
        let resource = survey.catalog.find(name).unwrap()[0].clone();
        survey.observe(resource.id, serde_json::from_value(object.clone()).unwrap());
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        facts.tell_object(resource.name, text("namespace"), text("name"), Knowledge::Present(object.clone()));
    }
    for resource in survey.catalog.clone().all() {
        survey.listed(resource.id, ResourceVersion(1));
    }
    survey.complete();
    loop {
        let answer = ask(&survey, &facts);
        let needs = facts.take_needs();
        if needs.is_empty() {
            return answer;
        }
        for need in needs {
            match need {
                Need::Object(resource, namespace, name) => {
                    facts.tell_object(resource, &namespace, &name, Knowledge::Absent);
                }
                Need::List(resource, namespace) => {
                    let all = objects.iter().filter(|(name, _)| *name == &*resource.resource);
                    let items = all.map(|(_, object)| object.clone()).collect();
                    facts.tell_list(resource, &namespace, Knowledge::Present(items));
                }
            }
        }
    }
}

pub(crate) fn object(name: &str, metadata: Value) -> Value {
    let mut object =
        json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1"}});
    for (field, value) in metadata.as_object().unwrap() {
        object["metadata"][field] = value.clone();
    }
    object
}

pub(crate) fn terminating(name: &str, finalizer: &str) -> Value {
    object(name, json!({"deletionTimestamp": "2027-01-15T07:00:00Z", "finalizers": [finalizer]}))
}

pub(crate) fn owned(name: &str, kind: &str, owner: &str) -> Value {
    let api_version = if kind == "ConfigMap" { "v1" } else { "apps/v1" };
    let reference =
        json!({"apiVersion": api_version, "kind": kind, "name": owner, "uid": owner, "controller": true});
    object(name, json!({"ownerReferences": [reference]}))
}

/// A row of several objects has a command for each, up to a limit.
#[test]
fn each_object_of_a_row_is_freed_by_a_command() {
    let held = |number: usize| ("configmaps", terminating(&format!("c{number}"), "acme.dev/hold"));
    let rows = stuck(&(0..8).map(held).collect::<Vec<_>>());
    let [row] = &rows[..] else { panic!("{rows:?}") };
    let lines = row.force_lines();
    assert!(lines[0].contains(" configmaps/c0 ") && lines[5].contains(" configmaps/c5 "), "{lines:#?}");
    assert_eq!(lines[6].trim(), "and likewise for 2 more objects");
    assert_eq!(lines.len(), 8);
}

/// The commands for two finalizers of one object work in the order shown, and only on this object.
#[test]
fn each_finalizer_is_removed_by_its_own_command() {
    let mut map = terminating("c", "z.dev/last");
    map["metadata"]["finalizers"] = json!(["z.dev/last", "a.dev/first", "m.dev/middle"]);
    let rows = stuck(&[("configmaps", map)]);
    let mut left = vec!["z.dev/last", "a.dev/first", "m.dev/middle"];
    let mut commands = Vec::new();
    for row in &rows {
        let removed = row.cause.subject.as_str();
        let place = left.iter().position(|name| *name == removed).unwrap();
        left.remove(place);
        let command = row.cause.force.as_ref().unwrap().command.clone();
        let test = format!(r#"{{"op":"test","path":"/metadata/finalizers/{place}","value":"{removed}"}}"#);
        assert!(command.contains(&test), "{command}");
        assert!(command.contains(r#"{"op":"test","path":"/metadata/uid","value":"c"}"#), "{command}");
        commands.push(command);
    }
    assert_eq!((left.len(), commands.len()), (0, 3), "{commands:#?}");
}

/// The command that ends an orphaning deletion must not lose the dependents.
#[test]
fn dependents_that_were_to_be_orphaned_are_saved_first() {
    let rows =
        stuck(&[("configmaps", terminating("a", "orphan")), ("configmaps", owned("b", "ConfigMap", "a"))]);
    let cause = &rows[0].cause;
    assert!(cause.force.as_ref().unwrap().strands.contains("they are DELETED"), "{cause:?}");
    let save = r#"kubectl -n n patch configmaps/b --type=json -p '[{"op":"test","path":"/metadata/uid","value":"b"},{"op":"test","path":"/metadata/ownerReferences/0/uid","value":"a"},{"op":"remove","path":"/metadata/ownerReferences/0"}]'"#;
    assert_eq!(cause.help, ["kubegc doctor", save]);
}

/// A namespace is not reported while its controller works on it; an empty one leaves nothing behind.
#[test]
fn a_namespace_controller_that_works_is_not_called_absent() {
    let namespace = |deleted: &str, reported: Option<&str>| {
        let mut namespace = object("n", json!({"deletionTimestamp": deleted}));
        namespace["metadata"].as_object_mut().unwrap().remove("namespace");
        namespace["spec"] = json!({"finalizers": ["kubernetes"]});
        let condition = |at: &str| json!({"type": "NamespaceContentRemaining", "status": "False", "lastTransitionTime": at});
        namespace["status"] = json!({"conditions": reported.map(condition).into_iter().collect::<Vec<_>>()});
        ("namespaces", namespace)
    };
    let lease = |renewed: &str| {
        let mut lease = object("kube-controller-manager", json!({"namespace": "kube-system"}));
        lease["spec"] = json!({"holderIdentity": "m-1", "leaseDurationSeconds": 15, "renewTime": renewed});
        ("leases", lease)
    };
    let (hour, minute) = ("2027-01-15T07:00:00Z", "2027-01-15T07:59:00Z");
    let messages = |objects: &[(&str, Value)]| -> Vec<String> {
        stuck(objects).into_iter().map(|row| row.cause.message).collect()
    };
    let absent = "nothing remains in it, and no namespace controller removes its finalizer";
    assert_eq!(messages(&[namespace(hour, None)]), [absent]);
    assert_eq!(messages(&[namespace(hour, Some(minute))]), [""; 0]);
    let idle = "nothing remains in it, and its namespace controller reported last 60m ago";
    assert_eq!(messages(&[namespace(hour, Some(hour))]), [idle]);
    assert_eq!(messages(&[namespace(minute, None), lease("2027-01-15T07:59:55Z")]), [""; 0]);
    assert_eq!(messages(&[namespace(minute, None), lease(hour)]), [absent]);
    let force = stuck(&[namespace(hour, None)]).remove(0).cause.force.unwrap();
    assert_eq!(force.strands, "nothing: it is empty");
}

/// Controllers that would recreate users of the claim are scaled down; a bare pod is deleted.
#[test]
fn the_users_of_a_claim_are_ended_where_they_come_from() {
    let user = |pod: Value| {
        let mut pod = pod;
        pod["spec"] =
            json!({"nodeName": "m", "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "d"}}]});
        pod["status"] = json!({"phase": "Running"});
        ("pods", pod)
    };
    let rows = stuck(&[
        ("persistentvolumeclaims", terminating("d", "kubernetes.io/pvc-protection")),
        ("deployments", object("web", json!({}))),
        ("replicasets", owned("web-1", "Deployment", "web")),
        user(owned("web-1-a", "ReplicaSet", "web-1")),
        user(owned("web-1-b", "ReplicaSet", "web-1")),
        user(object("alone", json!({}))),
    ]);
    assert_eq!(rows[0].cause.message, "in use by Pods web-1-a, web-1-b, alone");
    assert_eq!(
        rows[0].cause.help,
        [
            "kubectl -n n describe pod/web-1-a",
            "kubectl -n n scale deployment/web --replicas=0",
            "kubectl -n n delete pod/alone",
        ]
    );
}
