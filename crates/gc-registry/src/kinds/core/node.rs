//! Nodes.

use std::collections::BTreeSet;

use crate::error::CauseReason;
use crate::kinds::prelude::*;
use crate::kinds::shared::names::{cidr_text, config_key, dns_label, dns_subdomain, parse_cidr};
use crate::kinds::shared::{resources, scheduling};

const FEATURE_MAX_BYTES: usize = 253;
const CIDR_ONCE: &str = "node updates may not change podCIDR except from \"\" to valid";
const PROVIDER_ONCE: &str = "node updates may not change providerID except from \"\" to valid";

pub(crate) struct Node;

impl Kind for Node {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata =
        Metadata { update: &[MetadataCheck::Whole, MetadataCheck::Change], ..Metadata::DEFAULT };
    const FOLDER: Option<&'static str> = Some("minions");
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Status", T("The status of the node")),
        H::text("Roles", T("The roles of the node")),
        H::AGE,
        H::text("Version", F("api.core.v1.NodeSystemInfo", "kubeletVersion")),
        H::wide("Internal-IP", F("api.core.v1.NodeStatus", "addresses")),
        H::wide("External-IP", F("api.core.v1.NodeStatus", "addresses")),
        H::wide("OS-Image", F("api.core.v1.NodeSystemInfo", "osImage")),
        H::wide("Kernel-Version", F("api.core.v1.NodeSystemInfo", "kernelVersion")),
        H::wide("Container-Runtime", F("api.core.v1.NodeSystemInfo", "containerRuntimeVersion")),
    ];
    const FIELD_LABELS: &'static [&'static str] = &["spec.unschedulable"];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let conditions = row.list(&["status", "conditions"]);
        let ready = conditions.iter().rev().find(|condition| text(condition, &["type"]) == "Ready");
        let mut status = match ready.map(|condition| text(condition, &["status"])) {
            Some("True") => "Ready",
            Some(_) => "NotReady",
            None => "Unknown",
        }
        .to_owned();
        if flag(row.object, &["spec", "unschedulable"]) == Some(true) {
            status.push_str(",SchedulingDisabled");
        }
        let mut roles = BTreeSet::new();
        for (label, value) in members(row.object, &["metadata", "labels"]).into_iter().flatten() {
            if let Some(role) = label.strip_prefix("node-role.kubernetes.io/").filter(|role| !role.is_empty())
            {
                roles.insert(role);
            } else if label == "kubernetes.io/role"
                && let Some(role) = value.as_str().filter(|role| !role.is_empty())
            {
                roles.insert(role);
            }
        }
        let roles = roles.into_iter().collect::<Vec<_>>().join(",");
        let address = |kind: &str| {
            let addresses = row.list(&["status", "addresses"]);
            let found = addresses.iter().find(|address| text(address, &["type"]) == kind);
            Value::from(found.map_or(NONE, |address| text(address, &["address"])))
        };
        vec![
            row.name(),
            status.into(),
            if roles.is_empty() { NONE.into() } else { roles.into() },
            row.age(),
            row.text(&["status", "nodeInfo", "kubeletVersion"]).into(),
            address("InternalIP"),
            address("ExternalIP"),
            row.text_or(&["status", "nodeInfo", "osImage"], "<unknown>"),
            row.text_or(&["status", "nodeInfo", "kernelVersion"], "<unknown>"),
            row.text_or(&["status", "nodeInfo", "containerRuntimeVersion"], "<unknown>"),
        ]
    }

    fn defaults(members: &mut Members) {
        if let Some(spec) = existing(members, "spec") {
            pod_ranges(spec);
        }
        let Some(status) = child(members, "status") else { return };
        if let Some(capacity) = status.get("capacity").cloned() {
            fill_absent(status, "allocatable", capacity);
        }
        for condition in items(status, "conditions") {
            for key in ["lastHeartbeatTime", "lastTransitionTime"] {
                fill_absent(condition, key, Value::Null);
            }
        }
        if let Some(daemon) = child(status, "daemonEndpoints")
            && let Some(kubelet) = child(daemon, "kubeletEndpoint")
        {
            fill_absent(kubelet, "Port", 0);
        }
        if let Some(info) = child(status, "nodeInfo") {
            for key in [
                "machineID",
                "systemUUID",
                "bootID",
                "kernelVersion",
                "osImage",
                "containerRuntimeVersion",
                "kubeletVersion",
                "kubeProxyVersion",
                "operatingSystem",
                "architecture",
            ] {
                fill_absent(info, key, "");
            }
        }
    }

    fn drop_disabled(members: &mut Members) {
        disabled::drop_from(members, "spec", &["configSource"]);
        disabled::drop_from(members, "status", &["config"]);
    }

    /// Keeps the status of a new node, which its kubelet sets when it registers.
    fn reset_status(_: &mut Value) {}

    fn warnings(object: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        if !text(object, &["spec", "externalID"]).is_empty() {
            texts.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".into());
        }
        warnings::addresses::cidrs("spec.podCIDRs", list(object, &["spec", "podCIDRs"]), texts);
    }

    fn field_label(name: &str, object: &Value) -> String {
        match name {
            "spec.unschedulable" => flag(object, &["spec", "unschedulable"]).unwrap_or_default().to_string(),
            _ => text_label(name, object),
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        taints(object, report);
        node_resources(object, report);
        declared_features(&object.get("status").get("declaredFeatures"), report);
        let spec = object.get("spec");
        let ranges = spec.get("podCIDRs");
        for range in ranges.items() {
            cidr_text(&range, range.text(), report);
        }
        if ranges.list().len() > 1 {
            let bad = ranges.texts().enumerate().find(|(_, text)| parse_cidr(text).is_none());
            if let Some((index, text)) = bad {
                let why = format!(
                    "Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid \
                     CIDR[{index}]: <nil> (invalid CIDR address: {text})"
                );
                report.push(&ranges, CauseReason::Internal, why);
            }
            let parsed: Option<Vec<_>> = ranges.texts().map(parse_cidr).collect();
            let dual = parsed.is_some_and(|parsed| {
                parsed.iter().any(|(ip, _)| ip.is_ipv4()) && parsed.iter().any(|(ip, _)| ip.is_ipv6())
            });
            if !dual || ranges.list().len() > 2 {
                report.invalid(&ranges, "may specify no more than one CIDR for each IP family");
            }
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        // Upstream also validates the whole node, and reports errors found by both checks twice.
        Self::validate(new, report);
        update(new, old, report);
    }

    fn validate_status(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        update(new, old, report);
    }
}

/// Validates taints, for which upstream's errors name metadata.
fn taints(object: &Field<'_, '_>, report: &mut Report) {
    let (metadata, spec) = (object.get("metadata"), object.get("spec"));
    scheduling::taints(&metadata.named("taints", spec.member("taints")), report);
}

fn node_resources(object: &Field<'_, '_>, report: &mut Report) {
    let status = object.get("status");
    for member in ["capacity", "allocatable"] {
        let quantities = status.get(member);
        for (name, quantity) in quantities.entries() {
            resources::resource_quantity(&quantities.named(name, quantity.value()), name, report);
        }
    }
}

/// Reports whether a name consists of segments separated by slashes, the first of which begins with an upper-case letter.
fn is_feature_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.split('/').all(|segment| {
            segment.starts_with(|first: char| first.is_ascii_alphabetic())
                && segment.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
}

/// Validates the features that a kubelet declares: names in order, without duplicates.
fn declared_features(field: &Field<'_, '_>, report: &mut Report) {
    for (feature, next) in field.items().zip(field.items().skip(1).map(Some).chain([None])) {
        let name = feature.text();
        if name.len() > FEATURE_MAX_BYTES {
            let why = format!(
                "invalid feature name {}: must be no more than {FEATURE_MAX_BYTES} characters",
                quoted(name)
            );
            report.invalid(&feature, &why);
        } else if !is_feature_name(name) {
            let why = format!(
                "invalid feature name {}: must start with an UpperCamelCase segment, with subsequent segments separated \
                 by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes",
                quoted(name)
            );
            report.invalid(&feature, &why);
        }
        let Some(next) = next else { continue };
        if name == next.text() {
            report.duplicate(&next);
        } else if name > next.text() {
            report.invalid(&next, "list must be sorted alphabetically");
        }
    }
}

fn update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    node_resources(new, report);
    let status = new.get("status");
    declared_features(&status.get("declaredFeatures"), report);
    let mut addresses = BTreeSet::new();
    for address in status.get("addresses").items() {
        let (kind, text) = (address.text_of("type"), address.text_of("address"));
        if !addresses.insert((kind, text)) {
            let shown = format!("{{\"Type\":{},\"Address\":{}}}", quoted(kind), quoted(text));
            report.duplicate_shown(&address, &shown);
        }
    }
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let ranges = spec.get("podCIDRs");
    let was = before.get("podCIDRs").list();
    if !was.is_empty() && was.len() != ranges.list().len() {
        report.forbidden(&ranges, CIDR_ONCE);
    } else {
        for (ours, theirs) in ranges.list().iter().zip(was) {
            if ours != theirs {
                report.forbidden(&ranges, CIDR_ONCE);
            }
        }
    }
    let provider = before.text_of("providerID");
    if !provider.is_empty() && provider != spec.text_of("providerID") {
        report.forbidden(&spec.get("providerID"), PROVIDER_ONCE);
    }
    if spec.has("configSource") {
        config_source(&spec.get("configSource"), false, report);
    }
    let config = status.get("config");
    for member in ["assigned", "active", "lastKnownGood"] {
        if config.has(member) {
            config_source(&config.get(member), true, report);
        }
    }
    taints(new, report);
    if spec.text_of("externalID") != before.text_of("externalID") {
        report.forbidden(&spec.get("externalID"), "may not be updated");
    }
}

fn config_source(field: &Field<'_, '_>, in_status: bool, report: &mut Report) {
    let source = field.get("configMap");
    if !source.is_set() {
        report.invalid_shown(
            field,
            &"{\"ConfigMap\":null}",
            "exactly one reference subfield must be non-nil",
        );
        return;
    }
    for member in ["uid", "resourceVersion"] {
        let given = source.get(member);
        if in_status && given.text().is_empty() {
            report.required(&given, &format!("{member} must be set in status"));
        } else if !in_status && !given.text().is_empty() {
            report.forbidden(&given, &format!("{member} must not be set in spec"));
        }
    }
    type Form = fn(&str) -> Vec<String>;
    let members: [(&str, Form); 3] =
        [("namespace", dns_label), ("name", dns_subdomain), ("kubeletConfigKey", config_key)];
    for (member, form) in members {
        let given = source.get(member);
        if given.text().is_empty() {
            report.required(&given, &format!("{member} must be set"));
        } else {
            report.each(&given, form(given.text()));
        }
    }
}

/// Synchronizes the older name of a node's address range with the first of all of its ranges; the older name wins if they differ.
fn pod_ranges(spec: &mut Members) {
    let text = |value: Option<&Value>| {
        value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let one = text(spec.get("podCIDR"));
    let first = spec.get("podCIDRs").and_then(|list| list.get(0)).cloned();
    match (one, first) {
        (Some(one), first) if first.as_ref().and_then(Value::as_str) != Some(&one) => {
            spec.insert("podCIDRs".into(), json!([one]));
        }
        (None, Some(first)) => {
            spec.insert("podCIDR".into(), first);
        }
        _ => {}
    }
}
