//! The table of resources: maps their numbers to routes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, PoisonError, RwLock};

use gc_types::{ObjectKey, ResourceId, ResourceInfo, api_path};

/// Route to a resource and its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The engine's description of the resource.
    pub info: ResourceInfo,
    /// `group/version`, or `version` for the core group.
    pub api_version: Arc<str>,
    /// `resource.group`, or `resource` for the core group, as people write it.
    pub name: Arc<str>,
    base: String,
}

impl Route {
    /// Creates the route of a resource.
    #[must_use]
    pub fn new(info: ResourceInfo) -> Self {
        let gvr = &info.gvr;
        let (api_version, name) = (gvr.api_version().into(), gvr.group_resource().into());
        let base = api_path(&gvr.group, &gvr.version);
        Self { info, api_version, name, base }
    }

    /// Returns the path of the collection in one namespace, or in all if empty.
    #[must_use]
    pub fn collection(&self, namespace: &str) -> String {
        let mut path = self.base.clone();
        if !namespace.is_empty() {
            path.push_str("/namespaces/");
            push_segment(&mut path, namespace);
        }
        path.push('/');
        path.push_str(&self.info.gvr.resource);
        path
    }

    /// Returns the path of one object.
    #[must_use]
    pub fn object(&self, key: &ObjectKey) -> String {
        let mut path = self.collection(&key.namespace);
        path.push('/');
        push_segment(&mut path, &key.name);
        path
    }

    /// Returns [`Route::name`] as a string.
    #[must_use]
    pub fn display_name(&self) -> String {
        self.name.to_string()
    }
}

/// Appends a name or a token as a path segment or as a value in a query. Characters that are special in either (a plus is a space
/// in a query) are percent-encoded.
pub fn push_segment(path: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:@!$'()*,;".contains(&byte) {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "%{byte:02X}"); // writing to a String cannot fail
        }
    }
}

/// All known resources, shared by watches and requests.
#[derive(Clone, Debug, Default)]
pub struct ResourceTable {
    routes: Arc<RwLock<BTreeMap<ResourceId, Arc<Route>>>>,
}

impl ResourceTable {
    /// Creates a table of these resources.
    #[must_use]
    pub fn of(resources: impl IntoIterator<Item = ResourceInfo>) -> Self {
        let table = Self::default();
        for info in resources {
            table.insert(Arc::new(Route::new(info)));
        }
        table
    }

    /// Returns the route of a resource, if known.
    #[must_use]
    pub fn get(&self, id: ResourceId) -> Option<Arc<Route>> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Returns all routes, by number.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Route>> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Adds or replaces a route.
    pub fn insert(&self, route: Arc<Route>) {
        self.routes.write().unwrap_or_else(PoisonError::into_inner).insert(route.info.id, route);
    }

    /// Removes a route.
    pub(crate) fn remove(&self, id: ResourceId) {
        self.routes.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gc_types::{Gvr, Scope};

    fn route(group: &str, version: &str, resource: &str) -> Route {
        Route::new(ResourceInfo {
            id: ResourceId(1),
            gvr: Gvr { group: group.into(), version: version.into(), resource: resource.into() },
            kind: "Kind".into(),
            scope: Scope::Namespaced,
            served_api_versions: Vec::new(),
            watched: true,
            comparable_versions: true,
        })
    }

    #[test]
    fn paths_are_those_of_the_api() {
        for (route, namespace, name, expected) in [
            (route("", "v1", "pods"), "shop", "web-1", "/api/v1/namespaces/shop/pods/web-1"),
            (route("", "v1", "nodes"), "", "n", "/api/v1/nodes/n"),
            (
                route("rbac.authorization.k8s.io", "v1", "clusterroles"),
                "",
                "system:a b/ü",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%20b%2F%C3%BC",
            ),
        ] {
            let key = ObjectKey { resource: ResourceId(1), namespace: namespace.into(), name: name.into() };
            assert_eq!(route.object(&key), expected);
        }
    }
}
