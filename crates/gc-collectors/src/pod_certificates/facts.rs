//! What verdicts need of a PodCertificateRequest.

use serde::Deserialize;

use crate::objects::{HasMeta, Meta, WireMeta};

/// What verdicts need of a PodCertificateRequest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WirePodCertificate")]
pub struct PodCertificate {
    /// Its metadata.
    pub meta: Meta,
}

impl HasMeta for PodCertificate {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WirePodCertificate {
    metadata: WireMeta,
}

impl From<WirePodCertificate> for PodCertificate {
    fn from(wire: WirePodCertificate) -> Self {
        Self { meta: Meta::from(&wire.metadata) }
    }
}
