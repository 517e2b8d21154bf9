//! Storage classes.

use std::collections::{BTreeMap, BTreeSet};

use crate::kinds::prelude::*;
use crate::kinds::shared::names::{qualified, qualified_name};
use crate::kinds::shared::warnings::node_labels;

const PARAMETERS_MAX: usize = 512;
const PARAMETERS_MAX_BYTES: usize = 256 * 1024;

pub(crate) struct StorageClass;

impl Kind for StorageClass {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata =
        Metadata { update: &[MetadataCheck::Whole, MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Provisioner", F("api.storage.v1.StorageClass", "provisioner")),
        H::text("ReclaimPolicy", F("api.storage.v1.StorageClass", "reclaimPolicy")),
        H::text("VolumeBindingMode", F("api.storage.v1.StorageClass", "volumeBindingMode")),
        H::text("AllowVolumeExpansion", F("api.storage.v1.StorageClass", "allowVolumeExpansion")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![
            row.name_of_default(&[
                "storageclass.kubernetes.io/is-default-class",
                "storageclass.beta.kubernetes.io/is-default-class",
            ]),
            row.shown(&["provisioner"]),
            row.text_or(&["reclaimPolicy"], "Delete"),
            row.text_or(&["volumeBindingMode"], "Immediate"),
            row.flag_or(&["allowVolumeExpansion"], false),
            row.age(),
        ]
    }

    fn defaults(members: &mut Members) {
        fill_absent(members, "provisioner", "");
        fill_absent(members, "reclaimPolicy", "Delete");
        fill_absent(members, "volumeBindingMode", "Immediate");
    }

    fn warnings(class: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        for (index, term) in list(class, &["allowedTopologies"]).iter().enumerate() {
            for (number, expression) in list(term, &["matchLabelExpressions"]).iter().enumerate() {
                if let Some(message) = node_labels::message(text(expression, &["key"])) {
                    texts.push(format!(
                        "allowedTopologies[{index}].matchLabelExpressions[{number}].key: {message}"
                    ));
                }
            }
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        provisioner(&object.get("provisioner"), report);
        parameters(&object.get("parameters"), report);
        let policy = object.get("reclaimPolicy");
        if !policy.text().is_empty() {
            report.one_of_if_set(&policy, &["Delete", "Retain"]);
        }
        let mode = object.get("volumeBindingMode");
        if mode.is_set() {
            report.one_of_if_set(&mode, &["Immediate", "WaitForFirstConsumer"]);
        } else {
            report.required(&mode, "");
        }
        topologies(&object.get("allowedTopologies"), report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        Self::validate(new, report);
        for member in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            seal(member, new, old, report);
        }
    }
}

/// Checks that an update does not change a member.
pub(crate) fn seal(member: &'static str, new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    let (ours, theirs) = (new.get(member), old.get(member));
    if ours.value() == theirs.value() || (ours.is_empty() && theirs.is_empty()) {
        return;
    }
    if ours.is_set() || member == "parameters" {
        report.invalid(&ours, IMMUTABLE);
    } else {
        report.invalid_text(&ours, "", IMMUTABLE);
    }
}

pub(crate) fn provisioner(field: &Field<'_, '_>, report: &mut Report) {
    if field.text().is_empty() {
        report.required(field, "");
    } else {
        let name = field.text().to_lowercase();
        report.each_of(field, &name, qualified_name(&name));
    }
}

pub(crate) fn parameters(field: &Field<'_, '_>, report: &mut Report) {
    let count = field.entries().count();
    if count > PARAMETERS_MAX {
        report.too_long(field, PARAMETERS_MAX);
        return;
    }
    let mut bytes = 0;
    for (key, value) in field.entries() {
        if key.is_empty() {
            report.invalid_text(field, key, "field can not be empty.");
        }
        bytes += key.len() + value.text().len();
    }
    if bytes > PARAMETERS_MAX_BYTES {
        report.too_long(field, PARAMETERS_MAX_BYTES);
    }
}

/// Validates the topologies of volumes, which must be distinct.
fn topologies(field: &Field<'_, '_>, report: &mut Report) {
    let mut seen: BTreeSet<BTreeMap<&str, BTreeSet<&str>>> = BTreeSet::new();
    for term in field.items() {
        let expressions = term.get("matchLabelExpressions");
        let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for expression in expressions.items() {
            let (key, values) = (expression.get("key"), expression.get("values"));
            if values.list().is_empty() {
                report.required(&values, "");
            }
            let mut texts = BTreeSet::new();
            for value in values.items() {
                if !texts.insert(value.text()) {
                    report.duplicate(&value);
                }
            }
            qualified(&key, report);
            if known.insert(key.text(), texts).is_some() {
                report.duplicate(&key);
            }
        }
        // Upstream compares with terms that it has not filled in yet, which are equal to an empty one.
        if known.is_empty() || !seen.insert(known) {
            report.duplicate_text(&expressions, "");
        }
    }
}
