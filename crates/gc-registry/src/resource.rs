//! A resource: one row of the table of built-in kinds, or one served version of a definition.

use std::sync::Arc;

use gc_types::Scope;

pub use crate::target::Target;

/// Default treatment of dependents by a DELETE without options (spec `api-deletion.md`, section 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultGarbageCollection {
    /// Dependents are deleted.
    Delete,
    /// Dependents are orphaned.
    Orphan,
    /// GC finalizers are never set (events).
    Unsupported,
}

/// A subresource and its verbs, as shown in discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Name, such as `status`.
    pub name: Arc<str>,
    /// Group, version and kind of its body, which may differ from the resource's own.
    pub response_kind: (Arc<str>, Arc<str>, Arc<str>),
    /// Verbs.
    pub verbs: Vec<Arc<str>>,
}

/// A resource in one version.
#[derive(Clone, Debug)]
pub struct ResourceDefinition {
    /// API group; empty for core.
    pub group: Arc<str>,
    /// Version.
    pub version: Arc<str>,
    /// Plural name.
    pub resource: Arc<str>,
    /// Singular name.
    pub singular: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Kind of lists.
    pub list_kind: Arc<str>,
    /// Short names.
    pub short_names: Vec<Arc<str>>,
    /// Categories, such as `all`.
    pub categories: Vec<Arc<str>>,
    /// Scope.
    pub scope: Scope,
    /// Verbs, as shown in discovery.
    pub verbs: Vec<Arc<str>>,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Default propagation.
    pub default_garbage_collection: DefaultGarbageCollection,
    /// True if deletion takes a grace period (pods).
    pub graceful_deletion: bool,
    /// True if an immediate deletion returns the object rather than a Status.
    pub returns_deleted_object: bool,
    /// True if a PUT of an absent object creates it.
    pub update_creates: bool,
    /// True if a PUT must state the resourceVersion that it replaces.
    pub update_needs_version: bool,
    /// Served version of the definition, for custom resources.
    pub custom: Option<Arc<crate::crd::CustomVersion>>,
}

impl ResourceDefinition {
    /// Returns `group/version`, or `version` for core.
    #[must_use]
    pub fn api_version(&self) -> String {
        gc_types::api_version(&self.group, &self.version)
    }

    /// Reports whether objects are in namespaces.
    #[must_use]
    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Reports whether this is the built-in resource of that group and name, in any version.
    #[must_use]
    pub fn is(&self, group: &str, resource: &str) -> bool {
        *self.group == *group && *self.resource == *resource
    }

    /// Reports whether the objects of the resource are definitions of custom resources.
    pub(crate) fn is_of_definitions(&self) -> bool {
        self.is("apiextensions.k8s.io", "customresourcedefinitions")
    }

    /// Returns the key of the rules for the resource's kind.
    pub(crate) fn target(&self) -> Target<'_> {
        Target { group: &self.group, version: &self.version, resource: &self.resource, subresource: None }
    }

    /// Reports whether reads and writes may wait for a conversion webhook.
    #[must_use]
    pub fn asks_webhook(&self) -> bool {
        self.custom.as_ref().is_some_and(|custom| custom.webhook().is_some())
    }

    /// Reports whether the resource has a verb.
    #[must_use]
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| **known == *verb)
    }
}

/// Kind of a subresource's body.
#[derive(Clone, Copy, Debug)]
pub struct BodyKind {
    /// API group; empty for the core.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
}

impl BodyKind {
    /// Body of `…/scale`.
    pub(crate) const SCALE: Self = Self { group: "autoscaling", version: "v1", kind: "Scale" };
}
