//! Collects the errors of one object, in kube-apiserver's wording.

use std::fmt::Display;

use jiff::Timestamp;
use serde_json::Value;

use super::field::Field;
use super::shared::names::parse_ip;
use crate::error::{CauseReason, FieldError};
pub(crate) use crate::metadata::names::quoted;
use crate::schema::{definition_name, shown};

/// Maximum number of errors reported for one object; otherwise, a client could cause any number.
const PROBLEMS_MAX: usize = 100;

pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(crate) const POSITIVE: &str = "must be greater than 0";
pub(crate) const IMMUTABLE: &str = "field is immutable";

/// Errors found so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) errors: Vec<FieldError>,
    /// Type of the object, whose fields determine how values are formatted.
    kind: Option<String>,
    /// Time of the request, for rules that depend on it.
    pub(crate) now: Option<Timestamp>,
}

impl Report {
    /// Creates a report for an object of a built-in kind.
    pub(crate) fn of(object: &Value) -> Self {
        let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        Self { errors: Vec::new(), kind: Some(definition_name(group, version, text("kind"))), now: None }
    }

    /// The definition of the object, if it is of a built-in kind.
    pub(crate) fn definition(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    /// A value as an error message shows it: texts quoted, everything else as the field's type prints it.
    pub(crate) fn shown(&self, field: &Field<'_, '_>) -> String {
        let typed = match field.value() {
            Value::String(text) => return quoted(text),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                self.kind.as_deref().and_then(|kind| shown::at(kind, &field.steps(), field.value()))
            }
            Value::Bool(_) | Value::Number(_) => None,
        };
        typed.map_or_else(|| field.value().to_string(), |shown| shown.compact())
    }

    pub(crate) fn push(&mut self, field: &Field<'_, '_>, reason: CauseReason, detail: String) {
        if self.errors.len() < PROBLEMS_MAX {
            self.errors.push(FieldError { field: field.path(), reason, detail });
        }
    }

    /// Reports an invalid value, with the value of the field.
    pub(crate) fn invalid(&mut self, field: &Field<'_, '_>, why: &str) {
        self.invalid_shown(field, &self.shown(field), why);
    }

    /// Reports an invalid value, with a text.
    pub(crate) fn invalid_text(&mut self, field: &Field<'_, '_>, text: &str, why: &str) {
        self.invalid_shown(field, &quoted(text), why);
    }

    /// Reports an invalid value, with the number of the field, 0 if it is absent.
    pub(crate) fn invalid_number(&mut self, field: &Field<'_, '_>, why: &str) {
        self.invalid_shown(field, &field.number(), why);
    }

    /// Reports an invalid value, with the given representation.
    pub(crate) fn invalid_shown(&mut self, field: &Field<'_, '_>, shown: &impl Display, why: &str) {
        self.push(field, CauseReason::Invalid, format!("Invalid value: {shown}: {why}"));
    }

    /// Reports an invalid value, with the value of the field and no reason.
    pub(crate) fn invalid_without_detail(&mut self, field: &Field<'_, '_>) {
        let detail = format!("Invalid value: {}", self.shown(field));
        self.push(field, CauseReason::Invalid, detail);
    }

    /// Reports an invalid value without showing it.
    pub(crate) fn invalid_without_value(&mut self, field: &Field<'_, '_>, why: &str) {
        self.push(field, CauseReason::Invalid, format!("Invalid value: {why}"));
    }

    /// Reports that upstream could not determine whether addresses have two families, because one of them is invalid.
    pub(crate) fn undetermined_families(&mut self, field: &Field<'_, '_>, addresses: &[&str]) {
        let bad = addresses.iter().enumerate().find(|(_, text)| parse_ip(text).is_none());
        if let Some((index, text)) = bad {
            let why = format!("failed to check for dual stack with error:invalid IP[{index}]: {text}");
            self.push(field, CauseReason::Internal, format!("Internal error: {why}"));
        }
    }

    pub(crate) fn required(&mut self, field: &Field<'_, '_>, why: &str) {
        let detail = if why.is_empty() { "Required value".into() } else { format!("Required value: {why}") };
        self.push(field, CauseReason::Required, detail);
    }

    pub(crate) fn forbidden(&mut self, field: &Field<'_, '_>, why: &str) {
        let detail = if why.is_empty() { "Forbidden".into() } else { format!("Forbidden: {why}") };
        self.push(field, CauseReason::Forbidden, detail);
    }

