//! The annotation of client-side apply, for users who migrate to server-side apply with `kubectl`.

use serde_json::Value;

use super::set::FieldSet;
use super::{ManagerRequest, compare};
use crate::schema;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Maximum total size of an object's annotations, in bytes.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// Returns the fields of the last client-side applied configuration that are unchanged in the object.
pub(super) fn unchanged_fields(object: &Value, request: &ManagerRequest<'_>) -> Option<FieldSet> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    let last: Value = serde_json::from_str(text).ok()?;
    schema::depth(&last)?;
    if last.get("apiVersion")?.as_str()? != request.api_version {
        return None;
    }
    let position = request.position();
    let comparison = compare::compare(position, &last, object).ok()?;
    let fields = compare::field_set(position, &last).ok()?;
    Some(
        fields.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed),
    )
}

/// Updates the annotation, if it exists, with the configuration applied now.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    if annotations.get(ANNOTATION).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = applied.clone();
    if let Some(own) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        own.remove(ANNOTATION);
    }
    let text = format!("{applied}\n");
    let others: usize = annotations
        .iter()
        .filter(|(name, _)| *name != ANNOTATION)
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum();
    if others + ANNOTATION.len() + text.len() > MAX_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    } else {
        annotations.insert(ANNOTATION.to_owned(), Value::String(text));
    }
}
