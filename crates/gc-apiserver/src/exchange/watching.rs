//! Watch streams: encodes the registry's events, each once per representation no matter how many clients watch.

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use gc_registry::api::{Object, WatchEvent};
use gc_registry::error::ApiError;
use gc_registry::numbers::write_json;
use gc_registry::ordered::InOrder;
use gc_registry::watch::Watch;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};

use crate::encode::negotiate::{Encoding, Form, Representation};
use crate::encode::table::{IncludeObject, Table, metadata_json};
use crate::encode::{protobuf, protobuf_answer};
use crate::transport::stop::Stop;

/// Period of bookmarks on an idle watch that allows them.
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);
/// Time between the last bookmark and the end of a watch.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Number of bytes collected before they are passed to the connection.
const PIECE: usize = 32 * 1024;
/// Number of encoded events kept for other watches of the same change.
const CACHE_SLOTS: usize = 512;
/// Maximum size of an encoded event that is kept, in bytes.
const MAXIMUM_CACHED_FRAME: usize = 64 * 1024;

/// Encoded events, by object and representation. Watches of the same change follow within moments of each other, so a small table
/// in which newer entries replace older ones suffices.
pub(crate) struct FrameCache {
    slots: Vec<Mutex<Option<CachedFrame>>>,
    hasher: RandomState,
}

struct CachedFrame {
    object: Arc<Object>,
    event_type: &'static str,
    representation: Representation,
    frame: Bytes,
}

