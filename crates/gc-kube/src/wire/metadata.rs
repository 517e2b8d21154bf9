//! The metadata of objects on the wire, in protobuf or JSON, borrowed from the input.
//!
//! Only the parts that some verdict or plan needs are decoded. Labels, annotations (except the one that marks the end of a streamed
//! list, those about retention, and those by which tools track objects), managedFields and everything else are skipped.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use gc_types::{
    DeletionState, ListHead, Marks, NotTheList, ObjectKey, ObservedObject, OwnerReference, ResourceId,
    ResourceInfo, ResourceVersion, Texts, Timestamp, TrackingMark, Uid, check_object_kind, read_texts,
};
use serde::Deserialize;

use super::interner::Interner;
use super::protobuf::{DecodeError, Fields, Value};

/// Prefix of protobuf bodies of the API.
pub(crate) const PROTOBUF_MAGIC: &[u8; 4] = b"k8s\0";
/// The annotation on the bookmark that ends a streamed initial list.
pub(crate) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// Go's zero time is in the year 1.
const GO_ZERO_SECONDS: i64 = -62_135_596_800;

/// Encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
    /// `application/json`
    Json,
}

impl Encoding {
    /// Reads a Content-Type header.
    #[must_use]
    pub fn of_content_type(content_type: Option<&http::HeaderValue>) -> Self {
        match content_type.map(http::HeaderValue::as_bytes) {
            Some(value) if value.starts_with(b"application/vnd.kubernetes.protobuf") => Self::Protobuf,
            _ => Self::Json,
        }
    }
}

/// An owner reference, borrowed from the input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner<'a> {
    /// `apiVersion`
    #[serde(borrow)]
    pub api_version: Cow<'a, str>,
    /// `kind`
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
    /// `name`
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// `uid`
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// `controller`
    pub controller: Option<bool>,
    /// `blockOwnerDeletion`
    pub block_owner_deletion: Option<bool>,
}

/// The metadata of one object, borrowed from the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// `name`
    pub name: Cow<'a, str>,
    /// `namespace`
    pub namespace: Cow<'a, str>,
    /// `uid`
    pub uid: Cow<'a, str>,
    /// `resourceVersion`
    pub resource_version: Cow<'a, str>,
    /// True if there is a `deletionTimestamp`.
    pub deleting: bool,
    /// `deletionGracePeriodSeconds`
    pub grace_seconds: Option<i64>,
    /// `finalizers`
    pub finalizers: Vec<Cow<'a, str>>,
    /// `ownerReferences`
    pub owners: Vec<Owner<'a>>,
    /// True if the object has the annotation that ends a streamed initial list.
    pub initial_events_end: bool,
    /// Retention annotations; if there are none, the creation time is not read either.
    pub marks: Marks,
    /// Marks by which tools track the object.
    pub tracking: BTreeMap<TrackingMark, Cow<'a, str>>,
}

impl Metadata<'_> {
    /// Returns the retention annotations, if there are any.
    #[must_use]
    pub fn shared_marks(&self) -> Option<Arc<Marks>> {
        (!self.marks.is_empty()).then(|| Arc::new(self.marks.clone()))
    }

    /// Converts the metadata to the type that engines use. Texts that repeat from object to object are shared.
    #[must_use]
    pub fn observed(&self, resource: ResourceId, interner: &mut Interner) -> ObservedObject {
        let mut deletion = DeletionState { deleting: self.deleting, ..DeletionState::default() };
        for finalizer in &self.finalizers {
            match &**finalizer {
                "foregroundDeletion" => deletion.foreground = true,
                "orphan" => deletion.orphan = true,
                _ => deletion.foreign_finalizers = true,
            }
        }
        ObservedObject {
            key: ObjectKey {
                resource,
                namespace: interner.shared(&self.namespace),
                name: (&*self.name).into(),
            },
            uid: Uid::new(&self.uid),
            resource_version: ResourceVersion::parse(&self.resource_version),
            owners: self.owners.iter().map(|owner| owner.reference(interner)).collect(),
            deletion,
            recreator: self
                .tracking
                .iter()
                .find_map(|(mark, content)| mark.recreator(content, |name| interner.shared(name))),
        }
    }
}

impl Owner<'_> {
    fn reference(&self, interner: &mut Interner) -> OwnerReference {
        OwnerReference {
            coordinates: gc_types::Coordinates {
                api_version: interner.shared(&self.api_version),
                kind: interner.shared(&self.kind),
                name: interner.shared(&self.name),
                uid: Uid::new(&self.uid),
            },
            controller: self.controller,
            block_owner_deletion: self.block_owner_deletion,
        }
    }
}

