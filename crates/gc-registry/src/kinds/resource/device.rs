//! A device of a slice.

use std::collections::BTreeSet;

use gc_types::Quantity;

use super::requests::{attribute_name, limited};
use super::resource_slice::COUNTERS_MAX;
use super::status::{binding_conditions, taint_value};
use crate::kinds::prelude::*;
use crate::kinds::shared::names::{dns_subdomain, label, qualified};
use crate::kinds::shared::scheduling::node_selector;

const ATTRIBUTES_MAX: usize = 32;
const TAINTS_MAX: usize = 16;
const VALUE_MAX_BYTES: usize = 64;
const VALID_VALUES_MAX: usize = 10;
const CONSUMPTIONS_MAX: usize = 2;

/// Definition of the nodes on which the devices are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    OfTheSlice,
    OfEachDevice,
}

pub(super) fn device(field: &Field<'_, '_>, location: Location, report: &mut Report) {
    label(&field.get("name"), report);
    let (attributes, capacity) = (field.get("attributes"), field.get("capacity"));
    for (name, value) in attributes.entries() {
        attribute_name(&attributes, name, report);
        attribute(&value, report);
    }
    let shared = field.get("allowMultipleAllocations").flag();
    for (name, value) in capacity.entries() {
        attribute_name(&capacity, name, report);
        request_policy(&value, shared, report);
    }
    let count = attributes.entries().count() + capacity.entries().count();
    if count > ATTRIBUTES_MAX {
        let why = format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}");
        report.invalid_shown(field, &count, &why);
    }
    for taint in limited(&field.get("taints"), TAINTS_MAX, report) {
        device_taint(&taint, report);
    }
    consumed_counters(&field.get("consumesCounters"), report);
    where_it_is(field, location, report);
    binding(field, report);
}

fn binding(field: &Field<'_, '_>, report: &mut Report) {
    let (good, bad) = (field.get("bindingConditions"), field.get("bindingFailureConditions"));
    binding_conditions(&good, &bad, report);
}

