//! The entries of `metadata.managedFields`.

use serde_json::{Map, Value, json};

use super::set::FieldSet;

/// Maximum number of update managers of an object; beyond it, the oldest are folded into one.
pub const MAX_UPDATE_MANAGERS: usize = 10;

/// Manager that the oldest updates are folded into.
const ANCIENT_CHANGES: &str = "ancient-changes";

/// Operation by which a manager owns its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// It applied a configuration.
    Apply,
    /// It created, updated or patched the object.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// An entry of `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
    /// Time in the form of the wire.
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

impl Entry {
    /// Reports whether both entries belong to the same manager: an applier has one entry, an updater one per version.
    pub(super) fn same_manager(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Returns the manager's name in conflicts.
    pub(super) fn display_manager(&self) -> String {
        let Self { manager, subresource, api_version, .. } = self;
        let through =
            if subresource.is_empty() { String::new() } else { format!(" with subresource {subresource:?}") };
        let version = match self.operation {
            Operation::Apply => String::new(),
            Operation::Update => format!(" using {api_version}"),
        };
        format!("{manager:?}{through}{version}")
    }

    fn encode(self) -> Value {
        let mut entry = Map::new();
        entry.insert("apiVersion".to_owned(), Value::String(self.api_version));
        entry.insert("fieldsType".to_owned(), "FieldsV1".into());
        entry.insert("fieldsV1".to_owned(), self.fields.encode());
        if !self.manager.is_empty() {
            entry.insert("manager".to_owned(), Value::String(self.manager));
        }
        entry.insert("operation".to_owned(), self.operation.as_str().into());
        if !self.subresource.is_empty() {
            entry.insert("subresource".to_owned(), Value::String(self.subresource));
        }
        if let Some(time) = self.time {
            entry.insert("time".to_owned(), Value::String(time));
        }
        Value::Object(entry)
    }

    fn decode(entry: &Value) -> Option<Self> {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() || text("fieldsType") != "FieldsV1" {
            return None;
        }
        Some(Self {
            manager: text("manager"),
            operation,
            api_version,
            subresource: text("subresource"),
            time: entry.get("time").and_then(Value::as_str).map(ToOwned::to_owned),
            fields: FieldSet::decode(entry.get("fieldsV1").unwrap_or(&Value::Null)).ok()?,
        })
    }
}

/// Decodes `metadata.managedFields`; `None` if any of it is invalid.
pub(super) fn decode(managed_fields: &Value) -> Option<Vec<Entry>> {
    match managed_fields {
        Value::Null => Some(Vec::new()),
        Value::Array(entries) => {
            let mut decoded: Vec<Entry> = Vec::with_capacity(entries.len());
            for entry in entries {
                let entry = Entry::decode(entry)?;
                decoded.retain(|other| !other.same_manager(&entry));
                decoded.push(entry);
            }
            Some(decoded)
        }
        _ => None,
    }
}

/// Returns the problem of an entry, if any.
pub(super) fn problem(index: usize, entry: &Value) -> Option<String> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    match (text("operation"), text("apiVersion"), text("fieldsType")) {
        ("Apply" | "Update", "", _) => Some("apiVersion must not be empty".to_owned()),
        ("Apply" | "Update", _, "") => Some(format!("missing fieldsType in managed fields entry {index}")),
        ("Apply" | "Update", _, "FieldsV1") => {
            let fields = FieldSet::decode(entry.get("fieldsV1").unwrap_or(&Value::Null));
            fields.err().map(|error| format!("error decoding set: {error}"))
        }
        ("Apply" | "Update", _, other) => {
            Some(format!("invalid fieldsType {other:?} in managed fields entry {index}"))
        }
        _ => Some("operation must be `Apply` or `Update`".to_owned()),
    }
}

/// Reports whether a client requested to forget all managers, by an empty list or a list with a single empty entry.
pub(super) fn is_reset(managed_fields: &Value) -> bool {
    *managed_fields == json!([]) || *managed_fields == json!([{}])
}

/// Encodes entries as `metadata.managedFields`: appliers first, then by time, manager, version and subresource. Returns `None` for
/// no entries.
pub(super) fn encode(mut entries: Vec<Entry>) -> Option<Value> {
    if entries.is_empty() {
        return None;
    }
    entries.sort_by(|a, b| {
        (a.operation, seconds(a.time.as_deref()))
            .cmp(&(b.operation, seconds(b.time.as_deref())))
            .then_with(|| a.manager.cmp(&b.manager))
            .then_with(|| a.api_version.cmp(&b.api_version))
            .then_with(|| a.subresource.cmp(&b.subresource))
    });
    Some(Value::Array(entries.into_iter().map(Entry::encode).collect()))
}

fn seconds(time: Option<&str>) -> i64 {
    time.and_then(|time| time.parse::<jiff::Timestamp>().ok()).map_or(0, jiff::Timestamp::as_second)
}

/// Folds the oldest updates of each version into one entry, until at most [`MAX_UPDATE_MANAGERS`] are left.
pub(super) fn cap_update_managers(entries: &mut Vec<Entry>) {
    let updates = entries.iter().filter(|entry| entry.operation == Operation::Update).count();
    let Some(mut surplus) = updates.checked_sub(MAX_UPDATE_MANAGERS).filter(|surplus| *surplus > 0) else {
        return;
    };
    let (mut kept, mut updates): (Vec<Entry>, Vec<Entry>) =
        std::mem::take(entries).into_iter().partition(|entry| entry.operation == Operation::Apply);
    updates.sort_by(|a, b| {
        seconds(a.time.as_deref())
            .cmp(&seconds(b.time.as_deref()))
            .then_with(|| (&a.api_version, &a.manager).cmp(&(&b.api_version, &b.manager)))
            .then_with(|| a.subresource.cmp(&b.subresource))
    });
    let mut remaining: Vec<Entry> = Vec::with_capacity(updates.len());
    for update in updates {
        let twin = remaining.iter_mut().find(|older| older.api_version == update.api_version);
        match twin {
            Some(bucket) if surplus > 0 => {
                ANCIENT_CHANGES.clone_into(&mut bucket.manager);
                bucket.subresource.clear();
                bucket.fields.extend(&update.fields);
                bucket.time = update.time;
                surplus -= 1;
            }
            _ => remaining.push(update),
        }
    }
    kept.append(&mut remaining);
    *entries = kept;
}
