//! Expressions in webhooks and policies: whether they compile.

use std::collections::BTreeSet;

use gc_cel::{Environment, Program, Type};

use crate::kinds::field::Field;
use crate::kinds::report::Report;
use crate::kinds::shared::names::qualified;

const CONDITIONS_MAX: usize = 64;

/// What expressions may name. Objects are of any kind, so that their types are seen when expressions are evaluated.
fn environment(has_params: bool) -> Environment {
    let mut environment = Environment::default();
    for name in ["object", "oldObject", "request", "namespaceObject", "variables"] {
        environment = environment.with(name, Type::Dyn);
    }
    if has_params {
        environment = environment.with("params", Type::Dyn);
    }
    environment
        .with("authorizer", Type::Library("kubernetes.authorization.Authorizer"))
        .with("authorizer.requestResource", Type::Library("kubernetes.authorization.ResourceCheck"))
        .with_open_object("Object")
        .with_open_object("JSONPatch")
}

/// Checks that an expression compiles and names nothing unknown. Parameters are known only where there are some.
pub(crate) fn expression(field: &Field<'_, '_>, has_params: bool, report: &mut Report) {
    if let Err(error) = Program::check(field.text(), &environment(has_params), None) {
        report.invalid(field, &format!("compilation failed: {error}"));
    }
}

/// Conditions under which a webhook or policy is asked at all.
pub(crate) fn match_conditions(field: &Field<'_, '_>, has_params: bool, report: &mut Report) {
    if field.list().len() > CONDITIONS_MAX {
        report.too_many(field, field.list().len(), CONDITIONS_MAX);
    }
    let mut names = BTreeSet::new();
    for condition in field.items() {
        let (name, text) = (condition.get("name"), condition.get("expression"));
        if text.text().trim().is_empty() {
            report.required(&text, "");
        } else {
            expression(&text, has_params, report);
        }
        if name.text().is_empty() {
            report.required(&name, "");
            continue;
        }
        qualified(&name, report);
        if !names.insert(name.text()) {
            report.duplicate(&name);
        }
    }
}

/// The variables of a policy.
pub(crate) fn variables(field: &Field<'_, '_>, has_params: bool, report: &mut Report) {
    for variable in field.items() {
        let (name, text) = (variable.get("name"), variable.get("expression"));
        if name.text().trim().is_empty() {
            report.required(&name, "name is not specified");
        } else if !crate::kinds::shared::names::is_c_identifier(name.text()) {
            report.invalid(&name, "name is not a valid CEL identifier");
        }
        if text.text().trim().is_empty() {
            report.required(&text, "expression is not specified");
        } else {
            expression(&text, has_params, report);
        }
    }
}
