//! Bindings of roles, in namespaces and for the cluster.

use crate::kinds::prelude::*;
use crate::kinds::shared::names::{path_segment, subdomain};
use crate::metadata::names;

const RBAC: &str = "rbac.authorization.k8s.io";

// Upstream prints the description of this field from an older version of the kinds.
const OF_CLUSTER_ROLE: &str = "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be \
     resolved, the Authorizer must return an error.";
const OF_ROLE: &str = "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the \
     RoleRef cannot be resolved, the Authorizer must return an error.";
const OF_CLUSTER: &[Column] = &[
    H::NAME,
    H::text("Role", T(OF_CLUSTER_ROLE)),
    H::AGE,
    H::wide("Users", T("Users in the clusterRoleBinding")),
    H::wide("Groups", T("Groups in the clusterRoleBinding")),
    H::wide("ServiceAccounts", T("ServiceAccounts in the clusterRoleBinding")),
];
const OF_NAMESPACE: &[Column] = &[
    H::NAME,
    H::text("Role", T(OF_ROLE)),
    H::AGE,
    H::wide("Users", T("Users in the roleBinding")),
    H::wide("Groups", T("Groups in the roleBinding")),
    H::wide("ServiceAccounts", T("ServiceAccounts in the roleBinding")),
];

/// Bindings; `CLUSTER` is true for those that apply to the whole cluster.
pub(crate) struct Binding<const CLUSTER: bool>;

impl<const CLUSTER: bool> Kind for Binding<CLUSTER> {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata {
        name: names::path_segment,
        update: &[MetadataCheck::Whole, MetadataCheck::Change],
        ..Metadata::DEFAULT
    };
    const COLUMNS: &'static [Column] = if CLUSTER { OF_CLUSTER } else { OF_NAMESPACE };

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let role = format!("{}/{}", row.text(&["roleRef", "kind"]), row.text(&["roleRef", "name"]));
        let subjects = |kind: &str| -> Value {
            row.list(&["subjects"])
                .iter()
                .filter(|subject| text(subject, &["kind"]) == kind)
                .map(|subject| match kind {
                    "ServiceAccount" => {
                        format!("{}/{}", text(subject, &["namespace"]), text(subject, &["name"]))
                    }
                    _ => text(subject, &["name"]).to_owned(),
                })
                .collect::<Vec<_>>()
                .join(", ")
                .into()
        };
        vec![
            row.name(),
            role.into(),
            row.age(),
            subjects("User"),
            subjects("Group"),
            subjects("ServiceAccount"),
        ]
    }

    fn defaults(members: &mut Members) {
        if let Some(role) = child(members, "roleRef") {
            fill(role, "apiGroup", RBAC);
        }
        for subject in items(members, "subjects") {
            if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
                fill(subject, "apiGroup", RBAC);
            }
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let role = object.get("roleRef");
        if role.text_of("apiGroup") != RBAC {
            report.not_supported(&role.get("apiGroup"), &[RBAC]);
        }
        let kinds: &[&str] = if CLUSTER { &["ClusterRole"] } else { &["Role", "ClusterRole"] };
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
            subject(&item, CLUSTER, report);
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        Self::validate(new, report);
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
