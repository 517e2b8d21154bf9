//! Formats that declared rules name.

use crate::kinds::field::Field;
use crate::kinds::report::Report;
use crate::kinds::shared::names::{
    NOT_A_C_IDENTIFIER, dns_label, dns_subdomain, is_c_identifier, qualified_name,
};
use crate::metadata::names::{LABEL_MAX, SUBDOMAIN_MAX, long_name};

const IDENTIFIER_MAX_BYTES: usize = 32;
const NOT_A_SUBDOMAIN: &str = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with \
     an alphanumeric character (e.g. 'Example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NOT_A_UUID: &str = "must be a lowercase UUID in 8-4-4-4-12 format";

/// Checks a string that is the value of a field or one of its keys. An unknown format accepts every string.
pub(super) fn check(format: &str, field: &Field<'_, '_>, text: &str, report: &mut Report) {
    match format {
        "k8s-short-name" => report.each_of(field, text, in_bytes(dns_label(text), LABEL_MAX)),
        "k8s-long-name" => report.each_of(field, text, long_name(text)),
        "k8s-long-name-caseless" => report.each_of(field, text, caseless_name(text)),
        "k8s-label-key" => report.each_of(field, text, label_key(text)),
        "k8s-uuid" => report.each_of(field, text, (!is_uuid(text)).then(|| NOT_A_UUID.to_owned())),
        "k8s-resource-pool-name" => pool_name(field, text, report),
        "k8s-extended-resource-name" => report.each_of(field, text, extended_resource(text)),
        "k8s-resource-fully-qualified-name" => full_attribute_name(field, text, report),
        _ => debug_assert!(false, "{format}"),
    }
}

/// Returns the problems of a name whose length is counted in bytes.
fn in_bytes(problems: Vec<String>, max: usize) -> Vec<String> {
    let (characters, bytes) = (length(max, "characters"), length(max, "bytes"));
    problems.into_iter().map(|problem| problem.replace(&characters, &bytes)).collect()
}

fn length(max: usize, unit: &str) -> String {
    format!("must be no more than {max} {unit}")
}

fn label_key(text: &str) -> Vec<String> {
    in_bytes(qualified_name(text), SUBDOMAIN_MAX)
}

fn caseless_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        problems.push(length(SUBDOMAIN_MAX, "bytes"));
    }
    let lower = text.to_ascii_lowercase();
    if !dns_subdomain(&lower).iter().all(|problem| *problem == length(SUBDOMAIN_MAX, "characters")) {
        problems.push(NOT_A_SUBDOMAIN.to_owned());
    }
    problems
}

fn is_uuid(text: &str) -> bool {
    let is_part = |(index, byte): (usize, u8)| match index {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_part)
}

/// Checks long names that are separated by slashes.
fn pool_name(field: &Field<'_, '_>, text: &str, report: &mut Report) {
    if text.len() > SUBDOMAIN_MAX {
        report.too_long(field, SUBDOMAIN_MAX);
    }
    for (index, part) in text.split('/').enumerate() {
        if part.is_empty() {
            report.invalid_text(field, text, &format!("segment {index}: must not be empty"));
        } else {
            let problems = long_name(part).into_iter().map(|problem| format!("segment {index}: {problem}"));
            report.each_of(field, part, problems);
        }
    }
}

fn extended_resource(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if !text.contains('/') {
        problems.push("a name must be a domain-prefixed path, such as 'example.com/my-prop'".to_owned());
    } else if text.contains("kubernetes.io/") {
        problems.push("must not have \"kubernetes.io/\" domain".to_owned());
    }
    if text.starts_with("requests.") {
        problems.push("must not have \"requests.\" prefix".to_owned());
    }
    problems.extend(label_key(&format!("requests.{text}")));
    problems
}

/// Checks an identifier after a domain.
fn full_attribute_name(field: &Field<'_, '_>, text: &str, report: &mut Report) {
    match text.split('/').collect::<Vec<_>>()[..] {
        [id] => identifier(field, id, report),
        [domain, id] => {
            if domain.is_empty() {
                report.invalid_text(field, "", "prefix must not be empty");
            } else {
                if domain.len() > LABEL_MAX {
                    report.too_long(field, LABEL_MAX);
                }
                let problems = long_name(domain).into_iter().map(|problem| format!("prefix: {problem}"));
                report.each_of(field, domain, problems);
            }
            if id.is_empty() {
                report.invalid_text(field, "", "name must not be empty");
            } else {
                identifier(field, id, report);
            }
        }
        // Upstream checks nothing of a name with more slashes.
        _ => {}
    }
    if !text.contains('/') {
        report.invalid_text(
            field,
            text,
            "a fully qualified name must be a domain and a name separated by a slash",
        );
    }
}

fn identifier(field: &Field<'_, '_>, id: &str, report: &mut Report) {
    if id.len() > IDENTIFIER_MAX_BYTES {
        report.too_long(field, IDENTIFIER_MAX_BYTES);
    }
    if !is_c_identifier(id) {
        report.invalid_text(field, id, NOT_A_C_IDENTIFIER);
    }
}
