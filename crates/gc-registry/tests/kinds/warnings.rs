//! Tests warnings to clients.

use gc_registry::kinds::warnings;
use serde_json::{Value, json};

use crate::target;

#[track_caller]
fn check(resource: &str, new: &Value, old: Option<&Value>, want: &[&str]) {
    assert_eq!(warnings(target(resource), new, old), want, "{resource} {new}");
}

/// Returns a pod with these members in its spec.
fn pod(spec: &Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": spec})
}

#[test]
fn pods_and_what_they_contain() {
    for (spec, want) in [
        (
            json!({"nodeSelector": {"beta.kubernetes.io/os": "linux", "node-role.kubernetes.io/master": ""}}),
            &[
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "spec.nodeSelector[node-role.kubernetes.io/master]: use \"node-role.kubernetes.io/control-plane\" instead",
            ][..],
        ),
        (
            json!({"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["Bad!"]}]}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {
                    "matchExpressions": [{"key": "k", "operator": "In", "values": ["v", "Bad!"]}]}}]}}}),
            &[
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].\
                 matchExpressions[0].key: beta.kubernetes.io/arch is deprecated since v1.14; use \"kubernetes.io/arch\" \
                 instead",
                "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.\
                 matchExpressions[0].values[1]: Bad! is invalid, a valid label must be an empty string or consist of \
                 alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
                 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
                 '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ],
        ),
        (
            json!({"topologySpreadConstraints": [{"topologyKey": "failure-domain.beta.kubernetes.io/zone"}]}),
            &[
                "spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated \
                 since v1.17; use \"topology.kubernetes.io/zone\" instead",
                "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
            ],
        ),
        (
            json!({"imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}]}),
            &[
                "spec.imagePullSecrets[1].name: duplicate name \"a\"",
                "spec.imagePullSecrets[2].name: invalid empty name \"\"",
            ],
        ),
        (
            json!({"hostAliases": [{"ip": "2001:DB8::1"}, {"ip": "2001:DB8::1"}]}),
            &[
                "spec.hostAliases[1].ip: duplicate ip \"2001:DB8::1\"",
                "spec.hostAliases[0].ip: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format \
                 (\"2001:db8::1\")",
                "spec.hostAliases[1].ip: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format \
                 (\"2001:db8::1\")",
            ],
        ),
        (
            json!({"terminationGracePeriodSeconds": -1}),
            &[
                "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
            ],
        ),
        (
            json!({"overhead": {"memory": "1500m"}, "containers": [{"name": "c", "resources":
                {"limits": {"memory": "1", "ephemeral-storage": "100m"}, "requests": {"memory": "2500m"}}}]}),
            &[
                "spec.overhead[memory]: fractional byte value \"1500m\" is invalid, must be an integer",
                "spec.containers[0].resources.requests[memory]: fractional byte value \"2500m\" is invalid, must be an \
                 integer",
                "spec.containers[0].resources.limits[ephemeral-storage]: fractional byte value \"100m\" is invalid, must \
                 be an integer",
            ],
        ),
        (
            json!({"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"},
                {"name": "A", "value": "3"}]}]}),
            &[
                "spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
            ],
        ),
        (
            json!({"containers": [
                {"name": "a", "ports": [{"name": "x", "containerPort": 80, "protocol": "TCP", "hostIP": "10.0.0.1"}]},
                {"name": "b", "ports": [{"name": "x", "containerPort": 80, "protocol": "TCP", "hostPort": 8080}]}]}),
            &[
                "spec.containers[0].ports[0]: hostIP set without hostPort: {Name:x HostPort:0 ContainerPort:80 \
                 Protocol:TCP HostIP:10.0.0.1}",
                "spec.containers[1].ports[0]: overlapping port definition with spec.containers[0].ports[0]",
                "spec.containers[1].ports[0]: duplicate port name \"x\" with spec.containers[0].ports[0], services and \
                 probes that select ports by name will use spec.containers[0].ports[0]",
            ],
        ),
        (
            json!({"volumes": [
                {"name": "v", "secret": {"secretName": "s", "items": [{"path": "a/"}, {"path": "a/b"}]}},
                {"name": "w", "projected": {"sources": [{"configMap": {"name": "c", "items": [{"path": "t"}]}},
                    {"serviceAccountToken": {"path": "t"}}, {}]}},
                {"name": "x", "rbd": {}},
                {"name": "y", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests":
                    {"storage": "100m"}}}}}}]}),
            &[
                "spec.volumes[2].rbd: deprecated in v1.28, non-functional in v1.31+",
                "spec.volumes[3].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: fractional byte value \
                 \"100m\" is invalid, must be an integer",
                "volume \"v\" (Secret \"s\"): overlapping paths: \"a/b\" with \"a\"",
                "volume \"w\" (Projected) has no sources provided",
                "volume \"w\" (Projected): overlapping paths: \"t\" (ServiceAccountToken) with \"t\" (ConfigMap \"c\")",
            ],
        ),
    ] {
        check("v1/pods", &pod(&spec), None, want);
        check("v1/pods", &pod(&spec), Some(&pod(&spec)), &[]);
    }
}

