//! Formats of names: DNS labels and subdomains, qualified names, path segments, with upstream's messages.
//!
//! Implemented without regular expressions, because every create and update validates names.

pub use gc_types::quoted;

use crate::error::{CauseReason, FieldError};

/// Maximum length of a DNS subdomain, and therefore of a name.
pub const SUBDOMAIN_MAX: usize = 253;
/// Maximum length of a field manager's name, in bytes.
const FIELD_MANAGER_MAX: usize = 128;
/// Maximum length of a DNS label, a label value, and the name part of a qualified name.
pub const LABEL_MAX: usize = 63;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
     and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
     with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
     character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
     '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
     character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
     and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
     '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn ends_alphanumeric(text: &str, allowed: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            allowed(first) && allowed(last) && bytes.iter().all(|&byte| allowed(byte) || inner(byte))
        }
        _ => false,
    }
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn label_shape(text: &str) -> bool {
    ends_alphanumeric(text, lower, |byte| byte == b'-')
}

fn qualified_shape(text: &str) -> bool {
    ends_alphanumeric(text, |byte| byte.is_ascii_alphanumeric(), |byte| matches!(byte, b'-' | b'_' | b'.'))
}

fn at_most(text: &str, limit: usize, unit: &str, problems: &mut Vec<String>) {
    if text.len() > limit {
        problems.push(format!("must be no more than {limit} {unit}"));
    }
}

/// Returns the errors of a text as a DNS subdomain (RFC 1123).
#[must_use]
pub fn dns_subdomain(text: &str) -> Vec<String> {
    subdomain(text, "characters")
}

/// The same in the words of validation that is declared with the types, which counts bytes.
#[must_use]
pub fn long_name(text: &str) -> Vec<String> {
    subdomain(text, "bytes")
}

fn subdomain(text: &str, unit: &str) -> Vec<String> {
    let mut problems = Vec::new();
    at_most(text, SUBDOMAIN_MAX, unit, &mut problems);
    if !text.split('.').all(label_shape) {
        problems.push(SUBDOMAIN.to_owned());
    }
    problems
}

/// Returns the errors of a text as a DNS label (RFC 1123).
#[must_use]
pub fn dns_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    at_most(text, LABEL_MAX, "characters", &mut problems);
    if !label_shape(text) {
        // If all parts between dots are labels, the error is about the dots.
        if text.contains('.') && text.split('.').all(label_shape) {
            problems.push("must not contain dots".to_owned());
        } else {
            problems.push(LABEL.to_owned());
        }
    }
    problems
}

/// Returns the errors of a text as a DNS label by RFC 1035 (no digit at the start), the format of Service names.
#[must_use]
pub fn dns_label_1035(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    at_most(text, LABEL_MAX, "characters", &mut problems);
    if !label_shape(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        problems.push(LABEL_1035.to_owned());
    }
    problems
}

/// Returns the errors of a text as a path segment, the format of names in RBAC.
#[must_use]
pub fn path_segment(text: &str) -> Vec<String> {
    match text {
        "." => vec!["may not be '.'".to_owned()],
        ".." => vec!["may not be '..'".to_owned()],
        _ => ['/', '%']
            .into_iter()
            .filter(|bad| text.contains(*bad))
            .map(|bad| format!("may not contain '{bad}'"))
            .collect(),
    }
}

/// Returns the errors of a text as a field manager's name.
#[must_use]
pub fn field_manager(text: &str) -> Vec<(CauseReason, String)> {
    let mut problems = Vec::new();
    if text.len() > FIELD_MANAGER_MAX {
        let why = format!("Too long: may not be more than {FIELD_MANAGER_MAX} bytes");
        problems.push((CauseReason::TooLong, why));
    }
    for (position, character) in text.char_indices().filter(|(_, character)| character.is_control()) {
        let why = format!(
            "Invalid value: {}: invalid character U+{:04X} (at position {position})",
            quoted(text),
            u32::from(character)
        );
        problems.push((CauseReason::Invalid, why));
    }
    problems
}

/// Returns the errors of a text as a qualified name: label keys, annotation keys, finalizers.
#[must_use]
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut parts = text.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(dns_subdomain(prefix).iter().map(|problem| format!("prefix part {problem}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        problems.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !qualified_shape(name) {
        problems.push(format!("name part {QUALIFIED}"));
    }
    problems
}

/// Returns the errors of a text as a label value.
#[must_use]
pub fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    at_most(text, LABEL_MAX, "bytes", &mut problems);
    if !text.is_empty() && !qualified_shape(text) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

/// Returns the field errors of a text, one for each problem.
pub(crate) fn invalid(field: &str, text: &str, problems: Vec<String>) -> impl Iterator<Item = FieldError> {
    problems.into_iter().map(move |problem| FieldError {
        field: field.to_owned(),
        reason: CauseReason::Invalid,
        detail: format!("Invalid value: {}: {problem}", quoted(text)),
    })
}

/// Returns the errors of a text, which may end in a dash, as the `generateName` of an object whose names have this format.
pub(crate) fn prefix(form: impl Fn(&str) -> Vec<String>, text: &str) -> Vec<String> {
    match text.strip_suffix('-').filter(|before| !before.is_empty()) {
        // Upstream also drops the character before the dash.
        Some(before) => form(&format!("{}a", before.strip_suffix(|c: char| c.is_ascii()).unwrap_or(before))),
        None => form(text),
    }
}

/// Returns the errors of a text as an IP address in canonical form.
pub(crate) fn ip_address(text: &str) -> Vec<String> {
    match text.parse::<std::net::IpAddr>() {
        Ok(address) if address.to_string() == text => Vec::new(),
        Ok(address) => vec![format!("must be in canonical form ({})", quoted(&address.to_string()))],
        Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_names() {
        type Form = fn(&str) -> Vec<String>;
        let long = "a".repeat(64);
        let cases: &[(Form, &str, bool)] = &[
            (dns_subdomain, "a", true),
            (dns_subdomain, "a.b-c.d", true),
            (dns_subdomain, "a..b", false),
            (dns_subdomain, "-a", false),
            (dns_subdomain, "A", false),
            (dns_subdomain, "", false),
            (dns_label, "a.b", false),
            (dns_label, &long, false),
            (dns_label_1035, "1a", false),
            (dns_label_1035, "a1", true),
            (path_segment, "system:node", true),
            (path_segment, "a/b", false),
            (path_segment, "..", false),
            (qualified_name, "example.com/My_Name.x", true),
            (qualified_name, "foo bar", false),
            (qualified_name, "/x", false),
            (qualified_name, "a/b/c", false),
            (qualified_name, "Example.com/a", false),
            (qualified_name, &long, false),
            (label_value, "", true),
            (label_value, "a_b", true),
            (label_value, "bad value", false),
            (label_value, &long, false),
            (ip_address, "10.0.0.1", true),
            (ip_address, "10.0.0.256", false),
        ];
        for (form, text, good) in cases {
            assert_eq!(form(text).is_empty(), *good, "{text}: {:?}", form(text));
        }
    }
}
