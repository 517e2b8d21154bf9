//! CustomResourceDefinitions and their instances.
//!
//! A definition is defaulted, prepared and validated by the free functions here; [`settle_names`] and
//! [`set_termination`] keep its status. [`definitions`] compiles what it serves: one [`ResourceDefinition`]
//! per served version, whose [`CustomVersion`] knows how to prune, default, validate, prepare and show
//! instances.
//!
//! The strategy `None` rewrites apiVersion and prunes what the other version does not have. A webhook is asked by
//! `crate::conversion`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::resource::{DefaultGarbageCollection, ResourceDefinition, Subresource};
use crate::schema::{self, Schema};
use gc_types::Scope;

mod cel;
mod columns;
mod compile;
mod conditions;
mod definition;
mod field;
pub(crate) mod formats;
mod instance;
pub(crate) mod json_path;
mod structural;
#[cfg(test)]
mod tests;
mod validate;

pub use columns::CustomColumn;
pub use conditions::{
    APPROVAL_ANNOTATION, CLEANUP_FINALIZER, NamesInUse, Termination, is_established, is_terminating,
    set_termination, settle_names,
};
pub use definition::{
    apply_defaults, prepare_create, prepare_status_update, prepare_update, validate_create,
    validate_status_update, validate_update, warnings,
};
pub(crate) use instance::go_type;

/// The verbs of every custom resource, in the order of discovery.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// The verbs of its subresources.
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// One served version of a definition, compiled.
#[derive(Debug)]
pub struct CustomVersion {
    api_version: Arc<str>,
    kind: Arc<str>,
    schema: Arc<Schema>,
    source: Value,
    patterns: validate::Patterns,
    programs: cel::Programs,
    has_status: bool,
    scale: Option<ScalePaths>,
    columns: Vec<CustomColumn>,
    selectable_fields: Vec<Arc<str>>,
    deprecation_warning: Option<Arc<str>>,
    versions: Arc<Versions>,
    /// The last write of the definition: what was stored before is read by the schema of today.
    defined_at: u64,
}

/// What the versions of a definition share.
#[derive(Debug, Default)]
struct Versions {
    /// The schema of each version, by apiVersion.
    schemas: BTreeMap<Arc<str>, Arc<Schema>>,
    /// apiVersion of the version that objects are stored in.
    storage: Arc<str>,
    /// apiVersion of the objects whose stored text does not name one: those from when there was one version.
    unmarked: Arc<str>,
    /// `spec.conversion`
    conversion: Value,
}

/// Where the fields of the scale subresource are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ScalePaths {
    spec_replicas: Arc<str>,
    status_replicas: Arc<str>,
    label_selector: Option<Arc<str>>,
}

/// Why a definition cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// A part that every definition has is missing or of a wrong type.
    #[error("the definition has no {0}")]
    Missing(&'static str),
}

impl CustomVersion {
    /// The version that instances are stored in.
    #[must_use]
    pub fn storage_version(&self) -> &str {
        self.versions.storage.split_once('/').map_or("", |(_, version)| version)
    }

    /// apiVersion of the version that instances are stored in.
    pub(crate) fn storage_api_version(&self) -> &Arc<str> {
        &self.versions.storage
    }

    /// apiVersion of a stored object whose text does not name one.
    pub(crate) fn unmarked_api_version(&self) -> &str {
        &self.versions.unmarked
    }

    /// Whether stored objects name the version that they are stored in.
    pub(crate) fn is_marked(&self) -> bool {
        self.versions.schemas.len() > 1
    }

    /// Whether an object that was stored at a revision has to be brought into the form of today's schema.
    pub(crate) fn is_older(&self, revision: u64) -> bool {
        revision < self.defined_at
    }

    /// Brings a stored object into the form of the schema of its version: prunes it, fills in defaults.
    pub(crate) fn read_stored(&self, api_version: &str, object: &mut Value) {
        if let Some(schema) = self.schema_of(api_version) {
            schema::prune(schema, object);
            schema::apply_defaults(schema, object);
        }
    }

    /// The schema of a version.
    pub(crate) fn schema_of(&self, api_version: &str) -> Option<&Schema> {
        self.versions.schemas.get(api_version).map(|schema| &**schema)
    }

    /// The form in which an object is stored by the strategy `None`, where it is in another version.
    pub(crate) fn to_stored(&self, object: &Value) -> Option<Value> {
        if object["apiVersion"] == *self.versions.storage {
            return None;
        }
        let mut stored = object.clone();
        self.read_stored(&self.versions.storage, &mut stored);
        Some(stored)
    }

    /// The fields of an object that the stored version does not have, where versions differ in nothing else.
    pub(crate) fn not_stored(&self, object: &Value) -> Vec<String> {
        if !self.is_converted() || self.webhook().is_some() {
            return Vec::new();
        }
        self.schema_of(&self.versions.storage)
            .map(|schema| schema::unknown_fields(schema, object))
            .unwrap_or_default()
    }

