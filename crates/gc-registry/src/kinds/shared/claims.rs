//! Specs of persistent volume claims, standalone and in templates.

use super::labels::{annotations, labels, selector};
use super::names::{dns_label, dns_subdomain, subdomain};
use super::resources::{positive_quantity, resource_quantity};
use crate::kinds::prelude::*;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Validates the metadata of a template, which may only have labels and annotations.
pub(crate) fn template_metadata(field: &Field<'_, '_>, report: &mut Report) {
    const OTHER: [&str; 13] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uID",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    annotations(&field.get("annotations"), report);
    labels(&field.get("labels"), report);
    for name in OTHER {
        let member = field.member(if name == "uID" { "uid" } else { name });
        let unset = match member {
            serde_json::Value::Number(number) => {
                number.as_i64() == Some(0) && name != "deletionGracePeriodSeconds"
            }
            // Upstream checks whether the list is present, not whether it has items.
            serde_json::Value::Array(_) => false,
            _ => field.with(member).is_empty(),
        };
        if !unset {
            report.forbidden(&field.get(name), "cannot be set");
        }
    }
}

pub(crate) fn access_modes(field: &Field<'_, '_>, report: &mut Report) {
    let (mut exclusive, mut shared) = (false, false);
    for mode in field.list() {
        let mode = field.with(mode);
        if mode.text() == "ReadWriteOncePod" {
            exclusive = true;
        } else if ACCESS_MODES.contains(&mode.text()) {
            shared = true;
        } else {
            report.not_supported(&mode, &ACCESS_MODES);
        }
    }
    if exclusive && shared {
        report.forbidden(field, "may not use ReadWriteOncePod with other access modes");
    }
}

/// Checks the spec of a new claim.
pub(crate) fn spec(field: &Field<'_, '_>, report: &mut Report) {
    spec_with(field, data_source, report);
}

/// Checks the spec of an existing claim. Upstream accepts any API group in its sources if one of them had a group before.
pub(crate) fn changed_spec(field: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    let has_group = |name: &str| old.get(name).get("apiGroup").is_set();
    if has_group("dataSource") || has_group("dataSourceRef") {
        spec_with(field, data_source_of_any_group, report);
    } else {
        spec(field, report);
    }
}

fn spec_with(field: &Field<'_, '_>, data_source: fn(&Field<'_, '_>, &mut Report), report: &mut Report) {
    let modes = field.get("accessModes");
    if modes.is_empty() {
        report.required(&modes, "at least 1 access mode is required");
    }
    selector(&field.get("selector"), report);
    access_modes(&modes, report);
    let (resources, requests) = (field.get("resources"), field.get("resources"));
    let wanted = requests.member("requests").get("storage");
    match wanted {
        None => report.required(&resources.key("storage", &serde_json::Value::Null), ""),
        Some(size) => {
            let size = resources.key("storage", size);
            let before = report.errors.len();
            positive_quantity(&size, report);
            if report.errors.len() == before {
                resource_quantity(&size, "storage", report);
            }
        }
    }
    if !field.text_of("storageClassName").is_empty() {
        subdomain(&field.get("storageClassName"), report);
    }
    report.one_of_if_set(&field.get("volumeMode"), &["Block", "Filesystem"]);
    let (source, reference) = (field.get("dataSource"), field.get("dataSourceRef"));
    for given in [&source, &reference] {
        if given.is_set() {
            data_source(given, report);
        }
    }
    if !reference.text_of("namespace").is_empty() {
        report.each(&reference.get("namespace"), dns_label(reference.text_of("namespace")));
        if source.is_set() {
            let why = "may not be specified when dataSourceRef.namespace is specified";
            report.invalid_shown(field, &"{}", why);
        }
    } else if source.is_set() && reference.is_set() {
        let same =
            ["apiGroup", "kind", "name"].iter().all(|name| source.member(name) == reference.member(name));
        if !same {
            report.invalid_shown(field, &"{}", "must match dataSourceRef");
        }
    }
    if !field.text_of("volumeAttributesClassName").is_empty() {
        subdomain(&field.get("volumeAttributesClassName"), report);
    }
}

fn data_source(field: &Field<'_, '_>, report: &mut Report) {
    data_source_of_any_group(field, report);
    let group = field.get("apiGroup");
    if !group.text().is_empty() {
        report.each(&group, dns_subdomain(group.text()));
    }
}

fn data_source_of_any_group(field: &Field<'_, '_>, report: &mut Report) {
    for name in ["name", "kind"] {
        if field.text_of(name).is_empty() {
            report.required(&field.get(name), "");
        }
    }
    if field.text_of("apiGroup").is_empty() && field.text_of("kind") != "PersistentVolumeClaim" {
        report.invalid_text(
            field,
            field.text_of("kind"),
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        );
    }
}
