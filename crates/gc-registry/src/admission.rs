//! Admission (spec `api-deletion.md`, 11 and 12.4): NamespaceLifecycle, OwnerReferencesPermissionEnforcement,
//! and the protection of what a cluster cannot do without.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::{Attributes, Write};
use crate::call::Call;
use crate::error::{ApiError, Cause};
use crate::meta;
use crate::names::quoted;
use crate::persist;

/// Namespaces that are never deleted.
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];
/// Prefix of the priority classes that are never deleted.
const SYSTEM_PRIORITY_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

impl Call<'_> {
    /// NamespaceLifecycle for CREATE, including POST to subresources and apply that would create.
    pub(crate) fn admit_creation(&self, name: &str) -> Result<(), ApiError> {
        let Some(namespace) = self.read_namespace()? else { return Ok(()) };
        if !meta::is_deleting(&namespace)
            && namespace.pointer("/status/phase").and_then(Value::as_str) != Some("Terminating")
        {
            return Ok(());
        }
        let place = &self.target.namespace;
        let why = format!("unable to create new content in namespace {place} because it is being terminated");
        let mut error = self.forbidden(name, &why);
        if let Some(details) = &mut error.details {
            details.causes = vec![Cause {
                reason: "NamespaceTerminating".into(),
                message: format!("namespace {place} is being terminated"),
                field: "metadata.namespace".into(),
            }];
        }
        Err(error)
    }

    /// NamespaceLifecycle for UPDATE: the namespace must exist, terminating or not.
    pub(crate) fn admit_update(&self) -> Result<(), ApiError> {
        self.read_namespace().map(|_| ())
    }

    /// The namespace of the request; `None` if the request is in none, an error if it does not exist.
    fn read_namespace(&self) -> Result<Option<Value>, ApiError> {
        let name = &self.target.namespace;
        if name.is_empty()
            || !self.resource().namespaced()
            || self.resource().is("authorization.k8s.io", "localsubjectaccessreviews")
        {
            return Ok(None);
        }
        match self.read(&persist::namespace_key(name))? {
            Some(stored) => serde_json::from_slice(&stored.value)
                .map(Some)
                .map_err(|why| ApiError::internal(format!("stored object is corrupt: {why}"))),
            None => Err(ApiError::not_found("", "namespaces", name)),
        }
    }

    /// Admission of DELETE: what a cluster cannot do without stays.
    pub(crate) fn admit_deletion(&self, name: &str) -> Result<(), ApiError> {
        let resource = self.resource();
        if resource.is("", "namespaces") && IMMORTAL_NAMESPACES.contains(&name) {
            return Err(self.forbidden(name, "this namespace may not be deleted"));
        }
        if resource.is("scheduling.k8s.io", "priorityclasses") && SYSTEM_PRIORITY_CLASSES.contains(&name) {
            return Err(self.forbidden(name, "this is a system priority class and cannot be deleted"));
        }
        Ok(())
    }

    pub(crate) fn forbidden(&self, name: &str, why: &str) -> ApiError {
        ApiError::forbidden(&self.resource().group, &self.resource().resource, name, why)
    }

    /// What the authorizer refuses for the content of the object: escalation by roles and bindings.
    pub(crate) fn admit_content(&self, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let read = |group: &str, resource: &str, namespace: &str, name: &str| {
            let catalog = self.registry.catalog();
            let Some(definition) = catalog.find(group, "v1", resource) else { return Ok(None) };
            let key = persist::object_key(definition, namespace, name);
            self.read(&key)?.map(|stored| persist::decode(definition, &stored)).transpose()
        };
        self.context
            .authorizer
            .admit(self.context.user, &Write { target: self.target, new, old, read: &read })
    }

    /// An update or an apply of an absent object is a create, and needs that right, too.
    pub(crate) fn admit_creation_by_update(&self) -> Result<(), ApiError> {
        let name = &self.target.name;
        if name.is_empty() || self.user_may("create", &self.target.subresource, name) {
            return Ok(());
        }
        let resource = self.resource();
        let place = if self.target.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {}", quoted(&self.target.namespace))
        };
        Err(self.forbidden(
            name,
            &format!(
                "User {} cannot create resource {} in API group {} {place}",
                quoted(&self.context.user.name),
                quoted(&resource.resource),
                quoted(&resource.group)
            ),
        ))
    }

    /// CertificateApproval and CertificateSigning: who changes what was approved or issued may do so for the signer.
    pub(crate) fn admit_certificate(&self, new: &Value, old: &Value) -> Result<(), ApiError> {
        if !self.resource().is("certificates.k8s.io", "certificatesigningrequests") {
            return Ok(());
        }
        let changed = |field: &str| new.pointer(field) != old.pointer(field);
        let verb = match self.target.subresource.as_str() {
            "approval" => "approve",
            "status" if changed("/status/certificate") || changed("/status/conditions") => "sign",
            _ => return Ok(()),
        };
        let signer = old.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or_default();
        let domain = signer.split('/').next().unwrap_or_default();
        let allowed = [signer, &format!("{domain}/*")].into_iter().any(|name| {
            let attributes = Attributes {
                verb,
                group: "certificates.k8s.io",
                version: "*",
                resource: "signers",
                name,
                ..Attributes::default()
            };
            self.context.authorizer.allows(self.context.user, &attributes)
        });
        if allowed {
            return Ok(());
        }
        let why = format!("user not permitted to {verb} requests with signerName {}", quoted(signer));
        Err(self.forbidden(meta::name(old), &why))
    }

    /// OwnerReferencesPermissionEnforcement (spec 11). Unlike upstream, a reference counts as known only if the
    /// stored one is the same owner in every coordinate (S09).
    pub(crate) fn admit_owner_references(&self, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        if !self.registry.config.owner_references_permission_enforcement {
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
        if old.is_some() && !self.user_may("delete", &self.target.subresource, name) {
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

    fn user_may(&self, verb: &str, subresource: &str, name: &str) -> bool {
        let resource = self.resource();
        let attributes = Attributes {
            verb,
            group: &resource.group,
            version: &resource.version,
            resource: &resource.resource,
            subresource,
            namespace: &self.target.namespace,
            name,
        };
        self.context.authorizer.allows(self.context.user, &attributes)
    }
}

/// Every coordinate of an owner, as a text to compare by.
fn owner(reference: &Value) -> String {
    let coordinates = ["apiVersion", "kind", "name", "uid"].map(|field| reference.get(field));
    serde_json::to_string(&coordinates).unwrap_or_default()
}
