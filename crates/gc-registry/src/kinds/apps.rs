//! The group apps.

mod controller_revision;
mod daemon_set;
mod deployment;
mod replica_set;
mod stateful_set;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] = &[
    ("v1", "controllerrevisions", Rules::of::<controller_revision::ControllerRevision>()),
    ("v1", "daemonsets", Rules::of::<daemon_set::DaemonSet>()),
    ("v1", "deployments", Rules::of::<deployment::Deployment>()),
    ("v1", "replicasets", Rules::of::<replica_set::ReplicaSet>()),
    ("v1", "statefulsets", Rules::of::<stateful_set::StatefulSet>()),
];
