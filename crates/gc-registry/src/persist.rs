//! Keys and formats of objects in the store (see [`crate::metadata::object`]).

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::catalog::forms::{self, Conversion};
use crate::crd::CustomVersion;
use crate::error::{ApiError, Cause, Details};
use crate::kinds;
use crate::metadata::numbers::write_json;
use crate::metadata::object::{Object, TypeMeta, is_whole};
use crate::metadata::ordered::InOrder;
use crate::resource::ResourceDefinition;
use crate::schema::{self, declared::Shape};
use crate::storage::{Key, KeyValue, Revision, StorageError};

/// Prefix of custom resource definitions.
pub(crate) const DEFINITIONS: &str = "/apiextensions.k8s.io/customresourcedefinitions/";
/// Prefix of user-configured policies and webhooks.
pub(crate) const ADMISSION: &str = "/admissionregistration.k8s.io/";
/// Prefix of the events of both groups.
pub(crate) const EVENTS: &str = "/core/events/";

/// Returns `/<group or core>/<resource>/`, which all versions of a resource share, and both groups of events.
pub(crate) fn resource_prefix(resource: &ResourceDefinition) -> String {
    let group = match &*resource.group {
        "" | "events.k8s.io" => "core",
        group => group,
    };
    format!("/{group}/{}/", resource.resource)
}

/// Returns the prefix of a collection; an empty namespace means all of them.
pub(crate) fn collection_prefix(resource: &ResourceDefinition, namespace: &str) -> String {
    let mut prefix = resource_prefix(resource);
    if !namespace.is_empty() {
        prefix.push_str(namespace);
        prefix.push('/');
    }
    prefix
}

/// Returns the key of an object.
pub(crate) fn object_key(resource: &ResourceDefinition, namespace: &str, name: &str) -> Key {
    let mut key = collection_prefix(resource, namespace);
    key.push_str(name);
    key.into()
}

/// Returns the key of a namespace object.
pub(crate) fn namespace_key(name: &str) -> String {
    format!("/core/namespaces/{name}")
}

/// Returns apiVersion and kind of a resource.
pub(crate) fn type_meta(resource: &ResourceDefinition) -> Arc<TypeMeta> {
    Arc::new(TypeMeta { api_version: resource.api_version().into(), kind: Arc::clone(&resource.kind) })
}

/// Maximum number of unreadable objects that an error names, as upstream's (KEP-3926).
const MOST_NAMED: usize = 100;

/// Fails if one of these objects, which a list is to have, cannot be one. Names each of them, as upstream does (KEP-3926): a list without
/// them would say that they do not exist.
pub(crate) fn refuse_unreadable(resource: &ResourceDefinition, items: &[KeyValue]) -> Result<(), ApiError> {
    let mut unreadable = items.iter().filter(|item| !is_whole(&item.value)).peekable();
    if unreadable.peek().is_none() {
        return Ok(());
    }
    let (prefix, folder) = (resource_prefix(resource), upstream_folder(resource));
    let cause = |item: &KeyValue| {
        let field = format!("/registry/{folder}/{}", item.key.strip_prefix(&*prefix).unwrap_or(&item.key));
        let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(&item.value);
        let why = parsed.err().map_or_else(|| "it has no metadata".to_owned(), |error| error.to_string());
        let message = format!(
            "StorageError: corrupt object, Code: 7, Key: {field}, ResourceVersion: 0, AdditionalErrorMsg: object not decodable \
             revision={}: {why}",
            item.mod_revision
        );
        Cause { reason: "UnexpectedServerResponse".into(), message, field }
    };
    let mut causes: Vec<Cause> = unreadable.by_ref().take(MOST_NAMED).map(cause).collect();
    if unreadable.next().is_some() {
        let message = "too many errors, the list is truncated".to_owned();
        causes.push(Cause { reason: "FieldValueTooMany".into(), message, field: String::new() });
    }
    let message = format!("failed to read one or more {} from the storage", resource.resource);
    let mut error = ApiError::new(500, "StorageReadError", message);
    let (group, kind) = ((*resource.group).to_owned(), (*resource.resource).to_owned());
    error.details =
        Some(Box::new(Details { name: "list".into(), group, kind, causes, ..Details::default() }));
    Err(error)
}

