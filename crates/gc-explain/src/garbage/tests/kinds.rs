//! Findings about objects that nothing refers to by name.

use super::*;

/// Returns the findings about these objects, without reasons.
fn codes(users: Vec<(&str, Value)>) -> Vec<String> {
    let short = |line: String| line.split_once(':').unwrap().0.to_owned();
    shown(&report(vec![], users, false)).into_iter().map(short).collect()
}

fn pod(labels: Value) -> (&'static str, Value) {
    ("Pod n/p", json!({"metadata": {"labels": labels}}))
}

#[test]
fn what_selects_nothing_is_unused() {
    let service = || ("Service n/s", json!({"spec": {"selector": {"app": "web", "role": "main"}}}));
    let template =
        |labels: Value| json!({"spec": {"replicas": 1, "template": {"metadata": {"labels": labels}}}});
    for (object, other, expected) in [
        (service(), pod(json!({"app": "web", "role": "main", "x": "y"})), &[][..]),
        (service(), pod(json!({"app": "db"})), &["UnusedService n/s"]),
        // The pods have other labels right now: the Service may select the leader by a label that moves.
        (service(), pod(json!({"app": "web", "role": "replica"})), &["UnusedService? n/s"]),
        (service(), ("Deployment n/d", template(json!({"app": "web", "role": "main"}))), &[]),
        (
            service(),
            ("Deployment m/d", template(json!({"app": "web", "role": "main"}))),
            &["UnusedService n/s"],
        ),
        (service(), ("Widget n/w", template(json!({"app": "web", "role": "main"}))), &[]),
        (service(), ("Widget n/w", json!({"spec": {"title": "s"}})), &["UnusedService? n/s"]),
        (("Service n/s", json!({"spec": {}})), pod(json!({})), &["UnusedService? n/s"]),
        (("Service n/led", json!({"spec": {}})), pod(json!({})), &[]),
        (
            ("Service n/s", json!({"metadata": {"labels": {"provider": "kubernetes"}}, "spec": {}})),
            pod(json!({})),
            &[],
        ),
        (
            ("Service n/s", json!({"spec": {"type": "ExternalName", "selector": {"a": "b"}}})),
            pod(json!({})),
            &[],
        ),
        (
            ("PodDisruptionBudget n/b", json!({"spec": {"selector": {"matchLabels": {"app": "web"}}}})),
            pod(json!({"app": "db"})),
            &["UnusedDisruptionBudget n/b"],
        ),
        (("PodDisruptionBudget n/b", json!({"spec": {"selector": {}}})), pod(json!({})), &[]),
        (
            (
                "PodDisruptionBudget n/b",
                json!({"spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}}}),
            ),
            pod(json!({"app": "web"})),
            &[],
        ),
        (
            ("NetworkPolicy n/x", json!({"spec": {"podSelector": {"matchLabels": {"app": "web"}}}})),
            pod(json!({"app": "db"})),
            &["UnusedNetworkPolicy? n/x"],
        ),
        (("NetworkPolicy n/x", json!({"spec": {"podSelector": {}}})), ("Pod m/p", json!({})), &[]),
    ] {
        assert_eq!(codes(vec![object.clone(), other.clone()]), expected, "{object:?} {other:?}");
    }
}

#[test]
fn what_leads_nowhere_is_unused() {
    let ingress = |backend: Value| {
        ("Ingress n/i", json!({"spec": {"rules": [{"http": {"paths": [{"backend": backend}]}}]}}))
    };
    let to_service = || ingress(json!({"service": {"name": "s"}}));
    let scaler = |kind: &str| {
        ("HorizontalPodAutoscaler n/h", json!({"spec": {"scaleTargetRef": {"kind": kind, "name": "d"}}}))
    };
    let attachment = || {
        (
            "VolumeAttachment /a",
            json!({"spec": {"nodeName": "gone", "source": {"persistentVolumeName": "v"}}}),
        )
    };
    for (object, other, expected) in [
        (to_service(), ("Service n/s", json!({"spec": {"type": "ExternalName"}})), &[][..]),
        (to_service(), ("Service m/s", json!({"spec": {"type": "ExternalName"}})), &["UnusedIngress n/i"]),
        (
            ingress(json!({"resource": {"kind": "Bucket", "name": "b"}})),
            ("Service m/s", json!({"spec": {"type": "ExternalName"}})),
            &[],
        ),
        (scaler("Deployment"), ("Deployment n/d", json!({"spec": {"replicas": 1}})), &[]),
        (
            scaler("Deployment"),
            ("Deployment m/d", json!({"spec": {"replicas": 1}})),
            &["UnusedAutoscaler n/h"],
        ),
        (scaler("Rollout"), ("Pod m/p", json!({})), &[]),
        (attachment(), ("PersistentVolume /v", json!({})), &["UnusedVolumeAttachment /a"]),
        (attachment(), ("Node /n", json!({})), &["UnusedVolumeAttachment /a"]),
    ] {
        assert_eq!(codes(vec![object.clone(), other.clone()]), expected, "{object:?} {other:?}");
    }
}

#[test]
fn rights_without_a_subject_are_unused() {
    let account =
        |name: &str, namespace: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    let binding = |kind: &str, subjects: Value| {
        let role = json!({"kind": kind, "name": "r"});
        ("RoleBinding n/b", json!({"roleRef": role, "subjects": subjects}))
    };
    let role = || ("Role n/r", json!({}));
    let labelled = |key: &str| ("ClusterRole /r", json!({"metadata": {"labels": {key: "x"}}}));
    let user = || json!([{"kind": "User", "name": "u"}]);
    for (objects, expected) in [
        (vec![role()], &["UnusedRole n/r"][..]),
        (vec![role(), binding("Role", user())], &[]),
        (vec![role(), binding("Role", json!([account("here", "n")]))], &[]),
        (vec![role(), binding("Role", json!([account("gone", "n")]))], &["UnusedBinding n/b"]),
        (vec![role(), binding("Role", json!([account("gone", "n"), {"kind": "Group", "name": "g"}]))], &[]),
        (vec![binding("ClusterRole", user())], &["UnusedBinding n/b"]),
        (vec![labelled("x"), binding("ClusterRole", user())], &[]),
        (vec![labelled("x")], &["UnusedClusterRole? /r"]),
        (vec![labelled("kubernetes.io/bootstrapping")], &[]),
        (vec![labelled("rbac.authorization.k8s.io/aggregate-to-admin")], &[]),
    ] {
        let found = report(
            vec![("ServiceAccount n/here", json!({"metadata": {"annotations": {"kubegc.io/keep": "true"}}}))],
            objects.clone(),
            false,
        );
        let lines: Vec<String> =
            shown(&found).into_iter().map(|line| line.split_once(':').unwrap().0.to_owned()).collect();
        assert_eq!(lines, expected, "{objects:?}");
    }
}

#[test]
fn volumes_and_classes_without_a_use() {
    let volume = |phase: &str, policy: &str| {
        (
            "PersistentVolume /v",
            json!({"spec": {"persistentVolumeReclaimPolicy": policy, "storageClassName": "c",
            "capacity": {"storage": "1Gi"}, "claimRef": {"namespace": "n", "name": "a"}}, "status": {"phase": phase}}),
        )
    };
    for (phase, policy, expected) in [
        ("Bound", "Retain", &[][..]),
        ("Released", "Retain", &["UnusedVolume /v"]),
        ("Released", "Delete", &["UnusedVolume? /v"]),
        ("Failed", "Delete", &["UnusedVolume /v"]),
        ("Available", "Retain", &["UnusedVolume? /v"]),
    ] {
        assert_eq!(codes(vec![volume(phase, policy)]), expected, "{phase} {policy}");
    }
    let found = report(vec![], vec![volume("Released", "Retain")], false);
    assert_eq!(found.findings[0].bytes, Some(1 << 30));
    let class = |name: &'static str, body: Value| (name, body);
    let storage = || class("StorageClass /c", json!({}));
    let priority = || class("PriorityClass /c", json!({}));
    for (objects, expected) in [
        (vec![storage()], &["UnusedStorageClass? /c"][..]),
        (vec![storage(), volume("Bound", "Retain")], &[]),
        (
            vec![
                storage(),
                class(
                    "StatefulSet n/s",
                    json!({"spec": {"volumeClaimTemplates": [{"spec": {"storageClassName": "c"}}]}}),
                ),
            ],
            &[],
        ),
        (
            vec![class(
                "StorageClass /c",
                json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
            )],
            &[],
        ),
        (vec![priority()], &["UnusedPriorityClass? /c"]),
        (
            vec![
                priority(),
                class(
                    "CronJob n/j",
                    json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"priorityClassName": "c"}}}}}}),
                ),
            ],
            &[],
        ),
        (vec![class("PriorityClass /c", json!({"globalDefault": true}))], &[]),
    ] {
        assert_eq!(codes(objects.clone()), expected, "{objects:?}");
    }
}

