//! Conversion of autoscalers between their versions. v1 stores fields that it lacks in annotations, as JSON in the form of v1's Go
//! types; the behavior has the form of the internal type.

use serde_json::{Map, Value, json};

use crate::kinds::access::{Members, at, list, put, text};
use crate::schema::{self, Empties, shown};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
/// All annotations that conversion removes, even if a client set them.
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    BEHAVIOR,
    CONDITIONS,
    CURRENT_METRICS,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];
/// Annotations that belong to the spec, and those that belong to the status.
pub(super) const OF_SPEC: [&str; 2] = [METRICS, BEHAVIOR];
pub(super) const OF_STATUS: [&str; 2] = [CONDITIONS, CURRENT_METRICS];

/// Default target of an autoscaler in v1, in percent.
const DEFAULT_UTILIZATION_PERCENT: i64 = 80;
const SELECTOR: &str = "apimachinery.pkg.apis.meta.v1.LabelSelector";

/// Form of a metric's member in v1.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A text that is always present.
    Text,
    /// A quantity that is always present.
    Quantity,
    /// Omitted if absent.
    Optional,
    /// A label selector, omitted if absent.
    Selector,
    /// The object that a metric describes.
    Reference,
}

/// A member of a metric: its name in v1, its path in v2, and its form.
type Member = (&'static str, &'static [&'static str], Form);

const NAME: Member = ("name", &["name"], Form::Text);
const METRIC_NAME: Member = ("metricName", &["metric", "name"], Form::Text);
const METRIC_SELECTOR: Member = ("selector", &["metric", "selector"], Form::Selector);
const DESCRIBED: Member = ("target", &["describedObject"], Form::Reference);
const CONTAINER: Member = ("container", &["container"], Form::Text);
const WANTED_UTILIZATION: Member =
    ("targetAverageUtilization", &["target", "averageUtilization"], Form::Optional);
const WANTED_AVERAGE: Member = ("targetAverageValue", &["target", "averageValue"], Form::Optional);
const CURRENT_UTILIZATION: Member =
    ("currentAverageUtilization", &["current", "averageUtilization"], Form::Optional);
const CURRENT_AVERAGE: Member = ("currentAverageValue", &["current", "averageValue"], Form::Quantity);

/// Sources of metrics in the order of Go's type, with their members in that order.
type Sources = [(&'static str, &'static [Member]); 5];

const SPEC_SOURCES: Sources = [
    (
        "object",
        &[
            DESCRIBED,
            METRIC_NAME,
            ("targetValue", &["target", "value"], Form::Quantity),
            METRIC_SELECTOR,
            ("averageValue", &["target", "averageValue"], Form::Optional),
        ],
    ),
    (
        "pods",
        &[METRIC_NAME, ("targetAverageValue", &["target", "averageValue"], Form::Quantity), METRIC_SELECTOR],
    ),
    ("resource", &[NAME, WANTED_UTILIZATION, WANTED_AVERAGE]),
    ("containerResource", &[NAME, WANTED_UTILIZATION, WANTED_AVERAGE, CONTAINER]),
    (
        "external",
        &[
            METRIC_NAME,
            ("metricSelector", &["metric", "selector"], Form::Selector),
            ("targetValue", &["target", "value"], Form::Optional),
            WANTED_AVERAGE,
        ],
    ),
];
const STATUS_SOURCES: Sources = [
    (
        "object",
        &[
            DESCRIBED,
            METRIC_NAME,
            ("currentValue", &["current", "value"], Form::Quantity),
            METRIC_SELECTOR,
            ("averageValue", &["current", "averageValue"], Form::Optional),
        ],
    ),
    ("pods", &[METRIC_NAME, CURRENT_AVERAGE, METRIC_SELECTOR]),
    ("resource", &[NAME, CURRENT_UTILIZATION, CURRENT_AVERAGE]),
    ("containerResource", &[NAME, CURRENT_UTILIZATION, CURRENT_AVERAGE, CONTAINER]),
    (
        "external",
        &[
            METRIC_NAME,
            ("metricSelector", &["metric", "selector"], Form::Selector),
            ("currentValue", &["current", "value"], Form::Quantity),
            ("currentAverageValue", &["current", "averageValue"], Form::Optional),
        ],
    ),
];

/// Converts an autoscaler from v2 to v1.
pub(crate) fn to_v1(object: &Value) -> Value {
    let mut out = object.clone();
    let metrics = list(object, &["spec", "metrics"]);
    let wanted = metrics.iter().find_map(cpu_utilization);
    let others: Vec<String> = metrics
        .iter()
        .filter(|metric| cpu_utilization(metric).is_none())
        .map(|metric| metric_text(&SPEC_SOURCES, metric))
        .collect();
    let current = list(object, &["status", "currentMetrics"]);
    // Upstream uses the last one of several.
    let utilization = current.iter().rev().find_map(|metric| {
        let is_cpu = is_cpu(metric);
        is_cpu.then(|| at(metric, &["resource", "current", "averageUtilization"])).flatten()
    });
    if let Some(spec) = out.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("metrics");
        spec.remove("behavior");
        set(spec, "targetCPUUtilizationPercentage", wanted.cloned());
    }
    if let Some(status) = out.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("currentMetrics");
        status.remove("conditions");
        status.entry("currentReplicas").or_insert_with(|| 0.into());
        set(status, "currentCPUUtilizationPercentage", utilization.cloned());
    }
    let behavior = at(object, &["spec", "behavior"]).map(|behavior| {
        shown::internal("api.autoscaling.v2.HorizontalPodAutoscalerBehavior", behavior).compact()
    });
    let current: Vec<String> = current.iter().map(|metric| metric_text(&STATUS_SOURCES, metric)).collect();
    let conditions: Vec<String> =
        list(object, &["status", "conditions"]).iter().map(condition_text).collect();
    remove_annotations(&mut out, &ANNOTATIONS);
    annotate(&mut out, METRICS, list_text(&others));
    annotate(&mut out, BEHAVIOR, behavior);
    annotate(&mut out, CONDITIONS, list_text(&conditions));
    annotate(&mut out, CURRENT_METRICS, list_text(&current));
    out
}

