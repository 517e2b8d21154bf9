//! The field selectors of each kind.

use serde_json::Value;

use super::access::{flag, integer, text};
use crate::resource::Target;

/// Names of the field selectors of a resource, `metadata.name` and `metadata.namespace` first. Those of another
/// name are refused with 400.
#[must_use]
pub fn selectable_field_names(target: Target<'_>) -> Vec<&'static str> {
    let mut names = vec!["metadata.name", "metadata.namespace"];
    names.extend_from_slice(own_fields(target));
    names
}

fn own_fields(target: Target<'_>) -> &'static [&'static str] {
    match (target.group, target.resource) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "namespaces") => &["status.phase"],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "secrets") => &["type"],
        ("", "replicationcontrollers") => &["status.replicas"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        ("resource.k8s.io", "resourceslices") => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

/// The field selectors of an object with their values, `metadata.name` and `metadata.namespace` first.
#[must_use]
pub fn selectable_fields(target: Target<'_>, object: &Value) -> Vec<(&'static str, String)> {
    selectable_field_names(target).into_iter().map(|name| (name, value_of(target, name, object))).collect()
}

fn value_of(target: Target<'_>, name: &str, object: &Value) -> String {
    let number = |path: &[&str]| integer(object, path).unwrap_or_default().to_string();
    let boolean = |path: &[&str]| flag(object, path).unwrap_or_default().to_string();
    match name {
        "status.replicas" => number(&["status", "replicas"]),
        "status.successful" => number(&["status", "succeeded"]),
        "spec.unschedulable" => boolean(&["spec", "unschedulable"]),
        "spec.hostNetwork" => boolean(&["spec", "hostNetwork"]),
        // The address of a pod is the first of its addresses, in both fields.
        "status.podIP" | "status.podIPs" => {
            let first = object
                .pointer("/status/podIPs/0/ip")
                .and_then(Value::as_str)
                .unwrap_or_else(|| text(object, &["status", "podIP"]));
            first.to_owned()
        }
        "source" => {
            let source = text(object, &["source", "component"]);
            let source = if source.is_empty() { text(object, &["reportingComponent"]) } else { source };
            source.to_owned()
        }
        "reportingController" if target.group == "events.k8s.io" => {
            text(object, &["reportingController"]).to_owned()
        }
        path => {
            let path: Vec<&str> = path.split('.').collect();
            text(object, &path).to_owned()
        }
    }
}