/// The parts of a `Status` that are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Status {
    /// `code`
    pub code: u16,
    /// `reason`
    pub reason: String,
    /// `message`
    pub message: String,
    /// `details`
    #[serde(deserialize_with = "null_is_default")]
    pub details: StatusDetails,
}

/// Deserializes null as the default, which Go writes for nil pointers.
fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The parts of a Status' `details` that are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusDetails {
    /// `name`
    pub name: String,
    /// `group`
    pub group: String,
    /// `kind`
    pub kind: String,
    /// `retryAfterSeconds`
    pub retry_after_seconds: u64,
}

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent<'a> {
    /// ADDED or MODIFIED, with the current object.
    Present(Metadata<'a>),
    /// DELETED, with the last state of the object.
    Deleted(Metadata<'a>),
    /// BOOKMARK
    Bookmark(Metadata<'a>),
    /// ERROR
    Error(Status),
    /// A type that this client does not know.
    Unknown,
}

/// A list, or one page of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List<'a> {
    /// `metadata.resourceVersion`
    pub resource_version: Cow<'a, str>,
    /// `metadata.continue`
    pub continue_token: Cow<'a, str>,
    /// The items.
    pub items: Vec<Metadata<'a>>,
}

/// Reads the answer to a GET of one object of `asked`. Fails if the answer states another type.
pub fn decode_object<'a>(
    encoding: Encoding,
    body: &'a [u8],
    asked: &ResourceInfo,
) -> Result<Metadata<'a>, DecodeError> {
    match encoding {
        Encoding::Protobuf => {
            let envelope = Envelope::open(body)?;
            check_object_kind(envelope.kind, asked)?;
            object_message(envelope.raw)
        }
        Encoding::Json => parse_json::<JsonObject<'_>>(body)?.of(Some(asked)),
    }
}

/// Reads the answer to a GET of the collection of `asked`. Fails if it is not such a list, with items and a version: nothing can be
/// concluded from what another document lacks.
pub fn decode_list<'a>(
    encoding: Encoding,
    body: &'a [u8],
    asked: &ResourceInfo,
) -> Result<List<'a>, DecodeError> {
    let (api_version, kind, list, has_items) = match encoding {
        Encoding::Protobuf => {
            let envelope = Envelope::open(body)?;
            let list = list_message(envelope.raw)?;
            (envelope.api_version.into(), envelope.kind.into(), list, true)
        }
        Encoding::Json => {
            let JsonList { api_version, kind, metadata, items } = parse_json(body)?;
            let has_items = items.is_some();
            let items = items.unwrap_or_default().into_iter().map(|item| item.metadata.into()).collect();
            let list = List {
                resource_version: metadata.resource_version.unwrap_or_default(),
                continue_token: metadata.continue_token.unwrap_or_default(),
                items,
            };
            (api_version, kind, list, has_items)
        }
    };
    let head = ListHead {
        api_version: &api_version,
        kind: &kind,
        resource_version: &list.resource_version,
        has_items,
        items_say_kind: false,
    };
    head.check(asked)?;
    if list.items.iter().any(|item| item.name.is_empty()) {
        return Err(NotTheList::NamelessItem.into());
    }
    Ok(list)
}

/// Reads a `Status`; `None` if the body is something else.
#[must_use]
pub fn decode_status(encoding: Encoding, body: &[u8]) -> Option<Status> {
    match encoding {
        Encoding::Protobuf => {
            let envelope = Envelope::open(body).ok()?;
            (envelope.kind == "Status").then(|| status_message(envelope.raw).ok()).flatten()
        }
        Encoding::Json => {
            let typed: JsonKind<'_> = serde_json::from_slice(body).ok()?;
            (typed.kind == "Status").then(|| serde_json::from_slice(body).ok()).flatten()
        }
    }
}

/// Reads one frame of a watch of any resource.
pub fn decode_watch_event(encoding: Encoding, frame: &[u8]) -> Result<WatchEvent<'_>, DecodeError> {
    watch_event(encoding, frame, None)
}

/// Reads one frame of a watch of `asked`. Fails if its object states another type.
pub fn decode_watch_event_of<'a>(
    encoding: Encoding,
    frame: &'a [u8],
    asked: &ResourceInfo,
) -> Result<WatchEvent<'a>, DecodeError> {
    watch_event(encoding, frame, Some(asked))
}

