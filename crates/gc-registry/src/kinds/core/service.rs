//! Services.

use std::collections::BTreeSet;

use crate::kinds::prelude::*;
use crate::kinds::shared::containers::PROTOCOLS;
use crate::kinds::shared::labels::labels;
use crate::kinds::shared::names::{
    cidr_text, dns_subdomain, ip, is_dual_stack, label, non_special_ip, parse_ip, port_number,
    port_number_or_name, qualified,
};
use crate::kinds::shared::pod_defaults::drop_empty_selector;
use crate::metadata::names;

const AFFINITY_SECONDS_MAX: i64 = 86_400;
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
const NOT_EXTERNAL_NAME: &str = "may not be set for ExternalName services";
const ONCE: &str = "may not change once set";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

pub(crate) struct Service;

impl Kind for Service {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata =
        Metadata { name: names::dns_label, update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const FOLDER: Option<&'static str> = Some("services/specs");
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Type", F("api.core.v1.ServiceSpec", "type")),
        H::text("Cluster-IP", F("api.core.v1.ServiceSpec", "clusterIP")),
        H::text("External-IP", F("api.core.v1.ServiceSpec", "externalIPs")),
        H::text("Port(s)", F("api.core.v1.ServiceSpec", "ports")),
        H::AGE,
        H::wide("Selector", F("api.core.v1.ServiceSpec", "selector")),
    ];
    const FIELD_LABELS: &'static [&'static str] = &["spec.clusterIP", "spec.type"];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let texts = |path: &[&str]| -> Vec<String> {
            row.list(path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let external = texts(&["spec", "externalIPs"]);
        let kind = row.text(&["spec", "type"]);
        let external = match kind {
            "ClusterIP" | "NodePort" if external.is_empty() => NONE.into(),
            "ClusterIP" | "NodePort" => external.join(","),
            "LoadBalancer" => {
                let all = [row.load_balancer(), external].concat();
                if all.is_empty() { "<pending>".into() } else { all.join(",") }
            }
            "ExternalName" => row.text(&["spec", "externalName"]).into(),
            _ => "<unknown>".into(),
        };
        let ports: Vec<String> = row
            .list(&["spec", "ports"])
            .iter()
            .map(|port| {
                let number = integer(port, &["port"]).unwrap_or_default();
                let protocol = text(port, &["protocol"]);
                match integer(port, &["nodePort"]) {
                    Some(node @ 1..) => format!("{number}:{node}/{protocol}"),
                    _ => format!("{number}/{protocol}"),
                }
            })
            .collect();
        let address = texts(&["spec", "clusterIPs"]).into_iter().next().unwrap_or_else(|| NONE.into());
        vec![
            row.name(),
            kind.into(),
            address.into(),
            external.into(),
            if ports.is_empty() { NONE.into() } else { ports.join(",").into() },
            row.age(),
            shown_labels(at(row.object, &["spec", "selector"])),
        ]
    }

    fn defaults(members: &mut Members) {
        let Some(spec) = child(members, "spec") else { return };
        drop_empty_selector(spec);
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

    /// Drops fields that a service only had because of its former type, unless the client changed them.
    fn prepare_update(new: &mut Value, old: &Value, _: &Context<'_>) {
        static NONE: Value = Value::Null;
        let before = old.get("spec").unwrap_or(&NONE);
        let now = new.get("spec").cloned().unwrap_or_default();
        let (was, is) = (text(before, &["type"]), text(&now, &["type"]));
        let mut gone: Vec<&str> = Vec::new();
        if was != "ExternalName" && is == "ExternalName" {
            gone.push("internalTrafficPolicy");
        }
        if needs_health_port(before) && !needs_health_port(&now) {
            gone.push("healthCheckNodePort");
        }
        if was == "LoadBalancer" && is != "LoadBalancer" {
            gone.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
        }
        if is_external(before) && !is_external(&now) {
            gone.push("externalTrafficPolicy");
        }
        let has_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
        let ports = |spec: &Value| -> Vec<Option<i64>> {
            list(spec, &["ports"]).iter().map(|port| integer(port, &["nodePort"])).collect()
        };
        let same_ports = has_ports(was) && !has_ports(is) && ports(before) == ports(&now);
        let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else { return };
        for key in gone {
            if spec.get(key) == before.get(key) {
                spec.remove(key);
            }
        }
        if same_ports {
            for port in items(spec, "ports") {
                port.remove("nodePort");
            }
        }
    }

    fn warnings(object: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        let spec = |key: &str| text(object, &["spec", key]);
        let external = list(object, &["spec", "externalIPs"]);
        let (kind, headless) = (spec("type"), spec("type") == "ClusterIP" && spec("clusterIP") == "None");
        let hints = "service.kubernetes.io/topology-aware-hints";
        if at(object, &["metadata", "annotations", hints]).is_some() {
            texts.push(format!(
                "annotation {hints} is deprecated, please use service.kubernetes.io/topology-mode instead"
            ));
        }
        if !matches!(spec("clusterIP"), "" | "None") {
            warnings::addresses::ips("spec.clusterIPs", list(object, &["spec", "clusterIPs"]), texts);
        }
        if headless {
            for (ignored, is_set) in [
                ("loadBalancerIP", !spec("loadBalancerIP").is_empty()),
                ("externalIPs", !external.is_empty()),
                ("SessionAffinity", spec("sessionAffinity") != "None"),
            ] {
                if is_set {
                    texts.push(format!("spec.{ignored} is ignored for headless services"));
                }
            }
        }
        warnings::addresses::ips("spec.externalIPs", external, texts);
        if !external.is_empty() && !headless && kind != "ExternalName" {
            texts.push(
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters".into(),
            );
        }
        warnings::addresses::ip("spec.loadBalancerIP", spec("loadBalancerIP"), texts);
        let ranges = list(object, &["spec", "loadBalancerSourceRanges"]);
        warnings::addresses::cidrs("spec.loadBalancerSourceRanges", ranges, texts);
        if kind == "ExternalName" && !external.is_empty() {
            texts.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".into());
        }
        if kind != "ExternalName" && !spec("externalName").is_empty() {
            texts.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
        }
        if spec("trafficDistribution") == "PreferClose" {
            texts.push(
                "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".into(),
            );
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        service(object, report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let (spec, before) = (new.get("spec"), old.get("spec"));
        addresses_are_kept(&spec, &before, report);
        families_are_kept(&spec, &before, report);
        let class = spec.get("loadBalancerClass");
        let balanced = |spec: &Field<'_, '_>| spec.text_of("type") == "LoadBalancer";
        if balanced(&spec) && balanced(&before) && class.value() != before.member("loadBalancerClass") {
            report.invalid(&class, ONCE);
        }
        load_balancer_class(&spec, report);
        let port = spec.get("healthCheckNodePort");
        if needs_health_check(&spec)
            && needs_health_check(&before)
            && port.number() != before.number_of("healthCheckNodePort")
        {
            report.forbidden(&port, IMMUTABLE);
        }
        service(new, report);
    }

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        let balancer = status.get("loadBalancer");
        let ingress = balancer.get("ingress");
        if new.get("spec").text_of("type") != "LoadBalancer" && !ingress.is_empty() {
            report.forbidden(&ingress, "may only be used when `spec.type` is 'LoadBalancer'");
            return;
        }
        for item in ingress.items() {
            load_balancer_ingress(&item, report);
        }
    }
}

fn load_balancer_ingress(field: &Field<'_, '_>, report: &mut Report) {
    let (address, mode, host) = (field.get("ip"), field.get("ipMode"), field.get("hostname"));
    if !address.text().is_empty() {
        ip(&address, report);
    }
    if !mode.is_set() {
        if !address.text().is_empty() {
            report.required(&mode, "must be specified when `ip` is set");
        }
    } else if address.text().is_empty() {
        report.forbidden(&mode, "may not be specified when `ip` is not set");
    } else {
        report.one_of_if_set(&mode, &["Proxy", "VIP"]);
    }
    if !host.text().is_empty() {
        report.each(&host, dns_subdomain(host.text()));
        if parse_ip(host.text()).is_some() {
            report.invalid(&host, "must be a DNS name, not an IP address");
        }
    }
}

pub(super) fn is_headless(spec: &Field<'_, '_>) -> bool {
    let addresses = spec.get("clusterIPs");
    addresses.list().len() == 1 && addresses.texts().next() == Some("None")
}

fn is_externally_accessible(spec: &Field<'_, '_>) -> bool {
    match spec.text_of("type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !spec.get("externalIPs").list().is_empty(),
        _ => false,
    }
}

/// Reports whether nodes serve a health check on whether they have endpoints of the service.
pub(crate) fn needs_health_check(spec: &Field<'_, '_>) -> bool {
    spec.text_of("type") == "LoadBalancer" && spec.text_of("externalTrafficPolicy") == "Local"
}

fn service(object: &Field<'_, '_>, report: &mut Report) {
    let (metadata, spec) = (object.get("metadata"), object.get("spec"));
    let annotations = metadata.get("annotations");
    if annotations.has(TOPOLOGY_HINTS)
        && annotations.has(TOPOLOGY_MODE)
        && annotations.text_of(TOPOLOGY_HINTS) != annotations.text_of(TOPOLOGY_MODE)
    {
        let why = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        report.invalid(&annotations.key(TOPOLOGY_MODE, annotations.member(TOPOLOGY_MODE)), &why);
    }
    let kind = spec.text_of("type");
    let ports = spec.get("ports");
    if ports.list().is_empty() && !is_headless(&spec) && kind != "ExternalName" {
        report.required(&ports, "");
    }
    of_type(&spec, kind, report);
    let mut names = BTreeSet::new();
    for port in ports.items() {
        service_port(&port, ports.list().len() > 1, &mut names, report);
    }
    labels(&spec.get("selector"), report);
    session_affinity(&spec, report);
    addresses(&spec, kind, report);
    for address in spec.get("externalIPs").items() {
        let before = report.errors.len();
        ip(&address, report);
        if report.errors.len() == before {
            if has_leading_zeros(address.text()) {
                report.invalid(&address, "must not have leading 0s");
            }
            non_special_ip(&address, report);
        }
    }
    report.one_of(&spec.get("type"), &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    ports_differ(&ports, kind, report);
    source_ranges(&spec, &annotations, kind, report);
    let allocates = spec.get("allocateLoadBalancerNodePorts");
    if allocates.is_set() && kind != "LoadBalancer" {
        report.forbidden(&allocates, ONLY_LOAD_BALANCER);
    }
    load_balancer_class(&spec, report);
    traffic(&spec, kind, report);
}

/// Reports whether a number in an IPv4 address begins with a zero, which some parsers read as octal.
fn has_leading_zeros(address: &str) -> bool {
    !address.contains(':') && address.split('.').any(|part| part.len() > 1 && part.starts_with('0'))
}

fn of_type(spec: &Field<'_, '_>, kind: &str, report: &mut Report) {
    let addresses = spec.get("clusterIPs");
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let why = format!("may not be set to 'None' for {kind} services");
            report.invalid(&addresses.index(0), &why);
        }
        "ExternalName" => {
            for member in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if !spec.get(member).is_empty() {
                    report.forbidden(&spec.get(member), NOT_EXTERNAL_NAME);
                }
            }
            let name = spec.get("externalName");
            let text = name.text().strip_suffix('.').unwrap_or(name.text());
            if text.is_empty() {
                report.required(&name, "");
            } else {
                report.each_of(&name, text, dns_subdomain(text));
            }
        }
        _ => {}
    }
}

