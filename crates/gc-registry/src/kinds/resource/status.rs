//! Allocation of a claim, and its consumers.

use std::collections::BTreeSet;

use super::requests::{Names, driver_name, limited, opaque, references};
use crate::kinds::prelude::*;
use crate::kinds::shared::conditions::conditions;
use crate::kinds::shared::names::{dns_subdomain, label, label_value, parse_cidr, qualified_name};
use crate::kinds::shared::scheduling::node_selector;

const NOT_AN_INTERFACE_ADDRESS: &str =
    "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
const CONSUMERS_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
const CONDITIONS_MAX: usize = 8;
const BINDING_MAX: usize = 4;
const DATA_MAX_BYTES: usize = 10 * 1024;
const ADDRESSES_MAX: usize = 16;
const INTERFACE_MAX_BYTES: usize = 256;
const HARDWARE_MAX_BYTES: usize = 128;
const POOL_MAX_BYTES: usize = 253;
const NOT_A_NORMAL_UID: &str = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase \
    hexadecimal characters";

/// A device, as identified in the results of an allocation.
type Device<'v> = (&'v str, &'v str, &'v str, &'v str);

fn device<'v>(field: &Field<'v, '_>) -> Device<'v> {
    (field.text_of("driver"), field.text_of("pool"), field.text_of("device"), field.text_of("shareID"))
}

pub(super) fn status(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    let (status, before) = (new.get("status"), old.get("status"));
    let (allocation, reserved) = (status.get("allocation"), status.get("reservedFor"));
    consumers(&reserved, report);
    let mut allocated = BTreeSet::new();
    for result in allocation.get("devices").get("results").items() {
        allocated.insert(device(&result));
    }
    let mut seen = BTreeSet::new();
    for item in status.get("devices").items() {
        let id = device(&item);
        if !seen.insert(id) {
            report.duplicate_shown(&item, &shown(id));
        }
        given_device(&item, id, &allocated, report);
    }
    if !reserved.list().is_empty() && !allocation.is_set() {
        report.forbidden(&reserved, "may not be specified when `allocated` is not set");
    }
    let previous = before.get("allocation");
    if previous.is_set() && allocation.is_set() && previous.value() != allocation.value() {
        report.invalid(&allocation, IMMUTABLE);
    }
    if allocation.is_set() && !previous.is_set() {
        let names = Names::of(&new.get("spec"));
        allocated_devices(&allocation, &names, report);
    }
}

fn shown((driver, pool, device, share): Device<'_>) -> String {
    format!(
        "{{\"Driver\":{},\"Pool\":{},\"Device\":{},\"ShareID\":{}}}",
        quoted(driver),
        quoted(pool),
        quoted(device),
        quoted(share)
    )
}

fn consumers(field: &Field<'_, '_>, report: &mut Report) {
    let mut seen = BTreeSet::new();
    for item in limited(field, CONSUMERS_MAX, report) {
        if !seen.insert(item.text_of("uid")) {
            report.duplicate_text(&item, item.text_of("uid"));
        }
        for name in ["resource", "name", "uid"] {
            if item.text_of(name).is_empty() {
                report.required(&item.get(name), "");
            }
        }
    }
}

fn allocated_devices(field: &Field<'_, '_>, names: &Names<'_>, report: &mut Report) {
    let devices = field.get("devices");
    for item in limited(&devices.get("results"), RESULTS_MAX, report) {
        names.reference(&item.get("request"), report);
        driver_name(&item.get("driver"), report);
        pool_name(&item.get("pool"), report);
        label(&item.get("device"), report);
        let (good, bad) = (item.get("bindingConditions"), item.get("bindingFailureConditions"));
        binding_conditions(&good, &bad, report);
        share(&item.get("shareID"), report);
    }
    for item in limited(&devices.get("config"), 2 * RESULTS_MAX, report) {
        report.one_of(&item.get("source"), &["FromClaim", "FromClass"]);
        references(&item.get("requests"), names, report);
        opaque(&item.get("opaque"), report);
    }
    if field.has("nodeSelector") {
        node_selector(&field.get("nodeSelector"), report);
    }
}

