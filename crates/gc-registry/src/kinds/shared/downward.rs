//! Downward API: references to a pod's own fields and to the resources of its containers.

use super::names::qualified_name;
use crate::kinds::prelude::*;

/// Fields that can be exposed in a file.
pub(crate) const VOLUME_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Fields that can be exposed in an environment variable.
pub(crate) const ENVIRONMENT_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
/// Divisors of resources measured in bytes.
const BYTES: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
const BYTES_TEXT: &str = "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported \
    with the";

/// Validates a reference to a field of the pod, which must be one of `known`.
pub(crate) fn object_field(field: &Field<'_, '_>, known: &[&str], report: &mut Report) {
    let (version, path) = (field.get("apiVersion"), field.get("fieldPath"));
    for needed in [&version, &path] {
        if needed.text().is_empty() {
            report.required(needed, "");
            return;
        }
    }
    if version.text() != "v1" {
        let why = format!("error converting fieldPath: unsupported pod version: {}", version.text());
        report.invalid(&path, &why);
        return;
    }
    let split = path.text().strip_suffix("']").and_then(|rest| rest.split_once("['"));
    let name = split.map_or(path.text(), |(name, _)| name);
    let is_label = match split {
        Some((name, _)) => matches!(name, "metadata.annotations" | "metadata.labels"),
        None => {
            VOLUME_FIELDS.contains(&name)
                || ENVIRONMENT_FIELDS.contains(&name)
                || matches!(name, "spec.restartPolicy" | "spec.schedulerName" | "spec.host" | "status.phase")
        }
    };
    if !is_label {
        let why = if split.is_some() {
            format!("error converting fieldPath: field label does not support subscript: {}", path.text())
        } else {
            format!("error converting fieldPath: field label not supported: {}", path.text())
        };
        report.invalid(&path, &why);
        return;
    }
    match split {
        Some((name, subscript)) => {
            let subscript =
                if name == "metadata.annotations" { subscript.to_lowercase() } else { subscript.to_owned() };
            report.each_of(field, &subscript, qualified_name(&subscript));
        }
        None => {
            let name = if name == "spec.host" { "spec.nodeName" } else { name };
            if !known.contains(&name) {
                report.not_supported_shown(&path, &crate::kinds::report::quoted(name), known);
            }
        }
    }
}

/// Validates a reference to a resource of a container.
pub(crate) fn container_resource(field: &Field<'_, '_>, in_volume: bool, report: &mut Report) {
    let resource = field.get("resource");
    let name = resource.text();
    let is_huge_page = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if in_volume && field.text_of("containerName").is_empty() {
        report.required(&field.get("containerName"), "");
    } else if name.is_empty() {
        report.required(&resource, "");
    } else if !RESOURCES.contains(&name) && !is_huge_page {
        report.not_supported(&resource, &RESOURCES);
    }
    let divisor = field.get("divisor");
    let Some(quantity) = divisor.quantity().filter(|quantity| !quantity.is_zero()) else { return };
    let quantity = quantity.to_string();
    let is_bytes = BYTES.contains(&quantity.as_str());
    match name {
        "limits.cpu" | "requests.cpu" if !matches!(quantity.as_str(), "1m" | "1") => {
            let why = "only divisor's values 1m and 1 are supported with the cpu resource";
            report.invalid_text(&divisor, name, why);
        }
        "limits.cpu" | "requests.cpu" => {}
        "limits.memory" | "requests.memory" if !is_bytes => {
            report.invalid_text(&divisor, name, &format!("{BYTES_TEXT} memory resource"));
        }
        "limits.ephemeral-storage" | "requests.ephemeral-storage" if !is_bytes => {
            report.invalid_text(&divisor, name, &format!("{BYTES_TEXT} local ephemeral storage resource"));
        }
        _ if is_huge_page && !is_bytes => {
            report.invalid_text(&divisor, name, &format!("{BYTES_TEXT} hugepages resource"));
        }
        _ => {}
    }
}
