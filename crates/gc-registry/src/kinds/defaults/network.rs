//! Services and what is around them.

use serde_json::{Value, json};

use super::{Members, child, existing, fill, fill_absent, items};

pub(super) fn service(members: &mut Members) {
    let Some(spec) = child(members, "spec") else { return };
    fill(spec, "sessionAffinity", "None");
    match spec.get("sessionAffinity").and_then(Value::as_str) {
        Some("None") => {
            spec.remove("sessionAffinityConfig");
        }
        Some("ClientIP") => {
            if let Some(client) =
                child(spec, "sessionAffinityConfig").and_then(|config| child(config, "clientIP"))
            {
                fill_absent(client, "timeoutSeconds", 10800);
            }
        }
        _ => {}
    }
    fill(spec, "type", "ClusterIP");
    for port in items(spec, "ports") {
        fill(port, "protocol", "TCP");
        let unset = match port.get("targetPort") {
            None | Some(Value::Null) => true,
            Some(Value::String(name)) => name.is_empty(),
            Some(number) => number.as_i64() == Some(0),
        };
        if unset && let Some(number) = port.get("port").cloned() {
            port.insert("targetPort".into(), number);
        }
    }
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let external = matches!(kind.as_str(), "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && spec.get("externalIPs").is_some());
    if external {
        fill(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        fill_absent(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        fill_absent(spec, "allocateLoadBalancerNodePorts", true);
    }
    let Some(status) = child(members, "status") else { return };
    let Some(balancer) = child(status, "loadBalancer") else { return };
    if kind == "LoadBalancer" {
        for ingress in items(balancer, "ingress") {
            if ingress.get("ip").is_some() {
                fill_absent(ingress, "ipMode", "VIP");
            }
        }
    }
}

pub(super) fn endpoints(members: &mut Members) {
    for subset in items(members, "subsets") {
        for port in items(subset, "ports") {
            fill(port, "protocol", "TCP");
        }
    }
}

pub(super) fn endpoint_slice(members: &mut Members) {
    for port in items(members, "ports") {
        fill_absent(port, "name", "");
        fill_absent(port, "protocol", "TCP");
    }
    for endpoint in items(members, "endpoints") {
        child(endpoint, "conditions");
    }
    // Both lists are always written.
    fill_absent(members, "endpoints", Value::Null);
    fill_absent(members, "ports", Value::Null);
}

pub(super) fn ingress(members: &mut Members) {
    if let Some(spec) = child(members, "spec") {
        for rule in items(spec, "rules") {
            if let Some(http) = existing(rule, "http") {
                for path in items(http, "paths") {
                    child(path, "backend");
                }
            }
        }
    }
    if let Some(status) = child(members, "status") {
        child(status, "loadBalancer");
    }
}

pub(super) fn ingress_class(members: &mut Members) {
    if let Some(parameters) = existing(members, "spec").and_then(|spec| existing(spec, "parameters")) {
        fill_absent(parameters, "scope", "Cluster");
    }
}

pub(super) fn network_policy(members: &mut Members) {
    let Some(spec) = child(members, "spec") else { return };
    child(spec, "podSelector");
    if spec.get("policyTypes").is_none() {
        let types =
            if spec.get("egress").is_some() { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        spec.insert("policyTypes".into(), types);
    }
    for direction in ["ingress", "egress"] {
        for rule in items(spec, direction) {
            for port in items(rule, "ports") {
                fill_absent(port, "protocol", "TCP");
            }
        }
    }
}