fn watch_event<'a>(
    encoding: Encoding,
    frame: &'a [u8],
    asked: Option<&ResourceInfo>,
) -> Result<WatchEvent<'a>, DecodeError> {
    match encoding {
        Encoding::Protobuf => watch_message(frame, asked),
        Encoding::Json => watch_json(frame, asked),
    }
}

/// Envelope of a body (`k8s\0` and `runtime.Unknown`) with its message. Without an envelope, apiVersion and kind are empty and the
/// body is the message.
#[derive(Default)]
struct Envelope<'a> {
    api_version: &'a str,
    kind: &'a str,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn open(body: &'a [u8]) -> Result<Self, DecodeError> {
        let Some(envelope) = body.strip_prefix(PROTOBUF_MAGIC) else {
            return Ok(Self { raw: body, ..Self::default() });
        };
        let mut opened = Self::default();
        let mut fields = Fields::new(envelope);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => {
                    let mut type_meta = Fields::new(value.bytes("typeMeta")?);
                    while let Some((number, value)) = type_meta.next()? {
                        match number {
                            1 => {
                                // An apiVersion that is not text cannot be the requested one.
                                let text = std::str::from_utf8(value.bytes("apiVersion")?);
                                opened.api_version = text.unwrap_or_default();
                            }
                            2 => opened.kind = value.text("kind")?,
                            _ => {}
                        }
                    }
                }
                2 => opened.raw = value.bytes("raw")?,
                _ => {}
            }
        }
        Ok(opened)
    }
}

fn watch_message<'a>(frame: &'a [u8], asked: Option<&ResourceInfo>) -> Result<WatchEvent<'a>, DecodeError> {
    let (mut event_type, mut object) = ("", &[][..]);
    let mut fields = Fields::new(Envelope::open(frame)?.raw);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => event_type = value.text("type")?,
            2 => {
                let mut extension = Fields::new(value.bytes("object")?);
                while let Some((number, value)) = extension.next()? {
                    if number == 1 {
                        object = value.bytes("object.raw")?;
                    }
                }
            }
            _ => {}
        }
    }
    let Envelope { kind, raw: message, .. } = Envelope::open(object)?;
    if matches!(event_type, "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK")
        && let Some(asked) = asked
    {
        check_object_kind(kind, asked)?;
    }
    Ok(match event_type {
        "ADDED" | "MODIFIED" => WatchEvent::Present(object_message(message)?),
        "DELETED" => WatchEvent::Deleted(object_message(message)?),
        "BOOKMARK" => WatchEvent::Bookmark(object_message(message)?),
        "ERROR" => WatchEvent::Error(status_message(message)?),
        _ => WatchEvent::Unknown,
    })
}

/// Reads `PartialObjectMetadata`; every Kubernetes object has its metadata in field 1, too.
fn object_message(message: &[u8]) -> Result<Metadata<'_>, DecodeError> {
    let mut metadata = Metadata::default();
    let mut fields = Fields::new(message);
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            metadata_message(value.bytes("metadata")?, &mut metadata)?;
        }
    }
    if metadata.marks.is_empty() {
        metadata.marks.created = None;
    }
    Ok(metadata)
}

fn metadata_message<'a>(message: &'a [u8], into: &mut Metadata<'a>) -> Result<(), DecodeError> {
    let mut fields = Fields::new(message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => into.name = value.text("metadata.name")?.into(),
            3 => into.namespace = value.text("metadata.namespace")?.into(),
            5 => into.uid = value.text("metadata.uid")?.into(),
            6 => into.resource_version = value.text("metadata.resourceVersion")?.into(),
            8 => into.marks.created = time_message(value.bytes("metadata.creationTimestamp")?)?,
            9 => {
                value.bytes("metadata.deletionTimestamp")?;
                into.deleting = true;
            }
            10 => {
                let seconds = value.number("metadata.deletionGracePeriodSeconds")?;
                into.grace_seconds = Some(seconds.cast_signed());
            }
            11 => label_message(value, into)?,
            12 => annotation_message(value, into)?,
            13 => into.owners.push(owner_message(value.bytes("metadata.ownerReferences")?)?),
            14 => into.finalizers.push(value.text("metadata.finalizers")?.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Reads `metav1.Time`: seconds since the epoch; Go's zero time means none.
fn time_message(message: &[u8]) -> Result<Option<Timestamp>, DecodeError> {
    let mut fields = Fields::new(message);
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            let seconds = value.number("time.seconds")?.cast_signed();
            return Ok((seconds > GO_ZERO_SECONDS).then(|| Timestamp(seconds.saturating_mul(1000))));
        }
    }
    Ok(None)
}

