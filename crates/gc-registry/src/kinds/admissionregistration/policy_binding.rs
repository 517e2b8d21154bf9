//! Bindings of admission policies, validating and mutating.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::matching::{
    default_match_resources, match_resources, mutating_operations, param_ref, policy_name,
};
use crate::kinds::prelude::*;

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

/// Bindings of policies; `MUTATING` is true for policies that change objects.
pub(crate) struct PolicyBinding<const MUTATING: bool>;

impl<const MUTATING: bool> Kind for PolicyBinding<MUTATING> {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata =
        Metadata { refuses_plain_finalizers: false, update: &[MetadataCheck::Whole], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text(
            "PolicyName",
            T("PolicyName indicates the policy definition which the policy binding binded to"),
        ),
        H::text("ParamRef", T("ParamRef indicates the param resource which sets the configuration param")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.shown(&["spec", "policyName"]), parameter(row), row.age()]
    }

    fn defaults(members: &mut Members) {
        if let Some(spec) = child(members, "spec") {
            default_match_resources(spec, "matchResources");
        }
    }

    fn warnings(new: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        warnings::static_name(new, texts);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        policy_name(&spec.get("policyName"), report);
        param_ref(&spec.get("paramRef"), report);
        let resources = spec.get("matchResources");
        if resources.is_set() {
            match_resources(&resources, report);
        }
        if MUTATING && resources.is_set() {
            mutating_operations(&resources, report);
        }
        if !MUTATING {
            actions(&spec.get("validationActions"), report);
        }
    }
}

fn actions(actions: &Field<'_, '_>, report: &mut Report) {
    let mut seen = BTreeSet::new();
    for action in actions.items() {
        if !ACTIONS.contains(&action.text()) {
            report.not_supported(&action, &ACTIONS);
        }
        if !seen.insert(action.text()) {
            report.duplicate(&action);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        report.invalid(
            actions,
            "must not contain both Deny and Warn (repeating the same validation failure information in the API \
             response and headers serves no purpose)",
        );
    }
    if seen.is_empty() {
        report.required(actions, "at least one validation action is required");
    }
}

fn parameter(row: &Row<'_>) -> Value {
    let name = row.text(&["spec", "paramRef", "name"]);
    let namespace = row.text(&["spec", "paramRef", "namespace"]);
    match (name, namespace) {
        ("", _) => match at(row.object, &["spec", "paramRef", "selector"]) {
            Some(labels) => go_selector(labels).into(),
            None => UNSET.into(),
        },
        (name, "") => format!("*/{name}").into(),
        (name, namespace) => format!("{namespace}/{name}").into(),
    }
}

/// Formats a label selector like Go's generated `String`.
fn go_selector(selector: &Value) -> String {
    let mut labels: Vec<(&String, &Value)> =
        selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten().collect();
    labels.sort_by_key(|(key, _)| key.as_str());
    let mut out = String::from("&LabelSelector{MatchLabels:map[string]string{");
    for (key, value) in labels {
        let _ = write!(out, "{key}: {},", value.as_str().unwrap_or_default());
    }
    out.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for expression in list(selector, &["matchExpressions"]) {
        let values: Vec<&str> = list(expression, &["values"]).iter().filter_map(Value::as_str).collect();
        let _ = write!(
            out,
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            text(expression, &["key"]),
            text(expression, &["operator"]),
            values.join(" ")
        );
    }
    out.push_str("},}");
    out
}