fn service_port<'v>(
    port: &Field<'v, '_>,
    needs_name: bool,
    names: &mut BTreeSet<&'v str>,
    report: &mut Report,
) {
    let name = port.get("name");
    if name.text().is_empty() {
        if needs_name {
            report.required(&name, "");
        }
    } else {
        label(&name, report);
        if !names.insert(name.text()) {
            report.duplicate(&name);
        }
    }
    port_number(&port.get("port"), report);
    report.one_of(&port.get("protocol"), &PROTOCOLS);
    port_number_or_name(&port.get("targetPort"), report);
    let protocol = port.get("appProtocol");
    if protocol.is_set() {
        qualified(&protocol, report);
    }
}

fn session_affinity(spec: &Field<'_, '_>, report: &mut Report) {
    let (affinity, config) = (spec.get("sessionAffinity"), spec.get("sessionAffinityConfig"));
    report.one_of(&affinity, &["ClientIP", "None"]);
    match affinity.text() {
        "ClientIP" => {
            const WHY: &str = "when session affinity type is ClientIP";
            let client = config.get("clientIP");
            let seconds = client.get("timeoutSeconds");
            for needed in [&config, &client, &seconds] {
                if !needed.is_set() {
                    report.required(needed, WHY);
                    return;
                }
            }
            if !(1..=AFFINITY_SECONDS_MAX).contains(&seconds.number()) {
                let why = format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}");
                report.invalid(&seconds, &why);
            }
        }
        "None" if config.is_set() => {
            report.forbidden(&config, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

/// Validates the cluster addresses of a service and their families.
pub(super) fn addresses(spec: &Field<'_, '_>, kind: &str, report: &mut Report) {
    if kind == "ExternalName" {
        return;
    }
    let (single, all) = (spec.text_of("clusterIP"), spec.get("clusterIPs"));
    let first = all.texts().next();
    if single.is_empty() {
        if first.is_some() {
            report.invalid(&all, "must be empty when `clusterIP` is not specified");
        }
    } else if first.is_none() {
        report.required(&all, "");
    } else if first != Some(single) {
        report.invalid(&all, "first value must match `clusterIP`");
    }
    let families = spec.get("ipFamilies");
    let mut seen = BTreeSet::new();
    for family in families.items() {
        if !matches!(family.text(), "IPv4" | "IPv6") {
            report.not_supported(&family, &["IPv4", "IPv6"]);
        }
        if !seen.insert(family.text()) {
            report.duplicate(&family);
        }
    }
    report
        .one_of_if_set(&spec.get("ipFamilyPolicy"), &["PreferDualStack", "RequireDualStack", "SingleStack"]);
    let mut invalid = false;
    for (index, address) in all.items().enumerate() {
        if index == 0 && address.text() == "None" {
            if all.list().len() > 1 {
                invalid = true;
                report.invalid(&all, "'None' must be the first and only value");
            }
            continue;
        }
        invalid |= parse_ip(address.text()).is_none();
        ip(&address, report);
    }
    if all.list().len() > 2 {
        report.invalid(&all, "may only hold up to 2 values");
    }
    if invalid {
        return;
    }
    if all.list().len() > 1 && is_dual_stack(all.texts()) != Some(true) {
        report.invalid(&all, "may specify no more than one IP for each IP family");
    }
    if is_headless(spec) {
        return;
    }
    for (index, (address, family)) in all.items().zip(families.texts()).enumerate() {
        let is_six = address.text().contains(':');
        if (family == "IPv4" && is_six) || (family == "IPv6" && !is_six) {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            report.invalid(&address, &why);
        }
    }
}

fn ports_differ(ports: &Field<'_, '_>, kind: &str, report: &mut Report) {
    if kind == "ClusterIP" {
        for port in ports.items().filter(|port| port.number_of("nodePort") != 0) {
            let why = "may not be used when `type` is 'ClusterIP'";
            report.forbidden(&port.get("nodePort"), why);
        }
    }
    let mut node_ports = BTreeSet::new();
    for port in ports.items() {
        let number = port.number_of("nodePort");
        if number != 0 && !node_ports.insert((port.text_of("protocol"), number)) {
            report.duplicate(&port.get("nodePort"));
        }
    }
    let mut numbers = BTreeSet::new();
    for port in ports.items() {
        let (protocol, number) = (port.text_of("protocol"), port.number_of("port"));
        if !numbers.insert((protocol, number)) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}",
                Value::from(protocol)
            );
            report.duplicate_shown(&port, &shown);
        }
    }
}

