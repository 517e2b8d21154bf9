//! Labels, annotations and label selectors.

use super::names::{label_value, qualified, qualified_name};
use crate::kinds::prelude::*;

/// Maximum number of bytes in the keys and values of all annotations.
const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

/// Validates a map of labels.
pub(crate) fn labels(field: &Field<'_, '_>, report: &mut Report) {
    for (key, value) in field.entries() {
        report.each_of(field, key, qualified_name(key));
        report.each_of(field, value.text(), label_value(value.text()));
    }
}

/// Validates the annotations of a template.
pub(crate) fn annotations(field: &Field<'_, '_>, report: &mut Report) {
    let mut bytes = 0;
    for (key, value) in field.entries() {
        report.each_of(field, key, qualified_name(&key.to_lowercase()));
        bytes += key.len() + value.text().len();
    }
    if bytes > ANNOTATIONS_MAX_BYTES {
        report.too_long(field, ANNOTATIONS_MAX_BYTES);
    }
}

/// Validates a `LabelSelector`, if present.
pub(crate) fn selector(field: &Field<'_, '_>, report: &mut Report) {
    labels(&field.get("matchLabels"), report);
    for expression in field.get("matchExpressions").items() {
        label_requirement(&expression, report);
    }
}

/// Validates a term of a label selector.
pub(crate) fn label_requirement(field: &Field<'_, '_>, report: &mut Report) {
    operator_and_values(field, report);
    label_key_and_values(field, report);
}

/// Validates a term's key and values, regardless of its operator.
pub(crate) fn label_key_and_values(field: &Field<'_, '_>, report: &mut Report) {
    qualified(&field.get("key"), report);
    for value in field.get("values").items() {
        report.each(&value, label_value(value.text()));
    }
}

/// Validates a term of a field selector.
pub(crate) fn selector_requirement(field: &Field<'_, '_>, report: &mut Report) {
    operator_and_values(field, report);
    if field.text_of("key").is_empty() {
        report.required(&field.get("key"), "must be specified");
    }
}

fn operator_and_values(field: &Field<'_, '_>, report: &mut Report) {
    let values = field.get("values");
    match field.text_of("operator") {
        "In" | "NotIn" => {
            if values.list().is_empty() {
                report.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.list().is_empty() {
                report
                    .forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
        }
        operator => report.invalid_text(&field.get("operator"), operator, "not a valid selector operator"),
    }
}

/// Reports whether a label selector has no errors.
pub(crate) fn is_valid(field: &Field<'_, '_>) -> bool {
    let mut report = Report::default();
    selector(field, &mut report);
    report.errors.is_empty()
}

/// Reports whether a valid label selector selects these labels. An absent selector selects nothing.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    let have = |key: &str| labels.get(key).and_then(Value::as_str);
    let mut wanted = at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten();
    wanted.all(|(key, value)| have(key) == value.as_str())
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

/// Reports whether a selector selects everything.
pub(crate) fn is_empty(selector: &Value) -> bool {
    at(selector, &["matchLabels"]).and_then(Value::as_object).is_none_or(serde_json::Map::is_empty)
        && list(selector, &["matchExpressions"]).is_empty()
}
