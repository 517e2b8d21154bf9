//! Names of certificate signers, and of the bundles that trust them.

use super::names::{dns_label, dns_subdomain};
use crate::kinds::prelude::*;

const DOMAIN_MAX_BYTES: usize = 253;
/// Maximum length of a signer's name: a namespace, a dot and a name after a domain and a slash.
const SIGNER_MAX_BYTES: usize = 253 + 63 + 253 + 2;

/// Validates a name of the form `domain/name`, such as `example.com/signer`.
pub(crate) fn signer_name(field: &Field<'_, '_>, report: &mut Report) {
    let text = field.text();
    if text.is_empty() {
        report.required(field, "");
        return;
    }
    let parts: Vec<&str> = text.split('/').collect();
    let [domain, path] = parts.as_slice() else {
        report.invalid(
            field,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        );
        return;
    };
    if domain.len() > DOMAIN_MAX_BYTES {
        report.too_long(field, DOMAIN_MAX_BYTES);
    }
    first_wrong_label(field, domain, dns_label, report);
    if !domain.contains('.') {
        report.invalid_text(field, domain, "should be a domain with at least two segments separated by dots");
    }
    first_wrong_label(field, path, dns_subdomain, report);
    if text.len() > SIGNER_MAX_BYTES {
        report.too_long(field, SIGNER_MAX_BYTES);
    }
}

/// Reports whether a signer is reserved for Kubernetes.
pub(crate) fn is_of_kubernetes(signer: &str) -> bool {
    let host = signer.split('/').next().unwrap_or_default();
    host == "kubernetes.io" || host.ends_with(".kubernetes.io")
}

/// Returns the errors of the first invalid part between dots.
fn first_wrong_label(
    field: &Field<'_, '_>,
    text: &str,
    problems: fn(&str) -> Vec<String>,
    report: &mut Report,
) {
    let mut labels = text.split('.').map(|label| (label, problems(label)));
    if let Some((label, problems)) = labels.find(|(_, problems)| !problems.is_empty()) {
        for problem in problems {
            report.invalid_text(field, text, &format!("validating label {label:?}: {problem}"));
        }
    }
}

/// Returns the errors of a bundle's name: a subdomain, preceded by the name of its signer if it has one.
pub(crate) fn trust_bundle_name(text: &str) -> Vec<String> {
    match text.rsplit_once(':') {
        Some((_, name)) => dns_subdomain(name),
        None => dns_subdomain(text),
    }
}
