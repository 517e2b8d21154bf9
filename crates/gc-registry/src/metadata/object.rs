//! Objects on their way out of the registry.
//!
//! A stored object is JSON text that begins with its metadata and has neither apiVersion nor kind (the table
//! of resources knows them) nor resourceVersion (the store knows it). So the three can be put in front of the
//! stored text without parsing it, and a list of 100,000 objects is written without one of them being decoded.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use super::numbers::write_json;
use super::ordered::InOrder;
use crate::error::ApiError;
use crate::storage::Revision;

/// What each stored text begins with.
const PREFIX: &[u8] = b"{\"metadata\":{";

/// How an object of one kind and version presents itself.
#[derive(Debug, PartialEq, Eq)]
pub struct TypeMeta {
    /// `group/version`, or `version` for core.
    pub api_version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
}

/// An object: stored text, decoded on first use, once for all who share it.
#[derive(Debug)]
pub struct Object {
    type_meta: Arc<TypeMeta>,
    revision: Option<Revision>,
    stored: Option<Bytes>,
    metadata: OnceLock<Value>,
    decoded: OnceLock<Arc<Value>>,
}

impl Object {
    /// From the store. The revision becomes `metadata.resourceVersion`.
    #[must_use]
    pub fn from_stored(type_meta: Arc<TypeMeta>, stored: Bytes, revision: Revision) -> Self {
        Self {
            type_meta,
            revision: Some(revision),
            stored: Some(stored),
            metadata: OnceLock::new(),
            decoded: OnceLock::new(),
        }
    }

    /// From a value that is complete with apiVersion, kind and, if it has one, resourceVersion.
    #[must_use]
    pub fn from_value(type_meta: Arc<TypeMeta>, value: Value) -> Self {
        Self {
            type_meta,
            revision: None,
            stored: None,
            metadata: OnceLock::new(),
            decoded: OnceLock::from(Arc::new(value)),
        }
    }

    /// The object without what was decoded of its stored text, for lists that are held until they are written.
    pub(crate) fn forgetting_what_was_decoded(self) -> Self {
        if self.stored.is_none() {
            return self;
        }
        Self { metadata: OnceLock::new(), decoded: OnceLock::new(), ..self }
    }

    /// apiVersion and kind.
    #[must_use]
    pub fn type_meta(&self) -> &Arc<TypeMeta> {
        &self.type_meta
    }

    /// The whole object with apiVersion, kind and resourceVersion. An error is a corrupt stored object (500).
    pub fn value(&self) -> Result<&Arc<Value>, ApiError> {
        if let Some(value) = self.decoded.get() {
            return Ok(value);
        }
        let stored = self.stored.as_deref().unwrap_or_default();
        let mut value: Value = serde_json::from_slice(stored).map_err(corrupt)?;
        let Some(map) = value.as_object_mut() else { return Err(corrupt("not an object")) };
        map.insert("apiVersion".into(), (*self.type_meta.api_version).into());
        map.insert("kind".into(), (*self.type_meta.kind).into());
        if let (Some(revision), Some(Value::Object(metadata))) = (self.revision, map.get_mut("metadata")) {
            metadata.insert("resourceVersion".into(), revision.to_string().into());
        }
        Ok(self.decoded.get_or_init(|| Arc::new(value)))
    }

    /// `metadata` alone, with resourceVersion; the rest of the object is not decoded.
    pub fn metadata(&self) -> Result<&Value, ApiError> {
        static NONE: Value = Value::Null;
        if let Some(value) = self.decoded.get() {
            return Ok(value.get("metadata").unwrap_or(&NONE));
        }
        if let Some(metadata) = self.metadata.get() {
            return Ok(metadata);
        }
        let stored = self.stored.as_deref().unwrap_or_default();
        let text = stored.get(PREFIX.len() - 1..).unwrap_or_default();
        let mut metadata = serde_json::Deserializer::from_slice(text)
            .into_iter::<Value>()
            .next()
            .ok_or_else(|| corrupt("no metadata"))?
            .map_err(corrupt)?;
        if let (Some(revision), Some(map)) = (self.revision, metadata.as_object_mut()) {
            map.insert("resourceVersion".into(), revision.to_string().into());
        }
        Ok(self.metadata.get_or_init(|| metadata))
    }

    /// The stored text from its metadata on, and the revision, which is not part of it; for readers that decode on
    /// their own and keep nothing. `None` if the object is a value already.
    #[must_use]
    pub fn stored_metadata(&self) -> Option<(&[u8], Revision)> {
        let text = self.stored.as_deref()?.get(PREFIX.len() - 1..)?;
        Some((text, self.revision?))
    }

    /// Appends the object as JSON; with `with_type` false, apiVersion and kind are left out, as in the lists
    /// of built-in kinds.
    pub fn write_json(&self, out: &mut Vec<u8>, with_type: bool) -> Result<(), ApiError> {
        let head = |out: &mut Vec<u8>| {
            out.extend_from_slice(b"{\"kind\":\"");
            out.extend_from_slice(self.type_meta.kind.as_bytes());
            out.extend_from_slice(b"\",\"apiVersion\":\"");
            out.extend_from_slice(self.type_meta.api_version.as_bytes());
            out.extend_from_slice(b"\",");
        };
        if let (Some(stored), Some(revision)) = (&self.stored, self.revision) {
            let rest = stored.strip_prefix(PREFIX).ok_or_else(|| corrupt("does not begin with metadata"))?;
            if with_type {
                head(out);
            } else {
                out.push(b'{');
            }
            out.extend_from_slice(b"\"metadata\":{\"resourceVersion\":\"");
            out.extend_from_slice(revision.to_string().as_bytes());
            out.push(b'"');
            if !rest.trim_ascii_start().starts_with(b"}") {
                out.push(b',');
            }
            out.extend_from_slice(rest);
            return Ok(());
        }
        let value = self.value()?;
        if with_type {
            write_json(out, &InOrder::of(value)).map_err(corrupt)?;
            return Ok(());
        }
        out.push(b'{');
        let mut first = true;
        for (key, member) in value.as_object().into_iter().flatten() {
            if key == "apiVersion" || key == "kind" {
                continue;
            }
            if !first {
                out.push(b',');
            }
            first = false;
            serde_json::to_writer(&mut *out, key).map_err(corrupt)?;
            out.push(b':');
            write_json(out, member).map_err(corrupt)?;
        }
        out.push(b'}');
        Ok(())
    }
}

fn corrupt(why: impl std::fmt::Display) -> ApiError {
    ApiError::internal(format!("stored object is corrupt: {why}"))
}
