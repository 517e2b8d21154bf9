#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better without references")]

use gc_types::{ResourceId, Scope, Timestamp};

use super::*;
use crate::catalog::{Catalog, GroupResource};

mod catalogue;
mod kinds;

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> Resource {
    Resource {
        id: ResourceId(0),
        name: GroupResource::new(group, plural),
        version: version.into(),
        kind: kind.into(),
        singular: "".into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        scope: Scope::Namespaced,
        verbs: Vec::new(),
        served_api_versions: Vec::new(),
    }
}

/// Returns the resource of a kind in these tests.
fn of_kind(kind: &str) -> Resource {
    match kind {
        "ConfigMap" => resource("", "v1", kind, "configmaps"),
        "Secret" => resource("", "v1", kind, "secrets"),
        "PersistentVolumeClaim" => resource("", "v1", kind, "persistentvolumeclaims"),
        "ServiceAccount" => resource("", "v1", kind, "serviceaccounts"),
        "Pod" => resource("", "v1", kind, "pods"),
        "Deployment" => resource("apps", "v1", kind, "deployments"),
        "ReplicaSet" => resource("apps", "v1", kind, "replicasets"),
        "StatefulSet" => resource("apps", "v1", kind, "statefulsets"),
        "Service" => resource("", "v1", kind, "services"),
        "Node" => resource("", "v1", kind, "nodes"),
        "PersistentVolume" => resource("", "v1", kind, "persistentvolumes"),
        "DaemonSet" => resource("apps", "v1", kind, "daemonsets"),
        "Job" => resource("batch", "v1", kind, "jobs"),
        "CronJob" => resource("batch", "v1", kind, "cronjobs"),
        "HorizontalPodAutoscaler" => resource("autoscaling", "v2", kind, "horizontalpodautoscalers"),
        "PodDisruptionBudget" => resource("policy", "v1", kind, "poddisruptionbudgets"),
        "Ingress" => resource("networking.k8s.io", "v1", kind, "ingresses"),
        "NetworkPolicy" => resource("networking.k8s.io", "v1", kind, "networkpolicies"),
        "StorageClass" => resource("storage.k8s.io", "v1", kind, "storageclasses"),
        "VolumeAttachment" => resource("storage.k8s.io", "v1", kind, "volumeattachments"),
        "PriorityClass" => resource("scheduling.k8s.io", "v1", kind, "priorityclasses"),
        "Namespace" => resource("", "v1", kind, "namespaces"),
        "Event" => resource("", "v1", kind, "events"),
        "Gateway" | "GatewayClass" | "HTTPRoute" => {
            resource("gateway.networking.k8s.io", "v1", kind, &format!("{}s", kind.to_lowercase()))
        }
        "Role" | "ClusterRole" | "RoleBinding" | "ClusterRoleBinding" => {
            resource("rbac.authorization.k8s.io", "v1", kind, &format!("{}s", kind.to_lowercase()))
        }
        _ => resource("example.com", "v1", kind, "widgets"),
    }
}

/// Returns an object, named `Kind namespace/name`, as a list of its kind contains it.
fn object(title: &str, body: Value) -> (Resource, Value) {
    let (kind, path) = title.split_once(' ').unwrap();
    let (namespace, name) = path.split_once('/').unwrap();
    let mut object = body;
    if !object.is_object() {
        object = json!({});
    }
    let mut metadata = json!({"namespace": namespace, "name": name, "uid": format!("uid-{name}")});
    for (field, value) in object["metadata"].as_object().into_iter().flatten() {
        metadata[field] = value.clone();
    }
    object["metadata"] = metadata;
    (of_kind(kind), object)
}

/// Returns the report for these objects and a definition of widgets, which is reported itself only if there are none.
fn report_with_definition(users: Vec<(&str, Value)>) -> Vec<String> {
    shown(&gathered(vec![], users, false))
}

fn report(targets: Vec<(&str, Value)>, users: Vec<(&str, Value)>, system: bool) -> Report {
    let mut report = gathered(targets, users, system);
    report.findings.retain(|finding| finding.code != Code::UnusedDefinition);
    report
}

fn gathered(targets: Vec<(&str, Value)>, users: Vec<(&str, Value)>, system: bool) -> Report {
    let mut garbage = Garbage::new(system);
    for usable in [Usable::ServiceAccount, Usable::ConfigMap, Usable::Secret, Usable::Claim] {
        for (title, body) in targets.iter().filter(|(title, _)| title.starts_with(usable.kind())) {
            let (resource, object) = object(title, body.clone());
            garbage.target(usable, &resource, &object);
        }
    }
    garbage.definition(&json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "names": {"kind": "Widget"}, "versions": [
        {"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": {
            "secretName": {"type": "string"}, "title": {"type": "string"},
        }}}}}},
    ]}}));
    garbage.endpoints(&json!({"metadata": {"namespace": "n", "name": "led-x7",
        "labels": {"kubernetes.io/service-name": "led"}}}));
    for (title, body) in users {
        let (resource, object) = object(title, body);
        garbage.refer(&resource, &object);
    }
    reported_by(garbage)
}

