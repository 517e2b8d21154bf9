//! Certificate signing requests.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::kinds::prelude::*;
use crate::kinds::printers::duration::human_duration;
use crate::kinds::shared::conditions::STATUSES;
use crate::kinds::shared::signers::signer_name;
use crate::kinds::x509;
use crate::metadata::names;

const EXPIRATION_SECONDS_MIN: i64 = 600;
/// Conditions that decide a request, and are permanent.
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

pub(crate) struct CertificateSigningRequest;

impl Kind for CertificateSigningRequest {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata {
        name: names::path_segment,
        update: &[MetadataCheck::Whole, MetadataCheck::Change],
        subresources: &[MetadataCheck::Whole, MetadataCheck::Change],
        ..Metadata::DEFAULT
    };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::AGE,
        H::text("SignerName", F("api.certificates.v1.CertificateSigningRequestSpec", "signerName")),
        H::text("Requestor", F("api.certificates.v1.CertificateSigningRequestSpec", "request")),
        H::text(
            "RequestedDuration",
            F("api.certificates.v1.CertificateSigningRequestSpec", "expirationSeconds"),
        ),
        H::text("Condition", F("api.certificates.v1.CertificateSigningRequestStatus", "conditions")),
    ];
    const SUBRESOURCES: &'static [&'static str] = &["approval"];
    const FIELD_LABELS: &'static [&'static str] = &["spec.signerName"];

    fn cells(row: &Row<'_>) -> Vec<Value> {
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

    fn defaults(members: &mut Members) {
        if let Some(spec) = child(members, "spec") {
            fill_absent(spec, "request", Value::Null);
        }
        if let Some(status) = child(members, "status") {
            for condition in items(status, "conditions") {
                for key in ["lastUpdateTime", "lastTransitionTime"] {
                    fill_absent(condition, key, Value::Null);
                }
            }
        }
    }

    /// Sets the requester of a certificate request, overwriting the client's values.
    fn prepare_create(object: &mut Value, context: &Context<'_>) {
        let Some(spec) = object.as_object_mut().and_then(|members| child(members, "spec")) else { return };
        for key in ["username", "uid", "groups", "extra"] {
            spec.remove(key);
        }
        if !context.user.name.is_empty() {
            spec.insert("username".into(), context.user.name.as_str().into());
        }
        if !context.user.uid.is_empty() {
            spec.insert("uid".into(), context.user.uid.as_str().into());
        }
        if !context.user.groups.is_empty() {
            spec.insert("groups".into(), context.user.groups.clone().into());
        }
        if !context.user.extra.is_empty() {
            let extra: Members =
                context.user.extra.iter().map(|(key, values)| (key.clone(), values.clone().into())).collect();
            spec.insert("extra".into(), Value::Object(extra));
        }
    }

    fn prepare_update(new: &mut Value, old: &Value, _: &Context<'_>) {
        keep(new, old, "spec");
    }

    fn prepare_status(new: &mut Value, old: &Value, context: &Context<'_>) {
        stamp_conditions(new, old, context);
    }

    fn prepare_subresource(_: &str, new: &mut Value, old: &Value, context: &Context<'_>) {
        keep(new, old, "spec");
        let conditions = at(new, &["status", "conditions"]).cloned();
        keep(new, old, "status");
        let path = ["status", "conditions"];
        match conditions {
            Some(conditions) => put(new, &path, conditions),
            None => remove(new, &path),
        }
        stamp_conditions(new, old, context);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        request(object, report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        request(new, report);
        decisions(new, old, &[], report);
    }

    fn validate_status(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
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
            if let Some(why) = x509::certificates_problem(&bytes) {
                report.invalid_text(&certificate, "<certificate data>", why);
            }
        }
    }

    fn validate_subresource(
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
    if let Err(why) = x509::CertificateRequest::from_pem(&bytes) {
        let shown = if body.is_set() { quoted(body.text()) } else { "null".into() };
        report.invalid_shown(&body, &shown, &why.to_string());
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

/// Checks that decisions are kept, and that only their endpoint makes them.
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

/// Sets the time of new or changed conditions to that of the request.
fn stamp_conditions(new: &mut Value, old: &Value, context: &Context<'_>) {
    let before = list(old, &["status", "conditions"]).to_vec();
    let Some(conditions) = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else {
        return;
    };
    for condition in conditions.iter_mut().filter(|condition| condition.is_object()) {
        let kind = text(condition, &["type"]).to_owned();
        let same = before.iter().find(|old| text(old, &["type"]) == kind);
        for key in ["lastUpdateTime", "lastTransitionTime"] {
            if at(condition, &[key]).is_none() {
                let unchanged = same.filter(|old| text(old, &["status"]) == text(condition, &["status"]));
                let time = unchanged.and_then(|old| at(old, &[key])).cloned();
                condition[key] = time.unwrap_or_else(|| context.time().into());
            }
        }
    }
}
