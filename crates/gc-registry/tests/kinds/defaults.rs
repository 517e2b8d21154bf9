//! Tests defaults of decoding: a document as sent, and as stored.

use gc_registry::kinds::apply_defaults;
use serde_json::{Value, json};

use crate::target;

#[track_caller]
fn check(resource: &str, sent: &Value, stored: &Value) {
    let mut object = sent.clone();
    apply_defaults(target(resource), &mut object);
    assert_eq!(&object, stored, "{resource}");
}

/// Returns a container with its defaults.
fn container(image: &str, policy: &str) -> Value {
    json!({"name": "c", "image": image, "imagePullPolicy": policy, "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
}

/// Returns the spec of a template with one container and its defaults.
fn pod_spec() -> Value {
    json!({"containers": [container("i", "Always")], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30, "securityContext": {}})
}

#[test]
fn a_pod_gets_everything_a_template_gets_and_service_links() {
    let mut spec = pod_spec();
    spec["enableServiceLinks"] = true.into();
    check(
        "v1/pods",
        &json!({"spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": null, "volumes": []}}),
        &json!({"spec": spec, "status": {}}),
    );
}

#[test]
fn resources_of_a_pod_that_it_leaves_out_are_those_of_its_containers_together() {
    let container = |requests: Value, limits: Value| json!({"name": "c", "image": "i", "resources": {"requests": requests, "limits": limits}});
    let of_containers = || {
        json!([
            container(json!({"cpu": "100m"}), json!({"hugepages-2Mi": "4Mi", "cpu": "500m"})),
            container(json!({"cpu": "50m"}), json!({}))
        ])
    };
    for (given, wanted) in [
        (
            json!({"limits": {"cpu": "2", "memory": "1Gi"}}),
            json!({"limits": {"cpu": "2", "hugepages-2Mi": "4Mi", "memory": "1Gi"},
                "requests": {"cpu": "150m", "hugepages-2Mi": "4Mi", "memory": "1Gi"}}),
        ),
        (json!({}), json!({})),
    ] {
        let mut pod = json!({"spec": {"containers": of_containers(), "resources": given}});
        apply_defaults(target("v1/pods"), &mut pod);
        assert_eq!(pod["spec"]["resources"], wanted, "{given}");
        let mut template = json!({"template": {"spec": {"containers": of_containers(), "resources": given}}});
        apply_defaults(target("v1/podtemplates"), &mut template);
        assert_eq!(template["template"]["spec"]["resources"], given, "a template keeps {given}");
    }
}

#[test]
fn a_pod_whose_grace_period_is_negative_gets_a_second_and_a_template_keeps_it() {
    let given = json!({"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": -1});
    let mut pod = json!({"spec": given});
    apply_defaults(target("v1/pods"), &mut pod);
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 1);
    let mut template = json!({"template": {"spec": given}});
    apply_defaults(target("v1/podtemplates"), &mut template);
    assert_eq!(template["template"]["spec"]["terminationGracePeriodSeconds"], -1);
}

#[test]
fn the_tag_of_an_image_decides_when_it_is_pulled() {
    for (image, policy) in [
        ("i", "Always"),
        ("i:latest", "Always"),
        ("i:1", "IfNotPresent"),
        ("registry:5000/i", "Always"),
        ("registry:5000/i:1", "IfNotPresent"),
        ("i@sha256:abc", "IfNotPresent"),
        ("i:1@sha256:abc", "IfNotPresent"),
    ] {
        let mut pod = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        apply_defaults(target("v1/pods"), &mut pod);
        assert_eq!(pod["spec"]["containers"][0], container(image, policy), "{image}");
    }
}

#[test]
fn the_parts_of_a_container_have_defaults() {
    let mut pod = json!({"spec": {"containers": [{
        "name": "c", "image": "i:1",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
        "livenessProbe": {"httpGet": {"port": 80}},
        "lifecycle": {"preStop": {"httpGet": {"port": 81}}},
    }]}});
    apply_defaults(target("v1/pods"), &mut pod);
    assert_eq!(
        pod["spec"]["containers"][0],
        json!({
            "name": "c", "image": "i:1", "imagePullPolicy": "IfNotPresent",
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            "lifecycle": {"preStop": {"httpGet": {"port": 81, "path": "/", "scheme": "HTTP"}}},
        })
    );
}