fn source_ranges(spec: &Field<'_, '_>, annotations: &Field<'_, '_>, kind: &str, report: &mut Report) {
    let ranges = spec.named("LoadBalancerSourceRanges", spec.member("loadBalancerSourceRanges"));
    if !ranges.is_empty() {
        if kind != "LoadBalancer" {
            report.forbidden(&ranges, ONLY_LOAD_BALANCER);
        }
        for range in ranges.items() {
            cidr_text(&range, range.text().trim(), report);
        }
    } else if annotations.has(SOURCE_RANGES) {
        let field = annotations.key(SOURCE_RANGES, annotations.member(SOURCE_RANGES));
        if kind != "LoadBalancer" {
            report.forbidden(&field, ONLY_LOAD_BALANCER);
        }
        let text = field.text().trim();
        if !text.is_empty() {
            text.split(',').for_each(|range| cidr_text(&field, range.trim(), report));
        }
    }
}

fn load_balancer_class(spec: &Field<'_, '_>, report: &mut Report) {
    let class = spec.get("loadBalancerClass");
    if !class.is_set() {
        return;
    }
    if spec.text_of("type") == "LoadBalancer" {
        qualified(&class, report);
    } else {
        report.forbidden(&class, ONLY_LOAD_BALANCER);
    }
}

