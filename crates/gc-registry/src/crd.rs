//! CustomResourceDefinitions and their instances.
//!
//! Free functions default, prepare and validate a definition; [`settle_names`] and [`set_termination`] maintain its status.
//! [`definitions`] compiles its served versions to one [`ResourceDefinition`] each, whose [`CustomVersion`] prunes, defaults,
//! validates, prepares and displays instances.
//!
//! The strategy `None` rewrites apiVersion and prunes fields that the other version lacks. `conversion` calls webhooks.

use std::sync::Arc;

use gc_types::Scope;
use serde_json::Value;

use crate::resource::{DefaultGarbageCollection, ResourceDefinition, Subresource};

mod cel;
mod columns;
mod compile;
mod conditions;
mod definition;
mod field;
pub(crate) mod formats;
mod instance;
pub mod json_path;
mod structural;
#[cfg(test)]
mod tests;
mod validate;
mod version;

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
pub use version::CustomVersion;

use self::version::{StoredSchema, Versions, compile_version};

/// Verbs of every custom resource, in the order of discovery.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// Verbs of its subresources.
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// Reason why a definition cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// A required part of the definition is missing or has the wrong type.
    #[error("the definition has no {0}")]
    Missing(&'static str),
}

/// Returns a new definition as its creator sees it: kube-apiserver accepts the names only after it has answered.
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

/// Compiles the served versions of a definition, in order.
pub fn definitions(definition: &Value) -> Result<Vec<ResourceDefinition>, CompileError> {
    let spec = &definition["spec"];
    let group = spec["group"].as_str().ok_or(CompileError::Missing("group"))?;
    // The accepted names are served, not the requested ones.
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
        if let Some(custom) = resource.custom.as_mut().and_then(Arc::get_mut)
            && custom.deprecation_warning.is_some()
            && version["deprecationWarning"].is_null()
        {
            custom.deprecation_warning = Some(deprecation(group, &custom.kind, version, versions).into());
        }
        found.push(resource);
    }
    Ok(found)
}

fn shared_by_versions(group: &str, versions: &[Value], storage: &str, definition: &Value) -> Versions {
    let api_version = |name: &str| -> Arc<str> { format!("{group}/{name}").into() };
    let schemas = versions.iter().filter_map(|version| {
        let schema = StoredSchema::new(&version["schema"]["openAPIV3Schema"]);
        Some((api_version(version["name"].as_str()?), schema))
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

/// Returns the default warning for a deprecated version, which names the version to use instead.
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

/// Returns the sort key of a version as Kubernetes defines it: stable versions before beta and alpha, and everything else last.
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
