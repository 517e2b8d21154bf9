//! Volume attributes classes.

use super::storage_class::{parameters, provisioner};
use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::Report;
use crate::resource::Target;

pub(crate) struct VolumeAttributesClass;

impl Kind for VolumeAttributesClass {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        provisioner(&object.get("driverName"), report);
        let field = object.get("parameters");
        if field.is_empty() {
            report.required(&field, "must contain at least one key/value pair");
        }
        parameters(&field, report);
    }

    fn validate_update(
        &self,
        target: Target<'_>,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        for member in ["driverName", "parameters"] {
            let (ours, theirs) = (new.get(member), old.get(member));
            if ours.value() != theirs.value() && !(ours.is_empty() && theirs.is_empty()) {
                report.forbidden(&ours, &format!("updates to {member} are forbidden."));
            }
        }
        self.validate(target, new, report);
    }
}
