//! The table of each resource: its columns, and the cells of an object.

use jiff::Timestamp;
use serde_json::Value;

use super::printers::{Column, Row};
use super::{scale, served};
use crate::target::Target;

/// Name of the Scales of all resources in these tables.
const SCALES: (&str, &str) = ("autoscaling", "scales");

/// The columns of a resource; for resources without a printer, and custom ones without columns, the name and the
/// time of creation.
#[must_use]
pub fn columns(target: Target<'_>) -> &'static [Column] {
    match served::of(target) {
        Some(kind) => kind.columns,
        None if (target.group, target.resource) == SCALES => scale::COLUMNS,
        None => Column::PLAIN,
    }
}

/// The cells of an object in the columns of its resource, wide ones included.
#[must_use]
pub fn cells(target: Target<'_>, object: &Value, now: Timestamp) -> Vec<Value> {
    let row = Row { object, now };
    match served::of(target) {
        Some(kind) => (kind.cells)(&row),
        None if (target.group, target.resource) == SCALES => scale::cells(&row),
        None => vec![row.name(), row.created()],
    }
}

/// The `conditions` of the row of an object.
#[must_use]
pub fn row_conditions(target: Target<'_>, object: &Value) -> Vec<Value> {
    served::of(target).map(|kind| (kind.row_conditions)(object)).unwrap_or_default()
}
