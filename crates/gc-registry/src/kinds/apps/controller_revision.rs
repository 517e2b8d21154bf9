//! Controller revisions.

use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::{IMMUTABLE, Report};
use crate::resource::Target;

pub(crate) struct ControllerRevision;

impl Kind for ControllerRevision {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        if !object.has("data") {
            report.required(&object.get("data"), "data is mandatory");
        } else if !object.member("data").is_object() {
            report.required(&object.get("data"), "data must be a valid JSON object");
        }
        report.not_negative(&object.get("revision"));
    }

    fn validate_update(&self, _: Target<'_>, new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        report.not_negative(&new.get("revision"));
        if new.member("data") != old.member("data") {
            report.invalid(&new.get("data"), IMMUTABLE);
        }
    }
}
