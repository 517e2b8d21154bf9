//! Rows of the other groups.

use std::fmt::Write as _;

use serde_json::Value;

use super::core::{load_balancer, shortened};
use super::duration::human_duration;
use super::{NONE, Row, UNSET, int_or_string, selector};
use crate::kinds::access::{at, flag, integer, list, text};
use crate::resource::Target;

/// Hosts, ports and addresses that are shown; the others are counted.
const SHOWN: usize = 3;

pub(super) fn cells(target: Target<'_>, row: &Row<'_>) -> Vec<Value> {
    let shown = |path: &[&str]| Value::from(row.text(path));
    let boolean = |path: &[&str], other: bool| Value::from(flag(row.object, path).unwrap_or(other));
    match target.resource {
        "certificatesigningrequests" => signing_request(row),
        "leases" => vec![row.name(), shown(&["spec", "holderIdentity"]), row.age()],
        "endpointslices" => endpoint_slice(row),
        "ingresses" => ingress(row),
        "ingressclasses" => {
            vec![row.name(), shown(&["spec", "controller"]), ingress_parameters(row), row.age()]
        }
        // Upstream prints an age that has no column.
        "ipaddresses" => vec![row.name(), parent(row), row.age()],
        "networkpolicies" => {
            vec![row.name(), selector(at(row.object, &["spec", "podSelector"])), row.age()]
        }
        "servicecidrs" => {
            let ranges: Vec<&str> = row.list(&["spec", "cidrs"]).iter().filter_map(Value::as_str).collect();
            vec![row.name(), ranges.join(",").into(), row.age()]
        }
        "runtimeclasses" => vec![row.name(), shown(&["handler"]), row.age()],
        "rolebindings" | "clusterrolebindings" => role_binding(row),
        "priorityclasses" => vec![
            row.name(),
            row.number(&["value"]).into(),
            boolean(&["globalDefault"], false),
            row.age(),
            shown(&["preemptionPolicy"]),
        ],
        "csidrivers" => csi_driver(row),
        "csinodes" => vec![row.name(), row.list(&["spec", "drivers"]).len().into(), row.age()],
        "storageclasses" => vec![
            default_name(
                row,
                &[
                    "storageclass.kubernetes.io/is-default-class",
                    "storageclass.beta.kubernetes.io/is-default-class",
                ],
            ),
            shown(&["provisioner"]),
            row.text_or(&["reclaimPolicy"], "Delete"),
            row.text_or(&["volumeBindingMode"], "Immediate"),
            boolean(&["allowVolumeExpansion"], false),
            row.age(),
        ],
        "volumeattributesclasses" => vec![
            default_name(row, &["volumeattributesclass.kubernetes.io/is-default-class"]),
            shown(&["driverName"]),
            row.age(),
        ],
        "volumeattachments" => vec![
            row.name(),
            shown(&["spec", "attacher"]),
            shown(&["spec", "source", "persistentVolumeName"]),
            shown(&["spec", "nodeName"]),
            boolean(&["status", "attached"], false),
            row.age(),
        ],
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            vec![row.name(), row.list(&["webhooks"]).len().into(), row.age()]
        }
        "validatingadmissionpolicies" => policy(row, "validations"),
        "mutatingadmissionpolicies" => policy(row, "mutations"),
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => {
            vec![row.name(), shown(&["spec", "policyName"]), parameter(row), row.age()]
        }
        "apiservices" => api_service(row),
        "flowschemas" => flow_schema(row),
        "prioritylevelconfigurations" => priority_level(row),
        "deviceclasses" | "resourceclaimtemplates" => vec![row.name(), row.age()],
        "resourceclaims" => vec![row.name(), claim_state(row).into(), row.age()],
        "resourceslices" => vec![
            row.name(),
            row.text_or(&["spec", "nodeName"], ""),
            shown(&["spec", "driver"]),
            shown(&["spec", "pool", "name"]),
            row.age(),
        ],
        _ => vec![row.name(), row.created()],
    }
}

