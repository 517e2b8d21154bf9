//! Rules shared by kinds that have pods.

use super::labels::{is_empty, is_valid, selector, selects};
use super::pod_spec;
use crate::kinds::prelude::*;

pub(crate) const SELECTOR_MISMATCH: &str = "`selector` does not match template `labels`";

/// Returns the labels of a template; null if it has none.
pub(crate) fn template_labels<'v>(template: &Field<'v, '_>) -> &'v Value {
    static NONE: Value = Value::Null;
    template.member("metadata").get("labels").unwrap_or(&NONE)
}

/// Validates the selector of a workload, which must not be empty.
pub(crate) fn workload_selector(spec: &Field<'_, '_>, kind: &str, report: &mut Report) {
    let field = spec.get("selector");
    if !field.is_set() {
        report.required(&field, "");
        return;
    }
    selector(&field, report);
    if is_empty(field.value()) {
        report.invalid(&field, &format!("empty selector is invalid for {kind}"));
    }
}

/// Validates the template of a workload: its selector must match it, and its pods must always be restarted.
pub(crate) fn selected_template(spec: &Field<'_, '_>, kind: &str, report: &mut Report) {
    let (field, template) = (spec.get("selector"), spec.get("template"));
    let labels = template_labels(&template);
    if (!field.is_set() || !is_empty(field.value())) && !selects(field.value(), labels) {
        let metadata = template.get("metadata");
        report.invalid(&metadata.named("labels", labels), SELECTOR_MISMATCH);
    }
    pod_spec::template(&template, report);
    always_restarted(&template, kind, report);
}

/// Validates selector and template as deployments and replica sets do.
pub(crate) fn selected_replicas(spec: &Field<'_, '_>, kind: &str, report: &mut Report) {
    workload_selector(spec, "deployment", report);
    let field = spec.get("selector");
    if !is_valid(&field) {
        report.invalid(&field, "invalid label selector");
        return;
    }
    selected_template(spec, kind, report);
}

/// Checks that the pods of a workload that keeps them running are always restarted.
pub(crate) fn always_restarted(template: &Field<'_, '_>, kind: &str, report: &mut Report) {
    let spec = template.get("spec");
    if spec.text_of("restartPolicy") != "Always" {
        report.not_supported(&spec.get("restartPolicy"), &["Always"]);
    }
    if spec.has("activeDeadlineSeconds") {
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        report.forbidden(&spec.get("activeDeadlineSeconds"), &why);
    }
}

pub(crate) const MORE_THAN_REPLICAS: &str = "cannot be greater than status.replicas";

/// Validates the status of replica sets and replication controllers.
pub(crate) fn replicas_status(status: &Field<'_, '_>, report: &mut Report) {
    for member in
        ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"]
    {
        report.not_negative(&status.get(member));
    }
    let replicas = status.number_of("replicas");
    for member in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if status.number_of(member) > replicas {
            report.invalid(&status.get(member), MORE_THAN_REPLICAS);
        }
    }
    if status.number_of("availableReplicas") > status.number_of("readyReplicas") {
        report.invalid(&status.get("availableReplicas"), "cannot be greater than readyReplicas");
    }
}

/// Checks that a counter does not decrease.
pub(crate) fn not_decremented(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    let fell = match (new.integer(), old.integer()) {
        (None, Some(_)) => true,
        (Some(new), Some(old)) => new < old,
        _ => false,
    };
    if fell {
        report.invalid_number(new, "cannot be decremented");
    }
}

/// Validates a number or a percentage.
pub(crate) fn number_or_percent(field: &Field<'_, '_>, report: &mut Report) {
    if !field.value().is_string() {
        report.not_negative(field);
    } else if percent(field).is_none() {
        report.invalid(
            field,
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex \
             used for validation is '[0-9]+%')",
        );
    }
}

/// Parses a percentage; one that exceeds the number type counts as very large.
fn percent(field: &Field<'_, '_>) -> Option<u64> {
    let digits = field.text().strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Checks that a percentage is at most 100 %.
pub(crate) fn at_most_all(field: &Field<'_, '_>, report: &mut Report) {
    if percent(field).is_some_and(|percent| percent > 100) {
        report.invalid(field, "must not be greater than 100%");
    }
}

/// Reports whether a number or percentage is zero. Upstream takes the number from a text that should be a percentage.
pub(crate) fn is_zero(field: &Field<'_, '_>) -> bool {
    match percent(field) {
        Some(percent) => percent == 0,
        None if field.value().is_string() => field.text().parse::<i64>().unwrap_or_default() == 0,
        None => field.number() == 0,
    }
}
