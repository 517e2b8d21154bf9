//! Bundles of certificates that all of their readers can trust, served since 1.37.

use std::collections::BTreeMap;

use crate::kinds::pem::PemBlocks;
use crate::kinds::prelude::*;
use crate::kinds::shared::signers::signer_name;
use crate::kinds::x509::CertificateFacts;
use crate::metadata::names;

const BUNDLE_MAX_BYTES: usize = 1024 * 1024;
/// Placeholder for a bundle in messages.
const OMITTED: &str = "<value omitted>";

pub(crate) struct ClusterTrustBundle;

impl Kind for ClusterTrustBundle {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata {
        name_of: Some(bundle_name),
        update: &[MetadataCheck::Whole, MetadataCheck::Change],
        ..Metadata::DEFAULT
    };
    const COLUMNS: &'static [Column] =
        &[H::NAME, H::text("SignerName", F("api.certificates.v1.ClusterTrustBundleSpec", "signerName"))];
    const FIELD_LABELS: &'static [&'static str] = &["spec.signerName"];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.text_or(&["spec", "signerName"], NONE)]
    }

    fn defaults(_: &mut Members) {}

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        optional_signer(&spec.get("signerName"), report);
        anchors(&spec.get("trustBundle"), report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let (spec, before) = (new.get("spec"), old.get("spec"));
        let signer = spec.get("signerName");
        optional_signer(&signer, report);
        // Accepted contents are not parsed again.
        if spec.text_of("trustBundle") != before.text_of("trustBundle") {
            anchors(&spec.get("trustBundle"), report);
        }
        report.immutable_text(&signer, &before.get("signerName"));
    }
}

/// Returns the errors of a bundle's name, which begins with the signer's name if there is a signer.
fn bundle_name(text: &str, object: &Value) -> Vec<String> {
    let signer = crate::kinds::access::text(object, &["spec", "signerName"]);
    if signer.is_empty() {
        if text.contains(':') {
            return vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()];
        }
        return names::dns_subdomain(text);
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match text.strip_prefix(&prefix) {
        Some(rest) => names::dns_subdomain(rest),
        None => {
            vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")]
        }
    }
}

fn optional_signer(signer: &Field<'_, '_>, report: &mut Report) {
    if !signer.text().is_empty() {
        signer_name(signer, report);
    }
}

/// Checks that the bundle consists of authorities' certificates, at least one and without duplicates.
fn anchors(bundle: &Field<'_, '_>, report: &mut Report) {
    if bundle.text().len() > BUNDLE_MAX_BYTES {
        report.too_long(bundle, BUNDLE_MAX_BYTES);
        return;
    }
    let mut is_malformed = false;
    let mut places: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    for (index, block) in PemBlocks::of(bundle.text()).enumerate() {
        let problem = if block.label != "CERTIFICATE" {
            Some(format!("has bad block type: {}", block.label))
        } else if block.has_headers {
            Some("has PEM block headers".to_owned())
        } else {
            match CertificateFacts::from_der(&block.der) {
                Err(_) => Some("does not parse as X.509".to_owned()),
                Ok(certificate) if !certificate.is_authority => {
                    Some("does not have the CA bit set".to_owned())
                }
                Ok(_) => None,
            }
        };
        if let Some(problem) = problem {
            report.invalid_text(bundle, OMITTED, &format!("entry {index} {problem}"));
            is_malformed = true;
        } else {
            places.entry(block.der).or_default().push(index);
        }
    }
    if is_malformed {
        return;
    }
    if places.is_empty() {
        report.invalid_text(bundle, OMITTED, "at least one trust anchor must be provided");
    }
    let mut repeated: Vec<&Vec<usize>> = places.values().filter(|places| places.len() > 1).collect();
    repeated.sort();
    for indices in repeated {
        let shown: Vec<String> = indices.iter().map(ToString::to_string).collect();
        let why = format!("duplicate trust anchor (indices [{}])", shown.join(" "));
        report.invalid_text(bundle, OMITTED, &why);
    }
}
