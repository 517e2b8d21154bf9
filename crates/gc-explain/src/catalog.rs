//! Resources of a server, and the words that users have for them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gc_types::{Gvr, ResourceId, ResourceInfo, Scope, api_path, group_resource};
use serde::Deserialize;

/// A resource by its group and plural name, in any version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// Group; empty for core.
    pub group: Arc<str>,
    /// Plural name.
    pub resource: Arc<str>,
}

impl GroupResource {
    /// Creates the name of a resource.
    #[must_use]
    pub fn new(group: &str, resource: &str) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }
}

/// Formats as kubectl writes it: `pods`, `deployments.apps`.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&group_resource(&self.group, &self.resource))
    }
}

/// A resource in the version that the server prefers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Number of the resource in this catalog.
    pub id: ResourceId,
    /// Group and plural name.
    pub name: GroupResource,
    /// Version.
    pub version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Singular name.
    pub singular: Arc<str>,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
    /// Scope.
    pub scope: Scope,
    /// Verbs.
    pub verbs: Vec<String>,
    /// Every apiVersion under which it is served.
    pub served_api_versions: Vec<Arc<str>>,
}

impl Resource {
    /// Returns `apiVersion` of its objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        gc_types::api_version(&self.name.group, &self.version)
    }

    /// Reports whether a verb is served.
    #[must_use]
    pub fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// Reports whether its objects can be listed and deleted, and therefore take part in collection.
    #[must_use]
    pub fn is_collectable(&self) -> bool {
        self.has("list") && self.has("delete")
    }

    /// Reports whether its objects live in namespaces.
    #[must_use]
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Returns the path of the collection, in one namespace or, if that is empty, in all.
    #[must_use]
    pub fn path(&self, namespace: &str) -> String {
        let root = api_path(&self.name.group, &self.version);
        if namespace.is_empty() {
            format!("{root}/{}", self.name.resource)
        } else {
            format!("{root}/namespaces/{namespace}/{}", self.name.resource)
        }
    }

    /// Returns the part that the ownership engine needs.
    #[must_use]
    pub fn info(&self) -> ResourceInfo {
        ResourceInfo {
            id: self.id,
            gvr: Gvr {
                group: Arc::clone(&self.name.group),
                version: Arc::clone(&self.version),
                resource: Arc::clone(&self.name.resource),
            },
            kind: Arc::clone(&self.kind),
            scope: self.scope,
            served_api_versions: self.served_api_versions.clone(),
            watched: self.is_collectable(),
            comparable_versions: true,
        }
    }
}

/// Failure to read the discovery documents or to find a resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// The discovery document cannot be read.
    #[error("the discovery document at {path} cannot be read: {message}")]
    Malformed {
        /// Path it was read from.
        path: &'static str,
        /// The error.
        message: String,
    },
    /// No resource has this name.
    #[error("the server has no resource that is called {0:?}; `kubectl api-resources` lists them")]
    Unknown(String),
}

/// Resources of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    resources: Vec<Resource>,
    by_name: BTreeMap<GroupResource, usize>,
    /// Group versions that could not be discovered (`metrics.k8s.io/v1beta1`), in order.
    pub failed: Vec<String>,
}

#[derive(Deserialize)]
struct WireList {
    #[serde(default)]
    items: Vec<WireGroup>,
}

