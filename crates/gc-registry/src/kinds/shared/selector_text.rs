//! Labels and label selectors as text.

use serde_json::Value;

use crate::kinds::access::{at, list, text};

/// Formats a map of labels as `a=b,c=d`, sorted.
#[must_use]
pub(crate) fn map_text(labels: &Value) -> String {
    let mut parts: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    parts.sort();
    parts.join(",")
}

/// Formats a `LabelSelector`: its labels and its expressions, sorted by key.
#[must_use]
pub(crate) fn label_selector_text(selector: &Value) -> String {
    let labels = at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten();
    let mut parts: Vec<(String, String)> = labels
        .map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for expression in list(selector, &["matchExpressions"]) {
        let key = text(expression, &["key"]);
        let mut values: Vec<&str> = list(expression, &["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let part = match text(expression, &["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => continue,
        };
        parts.push((key.to_owned(), part));
    }
    parts.sort();
    parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join(",")
}
