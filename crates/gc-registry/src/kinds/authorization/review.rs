//! Validation of reviews of access.

use crate::error::FieldError;
use crate::kinds::prelude::*;
use crate::kinds::shared::labels::{label_key_and_values, label_requirement, selector_requirement};
use crate::metadata::selector::{LabelSelector, is_field_selector};

const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

/// Returns the errors of a review of this kind in a namespace (empty for kinds without).
#[must_use]
pub fn review_errors(kind: &str, namespace: &str, review: &Value) -> Vec<FieldError> {
    let mut report = Report::of(review);
    let root = Field::root(review);
    let spec = root.get("spec");
    let (resource, path) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    match (resource.is_set(), path.is_set()) {
        (true, true) => {
            report.invalid(&path, "cannot be specified in combination with resourceAttributes");
        }
        (false, false) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            report.invalid(&resource, why);
        }
        _ => {}
    }
    if kind != "SelfSubjectAccessReview" && spec.text_of("user").is_empty() && spec.get("groups").is_empty() {
        report.invalid_text(&spec.get("user"), "", "at least one of user or group must be specified");
    }
    for name in ["fieldSelector", "labelSelector"] {
        selector(&resource.get(name), &mut report);
    }
    let metadata = root.get("metadata");
    let is_local = kind == "LocalSubjectAccessReview";
    let mut members = metadata.value().as_object().into_iter().flatten();
    if members.any(|(name, _)| name != "managedFields" && !(is_local && name == "namespace")) {
        let why = if is_local { "must be empty except for namespace" } else { "must be empty" };
        report.invalid(&metadata, why);
    }
    if is_local {
        if resource.is_set() && resource.text_of("namespace") != namespace {
            let field = resource.get("namespace");
            report.invalid_text(&field, field.text(), "must match metadata.namespace");
        }
        if path.is_set() {
            report.invalid(&path, "disallowed on this kind of request");
        }
    }
    report.errors
}

fn selector(field: &Field<'_, '_>, report: &mut Report) {
    if !field.is_set() {
        return;
    }
    let (raw, requirements) = (field.get("rawSelector"), field.get("requirements"));
    match (raw.text().is_empty(), requirements.list().is_empty()) {
        (false, false) => report.invalid(&raw, "may not specified at the same time as requirements"),
        (true, true) => {
            let why = format!("when {} is specified, requirements or rawSelector is required", field.path());
            report.required(&requirements, &why);
        }
        _ => {}
    }
    let is_of_labels = field.path().ends_with("labelSelector");
    for requirement in requirements.items() {
        // Operators of newer versions are accepted here, and ignored later.
        let known = OPERATORS.contains(&requirement.text_of("operator"));
        match (known, is_of_labels) {
            (true, true) => label_requirement(&requirement, report),
            (true, false) => selector_requirement(&requirement, report),
            (false, true) => label_key_and_values(&requirement, report),
            (false, false) if requirement.text_of("key").is_empty() => {
                report.required(&requirement.get("key"), "must be specified");
            }
            (false, false) => {}
        }
    }
}

/// Describes the selectors of a valid review that cannot be interpreted and are ignored, in upstream's wording.
#[must_use]
pub fn ignored_selectors(spec: &Value) -> Option<String> {
    let ignored: Vec<String> = ["fieldSelector", "labelSelector"]
        .into_iter()
        .filter_map(|name| {
            let selector = spec.pointer(&format!("/resourceAttributes/{name}"))?;
            let raw = selector.get("rawSelector").and_then(Value::as_str).unwrap_or_default();
            let requirements =
                selector.get("requirements").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let of_fields = name == "fieldSelector";
            let (good, bad): (Vec<&Value>, Vec<&Value>) =
                requirements.iter().partition(|requirement| is_understood(requirement, of_fields));
            let is_raw_bad =
                if of_fields { !is_field_selector(raw) } else { LabelSelector::parse(raw).is_err() };
            let partially = if good.is_empty() { "" } else { "partially " };
            let ignored = is_raw_bad || !bad.is_empty();
            ignored.then(|| format!("spec.resourceAttributes.{name} {partially}ignored due to parse error"))
        })
        .collect();
    (!ignored.is_empty()).then(|| ignored.join(", "))
}

