#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
use super::*;
use proptest::prelude::*;
use serde_json::json;

fn varint(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    into.push(u8::try_from(number).unwrap());
}

fn bytes_field(number: u64, content: &[u8], into: &mut Vec<u8>) {
    varint(number << 3 | 2, into);
    varint(content.len() as u64, into);
    into.extend_from_slice(content);
}

fn number_field(number: u64, content: u64, into: &mut Vec<u8>) {
    varint(number << 3, into);
    varint(content, into);
}

fn annotations(metadata: &Metadata<'_>) -> Vec<(&'static str, String)> {
    let end = metadata.initial_events_end.then(|| (INITIAL_EVENTS_END, "true".to_owned()));
    let Marks { ttl, expires_at, keep, .. } = &metadata.marks;
    let marks = [("kubegc.io/ttl", ttl), ("kubegc.io/expires-at", expires_at), ("kubegc.io/keep", keep)];
    let marks = marks.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?.to_string())));
    end.into_iter().chain(marks).collect()
}

/// Writes metadata as Go's protobuf does, with what the decoder must step over in between.
fn encode(metadata: &Metadata<'_>) -> Vec<u8> {
    let mut meta = Vec::new();
    bytes_field(1, metadata.name.as_bytes(), &mut meta);
    bytes_field(2, b"", &mut meta);
    bytes_field(3, metadata.namespace.as_bytes(), &mut meta);
    bytes_field(5, metadata.uid.as_bytes(), &mut meta);
    bytes_field(6, metadata.resource_version.as_bytes(), &mut meta);
    number_field(7, u64::MAX, &mut meta);
    // 1 s after the epoch.
    bytes_field(8, &[8, 1, 16, 0], &mut meta);
    if metadata.deleting {
        bytes_field(9, &[8, 1, 16, 0], &mut meta);
    }
    bytes_field(11, b"\x0a\x01a\x12\x01b", &mut meta);
    for (name, content) in annotations(metadata) {
        let mut entry = Vec::new();
        bytes_field(1, name.as_bytes(), &mut entry);
        bytes_field(2, content.as_bytes(), &mut entry);
        bytes_field(12, &entry, &mut meta);
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

fn envelope(kind: &str, message: &[u8]) -> Vec<u8> {
    let (mut type_meta, mut body) = (Vec::new(), PROTOBUF_MAGIC.to_vec());
    bytes_field(1, b"meta.k8s.io/v1", &mut type_meta);
    bytes_field(2, kind.as_bytes(), &mut type_meta);
    bytes_field(1, &type_meta, &mut body);
    bytes_field(2, message, &mut body);
    bytes_field(3, b"", &mut body);
    bytes_field(4, b"", &mut body);
    body
}

fn watch_frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let (mut extension, mut event) = (Vec::new(), Vec::new());
    bytes_field(1, object, &mut extension);
    bytes_field(1, event_type.as_bytes(), &mut event);
    bytes_field(2, &extension, &mut event);
    event
}

fn to_json(metadata: &Metadata<'_>) -> serde_json::Value {
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
    let mut value = json!({
        "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid,
        "resourceVersion": metadata.resource_version, "labels": {"a": "b"}, "ownerReferences": owners,
        "finalizers": metadata.finalizers.iter().map(|f| &**f).collect::<Vec<_>>(),
        "managedFields": [{"manager": "kubectl"}],
    });
    if metadata.deleting {
        value["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    value["creationTimestamp"] = "1970-01-01T00:00:01Z".into();
    let annotations: std::collections::BTreeMap<_, _> = annotations(metadata).into_iter().collect();
    if !annotations.is_empty() {
        value["annotations"] = json!(annotations);
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value})
}

prop_compose! {
    fn any_owner()(
        texts in prop::array::uniform4("[a-zA-Z\"\\\\é/.-]{0,12}"),
        controller in any::<Option<bool>>(),
        block in any::<Option<bool>>(),
    ) -> Owner<'static> {
        let [api_version, kind, name, uid] = texts.map(Cow::Owned);
        Owner { api_version, kind, name, uid, controller, block_owner_deletion: block }
    }
}

prop_compose! {
    fn any_marks()(texts in prop::array::uniform3(prop::option::of("[a-z0-9:\"ü-]{0,12}"))) -> Marks {
        let [ttl, expires_at, keep] = texts.map(|text| text.map(Into::into));
        let mut marks = Marks { created: None, ttl, expires_at, keep };
        marks.created = (!marks.is_empty()).then_some(Timestamp(1000));
        marks
    }
}

prop_compose! {
    fn any_metadata()(
        texts in prop::array::uniform4("[a-z\"\\\\ü.-]{0,12}"),
        deleting in any::<bool>(),
        finalizers in prop::collection::vec("[a-z/]{0,9}", 0..4),
        owners in prop::collection::vec(any_owner(), 0..3),
        initial_events_end in any::<bool>(),
        marks in any_marks(),
    ) -> Metadata<'static> {
        let [name, namespace, uid, resource_version] = texts.map(Cow::Owned);
        Metadata {
            name, namespace, uid, resource_version, deleting, initial_events_end, marks,
            finalizers: finalizers.into_iter().map(Cow::Owned).collect(),
            owners,
        }
    }
}

fn objects_agree(metadata: &Metadata<'_>) {
    let protobuf = envelope("PartialObjectMetadata", &encode(metadata));
    let json = to_json(metadata).to_string();
    assert_eq!(&decode_object(Encoding::Protobuf, &protobuf).unwrap(), metadata);
    assert_eq!(&decode_object(Encoding::Json, json.as_bytes()).unwrap(), metadata);
}

