//! Controller revisions.

use crate::kinds::prelude::*;

pub(crate) struct ControllerRevision;

impl Kind for ControllerRevision {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Never;
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Controller", T("Controller of the object")),
        H::text("Revision", F("api.apps.v1.ControllerRevision", "revision")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let owner = controller(row).unwrap_or_else(|| NONE.into());
        vec![row.name(), owner.into(), row.number(&["revision"]).into(), row.age()]
    }

    fn defaults(members: &mut Members) {
        fill_absent(members, "revision", 0);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        if !object.has("data") {
            report.required(&object.get("data"), "data is mandatory");
        } else if !object.member("data").is_object() {
            report.required(&object.get("data"), "data must be a valid JSON object");
        }
        report.not_negative(&object.get("revision"));
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        report.not_negative(&new.get("revision"));
        if new.member("data") != old.member("data") {
            report.invalid(&new.get("data"), IMMUTABLE);
        }
    }
}

/// Returns `kind.group/name` of the controller, in lower case.
fn controller(row: &Row<'_>) -> Option<String> {
    let owners = row.list(&["metadata", "ownerReferences"]);
    let owner = owners.iter().find(|owner| flag(owner, &["controller"]) == Some(true))?;
    let group = text(owner, &["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
    let kind = text(owner, &["kind"]).to_lowercase();
    let name = text(owner, &["name"]);
    Some(if group.is_empty() { format!("{kind}/{name}") } else { format!("{kind}.{group}/{name}") })
}
