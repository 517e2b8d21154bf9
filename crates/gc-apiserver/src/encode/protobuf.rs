//! The part of Kubernetes' protobuf encoding that the server supports: metadata and lists of it, watches of metadata, Status, and
//! DeleteOptions in requests.
//!
//! Written by hand from the published message numbers: the values are JSON, and writing them directly to bytes avoids a second copy
//! of every object.

use gc_registry::api::DeleteOptions;
use gc_registry::error::ApiError;
use gc_registry::object::Object;
use prost::Message;
use serde_json::{Map, Value};

use crate::encode::protobuf_writer::{Writer, time};
use crate::encode::{stored_metadata, table};

/// Prefix of every Kubernetes protobuf document.
pub(crate) const MAGIC: &[u8; 4] = b"k8s\0";

fn text<'a>(map: &'a Map<String, Value>, name: &str) -> &'a str {
    map.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Writes `k8s\0` and the envelope around a message.
pub(super) fn envelope(out: &mut Vec<u8>, api_version: &str, kind: &str, raw: impl FnOnce(&mut Writer<'_>)) {
    type_meta(out, api_version, kind).message(2, raw);
    // contentEncoding and contentType are empty.
}

/// Writes `k8s\0` and the envelope up to its message.
fn type_meta<'a>(out: &'a mut Vec<u8>, api_version: &str, kind: &str) -> Writer<'a> {
    out.extend_from_slice(MAGIC);
    let mut writer = Writer(out);
    writer.message(1, |meta| {
        meta.text(1, api_version);
        meta.text(2, kind);
    });
    writer
}

/// Writes one object's metadata as a complete document.
pub(crate) fn metadata_object(out: &mut Vec<u8>, api_version: &str, object: &Object) -> Result<(), ApiError> {
    let mut written = Ok(());
    envelope(out, api_version, "PartialObjectMetadata", |raw| written = partial_object(raw, object));
    written
}

/// Writes a `metadata` value as a complete document.
pub(crate) fn metadata_value(out: &mut Vec<u8>, api_version: &str, metadata: &Value) {
    envelope(out, api_version, "PartialObjectMetadata", |raw| partial_value(raw, metadata));
}

pub(super) fn partial_object(writer: &mut Writer<'_>, object: &Object) -> Result<(), ApiError> {
    let stored = object.stored_metadata().filter(|_| !table::hides_annotation(object));
    let Some((text, revision)) = stored else {
        let metadata = table::shown_metadata(object)?;
        partial_value(writer, &metadata);
        return Ok(());
    };
    let mut written = Ok(());
    writer.message(1, |writer| {
        written = stored_metadata::write(writer, text, &revision.to_string());
    });
    written.map_err(|why| ApiError::internal(format!("stored object is corrupt: {why}")))
}

fn partial_value(writer: &mut Writer<'_>, metadata: &Value) {
    if let Some(metadata) = metadata.as_object() {
        writer.message(1, |writer| object_meta(writer, metadata));
    }
}

/// Metadata of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListMeta<'a> {
    /// `resourceVersion`
    pub(crate) resource_version: &'a str,
    /// `continue`
    pub(crate) continue_token: &'a str,
    /// `remainingItemCount`
    pub(crate) remaining_item_count: Option<u64>,
}

/// Writes the metadata of a list.
pub(super) fn list_meta(writer: &mut Writer<'_>, meta: &ListMeta<'_>) {
    writer.message(1, |writer| {
        writer.text(2, meta.resource_version);
        writer.text(3, meta.continue_token);
        if let Some(count) = meta.remaining_item_count {
            writer.number(4, i64::try_from(count).unwrap_or(i64::MAX));
        }
    });
}

/// Writes `k8s\0` and the envelope in front of a message of this length, which ends the document.
pub(super) fn open_envelope(out: &mut Vec<u8>, api_version: &str, kind: &str, length: usize) {
    type_meta(out, api_version, kind).open(2, length);
}

