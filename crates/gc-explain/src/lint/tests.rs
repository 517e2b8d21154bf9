#![allow(clippy::unwrap_used, reason = "a test may panic")]

use gc_types::Outcome;
use serde_json::json;

use super::*;
use crate::{Catalog, Metadata};

const NOW: Timestamp = Timestamp(1_790_000_000_000);

fn catalog() -> Catalog {
    let resource = |name: &str, kind: &str, scope: &str| json!({"resource": name, "responseKind": {"kind": kind}, "scope": scope, "verbs": ["list", "delete"]});
    let group = |name: &str, resources: Vec<Value>| json!({"metadata": {"name": name}, "versions": [{"version": "v1", "freshness": "Current", "resources": resources}]});
    let core = vec![
        resource("configmaps", "ConfigMap", "Namespaced"),
        resource("pods", "Pod", "Namespaced"),
        resource("services", "Service", "Namespaced"),
        resource("persistentvolumes", "PersistentVolume", "Cluster"),
    ];
    let apps = vec![
        resource("deployments", "Deployment", "Namespaced"),
        resource("replicasets", "ReplicaSet", "Namespaced"),
    ];
    let batch = vec![resource("jobs", "Job", "Namespaced")];
    let discovery = vec![resource("endpointslices", "EndpointSlice", "Namespaced")];
    let named =
        json!({"items": [group("apps", apps), group("batch", batch), group("discovery.k8s.io", discovery)]});
    let core = json!({"items": [group("", core)]});
    Catalog::read(core.to_string().as_bytes(), named.to_string().as_bytes()).unwrap()
}

/// Lints these objects, each given with the group and name of its resource.
fn lints(objects: &[(&str, &str, Value)]) -> Vec<Lint> {
    let mut survey = Survey::new(catalog(), NOW);
    let mut facts = Facts::at(NOW);
    let mut lists: BTreeMap<(&str, &str), Vec<Value>> = BTreeMap::new();
    for (group, name) in EXAMINED {
        lists.entry((group, name)).or_default();
    }
    for (group, name, object) in objects {
        let id = survey.catalog.named(&GroupResource::new(group, name)).unwrap().id;
        survey.observe(id, serde_json::from_value::<Metadata>(object.clone()).unwrap());
        let kept = relevant(&GroupResource::new(group, name), object.clone());
        lists.entry((group, name)).or_default().extend(kept);
    }
    for ((group, name), items) in lists {
        facts.tell_list(GroupResource::new(group, name), "", Knowledge::Present(items));
    }
    survey.complete();
    while let Some((id, _)) = survey.next_read() {
        survey.answer_read(id, Outcome::Absent);
    }
    lint(&survey, &facts, "")
}

fn object(namespace: &str, name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{namespace}-{name}"),
                        "resourceVersion": "1", "ownerReferences": owners}})
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid})
}

fn ids(lints: &[Lint]) -> Vec<(String, usize)> {
    lints.iter().map(|lint| (lint.id(), lint.total)).collect()
}

#[test]
fn each_reference_that_leads_astray_is_named_by_its_cause() {
    let map = |name: &str, owner: Value| ("", "configmaps", object("shop", name, &[owner]));
    let owned = |uid: &str| owner("v1", "ConfigMap", "owner", uid);
    let present = ("", "configmaps", object("shop", "owner", &[]));
    let far = ("", "configmaps", object("bank", "far", &[]));
    let volume = (
        "",
        "persistentvolumes",
        json!({"metadata": {"name": "v", "uid": "v", "resourceVersion": "1",
        "ownerReferences": [owned("uid-shop-owner")]}}),
    );
    for (case, expected) in [
        (map("a", owned("uid-shop-owner")), None),
        (map("a", owner("v1", "ConfigMap", "gone", "x")), Some("DanglingReference/ConfigMap.v1")),
        (map("a", owned("x")), Some("WrongUidReference/ConfigMap.v1")),
        (
            map("a", owner("v1", "ConfigMap", "far", "uid-bank-far")),
            Some("CrossNamespaceReference/ConfigMap.v1"),
        ),
        (
            map("a", owner("v1", "ConfigMap", "misnamed", "uid-shop-owner")),
            Some("WrongCoordinatesReference/ConfigMap.v1"),
        ),
        (volume, Some("ImpossibleScopeReference/ConfigMap.v1")),
        (map("a", owner("v2", "ConfigMap", "owner", "x")), Some("WrongVersionReference/ConfigMap.v2")),
        (map("a", owner("a.b/v1", "Widget", "w", "x")), Some("UnservedOwnerKind/Widget.a.b/v1")),
    ] {
        let found = lints(&[present.clone(), far.clone(), case]);
        let expected: Vec<(String, usize)> = expected.into_iter().map(|id| (id.to_owned(), 1)).collect();
        assert_eq!(ids(&found), expected, "{found:#?}");
        assert!(found.iter().all(|lint| lint.advice.starts_with("`kubegc why ")), "{found:#?}");
    }
}

