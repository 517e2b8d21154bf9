//! Fields of a LeaseCandidate that verdicts use.

use gc_types::Timestamp;
use serde::Deserialize;

use super::meta::{HasMeta, Meta, WireMeta, parse_time};

/// Fields of a LeaseCandidate that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireCandidate")]
pub struct LeaseCandidate {
    /// Metadata of the candidate.
    pub meta: Meta,
    /// `spec.renewTime`
    pub renewed: Option<Timestamp>,
}

impl HasMeta for LeaseCandidate {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireCandidate {
    metadata: WireMeta,
    spec: WireCandidateSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCandidateSpec {
    renew_time: Option<String>,
}

impl From<WireCandidate> for LeaseCandidate {
    fn from(wire: WireCandidate) -> Self {
        Self { renewed: parse_time(wire.spec.renew_time.as_deref()), meta: Meta::from(&wire.metadata) }
    }
}