/// Reports whether authorizers support a requirement of a valid review. Fields can only be compared with a single value.
fn is_understood(requirement: &Value, of_fields: bool) -> bool {
    let operator = requirement.get("operator").and_then(Value::as_str).unwrap_or_default();
    let values = requirement.get("values").and_then(Value::as_array).map_or(0, Vec::len);
    if of_fields { matches!(operator, "In" | "NotIn") && values == 1 } else { OPERATORS.contains(&operator) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(kind: &str, review: &Value) -> Vec<String> {
        let errors = review_errors(kind, "default", review);
        errors.into_iter().map(|error| format!("{}: {}", error.field, error.detail)).collect()
    }

    #[test]
    fn reviews_say_who_and_what() {
        let selecting = |selector: Value| json!({"spec": {"resourceAttributes": {"namespace": "default", "labelSelector": selector}}});
        for (kind, review, wanted) in [
            (
                "SubjectAccessReview",
                json!({"spec": {}}),
                vec![
                    "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or \
                     resourceAttributes must be specified",
                    "spec.user: Invalid value: \"\": at least one of user or group must be specified",
                ],
            ),
            (
                "LocalSubjectAccessReview",
                json!({"spec": {"user": "u", "resourceAttributes": {"namespace": "other"}}}),
                vec![
                    "spec.resourceAttributes.namespace: Invalid value: \"other\": must match metadata.namespace",
                ],
            ),
            (
                "SelfSubjectAccessReview",
                json!({"metadata": {"labels": {"a": "b"}}, "spec": {"resourceAttributes": {}}}),
                vec!["metadata: Invalid value: {\"labels\":{\"a\":\"b\"}}: must be empty"],
            ),
            (
                "SelfSubjectAccessReview",
                selecting(json!({})),
                vec![
                    "spec.resourceAttributes.labelSelector.requirements: Required value: when \
                     spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required",
                ],
            ),
            (
                "SelfSubjectAccessReview",
                selecting(json!({"requirements": [{"key": "k", "operator": "In"}]})),
                vec![
                    "spec.resourceAttributes.labelSelector.requirements[0].values: Required value: must be specified \
                     when `operator` is 'In' or 'NotIn'",
                ],
            ),
            (
                "SelfSubjectAccessReview",
                selecting(json!({"requirements": [{"key": "k", "operator": "Newer"}]})),
                vec![],
            ),
            (
                "SelfSubjectAccessReview",
                selecting(json!({"requirements": [{"key": "a b", "operator": "Newer"}]})),
                vec![
                    "spec.resourceAttributes.labelSelector.requirements[0].key: Invalid value: \"a b\": name part must \
                     consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                     character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                ],
            ),
        ] {
            assert_eq!(problems(kind, &review), wanted, "{review}");
        }
    }

    #[test]
    fn selectors_that_cannot_be_read_are_ignored_and_said_to_be() {
        let requirement =
            |operator: &str, values: &[&str]| json!({"key": "k", "operator": operator, "values": values});
        for (name, selector, said) in [
            ("fieldSelector", json!({"requirements": [requirement("", &[])]}), Some("ignored")),
            ("fieldSelector", json!({"requirements": [requirement("In", &["a"])]}), None),
            ("fieldSelector", json!({"requirements": [requirement("In", &["a", "b"])]}), Some("ignored")),
            ("fieldSelector", json!({"requirements": [requirement("Exists", &[])]}), Some("ignored")),
            ("fieldSelector", json!({"rawSelector": "a=b,c!=d"}), None),
            ("fieldSelector", json!({"rawSelector": "a"}), Some("ignored")),
            ("labelSelector", json!({"requirements": [requirement("Exists", &[])]}), None),
            (
                "labelSelector",
                json!({"requirements": [requirement("Exists", &[]), requirement("Newer", &[])]}),
                Some("partially ignored"),
            ),
            ("labelSelector", json!({"rawSelector": "a,b in (c)"}), None),
            ("labelSelector", json!({"rawSelector": "Bad Value!"}), Some("ignored")),
        ] {
            let spec = json!({"resourceAttributes": {name: selector}});
            let said = said.map(|said| format!("spec.resourceAttributes.{name} {said} due to parse error"));
            assert_eq!(ignored_selectors(&spec), said, "{spec}");
        }
        assert_eq!(ignored_selectors(&json!({"resourceAttributes": {}})), None);
    }
}