/// Converts an autoscaler from v1 to v2.
pub(crate) fn to_v2(object: &Value) -> Value {
    let mut out = object.clone();
    let mut metrics =
        annotation(object, METRICS).and_then(|text| metrics(&SPEC_SOURCES, text)).unwrap_or_default();
    let wanted = at(object, &["spec", "targetCPUUtilizationPercentage"]).cloned();
    let wanted = wanted.or_else(|| metrics.is_empty().then(|| DEFAULT_UTILIZATION_PERCENT.into()));
    metrics.extend(wanted.map(|percent| {
        json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": percent}}})
    }));
    let behavior = annotation(object, BEHAVIOR).and_then(behavior);
    if let Some(spec) = out.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("targetCPUUtilizationPercentage");
        spec.insert("metrics".into(), Value::Array(metrics));
        set(spec, "behavior", behavior);
    }
    let conditions = annotation(object, CONDITIONS).and_then(conditions);
    let current = annotation(object, CURRENT_METRICS).and_then(|text| self::metrics(&STATUS_SOURCES, text));
    let utilization = at(object, &["status", "currentCPUUtilizationPercentage"]);
    let utilization = utilization.map(|utilization| {
        let current = json!({"averageUtilization": utilization});
        json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}])
    });
    if let Some(status) = out.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("currentCPUUtilizationPercentage");
        let current = current.filter(|current| !current.is_empty()).map(Value::Array);
        status.insert("currentMetrics".into(), current.or(utilization).unwrap_or_default());
        set(status, "conditions", conditions.filter(|conditions| !conditions.is_empty()).map(Value::Array));
        if status.get("currentReplicas").and_then(Value::as_i64) == Some(0) {
            status.remove("currentReplicas");
        }
    }
    remove_annotations(&mut out, &ANNOTATIONS);
    out
}

