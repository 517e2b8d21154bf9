//! List and watch of one resource's metadata over HTTP. [`gc_controller::watch`] decides which requests to send, interprets the
//! answers and handles failures.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gc_controller::watch::{Ask, ListWatch, RequestEnd, Signal};
use gc_types::{Event, NotTheList};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::backoff::random_fraction;
use crate::connection::{Answer, ApiClient, Body, LIST_TIMEOUT, RequestError, collect};
use crate::resources::Route;
use crate::status::{StatusBoard, SyncState};
use crate::wire::frames::Frames;
use crate::wire::interner::Interner;
use crate::wire::metadata::{
    Encoding, Metadata, Status, WatchEvent, decode_list, decode_status, decode_watch_event_of,
};
use crate::wire::protobuf::DecodeError;

/// Number of objects per page of a list.
pub const PAGE_SIZE: usize = 1000;
/// Maximum number of events passed on at once.
pub const BATCH_EVENTS: usize = 512;

/// Accept header without managedFields, which nothing here reads, and which make up to 60 % of an object. Servers that do not
/// support the parameter `drop` (KEP-5958) send them, and they are skipped.
pub(crate) const LIST_ACCEPT: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1\
     ;drop=metadata.managedFields,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;drop=metadata.managedFields,\
     application/json";
const WATCH_ACCEPT: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1\
     ;drop=metadata.managedFields,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1;drop=metadata.managedFields,\
     application/json";
/// Accept header for servers that refuse the other with a 406.
const PLAIN_ACCEPT: &str = "application/json";

/// Error of a page whose continue token is the same as the requested one.
pub(crate) const SAME_PAGE: &str = "the list goes on where it already was";

/// Events in the order in which they happened.
pub(crate) type Batch = Vec<Event>;

/// Reason why a list or a watch ended.
enum Stop {
    /// The list or watch ended.
    Ended(RequestEnd),
    /// The receiver is gone.
    Closed,
}

impl From<RequestError> for Stop {
    fn from(error: RequestError) -> Self {
        Self::Ended(match error {
            RequestError::TooLarge => RequestEnd::TooLarge,
            error => RequestEnd::Unreachable(error.to_string()),
        })
    }
}

impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Self {
        Self::Ended(RequestEnd::Malformed(error.to_string()))
    }
}

/// State shared between a watcher and other tasks.
#[derive(Clone, Debug)]
pub(crate) struct WatchContext {
    pub(crate) client: ApiClient,
    pub(crate) sink: mpsc::Sender<Batch>,
    pub(crate) board: StatusBoard,
    /// Notified when the served resources may have changed.
    pub(crate) rediscover: Arc<Notify>,
    /// True if streamed lists are tried.
    pub(crate) streamed_lists: bool,
}

/// Lists and watches one resource until its task is aborted.
#[derive(Debug)]
pub(crate) struct Watcher {
    context: WatchContext,
    route: Arc<Route>,
    name: String,
    interner: Interner,
    protocol: ListWatch,
    plain: bool,
    announces_resources: bool,
}

impl Watcher {
    pub(crate) fn new(context: WatchContext, route: Arc<Route>) -> Self {
        let gvr = &route.info.gvr;
        let announces_resources = matches!(
            (&*gvr.group, &*gvr.resource),
            ("apiextensions.k8s.io", "customresourcedefinitions") | ("apiregistration.k8s.io", "apiservices")
        );
        Self {
            name: route.display_name(),
            protocol: ListWatch::new(context.streamed_lists),
            context,
            route,
            interner: Interner::default(),
            plain: false,
            announces_resources,
        }
    }

    pub(crate) async fn run(mut self) {
        self.show(SyncState::Listing, "");
        loop {
            let ask = self.protocol.ask(random_fraction());
            let started = Instant::now();
            let stop = match self.perform(ask).await {
                Ok(()) => continue,
                Err(stop) => stop,
            };
            let Stop::Ended(ended) = stop else { return };
            tracing::debug!(resource = %self.name, %ended, "list or watch ended");
            self.protocol.ended(&ended, started.elapsed(), random_fraction());
            if self.hand_on(Batch::new()).await.is_err() {
                return;
            }
        }
    }

    async fn perform(&mut self, ask: Ask) -> Result<(), Stop> {
        self.hand_on(Batch::new()).await?;
        match ask {
            Ask::Wait(pause) => tokio::time::sleep(pause).await,
            Ask::Page { is_paged, continue_token } => self.list(is_paged, &continue_token).await?,
            Ask::Newest => {
                let answer = self.whole("limit=1").await?;
                let list = decode_list(encoding(&answer.head.headers), &answer.body, &self.route.info)?;
                self.protocol.newest_read(&list.resource_version);
            }
            Ask::Watch { from, seconds } => return self.watch(from.as_deref(), seconds).await,
        }
        self.hand_on(Batch::new()).await
    }

