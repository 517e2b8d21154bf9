//! Tables of each resource: columns and cells.

use jiff::Timestamp;
use serde_json::Value;

use super::access::text;
use super::printers::{Column, Row, Says};
use super::{scale, served};
use crate::kubernetes::KubernetesVersion;
use crate::target::Target;

/// Group and name that stand for the Scales of all resources.
const SCALES: (&str, &str) = ("autoscaling", "scales");

/// Returns the columns of a resource; for resources without a printer, and custom ones without columns, the name and the time of
/// creation.
#[must_use]
pub fn columns(target: Target<'_>) -> &'static [Column] {
    match served::of(target) {
        Some(kind) => kind.columns,
        None if (target.group, target.resource) == SCALES => scale::COLUMNS,
        None if has_definition_columns(target) => DEFINITION_COLUMNS,
        None => Column::PLAIN,
    }
}

/// Returns the cells of an object in the columns of its resource, including wide ones.
#[must_use]
pub fn cells(target: Target<'_>, object: &Value, now: Timestamp) -> Vec<Value> {
    let row = Row { object, now };
    match served::of(target) {
        Some(kind) => (kind.cells)(&row),
        None if (target.group, target.resource) == SCALES => scale::cells(&row),
        None if has_definition_columns(target) => definition_cells(&row),
        None => vec![row.name(), row.created()],
    }
}

/// Columns of definitions since 1.37.
const DEFINITION_COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Scope", Says::Text("Cluster/Namespaced")),
    Column::text("Versions", Says::Text("Served versions")),
    Column::CREATED_AT,
    Column::wide("Group", Says::Text("API group")),
    Column::wide("Kind", Says::Text("CustomResource kind")),
    Column::wide("ShortNames", Says::Text("Short names")),
    Column::wide_boolean("Established", Says::Text("Established status")),
];

fn has_definition_columns(target: Target<'_>) -> bool {
    (target.group, target.resource) == ("apiextensions.k8s.io", "customresourcedefinitions")
        && KubernetesVersion::chosen() >= KubernetesVersion::V1_37
}

fn definition_cells(row: &Row<'_>) -> Vec<Value> {
    let mut versions: Vec<String> = row
        .list(&["spec", "versions"])
        .iter()
        .filter(|version| version["served"] == true)
        .map(|version| {
            let stored = if version["storage"] == true { "(storage)" } else { "" };
            format!("{}{stored}", text(version, &["name"]))
        })
        .collect();
    versions.sort_unstable();
    let short: Vec<&str> =
        row.list(&["spec", "names", "shortNames"]).iter().filter_map(Value::as_str).collect();
    let is_established = row
        .list(&["status", "conditions"])
        .iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
    vec![
        row.name(),
        row.shown(&["spec", "scope"]),
        versions.join(",").into(),
        row.created(),
        row.shown(&["spec", "group"]),
        row.shown(&["spec", "names", "kind"]),
        short.join(",").into(),
        is_established.into(),
    ]
}

/// The `conditions` of the row of an object.
#[must_use]
pub fn row_conditions(target: Target<'_>, object: &Value) -> Vec<Value> {
    served::of(target).map(|kind| (kind.row_conditions)(object)).unwrap_or_default()
}