fn signing_request(row: &Row<'_>) -> Vec<Value> {
    let has = |kind: &str| {
        row.list(&["status", "conditions"]).iter().any(|condition| text(condition, &["type"]) == kind)
    };
    let mut status = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !row.text(&["status", "certificate"]).is_empty() {
        status.push_str(",Issued");
    }
    let duration =
        integer(row.object, &["spec", "expirationSeconds"]).map_or_else(|| NONE.into(), human_duration);
    vec![
        row.name(),
        row.age(),
        row.text_or(&["spec", "signerName"], NONE),
        row.text(&["spec", "username"]).into(),
        duration.into(),
        status.into(),
    ]
}

fn endpoint_slice(row: &Row<'_>) -> Vec<Value> {
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

fn ingress(row: &Row<'_>) -> Vec<Value> {
    let rules = row.list(&["spec", "rules"]);
    let hosts: Vec<&str> =
        rules.iter().take(SHOWN).map(|rule| text(rule, &["host"])).filter(|host| !host.is_empty()).collect();
    let mut hosts = if hosts.is_empty() { "*".to_owned() } else { hosts.join(",") };
    if rules.len() > SHOWN && hosts != "*" {
        hosts = format!("{hosts} + {} more...", rules.len() - SHOWN);
    }
    let ports = if row.list(&["spec", "tls"]).is_empty() { "80" } else { "80, 443" };
    vec![
        row.name(),
        row.text_or(&["spec", "ingressClassName"], NONE),
        hosts.into(),
        load_balancer(row).join(",").into(),
        ports.into(),
        row.age(),
    ]
}

fn ingress_parameters(row: &Row<'_>) -> Value {
    let Some(parameters) = at(row.object, &["spec", "parameters"]) else { return NONE.into() };
    let mut shown = text(parameters, &["kind"]).to_owned();
    if let Some(group) = at(parameters, &["apiGroup"]).and_then(Value::as_str) {
        shown = format!("{shown}.{group}");
    }
    format!("{shown}/{}", text(parameters, &["name"])).into()
}

fn parent(row: &Row<'_>) -> Value {
    let Some(reference) = at(row.object, &["spec", "parentRef"]) else { return NONE.into() };
    let mut shown = text(reference, &["resource"]).to_lowercase();
    for (separator, key) in [('.', "group"), ('/', "namespace")] {
        let part = text(reference, &[key]);
        if !part.is_empty() {
            shown = format!("{shown}{separator}{part}");
        }
    }
    format!("{shown}/{}", text(reference, &["name"])).into()
}

fn role_binding(row: &Row<'_>) -> Vec<Value> {
    let role = format!("{}/{}", row.text(&["roleRef", "kind"]), row.text(&["roleRef", "name"]));
    let subjects = |kind: &str| -> Value {
        row.list(&["subjects"])
            .iter()
            .filter(|subject| text(subject, &["kind"]) == kind)
            .map(|subject| match (kind, text(subject, &["namespace"])) {
                ("ServiceAccount", namespace) if !namespace.is_empty() => {
                    format!("{namespace}/{}", text(subject, &["name"]))
                }
                _ => text(subject, &["name"]).to_owned(),
            })
            .collect::<Vec<_>>()
            .join(", ")
            .into()
    };
    vec![row.name(), role.into(), row.age(), subjects("User"), subjects("Group"), subjects("ServiceAccount")]
}

fn csi_driver(row: &Row<'_>) -> Vec<Value> {
    let boolean = |key: &str, other: bool| Value::from(flag(row.object, &["spec", key]).unwrap_or(other));
    let texts = |values: Vec<&str>| values.join(",");
    let modes = texts(row.list(&["spec", "volumeLifecycleModes"]).iter().filter_map(Value::as_str).collect());
    let audiences = at(row.object, &["spec", "tokenRequests"]).map_or_else(
        || UNSET.into(),
        |_| {
            texts(
                row.list(&["spec", "tokenRequests"]).iter().map(|token| text(token, &["audience"])).collect(),
            )
        },
    );
    vec![
        row.name(),
        boolean("attachRequired", true),
        boolean("podInfoOnMount", false),
        boolean("storageCapacity", false),
        audiences.into(),
        boolean("requiresRepublish", false),
        if modes.is_empty() { NONE.into() } else { modes.into() },
        row.age(),
    ]
}

fn default_name(row: &Row<'_>, annotations: &[&str]) -> Value {
    let is_default = annotations.iter().any(|name| row.text(&["metadata", "annotations", name]) == "true");
    let name = row.text(&["metadata", "name"]);
    if is_default { format!("{name} (default)").into() } else { name.into() }
}

fn policy(row: &Row<'_>, key: &str) -> Vec<Value> {
    let kind = at(row.object, &["spec", "paramKind"]).map_or_else(
        || UNSET.into(),
        |kind| format!("{}/{}", text(kind, &["apiVersion"]), text(kind, &["kind"])),
    );
    vec![row.name(), row.list(&["spec", key]).len().into(), kind.into(), row.age()]
}

fn parameter(row: &Row<'_>) -> Value {
    let name = row.text(&["spec", "paramRef", "name"]);
    let namespace = row.text(&["spec", "paramRef", "namespace"]);
    match (name, namespace) {
        ("", _) => match at(row.object, &["spec", "paramRef", "selector"]) {
            Some(labels) => go_selector(labels).into(),
            None => UNSET.into(),
        },
        (name, "") => format!("*/{name}").into(),
        (name, namespace) => format!("{namespace}/{name}").into(),
    }
}

/// A label selector as Go's generated `String` writes it.
fn go_selector(selector: &Value) -> String {
    let mut labels: Vec<(&String, &Value)> =
        selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten().collect();
    labels.sort_by_key(|(key, _)| key.as_str());
    let mut out = String::from("&LabelSelector{MatchLabels:map[string]string{");
    for (key, value) in labels {
        let _ = write!(out, "{key}: {},", value.as_str().unwrap_or_default());
    }
    out.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for expression in list(selector, &["matchExpressions"]) {
        let values: Vec<&str> = list(expression, &["values"]).iter().filter_map(Value::as_str).collect();
        let _ = write!(
            out,
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            text(expression, &["key"]),
            text(expression, &["operator"]),
            values.join(" ")
        );
    }
    out.push_str("},}");
    out
}

fn api_service(row: &Row<'_>) -> Vec<Value> {
    let service = at(row.object, &["spec", "service"]).map_or_else(
        || "Local".into(),
        |service| format!("{}/{}", text(service, &["namespace"]), text(service, &["name"])),
    );
    let conditions = row.list(&["status", "conditions"]);
    let available = conditions.iter().find(|condition| text(condition, &["type"]) == "Available");
    let available = match available {
        None => "Unknown".to_owned(),
        Some(condition) => match (text(condition, &["status"]), text(condition, &["reason"])) {
            ("True", _) => "True".to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
    };
    vec![row.name(), service.into(), available.into(), row.age()]
}

fn flow_schema(row: &Row<'_>) -> Vec<Value> {
    let conditions = row.list(&["status", "conditions"]);
    let dangling = conditions.iter().find(|condition| text(condition, &["type"]) == "Dangling");
    vec![
        row.name(),
        row.text(&["spec", "priorityLevelConfiguration", "name"]).into(),
        row.number(&["spec", "matchingPrecedence"]).into(),
        row.text_or(&["spec", "distinguisherMethod", "type"], NONE),
        row.age(),
        dangling.map_or("?", |condition| text(condition, &["status"])).into(),
    ]
}

fn priority_level(row: &Row<'_>) -> Vec<Value> {
    let number = |path: &[&str]| {
        int_or_string(at(row.object, path)).map_or_else(|| NONE.into(), |_| Value::from(row.number(path)))
    };
    let queuing = |key: &str| number(&["spec", "limited", "limitResponse", "queuing", key]);
    vec![
        row.name(),
        row.text(&["spec", "type"]).into(),
        number(&["spec", "limited", "nominalConcurrencyShares"]),
        queuing("queues"),
        queuing("handSize"),
        queuing("queueLengthLimit"),
        row.age(),
    ]
}

/// What holds a resource claim: `pending`, or `allocated` and for whom.
fn claim_state(row: &Row<'_>) -> String {
    let mut states = Vec::new();
    if at(row.object, &["metadata", "deletionTimestamp"]).is_some() {
        states.push("deleted");
    }
    if at(row.object, &["status", "allocation"]).is_none() {
        if states.is_empty() {
            states.push("pending");
        }
    } else {
        states.push("allocated");
        states.push(if row.list(&["status", "reservedFor"]).is_empty() { "" } else { "reserved" });
    }
    states.retain(|state| !state.is_empty());
    states.join(",")
}
