//! Objects that situations are composed of.

use serde_json::{Value, json};

pub(crate) fn object(kind: &str, name: &str, more: Value) -> Value {
    let api_version = match kind {
        "Job" => "batch/v1",
        "Deployment" | "ReplicaSet" => "apps/v1",
        "CertificateSigningRequest" => "certificates.k8s.io/v1",
        "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
        "APIService" => "apiregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy"
        | "ValidatingAdmissionPolicyBinding"
        | "ValidatingWebhookConfiguration" => "admissionregistration.k8s.io/v1",
        "Widget" | "Gizmo" => "acme.dev/v1",
        "RetentionPolicy" => "kubegc.io/v1alpha1",
        "VolumeAttachment" => "storage.k8s.io/v1",
        "Lease" => "coordination.k8s.io/v1",
        _ => "v1",
    };
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    for (field, value) in more.as_object().into_iter().flatten() {
        match field.as_str() {
            "finalizers" | "owners" | "annotations" | "labels" => object["metadata"][field] = value.clone(),
            _ => object[field] = value.clone(),
        }
    }
    object
}

pub(crate) fn map(name: &str, more: Value) -> Value {
    object("ConfigMap", name, more)
}

pub(crate) fn pod(name: &str, node: &str, more: Value) -> Value {
    let mut pod = object("Pod", name, more);
    let volumes = pod["volumes"].take();
    pod.as_object_mut().unwrap().remove("volumes");
    pod["spec"] = json!({"containers": [{"name": "c", "image": "i"}]});
    if !node.is_empty() {
        pod["spec"]["nodeName"] = node.into();
    }
    if let Some(claim) = volumes.as_str() {
        pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    }
    pod
}

/// Age of the nodes' reports, which answers show in whole days: half a day from where that number changes.
const HEARTBEAT_HOURS_AGO: i64 = 327 * 24 + 12;

pub(crate) fn node(name: &str, ready: &str) -> Value {
    let reported = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(HEARTBEAT_HOURS_AGO);
    let reported = reported.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({"type": "Ready", "status": ready, "reason": "KubeletReady",
                           "lastHeartbeatTime": reported, "lastTransitionTime": reported});
    object("Node", name, json!({"status": {"conditions": [condition]}}))
}

pub(crate) fn claim(name: &str, volume: &str, more: Value) -> Value {
    let mut claim = object("PersistentVolumeClaim", name, more);
    claim["spec"] = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    if !volume.is_empty() {
        claim["spec"]["volumeName"] = volume.into();
    }
    claim
}

pub(crate) fn job(name: &str, ttl: Option<i64>, finished_seconds_ago: i64) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let mut job = object("Job", name, json!({"spec": {"template": template}}));
    if let Some(ttl) = ttl {
        job["spec"]["ttlSecondsAfterFinished"] = ttl.into();
    }
    if finished_seconds_ago >= 0 {
        let time =
            jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() - finished_seconds_ago).unwrap();
        let time = time.to_string();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time, "lastProbeTime": time});
        job["status"] = json!({"startTime": time, "completionTime": time,
                               "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
    }
    job
}

pub(crate) fn deployment(name: &str, ready: i64) -> Value {
    let labels = json!({"app": name});
    object(
        "Deployment",
        name,
        json!({
            "spec": {"replicas": 1, "selector": {"matchLabels": labels},
                     "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
            "status": {"replicas": 1, "readyReplicas": ready},
        }),
    )
}

pub(crate) fn held() -> Value {
    json!({"finalizers": ["widgets.acme.dev/hold"]})
}

pub(crate) fn definition() -> Value {
    definition_of("widgets")
}

/// Returns the definition of a kind by its plural name.
pub(crate) fn definition_of(plural: &str) -> Value {
    let singular = plural.trim_end_matches('s');
    let kind = format!("{}{}", singular[..1].to_uppercase(), &singular[1..]);
    object(
        "CustomResourceDefinition",
        &format!("{plural}.acme.dev"),
        json!({"spec": {
            "group": "acme.dev", "scope": "Namespaced",
            "names": {"plural": plural, "singular": singular, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true,
                          "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        }}),
    )
}

/// Returns the definition of gadgets in two versions, with a conversion webhook that does not answer.
pub(crate) fn converted_definition() -> Value {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v1",
               "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    object(
        "CustomResourceDefinition",
        "gadgets.converted.acme.dev",
        json!({"spec": {
            "group": "converted.acme.dev", "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [version("v1"), version("v2")],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"},
            }},
        }}),
    )
}

pub(crate) fn conditions(kind: &str, message: &str) -> Value {
    json!({"kind": "NamespaceStatus", "metadata": {}, "status": {"conditions": [
        {"type": kind, "status": "True", "reason": "Failed", "message": message,
         "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

pub(crate) fn volume(name: &str, policy: &str, finalizers: &[&str]) -> Value {
    let mut volume = object("PersistentVolume", name, json!({"finalizers": finalizers}));
    volume["spec"] = json!({
        "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": policy,
        "csi": {"driver": "csi.acme.dev", "volumeHandle": name},
    });
    volume
}
