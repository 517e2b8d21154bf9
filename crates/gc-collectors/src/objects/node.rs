//! Fields of a node that verdicts use.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::meta::{HasMeta, Meta, WireCondition, WireMeta};

/// Taint by which an operator declares a node dead.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// Fields of a node that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireNode")]
pub struct Node {
    /// Metadata of the node.
    pub meta: Meta,
    /// True if its `Ready` condition is `True`.
    pub ready: bool,
    /// True if it has the out-of-service taint.
    pub out_of_service: bool,
    /// `spec.providerID`; empty if it has none.
    pub provider_id: Arc<str>,
    /// Taints of the node, in order.
    pub taints: Vec<Taint>,
}

/// A complete taint, because the list of taints is written as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Key of the taint.
    pub key: String,
    /// Value of the taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Effect of the taint.
    pub effect: String,
    /// Time at which it was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

impl HasMeta for Node {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireNode {
    metadata: WireMeta,
    spec: WireNodeSpec,
    status: WireNodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireNodeSpec {
    #[serde(rename = "providerID")]
    provider_id: String,
    taints: Option<Vec<Taint>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireNodeStatus {
    conditions: Option<Vec<WireCondition>>,
}

impl From<WireNode> for Node {
    fn from(wire: WireNode) -> Self {
        Self {
            meta: Meta::from(&wire.metadata),
            ready: wire
                .status
                .conditions
                .iter()
                .flatten()
                .any(|condition| condition.r#type == "Ready" && condition.status == "True"),
            out_of_service: wire.spec.taints.iter().flatten().any(|taint| taint.key == OUT_OF_SERVICE_TAINT),
            provider_id: wire.spec.provider_id.into(),
            taints: wire.spec.taints.unwrap_or_default(),
        }
    }
}
