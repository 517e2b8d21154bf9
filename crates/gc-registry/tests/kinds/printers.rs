//! Tests columns and cells.

use gc_registry::kinds;
use serde_json::{Value, json};

use crate::{now, target};

/// The columns must be those that kube-apiserver v1.36.2 returned.
#[test]
fn columns_are_those_that_were_recorded() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/recordings/facts/table-columns.json");
    let text = std::fs::read_to_string(path).unwrap();
    let recorded: Value = serde_json::from_str(&text).unwrap();
    for (resource, recorded) in recorded.as_object().unwrap() {
        let recorded = recorded.get("columnDefinitions").unwrap_or(recorded).as_array().unwrap();
        let expected: Vec<(&str, &str, &str, i64)> = recorded
            .iter()
            .map(|column| {
                let text = |key: &str| column[key].as_str().unwrap_or_default();
                (text("name"), text("type"), text("format"), column["priority"].as_i64().unwrap_or_default())
            })
            .collect();
        // Definitions of custom resources have their own printer.
        let columns = kinds::columns(target(resource));
        let ours: Vec<(&str, &str, &str, i64)> = columns
            .iter()
            .map(|column| (column.name, column.kind, column.format, i64::from(column.priority)))
            .collect();
        assert_eq!(ours, expected, "{resource}");
    }
}

