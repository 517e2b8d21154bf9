//! Conversion between the served versions of a kind: events of both groups, autoscalers v1 and v2.
//!
//! Everything else has one served version.

use serde_json::{Map, Value, json};

use super::access::{at, list};

/// Annotations in which v1 of an autoscaler carries what it has no fields for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

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

/// The object in another group and version of its kind, with `apiVersion` set. Kinds with one version, and
/// objects that are in that version already, come back as they are but for `apiVersion`.
#[must_use]
pub fn convert(group: &str, version: &str, kind: &str, object: &Value) -> Value {
    let wanted = gc_types::api_version(group, version);
    let from = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let mut converted = match (from, wanted.as_str(), kind) {
        ("v1", "events.k8s.io/v1", "Event") => rename_event(object, false),
        ("events.k8s.io/v1", "v1", "Event") => rename_event(object, true),
        ("autoscaling/v1", "autoscaling/v2", "HorizontalPodAutoscaler") => autoscaler_to_v2(object),
        ("autoscaling/v2", "autoscaling/v1", "HorizontalPodAutoscaler") => autoscaler_to_v1(object),
        _ => object.clone(),
    };
    if let Some(members) = converted.as_object_mut() {
        members.insert("apiVersion".into(), wanted.into());
    }
    converted
}

/// What a field of events of the core group is called, there or in the other group.
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
        // The core group writes the reporter when it is empty, the other one does not.
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

fn autoscaler_to_v1(object: &Value) -> Value {
    let mut out = object.clone();
    let metrics = list(object, &["spec", "metrics"]);
    let is_cpu = |metric: &Value| {
        metric.pointer("/resource/name").and_then(Value::as_str) == Some("cpu")
            && metric.pointer("/resource/target/averageUtilization").is_some()
    };
    // The first metric on CPU utilisation has a field; the others go into an annotation.
    let cpu = metrics.iter().position(is_cpu);
    let others: Vec<Value> = metrics
        .iter()
        .enumerate()
        .filter(|(index, _)| Some(*index) != cpu)
        .map(|(_, metric)| metric_to_v1(metric))
        .collect();
    let current = list(object, &["status", "currentMetrics"]);
    let current_cpu = current.iter().find_map(|metric| {
        (metric.pointer("/resource/name").and_then(Value::as_str) == Some("cpu"))
            .then(|| metric.pointer("/resource/current/averageUtilization"))
            .flatten()
    });
    if let Some(spec) = out.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("metrics");
        spec.remove("behavior");
        if let Some(target) =
            cpu.and_then(|index| metrics[index].pointer("/resource/target/averageUtilization"))
        {
            spec.insert("targetCPUUtilizationPercentage".into(), target.clone());
        }
    }
    if let Some(status) = out.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("currentMetrics");
        status.remove("conditions");
        status.entry("currentReplicas").or_insert_with(|| 0.into());
        if let Some(utilization) = current_cpu {
            status.insert("currentCPUUtilizationPercentage".into(), utilization.clone());
        }
    }
    annotate(&mut out, METRICS, (!others.is_empty()).then_some(Value::Array(others)));
    annotate(&mut out, BEHAVIOR, at(object, &["spec", "behavior"]).cloned());
    annotate(&mut out, CONDITIONS, at(object, &["status", "conditions"]).cloned());
    let current: Vec<Value> = current.iter().map(metric_to_v1).collect();
    annotate(&mut out, CURRENT_METRICS, (!current.is_empty()).then_some(Value::Array(current)));
    out
}

