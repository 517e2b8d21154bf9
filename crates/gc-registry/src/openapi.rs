//! OpenAPI documents of everything that is served, built from the schemas of built-in kinds and of definitions.
//!
//! Sufficient for `kubectl explain`, for clients that check whether a resource supports `fieldValidation` or a strategic merge
//! patch, and for tools that read patch strategies and list types. Building a document takes milliseconds: callers should cache it
//! under the hash of [`v3_hash`] or [`v2_hash`].

use std::fmt::Write;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::catalog::{Catalog, Group, GroupVersion};
use crate::kubernetes::KubernetesVersion;

mod operations;
mod parameters;
mod schemas;
#[cfg(test)]
mod tests;

use schemas::{Components, RegisteredKinds};

/// The two forms of OpenAPI that Kubernetes serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `/openapi/v2`: Swagger 2.0, a single document.
    Two,
    /// `/openapi/v3`: one document for each group and version.
    Three,
}

impl Form {
    /// Returns the prefix of references to schemas.
    fn prefix(self) -> &'static str {
        match self {
            Self::Two => "#/definitions/",
            Self::Three => "#/components/schemas/",
        }
    }
}

/// A document of OpenAPI version 3.
#[derive(Clone, Copy, Debug)]
enum Third<'c> {
    /// A group and version.
    Version(&'c str, &'c GroupVersion),
    /// The path of a group.
    Group(&'c Group),
    /// One of [`operations::DOCUMENTS`].
    Document((&'static str, &'static str, &'static str, &'static str)),
}

impl<'c> Third<'c> {
    fn all(catalog: &'c Catalog) -> Vec<(String, Self)> {
        let mut all: Vec<(String, Self)> = operations::DOCUMENTS
            .into_iter()
            .map(|row| (row.0.trim_matches('/').to_owned(), Self::Document(row)))
            .collect();
        for group in catalog.groups() {
            if group.versions.iter().flat_map(|version| &version.resources).all(|row| row.custom.is_none()) {
                let path = if group.name.is_empty() { "api".into() } else { format!("apis/{}", group.name) };
                all.push((path, Self::Group(group)));
            }
            for version in &group.versions {
                all.push((
                    group_version_path(&group.name, &version.version),
                    Self::Version(&group.name, version),
                ));
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    fn find(catalog: &'c Catalog, path: &str) -> Option<Self> {
        Self::all(catalog).into_iter().find(|(known, _)| known == path).map(|(_, found)| found)
    }

    /// Returns the groups in which the document states that the common meta kinds are registered.
    fn registered(self) -> RegisteredKinds {
        match self {
            Self::Version(_, served) if served.resources.iter().any(|row| row.custom.is_some()) => {
                RegisteredKinds::InBuiltins
            }
            Self::Version(group, served) => RegisteredKinds::In(group.to_owned(), served.version.to_string()),
            Self::Group(_) | Self::Document(_) => RegisteredKinds::Everywhere,
        }
    }

    fn hash(self) -> String {
        match self {
            Self::Version(group, version) => hash_of([(group, version)]),
            Self::Group(group) => hash_of([(&*group.name, &GroupVersion::default())]),
            Self::Document((path, ..)) => hash_of([(path, &GroupVersion::default())]),
        }
    }
}

/// Returns `/openapi/v3`: the list of documents, each with a hash of its inputs.
#[must_use]
pub fn v3_index(catalog: &Catalog) -> Value {
    let mut paths = Map::new();
    for (path, document) in Third::all(catalog) {
        let url = format!("/openapi/v3/{path}?hash={}", document.hash());
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// Returns the hash of a version 3 document by its path in the index, or `None` if it does not exist. Equal hashes mean equal
/// documents.
#[must_use]
pub fn v3_hash(catalog: &Catalog, path: &str) -> Option<String> {
    Some(Third::find(catalog, path)?.hash())
}

/// Returns the hash of the version 2 document.
#[must_use]
pub fn v2_hash(catalog: &Catalog) -> String {
    let groups = catalog.groups().iter();
    hash_of(groups.flat_map(|group| group.versions.iter().map(|version| (&*group.name, version))))
}

/// Returns a version 3 document by its path in the index, or `None` if it does not exist.
#[must_use]
pub fn v3_document(catalog: &Catalog, path: &str) -> Option<Value> {
    let third = Third::find(catalog, path)?;
    let mut components = Components::new(Form::Three, third.registered());
    let paths = match third {
        Third::Version(group, served) => operations::paths(Form::Three, group, served, &mut components),
        Third::Group(group) => Map::from_iter([operations::group_path(Form::Three, group, &mut components)]),
        Third::Document(row) => {
            Map::from_iter([(row.0.to_owned(), operations::document(Form::Three, row, &mut components))])
        }
    };
    let schemas = components.into_schemas();
    let is_custom = third.registered() == RegisteredKinds::InBuiltins;
    let mut components = if is_custom { json!({}) } else { json!({"securitySchemes": bearer_token()}) };
    if !schemas.is_empty() {
        components["schemas"] = schemas.into();
    }
    let info =
        if is_custom { json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}) } else { info() };
    Some(json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": components}))
}

/// Returns the version 2 document, which describes everything that is served.
#[must_use]
pub fn v2_document(catalog: &Catalog) -> Value {
    let mut components = Components::new(Form::Two, RegisteredKinds::Everywhere);
    let mut paths = Map::new();
    for row in operations::DOCUMENTS {
        paths.insert(row.0.to_owned(), operations::document(Form::Two, row, &mut components));
    }
    for group in catalog.groups() {
        if group.versions.iter().flat_map(|version| &version.resources).all(|row| row.custom.is_none()) {
            paths.extend([operations::group_path(Form::Two, group, &mut components)]);
        }
        for version in &group.versions {
            paths.extend(operations::paths(Form::Two, &group.name, version, &mut components));
        }
    }
    let (options, patch) = (components.meta("DeleteOptions"), components.meta("Patch"));
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths,
        "definitions": components.into_schemas(),
        "parameters": parameters::shared(&options, &patch),
        "securityDefinitions": bearer_token(),
        "security": [{"BearerToken": []}],
    })
}

/// Returns `api/v1` or `apis/GROUP/VERSION`.
fn group_version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": KubernetesVersion::chosen().minor()})
}

fn bearer_token() -> Value {
    json!({"BearerToken": {
        "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
    }})
}

/// Hashes all inputs of documents: this program, the version of Kubernetes, and the served resources.
fn hash_of<'c>(served: impl IntoIterator<Item = (&'c str, &'c GroupVersion)>) -> String {
    let mut hash = Sha256::new();
    hash.update(env!("CARGO_PKG_VERSION"));
    hash.update(KubernetesVersion::chosen().minor());
    for (group, version) in served {
        hash.update(format!("\n{group}/{}", version.version));
        for resource in &version.resources {
            hash.update(format!("\n{}\t{}\t{:?}", resource.resource, resource.kind, resource.scope));
            for subresource in &resource.subresources {
                hash.update(format!("\t{}", subresource.name));
            }
            if let Some(custom) = &resource.custom {
                hash.update(custom.open_api_schema().to_string());
            }
        }
    }
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}
