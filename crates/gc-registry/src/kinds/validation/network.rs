//! Services and what is around them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use super::names::{label, label_1035, labels, port_name, port_number, selector, subdomain};
use super::report::Report;
use crate::kinds::access::{at, integer, list, text};

/// Most endpoints, and most addresses of an endpoint, in a slice.
const ENDPOINTS: usize = 1000;
const ADDRESSES: usize = 100;
/// Most ports of a slice.
const SLICE_PORTS: usize = 20_000;

const NOT_AN_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

fn port(value: Option<&Value>, field: &str, report: &mut Report) {
    let number = value.and_then(Value::as_i64).unwrap_or_default();
    for problem in port_number(number) {
        report.invalid(field, Some(&number.into()), &problem);
    }
}

pub(super) fn service(object: &Value, report: &mut Report) {
    let kind = text(object, &["spec", "type"]);
    let headless = text(object, &["spec", "clusterIP"]) == "None";
    report.one_of(
        "spec.type",
        at(object, &["spec", "type"]),
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    let ports = list(object, &["spec", "ports"]);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        report.required("spec.ports", "");
    }
    if kind == "LoadBalancer" && headless {
        report.invalid_text(
            "spec.clusterIPs[0]",
            "None",
            "may not be set to 'None' for LoadBalancer services",
        );
    }
    if kind == "NodePort" && headless {
        report.invalid_text("spec.clusterIPs[0]", "None", "may not be set to 'None' for NodePort services");
    }
    if kind == "ExternalName" {
        let name = text(object, &["spec", "externalName"]);
        let trimmed = name.strip_suffix('.').unwrap_or(name);
        if name.is_empty() {
            report.required("spec.externalName", "");
        } else {
            report.each("spec.externalName", name, subdomain(trimmed));
        }
        if !text(object, &["spec", "clusterIP"]).is_empty() {
            report.forbidden("spec.clusterIPs", "may not be set when `type` is 'ExternalName'");
        }
    }
    service_ports(ports, kind, report);
    labels(at(object, &["spec", "selector"]), "spec.selector", report);
    report.one_of("spec.sessionAffinity", at(object, &["spec", "sessionAffinity"]), &["ClientIP", "None"]);
    if let Some(seconds) = integer(object, &["spec", "sessionAffinityConfig", "clientIP", "timeoutSeconds"])
        && !(1..=86_400).contains(&seconds)
    {
        report.invalid(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            Some(&seconds.into()),
            "must be greater than 0 and less than 86400",
        );
    }
    for (index, value) in list(object, &["spec", "clusterIPs"]).iter().enumerate() {
        address(value, "None", &format!("spec.clusterIPs[{index}]"), report);
    }
    for (index, value) in list(object, &["spec", "externalIPs"]).iter().enumerate() {
        address(value, "", &format!("spec.externalIPs[{index}]"), report);
    }
    report.one_of_if_set(
        "spec.internalTrafficPolicy",
        at(object, &["spec", "internalTrafficPolicy"]),
        &["Cluster", "Local"],
    );
    report.one_of_if_set(
        "spec.externalTrafficPolicy",
        at(object, &["spec", "externalTrafficPolicy"]),
        &["Cluster", "Local"],
    );
}

fn address(value: &Value, allowed: &str, field: &str, report: &mut Report) {
    let text = value.as_str().unwrap_or_default();
    if text != allowed && text.parse::<IpAddr>().is_err() {
        report.invalid(field, Some(value), NOT_AN_ADDRESS);
    }
}

