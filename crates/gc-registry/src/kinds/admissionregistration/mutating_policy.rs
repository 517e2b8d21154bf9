//! Mutating admission policies.

use super::expressions::{expression, match_conditions, variables};
use super::matching::{FAILURE_POLICIES, match_constraints, param_kind};
use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::Report;
use crate::resource::Target;

pub(crate) struct MutatingAdmissionPolicy;

impl Kind for MutatingAdmissionPolicy {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let params = spec.get("paramKind");
        report.one_of_if_set(&spec.get("failurePolicy"), &FAILURE_POLICIES);
        if params.is_set() {
            param_kind(&params, report);
        }
        match_constraints(&spec.get("matchConstraints"), report);
        match_conditions(&spec.get("matchConditions"), params.is_set(), report);
        variables(&spec.get("variables"), params.is_set(), report);
        report.one_of(&spec.get("reinvocationPolicy"), &["IfNeeded", "Never"]);
        let mutations = spec.get("mutations");
        if mutations.list().is_empty() {
            report.required(&mutations, "mutations must contain at least one item");
        }
        for mutation in mutations.items() {
            mutation_rules(&mutation, params.is_set(), report);
        }
    }
}

fn mutation_rules(field: &Field<'_, '_>, has_params: bool, report: &mut Report) {
    let kind = field.get("patchType");
    let (own, other) = match kind.text() {
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "" => {
            report.required(&kind, "");
            return;
        }
        _ => {
            report.not_supported(&kind, &["ApplyConfiguration", "JSONPatch"]);
            return;
        }
    };
    if field.has(other) {
        let why = format!("must not be specified when patchType is {}", kind.text());
        report.invalid_shown(&field.get(other), &format!("\"{{{other}}}\""), &why);
    }
    let patch = field.get(own);
    if !patch.is_set() {
        let why = format!("must be specified when patchType is {}", kind.text());
        report.required(&patch, &why);
        return;
    }
    let text = patch.get("expression");
    if text.text().trim().is_empty() {
        report.required(&text, "expression is not specified");
    } else if !text.text().contains('{') {
        // `Object{…}` and `JSONPatch{…}` are not compiled here: gc-cel has no syntax for objects.
        expression(&text, has_params, report);
    }
}
