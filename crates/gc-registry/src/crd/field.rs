//! Field errors in the wording of Kubernetes.

use serde_json::Value;

use crate::error::{CauseReason, FieldError};
use crate::metadata::numbers;

/// Formats an invalid value as Kubernetes does: strings quoted, scalars plain, everything else as JSON.
pub(super) fn printed(value: &Value) -> String {
    match value {
        Value::Number(number) => printed_number(number),
        Value::Null => "\"null\"".to_owned(),
        other => other.to_string(),
    }
}

fn printed_number(number: &serde_json::Number) -> String {
    match number.as_f64() {
        // Go reads numbers outside the signed 64-bit range as floats.
        Some(float) if !number.is_i64() => numbers::go_float(float),
        _ => number.to_string(),
    }
}

pub(super) fn error(field: impl Into<String>, reason: CauseReason, detail: String) -> FieldError {
    FieldError { field: field.into(), reason, detail }
}

pub(super) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> FieldError {
    error(field, CauseReason::Invalid, format!("Invalid value: {}: {why}", printed(value)))
}

pub(super) fn invalid_text(field: impl Into<String>, text: &str, why: &str) -> FieldError {
    invalid(field, &Value::from(text), why)
}

pub(super) fn required(field: impl Into<String>, why: &str) -> FieldError {
    let detail = if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
    error(field, CauseReason::Required, detail)
}

pub(super) fn forbidden(field: impl Into<String>, why: &str) -> FieldError {
    error(field, CauseReason::Forbidden, format!("Forbidden: {why}"))
}

pub(super) fn duplicate(field: impl Into<String>, value: &Value) -> FieldError {
    error(field, CauseReason::Duplicate, format!("Duplicate value: {}", printed(value)))
}

pub(super) fn not_supported(field: impl Into<String>, value: &Value, supported: &[String]) -> FieldError {
    let quoted: Vec<String> = supported.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
    let shown = if value.is_null() { "null".to_owned() } else { printed(value) };
    error(
        field,
        CauseReason::NotSupported,
        format!("Unsupported value: {shown}: supported values: {}", quoted.join(", ")),
    )
}

pub(super) fn too_many(field: impl Into<String>, actual: usize, limit: u64) -> FieldError {
    let items = if limit == 1 { "item" } else { "items" };
    error(field, CauseReason::TooMany, format!("Too many: {actual}: must have at most {limit} {items}"))
}

pub(super) fn too_long(field: impl Into<String>, limit: u64) -> FieldError {
    let bytes = if limit == 1 { "byte" } else { "bytes" };
    error(field, CauseReason::TooLong, format!("Too long: may not be more than {limit} {bytes}"))
}

/// Returns `path.name`, or only the name at the root.
pub(super) fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns the errors of a name that must be a DNS label starting with a letter (RFC 1035); empty if none.
pub(super) fn label_problems(name: &str) -> String {
    const LONGEST: usize = 63;
    let mut problems = Vec::new();
    if name.len() > LONGEST {
        problems.push(format!("must be no more than {LONGEST} characters"));
    }
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ok = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
        && name.bytes().all(inner)
        && !name.ends_with('-');
    if !ok {
        problems.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
             alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
             regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    problems.join(",")
}

/// Returns the errors of a name that must be a DNS subdomain (RFC 1123); empty if none.
pub(super) fn subdomain_problems(name: &str) -> String {
    const LONGEST: usize = 253;
    let mut problems = Vec::new();
    if name.len() > LONGEST {
        problems.push(format!("must be no more than {LONGEST} characters"));
    }
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(|b| alphanumeric(*b))
            && bytes.last().is_some_and(|b| alphanumeric(*b))
            && bytes.iter().all(|b| alphanumeric(*b) || *b == b'-')
    };
    if !name.split('.').all(label) {
        problems.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
             validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    problems.join(",")
}
