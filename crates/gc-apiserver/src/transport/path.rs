//! The API server's routing table: method, path and query to a target.
//!
//! This module does not know which resources exist. They are looked up later, after the request was authorized: an unknown path
//! must look the same as a known one to a user who may see neither.

use std::borrow::Cow;

use gc_registry::selector::pinned_name;

use crate::transport::query::Query;

/// Target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/api`, `/apis`, `/apis/GROUP`, `/api/v1`, `/apis/GROUP/VERSION`.
    Discovery(DiscoveryPath),
    /// An object, a collection or a subresource.
    Resource(ResourcePath),
    /// Anything else: health, metrics, version, OpenAPI, or nothing at all.
    Other,
}

impl Route {
    /// Returns the group and version of the path, if any.
    pub(crate) fn version(&self) -> Option<(&str, &str)> {
        match self {
            Self::Resource(target) => Some((&target.group, &target.version)),
            Self::Discovery(DiscoveryPath::Resources(group, version)) => Some((group, version)),
            Self::Discovery(_) | Self::Other => None,
        }
    }
}

/// One of the discovery documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiscoveryPath {
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group(String),
    /// `/api/VERSION` (empty group) or `/apis/GROUP/VERSION`
    Resources(String, String),
}

/// Coordinates of a resource request, as upstream's `RequestInfo` has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    /// Group; empty for core.
    pub(crate) group: String,
    /// Version.
    pub(crate) version: String,
    /// Plural name.
    pub(crate) resource: String,
    /// Namespace of the path; for the Namespace objects themselves, their own name (authorization treats them as inside it).
    pub(crate) namespace: String,
    /// Name, or empty.
    pub(crate) name: String,
    /// Subresource, or empty.
    pub(crate) subresource: String,
    /// Path after the subresource, of proxy paths.
    pub(crate) rest: String,
    /// True if the path has a `namespaces/NS` part in front of the resource.
    pub(crate) namespaced: bool,
    /// True if this is one of the deprecated `/watch/` paths.
    pub(crate) watch_path: bool,
}

/// Subresources of namespaces; any other second part below a namespace is a resource in it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// Parses a decoded path. A trailing slash is ignored; a doubled one leaves an empty part, which names nothing.
pub(crate) fn route(path: &str) -> Route {
    let path = path.strip_prefix('/').unwrap_or(path);
    let parts: Vec<&str> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["apis", "", ..] => return Route::Other,
        ["api"] => return Route::Discovery(DiscoveryPath::CoreVersions),
        ["apis"] => return Route::Discovery(DiscoveryPath::Groups),
        ["apis", group] => return Route::Discovery(DiscoveryPath::Group((*group).into())),
        ["api", version] => {
            return Route::Discovery(DiscoveryPath::Resources(String::new(), (*version).into()));
        }
        ["apis", group, version] => {
            return Route::Discovery(DiscoveryPath::Resources((*group).into(), (*version).into()));
        }
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Route::Other,
    };
    let (watch_path, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        _ => (false, rest),
    };
    let mut found =
        ResourcePath { group: group.into(), version: version.into(), watch_path, ..ResourcePath::default() };
    let rest = match rest {
        ["namespaces", namespace, tail @ ..] => {
            found.namespace = (*namespace).into();
            match tail {
                [first, ..] if !NAMESPACE_SUBRESOURCES.contains(first) => {
                    found.namespaced = true;
                    tail
                }
                _ => rest,
            }
        }
        _ => rest,
    };
    let mut rest = rest.iter();
    let mut next = || rest.next().map(|part| (*part).to_owned()).unwrap_or_default();
    found.resource = next();
    found.name = next();
    found.subresource = next();
    found.rest = rest.copied().collect::<Vec<_>>().join("/");
    Route::Resource(found)
}

/// Returns the verb of a resource request, as authorization and discovery name it; `None` for a method that no resource accepts.
pub(crate) fn resource_verb(
    method: &http::Method,
    path: &ResourcePath,
    query: &Query,
) -> Option<&'static str> {
    let single = !path.name.is_empty();
    Some(match *method {
        http::Method::POST => "create",
        http::Method::PUT => "update",
        http::Method::PATCH => "patch",
        http::Method::DELETE if single => "delete",
        http::Method::DELETE => "deletecollection",
        http::Method::GET | http::Method::HEAD => {
            // For a single object, watch= has no effect; only the old path watches one.
            let watch = path.watch_path || (!single && query.boolean("watch").unwrap_or(false));
            match (watch, single) {
                (true, _) => "watch",
                (false, true) => "get",
                (false, false) => "list",
            }
        }
        _ => return None,
    })
}

