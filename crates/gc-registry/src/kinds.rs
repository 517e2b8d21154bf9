//! Everything that depends on a built-in kind: defaults, fields that a create or an update may change, validation, warnings, field
//! selectors, scale, conversion between versions, and table cells.
//!
//! All functions are total: they handle objects of any shape without a panic, and leave unknown ones (custom resources, kinds
//! without rules) unchanged.

pub(crate) mod access;
mod admissionregistration;
mod apiregistration;
mod apps;
mod authorization;
mod autoscaling;
mod batch;
mod certificates;
mod context;
pub mod convert;
mod coordination;
mod core;
mod declarative;
mod defaults;
mod discovery;
mod field;
mod fields;
mod flowcontrol;
mod kind;
mod metadata;
mod networking;
mod node;
mod pem;
mod policy;
mod prelude;
mod prepare;
pub mod printers;
mod rbac;
mod report;
mod resource;
pub mod scale;
mod scheduling;
mod served;
pub(crate) mod shared;
mod storage;
mod storagemigration;
mod tables;
pub mod x509;

use serde_json::Value;

pub(crate) use self::core::{quality_of_service, settle_families};
use self::field::Field;
use self::report::Report;
use crate::error::FieldError;
use crate::target::Target;
pub(crate) use admissionregistration::expressions;
pub use authorization::{ignored_selectors, review_errors};
pub use context::Context;
pub(crate) use declarative::take_over;
pub use defaults::apply_defaults;
pub(crate) use fields::unknown_field_label;
pub use fields::{selectable_field_names, selectable_fields};
pub(crate) use kind::means_the_same;
pub(crate) use metadata::{Metadata, MetadataCheck, RequiredName};
pub use prepare::{prepare_for_create, prepare_for_update};
pub use printers::{Column, human_duration};
pub use tables::{cells, columns, row_conditions};

/// Returns the rules for the metadata of a resource's objects.
pub(crate) fn metadata(target: Target<'_>) -> Metadata {
    served::of(target).map_or(Metadata::DEFAULT, |kind| kind.metadata)
}

/// Returns the path of the pod template in objects of a resource; empty for pods.
pub(crate) fn pods(target: Target<'_>) -> Option<&'static [&'static str]> {
    served::of(target)?.pods
}

/// Returns the name under which kube-apiserver stores the objects of a resource, if it is not the resource's name.
pub(crate) fn folder(target: Target<'_>) -> Option<&'static str> {
    served::of(target)?.folder
}

/// Checks an object that is about to be created, after defaulting and preparation.
#[must_use]
pub fn validate(target: Target<'_>, object: &Value) -> Vec<FieldError> {
    let mut report = Report::of(object);
    if let Some(kind) = served::of(target) {
        (kind.validate)(&Field::root(object), &mut report);
    }
    report.errors
}

/// Reports whether a label selector matches these labels; `null` matches none.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    shared::labels::selects(selector, labels)
}

/// Reports whether a label selector matches everything.
pub(crate) fn selects_everything(selector: &Value) -> bool {
    shared::labels::is_empty(selector)
}

/// Checks the client configuration of a definition's conversion webhook.
pub(crate) fn webhook_client_problems(client: &Value) -> Vec<FieldError> {
    let mut report = Report::default();
    let (root, nothing) = (Field::root(client), Value::Null);
    let (spec, conversion) = (root.named("spec", &nothing), "conversion");
    let conversion = spec.named(conversion, &nothing);
    let client = conversion.named("webhookClientConfig", client);
    admissionregistration::webhook_client::client_config(&client, &mut report);
    report.errors
}

/// Checks a prepared update against the stored object. Without a time, rules that depend on it are skipped.
#[must_use]
pub fn validate_update(
    target: Target<'_>,
    new: &Value,
    old: &Value,
    now: Option<jiff::Timestamp>,
) -> Vec<FieldError> {
    let mut report = Report::of(new);
    report.now = now;
    if let Some(kind) = served::of(target) {
        let (new, old) = (Field::root(new), Field::root(old));
        match target.subresource {
            None => (kind.validate_update)(&new, &old, &mut report),
            Some("status") => (kind.validate_status)(&new, &old, &mut report),
            Some(subresource) => (kind.validate_subresource)(subresource, &new, &old, &mut report),
        }
    }
    report.errors
}

/// Returns the texts of Warning headers for creating (`old` is `None`) or updating an object.
#[must_use]
pub fn warnings(target: Target<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut texts = Vec::new();
    if let (Some(kind), None) = (served::of(target), target.subresource) {
        (kind.warnings)(new, old, &mut texts);
    }
    texts
}
