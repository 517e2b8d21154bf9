//! Common parts of validating and mutating policies.

use super::expressions::{NamedVariables, match_conditions, variables};
use super::matching::{default_match_resources, match_constraints, mutating_operations, param_kind};
use crate::kinds::prelude::*;

pub(super) const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
pub(super) const PARAM_KIND: Column =
    H::text("ParamKind", T("ParamKind specifies the kind of resources used to parameterize this policy"));

/// Returns the table cells of a policy, whose rules are the list `key`.
pub(super) fn cells(row: &Row<'_>, key: &str) -> Vec<Value> {
    let kind = at(row.object, &["spec", "paramKind"]).map_or_else(
        || UNSET.into(),
        |kind| format!("{}/{}", text(kind, &["apiVersion"]), text(kind, &["kind"])),
    );
    vec![row.name(), row.list(&["spec", key]).len().into(), kind.into(), row.age()]
}

pub(super) fn defaults(members: &mut Members) {
    let Some(spec) = child(members, "spec") else { return };
    fill_absent(spec, "failurePolicy", "Fail");
    default_match_resources(spec, "matchConstraints");
}

/// Checks the parts before the rules of a policy; returns the variables that the rules may use.
pub(super) fn checked(spec: &Field<'_, '_>, is_mutating: bool, report: &mut Report) -> NamedVariables {
    let params = spec.get("paramKind");
    report.one_of_if_set(&spec.get("failurePolicy"), &FAILURE_POLICIES);
    if params.is_set() {
        param_kind(&params, report);
    }
    match_constraints(&spec.get("matchConstraints"), report);
    if is_mutating {
        mutating_operations(&spec.get("matchConstraints"), report);
    }
    let conditions = NamedVariables::in_conditions(params.is_set());
    match_conditions(&spec.get("matchConditions"), &conditions, report);
    let named = variables(&spec.get("variables"), params.is_set(), report);
    // Mutating policies always have variables, possibly an empty list.
    let has_variables = is_mutating || !spec.get("variables").list().is_empty();
    if has_variables { named } else { conditions }
}