#[test]
fn annotations_of_pods_and_templates() {
    let annotated = json!({"metadata": {"name": "p", "annotations": {
        "seccomp.security.alpha.kubernetes.io/pod": "x", "container.apparmor.security.beta.kubernetes.io/c": "x"}},
        "spec": {"containers": [{"name": "c"}]}});
    let seccomp = "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the \
                   \"seccompProfile\" field instead";
    check("v1/pods", &annotated, None, &[seccomp]);
    let armor = "spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since \
                 v1.30; use the \"appArmorProfile\" field instead";
    let daemons = json!({"metadata": {"name": "d"}, "spec": {"template": annotated}});
    check("apps/v1/daemonsets", &daemons, None, &[&format!("spec.template.{seccomp}"), armor]);
}

#[test]
fn a_workload_warns_again_when_its_generation_rises() {
    let spec =
        json!({"template": {"spec": {"terminationGracePeriodSeconds": -1}}, "revisionHistoryLimit": -1});
    let of = |generation: i64| json!({"metadata": {"name": "a.b", "generation": generation}, "spec": spec});
    let negative = "spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will \
                    be treated as 1";
    let label = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
                 label is recommended: [must not contain dots]";
    check("apps/v1/deployments", &of(1), None, &[label, negative]);
    check("apps/v1/deployments", &of(2), Some(&of(1)), &[negative]);
    check("apps/v1/deployments", &of(2), Some(&of(2)), &[]);
    let limit = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";
    check("apps/v1/statefulsets", &of(1), None, &[negative, limit]);
}

#[test]
fn other_kinds() {
    for (resource, object, want) in [
        (
            "v1/services",
            json!({"spec": {"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "sessionAffinity": "ClientIP",
                "loadBalancerIP": "10.0.0.1", "trafficDistribution": "PreferClose"}}),
            &[
                "spec.loadBalancerIP is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
                "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
            ][..],
        ),
        (
            "v1/services",
            json!({"spec": {"type": "ExternalName", "externalName": "a", "externalIPs": ["10.0.0.1"]}}),
            &["spec.externalIPs is ignored when spec.type is \"ExternalName\""],
        ),
        (
            "v1/nodes",
            json!({"spec": {"podCIDRs": ["2001:DB8::/64"]}}),
            &["spec.podCIDRs[0]: IPv6 CIDR value \"2001:DB8::/64\" should be in RFC 5952 canonical format \
               (\"2001:db8::/64\")"],
        ),
        (
            "networking.k8s.io/v1/networkpolicies",
            json!({"spec": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.1/8", "except": ["10.1.0.0/16"]}}]}]}}),
            &[
                "spec.egress[0].to[0].ipBlock.cidr: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \
               \"10.0.0.0/8\" or \"10.0.0.1/32\"?)",
            ],
        ),
        (
            "discovery.k8s.io/v1/endpointslices",
            json!({"addressType": "IPv6", "endpoints": [{"addresses": ["::1", "FE80::1"]}]}),
            &[
                "endpoints[0].addresses[1]: IPv6 address \"FE80::1\" should be in RFC 5952 canonical format (\"fe80::1\")",
            ],
        ),
        (
            "node.k8s.io/v1/runtimeclasses",
            json!({"scheduling": {"nodeSelector": {"beta.kubernetes.io/os": "x"}}}),
            &["scheduling.nodeSelector: deprecated since v1.14; use \"kubernetes.io/os\" instead"],
        ),
        (
            "v1/persistentvolumes",
            json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "",
                "volume.beta.kubernetes.io/mount-options": ""}}, "spec": {"persistentVolumeReclaimPolicy": "Recycle"}}),
            &[
                "metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use \
                 \"storageClassName\" attribute instead",
                "metadata.annotations[volume.beta.kubernetes.io/mount-options]: deprecated since v1.31; use \
                 \"mountOptions\" attribute instead",
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
                 approach is to use dynamic provisioning.",
            ],
        ),
        (
            "networking.k8s.io/v1/ingresses",
            json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "x"}}}),
            &[
                "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead",
            ],
        ),
    ] {
        check(resource, &object, None, want);
    }
}