fn where_it_is(field: &Field<'_, '_>, location: Location, report: &mut Report) {
    let names = ["nodeName", "nodeSelector", "allNodes"];
    if location == Location::OfTheSlice {
        if names.iter().any(|name| field.has(name)) {
            let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set \
                to true in the ResourceSlice spec";
            report.invalid_shown(field, &"null", why);
        }
        return;
    }
    let mut given = Vec::new();
    let (node, selector, all) = (field.get(names[0]), field.get(names[1]), field.get(names[2]));
    if node.is_set() {
        if node.text().is_empty() {
            report.invalid_text(&node, "", "must not be empty");
        } else {
            report.each(&node, dns_subdomain(node.text()));
            given.push("`nodeName`");
        }
    }
    if selector.is_set() {
        node_selector(&selector, report);
        given.push("`nodeSelector`");
    }
    if all.flag() {
        given.push("`allNodes`");
    } else if all.is_set() {
        report.invalid(&all, "must be either unset or set to true");
    }
    const WHY: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
        `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    match given.len() {
        0 => report.required(field, WHY),
        1 => {}
        _ => report.invalid_text(field, &format!("{{{}}}", given.join(", ")), WHY),
    }
}

fn attribute(field: &Field<'_, '_>, report: &mut Report) {
    let given = ["int", "bool", "string", "version"].iter().filter(|name| field.has(name)).count();
    let text = field.get("string");
    if text.text().len() > VALUE_MAX_BYTES {
        report.too_long(&text, VALUE_MAX_BYTES);
    }
    let version = field.get("version");
    if version.is_set() {
        if !is_semantic_version(version.text()) {
            let why = "must be a string compatible with semver.org spec 2.0.0";
            report.invalid(&version, why);
        }
        if version.text().len() > VALUE_MAX_BYTES {
            report.too_long(&version, VALUE_MAX_BYTES);
        }
    }
    match given {
        0 => report.invalid_text(field, "", "exactly one value must be specified"),
        1 => {}
        _ => report.invalid(field, "exactly one value must be specified"),
    }
}

fn is_semantic_version(text: &str) -> bool {
    let (text, build) = text.split_once('+').map_or((text, None), |(a, b)| (a, Some(b)));
    let (numbers, early) = text.split_once('-').map_or((text, None), |(a, b)| (a, Some(b)));
    let identifier =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let early_part =
        |part: &str| identifier(part) && (!part.bytes().all(|b| b.is_ascii_digit()) || number(part));
    numbers.split('.').count() == 3
        && numbers.split('.').all(number)
        && early.is_none_or(|early| early.split('.').all(early_part))
        && build.is_none_or(|build| build.split('.').all(identifier))
}

/// Validates the amounts of a capacity that a request may take.
fn request_policy(field: &Field<'_, '_>, shared: bool, report: &mut Report) {
    let policy = field.get("requestPolicy");
    if !policy.is_set() {
        return;
    }
    if !shared {
        let why = "allowMultipleAllocations must be true";
        report.forbidden(&policy, why);
        return;
    }
    let (default, values, range) =
        (policy.get("default"), policy.get("validValues"), policy.get("validRange"));
    if !values.list().is_empty() && range.is_set() {
        let why = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
        report.forbidden(&policy, why);
        return;
    }
    let most = field.get("value").quantity().unwrap_or_default();
    if range.is_set() {
        if !default.is_set() {
            report.required(&default, "required when validRange is defined");
            return;
        }
        valid_range(&range, default.quantity().unwrap_or_default(), most, report);
    } else if !values.list().is_empty() {
        if !default.is_set() {
            report.required(&default, "required when validValues is defined");
            return;
        }
        valid_values(&values, default.quantity().unwrap_or_default(), most, report);
    }
}

fn valid_values(field: &Field<'_, '_>, default: Quantity, most: Quantity, report: &mut Report) {
    let values: Vec<Quantity> = field.items().map(|item| item.quantity().unwrap_or_default()).collect();
    for (item, pair) in field.items().skip(1).zip(values.windows(2)) {
        if pair[0].exceeds(pair[1]) {
            report.invalid(&item, "values must be sorted in ascending order");
        }
    }
    let (mut seen, mut found) = (BTreeSet::new(), false);
    for (item, value) in limited(field, VALID_VALUES_MAX, report).zip(values) {
        if value.exceeds(most) {
            let why = format!("option is larger than capacity value: {most}");
            report.invalid(&item, &why);
        }
        if !seen.insert(value.value()) {
            report.duplicate_text(&item, &value.value().to_string());
        }
        found |= value.same_as(default);
    }
    if !found {
        let why = "default value is not valid according to the requestPolicy";
        report.invalid_text(field, &default.to_string(), why);
    }
}

/// Validates the range of possible requests. Upstream's error shows the offending value at the path of the violated bound.
fn valid_range(field: &Field<'_, '_>, default: Quantity, most: Quantity, report: &mut Report) {
    let (min, max, step) = (field.get("min"), field.get("max"), field.get("step"));
    let Some(least) = min.quantity() else {
        report.required(&min, "required when validRange is defined");
        return;
    };
    if least.exceeds(most) {
        report.invalid(&min, &format!("min is larger than capacity value: {most}"));
    }
    if least.exceeds(default) {
        report.invalid_text(&min, &default.to_string(), &format!("default is less than min: {least}"));
    }
    if let Some(limit) = max.quantity() {
        if least.exceeds(limit) {
            report.invalid_text(&max, &least.to_string(), &format!("min is larger than max: {limit}"));
        }
        if limit.exceeds(most) {
            report.invalid(&max, &format!("max is larger than capacity value: {most}"));
        }
        if default.exceeds(limit) {
            report.invalid_text(&max, &default.to_string(), &format!("default is more than max: {limit}"));
        }
    }
    let Some(one) = step.quantity() else { return };
    let first = least + one;
    if first.exceeds(most) {
        report.invalid(&step, &format!("one step {first} is larger than capacity value: {most}"));
    }
    for value in [Some(default), max.quantity()].into_iter().flatten() {
        // A step of zero makes upstream's server panic; here, no value is a multiple of it.
        if (value.value() - least.value()).checked_rem(one.value()) != Some(0) {
            let why = format!("value is not a multiple of a given step ({one}) from ({least})");
            report.invalid_text(&step, &value.to_string(), &why);
        }
    }
}

/// Validates a taint of a device.
pub(super) fn device_taint(field: &Field<'_, '_>, report: &mut Report) {
    let (key, effect) = (field.get("key"), field.get("effect"));
    qualified(&key, report);
    taint_value(&field.get("value"), report);
    report.one_of(&effect, &["NoExecute", "NoSchedule", "None"]);
}

fn consumed_counters(field: &Field<'_, '_>, report: &mut Report) {
    let mut seen = BTreeSet::new();
    for item in limited(field, CONSUMPTIONS_MAX, report) {
        let set = item.get("counterSet");
        if !seen.insert(set.text()) {
            report.duplicate_text(&item, set.text());
        }
        if set.text().is_empty() {
            report.required(&set, "");
        } else {
            label(&set, report);
        }
        counters(&item.get("counters"), report);
    }
}

pub(super) fn counters(field: &Field<'_, '_>, report: &mut Report) {
    let count = field.entries().count();
    if count == 0 {
        report.required(field, "");
    }
    if count > COUNTERS_MAX {
        report.too_many(field, count, COUNTERS_MAX);
        return;
    }
    for (name, _) in field.entries() {
        report.each_of(field, name, crate::kinds::shared::names::dns_label(name));
    }
}
