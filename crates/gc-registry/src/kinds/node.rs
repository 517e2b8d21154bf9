//! The group node.k8s.io.

mod runtime_class;

use super::kind::{Rules, Served};

pub(super) const KINDS: &[Served] = &[("v1", "runtimeclasses", Rules::of::<runtime_class::RuntimeClass>())];
