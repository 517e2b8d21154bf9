//! The group scheduling.k8s.io.

mod priority_class;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] =
    &[("v1", "priorityclasses", Rules::of::<priority_class::PriorityClass>())];
