//! Conditions under which a job fails before its limit, or succeeds before its end.

use std::collections::BTreeSet;

use super::indexes;
use crate::kinds::prelude::*;
use crate::kinds::shared::conditions::STATUSES;
use crate::kinds::shared::names::qualified;

const RULES_MAX: usize = 20;
const PATTERNS_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const INDEXES_MAX_BYTES: usize = 64 * 1024;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];

pub(crate) fn failure(spec: &Field<'_, '_>, report: &mut Report) {
    let policy = spec.get("podFailurePolicy");
    if !policy.is_set() {
        return;
    }
    let rules = policy.get("rules");
    if rules.list().len() > RULES_MAX {
        report.too_many(&rules, rules.list().len(), RULES_MAX);
    }
    let pod = spec.get("template");
    let pod = pod.get("spec");
    let (regular, init) = (pod.get("containers"), pod.get("initContainers"));
    let names: BTreeSet<&str> =
        regular.items().chain(init.items()).map(|container| container.text_of("name")).collect();
    for rule in rules.items() {
        let action = rule.get("action");
        match action.text() {
            "" => report.required(&action, "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
            "FailIndex" if !spec.has("backoffLimitPerIndex") => {
                report.invalid(&action, "requires the backoffLimitPerIndex to be set");
            }
            text if !ACTIONS.contains(&text) => report.not_supported(&action, &ACTIONS),
            _ => {}
        }
        let (codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions"));
        if codes.is_set() {
            exit_codes(&codes, &names, report);
        }
        pod_conditions(&conditions, report);
        match (codes.is_set(), conditions.is_empty()) {
            (true, false) => report.invalid_without_value(
                &rule,
                "specifying both OnExitCodes and OnPodConditions is not supported",
            ),
            (false, true) => report.invalid_without_value(
                &rule,
                "specifying one of OnExitCodes and OnPodConditions is required",
            ),
            _ => {}
        }
    }
}

fn pod_conditions(field: &Field<'_, '_>, report: &mut Report) {
    if field.list().len() > PATTERNS_MAX {
        report.too_many(field, field.list().len(), PATTERNS_MAX);
    }
    for pattern in field.items() {
        qualified(&pattern.get("type"), report);
        let status = pattern.get("status");
        if status.text().is_empty() {
            report.required(&status, "valid values: [\"False\" \"True\" \"Unknown\"]");
        } else if !STATUSES.contains(&status.text()) {
            report.not_supported(&status, &STATUSES);
        }
    }
}

fn exit_codes(field: &Field<'_, '_>, names: &BTreeSet<&str>, report: &mut Report) {
    let operator = field.get("operator");
    match operator.text() {
        "" => report.required(&operator, "valid values: [\"In\" \"NotIn\"]"),
        "In" | "NotIn" => {}
        _ => report.not_supported(&operator, &["In", "NotIn"]),
    }
    let container = field.get("containerName");
    if container.is_set() && !names.contains(container.text()) {
        let why = "must be one of the container or initContainer names in the pod template";
        report.invalid(&container, why);
    }
    let values = field.get("values");
    let codes = values.list();
    if codes.is_empty() {
        report.invalid(&values, "at least one value is required");
    } else if codes.len() > EXIT_CODES_MAX {
        report.too_many(&values, codes.len(), EXIT_CODES_MAX);
    }
    let mut seen = BTreeSet::new();
    let mut ordered = true;
    let mut before = None;
    for value in values.items() {
        let code = value.number();
        if operator.text() == "In" && code == 0 {
            report.invalid(&value, "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            report.duplicate(&value);
        }
        ordered &= before.is_none_or(|before| before <= code);
        before = Some(code);
    }
    if !ordered {
        report.invalid(&values, "must be ordered");
    }
}

/// Validates the policy by which a job succeeds before all of its pods have.
pub(crate) fn success(spec: &Field<'_, '_>, report: &mut Report) {
    let policy = spec.get("successPolicy");
    if !policy.is_set() {
        return;
    }
    if spec.text_of("completionMode") != "Indexed" {
        report.invalid(&policy, "requires indexed completion mode");
        return;
    }
    let rules = policy.get("rules");
    if rules.is_empty() {
        report.required(&rules, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.list().len() > RULES_MAX {
        report.too_many(&rules, rules.list().len(), RULES_MAX);
    }
    let completions = spec.number_of("completions");
    for rule in rules.items() {
        success_rule(&rule, completions, report);
    }
}

fn success_rule(rule: &Field<'_, '_>, completions: i64, report: &mut Report) {
    let (number, list) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
    if !number.is_set() && !list.is_set() {
        let why = "at least one of succeededCount or succeededIndexes must be specified";
        report.required(rule, why);
    }
    let mut listed = 0;
    if list.is_set() {
        if list.text().len() > INDEXES_MAX_BYTES {
            report.too_long(&list, INDEXES_MAX_BYTES);
        }
        match indexes::parse(list.text(), completions) {
            Ok(intervals) => listed = indexes::count(&intervals),
            Err(why) => report.invalid(&list, &format!("error parsing succeededIndexes: {why}")),
        }
    }
    if let Some(count) = number.integer() {
        report.not_negative(&number);
        if count > completions {
            let why =
                format!("must be less than or equal to {completions} (the number of specified completions)");
            report.invalid(&number, &why);
        }
        if list.is_set() && count > listed {
            let why = format!(
                "must be less than or equal to {listed} (the number of indexes in the specified succeededIndexes field)"
            );
            report.invalid(&number, &why);
        }
    }
}
