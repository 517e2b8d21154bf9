//! Fields of a StorageVersion that verdicts use.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::meta::{HasMeta, Meta, WireMeta};

/// Entry of one API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Identity of the entry, which is the name of its lease.
    pub server: Arc<str>,
    /// The version that it encodes with.
    pub encoding: Arc<str>,
    /// The whole entry.
    pub whole: Value,
}

/// Fields of a StorageVersion that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireStorageVersion")]
pub struct StorageVersion {
    /// Metadata of the storage version.
    pub meta: Meta,
    /// `metadata.generation`
    pub generation: i64,
    /// `status.storageVersions`
    pub entries: Vec<Entry>,
    /// `status.commonEncodingVersion`
    pub common: Option<Arc<str>>,
    /// `status.conditions`
    pub conditions: Vec<Value>,
}

impl HasMeta for StorageVersion {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStorageVersion {
    metadata: WireMeta,
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    storage_versions: Option<Vec<Value>>,
    common_encoding_version: Option<String>,
    conditions: Option<Vec<Value>>,
}

pub(crate) fn text_field<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

impl From<WireStorageVersion> for StorageVersion {
    fn from(wire: WireStorageVersion) -> Self {
        let entry = |whole: Value| Entry {
            server: text_field(&whole, "apiServerID").into(),
            encoding: text_field(&whole, "encodingVersion").into(),
            whole,
        };
        Self {
            generation: wire.metadata.generation,
            entries: wire.status.storage_versions.into_iter().flatten().map(entry).collect(),
            common: wire.status.common_encoding_version.map(Into::into),
            conditions: wire.status.conditions.unwrap_or_default(),
            meta: Meta::from(&wire.metadata),
        }
    }
}
