//! The form in which a typed server writes an object: absent is absent, quantities are canonical.

use serde_json::Value;

use crate::kinds::access::Members;
use crate::kinds::quantity;
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

/// Members that are maps of quantities.
const QUANTITIES: [&str; 13] = [
    "limits",
    "requests",
    "capacity",
    "allocatable",
    "allocatedResources",
    "hard",
    "used",
    "max",
    "min",
    "default",
    "defaultRequest",
    "maxLimitRequestRatio",
    "overhead",
];

/// Members that are one quantity.
const QUANTITY: [&str; 5] = ["sizeLimit", "divisor", "averageValue", "maximumVolumeSize", "targetValue"];

/// Drops nulls and empty lists, empty maps, and writes quantities canonically.
pub(super) fn normalize(target: Target<'_>, object: &mut Value) {
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
            (_, value) => tidy_value(key, value),
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
    for (key, value) in members.iter_mut() {
        tidy_value(key, value);
    }
    drop_empty(members);
}

fn tidy_value(key: &str, value: &mut Value) {
    match value {
        Value::Object(members) => {
            if QUANTITIES.contains(&key) {
                members.values_mut().for_each(quantity::canonicalize);
            }
            tidy(members);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| tidy_value("", item)),
        Value::String(_) | Value::Number(_) if QUANTITY.contains(&key) => quantity::canonicalize(value),
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
