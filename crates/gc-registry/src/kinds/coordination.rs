//! The group coordination.k8s.io.

mod lease;

use super::kind::{Rules, Served};

pub(super) const KINDS: &[Served] = &[("v1", "leases", Rules::of::<lease::Lease>())];
