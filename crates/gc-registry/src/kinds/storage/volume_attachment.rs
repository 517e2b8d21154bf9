//! Volume attachments.

use crate::kinds::core::persistent_volume;
use crate::kinds::prelude::*;
use crate::kinds::shared::names::{csi_driver_name, subdomain};
use crate::schema::shown::internal;

const SOURCE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
const MESSAGE_MAX_BYTES: usize = 1024;
const METADATA_MAX_BYTES: usize = 256 * 1024;

pub(crate) struct VolumeAttachment;

impl Kind for VolumeAttachment {
    const PARTS: Parts = Parts::StatusOnly;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Whole], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::named("Attacher", F("api.storage.v1.VolumeAttachmentSpec", "attacher")),
        H::text("PV", F("api.storage.v1.VolumeAttachmentSource", "persistentVolumeName")),
        H::text("Node", F("api.storage.v1.VolumeAttachmentSpec", "nodeName")),
        H::boolean("Attached", F("api.storage.v1.VolumeAttachmentStatus", "attached")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![
            row.name(),
            row.shown(&["spec", "attacher"]),
            row.shown(&["spec", "source", "persistentVolumeName"]),
            row.shown(&["spec", "nodeName"]),
            row.flag_or(&["status", "attached"], false),
            row.age(),
        ]
    }

    fn defaults(members: &mut Members) {
        if let Some(spec) = child(members, "spec") {
            let inline = child(spec, "source").and_then(|source| existing(source, "inlineVolumeSpec"));
            if let Some(inline) = inline {
                persistent_volume::source_defaults(inline);
            }
        }
        if let Some(status) = child(members, "status") {
            fill_absent(status, "attached", false);
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let attacher = spec.get("attacher");
        csi_driver_name(&attacher, report);
        let source = spec.get("source");
        let (volume, inline) = (source.get("persistentVolumeName"), source.get("inlineVolumeSpec"));
        match (volume.is_set(), inline.is_set()) {
            (false, false) => report.required(&source, SOURCE),
            (true, true) => report.forbidden(&source, SOURCE),
            (true, false) if volume.text().is_empty() => {
                report.required(&volume, "must specify non empty persistentVolumeName");
            }
            (true, false) => {}
            (false, true) => persistent_volume::spec(&inline, "", true, report),
        }
        subdomain(&spec.get("nodeName"), report);
        status(object, report);
        // These requirements only apply to new attachments.
        if volume.is_set() {
            subdomain(&volume, report);
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        Self::validate(new, report);
        let spec = new.get("spec");
        if spec.value() != old.member("spec") {
            let shown = internal("api.storage.v1.VolumeAttachmentSpec", spec.value()).compact();
            report.invalid_shown(&spec, &shown, IMMUTABLE);
        }
    }

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        status(new, report);
    }
}

fn status(object: &Field<'_, '_>, report: &mut Report) {
    let status = object.get("status");
    let metadata = status.get("attachmentMetadata");
    let mut bytes = 0;
    for (key, value) in metadata.entries() {
        bytes += key.len() + value.text().len();
    }
    if bytes > METADATA_MAX_BYTES {
        report.too_long(&metadata, METADATA_MAX_BYTES);
    }
    for member in ["attachError", "detachError"] {
        let message = status.get(member);
        if message.text_of("message").len() > MESSAGE_MAX_BYTES {
            report.too_long(&message.get("message"), MESSAGE_MAX_BYTES);
        }
        let code = message.get("errorCode");
        if code.number() < 0 {
            report.invalid(&code, "must be between 0 and 2147483647, inclusive");
        }
    }
}
