//! Expressions in webhooks and policies: whether they compile.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::kinds::field::Field;
use crate::kinds::report::Report;
use crate::kinds::shared::names::qualified;

const CONDITIONS_MAX: usize = 64;

/// What every expression may name: the request and its objects, and the types of the language.
const NAMES: [&str; 24] = [
    "object",
    "oldObject",
    "request",
    "namespaceObject",
    "authorizer",
    "variables",
    "type",
    "string",
    "int",
    "uint",
    "double",
    "bool",
    "bytes",
    "list",
    "map",
    "dyn",
    "null_type",
    "duration",
    "timestamp",
    "google",
    "optional",
    "Object",
    "JSONPatch",
    "jsonpatch",
];

/// Checks that an expression compiles and names nothing unknown. Parameters are known only where there are some.
pub(crate) fn expression(field: &Field<'_, '_>, has_params: bool, report: &mut Report) {
    let text = field.text();
    match gc_cel::Program::compile(text) {
        Err(error) => report.invalid(field, &format!("compilation failed: {error}")),
        Ok(program) => {
            let unknown: Vec<String> = program
                .free_names()
                .into_iter()
                .filter(|name| {
                    let root = name.split('.').next().unwrap_or_default();
                    !(NAMES.contains(&root) || has_params && root == "params")
                })
                .collect();
            if unknown.is_empty() {
                return;
            }
            let mut why = String::from("compilation failed: ");
            for (index, name) in unknown.iter().enumerate() {
                let column = text.find(name.as_str()).unwrap_or_default();
                let line = if index == 0 { "" } else { "\n" };
                let _ = write!(
                    why,
                    "{line}ERROR: <input>:1:{}: undeclared reference to '{name}' (in container '')\n | {text}\n | {}^",
                    column + 1,
                    ".".repeat(column)
                );
            }
            report.invalid(field, &why);
        }
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
