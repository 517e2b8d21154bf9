//! Persistent volumes.

use crate::kinds::prelude::*;
use crate::kinds::shared::claims::access_modes;
use crate::kinds::shared::names::subdomain;
use crate::kinds::shared::pod_defaults::network_volume;
use crate::kinds::shared::resources::{basic_quantity, positive_quantity};
use crate::kinds::shared::volume_cells::{class, phase, short_modes, text_or_unset};
use crate::kinds::shared::{diff, scheduling, volumes};
use crate::schema::shown::{VOLUME_SOURCE, internal, internal_part};

const SPEC: &str = "api.core.v1.PersistentVolumeSpec";
const NOT_INLINE: &str = "may not be specified in the context of inline volumes";

/// Members of the spec that are not sources of the contents.
const NOT_SOURCES: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];
const OLD_OPTIONS: &str = "deprecated since v1.31; use \"mountOptions\" attribute instead";
const OPTIONS_ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";

pub(crate) struct PersistentVolume;

impl Kind for PersistentVolume {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata =
        Metadata { update: &[MetadataCheck::Whole, MetadataCheck::Whole], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Capacity", F("api.core.v1.PersistentVolumeSpec", "capacity")),
        H::text("Access Modes", F("api.core.v1.PersistentVolumeSpec", "accessModes")),
        H::text("Reclaim Policy", F("api.core.v1.PersistentVolumeSpec", "persistentVolumeReclaimPolicy")),
        H::text("Status", F("api.core.v1.PersistentVolumeStatus", "phase")),
        H::text("Claim", F("api.core.v1.PersistentVolumeSpec", "claimRef")),
        H::text("StorageClass", T("StorageClass of the pv")),
        H::text("VolumeAttributesClass", T("VolumeAttributesClass of the pv")),
        H::text("Reason", F("api.core.v1.PersistentVolumeStatus", "reason")),
        H::AGE,
        H::wide("VolumeMode", F("api.core.v1.PersistentVolumeSpec", "volumeMode")),
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let claim =
            match (row.text(&["spec", "claimRef", "namespace"]), row.text(&["spec", "claimRef", "name"])) {
                ("", "") => String::new(),
                (namespace, name) => format!("{namespace}/{name}"),
            };
        vec![
            row.name(),
            row.text_or(&["spec", "capacity", "storage"], "0"),
            short_modes(row.list(&["spec", "accessModes"])).into(),
            row.text(&["spec", "persistentVolumeReclaimPolicy"]).into(),
            phase(row),
            claim.into(),
            class(row),
            text_or_unset(row, &["spec", "volumeAttributesClassName"]),
            row.text(&["status", "reason"]).into(),
            row.age(),
            text_or_unset(row, &["spec", "volumeMode"]),
        ]
    }

    fn defaults(members: &mut Members) {
        if let Some(spec) = child(members, "spec") {
            fill(spec, "persistentVolumeReclaimPolicy", "Retain");
            fill_absent(spec, "volumeMode", "Filesystem");
            source_defaults(spec);
        }
        if let Some(status) = child(members, "status") {
            fill(status, "phase", "Pending");
        }
    }

    fn prepare_create(object: &mut Value, context: &Context<'_>) {
        put(object, &["status", "lastPhaseTransitionTime"], context.time().into());
    }

    fn prepare_status(new: &mut Value, old: &Value, context: &Context<'_>) {
        let phase = ["status", "phase"];
        let time = ["status", "lastPhaseTransitionTime"];
        let (stamped, before) = (at(new, &time), at(old, &time));
        if text(new, &phase) != text(old, &phase) && (stamped.is_none() || stamped == before) {
            put(new, &time, context.time().into());
        } else if let (None, Some(before)) = (stamped, before) {
            put(new, &time, before.clone());
        }
    }

