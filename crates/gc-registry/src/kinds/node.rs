//! The group node.k8s.io.

mod runtime_class;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] =
    &[("v1", "runtimeclasses", Rules::of::<runtime_class::RuntimeClass>())];
