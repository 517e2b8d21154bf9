//! A compiled version of a definition.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::columns::{self, CustomColumn};
use super::{cel, compile};
use crate::schema::{self, Schema};

/// A compiled version of a definition.
#[derive(Debug)]
pub struct CustomVersion {
    pub(super) api_version: Arc<str>,
    pub(super) kind: Arc<str>,
    pub(super) schema: Arc<Schema>,
    pub(super) source: Value,
    pub(super) programs: cel::Programs,
    pub(super) has_status: bool,
    pub(super) scale: Option<ScalePaths>,
    pub(super) columns: Vec<CustomColumn>,
    pub(super) selectable_fields: Vec<Arc<str>>,
    pub(super) deprecation_warning: Option<Arc<str>>,
    pub(super) versions: Arc<Versions>,
}

/// Schema of a version, used to read objects from the store.
#[derive(Debug)]
pub(super) struct StoredSchema {
    schema: Arc<Schema>,
    /// Identifies the schema in the stored text of objects that conform to it.
    fingerprint: Box<str>,
}

impl StoredSchema {
    pub(super) fn new(source: &Value) -> Self {
        /// Changed whenever pruning or defaulting changes its results for the same schema.
        const RULES: &str = "1\n";
        const BYTES: usize = 8;
        let sum = Sha256::new().chain_update(RULES).chain_update(source.to_string()).finalize();
        let fingerprint = gc_types::hexadecimal(&sum[..BYTES]).into();
        Self { schema: Arc::new(root_schema(source)), fingerprint }
    }
}

/// Parts that all versions of a definition share.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// Schema of each version, by apiVersion.
    pub(super) schemas: BTreeMap<Arc<str>, StoredSchema>,
    /// apiVersion of the version that objects are stored in.
    pub(super) storage: Arc<str>,
    /// apiVersion of objects whose stored text does not name one: they date from when there was a single version.
    pub(super) unmarked: Arc<str>,
    /// `spec.conversion`
    pub(super) conversion: Value,
}

/// Paths of the scale subresource's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScalePaths {
    pub(super) spec_replicas: Arc<str>,
    pub(super) status_replicas: Arc<str>,
    pub(super) label_selector: Option<Arc<str>>,
}

impl CustomVersion {
    /// Returns the version in which instances are stored.
    #[must_use]
    pub fn storage_version(&self) -> &str {
        self.versions.storage.split_once('/').map_or("", |(_, version)| version)
    }

    /// Returns the apiVersion in which instances are stored.
    pub(crate) fn storage_api_version(&self) -> &Arc<str> {
        &self.versions.storage
    }

    /// Returns the apiVersion of a stored object whose text does not name one.
    pub(crate) fn unmarked_api_version(&self) -> &str {
        &self.versions.unmarked
    }

    /// Returns the identifier of the schema that stored objects conform to.
    pub(crate) fn storage_fingerprint(&self) -> &str {
        self.fingerprint_of(&self.versions.storage).unwrap_or_default()
    }

    /// Returns the identifier of a version's current schema.
    pub(crate) fn fingerprint_of(&self, api_version: &str) -> Option<&str> {
        self.versions.schemas.get(api_version).map(|stored| &*stored.fingerprint)
    }

    /// Brings a stored object into the form of its version's schema: prunes it, and fills in defaults. If the defaults of a newer
    /// definition exceed the size of an object, the object stays readable, without the excess defaults.
    pub(crate) fn read_stored(&self, api_version: &str, object: &mut Value) {
        if let Some(schema) = self.schema_of(api_version) {
            schema::prune(schema, object);
            schema::apply_defaults(schema, object);
        }
    }

    /// Removes the fields that a version lacks from an object converted to it by the strategy `None`.
    pub(crate) fn keep_fields_of(&self, api_version: &str, object: &mut Value) {
        if let Some(schema) = self.schema_of(api_version) {
            schema::prune(schema, object);
        }
    }

    /// Returns the schema of a version.
    pub(crate) fn schema_of(&self, api_version: &str) -> Option<&Schema> {
        self.versions.schemas.get(api_version).map(|stored| &*stored.schema)
    }

    /// Converts an object to the storage version by the strategy `None`; returns `None` if it is already in that version.
    pub(crate) fn to_stored(&self, object: &Value) -> Option<Value> {
        if object["apiVersion"] == *self.versions.storage {
            return None;
        }
        let mut stored = object.clone();
        self.read_stored(&self.versions.storage, &mut stored);
        Some(stored)
    }

    /// Returns the fields of an object that the storage version lacks, if the versions differ in nothing else.
    pub(crate) fn not_stored(&self, object: &Value) -> Vec<String> {
        if !self.is_converted() || self.webhook().is_some() {
            return Vec::new();
        }
        self.schema_of(&self.versions.storage)
            .map(|schema| schema::unknown_fields(schema, object))
            .unwrap_or_default()
    }

    /// Returns `spec.conversion.webhook` of the definition, if it names one.
    pub(crate) fn webhook(&self) -> Option<&Value> {
        let conversion = &self.versions.conversion;
        (conversion["strategy"] == "Webhook").then(|| &conversion["webhook"])
    }

    /// Reports whether instances are stored in a version other than this one.
    pub(crate) fn is_converted(&self) -> bool {
        self.versions.storage != self.api_version
    }

    /// Returns the compiled schema.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Returns the definition's `openAPIV3Schema`, for OpenAPI documents.
    #[must_use]
    pub fn open_api_schema(&self) -> &Value {
        &self.source
    }

    /// Reports whether status is a subresource.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.has_status
    }

    /// Reports whether scale is a subresource.
    #[must_use]
    pub fn has_scale(&self) -> bool {
        self.scale.is_some()
    }

    /// Returns the columns of a table, the name first.
    #[must_use]
    pub fn columns(&self) -> &[CustomColumn] {
        &self.columns
    }

    /// Returns the paths that field selectors may name, except those of metadata, such as `spec.color`.
    #[must_use]
    pub fn selectable_fields(&self) -> &[Arc<str>] {
        &self.selectable_fields
    }

    /// Returns the warning for requests to a deprecated version.
    #[must_use]
    pub fn deprecation_warning(&self) -> Option<&str> {
        self.deprecation_warning.as_deref()
    }
}

pub(super) fn compile_version(
    group: &str,
    name: &str,
    kind: &str,
    version: &Value,
    versions: &Arc<Versions>,
) -> CustomVersion {
    let source = version["schema"]["openAPIV3Schema"].clone();
    let api_version = format!("{group}/{name}");
    let known = versions.schemas.get(&*api_version).map(|stored| Arc::clone(&stored.schema));
    let schema = known.unwrap_or_else(|| Arc::new(root_schema(&source)));
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
    }
}

fn root_schema(source: &Value) -> Schema {
    Schema { embedded_resource: true, ..compile::compile(source) }
}