    /// Sends a batch, followed by the protocol's own messages.
    async fn hand_on(&mut self, mut batch: Batch) -> Result<(), Stop> {
        self.take_signals(&mut batch);
        if batch.is_empty() {
            return Ok(());
        }
        self.context.sink.send(batch).await.map_err(|_| Stop::Closed)
    }

    fn take_signals(&mut self, batch: &mut Batch) {
        let resource = self.route.info.id;
        while let Some(signal) = self.protocol.poll_signal() {
            match signal {
                Signal::ListStarted => batch.push(Event::ListStarted(resource)),
                Signal::Progress(resource_version) => {
                    batch.push(Event::Progress { resource, resource_version });
                }
                Signal::Stale => batch.push(Event::Stale(resource)),
                Signal::NotServed => self.context.rediscover.notify_one(),
                Signal::Failing { why, was_synced } => {
                    let state = if was_synced { SyncState::Stale } else { SyncState::Failing };
                    self.show(state, &why.to_string());
                }
                Signal::Synced(resource_version) => {
                    batch.push(Event::Synced { resource, resource_version });
                    self.show(SyncState::Synced, "");
                    if self.announces_resources {
                        // A definition created between discovery and this list is in the list, but not in discovery.
                        self.context.rediscover.notify_one();
                    }
                    tracing::debug!(resource = %self.name, %resource_version, "synced");
                }
            }
        }
    }

    fn show(&self, state: SyncState, why: &str) {
        self.context.board.set(self.route.info.id, &self.name, state, why);
    }

    async fn get(&mut self, query: &str, accept: &'static str) -> Result<Response<Body>, Stop> {
        loop {
            let uri = format!("{}?{query}", self.route.collection(""));
            let request = Request::builder()
                .method(Method::GET)
                .uri(uri)
                .header(ACCEPT, if self.plain { PLAIN_ACCEPT } else { accept })
                .body(Full::default())
                .map_err(|error| Stop::Ended(RequestEnd::Malformed(error.to_string())))?;
            let response = self.context.client.open(request).await?;
            if response.status() == StatusCode::NOT_ACCEPTABLE && !self.plain {
                self.plain = true;
                continue;
            }
            if response.status() == StatusCode::OK {
                return Ok(response);
            }
            return Err(refusal_of(response).await?);
        }
    }

    async fn whole(&mut self, query: &str) -> Result<Answer, Stop> {
        let response = self.get(query, LIST_ACCEPT).await?;
        let read = tokio::time::timeout(LIST_TIMEOUT, collect(response)).await;
        Ok(read.map_err(|_| RequestError::Timeout(LIST_TIMEOUT))??)
    }

    async fn list(&mut self, is_paged: bool, continue_token: &str) -> Result<(), Stop> {
        let mut query = String::new();
        if is_paged {
            query = format!("limit={}", self.protocol.page_size(PAGE_SIZE));
            if !continue_token.is_empty() {
                query.push_str("&continue=");
                crate::resources::push_segment(&mut query, continue_token);
            }
        }
        let answer = self.whole(&query).await?;
        let list = decode_list(encoding(&answer.head.headers), &answer.body, &self.route.info)?;
        self.protocol.page_came(answer.body.len());
        if !list.continue_token.is_empty() && list.continue_token == continue_token {
            return Err(Stop::Ended(RequestEnd::Malformed(SAME_PAGE.to_owned())));
        }
        for items in list.items.chunks(BATCH_EVENTS) {
            let mut batch = Batch::with_capacity(items.len());
            for item in items {
                self.observe(item, &mut batch);
            }
            self.hand_on(batch).await?;
        }
        self.protocol.page_read(&list.resource_version, &list.continue_token);
        Ok(())
    }

    /// Observes an object and its annotations. Without a UID, it is not an owner and cannot be deleted; some extension servers have
    /// such objects.
    fn observe(&mut self, metadata: &Metadata<'_>, batch: &mut Batch) {
        if metadata.uid.is_empty() {
            return;
        }
        let object = metadata.observed(self.route.info.id, &mut self.interner);
        let marked = metadata.shared_marks().map(|marks| Event::Marked { key: object.key.clone(), marks });
        batch.push(Event::Observed(object));
        batch.extend(marked);
    }

