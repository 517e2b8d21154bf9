//! Namespaces.

use crate::kinds::kind::prelude::*;
use crate::kinds::shared::names::qualified_name;

const COLUMNS: &[Heading] = &[H::NAME, H::text("Status", T("The status of the namespace")), H::AGE];

pub(crate) struct Namespace;

impl Kind for Namespace {
    fn columns(&self) -> &'static [Heading] {
        COLUMNS
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.shown(&["status", "phase"]), row.age()]
    }

    fn validate(&self, object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let finalizers = spec.get("finalizers");
        for name in finalizers.list() {
            finalizer(&finalizers.with(name), report);
        }
    }

    fn validate_update(&self, _: &Field<'_, '_>, _: &Field<'_, '_>, _: &mut Report) {
        // An update of the namespace itself changes nothing but its metadata.
    }

    fn validate_status(&self, new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        let phase = status.named("Phase", status.member("phase"));
        let deleting = new.get("metadata").has("deletionTimestamp");
        let (wanted, why) = if deleting {
            ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
        } else {
            ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
        };
        if phase.text() != wanted {
            report.invalid_text(&phase, phase.text(), why);
        }
    }

    fn validate_subresource(
        &self,
        subresource: &str,
        new: &Field<'_, '_>,
        _: &Field<'_, '_>,
        report: &mut Report,
    ) {
        if subresource == "finalize" {
            let spec = new.get("spec");
            for name in spec.get("finalizers").items() {
                finalizer(&name, report);
            }
        }
    }
}

/// Finalizers of a namespace's spec are named like those of metadata.
fn finalizer(field: &Field<'_, '_>, report: &mut Report) {
    let name = field.text();
    report.each_of(field, name, qualified_name(name));
    if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
        let why = "name is neither a standard finalizer name nor is it fully qualified";
        report.invalid_text(field, name, why);
    }
}
