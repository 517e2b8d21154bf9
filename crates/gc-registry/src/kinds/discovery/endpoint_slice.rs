//! Endpoint slices.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::kinds::prelude::*;
use crate::kinds::shared::containers::PROTOCOLS;
use crate::kinds::shared::labels::labels;
use crate::kinds::shared::names::{
    dns_label, dns_subdomain, ip, label, label_value, non_special_ip, parse_ip, qualified, subdomain,
};
use crate::kinds::shared::warnings::addresses;

const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const TOPOLOGY_MAX: usize = 16;
const HINTS_MAX: usize = 8;
/// Maximum number of ports and addresses shown; the others are counted.
const SHOWN: usize = 3;

pub(crate) struct EndpointSlice;

impl Kind for EndpointSlice {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation =
        Generation::CountsSent(&[&["metadata", "labels"], &["addressType"], &["endpoints"], &["ports"]]);
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Whole], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("AddressType", F("api.discovery.v1.EndpointSlice", "addressType")),
        H::text("Ports", F("api.discovery.v1.EndpointSlice", "ports")),
        H::text("Endpoints", F("api.discovery.v1.EndpointSlice", "endpoints")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let ports: Vec<String> = row
            .list(&["ports"])
            .iter()
            .map(|port| match integer(port, &["port"]) {
                Some(number) => number.to_string(),
                None => text(port, &["name"]).to_owned(),
            })
            .collect();
        let ports = if ports.is_empty() { UNSET.into() } else { shortened(&ports, SHOWN) };
        let addresses: Vec<String> = row
            .list(&["endpoints"])
            .iter()
            .flat_map(|endpoint| list(endpoint, &["addresses"]))
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let addresses = if addresses.is_empty() { UNSET.into() } else { shortened(&addresses, SHOWN) };
        vec![row.name(), row.text(&["addressType"]).into(), ports.into(), addresses.into(), row.age()]
    }

    fn defaults(members: &mut Members) {
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

    fn drop_disabled(members: &mut Members) {
        for endpoint in items(members, "endpoints") {
            endpoint.remove("deprecatedTopology");
        }
    }

    fn warnings(object: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
        if text(object, &["addressType"]) == "FQDN" {
            if old.is_none() {
                texts.push("spec.addressType: FQDN endpoints are deprecated".into());
            }
            return;
        }
        for (index, endpoint) in list(object, &["endpoints"]).iter().enumerate() {
            addresses::ips(&format!("endpoints[{index}].addresses"), list(endpoint, &["addresses"]), texts);
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        address_type(&object.get("addressType"), report);
        endpoints(&object.get("endpoints"), object.text_of("addressType"), report);
        ports(&object.get("ports"), report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let kind = new.get("addressType");
        address_type(&kind, report);
        // Older servers stored endpoints that are now refused; unchanged ones are not checked again.
        if new.member("endpoints") != old.member("endpoints") {
            endpoints(&new.get("endpoints"), kind.text(), report);
        }
        ports(&new.get("ports"), report);
        if kind.text() != old.text_of("addressType") {
            report.invalid_text(&kind, kind.text(), IMMUTABLE);
        }
    }
}

fn address_type(field: &Field<'_, '_>, report: &mut Report) {
    report.one_of(field, &["FQDN", "IPv4", "IPv6"]);
}

fn endpoints(field: &Field<'_, '_>, kind: &str, report: &mut Report) {
    if field.list().len() > ENDPOINTS_MAX {
        report.too_many(field, field.list().len(), ENDPOINTS_MAX);
        return;
    }
    for endpoint in field.items() {
        let addresses = endpoint.get("addresses");
        if addresses.list().is_empty() {
            report.required(&addresses, "must contain at least 1 address");
        } else if addresses.list().len() > ADDRESSES_MAX {
            report.too_many(&addresses, addresses.list().len(), ADDRESSES_MAX);
        }
        for item in addresses.items() {
            address(&addresses, &item, kind, report);
        }
        if endpoint.has("nodeName") {
            subdomain(&endpoint.get("nodeName"), report);
        }
        let topology = endpoint.get("deprecatedTopology");
        let count = topology.entries().count();
        if count > TOPOLOGY_MAX {
            report.too_many(&topology, count, TOPOLOGY_MAX);
        }
        labels(&topology, report);
        if endpoint.has("hostname") {
            label(&endpoint.get("hostname"), report);
        }
        let hints = endpoint.get("hints");
        hint(&hints.get("forZones"), label_value, report);
        hint(&hints.get("forNodes"), dns_subdomain, report);
    }
}

/// Validates a hint for zones or nodes; the form of node names refuses an empty one, that of zones does not.
fn hint(field: &Field<'_, '_>, form: fn(&str) -> Vec<String>, report: &mut Report) {
    if field.list().len() > HINTS_MAX {
        report.too_many(field, field.list().len(), HINTS_MAX);
        return;
    }
    let mut seen = BTreeSet::new();
    for item in field.items() {
        let name = item.get("name");
        if !seen.insert(name.text()) {
            report.duplicate_text(&name, name.text());
        }
        report.each_of(&name, name.text(), form(name.text()));
    }
}

fn address(all: &Field<'_, '_>, field: &Field<'_, '_>, kind: &str, report: &mut Report) {
    match kind {
        "IPv4" | "IPv6" => {
            let Some(parsed) = parse_ip(field.text()) else {
                ip(field, report);
                return;
            };
            if matches!(parsed, IpAddr::V4(_)) != (kind == "IPv4") {
                // Upstream's error names the list.
                report.invalid_text(all, field.text(), &format!("must be an {kind} address"));
            }
            if let IpAddr::V6(address) = parsed
                && kind == "IPv6"
                && address.to_string() != field.text()
            {
                report.invalid(field, &format!("must be in canonical form ({:?})", address.to_string()));
                return;
            }
            non_special_ip(field, report);
        }
        "FQDN" => {
            let text = field.text().strip_suffix('.').unwrap_or(field.text());
            if text.is_empty() {
                report.required(field, "");
                return;
            }
            let problems = dns_subdomain(text);
            if !problems.is_empty() {
                report.each(field, problems);
                return;
            }
            if !text.contains('.') {
                let why = "should be a domain with at least two segments separated by dots";
                report.invalid(field, why);
                return;
            }
            for part in text.split('.') {
                report.each_of(field, part, dns_label(part));
            }
        }
        _ => {}
    }
}

fn ports(field: &Field<'_, '_>, report: &mut Report) {
    if field.list().len() > PORTS_MAX {
        report.too_many(field, field.list().len(), PORTS_MAX);
        return;
    }
    let mut names = BTreeSet::new();
    for port in field.items() {
        let name = port.get("name");
        if !name.text().is_empty() {
            label(&name, report);
        }
        if !names.insert(name.text()) {
            report.duplicate_text(&name, name.text());
        }
        report.one_of_if_set(&port.get("protocol"), &PROTOCOLS);
        if port.has("appProtocol") {
            qualified(&port.get("appProtocol"), report);
        }
    }
}