fn traffic(spec: &Field<'_, '_>, kind: &str, report: &mut Report) {
    let external = spec.get("externalTrafficPolicy");
    if is_externally_accessible(spec) {
        report.one_of(&external, &["Cluster", "Local"]);
    } else if !external.text().is_empty() {
        report.invalid(&external, "may only be set for externally-accessible services");
    }
    let port = spec.get("healthCheckNodePort");
    if !needs_health_check(spec) {
        if port.number() != 0 {
            report.invalid(
                &port,
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
            );
        }
    } else if port.number() == 0 {
        report.required(&port, "");
    } else {
        port_number(&port, report);
    }
    let internal = spec.get("internalTrafficPolicy");
    if !internal.is_set() && matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        report.required(&internal, "");
    }
    report.one_of_if_set(&internal, &["Cluster", "Local"]);
    report.one_of_if_set(
        &spec.get("trafficDistribution"),
        &["PreferClose", "PreferSameZone", "PreferSameNode"],
    );
}

/// Checks that a service keeps its addresses; it may get a second one, or return it.
fn addresses_are_kept(spec: &Field<'_, '_>, before: &Field<'_, '_>, report: &mut Report) {
    let external = |spec: &Field<'_, '_>| spec.text_of("type") == "ExternalName";
    if external(spec) || external(before) || (is_headless(spec) && is_headless(before)) {
        return;
    }
    let field = spec.get("clusterIPs");
    let (new, was) = (field.list(), before.get("clusterIPs").list());
    let mut changed = |index: usize, why: &str| {
        report.invalid(&field.index(index).with(field.value()), why);
    };
    if new.len() == was.len() {
        for index in 0..new.len() {
            if new[index] != was[index] {
                changed(index, ONCE);
            }
        }
    } else if was.len() > new.len() {
        if new.is_empty() {
            changed(0, "primary clusterIP can not be unset");
        } else if new[0] != was[0] {
            changed(0, ONCE);
        }
        if new.len() == 1 && spec.text_of("ipFamilyPolicy") != "SingleStack" {
            let why = "must be set to 'SingleStack' when releasing the secondary clusterIP";
            report.invalid(&spec.get("ipFamilyPolicy"), why);
        }
    } else if !was.is_empty() && new[0] != was[0] {
        changed(0, ONCE);
    }
}