fn autoscaler_to_v2(object: &Value) -> Value {
    let mut out = object.clone();
    let mut metrics: Vec<Value> = Vec::new();
    if let Some(target) = at(object, &["spec", "targetCPUUtilizationPercentage"]) {
        metrics.push(json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": target}}}));
    }
    if let Some(Value::Array(others)) = annotation(object, METRICS) {
        metrics.extend(others.iter().map(metric_to_v2));
    }
    let behavior = annotation(object, BEHAVIOR);
    if let Some(spec) = out.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("targetCPUUtilizationPercentage");
        if !metrics.is_empty() {
            spec.insert("metrics".into(), Value::Array(metrics));
        }
        if let Some(behavior) = behavior {
            spec.insert("behavior".into(), behavior);
        }
    }
    let conditions = annotation(object, CONDITIONS);
    let current = annotation(object, CURRENT_METRICS);
    let utilization = at(object, &["status", "currentCPUUtilizationPercentage"]).map(|utilization| {
        let current = json!({"averageUtilization": utilization});
        json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}])
    });
    if let Some(status) = out.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("currentCPUUtilizationPercentage");
        let current = match current {
            Some(Value::Array(current)) => Value::Array(current.iter().map(metric_to_v2).collect()),
            _ => utilization.unwrap_or_default(),
        };
        status.insert("currentMetrics".into(), current);
        if let Some(conditions) = conditions {
            status.insert("conditions".into(), conditions);
        }
        if status.get("currentReplicas").and_then(Value::as_i64) == Some(0) {
            status.remove("currentReplicas");
        }
    }
    for name in [METRICS, BEHAVIOR, CONDITIONS, CURRENT_METRICS] {
        annotate(&mut out, name, None);
    }
    out
}

/// Names of a metric's parts in v1's annotation and in v2: (source, v1 field, v2 path below the source).
const METRIC_TARGETS: [(&str, &str, &str); 4] = [
    ("targetAverageUtilization", "averageUtilization", "Utilization"),
    ("targetAverageValue", "averageValue", "AverageValue"),
    ("averageValue", "averageValue", "AverageValue"),
    ("targetValue", "value", "Value"),
];

/// Resource metrics have another form in v1; metrics of other sources keep v2's, which reads back unchanged.
fn metric_to_v1(metric: &Value) -> Value {
    let mut out = metric.clone();
    for key in ["resource", "containerResource"] {
        let Some(source) = out.get_mut(key).and_then(Value::as_object_mut) else { continue };
        if let Some(target) = source.remove("target") {
            for (v1, v2) in
                [("targetAverageUtilization", "averageUtilization"), ("targetAverageValue", "averageValue")]
            {
                if let Some(value) = at(&target, &[v2]) {
                    source.insert(v1.into(), value.clone());
                }
            }
        }
        if let Some(current) = source.remove("current") {
            for (v1, v2) in
                [("currentAverageUtilization", "averageUtilization"), ("currentAverageValue", "averageValue")]
            {
                if let Some(value) = at(&current, &[v2]) {
                    source.insert(v1.into(), value.clone());
                }
            }
        }
    }
    out
}

fn metric_to_v2(metric: &Value) -> Value {
    let mut out = metric.clone();
    for key in ["resource", "containerResource"] {
        let Some(source) = out.get_mut(key).and_then(Value::as_object_mut) else { continue };
        for (v1, v2, kind) in METRIC_TARGETS {
            if let Some(value) = source.remove(v1) {
                source.insert("target".into(), json!({"type": kind, v2: value}));
            }
        }
        let mut current = Map::new();
        for (v1, v2) in
            [("currentAverageUtilization", "averageUtilization"), ("currentAverageValue", "averageValue")]
        {
            if let Some(value) = source.remove(v1) {
                current.insert(v2.into(), value);
            }
        }
        if !current.is_empty() {
            source.insert("current".into(), Value::Object(current));
        }
    }
    out
}

fn annotation(object: &Value, name: &str) -> Option<Value> {
    let text = at(object, &["metadata", "annotations", name])?.as_str()?;
    serde_json::from_str(text).ok()
}

fn annotate(object: &mut Value, name: &str, value: Option<Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if let Some(value) = value {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(name.into(), value.to_string().into());
        }
    } else if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(name);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}
