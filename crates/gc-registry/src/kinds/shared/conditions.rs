//! Validation of `metav1.Condition`.

use std::collections::BTreeSet;

use super::names::qualified_name;
use crate::kinds::prelude::*;
use crate::kubernetes::KubernetesVersion;

pub(crate) const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

const REASON_MAX_BYTES: usize = 1024;
const MESSAGE_MAX_BYTES: usize = 32 * 1024;
const NOT_A_REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
    alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  \
    or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
    '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// Validates a list of conditions with unique types.
pub(crate) fn conditions(field: &Field<'_, '_>, report: &mut Report) {
    let mut types = BTreeSet::new();
    for item in field.items() {
        if !types.insert(item.text_of("type")) {
            let place = if names_whole_conditions() { item } else { item.get("type") };
            report.duplicate_text(&place, item.text_of("type"));
        }
        condition(&item, report);
    }
}

/// Validates a condition.
pub(crate) fn condition(field: &Field<'_, '_>, report: &mut Report) {
    let (kind, status) = (field.get("type"), field.get("status"));
    if names_whole_conditions() && kind.text().is_empty() {
        report.required(&kind, "is required");
    } else {
        report.each_of(&kind, kind.text(), qualified_name(kind.text()));
    }
    if names_whole_conditions() && status.text().is_empty() {
        report.required(&status, "");
    } else if !STATUSES.contains(&status.text()) {
        report.not_supported(&status, &STATUSES);
    }
    if field.number_of("observedGeneration") < 0 {
        report.invalid(&field.get("observedGeneration"), "must be greater than or equal to zero");
    }
    if !field.has("lastTransitionTime") {
        report.required(&field.get("lastTransitionTime"), "");
    }
    let reason = field.get("reason");
    if reason.text().is_empty() {
        report.required(&reason, "");
    } else {
        if !is_reason(reason.text()) {
            report.invalid(&reason, NOT_A_REASON);
        }
        if reason.text().len() > REASON_MAX_BYTES {
            report.too_long(&reason, REASON_MAX_BYTES);
        }
    }
    if field.text_of("message").len() > MESSAGE_MAX_BYTES {
        report.too_long(&field.get("message"), MESSAGE_MAX_BYTES);
    }
}

/// Reports whether a condition of a type that is there already is wrong as a whole, and an empty type or status is a missing
/// one.
fn names_whole_conditions() -> bool {
    KubernetesVersion::chosen() >= KubernetesVersion::V1_37
}

fn is_reason(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|b| word(*b))
        && bytes.iter().all(|b| word(*b) || matches!(b, b',' | b':'))
}
