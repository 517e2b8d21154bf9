//! The group coordination.k8s.io.

mod lease;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] = &[("v1", "leases", Rules::of::<lease::Lease>())];
