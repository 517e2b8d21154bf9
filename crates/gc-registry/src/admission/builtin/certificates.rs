//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::admission::{Plugin, Request};
use crate::api::Attributes;
use crate::error::{ApiError, CauseReason, FieldError};
use crate::kinds::access::text;
use crate::kinds::x509::{CertificateRequest, RequestSignature};
use crate::metadata::meta;
use crate::metadata::names::quoted;
use crate::registry::call::Call;

/// The group that may do everything.
const MASTERS: &str = "system:masters";

/// A requested client certificate makes no user an administrator.
pub(crate) fn restrict_subject(
    request: &Request<'_>,
    new: &Value,
    _: &mut Vec<String>,
) -> Result<(), ApiError> {
    const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
    if !request.creates("certificates.k8s.io", "certificatesigningrequests")
        || text(new, &["spec", "signerName"]) != SIGNER
    {
        return Ok(());
    }
    let pem = BASE64.decode(text(new, &["spec", "request"])).unwrap_or_default();
    let asked = CertificateRequest::from_pem(&pem)
        .map_err(|why| request.forbidden(new, &format!("unable to parse CSR: {why}")))?;
    if asked.subject.organizations.iter().any(|organization| organization == MASTERS) {
        return Err(
            request.forbidden(new, &format!("use of {SIGNER} signer with {MASTERS} group is not allowed"))
        );
    }
    Ok(())
}

impl Call<'_> {
    /// Verifies that a certificate request is signed with the key that it names. As upstream, this is part of the validation of
    /// every write: a request that was stored without it is neither approved nor issued.
    pub(crate) fn request_signature(&self, new: &Value) -> Vec<FieldError> {
        let Some(verify) = self.registry.signature_verifier() else { return Vec::new() };
        if !self.resource().is("certificates.k8s.io", "certificatesigningrequests") {
            return Vec::new();
        }
        let encoded = text(new, &["spec", "request"]);
        let pem = BASE64.decode(encoded).unwrap_or_default();
        // What cannot be read at all is reported by the rules of the kind.
        let Ok(request) = CertificateRequest::from_pem(&pem) else { return Vec::new() };
        match verify(&request) {
            RequestSignature::Verified => Vec::new(),
            RequestSignature::Unverifiable(algorithm) => {
                self.note(format!("spec.request: this server does not verify signatures by {algorithm}"));
                Vec::new()
            }
            RequestSignature::Refused(why) => vec![FieldError {
                field: "spec.request".into(),
                reason: CauseReason::Invalid,
                detail: format!("Invalid value: {}: {why}", quoted(encoded)),
            }],
        }
    }

    /// CertificateApproval and CertificateSigning: who changes what was approved or issued may do so for the signer.
    pub(crate) fn admit_certificate(&self, new: &Value, old: &Value) -> Result<(), ApiError> {
        if !self.resource().is("certificates.k8s.io", "certificatesigningrequests") {
            return Ok(());
        }
        let changed = |field: &str| new.pointer(field) != old.pointer(field);
        let verb = match self.target.subresource.as_str() {
            "approval" if self.has(Plugin::CertificateApproval) => "approve",
            "status" if !self.has(Plugin::CertificateSigning) => return Ok(()),
            "status" if changed("/status/certificate") || changed("/status/conditions") => "sign",
            _ => return Ok(()),
        };
        let signer = old.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or_default();
        let domain = signer.split('/').next().unwrap_or_default();
        let allowed = [signer, &format!("{domain}/*")].into_iter().any(|name| {
            let attributes = Attributes {
                verb,
                group: "certificates.k8s.io",
                version: "*",
                resource: "signers",
                name,
                ..Attributes::default()
            };
            self.context.authorizer.allows(self.context.user, &attributes)
        });
        if allowed {
            return Ok(());
        }
        let why = format!("user not permitted to {verb} requests with signerName {}", quoted(signer));
        Err(self.forbidden(meta::name(old), &why))
    }
}
