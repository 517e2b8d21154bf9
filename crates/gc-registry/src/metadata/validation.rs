//! Metadata rules of every object, regardless of kind.

use serde_json::Value;

use crate::error::{CauseReason, FieldError};
use crate::kubernetes::KubernetesVersion;
use crate::metadata::meta;
use crate::metadata::names::{self, invalid, quoted};

/// Maximum total size of annotation keys and values, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;
/// Maximum length of a subresource's name in managedFields, in bytes.
const SUBRESOURCE_MAX: usize = 256;
/// Finalizers that need no domain.
pub(crate) const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

pub(crate) fn error(field: &str, reason: CauseReason, detail: String) -> FieldError {
    FieldError { field: field.to_owned(), reason, detail }
}

/// Validates the metadata of a resource embedded in another one, whose name is not checked.
pub(crate) fn validate_embedded(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_whole(object, &mut errors);
    errors
}

/// Validates an object as a whole.
pub(crate) fn validate_whole(object: &Value, errors: &mut Vec<FieldError>) {
    validate_described(object, errors);
    validate_finalizers(object, errors);
    validate_managed_fields(object, errors);
}

/// Validates a change.
pub(crate) fn validate_change(object: &Value, errors: &mut Vec<FieldError>) {
    validate_described(object, errors);
    validate_managed_fields(object, errors);
}

fn validate_described(object: &Value, errors: &mut Vec<FieldError>) {
    validate_labels(object, errors);
    validate_annotations(object, errors);
    validate_owner_references(object, errors);
}

fn validate_labels(object: &Value, errors: &mut Vec<FieldError>) {
    for (key, value) in meta::metadata(object).get("labels").and_then(Value::as_object).into_iter().flatten()
    {
        errors.extend(invalid("metadata.labels", key, names::qualified_name(key)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(invalid("metadata.labels", value, names::label_value(value)));
    }
}

fn validate_annotations(object: &Value, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in
        meta::metadata(object).get("annotations").and_then(Value::as_object).into_iter().flatten()
    {
        // The prefix of an annotation's key may contain upper-case letters.
        errors.extend(invalid("metadata.annotations", key, names::qualified_name(&key.to_ascii_lowercase())));
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_MAX {
        errors.push(error(
            "metadata.annotations",
            CauseReason::TooLong,
            format!("Too long: may not be more than {ANNOTATIONS_MAX} bytes"),
        ));
    }
}

/// Validates owner references (spec 10.1).
fn validate_owner_references(object: &Value, errors: &mut Vec<FieldError>) {
    let is_indexed = KubernetesVersion::chosen() >= KubernetesVersion::V1_37;
    let mut controller: Option<String> = None;
    for (index, reference) in meta::owner_references(object).iter().enumerate() {
        let field = |name: &str| reference.get(name).and_then(Value::as_str).unwrap_or_default();
        let place = if is_indexed {
            format!("metadata.ownerReferences[{index}]")
        } else {
            "metadata.ownerReferences".to_owned()
        };
        let api_version = field("apiVersion");
        if is_indexed {
            validate_reference(&place, api_version, field, errors);
        } else {
            validate_reference_1_36(&place, api_version, field, errors);
        }
        if api_version == "v1" && field("kind") == "Event" {
            let detail =
                format!("Invalid value: {reference}: /v1, Kind=Event is disallowed from being an owner");
            errors.push(error(&place, CauseReason::Invalid, detail));
        }
        if reference.get("controller") == Some(&Value::Bool(true)) {
            let owner = format!("{}/{}", field("kind"), field("name"));
            match &controller {
                None => controller = Some(owner),
                Some(first) => errors.push(error(
                    "metadata.ownerReferences",
                    CauseReason::Invalid,
                    format!(
                        "Invalid value: {}: Only one reference can have Controller set to true. Found \"true\" in \
                         references for {first} and {owner}",
                        go_references(object),
                    ),
                )),
            }
        }
    }
}

/// The group version of an owner has a version and at most one slash, and nothing of the reference is empty.
fn validate_reference<'r>(
    place: &str,
    api_version: &str,
    field: impl Fn(&str) -> &'r str,
    errors: &mut Vec<FieldError>,
) {
    let version = owner_version(api_version);
    if !api_version.is_empty() && version.is_empty() {
        let detail =
            format!("Invalid value: {}: must be <group>/<version> or <version>", quoted(api_version));
        errors.push(error(&format!("{place}.apiVersion"), CauseReason::Invalid, detail));
    }
    for name in ["apiVersion", "kind", "name", "uid"] {
        if field(name).is_empty() {
            let detail = "Required value: must not be empty".to_owned();
            errors.push(error(&format!("{place}.{name}"), CauseReason::Required, detail));
        }
    }
}

/// The same in the words of 1.36, which does not say which reference it is.
fn validate_reference_1_36<'r>(
    place: &str,
    api_version: &str,
    field: impl Fn(&str) -> &'r str,
    errors: &mut Vec<FieldError>,
) {
    if owner_version(api_version).is_empty() {
        let detail = format!("Invalid value: {}: version must not be empty", quoted(api_version));
        errors.push(error(&format!("{place}.apiVersion"), CauseReason::Invalid, detail));
    }
    for name in ["kind", "name", "uid"] {
        if field(name).is_empty() {
            let detail = "Invalid value: \"\": must not be empty".to_owned();
            errors.push(error(&format!("{place}.{name}"), CauseReason::Invalid, detail));
        }
    }
}

/// The version in a group version; empty if it has none, or is none.
fn owner_version(api_version: &str) -> &str {
    let mut parts = api_version.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(version), None, _) | (_, Some(version), None) => version,
        _ => "",
    }
}

