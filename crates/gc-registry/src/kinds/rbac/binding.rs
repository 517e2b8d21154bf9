//! Bindings of roles, in namespaces and in the cluster.

use serde_json::Value;

use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::Report;
use crate::kinds::shared::names::{path_segment, subdomain};
use crate::resource::Target;

const RBAC: &str = "rbac.authorization.k8s.io";

pub(crate) struct Binding {
    /// Whether it binds in the whole cluster.
    pub(crate) cluster: bool,
}

impl Kind for Binding {
    fn validate(&self, _: Target<'_>, object: &Field<'_, '_>, report: &mut Report) {
        let role = object.get("roleRef");
        if role.text_of("apiGroup") != RBAC {
            report.not_supported(&role.get("apiGroup"), &[RBAC]);
        }
        let kinds: &[&str] = if self.cluster { &["ClusterRole"] } else { &["Role", "ClusterRole"] };
        if !kinds.contains(&role.text_of("kind")) {
            report.not_supported(&role.get("kind"), kinds);
        }
        let name = role.get("name");
        if name.text().is_empty() {
            report.required(&name, "");
        } else {
            report.each(&name, path_segment(name.text()));
        }
        for item in object.get("subjects").items() {
            subject(&item, self.cluster, report);
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
        let role = new.get("roleRef");
        if role.value() != old.member("roleRef") {
            let part = |member: &str| Value::from(role.text_of(member));
            let shown = format!(
                "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
                part("apiGroup"),
                part("kind"),
                part("name")
            );
            report.invalid_shown(&role, &shown, "cannot change roleRef");
        }
    }
}

fn subject(field: &Field<'_, '_>, cluster: bool, report: &mut Report) {
    let (name, group, kind) = (field.get("name"), field.get("apiGroup"), field.get("kind"));
    if name.text().is_empty() {
        report.required(&name, "");
    }
    match kind.text() {
        "ServiceAccount" => {
            if !name.text().is_empty() {
                subdomain(&name, report);
            }
            if !group.text().is_empty() {
                report.not_supported(&group, &[""]);
            }
            if cluster && field.text_of("namespace").is_empty() {
                report.required(&field.get("namespace"), "");
            }
        }
        "User" | "Group" => {
            if group.text() != RBAC {
                report.not_supported(&group, &[RBAC]);
            }
        }
        _ => report.not_supported(&kind, &["ServiceAccount", "User", "Group"]),
    }
}
