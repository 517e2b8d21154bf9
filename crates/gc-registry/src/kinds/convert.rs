//! Conversion between the served versions of a kind: events of both groups, autoscalers v1 and v2.
//!
//! All other kinds have a single served version.

use serde_json::{Map, Value};

use super::autoscaling;

/// Fields of an event in the core group and in events.k8s.io.
const EVENT_FIELDS: [(&str, &str); 8] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

/// Converts an object to another group and version of its kind, with `apiVersion` set. Kinds with a single version, and objects
/// already in that version, only get the new `apiVersion`.
#[must_use]
pub fn convert(group: &str, version: &str, kind: &str, object: &Value) -> Value {
    let wanted = gc_types::api_version(group, version);
    let from = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let mut converted = match (from, wanted.as_str(), kind) {
        ("v1", "events.k8s.io/v1", "Event") => rename_event(object, false),
        ("events.k8s.io/v1", "v1", "Event") => rename_event(object, true),
        ("autoscaling/v1", "autoscaling/v2", "HorizontalPodAutoscaler") => autoscaling::to_v2(object),
        ("autoscaling/v2", "autoscaling/v1", "HorizontalPodAutoscaler") => autoscaling::to_v1(object),
        _ => object.clone(),
    };
    if let Some(members) = converted.as_object_mut() {
        members.insert("apiVersion".into(), wanted.into());
    }
    converted
}

/// Returns the name of an event's field, in the core group or in events.k8s.io.
pub(super) fn event_field(core: bool, name: &'static str) -> &'static str {
    let renamed = EVENT_FIELDS.iter().find(|(here, _)| !core && *here == name);
    renamed.map_or(name, |(_, there)| there)
}

fn rename_event(object: &Value, to_core: bool) -> Value {
    let Some(members) = object.as_object() else { return object.clone() };
    let mut out = Map::new();
    for (key, value) in members {
        let name = EVENT_FIELDS.iter().find_map(|(core, grouped)| {
            let (from, to) = if to_core { (*grouped, *core) } else { (*core, *grouped) };
            (from == key).then_some(to)
        });
        // Only the core group writes an empty reporter.
        let empty = value.as_str().is_some_and(str::is_empty);
        if empty && !to_core && matches!(key.as_str(), "reportingComponent" | "reportingInstance") {
            continue;
        }
        out.insert(name.unwrap_or(key).to_owned(), value.clone());
    }
    if to_core {
        for key in ["reportingComponent", "reportingInstance"] {
            out.entry(key).or_insert_with(|| "".into());
        }
    }
    Value::Object(out)
}