    /// Reports a duplicate, with the value of the field.
    pub(crate) fn duplicate(&mut self, field: &Field<'_, '_>) {
        self.duplicate_shown(field, &self.shown(field));
    }

    pub(crate) fn duplicate_text(&mut self, field: &Field<'_, '_>, text: &str) {
        self.duplicate_shown(field, &quoted(text));
    }

    pub(crate) fn duplicate_shown(&mut self, field: &Field<'_, '_>, shown: &impl Display) {
        self.push(field, CauseReason::Duplicate, format!("Duplicate value: {shown}"));
    }

    pub(crate) fn not_found(&mut self, field: &Field<'_, '_>, text: &str) {
        self.push(field, CauseReason::NotFound, format!("Not found: {}", quoted(text)));
    }

    pub(crate) fn too_long(&mut self, field: &Field<'_, '_>, max_bytes: usize) {
        self.push(field, CauseReason::TooLong, format!("Too long: may not be more than {max_bytes} bytes"));
    }

    pub(crate) fn too_many(&mut self, field: &Field<'_, '_>, count: usize, max: usize) {
        self.push(field, CauseReason::TooMany, format!("Too many: {count}: must have at most {max} items"));
    }

    /// Reports an unsupported value, with the text of the field.
    pub(crate) fn not_supported(&mut self, field: &Field<'_, '_>, supported: &[&str]) {
        self.not_supported_shown(field, &quoted(field.text()), supported);
    }

    /// Reports an unsupported value, with the value of the field.
    pub(crate) fn not_supported_value(&mut self, field: &Field<'_, '_>, supported: &[&str]) {
        self.not_supported_shown(field, &self.shown(field), supported);
    }

    pub(crate) fn not_supported_shown(
        &mut self,
        field: &Field<'_, '_>,
        shown: &impl Display,
        supported: &[&str],
    ) {
        let supported: Vec<String> = supported.iter().map(|text| quoted(text)).collect();
        self.push(
            field,
            CauseReason::NotSupported,
            format!("Unsupported value: {shown}: supported values: {}", supported.join(", ")),
        );
    }

    /// Checks that a text is one of a set, and not absent or empty.
    pub(crate) fn one_of(&mut self, field: &Field<'_, '_>, supported: &[&str]) {
        match field.text() {
            "" => self.required(field, ""),
            text if !supported.contains(&text) => self.not_supported(field, supported),
            _ => {}
        }
    }

    /// Checks that a text, if set, is one of a set (a pointer upstream: the empty text counts).
    pub(crate) fn one_of_if_set(&mut self, field: &Field<'_, '_>, supported: &[&str]) {
        if field.is_set() && !supported.contains(&field.text()) {
            self.not_supported(field, supported);
        }
    }

    /// Reports each error that a check of the field's text returns.
    pub(crate) fn each(&mut self, field: &Field<'_, '_>, problems: impl IntoIterator<Item = String>) {
        for problem in problems {
            self.invalid_text(field, field.text(), &problem);
        }
    }

    /// Reports each error that a check of `text` returns.
    pub(crate) fn each_of(
        &mut self,
        field: &Field<'_, '_>,
        text: &str,
        problems: impl IntoIterator<Item = String>,
    ) {
        for problem in problems {
            self.invalid_text(field, text, &problem);
        }
    }

    /// Checks that an integer, if present, is not negative.
    pub(crate) fn not_negative(&mut self, field: &Field<'_, '_>) {
        if field.number() < 0 {
            self.invalid(field, NOT_NEGATIVE);
        }
    }

    /// Checks that an integer, if present, is greater than 0.
    pub(crate) fn positive(&mut self, field: &Field<'_, '_>) {
        if field.integer().is_some_and(|number| number <= 0) {
            self.invalid(field, POSITIVE);
        }
    }

    /// Checks that an update does not change a field.
    pub(crate) fn immutable(&mut self, new: &Field<'_, '_>, old: &Field<'_, '_>) {
        if new.value() != old.value() {
            self.invalid(new, IMMUTABLE);
        }
    }

    /// Checks like [`Report::immutable`], for a text that is not a pointer: absence means the empty text.
    pub(crate) fn immutable_text(&mut self, new: &Field<'_, '_>, old: &Field<'_, '_>) {
        if new.text() != old.text() {
            self.invalid_text(new, new.text(), IMMUTABLE);
        }
    }
}
