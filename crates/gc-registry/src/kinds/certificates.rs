//! The group certificates.k8s.io.

mod certificate_signing_request;

use super::kind::{Rules, Served};

pub(super) const KINDS: &[Served] = &[(
    "v1",
    "certificatesigningrequests",
    Rules::of::<certificate_signing_request::CertificateSigningRequest>(),
)];
