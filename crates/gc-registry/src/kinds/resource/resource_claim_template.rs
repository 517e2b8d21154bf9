//! Templates of claims.

use super::requests;
use super::requests::default_requests;
use crate::kinds::prelude::*;
use crate::kinds::shared::claims::template_metadata;
use crate::schema::shown::internal;

pub(crate) struct ResourceClaimTemplate;

impl Kind for ResourceClaimTemplate {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata =
        Metadata { update: &[MetadataCheck::Whole, MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[H::NAME, H::AGE];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.age()]
    }

    fn defaults(members: &mut Members) {
        if let Some(spec) = existing(members, "spec").and_then(|spec| existing(spec, "spec")) {
            default_requests(spec);
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        template_metadata(&spec.get("metadata"), report);
        requests::spec(&spec.get("spec"), report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        Self::validate(new, report);
        let spec = new.get("spec");
        if spec.value() != old.member("spec") {
            let shown = internal("api.resource.v1.ResourceClaimTemplateSpec", spec.value()).compact();
            report.invalid_shown(&spec, &shown, IMMUTABLE);
        }
    }
}
