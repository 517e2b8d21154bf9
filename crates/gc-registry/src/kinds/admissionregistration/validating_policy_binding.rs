//! Bindings of validating admission policies.

use std::collections::BTreeSet;

use super::cells::{BINDING_COLUMNS, binding_cells};
use super::defaults;
use super::matching::{match_resources, param_ref, policy_name};
use crate::kinds::kind::prelude::*;

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

pub(crate) struct ValidatingAdmissionPolicyBinding;

impl Kind for ValidatingAdmissionPolicyBinding {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::SPEC;
    const COLUMNS: &'static [Column] = BINDING_COLUMNS;

    fn cells(row: &Row<'_>) -> Vec<Value> {
        binding_cells(row)
    }

    fn defaults(members: &mut Members) {
        defaults::binding(members);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        policy_name(&spec.get("policyName"), report);
        param_ref(&spec.get("paramRef"), report);
        if spec.has("matchResources") {
            match_resources(&spec.get("matchResources"), report);
        }
        let actions = spec.get("validationActions");
        let mut seen = BTreeSet::new();
        for action in actions.items() {
            if !ACTIONS.contains(&action.text()) {
                report.not_supported(&action, &ACTIONS);
            }
            if !seen.insert(action.text()) {
                report.duplicate(&action);
            }
        }
        if seen.contains("Deny") && seen.contains("Warn") {
            report.invalid(
                &actions,
                "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                 response and headers serves no purpose)",
            );
        }
        if seen.is_empty() {
            report.required(&actions, "at least one validation action is required");
        }
    }
}
