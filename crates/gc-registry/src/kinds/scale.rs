//! The `scale` subresource of the built-in kinds that have one.

use serde_json::json;

use super::access::{at, integer, keep, put, text};
use super::kind;
use super::kind::prelude::*;
use super::printers::NAMED;
use crate::resource::Target;

/// The `autoscaling/v1` Scale of an object.
#[must_use]
pub fn scale_of(target: Target<'_>, object: &Value) -> Value {
    let mut metadata = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = at(object, &["metadata", key]) {
            metadata[key] = value.clone();
        }
    }
    let mut scale = json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": metadata,
        "spec": {},
        "status": {"replicas": integer(object, &["status", "replicas"]).unwrap_or_default()},
    });
    if let Some(replicas) = integer(object, &["spec", "replicas"]).filter(|replicas| *replicas != 0) {
        scale["spec"]["replicas"] = replicas.into();
    }
    let selector = kind::of(target).map(|kind| (kind.scale_selector)(object)).unwrap_or_default();
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

/// Writes the replicas of a Scale into its object, with the resourceVersion that the Scale was read at.
pub fn apply_scale(scale: &Value, object: &mut Value) {
    let replicas = integer(scale, &["spec", "replicas"]).unwrap_or_default();
    put(object, &["spec", "replicas"], replicas.into());
    let version = text(scale, &["metadata", "resourceVersion"]);
    if !version.is_empty() {
        let version = json!({"resourceVersion": version});
        if let Some(metadata) = object.get_mut("metadata") {
            keep(metadata, &version, "resourceVersion");
        }
    }
}

/// `a=b,c=d` of a map of labels, sorted.
#[must_use]
pub fn map_text(labels: &Value) -> String {
    let mut parts: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    parts.sort();
    parts.join(",")
}

/// The text of a `LabelSelector`: its labels and its expressions, sorted by key.
#[must_use]
pub fn label_selector_text(selector: &Value) -> String {
    let labels = at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten();
    let mut parts: Vec<(String, String)> = labels
        .map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for expression in super::access::list(selector, &["matchExpressions"]) {
        let key = text(expression, &["key"]);
        let mut values: Vec<&str> =
            super::access::list(expression, &["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let part = match text(expression, &["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => continue,
        };
        parts.push((key.to_owned(), part));
    }
    parts.sort();
    parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join(",")
}

pub(super) const COLUMNS: &[Column] = &[
    H::text("Name", NAMED),
    H::integer("Desired", F("api.autoscaling.v1.ScaleSpec", "replicas")),
    H::integer("Available", F("api.autoscaling.v1.ScaleStatus", "replicas")),
    H::AGE,
];

/// The row of a Scale.
pub(super) fn cells(row: &Row<'_>) -> Vec<Value> {
    let replicas = |part: &str| row.number(&[part, "replicas"]).into();
    vec![row.name(), replicas("spec"), replicas("status"), row.age()]
}
