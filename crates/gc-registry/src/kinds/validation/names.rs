//! Names, labels and selectors.

use serde_json::Value;

use super::report::Report;
use crate::kinds::access::{at, list, text};

pub(super) use crate::names::{
    dns_label as label, dns_label_1035 as label_1035, dns_subdomain as subdomain, label_value, qualified_name,
};

/// Problems of a port's name in a container.
pub(super) fn port_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 15 {
        problems.push("must be no more than 15 characters".into());
    }
    if !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') || text.is_empty() {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".into());
    }
    if text.contains("--") {
        problems.push("must not contain consecutive hyphens".into());
    }
    if text.starts_with('-') || text.ends_with('-') {
        problems.push("must not begin or end with a hyphen".into());
    }
    problems
}

/// Problems of a number that must be a port.
pub(super) fn port_number(number: i64) -> Vec<String> {
    if (1..=65_535).contains(&number) {
        Vec::new()
    } else {
        vec!["must be between 1 and 65535, inclusive".into()]
    }
}

/// Checks a map of labels.
pub(super) fn labels(labels: Option<&Value>, field: &str, report: &mut Report) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        report.each(field, key, qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        report.each(field, value, label_value(value));
    }
}

/// Checks a `LabelSelector`.
pub(super) fn selector(selector: Option<&Value>, field: &str, report: &mut Report) {
    let Some(selector) = selector else { return };
    labels(at(selector, &["matchLabels"]), &format!("{field}.matchLabels"), report);
    for (index, expression) in list(selector, &["matchExpressions"]).iter().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        let values = list(expression, &["values"]);
        match text(expression, &["operator"]) {
            "In" | "NotIn" if values.is_empty() => {
                report.required(
                    &format!("{field}.values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                );
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => report.forbidden(
                &format!("{field}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => report.invalid(
                &format!("{field}.operator"),
                Some(expression.get("operator").unwrap_or(&Value::String(String::new()))),
                "not a valid selector operator",
            ),
        }
        let key = text(expression, &["key"]);
        report.each(&format!("{field}.key"), key, qualified_name(key));
        for (at, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            report.each(&format!("{field}.values[{at}]"), value, label_value(value));
        }
    }
}

/// Whether a label selector without errors selects these labels.
pub(super) fn selects(selector: &Value, labels: Option<&Value>) -> bool {
    let have = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let wanted = at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten();
    wanted.into_iter().all(|(key, value)| have(key) == value.as_str())
        && list(selector, &["matchExpressions"]).iter().all(|expression| {
            let value = have(text(expression, &["key"]));
            let listed =
                value.is_some_and(|value| list(expression, &["values"]).iter().any(|item| item == value));
            match text(expression, &["operator"]) {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// Whether a selector selects everything.
pub(super) fn is_empty(selector: &Value) -> bool {
    at(selector, &["matchLabels"]).and_then(Value::as_object).is_none_or(serde_json::Map::is_empty)
        && list(selector, &["matchExpressions"]).is_empty()
}
