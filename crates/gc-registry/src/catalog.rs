//! The table of all resources: the built-in ones, and those of custom resource definitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::resource::ResourceDefinition;

/// One version of a group, as discovery shows it.
#[derive(Clone, Debug, Default)]
pub struct GroupVersion {
    /// Version, such as `v1`.
    pub version: Arc<str>,
    /// The resources, in discovery's order.
    pub resources: Vec<Arc<ResourceDefinition>>,
}

/// One group.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Name; empty for core.
    pub name: Arc<str>,
    /// Versions, the preferred one first.
    pub versions: Vec<GroupVersion>,
}

/// A snapshot of everything that is served.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    groups: Vec<Group>,
    rows: BTreeMap<(Arc<str>, Arc<str>, Arc<str>), Arc<ResourceDefinition>>,
}

impl Catalog {
    /// All groups in discovery's order; core is the first.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// A group by name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| *group.name == *name)
    }

    /// One resource in one version.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<ResourceDefinition>> {
        self.rows.get(&(group.into(), version.into(), resource.into()))
    }
}