impl Default for FrameCache {
    fn default() -> Self {
        Self {
            slots: std::iter::repeat_with(Mutex::default).take(CACHE_SLOTS).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl FrameCache {
    fn frame(
        &self,
        object: &Arc<Object>,
        event_type: &'static str,
        representation: Representation,
        write: impl FnOnce() -> Result<Vec<u8>, ApiError>,
    ) -> Result<Bytes, ApiError> {
        let key = (Arc::as_ptr(object).addr(), event_type, representation);
        let index = usize::try_from(self.hasher.hash_one(key) % CACHE_SLOTS as u64).unwrap_or_default();
        let mut slot = self.slots[index].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = slot.as_ref().filter(|cached| {
            Arc::ptr_eq(&cached.object, object)
                && cached.event_type == event_type
                && cached.representation == representation
        }) {
            return Ok(cached.frame.clone());
        }
        // Encoded under the lock: of many watches that wake at once, one encodes and the others reuse the result.
        let frame = Bytes::from(write()?);
        if frame.len() <= MAXIMUM_CACHED_FRAME {
            let object = Arc::clone(object);
            *slot = Some(CachedFrame { object, event_type, representation, frame: frame.clone() });
        }
        Ok(frame)
    }
}

/// Parameters of a watch stream.
pub(crate) struct WatchSetup {
    /// The registry's watch, or the error that is its only event.
    pub(crate) watch: Result<Watch, ApiError>,
    /// Representation.
    pub(crate) representation: Representation,
    /// apiVersion and kind, for bookmarks.
    pub(crate) api_version: String,
    /// Kind.
    pub(crate) kind: String,
    /// Table form, if asked for.
    pub(crate) table: Option<(Table, IncludeObject)>,
    /// Duration of the watch.
    pub(crate) timeout: Duration,
    /// True if the client wants bookmarks.
    pub(crate) bookmarks: bool,
    /// Encoded events shared among watches.
    pub(crate) cache: Arc<FrameCache>,
    /// Signal that ends all watches.
    pub(crate) stop: Stop,
    /// Counts the watch while it lives.
    pub(crate) _guard: crate::metrics::WatchGuard,
}

/// A watch as the body of an answer.
pub(crate) struct WatchStream {
    setup: WatchSetup,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    columns_sent: bool,
    ended: bool,
}

impl WatchStream {
    /// Creates a watch stream, and starts its timers.
    pub(crate) fn new(setup: WatchSetup) -> Self {
        let now = Instant::now();
        let deadline = now + setup.timeout;
        let mut stream = Self {
            deadline,
            next_bookmark: None,
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            columns_sent: false,
            ended: false,
            setup,
        };
        stream.plan_bookmark(now);
        stream
    }

    fn plan_bookmark(&mut self, now: Instant) {
        if !self.setup.bookmarks {
            return;
        }
        let last = self.deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(self.deadline);
        let next = (now + BOOKMARK_PERIOD).min(last);
        self.next_bookmark = (next > now).then_some(next);
        self.timer.as_mut().reset(self.next_bookmark.map_or(self.deadline, |next| next.min(self.deadline)));
    }

    /// Returns the next bytes; `None` ends the watch.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut gathered: Vec<u8> = Vec::new();
        loop {
            match self.poll_event(cx) {
                Poll::Ready(Some(event)) => {
                    let frame = self.frame(&event);
                    if matches!(event, WatchEvent::Error(_)) {
                        self.ended = true;
                    }
                    if gathered.is_empty() && frame.is_empty() && self.ended {
                        return Poll::Ready(None);
                    }
                    if gathered.is_empty() && (frame.len() >= PIECE || self.ended) {
                        return Poll::Ready(Some(frame));
                    }
                    gathered.extend_from_slice(&frame);
                    if gathered.len() >= PIECE || self.ended {
                        return Poll::Ready(Some(gathered.into()));
                    }
                }
                Poll::Ready(None) => {
                    self.ended = true;
                    let rest = (!gathered.is_empty()).then(|| gathered.into());
                    return Poll::Ready(rest);
                }
                Poll::Pending if gathered.is_empty() => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Some(gathered.into())),
            }
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let watch = match &mut self.setup.watch {
            Ok(watch) => watch,
            Err(error) => return Poll::Ready(Some(WatchEvent::Error(error.clone()))),
        };
        if let Poll::Ready(event) = watch.poll_next(cx) {
            return Poll::Ready(event);
        }
        if self.setup.stop.poll_unpin(cx).is_ready() {
            return Poll::Ready(None);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if now >= self.deadline {
                return Poll::Ready(None);
            }
            self.plan_bookmark(now);
            if self.next_bookmark.is_none() {
                self.timer.as_mut().reset(self.deadline);
            }
            if let Ok(watch) = &self.setup.watch
                && let Some(bookmark) = watch.bookmark()
            {
                return Poll::Ready(Some(bookmark));
            }
        }
        Poll::Pending
    }

    /// Encodes one event. An unreadable object becomes an ERROR event.
    fn frame(&mut self, event: &WatchEvent) -> Bytes {
        let (event_type, object) = match event {
            WatchEvent::Added(object) => ("ADDED", object),
            WatchEvent::Modified(object) => ("MODIFIED", object),
            WatchEvent::Deleted(object) => ("DELETED", object),
            WatchEvent::Bookmark { resource_version, initial_events_end } => {
                return self.bookmark_frame(resource_version, *initial_events_end);
            }
            WatchEvent::Error(error) => return self.error_frame(error),
        };
        let representation = self.setup.representation;
        if representation.form == Form::Metadata && representation.of_list {
            // An event cannot be a list: upstream silently ends the watch at the first one.
            self.ended = true;
            return Bytes::new();
        }
        let written = if let Some((table, include)) = &self.setup.table {
            let mut out = Vec::new();
            let with_columns = !std::mem::replace(&mut self.columns_sent, true);
            table
                .single(&mut out, object, *include, representation, with_columns)
                .map(|()| Bytes::from(json_frame(event_type, &out)))
        } else {
            let write = || write_event(event_type, object, representation);
            self.setup.cache.frame(object, event_type, representation, write)
        };
        written.unwrap_or_else(|error| {
            self.ended = true;
            self.error_frame(&error)
        })
    }

    fn bookmark_frame(&self, resource_version: &str, initial_events_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": resource_version});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let representation = self.setup.representation;
        let meta_version = representation.meta_version();
        let object = match representation.form {
            Form::Object => {
                json!({"kind": self.setup.kind, "apiVersion": self.setup.api_version, "metadata": metadata})
            }
            Form::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": meta_version, "metadata": metadata})
            }
            Form::Table => json!({
                "kind": "Table", "apiVersion": meta_version,
                "metadata": {"resourceVersion": resource_version}, "columnDefinitions": null,
                "rows": [{"cells": [], "object":
                    {"kind": "PartialObjectMetadata", "apiVersion": meta_version, "metadata": metadata}}],
            }),
        };
        if representation.encoding == Encoding::Protobuf {
            let mut bytes = Vec::new();
            match representation.form {
                Form::Object => protobuf_answer::document(&mut bytes, &object),
                _ => protobuf::metadata_value(&mut bytes, meta_version, &metadata),
            }
            let mut out = Vec::new();
            protobuf::watch_frame(&mut out, "BOOKMARK", &bytes);
            return out.into();
        }
        json_frame("BOOKMARK", &in_order(&object)).into()
    }

    fn error_frame(&self, error: &ApiError) -> Bytes {
        let status: Value = error.to_status();
        if self.setup.representation.encoding == Encoding::Protobuf {
            let mut bytes = Vec::new();
            protobuf::status(&mut bytes, &status);
            let mut out = Vec::new();
            protobuf::watch_frame(&mut out, "ERROR", &bytes);
            return out.into();
        }
        json_frame("ERROR", &in_order(&status)).into()
    }
}

/// Formats a document as Go does.
fn in_order(document: &Value) -> Vec<u8> {
    let mut written = Vec::new();
    if write_json(&mut written, &InOrder::of(document)).is_err() {
        written.clear();
    }
    written
}

fn json_frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + 40);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event_type.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out
}

fn write_event(
    event_type: &str,
    object: &Object,
    representation: Representation,
) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    match (representation.form, representation.encoding) {
        (Form::Metadata, Encoding::Protobuf) => {
            protobuf::metadata_object(&mut bytes, representation.meta_version(), object)?;
            let mut out = Vec::with_capacity(bytes.len() + 24);
            protobuf::watch_frame(&mut out, event_type, &bytes);
            return Ok(out);
        }
        (Form::Object, Encoding::Protobuf) => {
            protobuf_answer::document(&mut bytes, object.value()?);
            let mut out = Vec::with_capacity(bytes.len() + 24);
            protobuf::watch_frame(&mut out, event_type, &bytes);
            return Ok(out);
        }
        (Form::Metadata, _) => metadata_json(&mut bytes, object, representation)?,
        _ => object.write_json(&mut bytes, true)?,
    }
    Ok(json_frame(event_type, &bytes))
}
