//! Horizontal pod autoscalers, in both versions.

use super::conversion::{self, to_v1, to_v2};
use super::metrics::{cross_reference, metrics};
use crate::kinds::prelude::*;
use crate::kubernetes::FeatureGate;

const WINDOW_SECONDS_MAX: i64 = 3600;
const PERIOD_SECONDS_MAX: i64 = 1800;
/// Maximum number of metrics shown; the others are counted.
const METRICS_SHOWN: usize = 2;

/// Autoscalers; `V1` is true for the older version, which supports a single metric.
pub(crate) struct HorizontalPodAutoscaler<const V1: bool>;

impl<const V1: bool> Kind for HorizontalPodAutoscaler<V1> {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Reference", F("api.autoscaling.v2.HorizontalPodAutoscalerSpec", "scaleTargetRef")),
        H::text("Targets", F("api.autoscaling.v2.HorizontalPodAutoscalerSpec", "metrics")),
        H::text("MinPods", F("api.autoscaling.v2.HorizontalPodAutoscalerSpec", "minReplicas")),
        H::text("MaxPods", F("api.autoscaling.v2.HorizontalPodAutoscalerSpec", "maxReplicas")),
        H::text("Replicas", F("api.autoscaling.v2.HorizontalPodAutoscalerStatus", "currentReplicas")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        // Tables are built from the newest form of the object.
        let converted;
        let object = if V1 {
            converted = to_v2(row.object);
            &converted
        } else {
            row.object
        };
        let row = &Row { object, now: row.now };
        let reference = format!(
            "{}/{}",
            row.text(&["spec", "scaleTargetRef", "kind"]),
            row.text(&["spec", "scaleTargetRef", "name"])
        );
        let least =
            integer(object, &["spec", "minReplicas"]).map_or_else(|| UNSET.into(), |least| least.to_string());
        vec![
            row.name(),
            reference.into(),
            shown_metrics(row).into(),
            least.into(),
            row.number(&["spec", "maxReplicas"]).into(),
            row.number(&["status", "currentReplicas"]).into(),
            row.age(),
        ]
    }

