//! The group flowcontrol.apiserver.k8s.io.

mod flow_schema;
mod priority_level;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] = &[
    ("v1", "flowschemas", Rules::of::<flow_schema::FlowSchema>()),
    ("v1", "prioritylevelconfigurations", Rules::of::<priority_level::PriorityLevelConfiguration>()),
];
