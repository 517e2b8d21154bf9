//! Scheduling of pods: node selectors, affinity, tolerations, taints, spreading.

use std::collections::BTreeSet;

use super::labels;
use super::names::{dns_label, dns_subdomain, label_value, qualified};
use crate::kinds::prelude::*;

const NOT_ABOVE_ZERO: &str = "must be greater than zero";

pub(crate) const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const NOT_AN_OPERATOR: &str = "not a valid selector operator";
const WEIGHT: &str = "must be in the range 1-100";

/// Validates a `NodeSelector`.
pub(crate) fn node_selector(field: &Field<'_, '_>, report: &mut Report) {
    let terms = field.get("nodeSelectorTerms");
    if terms.list().is_empty() {
        report.required(&terms, "must have at least one node selector term");
        return;
    }
    for term in terms.items() {
        node_selector_term(&term, true, report);
    }
}

fn node_selector_term(field: &Field<'_, '_>, strict: bool, report: &mut Report) {
    for requirement in field.get("matchExpressions").items() {
        node_requirement(&requirement, strict, report);
    }
    for requirement in field.get("matchFields").items() {
        node_field_requirement(&requirement, report);
    }
}

fn node_requirement(field: &Field<'_, '_>, strict: bool, report: &mut Report) {
    let values = field.get("values");
    let count = values.list().len();
    match field.text_of("operator") {
        "In" | "NotIn" => {
            if count == 0 {
                report.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        "Exists" | "DoesNotExist" => {
            if count > 0 {
                report
                    .forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
        }
        "Gt" | "Lt" => {
            if count != 1 {
                report.required(&values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
            }
        }
        operator => report.invalid_text(&field.get("operator"), operator, NOT_AN_OPERATOR),
    }
    qualified(&field.get("key"), report);
    if strict {
        for value in values.items() {
            report.each(&value, label_value(value.text()));
        }
    }
}

fn node_field_requirement(field: &Field<'_, '_>, report: &mut Report) {
    let values = field.get("values");
    match field.text_of("operator") {
        "In" | "NotIn" => {
            if values.list().len() != 1 {
                report.required(
                    &values,
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                );
            }
        }
        operator => report.invalid_text(&field.get("operator"), operator, NOT_AN_OPERATOR),
    }
    let key = field.get("key");
    if key.text() == "metadata.name" {
        for value in values.items() {
            report.each(&value, dns_subdomain(value.text()));
        }
    } else {
        report.invalid_text(&key, key.text(), "not a valid field selector key");
    }
}

/// Validates affinity to nodes, and affinity and anti-affinity to pods.
pub(crate) fn affinity(field: &Field<'_, '_>, report: &mut Report) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let nodes = field.get("nodeAffinity");
    if nodes.has(REQUIRED) {
        node_selector(&nodes.get(REQUIRED), report);
    }
    for term in nodes.get(PREFERRED).items() {
        weight(&term, report);
        node_selector_term(&term.get("preference"), false, report);
    }
    for member in ["podAffinity", "podAntiAffinity"] {
        let pods = field.get(member);
        for term in pods.get(REQUIRED).items() {
            pod_affinity_term(&term, report);
        }
        for term in pods.get(PREFERRED).items() {
            weight(&term, report);
            pod_affinity_term(&term.get("podAffinityTerm"), report);
        }
    }
}

fn weight(field: &Field<'_, '_>, report: &mut Report) {
    if !(1..=100).contains(&field.number_of("weight")) {
        report.invalid_number(&field.get("weight"), WEIGHT);
    }
}

fn pod_affinity_term(field: &Field<'_, '_>, report: &mut Report) {
    let selector = field.get("labelSelector");
    labels::selector(&selector, report);
    labels::selector(&field.get("namespaceSelector"), report);
    for namespace in field.get("namespaces").texts() {
        report.each_of(&field.get("namespace"), namespace, dns_label(namespace));
    }
    let (same, other) = (field.get("matchLabelKeys"), field.get("mismatchLabelKeys"));
    for keys in [&same, &other] {
        if !keys.list().is_empty() && !selector.is_set() {
            report.forbidden(keys, "must not be specified when labelSelector is not set");
            continue;
        }
        for key in keys.items() {
            qualified(&key, report);
        }
    }
    repeated_keys(field, &same, &selector, report);
    let others: BTreeSet<&str> = other.texts().collect();
    for key in same.items() {
        if others.contains(key.text()) {
            report.invalid(&key, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
    let topology = field.get("topologyKey");
    if topology.text().is_empty() {
        report.required(&topology, "can not be empty");
    }
    qualified(&topology, report);
}

/// Checks that the selector does not already contain the keys of `matchLabelKeys`, which become expressions in it.
fn repeated_keys(field: &Field<'_, '_>, keys: &Field<'_, '_>, selector: &Field<'_, '_>, report: &mut Report) {
    let keys: Vec<&str> = keys.texts().collect();
    let labels = selector.get("matchLabels");
    let mut seen: BTreeSet<&str> = labels.entries().map(|(key, _)| key).collect();
    for expression in selector.get("matchExpressions").items() {
        let key = expression.text_of("key");
        if let Some(index) = keys.iter().position(|have| *have == key)
            && seen.contains(key)
        {
            report.invalid_text(&field.index(index), key, "exists in both matchLabelKeys and labelSelector");
        }
        seen.insert(key);
    }
}

pub(crate) fn tolerations(field: &Field<'_, '_>, report: &mut Report) {
    for toleration in field.items() {
        let (key, operator) = (toleration.get("key"), toleration.get("operator"));
        if !key.text().is_empty() {
            qualified(&key, report);
        } else if operator.text() != "Exists" {
            report.invalid_text(
                &operator,
                operator.text(),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        let effect = toleration.get("effect");
        if toleration.has("tolerationSeconds") && effect.text() != "NoExecute" {
            report.invalid_text(
                &effect,
                effect.text(),
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        let value = toleration.text_of("value");
        match operator.text() {
            "" | "Equal" => {
                let problems = label_value(value);
                if !problems.is_empty() {
                    report.invalid_text(&operator, value, &problems.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    report.invalid_text(&operator, value, "value must be empty when `operator` is 'Exists'");
                }
            }
            _ => report.not_supported(&operator, &["Equal", "Exists"]),
        }
        if !effect.text().is_empty() {
            report.one_of(&effect, &TAINT_EFFECTS);
        }
    }
}

/// Validates the taints of a node: each combination of key and effect must be unique.
pub(crate) fn taints(field: &Field<'_, '_>, report: &mut Report) {
    let mut seen = BTreeSet::new();
    for taint in field.items() {
        qualified(&taint.get("key"), report);
        let value = taint.get("value");
        let problems = label_value(value.text());
        if !problems.is_empty() {
            report.invalid_text(&value, value.text(), &problems.join(";"));
        }
        report.one_of(&taint.get("effect"), &TAINT_EFFECTS);
        if !seen.insert((taint.text_of("effect"), taint.text_of("key"))) {
            let shown = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{}}}: taints must be unique by key and effect pair",
                quoted(taint.text_of("key")),
                quoted(value.text()),
                quoted(taint.text_of("effect")),
                taint.member("timeAdded"),
            );
            report.duplicate_shown(&taint, &shown);
        }
    }
}

pub(crate) fn topology_spread(field: &Field<'_, '_>, report: &mut Report) {
    let items = field.list();
    let pair = |item: &serde_json::Value| {
        let text =
            |key: &str| item.get(key).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
        (text("topologyKey"), text("whenUnsatisfiable"))
    };
    // Of constraints that repeat each other, all but the last are errors.
    let mut later = BTreeSet::new();
    let mut repeated: Vec<bool> = items.iter().rev().map(|item| !later.insert(pair(item))).collect();
    repeated.reverse();
    for (constraint, repeated) in field.items().zip(repeated) {
        let skew = constraint.get("maxSkew");
        if skew.number() <= 0 {
            report.invalid_number(&skew, NOT_ABOVE_ZERO);
        }
        let key = constraint.get("topologyKey");
        if key.text().is_empty() {
            report.required(&key, "can not be empty");
        }
        let action = constraint.get("whenUnsatisfiable");
        if !matches!(action.text(), "DoNotSchedule" | "ScheduleAnyway") {
            report.not_supported(&action, &["DoNotSchedule", "ScheduleAnyway"]);
        }
        if repeated {
            let shown = format!("{{{}, {}}}", key.text(), action.text());
            report.duplicate_text(&constraint.get("{topologyKey, whenUnsatisfiable}"), &shown);
        }
        let domains = constraint.get("minDomains");
        if domains.is_set() {
            if domains.number() <= 0 {
                report.invalid_number(&domains, NOT_ABOVE_ZERO);
            }
            if action.text() != "DoNotSchedule" {
                let why = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    action.text()
                );
                report.invalid(&domains, &why);
            }
        }
        for member in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            report.one_of_if_set(&constraint.get(member), &["Honor", "Ignore"]);
        }
        spread_keys(&constraint, report);
        labels::selector(&constraint.get("labelSelector"), report);
    }
}

fn spread_keys(constraint: &Field<'_, '_>, report: &mut Report) {
    let keys = constraint.get("matchLabelKeys");
    if keys.list().is_empty() {
        return;
    }
    let selector = constraint.get("labelSelector");
    if !selector.is_set() {
        report.forbidden(&keys, "must not be specified when labelSelector is not set");
    }
    let labels = selector.get("matchLabels");
    let expressions = selector.get("matchExpressions");
    let selected: BTreeSet<&str> = labels
        .entries()
        .map(|(key, _)| key)
        .chain(expressions.items().map(|expression| expression.text_of("key")))
        .collect();
    for key in keys.items() {
        qualified(&key, report);
        if selected.contains(key.text()) {
            report.invalid(&key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}
