//! One resource's list and watch, as an explicit state machine.
//!
//! ```text
//!            ┌────────── 410, or the version is unknown ──────────┐
//!            ▼                                                    │
//!   Unlisted(streamed) ── ERROR, 4xx, silence ─▶ Unlisted(paged)  │
//!            │ initial-events-end                     │ last page │
//!            └──────────────▶ Listed(version) ◀───────┘           │
//!                              │  ▲ watch ends: resume ───────────┘
//!                              └──┘
//! ```
//!
//! Nothing is kept of the objects: what vanished while no watch was running is found by the engine, which is
//! notified where a list begins and ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gc_types::{Event, ResourceVersion};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::backoff::{Backoff, random_fraction};
use crate::connection::{ApiClient, Body, LIST_TIMEOUT, RequestError, collect};
use crate::resources::Route;
use crate::status::{StatusBoard, SyncState};
use crate::wire::frames::Frames;
use crate::wire::interner::Interner;
use crate::wire::metadata::{
    Encoding, Metadata, Status, WatchEvent, decode_list, decode_status, decode_watch_event,
};
use crate::wire::protobuf::DecodeError;

/// Objects per page of a list.
pub const PAGE_SIZE: usize = 1000;
/// Events that are handed on at once.
pub const BATCH_EVENTS: usize = 512;
/// A watch is asked to end after between once and twice this time, so that watches spread over servers.
const WATCH_SECONDS: u32 = 290;
/// A watch that outlives its own end by this time is dead.
const WATCH_OVERTIME: Duration = Duration::from_secs(30);
/// A streamed list that says nothing for this long comes from a server that does not know streamed lists.
const STREAMED_LIST_SILENCE: Duration = Duration::from_secs(10);
/// A watch that ends sooner counts as a failure, lest it is opened in a tight loop.
const SHORT_WATCH: Duration = Duration::from_secs(1);
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

pub(crate) const LIST_ACCEPT: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
     application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const WATCH_ACCEPT: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
     application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// For servers that refuse the above with 406.
const PLAIN_ACCEPT: &str = "application/json";

/// Events in the order in which they happened.
pub(crate) type Batch = Vec<Event>;

/// What is known of a resource's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Nothing, or nothing reliable any more.
    Unlisted,
    /// Everything up to this version.
    Listed { version: String },
}

/// Why a list or a watch ended before it was done.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("a malformed answer: {0}")]
    Malformed(#[from] DecodeError),
    #[error("the server answered {code}: {message}")]
    Refused { code: u16, message: String, retry_after: Option<Duration> },
    #[error("the version to resume from is gone")]
    Expired,
    #[error("streamed lists are not served ({0})")]
    NotStreamed(String),
    #[error("no data for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the watch ended after less than a second")]
    Short,
    #[error("the collector has ended")]
    Closed,
}

/// What a watcher shares with the rest.
#[derive(Clone, Debug)]
pub(crate) struct WatchContext {
    pub(crate) client: ApiClient,
    pub(crate) sink: mpsc::Sender<Batch>,
    pub(crate) board: StatusBoard,
    /// Rung when what is served may have changed.
    pub(crate) rediscover: Arc<Notify>,
    /// Whether streamed lists are tried at all.
    pub(crate) streamed_lists: bool,
}

/// Lists and watches one resource until its task is aborted.
#[derive(Debug)]
pub(crate) struct Watcher {
    context: WatchContext,
    route: Arc<Route>,
    name: String,
    number: usize,
    interner: Interner,
    streamed: bool,
    paged: bool,
    plain: bool,
    announced_stale: bool,
    ever_synced: bool,
    announces_resources: bool,
    /// The server may have been replaced by one that was restored from an older backup.
    suspicious: bool,
}

impl Watcher {
    pub(crate) fn new(context: WatchContext, route: Arc<Route>, number: usize) -> Self {
        let gvr = &route.info.gvr;
        let announces_resources = matches!(
            (&*gvr.group, &*gvr.resource),
            ("apiextensions.k8s.io", "customresourcedefinitions") | ("apiregistration.k8s.io", "apiservices")
        );
        Self {
            name: route.display_name(),
            streamed: context.streamed_lists,
            context,
            route,
            number,
            interner: Interner::default(),
            paged: true,
            plain: false,
            announced_stale: false,
            ever_synced: false,
            announces_resources,
            suspicious: false,
        }
    }

