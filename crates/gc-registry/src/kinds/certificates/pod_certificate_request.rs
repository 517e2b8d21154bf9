//! Requests for the certificates of pods, served since 1.37.

mod issued;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::kinds::kind::means_the_same;
use crate::kinds::prelude::*;
use crate::kinds::shared::conditions::conditions;
use crate::kinds::shared::names::{dns_subdomain, qualified_name};
use crate::kinds::shared::signers::{is_of_kubernetes, signer_name};
use crate::kinds::x509::{CertificateRequest, PublicKey};

const REQUEST_MAX_BYTES: usize = 10 * 1024;
const UID_MAX_BYTES: usize = 128;
const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;
const EXPIRATION_SECONDS_MIN: i64 = 60 * 60;
const EXPIRATION_SECONDS_MAX: i64 = 91 * 24 * 60 * 60;
const EXPIRATION_SECONDS_MAX_OF_KUBERNETES: i64 = 24 * 60 * 60;
/// Accepted sizes of RSA keys in bits.
const RSA_BITS: [usize; 2] = [3072, 4096];
/// Conditions that decide a request. Only one may be set, permanently.
const OUTCOMES: [&str; 3] = ["Issued", "Denied", "Failed"];

pub(crate) struct PodCertificateRequest;

impl Kind for PodCertificateRequest {
    const PARTS: Parts = Parts::StatusOnly;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("PodName", F(SPEC, "podName")),
        H::text("ServiceAccountName", F(SPEC, "serviceAccountName")),
        H::text("NodeName", F(SPEC, "nodeName")),
        H::text("SignerName", F(SPEC, "signerName")),
        H::text("State", T("Is the request Pending, Issued, Denied, or Failed?")),
        H::text("UnverifiedUserAnnotations", F(SPEC, "unverifiedUserAnnotations")),
    ];
    const FIELD_LABELS: &'static [&'static str] = &["spec.nodeName", "spec.podName", "spec.signerName"];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let mut kinds =
            row.list(&["status", "conditions"]).iter().map(|condition| text(condition, &["type"]));
        let state = kinds.rfind(|kind| OUTCOMES.contains(kind)).unwrap_or("Pending");
        vec![
            row.name(),
            row.shown(&["spec", "podName"]),
            row.shown(&["spec", "serviceAccountName"]),
            row.shown(&["spec", "nodeName"]),
            row.shown(&["spec", "signerName"]),
            state.into(),
            shown_labels(at(row.object, &["spec", "unverifiedUserAnnotations"])),
        ]
    }

    fn defaults(members: &mut Members) {
        if let Some(spec) = child(members, "spec") {
            fill_absent(spec, "maxExpirationSeconds", EXPIRATION_SECONDS_MAX_OF_KUBERNETES);
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let signer = spec.get("signerName");
        signer_name(&signer, report);
        annotations(&spec.get("unverifiedUserAnnotations"), report);
        for (name, uid) in
            [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")]
        {
            let (name, uid) = (spec.get(name), spec.get(uid));
            report.each(&name, dns_subdomain(name.text()));
            if uid.text().is_empty() {
                report.invalid_text(&uid, "", "must not be empty");
            }
            if uid.text().len() > UID_MAX_BYTES {
                report.too_long(&uid, UID_MAX_BYTES);
            }
        }
        let seconds = spec.get("maxExpirationSeconds");
        let most = if is_of_kubernetes(signer.text()) {
            EXPIRATION_SECONDS_MAX_OF_KUBERNETES
        } else {
            EXPIRATION_SECONDS_MAX
        };
        if !(EXPIRATION_SECONDS_MIN..=most).contains(&seconds.number()) {
            let why = format!("must be in the range [{EXPIRATION_SECONDS_MIN}, {most}]");
            report.invalid_number(&seconds, &why);
        }
        let request = spec.get("stubPKCS10Request");
        if request.text().is_empty() {
            let why = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
            report.invalid_without_value(&spec, why);
        } else {
            key_of(&request, report);
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let (spec, before) = (new.get("spec"), old.get("spec"));
        if !means_the_same(Some(spec.value()), Some(before.value())) {
            report.invalid(&spec, IMMUTABLE);
        }
    }

    fn validate_status(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        let list = status.get("conditions");
        let before = report.errors.len();
        outcomes(&list, report);
        conditions(&list, report);
        if report.errors.len() > before {
            return;
        }
        let is_unchanged = means_the_same(Some(status.value()), Some(old.member("status")));
        let mut refuse = |why: &str| report.invalid_without_value(&status, why);
        match outcome(&status) {
            _ if outcome(&old.get("status")).is_some() => {
                if !is_unchanged {
                    refuse("immutable after PodCertificateRequest is issued, denied, or failed");
                }
            }
            Some("Issued") => issued::check(&status, &old.get("spec"), report),
            Some(_) => {
                let others = ["certificateChain", "notBefore", "beginRefreshAt", "notAfter"];
                if others.iter().any(|name| !status.get(name).is_empty()) {
                    refuse(
                        "non-condition status fields must be empty when denying or failing the PodCertificateRequest",
                    );
                }
            }
            None => {
                if !is_unchanged {
                    refuse(
                        "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"",
                    );
                }
            }
        }
    }
}

const SPEC: &str = "api.certificates.v1.PodCertificateRequestSpec";

/// Checks annotations: their keys need a domain, and their total size is limited.
fn annotations(field: &Field<'_, '_>, report: &mut Report) {
    let mut bytes = 0;
    for (key, value) in field.entries() {
        bytes += key.len() + value.text().len();
        let key = key.to_lowercase();
        if key.is_empty() {
            report.required(field, "");
            continue;
        }
        let problems = qualified_name(&key);
        if problems.is_empty() && !key.contains('/') {
            report.invalid_text(field, &key, "must be a domain-prefixed key (such as \"acme.io/foo\")");
        }
        report.each_of(field, &key, problems);
    }
    if bytes > ANNOTATIONS_MAX_BYTES {
        report.too_long(field, ANNOTATIONS_MAX_BYTES);
    }
}

/// Validates the key for which a certificate is requested. The server verifies its owner's signature after all other rules.
fn key_of(request: &Field<'_, '_>, report: &mut Report) {
    let der = BASE64.decode(request.text()).unwrap_or_default();
    if der.len() > REQUEST_MAX_BYTES {
        report.too_long(request, REQUEST_MAX_BYTES);
        return;
    }
    let key = CertificateRequest::from_der(&der).and_then(|request| PublicKey::from_der(&request.public_key));
    match key {
        Err(_) => report.invalid_without_value(request, "must be a valid PKCS#10 CSR"),
        Ok(PublicKey::Ed25519 | PublicKey::Curve("P-256" | "P-384" | "P-521")) => {}
        Ok(PublicKey::Curve(name)) => {
            let why = "elliptic public keys must use curve P256, P384, or P521";
            report.invalid_text(request, &format!("curve {name}"), why);
        }
        Ok(PublicKey::Rsa { bits }) => {
            if !RSA_BITS.contains(&bits) {
                let why = "RSA keys must have modulus size 3072 or 4096";
                report.invalid_text(request, &format!("{bits}-bit modulus"), why);
            }
        }
        Ok(PublicKey::Other) => {
            let why = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
            report.invalid_without_value(request, why);
        }
    }
}

/// Checks that conditions are outcomes, at most one, and true.
fn outcomes(list: &Field<'_, '_>, report: &mut Report) {
    let mut seen = 0;
    for (index, condition) in list.list().iter().enumerate() {
        // Upstream writes the index like a name.
        let step = format!("[{index}]");
        let condition = list.named(&step, condition);
        let (kind, status) = (condition.get("type"), condition.get("status"));
        if !OUTCOMES.contains(&kind.text()) {
            report.not_supported(&kind, &OUTCOMES);
            continue;
        }
        seen += 1;
        if seen > 1 {
            let why = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            report.invalid(&kind, why);
        }
        if status.text() != "True" {
            report.not_supported(&status, &["True"]);
        }
    }
}

/// Returns the outcome of a request, if it has been decided.
fn outcome(status: &Field<'_, '_>) -> Option<&'static str> {
    let list = status.get("conditions");
    let is_true = |kind: &str| {
        let of = |condition: &Value| text(condition, &["type"]) == kind;
        list.list().iter().any(|condition| of(condition) && text(condition, &["status"]) == "True")
    };
    OUTCOMES.into_iter().find(|kind| is_true(kind))
}