    fn defaults(members: &mut Members) {
        let Some(spec) = child(members, "spec") else { return };
        fill_absent(spec, "minReplicas", 1);
        if V1 {
            if let Some(status) = child(members, "status") {
                fill_absent(status, "currentReplicas", 0);
                fill_absent(status, "desiredReplicas", 0);
            }
            rewrite(members, |object| *object = to_v1(&to_v2(object)));
            return;
        }
        rewrite(members, conversion::remove_round_trip);
        let Some(spec) = child(members, "spec") else { return };
        if spec.get("metrics").is_none() {
            spec.insert(
                "metrics".into(),
                json!([{"type": "Resource", "resource": {"name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 80}}}]),
            );
        }
        if let Some(behavior) = existing(spec, "behavior") {
            fill_scaling_rules(behavior, "scaleUp", Some(0), &[("Pods", 4, 15), ("Percent", 100, 15)]);
            fill_scaling_rules(behavior, "scaleDown", None, &[("Percent", 100, 15)]);
        }
        if let Some(status) = child(members, "status") {
            // v2 always writes these two members.
            fill_absent(status, "desiredReplicas", 0);
            fill_absent(status, "currentMetrics", Value::Null);
        }
    }

    fn reset_status(object: &mut Value) {
        remove(object, &["status"]);
        conversion::remove_annotations(object, &conversion::OF_STATUS);
    }

    fn prepare_update(new: &mut Value, old: &Value, _: &Context<'_>) {
        if V1 {
            conversion::keep_annotations(new, old, &conversion::OF_STATUS);
        }
    }

    fn prepare_status(new: &mut Value, old: &Value, _: &Context<'_>) {
        if V1 {
            conversion::keep_annotations(new, old, &conversion::OF_SPEC);
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        check(V1, object, None, report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        check(V1, new, Some(old), report);
    }

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        report.not_negative(&status.get("currentReplicas"));
        report.not_negative(&status.get("desiredReplicas"));
    }
}

/// Validates the form of v2, because upstream validates the internal type, which has that form.
fn check(v1: bool, object: &Field<'_, '_>, old: Option<&Field<'_, '_>>, report: &mut Report) {
    if v1 {
        spec(&Field::root(&to_v2(object.value())), old, report);
    } else {
        spec(object, old, report);
    }
}

fn spec(object: &Field<'_, '_>, old: Option<&Field<'_, '_>>, report: &mut Report) {
    let spec = object.get("spec");
    let (least, most) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    let bound = i64::from(!FeatureGate::HpaScaleToZero.is_on());
    if least.integer().is_some_and(|replicas| replicas < bound) {
        report.invalid(&least, &format!("must be greater than or equal to {bound}"));
    }
    match most.number() {
        0 => report.required(&most, "must be set and greater than 0"),
        number if number < 1 => report.invalid(&most, "must be greater than or equal to 1"),
        _ => {}
    }
    if least.integer().is_some_and(|replicas| most.number() < replicas) {
        report.invalid_number(&most, "must be greater than or equal to `minReplicas`");
    }
    let reference = spec.get("scaleTargetRef");
    cross_reference(&reference, report);
    let version = reference.get("apiVersion");
    let kept = old.is_some_and(|old| {
        let spec = old.get("spec");
        spec.get("scaleTargetRef").text_of("apiVersion") == version.text()
    });
    if !kept {
        api_version(&version, reference.text_of("kind"), report);
    }
    metrics(&spec.get("metrics"), least.integer() == Some(0), report);
    let behavior = spec.get("behavior");
    for member in ["scaleUp", "scaleDown"] {
        if behavior.has(member) {
            scaling_rules(&behavior.get(member), report);
        }
    }
}

fn rewrite(members: &mut Members, change: impl Fn(&mut Value)) {
    let mut object = Value::Object(std::mem::take(members));
    change(&mut object);
    if let Value::Object(changed) = object {
        *members = changed;
    }
}

fn api_version(field: &Field<'_, '_>, kind: &str, report: &mut Report) {
    let text = field.text();
    match text.matches('/').count() {
        0 if kind == "ReplicationController" && text == "v1" => {}
        0 => report.invalid_text(field, text, "apiVersion must specify API group"),
        1 if text.starts_with('/') => report.invalid(field, "apiVersion must specify API group"),
        1 => {}
        _ => report.invalid(field, &format!("unexpected GroupVersion string: {text}")),
    }
}

fn scaling_rules(field: &Field<'_, '_>, report: &mut Report) {
    let window = field.get("stabilizationWindowSeconds");
    if window.number() < 0 {
        report.invalid(&window, "must be greater than or equal to zero");
    }
    if window.number() > WINDOW_SECONDS_MAX {
        report.invalid(&window, &format!("must be less than or equal to {WINDOW_SECONDS_MAX}"));
    }
    report.one_of_if_set(&field.get("selectPolicy"), &["Disabled", "Max", "Min"]);
    let policies = field.get("policies");
    if policies.list().is_empty() {
        report.required(&policies, "must specify at least one Policy");
    }
    for policy in policies.items() {
        let kind = policy.get("type");
        if !matches!(kind.text(), "Percent" | "Pods") {
            report.not_supported(&kind, &["Percent", "Pods"]);
        }
        for member in ["value", "periodSeconds"] {
            let number = policy.get(member);
            if number.number() <= 0 {
                report.invalid_number(&number, "must be greater than zero");
            }
        }
        let period = policy.get("periodSeconds");
        if period.number() > PERIOD_SECONDS_MAX {
            report.invalid(&period, &format!("must be less than or equal to {PERIOD_SECONDS_MAX}"));
        }
    }
    let tolerance = field.get("tolerance");
    if tolerance.quantity().is_some_and(gc_types::Quantity::is_negative) {
        report.invalid(&tolerance, "must be greater than or equal to 0");
    }
}

fn shown_metrics(row: &Row<'_>) -> String {
    let wanted = row.list(&["spec", "metrics"]);
    if wanted.is_empty() {
        return NONE.into();
    }
    let have = row.list(&["status", "currentMetrics"]);
    let shown: Vec<String> = wanted
        .iter()
        .take(METRICS_SHOWN)
        .enumerate()
        .map(|(index, metric)| one_metric(metric, have.get(index)))
        .collect();
    let text = shown.join(", ");
    if wanted.len() > METRICS_SHOWN {
        return format!("{text} + {} more...", wanted.len() - METRICS_SHOWN);
    }
    text
}

fn one_metric(metric: &Value, status: Option<&Value>) -> String {
    let source = match text(metric, &["type"]) {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".into(),
    };
    let target = |key: &str| int_or_string(at(metric, &[source, "target", key]));
    let current = |key: &str| {
        status
            .and_then(|status| int_or_string(at(status, &[source, "current", key])))
            .unwrap_or_else(|| "<unknown>".into())
    };
    match source {
        "pods" => format!("{}/{}", current("averageValue"), target("averageValue").unwrap_or_default()),
        "external" | "object" => match target("averageValue") {
            Some(average) => format!("{}/{average} (avg)", current("averageValue")),
            None => format!("{}/{}", current("value"), target("value").unwrap_or_default()),
        },
        _ => {
            let name = text(metric, &[source, "name"]);
            if let Some(average) = target("averageValue") {
                return format!("{name}: {}/{average}", current("averageValue"));
            }
            let percent = |text: String| if text.starts_with('<') { text } else { format!("{text}%") };
            let wanted = target("averageUtilization").map_or_else(|| "<auto>".into(), percent);
            format!("{name}: {}/{wanted}", percent(current("averageUtilization")))
        }
    }
}

fn fill_scaling_rules(behavior: &mut Members, key: &str, window: Option<i64>, policies: &[(&str, i64, i64)]) {
    let Some(rules) = child(behavior, key) else { return };
    if let Some(seconds) = window {
        fill_absent(rules, "stabilizationWindowSeconds", seconds);
    }
    fill_absent(rules, "selectPolicy", "Max");
    if rules.get("policies").is_none() {
        let policies = policies
            .iter()
            .map(|(kind, value, seconds)| json!({"type": kind, "value": value, "periodSeconds": seconds}))
            .collect();
        rules.insert("policies".into(), Value::Array(policies));
    }
}
