//! Limit ranges.

use std::collections::BTreeSet;

use gc_types::Quantity;

use crate::kinds::prelude::*;
use crate::kinds::shared::names::qualified_name;
use crate::kinds::shared::resources::{Names, is_overcommit_allowed, resource_name};

const NOT_FOR_PODS: &str = "may not be specified when `type` is 'Pod'";

pub(crate) struct LimitRange;

impl Kind for LimitRange {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Whole], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = Column::PLAIN;

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.created()]
    }

    fn defaults(members: &mut Members) {
        let Some(spec) = child(members, "spec") else { return };
        fill_absent(spec, "limits", Value::Null);
        for item in items(spec, "limits") {
            if item.get("type").and_then(Value::as_str) != Some("Container") {
                continue;
            }
            let map = |item: &Members, key: &str| {
                item.get(key).and_then(Value::as_object).cloned().unwrap_or_default()
            };
            let mut limits = map(item, "default");
            for (name, quantity) in map(item, "max") {
                limits.entry(name).or_insert(quantity);
            }
            let mut requests = map(item, "defaultRequest");
            for (name, quantity) in limits.clone().into_iter().chain(map(item, "min")) {
                requests.entry(name).or_insert(quantity);
            }
            for (key, quantities) in [("default", limits), ("defaultRequest", requests)] {
                if quantities.is_empty() {
                    item.remove(key);
                } else {
                    item.insert(key.into(), Value::Object(quantities));
                }
            }
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let mut types = BTreeSet::new();
        for limit in spec.get("limits").items() {
            let kind = limit.get("type");
            let problems = qualified_name(kind.text());
            let standard = matches!(kind.text(), "Pod" | "Container" | "PersistentVolumeClaim");
            if problems.is_empty() && !kind.text().contains('/') && !standard {
                report.invalid_text(&kind, kind.text(), "must be a standard limit type or fully qualified");
            }
            report.each(&kind, problems);
            if !types.insert(kind.text()) {
                report.duplicate(&kind);
            }
            item(&limit, kind.text(), report);
        }
    }
}

fn item(limit: &Field<'_, '_>, kind: &str, report: &mut Report) {
    let names = if matches!(kind, "Pod" | "Container") { Names::Container } else { Names::Any };
    let mut keys = BTreeSet::new();
    for member in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let quantities = limit.get(member);
        if kind == "Pod" && matches!(member, "default" | "defaultRequest") {
            if !quantities.is_empty() {
                report.forbidden(&quantities, NOT_FOR_PODS);
            }
            continue;
        }
        if member == "maxLimitRequestRatio" && kind == "PersistentVolumeClaim" {
            let storage = |member: &str| limit.get(member).has("storage");
            if !storage("min") && !storage("max") {
                report.required(
                    &limit.get("limits"),
                    "either minimum or maximum storage value is required, but neither was provided",
                );
            }
        }
        for (name, quantity) in quantities.entries() {
            resource_name(&quantity, name, names, report);
            keys.insert(name);
        }
    }
    for name in keys {
        compare(limit, kind, name, report);
    }
}

/// Checks that the values of one resource are consistent.
fn compare(limit: &Field<'_, '_>, kind: &str, name: &str, report: &mut Report) {
    let of = |member: &str| -> Option<Quantity> {
        let skipped = kind == "Pod" && matches!(member, "default" | "defaultRequest");
        if skipped { None } else { limit.get(member).get(name).quantity() }
    };
    let (min, max, default) = (of("min"), of("max"), of("default"));
    let (request, ratio) = (of("defaultRequest"), of("maxLimitRequestRatio"));
    let mut problem = |member: &str, shown: Quantity, why: String| {
        let quantities = limit.get(member);
        let shown = Value::from(shown.to_string());
        report.invalid_shown(&quantities.key(name, &Value::Null), &shown, &why);
    };
    let above = |a: Option<Quantity>, b: Option<Quantity>| match (a, b) {
        (Some(a), Some(b)) if a.exceeds(b) => Some((a, b)),
        _ => None,
    };
    if let Some((min, max)) = above(min, max) {
        problem("min", min, format!("min value {min} is greater than max value {max}"));
    }
    if let Some((min, request)) = above(min, request) {
        let why = format!("min value {min} is greater than default request value {request}");
        problem("defaultRequest", request, why);
    }
    if let Some((request, max)) = above(request, max) {
        let why = format!("default request value {request} is greater than max value {max}");
        problem("defaultRequest", request, why);
    }
    if let Some((request, default)) = above(request, default) {
        let why = format!("default request value {request} is greater than default limit value {default}");
        problem("defaultRequest", request, why);
    }
    if let Some((min, default)) = above(min, default) {
        problem("default", min, format!("min value {min} is greater than default value {default}"));
    }
    if let Some((default, max)) = above(default, max) {
        problem("default", max, format!("default value {default} is greater than max value {max}"));
    }
    if let Some(ratio) = ratio {
        if ratio.milli_value() < 1000 {
            problem("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (min, max) {
            #[allow(clippy::cast_precision_loss)] // As upstream, which computes with floating numbers.
            let (ratio_value, most) =
                (ratio.milli_value() as f64 / 1000.0, max.milli_value() as f64 / min.milli_value() as f64);
            if ratio_value > most {
                let why = format!("ratio {ratio} is greater than max/min = {most:.6}");
                problem("maxLimitRequestRatio", ratio, why);
            }
        }
    }
    if let (Some(default), Some(request)) = (default, request)
        && !is_overcommit_allowed(name)
        && (default.exceeds(request) || request.exceeds(default))
    {
        let why = format!("default value {default} must equal to defaultRequest value {request} in {name}");
        problem("defaultRequest", request, why);
    }
}