/// Returns name and content of a label or an annotation.
fn entry_message<'a>(entry: Value<'a>, place: &'static str) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
    let (mut key, mut content) = (&[][..], &[][..]);
    let mut fields = Fields::new(entry.bytes(place)?);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => key = value.bytes(place)?,
            2 => content = value.bytes(place)?,
            _ => {}
        }
    }
    Ok((key, content))
}

fn label_message<'a>(entry: Value<'a>, into: &mut Metadata<'a>) -> Result<(), DecodeError> {
    let (key, content) = entry_message(entry, "metadata.labels")?;
    if let Some(text) = into.marks.label_mut(key) {
        *text = Some(String::from_utf8_lossy(content).into());
    } else if let Some(mark) = TrackingMark::of_label(key) {
        into.tracking.insert(mark, String::from_utf8_lossy(content));
    }
    Ok(())
}

fn annotation_message<'a>(entry: Value<'a>, into: &mut Metadata<'a>) -> Result<(), DecodeError> {
    let (key, content) = entry_message(entry, "metadata.annotations")?;
    if key == INITIAL_EVENTS_END.as_bytes() {
        into.initial_events_end = content == b"true";
    } else if let Some(text) = into.marks.annotation_mut(key) {
        *text = Some(String::from_utf8_lossy(content).into());
    } else if let Some(mark) = TrackingMark::of_annotation(key) {
        into.tracking.insert(mark, String::from_utf8_lossy(content));
    }
    Ok(())
}

fn owner_message(message: &[u8]) -> Result<Owner<'_>, DecodeError> {
    let mut owner = Owner::default();
    let mut fields = Fields::new(message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => owner.kind = value.text("ownerReferences.kind")?.into(),
            3 => owner.name = value.text("ownerReferences.name")?.into(),
            4 => owner.uid = value.text("ownerReferences.uid")?.into(),
            5 => owner.api_version = value.text("ownerReferences.apiVersion")?.into(),
            6 => owner.controller = Some(value.number("ownerReferences.controller")? != 0),
            7 => {
                owner.block_owner_deletion = Some(value.number("ownerReferences.blockOwnerDeletion")? != 0);
            }
            _ => {}
        }
    }
    Ok(owner)
}

fn list_message(message: &[u8]) -> Result<List<'_>, DecodeError> {
    let mut list = List::default();
    let mut fields = Fields::new(message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => {
                let mut metadata = Fields::new(value.bytes("metadata")?);
                while let Some((number, value)) = metadata.next()? {
                    match number {
                        2 => list.resource_version = value.text("metadata.resourceVersion")?.into(),
                        3 => list.continue_token = value.text("metadata.continue")?.into(),
                        _ => {}
                    }
                }
            }
            2 => list.items.push(object_message(value.bytes("items")?)?),
            _ => {}
        }
    }
    Ok(list)
}

fn status_message(message: &[u8]) -> Result<Status, DecodeError> {
    let mut status = Status::default();
    let mut fields = Fields::new(message);
    while let Some((number, value)) = fields.next()? {
        match number {
            3 => status.message = value.text("message")?.into(),
            4 => status.reason = value.text("reason")?.into(),
            5 => status.details = details_message(value.bytes("details")?)?,
            6 => status.code = u16::try_from(value.number("code")?).unwrap_or_default(),
            _ => {}
        }
    }
    Ok(status)
}

fn details_message(message: &[u8]) -> Result<StatusDetails, DecodeError> {
    let mut details = StatusDetails::default();
    let mut fields = Fields::new(message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => details.name = value.text("details.name")?.into(),
            2 => details.group = value.text("details.group")?.into(),
            3 => details.kind = value.text("details.kind")?.into(),
            5 => details.retry_after_seconds = value.number("details.retryAfterSeconds")?,
            _ => {}
        }
    }
    Ok(details)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JsonKind<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JsonObject<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    metadata: JsonMetadata<'a>,
}

impl<'a> JsonObject<'a> {
    fn of(self, asked: Option<&ResourceInfo>) -> Result<Metadata<'a>, DecodeError> {
        if let Some(asked) = asked {
            check_object_kind(self.kind.as_deref().unwrap_or_default(), asked)?;
        }
        Ok(self.metadata.into())
    }
}

