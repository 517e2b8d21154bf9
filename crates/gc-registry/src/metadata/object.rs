//! Objects returned by the registry.
//!
//! A stored object is JSON text that begins with its metadata and has neither apiVersion nor kind (which the table of resources
//! knows) nor resourceVersion (which the store knows). All three can be put in front of the stored text without parsing it, so a
//! list of 100,000 objects is written without decoding any of them.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use super::numbers::write_json;
use super::ordered::{InOrder, is_declared};
use crate::error::ApiError;
use crate::storage::Revision;

/// Prefix of each stored text.
const PREFIX: &[u8] = b"{\"metadata\":{";

/// Reports whether a stored text can be that of an object, by its ends. What is between them fails where it is decoded.
pub(crate) fn is_whole(stored: &[u8]) -> bool {
    stored.starts_with(PREFIX) && stored.ends_with(b"}")
}

/// Kind and apiVersion of an object.
#[derive(Debug, PartialEq, Eq)]
pub struct TypeMeta {
    /// `group/version`, or `version` for core.
    pub api_version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
}

/// An object: stored text, decoded at most once, on first use, for all who share it.
#[derive(Debug)]
pub struct Object {
    type_meta: Arc<TypeMeta>,
    revision: Option<Revision>,
    stored: Option<Bytes>,
    metadata: OnceLock<Value>,
    decoded: OnceLock<Arc<Value>>,
}

impl Object {
    /// Creates an object from its stored form. The revision becomes `metadata.resourceVersion`.
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

    /// Creates an object from a value that is complete with apiVersion, kind and, if it has one, resourceVersion.
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

    /// Returns the object without decoded parts, for lists that are held until they are written.
    pub(crate) fn forgetting_what_was_decoded(self) -> Self {
        if self.stored.is_none() {
            return self;
        }
        Self { metadata: OnceLock::new(), decoded: OnceLock::new(), ..self }
    }

    /// Returns apiVersion and kind.
    #[must_use]
    pub fn type_meta(&self) -> &Arc<TypeMeta> {
        &self.type_meta
    }

    /// Returns the whole object with apiVersion, kind and resourceVersion. Fails with a 500 if the stored object is corrupt.
    pub fn value(&self) -> Result<&Arc<Value>, ApiError> {
        if let Some(value) = self.decoded.get() {
            return Ok(value);
        }
        let value = self.decode()?;
        Ok(self.decoded.get_or_init(|| Arc::new(value)))
    }

    /// Returns the object as a value that is not cached, for callers that read many objects.
    pub fn to_value(&self) -> Result<Value, ApiError> {
        match self.decoded.get() {
            Some(value) => Ok((**value).clone()),
            None => self.decode(),
        }
    }

    fn decode(&self) -> Result<Value, ApiError> {
        let stored = self.stored.as_deref().unwrap_or_default();
        let mut value: Value = serde_json::from_slice(stored).map_err(corrupt)?;
        let Some(map) = value.as_object_mut() else { return Err(corrupt("not an object")) };
        map.insert("apiVersion".into(), (*self.type_meta.api_version).into());
        map.insert("kind".into(), (*self.type_meta.kind).into());
        if let (Some(revision), Some(Value::Object(metadata))) = (self.revision, map.get_mut("metadata")) {
            metadata.insert("resourceVersion".into(), revision.to_string().into());
        }
        Ok(value)
    }

    /// Returns the size of the stored text if only this object holds it, otherwise 0.
    #[must_use]
    pub fn own_bytes(&self) -> usize {
        self.stored.as_ref().filter(|stored| stored.is_unique()).map_or(0, Bytes::len)
    }

    /// Returns only the `metadata`, with resourceVersion, without decoding the rest of the object.
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

    /// Returns the stored text from its metadata on, and the revision, which is not part of the text. For callers that decode the
    /// text themselves without caching. Returns `None` if the object was created from a value.
    #[must_use]
    pub fn stored_metadata(&self) -> Option<(&[u8], Revision)> {
        let text = self.stored.as_deref()?.get(PREFIX.len() - 1..)?;
        Some((text, self.revision?))
    }

    /// Appends the object as JSON; if `with_type` is false, apiVersion and kind are omitted, as in lists of built-in kinds.
    pub fn write_json(&self, out: &mut Vec<u8>, with_type: bool) -> Result<(), ApiError> {
        if let (Some(stored), Some(revision)) = (&self.stored, self.revision) {
            let rest = stored.strip_prefix(PREFIX).ok_or_else(|| corrupt("does not begin with metadata"))?;
            out.push(b'{');
            if with_type {
                self.write_type(out);
            }
            out.extend_from_slice(b"\"metadata\":{");
            let (identity, rest) = rest.split_at(identity_end(rest));
            if identity.is_empty() {
                out.extend_from_slice(b"\"resourceVersion\":\"");
            } else {
                out.extend_from_slice(identity);
                out.extend_from_slice(b",\"resourceVersion\":\"");
            }
            serde_json::to_writer(&mut *out, &revision.0).map_err(corrupt)?;
            out.push(b'"');
            if identity.is_empty() && !rest.trim_ascii_start().starts_with(b"}") {
                out.push(b',');
            }
            out.extend_from_slice(rest);
            return Ok(());
        }
        let ordered = InOrder::of(self.value()?);
        if with_type {
            write_json(out, &ordered).map_err(corrupt)?;
            return Ok(());
        }
        out.push(b'{');
        let members = ordered.members().filter(|(name, _)| !matches!(*name, "apiVersion" | "kind"));
        for (index, (key, member)) in members.enumerate() {
            if index > 0 {
                out.push(b',');
            }
            serde_json::to_writer(&mut *out, key).map_err(corrupt)?;
            out.push(b':');
            write_json(out, &member).map_err(corrupt)?;
        }
        out.push(b'}');
        Ok(())
    }

