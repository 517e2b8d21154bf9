//! The group rbac.authorization.k8s.io.

mod binding;
mod role;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] = &[
    ("v1", "clusterrolebindings", Rules::of::<binding::Binding<true>>()),
    ("v1", "clusterroles", Rules::of::<role::Role<true>>()),
    ("v1", "rolebindings", Rules::of::<binding::Binding<false>>()),
    ("v1", "roles", Rules::of::<role::Role<false>>()),
];
