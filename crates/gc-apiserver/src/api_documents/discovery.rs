//! The documents of discovery.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use bytes::Bytes;
use gc_registry::catalog::{Catalog, GroupVersion};
use gc_registry::resource::ResourceDefinition;
use gc_types::Scope;
use http::header::HeaderValue;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::aggregator::{Table, Version};
use crate::encode::negotiate::{Encoding, Representation, media_ranges};
use crate::encode::render;

/// The aggregated documents of one catalog: they are large, and every client asks for them.
#[derive(Default)]
pub(crate) struct Discovery {
    cached: Mutex<CachedDocument>,
}

impl Discovery {
    /// Returns the aggregated document of the core group, or of all other groups.
    pub(crate) fn aggregated(
        &self,
        served: &ServedApis<'_>,
        core: bool,
        representation: Representation,
    ) -> Document {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |(catalog, table): &(Arc<Catalog>, Arc<Table>)| {
            Arc::ptr_eq(catalog, served.catalog) && Arc::ptr_eq(table, served.table)
        };
        if !cached.of.as_ref().is_some_and(is_same) {
            cached.documents.clear();
            cached.of = Some((Arc::clone(served.catalog), Arc::clone(served.table)));
        }
        cached
            .documents
            .entry((core, representation.encoding, representation.pretty))
            .or_insert_with(|| aggregated_document(served, core, representation))
            .clone()
    }
}

#[derive(Default)]
struct CachedDocument {
    of: Option<(Arc<Catalog>, Arc<Table>)>,
    /// Keyed by core group or not, the encoding, and whether JSON is indented.
    documents: HashMap<(bool, Encoding, bool), Document>,
}

#[derive(Clone)]
pub(crate) struct Document {
    pub(crate) bytes: Bytes,
    /// Shared by all encodings.
    pub(crate) etag: HeaderValue,
}

/// Group and version of the aggregated form.
const AGGREGATED: (&str, &str) = ("apidiscovery.k8s.io", "v2");
const AGGREGATED_KIND: &str = "APIGroupDiscoveryList";

/// Returns the encoding of the aggregated form that an Accept header asks for, at any position in it; `None` stands for the
/// unaggregated form.
pub(crate) fn aggregated_form(accept: &str, pretty: bool) -> Option<Representation> {
    media_ranges(accept).iter().find_map(|range| {
        let form = (range.parameter("g")?, range.parameter("v")?);
        if range.parameter("as") != Some(AGGREGATED_KIND) || form != AGGREGATED {
            return None;
        }
        let pretty = pretty || range.parameter("pretty") == Some("1");
        [Encoding::Json, Encoding::Yaml, Encoding::Protobuf]
            .map(|encoding| Representation { encoding, pretty, ..Representation::JSON })
            .into_iter()
            .find(|offered| range.takes(offered.content_type()))
    })
}

/// Returns the `Content-Type` of the aggregated form.
pub(crate) fn aggregated_content_type(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Json => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        Encoding::Yaml => "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        Encoding::Protobuf => {
            "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        }
    }
}

fn aggregated_document(served: &ServedApis<'_>, core: bool, representation: Representation) -> Document {
    let value = served.aggregated_value(core);
    let hash = gc_types::hexadecimal(&Sha256::digest(value.to_string())).to_ascii_uppercase();
    let etag = HeaderValue::from_str(&format!("\"{hash}\"")).unwrap_or(HeaderValue::from_static("\"\""));
    Document { bytes: render::value(&value, representation).into(), etag }
}

/// APIs of this server and of aggregated ones.
pub(crate) struct ServedApis<'a> {
    pub(crate) catalog: &'a Arc<Catalog>,
    pub(crate) table: &'a Arc<Table>,
}

impl ServedApis<'_> {
    /// Returns the name of each version of a group, in the order of discovery.
    fn versions<'v>(&'v self, group: &str, versions: &[Version<'v>]) -> Vec<&'v str> {
        let own = self.catalog.group(group);
        let name = |version: &Version<'v>| match version {
            Version::Own(index) => own.map_or("", |group| &*group.versions[*index].version),
            Version::Remote(service) => &*service.version,
        };
        versions.iter().map(name).collect()
    }

    pub(crate) fn groups(&self) -> Value {
        let groups = self.table.groups(self.catalog);
        let named = groups.iter().filter(|(name, _)| !name.is_empty());
        let groups: Vec<Value> =
            named.map(|(name, versions)| group_value(name, &self.versions(name, versions))).collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    pub(crate) fn group(&self, name: &str) -> Option<Value> {
        let groups = self.table.groups(self.catalog);
        let (_, versions) = groups.iter().find(|(known, _)| *known == name)?;
        Some(group_value(name, &self.versions(name, versions)))
    }

    /// Returns the aggregated document of the core group, or of all other groups.
    fn aggregated_value(&self, core: bool) -> Value {
        let groups = self.table.groups(self.catalog);
        let items: Vec<Value> = groups
            .iter()
            .filter(|(name, _)| name.is_empty() == core)
            .map(|(name, versions)| {
                let own = self.catalog.group(name);
                let shown = |version: &Version<'_>| match version {
                    Version::Own(index) => own.map(|group| own_version(&group.versions[*index])),
                    Version::Remote(service) => Some(service.aggregated()),
                };
                let versions: Vec<Value> = versions.iter().filter_map(shown).collect();
                let metadata = if core { json!({}) } else { json!({"name": name}) };
                json!({"metadata": metadata, "versions": versions})
            })
            .collect();
        let (group, version) = AGGREGATED;
        json!({
            "kind": AGGREGATED_KIND, "apiVersion": gc_types::api_version(group, version), "metadata": {}, "items": items,
        })
    }
}

