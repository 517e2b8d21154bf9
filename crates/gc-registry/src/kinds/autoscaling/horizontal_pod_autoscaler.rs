//! Horizontal pod autoscalers, in both versions.

use super::metrics::{cross_reference, metrics};
use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::{POSITIVE, Report};
use crate::resource::Target;

const WINDOW_SECONDS_MAX: i64 = 3600;
const PERIOD_SECONDS_MAX: i64 = 1800;

pub(crate) struct HorizontalPodAutoscaler;

impl Kind for HorizontalPodAutoscaler {
    fn validate(&self, target: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        spec(target, object, None, report);
    }

    fn validate_update(
        &self,
        target: Target<'_>,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        spec(target, new, Some(old), report);
    }

    fn validate_status(&self, _: Target<'_>, new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        report.not_negative(&status.get("currentReplicas"));
        report.not_negative(&status.get("desiredReplicas"));
    }
}

fn spec(target: Target<'_>, object: &Field<'_, '_>, old: Option<&Field<'_, '_>>, report: &mut Report) {
    let spec = object.get("spec");
    let (least, most) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    if least.integer().is_some_and(|replicas| replicas < 1) {
        report.invalid(&least, "must be greater than or equal to 1");
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
    if target.version == "v1" {
        let percent = spec.get("targetCPUUtilizationPercentage");
        if percent.integer().is_some_and(|percent| percent < 1) {
            // Upstream checks the newer form of the same.
            let metrics = spec.get("metrics");
            let first = metrics.index(0);
            let resource = first.get("resource");
            let inner = resource.get("target");
            report.invalid(&inner.named("averageUtilization", percent.value()), POSITIVE);
        }
        return;
    }
    metrics(&spec.get("metrics"), least.integer() == Some(0), report);
    let behavior = spec.get("behavior");
    for member in ["scaleUp", "scaleDown"] {
        if behavior.has(member) {
            scaling_rules(&behavior.get(member), report);
        }
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
    if tolerance.quantity().is_some_and(crate::kinds::quantity::Quantity::is_negative) {
        report.invalid(&tolerance, "must be greater than or equal to 0");
    }
}