    pub(crate) async fn run(mut self) {
        let mut state = State::Unlisted;
        let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
        self.show(SyncState::Listing, "");
        loop {
            let started = Instant::now();
            let step = match &state {
                State::Unlisted if self.streamed => self.watch(None).await,
                State::Unlisted => self.list().await.map(|version| (version, None)),
                State::Listed { version } => self.resume(version.clone()).await,
            };
            let error = match step {
                Ok((version, None)) => {
                    backoff.reset();
                    state = State::Listed { version };
                    continue;
                }
                Ok((version, Some(error))) => {
                    state = State::Listed { version };
                    error
                }
                Err(error) => error,
            };
            if started.elapsed() > LONGEST_DELAY {
                backoff.reset();
            }
            let Some(wait) = self.recover(&error, &mut state, &mut backoff).await else {
                return;
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Decides what follows a failure: the next state and how long to wait. `None` ends the watcher.
    async fn recover(
        &mut self,
        error: &WatchError,
        state: &mut State,
        backoff: &mut Backoff,
    ) -> Option<Duration> {
        tracing::debug!(resource = %self.name, %error, "list or watch ended");
        self.suspicious |= matches!(error, WatchError::Request(_) | WatchError::Refused { code: 500.., .. });
        match error {
            WatchError::Closed => return None,
            WatchError::Expired => {
                // A list whose continue token expired is too slow for pages: whole, the next time.
                self.paged &= *state != State::Unlisted;
                *state = State::Unlisted;
            }
            WatchError::NotStreamed(_) => {
                self.streamed = false;
                return Some(Duration::ZERO);
            }
            WatchError::Refused { code: 406, .. } if !self.plain => {
                self.plain = true;
                return Some(Duration::ZERO);
            }
            WatchError::Refused { code: 404, .. } => self.context.rediscover.notify_one(),
            WatchError::Refused { code: 400 | 422, .. } => *state = State::Unlisted,
            _ => {}
        }
        let why = error.to_string();
        if !self.ever_synced {
            self.show(SyncState::Failing, &why);
        } else if !matches!(error, WatchError::Short) {
            self.show(SyncState::Stale, &why);
            if !self.announced_stale && self.send(vec![Event::Stale(self.route.info.id)]).await.is_err() {
                return None;
            }
            self.announced_stale = true;
        }
        let asked = match error {
            WatchError::Refused { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        Some(backoff.next_delay().max(asked).min(LONGEST_DELAY))
    }

    fn show(&self, state: SyncState, why: &str) {
        self.context.board.set(self.route.info.id, &self.name, state, why);
    }

    async fn send(&self, batch: Batch) -> Result<(), WatchError> {
        self.context.sink.send(batch).await.map_err(|_| WatchError::Closed)
    }

    async fn get(&self, query: &str, accept: &'static str) -> Result<Response<Body>, WatchError> {
        let uri = format!("{}?{query}", self.route.collection(""));
        let request = Request::builder()
            .method(Method::GET)
            .uri(uri)
            .header(ACCEPT, if self.plain { PLAIN_ACCEPT } else { accept })
            .body(Full::default())
            .map_err(|error| WatchError::Malformed(DecodeError::Json(error.to_string())))?;
        let response = self.context.client.open(self.number, request).await?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let retry_after = retry_after(response.headers());
        let answer = tokio::time::timeout(LIST_TIMEOUT, collect(response))
            .await
            .map_err(|_| RequestError::Timeout(LIST_TIMEOUT))??;
        let encoding = Encoding::of_content_type(answer.head.headers.get(CONTENT_TYPE));
        let status = decode_status(encoding, &answer.body).unwrap_or_else(|| Status {
            message: String::from_utf8_lossy(&answer.body).chars().take(200).collect(),
            ..Status::default()
        });
        Err(refusal(answer.head.status.as_u16(), status, retry_after))
    }

    /// A list in pages; answers its version.
    async fn list(&mut self) -> Result<String, WatchError> {
        let id = self.route.info.id;
        self.send(vec![Event::ListStarted(id)]).await?;
        let mut continue_token = String::new();
        loop {
            let mut query = String::new();
            if self.paged {
                query = format!("limit={PAGE_SIZE}");
                if !continue_token.is_empty() {
                    query.push_str("&continue=");
                    crate::resources::push_segment(&mut query, &continue_token);
                }
            }
            let response = self.get(&query, LIST_ACCEPT).await?;
            let encoding = Encoding::of_content_type(response.headers().get(CONTENT_TYPE));
            let answer = tokio::time::timeout(LIST_TIMEOUT, collect(response))
                .await
                .map_err(|_| RequestError::Timeout(LIST_TIMEOUT))??;
            let list = decode_list(encoding, &answer.body)?;
            for items in list.items.chunks(BATCH_EVENTS) {
                let mut batch = Batch::with_capacity(items.len());
                for item in items {
                    self.observe(item, &mut batch);
                }
                self.send(batch).await?;
            }
            if list.continue_token.is_empty() {
                let version = list.resource_version.into_owned();
                self.paged = true;
                self.synced(&version).await?;
                return Ok(version);
            }
            continue_token = list.continue_token.into_owned();
        }
    }

    /// An object, and what its annotations say.
    fn observe(&mut self, metadata: &Metadata<'_>, batch: &mut Batch) {
        let object = metadata.observed(self.route.info.id, &mut self.interner);
        let marked = metadata.shared_marks().map(|marks| Event::Marked { key: object.key.clone(), marks });
        batch.push(Event::Observed(object));
        batch.extend(marked);
    }

    async fn synced(&mut self, version: &str) -> Result<(), WatchError> {
        let resource_version = ResourceVersion::parse(version);
        self.send(vec![Event::Synced { resource: self.route.info.id, resource_version }]).await?;
        self.ever_synced = true;
        self.announced_stale = false;
        self.show(SyncState::Synced, "");
        if self.announces_resources {
            // A definition that came between discovery and this list is in the list, and not in discovery.
            self.context.rediscover.notify_one();
        }
        tracing::debug!(resource = %self.name, version, "synced");
        Ok(())
    }

    /// A watch from a version on. To one that lies ahead of it, a server that was restored from an older backup says
    /// nothing until it has caught up, and nothing ever about what it has lost. So after a failure that may have been
    /// its restart, it is asked first how far it is.
    async fn resume(&mut self, version: String) -> Result<(String, Option<WatchError>), WatchError> {
        if self.suspicious {
            let response = self.get("limit=1", LIST_ACCEPT).await?;
            let encoding = Encoding::of_content_type(response.headers().get(CONTENT_TYPE));
            let answer = tokio::time::timeout(LIST_TIMEOUT, collect(response))
                .await
                .map_err(|_| RequestError::Timeout(LIST_TIMEOUT))??;
            let newest = ResourceVersion::parse(&decode_list(encoding, &answer.body)?.resource_version);
            self.suspicious = false;
            if newest != ResourceVersion::UNKNOWN && newest < ResourceVersion::parse(&version) {
                tracing::warn!(resource = %self.name, version, %newest, "the server was restored to an earlier version");
                return Err(WatchError::Expired);
            }
        }
        self.watch(Some(version)).await
    }

    /// A watch from a version on, or (without one) a streamed list that continues as a watch. Answers the
    /// version to resume from, and what is to be recovered from, if anything. An error says that no version
    /// has been reached.
    async fn watch(&mut self, from: Option<String>) -> Result<(String, Option<WatchError>), WatchError> {
        let seconds = WATCH_SECONDS + random_u32(WATCH_SECONDS);
        let mut query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}");
        match &from {
            Some(version) => {
                query.push_str("&resourceVersion=");
                crate::resources::push_segment(&mut query, version);
            }
            None => query.push_str("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        }
        let response = match self.get(&query, WATCH_ACCEPT).await {
            Err(WatchError::Refused { code: 400 | 403 | 422 | 500 | 501, message, .. }) if from.is_none() => {
                return Err(WatchError::NotStreamed(message));
            }
            other => other?,
        };
        let encoding = Encoding::of_content_type(response.headers().get(CONTENT_TYPE));
        let mut reading = Reading {
            frames: Frames::new(encoding),
            body: response.into_body(),
            encoding,
            listing: from.is_none(),
            version: from,
            started: Instant::now(),
        };
        if reading.listing {
            self.send(vec![Event::ListStarted(self.route.info.id)]).await?;
        } else if self.announced_stale {
            // Resumed: nothing has been missed.
            let version = reading.version.clone().unwrap_or_default();
            self.synced(&version).await?;
        }
        let allowed = Duration::from_secs(u64::from(seconds)) + WATCH_OVERTIME;
        let end = loop {
            let wait = if reading.listing { STREAMED_LIST_SILENCE } else { allowed };
            match tokio::time::timeout(wait, reading.body.frame()).await {
                Err(_) if reading.listing => break Some(WatchError::NotStreamed("silence".into())),
                Err(_) => break Some(WatchError::Silent(wait)),
                Ok(None) => {
                    // Before its time: the server is going down, and who comes up may be another.
                    self.suspicious |=
                        reading.started.elapsed() < Duration::from_secs(u64::from(seconds) - 1);
                    break reading.is_short().then_some(WatchError::Short);
                }
                Ok(Some(Err(error))) => break Some(RequestError::Body(error).into()),
                Ok(Some(Ok(frame))) => {
                    let Ok(chunk) = frame.into_data() else { continue };
                    if let Err(error) = self.take_chunk(&mut reading, &chunk).await {
                        break Some(error);
                    }
                }
            }
        };
        match (reading.version, end) {
            (Some(version), end) if !reading.listing => Ok((version, end)),
            (_, Some(error)) => Err(error),
            (_, None) => Err(WatchError::NotStreamed("the watch ended inside the list".into())),
        }
    }

    async fn take_chunk(&mut self, reading: &mut Reading, chunk: &Bytes) -> Result<(), WatchError> {
        reading.frames.push(chunk);
        let mut batch = Batch::new();
        let id = self.route.info.id;
        while let Some(frame) = reading.frames.next_frame()? {
            match decode_watch_event(reading.encoding, &frame)? {
                WatchEvent::Present(metadata) => {
                    reading.reached(&metadata.resource_version);
                    self.observe(&metadata, &mut batch);
                }
                WatchEvent::Deleted(metadata) => {
                    reading.reached(&metadata.resource_version);
                    let gone = metadata.observed(id, &mut self.interner);
                    batch.push(Event::Removed {
                        key: gone.key,
                        uid: gone.uid,
                        resource_version: gone.resource_version,
                    });
                }
                WatchEvent::Bookmark(metadata) => {
                    if reading.listing && metadata.initial_events_end {
                        reading.listing = false;
                        reading.version = Some(metadata.resource_version.to_string());
                        self.send(std::mem::take(&mut batch)).await?;
                        self.synced(&metadata.resource_version).await?;
                    } else if !reading.listing {
                        reading.reached(&metadata.resource_version);
                        let resource_version = ResourceVersion::parse(&metadata.resource_version);
                        batch.push(Event::Progress { resource: id, resource_version });
                    }
                }
                WatchEvent::Error(status) => {
                    self.send(batch).await?;
                    return Err(stream_error(status, reading.listing));
                }
                WatchEvent::Unknown => {}
            }
            if batch.len() >= BATCH_EVENTS {
                self.send(std::mem::take(&mut batch)).await?;
            }
        }
        if !batch.is_empty() {
            if self.announces_resources && !reading.listing {
                self.context.rediscover.notify_one();
            }
            self.send(batch).await?;
        }
        Ok(())
    }
}

/// A watch that is being read.
struct Reading {
    frames: Frames,
    body: Body,
    encoding: Encoding,
    /// Whether the streamed initial list is still under way.
    listing: bool,
    version: Option<String>,
    started: Instant,
}

impl Reading {
    fn reached(&mut self, version: &str) {
        if !self.listing && !version.is_empty() {
            self.version = Some(version.to_owned());
        }
    }

    fn is_short(&self) -> bool {
        self.started.elapsed() < SHORT_WATCH
    }
}

fn stream_error(status: Status, listing: bool) -> WatchError {
    match status.code {
        410 => WatchError::Expired,
        _ if listing => WatchError::NotStreamed(status.message),
        code => refusal(code, status, None),
    }
}

fn refusal(code: u16, status: Status, retry_after: Option<Duration>) -> WatchError {
    if code == 410 {
        return WatchError::Expired;
    }
    let from_status = match status.details.retry_after_seconds {
        0 => None,
        seconds => Some(Duration::from_secs(seconds)),
    };
    WatchError::Refused { code, message: status.message, retry_after: retry_after.or(from_status) }
}

/// The seconds of a Retry-After header.
pub(crate) fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

fn random_u32(below: u32) -> u32 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // in [0, below)
    let number = (random_fraction() * f64::from(below)) as u32;
    number
}
