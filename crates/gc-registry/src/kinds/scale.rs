//! The `scale` subresource of built-in kinds.

use serde_json::{Value, json};

use super::access::{at, integer, keep, put, text};
use super::prelude::{Column, F, H};
use super::printers::{NAMED, Row};
use super::served;
use crate::target::Target;

/// Returns the `autoscaling/v1` Scale of an object.
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
    let selector = served::of(target).map(|kind| (kind.scale_selector)(object)).unwrap_or_default();
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

/// Writes the replicas of a Scale into its object, with the resourceVersion at which the Scale was read.
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

pub(super) const COLUMNS: &[Column] = &[
    H::text("Name", NAMED),
    H::integer("Desired", F("api.autoscaling.v1.ScaleSpec", "replicas")),
    H::integer("Available", F("api.autoscaling.v1.ScaleStatus", "replicas")),
    H::AGE,
];

/// Returns the table cells of a Scale.
pub(super) fn cells(row: &Row<'_>) -> Vec<Value> {
    let replicas = |part: &str| row.number(&[part, "replicas"]).into();
    vec![row.name(), replicas("spec"), replicas("status"), row.age()]
}
