//! The group coordination.k8s.io.

pub(crate) mod lease;