#[test]
fn volumes_have_defaults() {
    let mut pod = json!({"spec": {"volumes": [
        {"name": "a"},
        {"name": "b", "secret": {"secretName": "s"}},
        {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"name": "d", "hostPath": {"path": "/"}},
        {"name": "e", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.uid"}}]}},
    ]}});
    apply_defaults(target("v1/pods"), &mut pod);
    assert_eq!(
        pod["spec"]["volumes"],
        json!([
            {"name": "a", "emptyDir": {}},
            {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}},
            {"name": "c", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}},
            {"name": "d", "hostPath": {"path": "/", "type": ""}},
            {"name": "e", "downwardAPI": {"defaultMode": 420, "items": [{"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}]}},
        ])
    );
}

#[test]
fn workloads_have_defaults() {
    let sent =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let stored = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod_spec()});
    check(
        "apps/v1/deployments",
        &json!({"spec": {"template": sent}}),
        &json!({"spec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            "template": stored}, "status": {}}),
    );
    check(
        "apps/v1/deployments",
        &json!({"spec": {"replicas": 0, "strategy": {"type": "Recreate"}, "template": sent}}),
        &json!({"spec": {"replicas": 0, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "strategy": {"type": "Recreate"}, "template": stored}, "status": {}}),
    );
    check(
        "apps/v1/replicasets",
        &json!({"spec": {"template": sent}}),
        &json!({"spec": {"replicas": 1, "template": stored}, "status": {"replicas": 0}}),
    );
    check(
        "v1/replicationcontrollers",
        &json!({"spec": {"template": sent}}),
        &json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 1, "selector": {"a": "b"}, "template": stored},
            "status": {"replicas": 0}}),
    );
    check(
        "apps/v1/statefulsets",
        &json!({"spec": {"template": sent, "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {}}]}}),
        &json!({"spec": {"replicas": 1, "revisionHistoryLimit": 10, "serviceName": "", "podManagementPolicy": "OrderedReady",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "volumeClaimTemplates": [{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "v"},
                "spec": {"volumeMode": "Filesystem", "resources": {}}, "status": {"phase": "Pending"}}],
            "template": stored}, "status": {"replicas": 0, "availableReplicas": 0}}),
    );
    check(
        "apps/v1/daemonsets",
        &json!({"spec": {"template": sent}}),
        &json!({"metadata": {"annotations": {"deprecated.daemonset.template.generation": "0"}}, "spec": {"revisionHistoryLimit": 10,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}, "template": stored},
            "status": {"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0}}),
    );
    check(
        "batch/v1/jobs",
        &json!({"spec": {"template": sent}}),
        &json!({"metadata": {"labels": {"a": "b"}}, "spec": {"completions": 1, "parallelism": 1, "backoffLimit": 6,
            "completionMode": "NonIndexed", "suspend": false, "manualSelector": false,
            "podReplacementPolicy": "TerminatingOrFailed", "template": stored}, "status": {}}),
    );
    check(
        "batch/v1/cronjobs",
        &json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": sent}}}}),
        &json!({"spec": {"schedule": "* * * * *", "concurrencyPolicy": "Allow", "suspend": false,
            "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {}, "spec": {"template": stored}}}, "status": {}}),
    );
}

#[test]
fn a_work_queue_has_no_completions() {
    let mut job = json!({"spec": {"parallelism": 3, "podFailurePolicy": {"rules": [{"onPodConditions": [{"type": "x"}]}]}}});
    apply_defaults(target("batch/v1/jobs"), &mut job);
    assert_eq!(job["spec"].get("completions"), None);
    assert_eq!(job["spec"]["podReplacementPolicy"], "Failed");
    assert_eq!(job["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"], "True");
}

#[test]
fn services_have_defaults_by_type() {
    let port = json!({"port": 80, "protocol": "TCP", "targetPort": 80});
    check(
        "v1/services",
        &json!({"spec": {"ports": [{"port": 80}], "selector": {}}}),
        &json!({"spec": {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster", "ports": [port]},
            "status": {"loadBalancer": {}}}),
    );
    check(
        "v1/services",
        &json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "sessionAffinity": "ClientIP"}}),
        &json!({"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Cluster",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}, "externalTrafficPolicy": "Cluster",
            "allocateLoadBalancerNodePorts": true, "ports": [port]}, "status": {"loadBalancer": {}}}),
    );
    check(
        "v1/services",
        &json!({"spec": {"type": "ExternalName", "externalName": "example.com"}}),
        &json!({"spec": {"type": "ExternalName", "externalName": "example.com", "sessionAffinity": "None"},
            "status": {"loadBalancer": {}}}),
    );
}

#[test]
fn other_kinds_have_defaults() {
    let group = "rbac.authorization.k8s.io";
    for (resource, sent, stored) in [
        (
            "v1/configmaps",
            json!({"data": {}, "metadata": {"labels": null, "finalizers": []}}),
            json!({"metadata": {}}),
        ),
        (
            "v1/serviceaccounts",
            json!({"automountServiceAccountToken": false}),
            json!({"automountServiceAccountToken": false}),
        ),
        (
            "v1/secrets",
            json!({"stringData": {"k": "v"}, "data": {"k": "b2xk", "l": "bA=="}}),
            json!({"type": "Opaque", "data": {"k": "dg==", "l": "bA=="}}),
        ),
        ("v1/secrets", json!({"stringData": {}}), json!({"type": "Opaque"})),
        ("v1/secrets", json!({"stringData": {"k": 1}}), json!({"type": "Opaque"})),
        (
            "v1/namespaces",
            json!({"metadata": {"name": "n"}, "spec": {"finalizers": []}}),
            json!({"metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}}, "spec": {}, "status": {"phase": "Active"}}),
        ),
        (
            "v1/persistentvolumes",
            json!({"spec": {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}}),
            json!({"spec": {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x", "type": ""}, "volumeMode": "Filesystem",
                "persistentVolumeReclaimPolicy": "Retain"}, "status": {"phase": "Pending"}}),
        ),
        (
            "v1/persistentvolumeclaims",
            json!({"spec": {"storageClassName": "", "accessModes": ["ReadWriteOnce"]}}),
            json!({"spec": {"storageClassName": "", "accessModes": ["ReadWriteOnce"], "resources": {}, "volumeMode": "Filesystem"},
                "status": {"phase": "Pending"}}),
        ),
        (
            "v1/limitranges",
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]}}),
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"},
                "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1Mi"}}]}}),
        ),
        (
            "v1/events",
            json!({"involvedObject": {"kind": "Pod"}}),
            json!({"involvedObject": {"kind": "Pod"}, "eventTime": null, "firstTimestamp": null, "lastTimestamp": null,
                "reportingComponent": "", "reportingInstance": "", "source": {}}),
        ),
        (
            "coordination.k8s.io/v1/leases",
            json!({"spec": {"holderIdentity": "me"}}),
            json!({"spec": {"holderIdentity": "me"}}),
        ),
        (
            "discovery.k8s.io/v1/endpointslices",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]}),
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {}}],
                "ports": [{"name": "", "port": 80, "protocol": "TCP"}]}),
        ),
        (
            "networking.k8s.io/v1/networkpolicies",
            json!({"spec": {"egress": [{"ports": [{"port": 53}]}]}}),
            json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "egress": [{"ports": [{"port": 53, "protocol": "TCP"}]}]}}),
        ),
        (
            "storage.k8s.io/v1/storageclasses",
            json!({"provisioner": "p"}),
            json!({"provisioner": "p", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        ),
        (
            "scheduling.k8s.io/v1/priorityclasses",
            json!({"value": 3}),
            json!({"value": 3, "preemptionPolicy": "PreemptLowerPriority"}),
        ),
        ("rbac.authorization.k8s.io/v1/roles", json!({}), json!({"rules": null})),
        (
            "rbac.authorization.k8s.io/v1/rolebindings",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"},
                {"kind": "ServiceAccount", "name": "s"}]}),
            json!({"roleRef": {"apiGroup": group, "kind": "Role", "name": "r"}, "subjects": [
                {"apiGroup": group, "kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]}),
        ),
        (
            "autoscaling/v1/horizontalpodautoscalers",
            json!({"spec": {"maxReplicas": 3}}),
            json!({"spec": {"maxReplicas": 3, "minReplicas": 1, "targetCPUUtilizationPercentage": 80},
                "status": {"currentReplicas": 0, "desiredReplicas": 0}}),
        ),
        (
            "autoscaling/v2/horizontalpodautoscalers",
            json!({"spec": {"maxReplicas": 3}}),
            json!({"spec": {"maxReplicas": 3, "minReplicas": 1, "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 80}}}]},
                "status": {"desiredReplicas": 0, "currentMetrics": null}}),
        ),
        (
            "policy/v1/poddisruptionbudgets",
            json!({"spec": {"minAvailable": 1}}),
            json!({"spec": {"minAvailable": 1}, "status": {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}}),
        ),
        (
            "apps/v1/controllerrevisions",
            json!({"kind": "ControllerRevision", "data": {"x": null, "y": []}}),
            json!({"kind": "ControllerRevision", "data": {"x": null, "y": []}, "revision": 0}),
        ),
        // Custom kinds are left alone.
        ("example.com/v1/widgets", json!({"spec": null, "x": []}), json!({"spec": null, "x": []})),
        ("apps/v1/deployments/scale", json!({"spec": {}}), json!({"spec": {}})),
    ] {
        check(resource, &sent, &stored);
    }
}

#[test]
fn the_address_of_a_pod_is_the_first_of_its_addresses() {
    for (sent, kept) in [
        (json!({"podIP": "10.1.1.1"}), json!({"podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}]})),
        (
            json!({"podIPs": [{"ip": "10.1.1.1"}]}),
            json!({"podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}]}),
        ),
        (
            json!({"podIP": "10.1.1.2", "podIPs": [{"ip": "10.1.1.1"}, {"ip": "::1"}]}),
            json!({"podIP": "10.1.1.2", "podIPs": [{"ip": "10.1.1.2"}]}),
        ),
        (
            json!({"podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}, {"ip": "::1"}]}),
            json!({"podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}, {"ip": "::1"}]}),
        ),
    ] {
        let mut pod = json!({"spec": {"containers": []}, "status": sent});
        apply_defaults(target("v1/pods"), &mut pod);
        assert_eq!(pod["status"], kept);
    }
}
