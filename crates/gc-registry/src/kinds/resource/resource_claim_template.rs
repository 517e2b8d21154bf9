//! Templates of claims.

use super::requests;
use super::requests::default_requests;
use crate::kinds::access::existing;
use crate::kinds::kind::prelude::*;
use crate::kinds::report::IMMUTABLE;
use crate::kinds::shared::claims::template_metadata;
use crate::schema::shown::internal;

const COLUMNS: &[Heading] = &[H::NAME, H::AGE];

pub(crate) struct ResourceClaimTemplate;

impl Kind for ResourceClaimTemplate {
    fn shape(&self) -> Shape {
        Shape { parts: Parts::Spec, generation: Generation::NONE }
    }

    fn columns(&self) -> &'static [Heading] {
        COLUMNS
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.age()]
    }

    fn defaults(&self, members: &mut Members) {
        if let Some(spec) = existing(members, "spec").and_then(|spec| existing(spec, "spec")) {
            default_requests(spec);
        }
    }

    fn validate(&self, object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        template_metadata(&spec.get("metadata"), report);
        requests::spec(&spec.get("spec"), report);
    }

    fn validate_update(&self, new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        self.validate(new, report);
        let spec = new.get("spec");
        if spec.value() != old.member("spec") {
            let shown = internal("api.resource.v1.ResourceClaimTemplateSpec", spec.value()).compact();
            report.invalid_shown(&spec, &shown, IMMUTABLE);
        }
    }
}
