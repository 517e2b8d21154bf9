//! Where objects are kept in the store, and in which form (see [`crate::object`]).

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::convert::{self, Conversion};
use crate::error::{ApiError, Cause, Details};
use crate::object::{Object, TypeMeta};
use crate::resource::ResourceDefinition;
use crate::schema;
use crate::storage::{Key, KeyValue, Revision, StorageError};

/// Prefix of the definitions of custom resources.
pub(crate) const DEFINITIONS: &str = "/apiextensions.k8s.io/customresourcedefinitions/";
/// Prefix of events of both groups.
pub(crate) const EVENTS: &str = "/core/events/";

/// `/<group or core>/<resource>/`; all versions of a resource share it, and both groups of events.
pub(crate) fn resource_prefix(resource: &ResourceDefinition) -> String {
    let group = match &*resource.group {
        "" | "events.k8s.io" => "core",
        group => group,
    };
    format!("/{group}/{}/", resource.resource)
}

/// Prefix of a collection; an empty namespace is all of them.
pub(crate) fn collection_prefix(resource: &ResourceDefinition, namespace: &str) -> String {
    let mut prefix = resource_prefix(resource);
    if !namespace.is_empty() {
        prefix.push_str(namespace);
        prefix.push('/');
    }
    prefix
}

/// Key of an object.
pub(crate) fn object_key(resource: &ResourceDefinition, namespace: &str, name: &str) -> Key {
    let mut key = collection_prefix(resource, namespace);
    key.push_str(name);
    key.into()
}

/// Key of a namespace object.
pub(crate) fn namespace_key(name: &str) -> String {
    format!("/core/namespaces/{name}")
}

/// apiVersion and kind of a resource.
pub(crate) fn type_meta(resource: &ResourceDefinition) -> Arc<TypeMeta> {
    Arc::new(TypeMeta { api_version: resource.api_version().into(), kind: Arc::clone(&resource.kind) })
}

/// A complete document from what is stored, in the version of the resource.
pub(crate) fn decode(resource: &ResourceDefinition, stored: &KeyValue) -> Result<Value, ApiError> {
    decode_bytes(resource, &stored.value, stored.mod_revision)
}

fn decode_bytes(
    resource: &ResourceDefinition,
    stored: &Bytes,
    revision: Revision,
) -> Result<Value, ApiError> {
    let value: Value = serde_json::from_slice(stored)
        .map_err(|why| ApiError::internal(format!("stored object is corrupt: {why}")))?;
    let mut value = convert::from_stored(resource, value);
    if let Some(custom) = resource.custom.as_ref().filter(|custom| custom.is_older(revision.0)) {
        custom.read_stored(&mut value);
    }
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".into(), resource.api_version().into());
        map.insert("kind".into(), (*resource.kind).into());
        if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
            metadata.insert("resourceVersion".into(), revision.to_string().into());
        }
    }
    Ok(value)
}

/// How deep a stored object may be nested: a deeper one could be written, and never be read again.
const DEEPEST: usize = 127;

/// The stored form of a document: metadata first, without apiVersion, kind and resourceVersion. 400 for a document that
/// is nested too deeply, which its managed fields may be where it is not.
pub(crate) fn encode(resource: &ResourceDefinition, object: &Value) -> Result<Bytes, ApiError> {
    if schema::depth(object).is_none_or(|depth| depth > DEEPEST) {
        let why =
            format!("the object is nested more than {DEEPEST} levels deep, its managed fields included");
        return Err(ApiError::bad_request(why));
    }
    let custom = || resource.custom.as_ref().and_then(|custom| custom.to_stored(object));
    match convert::to_stored(resource, object).or_else(custom) {
        None => encode_value(object).map(Bytes::from),
        Some(converted) => encode_value(&converted).map(Bytes::from),
    }
}

fn encode_value(object: &Value) -> Result<Vec<u8>, ApiError> {
    /// Room for an object of ordinary size.
    const CAPACITY: usize = 1024;
    let mut out = Vec::with_capacity(CAPACITY);
    let fail = |why: serde_json::Error| ApiError::internal(format!("cannot encode object: {why}"));
    out.extend_from_slice(b"{\"metadata\":{");
    let mut first = true;
    for (key, value) in crate::meta::metadata(object) {
        if key != "resourceVersion" {
            write_member(&mut out, &mut first, key, value).map_err(fail)?;
        }
    }
    out.push(b'}');
    first = false;
    for (key, value) in object.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "metadata" | "apiVersion" | "kind") {
            write_member(&mut out, &mut first, key, value).map_err(fail)?;
        }
    }
    out.push(b'}');
    out.shrink_to_fit();
    Ok(out)
}

fn write_member(
    out: &mut Vec<u8>,
    first: &mut bool,
    key: &str,
    value: &Value,
) -> Result<(), serde_json::Error> {
    if !*first {
        out.push(b',');
    }
    *first = false;
    serde_json::to_writer(&mut *out, key)?;
    out.push(b':');
    serde_json::to_writer(&mut *out, value)
}

/// An object on its way out, still in its stored form if the version of the resource allows it.
pub(crate) fn present(
    resource: &ResourceDefinition,
    type_meta: &Arc<TypeMeta>,
    stored: Bytes,
    revision: Revision,
) -> Result<Object, ApiError> {
    let is_older = resource.custom.as_ref().is_some_and(|custom| custom.is_older(revision.0));
    if convert::conversion(resource) == Conversion::Same && !is_older {
        return Ok(Object::from_stored(Arc::clone(type_meta), stored, revision));
    }
    Ok(Object::from_value(Arc::clone(type_meta), decode_bytes(resource, &stored, revision)?))
}

/// What a client gets when the store failed.
pub(crate) fn storage_error(error: StorageError) -> ApiError {
    match error {
        StorageError::Compacted { .. } => {
            ApiError::new(410, "Expired", "The resourceVersion for the provided list is too old.")
        }
        StorageError::Future { requested, newest } => too_large_version(requested, newest),
        StorageError::TooLarge { limit, .. } => {
            ApiError::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
        }
        StorageError::Unavailable(why) => {
            ApiError::new(504, "Timeout", format!("Timeout: storage is unavailable: {why}"))
        }
        other => ApiError::internal(other),
    }
}

/// 504: the version asked for has not happened.
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