    async fn watch(&mut self, from: Option<&str>, seconds: u32) -> Result<(), Stop> {
        let mut query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}");
        match from {
            Some(version) => {
                query.push_str("&resourceVersion=");
                crate::resources::push_segment(&mut query, version);
            }
            None => query.push_str("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        }
        let response = self.get(&query, WATCH_ACCEPT).await?;
        let encoding = encoding(response.headers());
        let mut frames = Frames::new(encoding);
        let mut body = response.into_body();
        self.protocol.opened();
        self.hand_on(Batch::new()).await?;
        loop {
            let wait = self.protocol.patience();
            let ended = match tokio::time::timeout(wait, body.frame()).await {
                Err(_) => RequestEnd::Silent(wait),
                Ok(None) => RequestEnd::Finished,
                Ok(Some(Err(error))) => return Err(RequestError::Body(error).into()),
                Ok(Some(Ok(frame))) => {
                    let Ok(chunk) = frame.into_data() else { continue };
                    self.take_chunk(&mut frames, encoding, &chunk).await?;
                    continue;
                }
            };
            return Err(Stop::Ended(ended));
        }
    }

    async fn take_chunk(
        &mut self,
        frames: &mut Frames,
        encoding: Encoding,
        chunk: &Bytes,
    ) -> Result<(), Stop> {
        frames.push(chunk);
        let mut batch = Batch::new();
        let taken = self.take_frames(frames, encoding, &mut batch).await;
        // Objects before an unreadable one count as reached, and are not delivered again.
        if !batch.is_empty() && self.announces_resources && !self.protocol.is_listing() {
            self.context.rediscover.notify_one();
        }
        self.hand_on(batch).await?;
        taken
    }

    async fn take_frames(
        &mut self,
        frames: &mut Frames,
        encoding: Encoding,
        batch: &mut Batch,
    ) -> Result<(), Stop> {
        while let Some(frame) = frames.next_frame()? {
            match decode_watch_event_of(encoding, &frame, &self.route.info)? {
                WatchEvent::Present(metadata) => {
                    named(&metadata)?;
                    self.protocol.reached(&metadata.resource_version);
                    self.observe(&metadata, batch);
                }
                WatchEvent::Deleted(metadata) => {
                    named(&metadata)?;
                    self.protocol.reached(&metadata.resource_version);
                    if metadata.uid.is_empty() {
                        continue;
                    }
                    let gone = metadata.observed(self.route.info.id, &mut self.interner);
                    batch.push(Event::Removed {
                        key: gone.key,
                        uid: gone.uid,
                        resource_version: gone.resource_version,
                    });
                }
                WatchEvent::Bookmark(metadata) => {
                    if metadata.initial_events_end && metadata.resource_version.is_empty() {
                        return Err(DecodeError::from(NotTheList::NoVersion).into());
                    }
                    self.protocol.bookmark(&metadata.resource_version, metadata.initial_events_end);
                    self.take_signals(batch);
                }
                WatchEvent::Error(status) => {
                    return Err(Stop::Ended(refusal(status.code, status, None)));
                }
                WatchEvent::Unknown => {}
            }
            if batch.len() >= BATCH_EVENTS {
                self.hand_on(std::mem::take(batch)).await?;
            }
        }
        Ok(())
    }
}

/// Refuses an event whose object has no name.
fn named(metadata: &Metadata<'_>) -> Result<(), DecodeError> {
    if metadata.name.is_empty() { Err(NotTheList::NamelessItem.into()) } else { Ok(()) }
}

fn encoding(headers: &http::HeaderMap) -> Encoding {
    Encoding::of_content_type(headers.get(CONTENT_TYPE))
}

/// Parses an answer that is not a success.
async fn refusal_of(response: Response<Body>) -> Result<Stop, RequestError> {
    let retry_after = retry_after(response.headers());
    let read = tokio::time::timeout(LIST_TIMEOUT, collect(response)).await;
    let answer = read.map_err(|_| RequestError::Timeout(LIST_TIMEOUT))??;
    let status = decode_status(encoding(&answer.head.headers), &answer.body).unwrap_or_else(|| Status {
        message: String::from_utf8_lossy(&answer.body).chars().take(200).collect(),
        ..Status::default()
    });
    Ok(Stop::Ended(refusal(answer.head.status.as_u16(), status, retry_after)))
}

fn refusal(code: u16, status: Status, retry_after: Option<Duration>) -> RequestEnd {
    let retry_after = retry_after.or(wait_of(&status));
    RequestEnd::Refused { code, message: status.message, retry_after }
}

/// Returns the delay that a server without the header requests of its clients.
pub(crate) fn wait_of(status: &Status) -> Option<Duration> {
    let seconds = status.details.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Returns the delay that the server requests of its clients (`Retry-After`), if it is in seconds.
#[must_use]
pub fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::{LIST_ACCEPT, WATCH_ACCEPT};

    /// Every range of the Accept headers, except the last one that all servers accept, must request metadata without managedFields.
    #[test]
    fn managed_fields_are_not_asked_for() {
        for (accept, form) in
            [(LIST_ACCEPT, "PartialObjectMetadataList"), (WATCH_ACCEPT, "PartialObjectMetadata")]
        {
            let ranges: Vec<&str> = accept.split(',').collect();
            let wanted = [
                format!(
                    "application/vnd.kubernetes.protobuf;as={form};g=meta.k8s.io;v=v1;drop=metadata.managedFields"
                ),
                format!("application/json;as={form};g=meta.k8s.io;v=v1;drop=metadata.managedFields"),
                "application/json".to_owned(),
            ];
            assert_eq!(ranges, wanted);
        }
    }
}
