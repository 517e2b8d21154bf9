//! Volume attributes classes.

use super::storage_class::{parameters, provisioner};
use crate::kinds::kind::prelude::*;

const COLUMNS: &[Heading] =
    &[H::NAME, H::text("DriverName", F("api.storage.v1.VolumeAttributesClass", "driverName")), H::AGE];

pub(crate) struct VolumeAttributesClass;

impl Kind for VolumeAttributesClass {
    fn shape(&self) -> Shape {
        Shape { parts: Parts::Neither, generation: Generation::NONE }
    }

    fn columns(&self) -> &'static [Heading] {
        COLUMNS
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![
            row.name_of_default(&["volumeattributesclass.kubernetes.io/is-default-class"]),
            row.shown(&["driverName"]),
            row.age(),
        ]
    }

    fn defaults(&self, _: &mut Members) {}

    fn validate(&self, object: &Field<'_, '_>, report: &mut Report) {
        provisioner(&object.get("driverName"), report);
        let field = object.get("parameters");
        if field.is_empty() {
            report.required(&field, "must contain at least one key/value pair");
        }
        parameters(&field, report);
    }

    fn validate_update(&self, new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        for member in ["driverName", "parameters"] {
            let (ours, theirs) = (new.get(member), old.get(member));
            if ours.value() != theirs.value() && !(ours.is_empty() && theirs.is_empty()) {
                report.forbidden(&ours, &format!("updates to {member} are forbidden."));
            }
        }
        self.validate(new, report);
    }
}
