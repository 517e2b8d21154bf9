#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
use super::*;
use crate::wire::encoded::*;
use gc_types::ForeignMark;
use proptest::prelude::*;
use serde_json::json;

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
    fn any_marks()(
        texts in prop::array::uniform3(prop::option::of("[a-z0-9:\"ü-]{0,12}")),
        foreign in prop::array::uniform5(prop::option::of("[a-z0-9]{0,4}")),
    ) -> Marks {
        let [ttl, expires_at, keep] = texts.map(|text| text.map(Into::into));
        let foreign = foreign.map(|text| text.map(Into::into));
        let mut marks = Marks { created: None, ttl, expires_at, keep, foreign };
        marks.created = (!marks.is_empty()).then_some(Timestamp(1000));
        marks
    }
}

prop_compose! {
    fn any_metadata()(
        texts in prop::array::uniform4("[a-z\"\\\\ü.-]{0,12}"),
        deleting in any::<bool>(),
        grace_seconds in prop::option::of(0_i64..100),
        finalizers in prop::collection::vec("[a-z/]{0,9}", 0..4),
        owners in prop::collection::vec(any_owner(), 0..3),
        initial_events_end in any::<bool>(),
        marks in any_marks(),
        tracking in prop::collection::btree_map(prop::sample::select(&TrackingMark::ALL[..]), "[a-z:]{0,4}", 0..3),
    ) -> Metadata<'static> {
        let [name, namespace, uid, resource_version] = texts.map(Cow::Owned);
        Metadata {
            name, namespace, uid, resource_version, deleting, grace_seconds, initial_events_end, marks,
            finalizers: finalizers.into_iter().map(Cow::Owned).collect(),
            owners,
            tracking: tracking.into_iter().map(|(mark, text)| (mark, text.into())).collect(),
        }
    }
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
        "kind": "ConfigMap", "reason": {"not": "text"}, "code": "x", "metadata": {"name": "a", "finalizers": null},
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
        tracking: [
            (TrackingMark::ArgoCdTrackingId, "not a tracking id".into()),
            (TrackingMark::FluxKustomization, "shop".into()),
            (TrackingMark::HelmRelease, "web".into()),
        ]
        .into(),
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
            recreator: Some(gc_types::Recreator::FluxKustomization("shop".into())),
        }
    );
}

