//! The group admissionregistration.k8s.io.

pub(crate) mod expressions;
mod matching;
mod mutating_policy;
mod policy;
mod policy_binding;
mod validating_policy;
pub(super) mod webhook_client;
mod webhooks;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] = &[
    ("v1", "mutatingadmissionpolicies", Rules::of::<mutating_policy::MutatingAdmissionPolicy>()),
    ("v1", "mutatingadmissionpolicybindings", Rules::of::<policy_binding::PolicyBinding<true>>()),
    ("v1", "mutatingwebhookconfigurations", Rules::of::<webhooks::Webhooks<true>>()),
    ("v1", "validatingadmissionpolicies", Rules::of::<validating_policy::ValidatingAdmissionPolicy>()),
    ("v1", "validatingadmissionpolicybindings", Rules::of::<policy_binding::PolicyBinding<false>>()),
    ("v1", "validatingwebhookconfigurations", Rules::of::<webhooks::Webhooks<false>>()),
];