/// Writes one event of a watch, preceded by its length as the stream format requires.
pub(crate) fn watch_frame(out: &mut Vec<u8>, event_type: &str, object: &[u8]) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut writer = Writer(out);
    writer.text(1, event_type);
    writer.message(2, |raw| raw.bytes(1, object));
    let length = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Writes a Status as a complete document.
pub(crate) fn status(out: &mut Vec<u8>, status: &Value) {
    let empty = Map::new();
    let status = status.as_object().unwrap_or(&empty);
    envelope(out, "v1", "Status", |raw| {
        raw.message(1, |_| {});
        raw.text(2, text(status, "status"));
        raw.text(3, text(status, "message"));
        raw.text(4, text(status, "reason"));
        if let Some(details) = status.get("details").and_then(Value::as_object) {
            raw.message(5, |writer| status_details(writer, details));
        }
        if let Some(code) = status.get("code").and_then(Value::as_i64) {
            raw.number(6, code);
        }
    });
}

fn status_details(writer: &mut Writer<'_>, details: &Map<String, Value>) {
    writer.text(1, text(details, "name"));
    writer.text(2, text(details, "group"));
    writer.text(3, text(details, "kind"));
    for cause in details.get("causes").and_then(Value::as_array).into_iter().flatten() {
        let Some(cause) = cause.as_object() else { continue };
        writer.message(4, |writer| {
            writer.text(1, text(cause, "reason"));
            writer.text(2, text(cause, "message"));
            writer.text(3, text(cause, "field"));
        });
    }
    if let Some(seconds) = details.get("retryAfterSeconds").and_then(Value::as_i64) {
        writer.number(5, seconds);
    }
    writer.text(6, text(details, "uid"));
}

pub(crate) fn object_meta(writer: &mut Writer<'_>, meta: &Map<String, Value>) {
    writer.text(1, text(meta, "name"));
    writer.text(2, text(meta, "generateName"));
    writer.text(3, text(meta, "namespace"));
    writer.text(4, text(meta, "selfLink"));
    writer.text(5, text(meta, "uid"));
    writer.text(6, text(meta, "resourceVersion"));
    if let Some(generation) = meta.get("generation").and_then(Value::as_i64) {
        writer.number(7, generation);
    }
    time_value(writer, 8, meta.get("creationTimestamp"));
    time_value(writer, 9, meta.get("deletionTimestamp"));
    if let Some(seconds) = meta.get("deletionGracePeriodSeconds").and_then(Value::as_i64) {
        writer.number(10, seconds);
    }
    text_map(writer, 11, meta.get("labels"));
    text_map(writer, 12, meta.get("annotations"));
    for owner in objects(meta.get("ownerReferences")) {
        writer.message(13, |writer| owner_reference(writer, owner));
    }
    for finalizer in meta.get("finalizers").and_then(Value::as_array).into_iter().flatten() {
        writer.bytes(14, finalizer.as_str().unwrap_or_default().as_bytes());
    }
    for entry in objects(meta.get("managedFields")) {
        writer.message(17, |writer| managed_fields_entry(writer, entry));
    }
}

fn objects(list: Option<&Value>) -> impl Iterator<Item = &Map<String, Value>> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

fn owner_reference(writer: &mut Writer<'_>, owner: &Map<String, Value>) {
    writer.text(1, text(owner, "kind"));
    writer.text(3, text(owner, "name"));
    writer.text(4, text(owner, "uid"));
    writer.text(5, text(owner, "apiVersion"));
    for (field, name) in [(6, "controller"), (7, "blockOwnerDeletion")] {
        if let Some(flag) = owner.get(name).and_then(Value::as_bool) {
            writer.number(field, i64::from(flag));
        }
    }
}

fn managed_fields_entry(writer: &mut Writer<'_>, entry: &Map<String, Value>) {
    writer.text(1, text(entry, "manager"));
    writer.text(2, text(entry, "operation"));
    writer.text(3, text(entry, "apiVersion"));
    time_value(writer, 4, entry.get("time"));
    writer.text(6, text(entry, "fieldsType"));
    if let Some(fields) = entry.get("fieldsV1") {
        writer.message(7, |writer| writer.bytes(1, fields.to_string().as_bytes()));
    }
    writer.text(8, text(entry, "subresource"));
}

