//! Endpoints.

use crate::kinds::prelude::*;
use crate::kinds::shared::containers::PROTOCOLS;
use crate::kinds::shared::names::{ip, label, non_special_ip, port_number, qualified, subdomain};
use crate::kinds::shared::warnings::addresses;

/// Maximum number of addresses shown; the others are counted.
const ENDPOINTS_SHOWN: usize = 3;

pub(crate) struct Endpoints;

impl Kind for Endpoints {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Never;
    const FOLDER: Option<&'static str> = Some("services/endpoints");
    const COLUMNS: &'static [Column] =
        &[H::NAME, H::text("Endpoints", F("api.core.v1.Endpoints", "subsets")), H::AGE];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), addresses_and_ports(row).into(), row.age()]
    }

    fn defaults(members: &mut Members) {
        for subset in items(members, "subsets") {
            for port in items(subset, "ports") {
                fill(port, "protocol", "TCP");
            }
        }
    }

    fn warnings(object: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        for (index, subset) in list(object, &["subsets"]).iter().enumerate() {
            for key in ["addresses", "notReadyAddresses"] {
                for (number, address) in list(subset, &[key]).iter().enumerate() {
                    addresses::ip(
                        &format!("subsets[{index}].{key}[{number}].ip"),
                        text(address, &["ip"]),
                        texts,
                    );
                }
            }
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        for subset in object.get("subsets").items() {
            let (ready, not_ready) = (subset.get("addresses"), subset.get("notReadyAddresses"));
            if ready.list().is_empty() && not_ready.list().is_empty() {
                report.required(&subset, "must specify `addresses` or `notReadyAddresses`");
            }
            for address in ready.items().chain(not_ready.items()) {
                endpoint_address(&address, report);
            }
            let ports = subset.get("ports");
            for port in ports.items() {
                endpoint_port(&port, ports.list().len() > 1, report);
            }
        }
    }
}

fn endpoint_address(field: &Field<'_, '_>, report: &mut Report) {
    let address = field.named("ip", field.member("ip"));
    ip(&address, report);
    if !field.text_of("hostname").is_empty() {
        label(&field.get("hostname"), report);
    }
    if field.has("nodeName") {
        subdomain(&field.get("nodeName"), report);
    }
    if address.is_set() {
        non_special_ip(&address, report);
    } else {
        report.invalid_text(&address, "", "must be a valid IP address");
    }
}

fn endpoint_port(field: &Field<'_, '_>, needs_name: bool, report: &mut Report) {
    let name = field.get("name");
    if !name.text().is_empty() {
        label(&name, report);
    } else if needs_name {
        report.required(&name, "");
    }
    port_number(&field.get("port"), report);
    report.one_of(&field.get("protocol"), &PROTOCOLS);
    if field.has("appProtocol") {
        qualified(&field.get("appProtocol"), report);
    }
}

fn addresses_and_ports(row: &Row<'_>) -> String {
    let mut all = Vec::new();
    let subsets = row.list(&["subsets"]);
    for subset in subsets {
        let ports = list(subset, &["ports"]);
        let addresses = list(subset, &["addresses"]).iter().map(|address| text(address, &["ip"]));
        if ports.is_empty() {
            all.extend(addresses.map(str::to_owned));
            continue;
        }
        for port in ports {
            let number = integer(port, &["port"]).unwrap_or_default();
            for address in list(subset, &["addresses"]) {
                let address = text(address, &["ip"]);
                all.push(if address.contains(':') {
                    format!("[{address}]:{number}")
                } else {
                    format!("{address}:{number}")
                });
            }
        }
    }
    // If there are only addresses that are not ready, the cell is empty.
    if all.is_empty() && !subsets.is_empty() { String::new() } else { shortened(&all, ENDPOINTS_SHOWN) }
}
