//! Claims to devices.

use super::{requests, status};
use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::{IMMUTABLE, Report};
use crate::resource::Target;
use crate::schema::shown::internal;

const SPEC: &str = "api.resource.v1.ResourceClaimSpec";

pub(crate) struct ResourceClaim;

impl Kind for ResourceClaim {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        requests::spec(&object.get("spec"), report);
    }

    fn validate_update(
        &self,
        target: Target<'_>,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        let spec = new.get("spec");
        if spec.value() == old.member("spec") {
            self.validate(target, new, report);
        } else {
            report.invalid_shown(&spec, &internal(SPEC, spec.value()).compact(), IMMUTABLE);
        }
    }

    fn validate_status(&self, _: Target<'_>, new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        status::status(new, old, report);
    }
}
