//! The group scheduling.k8s.io.

mod priority_class;

use super::kind::{Rules, Served};

pub(super) const KINDS: &[Served] =
    &[("v1", "priorityclasses", Rules::of::<priority_class::PriorityClass>())];
