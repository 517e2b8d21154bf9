//! Persistent volume claims.

use crate::kinds::prelude::*;
use crate::kinds::shared::names::qualified_name;
use crate::kinds::shared::pod_defaults;
use crate::kinds::shared::pod_defaults::claim_spec;
use crate::kinds::shared::resources::{basic_quantity, resource_quantity};
use crate::kinds::shared::volume_cells::{class, phase, short_modes, text_or_unset};
use crate::kinds::shared::{claims, diff};
use crate::schema::shown::internal;

const SPEC: &str = "api.core.v1.PersistentVolumeClaimSpec";
const UPDATABLE: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const RESIZE_STATES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

pub(crate) struct PersistentVolumeClaim;

impl Kind for PersistentVolumeClaim {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::Never;
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Status", F("api.core.v1.PersistentVolumeClaimStatus", "phase")),
        H::text("Volume", F("api.core.v1.PersistentVolumeClaimSpec", "volumeName")),
        H::text("Capacity", F("api.core.v1.PersistentVolumeClaimStatus", "capacity")),
        H::text("Access Modes", F("api.core.v1.PersistentVolumeClaimStatus", "accessModes")),
        H::text("StorageClass", T("StorageClass of the pvc")),
        H::text("VolumeAttributesClass", T("VolumeAttributesClass of the pvc")),
        H::AGE,
        H::wide("VolumeMode", F("api.core.v1.PersistentVolumeClaimSpec", "volumeMode")),
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let volume = row.text(&["spec", "volumeName"]);
        let (capacity, modes) = if volume.is_empty() {
            (Value::from(""), String::new())
        } else {
            (
                row.text_or(&["status", "capacity", "storage"], "0"),
                short_modes(row.list(&["status", "accessModes"])),
            )
        };
        vec![
            row.name(),
            phase(row),
            volume.into(),
            capacity,
            modes.into(),
            class(row),
            text_or_unset(row, &["spec", "volumeAttributesClassName"]),
            row.age(),
            text_or_unset(row, &["spec", "volumeMode"]),
        ]
    }

    fn defaults(members: &mut Members) {
        if let Some(spec) = child(members, "spec") {
            claim_spec(spec);
        }
        if let Some(status) = child(members, "status") {
            fill(status, "phase", "Pending");
        }
    }

    /// Drops a source in another namespace.
    fn drop_disabled(members: &mut Members) {
        if let Some(spec) = existing(members, "spec")
            && spec.get("dataSourceRef").is_some_and(|source| !text(source, &["namespace"]).is_empty())
        {
            spec.remove("dataSourceRef");
        }
    }

    fn prepare_create(object: &mut Value, _: &Context<'_>) {
        drop_odd_source(object);
        settle_sources(object);
    }

    fn prepare_update(new: &mut Value, old: &Value, _: &Context<'_>) {
        let in_use = ["dataSource", "dataSourceRef"].iter().any(|name| at(old, &["spec", name]).is_some());
        if !in_use && at(new, &["spec", "dataSourceRef"]).is_none() {
            drop_odd_source(new);
        }
        settle_sources(new);
    }

    fn warnings(new: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        warnings::storage_class(new, texts);
        warnings::volumes::claim("spec", new.get("spec"), texts);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        claims::spec(&object.get("spec"), report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        claims::changed_spec(&new.get("spec"), &old.get("spec"), report);
        update(new, old, report);
    }

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        for (_, quantity) in status.get("capacity").entries() {
            basic_quantity(&quantity, report);
        }
        let states = status.get("allocatedResourceStatuses");
        for (name, state) in states.entries() {
            resource_key(&states, name, report);
            if !RESIZE_STATES.contains(&state.text()) {
                report.not_supported_shown(&states, &quoted(name), &RESIZE_STATES);
            }
        }
        let allocated = status.get("allocatedResources");
        for (name, quantity) in allocated.entries() {
            let before = report.errors.len();
            resource_key(&allocated, name, report);
            if report.errors.len() > before {
                continue;
            }
            basic_quantity(&quantity, report);
            if report.errors.len() == before {
                resource_quantity(&quantity, "storage", report);
            }
        }
    }
}

fn resource_key(field: &Field<'_, '_>, name: &str, report: &mut Report) {
    let problems = qualified_name(name);
    let is_native = !name.contains('/') || name.starts_with("kubernetes.io/");
    if problems.is_empty() && is_native && name != "storage" {
        report.not_supported_shown(field, &quoted(name), &["storage"]);
    }
    report.each_of(field, name, problems);
}

