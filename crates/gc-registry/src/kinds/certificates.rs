//! The group certificates.k8s.io.

mod certificate_signing_request;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] = &[(
    "v1",
    "certificatesigningrequests",
    Rules::of::<certificate_signing_request::CertificateSigningRequest>(),
)];
