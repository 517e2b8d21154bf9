//! Fields of a PodCertificateRequest that verdicts use.

use serde::Deserialize;

use super::meta::{HasMeta, Meta, WireMeta};

/// Fields of a PodCertificateRequest that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WirePodCertificate")]
pub struct PodCertificate {
    /// Metadata of the request.
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
