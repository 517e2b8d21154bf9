//! Columns and cells that policies, or their bindings, have in common.

use std::fmt::Write as _;

use crate::kinds::kind::prelude::*;

pub(super) const BINDING_COLUMNS: &[Column] = &[
    H::NAME,
    H::text("PolicyName", T("PolicyName indicates the policy definition which the policy binding binded to")),
    H::text("ParamRef", T("ParamRef indicates the param resource which sets the configuration param")),
    H::AGE,
];

/// The row of a binding.
pub(super) fn binding_cells(row: &Row<'_>) -> Vec<Value> {
    vec![row.name(), row.shown(&["spec", "policyName"]), parameter(row), row.age()]
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

/// A label selector as Go's generated `String` writes it.
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

/// The row of a policy, whose rules are the list `key`.
pub(super) fn policy_cells(row: &Row<'_>, key: &str) -> Vec<Value> {
    let kind = at(row.object, &["spec", "paramKind"]).map_or_else(
        || UNSET.into(),
        |kind| format!("{}/{}", text(kind, &["apiVersion"]), text(kind, &["kind"])),
    );
    vec![row.name(), row.list(&["spec", key]).len().into(), kind.into(), row.age()]
}
