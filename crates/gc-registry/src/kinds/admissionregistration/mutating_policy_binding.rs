//! Bindings of mutating admission policies.

use super::cells::{BINDING_COLUMNS, binding_cells};
use super::defaults;
use super::matching::{match_resources, mutating_operations, param_ref, policy_name};
use crate::kinds::kind::prelude::*;

pub(crate) struct MutatingAdmissionPolicyBinding;

impl Kind for MutatingAdmissionPolicyBinding {
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
            mutating_operations(&spec.get("matchResources"), report);
        }
    }
}
