//! Validating admission policies.

use std::collections::BTreeSet;

use gc_cel::Type;

use super::expressions::{NamedVariables, compiled, expression};
use super::policy;
use crate::kinds::prelude::*;
use crate::kinds::shared::conditions::conditions;
use crate::kinds::shared::names::qualified_name;

const ANNOTATIONS_MAX: usize = 20;
const VALUE_EXPRESSION_MAX_BYTES: usize = 5 * 1024;
const EMPTY: &str = "validations or auditAnnotations must contain at least one item";

pub(crate) struct ValidatingAdmissionPolicy;

impl Kind for ValidatingAdmissionPolicy {
    const PARTS: Parts = Parts::StatusOnly;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata = Metadata {
        refuses_plain_finalizers: false,
        update: &[MetadataCheck::Whole],
        subresources: &[],
        ..Metadata::DEFAULT
    };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::integer(
            "Validations",
            T("Validations indicates the number of validation rules defined in this configuration"),
        ),
        policy::PARAM_KIND,
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        policy::cells(row, "validations")
    }

    fn defaults(members: &mut Members) {
        policy::defaults(members);
    }

    fn warnings(new: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        warnings::static_name(new, texts);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let named = policy::checked(&spec, false, report);
        let (validations, annotations) = (spec.get("validations"), spec.get("auditAnnotations"));
        if validations.list().is_empty() && annotations.list().is_empty() {
            report.required(&validations, EMPTY);
            report.required(&annotations, EMPTY);
            return;
        }
        for item in validations.items() {
            validation(&item, &named, report);
        }
        if annotations.list().len() > ANNOTATIONS_MAX {
            let why = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
            report.invalid(&annotations, &why);
        }
        let mut keys = BTreeSet::new();
        let metadata = object.get("metadata");
        for item in annotations.items() {
            let key = item.get("key");
            let name = format!("{}/{}", metadata.text_of("name"), key.text());
            report.each_of(&key, &name, qualified_name(&name));
            let value = item.get("valueExpression");
            let text = value.text().trim();
            if text.is_empty() {
                report.required(&value, "valueExpression is not specified");
            } else if text.len() > VALUE_EXPRESSION_MAX_BYTES {
                let why = format!("must not exceed {VALUE_EXPRESSION_MAX_BYTES} bytes in length");
                report.required(&value, &why);
            } else if let Err(why) = compiled(text, &named, &[Type::Text, Type::Null]) {
                report.invalid(&value, &why);
            }
            if !keys.insert(key.text()) {
                report.duplicate_text(&key, key.text());
            }
        }
    }

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        let checking = status.get("typeChecking");
        for warning in checking.get("expressionWarnings").items() {
            for member in ["warning", "fieldRef"] {
                if warning.text_of(member).is_empty() {
                    report.required(&warning.get(member), "");
                }
            }
        }
        conditions(&status.get("conditions"), report);
    }
}

fn validation(field: &Field<'_, '_>, named: &NamedVariables, report: &mut Report) {
    let text = field.get("expression");
    if text.text().trim().is_empty() {
        report.required(&text, "expression is not specified");
    } else {
        expression(&text, named, &[Type::Bool], report);
    }
    let message = field.get("messageExpression");
    if !message.text().is_empty() {
        if message.text().trim().is_empty() {
            report.invalid(&message, "must be non-empty if specified");
        } else {
            expression(&message, &named.in_messages(), &[Type::Text], report);
        }
    }
    let message = field.get("message");
    let trimmed = message.text().trim();
    if !message.text().is_empty() && trimmed.is_empty() {
        report.invalid(&message, "must be non-empty if specified");
    } else if trimmed.contains(['\n', '\r']) {
        report.invalid(&message, "must not contain line breaks");
    }
    report.one_of_if_set(&field.get("reason"), &["Forbidden", "Invalid", "RequestEntityTooLarge"]);
}
