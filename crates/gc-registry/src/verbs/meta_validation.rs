//! Validation of metadata (spec `api-deletion.md`, sections 6 and 10), the same for every kind.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::{CauseReason, FieldError};
use crate::kinds::{self, Metadata, MetadataCheck, RequiredName};
use crate::kubernetes::KubernetesVersion;
use crate::metadata::meta;
use crate::metadata::names::{self, invalid, quoted};
use crate::metadata::validation::{
    STANDARD_FINALIZERS, error, validate_change, validate_known_finalizers, validate_whole,
};
use crate::resource::ResourceDefinition;

/// Validates the metadata of a new object of a kind whose own validation begins with it.
pub(crate) fn validate(resource: &ResourceDefinition, object: &Value) -> Vec<FieldError> {
    if metadata_rules(resource).is_checked_last { Vec::new() } else { every_rule(resource, object) }
}

/// Runs the generic checks of kube-apiserver that follow when everything else about a new object is valid.
pub(crate) fn validate_last(resource: &ResourceDefinition, object: &Value) -> Vec<FieldError> {
    if metadata_rules(resource).is_checked_last {
        return every_rule(resource, object);
    }
    let prefix = meta::text(object, "generateName");
    if prefix.is_empty() || metadata_rules(resource).checks_prefixes {
        return Vec::new();
    }
    invalid("metadata.generateName", prefix, names::path_segment(prefix)).collect()
}

/// Returns the metadata rules of a resource's kind.
fn metadata_rules(resource: &ResourceDefinition) -> Metadata {
    if resource.custom.is_some() || resource.is_of_definitions() {
        return Metadata::CUSTOM;
    }
    kinds::metadata(resource.target())
}

fn every_rule(resource: &ResourceDefinition, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_names(resource, object, &mut errors);
    let namespace = meta::text(object, "namespace");
    if resource.namespaced() {
        if namespace.is_empty() {
            errors.push(error("metadata.namespace", CauseReason::Required, "Required value".into()));
        } else {
            errors.extend(invalid("metadata.namespace", namespace, names::dns_label(namespace)));
        }
    } else if !namespace.is_empty() {
        errors.push(error(
            "metadata.namespace",
            CauseReason::Forbidden,
            "Forbidden: not allowed on this type".into(),
        ));
    }
    validate_generation(object, &mut errors);
    validate_whole(object, &mut errors);
    if metadata_rules(resource).refuses_plain_finalizers {
        validate_known_finalizers(object, &mut errors);
    }
    errors
}

fn validate_generation(object: &Value, errors: &mut Vec<FieldError>) {
    if meta::generation(object) < 0 {
        errors.push(error(
            "metadata.generation",
            CauseReason::Invalid,
            format!("Invalid value: {}: must be greater than or equal to 0", meta::generation(object)),
        ));
    }
}

/// Validates the name of an object, and the prefix that it was generated from, by the rules of its kind.
fn validate_names(resource: &ResourceDefinition, object: &Value, errors: &mut Vec<FieldError>) {
    let rules = metadata_rules(resource);
    let required_name =
        if resource.is_of_definitions() { Some(plural_and_group as _) } else { rules.required_name };
    let required = required_name.map(|required: fn(&Value) -> RequiredName| required(object));
    let with_required = |text: &str, mut problems: Vec<String>| {
        if let Some(RequiredName { name, why, alone }) = &required
            && text != name
            && (!*alone || problems.is_empty())
        {
            problems.push(why.clone());
        }
        problems
    };
    let form = |text: &str| rules.name_of.map_or_else(|| (rules.name)(text), |form| form(text, object));
    let prefix = meta::text(object, "generateName");
    if !prefix.is_empty() && rules.checks_prefixes {
        let problems = with_required(prefix, names::prefix(form, prefix));
        errors.extend(invalid("metadata.generateName", prefix, problems));
    }
    let name = meta::name(object);
    if name.is_empty() {
        errors.push(error(
            "metadata.name",
            CauseReason::Required,
            "Required value: name or generateName is required".into(),
        ));
    } else {
        errors.extend(invalid("metadata.name", name, with_required(name, form(name))));
    }
}

/// Returns the name that a definition must have.
fn plural_and_group(object: &Value) -> RequiredName {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let name = format!("{}.{}", text("/spec/names/plural"), text("/spec/group"));
    RequiredName { name, why: "must be spec.names.plural+\".\"+spec.group".into(), alone: false }
}

