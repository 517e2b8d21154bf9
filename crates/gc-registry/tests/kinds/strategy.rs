//! Tests which fields creates and updates may change.

use gc_registry::api::UserInfo;
use gc_registry::kinds::{self, Context, convert::convert, scale};
use serde_json::{Value, json};

use crate::{now, target};

fn user() -> UserInfo {
    UserInfo { name: "bob".into(), groups: vec!["g".into()], ..UserInfo::default() }
}

fn created(resource: &str, sent: Value) -> Value {
    let user = user();
    let mut object = sent;
    kinds::apply_defaults(target(resource), &mut object);
    kinds::prepare_for_create(target(resource), &mut object, &Context { now: now(), user: &user });
    object
}

fn updated(resource: &str, sent: Value, old: &Value) -> Value {
    let user = user();
    let mut object = sent;
    kinds::apply_defaults(target(resource), &mut object);
    kinds::prepare_for_update(target(resource), &mut object, old, &Context { now: now(), user: &user });
    object
}

#[test]
fn a_created_pod_is_pending() {
    let pod = created(
        "v1/pods",
        json!({"metadata": {"name": "p", "generation": 7}, "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Running"}}),
    );
    assert_eq!(pod["metadata"], json!({"name": "p", "generation": 1}));
    assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
}

#[test]
fn resources_decide_the_quality_of_service() {
    for (resources, class) in [
        (json!({}), "BestEffort"),
        (json!({"requests": {"cpu": "1"}}), "Burstable"),
        (json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
        (json!({"limits": {"cpu": "1"}}), "Burstable"),
        (
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}),
            "Guaranteed",
        ),
        (json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}), "Burstable"),
    ] {
        let pod = created(
            "v1/pods",
            json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}),
        );
        assert_eq!(pod["status"]["qosClass"], class, "{resources}");
    }
}

#[test]
fn a_created_job_is_told_apart_by_its_uid() {
    let job =
        created("batch/v1/jobs", json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {}}}));
    let labels = json!({"controller-uid": "u", "job-name": "j", "batch.kubernetes.io/controller-uid": "u",
        "batch.kubernetes.io/job-name": "j"});
    assert_eq!(job["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(job["metadata"]["labels"], labels);
    assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}));
    assert_eq!(job["metadata"]["generation"], 1);
}

