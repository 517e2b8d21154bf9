//! Endpoints.

use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::Report;
use crate::kinds::shared::containers::PROTOCOLS;
use crate::kinds::shared::names::{ip, label, non_special_ip, port_number, qualified, subdomain};
use crate::resource::Target;

pub(crate) struct Endpoints;

impl Kind for Endpoints {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
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
