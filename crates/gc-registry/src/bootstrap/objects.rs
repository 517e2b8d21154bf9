//! Objects of every cluster except its RBAC policy and flow control.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{BootstrapObject, Reconcile, ServerFacts};
use crate::registry::services::ServiceRanges;

/// The two system priority classes, with their values.
const SYSTEM_PRIORITIES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

/// APIs that the server itself serves: version, group, priority of the group and of the version.
const APIS: [(&str, &str, u32, u32); 21] = [
    ("v1", "", 18_000, 1),
    ("v1", "admissionregistration.k8s.io", 16_700, 15),
    ("v1", "apiextensions.k8s.io", 16_700, 15),
    ("v1", "apps", 17_800, 15),
    ("v1", "authentication.k8s.io", 17_700, 15),
    ("v1", "authorization.k8s.io", 17_600, 15),
    ("v1", "autoscaling", 17_500, 15),
    ("v2", "autoscaling", 17_500, 30),
    ("v1", "batch", 17_400, 15),
    ("v1", "certificates.k8s.io", 17_300, 15),
    ("v1", "coordination.k8s.io", 16_500, 15),
    ("v1", "discovery.k8s.io", 16_200, 15),
    ("v1", "events.k8s.io", 17_750, 15),
    ("v1", "flowcontrol.apiserver.k8s.io", 16_100, 21),
    ("v1", "networking.k8s.io", 17_200, 15),
    ("v1", "node.k8s.io", 16_300, 15),
    ("v1", "policy", 17_100, 15),
    ("v1", "rbac.authorization.k8s.io", 17_000, 15),
    ("v1", "resource.k8s.io", 16_200, 20),
    ("v1", "scheduling.k8s.io", 16_600, 15),
    ("v1", "storage.k8s.io", 16_800, 15),
];

/// Returns the objects.
pub(super) fn objects(
    server: &ServerFacts,
    ranges: &ServiceRanges,
    now: jiff::Timestamp,
) -> Vec<BootstrapObject> {
    let mut found = Vec::new();
    for name in ["kube-system", "kube-public", "kube-node-lease", "default"] {
        found.push(BootstrapObject::new("", "v1", "namespaces", "", json!({"metadata": {"name": name}})));
    }
    for (name, value, description) in SYSTEM_PRIORITIES {
        let class = json!({"metadata": {"name": name}, "value": value, "description": description,
            "preemptionPolicy": "PreemptLowerPriority"});
        found.push(BootstrapObject::new("scheduling.k8s.io", "v1", "priorityclasses", "", class));
    }
    found.extend(APIS.iter().map(|(version, group, group_priority, priority)| {
        let service = json!({"metadata": {"name": format!("{version}.{group}"),
                "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}},
            "spec": {"group": group, "version": version,
                "groupPriorityMinimum": group_priority, "versionPriority": priority}});
        BootstrapObject::new("apiregistration.k8s.io", "v1", "apiservices", "", service)
    }));
    found.extend(config_maps(server, now));
    found.push(BootstrapObject {
        status: Some(json!({"conditions": [{"type": "Ready", "status": "True", "reason": "",
            "message": "Kubernetes default Service CIDR is ready", "lastTransitionTime": time(now)}]})),
        ..BootstrapObject::new(
            "networking.k8s.io",
            "v1",
            "servicecidrs",
            "",
            json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [ranges.addresses()]}}),
        )
    });
    found.extend(service(server, ranges));
    found
}

/// Those of them that follow the server.
pub(super) fn following(
    server: &ServerFacts,
    ranges: &ServiceRanges,
    now: jiff::Timestamp,
) -> Vec<BootstrapObject> {
    let mut found = config_maps(server, now);
    found.extend(service(server, ranges));
    found.retain(|wanted| matches!(wanted.reconcile, Reconcile::Members(_)));
    found
}

fn time(now: jiff::Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn config_maps(server: &ServerFacts, now: jiff::Timestamp) -> Vec<BootstrapObject> {
    let map = |name: &str, data: Value| {
        BootstrapObject::new(
            "",
            "v1",
            "configmaps",
            "kube-system",
            json!({"metadata": {"name": name}, "data": data}),
        )
    };
    let since = now.strftime("%Y-%m-%d").to_string();
    let tracking = map("kube-apiserver-legacy-service-account-token-tracking", json!({"since": since}));
    let mut found = vec![tracking];
    if !server.client_ca.is_empty() {
        let mut data = json!({"client-ca-file": server.client_ca});
        let proxy = &server.front_proxy;
        if !proxy.ca.is_empty() {
            let list = |texts: &[String]| Value::from(json!(texts).to_string());
            data["requestheader-client-ca-file"] = proxy.ca.as_str().into();
            data["requestheader-allowed-names"] = list(&proxy.names);
            data["requestheader-username-headers"] = list(&proxy.user_headers);
            data["requestheader-uid-headers"] = list(&proxy.uid_headers);
            data["requestheader-group-headers"] = list(&proxy.group_headers);
            data["requestheader-extra-headers-prefix"] = list(&proxy.extra_prefixes);
        }
        let authentication = map("extension-apiserver-authentication", data);
        found.push(BootstrapObject { reconcile: Reconcile::Members(&["data"]), ..authentication });
    }
    found
}

/// Returns the Service `kubernetes`, and its endpoints.
fn service(server: &ServerFacts, ranges: &ServiceRanges) -> Vec<BootstrapObject> {
    let port = if server.port == 0 { 443 } else { server.port };
    let name = "kubernetes";
    let service = json!({
        "metadata": {"name": name, "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": ranges.api_address().to_string(), "type": "ClusterIP",
            "sessionAffinity": "None", "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}]}});
    let mut found = vec![BootstrapObject::new("", "v1", "services", "default", service)];
    let Some(address) = server.address.filter(|address| !address.is_loopback() && !address.is_unspecified())
    else {
        return found;
    };
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let endpoints = json!({
        "metadata": {"name": name, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": address.to_string()}], "ports": ports}]});
    found.push(BootstrapObject {
        reconcile: Reconcile::Members(&["subsets"]),
        ..BootstrapObject::new("", "v1", "endpoints", "default", endpoints)
    });
    let family = if matches!(address, IpAddr::V4(_)) { "IPv4" } else { "IPv6" };
    let slice = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": family, "ports": ports,
        "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": true}}]});
    found.push(BootstrapObject {
        reconcile: Reconcile::Members(&["endpoints", "ports"]),
        ..BootstrapObject::new("discovery.k8s.io", "v1", "endpointslices", "default", slice)
    });
    found
}