/// Metadata in JSON. Members may be null where Go writes nil.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JsonMetadata<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow)]
    resource_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    creation_timestamp: Option<Cow<'a, str>>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    deletion_grace_period_seconds: Option<i64>,
    #[serde(borrow)]
    finalizers: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow)]
    owner_references: Option<Vec<Owner<'a>>>,
    #[serde(deserialize_with = "read_texts")]
    annotations: JsonAnnotations,
    #[serde(deserialize_with = "read_texts")]
    labels: JsonLabels,
}

/// Values of tracking marks, in the order of [`TrackingMark::ALL`].
type Tracking = [Option<Arc<str>>; TrackingMark::ALL.len()];

#[derive(Default)]
struct JsonLabels {
    marks: Marks,
    tracking: Tracking,
}

impl Texts for JsonLabels {
    fn text_mut(&mut self, name: &[u8]) -> Option<&mut Option<Arc<str>>> {
        let tracking = TrackingMark::of_label(name).map(|mark| &mut self.tracking[mark as usize]);
        tracking.or_else(|| self.marks.label_mut(name))
    }
}

#[derive(Default)]
struct JsonAnnotations {
    initial_events_end: Option<Arc<str>>,
    marks: Marks,
    tracking: Tracking,
}

impl Texts for JsonAnnotations {
    fn text_mut(&mut self, name: &[u8]) -> Option<&mut Option<Arc<str>>> {
        if name == INITIAL_EVENTS_END.as_bytes() {
            return Some(&mut self.initial_events_end);
        }
        let tracking = TrackingMark::of_annotation(name).map(|mark| &mut self.tracking[mark as usize]);
        tracking.or_else(|| self.marks.annotation_mut(name))
    }
}

impl<'a> From<JsonMetadata<'a>> for Metadata<'a> {
    fn from(json: JsonMetadata<'a>) -> Self {
        let tracking = json.annotations.tracking.iter().zip(&json.labels.tracking).zip(TrackingMark::ALL);
        let tracking = tracking.filter_map(|((annotation, label), mark)| {
            let text = annotation.as_deref().or(label.as_deref())?;
            Some((mark, text.to_owned().into()))
        });
        let tracking = tracking.collect();
        let mut marks = json.annotations.marks.with_labels(&json.labels.marks);
        if !marks.is_empty() {
            let created = json.creation_timestamp.and_then(|text| text.parse::<jiff::Timestamp>().ok());
            let created = created.filter(|time| time.as_second() > GO_ZERO_SECONDS);
            marks.created = created.map(|time| Timestamp(time.as_millisecond()));
        }
        Self {
            name: json.name.unwrap_or_default(),
            namespace: json.namespace.unwrap_or_default(),
            uid: json.uid.unwrap_or_default(),
            resource_version: json.resource_version.unwrap_or_default(),
            deleting: json.deletion_timestamp.is_some(),
            grace_seconds: json.deletion_grace_period_seconds,
            finalizers: json.finalizers.unwrap_or_default(),
            owners: json.owner_references.unwrap_or_default(),
            initial_events_end: json.annotations.initial_events_end.as_deref() == Some("true"),
            marks,
            tracking,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JsonList<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    metadata: JsonListMetadata<'a>,
    #[serde(borrow, deserialize_with = "present")]
    items: Option<Vec<JsonObject<'a>>>,
}

/// Deserializes a member that is present; null means an empty list, as Go writes it.
fn present<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Some(Option::deserialize(deserializer)?.unwrap_or_default()))
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JsonListMetadata<'a> {
    #[serde(borrow)]
    resource_version: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "continue")]
    continue_token: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct JsonEvent<'a> {
    #[serde(borrow, rename = "type")]
    event_type: Cow<'a, str>,
    #[serde(borrow, default)]
    object: JsonObject<'a>,
}

#[derive(Deserialize)]
struct JsonErrorEvent {
    object: Status,
}

fn watch_json<'a>(frame: &'a [u8], asked: Option<&ResourceInfo>) -> Result<WatchEvent<'a>, DecodeError> {
    let event: JsonEvent<'_> = parse_json(frame)?;
    let object = event.object;
    Ok(match &*event.event_type {
        "ADDED" | "MODIFIED" => WatchEvent::Present(object.of(asked)?),
        "DELETED" => WatchEvent::Deleted(object.of(asked)?),
        "BOOKMARK" => WatchEvent::Bookmark(object.of(asked)?),
        "ERROR" => WatchEvent::Error(parse_json::<JsonErrorEvent>(frame)?.object),
        _ => WatchEvent::Unknown,
    })
}

fn parse_json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, DecodeError> {
    serde_json::from_slice(body).map_err(|error| DecodeError::Json(error.to_string()))
}

#[cfg(test)]
mod tests;