#[test]
fn creates_set_what_is_the_servers() {
    let namespace =
        created("v1/namespaces", json!({"metadata": {"name": "n"}, "status": {"phase": "Terminating"}}));
    assert_eq!(
        namespace,
        json!({"metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
    );
    let volume =
        created("v1/persistentvolumes", json!({"metadata": {"name": "v"}, "status": {"phase": "Bound"}}));
    assert_eq!(
        volume["status"],
        json!({"phase": "Pending", "lastPhaseTransitionTime": "2026-01-01T12:00:00Z"})
    );
    let set = created("apps/v1/daemonsets", json!({"metadata": {"name": "d"}}));
    assert_eq!(
        set["metadata"],
        json!({"name": "d", "generation": 1, "annotations": {"deprecated.daemonset.template.generation": "1"}})
    );
    let request = created(
        "certificates.k8s.io/v1/certificatesigningrequests",
        json!({"spec": {"username": "admin", "uid": "x", "signerName": "a.b/c", "usages": ["client auth"], "request": "QQ=="},
            "status": {"certificate": "QQ=="}}),
    );
    assert_eq!(
        request,
        json!({"spec": {"username": "bob", "groups": ["g"], "signerName": "a.b/c", "usages": ["client auth"], "request": "QQ=="},
            "status": {}})
    );
    let autoscaler = created("autoscaling/v2/horizontalpodautoscalers", json!({"metadata": {"name": "h"}}));
    assert_eq!(autoscaler["metadata"], json!({"name": "h"}), "autoscalers have no generation");
}

#[test]
fn status_and_spec_are_written_apart() {
    let old = created(
        "apps/v1/deployments",
        json!({"metadata": {"name": "d", "labels": {"l": "1"}}, "spec": {"replicas": 1}}),
    );
    let mut sent = old.clone();
    sent["spec"]["replicas"] = 5.into();
    sent["status"]["replicas"] = 9.into();
    sent["metadata"]["generation"] = 77.into();
    let main = updated("apps/v1/deployments", sent.clone(), &old);
    assert_eq!(main["metadata"]["generation"], 2);
    assert_eq!((&main["spec"]["replicas"], &main["status"]), (&json!(5), &json!({})));
    sent["metadata"]["labels"] = json!({"l": "2"});
    let status = updated("apps/v1/deployments/status", sent, &old);
    assert_eq!(status["metadata"], old["metadata"]);
    assert_eq!((&status["spec"]["replicas"], &status["status"]), (&json!(1), &json!({"replicas": 9})));
}

#[test]
fn the_status_of_a_pod_keeps_its_owners_and_its_deletion() {
    let mut old = created("v1/pods", json!({"metadata": {"name": "p", "ownerReferences": [{"uid": "o"}]}}));
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let sent = json!({"metadata": {"name": "p", "labels": {"l": "1"}, "generation": 1}, "spec": {"nodeName": "x"}, "status": {"phase": "Running"}});
    let pod = updated("v1/pods/status", sent, &old);
    assert_eq!(
        pod["metadata"],
        json!({"name": "p", "generation": 1, "labels": {"l": "1"}, "ownerReferences": [{"uid": "o"}],
            "deletionTimestamp": "2026-01-01T00:00:00Z"})
    );
    assert_eq!(pod["spec"], old["spec"]);
    assert_eq!(pod["status"], json!({"phase": "Running", "qosClass": "BestEffort"}));
}

#[test]
fn only_finalize_changes_the_finalizers_of_a_namespace() {
    let old = created("v1/namespaces", json!({"metadata": {"name": "n"}}));
    let sent =
        json!({"metadata": {"name": "n"}, "spec": {"finalizers": []}, "status": {"phase": "Terminating"}});
    assert_eq!(updated("v1/namespaces", sent.clone(), &old), old);
    let mut expected = old.clone();
    expected["spec"] = json!({});
    assert_eq!(updated("v1/namespaces/finalize", sent, &old), expected);
}

#[test]
fn generations_count_what_is_wanted() {
    for (resource, object, change, generation) in [
        (
            "v1/pods",
            json!({"spec": {"containers": [{"name": "c", "image": "i:1"}]}}),
            json!({"spec": {"containers": [{"name": "c", "image": "i:2"}]}}),
            Some(2),
        ),
        (
            "discovery.k8s.io/v1/endpointslices",
            json!({"addressType": "IPv4"}),
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]}),
            Some(2),
        ),
        (
            "discovery.k8s.io/v1/endpointslices",
            json!({"metadata": {}}),
            json!({"metadata": {"annotations": {"a": "b"}}}),
            Some(1),
        ),
        (
            "apps/v1/deployments",
            json!({"metadata": {}}),
            json!({"metadata": {"annotations": {"a": "b"}}}),
            Some(2),
        ),
        (
            "apps/v1/replicasets",
            json!({"metadata": {}}),
            json!({"metadata": {"annotations": {"a": "b"}}}),
            Some(1),
        ),
        (
            "scheduling.k8s.io/v1/priorityclasses",
            json!({"value": 1}),
            json!({"value": 1, "description": "d"}),
            Some(1),
        ),
        (
            "networking.k8s.io/v1/networkpolicies",
            json!({"spec": {}}),
            json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}),
            Some(2),
        ),
        ("v1/services", json!({"spec": {}}), json!({"spec": {"ports": [{"port": 1}]}}), None),
        ("v1/configmaps", json!({"data": {"a": "b"}}), json!({"data": {"a": "c"}}), None),
        (
            "coordination.k8s.io/v1/leases",
            json!({"spec": {}}),
            json!({"spec": {"holderIdentity": "x"}}),
            None,
        ),
    ] {
        let old = created(resource, object);
        let new = updated(resource, change, &old);
        assert_eq!(new["metadata"]["generation"].as_i64(), generation, "{resource}");
    }
}

#[test]
fn a_certificate_request_is_decided_by_approval_only() {
    let resource = "certificates.k8s.io/v1/certificatesigningrequests";
    let old = created(resource, json!({"spec": {"signerName": "a.b/c"}}));
    let sent = json!({"spec": {"signerName": "x.y/z"}, "status": {"certificate": "QQ==", "conditions": [{"type": "Approved", "status": "True"}]}});
    let main = updated(resource, sent.clone(), &old);
    assert_eq!((&main["spec"], &main["status"]), (&old["spec"], &old["status"]));
    // The status endpoint keeps the input, and refuses it.
    let status = updated(&format!("{resource}/status"), sent.clone(), &old);
    let refused: Vec<String> =
        kinds::validate_update(target(&format!("{resource}/status")), &status, &old, None)
            .into_iter()
            .filter(|error| error.field == "status.conditions")
            .map(|error| format!("{}: {}", error.field, error.detail))
            .collect();
    assert_eq!(
        refused,
        ["status.conditions: Forbidden: updates may not add a condition of type \"Approved\""]
    );
    let approval = updated(&format!("{resource}/approval"), sent, &old);
    assert_eq!(
        approval["status"],
        json!({"conditions": [{"type": "Approved", "status": "True", "lastUpdateTime": "2026-01-01T12:00:00Z",
            "lastTransitionTime": "2026-01-01T12:00:00Z"}]})
    );
}