fn update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let (mut ours, mut theirs) = (spec.value().clone(), before.value().clone());
    let copy = |to: &mut serde_json::Value, from: &serde_json::Value, path: &[&str]| match at(from, path) {
        Some(value) => put(to, path, value.clone()),
        None => remove(to, path),
    };
    if before.text_of("volumeName").is_empty() {
        copy(&mut theirs, spec.value(), &["volumeName"]);
    }
    let (metadata, was) = (new.get("metadata"), old.get("metadata"));
    let (annotations, was) = (metadata.get("annotations"), was.get("annotations"));
    let class = spec.get("storageClassName");
    let upgraded = was.has(CLASS_ANNOTATION)
        && !before.has("storageClassName")
        && class.is_set()
        && class.text() == was.text_of(CLASS_ANNOTATION)
        && (!annotations.has(CLASS_ANNOTATION)
            || annotations.text_of(CLASS_ANNOTATION) == was.text_of(CLASS_ANNOTATION));
    if upgraded {
        remove(&mut ours, &["storageClassName"]);
    } else {
        if annotations.text_of(CLASS_ANNOTATION) != was.text_of(CLASS_ANNOTATION) {
            let at = metadata.get("annotations");
            let at = at.key(CLASS_ANNOTATION, annotations.member(CLASS_ANNOTATION));
            report.invalid_text(&at, annotations.text_of(CLASS_ANNOTATION), IMMUTABLE);
        }
        let late = class.is_set()
            && !before.has("storageClassName")
            && (!was.has(CLASS_ANNOTATION) || was.text_of(CLASS_ANNOTATION) == class.text());
        if late {
            remove(&mut ours, &["storageClassName"]);
        }
    }
    let bound = new.get("status").text_of("phase") == "Bound";
    if bound && spec.get("resources").has("requests") {
        copy(&mut ours, before.value(), &["resources", "requests", "storage"]);
    }
    let attributes = spec.get("volumeAttributesClassName");
    if bound {
        copy(&mut ours, before.value(), &["volumeAttributesClassName"]);
    }
    if ours != theirs {
        let changes = diff::unified(&internal(SPEC, &theirs), &internal(SPEC, &ours));
        report.forbidden(&spec, &format!("{UPDATABLE}\n{changes}"));
    }
    let resources = spec.get("resources");
    let requests = resources.get("requests");
    let size = requests.get("storage");
    let quantity = |field: &Field<'_, '_>| field.quantity().unwrap_or_default();
    let was_size = before.get("resources").get("requests").get("storage").quantity().unwrap_or_default();
    if was_size.exceeds(quantity(&size)) {
        let capacity = old.get("status").get("capacity").get("storage").quantity().unwrap_or_default();
        if !quantity(&size).exceeds(capacity) {
            report.forbidden(&size, "field can not be less than status.capacity");
        }
    }
    // Upstream omits `spec` from this path.
    let mode = new.named("volumeMode", spec.member("volumeMode"));
    if mode.value() != before.member("volumeMode") {
        report.invalid(&mode, IMMUTABLE);
    }
    // A class that was applied can be replaced, but not removed.
    let is_applied = old.get("status").has("currentVolumeAttributesClassName");
    if is_applied && attributes.value() != before.member("volumeAttributesClassName") {
        let when = "is forbidden when status.currentVolumeAttributesClassName is not nil";
        if !attributes.is_set() {
            report.forbidden(&attributes, &format!("update to nil {when}"));
        } else if attributes.text().is_empty() {
            report.forbidden(&attributes, &format!("update to empty string {when}"));
        }
    }
}

/// Drops a source other than a claim or a snapshot from the older field.
fn drop_odd_source(object: &mut Value) {
    if at(object, &["spec", "dataSource"]).is_some_and(|source| !is_claim_or_snapshot(source)) {
        remove(object, &["spec", "dataSource"]);
    }
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    let text = |name: &str| source.get(name).and_then(Value::as_str).unwrap_or_default();
    matches!(
        (text("apiGroup"), text("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    )
}

/// Keeps the two fields for the source of a claim in step.
fn settle_sources(object: &mut Value) {
    if let Some(spec) = object.as_object_mut().and_then(|members| child(members, "spec")) {
        pod_defaults::claim_sources(spec);
    }
}