#[test]
fn labels_and_annotations_may_be_null_but_not_occur_twice() {
    let read = |metadata: &str| {
        let object = format!("{{\"metadata\": {metadata}}}");
        let metadata = decode_object(Encoding::Json, object.as_bytes(), &asked()).map_err(|_| ())?;
        let texts = [metadata.marks.ttl.as_ref(), metadata.marks.foreign(ForeignMark::Kyverno)];
        Ok(texts.map(|text| text.map(ToString::to_string)))
    };
    let text = |text: &str| Some(text.to_owned());
    for (metadata, expected) in [
        (r#"{"annotations": null, "labels": null}"#, Ok([None, None])),
        (r#"{"annotations": {"kubegc.io/ttl": null}, "labels": {"a": 1}}"#, Ok([None, None])),
        (r#"{"annotations": {"kubegc.io\/ttl": "1\u0068", "a": "b"}}"#, Ok([text("1h"), None])),
        (r#"{"annotations": {"cleanup.kyverno.io/ttl": "1h"}}"#, Ok([None, None])),
        (r#"{"labels": {"cleanup.kyverno.io/ttl": "2m", "kubegc.io/ttl": "1h"}}"#, Ok([None, text("2m")])),
        (r#"{"annotations": {"kubegc.io/ttl": "1h", "kubegc.io/ttl": "2h"}}"#, Err(())),
        (r#"{"annotations": {"kubegc.io/ttl": 1}}"#, Err(())),
        (r#"{"annotations": "none"}"#, Err(())),
    ] {
        assert_eq!(read(metadata), expected, "{metadata}");
    }
}

/// Another document in place of a list must be an error, not a list without items.
#[test]
fn what_is_not_the_list_that_was_asked_for_is_an_error() {
    let list = |api_version: &str, kind: &str| json!({"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": "7"}, "items": []});
    let without = |member: &str| {
        let mut list = list("v1", "ConfigMapList");
        list.as_object_mut().unwrap().remove(member);
        list
    };
    let (mut no_version, mut nameless, mut null_items) =
        (list("v1", "ConfigMapList"), list("v1", "ConfigMapList"), list("v1", "ConfigMapList"));
    no_version["metadata"] = json!({});
    nameless["items"] = json!([{"metadata": {"uid": "u"}}]);
    null_items["items"] = serde_json::Value::Null;
    for (body, is_list) in [
        (list("v1", "ConfigMapList"), true),
        (list("meta.k8s.io/v1", "PartialObjectMetadataList"), true),
        (null_items, true),
        (json!({}), false),
        (json!(null), false),
        (json!([]), false),
        (json!("text"), false),
        (without("kind"), false),
        (without("items"), false),
        (without("metadata"), false),
        (no_version, false),
        (nameless, false),
        (list("v1", "SecretList"), false),
        (list("apps/v1", "ConfigMapList"), false),
        (list("v1", "ConfigMap"), false),
        (list("v1", "List"), false),
        (list("v1", "Status"), false),
    ] {
        let body = body.to_string();
        assert_eq!(decode_list(Encoding::Json, body.as_bytes(), &asked()).is_ok(), is_list, "{body}");
    }
    for body in ["", "<html><body>502</body></html>", "{\"kind\":", "\u{1f}\u{8b}"] {
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            assert!(decode_list(encoding, body.as_bytes(), &asked()).is_err(), "{body}");
        }
    }
}

#[test]
fn what_is_not_the_list_in_protobuf_is_an_error() {
    let (mut list_meta, mut versioned) = (Vec::new(), Vec::new());
    bytes_field(2, b"7", &mut list_meta);
    bytes_field(1, &list_meta, &mut versioned);
    for (body, is_list) in [
        (envelope("PartialObjectMetadataList", &versioned), true),
        (envelope("PartialObjectMetadataList", b""), false),
        (envelope("PartialObjectMetadata", &versioned), false),
        (envelope("SecretList", &versioned), false),
        (envelope("Status", &versioned), false),
        (envelope("", &versioned), false),
        (versioned, false),
        (PROTOBUF_MAGIC.to_vec(), false),
        (Vec::new(), false),
    ] {
        assert_eq!(decode_list(Encoding::Protobuf, &body, &asked()).is_ok(), is_list, "{body:?}");
    }
}

/// An answer about another object says nothing about the requested one.
#[test]
fn an_object_of_another_kind_is_an_error() {
    for (kind, is_object) in [("ConfigMap", true), ("PartialObjectMetadata", true), ("Secret", false)] {
        let object = json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": "a", "uid": "u"}});
        let body = object.to_string();
        assert_eq!(decode_object(Encoding::Json, body.as_bytes(), &asked()).is_ok(), is_object, "{kind}");
        let body = envelope(kind, &encode(&Metadata::default()));
        assert_eq!(decode_object(Encoding::Protobuf, &body, &asked()).is_ok(), is_object, "{kind}");
        for event_type in ["ADDED", "MODIFIED", "DELETED"] {
            let event = json!({"type": event_type, "object": object}).to_string();
            let read = decode_watch_event_of(Encoding::Json, event.as_bytes(), &asked());
            assert_eq!(read.is_ok(), is_object, "{event_type} {kind}");
            let read_frame = watch_frame(event_type, &body);
            let read = decode_watch_event_of(Encoding::Protobuf, &read_frame, &asked());
            assert_eq!(read.is_ok(), is_object, "{event_type} {kind}");
        }
    }
}
