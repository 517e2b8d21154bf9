//! Resource quotas.

use std::collections::BTreeSet;

use crate::kinds::prelude::*;
use crate::kinds::shared::resources::{Names, is_standard_quota_resource, resource_name, resource_quantity};

/// Scopes that only apply to pods, and take no values.
const OF_PODS: [&str; 5] =
    ["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity"];

pub(crate) struct ResourceQuota;

impl Kind for ResourceQuota {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text(
            "Request",
            T("Request represents a minimum amount of cpu/memory that a container may consume."),
        ),
        H::text(
            "Limit",
            T(
                "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
            ),
        ),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let mut requests = Vec::new();
        let mut limits = Vec::new();
        let mut hard: Vec<(&String, &Value)> =
            members(row.object, &["status", "hard"]).into_iter().flatten().collect();
        hard.sort_by_key(|(name, _)| *name);
        for (name, most) in hard {
            let used = row.text_or(&["status", "used", name], "0");
            let line = format!("{name}: {}/{}", used.as_str().unwrap_or("0"), most.as_str().unwrap_or("0"));
            if name.starts_with("limits.") { limits.push(line) } else { requests.push(line) }
        }
        vec![row.name(), requests.join(", ").into(), limits.join(", ").into(), row.age()]
    }

    fn defaults(members: &mut Members) {
        child(members, "spec");
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        spec(object, report);
        status(object, report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        spec(new, report);
        let (spec, before) = (new.get("spec"), old.get("spec"));
        let scopes = spec.get("scopes");
        let ours: BTreeSet<&str> = scopes.texts().collect();
        if ours != before.get("scopes").texts().collect() {
            report.invalid(&scopes, IMMUTABLE);
        }
    }

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        status(new, report);
    }
}

fn quantities(field: &Field<'_, '_>, report: &mut Report) {
    for (name, quantity) in field.entries() {
        resource_name(&quantity, name, Names::Quota, report);
        resource_quantity(&quantity, name, report);
    }
}

fn status(object: &Field<'_, '_>, report: &mut Report) {
    let status = object.get("status");
    quantities(&status.get("hard"), report);
    quantities(&status.get("used"), report);
}

fn is_scope(scope: &str) -> bool {
    OF_PODS.contains(&scope) || matches!(scope, "PriorityClass" | "VolumeAttributesClass")
}

/// Reports whether a scope applies to a resource.
fn is_scoped(scope: &str, resource: &str) -> bool {
    let compute = matches!(
        resource,
        "pods"
            | "cpu"
            | "memory"
            | "ephemeral-storage"
            | "requests.cpu"
            | "requests.memory"
            | "requests.ephemeral-storage"
            | "limits.cpu"
            | "limits.memory"
            | "limits.ephemeral-storage"
    );
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => compute,
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            matches!(resource, "persistentvolumeclaims" | "requests.storage")
        }
        _ => true,
    }
}

fn spec(object: &Field<'_, '_>, report: &mut Report) {
    let spec = object.get("spec");
    let hard = spec.get("hard");
    quantities(&hard, report);
    let scopes = spec.get("scopes");
    let standard: Vec<&str> =
        hard.entries().map(|(name, _)| name).filter(|name| is_standard_quota_resource(name)).collect();
    for scope in scopes.texts() {
        if !is_scope(scope) {
            report.invalid(&scopes, "unsupported scope");
        }
        for resource in &standard {
            if !is_scoped(scope, resource) {
                report.invalid(&scopes, "unsupported scope applied to resource");
            }
        }
    }
    conflicting(&scopes, &scopes.texts().collect(), report);
    if spec.has("scopeSelector") {
        scope_selector(&spec, &standard, report);
    }
}

fn conflicting(field: &Field<'_, '_>, scopes: &BTreeSet<&str>, report: &mut Report) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            report.invalid(field, "conflicting scopes");
        }
    }
}

fn scope_selector(spec: &Field<'_, '_>, standard: &[&str], report: &mut Report) {
    let selector = spec.get("scopeSelector");
    let field = selector.get("matchExpressions");
    for expression in field.items() {
        // Upstream's path has no index.
        let part = |name| field.named(name, expression.member(name));
        let (scope, operator, values) = (part("scopeName"), part("operator"), part("values"));
        if !is_scope(scope.text()) {
            report.invalid_text(&scope, scope.text(), "unsupported scope");
        }
        for resource in standard {
            if !is_scoped(scope.text(), resource) {
                // Upstream prints the whole selector.
                let shown = report.shown(&selector);
                report.invalid_shown(&field, &shown, "unsupported scope applied to resource");
            }
        }
        if OF_PODS.contains(&scope.text()) && operator.text() != "Exists" {
            report.invalid_text(
                &operator,
                operator.text(),
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                 ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                 ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        match operator.text() {
            "In" | "NotIn" => {
                if values.is_empty() {
                    report.required(
                        &values,
                        "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
                    );
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    report.invalid(
                        &values,
                        "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
                    );
                }
            }
            text => report.invalid_text(&operator, text, "not a valid selector operator"),
        }
    }
    let scopes = field.items().map(|expression| expression.text_of("scopeName")).collect();
    conflicting(&field, &scopes, report);
}
