//! Slices of the devices of a pool.

use std::collections::BTreeSet;

use super::device::{self, Location};
use super::requests::{driver_name, limited};
use super::status::pool_name;
use crate::kinds::prelude::*;
use crate::kinds::shared::names::{dns_subdomain, label};
use crate::kinds::shared::scheduling::node_selector;

const DEVICES_MAX: usize = 128;
/// Maximum number of devices if one of them has taints or consumes counters.
const SPECIAL_DEVICES_MAX: usize = 64;
const COUNTER_SETS_MAX: usize = 8;
pub(super) const COUNTERS_MAX: usize = 32;

/// Attribute values behind the feature gate DRAListTypeAttributes, which is off by default.
const LISTS_OF_ATTRIBUTES: [&str; 4] = ["bools", "ints", "strings", "versions"];

pub(crate) struct ResourceSlice;

impl Kind for ResourceSlice {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::CountsSent(&[&["spec"]]);
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Node", F("api.resource.v1.ResourceSliceSpec", "nodeName")),
        H::text("Driver", F("api.resource.v1.ResourceSliceSpec", "driver")),
        H::text("Pool", F("api.resource.v1.ResourcePool", "name")),
        H::AGE,
    ];
    const FIELD_LABELS: &'static [&'static str] = &["spec.nodeName", "spec.driver"];
    const UNKNOWN_FIELD_LABEL: &'static str =
        "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {}";

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![
            row.name(),
            row.shown(&["spec", "nodeName"]),
            row.shown(&["spec", "driver"]),
            row.shown(&["spec", "pool", "name"]),
            row.age(),
        ]
    }

    fn defaults(_: &mut Members) {}

    fn drop_disabled(members: &mut Members) {
        let Some(spec) = existing(members, "spec") else { return };
        for device in items(spec, "devices") {
            device.remove("nodeAllocatableResourceMappings");
            let attributes = existing(device, "attributes").into_iter().flatten();
            for attribute in attributes.filter_map(|(_, attribute)| attribute.as_object_mut()) {
                attribute.retain(|name, _| !LISTS_OF_ATTRIBUTES.contains(&name.as_str()));
            }
        }
    }

    fn prepare_create(object: &mut Value, context: &Context<'_>) {
        stamp_taints(object, context);
    }

    fn prepare_update(new: &mut Value, _: &Value, context: &Context<'_>) {
        stamp_taints(new, context);
    }

    fn warnings(new: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        let driver = text(new, &["spec", "driver"]);
        if driver != driver.to_lowercase() {
            let shown = quoted(driver);
            texts.push(format!(
                "spec.driver: driver names should be lowercase; {shown} contains uppercase characters"
            ));
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        slice(&object.get("spec"), None, report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        slice(&new.get("spec"), Some(&old.get("spec")), report);
    }
}

fn slice(spec: &Field<'_, '_>, old: Option<&Field<'_, '_>>, report: &mut Report) {
    driver_name(&spec.get("driver"), report);
    let pool = spec.get("pool");
    pool_name(&pool.get("name"), report);
    if pool.number_of("resourceSliceCount") <= 0 {
        report.invalid_number(&pool.get("resourceSliceCount"), "must be greater than zero");
    }
    if pool.number_of("generation") < 0 {
        report.invalid(&pool.get("generation"), "must be greater than or equal to zero");
    }
    if let Some(old) = old {
        report.immutable_text(&pool.get("name"), &old.get("pool").get("name"));
        report.immutable_text(&spec.get("driver"), &old.get("driver"));
        let node = spec.get("nodeName");
        if node.value() != old.member("nodeName") {
            report.invalid(&node, IMMUTABLE);
        }
    }
    let location = location(spec, report);
    let devices = spec.get("devices");
    if !devices.list().is_empty() && !spec.get("sharedCounters").list().is_empty() {
        report.invalid_text(spec, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let special = devices
        .items()
        .any(|item| !item.get("taints").list().is_empty() || !item.get("consumesCounters").list().is_empty());
    let max = if special { SPECIAL_DEVICES_MAX } else { DEVICES_MAX };
    let mut names = BTreeSet::new();
    for item in limited(&devices, max, report) {
        if !names.insert(item.text_of("name")) {
            report.duplicate_text(&item, item.text_of("name"));
        }
        device::device(&item, location, report);
    }
    let shared = spec.get("sharedCounters");
    if old.is_none_or(|old| old.member("sharedCounters") != shared.value()) {
        shared_counters(&shared, report);
    }
}

/// Checks that the location of the devices is given in exactly one way.
fn location(spec: &Field<'_, '_>, report: &mut Report) -> Location {
    let mut given = Vec::new();
    let node = spec.get("nodeName");
    if node.is_set() {
        if node.text().is_empty() {
            report.invalid_text(&node, "", "must be either unset or set to a non-empty string");
        } else {
            given.push("`nodeName`");
            report.each(&node, dns_subdomain(node.text()));
        }
    }
    let selector = spec.get("nodeSelector");
    if selector.is_set() {
        given.push("`nodeSelector`");
        node_selector(&selector, report);
        one_term(&selector, report);
    }
    for name in ["allNodes", "perDeviceNodeSelection"] {
        let flag = spec.get(name);
        if flag.flag() {
            given.push(if name == "allNodes" { "`allNodes`" } else { "`perDeviceNodeSelection`" });
        } else if flag.is_set() {
            report.invalid(&flag, "must be either unset or set to true");
        }
    }
    match given.len() {
        0 => report.required(
            spec,
            "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        ),
        1 => {}
        _ => {
            let why = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, \
                but multiple fields are set";
            report.invalid_text(spec, &format!("{{{}}}", given.join(", ")), why);
        }
    }
    if spec.get("perDeviceNodeSelection").flag() { Location::OfEachDevice } else { Location::OfTheSlice }
}

fn one_term(selector: &Field<'_, '_>, report: &mut Report) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.list().len() != 1 {
        report.invalid(&terms, "must have exactly one node selector term");
    }
}

fn shared_counters(field: &Field<'_, '_>, report: &mut Report) {
    let mut names = BTreeSet::new();
    for set in limited(field, COUNTER_SETS_MAX, report) {
        let name = set.get("name");
        if !names.insert(name.text()) {
            report.duplicate_text(&set, name.text());
        }
        if name.text().is_empty() {
            report.required(&name, "");
        } else {
            label(&name, report);
        }
        device::counters(&set.get("counters"), report);
    }
}

/// Sets the time at which taints of devices were added.
fn stamp_taints(object: &mut Value, context: &Context<'_>) {
    let Some(spec) = object.as_object_mut().and_then(|members| child(members, "spec")) else { return };
    for device in items(spec, "devices") {
        for taint in items(device, "taints") {
            fill_absent(taint, "timeAdded", context.time());
        }
    }
}
