//! The defaults of pods.

use crate::kinds::prelude::*;
use crate::kinds::shared::pod_defaults::{GRACE, pod_spec};

/// A pod: the template's defaults, and those that only a pod gets.
pub(super) fn pod(members: &mut Members) {
    if let Some(spec) = child(members, "spec") {
        pod_spec(spec);
        // Templates keep a negative period; a pod gets a second.
        if spec.get(GRACE).and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
            spec.insert(GRACE.into(), 1.into());
        }
        request_limits(spec, |name| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-"));
        fill_absent(spec, "enableServiceLinks", true);
        let on_host_network = spec.get("hostNetwork").and_then(Value::as_bool) == Some(true);
        for key in ["containers", "initContainers"] {
            for container in items(spec, key) {
                request_limits(container, |_| true);
                if on_host_network {
                    for port in items(container, "ports") {
                        if let Some(number) = port.get("containerPort").cloned() {
                            fill_absent(port, "hostPort", number);
                        }
                    }
                }
            }
        }
    }
    if let Some(status) = existing(members, "status") {
        addresses(status);
    }
}

/// The older name of a pod's address is the first of all of its addresses, and wins where the two differ.
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

/// Requests of these resources that are not given are the limits.
fn request_limits(container: &mut Members, of: impl Fn(&str) -> bool) {
    let Some(resources) = existing(container, "resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if let Some(requests) = child(resources, "requests") {
        for (name, quantity) in limits.into_iter().filter(|(name, _)| of(name)) {
            requests.entry(name).or_insert(quantity);
        }
    }
}
