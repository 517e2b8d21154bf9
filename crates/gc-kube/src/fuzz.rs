//! Properties of the parsers of API server answers, as bodies of fuzz targets (`fuzz/` at the root), which also run as tests.
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use std::borrow::Cow;

use bytes::Bytes;
use gc_collectors::objects::FactsError;
use gc_types::Timestamp;
use http::{Response, StatusCode};
use http_body_util::Full;
use kube::config::{KubeConfigOptions, Kubeconfig};
use prost::Message;
use serde_json::Value;

use crate::connection::ApiClient;
use crate::discovery::{Discovery, discover};
use crate::facts::NewsLine;
use crate::raw::{raw_line, raw_page};
use crate::wire::encoded::{self, asked};
use crate::wire::frames::{Frames, MAX_FRAME_BYTES};
use crate::wire::metadata::{
    Encoding, Metadata, Owner, Status, WatchEvent, decode_list, decode_object, decode_status,
    decode_watch_event_of,
};
use crate::wire::protobuf::DecodeError;

const BOTH: [Encoding; 2] = [Encoding::Protobuf, Encoding::Json];
/// Range of times, in seconds, that both encodings can express.
const TOLD_SECONDS: std::ops::Range<i64> = -62_135_596_799..253_402_207_200;

/// Checks that the frames of a body, and the error after them, do not depend on how it is divided into chunks. The first byte
/// selects the encoding (`J` or protobuf), the second the length of chunks.
pub fn watch_frames(data: &[u8]) {
    let [kind, chunk, body @ ..] = data else { return };
    let encoding = if *kind == b'J' { Encoding::Json } else { Encoding::Protobuf };
    let expected = match encoding {
        Encoding::Json => lines(body),
        Encoding::Protobuf => delimited(body),
    };
    for size in [1, usize::from(*chunk).max(1), body.len().max(1)] {
        assert_eq!(frames(encoding, body.chunks(size)), expected, "in chunks of {size}");
    }
}

type Cut = (Vec<Bytes>, Option<DecodeError>);

