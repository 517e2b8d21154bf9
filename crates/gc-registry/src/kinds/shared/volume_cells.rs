//! Table cells that persistent volumes and claims share.

use crate::kinds::access::at;
use crate::kinds::prelude::*;
use crate::kinds::printers::UNSET;

/// Returns the access modes in their short forms, without duplicates, in the order of the modes.
pub(crate) fn short_modes(modes: &[Value]) -> String {
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

pub(crate) fn phase(row: &Row<'_>) -> Value {
    if at(row.object, &["metadata", "deletionTimestamp"]).is_some() {
        "Terminating".into()
    } else {
        row.text(&["status", "phase"]).into()
    }
}

/// Returns the storage class, preferably from the former annotation.
pub(crate) fn class(row: &Row<'_>) -> Value {
    let old = row.text(&["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]);
    if old.is_empty() { row.text(&["spec", "storageClassName"]).into() } else { old.into() }
}

pub(crate) fn text_or_unset(row: &Row<'_>, path: &[&str]) -> Value {
    at(row.object, path).and_then(Value::as_str).unwrap_or(UNSET).into()
}
