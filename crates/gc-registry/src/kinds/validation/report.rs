//! Collects the problems of one object, in kube-apiserver's words.

use serde_json::Value;

use crate::error::{CauseReason, FieldError};
use crate::kinds::access::at;
use crate::kinds::quantity;

/// Most problems that are reported of one object: more help nobody, and a client chooses how many there are.
const MOST: usize = 100;

/// The problems found so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) errors: Vec<FieldError>,
}

/// A value as an error message shows it: texts quoted, everything else as JSON.
fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "null".into(), Value::to_string)
}

impl Report {
    fn push(&mut self, field: &str, reason: CauseReason, detail: String) {
        if self.errors.len() < MOST {
            self.errors.push(FieldError { field: field.into(), reason, detail });
        }
    }

    pub(super) fn invalid(&mut self, field: &str, value: Option<&Value>, why: &str) {
        self.push(field, CauseReason::Invalid, format!("Invalid value: {}: {why}", shown(value)));
    }

    pub(super) fn invalid_text(&mut self, field: &str, value: &str, why: &str) {
        self.push(field, CauseReason::Invalid, format!("Invalid value: {value:?}: {why}"));
    }

    pub(super) fn required(&mut self, field: &str, why: &str) {
        let detail = if why.is_empty() { "Required value".into() } else { format!("Required value: {why}") };
        self.push(field, CauseReason::Required, detail);
    }

    pub(super) fn forbidden(&mut self, field: &str, why: &str) {
        self.push(field, CauseReason::Forbidden, format!("Forbidden: {why}"));
    }

    pub(super) fn duplicate(&mut self, field: &str, value: &Value) {
        self.push(field, CauseReason::Duplicate, format!("Duplicate value: {value}"));
    }

    pub(super) fn not_found(&mut self, field: &str, value: &str) {
        self.push(field, CauseReason::NotFound, format!("Not found: {value:?}"));
    }

    pub(super) fn too_long(&mut self, field: &str, most: usize) {
        self.push(field, CauseReason::TooLong, format!("Too long: may not be more than {most} bytes"));
    }

    pub(super) fn too_many(&mut self, field: &str, have: usize, most: usize) {
        self.push(field, CauseReason::TooMany, format!("Too many: {have}: must have at most {most} items"));
    }

    pub(super) fn not_supported(&mut self, field: &str, value: Option<&Value>, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|text| format!("{text:?}")).collect();
        self.push(
            field,
            CauseReason::NotSupported,
            format!("Unsupported value: {}: supported values: {}", shown(value), supported.join(", ")),
        );
    }

    /// A text must be one of a set; an absent or empty one is required.
    pub(super) fn one_of(&mut self, field: &str, value: Option<&Value>, supported: &[&str]) {
        match value.and_then(Value::as_str) {
            None | Some("") => self.required(field, ""),
            Some(text) if !supported.contains(&text) => self.not_supported(field, value, supported),
            Some(_) => {}
        }
    }

    /// A text may be absent, but must be one of a set if it is there.
    pub(super) fn one_of_if_set(&mut self, field: &str, value: Option<&Value>, supported: &[&str]) {
        if let Some(text) = value.and_then(Value::as_str)
            && !text.is_empty()
            && !supported.contains(&text)
        {
            self.not_supported(field, value, supported);
        }
    }

    /// Each problem that a check of a text returns.
    pub(super) fn each(&mut self, field: &str, value: &str, problems: Vec<String>) {
        for problem in problems {
            self.invalid_text(field, value, &problem);
        }
    }

    /// An integer may be absent, but not negative.
    pub(super) fn not_negative(&mut self, object: &Value, path: &[&str], field: &str) {
        let value = at(object, path);
        if value.and_then(Value::as_i64).is_some_and(|number| number < 0) {
            self.invalid(field, value, "must be greater than or equal to 0");
        }
    }

    /// An integer may be absent, but must be more than 0 if it is there.
    pub(super) fn positive(&mut self, object: &Value, path: &[&str], field: &str) {
        let value = at(object, path);
        if value.and_then(Value::as_i64).is_some_and(|number| number <= 0) {
            self.invalid(field, value, "must be greater than 0");
        }
    }

    /// Quantities by resource name: each must be one, and not negative.
    pub(super) fn quantities(&mut self, quantities: Option<&Value>, field: &str) {
        for (name, value) in quantities.and_then(Value::as_object).into_iter().flatten() {
            let field = format!("{field}[{name}]");
            match quantity::of(value) {
                Some(Ok(quantity)) if quantity.is_negative() => {
                    self.invalid(&field, Some(value), "must be greater than or equal to 0");
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => self.invalid(&field, Some(value), &error.to_string()),
                None => self.invalid(&field, Some(value), "must be a quantity"),
            }
        }
    }

    /// A field that an update may not change.
    pub(super) fn immutable(&mut self, new: &Value, old: &Value, path: &[&str]) {
        if at(new, path) != at(old, path) {
            self.invalid(&path.join("."), at(new, path), "field is immutable");
        }
    }
}