/// Copies annotations from another object, or removes those that it lacks.
pub(super) fn keep_annotations(new: &mut Value, old: &Value, names: &[&str]) {
    remove_annotations(new, names);
    for name in names {
        annotate(new, name, annotation(old, name).map(str::to_owned));
    }
}

/// Removes the annotations that carry the fields of another version.
pub(super) fn remove_round_trip(object: &mut Value) {
    remove_annotations(object, &ANNOTATIONS);
}

/// Removes annotations, and the map if it becomes empty.
pub(super) fn remove_annotations(object: &mut Value, names: &[&str]) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.retain(|name, _| !names.contains(&name.as_str()));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

fn is_cpu(metric: &Value) -> bool {
    text(metric, &["type"]) == "Resource" && text(metric, &["resource", "name"]) == "cpu"
}

/// Returns the utilization of a metric that v1 has a field for, if it is one.
fn cpu_utilization(metric: &Value) -> Option<&Value> {
    is_cpu(metric).then(|| at(metric, &["resource", "target", "averageUtilization"])).flatten()
}

fn set(members: &mut Members, name: &str, value: Option<Value>) {
    match value {
        Some(value) => {
            members.insert(name.into(), value);
        }
        None => {
            members.remove(name);
        }
    }
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    at(object, &["metadata", "annotations", name])?.as_str()
}

fn annotate(object: &mut Value, name: &str, value: Option<String>) {
    let Some(value) = value else { return };
    put(object, &["metadata", "annotations", name], value.into());
}

fn list_text(items: &[String]) -> Option<String> {
    (!items.is_empty()).then(|| format!("[{}]", items.join(",")))
}

/// Formats members in this order, omitting those without text.
fn object_text<'a>(members: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let members: Vec<String> =
        members.into_iter().filter_map(|(name, text)| Some(format!("\"{name}\":{}", text?))).collect();
    format!("{{{}}}", members.join(","))
}

/// Formats a scalar as Go does.
fn scalar_text(value: &Value) -> String {
    shown::untyped(value).compact()
}

fn metric_text(sources: &Sources, metric: &Value) -> String {
    let kind = ("type", Some(scalar_text(&text(metric, &["type"]).into())));
    let parts = sources.iter().map(|(name, members)| {
        let source = at(metric, &[name]);
        (*name, source.map(|source| object_text(members.iter().map(|member| member_text(member, source)))))
    });
    object_text(std::iter::once(kind).chain(parts))
}

fn member_text<'a>((name, path, form): &Member, source: &Value) -> (&'a str, Option<String>) {
    let value = at(source, path);
    let written = match form {
        Form::Text => Some(scalar_text(&text(source, path).into())),
        Form::Quantity => Some(scalar_text(value.unwrap_or(&"0".into()))),
        Form::Optional => value.map(scalar_text),
        Form::Selector => value.map(|value| shown::internal(SELECTOR, value).compact()),
        Form::Reference => Some(reference_text(value.unwrap_or(&Value::Null))),
    };
    (name, written)
}

fn reference_text(reference: &Value) -> String {
    let version = Some(text(reference, &["apiVersion"])).filter(|version| !version.is_empty());
    object_text([
        ("kind", Some(scalar_text(&text(reference, &["kind"]).into()))),
        ("name", Some(scalar_text(&text(reference, &["name"]).into()))),
        ("apiVersion", version.map(|version| scalar_text(&version.into()))),
    ])
}

fn condition_text(condition: &Value) -> String {
    let always = |name: &str| Some(scalar_text(&text(condition, &[name]).into()));
    let filled = |name: &str| {
        let text = text(condition, &[name]);
        (!text.is_empty()).then(|| scalar_text(&text.into()))
    };
    let time = condition.get("lastTransitionTime").unwrap_or(&Value::Null);
    object_text([
        ("type", always("type")),
        ("status", always("status")),
        ("lastTransitionTime", Some(scalar_text(time))),
        ("reason", filled("reason")),
        ("message", filled("message")),
    ])
}

