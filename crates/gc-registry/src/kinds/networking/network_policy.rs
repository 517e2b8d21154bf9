//! Network policies.

use crate::kinds::prelude::*;
use crate::kinds::shared::labels::selector;
use crate::kinds::shared::names::{cidr_text, contains, parse_cidr, port_name, port_number};
use crate::kinds::shared::warnings::addresses;

pub(crate) struct NetworkPolicy;

impl Kind for NetworkPolicy {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] =
        &[H::NAME, H::text("Pod-Selector", F("api.networking.v1.NetworkPolicySpec", "podSelector")), H::AGE];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), shown_selector(at(row.object, &["spec", "podSelector"])), row.age()]
    }

    fn defaults(members: &mut Members) {
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

    fn warnings(object: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
            for (index, rule) in list(object, &["spec", direction]).iter().enumerate() {
                for (number, peer) in list(rule, &[peers]).iter().enumerate() {
                    let path = format!("spec.{direction}[{index}].{peers}[{number}].ipBlock");
                    addresses::cidr(&format!("{path}.cidr"), text(peer, &["ipBlock", "cidr"]), texts);
                    addresses::cidrs(&format!("{path}.except"), list(peer, &["ipBlock", "except"]), texts);
                }
            }
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        selector(&spec.get("podSelector"), report);
        for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
            for rule in spec.get(direction).items() {
                rule.get("ports").items().for_each(|item| port(&item, report));
                rule.get(peers).items().for_each(|item| peer(&item, report));
            }
        }
        let types = spec.get("policyTypes");
        if types.list().len() > 2 {
            report.invalid(&types, "may not specify more than two policyTypes");
            return;
        }
        for kind in types.items() {
            if !matches!(kind.text(), "Ingress" | "Egress") {
                report.not_supported(&kind, &["Ingress", "Egress"]);
            }
        }
    }
}

fn port(field: &Field<'_, '_>, report: &mut Report) {
    report.one_of_if_set(&field.get("protocol"), &["TCP", "UDP", "SCTP"]);
    let (first, last) = (field.get("port"), field.get("endPort"));
    if !first.is_set() {
        if last.is_set() {
            report.invalid(&last, "may not be specified when `port` is not specified");
        }
    } else if first.value().is_string() {
        if last.is_set() {
            report.invalid(&last, "may not be specified when `port` is non-numeric");
        }
        report.each(&first, port_name(first.text()));
    } else {
        port_number(&first, report);
        if last.is_set() {
            if last.number() < first.number() {
                // Upstream prints the first port.
                report.invalid_shown(&last, &first.number(), "must be greater than or equal to `port`");
            }
            port_number(&last, report);
        }
    }
}

fn peer(field: &Field<'_, '_>, report: &mut Report) {
    let (pods, namespaces, block) =
        (field.get("podSelector"), field.get("namespaceSelector"), field.get("ipBlock"));
    selector(&pods, report);
    selector(&namespaces, report);
    if block.is_set() {
        ip_block(&block, report);
    }
    let selects = pods.is_set() || namespaces.is_set();
    if !selects && !block.is_set() {
        report.required(field, "must specify a peer");
    } else if selects && block.is_set() {
        report.forbidden(field, "may not specify both ipBlock and another peer");
    }
}

fn ip_block(field: &Field<'_, '_>, report: &mut Report) {
    let range = field.get("cidr");
    if range.text().is_empty() {
        report.required(&range, "");
        return;
    }
    cidr_text(&range, range.text(), report);
    let Some((first, length)) = parse_cidr(range.text()) else { return };
    for except in field.get("except").items() {
        cidr_text(&except, except.text(), report);
        let Some((inner, inner_length)) = parse_cidr(except.text()) else { continue };
        if !contains(first, length, inner) || length >= inner_length {
            report.invalid(&except, "must be a strict subset of `cidr`");
        }
    }
}
