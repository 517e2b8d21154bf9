//! Table of the groups and versions that aggregated servers serve. Pure: stored objects and check results come as arguments.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use gc_registry::catalog::{Catalog, version_priority};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::transport::dial::Trust;

/// Service port used when an APIService does not name one.
const HTTPS: u16 = 443;
/// Group and version priority of custom resources, as upstream registers them.
const CUSTOM_PRIORITY: (i64, i64) = (1000, 100);
/// Maximum number of APIServices that are served, in order of their names; the others are ignored.
const MAXIMUM_SERVICES: usize = 200;

/// One group and version that another server serves.
#[derive(Clone, Debug)]
pub(crate) struct ApiService {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    /// Namespace, name and port of its Service.
    pub(crate) service: (String, String, u16),
    pub(crate) trust: Trust,
    /// Priority of the group, and of the version in it.
    pub(crate) priority: (i64, i64),
    pub(crate) availability: Availability,
    /// Resources that the server last reported.
    pub(crate) resources: Option<Arc<[Resource]>>,
}

/// Group and version.
pub(crate) type Key = (String, String);

/// A resource in discovery. Only the known fields of another server's answer are taken over, with their types: one malformed member
/// would make all of discovery unreadable for clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Resource {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    singular_name: String,
    #[serde(deserialize_with = "or_default")]
    namespaced: bool,
    #[serde(deserialize_with = "or_default")]
    group: String,
    #[serde(deserialize_with = "or_default")]
    version: String,
    #[serde(deserialize_with = "or_default")]
    kind: String,
    #[serde(deserialize_with = "or_default")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    short_names: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    categories: Vec<String>,
}

/// Deserializes null as the empty value, as Go does.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl Resource {
    /// Reads an APIResourceList; returns `None` if the document is not one.
    pub(crate) fn list(document: &[u8]) -> Option<Arc<[Self]>> {
        #[derive(Deserialize)]
        struct List {
            kind: String,
            #[serde(default, deserialize_with = "or_default")]
            resources: Vec<Resource>,
        }
        let list: List = serde_json::from_slice(document).ok()?;
        (list.kind == "APIResourceList").then(|| list.resources.into())
    }
}

/// Availability of a server, as in the condition `Available`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Availability {
    pub(crate) is_available: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Availability {
    /// Returns the availability of a server that has not been checked yet.
    pub(crate) fn pending() -> Self {
        Self::failed("Pending", "it was not checked yet".into())
    }

    pub(crate) fn passed() -> Self {
        Self { is_available: true, reason: "Passed".into(), message: "all checks passed".into() }
    }

    pub(crate) fn failed(reason: &str, message: String) -> Self {
        Self { is_available: false, reason: reason.into(), message }
    }
}

