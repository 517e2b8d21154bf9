//! Validation of the rules that select the requests of a webhook or policy.

use std::collections::BTreeSet;

use crate::kinds::prelude::*;
use crate::kinds::shared::labels::selector;
use crate::kinds::shared::names::{dns_label_1035, dns_subdomain, path_segment, subdomain};

pub(crate) const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

/// Validates a rule with operations.
pub(crate) fn rule(field: &Field<'_, '_>, report: &mut Report) {
    let operations = field.get("operations");
    required_list(&operations, "operations", report);
    for operation in operations.items() {
        if !OPERATIONS.contains(&operation.text()) {
            report.not_supported(&operation, &OPERATIONS);
        }
    }
    required_list(&field.get("apiGroups"), "API groups", report);
    let versions = field.get("apiVersions");
    required_list(&versions, "API versions", report);
    for version in versions.items() {
        if version.text().is_empty() {
            report.required(&version, "");
        }
    }
    resources(&field.get("resources"), report);
    report.one_of_if_set(&field.get("scope"), &["*", "Cluster", "Namespaced"]);
}

/// Validates a list that must not be empty, nor contain other items besides a wildcard.
fn required_list(field: &Field<'_, '_>, what: &str, report: &mut Report) {
    if field.list().is_empty() {
        report.required(field, "");
    }
    if field.list().len() > 1 && field.texts().any(|text| text == "*") {
        report.invalid(field, &format!("if '*' is present, must not specify other {what}"));
    }
}

fn resources(field: &Field<'_, '_>, report: &mut Report) {
    if field.list().is_empty() {
        report.required(field, "");
    }
    let (mut with_any_part, mut of_any_resource) = (BTreeSet::new(), BTreeSet::new());
    let (mut everything, mut all_plain, mut plain) = (false, false, false);
    for item in field.items() {
        let text = item.text();
        match text {
            "" => {
                report.required(&item, "");
                continue;
            }
            "*/*" => everything = true,
            "*" => all_plain = true,
            _ => {}
        }
        let Some((resource, part)) = text.split_once('/') else {
            plain = text != "*";
            continue;
        };
        if with_any_part.contains(resource) {
            let why = format!("if '{resource}/*' is present, must not specify {text}");
            report.invalid(&item, &why);
        }
        if of_any_resource.contains(part) {
            let why = format!("if '*/{part}' is present, must not specify {text}");
            report.invalid(&item, &why);
        }
        if part == "*" {
            with_any_part.insert(resource);
        }
        if resource == "*" {
            of_any_resource.insert(part);
        }
    }
    if field.list().len() > 1 && everything {
        report.invalid(field, "if '*/*' is present, must not specify other resources");
    }
    if all_plain && plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        report.invalid(field, why);
    }
}

/// Checks that only creates and updates are mutated. Upstream omits the indexes from the path.
pub(crate) fn mutating_operations(field: &Field<'_, '_>, report: &mut Report) {
    const MUTATING: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
    let rules = field.get("resourceRules");
    for rule in rules.items() {
        for operation in rule.get("operations").texts().filter(|text| !MUTATING.contains(text)) {
            report.not_supported_shown(&rules.get("operations"), &quoted(operation), &MUTATING);
        }
    }
}

/// Validates `matchConstraints` and `matchResources`.
pub(crate) fn match_resources(field: &Field<'_, '_>, report: &mut Report) {
    report.one_of_if_set(&field.get("matchPolicy"), &MATCH_POLICIES);
    for member in ["namespaceSelector", "objectSelector"] {
        let chosen = field.get(member);
        if chosen.is_set() {
            selector(&chosen, report);
        } else {
            report.required(&chosen, "");
        }
    }
    for member in ["resourceRules", "excludeResourceRules"] {
        for item in field.get(member).items() {
            let mut names = BTreeSet::new();
            for name in item.get("resourceNames").items() {
                report.each(&name, path_segment(name.text()));
                if !names.insert(name.text()) {
                    report.duplicate(&name);
                }
            }
            rule(&item, report);
        }
    }
}

/// Validates the constraints of a policy, which must name resources.
pub(crate) fn match_constraints(field: &Field<'_, '_>, report: &mut Report) {
    if !field.is_set() {
        report.required(field, "");
        return;
    }
    match_resources(field, report);
    if field.get("resourceRules").list().is_empty() {
        report.required(&field.get("resourceRules"), "");
    }
}

pub(crate) fn param_kind(field: &Field<'_, '_>, report: &mut Report) {
    let (version, kind) = (field.get("apiVersion"), field.get("kind"));
    let text = version.text();
    if text.is_empty() {
        report.required(&version, "");
    } else if text.matches('/').count() > 1 {
        report.invalid(&version, &format!("unexpected GroupVersion string: {text}"));
    } else {
        let (group, number) = text.split_once('/').unwrap_or(("", text));
        if !group.is_empty() {
            let problems = dns_subdomain(group);
            if !problems.is_empty() {
                report.invalid_text(&version, group, &problems.join(","));
            }
        }
        if number.is_empty() {
            report.invalid(&version, "version must be specified");
        } else {
            let problems = dns_label_1035(number);
            if !problems.is_empty() {
                report.invalid_text(&version, number, &problems.join(","));
            }
        }
    }
    if kind.text().is_empty() {
        report.required(&kind, "");
        return;
    }
    let problems = dns_label_1035(&kind.text().to_lowercase());
    if !problems.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
        report.invalid(&kind, &why);
    }
}

/// Validates the parameters that a binding gives its policy.
pub(crate) fn param_ref(field: &Field<'_, '_>, report: &mut Report) {
    if !field.is_set() {
        return;
    }
    let (name, chosen) = (field.get("name"), field.get("selector"));
    if !name.text().is_empty() {
        report.each(&name, path_segment(name.text()));
        if chosen.is_set() {
            report.forbidden(&name, "name and selector are mutually exclusive");
        }
    }
    if chosen.is_set() {
        selector(&chosen, report);
        if !name.text().is_empty() {
            report.forbidden(&chosen, "name and selector are mutually exclusive");
        }
    }
    if name.text().is_empty() && !chosen.is_set() {
        report.required(field, "one of name or selector must be specified");
    }
    let action = field.get("parameterNotFoundAction");
    if action.is_set() && !action.text().is_empty() {
        report.one_of_if_set(&action, &["Deny", "Allow"]);
    } else {
        report.required(&action, "");
    }
}

/// Validates the name of the bound policy.
pub(crate) fn policy_name(field: &Field<'_, '_>, report: &mut Report) {
    if field.text().is_empty() {
        report.required(field, "");
    } else {
        subdomain(field, report);
    }
}

/// Sets the defaults of the member `key`, which selects the requests of a policy or binding.
pub(super) fn default_match_resources(spec: &mut Members, key: &str) {
    let Some(rules) = existing(spec, key) else { return };
    fill_absent(rules, "matchPolicy", "Equivalent");
    child(rules, "namespaceSelector");
    child(rules, "objectSelector");
    for key in ["resourceRules", "excludeResourceRules"] {
        items(rules, key).for_each(any_scope);
    }
}

/// Sets the default scope of a rule, which covers resources of both scopes.
pub(super) fn any_scope(rule: &mut Members) {
    fill_absent(rule, "scope", "*");
}