    /// `spec.conversion.webhook` of the definition, if it names one.
    pub(crate) fn webhook(&self) -> Option<&Value> {
        let conversion = &self.versions.conversion;
        (conversion["strategy"] == "Webhook").then(|| &conversion["webhook"])
    }

    /// Whether instances are stored in another version than this one.
    pub(crate) fn is_converted(&self) -> bool {
        self.versions.storage != self.api_version
    }

    /// The schema, compiled.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// `openAPIV3Schema` as the definition has it, for OpenAPI documents.
    #[must_use]
    pub fn open_api_schema(&self) -> &Value {
        &self.source
    }

    /// Whether status is a subresource.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.has_status
    }

    /// Whether there is a scale subresource.
    #[must_use]
    pub fn has_scale(&self) -> bool {
        self.scale.is_some()
    }

    /// The columns of a table, the name first.
    #[must_use]
    pub fn columns(&self) -> &[CustomColumn] {
        &self.columns
    }

    /// Paths that field selectors may name, beside those of metadata, such as `spec.color`.
    #[must_use]
    pub fn selectable_fields(&self) -> &[Arc<str>] {
        &self.selectable_fields
    }

    /// What requests to a deprecated version are warned with.
    #[must_use]
    pub fn deprecation_warning(&self) -> Option<&str> {
        self.deprecation_warning.as_deref()
    }
}

/// A new definition as its creator is answered: kube-apiserver accepts the names only after it has answered.
pub(crate) fn before_acceptance(definition: &Value, revision: u64) -> Value {
    let mut shown = definition.clone();
    let stored = shown["status"]["storedVersions"].clone();
    shown["status"] = serde_json::json!({
        "acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": stored,
    });
    if let Some(managers) = shown.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) {
        managers.retain(|entry| entry["manager"] != "kube-apiserver" || entry["subresource"] != "status");
    }
    if revision > 0 {
        shown["metadata"]["resourceVersion"] = revision.to_string().into();
    }
    shown
}

/// Compiles the served versions of a definition, in its order.
pub fn definitions(definition: &Value) -> Result<Vec<ResourceDefinition>, CompileError> {
    definitions_at(definition, 0)
}

/// The same, of a definition that was last written at a revision.
pub(crate) fn definitions_at(
    definition: &Value,
    revision: u64,
) -> Result<Vec<ResourceDefinition>, CompileError> {
    let spec = &definition["spec"];
    let group = spec["group"].as_str().ok_or(CompileError::Missing("group"))?;
    // What is served follows the names that were accepted, not those that were asked for.
    let accepted = &definition["status"]["acceptedNames"];
    let is_accepted = accepted["plural"].as_str().is_some_and(|plural| !plural.is_empty());
    let names = if is_accepted { accepted } else { &spec["names"] };
    let versions = spec["versions"].as_array().ok_or(CompileError::Missing("versions"))?;
    let storage = versions.iter().find(|version| version["storage"] == true);
    let storage_name = storage.and_then(|version| version["name"].as_str()).unwrap_or_default();
    let shared = Arc::new(shared_by_versions(group, versions, storage_name, definition));
    let mut found = Vec::new();
    for version in versions.iter().filter(|version| version["served"] == true) {
        let mut resource = resource(group, names, &spec["scope"], version, &shared)?;
        if let Some(custom) = resource.custom.as_mut().and_then(Arc::get_mut) {
            custom.defined_at = revision;
            if custom.deprecation_warning.is_some() && version["deprecationWarning"].is_null() {
                custom.deprecation_warning = Some(deprecation(group, &custom.kind, version, versions).into());
            }
        }
        found.push(resource);
    }
    Ok(found)
}

fn shared_by_versions(group: &str, versions: &[Value], storage: &str, definition: &Value) -> Versions {
    let api_version = |name: &str| -> Arc<str> { format!("{group}/{name}").into() };
    let schemas = versions.iter().filter_map(|version| {
        let schema = root_schema(&version["schema"]["openAPIV3Schema"]);
        Some((api_version(version["name"].as_str()?), Arc::new(schema)))
    });
    // An object without a mark was stored before there was a second version.
    let unmarked = definition["status"]["storedVersions"][0].as_str().unwrap_or(storage);
    Versions {
        schemas: schemas.collect(),
        storage: api_version(storage),
        unmarked: api_version(unmarked),
        conversion: definition["spec"]["conversion"].clone(),
    }
}

fn root_schema(source: &Value) -> Schema {
    Schema { embedded_resource: true, ..compile::compile(source) }
}

/// What requests to a deprecated version are warned with, unless it says so itself: what to use instead.
fn deprecation(group: &str, kind: &str, version: &Value, versions: &[Value]) -> String {
    let own = version["name"].as_str().unwrap_or_default();
    let is_better = |version: &&Value| {
        version["served"] == true
            && version["deprecated"] != true
            && version_rank(version["name"].as_str().unwrap_or_default()) > version_rank(own)
    };
    let names = versions.iter().filter(is_better).filter_map(|version| version["name"].as_str());
    let warning = format!("{group}/{own} {kind} is deprecated");
    match names.max_by_key(|name| version_rank(name)) {
        Some(best) => format!("{warning}; use {group}/{best} {kind}"),
        None => warning,
    }
}

