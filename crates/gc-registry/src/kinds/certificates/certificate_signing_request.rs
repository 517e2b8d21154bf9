//! Certificate signing requests.

use std::collections::BTreeSet;

use crate::kinds::access::{integer, text};
use crate::kinds::kind::prelude::*;
use crate::kinds::printers::NONE;
use crate::kinds::printers::duration::human_duration;
use crate::kinds::shared::conditions::STATUSES;
use crate::kinds::shared::signers::signer_name;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

const EXPIRATION_SECONDS_MIN: i64 = 600;
/// Conditions that say what became of a request, and stay.
const DECISIONS: [&str; 3] = ["Approved", "Denied", "Failed"];
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

const COLUMNS: &[Heading] = &[
    H::NAME,
    H::AGE,
    H::text("SignerName", F("api.certificates.v1.CertificateSigningRequestSpec", "signerName")),
    H::text("Requestor", F("api.certificates.v1.CertificateSigningRequestSpec", "request")),
    H::text("RequestedDuration", F("api.certificates.v1.CertificateSigningRequestSpec", "expirationSeconds")),
    H::text("Condition", F("api.certificates.v1.CertificateSigningRequestStatus", "conditions")),
];

pub(crate) struct CertificateSigningRequest;

impl Kind for CertificateSigningRequest {
    fn columns(&self) -> &'static [Heading] {
        COLUMNS
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let has = |kind: &str| {
            row.list(&["status", "conditions"]).iter().any(|condition| text(condition, &["type"]) == kind)
        };
        let mut status = if has("Denied") {
            "Denied"
        } else if has("Approved") {
            "Approved"
        } else {
            "Pending"
        }
        .to_owned();
        if has("Failed") {
            status.push_str(",Failed");
        }
        if !row.text(&["status", "certificate"]).is_empty() {
            status.push_str(",Issued");
        }
        let duration =
            integer(row.object, &["spec", "expirationSeconds"]).map_or_else(|| NONE.into(), human_duration);
        vec![
            row.name(),
            row.age(),
            row.text_or(&["spec", "signerName"], NONE),
            row.text(&["spec", "username"]).into(),
            duration.into(),
            status.into(),
        ]
    }

    fn validate(&self, object: &Field<'_, '_>, report: &mut Report) {
        request(object, report);
    }

    fn validate_update(&self, new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        request(new, report);
        decisions(new, old, &[], report);
    }

    fn validate_status(&self, new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        request(new, report);
        decisions(new, old, &["Failed"], report);
        let (status, before) = (new.get("status"), old.get("status"));
        let certificate = status.get("certificate");
        let was = before.text_of("certificate");
        if !was.is_empty() && certificate.text() != was {
            let why = "updates may not modify existing certificate content";
            report.forbidden(&certificate, why);
        } else if certificate.text() != was {
            let bytes = BASE64.decode(certificate.text()).unwrap_or_default();
            if !String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----") {
                let why = "must contain at least one CERTIFICATE PEM block";
                report.invalid_text(&certificate, "<certificate data>", why);
            }
        }
    }

    fn validate_subresource(
        &self,
        subresource: &str,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        if subresource == "approval" {
            request(new, report);
            decisions(new, old, &["Approved", "Denied"], report);
        }
    }
}

fn request(object: &Field<'_, '_>, report: &mut Report) {
    let spec = object.get("spec");
    let body = spec.get("request");
    let bytes = BASE64.decode(body.text()).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    if !text.contains("-----BEGIN CERTIFICATE REQUEST-----")
        && !text.contains("-----BEGIN NEW CERTIFICATE REQUEST-----")
    {
        report.invalid(&body, "PEM block type must be CERTIFICATE REQUEST");
    }
    let usages = spec.get("usages");
    if usages.list().is_empty() {
        report.required(&usages, "");
    }
    let mut seen = BTreeSet::new();
    for usage in usages.items() {
        if !USAGES.contains(&usage.text()) {
            report.not_supported(&usage, &USAGES);
        }
        if !seen.insert(usage.text()) {
            report.duplicate(&usage);
        }
    }
    let signer = spec.get("signerName");
    if signer.text() == "kubernetes.io/legacy-unknown" {
        report.invalid(&signer, "the legacy signerName is not allowed via this API version");
    } else {
        signer_name(&signer, report);
    }
    let seconds = spec.get("expirationSeconds");
    if seconds.integer().is_some_and(|seconds| seconds < EXPIRATION_SECONDS_MIN) {
        report.invalid(&seconds, "may not specify a duration less than 600 seconds (10 minutes)");
    }
    conditions(object, report);
}

fn conditions(object: &Field<'_, '_>, report: &mut Report) {
    let status = object.get("status");
    let field = status.get("conditions");
    let mut types = BTreeSet::new();
    for condition in field.items() {
        let (kind, state) = (condition.get("type"), condition.get("status"));
        if kind.text().is_empty() {
            report.required(&kind, "");
        }
        match state.text() {
            "" => report.required(&state, ""),
            "True" => {}
            "False" | "Unknown" => {
                if DECISIONS.contains(&kind.text()) {
                    report.not_supported(&state, &["True"]);
                }
            }
            _ => report.not_supported(&state, &STATUSES),
        }
        if !types.insert(kind.text()) {
            report.duplicate_text(&kind, kind.text());
        }
        let opposite = match kind.text() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => continue,
        };
        if types.contains(opposite) {
            let why = "Approved and Denied conditions are mutually exclusive";
            report.invalid_text(&field, kind.text(), why);
        }
    }
}

/// What was decided stays, and only the endpoint for it decides.
fn decisions(new: &Field<'_, '_>, old: &Field<'_, '_>, addable: &[&str], report: &mut Report) {
    let (status, before) = (new.get("status"), old.get("status"));
    let field = status.get("conditions");
    for kind in DECISIONS {
        let of = |list: &[Value]| -> Vec<Value> {
            let typed = |condition: &&Value| condition.get("type").and_then(Value::as_str) == Some(kind);
            list.iter().filter(typed).cloned().collect()
        };
        let (ours, theirs) = (of(field.list()), of(before.get("conditions").list()));
        if ours.len() < theirs.len() {
            report.forbidden(&field, &format!("updates may not remove a condition of type {kind:?}"));
        } else if ours.len() > theirs.len() {
            if !addable.contains(&kind) {
                report.forbidden(&field, &format!("updates may not add a condition of type {kind:?}"));
            }
        } else if ours != theirs {
            report.forbidden(&field, &format!("updates may not modify a condition of type {kind:?}"));
        }
    }
}