fn service_ports(ports: &[Value], kind: &str, report: &mut Report) {
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for (index, value) in ports.iter().enumerate() {
        let field = format!("spec.ports[{index}]");
        let name = text(value, &["name"]);
        if name.is_empty() {
            if ports.len() > 1 {
                report.required(&format!("{field}.name"), "");
            }
        } else {
            report.each(&format!("{field}.name"), name, label(name));
            if !names.insert(name) {
                report.duplicate(&format!("{field}.name"), &name.into());
            }
        }
        port(at(value, &["port"]), &format!("{field}.port"), report);
        let protocol = text(value, &["protocol"]);
        report.one_of(&format!("{field}.protocol"), value.get("protocol"), &["SCTP", "TCP", "UDP"]);
        match at(value, &["targetPort"]) {
            Some(Value::String(name)) => report.each(&format!("{field}.targetPort"), name, port_name(name)),
            Some(number) => port(Some(number), &format!("{field}.targetPort"), report),
            None => {}
        }
        if !numbers.insert((integer(value, &["port"]), protocol)) {
            let shown = serde_json::json!({"port": at(value, &["port"]), "protocol": protocol});
            report.duplicate(&field, &shown);
        }
        if integer(value, &["nodePort"]).is_some_and(|node| node != 0) && kind == "ClusterIP" {
            report.forbidden(&format!("{field}.nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
}

pub(super) fn endpoints(object: &Value, report: &mut Report) {
    for (index, subset) in list(object, &["subsets"]).iter().enumerate() {
        let field = format!("subsets[{index}]");
        if list(subset, &["addresses"]).is_empty() && list(subset, &["notReadyAddresses"]).is_empty() {
            report.required(&field, "must specify `addresses` or `notReadyAddresses`");
        }
        for key in ["addresses", "notReadyAddresses"] {
            for (at_index, value) in list(subset, &[key]).iter().enumerate() {
                let ip = value.get("ip").cloned().unwrap_or_else(|| "".into());
                address(&ip, "-", &format!("{field}.{key}[{at_index}].ip"), report);
            }
        }
        for (at_index, value) in list(subset, &["ports"]).iter().enumerate() {
            port(at(value, &["port"]), &format!("{field}.ports[{at_index}].port"), report);
        }
    }
}

pub(super) fn endpoint_slice(object: &Value, report: &mut Report) {
    let kind = text(object, &["addressType"]);
    if kind.is_empty() {
        report.required("addressType", "");
    } else {
        report.one_of("addressType", at(object, &["addressType"]), &["FQDN", "IPv4", "IPv6"]);
    }
    let endpoints = list(object, &["endpoints"]);
    if endpoints.len() > ENDPOINTS {
        report.too_many("endpoints", endpoints.len(), ENDPOINTS);
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let addresses = list(endpoint, &["addresses"]);
        let field = format!("endpoints[{index}].addresses");
        if addresses.is_empty() {
            report.required(&field, "must contain at least 1 address");
        } else if addresses.len() > ADDRESSES {
            report.too_many(&field, addresses.len(), ADDRESSES);
        }
        for (at_index, value) in addresses.iter().enumerate().take(ADDRESSES) {
            slice_address(value, kind, &format!("{field}[{at_index}]"), report);
        }
        let host = text(endpoint, &["hostname"]);
        if !host.is_empty() {
            report.each(&format!("endpoints[{index}].hostname"), host, label(host));
        }
    }
    slice_ports(list(object, &["ports"]), report);
}

fn slice_address(value: &Value, kind: &str, field: &str, report: &mut Report) {
    let text = value.as_str().unwrap_or_default();
    match kind {
        "IPv4" if text.parse::<Ipv4Addr>().is_err() => {
            report.invalid(field, Some(value), "must be an IPv4 address");
        }
        "IPv6" if text.parse::<Ipv6Addr>().is_err() => {
            report.invalid(field, Some(value), "must be an IPv6 address");
        }
        "FQDN" => report.each(field, text, subdomain(text)),
        _ => {}
    }
}

fn slice_ports(ports: &[Value], report: &mut Report) {
    if ports.len() > SLICE_PORTS {
        report.too_many("ports", ports.len(), SLICE_PORTS);
        return;
    }
    let mut names = BTreeSet::new();
    for (index, value) in ports.iter().enumerate() {
        let name = text(value, &["name"]);
        if !name.is_empty() {
            report.each(&format!("ports[{index}].name"), name, label(name));
        }
        if !names.insert(name) {
            report.duplicate(&format!("ports[{index}].name"), &name.into());
        }
        report.one_of(&format!("ports[{index}].protocol"), value.get("protocol"), &["SCTP", "TCP", "UDP"]);
        if at(value, &["port"]).is_some() {
            port(at(value, &["port"]), &format!("ports[{index}].port"), report);
        }
    }
}

pub(super) fn ingress(object: &Value, report: &mut Report) {
    let rules = list(object, &["spec", "rules"]);
    let backend_of_all = at(object, &["spec", "defaultBackend"]);
    if rules.is_empty() && backend_of_all.is_none() {
        report.invalid(
            "spec",
            at(object, &["spec", "rules"]),
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if let Some(backend_of_all) = backend_of_all {
        backend(backend_of_all, "spec.defaultBackend", report);
    }
    for (index, rule) in rules.iter().enumerate() {
        let host = text(rule, &["host"]);
        let field = format!("spec.rules[{index}]");
        if !host.is_empty() {
            if host.parse::<IpAddr>().is_ok() {
                report.invalid_text(&format!("{field}.host"), host, "must be a DNS name, not an IP address");
            } else {
                let name = host.strip_prefix("*.").unwrap_or(host);
                report.each(&format!("{field}.host"), host, subdomain(name));
            }
        }
        let Some(http) = at(rule, &["http"]) else { continue };
        let paths = list(http, &["paths"]);
        if paths.is_empty() {
            report.required(&format!("{field}.http.paths"), "");
        }
        for (at_index, path) in paths.iter().enumerate() {
            let field = format!("{field}.http.paths[{at_index}]");
            let kind = at(path, &["pathType"]);
            if kind.is_none() {
                report.required(&format!("{field}.pathType"), "pathType must be specified");
            }
            report.one_of_if_set(
                &format!("{field}.pathType"),
                kind,
                &["Exact", "ImplementationSpecific", "Prefix"],
            );
            let prefix = text(path, &["path"]);
            if matches!(text(path, &["pathType"]), "Exact" | "Prefix") && !prefix.starts_with('/') {
                report.invalid_text(&format!("{field}.path"), prefix, "must be an absolute path");
            }
            backend(path.get("backend").unwrap_or(&Value::Null), &format!("{field}.backend"), report);
        }
    }
    let class = text(object, &["spec", "ingressClassName"]);
    if !class.is_empty() {
        report.each("spec.ingressClassName", class, subdomain(class));
    }
}

fn backend(backend: &Value, field: &str, report: &mut Report) {
    match (at(backend, &["service"]), at(backend, &["resource"])) {
        (Some(_), Some(_)) => {
            report.invalid(field, Some(&"".into()), "cannot set both resource and service backends");
        }
        (None, None) => report.required(field, "must specify a service or a resource backend"),
        (None, Some(_)) => {}
        (Some(service), None) => {
            let name = text(service, &["name"]);
            if name.is_empty() {
                report.required(&format!("{field}.service.name"), "");
            } else {
                report.each(&format!("{field}.service.name"), name, label_1035(name));
            }
            let field = format!("{field}.service.port");
            let (name, number) = (text(service, &["port", "name"]), at(service, &["port", "number"]));
            match (name, number) {
                ("", None) => report.required(&field, "port name or number is required"),
                ("", number) => port(number, &format!("{field}.number"), report),
                (name, None) => report.each(&format!("{field}.name"), name, port_name(name)),
                (_, Some(_)) => {
                    report.invalid(&field, Some(&"".into()), "cannot set both port name & port number");
                }
            }
        }
    }
}

pub(super) fn ingress_class(object: &Value, report: &mut Report) {
    let controller = text(object, &["spec", "controller"]);
    if controller.is_empty() {
        report.required("spec.controller", "");
    } else if !controller.contains('/') {
        report.invalid_text(
            "spec.controller",
            controller,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        );
    }
}

pub(super) fn network_policy(object: &Value, report: &mut Report) {
    selector(at(object, &["spec", "podSelector"]), "spec.podSelector", report);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in list(object, &["spec", direction]).iter().enumerate() {
            let field = format!("spec.{direction}[{index}]");
            for (at_index, value) in list(rule, &["ports"]).iter().enumerate() {
                policy_port(value, &format!("{field}.ports[{at_index}]"), report);
            }
            for (at_index, value) in list(rule, &[peers]).iter().enumerate() {
                policy_peer(value, &format!("{field}.{peers}[{at_index}]"), report);
            }
        }
    }
    let types = list(object, &["spec", "policyTypes"]);
    if types.len() > 2 {
        report.invalid(
            "spec.policyTypes",
            at(object, &["spec", "policyTypes"]),
            "may not specify more than two policyTypes",
        );
        return;
    }
    for (index, value) in types.iter().enumerate() {
        report.one_of(&format!("spec.policyTypes[{index}]"), Some(value), &["Egress", "Ingress"]);
    }
}

fn policy_port(value: &Value, field: &str, report: &mut Report) {
    report.one_of_if_set(&format!("{field}.protocol"), value.get("protocol"), &["SCTP", "TCP", "UDP"]);
    match at(value, &["port"]) {
        Some(Value::String(name)) => report.each(&format!("{field}.port"), name, port_name(name)),
        Some(number) => {
            port(Some(number), &format!("{field}.port"), report);
            let end = at(value, &["endPort"]);
            if end.and_then(Value::as_i64) < number.as_i64() && end.is_some() {
                report.invalid(&format!("{field}.endPort"), end, "must be greater than or equal to `port`");
            }
        }
        None => {
            if at(value, &["endPort"]).is_some() {
                report.required(&format!("{field}.port"), "must be specified when `endPort` is specified");
            }
        }
    }
}

fn policy_peer(value: &Value, field: &str, report: &mut Report) {
    let pods = at(value, &["podSelector"]);
    let namespaces = at(value, &["namespaceSelector"]);
    let block = at(value, &["ipBlock"]);
    selector(pods, &format!("{field}.podSelector"), report);
    selector(namespaces, &format!("{field}.namespaceSelector"), report);
    if pods.is_none() && namespaces.is_none() && block.is_none() {
        report.required(field, "must specify a peer");
    } else if (pods.is_some() || namespaces.is_some()) && block.is_some() {
        report.forbidden(field, "may not specify both ipBlock and another peer");
    }
    let Some(block) = block else { return };
    let range = text(block, &["cidr"]);
    if range.is_empty() {
        report.required(&format!("{field}.ipBlock.cidr"), "");
    } else if !is_range(range) {
        report.invalid_text(
            &format!("{field}.ipBlock.cidr"),
            range,
            "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        );
    }
}

fn is_range(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= most)
}