    fn warnings(volume: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        warnings::storage_class(volume, texts);
        warnings::annotation(volume, OPTIONS_ANNOTATION, OLD_OPTIONS, texts);
        if text(volume, &["spec", "persistentVolumeReclaimPolicy"]) == "Recycle" {
            texts.push(
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
                 approach is to use dynamic provisioning."
                    .into(),
            );
        }
        let terms = list(volume, &["spec", "nodeAffinity", "required", "nodeSelectorTerms"]);
        for (index, term) in terms.iter().enumerate() {
            let path = format!("spec.nodeAffinity.required.nodeSelectorTerms[{index}]");
            warnings::node_labels::in_term(&path, term, false, texts);
        }
        if let Some(spec) = volume.get("spec") {
            warnings::volumes::gone_source("spec", spec, false, texts);
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let metadata = object.get("metadata");
        spec(&object.get("spec"), metadata.text_of("name"), false, report);
        mount_options(object, report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        Self::validate(new, report);
        // Upstream reports the errors of the spec twice.
        spec(&new.get("spec"), new.get("metadata").text_of("name"), false, report);
        let (spec, before) = (new.get("spec"), old.get("spec"));
        if source(new.value(), old.value()) != source(old.value(), old.value()) {
            let shown = |spec: &Value| internal_part(SPEC, VOLUME_SOURCE, spec);
            let changes = diff::unified(&shown(before.value()), &shown(spec.value()));
            report.forbidden(
                &spec.get("persistentvolumesource"),
                &format!("spec.persistentvolumesource is immutable after creation\n{changes}"),
            );
        }
        // Upstream omits `spec` from these paths.
        let mode = new.named("volumeMode", spec.member("volumeMode"));
        if mode.value() != before.member("volumeMode") {
            report.invalid(&mode, IMMUTABLE);
        }
        let affinity = new.named("nodeAffinity", spec.member("nodeAffinity"));
        let renamed = with_new_labels(before.member("nodeAffinity"), affinity.value());
        if before.has("nodeAffinity") && *affinity.value() != renamed {
            let why = "field is immutable, except for updating from beta label to GA";
            report.invalid_shown(&affinity, &shown_affinity(&affinity), why);
        }
        let class = spec.get("volumeAttributesClassName");
        if before.has("volumeAttributesClassName") && !class.is_set() {
            report.forbidden(&class, "update from non-nil value to nil is forbidden");
        }
    }
}

/// Annotation that preceded the field `mountOptions`.
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
/// Volumes that may have it.
const MOUNTED_WITH_OPTIONS: [&str; 13] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "gcePersistentDisk",
    "glusterfs",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "quobyte",
    "rbd",
    "vsphereVolume",
];

fn mount_options(object: &Field<'_, '_>, report: &mut Report) {
    let metadata = object.get("metadata");
    let annotations = metadata.get("annotations");
    let spec = object.get("spec");
    if annotations.has(MOUNT_OPTIONS) && !MOUNTED_WITH_OPTIONS.iter().any(|kind| spec.has(kind)) {
        report
            .forbidden(&annotations.get(MOUNT_OPTIONS), "may not specify mount options for this volume type");
    }
}

/// Sets the defaults of the source, in a volume or inside an attachment.
pub(crate) fn source_defaults(spec: &mut Members) {
    if let Some(path) = existing(spec, "hostPath") {
        fill_absent(path, "type", "");
    }
    network_volume(spec);
}

/// Former beta labels of nodes, and their current names.
const RENAMED_LABELS: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// Returns the stored affinity with the keys that the new one may rename.
fn with_new_labels(old: &Value, new: &Value) -> Value {
    let mut old = old.clone();
    let terms = list(new, &["required", "nodeSelectorTerms"]);
    let Some(old_terms) = old.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut) else {
        return old;
    };
    for (term, new_term) in old_terms.iter_mut().zip(terms) {
        for member in ["matchExpressions", "matchFields"] {
            let Some(requirements) = term.get_mut(member).and_then(Value::as_array_mut) else { continue };
            for (requirement, new_requirement) in requirements.iter_mut().zip(list(new_term, &[member])) {
                let wanted = text(new_requirement, &["key"]);
                let key = text(requirement, &["key"]);
                let renamed = RENAMED_LABELS.iter().find(|(beta, _)| *beta == key).map_or("", |(_, now)| now);
                // Upstream takes a missing key for the new name of one that has none.
                if key != wanted && renamed == wanted {
                    match new_requirement.get("key") {
                        Some(key) => put(requirement, &["key"], key.clone()),
                        None => remove(requirement, &["key"]),
                    }
                }
            }
        }
    }
    old
}