/// The owner references as Go prints them: members in the order of their declaration.
fn go_references(object: &Value) -> String {
    let member = |reference: &Value, name: &str| {
        let value = reference.get(name).filter(|value| !value.is_null())?;
        Some(format!("{}:{value}", quoted(name)))
    };
    let printed = |reference: &Value| {
        let names = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
        let members: Vec<String> = names.iter().filter_map(|name| member(reference, name)).collect();
        format!("{{{}}}", members.join(","))
    };
    let all: Vec<String> = meta::owner_references(object).iter().map(printed).collect();
    format!("[{}]", all.join(","))
}

/// Validates finalizers (spec 10.3).
fn validate_finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    let finalizers = meta::finalizers(object);
    for finalizer in &finalizers {
        errors.extend(invalid("metadata.finalizers", finalizer, names::qualified_name(finalizer)));
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        errors.push(error(
            "metadata.finalizers",
            CauseReason::Invalid,
            format!(
                "Invalid value: {}: finalizer orphan and foregroundDeletion cannot be both set",
                Value::from(finalizers.clone())
            ),
        ));
    }
}

/// Refuses finalizers without a domain, which are reserved for Kubernetes itself.
pub(crate) fn validate_known_finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    for (index, finalizer) in meta::finalizers(object).iter().enumerate() {
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer) {
            errors.push(error(
                &format!("metadata.finalizers[{index}]"),
                CauseReason::Invalid,
                format!(
                    "Invalid value: {}: name is neither a standard finalizer name nor is it fully qualified",
                    quoted(finalizer)
                ),
            ));
        }
    }
}

/// Refuses names of managers and subresources that are too long; after any other error, the server has kept its own list.
fn validate_managed_fields(object: &Value, errors: &mut Vec<FieldError>) {
    let entries = meta::metadata(object).get("managedFields").and_then(Value::as_array);
    for (index, entry) in entries.into_iter().flatten().enumerate() {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        for (reason, detail) in names::field_manager(text("manager")) {
            errors.push(error(&format!("metadata.managedFields[{index}].manager"), reason, detail));
        }
        if text("subresource").len() > SUBRESOURCE_MAX {
            errors.push(error(
                &format!("metadata.managedFields[{index}].subresource"),
                CauseReason::TooLong,
                format!("Too long: may not be more than {SUBRESOURCE_MAX} bytes"),
            ));
        }
    }
}