/// Returns the name that authorization uses for a request: the name in the path or, for a list or watch, the one that its field
/// selector pins, so that `resourceNames` can permit the list of one object. The deletion of a collection never has a name, and
/// neither have the deprecated `/watch/` paths or requests with invalid options.
pub(crate) fn authorized_name<'a>(path: &'a ResourcePath, verb: &str, query: &Query) -> Cow<'a, str> {
    if !path.name.is_empty() || path.watch_path || !matches!(verb, "list" | "watch") {
        return Cow::Borrowed(&path.name);
    }
    let pinned = query.list_options().ok().and_then(|options| pinned_name(&options.field_selector));
    pinned.map_or(Cow::Borrowed(""), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(
        group: &str,
        version: &str,
        resource: &str,
        namespace: &str,
        name: &str,
        subresource: &str,
        namespaced: bool,
    ) -> Route {
        Route::Resource(ResourcePath {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
            subresource: subresource.into(),
            namespaced,
            ..ResourcePath::default()
        })
    }

    #[test]
    fn paths_are_taken_apart_as_upstream_does() {
        let table = [
            ("/api", Route::Discovery(DiscoveryPath::CoreVersions)),
            ("/api/", Route::Discovery(DiscoveryPath::CoreVersions)),
            ("/apis", Route::Discovery(DiscoveryPath::Groups)),
            ("/apis/apps", Route::Discovery(DiscoveryPath::Group("apps".into()))),
            ("/api/v1", Route::Discovery(DiscoveryPath::Resources(String::new(), "v1".into()))),
            ("/apis/apps/v1", Route::Discovery(DiscoveryPath::Resources("apps".into(), "v1".into()))),
            ("/healthz", Route::Other),
            ("/", Route::Other),
            ("/api/v1/nodes", resource("", "v1", "nodes", "", "", "", false)),
            ("/api/v1/nodes/n", resource("", "v1", "nodes", "", "n", "", false)),
            ("/api/v1/nodes/n/status", resource("", "v1", "nodes", "", "n", "status", false)),
            ("/api/v1/namespaces", resource("", "v1", "namespaces", "", "", "", false)),
            ("/api/v1/namespaces/a", resource("", "v1", "namespaces", "a", "a", "", false)),
            ("/api/v1/namespaces/a/finalize", resource("", "v1", "namespaces", "a", "a", "finalize", false)),
            ("/api/v1/namespaces/a/pods", resource("", "v1", "pods", "a", "", "", true)),
            ("/api/v1/namespaces/a/pods/p", resource("", "v1", "pods", "a", "p", "", true)),
            (
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                resource("apps", "v1", "deployments", "a", "d", "scale", true),
            ),
            ("/apis/apps/v1/deployments", resource("apps", "v1", "deployments", "", "", "", false)),
            ("/api/v1/nodes/", resource("", "v1", "nodes", "", "", "", false)),
            ("/api/v1//nodes", resource("", "v1", "", "", "nodes", "", false)),
            ("/api//v1", resource("", "", "v1", "", "", "", false)),
            ("/apis//v1", Route::Other),
            ("/api/v1/namespaces/a//pods", resource("", "v1", "", "a", "pods", "", true)),
            ("/api/v1/namespaces//pods", resource("", "v1", "pods", "", "", "", true)),
        ];
        for (path, want) in table {
            assert_eq!(route(path), want, "{path}");
        }
    }

    #[test]
    fn verbs_follow_method_name_and_watch() {
        let table = [
            ("GET", "/api/v1/pods", "", Some("list")),
            ("GET", "/api/v1/pods", "watch=true", Some("watch")),
            ("GET", "/api/v1/pods", "watch=1", Some("watch")),
            ("GET", "/api/v1/pods", "watch=0", Some("list")),
            ("GET", "/api/v1/pods", "watch=False", Some("list")),
            ("GET", "/api/v1/watch/pods", "", Some("watch")),
            ("GET", "/api/v1/watch/namespaces/a/pods/p", "", Some("watch")),
            ("GET", "/api/v1/namespaces/a/pods/p", "", Some("get")),
            ("GET", "/api/v1/namespaces/a/pods/p", "watch=true", Some("get")),
            ("HEAD", "/api/v1/namespaces/a/pods/p", "", Some("get")),
            ("POST", "/api/v1/namespaces/a/pods", "", Some("create")),
            ("PUT", "/api/v1/namespaces/a/pods/p", "", Some("update")),
            ("PATCH", "/api/v1/namespaces/a/pods/p", "", Some("patch")),
            ("DELETE", "/api/v1/namespaces/a/pods/p", "", Some("delete")),
            ("DELETE", "/api/v1/namespaces/a/pods", "", Some("deletecollection")),
            ("TRACE", "/api/v1/namespaces/a/pods", "", None),
        ];
        for (method, path, query, want) in table {
            let Route::Resource(found) = route(path) else { panic!("{path} is no resource path") };
            let method = http::Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(resource_verb(&method, &found, &Query::parse(query)), want, "{method} {path}?{query}");
        }
    }

    #[test]
    fn only_lists_and_watches_take_a_name_from_their_selector() {
        let table = [
            ("GET", "/api/v1/pods", "fieldSelector=metadata.name%3Da", "a"),
            ("GET", "/api/v1/pods", "watch=1&fieldSelector=metadata.name%3Da", "a"),
            ("GET", "/api/v1/pods", "limit=x&fieldSelector=metadata.name%3Da", ""),
            ("GET", "/api/v1/watch/pods", "fieldSelector=metadata.name%3Da", ""),
            ("DELETE", "/api/v1/namespaces/n/pods", "fieldSelector=metadata.name%3Da", ""),
            ("POST", "/api/v1/namespaces/n/pods", "fieldSelector=metadata.name%3Da", ""),
            ("GET", "/api/v1/namespaces/n/pods/b", "fieldSelector=metadata.name%3Da", "b"),
            ("GET", "/api/v1/pods", "fieldSelector=metadata.name!%3Dx%5C,metadata.name%3Da", ""),
        ];
        for (method, path, query, want) in table {
            let Route::Resource(found) = route(path) else { panic!("{path} is no resource path") };
            let method = http::Method::from_bytes(method.as_bytes()).expect("a method");
            let query = Query::parse(query);
            let verb = resource_verb(&method, &found, &query).expect("a verb");
            assert_eq!(authorized_name(&found, verb, &query), want, "{method} {path}?{query:?}");
        }
    }
}