fn reported_by(garbage: Garbage) -> Report {
    let catalog = Catalog::read(br#"{"items":[]}"#, br#"{"items":[]}"#).unwrap();
    garbage.report(&Survey::new(catalog, Timestamp(1_800_000_000_000)), &Outlook::default())
}

/// Formats findings as `Code namespace/name`, with `?` if uncertain, and the reason.
fn shown(report: &Report) -> Vec<String> {
    let line = |finding: &Finding| {
        let doubt = if finding.certainty == Certainty::Unknown { "?" } else { "" };
        let Place { namespace, name, .. } = &finding.place;
        format!("{}{doubt} {namespace}/{name}: {}", finding.code.name(), finding.why)
    };
    report.findings.iter().map(line).collect()
}

#[test]
fn what_nothing_uses_is_reported() {
    const NOTHING: &str = "nothing refers to it";
    let owned = json!({"metadata": {"ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u"}]}});
    for (target, user, expected) in [
        (("ConfigMap n/a", json!({})), None, vec![format!("UnusedConfigMap n/a: {NOTHING}")]),
        (("Secret n/a", json!({})), None, vec![format!("UnusedSecret n/a: {NOTHING}")]),
        (("PersistentVolumeClaim n/a", json!({})), None, vec![format!("UnusedClaim n/a: {NOTHING}")]),
        (("ServiceAccount n/a", json!({})), None, vec![format!("UnusedServiceAccount n/a: {NOTHING}")]),
        // An owned object never counts as unused.
        (("ConfigMap n/a", owned.clone()), None, vec![]),
        (("Secret n/a", owned), None, vec![]),
        // Objects of Kubernetes and its tools are exempt.
        (("ServiceAccount n/default", json!({})), None, vec![]),
        (("ConfigMap n/kube-root-ca.crt", json!({})), None, vec![]),
        (("ConfigMap kube-system/a", json!({})), None, vec![]),
        (
            ("Secret n/sh.helm.release.v1.shop.v1", json!({"metadata": {"labels": {"owner": "helm"}}})),
            None,
            vec![],
        ),
        (("ConfigMap n/a", json!({"metadata": {"annotations": {"kubegc.io/keep": "true"}}})), None, vec![]),
        (("ConfigMap n/a", json!({"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}})), None, vec![]),
        // An object of the same name in another namespace is not used; one that a terminating pod uses is.
        (
            ("ConfigMap n/a", json!({})),
            Some(("Pod n/p", json!({"spec": {"volumes": [{"configMap": {"name": "a"}}]}}))),
            vec![],
        ),
        (
            ("Secret n/a", json!({})),
            Some(("Pod m/p", json!({"spec": {"volumes": [{"secret": {"secretName": "a"}}]}}))),
            vec![
                "UnusedSecret n/a: nothing refers to it".to_owned(),
                "MissingTarget m/p: Secret \"a\", which it needs, does not exist".to_owned(),
            ],
        ),
        (
            ("Secret n/a", json!({})),
            Some((
                "Pod n/p",
                json!({"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"},
                    "spec": {"volumes": [{"secret": {"secretName": "b"}}]}}),
            )),
            vec![format!("UnusedSecret n/a: {NOTHING}")],
        ),
        (
            ("ServiceAccount n/a", json!({})),
            Some(("RoleBinding n/r", json!({"subjects": [{"kind": "ServiceAccount", "name": "a"}]}))),
            vec![],
        ),
        // A StatefulSet would use its claims again.
        (
            ("PersistentVolumeClaim n/data-db-7", json!({})),
            Some((
                "StatefulSet n/db",
                json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}}),
            )),
            vec![],
        ),
        (
            ("PersistentVolumeClaim n/data-db-x", json!({})),
            Some((
                "StatefulSet n/db",
                json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}}),
            )),
            vec![format!("UnusedClaim n/data-db-x: {NOTHING}")],
        ),
        // A custom resource uses objects by its schema, and perhaps by a text of unknown meaning.
        (("Secret n/a", json!({})), Some(("Widget n/w", json!({"spec": {"secretName": "a"}}))), vec![]),
        (
            ("ConfigMap n/a", json!({})),
            Some(("Widget m/w", json!({"spec": {"title": "a"}}))),
            vec!["UnusedConfigMap? n/a: Widget/w contains a text that equals its name".to_owned()],
        ),
        (
            ("ConfigMap n/a", json!({})),
            Some(("Widget m/w", json!({"spec": {"title": "n/a"}}))),
            vec!["UnusedConfigMap? n/a: Widget/w contains a text that equals its name".to_owned()],
        ),
        (
            ("ConfigMap n/a", json!({})),
            Some(("Widget m/w", json!({"spec": {"title": "m/a"}}))),
            vec![format!("UnusedConfigMap n/a: {NOTHING}")],
        ),
    ] {
        let found = report(vec![target.clone()], user.clone().into_iter().collect(), false);
        assert_eq!(shown(&found), expected, "{target:?} {user:?}");
    }
    assert_eq!(
        shown(&report(vec![("ConfigMap kube-system/a", json!({}))], vec![], true)),
        [format!("UnusedConfigMap kube-system/a: {NOTHING}")]
    );
    let token = json!({"metadata": {"annotations": {"kubernetes.io/service-account.name": "ci"}}});
    let accounts = vec![("ServiceAccount n/ci", json!({})), ("Secret n/ci-token", token)];
    assert_eq!(shown(&report(accounts, vec![], false)), [""; 0]);
}

