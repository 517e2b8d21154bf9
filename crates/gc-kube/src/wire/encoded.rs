//! Metadata as servers encode it in both formats, against which tests and fuzz targets check the decoders.
#![allow(clippy::unwrap_used, reason = "used by tests alone")]

use serde_json::json;

use super::metadata::{
    Encoding, INITIAL_EVENTS_END, List, Metadata, PROTOBUF_MAGIC, WatchEvent, decode_list, decode_object,
    decode_watch_event,
};
use gc_types::{Gvr, Marks, NotTheList, ResourceId, ResourceInfo, Scope};

pub(crate) fn varint(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    into.push(u8::try_from(number).unwrap());
}

pub(crate) fn bytes_field(number: u64, content: &[u8], into: &mut Vec<u8>) {
    varint(number << 3 | 2, into);
    varint(content.len() as u64, into);
    into.extend_from_slice(content);
}

pub(crate) fn number_field(number: u64, content: u64, into: &mut Vec<u8>) {
    varint(number << 3, into);
    varint(content, into);
}

pub(crate) fn annotations(metadata: &Metadata<'_>) -> Vec<(&'static str, String)> {
    let end = metadata.initial_events_end.then(|| (INITIAL_EVENTS_END, "true".to_owned()));
    let Marks { ttl, expires_at, keep, .. } = &metadata.marks;
    let marks = [("kubegc.io/ttl", ttl), ("kubegc.io/expires-at", expires_at), ("kubegc.io/keep", keep)];
    let marks = marks.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?.to_string())));
    let foreign = metadata.marks.foreign_marks().filter(|(mark, _)| !mark.is_label());
    let foreign = foreign.map(|(mark, text)| (mark.key(), text.to_string()));
    end.into_iter().chain(marks).chain(foreign).chain(tracking(metadata, false)).collect()
}

fn tracking(metadata: &Metadata<'_>, labels: bool) -> impl Iterator<Item = (&'static str, String)> {
    let marks = metadata.tracking.iter().filter(move |(mark, _)| mark.is_label() == labels);
    marks.map(|(mark, text)| (mark.key(), text.to_string()))
}

/// Returns labels that the decoder reads, and one that it skips.
fn labels(metadata: &Metadata<'_>) -> Vec<(&'static str, String)> {
    let foreign = metadata.marks.foreign_marks().filter(|(mark, _)| mark.is_label());
    let foreign = foreign.map(|(mark, text)| (mark.key(), text.to_string()));
    [("a", "b".to_owned())].into_iter().chain(foreign).chain(tracking(metadata, true)).collect()
}

/// Returns the creation time in seconds since the epoch, which is only decoded if an annotation concerns retention.
fn created(metadata: &Metadata<'_>) -> Option<i64> {
    if metadata.marks.is_empty() {
        Some(1)
    } else {
        metadata.marks.created.map(|time| time.0.div_euclid(1000))
    }
}

/// Encodes metadata as Go's protobuf does, interspersed with fields that the decoder must skip.
pub(crate) fn encode(metadata: &Metadata<'_>) -> Vec<u8> {
    let mut meta = Vec::new();
    bytes_field(1, metadata.name.as_bytes(), &mut meta);
    bytes_field(2, b"", &mut meta);
    bytes_field(3, metadata.namespace.as_bytes(), &mut meta);
    bytes_field(5, metadata.uid.as_bytes(), &mut meta);
    bytes_field(6, metadata.resource_version.as_bytes(), &mut meta);
    number_field(7, u64::MAX, &mut meta);
    if let Some(seconds) = created(metadata) {
        let mut time = Vec::new();
        number_field(1, seconds.cast_unsigned(), &mut time);
        number_field(2, 0, &mut time);
        bytes_field(8, &time, &mut meta);
    }
    if metadata.deleting {
        bytes_field(9, &[8, 1, 16, 0], &mut meta);
    }
    if let Some(seconds) = metadata.grace_seconds {
        number_field(10, seconds.cast_unsigned(), &mut meta);
    }
    for (number, entries) in [(11, labels(metadata)), (12, annotations(metadata))] {
        for (name, content) in entries {
            let mut entry = Vec::new();
            bytes_field(1, name.as_bytes(), &mut entry);
            bytes_field(2, content.as_bytes(), &mut entry);
            bytes_field(number, &entry, &mut meta);
        }
    }
    for owner in &metadata.owners {
        let mut message = Vec::new();
        bytes_field(1, owner.kind.as_bytes(), &mut message);
        bytes_field(3, owner.name.as_bytes(), &mut message);
        bytes_field(4, owner.uid.as_bytes(), &mut message);
        bytes_field(5, owner.api_version.as_bytes(), &mut message);
        for (number, value) in [(6, owner.controller), (7, owner.block_owner_deletion)] {
            if let Some(value) = value {
                number_field(number, value.into(), &mut message);
            }
        }
        bytes_field(13, &message, &mut meta);
    }
    for finalizer in &metadata.finalizers {
        bytes_field(14, finalizer.as_bytes(), &mut meta);
    }
    bytes_field(17, b"\x0a\x07kubectl", &mut meta);
    let mut object = Vec::new();
    bytes_field(1, &meta, &mut object);
    object
}