/// Returns the source of the contents. A secret for expansion may be added later.
fn source(object: &Value, old: &Value) -> Members {
    let mut object = object.clone();
    let path = ["spec", "csi", "controllerExpandSecretRef"];
    if at(old, &path).is_none() && at(old, &path[..2]).is_some() {
        remove(&mut object, &path);
    }
    let mut spec =
        object.get_mut("spec").and_then(Value::as_object_mut).map(std::mem::take).unwrap_or_default();
    spec.retain(|key, _| !NOT_SOURCES.contains(&key.as_str()));
    spec
}

/// Formats node affinity like upstream's internal type.
fn shown_affinity(field: &Field<'_, '_>) -> String {
    if field.is_set() {
        internal("api.core.v1.VolumeNodeAffinity", field.value()).compact()
    } else {
        "null".into()
    }
}

/// Validates the spec of a volume, standalone or inside an attachment.
pub(crate) fn spec(field: &Field<'_, '_>, volume: &str, inline: bool, report: &mut Report) {
    if inline {
        let (claim, capacity) = (field.get("claimRef"), field.get("capacity"));
        if claim.is_set() {
            report.forbidden(&claim, NOT_INLINE);
        }
        if !capacity.is_empty() {
            report.forbidden(&capacity, NOT_INLINE);
        }
        if !field.has("csi") {
            report.required(&field.get("csi"), "has to be specified in the context of inline volumes");
        }
    }
    let modes = field.get("accessModes");
    if modes.is_empty() {
        report.required(&modes, "");
    }
    access_modes(&modes, report);
    if !inline {
        capacity(&field.get("capacity"), report);
    }
    let policy = field.get("persistentVolumeReclaimPolicy");
    if inline {
        if !matches!(policy.text(), "" | "Retain") {
            report.forbidden(&policy, "may only be Retain in the context of inline volumes");
        }
    } else if !policy.text().is_empty() {
        report.one_of(&policy, &["Delete", "Recycle", "Retain"]);
    }
    let affinity = field.get("nodeAffinity");
    if affinity.is_set() && inline {
        report.forbidden(&affinity, NOT_INLINE);
    } else if affinity.has("required") {
        scheduling::node_selector(&affinity.get("required"), report);
    } else if affinity.is_set() {
        report.required(&affinity.get("required"), "must specify required node constraints");
    }
    volumes::persistent_source(field, volume, affinity.is_set() && !inline, report);
    let host_path = field.get("hostPath");
    if policy.text() == "Recycle" && host_path.is_set() && is_root(host_path.text_of("path")) {
        report.forbidden(&policy, "may not be 'recycle' for a hostPath mount of '/'");
    }
    let class = field.get("storageClassName");
    if !class.text().is_empty() {
        if inline {
            report.forbidden(&class, NOT_INLINE);
        } else {
            subdomain(&class, report);
        }
    }
    let mode = field.get("volumeMode");
    if !inline {
        report.one_of_if_set(&mode, &["Block", "Filesystem"]);
    } else if mode.is_set() && mode.text() != "Filesystem" {
        let why = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        report.forbidden(&mode, why);
    }
    let attributes = field.get("volumeAttributesClassName");
    // Upstream does not support classes in attachments yet.
    if attributes.is_set() && !inline {
        if attributes.text().is_empty() {
            report.required(&attributes, "an empty string is disallowed");
        } else {
            subdomain(&attributes, report);
        }
        if !field.has("csi") {
            let why = "has to be specified when using volumeAttributesClassName";
            report.required(&field.get("csi"), why);
        }
    }
}

/// Reports whether a path is `/` after cleaning.
fn is_root(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "." | ".."))
}

fn capacity(field: &Field<'_, '_>, report: &mut Report) {
    if field.is_empty() {
        report.required(field, "");
    }
    let count = field.value().as_object().map_or(0, Members::len);
    if count != 1 || !field.has("storage") {
        let shown = if field.is_set() { field.value().to_string() } else { "null".to_owned() };
        report.not_supported_shown(field, &shown, &["storage"]);
    }
    for (_, quantity) in field.entries() {
        basic_quantity(&quantity, report);
        positive_quantity(&quantity, report);
    }
}