/// Returns upstream's path of a resource in its store, below `/registry`.
pub(crate) fn upstream_folder(resource: &ResourceDefinition) -> String {
    let grouped = matches!(&*resource.group, "apiextensions.k8s.io" | "apiregistration.k8s.io");
    if grouped || resource.custom.is_some() {
        return format!("{}/{}", resource.group, resource.resource);
    }
    kinds::folder(resource.target()).unwrap_or(&resource.resource).to_owned()
}

/// A decoded document.
pub(crate) enum Read {
    /// In the version of the resource.
    Wanted(Value),
    /// In another version, which a webhook must convert.
    Foreign(Value),
}

/// Decodes a stored object to a complete document in the version of the resource. No webhook is called: the document is of a
/// built-in kind, or its reader needs nothing that differs among versions.
pub(crate) fn decode(resource: &ResourceDefinition, stored: &KeyValue) -> Result<Value, ApiError> {
    match read(resource, &stored.value, stored.mod_revision)? {
        Read::Wanted(object) | Read::Foreign(object) => Ok(object),
    }
}

/// Decodes a stored object to a complete document.
pub(crate) fn read(
    resource: &ResourceDefinition,
    stored: &Bytes,
    revision: Revision,
) -> Result<Read, ApiError> {
    let value: Value = serde_json::from_slice(stored)
        .map_err(|why| ApiError::internal(format!("stored object is corrupt: {why}")))?;
    let mut value = forms::from_stored(resource, value);
    let mut is_foreign = false;
    let wanted = resource.api_version();
    let mut api_version = wanted.clone();
    if let Some(custom) = &resource.custom {
        let form = StoredForm::of(custom, stored);
        let stored_as = form.api_version;
        if !form.is_of_today(custom) {
            custom.read_stored(stored_as, &mut value);
        }
        is_foreign = custom.webhook().is_some() && stored_as != wanted;
        if is_foreign {
            stored_as.clone_into(&mut api_version);
        } else if stored_as != wanted {
            custom.keep_fields_of(&wanted, &mut value);
        }
    }
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".into(), api_version.into());
        map.insert("kind".into(), (*resource.kind).into());
        if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
            metadata.insert("resourceVersion".into(), revision.to_string().into());
        }
    }
    if is_foreign {
        return Ok(Read::Foreign(value));
    }
    Ok(Read::Wanted(value))
}

/// Text after the last field of a stored custom resource, up to the stored version.
const MARK: &[u8] = b",\"apiVersion\":\"";
/// Separator between that version and the fingerprint of its schema. Neither can contain it.
const MARK_SCHEMA: u8 = b'#';
/// Text after the mark.
const MARK_END: &[u8] = b"\"}";

/// Splits a stored object into its text without the mark and without its end, and the mark. The last string of an object contains
/// no unescaped quotes, so nothing else can look like a mark.
fn split_mark(stored: &[u8]) -> Option<(&[u8], &str)> {
    let text = stored.strip_suffix(MARK_END)?;
    let start = text.iter().rposition(|byte| *byte == b'"')? + 1;
    let rest = text[..start].strip_suffix(MARK)?;
    Some((rest, std::str::from_utf8(&text[start..]).ok()?))
}

/// The form of a custom resource in the store, as named in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredForm<'s> {
    /// apiVersion in which the object is stored.
    pub(crate) api_version: &'s str,
    /// Fingerprint of the schema by which the object was pruned and defaulted before it was stored.
    schema: Option<&'s str>,
}