    /// Appends apiVersion and kind, each with a comma.
    fn write_type(&self, out: &mut Vec<u8>) {
        let TypeMeta { api_version, kind } = &*self.type_meta;
        let (kind, version) = (("kind", kind), ("apiVersion", api_version));
        for (name, value) in if is_declared(api_version) { [kind, version] } else { [version, kind] } {
            out.push(b'"');
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":\"");
            out.extend_from_slice(value.as_bytes());
            out.extend_from_slice(b"\",");
        }
    }
}

/// Returns the end of the members that Go writes before resourceVersion, in the text of metadata after its bracket; all of them are
/// strings, and stored in this order. Texts from earlier releases, and of custom resources, begin with other members, in which case
/// the beginning is returned.
fn identity_end(text: &[u8]) -> usize {
    let mut end = 0;
    let _ = skip_member(text, b"\"name\":\"", &mut end)
        && skip_member(text, b"\"generateName\":\"", &mut end)
        && skip_member(text, b"\"namespace\":\"", &mut end)
        && skip_member(text, b"\"selfLink\":\"", &mut end)
        && skip_member(text, b"\"uid\":\"", &mut end);
    end
}

/// Moves `end` past a member with this name and the opening quote of its value, if it is the next one. Returns false at the end of
/// the object. This runs for every object of a list, so the name is an array, which is compared without a call.
fn skip_member<const LENGTH: usize>(text: &[u8], name: &[u8; LENGTH], end: &mut usize) -> bool {
    let begin = if *end == 0 { 0 } else { *end + 1 };
    let Some((found, value)) = text.get(begin..).and_then(|member| member.split_first_chunk()) else {
        return true; // too short for this name, not for another
    };
    if found != name {
        return true;
    }
    let Some(length) = string_end(value) else { return false };
    *end = begin + LENGTH + length;
    text.get(*end) == Some(&b',')
}

/// Returns the length of a string including its closing quote.
fn string_end(text: &[u8]) -> Option<usize> {
    let mut begin = 0;
    loop {
        let at = begin + memchr::memchr2(b'"', b'\\', text.get(begin..)?)?;
        match text[at] {
            b'"' => return Some(at + 1),
            // Skip the escaped character.
            _ => begin = at + 2,
        }
    }
}

fn corrupt(why: impl std::fmt::Display) -> ApiError {
    ApiError::internal(format!("stored object is corrupt: {why}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    #[test]
    fn the_version_stands_where_go_writes_it() {
        let written = |api_version: &str, stored: &'static str, with_type| {
            let type_meta = Arc::new(TypeMeta { api_version: api_version.into(), kind: "K".into() });
            let mut out = Vec::new();
            let object = Object::from_stored(type_meta, Bytes::from_static(stored.as_bytes()), Revision(7));
            object.write_json(&mut out, with_type).unwrap();
            String::from_utf8(out).unwrap()
        };
        for (stored, wanted) in [
            (r#"{"metadata":{}}"#, r#"{"metadata":{"resourceVersion":"7"}}"#),
            (r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#),
            (
                r#"{"metadata":{"name":"a\\","uid":"\"u","labels":{"uid":"x"}},"x":1}"#,
                r#"{"metadata":{"name":"a\\","uid":"\"u","resourceVersion":"7","labels":{"uid":"x"}},"x":1}"#,
            ),
            (
                r#"{"metadata":{"name":"a","generateName":"g","namespace":"n","uid":"u"}}"#,
                r#"{"metadata":{"name":"a","generateName":"g","namespace":"n","uid":"u","resourceVersion":"7"}}"#,
            ),
            (r#"{"metadata":{"uid":"u","x":1}}"#, r#"{"metadata":{"uid":"u","resourceVersion":"7","x":1}}"#),
            (
                r#"{"metadata":{"annotations":{},"name":"a"}}"#,
                r#"{"metadata":{"resourceVersion":"7","annotations":{},"name":"a"}}"#,
            ),
        ] {
            assert_eq!(written("v1", stored, false), wanted);
        }
        let head = |api_version| written(api_version, r#"{"metadata":{}}"#, true);
        let rest = r#""metadata":{"resourceVersion":"7"}}"#;
        assert_eq!(head("v1"), format!(r#"{{"kind":"K","apiVersion":"v1",{rest}"#));
        assert_eq!(head("example.com/v1"), format!(r#"{{"apiVersion":"example.com/v1","kind":"K",{rest}"#));
    }
}