fn families_are_kept(spec: &Field<'_, '_>, before: &Field<'_, '_>, report: &mut Report) {
    let external = |spec: &Field<'_, '_>| spec.text_of("type") == "ExternalName";
    if external(spec) || external(before) || is_headless(spec) || is_headless(before) {
        return;
    }
    let field = spec.get("ipFamilies");
    let (new, was) = (field.list(), before.get("ipFamilies").list());
    let addresses = spec.member("clusterIPs");
    let mut changed = |shown: &Value, why: &str| {
        report.invalid_shown(&field.index(0), shown, why);
    };
    if new.len() == was.len() {
        if new != was {
            changed(field.value(), ONCE);
        }
    } else if was.len() > new.len() {
        if addresses.as_array().is_none_or(Vec::is_empty) {
            changed(field.value(), "primary ipFamily can not be unset");
        }
        if !new.is_empty() && new[0] != was[0] {
            changed(addresses, ONCE);
        }
        if new.len() == 1 && spec.text_of("ipFamilyPolicy") != "SingleStack" {
            let why = "must be set to 'SingleStack' when releasing the secondary ipFamily";
            report.invalid(&spec.get("ipFamilyPolicy"), why);
        }
    } else if !was.is_empty() && new[0] != was[0] {
        changed(addresses, ONCE);
    }
}

/// Reports whether a service of this type is reachable from outside.
fn is_external(spec: &Value) -> bool {
    match text(spec, &["type"]) {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => !list(spec, &["externalIPs"]).is_empty(),
        _ => false,
    }
}

fn needs_health_port(spec: &Value) -> bool {
    text(spec, &["type"]) == "LoadBalancer" && text(spec, &["externalTrafficPolicy"]) == "Local"
}
