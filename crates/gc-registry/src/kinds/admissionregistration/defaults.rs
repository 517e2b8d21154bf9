//! Defaults that policies, their bindings and webhooks have in common.

use crate::kinds::kind::prelude::*;

/// The defaults of a policy.
pub(super) fn policy(members: &mut Members) {
    let Some(spec) = child(members, "spec") else { return };
    fill_absent(spec, "failurePolicy", "Fail");
    match_resources(spec, "matchConstraints");
}

/// The defaults of a binding.
pub(super) fn binding(members: &mut Members) {
    if let Some(spec) = child(members, "spec") {
        match_resources(spec, "matchResources");
    }
}

fn match_resources(spec: &mut Members, key: &str) {
    let Some(rules) = existing(spec, key) else { return };
    fill_absent(rules, "matchPolicy", "Equivalent");
    child(rules, "namespaceSelector");
    child(rules, "objectSelector");
    for key in ["resourceRules", "excludeResourceRules"] {
        items(rules, key).for_each(any_scope);
    }
}

/// A rule is about resources of either scope.
pub(super) fn any_scope(rule: &mut Members) {
    fill_absent(rule, "scope", "*");
}
