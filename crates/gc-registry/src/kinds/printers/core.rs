//! Rows of the core group.

use std::collections::BTreeSet;

use serde_json::Value;

use super::duration::since;
use super::{NONE, Row, UNSET, labels};
use crate::kinds::access::{at, flag, integer, list, members, text};
use crate::kinds::convert::convert;
use crate::resource::Target;

/// Addresses of an Endpoints object that are shown; the others are counted.
const ENDPOINTS_SHOWN: usize = 3;

pub(super) fn cells(target: Target<'_>, row: &Row<'_>) -> Vec<Value> {
    let count = |path: &[&str]| members(row.object, path).map_or(0, serde_json::Map::len);
    match target.resource {
        "configmaps" => {
            let entries = count(&["data"]) + count(&["binaryData"]);
            vec![row.name(), entries.into(), row.age()]
        }
        "secrets" => vec![row.name(), row.text(&["type"]).into(), count(&["data"]).into(), row.age()],
        "serviceaccounts" => vec![row.name(), row.age()],
        "namespaces" => vec![row.name(), row.text(&["status", "phase"]).into(), row.age()],
        "nodes" => node(row),
        "services" => service(row),
        "endpoints" => vec![row.name(), endpoints(row).into(), row.age()],
        "events" => event(target, row),
        "persistentvolumes" => volume(row),
        "persistentvolumeclaims" => claim(row),
        "resourcequotas" => quota(row),
        "componentstatuses" => component_status(row),
        _ => vec![row.name(), row.created()],
    }
}

