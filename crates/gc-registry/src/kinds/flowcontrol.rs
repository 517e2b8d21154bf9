//! The group flowcontrol.apiserver.k8s.io.

mod flow_schema;
mod priority_level;

use super::kind::{Rules, Served};

pub(super) const KINDS: &[Served] = &[
    ("v1", "flowschemas", Rules::of::<flow_schema::FlowSchema>()),
    ("v1", "prioritylevelconfigurations", Rules::of::<priority_level::PriorityLevelConfiguration>()),
];