fn frames<'a>(encoding: Encoding, chunks: impl Iterator<Item = &'a [u8]>) -> Cut {
    let mut splitter = Frames::new(encoding);
    let mut found = Vec::new();
    for chunk in chunks {
        splitter.push(chunk);
        loop {
            match splitter.next_frame() {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

fn lines(body: &[u8]) -> Cut {
    let mut lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
    lines.pop();
    let objects = lines.into_iter().filter(|line| !line.trim_ascii().is_empty());
    (objects.map(Bytes::copy_from_slice).collect(), None)
}

fn delimited(mut body: &[u8]) -> Cut {
    let mut found = Vec::new();
    while let Some((header, rest)) = body.split_first_chunk::<4>() {
        let size = u32::from_be_bytes(*header) as usize;
        if size > MAX_FRAME_BYTES {
            return (found, Some(DecodeError::FrameTooLarge { size, limit: MAX_FRAME_BYTES }));
        }
        let Some((frame, rest)) = rest.split_at_checked(size) else { break };
        found.push(Bytes::copy_from_slice(frame));
        body = rest;
    }
    (found, None)
}

/// Checks that metadata survive a round trip in either encoding.
fn reads_back(metadata: &Metadata<'_>) {
    let mut metadata = metadata.clone();
    if let Some(created) = &mut metadata.marks.created {
        // Protobuf has whole seconds, and JSON has years of four digits.
        if !TOLD_SECONDS.contains(&created.0.div_euclid(1000)) {
            return;
        }
        *created = Timestamp(created.0.div_euclid(1000) * 1000);
    }
    encoded::objects_agree(&metadata);
    encoded::watch_frames_agree(&metadata);
    encoded::lists_agree(&[metadata.clone(), metadata]);
}

/// Checks objects and lists in protobuf: everything that prost accepts must be read, with the same result.
pub fn metadata_protobuf(data: &[u8]) {
    let fast = decode_object(Encoding::Protobuf, data, &asked());
    if let Some(message) = opened(data)
        && let Ok(slow) = reference::Object::decode(message.as_slice())
    {
        let slow = slow.metadata.unwrap_or_default();
        agrees(fast.as_ref(), &slow);
    }
    if let Ok(metadata) = &fast {
        reads_back(metadata);
    }
    let fast = decode_list(Encoding::Protobuf, data, &asked());
    if let Some(message) = opened(data)
        && let Ok(slow) = reference::List::decode(message.as_slice())
        && let Some(fast) = accepted(fast.as_ref())
    {
        let slow_metadata = slow.metadata.unwrap_or_default();
        assert_eq!(fast.resource_version, slow_metadata.resource_version);
        assert_eq!(fast.continue_token, slow_metadata.continue_token);
        assert_eq!(fast.items.len(), slow.items.len());
        for (fast, slow) in fast.items.iter().zip(slow.items) {
            agrees(Ok(fast), &slow.metadata.unwrap_or_default());
        }
    }
}

/// Returns the message inside the envelope, as prost sees it.
fn opened(data: &[u8]) -> Option<Vec<u8>> {
    match data.strip_prefix(b"k8s\0") {
        None => Some(data.to_vec()),
        Some(envelope) => Some(reference::Envelope::decode(envelope).ok()?.raw),
    }
}

/// Checks that the fast decoder refuses no document that prost accepts, except those with groups, an obsolete protobuf feature that
/// Kubernetes never used.
fn accepted<'a, T>(fast: Result<&'a T, &DecodeError>) -> Option<&'a T> {
    match fast {
        Ok(fast) => Some(fast),
        // A document other than the requested list or object is refused as a whole.
        Err(DecodeError::WireType(3 | 4) | DecodeError::NotTheList(_)) => None,
        Err(error) => panic!("prost accepts what is refused: {error}"),
    }
}

fn agrees(fast: Result<&Metadata<'_>, &DecodeError>, slow: &reference::Metadata) {
    let Some(fast) = accepted(fast) else { return };
    assert_eq!(
        (&*fast.name, &*fast.namespace, &*fast.uid, &*fast.resource_version),
        (&*slow.name, &*slow.namespace, &*slow.uid, &*slow.resource_version)
    );
    assert_eq!(fast.deleting, slow.deletion.is_some());
    assert_eq!(fast.finalizers, slow.finalizers);
    let owners: Vec<Owner<'_>> = slow.owners.iter().map(reference::Owner::as_read).collect();
    assert_eq!(fast.owners, owners);
    let annotation = |name: &str| {
        let entry = slow.annotations.iter().rfind(|entry| entry.key == name.as_bytes());
        entry.map(|entry| String::from_utf8_lossy(&entry.value))
    };
    assert_eq!(fast.initial_events_end, annotation("k8s.io/initial-events-end").as_deref() == Some("true"));
    assert_eq!(fast.marks.ttl.as_deref(), annotation("kubegc.io/ttl").as_deref());
    assert_eq!(fast.marks.expires_at.as_deref(), annotation("kubegc.io/expires-at").as_deref());
    assert_eq!(fast.marks.keep.as_deref(), annotation("kubegc.io/keep").as_deref());
    let label = |name: &str| {
        let entry = slow.labels.iter().rfind(|entry| entry.key == name.as_bytes());
        entry.map(|entry| String::from_utf8_lossy(&entry.value))
    };
    for mark in gc_types::ForeignMark::ALL {
        let expected = if mark.is_label() { label(mark.key()) } else { annotation(mark.key()) };
        assert_eq!(fast.marks.foreign(mark).map(|text| &**text), expected.as_deref());
    }
    for mark in gc_types::TrackingMark::ALL {
        let expected = if mark.is_label() { label(mark.key()) } else { annotation(mark.key()) };
        assert_eq!(fast.tracking.get(&mark), expected.as_ref());
    }
}

/// Checks objects and lists in JSON: the result must agree with a tree of values.
pub fn metadata_json(data: &[u8]) {
    let tree: Option<Value> = serde_json::from_slice(data).ok();
    if let Ok(fast) = decode_object(Encoding::Json, data, &asked()) {
        if let Some(tree) = tree.as_ref().filter(|tree| is_shaped(tree)) {
            says(&fast, &tree["metadata"]);
        }
        reads_back(&fast);
    }
    if let (Ok(fast), Some(tree)) = (decode_list(Encoding::Json, data, &asked()), tree)
        && tree.is_object()
        && tree["metadata"].is_object()
    {
        assert_eq!(fast.resource_version, tree["metadata"]["resourceVersion"].as_str().unwrap_or_default());
        assert_eq!(fast.continue_token, tree["metadata"]["continue"].as_str().unwrap_or_default());
        let items = tree["items"].as_array().cloned().unwrap_or_default();
        assert_eq!(fast.items.len(), items.len());
        for (fast, slow) in fast.items.iter().zip(&items).filter(|(_, slow)| is_shaped(slow)) {
            says(fast, &slow["metadata"]);
        }
    }
}

/// Reports whether objects are where objects belong: deserializers that read fields by name also accept them by position.
fn is_shaped(tree: &Value) -> bool {
    let metadata = &tree["metadata"];
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    tree.is_object()
        && (metadata.is_object() || tree.get("metadata").is_none())
        && !metadata["annotations"].is_array()
        && !metadata["labels"].is_array()
        && { owners }.all(Value::is_object)
}

fn says(fast: &Metadata<'_>, metadata: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    assert_eq!(fast.name, text(&metadata["name"]));
    assert_eq!(fast.namespace, text(&metadata["namespace"]));
    assert_eq!(fast.uid, text(&metadata["uid"]));
    assert_eq!(fast.resource_version, text(&metadata["resourceVersion"]));
    assert_eq!(fast.deleting, !metadata["deletionTimestamp"].is_null());
    let list = |name: &str| metadata[name].as_array().cloned().unwrap_or_default();
    assert_eq!(fast.finalizers, list("finalizers").iter().map(text).collect::<Vec<_>>());
    let owner = |owner: &Value| Owner {
        api_version: Cow::Owned(text(&owner["apiVersion"])),
        kind: Cow::Owned(text(&owner["kind"])),
        name: Cow::Owned(text(&owner["name"])),
        uid: Cow::Owned(text(&owner["uid"])),
        controller: owner["controller"].as_bool(),
        block_owner_deletion: owner["blockOwnerDeletion"].as_bool(),
    };
    assert_eq!(fast.owners, list("ownerReferences").iter().map(owner).collect::<Vec<_>>());
    let annotation = |name: &str| metadata["annotations"][name].as_str();
    assert_eq!(fast.initial_events_end, annotation("k8s.io/initial-events-end") == Some("true"));
    assert_eq!(fast.marks.ttl.as_deref(), annotation("kubegc.io/ttl"));
    assert_eq!(fast.marks.expires_at.as_deref(), annotation("kubegc.io/expires-at"));
    assert_eq!(fast.marks.keep.as_deref(), annotation("kubegc.io/keep"));
    for mark in gc_types::ForeignMark::ALL {
        let place = if mark.is_label() { "labels" } else { "annotations" };
        let expected = metadata[place][mark.key()].as_str();
        assert_eq!(fast.marks.foreign(mark).map(|text| &**text), expected);
    }
    for mark in gc_types::TrackingMark::ALL {
        let place = if mark.is_label() { "labels" } else { "annotations" };
        assert_eq!(fast.tracking.get(&mark).map(|text| &**text), metadata[place][mark.key()].as_str());
    }
}

/// Checks one frame of a watch in either encoding: its object must be read like the object alone.
pub fn watch_event(data: &[u8]) {
    for encoding in BOTH {
        let Ok(event) = decode_watch_event_of(encoding, data, &asked()) else { continue };
        match &event {
            WatchEvent::Present(metadata)
            | WatchEvent::Deleted(metadata)
            | WatchEvent::Bookmark(metadata) => {
                reads_back(metadata);
                if let Some(object) = object_of(encoding, data) {
                    assert_eq!(decode_object(encoding, &object, &asked()).as_ref(), Ok(metadata));
                }
            }
            WatchEvent::Error(status) => status_reads_back(status),
            WatchEvent::Unknown => {}
        }
    }
}

fn object_of(encoding: Encoding, frame: &[u8]) -> Option<Vec<u8>> {
    match encoding {
        Encoding::Json => {
            let event: Value = serde_json::from_slice(frame).ok()?;
            event
                .get("object")
                .filter(|object| is_shaped(object))
                .map(|object| object.to_string().into_bytes())
        }
        Encoding::Protobuf => {
            let event = reference::WatchEvent::decode(opened(frame)?.as_slice()).ok()?;
            Some(event.object.unwrap_or_default().raw)
        }
    }
}

/// Checks that a Status in either encoding reads back from JSON.
pub fn status(data: &[u8]) {
    for status in BOTH.into_iter().filter_map(|encoding| decode_status(encoding, data)) {
        status_reads_back(&status);
    }
}

fn status_reads_back(status: &Status) {
    let details = &status.details;
    let written = serde_json::json!({
        "kind": "Status", "code": status.code, "reason": status.reason, "message": status.message,
        "details": {
            "name": details.name, "group": details.group, "kind": details.kind,
            "retryAfterSeconds": details.retry_after_seconds,
        },
    });
    assert_eq!(decode_status(Encoding::Json, written.to_string().as_bytes()).as_ref(), Some(status));
}

/// Checks discovery. The lines are the answers of `/api`, `/apis`, the APIServices, and every other path; an empty one is a 404.
/// Every resource must be found under its own name, in the preferred one of the served versions.
pub fn discovery(data: &[u8]) {
    let answers: Vec<Bytes> = data.splitn(4, |byte| *byte == b'\n').map(Bytes::copy_from_slice).collect();
    let client = ApiClient::in_process(move |request| {
        let index = match request.uri().path() {
            "/api" => 0,
            "/apis" => 1,
            "/apis/apiregistration.k8s.io/v1/apiservices" => 2,
            _ => 3,
        };
        let body = answers.get(index).cloned().unwrap_or_default();
        let code = if body.is_empty() { StatusCode::NOT_FOUND } else { StatusCode::OK };
        let mut answer = Response::new(Full::new(body));
        *answer.status_mut() = code;
        async move { answer }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let Ok(Discovery { resources, failed }) = runtime.block_on(discover(&client)) else { return };
    for ((group, resource), served) in &resources {
        assert_eq!((group, resource), (&served.group, &served.resource));
        let preferred = gc_types::api_version(&served.group, &served.version);
        assert_eq!(served.served_api_versions.first().map(|version| &**version), Some(preferred.as_str()));
    }
    let unclear = Discovery { resources, failed };
    for group in &unclear.failed {
        assert!(group.group == crate::discovery::ALL_NAMED_GROUPS || unclear.is_unclear(&group.group));
    }
}

/// Checks lists and watches of policies and of their objects: deliveries must match the input, and anything that is not an object
/// or a list must be refused.
pub fn policy_answers(data: &[u8]) {
    let tree: Option<Value> = serde_json::from_slice(data).ok();
    match (raw_page(data, &asked()), &tree) {
        (Ok(page), Some(tree)) => {
            assert_eq!(page.items, tree["items"].as_array().cloned().unwrap_or_default());
            assert_eq!(
                page.resource_version,
                tree["metadata"]["resourceVersion"].as_str().unwrap_or_default()
            );
            assert_eq!(page.continue_token, tree["metadata"]["continue"].as_str().unwrap_or_default());
        }
        (Err(FactsError::NotTheList(_)), Some(tree)) => assert!(tree.is_object()),
        (page, tree) => assert!(page.is_err() && tree.as_ref().is_none_or(|tree| !tree.is_object())),
    }
    if let (Ok((line, _)), Some(tree)) = (raw_line(data, &asked()), &tree) {
        let is_object = match line {
            NewsLine::Object((present, object)) => {
                assert_eq!(Some(&object), Some(tree.get("object").unwrap_or(&Value::Null)));
                if present {
                    ["ADDED", "MODIFIED"].contains(&tree["type"].as_str().unwrap())
                } else {
                    tree["type"] == "DELETED"
                }
            }
            NewsLine::Error { .. } => tree["type"] == "ERROR",
            NewsLine::Nothing => {
                !["ADDED", "MODIFIED", "DELETED", "ERROR"].map(Value::from).contains(&tree["type"])
            }
        };
        assert!(is_object);
    }
}

/// Checks that a kubeconfig results in a client or an error. Files and commands that it names are removed first.
pub fn kubeconfig(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(mut kubeconfig) = Kubeconfig::from_yaml(text) else { return };
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.certificate_authority = None;
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        (user.client_certificate, user.client_key, user.token_file) = (None, None, None);
        (user.exec, user.auth_provider) = (None, None);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = KubeConfigOptions::default();
        if let Ok(config) = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await
            && let Ok(client) = ApiClient::new(&config)
        {
            assert_eq!(client.address(), config.cluster_url.to_string());
            assert_eq!(client.namespace(), config.default_namespace);
        }
    });
}

/// The messages as prost reads them: an independent decoder of the published numbers.
mod reference {
    use std::borrow::Cow;

    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Envelope {
        #[prost(message, optional, tag = "1")]
        pub(super) type_meta: Option<TypeMeta>,
        #[prost(bytes = "vec", tag = "2")]
        pub(super) raw: Vec<u8>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct TypeMeta {
        #[prost(string, tag = "2")]
        pub(super) kind: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct WatchEvent {
        #[prost(message, optional, tag = "2")]
        pub(super) object: Option<RawExtension>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct RawExtension {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) raw: Vec<u8>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Object {
        #[prost(message, optional, tag = "1")]
        pub(super) metadata: Option<Metadata>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct List {
        #[prost(message, optional, tag = "1")]
        pub(super) metadata: Option<ListMeta>,
        #[prost(message, repeated, tag = "2")]
        pub(super) items: Vec<Object>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct ListMeta {
        #[prost(string, tag = "2")]
        pub(super) resource_version: String,
        #[prost(string, tag = "3")]
        pub(super) continue_token: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Metadata {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(string, tag = "3")]
        pub(super) namespace: String,
        #[prost(string, tag = "5")]
        pub(super) uid: String,
        #[prost(string, tag = "6")]
        pub(super) resource_version: String,
        #[prost(message, optional, tag = "8")]
        pub(super) creation: Option<Time>,
        #[prost(bytes = "vec", optional, tag = "9")]
        pub(super) deletion: Option<Vec<u8>>,
        #[prost(message, repeated, tag = "11")]
        pub(super) labels: Vec<Annotation>,
        #[prost(message, repeated, tag = "12")]
        pub(super) annotations: Vec<Annotation>,
        #[prost(message, repeated, tag = "13")]
        pub(super) owners: Vec<Owner>,
        #[prost(string, repeated, tag = "14")]
        pub(super) finalizers: Vec<String>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Time {
        #[prost(int64, tag = "1")]
        pub(super) seconds: i64,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Annotation {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) key: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub(super) value: Vec<u8>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Owner {
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

    impl Owner {
        pub(super) fn as_read(&self) -> super::Owner<'_> {
            super::Owner {
                api_version: Cow::Borrowed(&self.api_version),
                kind: Cow::Borrowed(&self.kind),
                name: Cow::Borrowed(&self.name),
                uid: Cow::Borrowed(&self.uid),
                controller: self.controller,
                block_owner_deletion: self.block_owner_deletion,
            }
        }
    }
}

#[cfg(test)]
gc_fuzz_replay::replay_tests!(
    watch_frames,
    metadata_protobuf,
    metadata_json,
    watch_event,
    status,
    discovery,
    policy_answers,
    kubeconfig,
);