impl ApiService {
    /// Reads a stored APIService. Returns `None` if this server serves the group version itself, or if the object cannot be read.
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let spec = &object["spec"];
        let service = spec["service"].as_object()?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let port = service.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let bundle = base64::engine::general_purpose::STANDARD.decode(text(spec.get("caBundle"))).ok()?;
        let is_unchecked = spec["insecureSkipTLSVerify"] == true;
        let number = |key: &str| spec[key].as_i64().unwrap_or_default();
        Some(Self {
            name: text(object["metadata"].get("name")),
            group: text(spec.get("group")),
            version: text(spec.get("version")),
            service: (text(service.get("namespace")), text(service.get("name")), port.unwrap_or(HTTPS)),
            trust: if is_unchecked { Trust::Anyone } else { Trust::Authorities(bundle) },
            priority: (number("groupPriorityMinimum"), number("versionPriority")),
            availability: Availability::pending(),
            resources: None,
        })
    }

    pub(crate) fn key(&self) -> Key {
        (self.group.clone(), self.version.clone())
    }

    /// Reports whether `other` describes the same server, so that check results for one apply to the other.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        (&self.name, &self.service, &self.trust) == (&other.name, &other.service, &other.trust)
            && self.key() == other.key()
    }

    /// Returns the path of the server's discovery document.
    pub(crate) fn path(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }

    /// Returns the host name that requests to the server use.
    pub(crate) fn host(&self) -> String {
        format!("{}.{}.svc", self.service.1, self.service.0)
    }

    /// Returns its resources in the form of aggregated discovery.
    fn aggregated_resources(&self) -> Vec<Value> {
        let mut found: Vec<Value> = Vec::new();
        // A server may name tens of thousands of resources.
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in self.resources.as_deref().unwrap_or_default() {
            let own = |given: &str, default: &str| {
                if given.is_empty() { default.to_owned() } else { given.to_owned() }
            };
            let kind = json!({
                "group": own(&entry.group, &self.group), "version": own(&entry.version, &self.version),
                "kind": entry.kind,
            });
            let name = &entry.name;
            if let Some((resource, subresource)) = name.split_once('/') {
                if let Some(parent) = places.get(resource).and_then(|place| found.get_mut(*place)) {
                    let value =
                        json!({"subresource": subresource, "responseKind": kind, "verbs": entry.verbs});
                    match parent["subresources"].as_array_mut() {
                        Some(list) => list.push(value),
                        None => parent["subresources"] = json!([value]),
                    }
                }
                continue;
            }
            let scope = if entry.namespaced { "Namespaced" } else { "Cluster" };
            let mut value = json!({
                "resource": name, "responseKind": kind, "scope": scope,
                "singularResource": entry.singular_name, "verbs": entry.verbs,
            });
            for (key, list) in [("shortNames", &entry.short_names), ("categories", &entry.categories)] {
                if !list.is_empty() {
                    value[key] = json!(list);
                }
            }
            places.entry(name).or_insert(found.len());
            found.push(value);
        }
        found
    }

    /// Returns the version in the form of aggregated discovery.
    pub(crate) fn aggregated(&self) -> Value {
        let freshness = if self.availability.is_available { "Current" } else { "Stale" };
        let mut value = json!({"version": self.version, "freshness": freshness});
        let resources = self.aggregated_resources();
        if !resources.is_empty() {
            value["resources"] = resources.into();
        }
        value
    }
}

/// All groups and versions that other servers serve.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(BTreeMap<Key, ApiService>);

/// A version of a group in discovery.
pub(crate) enum Version<'a> {
    /// Served here, with its index among the versions of its group.
    Own(usize),
    /// Served by another server.
    Remote(&'a ApiService),
}

