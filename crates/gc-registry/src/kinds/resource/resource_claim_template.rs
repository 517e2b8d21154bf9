//! Templates of claims.

use super::requests;
use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::{IMMUTABLE, Report};
use crate::kinds::shared::claims::template_metadata;
use crate::resource::Target;
use crate::schema::shown::internal;

pub(crate) struct ResourceClaimTemplate;

impl Kind for ResourceClaimTemplate {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        template_metadata(&spec.get("metadata"), report);
        requests::spec(&spec.get("spec"), report);
    }

    fn validate_update(
        &self,
        target: Target<'_>,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        self.validate(target, new, report);
        let spec = new.get("spec");
        if spec.value() != old.member("spec") {
            let shown = internal("api.resource.v1.ResourceClaimTemplateSpec", spec.value()).compact();
            report.invalid_shown(&spec, &shown, IMMUTABLE);
        }
    }
}