fn node(row: &Row<'_>) -> Vec<Value> {
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
        if let Some(role) = label.strip_prefix("node-role.kubernetes.io/").filter(|role| !role.is_empty()) {
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

/// Addresses and host names that a load balancer reports, sorted.
pub(super) fn load_balancer(row: &Row<'_>) -> Vec<String> {
    let names: BTreeSet<&str> = row
        .list(&["status", "loadBalancer", "ingress"])
        .iter()
        .map(|ingress| {
            let address = text(ingress, &["ip"]);
            if address.is_empty() { text(ingress, &["hostname"]) } else { address }
        })
        .filter(|name| !name.is_empty())
        .collect();
    names.into_iter().map(str::to_owned).collect()
}

fn service(row: &Row<'_>) -> Vec<Value> {
    let texts = |path: &[&str]| -> Vec<String> {
        row.list(path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let external = texts(&["spec", "externalIPs"]);
    let kind = row.text(&["spec", "type"]);
    let external = match kind {
        "ClusterIP" | "NodePort" if external.is_empty() => NONE.into(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let all = [load_balancer(row), external].concat();
            if all.is_empty() { "<pending>".into() } else { all.join(",") }
        }
        "ExternalName" => row.text(&["spec", "externalName"]).into(),
        _ => "<unknown>".into(),
    };
    let ports: Vec<String> = row
        .list(&["spec", "ports"])
        .iter()
        .map(|port| {
            let number = integer(port, &["port"]).unwrap_or_default();
            let protocol = text(port, &["protocol"]);
            match integer(port, &["nodePort"]) {
                Some(node @ 1..) => format!("{number}:{node}/{protocol}"),
                _ => format!("{number}/{protocol}"),
            }
        })
        .collect();
    let address = texts(&["spec", "clusterIPs"]).into_iter().next().unwrap_or_else(|| NONE.into());
    vec![
        row.name(),
        kind.into(),
        address.into(),
        external.into(),
        if ports.is_empty() { NONE.into() } else { ports.join(",").into() },
        row.age(),
        labels(at(row.object, &["spec", "selector"])),
    ]
}

fn endpoints(row: &Row<'_>) -> String {
    let mut all = Vec::new();
    for subset in row.list(&["subsets"]) {
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
    shortened(&all, ENDPOINTS_SHOWN)
}

/// The first texts of a list, and how many more there are.
pub(super) fn shortened(texts: &[String], most: usize) -> String {
    if texts.is_empty() {
        return NONE.into();
    }
    let shown = texts.iter().take(most).map(String::as_str).collect::<Vec<_>>().join(",");
    if texts.len() > most { format!("{shown} + {} more...", texts.len() - most) } else { shown }
}

fn event(target: Target<'_>, row: &Row<'_>) -> Vec<Value> {
    // Both groups show the core form.
    let converted;
    let object = if target.group.is_empty() {
        row.object
    } else {
        let mut object = row.object.clone();
        if let Some(members) = object.as_object_mut() {
            members.insert("apiVersion".into(), "events.k8s.io/v1".into());
        }
        converted = convert("", "v1", "Event", &object);
        &converted
    };
    let moment = |path: &[&str]| at(object, path);
    let first = moment(&["firstTimestamp"]).or_else(|| moment(&["eventTime"]));
    let mut last = moment(&["lastTimestamp"]).or(first);
    let mut count = integer(object, &["count"]).filter(|count| *count != 0).unwrap_or(1);
    if let Some(series) = at(object, &["series"]) {
        last = at(series, &["lastObservedTime"]);
        count = integer(series, &["count"]).unwrap_or_default();
    }
    let kind = text(object, &["involvedObject", "kind"]).to_lowercase();
    let name = text(object, &["involvedObject", "name"]);
    let about = if name.is_empty() { kind } else { format!("{kind}/{name}") };
    let either = |first: &[&str], second: &[&str]| {
        let text_of_first = text(object, first);
        if text_of_first.is_empty() { text(object, second) } else { text_of_first }
    };
    let component = either(&["source", "component"], &["reportingComponent"]);
    let instance = either(&["source", "host"], &["reportingInstance"]);
    let source = if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") };
    vec![
        since(last, row.now).into(),
        text(object, &["type"]).into(),
        text(object, &["reason"]).into(),
        about.into(),
        text(object, &["involvedObject", "fieldPath"]).into(),
        source.into(),
        text(object, &["message"]).trim().into(),
        since(first, row.now).into(),
        count.into(),
        row.name(),
    ]
}

/// Access modes in their short forms, each once, in the order of the modes.
fn access_modes(modes: &[Value]) -> String {
    [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ]
    .iter()
    .filter(|(mode, _)| modes.iter().any(|have| have == mode))
    .map(|(_, short)| *short)
    .collect::<Vec<_>>()
    .join(",")
}

fn phase(row: &Row<'_>) -> Value {
    if at(row.object, &["metadata", "deletionTimestamp"]).is_some() {
        "Terminating".into()
    } else {
        row.text(&["status", "phase"]).into()
    }
}

/// The storage class, from the annotation of old if it is there.
fn class(row: &Row<'_>) -> Value {
    let old = row.text(&["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]);
    if old.is_empty() { row.text(&["spec", "storageClassName"]).into() } else { old.into() }
}

fn text_or_unset(row: &Row<'_>, path: &[&str]) -> Value {
    at(row.object, path).and_then(Value::as_str).unwrap_or(UNSET).into()
}

fn volume(row: &Row<'_>) -> Vec<Value> {
    let claim = match (row.text(&["spec", "claimRef", "namespace"]), row.text(&["spec", "claimRef", "name"]))
    {
        ("", "") => String::new(),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![
        row.name(),
        row.text_or(&["spec", "capacity", "storage"], "0"),
        access_modes(row.list(&["spec", "accessModes"])).into(),
        row.text(&["spec", "persistentVolumeReclaimPolicy"]).into(),
        phase(row),
        claim.into(),
        class(row),
        text_or_unset(row, &["spec", "volumeAttributesClassName"]),
        row.text(&["status", "reason"]).into(),
        row.age(),
        text_or_unset(row, &["spec", "volumeMode"]),
    ]
}

fn claim(row: &Row<'_>) -> Vec<Value> {
    let volume = row.text(&["spec", "volumeName"]);
    let (capacity, modes) = if volume.is_empty() {
        (Value::from(""), String::new())
    } else {
        (
            row.text_or(&["status", "capacity", "storage"], "0"),
            access_modes(row.list(&["status", "accessModes"])),
        )
    };
    vec![
        row.name(),
        phase(row),
        volume.into(),
        capacity,
        modes.into(),
        class(row),
        text_or_unset(row, &["spec", "volumeAttributesClassName"]),
        row.age(),
        text_or_unset(row, &["spec", "volumeMode"]),
    ]
}

fn quota(row: &Row<'_>) -> Vec<Value> {
    let mut requests = Vec::new();
    let mut limits = Vec::new();
    let mut hard: Vec<(&String, &Value)> =
        members(row.object, &["status", "hard"]).into_iter().flatten().collect();
    hard.sort_by_key(|(name, _)| *name);
    for (name, most) in hard {
        let used = row.text_or(&["status", "used", name], "0");
        let line = format!("{name}: {}/{}", used.as_str().unwrap_or("0"), most.as_str().unwrap_or("0"));
        if name.starts_with("limits.") { limits.push(line) } else { requests.push(line) }
    }
    vec![row.name(), requests.join(", ").into(), limits.join(", ").into(), row.age()]
}

fn component_status(row: &Row<'_>) -> Vec<Value> {
    let conditions = row.list(&["conditions"]);
    let healthy = conditions.iter().find(|condition| text(condition, &["type"]) == "Healthy");
    let status = match healthy.map(|condition| text(condition, &["status"])) {
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
        None => "Unknown",
    };
    let part = |key: &str| Value::from(healthy.map_or("", |condition| text(condition, &[key])));
    vec![row.name(), status.into(), part("message"), part("error")]
}