/// The order of versions as Kubernetes has it: stable ones before beta and alpha, and everything else last.
fn version_rank(name: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let last = |name: &str| (0, 0, 0, std::cmp::Reverse(name.to_owned()));
    let Some(rest) = name.strip_prefix('v') else { return last(name) };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let Ok(major) = rest[..digits].parse::<u64>() else { return last(name) };
    let (level, minor) = match &rest[digits..] {
        "" => (3, ""),
        beta if beta.starts_with("beta") => (2, &beta["beta".len()..]),
        alpha if alpha.starts_with("alpha") => (1, &alpha["alpha".len()..]),
        _ => return last(name),
    };
    match (level, minor.parse::<u64>()) {
        (3, _) => (3, major, 0, std::cmp::Reverse(String::new())),
        (level, Ok(minor)) => (level, major, minor, std::cmp::Reverse(String::new())),
        _ => last(name),
    }
}

fn resource(
    group: &str,
    names: &Value,
    scope: &Value,
    version: &Value,
    versions: &Arc<Versions>,
) -> Result<ResourceDefinition, CompileError> {
    let name = version["name"].as_str().ok_or(CompileError::Missing("version name"))?;
    let plural = names["plural"].as_str().ok_or(CompileError::Missing("plural name"))?;
    let kind = names["kind"].as_str().ok_or(CompileError::Missing("kind"))?;
    let singular = names["singular"].as_str().map_or_else(|| kind.to_lowercase(), str::to_owned);
    let list_kind = names["listKind"].as_str().map_or_else(|| format!("{kind}List"), str::to_owned);
    let texts = |key: &str| -> Vec<Arc<str>> {
        names[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(Arc::from).collect()
    };
    let custom = compile_version(group, name, kind, version, versions);
    let mut subresources = Vec::new();
    let mut add = |subresource: &str, (group, version, kind): (&str, &str, &str)| {
        subresources.push(Subresource {
            name: subresource.into(),
            response_kind: (group.into(), version.into(), kind.into()),
            verbs: SUBRESOURCE_VERBS.map(Arc::from).to_vec(),
        });
    };
    if custom.has_status {
        add("status", (group, name, kind));
    }
    if custom.scale.is_some() {
        add("scale", ("autoscaling", "v1", "Scale"));
    }
    Ok(ResourceDefinition {
        group: group.into(),
        version: name.into(),
        resource: plural.into(),
        singular: singular.into(),
        kind: kind.into(),
        list_kind: list_kind.into(),
        short_names: texts("shortNames"),
        categories: texts("categories"),
        scope: if scope == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
        verbs: VERBS.map(Arc::from).to_vec(),
        subresources,
        default_garbage_collection: DefaultGarbageCollection::Delete,
        graceful_deletion: false,
        returns_deleted_object: false,
        update_creates: false,
        update_needs_version: true,
        custom: Some(Arc::new(custom)),
    })
}

fn compile_version(
    group: &str,
    name: &str,
    kind: &str,
    version: &Value,
    versions: &Arc<Versions>,
) -> CustomVersion {
    let source = version["schema"]["openAPIV3Schema"].clone();
    let api_version = format!("{group}/{name}");
    let known = versions.schemas.get(&*api_version).cloned();
    let schema = known.unwrap_or_else(|| Arc::new(root_schema(&source)));
    let mut patterns = validate::Patterns::new();
    validate::patterns(&schema, &mut patterns);
    let mut programs = cel::Programs::new();
    cel::programs(&schema, &mut programs);
    let subresources = &version["subresources"];
    let scale = &subresources["scale"];
    let path = |key: &str| scale[key].as_str().filter(|path| !path.is_empty()).map(Arc::from);
    let scale = match (path("specReplicasPath"), path("statusReplicasPath")) {
        (Some(spec_replicas), Some(status_replicas)) => {
            Some(ScalePaths { spec_replicas, status_replicas, label_selector: path("labelSelectorPath") })
        }
        _ => None,
    };
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    let deprecation_warning = (version["deprecated"] == true).then(|| {
        let default = || format!("{api_version} {kind} is deprecated");
        version["deprecationWarning"].as_str().map_or_else(default, str::to_owned).into()
    });
    CustomVersion {
        api_version: api_version.into(),
        kind: kind.into(),
        schema,
        source,
        patterns,
        programs,
        has_status: subresources["status"].is_object(),
        scale,
        columns: columns::columns(version),
        selectable_fields: selectable
            .filter_map(|field| field["jsonPath"].as_str())
            .map(|path| Arc::from(path.trim_start_matches('.')))
            .collect(),
        deprecation_warning,
        versions: Arc::clone(versions),
        defined_at: 0,
    }
}