fn text_map(writer: &mut Writer<'_>, field: u32, map: Option<&Value>) {
    for (key, value) in map.and_then(Value::as_object).into_iter().flatten() {
        writer.message(field, |writer| {
            writer.bytes(1, key.as_bytes());
            writer.bytes(2, value.as_str().unwrap_or_default().as_bytes());
        });
    }
}

fn time_value(writer: &mut Writer<'_>, field: u32, value: Option<&Value>) {
    time(writer, field, value.and_then(Value::as_str).unwrap_or_default());
}

/// Envelope of a request body.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Clone, PartialEq, Message)]
struct DeleteOptionsMessage {
    #[prost(int64, optional, tag = "1")]
    grace_period_seconds: Option<i64>,
    #[prost(message, optional, tag = "2")]
    preconditions: Option<PreconditionsMessage>,
    #[prost(bool, optional, tag = "3")]
    orphan_dependents: Option<bool>,
    #[prost(string, optional, tag = "4")]
    propagation_policy: Option<String>,
    #[prost(string, repeated, tag = "5")]
    dry_run: Vec<String>,
    #[prost(bool, optional, tag = "6")]
    ignore_store_read_error: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct PreconditionsMessage {
    #[prost(string, optional, tag = "1")]
    uid: Option<String>,
    #[prost(string, optional, tag = "2")]
    resource_version: Option<String>,
}

/// Decodes the object in a request, of any built-in kind.
pub(crate) fn decode_object(bytes: &[u8], expected: &str) -> Result<Value, ApiError> {
    let broken = |what: &str| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {expected}): protobuf: {what}"
        ))
    };
    let document = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| broken("the body does not start with the prefix of Kubernetes protobuf"))?;
    let unknown = Envelope::decode(document).map_err(|error| broken(&error.to_string()))?;
    let meta = unknown.type_meta.unwrap_or_default();
    match crate::encode::protobuf_request::object(&meta.api_version, &meta.kind, &unknown.raw) {
        Some(Ok(value)) => Ok(value),
        Some(Err(problem)) => Err(broken(&problem)),
        None => Err(crate::encode::negotiate::unsupported_media_type("application/json, application/yaml")),
    }
}

