//! Mutating admission policies.

use super::cells::policy_cells;
use super::defaults;
use super::expressions::{Named, expression, match_conditions, variables};
use super::matching::{FAILURE_POLICIES, match_constraints, mutating_operations, param_kind};
use crate::kinds::kind::prelude::*;

pub(crate) struct MutatingAdmissionPolicy;

impl Kind for MutatingAdmissionPolicy {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::SPEC;
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::integer(
            "Mutations",
            T("Mutation indicates the number of mutations rules defined in this configuration"),
        ),
        H::text("ParamKind", T("ParamKind specifies the kind of resources used to parameterize this policy")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        policy_cells(row, "mutations")
    }

    fn defaults(members: &mut Members) {
        defaults::policy(members);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let params = spec.get("paramKind");
        report.one_of_if_set(&spec.get("failurePolicy"), &FAILURE_POLICIES);
        if params.is_set() {
            param_kind(&params, report);
        }
        match_constraints(&spec.get("matchConstraints"), report);
        mutating_operations(&spec.get("matchConstraints"), report);
        let named = Named::of(&spec);
        match_conditions(&spec.get("matchConditions"), named.without_variables(), report);
        variables(&spec.get("variables"), named, report);
        let mutations = spec.get("mutations");
        if mutations.list().is_empty() {
            report.required(&mutations, "mutations must contain at least one item");
        }
        for mutation in mutations.items() {
            mutation_rules(&mutation, named, report);
        }
        report.one_of(&spec.get("reinvocationPolicy"), &["IfNeeded", "Never"]);
    }
}

fn mutation_rules(field: &Field<'_, '_>, named: Named, report: &mut Report) {
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
    let patch = field.get(own);
    if !patch.is_set() {
        report.required(&patch, &format!("must be specified when patchType is {}", kind.text()));
    }
    if field.has(other) {
        let why = format!("must not be specified when patchType is {}", kind.text());
        report.invalid_shown(&field.get(other), &format!("\"{{{other}}}\""), &why);
    }
    if !patch.is_set() {
        return;
    }
    let text = patch.get("expression");
    if text.text().trim().is_empty() {
        report.required(&text, "");
    } else {
        expression(&text, named, None, report);
    }
}
