//! OpenAPI documents of what is served, built from the schemas of built-in kinds and of definitions.
//!
//! Good enough for `kubectl explain`, for clients that look up whether a resource takes `fieldValidation` or
//! a strategic merge patch, and for tools that read patch strategies and list types. Building a document is
//! work of milliseconds: callers keep it, under the hash of [`v3_hash`] or [`v2_hash`].

use std::fmt::Write;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::catalog::{Catalog, GroupVersion};

mod operations;
mod schemas;
#[cfg(test)]
mod tests;

use schemas::Components;

/// The two forms of OpenAPI that Kubernetes serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `/openapi/v2`: Swagger 2.0, one document.
    Two,
    /// `/openapi/v3`: one document for each group and version.
    Three,
}

impl Form {
    /// Where references to schemas point.
    fn prefix(self) -> &'static str {
        match self {
            Self::Two => "#/definitions/",
            Self::Three => "#/components/schemas/",
        }
    }
}

/// `/openapi/v3`: the documents that there are, each with a hash of what it is made of.
#[must_use]
pub fn v3_index(catalog: &Catalog) -> Value {
    let mut paths = Map::new();
    for group in catalog.groups() {
        for version in &group.versions {
            let path = group_version_path(&group.name, &version.version);
            let hash = hash_of([(&*group.name, version)]);
            paths.insert(
                path.clone(),
                json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}),
            );
        }
    }
    json!({"paths": paths})
}

/// The hash of one document of version 3, or `None` if there is no such group and version. The same hash
/// means the same document.
#[must_use]
pub fn v3_hash(catalog: &Catalog, group: &str, version: &str) -> Option<String> {
    Some(hash_of([(group, find(catalog, group, version)?)]))
}

/// The hash of the document of version 2.
#[must_use]
pub fn v2_hash(catalog: &Catalog) -> String {
    let groups = catalog.groups().iter();
    hash_of(groups.flat_map(|group| group.versions.iter().map(|version| (&*group.name, version))))
}

/// The document of version 3 of one group and version, or `None` if there is none.
#[must_use]
pub fn v3_document(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let served = find(catalog, group, version)?;
    let mut components = Components::new(Form::Three);
    let paths = operations::paths(Form::Three, group, served, &mut components);
    Some(json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": {"schemas": components.into_schemas(), "securitySchemes": bearer_token()},
    }))
}

/// The document of version 2: everything that is served.
#[must_use]
pub fn v2_document(catalog: &Catalog) -> Value {
    let mut components = Components::new(Form::Two);
    let mut paths = Map::new();
    for group in catalog.groups() {
        for version in &group.versions {
            paths.extend(operations::paths(Form::Two, &group.name, version, &mut components));
        }
    }
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths,
        "definitions": components.into_schemas(),
        "securityDefinitions": bearer_token(),
        "security": [{"BearerToken": []}],
    })
}

fn find<'c>(catalog: &'c Catalog, group: &str, version: &str) -> Option<&'c GroupVersion> {
    catalog.group(group)?.versions.iter().find(|served| *served.version == *version)
}

/// `api/v1` or `apis/GROUP/VERSION`.
fn group_version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": concat!("v1.36.2+kubegc.", env!("CARGO_PKG_VERSION"))})
}

fn bearer_token() -> Value {
    json!({"BearerToken": {
        "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
    }})
}

/// A hash over all that documents are made of: this program, and the resources that are served.
fn hash_of<'c>(served: impl IntoIterator<Item = (&'c str, &'c GroupVersion)>) -> String {
    let mut hash = Sha256::new();
    hash.update(env!("CARGO_PKG_VERSION"));
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
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}