/// Validates the conditions that binding waits for: success and failure, which must be given together.
pub(super) fn binding_conditions(good: &Field<'_, '_>, bad: &Field<'_, '_>, report: &mut Report) {
    for field in [good, bad] {
        for item in limited(field, BINDING_MAX, report) {
            report.each(&item, qualified_name(item.text()));
        }
    }
    for field in [good, bad] {
        let mut seen = BTreeSet::new();
        for item in field.items() {
            if !seen.insert(item.text()) {
                report.duplicate(&item);
            }
            if std::ptr::eq(field, bad) && good.list().contains(item.value()) {
                report.invalid(&item, "bindingFailureConditions must not overlap with bindingConditions");
            }
        }
    }
    match (good.list().is_empty(), bad.list().is_empty()) {
        (true, false) => {
            report.invalid(good, "bindingConditions are required to use bindingFailureConditions");
        }
        (false, true) => {
            report.invalid(bad, "bindingFailureConditions are required to use bindingConditions");
        }
        _ => {}
    }
}

/// Validates the name of a pool: subdomains separated by slashes.
pub(super) fn pool_name(field: &Field<'_, '_>, report: &mut Report) {
    let name = field.text();
    if name.is_empty() {
        report.required(field, "");
        return;
    }
    if name.len() > POOL_MAX_BYTES {
        report.too_long(field, POOL_MAX_BYTES);
    }
    for part in name.split('/') {
        report.each_of(field, part, dns_subdomain(part));
    }
}

fn share(field: &Field<'_, '_>, report: &mut Report) {
    let text = field.text();
    if !field.is_set() {
        return;
    }
    if text.len() != 36 {
        let why = format!("error validating uid: invalid UUID length: {}", text.len());
        report.invalid(field, &why);
        return;
    }
    let fits = text.bytes().enumerate().all(|(index, byte)| match index {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    if !fits {
        report.invalid(field, "error validating uid: invalid UUID format");
    } else if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        report.invalid(field, NOT_A_NORMAL_UID);
    }
}

fn given_device(
    field: &Field<'_, '_>,
    id: Device<'_>,
    allocated: &BTreeSet<Device<'_>>,
    report: &mut Report,
) {
    driver_name(&field.get("driver"), report);
    pool_name(&field.get("pool"), report);
    label(&field.get("device"), report);
    share(&field.get("shareID"), report);
    if !allocated.contains(&id) {
        report.invalid_shown(field, &shown(id), "must be an allocated device in the claim");
    }
    let list = field.get("conditions");
    if list.list().len() > CONDITIONS_MAX {
        report.too_many(&list, list.list().len(), CONDITIONS_MAX);
    }
    conditions(&list, report);
    let data = field.get("data");
    if data.is_set() {
        if data.value().is_object() {
            if data.value().to_string().len() > DATA_MAX_BYTES {
                report.too_long(&data, DATA_MAX_BYTES);
            }
        } else {
            report.invalid_shown(&data, &quoted("<value omitted>"), "must be a valid JSON object");
        }
    }
    network_data(&field.get("networkData"), report);
}

fn network_data(field: &Field<'_, '_>, report: &mut Report) {
    for (name, max) in [("interfaceName", INTERFACE_MAX_BYTES), ("hardwareAddress", HARDWARE_MAX_BYTES)] {
        if field.text_of(name).len() > max {
            report.too_long(&field.get(name), max);
        }
    }
    let addresses = field.get("ips");
    let mut seen = BTreeSet::new();
    for address in limited(&addresses, ADDRESSES_MAX, report) {
        match parse_cidr(address.text()) {
            None => report.invalid(&address, NOT_AN_INTERFACE_ADDRESS),
            Some((ip, length)) => {
                let wanted = format!("{ip}/{length}");
                if wanted != address.text() {
                    report.invalid(&address, &format!("must be in canonical form ({wanted:?})"));
                }
            }
        }
    }
    for address in addresses.items().take(ADDRESSES_MAX) {
        if !seen.insert(address.text()) {
            report.duplicate(&address);
        }
    }
}

/// Validates the value of a taint.
pub(super) fn taint_value(field: &Field<'_, '_>, report: &mut Report) {
    let text = field.value().as_str().unwrap_or_default();
    report.each_of(field, text, label_value(text));
    debug_assert!(matches!(field.value(), Value::Null | Value::String(_)));
}