impl<'s> StoredForm<'s> {
    pub(crate) fn of(custom: &'s CustomVersion, stored: &'s [u8]) -> Self {
        match split_mark(stored) {
            None => Self { api_version: custom.unmarked_api_version(), schema: None },
            Some((_, mark)) => match mark.split_once(char::from(MARK_SCHEMA)) {
                None => Self { api_version: mark, schema: None },
                Some((api_version, schema)) => Self { api_version, schema: Some(schema) },
            },
        }
    }

    /// Reports whether the object conforms to the current schema. This says nothing about the time of the write: a restore writes
    /// everything at once, and a write may have been judged by a schema that was replaced before the write finished.
    fn is_of_today(&self, custom: &CustomVersion) -> bool {
        self.schema.is_some() && self.schema == custom.fingerprint_of(self.api_version)
    }
}

/// Returns the text of a stored object without its mark.
fn without_mark(stored: Bytes) -> Bytes {
    match split_mark(&stored) {
        None => stored,
        Some((text, _)) => [text, b"}"].concat().into(),
    }
}

/// Maximum nesting of a stored object: a deeper one could be written, but never be read again.
const DEEPEST: usize = 127;

/// Returns the stored form of a document: metadata first, without apiVersion, kind and resourceVersion. Fails with a 400 for a
/// document that is nested too deeply, which may be the case only for its managed fields.
pub(crate) fn encode(resource: &ResourceDefinition, object: &Value) -> Result<Bytes, ApiError> {
    if schema::depth(object).is_none_or(|depth| depth > DEEPEST) {
        let why =
            format!("the object is nested more than {DEEPEST} levels deep, its managed fields included");
        return Err(ApiError::bad_request(why));
    }
    let custom = resource.custom.as_ref();
    let to_stored = || custom.and_then(|custom| custom.to_stored(object));
    let mark = custom.map(|custom| (&**custom.storage_api_version(), custom.storage_fingerprint()));
    match forms::to_stored(resource, object).or_else(to_stored) {
        None => {
            let shape = Shape::of_kind(&resource.group, &resource.version, &resource.kind);
            encode_value(InOrder::shaped(object, shape), mark).map(Bytes::from)
        }
        // It is converted again before it is returned to anybody.
        Some(converted) => encode_value(InOrder::shaped(&converted, Shape::BY_NAME), mark).map(Bytes::from),
    }
}

/// Encodes an object. `mark` contains the version and the fingerprint of the schema.
fn encode_value(object: InOrder<'_>, mark: Option<(&str, &str)>) -> Result<Vec<u8>, ApiError> {
    /// Capacity for an object of ordinary size.
    const CAPACITY: usize = 1024;
    let mut out = Vec::with_capacity(CAPACITY);
    let fail = |why: serde_json::Error| ApiError::internal(format!("cannot encode object: {why}"));
    out.extend_from_slice(b"{\"metadata\":{");
    let mut first = true;
    let metadata = object.members().find(|(key, _)| *key == "metadata");
    for (key, value) in metadata.into_iter().flat_map(|(_, metadata)| metadata.members()) {
        if key != "resourceVersion" {
            write_member(&mut out, &mut first, key, value).map_err(fail)?;
        }
    }
    out.push(b'}');
    first = false;
    for (key, value) in object.members() {
        if !matches!(key, "metadata" | "apiVersion" | "kind") {
            write_member(&mut out, &mut first, key, value).map_err(fail)?;
        }
    }
    match mark {
        Some((version, schema)) => {
            out.extend_from_slice(MARK);
            out.extend_from_slice(version.as_bytes());
            out.push(MARK_SCHEMA);
            out.extend_from_slice(schema.as_bytes());
            out.extend_from_slice(MARK_END);
        }
        None => out.push(b'}'),
    }
    out.shrink_to_fit();
    Ok(out)
}