/// Validates the metadata of an object that replaces a stored one (spec 6.1, 6.2). Name and namespace are already those of the
/// stored object.
///
/// Upstream has several functions that validate metadata, and reports errors each time: for every kind once as a whole and once as
/// a change, and again by the rules of the kind.
pub(crate) fn validate_update(
    resource: &ResourceDefinition,
    subresource: &str,
    new: &Value,
    old: &Value,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let prefix = meta::text(new, "generateName");
    errors.extend(invalid("metadata.generateName", prefix, names::path_segment(prefix)));
    // Determined once, and reported repeatedly.
    let found = |rule: fn(&Value, &mut Vec<FieldError>)| {
        let mut found = Vec::new();
        rule(new, &mut found);
        found
    };
    let (whole, change) = (found(validate_whole), found(validate_change));
    let known = if metadata_rules(resource).refuses_plain_finalizers {
        found(validate_known_finalizers)
    } else {
        Vec::new()
    };
    errors.extend(whole.iter().chain(&change).cloned());
    let checks = checks(resource, subresource);
    for check in checks {
        match check {
            MetadataCheck::Whole => {
                validate_names(resource, new, &mut errors);
                errors.extend(whole.iter().cloned());
            }
            MetadataCheck::Change => errors.extend(change.iter().cloned()),
        }
        errors.extend(known.iter().cloned());
    }
    if meta::is_deleting(old) {
        let before = meta::finalizers(old);
        let added: Vec<&str> =
            meta::finalizers(new).into_iter().filter(|finalizer| !before.contains(finalizer)).collect();
        if !added.is_empty() {
            errors.push(error(
                "metadata.finalizers",
                CauseReason::Forbidden,
                format!(
                    "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {}",
                    go_string_list(&added)
                ),
            ));
        }
    }
    if KubernetesVersion::chosen() >= KubernetesVersion::V1_37 {
        validate_generation(new, &mut errors);
    }
    if meta::generation(new) < meta::generation(old) {
        errors.push(error(
            "metadata.generation",
            CauseReason::Invalid,
            format!("Invalid value: {}: must not be decremented", meta::generation(new)),
        ));
    }
    let mut immutable = Vec::new();
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let (after, before) = (meta::metadata(new).get(field), meta::metadata(old).get(field));
        if after != before {
            let shown = after.map_or_else(|| "null".to_owned(), Value::to_string);
            immutable.push(error(
                &format!("metadata.{field}"),
                CauseReason::Invalid,
                format!("Invalid value: {shown}: field is immutable"),
            ));
        }
    }
    for _ in checks.iter().filter(|check| **check == MetadataCheck::Change) {
        errors.extend(immutable.iter().cloned());
    }
    errors.extend(immutable);
    errors
}

/// Returns the checks of a kind for an update, in order.
fn checks(resource: &ResourceDefinition, subresource: &str) -> &'static [MetadataCheck] {
    let rules = metadata_rules(resource);
    if matches!(subresource, "" | "scale") { rules.update } else { rules.subresources }
}

/// Formats texts as `[]string{"a", "b"}`.
fn go_string_list(items: &[&str]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| quoted(item)).collect();
    format!("[]string{{{}}}", quoted.join(", "))
}

/// Returns warnings about finalizers of custom resources (spec 10.3).
pub(crate) fn finalizer_warnings(resource: &ResourceDefinition, object: &Value) -> Vec<String> {
    if resource.custom.is_none() {
        return Vec::new();
    }
    meta::finalizers(object)
        .into_iter()
        .filter(|finalizer| !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer))
        .map(|finalizer| {
            format!(
                "metadata.finalizers: {}: prefer a domain-qualified finalizer name to avoid accidental conflicts with \
                 other finalizer writers",
                quoted(finalizer)
            )
        })
        .collect()
}

/// Time at which duplicate references in a request are dropped, which the warning mentions (spec 10.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deduplication {
    /// In POST and PUT.
    Request,
    /// In PATCH.
    Patch,
}

/// Drops references that equal an earlier one in every field, and returns a warning with their UIDs (spec 10.2, S10: before
/// managedFields are computed).
pub(crate) fn drop_duplicate_owners(object: &mut Value, when: Deduplication) -> Option<String> {
    if meta::owner_references(object).len() < 2 {
        return None;
    }
    let mut kept: Vec<Value> = Vec::new();
    let mut uids: Vec<String> = Vec::new();
    let (mut seen, mut reported) = (BTreeSet::new(), BTreeSet::new());
    for reference in meta::owner_references(object) {
        // Equal references have the same text, because members are written in the order of their keys.
        if seen.insert(reference.to_string()) {
            kept.push(reference.clone());
        } else {
            let uid = reference.get("uid").and_then(Value::as_str).unwrap_or_default();
            if reported.insert(uid.to_owned()) {
                uids.push(uid.to_owned());
            }
        }
    }
    if uids.is_empty() {
        return None;
    }
    meta::metadata_mut(object).insert("ownerReferences".into(), kept.into());
    let middle = match when {
        Deduplication::Request => "",
        Deduplication::Patch => " after mutating admission happens",
    };
    Some(format!(
        ".metadata.ownerReferences contains duplicate entries{middle}; API server dedups owner references in 1.20+, \
         and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        uids.join(", ")
    ))
}