fn watch_frames_agree(metadata: &Metadata<'_>) {
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

fn lists_agree(items: &[Metadata<'_>]) {
    let (mut list_meta, mut message) = (Vec::new(), Vec::new());
    bytes_field(2, b"812", &mut list_meta);
    bytes_field(3, b"next", &mut list_meta);
    bytes_field(1, &list_meta, &mut message);
    for item in items {
        bytes_field(2, &encode(item), &mut message);
    }
    let json = json!({
        "metadata": {"resourceVersion": "812", "continue": "next"},
        "items": items.iter().map(to_json).collect::<Vec<_>>(),
    })
    .to_string();
    let expected =
        List { resource_version: "812".into(), continue_token: "next".into(), items: items.to_vec() };
    let protobuf = envelope("PartialObjectMetadataList", &message);
    assert_eq!(decode_list(Encoding::Protobuf, &protobuf).unwrap(), expected);
    assert_eq!(decode_list(Encoding::Json, json.as_bytes()).unwrap(), expected);
}

proptest! {
    #[test]
    fn protobuf_and_json_say_the_same(metadata in any_metadata()) {
        objects_agree(&metadata);
    }

    #[test]
    fn watch_frames_say_the_same(metadata in any_metadata()) {
        watch_frames_agree(&metadata);
    }

    #[test]
    fn lists_say_the_same(items in prop::collection::vec(any_metadata(), 0..5)) {
        lists_agree(&items);
    }

    #[test]
    fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), magic in any::<bool>()) {
        let input = if magic { [&PROTOBUF_MAGIC[..], &bytes].concat() } else { bytes };
        for encoding in [Encoding::Protobuf, Encoding::Json] {
            let _ = decode_object(encoding, &input);
            let _ = decode_list(encoding, &input);
            let _ = decode_watch_event(encoding, &input);
            let _ = decode_status(encoding, &input);
        }
    }

    #[test]
    fn no_damaged_message_panics(metadata in any_metadata(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut frame = watch_frame("ADDED", &envelope("PartialObjectMetadata", &encode(&metadata)));
        let at = at.index(frame.len());
        frame[at] = byte;
        let _ = decode_watch_event(Encoding::Protobuf, &frame);
        let _ = decode_watch_event(Encoding::Protobuf, &frame[..at]);
    }
}

#[test]
fn a_status_is_read_in_both_encodings() {
    let expected = Status {
        code: 404,
        reason: "NotFound".into(),
        message: "pods \"a\" not found".into(),
        details: StatusDetails {
            name: "a".into(),
            group: String::new(),
            kind: "pods".into(),
            retry_after_seconds: 3,
        },
    };
    let (mut details, mut message) = (Vec::new(), Vec::new());
    bytes_field(1, b"a", &mut details);
    bytes_field(3, b"pods", &mut details);
    number_field(5, 3, &mut details);
    bytes_field(2, b"Failure", &mut message);
    bytes_field(3, expected.message.as_bytes(), &mut message);
    bytes_field(4, b"NotFound", &mut message);
    bytes_field(5, &details, &mut message);
    number_field(6, 404, &mut message);
    let protobuf = envelope("Status", &message);
    let json = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
        "reason": "NotFound", "message": expected.message,
        "details": {"name": "a", "kind": "pods", "retryAfterSeconds": 3},
    });
    assert_eq!(decode_status(Encoding::Protobuf, &protobuf), Some(expected.clone()));
    assert_eq!(decode_status(Encoding::Json, json.to_string().as_bytes()), Some(expected.clone()));
    assert_eq!(
        decode_watch_event(Encoding::Protobuf, &watch_frame("ERROR", &protobuf)),
        Ok(WatchEvent::Error(expected.clone()))
    );
    let event = json!({"type": "ERROR", "object": json}).to_string();
    assert_eq!(decode_watch_event(Encoding::Json, event.as_bytes()), Ok(WatchEvent::Error(expected)));
}

#[test]
fn what_is_not_a_status_is_none() {
    let object = envelope("PartialObjectMetadata", &encode(&Metadata::default()));
    assert_eq!(decode_status(Encoding::Protobuf, &object), None);
    for body in ["404 page not found\n", "{}", r#"{"kind":"Pod"}"#, ""] {
        assert_eq!(decode_status(Encoding::Json, body.as_bytes()), None, "{body}");
    }
}

#[test]
fn contents_that_look_like_a_status_do_not_confuse() {
    let event = json!({"type": "ADDED", "object": {
        "kind": "Event", "reason": {"not": "text"}, "code": "x", "metadata": {"name": "a", "finalizers": null},
    }})
    .to_string();
    assert_eq!(
        decode_watch_event(Encoding::Json, event.as_bytes()),
        Ok(WatchEvent::Present(Metadata { name: "a".into(), ..Metadata::default() }))
    );
}

#[test]
fn an_observed_object_says_how_far_its_deletion_is() {
    let metadata = Metadata {
        name: "web-1".into(),
        namespace: "shop".into(),
        uid: "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6".into(),
        resource_version: "812".into(),
        deleting: true,
        finalizers: vec!["foregroundDeletion".into(), "example.com/hold".into()],
        ..Metadata::default()
    };
    let observed = metadata.observed(ResourceId(7), &mut Interner::default());
    assert_eq!(
        observed,
        ObservedObject {
            key: ObjectKey { resource: ResourceId(7), namespace: "shop".into(), name: "web-1".into() },
            uid: Uid::new("0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6"),
            resource_version: ResourceVersion(812),
            owners: smallvec::SmallVec::new(),
            deletion: DeletionState {
                deleting: true,
                foreground: true,
                orphan: false,
                foreign_finalizers: true,
            },
        }
    );
}
