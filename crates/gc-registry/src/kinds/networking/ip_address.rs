//! IP addresses.

use crate::kinds::prelude::*;
use crate::kinds::shared::names::{path_segment, subdomain};
use crate::metadata::names;

pub(crate) struct IpAddress;

impl Kind for IpAddress {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata {
        name: names::ip_address,
        update: &[MetadataCheck::Whole, MetadataCheck::Change],
        ..Metadata::DEFAULT
    };
    const COLUMNS: &'static [Column] =
        &[H::NAME, H::text("ParentRef", F("api.networking.v1.IPAddressSpec", "parentRef"))];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        // Upstream prints an age although there is no column for it.
        vec![row.name(), shown_parent(row), row.age()]
    }

    fn defaults(_: &mut Members) {}

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let parent = spec.get("parentRef");
        if !parent.is_set() {
            report.required(&parent, "");
            return;
        }
        if !parent.text_of("group").is_empty() {
            subdomain(&parent.get("group"), report);
        }
        for member in ["resource", "name", "namespace"] {
            let part = parent.get(member);
            if !part.text().is_empty() {
                report.each(&part, path_segment(part.text()));
            } else if member != "namespace" {
                report.required(&part, "");
            }
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        Self::validate(new, report);
        let spec = new.get("spec");
        let parent = spec.get("parentRef");
        if parent.value() != old.get("spec").member("parentRef") {
            let part = |member: &str| Value::from(parent.text_of(member));
            let shown = if parent.is_set() {
                format!(
                    "{{\"Group\":{},\"Resource\":{},\"Namespace\":{},\"Name\":{}}}",
                    part("group"),
                    part("resource"),
                    part("namespace"),
                    part("name")
                )
            } else {
                "null".into()
            };
            report.invalid_shown(&parent, &shown, IMMUTABLE);
        }
    }
}

fn shown_parent(row: &Row<'_>) -> Value {
    let Some(reference) = at(row.object, &["spec", "parentRef"]) else { return NONE.into() };
    let mut shown = text(reference, &["resource"]).to_lowercase();
    for (separator, key) in [('.', "group"), ('/', "namespace")] {
        let part = text(reference, &[key]);
        if !part.is_empty() {
            shown = format!("{shown}{separator}{part}");
        }
    }
    format!("{shown}/{}", text(reference, &["name"])).into()
}
