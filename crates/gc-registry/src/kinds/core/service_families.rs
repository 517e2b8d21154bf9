//! Address families of a service: settled before it gets addresses, and validated before all other checks. The server only has IPv4
//! addresses.

use super::service::{addresses, is_headless};
use crate::error::FieldError;
use crate::kinds::prelude::*;

const POLICY: [&str; 2] = ["spec", "ipFamilyPolicy"];
const FAMILIES: [&str; 2] = ["spec", "ipFamilies"];
const SINGLE: &str = "SingleStack";
const PREFER: &str = "PreferDualStack";
const REQUIRE: &str = "RequireDualStack";

/// Sets policy and families of a service with addresses; returns errors in them.
pub(crate) fn settle(service: &mut Value, old: Option<&Value>) -> Vec<FieldError> {
    if text(service, &["spec", "type"]) == "ExternalName" || old.is_some_and(|old| stays(service, old)) {
        return Vec::new();
    }
    let is_open = {
        let root = Field::root(service);
        is_headless(&root.get("spec")) && root.get("spec").get("selector").is_empty()
    };
    if at(service, &POLICY).is_none() {
        let before = old.and_then(|old| at(old, &POLICY)).cloned();
        put(service, &POLICY, before.unwrap_or_else(|| if is_open { REQUIRE.into() } else { SINGLE.into() }));
    }
    let errors = given(service, old);
    if !errors.is_empty() {
        return errors;
    }
    infer(service);
    let policy = text(service, &POLICY).to_owned();
    let count = list(service, &FAMILIES).len();
    if is_open {
        // A headless service without a selector may have both families anywhere.
        if count < 2 && policy != SINGLE {
            let other = if list(service, &FAMILIES)[0] == "IPv6" { "IPv4" } else { "IPv6" };
            let first = list(service, &FAMILIES)[0].clone();
            put(service, &FAMILIES, json!([first, other]));
        }
        return Vec::new();
    }
    served(service, &policy)
}

/// Reports whether an update leaves the addresses of a service that may have two of them unchanged.
fn stays(service: &Value, old: &Value) -> bool {
    let kind = text(service, &["spec", "type"]);
    matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer")
        && kind == text(old, &["spec", "type"])
        && text(service, &POLICY) == PREFER
        && matches!(text(old, &POLICY), "" | PREFER)
        && at(service, &["spec", "clusterIPs"]) == at(old, &["spec", "clusterIPs"])
        && at(service, &FAMILIES) == at(old, &FAMILIES)
}

/// Returns the errors in the given addresses and families.
fn given(service: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut report = Report::of(service);
    let root = Field::root(service);
    let (spec, nothing) = (root.get("spec"), Value::Null);
    addresses(&spec, spec.text_of("type"), &mut report);
    let old_root = Field::root(old.unwrap_or(&nothing));
    let before = old_root.get("spec");
    if !report.errors.is_empty() {
        return report.errors;
    }
    let (policy, families, ips) =
        (spec.get("ipFamilyPolicy"), spec.get("ipFamilies"), spec.get("clusterIPs"));
    if policy.text() == SINGLE {
        let why = "must be 'RequireDualStack' or 'PreferDualStack' when multiple";
        if ips.list().len() == 2 {
            report.invalid(&policy, &format!("{why} cluster IPs are specified"));
        }
        if families.list().len() == 2 {
            report.invalid(&policy, &format!("{why} IP families are specified"));
        }
    } else if old.is_some() {
        let is_reduced = |now: &Field<'_, '_>, was: &Field<'_, '_>| {
            !now.list().is_empty() && now.list().len() < was.list().len()
        };
        if is_reduced(&ips, &before.get("clusterIPs")) {
            report.invalid(&policy, "must be 'SingleStack' to release the secondary cluster IP");
        }
        if is_reduced(&families, &before.get("ipFamilies")) {
            report.invalid(&policy, "must be 'SingleStack' to release the secondary IP family");
        }
    }
    for address in ips.items().skip(families.list().len()) {
        if address.text().contains(':') {
            report.invalid(&address.with(ips.value()), "IPv6 is not configured on this cluster");
        }
    }
    report.errors
}

/// Infers missing families from the addresses; without addresses, uses the family of the server.
fn infer(service: &mut Value) {
    let mut families = list(service, &FAMILIES).to_vec();
    for address in list(service, &["spec", "clusterIPs"]).iter().skip(families.len()) {
        match address.as_str() {
            Some("None") => break,
            Some(text) if text.contains(':') => families.push("IPv6".into()),
            _ => families.push("IPv4".into()),
        }
    }
    if families.is_empty() {
        families.push("IPv4".into());
    }
    put(service, &FAMILIES, families.into());
}

/// Returns errors for families that the server lacks.
fn served(service: &Value, policy: &str) -> Vec<FieldError> {
    let mut report = Report::of(service);
    let root = Field::root(service);
    let spec = root.get("spec");
    if policy == REQUIRE {
        let why = "this cluster is not configured for dual-stack services";
        report.invalid(&spec.get("ipFamilyPolicy"), why);
    }
    for family in spec.get("ipFamilies").items().filter(|family| family.text() == "IPv6") {
        report.invalid(&family, "not configured on this cluster");
    }
    report.errors
}
