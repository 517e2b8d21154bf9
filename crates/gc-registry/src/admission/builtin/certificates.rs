//! CertificateApproval, CertificateSigning, ClusterTrustBundleAttest and CertificateSubjectRestriction.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::admission::{Plugin, Request};
use crate::api::Attributes;
use crate::error::{ApiError, CauseReason, FieldError};
use crate::kinds::access::text;
use crate::kinds::means_the_same;
use crate::kinds::x509::{CertificateRequest, RequestSignature};
use crate::metadata::meta;
use crate::metadata::names::quoted;
use crate::registry::call::Call;

const GROUP: &str = "certificates.k8s.io";
const POD_REQUESTS: &str = "podcertificaterequests";
/// The group that may do everything.
const MASTERS: &str = "system:masters";

/// Refuses a request for a client certificate that would make its user an administrator.
pub(crate) fn restrict_subject(
    request: &Request<'_>,
    new: &Value,
    _: &mut Vec<String>,
) -> Result<(), ApiError> {
    const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
    if !request.creates(GROUP, "certificatesigningrequests") || text(new, &["spec", "signerName"]) != SIGNER {
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
    /// Verifies that a certificate request is signed with the key that it contains. As upstream, this is part of the validation of
    /// every write: a request that was stored without this check is neither approved nor issued.
    pub(crate) fn request_signature(&self, new: &Value) -> Vec<FieldError> {
        let Some(verify) = self.registry.signature_verifier() else { return Vec::new() };
        if !self.resource().is(GROUP, "certificatesigningrequests") {
            return Vec::new();
        }
        let encoded = text(new, &["spec", "request"]);
        let pem = BASE64.decode(encoded).unwrap_or_default();
        // A request that cannot be parsed is reported by the rules of the kind.
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

    /// Implements CertificateApproval and CertificateSigning: approving or issuing requires the right to do so for the signer.
    pub(crate) fn admit_certificate(&self, new: &Value, old: &Value) -> Result<(), ApiError> {
        if !self.resource().is(GROUP, "certificatesigningrequests") {
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
        if self.is_allowed_for_signer(verb, signer) {
            return Ok(());
        }
        let why = format!("user not permitted to {verb} requests with signerName {}", quoted(signer));
        Err(self.forbidden(meta::name(old), &why))
    }

    /// Reports whether the user has a right for a signer, or for all signers of its domain.
    fn is_allowed_for_signer(&self, verb: &str, signer: &str) -> bool {
        let domain = signer.split('/').next().unwrap_or_default();
        [signer, &format!("{domain}/*")].into_iter().any(|name| {
            let attributes = Attributes {
                verb,
                group: GROUP,
                version: "*",
                resource: "signers",
                name,
                ..Attributes::default()
            };
            self.context.authorizer.allows(self.context.user, &attributes)
        })
    }

    /// Verifies that a new request for a pod's certificate is signed with its key. Unsupported keys have already been reported by
    /// the rules of the kind.
    pub(crate) fn pod_request_signature(&self, new: &Value) -> Vec<FieldError> {
        let Some(verify) = self.registry.signature_verifier() else { return Vec::new() };
        if !self.resource().is(GROUP, POD_REQUESTS) {
            return Vec::new();
        }
        let der = BASE64.decode(text(new, &["spec", "stubPKCS10Request"])).unwrap_or_default();
        let Ok(request) = CertificateRequest::from_der(&der) else { return Vec::new() };
        match verify(&request) {
            RequestSignature::Verified => Vec::new(),
            RequestSignature::Unverifiable(algorithm) => {
                let why = "this server does not verify signatures by";
                self.note(format!("spec.stubPKCS10Request: {why} {algorithm}"));
                Vec::new()
            }
            RequestSignature::Refused(_) => vec![FieldError {
                field: "spec.stubPKCS10Request".into(),
                reason: CauseReason::Invalid,
                detail: "Invalid value: invalid signature".into(),
            }],
        }
    }

    /// Checks, for an otherwise valid status, that the user who answers a request for a pod's certificate may sign for its signer.
    pub(crate) fn pod_request_signer(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let is_status = self.target.subresource == "status" && self.resource().is(GROUP, POD_REQUESTS);
        if !is_status || means_the_same(new.get("status"), old.get("status")) {
            return Vec::new();
        }
        let signer = text(old, &["spec", "signerName"]);
        if self.is_allowed_for_signer("sign", signer) {
            return Vec::new();
        }
        let user = quoted(&self.context.user.name);
        let detail =
            format!("Forbidden: User {user} is not permitted to \"sign\" for signer {}", quoted(signer));
        vec![FieldError { field: "spec.signerName".into(), reason: CauseReason::Forbidden, detail }]
    }
}

/// Requires the right to attest for a signer from a user who publishes its certificates. Changes that garbage collection makes are
/// exempt.
pub(crate) fn attest(request: &Request<'_>, new: &Value, _: &mut Vec<String>) -> Result<(), ApiError> {
    let signer = text(new, &["spec", "signerName"]);
    let is_concerned = request.call.resource().is(GROUP, "clustertrustbundles") && !signer.is_empty();
    if !is_concerned
        || request.old.is_some_and(|old| without_collection(new) == without_collection(old))
        || request.call.is_allowed_for_signer("attest", signer)
    {
        return Ok(());
    }
    let why = format!("user not permitted to attest for signerName {}", quoted(signer));
    Err(request.forbidden(new, &why))
}

/// Returns an object without the metadata that garbage collection changes.
fn without_collection(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
        meta::metadata_mut(&mut object).remove(field);
    }
    object
}
