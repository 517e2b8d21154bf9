//! Namespaces.

use crate::kinds::prelude::*;
use crate::kinds::shared::names::qualified_name;
use crate::metadata::names;

pub(crate) struct Namespace;

impl Kind for Namespace {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata {
        name: names::dns_label,
        update: &[MetadataCheck::Whole, MetadataCheck::Change],
        ..Metadata::DEFAULT
    };
    const COLUMNS: &'static [Column] =
        &[H::NAME, H::text("Status", T("The status of the namespace")), H::AGE];
    const SUBRESOURCES: &'static [&'static str] = &["finalize"];
    const FIELD_LABELS: &'static [&'static str] = &["status.phase"];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.shown(&["status", "phase"]), row.age()]
    }

    fn defaults(members: &mut Members) {
        let name = members.get("metadata").and_then(|metadata| metadata.get("name")).cloned();
        if let Some(name) = name.filter(|name| name.as_str().is_some_and(|name| !name.is_empty()))
            && let Some(labels) = child(members, "metadata").and_then(|metadata| child(metadata, "labels"))
        {
            labels.insert("kubernetes.io/metadata.name".into(), name);
        }
        if let Some(status) = child(members, "status") {
            fill(status, "phase", "Active");
        }
    }

    /// Sets the phase Active, and the finalizer that deletes the namespace's contents.
    fn prepare_create(object: &mut Value, _: &Context<'_>) {
        put(object, &["status"], json!({"phase": "Active"}));
        let Some(spec) = object.as_object_mut().and_then(|members| child(members, "spec")) else { return };
        let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(finalizers) = finalizers.as_array_mut()
            && !finalizers.iter().any(|finalizer| finalizer == "kubernetes")
        {
            finalizers.push("kubernetes".into());
        }
    }

    fn prepare_update(new: &mut Value, old: &Value, _: &Context<'_>) {
        match at(old, &["spec", "finalizers"]) {
            Some(finalizers) => put(new, &["spec", "finalizers"], finalizers.clone()),
            None => remove(new, &["spec", "finalizers"]),
        }
    }

    fn prepare_subresource(_: &str, new: &mut Value, old: &Value, _: &Context<'_>) {
        keep(new, old, "status");
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let finalizers = spec.get("finalizers");
        for name in finalizers.list() {
            finalizer(&finalizers.with(name), report);
        }
    }

    fn validate_update(_: &Field<'_, '_>, _: &Field<'_, '_>, _: &mut Report) {
        // An update of the namespace itself only changes its metadata.
    }

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
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

    fn validate_subresource(subresource: &str, new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        if subresource == "finalize" {
            let spec = new.get("spec");
            for name in spec.get("finalizers").items() {
                finalizer(&name, report);
            }
        }
    }
}

/// Validates a finalizer in the spec of a namespace, which is named like those in metadata.
fn finalizer(field: &Field<'_, '_>, report: &mut Report) {
    let name = field.text();
    report.each_of(field, name, qualified_name(name));
    if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
        let why = "name is neither a standard finalizer name nor is it fully qualified";
        report.invalid_text(field, name, why);
    }
}
