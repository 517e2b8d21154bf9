//! READY, STATUS and age of objects as `kubectl get` shows them, from the server's own tables.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use gc_explain::Resource;
use gc_explain::object::parse_time;
use gc_types::{ObjectKey, Timestamp, Uid};
use serde::Deserialize;
use serde_json::Value;

use crate::gather::{self, Gatherer};

/// Maximum number of requests per answer.
const MAX_REQUESTS: usize = 40;
/// Number of rows per page.
const PAGE_ROWS: usize = 500;
/// Number of single reads that cost as much as one page of rows.
const READS_PER_PAGE: usize = 10;

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json";

/// Columns of an object; empty if the server has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// READY cell.
    pub ready: String,
    /// STATUS cell.
    pub status: String,
    /// Creation time, from which the age is computed.
    pub created: Option<Timestamp>,
}

/// A page of rows.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Table {
    metadata: ListMetadata,
    column_definitions: Vec<Definition>,
    rows: Vec<Row>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMetadata {
    r#continue: Option<String>,
    remaining_item_count: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Definition {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Row {
    cells: Vec<Value>,
    object: Object,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    creation_timestamp: Option<String>,
}

impl Table {
    /// Returns name, UID and columns of each row.
    fn rows(self) -> impl Iterator<Item = (String, Uid, Columns)> {
        let place = |name: &str| {
            self.column_definitions.iter().position(|column| column.name.eq_ignore_ascii_case(name))
        };
        let (ready, desired) = (place("ready").or_else(|| place("completions")), place("desired"));
        let status = place("status");
        self.rows.into_iter().map(move |Row { cells, object: Object { metadata } }| {
            let cell = |place: Option<usize>| match place.and_then(|place| cells.get(place)) {
                Some(Value::String(text)) => text.clone(),
                None | Some(Value::Null) => String::new(),
                Some(other) => other.to_string(),
            };
            let mut own = Columns { ready: cell(ready), status: cell(status), ..Columns::default() };
            // A ReplicaSet has the two numbers in separate columns.
            if desired.is_some() && !own.ready.is_empty() {
                own.ready = format!("{}/{}", own.ready, cell(desired));
            }
            own.created = metadata.creation_timestamp.as_deref().and_then(parse_time);
            (metadata.name, Uid::new(&metadata.uid), own)
        })
    }
}

impl Gatherer {
    /// Reads the columns of these objects, as far as the user may read them and `MAX_REQUESTS` requests suffice.
    pub async fn columns<'a>(&self, objects: impl Iterator<Item = &'a ObjectKey>) -> BTreeMap<Uid, Columns> {
        let mut groups: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for key in objects {
            let group = (key.resource, key.namespace.to_string());
            groups.entry(group).or_default().insert(key.name.to_string());
        }
        let share = MAX_REQUESTS / groups.len().clamp(1, MAX_REQUESTS);
        let reads = groups.into_iter().take(MAX_REQUESTS).filter_map(|((resource, namespace), names)| {
            let resource = self.catalog.get(resource)?;
            Some(async move { self.columns_of(resource, &namespace, names, share).await })
        });
        let found: Vec<_> = futures::stream::iter(reads).buffer_unordered(gather::IN_FLIGHT).collect().await;
        found.into_iter().flatten().collect()
    }

    async fn table(&self, path: &str) -> Option<Table> {
        serde_json::from_slice(&self.body(path, TABLE).await?).ok()
    }

    /// Reads the columns of objects in one namespace, from a list while that is cheaper than single reads.
    async fn columns_of(
        &self,
        resource: &Resource,
        namespace: &str,
        mut names: BTreeSet<String>,
        mut requests: usize,
    ) -> Vec<(Uid, Columns)> {
        let (mut found, mut token) = (Vec::new(), String::new());
        while names.len() > 1 && requests > 0 {
            requests -= 1;
            let path = gather::list_path(resource, namespace, "", &token, PAGE_ROWS);
            let Some(table) = self.table(&path).await else { break };
            let pages = table.metadata.remaining_item_count.unwrap_or_default().div_ceil(PAGE_ROWS);
            token = table.metadata.r#continue.clone().unwrap_or_default();
            let wanted = table.rows().filter(|(name, ..)| names.remove(name));
            found.extend(wanted.map(|(_, uid, columns)| (uid, columns)));
            if token.is_empty() {
                return found;
            }
            if pages.saturating_mul(READS_PER_PAGE) > names.len() {
                break;
            }
        }
        for name in names.into_iter().take(requests) {
            let table = self.table(&gather::object_path(resource, namespace, &name)).await;
            found.extend(table.into_iter().flat_map(Table::rows).map(|(_, uid, columns)| (uid, columns)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_found_by_their_names() {
        let read = |columns: &[&str], cells: Value| {
            let columns: Vec<Value> = columns.iter().map(|name| json!({"name": name})).collect();
            let metadata = json!({"name": "a", "uid": "u", "creationTimestamp": "2026-09-21T14:08:20Z"});
            let table: Table = serde_json::from_value(
                json!({"columnDefinitions": columns, "rows": [{"cells": cells, "object": {"metadata": metadata}}]}),
            )
            .unwrap();
            let columns = table.rows().next().unwrap().2;
            assert_eq!(columns.created, Some(Timestamp(1_789_999_700_000)));
            (columns.ready, columns.status)
        };
        let shown = |ready: &str, status: &str| (ready.to_owned(), status.to_owned());
        for (columns, cells, expected) in [
            (
                &["Name", "Ready", "Status", "Age"][..],
                json!(["a", "1/1", "Running", "5m"]),
                shown("1/1", "Running"),
            ),
            (&["Name", "Desired", "Current", "Ready"], json!(["a", 3, 3, 2]), shown("2/3", "")),
            (&["Name", "Status", "Completions"], json!(["a", "Complete", "1/1"]), shown("1/1", "Complete")),
            (&["NAME", "READY"], json!(["a", true]), shown("true", "")),
            (&["Name", "Status"], json!(["a"]), shown("", "")),
            (&["Name", "Status"], json!(["a", null]), shown("", "")),
        ] {
            assert_eq!(read(columns, cells), expected, "{columns:?}");
        }
        let other: Table = serde_json::from_value(json!({"kind": "Pod", "metadata": {"name": "a"}})).unwrap();
        assert_eq!(other.rows().count(), 0);
    }
}
