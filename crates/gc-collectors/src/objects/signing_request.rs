//! Fields of a CertificateSigningRequest that verdicts use.

use base64::Engine as _;
use gc_types::Timestamp;
use serde::Deserialize;

use super::meta::{HasMeta, Meta, WireCondition, WireMeta, parse_time};
use super::x509;

/// Fields of a CertificateSigningRequest that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireRequest")]
pub struct SigningRequest {
    /// Metadata of the request.
    pub meta: Meta,
    /// Time of approval, which may be unknown; `None` if it is not approved.
    pub approved: Option<Option<Timestamp>>,
    /// Time of denial.
    pub denied: Option<Option<Timestamp>>,
    /// Time at which signing failed.
    pub failed: Option<Option<Timestamp>>,
    /// True if it has a certificate.
    pub issued: bool,
    /// End of the certificate's validity, if it can be read.
    pub not_after: Option<Timestamp>,
}

impl HasMeta for SigningRequest {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireRequest {
    metadata: WireMeta,
    status: WireRequestStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireRequestStatus {
    certificate: Option<String>,
    conditions: Option<Vec<WireCondition>>,
}

impl From<WireRequest> for SigningRequest {
    fn from(wire: WireRequest) -> Self {
        let updated = |kind: &str| {
            let mut conditions = wire.status.conditions.iter().flatten();
            let condition = conditions.find(|condition| condition.r#type == kind)?;
            Some(parse_time(condition.last_update_time.as_deref()))
        };
        let certificate = wire.status.certificate.as_deref().filter(|text| !text.is_empty());
        let pem = certificate.and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
        Self {
            approved: updated("Approved"),
            denied: updated("Denied"),
            failed: updated("Failed"),
            issued: certificate.is_some(),
            not_after: pem.and_then(|pem| x509::not_after(&pem)),
            meta: Meta::from(&wire.metadata),
        }
    }
}
