//! The options of a request, as admission shows them.

use serde_json::{Value, json};

use super::Operation;
use crate::api::{FieldValidation, WriteOptions};
use crate::deletion::Deletion;

/// The options that a request was sent with.
#[derive(Clone, Copy)]
pub(crate) enum Options<'a> {
    Write(&'a WriteOptions),
    Delete(&'a Deletion),
    /// A connection has none.
    None,
}

impl Options<'_> {
    pub(crate) fn is_dry_run(&self) -> bool {
        match self {
            Self::Write(options) => options.dry_run,
            Self::Delete(deletion) => deletion.dry_run,
            Self::None => false,
        }
    }

    /// `request.options`: what was given, under the kind that the operation has for it.
    pub(crate) fn shown(&self, operation: Operation) -> Value {
        let kind = match operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return Value::Null,
        };
        let mut shown = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if self.is_dry_run() {
            shown["dryRun"] = json!(["All"]);
        }
        match self {
            Self::Write(options) => show_write(&mut shown, options),
            Self::Delete(deletion) => show_deletion(&mut shown, deletion),
            Self::None => {}
        }
        shown
    }
}

fn show_write(shown: &mut Value, options: &WriteOptions) {
    if !options.field_manager.is_empty() {
        shown["fieldManager"] = options.field_manager.as_str().into();
    }
    if let Some(validation) = options.field_validation {
        shown["fieldValidation"] = match validation {
            FieldValidation::Ignore => "Ignore",
            FieldValidation::Warn => "Warn",
            FieldValidation::Strict => "Strict",
        }
        .into();
    }
}

fn show_deletion(shown: &mut Value, deletion: &Deletion) {
    if let Some(seconds) = deletion.grace {
        shown["gracePeriodSeconds"] = seconds.into();
    }
    let preconditions = [("uid", &deletion.uid), ("resourceVersion", &deletion.resource_version)];
    for (field, wanted) in preconditions {
        if let Some(wanted) = wanted {
            shown["preconditions"][field] = wanted.as_str().into();
        }
    }
    if let Some(orphan) = deletion.orphan_dependents {
        shown["orphanDependents"] = orphan.into();
    }
    if let Some(policy) = deletion.policy {
        shown["propagationPolicy"] = policy.name().into();
    }
}
