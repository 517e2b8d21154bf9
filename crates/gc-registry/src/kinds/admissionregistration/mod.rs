//! The group admissionregistration.k8s.io.

mod cells;
mod defaults;
pub(crate) mod expressions;
mod matching;
pub(crate) mod mutating_policy;
pub(crate) mod mutating_policy_binding;
pub(crate) mod validating_policy;
pub(crate) mod validating_policy_binding;
pub(super) mod webhook_client;
pub(crate) mod webhook_configuration;