/// Decodes the DeleteOptions in a request.
pub(crate) fn decode_delete_options(bytes: &[u8]) -> Result<DeleteOptions, ApiError> {
    let broken = |what: String| {
        ApiError::bad_request(format!("DeleteOptions in the body cannot be handled: protobuf: {what}"))
    };
    let document = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| broken("the body does not start with the prefix of Kubernetes protobuf".into()))?;
    let unknown = Envelope::decode(document).map_err(|error| broken(error.to_string()))?;
    let kind = unknown.type_meta.map(|meta| meta.kind).unwrap_or_default();
    if !kind.is_empty() && kind != "DeleteOptions" {
        return Err(ApiError::bad_request(format!(
            "decoded object cannot be converted to DeleteOptions: it is of kind {kind}"
        )));
    }
    let message = DeleteOptionsMessage::decode(unknown.raw.as_slice()).map_err(|e| broken(e.to_string()))?;
    let preconditions = message.preconditions.unwrap_or_default();
    Ok(DeleteOptions {
        grace_period_seconds: message.grace_period_seconds,
        precondition_uid: preconditions.uid,
        precondition_resource_version: preconditions.resource_version,
        orphan_dependents: message.orphan_dependents,
        propagation_policy: message.propagation_policy,
        dry_run: message.dry_run,
        ignore_store_read_error: message.ignore_store_read_error.unwrap_or_default(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use std::sync::Arc;

    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// The messages as prost reads them: an independent decoder of the same published numbers.
    #[derive(Clone, PartialEq, Message)]
    struct ObjectMeta {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "3")]
        namespace: String,
        #[prost(string, tag = "5")]
        uid: String,
        #[prost(string, tag = "6")]
        resource_version: String,
        #[prost(int64, tag = "7")]
        generation: i64,
        #[prost(message, optional, tag = "8")]
        creation_timestamp: Option<Time>,
        #[prost(message, optional, tag = "9")]
        deletion_timestamp: Option<Time>,
        #[prost(int64, optional, tag = "10")]
        deletion_grace_period_seconds: Option<i64>,
        #[prost(btree_map = "string, string", tag = "11")]
        labels: std::collections::BTreeMap<String, String>,
        #[prost(message, repeated, tag = "13")]
        owner_references: Vec<Owner>,
        #[prost(string, repeated, tag = "14")]
        finalizers: Vec<String>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Time {
        #[prost(int64, tag = "1")]
        seconds: i64,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Owner {
        #[prost(string, tag = "1")]
        kind: String,
        #[prost(string, tag = "3")]
        name: String,
        #[prost(string, tag = "4")]
        uid: String,
        #[prost(string, tag = "5")]
        api_version: String,
        #[prost(bool, optional, tag = "6")]
        controller: Option<bool>,
        #[prost(bool, optional, tag = "7")]
        block_owner_deletion: Option<bool>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Partial {
        #[prost(message, optional, tag = "1")]
        metadata: Option<ObjectMeta>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct List {
        #[prost(message, optional, tag = "1")]
        metadata: Option<ListMetaMessage>,
        #[prost(message, repeated, tag = "2")]
        items: Vec<Partial>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct ListMetaMessage {
        #[prost(string, tag = "2")]
        resource_version: String,
        #[prost(string, tag = "3")]
        continue_token: String,
        #[prost(int64, optional, tag = "4")]
        remaining_item_count: Option<i64>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct WatchEventMessage {
        #[prost(string, tag = "1")]
        event_type: String,
        #[prost(message, optional, tag = "2")]
        object: Option<RawExtension>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct RawExtension {
        #[prost(bytes = "vec", tag = "1")]
        raw: Vec<u8>,
    }

    fn open(bytes: &[u8]) -> (String, Vec<u8>) {
        let unknown = Envelope::decode(bytes.strip_prefix(MAGIC).unwrap()).unwrap();
        let meta = unknown.type_meta.unwrap();
        (format!("{} {}", meta.api_version, meta.kind), unknown.raw)
    }

    fn example() -> Value {
        json!({
            "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "1970-01-01T00:01:00Z", "deletionTimestamp": "1970-01-01T00:02:00Z",
            "deletionGracePeriodSeconds": 0, "labels": {"a": "b", "e": ""},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "controller": true}],
            "finalizers": ["foregroundDeletion"],
        })
    }

    fn example_meta() -> ObjectMeta {
        ObjectMeta {
            name: "p".into(),
            namespace: "n".into(),
            uid: "u".into(),
            resource_version: "7".into(),
            generation: 3,
            creation_timestamp: Some(Time { seconds: 60 }),
            deletion_timestamp: Some(Time { seconds: 120 }),
            deletion_grace_period_seconds: Some(0),
            labels: [("a".into(), "b".into()), ("e".into(), String::new())].into(),
            owner_references: vec![Owner {
                kind: "ReplicaSet".into(),
                name: "r".into(),
                uid: "o".into(),
                api_version: "apps/v1".into(),
                controller: Some(true),
                block_owner_deletion: None,
            }],
            finalizers: vec!["foregroundDeletion".into()],
        }
    }

    #[test]
    fn metadata_reads_back() {
        let mut bytes = Vec::new();
        metadata_value(&mut bytes, "meta.k8s.io/v1", &example());
        let (kind, raw) = open(&bytes);
        assert_eq!(kind, "meta.k8s.io/v1 PartialObjectMetadata");
        assert_eq!(Partial::decode(raw.as_slice()).unwrap(), Partial { metadata: Some(example_meta()) });
    }

    #[test]
    fn lists_and_frames_read_back() {
        let meta = ListMeta { resource_version: "9", continue_token: "c", remaining_item_count: Some(4) };
        let types = Arc::new(gc_registry::object::TypeMeta { api_version: "v1".into(), kind: "Pod".into() });
        let value = Object::from_value(Arc::clone(&types), json!({"metadata": example()}));
        let mut without = example();
        without.as_object_mut().unwrap().remove("resourceVersion");
        let stored = format!("{{\"metadata\":{without},\"spec\":{{}}}}");
        let stored = Object::from_stored(types, stored.into(), gc_registry::storage::Revision(7));
        let mut list = Vec::new();
        list_meta(&mut Writer(&mut list), &meta);
        for item in [value, stored] {
            Writer(&mut list).message(2, |writer| partial_object(writer, &item).unwrap());
        }
        let mut bytes = Vec::new();
        open_envelope(&mut bytes, "meta.k8s.io/v1", "PartialObjectMetadataList", list.len());
        bytes.extend(list);
        let (kind, raw) = open(&bytes);
        assert_eq!(kind, "meta.k8s.io/v1 PartialObjectMetadataList");
        let partial = Partial { metadata: Some(example_meta()) };
        assert_eq!(
            List::decode(raw.as_slice()).unwrap(),
            List {
                metadata: Some(ListMetaMessage {
                    resource_version: "9".into(),
                    continue_token: "c".into(),
                    remaining_item_count: Some(4),
                }),
                items: vec![partial.clone(), partial],
            }
        );

        let mut frame = Vec::new();
        watch_frame(&mut frame, "ADDED", &bytes);
        let length = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
        assert_eq!(length, frame.len() - 4);
        let event = WatchEventMessage::decode(&frame[4..]).unwrap();
        assert_eq!(
            event,
            WatchEventMessage { event_type: "ADDED".into(), object: Some(RawExtension { raw: bytes }) }
        );
    }

    #[test]
    fn delete_options_are_read() {
        let message = DeleteOptionsMessage {
            grace_period_seconds: Some(-1),
            preconditions: Some(PreconditionsMessage { uid: Some("u".into()), resource_version: None }),
            orphan_dependents: Some(false),
            propagation_policy: Some("Foreground".into()),
            dry_run: vec!["All".into()],
            ignore_store_read_error: Some(true),
        };
        let document = |kind: &str| {
            let unknown = Envelope {
                type_meta: Some(TypeMeta { api_version: "v1".into(), kind: kind.into() }),
                raw: message.encode_to_vec(),
            };
            [MAGIC.as_slice(), &unknown.encode_to_vec()].concat()
        };
        assert_eq!(
            decode_delete_options(&document("DeleteOptions")).unwrap(),
            DeleteOptions {
                grace_period_seconds: Some(-1),
                precondition_uid: Some("u".into()),
                precondition_resource_version: None,
                orphan_dependents: Some(false),
                propagation_policy: Some("Foreground".into()),
                dry_run: vec!["All".into()],
                ignore_store_read_error: true,
            }
        );
        for broken in [document("Pod"), b"{}".to_vec(), b"k8s\0\xff\xff".to_vec(), Vec::new()] {
            assert_eq!(decode_delete_options(&broken).unwrap_err().code, 400);
        }
    }

    proptest! {
        #[test]
        fn names_of_any_length_read_back(name in ".{0,300}", count in 0_usize..4) {
            let object = json!({"name": name, "finalizers": vec![name.clone(); count]});
            let mut bytes = Vec::new();
            metadata_value(&mut bytes, "meta.k8s.io/v1", &object);
            let meta = Partial::decode(open(&bytes).1.as_slice()).unwrap().metadata.unwrap();
            prop_assert_eq!(&meta.name, &name);
            prop_assert_eq!(meta.finalizers, vec![name; count]);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_delete_options(&[MAGIC.as_slice(), &bytes].concat());
        }
    }
}