fn write_member(
    out: &mut Vec<u8>,
    first: &mut bool,
    key: &str,
    value: InOrder<'_>,
) -> Result<(), serde_json::Error> {
    if !*first {
        out.push(b',');
    }
    *first = false;
    serde_json::to_writer(&mut *out, key)?;
    out.push(b':');
    write_json(out, &value)
}

/// An object about to be returned.
pub(crate) enum PresentedObject {
    /// In the version of the resource, and in its stored form if possible.
    Wanted(Object),
    /// In another version, which a webhook must convert.
    Foreign(Value),
}

/// Prepares an object that is about to be returned.
pub(crate) fn present(
    resource: &ResourceDefinition,
    type_meta: &Arc<TypeMeta>,
    stored: Bytes,
    revision: Revision,
) -> Result<PresentedObject, ApiError> {
    let is_stored_form = match &resource.custom {
        None => forms::conversion(resource) == Conversion::Same,
        Some(custom) => {
            let form = StoredForm::of(custom, &stored);
            form.api_version == &*type_meta.api_version && form.is_of_today(custom)
        }
    };
    if is_stored_form {
        let stored = if resource.custom.is_some() { without_mark(stored) } else { stored };
        return Ok(PresentedObject::Wanted(Object::from_stored(Arc::clone(type_meta), stored, revision)));
    }
    Ok(match read(resource, &stored, revision)? {
        Read::Wanted(object) => PresentedObject::Wanted(Object::from_value(Arc::clone(type_meta), object)),
        Read::Foreign(object) => PresentedObject::Foreign(object),
    })
}

/// Converts a failure of the store to the client's error.
pub(crate) fn storage_error(error: StorageError) -> ApiError {
    match error {
        StorageError::Compacted { .. } => {
            ApiError::new(410, "Expired", "The resourceVersion for the provided list is too old.")
        }
        StorageError::Future { requested, newest } => {
            // The client asked for an exact version, so it does not have to wait for one.
            let mut error = too_large_version(requested, newest);
            if let Some(details) = &mut error.details {
                details.retry_after_seconds = None;
            }
            error
        }
        StorageError::TooLarge { limit, .. } => {
            ApiError::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
        }
        StorageError::Unavailable(why) => {
            ApiError::new(503, "ServiceUnavailable", format!("storage is unavailable: {why}"))
        }
        other => ApiError::internal(other),
    }
}

/// Returns the 504 for a requested version in the future.
pub(crate) fn too_large_version(requested: Revision, newest: Revision) -> ApiError {
    let mut error = ApiError::new(
        504,
        "Timeout",
        format!("Timeout: Too large resource version: {requested}, current: {newest}"),
    );
    error.details = Some(Box::new(Details {
        causes: vec![Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            field: String::new(),
        }],
        retry_after_seconds: Some(1),
        ..Details::default()
    }));
    error
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_names_its_form_at_its_end_and_nowhere_else() {
        fn by_name(object: &Value) -> InOrder<'_> {
            InOrder::shaped(object, Shape::BY_NAME)
        }
        let marked = |object: &Value| {
            let text = encode_value(by_name(object), Some(("example.com/v2", "0a1b"))).unwrap();
            let found = split_mark(&text).map(|(_, mark)| mark.to_owned());
            (found, String::from_utf8(without_mark(text.into()).to_vec()).unwrap())
        };
        let plain = |object: &Value| String::from_utf8(encode_value(by_name(object), None).unwrap()).unwrap();
        for object in [
            json!({"metadata": {"name": "a"}}),
            json!({"metadata": {}, "spec": {"apiVersion": "example.com/v1"}}),
            json!({"metadata": {"name": "a"}, "z": ",\"apiVersion\":\"example.com/v1\"}"}),
        ] {
            assert_eq!(marked(&object), (Some("example.com/v2#0a1b".to_owned()), plain(&object)));
            assert_eq!(split_mark(plain(&object).as_bytes()), None, "{object}");
        }
    }
}
