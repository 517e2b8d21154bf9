//! The defaults of pods.

use crate::kinds::prelude::*;
use crate::kinds::shared::pod_defaults::{GRACE, pod_spec};
use crate::kinds::shared::resources::{is_huge_page, of_containers};

/// Sets the defaults of a pod: those of a template, and those that only a pod has.
pub(super) fn pod(members: &mut Members) {
    if let Some(spec) = child(members, "spec") {
        pod_spec(spec);
        // Templates keep a negative period; in a pod, it becomes one second.
        if spec.get(GRACE).and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
            spec.insert(GRACE.into(), 1.into());
        }
        fill_absent(spec, "enableServiceLinks", true);
        let on_host_network = spec.get("hostNetwork").and_then(Value::as_bool) == Some(true);
        for key in ["containers", "initContainers"] {
            for container in items(spec, key) {
                request_limits(container);
                if on_host_network {
                    for port in items(container, "ports") {
                        if let Some(number) = port.get("containerPort").cloned() {
                            fill_absent(port, "hostPort", number);
                        }
                    }
                }
            }
        }
        whole_resources(spec);
    }
    if let Some(status) = existing(members, "status") {
        addresses(status);
    }
}

/// Synchronizes the older name of a pod's address with the first of all of its addresses; the older name wins if they differ.
fn addresses(status: &mut Members) {
    let text = |value: Option<&Value>| {
        value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let one = text(status.get("podIP"));
    let first = text(status.get("podIPs").and_then(|list| list.get(0)).and_then(|entry| entry.get("ip")));
    match (one, first) {
        (Some(one), first) if first.as_deref() != Some(&one) => {
            status.insert("podIPs".into(), json!([{"ip": one}]));
        }
        (None, Some(first)) => {
            status.insert("podIP".into(), first.into());
        }
        _ => {}
    }
}

/// Sets missing requests to the limits.
fn request_limits(container: &mut Members) {
    let Some(resources) = existing(container, "resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if let Some(requests) = child(resources, "requests") {
        for (name, quantity) in limits {
            requests.entry(name).or_insert(quantity);
        }
    }
}

/// Sets resources of a pod that specifies some of its own: limits of huge pages are the sums of its containers' limits; requests
/// are the sums of their requests, or else its own limits.
fn whole_resources(spec: &mut Members) {
    let given = |list: &str| {
        let lists = spec.get("resources").and_then(|resources| resources.get(list));
        lists.and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let (mut limits, mut requests) = (given("limits"), given("requests"));
    if limits.is_empty() && requests.is_empty() {
        return;
    }
    let containers = Value::Object(spec.clone());
    for (name, sum) in of_containers(&containers, "limits") {
        if is_huge_page(&name) && !requests.contains_key(&name) && !limits.contains_key(&name) {
            limits.insert(name, sum.to_string().into());
        }
    }
    if !limits.is_empty() {
        for (name, sum) in of_containers(&containers, "requests") {
            if matches!(&*name, "cpu" | "memory") && !requests.contains_key(&name) {
                requests.insert(name, sum.to_string().into());
            }
        }
        for (name, limit) in &limits {
            if matches!(&**name, "cpu" | "memory") || is_huge_page(name) {
                requests.entry(name.clone()).or_insert_with(|| limit.clone());
            }
        }
    }
    if let Some(resources) = existing(spec, "resources") {
        for (list, quantities) in [("limits", limits), ("requests", requests)] {
            if !quantities.is_empty() {
                resources.insert(list.into(), quantities.into());
            }
        }
    }
}
