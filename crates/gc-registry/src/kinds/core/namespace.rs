//! Namespaces.

use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::Report;
use crate::kinds::shared::names::qualified_name;
use crate::resource::Target;

pub(crate) struct Namespace;

impl Kind for Namespace {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let finalizers = spec.get("finalizers");
        for name in finalizers.list() {
            finalizer(&finalizers.with(name), report);
        }
    }

    fn validate_update(&self, _: Target<'_>, _: &Field<'_, '_>, _: &Field<'_, '_>, _: &mut Report) {
        // An update of the namespace itself changes nothing but its metadata.
    }

    fn validate_status(&self, _: Target<'_>, new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
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
        target: Target<'_>,
        new: &Field<'_, '_>,
        _: &Field<'_, '_>,
        report: &mut Report,
    ) {
        if target.subresource == Some("finalize") {
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
