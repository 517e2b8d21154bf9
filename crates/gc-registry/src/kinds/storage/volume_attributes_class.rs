//! Volume attributes classes.

use super::storage_class::{parameters, provisioner};
use crate::kinds::prelude::*;

pub(crate) struct VolumeAttributesClass;

impl Kind for VolumeAttributesClass {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Never;
    const COLUMNS: &'static [Column] =
        &[H::NAME, H::text("DriverName", F("api.storage.v1.VolumeAttributesClass", "driverName")), H::AGE];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![
            row.name_of_default(&["volumeattributesclass.kubernetes.io/is-default-class"]),
            row.shown(&["driverName"]),
            row.age(),
        ]
    }

    fn defaults(_: &mut Members) {}

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        provisioner(&object.get("driverName"), report);
        let field = object.get("parameters");
        if field.is_empty() {
            report.required(&field, "must contain at least one key/value pair");
        }
        parameters(&field, report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        for member in ["driverName", "parameters"] {
            let (ours, theirs) = (new.get(member), old.get(member));
            if ours.value() != theirs.value() && !(ours.is_empty() && theirs.is_empty()) {
                report.forbidden(&ours, &format!("updates to {member} are forbidden."));
            }
        }
        Self::validate(new, report);
    }
}