#[test]
fn replica_sets_beyond_the_history_are_old() {
    let set = |name: &'static str, revision: &str, replicas: i64, deployment: Option<&str>| {
        let owners: Vec<Value> = deployment
            .iter()
            .map(|uid| json!({"kind": "Deployment", "name": "d", "uid": uid, "controller": true}))
            .collect();
        let annotations = json!({"deployment.kubernetes.io/revision": revision});
        (
            name,
            json!({"metadata": {"ownerReferences": owners, "annotations": annotations}, "spec": {"replicas": replicas}}),
        )
    };
    let sets = vec![
        ("Deployment n/d", json!({"spec": {"revisionHistoryLimit": 1}})),
        set("ReplicaSet n/r1", "1", 0, Some("uid-d")),
        set("ReplicaSet n/r10", "10", 0, Some("uid-d")),
        set("ReplicaSet n/r9", "9", 0, Some("uid-d")),
        set("ReplicaSet n/r11", "11", 2, Some("uid-d")),
        set("ReplicaSet n/lost", "1", 0, Some("uid-gone")),
        set("ReplicaSet n/free", "0", 0, None),
    ];
    assert_eq!(
        shown(&report(vec![], sets, false)),
        [
            "OldReplicaSet n/free: it has no replicas and no Deployment",
            "OldReplicaSet n/r1: revision 1 is beyond the history limit of 1",
            "OldReplicaSet n/r9: revision 9 is beyond the history limit of 1",
        ]
    );
}

#[test]
fn sizes_are_summed_and_secrets_have_none() {
    let found = report(
        vec![
            ("ConfigMap n/a", json!({"data": {"key": "value"}, "binaryData": {"b": "AAAA"}})),
            ("ConfigMap n/b", json!({"data": {"k": "v"}})),
            ("PersistentVolumeClaim n/c", json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}})),
            (
                "PersistentVolumeClaim n/d",
                json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}, "status": {"capacity": {"storage": "2Gi"}}}),
            ),
            ("Secret n/s", json!({"data": {"k": "dg=="}})),
        ],
        vec![],
        false,
    );
    let totals: Vec<_> =
        found.totals().into_iter().map(|(code, (count, bytes))| (code.name(), count, bytes)).collect();
    assert_eq!(totals, [("UnusedConfigMap", 2, 15), ("UnusedSecret", 1, 0), ("UnusedClaim", 2, 3 << 30)]);
    assert_eq!(found.findings.iter().find(|finding| finding.code == Code::UnusedSecret).unwrap().bytes, None);
}

/// An object that could not be read may use anything.
#[test]
fn what_was_not_seen_may_use_anything() {
    let mut garbage = Garbage::new(false);
    let (resource, value) = object("ConfigMap n/a", json!({}));
    garbage.target(Usable::ConfigMap, &resource, &value);
    garbage.unseen("pods could not be listed: forbidden".to_owned());
    let catalog = Catalog::read(br#"{"items":[]}"#, br#"{"items":[]}"#).unwrap();
    let found = garbage.report(&Survey::new(catalog, Timestamp(0)), &Outlook::default());
    assert_eq!(
        (shown(&found), found.unseen.len()),
        (
            vec![
                "UnusedConfigMap? n/a: nothing seen uses it, but pods could not be listed: forbidden"
                    .to_owned()
            ],
            1
        )
    );
}

/// The list of missing references is bounded and counts the rest.
#[test]
fn missing_targets_are_bounded() {
    let volumes: Vec<Value> =
        (0..MAX_MISSING + 7).map(|number| json!({"configMap": {"name": format!("m{number}")}})).collect();
    let found = report(vec![], vec![("Pod n/p", json!({"spec": {"volumes": volumes}}))], false);
    assert_eq!((found.findings.len(), found.more_missing), (MAX_MISSING, 7));
}

/// If a kind may not be listed, none of its objects is reported as missing.
#[test]
fn what_was_not_listed_is_not_missing() {
    let spec = json!({"spec": {"volumes": [
        {"secret": {"secretName": "hidden"}}, {"configMap": {"name": "gone"}},
    ]}});
    let mut garbage = Garbage::new(false);
    garbage.not_listed(Usable::Secret);
    let (resource, pod) = object("Pod m/p", spec);
    garbage.refer(&resource, &pod);
    let catalog = Catalog::read(br#"{"items":[]}"#, br#"{"items":[]}"#).unwrap();
    let report = garbage.report(&Survey::new(catalog, Timestamp(1_800_000_000_000)), &Outlook::default());
    assert_eq!(
        shown(&report),
        ["MissingTarget m/p: ConfigMap \"gone\", which it needs, does not exist".to_owned()]
    );
}
