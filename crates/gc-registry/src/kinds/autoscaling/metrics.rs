//! The metrics of autoscalers.

use crate::kinds::prelude::*;
use crate::kinds::shared::names::{dns_label, path_segment};
use crate::kinds::shared::resources::{Names, resource_name};

/// Types of metrics, with the member that each needs.
const TYPES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// Validates the metrics of a spec. `scales_to_zero` permits zero replicas, which requires an object or external metric.
pub(crate) fn metrics(field: &Field<'_, '_>, scales_to_zero: bool, report: &mut Report) {
    let mut from_outside = false;
    for metric in field.items() {
        from_outside |= matches!(metric.text_of("type"), "Object" | "External");
        one(&metric, report);
    }
    if scales_to_zero && !from_outside {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        report.forbidden(field, why);
    }
}

fn one(metric: &Field<'_, '_>, report: &mut Report) {
    let kind = metric.get("type");
    if kind.text().is_empty() {
        report.required(&kind, "must specify a metric source type");
    }
    let known: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
    if !known.contains(&kind.text()) {
        report.not_supported(&kind, &known);
    }
    let present: Vec<&str> = ["object", "external", "pods", "resource", "containerResource"]
        .into_iter()
        .filter(|member| metric.has(member))
        .collect();
    if let Some(first) = present.first() {
        let source = metric.get(first);
        match *first {
            "object" => {
                cross_reference(&source.get("describedObject"), report);
                identifier(&source.get("metric"), report);
                let target = source.get("target");
                self::target(&target, report);
                if !target.has("value") && !target.has("averageValue") {
                    let why = "must set either a target value or averageValue";
                    report.required(&target.get("averageValue"), why);
                }
            }
            "external" => external(&source, report),
            "pods" => {
                identifier(&source.get("metric"), report);
                let target = source.get("target");
                self::target(&target, report);
                let average = target.get("averageValue");
                if !average.is_set() {
                    report.required(&average, "must specify a positive target averageValue");
                }
            }
            "containerResource" => {
                let (name, container) = (source.get("name"), source.get("container"));
                if name.text().is_empty() {
                    report.required(&name, "must specify a resource name");
                } else {
                    resource_name(&name, name.text(), Names::Container, report);
                }
                if container.text().is_empty() {
                    report.required(&container, "must specify a container");
                } else {
                    report.each(&container, dns_label(container.text()));
                }
                resource_target(&source.get("target"), report);
            }
            _ => {
                if source.text_of("name").is_empty() {
                    report.required(&source.get("name"), "must specify a resource name");
                }
                resource_target(&source.get("target"), report);
            }
        }
    }
    let wanted = TYPES.iter().find(|(name, _)| *name == kind.text()).map(|(_, member)| *member);
    match wanted {
        Some(member) if !present.contains(&member) => {
            report.required(&metric.get(member), "must populate information for the given metric source");
        }
        Some(_) => {}
        None => report.not_supported(&kind, &known),
    }
    if present.len() > 1 {
        for member in present.iter().filter(|member| Some(**member) != wanted) {
            report.forbidden(&metric.get(member), "must populate the given metric source only");
        }
    }
}

fn external(source: &Field<'_, '_>, report: &mut Report) {
    identifier(&source.get("metric"), report);
    let target = source.get("target");
    self::target(&target, report);
    let (value, average) = (target.get("value"), target.get("averageValue"));
    match (value.is_set(), average.is_set()) {
        (false, false) => {
            let why = "must set either a target value for metric or a per-pod target";
            report.required(&average, why);
        }
        (true, true) => {
            let why = "may not set both a target value for metric and a per-pod target";
            report.forbidden(&value, why);
        }
        _ => {}
    }
}

fn resource_target(target: &Field<'_, '_>, report: &mut Report) {
    self::target(target, report);
    let (utilization, average) = (target.get("averageUtilization"), target.get("averageValue"));
    match (utilization.is_set(), average.is_set()) {
        (false, false) => {
            let why = "must set either a target raw value or a target utilization";
            report.required(&utilization, why);
        }
        (true, true) => {
            let why = "may not set both a target raw value and a target utilization";
            report.forbidden(&average, why);
        }
        _ => {}
    }
}

fn identifier(field: &Field<'_, '_>, report: &mut Report) {
    let name = field.get("name");
    if name.text().is_empty() {
        report.required(&name, "must specify a metric name");
    } else {
        report.each(&name, path_segment(name.text()));
    }
}

fn target(field: &Field<'_, '_>, report: &mut Report) {
    let kind = field.get("type");
    if kind.text().is_empty() {
        report.required(&kind, "must specify a metric target type");
    }
    if !matches!(kind.text(), "Utilization" | "Value" | "AverageValue") {
        report.invalid_text(&kind, kind.text(), "must be either Utilization, Value, or AverageValue");
    }
    for member in ["value", "averageValue"] {
        let value = field.get(member);
        if value.quantity().is_some_and(|value| value.is_zero() || value.is_negative()) {
            report.invalid(&value, "must be positive");
        }
    }
    let utilization = field.get("averageUtilization");
    if utilization.integer().is_some_and(|percent| percent < 1) {
        report.invalid(&utilization, POSITIVE);
    }
}

/// Validates a reference to an object of any kind.
pub(crate) fn cross_reference(field: &Field<'_, '_>, report: &mut Report) {
    for member in ["kind", "name"] {
        let part = field.get(member);
        if part.text().is_empty() {
            report.required(&part, "");
        } else {
            report.each(&part, path_segment(part.text()));
        }
    }
}
