//! Field selectors of each kind.

use serde_json::Value;

use super::kind::{UNKNOWN_FIELD_LABEL, text_label};
use super::served;
use crate::target::Target;

/// Returns the names of a resource's field selectors, `metadata.name` and `metadata.namespace` first. Others are refused with a
/// 400.
#[must_use]
pub fn selectable_field_names(target: Target<'_>) -> Vec<&'static str> {
    let own = served::of(target).map(|kind| kind.field_labels).unwrap_or_default();
    ["metadata.name", "metadata.namespace"].iter().chain(own).copied().collect()
}

/// Returns the field selectors of an object with their values, `metadata.name` and `metadata.namespace` first.
#[must_use]
pub fn selectable_fields(target: Target<'_>, object: &Value) -> Vec<(&'static str, String)> {
    let kind = served::of(target);
    let value = |name| kind.map_or_else(|| text_label(name, object), |kind| (kind.field_label)(name, object));
    selectable_field_names(target).into_iter().map(|name| (name, value(name))).collect()
}

/// Returns the message for an unknown field selector, with `{}` for the field.
pub(crate) fn unknown_field_label(target: Target<'_>) -> &'static str {
    served::of(target).map_or(UNKNOWN_FIELD_LABEL, |kind| kind.unknown_field_label)
}