impl Table {
    /// Reads the stored APIServices, and keeps the check results of those that have not changed.
    pub(crate) fn read(objects: &[Value], before: &Self) -> Self {
        let services = objects.iter().filter_map(ApiService::read).take(MAXIMUM_SERVICES);
        let mut table: BTreeMap<_, _> = services.map(|service| (service.key(), service)).collect();
        for (key, service) in &mut table {
            if let Some(known) = before.0.get(key).filter(|known| known.is_same_server(service)) {
                service.availability = known.availability.clone();
                service.resources.clone_from(&known.resources);
            }
        }
        Self(table)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn services(&self) -> impl Iterator<Item = &ApiService> {
        self.0.values()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&ApiService> {
        self.0.get(key)
    }

    /// Returns a copy with the check result of a server, if the table still describes that server.
    pub(crate) fn with(&self, found: &ApiService) -> Self {
        let mut table = self.clone();
        if let Some(known) = table.0.get_mut(&found.key()).filter(|known| known.is_same_server(found)) {
            known.availability = found.availability.clone();
            known.resources.clone_from(&found.resources);
        }
        table
    }

    /// Returns the aggregated server for a group and version. Returns `None` if this server serves them, because its own APIs take
    /// precedence.
    pub(crate) fn find(&self, catalog: &Catalog, group: &str, version: &str) -> Option<&ApiService> {
        if self.0.is_empty() || is_builtin(catalog, group, version) {
            return None;
        }
        self.0.get(&(group.to_owned(), version.to_owned()))
    }

    /// Returns the groups of discovery in order, each with its versions, the preferred one first.
    pub(crate) fn groups<'a>(&'a self, catalog: &'a Catalog) -> Vec<(&'a str, Vec<Version<'a>>)> {
        let mut found: Vec<(i64, &str, Vec<Version<'a>>)> = Vec::new();
        for (place, group) in (0_i64..).zip(catalog.groups()) {
            let is_own =
                group.versions.iter().any(|version| is_builtin(catalog, &group.name, &version.version));
            // The server's own groups keep their order and precede all others.
            let priority = if is_own { i64::MAX - place } else { CUSTOM_PRIORITY.0 };
            let versions = group.versions.iter().enumerate();
            let kept = versions
                .filter(|(_, version)| self.find(catalog, &group.name, &version.version).is_none())
                .map(|(index, _)| Version::Own(index));
            found.push((priority, &*group.name, kept.collect()));
        }
        for service in
            self.services().filter(|service| !is_builtin(catalog, &service.group, &service.version))
        {
            let index = found.iter().position(|(_, name, _)| *name == service.group).unwrap_or_else(|| {
                found.push((0, &*service.group, Vec::new()));
                found.len() - 1
            });
            let group = &mut found[index];
            group.0 = group.0.max(service.priority.0);
            group.2.push(Version::Remote(service));
        }
        for (_, name, versions) in &mut found {
            if !versions.iter().any(|version| matches!(version, Version::Remote(_))) {
                continue;
            }
            let own = catalog.group(name);
            versions.sort_by_key(|version| {
                let (priority, name) = match version {
                    Version::Own(index) => {
                        (CUSTOM_PRIORITY.1, own.map_or("", |group| &*group.versions[*index].version))
                    }
                    Version::Remote(service) => (service.priority.1, &*service.version),
                };
                std::cmp::Reverse((priority, version_priority(name)))
            });
        }
        found.sort_by(|(one, name, _), (other, other_name, _)| {
            other.cmp(one).then_with(|| name.cmp(other_name))
        });
        found.into_iter().map(|(_, name, versions)| (name, versions)).collect()
    }
}

fn is_builtin(catalog: &Catalog, group: &str, version: &str) -> bool {
    let found = catalog.group(group).into_iter().flat_map(|group| &group.versions);
    found
        .filter(|known| *known.version == *version)
        .flat_map(|version| &version.resources)
        .any(|row| row.custom.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    // The tests write `json!` at the call.
    #[allow(clippy::needless_pass_by_value)]
    fn stored(group: &str, version: &str, priority: (i64, i64), service: Value) -> Value {
        json!({
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {"group": group, "version": version, "groupPriorityMinimum": priority.0,
                     "versionPriority": priority.1, "service": service, "insecureSkipTLSVerify": true},
        })
    }

    fn table() -> Table {
        let service = json!({"namespace": "n", "name": "s"});
        let objects = [
            stored("metrics.k8s.io", "v1beta1", (100, 100), service.clone()),
            stored("a.example.com", "v1", (2000, 10), service.clone()),
            stored("a.example.com", "v2beta1", (2000, 20), service.clone()),
            stored("apps", "v1", (17_800, 15), service),
            stored("local.example.com", "v1", (1000, 100), Value::Null),
        ];
        Table::read(&objects, &Table::default())
    }

    #[test]
    fn others_answer_for_what_this_server_has_not() {
        let (table, catalog) = (table(), Catalog::default());
        let found = |group: &str, version: &str| table.find(&catalog, group, version).map(ApiService::host);
        assert_eq!(found("metrics.k8s.io", "v1beta1").as_deref(), Some("s.n.svc"));
        for (group, version) in [("apps", "v1"), ("local.example.com", "v1"), ("metrics.k8s.io", "v1")] {
            assert_eq!(found(group, version), None, "{group}/{version}");
        }
    }

    #[test]
    fn discovery_is_in_the_order_of_priorities() {
        let (table, catalog) = (table(), Catalog::default());
        let groups = table.groups(&catalog);
        let own = catalog.groups().len();
        assert_eq!(groups.len(), own + 2);
        let shown: Vec<(&str, Vec<&str>)> = groups[own..]
            .iter()
            .map(|(name, versions)| {
                let name_of = |version: &Version<'_>| match version {
                    Version::Own(_) => "own",
                    Version::Remote(service) => match &*service.version {
                        "v1" => "v1",
                        "v2beta1" => "v2beta1",
                        _ => "v1beta1",
                    },
                };
                (*name, versions.iter().map(name_of).collect())
            })
            .collect();
        assert_eq!(shown, [("a.example.com", vec!["v2beta1", "v1"]), ("metrics.k8s.io", vec!["v1beta1"])]);
        assert!(groups[..own].iter().zip(catalog.groups()).all(|((name, _), group)| **name == *group.name));
    }

    #[test]
    fn what_was_found_counts_for_the_same_server_alone() {
        let before = table();
        let key = ("metrics.k8s.io".to_owned(), "v1beta1".to_owned());
        let found = before
            .get(&key)
            .map(|service| ApiService { availability: Availability::passed(), ..service.clone() });
        let Some(found) = found else { panic!("the table lacks it") };
        let is_available = |table: &Table| table.get(&key).map(|service| service.availability.is_available);
        assert_eq!(is_available(&before.with(&found)), Some(true));
        // The APIService was deleted during the check, points elsewhere, or has another authority.
        assert_eq!(is_available(&Table::default().with(&found)), None);
        for service in
            [json!({"namespace": "n", "name": "other"}), json!({"namespace": "n", "name": "s", "port": 8443})]
        {
            let moved = Table::read(
                &[stored("metrics.k8s.io", "v1beta1", (100, 100), service)],
                &before.with(&found),
            );
            assert_eq!(is_available(&moved), Some(false));
            assert_eq!(is_available(&moved.with(&found)), Some(false));
        }
        let mut trusted =
            stored("metrics.k8s.io", "v1beta1", (100, 100), json!({"namespace": "n", "name": "s"}));
        trusted["spec"]["insecureSkipTLSVerify"] = false.into();
        assert_eq!(is_available(&Table::read(&[trusted], &before.with(&found))), Some(false));
    }

    #[test]
    fn what_is_no_list_of_resources_is_not_shown() {
        let read = |resource: Value| {
            let list = json!({"kind": "APIResourceList", "resources": [resource]});
            Resource::list(list.to_string().as_bytes()).map(|list| list.len())
        };
        assert_eq!(read(json!({"name": "a", "verbs": null, "shortNames": null})), Some(1));
        for wrong in [
            json!({"verbs": "get"}),
            json!({"verbs": [1]}),
            json!({"name": 1}),
            json!({"shortNames": {}}),
            json!("a"),
        ] {
            assert_eq!(read(wrong.clone()), None, "{wrong}");
        }
        assert_eq!(Resource::list(br#"{"kind": "Status"}"#), None);
    }

    #[test]
    fn resources_are_shown_in_the_aggregated_form() {
        let mut service = table().0.remove(&("metrics.k8s.io".into(), "v1beta1".into())).into_iter().next();
        let list = json!({"kind": "APIResourceList", "resources": [
            {"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": ["get", "list"]},
            {"name": "pods/log", "singularName": "", "namespaced": true, "kind": "Log", "verbs": ["get"]},
        ]});
        if let Some(service) = &mut service {
            service.resources = Resource::list(list.to_string().as_bytes());
        }
        let kind = |kind: &str| json!({"group": "metrics.k8s.io", "version": "v1beta1", "kind": kind});
        let wanted = json!({"version": "v1beta1", "freshness": "Stale", "resources": [{
            "resource": "pods", "responseKind": kind("PodMetrics"), "scope": "Namespaced", "singularResource": "",
            "verbs": ["get", "list"],
            "subresources": [{"subresource": "log", "responseKind": kind("Log"), "verbs": ["get"]}],
        }]});
        assert_eq!(service.map(|service| service.aggregated()), Some(wanted));
    }
}