fn own_version(version: &GroupVersion) -> Value {
    let resources: Vec<Value> = version.resources.iter().map(|row| aggregated_resource(row)).collect();
    let mut value = json!({"version": *version.version, "freshness": "Current"});
    if !resources.is_empty() {
        value["resources"] = resources.into();
    }
    value
}

/// Built-in kinds omit their own group and version here (as recorded from upstream); custom kinds include them.
fn response_kind(row: &ResourceDefinition, kind: &(Arc<str>, Arc<str>, Arc<str>)) -> Value {
    let own = *kind.0 == *row.group && *kind.1 == *row.version && row.custom.is_none();
    let (group, version) = if own { ("", "") } else { (&*kind.0, &*kind.1) };
    json!({"group": group, "kind": *kind.2, "version": version})
}

fn aggregated_resource(row: &ResourceDefinition) -> Value {
    let own = (Arc::clone(&row.group), Arc::clone(&row.version), Arc::clone(&row.kind));
    let mut value = Map::new();
    value.insert("resource".into(), (*row.resource).into());
    value.insert("responseKind".into(), response_kind(row, &own));
    value
        .insert("scope".into(), if row.scope == Scope::Namespaced { "Namespaced" } else { "Cluster" }.into());
    value.insert("singularResource".into(), (*row.singular).into());
    value.insert("verbs".into(), texts(&row.verbs));
    for (name, list) in [("shortNames", &row.short_names), ("categories", &row.categories)] {
        if !list.is_empty() {
            value.insert(name.into(), texts(list));
        }
    }
    if !row.subresources.is_empty() {
        let subresources: Vec<Value> = row
            .subresources
            .iter()
            .map(|sub| {
                json!({
                    "subresource": *sub.name, "verbs": texts(&sub.verbs),
                    "responseKind": response_kind(row, &sub.response_kind),
                })
            })
            .collect();
        value.insert("subresources".into(), subresources.into());
    }
    Value::Object(value)
}

fn texts(list: &[Arc<str>]) -> Value {
    list.iter().map(|text| Value::from(&**text)).collect()
}

pub(crate) fn with_type(value: Value, kind: &str) -> Value {
    let mut value = value;
    value["kind"] = kind.into();
    value["apiVersion"] = "v1".into();
    value
}

pub(crate) fn core_versions(catalog: &Catalog, advertised: &str) -> Value {
    let versions: Vec<&str> = catalog
        .group("")
        .into_iter()
        .flat_map(|group| &group.versions)
        .map(|version| &*version.version)
        .collect();
    json!({
        "kind": "APIVersions", "versions": versions,
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": advertised}],
    })
}

fn group_value(name: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": gc_types::api_version(name, version), "version": version}))
        .collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

/// Returns the hash of a resource's storage version, as upstream computes it.
fn storage_version_hash(row: &ResourceDefinition) -> String {
    let (group, version) = match (&*row.group, &*row.resource) {
        ("events.k8s.io", "events") => ("", "v1"),
        ("autoscaling", "horizontalpodautoscalers") => ("autoscaling", "v2"),
        // An API that became stable in this release is stored in the version that the previous release can read.
        (
            group @ "admissionregistration.k8s.io",
            "mutatingadmissionpolicies" | "mutatingadmissionpolicybindings",
        )
        | (group @ "apiextensions.k8s.io", "customresourcedefinitions") => (group, "v1beta1"),
        (group, _) => (group, row.custom.as_ref().map_or(&*row.version, |custom| custom.storage_version())),
    };
    let digest = Sha256::digest(format!("{group}/{version}/{}", row.kind));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

pub(crate) fn resource_list(group: &str, version: &str, rows: &[Arc<ResourceDefinition>]) -> Value {
    let mut resources = Vec::new();
    for row in rows {
        let namespaced = row.scope == Scope::Namespaced;
        let mut value = json!({
            "name": *row.resource, "singularName": *row.singular, "namespaced": namespaced,
            "kind": *row.kind, "verbs": texts(&row.verbs),
        });
        for (name, list) in [("shortNames", &row.short_names), ("categories", &row.categories)] {
            if !list.is_empty() {
                value[name] = texts(list);
            }
        }
        if row.has_verb("watch") {
            value["storageVersionHash"] = storage_version_hash(row).into();
        }
        resources.push(value);
        for sub in &row.subresources {
            let (sub_group, sub_version, kind) = &sub.response_kind;
            let mut value = json!({
                "name": format!("{}/{}", row.resource, sub.name), "singularName": "", "namespaced": namespaced,
                "kind": **kind, "verbs": texts(&sub.verbs),
            });
            if **sub_group != *group || **sub_version != *version {
                value["group"] = (**sub_group).into();
                value["version"] = (**sub_version).into();
            }
            resources.push(value);
        }
    }
    let mut list = json!({
        "kind": "APIResourceList", "groupVersion": gc_types::api_version(group, version), "resources": resources,
    });
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list
}