/// Parses the metrics in an annotation; returns `None` if they have another form, in which case they are ignored.
fn metrics(sources: &Sources, text: &str) -> Option<Vec<Value>> {
    let items: Vec<Value> = serde_json::from_str(text).ok()?;
    let part = if *sources == SPEC_SOURCES { ("spec", "metrics") } else { ("status", "currentMetrics") };
    into_list(typed(part, items.iter().map(|item| metric(sources, item)).collect())?)
}

/// Converts values to v2's canonical form at a path; returns `None` if they have another type.
fn typed((part, field): (&str, &str), values: Value) -> Option<Value> {
    let schema = schema::builtin("autoscaling", "v2", "HorizontalPodAutoscaler")?;
    let mut object = Value::Object(Members::new());
    put(&mut object, &[part, field], values);
    schema::check_types(&schema, &object).ok()?;
    schema::normalize(&schema, &mut object, Empties::Kept);
    object.get_mut(part)?.get_mut(field).map(Value::take)
}

fn metric(sources: &Sources, item: &Value) -> Value {
    let mut out = json!({"type": item.get("type").unwrap_or(&"".into())});
    for (name, members) in sources {
        let Some(source) = at(item, &[name]) else { continue };
        let mut converted = Value::Object(Map::new());
        for (old, path, form) in *members {
            let value = at(source, &[old]).cloned();
            let value = if *form == Form::Quantity { value.or(Some("0".into())) } else { value };
            if let Some(value) = value {
                put(&mut converted, path, value);
            }
        }
        if *sources == SPEC_SOURCES {
            set_target_type(name, &mut converted);
        }
        put(&mut out, &[name], converted);
    }
    out
}

/// Derives the target type of a v1 metric from its members.
fn set_target_type(source: &str, metric: &mut Value) {
    let has = |name: &str| at(metric, &["target", name]).is_some();
    let kind = match source {
        "object" if !has("averageValue") => "Value",
        "external" if has("value") => "Value",
        "resource" | "containerResource" if has("averageUtilization") => "Utilization",
        _ => "AverageValue",
    };
    if source == "object" && kind == "AverageValue" && is_zero(at(metric, &["target", "value"])) {
        // v1 cannot omit this field.
        if let Some(target) = metric.get_mut("target").and_then(Value::as_object_mut) {
            target.remove("value");
        }
    }
    put(metric, &["target", "type"], kind.into());
}

fn is_zero(quantity: Option<&Value>) -> bool {
    quantity.is_none_or(|value| value == "0" || value == 0)
}

fn conditions(text: &str) -> Option<Vec<Value>> {
    let items: Value = serde_json::from_str(text).ok()?;
    into_list(typed(("status", "conditions"), items)?)
}

fn into_list(value: Value) -> Option<Vec<Value>> {
    if let Value::Array(items) = value { Some(items) } else { None }
}

/// Parses the behavior in an annotation. Go matches the fields regardless of case.
fn behavior(text: &str) -> Option<Value> {
    let mut behavior: Value = serde_json::from_str(text).ok()?;
    rename(&mut behavior);
    let behavior = typed(("spec", "behavior"), behavior)?;
    behavior.as_object().is_some_and(|members| !members.is_empty()).then_some(behavior)
}

const BEHAVIOR_FIELDS: [&str; 9] = [
    "scaleUp",
    "scaleDown",
    "stabilizationWindowSeconds",
    "selectPolicy",
    "policies",
    "tolerance",
    "type",
    "value",
    "periodSeconds",
];

fn rename(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(rename),
        Value::Object(members) => {
            for (name, mut value) in std::mem::take(members) {
                let known = BEHAVIOR_FIELDS.iter().find(|known| known.eq_ignore_ascii_case(&name));
                if let Some(known) = known {
                    rename(&mut value);
                    members.insert((*known).into(), value);
                }
            }
        }
        _ => {}
    }
}
