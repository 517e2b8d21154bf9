//! Fields of a Lease that verdicts use.

use std::sync::Arc;

use gc_types::Timestamp;
use serde::Deserialize;

use super::meta::{HasMeta, Meta, WireMeta, parse_time};

/// Namespace of node leases.
pub const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";
/// Value of `apiserver.kubernetes.io/identity` on the leases that are collected.
pub const IDENTITY: &str = "kube-apiserver";

/// Fields of a Lease that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireLease")]
pub struct Lease {
    /// Metadata of the Lease.
    pub meta: Meta,
    /// True if the label `apiserver.kubernetes.io/identity` names an API server.
    pub identity: bool,
    /// True if it has an owner.
    pub owned: bool,
    /// `spec.renewTime`
    pub renewed: Option<Timestamp>,
    /// `spec.leaseDurationSeconds`
    pub duration_seconds: Option<i64>,
    /// `spec.holderIdentity`, if it belongs to a leader election; empty if there is no holder.
    pub holder: Arc<str>,
}

impl HasMeta for Lease {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireLease {
    metadata: WireMeta,
    spec: WireLeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireLeaseSpec {
    renew_time: Option<String>,
    lease_duration_seconds: Option<i64>,
    holder_identity: Option<String>,
}

impl From<WireLease> for Lease {
    fn from(wire: WireLease) -> Self {
        let label = wire.metadata.labels.identity.as_deref();
        let meta = Meta::from(&wire.metadata);
        let elected = label.is_none() && *meta.namespace != *NODE_LEASE_NAMESPACE;
        Self {
            holder: wire.spec.holder_identity.filter(|_| elected).unwrap_or_default().into(),
            identity: label == Some(IDENTITY),
            owned: wire.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()),
            renewed: parse_time(wire.spec.renew_time.as_deref()),
            duration_seconds: wire.spec.lease_duration_seconds,
            meta,
        }
    }
}
