//! The group rbac.authorization.k8s.io.

pub(crate) mod binding;
pub(crate) mod role;