#[test]
fn cells_are_what_kubectl_shows() {
    let meta = json!({"name": "n", "creationTimestamp": "2026-01-01T11:55:00Z"});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers":
        [{"name": "c", "image": "i"}, {"name": "d", "image": "j:1"}]}});
    let selector = json!({"matchLabels": {"a": "b"}});
    for (resource, object, cells) in [
        (
            "v1/configmaps",
            json!({"metadata": meta, "data": {"a": "b"}, "binaryData": {"c": ""}}),
            json!(["n", 2, "5m"]),
        ),
        (
            "v1/secrets",
            json!({"metadata": meta, "type": "Opaque", "data": {"a": "Yg=="}}),
            json!(["n", "Opaque", 1, "5m"]),
        ),
        ("v1/serviceaccounts", json!({"metadata": meta}), json!(["n", "5m"])),
        (
            "v1/namespaces",
            json!({"metadata": meta, "status": {"phase": "Active"}}),
            json!(["n", "Active", "5m"]),
        ),
        ("v1/limitranges", json!({"metadata": meta}), json!(["n", "2026-01-01T11:55:00Z"])),
        (
            "v1/nodes",
            json!({"metadata": {"name": "n", "creationTimestamp": "2025-12-25T12:00:00Z",
                    "labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/edge": ""}},
                "spec": {"unschedulable": true},
                "status": {"conditions": [{"type": "Ready", "status": "True"}],
                    "nodeInfo": {"kubeletVersion": "v1.36.2", "osImage": "Debian"},
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}),
            json!([
                "n",
                "Ready,SchedulingDisabled",
                "edge,worker",
                "7d",
                "v1.36.2",
                "10.0.0.1",
                "<none>",
                "Debian",
                "<unknown>",
                "<unknown>"
            ]),
        ),
        (
            "v1/nodes",
            json!({"metadata": meta}),
            json!([
                "n",
                "Unknown",
                "<none>",
                "5m",
                "",
                "<none>",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>"
            ]),
        ),
        (
            "v1/services",
            json!({"metadata": meta, "spec": {"type": "NodePort", "clusterIP": "10.96.1.2", "clusterIPs": ["10.96.1.2"],
                "selector": {"b": "2", "a": "1"},
                "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}}),
            json!(["n", "NodePort", "10.96.1.2", "<none>", "80:30080/TCP,53/UDP", "5m", "a=1,b=2"]),
        ),
        (
            "v1/services",
            json!({"metadata": meta, "spec": {"type": "LoadBalancer", "clusterIPs": ["10.96.1.2"]}}),
            json!(["n", "LoadBalancer", "10.96.1.2", "<pending>", "<none>", "5m", "<none>"]),
        ),
        (
            "v1/services",
            json!({"metadata": meta, "spec": {"type": "ExternalName", "externalName": "example.com"}}),
            json!(["n", "ExternalName", "<none>", "example.com", "<none>", "5m", "<none>"]),
        ),
        (
            "v1/endpoints",
            json!({"metadata": meta, "subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}, {"ip": "fd00::1"},
                {"ip": "10.0.0.4"}], "ports": [{"port": 80}]}]}),
            json!(["n", "10.0.0.1:80,10.0.0.2:80,[fd00::1]:80 + 1 more...", "5m"]),
        ),
        (
            "v1/events",
            json!({"metadata": meta, "type": "Normal", "reason": "Killing", "message": " text\n", "count": 3,
                "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
                "source": {"component": "kubelet", "host": "node"},
                "firstTimestamp": "2026-01-01T11:00:00Z", "lastTimestamp": "2026-01-01T11:59:30Z"}),
            json!(["30s", "Normal", "Killing", "pod/p", "spec", "kubelet, node", "text", "60m", 3, "n"]),
        ),
        (
            "events.k8s.io/v1/events",
            json!({"metadata": meta, "type": "Warning", "reason": "R", "note": "text", "eventTime": "2026-01-01T11:58:00.000000Z",
                "regarding": {"kind": "Node", "name": "x"}, "reportingController": "c", "reportingInstance": "i"}),
            json!(["2m", "Warning", "R", "node/x", "", "c, i", "text", "2m", 1, "n"]),
        ),
        (
            "v1/persistentvolumes",
            json!({"metadata": meta, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "ns", "name": "c"},
                "storageClassName": "fast", "volumeMode": "Filesystem"}, "status": {"phase": "Bound"}}),
            json!([
                "n",
                "1Gi",
                "RWO,RWX",
                "Retain",
                "Bound",
                "ns/c",
                "fast",
                "<unset>",
                "",
                "5m",
                "Filesystem"
            ]),
        ),
        (
            "v1/persistentvolumeclaims",
            json!({"metadata": {"name": "n", "creationTimestamp": "2026-01-01T11:55:00Z", "deletionTimestamp": "2026-01-01T11:59:00Z"},
                "spec": {"volumeName": "pv"}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"]}}),
            json!(["n", "Terminating", "pv", "1Gi", "RWO", "", "<unset>", "5m", "<unset>"]),
        ),
        (
            "v1/resourcequotas",
            json!({"metadata": meta, "status": {"hard": {"pods": "10", "limits.cpu": "2", "count/x": "1"}, "used": {"pods": "3"}}}),
            json!(["n", "count/x: 0/1, pods: 3/10", "limits.cpu: 0/2", "5m"]),
        ),
        (
            "apps/v1/deployments",
            json!({"metadata": meta, "spec": {"replicas": 3, "selector": selector, "template": template},
                "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
            json!(["n", "1/3", 2, 1, "5m", "c,d", "i,j:1", "a=b"]),
        ),
        (
            "apps/v1/replicasets",
            json!({"metadata": meta, "spec": {"replicas": 3, "selector": selector, "template": template}, "status": {"replicas": 2}}),
            json!(["n", 3, 2, 0, "5m", "c,d", "i,j:1", "a=b"]),
        ),
        (
            "v1/replicationcontrollers",
            json!({"metadata": meta, "spec": {"replicas": 1, "selector": {"a": "b"}, "template": template}}),
            json!(["n", 1, 0, 0, "5m", "c,d", "i,j:1", "a=b"]),
        ),
        (
            "apps/v1/statefulsets",
            json!({"metadata": meta, "spec": {"replicas": 2, "template": template}, "status": {"readyReplicas": 2}}),
            json!(["n", "2/2", "5m", "c,d", "i,j:1"]),
        ),
        (
            "apps/v1/daemonsets",
            json!({"metadata": meta, "spec": {"selector": selector, "template": template}, "status": {"desiredNumberScheduled": 4,
                "currentNumberScheduled": 3, "numberReady": 2, "updatedNumberScheduled": 1}}),
            json!(["n", 4, 3, 2, 1, 0, "<none>", "5m", "c,d", "i,j:1", "a=b"]),
        ),
        (
            "apps/v1/controllerrevisions",
            json!({"metadata": {"name": "n", "creationTimestamp": "2026-01-01T11:55:00Z", "ownerReferences":
                [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true}]}, "revision": 7}),
            json!(["n", "statefulset.apps/web", 7, "5m"]),
        ),
        (
            "batch/v1/jobs",
            json!({"metadata": meta, "spec": {"completions": 5, "selector": selector, "template": template},
                "status": {"succeeded": 5, "startTime": "2026-01-01T11:55:00Z", "completionTime": "2026-01-01T11:56:30Z",
                    "conditions": [{"type": "Complete", "status": "True"}]}}),
            json!(["n", "Complete", "5/5", "90s", "5m", "c,d", "i,j:1", "a=b"]),
        ),
        (
            "batch/v1/jobs",
            json!({"metadata": meta, "spec": {"parallelism": 3}}),
            json!(["n", "Running", "0/1 of 3", "", "5m", "", "", "<none>"]),
        ),
        (
            "batch/v1/cronjobs",
            json!({"metadata": meta, "spec": {"schedule": "* * * * *", "suspend": false, "jobTemplate": {"spec": {"template": template}}},
                "status": {"active": [{}], "lastScheduleTime": "2026-01-01T11:59:00Z"}}),
            json!(["n", "* * * * *", "<none>", "False", 1, "60s", "5m", "c,d", "i,j:1", "<none>"]),
        ),
        (
            "autoscaling/v2/horizontalpodautoscalers",
            json!({"metadata": meta, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 5,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]},
                "status": {"currentReplicas": 2}}),
            json!(["n", "Deployment/d", "cpu: <unknown>/80%", "1", 5, 2, "5m"]),
        ),
        (
            "autoscaling/v1/horizontalpodautoscalers",
            json!({"metadata": meta, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 5,
                "targetCPUUtilizationPercentage": 70}}),
            json!(["n", "Deployment/d", "cpu: <unknown>/70%", "<unset>", 5, 0, "5m"]),
        ),
        (
            "policy/v1/poddisruptionbudgets",
            json!({"metadata": meta, "spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}),
            json!(["n", "50%", "N/A", 1, "5m"]),
        ),
        (
            "certificates.k8s.io/v1/certificatesigningrequests",
            json!({"metadata": meta, "spec": {"signerName": "example.com/s", "username": "bob", "expirationSeconds": 3600},
                "status": {"conditions": [{"type": "Approved"}], "certificate": "QQ=="}}),
            json!(["n", "5m", "example.com/s", "bob", "60m", "Approved,Issued"]),
        ),
        (
            "discovery.k8s.io/v1/endpointslices",
            json!({"metadata": meta, "addressType": "IPv4", "ports": [{"port": 80}, {"port": 443}],
                "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]}),
            json!(["n", "IPv4", "80,443", "10.0.0.1,10.0.0.2", "5m"]),
        ),
        (
            "networking.k8s.io/v1/ingresses",
            json!({"metadata": meta, "spec": {"ingressClassName": "c", "rules": [{"host": "a.example.com"}], "tls": [{}]},
                "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}}),
            json!(["n", "c", "a.example.com", "10.0.0.1", "80, 443", "5m"]),
        ),
        (
            "networking.k8s.io/v1/networkpolicies",
            json!({"metadata": meta, "spec": {"podSelector": {}}}),
            json!(["n", "<none>", "5m"]),
        ),
        (
            "rbac.authorization.k8s.io/v1/rolebindings",
            json!({"metadata": meta, "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"},
                {"kind": "Group", "name": "g"}, {"kind": "Group", "name": "h"}, {"kind": "ServiceAccount", "name": "t"},
                {"kind": "ServiceAccount", "name": "s", "namespace": "ns"}]}),
            json!(["n", "Role/r", "5m", "u", "g, h", "/t, ns/s"]),
        ),
        (
            "networking.k8s.io/v1/ingresses",
            json!({"metadata": meta, "spec": {"rules": [{}, {"host": "a"}, {"host": "b"}, {"host": "c"}]}}),
            json!(["n", "<none>", "a,b,c", "", "80", "5m"]),
        ),
        (
            "networking.k8s.io/v1/ingresses",
            json!({"metadata": meta, "spec": {"rules": [{"host": "a"}, {"host": "b"}, {"host": "c"}, {}]}}),
            json!(["n", "<none>", "a,b,c + 1 more...", "", "80", "5m"]),
        ),
        (
            "v1/endpoints",
            json!({"metadata": meta, "subsets": [{"notReadyAddresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}),
            json!(["n", "", "5m"]),
        ),
        (
            "storage.k8s.io/v1/storageclasses",
            json!({"metadata": {"name": "n", "creationTimestamp": "2026-01-01T11:55:00Z",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                "provisioner": "example.com/p", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
            json!(["n (default)", "example.com/p", "Delete", "Immediate", false, "5m"]),
        ),
        (
            "coordination.k8s.io/v1/leases",
            json!({"metadata": meta, "spec": {"holderIdentity": "me"}}),
            json!(["n", "me", "5m"]),
        ),
        (
            "scheduling.k8s.io/v1/priorityclasses",
            json!({"metadata": meta, "value": 7, "preemptionPolicy": "Never"}),
            json!(["n", 7, false, "5m", "Never"]),
        ),
        (
            "apiregistration.k8s.io/v1/apiservices",
            json!({"metadata": meta, "status": {"conditions": [{"type": "Available", "status": "False", "reason": "Why"}]}}),
            json!(["n", "Local", "False (Why)", "5m"]),
        ),
    ] {
        assert_eq!(
            Value::Array(kinds::cells(target(resource), &object, now())),
            cells,
            "{resource}: {object}"
        );
    }
}

#[test]
fn the_state_of_a_pod_is_that_of_its_containers() {
    let status = |spec: Value, status: Value, metadata: Value| {
        let mut metadata = metadata;
        metadata["name"] = "n".into();
        metadata["creationTimestamp"] = "2026-01-01T11:55:00Z".into();
        json!({"metadata": metadata, "spec": spec, "status": status})
    };
    let one = json!({"containers": [{"name": "c"}]});
    let two = json!({"containers": [{"name": "c"}, {"name": "d"}]});
    let init = json!({"containers": [{"name": "c"}], "initContainers": [{"name": "a"}, {"name": "b"}]});
    let sidecar =
        json!({"containers": [{"name": "c"}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]});
    let running = json!({"name": "c", "ready": true, "restartCount": 0, "state": {"running": {}}});
    for (object, ready, state, restarts) in [
        (status(one.clone(), json!({"phase": "Pending"}), json!({})), "0/1", "Pending", "0"),
        (
            status(one.clone(), json!({"phase": "Running", "containerStatuses": [running]}), json!({})),
            "1/1",
            "Running",
            "0",
        ),
        (
            status(
                one.clone(),
                json!({"phase": "Running", "containerStatuses": [running]}),
                json!({"deletionTimestamp": "2026-01-01T12:00:00Z"}),
            ),
            "1/1",
            "Terminating",
            "0",
        ),
        (
            status(
                one.clone(),
                json!({"phase": "Succeeded"}),
                json!({"deletionTimestamp": "2026-01-01T12:00:00Z"}),
            ),
            "0/1",
            "Succeeded",
            "0",
        ),
        (
            status(
                one.clone(),
                json!({"phase": "Running", "reason": "NodeLost"}),
                json!({"deletionTimestamp": "2026-01-01T12:00:00Z"}),
            ),
            "0/1",
            "Unknown",
            "0",
        ),
        (
            status(
                one.clone(),
                json!({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 4,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"finishedAt": "2026-01-01T11:59:20Z"}}}]}),
                json!({}),
            ),
            "0/1",
            "CrashLoopBackOff",
            "4 (40s ago)",
        ),
        (
            status(
                one.clone(),
                json!({"phase": "Failed", "containerStatuses": [{"name": "c",
                "state": {"terminated": {"exitCode": 3}}}]}),
                json!({}),
            ),
            "0/1",
            "ExitCode:3",
            "0",
        ),
        (
            status(
                one.clone(),
                json!({"phase": "Failed", "containerStatuses": [{"name": "c",
                "state": {"terminated": {"signal": 9}}}]}),
                json!({}),
            ),
            "0/1",
            "Signal:9",
            "0",
        ),
        (
            status(
                two,
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [
                {"name": "d", "state": {"terminated": {"reason": "Completed", "exitCode": 0}}}, running]}),
                json!({}),
            ),
            "1/2",
            "Running",
            "0",
        ),
        (
            status(
                init.clone(),
                json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "a", "state": {"terminated": {"exitCode": 0}}}, {"name": "b", "state": {"running": {}}}]}),
                json!({}),
            ),
            "0/1",
            "Init:1/2",
            "0",
        ),
        (
            status(
                init.clone(),
                json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "a", "restartCount": 2, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
                json!({}),
            ),
            "0/1",
            "Init:Error",
            "2",
        ),
        (
            status(
                init,
                json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "a", "state": {"waiting": {"reason": "ErrImagePull"}}}]}),
                json!({}),
            ),
            "0/1",
            "Init:ErrImagePull",
            "0",
        ),
        (
            status(
                sidecar,
                json!({"phase": "Running", "containerStatuses": [running], "initContainerStatuses": [
                {"name": "s", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}}}]}),
                json!({}),
            ),
            "2/2",
            "Running",
            "1",
        ),
        (
            status(
                one,
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
                json!({}),
            ),
            "0/1",
            "SchedulingGated",
            "0",
        ),
    ] {
        let cells = kinds::cells(target("v1/pods"), &object, now());
        let expected = json!(["n", ready, state, restarts, "5m", "<none>", "<none>", "<none>", "<none>"]);
        assert_eq!(Value::Array(cells), expected, "{object}");
    }
}

#[test]
fn durations_are_told_in_one_or_two_units() {
    for (seconds, text) in [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86_400, "8d"),
        (2 * 365 * 86_400, "2y"),
        (2 * 365 * 86_400 + 86_400, "2y1d"),
        (8 * 365 * 86_400 + 86_400, "8y"),
    ] {
        assert_eq!(kinds::human_duration(seconds), text, "{seconds}");
    }
}

#[test]
fn rows_of_finished_pods_say_so() {
    let pod = |phase: &str| json!({"status": {"phase": phase}});
    assert_eq!(
        kinds::row_conditions(target("v1/pods"), &pod("Failed")),
        [json!({"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."})]
    );
    assert_eq!(kinds::row_conditions(target("v1/pods"), &pod("Running")), Vec::<Value>::new());
}
