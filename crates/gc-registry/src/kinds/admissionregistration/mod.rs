//! The group admissionregistration.k8s.io.

mod cells;
mod defaults;
pub(crate) mod expressions;
mod matching;
mod mutating_policy;
mod mutating_policy_binding;
mod validating_policy;
mod validating_policy_binding;
pub(super) mod webhook_client;
mod webhook_configuration;

use super::kind::{Rules, Served};

pub(super) const KINDS: &[Served] = &[
    ("v1", "mutatingadmissionpolicies", Rules::of::<mutating_policy::MutatingAdmissionPolicy>()),
    (
        "v1",
        "mutatingadmissionpolicybindings",
        Rules::of::<mutating_policy_binding::MutatingAdmissionPolicyBinding>(),
    ),
    ("v1", "mutatingwebhookconfigurations", Rules::of::<webhook_configuration::WebhookConfiguration<true>>()),
    ("v1", "validatingadmissionpolicies", Rules::of::<validating_policy::ValidatingAdmissionPolicy>()),
    (
        "v1",
        "validatingadmissionpolicybindings",
        Rules::of::<validating_policy_binding::ValidatingAdmissionPolicyBinding>(),
    ),
    (
        "v1",
        "validatingwebhookconfigurations",
        Rules::of::<webhook_configuration::WebhookConfiguration<false>>(),
    ),
];
