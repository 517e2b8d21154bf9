//! IP addresses.

use serde_json::Value;

use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::{IMMUTABLE, Report};
use crate::kinds::shared::names::{path_segment, subdomain};
use crate::resource::Target;

pub(crate) struct IpAddress;

impl Kind for IpAddress {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
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

    fn validate_update(
        &self,
        target: Target<'_>,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        self.validate(target, new, report);
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
