//! The group certificates.k8s.io.

mod certificate_signing_request;
mod cluster_trust_bundle;
mod pod_certificate_request;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] = &[
    (
        "v1",
        "certificatesigningrequests",
        Rules::of::<certificate_signing_request::CertificateSigningRequest>(),
    ),
    ("v1", "clustertrustbundles", Rules::of::<cluster_trust_bundle::ClusterTrustBundle>()),
    ("v1", "podcertificaterequests", Rules::of::<pod_certificate_request::PodCertificateRequest>()),
];