/// Being bound to a volume does not make a claim used: a bound claim that nothing mounts is the most expensive garbage.
#[test]
fn a_bound_claim_that_no_pod_mounts_is_unused() {
    let claim = (
        "PersistentVolumeClaim n/data",
        json!({"spec": {"volumeName": "v"}, "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}}}),
    );
    let volume = (
        "PersistentVolume /v",
        json!({"spec": {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": "n", "name": "data"}}, "status": {"phase": "Bound"}}),
    );
    let found = report(vec![claim.clone()], vec![volume.clone()], false);
    assert_eq!(shown(&found), ["UnusedClaim n/data: nothing refers to it"]);
    assert_eq!(found.findings[0].bytes, Some(10 << 30));
    let pod = ("Pod n/p", json!({"spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]}}));
    assert_eq!(shown(&report(vec![claim], vec![volume, pod], false)), [""; 0]);
}

#[test]
fn what_has_ended_or_is_idle_is_reported() {
    let done = |kind: &str| json!([{"type": kind, "status": "True"}]);
    for (object, expected) in [
        (("Pod n/p", json!({"status": {"phase": "Succeeded"}})), &["FinishedPod n/p"][..]),
        (("Pod n/p", json!({"status": {"phase": "Running"}})), &[]),
        (("Job n/j", json!({"spec": {}, "status": {"conditions": done("Failed")}})), &["FinishedJob n/j"]),
        (("Job n/j", json!({"spec": {}, "status": {"conditions": done("Suspended")}})), &[]),
        (
            (
                "Job n/j",
                json!({"spec": {"ttlSecondsAfterFinished": 9}, "status": {"conditions": done("Complete")}}),
            ),
            &[],
        ),
        (
            (
                "Job n/j",
                json!({"metadata": {"annotations": {"helm.sh/hook": "pre-install"}}, "spec": {}, "status": {"conditions": done("Complete")}}),
            ),
            &["FinishedJob? n/j"],
        ),
        (("Deployment n/d", json!({"spec": {"replicas": 0}})), &["IdleWorkload? n/d"]),
        (("Deployment n/d", json!({"spec": {}})), &[]),
        (
            ("DaemonSet n/d", json!({"status": {"observedGeneration": 2, "desiredNumberScheduled": 0}})),
            &["IdleWorkload? n/d"],
        ),
        (("DaemonSet n/d", json!({"status": {}})), &[]),
        (("Pod kube-system/p", json!({"status": {"phase": "Failed"}})), &[]),
    ] {
        assert_eq!(codes(vec![object.clone()]), expected, "{object:?}");
    }
}

#[test]
fn definitions_without_objects_are_not_certainly_unused() {
    let unused = |users| {
        let found = report_with_definition(users);
        found.into_iter().filter(|line| line.starts_with("UnusedDefinition")).collect::<Vec<_>>()
    };
    assert_eq!(unused(vec![]), ["UnusedDefinition? /widgets.example.com: there is no object of its kind"]);
    assert_eq!(unused(vec![("Widget n/w", json!({}))]), [""; 0]);
}

#[test]
fn the_definitions_of_kubegc_itself_are_not_reported() {
    let reported = |group: &str| {
        let mut garbage = Garbage::new(false);
        garbage.definition(&json!({
            "metadata": {"name": format!("policies.{group}")},
            "spec": {"group": group, "names": {"kind": "Policy"}},
        }));
        shown(&reported_by(garbage))
    };
    let foreign = "UnusedDefinition? /policies.example.com: there is no object of its kind";
    assert_eq!(reported("example.com"), [foreign]);
    assert_eq!(reported("kubegc.io"), [""; 0]);
}

/// A minimum age leaves out younger objects and all findings that are not about disuse.
#[test]
fn age_narrows_the_report() {
    let at = |created: &str| json!({"metadata": {"creationTimestamp": created}});
    let pod = json!({"spec": {"volumes": [{"configMap": {"name": "missing"}}]}});
    let mut found = report(
        vec![
            ("ConfigMap n/old", at("2026-12-01T00:00:00Z")),
            ("ConfigMap n/new", at("2027-01-14T00:00:00Z")),
        ],
        vec![("Pod n/p", pod)],
        false,
    );
    assert_eq!(found.findings.len(), 3);
    found.keep_older_than(Timestamp(1_800_000_000_000).after(-7 * 24 * 3_600_000));
    assert_eq!(shown(&found), ["UnusedConfigMap n/old: nothing refers to it"]);
}

/// Objects that are certainly unused get a mark, keep its date, and lose it when a use or a doubt appears.
#[test]
fn marks_follow_what_is_certain() {
    let marked = json!({"metadata": {"annotations": {"kubegc.io/unused-since": "2027-01-01T00:00:00Z"}}});
    let targets = vec![
        ("ConfigMap n/fresh", json!({})),
        ("ConfigMap n/known", marked.clone()),
        ("ConfigMap n/used", marked.clone()),
        ("ConfigMap n/doubt", marked.clone()),
        ("ConfigMap n/doubt-too", json!({})),
    ];
    let users = vec![
        ("Pod n/p", json!({"spec": {"volumes": [{"configMap": {"name": "used"}}]}})),
        ("Widget n/w", json!({"spec": {"title": "doubt"}})),
        ("Widget n/v", json!({"spec": {"title": "doubt-too"}})),
        ("Service n/s", json!({"metadata": marked["metadata"], "spec": {"selector": {"app": "none"}}})),
    ];
    let found = report(targets, users, false);
    let shown = |marks: Vec<Mark>| -> Vec<String> {
        marks.into_iter().map(|mark| format!("{} {:?}", mark.place.name, mark.change)).collect()
    };
    let since = "Keep(\"2027-01-01T00:00:00Z\")";
    assert_eq!(
        shown(found.quarantine(None)),
        [
            "doubt Remove".to_owned(),
            "fresh Set(\"UnusedConfigMap: nothing refers to it\")".to_owned(),
            format!("known {since}"),
            "used Remove".to_owned(),
            format!("s {since}"),
        ]
    );
    assert_eq!(shown(found.quarantine(Some(Timestamp(0)))).len(), 4, "what is young is not marked");
    assert_eq!(shown(found.end_of_quarantine()), ["doubt Remove", "known Remove", "used Remove", "s Remove"]);
    let mark = &found.quarantine(None)[1];
    assert_eq!(
        mark.patch(Timestamp(1_800_000_000_000)),
        Some(
            json!({"metadata": {"uid": "uid-fresh", "annotations": {"kubegc.io/unused-since": "2027-01-15T08:00:00Z",
            "kubegc.io/unused-because": "UnusedConfigMap: nothing refers to it"}}})
        )
    );
}

/// Each check records its time on unused objects; the date of a mark counts only while checks follow each other.
#[test]
fn a_look_notes_its_time() {
    let now = Timestamp(1_800_000_000_000);
    let marked = |seen: Option<&str>| {
        let mut annotations = json!({"kubegc.io/unused-since": "2027-01-01T00:00:00Z"});
        if let Some(seen) = seen {
            annotations["kubegc.io/unused-seen"] = seen.into();
        }
        json!({"metadata": {"annotations": annotations}})
    };
    let noted = "2027-01-15T08:00:00Z";
    for (object, expected) in [
        (
            json!({}),
            json!({"kubegc.io/unused-since": noted, "kubegc.io/unused-seen": noted,
                "kubegc.io/unused-because": "UnusedConfigMap: nothing refers to it"}),
        ),
        (marked(Some("2027-01-14T08:00:00Z")), json!({"kubegc.io/unused-seen": noted})),
        (marked(Some("2027-01-15T07:59:00Z")), Value::Null),
        (marked(None), json!({"kubegc.io/unused-seen": noted})),
        (
            marked(Some("2027-01-12T08:00:00Z")),
            json!({"kubegc.io/unused-since": noted, "kubegc.io/unused-seen": noted}),
        ),
    ] {
        let found = report(vec![("ConfigMap n/c", object.clone())], Vec::new(), false);
        let patch = found.quarantine(None)[0].patch_of_look(now).unwrap_or_default();
        assert_eq!(patch["metadata"]["annotations"], expected, "{object}");
    }
    let found = report(
        vec![("ConfigMap n/c", marked(Some(noted)))],
        vec![("Pod n/p", json!({"spec": {"volumes": [{"configMap": {"name": "c"}}]}}))],
        false,
    );
    let patch = found.quarantine(None)[0].patch_of_look(now).unwrap();
    let none = json!({"kubegc.io/unused-since": null, "kubegc.io/unused-because": null, "kubegc.io/unused-seen": null});
    assert_eq!(patch["metadata"]["annotations"], none);
}

/// A Gateway needs its class and routes; a suspended Job has no pods.
#[test]
fn gateways_and_suspended_jobs_are_reported() {
    let gateway = || ("Gateway n/g", json!({"spec": {"gatewayClassName": "c"}}));
    let class = || ("GatewayClass /c", json!({}));
    let route = |namespace: &str, parent: Value| {
        let title = if namespace == "n" { "HTTPRoute n/r" } else { "HTTPRoute m/r" };
        (title, json!({"spec": {"parentRefs": [parent]}}))
    };
    for (objects, expected) in [
        (vec![gateway()], &["UnusedGateway n/g"][..]),
        (vec![gateway(), class()], &["UnusedGateway? n/g"]),
        (vec![gateway(), class(), route("n", json!({"name": "g"}))], &[]),
        (vec![gateway(), class(), route("m", json!({"name": "g", "namespace": "n"}))], &[]),
        (vec![gateway(), class(), route("m", json!({"name": "g"}))], &["UnusedGateway? n/g"]),
        (
            vec![gateway(), class(), route("n", json!({"name": "g", "kind": "Service"}))],
            &["UnusedGateway? n/g"],
        ),
        (vec![("Job n/j", json!({"spec": {"suspend": true}}))], &["IdleWorkload? n/j"]),
        (vec![("Job n/j", json!({"spec": {"suspend": false}}))], &[]),
    ] {
        assert_eq!(codes(objects.clone()), expected, "{objects:?}");
    }
}

/// A namespace counts as empty if it contains only what every namespace has.
#[test]
fn empty_namespaces_are_reported() {
    let namespace = |name: &'static str| (name, json!({}));
    for (objects, expected) in [
        (vec![namespace("Namespace /n")], &["UnusedNamespace? /n"][..]),
        (vec![namespace("Namespace /n"), ("Pod m/p", json!({}))], &["UnusedNamespace? /n"]),
        (vec![namespace("Namespace /n"), ("Event n/e", json!({}))], &["UnusedNamespace? /n"]),
        (vec![namespace("Namespace /n"), ("Pod n/p", json!({}))], &[]),
        (vec![namespace("Namespace /n"), ("Widget n/w", json!({"spec": {}}))], &[]),
        (vec![namespace("Namespace /default"), namespace("Namespace /kube-system")], &[]),
    ] {
        assert_eq!(codes(objects.clone()), expected, "{objects:?}");
    }
    let made = vec![("ServiceAccount n/default", json!({})), ("ConfigMap n/kube-root-ca.crt", json!({}))];
    let found = shown(&report(made, vec![namespace("Namespace /n")], false));
    assert_eq!(found, ["UnusedNamespace? /n: nothing is in it but what Kubernetes puts there"]);
    let used = shown(&report(vec![("Secret n/s", json!({}))], vec![namespace("Namespace /n")], false));
    assert!(!used.iter().any(|line| line.starts_with("UnusedNamespace")), "{used:?}");
}
