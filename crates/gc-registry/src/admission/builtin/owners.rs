//! OwnerReferencesPermissionEnforcement (spec `api-deletion.md`, 11).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::admission::Plugin;
use crate::api::Attributes;
use crate::error::ApiError;
use crate::metadata::meta;
use crate::registry::call::Call;

impl Call<'_> {
    /// Implements OwnerReferencesPermissionEnforcement (spec 11). Unlike upstream, a reference only counts as already stored if
    /// every field that identifies the owner is unchanged (S09), and a write through a subresource requires the right to delete the
    /// object itself, because that is what a collector does to it.
    pub(crate) fn admit_owner_references(&self, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        if !self.has(Plugin::OwnerReferencesPermissionEnforcement) {
            return Ok(());
        }
        if self.resource().is("", "pods") && self.target.subresource == "status" {
            return Ok(());
        }
        let references = meta::owner_references(new);
        let before = old.map(meta::owner_references).unwrap_or_default();
        if references == before {
            return Ok(());
        }
        let name = meta::name(new);
        let may_delete = || {
            let subresource = &self.target.subresource;
            self.user_may("delete", subresource, name)
                && (subresource.is_empty() || self.user_may("delete", "", name))
        };
        if old.is_some() && !may_delete() {
            return Err(
                self.forbidden(name, "cannot set an ownerRef on a resource you can't delete: , <nil>")
            );
        }
        let blocks = |reference: &Value| reference.get("blockOwnerDeletion") == Some(&Value::Bool(true));
        let known: BTreeSet<String> = before.iter().filter(|known| blocks(known)).map(owner).collect();
        let newly_blocking: Vec<&Value> = references
            .iter()
            .filter(|reference| blocks(reference) && !known.contains(&owner(reference)))
            .collect();
        if newly_blocking.is_empty() {
            return Ok(());
        }
        let everything = Attributes {
            verb: "update",
            group: "*",
            version: "*",
            resource: "*",
            subresource: "finalizers",
            name: "*",
            namespace: "",
        };
        if self.context.authorizer.allows(self.context.user, &everything) {
            return Ok(());
        }
        newly_blocking.into_iter().try_for_each(|reference| self.admit_blocking(name, reference))
    }

    fn admit_blocking(&self, name: &str, reference: &Value) -> Result<(), ApiError> {
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let catalog = self.registry.catalog();
        let mut known = false;
        for owner in catalog.by_kind(group, version, kind) {
            known = true;
            let attributes = Attributes {
                verb: "update",
                group,
                version,
                resource: &owner.resource,
                subresource: "finalizers",
                name: text("name"),
                namespace: if owner.namespaced() { &self.target.namespace } else { "" },
            };
            if !self.context.authorizer.allows(self.context.user, &attributes) {
                let why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set \
                           finalizers on: , <nil>";
                return Err(self.forbidden(name, why));
            }
        }
        if known {
            return Ok(());
        }
        let why = format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind \
             {kind}: no matches for kind {kind:?} in version {api_version:?}"
        );
        Err(self.forbidden(name, &why))
    }
}

/// Returns all fields that identify an owner, as a text to compare.
fn owner(reference: &Value) -> String {
    let coordinates = ["apiVersion", "kind", "name", "uid"].map(|field| reference.get(field));
    serde_json::to_string(&coordinates).unwrap_or_default()
}
