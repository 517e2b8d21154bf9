//! Options of a request, as admission sees them.

use serde_json::{Map, Value, json};

use super::Operation;
use crate::api::{FieldValidation, WriteOptions};

/// Options that a request was sent with.
#[derive(Clone, Copy)]
pub(crate) enum Options<'a> {
    Write(&'a WriteOptions),
    /// Options of a deletion, and whether it is a dry run.
    Delete(&'a Map<String, Value>, bool),
    /// A connection has no options.
    None,
}

impl Options<'_> {
    pub(crate) fn is_dry_run(&self) -> bool {
        match self {
            Self::Write(options) => options.dry_run,
            Self::Delete(_, dry_run) => *dry_run,
            Self::None => false,
        }
    }

    /// Returns `request.options`: the given options, under the kind that belongs to the operation.
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
            Self::Delete(given, _) => {
                shown.as_object_mut().into_iter().for_each(|shown| shown.extend((*given).clone()));
            }
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
