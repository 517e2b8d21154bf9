//! The form in which a typed server writes an object: absent is absent.

use serde_json::Value;

use crate::kinds::access::Members;
use crate::resource::Target;

/// Members that are maps of texts or of quantities, and are not written when empty, whatever they are part of.
const MAPS: [&str; 20] = [
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "data",
    "binaryData",
    "stringData",
    "limits",
    "requests",
    "capacity",
    "allocatable",
    "allocatedResources",
    "hard",
    "used",
    "max",
    "min",
    "defaultRequest",
    "maxLimitRequestRatio",
    "overhead",
    "volumeAttributes",
];

/// Drops nulls and empty lists and empty maps.
pub(super) fn normalize(target: Target<'_>, object: &mut Value) {
    // Their `allocatable` is a struct, which may be empty; the schema knows.
    if target.resource == "csinodes" {
        return;
    }
    let Some(members) = object.as_object_mut() else { return };
    for (key, value) in members.iter_mut() {
        // Raw data is the client's own, and so is what the server keeps about field managers.
        let raw = target.resource == "controllerrevisions" && key == "data";
        match (key.as_str(), value) {
            (_, _) if raw => {}
            ("metadata", Value::Object(metadata)) => {
                let managed = metadata.remove("managedFields");
                tidy(metadata);
                if let Some(managed) = managed {
                    metadata.insert("managedFields".into(), managed);
                }
            }
            (_, value) => tidy_value(value),
        }
    }
    drop_empty(members);
    // A selector that is a plain map of labels.
    if matches!(target.resource, "services" | "replicationcontrollers")
        && let Some(spec) = members.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("selector").and_then(Value::as_object).is_some_and(serde_json::Map::is_empty)
    {
        spec.remove("selector");
    }
}

fn tidy(members: &mut Members) {
    members.values_mut().for_each(tidy_value);
    drop_empty(members);
}

fn tidy_value(value: &mut Value) {
    match value {
        Value::Object(members) => tidy(members),
        Value::Array(items) => items.iter_mut().for_each(tidy_value),
        _ => {}
    }
}

fn drop_empty(members: &mut Members) {
    members.retain(|key, value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(inner) => !inner.is_empty() || !MAPS.contains(&key.as_str()),
        _ => true,
    });
}
