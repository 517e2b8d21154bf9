//! Claims for devices.

use super::requests::default_requests;
use super::{requests, status};
use crate::kinds::prelude::*;
use crate::schema::shown::internal;

const SPEC: &str = "api.resource.v1.ResourceClaimSpec";

pub(crate) struct ResourceClaim;

impl Kind for ResourceClaim {
    const PARTS: Parts = Parts::StatusOnly;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata =
        Metadata { update: &[MetadataCheck::Whole, MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("State", T("A summary of the current state (allocated, pending, reserved, etc.).")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), state(row).into(), row.age()]
    }

    fn defaults(members: &mut Members) {
        if let Some(spec) = existing(members, "spec") {
            default_requests(spec);
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        requests::spec(&object.get("spec"), report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let spec = new.get("spec");
        if spec.value() == old.member("spec") {
            Self::validate(new, report);
        } else {
            report.invalid_shown(&spec, &internal(SPEC, spec.value()).compact(), IMMUTABLE);
        }
    }

    fn validate_status(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        status::status(new, old, report);
    }
}

/// Returns the state of a resource claim: `pending`, or `allocated` with its consumers.
fn state(row: &Row<'_>) -> String {
    let mut states = Vec::new();
    if at(row.object, &["metadata", "deletionTimestamp"]).is_some() {
        states.push("deleted");
    }
    if at(row.object, &["status", "allocation"]).is_none() {
        if states.is_empty() {
            states.push("pending");
        }
    } else {
        states.push("allocated");
        states.push(if row.list(&["status", "reservedFor"]).is_empty() { "" } else { "reserved" });
    }
    states.retain(|state| !state.is_empty());
    states.join(",")
}