pub(crate) fn envelope(kind: &str, message: &[u8]) -> Vec<u8> {
    let (mut type_meta, mut body) = (Vec::new(), PROTOBUF_MAGIC.to_vec());
    bytes_field(1, b"meta.k8s.io/v1", &mut type_meta);
    bytes_field(2, kind.as_bytes(), &mut type_meta);
    bytes_field(1, &type_meta, &mut body);
    bytes_field(2, message, &mut body);
    bytes_field(3, b"", &mut body);
    bytes_field(4, b"", &mut body);
    body
}

pub(crate) fn watch_frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let (mut extension, mut event) = (Vec::new(), Vec::new());
    bytes_field(1, object, &mut extension);
    bytes_field(1, event_type.as_bytes(), &mut event);
    bytes_field(2, &extension, &mut event);
    event
}

pub(crate) fn to_json(metadata: &Metadata<'_>) -> serde_json::Value {
    let owners: Vec<_> = metadata
        .owners
        .iter()
        .map(|owner| {
            let mut value = json!({
                "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
            });
            if let Some(controller) = owner.controller {
                value["controller"] = controller.into();
            }
            if let Some(block) = owner.block_owner_deletion {
                value["blockOwnerDeletion"] = block.into();
            }
            value
        })
        .collect();
    let labels: std::collections::BTreeMap<_, _> = labels(metadata).into_iter().collect();
    let mut value = json!({
        "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid,
        "resourceVersion": metadata.resource_version, "labels": labels, "ownerReferences": owners,
        "finalizers": metadata.finalizers.iter().map(|f| &**f).collect::<Vec<_>>(),
        "managedFields": [{"manager": "kubectl"}],
    });
    if metadata.deleting {
        value["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    if let Some(seconds) = metadata.grace_seconds {
        value["deletionGracePeriodSeconds"] = seconds.into();
    }
    if let Some(seconds) = created(metadata) {
        value["creationTimestamp"] = jiff::Timestamp::from_second(seconds).unwrap().to_string().into();
    }
    let annotations: std::collections::BTreeMap<_, _> = annotations(metadata).into_iter().collect();
    if !annotations.is_empty() {
        value["annotations"] = json!(annotations);
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value})
}

pub(crate) fn objects_agree(metadata: &Metadata<'_>) {
    let protobuf = envelope("PartialObjectMetadata", &encode(metadata));
    let json = to_json(metadata).to_string();
    assert_eq!(&decode_object(Encoding::Protobuf, &protobuf, &asked()).unwrap(), metadata);
    assert_eq!(&decode_object(Encoding::Json, json.as_bytes(), &asked()).unwrap(), metadata);
}

pub(crate) fn watch_frames_agree(metadata: &Metadata<'_>) {
    for (event_type, expected) in [
        ("ADDED", WatchEvent::Present(metadata.clone())),
        ("MODIFIED", WatchEvent::Present(metadata.clone())),
        ("DELETED", WatchEvent::Deleted(metadata.clone())),
        ("BOOKMARK", WatchEvent::Bookmark(metadata.clone())),
        ("LATER", WatchEvent::Unknown),
    ] {
        let frame = watch_frame(event_type, &envelope("PartialObjectMetadata", &encode(metadata)));
        let json = json!({"type": event_type, "object": to_json(metadata)}).to_string();
        assert_eq!(decode_watch_event(Encoding::Protobuf, &frame).unwrap(), expected);
        assert_eq!(decode_watch_event(Encoding::Json, json.as_bytes()).unwrap(), expected);
    }
}

pub(crate) fn lists_agree(items: &[Metadata<'_>]) {
    let (mut list_meta, mut message) = (Vec::new(), Vec::new());
    bytes_field(2, b"812", &mut list_meta);
    bytes_field(3, b"next", &mut list_meta);
    bytes_field(1, &list_meta, &mut message);
    for item in items {
        bytes_field(2, &encode(item), &mut message);
    }
    let json = json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "812", "continue": "next"},
        "items": items.iter().map(to_json).collect::<Vec<_>>(),
    })
    .to_string();
    let expected =
        List { resource_version: "812".into(), continue_token: "next".into(), items: items.to_vec() };
    let protobuf = envelope("PartialObjectMetadataList", &message);
    for (encoding, body) in [(Encoding::Protobuf, &protobuf[..]), (Encoding::Json, json.as_bytes())] {
        let listed = decode_list(encoding, body, &asked());
        if items.iter().all(|item| !item.name.is_empty()) {
            assert_eq!(listed, Ok(expected.clone()));
        } else {
            assert_eq!(listed, Err(NotTheList::NamelessItem.into()));
        }
    }
}

/// Returns the resource that answers are checked against.
pub(crate) fn asked() -> ResourceInfo {
    ResourceInfo {
        id: ResourceId(1),
        gvr: Gvr { group: "".into(), version: "v1".into(), resource: "configmaps".into() },
        kind: "ConfigMap".into(),
        scope: Scope::Namespaced,
        served_api_versions: vec!["v1".into()],
        watched: true,
        comparable_versions: true,
    }
}