#[test]
fn events_change_form_between_their_groups() {
    let core = json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"kind": "Pod"}, "message": "text", "source": {},
        "eventTime": null, "firstTimestamp": null, "lastTimestamp": "t", "count": 2, "reportingComponent": "",
        "reportingInstance": "", "type": "Normal"});
    let grouped = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"kind": "Pod"}, "note": "text",
        "deprecatedSource": {}, "eventTime": null, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": "t",
        "deprecatedCount": 2, "type": "Normal"});
    assert_eq!(convert("events.k8s.io", "v1", "Event", &core), grouped);
    assert_eq!(convert("", "v1", "Event", &grouped), core);
}

#[test]
fn autoscalers_survive_a_trip_through_the_other_version() {
    let two = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "metrics": [
            {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}],
            "behavior": {"scaleDown": {"selectPolicy": "Max"}}},
        "status": {"currentReplicas": 2, "desiredReplicas": 2, "currentMetrics": null,
            "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": null}]}});
    let one = convert("autoscaling", "v1", "HorizontalPodAutoscaler", &two);
    assert_eq!(one["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 70}));
    assert_eq!(one["status"], json!({"currentReplicas": 2, "desiredReplicas": 2}));
    assert_eq!(convert("autoscaling", "v2", "HorizontalPodAutoscaler", &one), two);
}

#[test]
fn a_scale_shows_and_sets_replicas() {
    let deployment = json!({"metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "5", "labels": {"l": "1"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions":
            [{"key": "c", "operator": "In", "values": ["y", "x"]}, {"key": "d", "operator": "DoesNotExist"}]}},
        "status": {"replicas": 2}});
    let scale = scale::scale_of(target("apps/v1/deployments"), &deployment);
    assert_eq!(
        scale,
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "5"},
            "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=1,b=2,c in (x,y),!d"}})
    );
    let mut scaled = deployment.clone();
    scale::apply_scale(&json!({"metadata": {"resourceVersion": "7"}, "spec": {"replicas": 9}}), &mut scaled);
    let mut expected = deployment;
    expected["spec"]["replicas"] = 9.into();
    expected["metadata"]["resourceVersion"] = "7".into();
    assert_eq!(scaled, expected);
}

#[test]
fn objects_are_selected_by_their_fields() {
    let pairs = |resource: &str, object: Value| -> Vec<(String, String)> {
        kinds::selectable_fields(target(resource), &object)
            .into_iter()
            .skip(2)
            .map(|(name, value)| (name.into(), value))
            .collect()
    };
    let list = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    };
    assert_eq!(
        pairs(
            "v1/pods",
            json!({"spec": {"nodeName": "x", "restartPolicy": "Never", "schedulerName": "s", "serviceAccountName": "a"},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}})
        ),
        list(&[
            ("spec.nodeName", "x"),
            ("spec.restartPolicy", "Never"),
            ("spec.schedulerName", "s"),
            ("spec.serviceAccountName", "a"),
            ("spec.hostNetwork", "false"),
            ("status.phase", "Running"),
            ("status.podIP", "10.0.0.1"),
            ("status.podIPs", ""),
            ("status.nominatedNodeName", "")
        ])
    );
    assert_eq!(
        pairs("batch/v1/jobs", json!({"status": {"succeeded": 2}})),
        list(&[("status.successful", "2")])
    );
    assert_eq!(
        pairs("v1/nodes", json!({"spec": {"unschedulable": true}})),
        list(&[("spec.unschedulable", "true")])
    );
    assert_eq!(pairs("v1/replicationcontrollers", json!({})), list(&[("status.replicas", "0")]));
    assert_eq!(pairs("apps/v1/replicasets", json!({})), list(&[]));
    assert_eq!(pairs("v1/secrets", json!({"type": "Opaque"})), list(&[("type", "Opaque")]));
    assert_eq!(pairs("v1/configmaps", json!({})), list(&[]));
}