#[derive(Deserialize)]
struct WireGroup {
    #[serde(default)]
    metadata: WireName,
    #[serde(default)]
    versions: Vec<WireVersion>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireName {
    name: String,
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct WireVersion {
    version: String,
    freshness: String,
    resources: Vec<WireResource>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireResource {
    resource: String,
    response_kind: WireKind,
    scope: String,
    singular_resource: String,
    short_names: Vec<String>,
    categories: Vec<String>,
    verbs: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireKind {
    kind: String,
}

impl Catalog {
    /// Reads the aggregated discovery documents of `/api` and `/apis`.
    pub fn read(core: &[u8], named: &[u8]) -> Result<Self, CatalogError> {
        let mut catalog = Self::default();
        for (path, document) in [("/api", core), ("/apis", named)] {
            let list: WireList = serde_json::from_slice(document)
                .map_err(|error| CatalogError::Malformed { path, message: error.to_string() })?;
            for group in list.items {
                catalog.add(group);
            }
        }
        Ok(catalog)
    }

    fn add(&mut self, group: WireGroup) {
        let name = group.metadata.name;
        for WireVersion { version, freshness, resources } in group.versions {
            let api_version = if name.is_empty() { version.clone() } else { format!("{name}/{version}") };
            if freshness == "Stale" {
                self.failed.push(api_version.clone());
            }
            for wire in resources {
                let key = GroupResource::new(&name, &wire.resource);
                if let Some(known) = self.by_name.get(&key).and_then(|place| self.resources.get_mut(*place)) {
                    known.served_api_versions.push(api_version.as_str().into());
                    continue;
                }
                // A catalog always holds fewer resources than 32 bits can count.
                let id = ResourceId(u32::try_from(self.resources.len()).unwrap_or(u32::MAX));
                self.by_name.insert(key.clone(), self.resources.len());
                self.resources.push(Resource {
                    id,
                    name: key,
                    version: version.as_str().into(),
                    kind: wire.response_kind.kind.into(),
                    singular: wire.singular_resource.into(),
                    short_names: wire.short_names,
                    categories: wire.categories,
                    scope: if wire.scope == "Namespaced" { Scope::Namespaced } else { Scope::Cluster },
                    verbs: wire.verbs,
                    served_api_versions: vec![api_version.as_str().into()],
                });
            }
        }
    }

    /// Returns every resource, by number.
    #[must_use]
    pub fn all(&self) -> &[Resource] {
        &self.resources
    }

    /// Returns the resource of this number.
    #[must_use]
    pub fn get(&self, id: ResourceId) -> Option<&Resource> {
        self.resources.get(usize::try_from(id.0).ok()?)
    }

    /// Returns the resource of this group and plural name.
    #[must_use]
    pub fn named(&self, name: &GroupResource) -> Option<&Resource> {
        self.by_name.get(name).and_then(|place| self.resources.get(*place))
    }

    /// Returns the resource of a kind, as owner references spell it.
    #[must_use]
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        self.resources.iter().find(|resource| {
            *resource.kind == *kind
                && resource.served_api_versions.iter().any(|served| **served == *api_version)
        })
    }

    /// Reports whether the absence of a resource of this group proves nothing.
    #[must_use]
    pub fn is_unclear(&self, group: &str) -> bool {
        self.failed.iter().any(|failed| failed.rsplit_once('/').map_or("", |(group, _)| group) == group)
    }

    /// Returns the resources that a word names. It can be a plural, singular or short name or a kind, with or without group (or
    /// version and group), or a category. Exact names come before short names, and those before categories.
    pub fn find(&self, word: &str) -> Result<Vec<&Resource>, CatalogError> {
        let word = word.to_lowercase();
        let (name, group) = match word.split_once('.') {
            Some((name, group)) => (name, Some(group)),
            None => (&*word, None),
        };
        let is_in_group = |resource: &Resource| {
            group.is_none_or(|group| {
                *resource.name.group == *group
                    || format!("{}.{}", resource.version, resource.name.group) == group
            })
        };
        let is_named = |resource: &Resource| {
            *resource.name.resource == *name
                || *resource.singular == *name
                || resource.kind.to_lowercase() == name
        };
        let is_short = |resource: &Resource| resource.short_names.iter().any(|short| short == name);
        let candidates = || self.resources.iter().filter(|resource| is_in_group(resource));
        let one = candidates()
            .find(|resource| is_named(resource))
            .or_else(|| candidates().find(|resource| is_short(resource)));
        if let Some(resource) = one {
            return Ok(vec![resource]);
        }
        let is_category = |resource: &&Resource| resource.categories.contains(&word);
        let found: Vec<&Resource> = self.resources.iter().filter(is_category).collect();
        if found.is_empty() { Err(CatalogError::Unknown(word)) } else { Ok(found) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    const CORE: &str = r#"{"items":[{"metadata":{},"versions":[{"version":"v1","freshness":"Current","resources":[
        {"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","singularResource":"pod",
         "shortNames":["po"],"categories":["all"],"verbs":["list","delete"]}]}]}]}"#;
    const NAMED: &str = r#"{"items":[
        {"metadata":{"name":"apps"},"versions":[
          {"version":"v1","freshness":"Current","resources":[{"resource":"deployments",
           "responseKind":{"kind":"Deployment"},"scope":"Namespaced","singularResource":"deployment",
           "shortNames":["deploy"],"categories":["all"],"verbs":["list"]}]},
          {"version":"v1beta1","freshness":"Current","resources":[{"resource":"deployments",
           "responseKind":{"kind":"Deployment"},"scope":"Namespaced"}]}]},
        {"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1beta1","freshness":"Stale"}]}]}"#;

    #[test]
    fn resources_are_found_by_every_word_that_kubectl_takes() {
        let catalog = Catalog::read(CORE.as_bytes(), NAMED.as_bytes()).unwrap();
        let names = |word: &str| -> Vec<String> {
            catalog.find(word).unwrap().iter().map(|resource| resource.name.to_string()).collect()
        };
        for word in ["pods", "pod", "Pod", "po", "PODS"] {
            assert_eq!(names(word), ["pods"], "{word}");
        }
        for word in ["deploy", "deployments.apps", "Deployment.v1.apps", "deployment"] {
            assert_eq!(names(word), ["deployments.apps"], "{word}");
        }
        assert_eq!(names("all"), ["pods", "deployments.apps"]);
        assert_eq!(
            catalog.find("deployments.extensions"),
            Err(CatalogError::Unknown("deployments.extensions".into()))
        );
        let deployments = catalog.of_kind("apps/v1beta1", "Deployment").unwrap();
        assert_eq!(deployments.path("shop"), "/apis/apps/v1/namespaces/shop/deployments");
        assert_eq!(catalog.failed, ["metrics.k8s.io/v1beta1"]);
        assert!(catalog.is_unclear("metrics.k8s.io") && !catalog.is_unclear("apps"));
    }
}
