//! Bindings of mutating admission policies.

use super::matching::{match_resources, mutating_operations, param_ref, policy_name};
use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::Report;
use crate::resource::Target;

pub(crate) struct MutatingAdmissionPolicyBinding;

impl Kind for MutatingAdmissionPolicyBinding {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        policy_name(&spec.get("policyName"), report);
        param_ref(&spec.get("paramRef"), report);
        if spec.has("matchResources") {
            match_resources(&spec.get("matchResources"), report);
            mutating_operations(&spec.get("matchResources"), report);
        }
    }
}
