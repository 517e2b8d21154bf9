//! Admission: sets fields of an object, and refuses it, beyond the rules of its kind.
//!
//! A write passes the plugins that set fields (`Call::mutate`), is prepared and validated, and passes the plugins that refuse
//! (`Call::validate`), in upstream's order. Outside calls belong at the end of the first step and before the last part of the
//! second; quotas come last, so that nothing is charged for a write that is refused.

mod builtin;
pub mod configured;
use serde_json::Value;

use crate::api::{Attributes, Write};
use crate::error::ApiError;
use crate::metadata::meta;
use crate::metadata::names::quoted;
use crate::persist;
use crate::registry::call::{Call, Charge};
use crate::storage::RangeOptions;
pub use builtin::plugins::{Plugin, Plugins, UnknownPlugin};

/// Sets fields of a request's object.
type Mutate = fn(&Request<'_>, &mut Value) -> Result<(), ApiError>;
/// Refuses a request, or adds warnings.
type Validate = fn(&Request<'_>, &Value, &mut Vec<String>) -> Result<(), ApiError>;

/// Actions of plugins in the order of their calls; the other plugins act elsewhere.
static HOOKS: &[(Plugin, Option<Mutate>, Option<Validate>)] = &[
    (Plugin::LimitRanger, Some(builtin::limit_ranger::default_resources), Some(builtin::limit_ranger::check)),
    (Plugin::ServiceAccount, Some(builtin::service_account::mutate), Some(builtin::service_account::check)),
    (Plugin::TaintNodesByCondition, Some(builtin::nodes::taint), None),
    (Plugin::PodSecurity, None, Some(builtin::pod_security::check)),
    (Plugin::Priority, Some(builtin::pods::set_priority), Some(builtin::pods::check_default_class)),
    (Plugin::DefaultTolerationSeconds, Some(builtin::pods::tolerate), None),
    (Plugin::DefaultStorageClass, Some(builtin::storage::default_class), None),
    (Plugin::StorageObjectInUseProtection, Some(builtin::storage::protect), None),
    (Plugin::PersistentVolumeClaimResize, None, Some(builtin::storage::check_resize)),
    (Plugin::RuntimeClass, Some(builtin::runtime_class::complete), Some(builtin::runtime_class::check)),
    (Plugin::ClusterTrustBundleAttest, None, Some(builtin::certificates::attest)),
    (Plugin::CertificateSubjectRestriction, None, Some(builtin::certificates::restrict_subject)),
    (Plugin::NodeDeclaredFeatureValidator, None, Some(builtin::pod_resize::check_features)),
    (Plugin::PodResizeValidator, None, Some(builtin::pod_resize::check)),
    (Plugin::DefaultIngressClass, Some(builtin::ingress_class::default_class), None),
];

/// A write, as plugins see it.
struct Request<'a> {
    call: &'a Call<'a>,
    /// The stored object that is being updated, if any.
    old: Option<&'a Value>,
}

impl Request<'_> {
    /// Reports whether an object of this resource itself is written, not a subresource.
    fn writes(&self, group: &str, resource: &str) -> bool {
        self.call.target.subresource.is_empty() && self.call.resource().is(group, resource)
    }

    /// Reports whether an object of this resource is created.
    fn creates(&self, group: &str, resource: &str) -> bool {
        self.old.is_none() && self.writes(group, resource)
    }

    /// Reports whether the resources of a pod are changed, through the subresource for that.
    fn resizes(&self) -> bool {
        self.call.target.subresource == "resize" && self.call.resource().is("", "pods")
    }

    fn namespace(&self) -> &str {
        &self.call.target.namespace
    }

    fn forbidden(&self, object: &Value, why: &str) -> ApiError {
        let name = meta::name(object);
        self.call.forbidden(if name.is_empty() { meta::text(object, "generateName") } else { name }, why)
    }

    /// Reads a stored object.
    fn read(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        self.call.read_object(group, resource, namespace, name)
    }

    /// Reads the stored objects of a namespace, or of all namespaces.
    fn all(&self, group: &str, resource: &str, namespace: &str) -> Result<Vec<Value>, ApiError> {
        let catalog = self.call.registry.catalog();
        let Some(definition) = catalog.find(group, "v1", resource) else { return Ok(Vec::new()) };
        let prefix = persist::collection_prefix(definition, namespace);
        let options = RangeOptions::default();
        let answer = self.call.registry.storage.range(&prefix, &options).map_err(persist::storage_error)?;
        answer.items.iter().map(|stored| persist::decode(definition, stored)).collect()
    }
}

impl Call<'_> {
    /// Applies the plugins that set fields, before the object is prepared.
    pub(crate) fn mutate(&self, new: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
        let request = Request { call: self, old };
        for (plugin, mutate, _) in HOOKS {
            if let (true, Some(mutate)) = (self.has(*plugin), mutate) {
                mutate(&request, new)?;
            }
        }
        Ok(())
    }

    /// Applies the plugins that refuse, once the object is valid; charges quotas.
    pub(crate) fn validate(&mut self, new: &Value, old: Option<&Value>) -> Result<Vec<Charge>, ApiError> {
        let mut warnings = std::mem::take(&mut self.warnings);
        let request = Request { call: self, old };
        for (plugin, _, validate) in HOOKS {
            if let (true, Some(validate)) = (self.has(*plugin), validate) {
                validate(&request, new, &mut warnings)?;
            }
        }
        let charges = if self.has(Plugin::ResourceQuota) {
            builtin::quota::charges(&request, new)?
        } else {
            Vec::new()
        };
        self.warnings = warnings;
        self.ask_advisor(new, old)?;
        Ok(charges)
    }

    /// Refuses an object that the surrounding process considers wrong. An object that was accepted once can still be changed
    /// outside its `spec`.
    fn ask_advisor(&self, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let Some(advisor) = &self.registry.config.advisor else { return Ok(()) };
        if !self.target.subresource.is_empty() || old.is_some_and(|old| old["spec"] == new["spec"]) {
            return Ok(());
        }
        let resource = self.resource();
        let problems = advisor.problems(&resource.group, &resource.kind, new);
        if problems.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(&resource.group, &resource.kind, meta::name(new), &problems))
    }

    fn has(&self, plugin: Plugin) -> bool {
        self.registry.config.plugins.has(plugin)
    }

    pub(crate) fn read_object(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        let catalog = self.registry.catalog();
        let Some(definition) = catalog.find(group, "v1", resource) else { return Ok(None) };
        let key = persist::object_key(definition, namespace, name);
        self.read(&key)?.map(|stored| persist::decode(definition, &stored)).transpose()
    }

    pub(crate) fn forbidden(&self, name: &str, why: &str) -> ApiError {
        ApiError::forbidden(&self.resource().group, &self.resource().resource, name, why)
    }

    /// Refuses content that the authorizer forbids, which prevents escalation by roles and bindings.
    pub(crate) fn admit_content(&self, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let read = |group: &str, resource: &str, namespace: &str, name: &str| {
            self.read_object(group, resource, namespace, name)
        };
        self.context
            .authorizer
            .admit(self.context.user, &Write { target: self.target, new, old, read: &read })
    }

    /// Requires the right to create, because an update or an apply of an absent object creates it.
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