#[test]
fn rings_are_reported_once() {
    let map = |name: &str, owner_name: &str| {
        let owners = [owner("v1", "ConfigMap", owner_name, &format!("uid-n-{owner_name}"))];
        ("", "configmaps", object("n", name, &owners))
    };
    let found = lints(&[map("a", "b"), map("b", "c"), map("c", "a"), map("d", "a"), map("self", "self")]);
    assert_eq!(
        ids(&found),
        [("OwnerRing/configmaps/a -n n".to_owned(), 3), ("OwnerRing/configmaps/self -n n".to_owned(), 1)]
    );
    let names: Vec<&str> = found[0].objects.iter().map(|place| place.name.as_str()).collect();
    assert!(names == ["a", "b", "c"] || names == ["a", "c", "b"], "{names:?}");
    assert!(
        found[0].message.starts_with("3 objects own each other: configmaps/a -n n, "),
        "{}",
        found[0].message
    );
}

#[test]
fn what_is_left_behind_is_counted() {
    let with = |mut object: Value, more: Value| {
        for (field, value) in more.as_object().unwrap() {
            object[field] = value.clone();
        }
        object
    };
    let pod = |name: &str, job: &str| {
        let mut pod = with(object("n", name, &[]), json!({"status": {"phase": "Succeeded"}}));
        pod["metadata"]["labels"] = json!({"job-name": job});
        ("", "pods", pod)
    };
    let job = |number: usize, ttl: Option<u32>, at: &str| {
        let condition = json!({"type": "Complete", "status": "True", "lastTransitionTime": at});
        let more = json!({"spec": {"ttlSecondsAfterFinished": ttl}, "status": {"conditions": [condition]}});
        ("batch", "jobs", with(object("n", &format!("j{number}"), &[]), more))
    };
    let volume = |name: &str, phase: &str, policy: &str| {
        let more = json!({"spec": {"persistentVolumeReclaimPolicy": policy, "capacity": {"storage": "5Gi"}},
                          "status": {"phase": phase}});
        (
            "",
            "persistentvolumes",
            with(json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}}), more),
        )
    };
    let slice = |name: &str, service: &str| {
        let mut slice = object("n", name, &[]);
        slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": service});
        ("discovery.k8s.io", "endpointslices", slice)
    };
    let deployment = with(object("n", "web", &[]), json!({"spec": {"revisionHistoryLimit": 1}}));
    let set = |number: usize| {
        let mut by = owner("apps/v1", "Deployment", "web", "uid-n-web");
        by["controller"] = true.into();
        let more = json!({"spec": {"replicas": 0}, "status": {"replicas": 0}});
        ("apps", "replicasets", with(object("n", &format!("web-{number}"), &[by]), more))
    };
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-09-21T14:00:00Z");
    let mut objects = vec![
        pod("p1", "gone"),
        pod("p2", "j0"),
        volume("kept", "Released", "Retain"),
        volume("going", "Released", "Delete"),
        volume("broken", "Failed", "Delete"),
        slice("s1", "svc"),
        slice("s2", "none"),
        ("", "services", object("n", "svc", &[])),
        ("apps", "deployments", deployment),
    ];
    objects.extend((0..=PILE_OF_JOBS).map(|number| job(number, None, old)));
    objects.extend([job(100, Some(60), old), job(101, None, new)]);
    objects.extend((0..3).map(set));
    let found = lints(&objects);
    assert_eq!(
        ids(&found),
        [
            ("FailedVolume/broken".to_owned(), 1),
            ("PodsOfDeletedJob/n".to_owned(), 1),
            ("OrphanedEndpointSlice/n".to_owned(), 1),
            ("FinishedJobs/n".to_owned(), PILE_OF_JOBS + 1),
            ("ReleasedVolume/kept".to_owned(), 1),
            ("ReplicaSetsAboveLimit/n/web".to_owned(), 3),
        ]
    );
    assert!(found.iter().all(|lint| lint.objects.len() <= NAMED));
    assert_eq!(found[4].message, "volume kept of 5Gi is kept although its claim is gone");
}

/// A webhook that nothing answers for fails every deletion, unless its failures are ignored.
#[test]
fn webhooks_that_cannot_answer_are_reported() {
    let hook = |name: &str, policy: &str| {
        json!({"name": name, "failurePolicy": policy, "rules": [{"operations": ["DELETE"]}],
               "clientConfig": {"service": {"namespace": "ops", "name": "gone"}}})
    };
    let hooks = json!([hook("a.acme.dev", "Fail"), hook("b.acme.dev", "Ignore")]);
    let configuration = json!({"metadata": {"name": "checks", "uid": "u"}, "webhooks": hooks});
    let group = GroupResource::new("admissionregistration.k8s.io", "validatingwebhookconfigurations");
    let kept = relevant(&group, configuration.clone()).unwrap();
    assert_eq!(kept, configuration, "the linter reads all of it");
    let (survey, mut facts) = (Survey::new(catalog(), NOW), Facts::at(NOW));
    facts.tell_list(group, "", Knowledge::Present(vec![kept]));
    facts.tell_object(GroupResource::new("", "services"), "ops", "gone", Knowledge::Absent);
    let found = lint(&survey, &facts, "");
    assert_eq!(ids(&found), [("FailingWebhook/checks/a.acme.dev".to_owned(), 1)]);
    assert!(found[0].message.ends_with("→ Service ops/gone does not exist"), "{found:#?}");
    assert_eq!(ids(&lint(&survey, &facts, "shop")), []);
}
