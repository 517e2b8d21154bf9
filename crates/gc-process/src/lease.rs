//! The Lease that the replicas of a collector share: election, and the orders of operators on it.

pub mod control;
pub mod election;
pub mod orders;
mod orders_file;
pub mod shards;

use clap::Args;
use gc_kube::connection::Answer;
use gc_kube::requests::{ObjectAnswer, RequestedObject, answered_object};
use gc_ownership::Shard;

/// Default name of the Lease.
const LEASE_NAME: &str = "kubegc-garbage-collector";
const LEASE_NAMESPACE: &str = "kube-system";
/// Heading of the election's flags in help texts.
pub const HEADING: &str = "Leader election";

/// Namespace and name of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
}

impl std::fmt::Display for LeaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl LeaseName {
    /// Returns the Lease that the replicas of one shard share; the same one if there is only one shard. The orders of operators stay
    /// on the Lease without a suffix, which every shard follows.
    #[must_use]
    pub fn of_shard(&self, shard: Shard) -> Self {
        if shard.is_whole() {
            return self.clone();
        }
        let name = format!("{}-shard-{}-of-{}", self.name, shard.index(), shard.count());
        Self { namespace: self.namespace.clone(), name }
    }

    pub(crate) fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    /// Judges the answer to a request about the Lease. A 404 that proves nothing, and what is not this Lease, are doubtful: the answer of
    /// a gateway ends no pause.
    pub(crate) fn answered(&self, answer: &Answer) -> ObjectAnswer {
        let Self { namespace, name } = self;
        let (group, resource, kind) = ("coordination.k8s.io", "leases", "Lease");
        answered_object(answer, &RequestedObject { group, resource, kind, namespace, name })
    }
}

/// Flags of the Lease that the replicas of a collector share.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = HEADING)]
pub struct LeaseFlags {
    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = LEASE_NAME)]
    leader_elect_resource_name: String,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = LEASE_NAMESPACE)]
    leader_elect_resource_namespace: String,
}

impl LeaseFlags {
    /// Returns the Lease that is used unless flags name another; the collectors of `kubegc up` follow its orders.
    #[must_use]
    pub fn default_name() -> LeaseName {
        LeaseName { namespace: LEASE_NAMESPACE.into(), name: LEASE_NAME.into() }
    }

    /// Returns the Lease that the flags name.
    #[must_use]
    pub fn name(&self) -> LeaseName {
        let namespace = self.leader_elect_resource_namespace.clone();
        LeaseName { namespace, name: self.leader_elect_resource_name.clone() }
    }
}
