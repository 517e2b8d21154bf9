//! Ingresses.

use crate::kinds::prelude::*;
use crate::kinds::shared::names::{
    dns_label, dns_subdomain, ip, parse_ip, path_segment, port_name, port_number, subdomain,
    wildcard_subdomain,
};

const CLASS: &str = "kubernetes.io/ingress.class";
const INVALID_SEQUENCES: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const INVALID_SUFFIXES: [&str; 2] = ["/..", "/."];
const NOT_A_NAME: &str = "must be a DNS name, not an IP address";
/// Maximum number of hosts shown; the others are counted.
const SHOWN: usize = 3;

pub(crate) struct Ingress;

impl Kind for Ingress {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::SPEC;
    const FOLDER: Option<&'static str> = Some("ingress");
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text(
            "Class",
            T("The name of the IngressClass resource that should be used for additional configuration"),
        ),
        H::text("Hosts", T("Hosts that incoming requests are matched against before the ingress rule")),
        H::text("Address", T("Address is a list containing ingress points for the load-balancer")),
        H::text("Ports", T("Ports of TLS configurations that open")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let rules = row.list(&["spec", "rules"]);
        // Upstream counts rules without a host among the omitted ones.
        let (mut hosts, mut more) = (Vec::new(), false);
        for host in rules.iter().map(|rule| text(rule, &["host"])) {
            more |= hosts.len() == SHOWN;
            if !more && !host.is_empty() {
                hosts.push(host);
            }
        }
        let mut hosts = if hosts.is_empty() { "*".to_owned() } else { hosts.join(",") };
        if more {
            hosts = format!("{hosts} + {} more...", rules.len() - SHOWN);
        }
        let ports = if row.list(&["spec", "tls"]).is_empty() { "80" } else { "80, 443" };
        vec![
            row.name(),
            row.text_or(&["spec", "ingressClassName"], NONE),
            hosts.into(),
            row.load_balancer().join(",").into(),
            ports.into(),
            row.age(),
        ]
    }

    fn defaults(members: &mut Members) {
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

    fn warnings(object: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
        let key = "kubernetes.io/ingress.class";
        if old.is_none() && at(object, &["metadata", "annotations", key]).is_some() {
            texts.push(format!(
                "annotation {} is deprecated, please use 'spec.ingressClassName' instead",
                quoted(key)
            ));
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        spec(&object.get("spec"), report);
        let metadata = object.get("metadata");
        let annotations = metadata.get("annotations");
        let class = object.get("spec").member("ingressClassName").as_str();
        if annotations.has(CLASS) && class.is_some_and(|class| class != annotations.text_of(CLASS)) {
            // Upstream omits `metadata` from this path.
            let root = object.get("annotations");
            let why = "must match `ingressClassName` when both are specified";
            report.invalid(&root.named(CLASS, annotations.member(CLASS)), why);
        }
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        spec(&new.get("spec"), report);
    }

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        let balancer = status.get("loadBalancer");
        for item in balancer.get("ingress").items() {
            let (address, host) = (item.get("ip"), item.get("hostname"));
            if !address.text().is_empty() {
                ip(&address, report);
            }
            if !host.text().is_empty() {
                subdomain(&host, report);
                if parse_ip(host.text()).is_some() {
                    report.invalid(&host, NOT_A_NAME);
                }
            }
        }
    }
}

/// Validates a host, which may begin with a wildcard.
fn host_name(field: &Field<'_, '_>, report: &mut Report) {
    let problems = if field.text().contains('*') {
        wildcard_subdomain(field.text())
    } else {
        dns_subdomain(field.text())
    };
    report.each(field, problems);
}

fn spec(spec: &Field<'_, '_>, report: &mut Report) {
    let (rules, default) = (spec.get("rules"), spec.get("defaultBackend"));
    if rules.list().is_empty() && !default.is_set() {
        let why = "either `defaultBackend` or `rules` must be specified";
        report.invalid_shown(spec, rules.value(), why);
    }
    if default.is_set() {
        backend(&default, report);
    }
    for rule in rules.items() {
        let host = rule.get("host");
        if !host.text().is_empty() {
            if parse_ip(host.text()).is_some() {
                report.invalid(&host, NOT_A_NAME);
            }
            host_name(&host, report);
        }
        if rule.has("http") {
            let http = rule.get("http");
            let paths = http.get("paths");
            if paths.list().is_empty() {
                report.required(&paths, "");
            }
            paths.items().for_each(|item| path(&item, report));
        }
    }
    for tls in spec.get("tls").items() {
        tls.get("hosts").items().for_each(|host| host_name(&host, report));
        if !tls.text_of("secretName").is_empty() {
            subdomain(&tls.get("secretName"), report);
        }
    }
    if spec.has("ingressClassName") {
        subdomain(&spec.get("ingressClassName"), report);
    }
}

fn path(field: &Field<'_, '_>, report: &mut Report) {
    let (kind, path) = (field.get("pathType"), field.get("path"));
    if !kind.is_set() {
        report.required(&kind, "pathType must be specified");
        return;
    }
    let text = path.text();
    match kind.text() {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                report.invalid_text(&path, text, "must be an absolute path");
            }
            for sequence in INVALID_SEQUENCES {
                if text.contains(sequence) {
                    report.invalid(&path, &format!("must not contain '{sequence}'"));
                }
            }
            for suffix in INVALID_SUFFIXES {
                if text.ends_with(suffix) {
                    report.invalid(&path, &format!("cannot end with '{suffix}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                report.invalid(&path, "must be an absolute path");
            }
        }
        _ => report.not_supported(&kind, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(&field.get("backend"), report);
}

fn backend(field: &Field<'_, '_>, report: &mut Report) {
    let (service, resource) = (field.get("service"), field.get("resource"));
    match (service.is_set(), resource.is_set()) {
        (true, true) => report.invalid_text(field, "", "cannot set both resource and service backends"),
        (false, false) => report.invalid_text(field, "", "resource or service backend is required"),
        (false, true) => {
            typed_reference(&resource, report);
        }
        (true, false) => {
            let name = service.get("name");
            if name.text().is_empty() {
                report.required(&name, "");
            } else {
                report.each(&name, dns_label(name.text()));
            }
            let port = service.get("port");
            let (name, number) = (port.get("name"), port.get("number"));
            match (name.text().is_empty(), number.number() == 0) {
                (false, false) => {
                    report.invalid_text(field, "", "cannot set both port name & port number");
                }
                (false, true) => report.each(&name, port_name(name.text())),
                (true, false) => port_number(&number, report),
                (true, true) => report.required(field, "port name or number is required"),
            }
        }
    }
}

/// Validates a reference to an object of any kind.
pub(crate) fn typed_reference(field: &Field<'_, '_>, report: &mut Report) {
    let group = field.get("apiGroup");
    if group.is_set() {
        subdomain(&group, report);
    }
    for member in ["kind", "name"] {
        let part = field.get(member);
        if part.text().is_empty() {
            report.required(&part, "");
        } else {
            report.each(&part, path_segment(part.text()));
        }
    }
}
