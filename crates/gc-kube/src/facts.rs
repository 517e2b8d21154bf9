//! Lists and watches objects as JSON and passes on narrow facts of them to the retention collectors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gc_collectors::engine::Observation;
use gc_collectors::objects::{Facts, FactsError, FactsEvent, FactsPage, Kind, Selection};
use gc_controller::concurrency;
use gc_controller::requests::PerformedRequest;
use gc_controller::watch::{Ask, ListWatch, RequestEnd, Signal};
use gc_types::Outcome;
use http::header::ACCEPT;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::mpsc;

use crate::backoff::random_fraction;
use crate::connection::{ApiClient, Body, LIST_TIMEOUT, RequestError, collect};
use crate::resources::{ResourceTable, Route, push_segment};
use crate::watcher::{BATCH_EVENTS, SAME_PAGE, retry_after, wait_of};
use crate::wire::frames::Frames;
use crate::wire::metadata::{Encoding, decode_status};
use crate::wire::protobuf::DecodeError;

/// Number of objects per page: objects are complete, so pages are smaller than those of metadata.
const FACTS_PAGE_SIZE: usize = 500;
/// Reason why a list or a watch ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FactsWatchError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the request cannot be made: {0}")]
    Unsendable(#[from] http::Error),
    #[error("a malformed frame: {0}")]
    Frame(#[from] DecodeError),
    #[error("a malformed answer: {0}")]
    Malformed(#[from] FactsError),
    #[error("{SAME_PAGE}")]
    SamePage,
    #[error("the server answered {code}: {message}")]
    Refused { code: u16, message: String, retry_after: Option<Duration> },
    #[error("no data for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the watch ended")]
    Finished,
    #[error("the collector has ended")]
    Closed,
}

impl FactsWatchError {
    /// Converts the error to the protocol's end of a request; `None` if the receiver is gone.
    fn ended(&self) -> Option<RequestEnd> {
        Some(match self {
            Self::Closed => return None,
            Self::Request(RequestError::TooLarge) => RequestEnd::TooLarge,
            Self::Request(error) => RequestEnd::Unreachable(error.to_string()),
            Self::Unsendable(_) | Self::Frame(_) | Self::Malformed(_) | Self::SamePage => {
                RequestEnd::Malformed(self.to_string())
            }
            Self::Refused { code, message, retry_after } => {
                RequestEnd::Refused { code: *code, message: message.clone(), retry_after: *retry_after }
            }
            Self::Silent(wait) => RequestEnd::Silent(*wait),
            Self::Finished => RequestEnd::Finished,
        })
    }

    /// Converts a failed live read to its result; it is retried no sooner than the server permits.
    pub(crate) fn performed(&self) -> PerformedRequest {
        let (wait, signal) = match self {
            Self::Refused { code, retry_after, .. } => {
                (*retry_after, concurrency::Signal::of_answer(*code, || *retry_after))
            }
            Self::Request(_) => (None, concurrency::Signal::Busy(None)),
            _ => (None, concurrency::Signal::Answered),
        };
        let retry_after_milliseconds = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let outcome = Outcome::Failed { message: self.to_string(), retry_after_milliseconds };
        PerformedRequest { outcome, signal, round_trips: 1 }
    }
}

/// State of a resource's watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchState {
    /// A list or a watch has failed and is being retried.
    Failing {
        /// HTTP status code, if the server has answered.
        code: Option<u16>,
        /// Description of the failure.
        message: String,
    },
    /// The objects have been listed, and every change is received.
    Listed,
    /// The watch continues at the point where it broke off: nothing was missed.
    Resumed,
}

impl WatchState {
    fn failing(why: &RequestEnd) -> Self {
        let code = match why {
            RequestEnd::Refused { code, .. } => Some(*code),
            _ => None,
        };
        Self::Failing { code, message: why.to_string() }
    }
}

/// Relevant part of a page of a list.
#[derive(Debug)]
pub(crate) struct NewsPage<N> {
    pub(crate) resource_version: String,
    /// Empty on the last page.
    pub(crate) continue_token: String,
    pub(crate) items: Vec<N>,
}

/// Relevant part of a line of a watch.
#[derive(Debug)]
pub(crate) enum NewsLine<N> {
    Object(N),
    Error { code: u16, message: String },
    Nothing,
}

/// Parser of a resource's JSON that keeps the needed part.
pub(crate) trait Reader: Send + Sync + 'static {
    /// Message to the collector.
    type News: Send + 'static;
    /// Returns the route of the resource.
    fn route(&self) -> &Route;
    /// Returns the number of versions under which servers may have the resource.
    fn versions(&self) -> usize {
        1
    }
    /// Switches to the next of these versions, if the resource is not served under the current one.
    fn turn(&self) {}
    /// Returns the requested form: complete objects, or their metadata.
    fn accept(&self) -> Accept;
    /// Returns the requested part of the resource.
    fn selection(&self) -> Selection<'_> {
        Selection::default()
    }
    /// Returns the message that a list begins.
    fn started(&self) -> Self::News;
    /// Returns the message that the list is complete.
    fn synced(&self) -> Self::News;
    /// Returns the message that a list or a watch has failed. Sent once, until the next success.
    fn failed(&self, _why: &RequestEnd) -> Option<Self::News> {
        None
    }
    /// Receives the state of the watch, with each failure and with each success after one.
    fn note(&self, _state: WatchState) {}
    fn page(&self, json: &[u8]) -> Result<NewsPage<Self::News>, FactsError>;
    /// Reads a line of a watch, with the version of its object.
    fn line(&self, json: &[u8]) -> Result<(NewsLine<Self::News>, String), FactsError>;
}

/// Accept headers of lists and watches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accept {
    list: &'static str,
    watch: &'static str,
}

/// Complete objects.
pub(crate) const WHOLE: Accept = Accept { list: "application/json", watch: "application/json" };
/// Metadata only.
pub(crate) const METADATA: Accept = Accept {
    list: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    watch: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
};

/// Reads facts of one kind.
#[derive(Debug)]
pub(crate) struct FactsReader {
    kind: Kind,
    /// At least one route, one for each version.
    routes: Vec<Route>,
    current: AtomicUsize,
    /// Table in which requests find the route.
    table: ResourceTable,
}

impl FactsReader {
    /// Creates a reader, which puts the route under which the resource is found into the table.
    pub(crate) fn new(kind: Kind, table: ResourceTable) -> Self {
        let routes = kind.infos().into_iter().map(Route::new).collect();
        let reader = Self { kind, routes, current: AtomicUsize::new(0), table };
        reader.table.insert(Arc::new(reader.route().clone()));
        reader
    }
}

impl Reader for FactsReader {
    type News = Observation;

    fn route(&self) -> &Route {
        &self.routes[self.current.load(Ordering::Relaxed)]
    }

    fn versions(&self) -> usize {
        self.routes.len()
    }

    fn turn(&self) {
        let next = (self.current.load(Ordering::Relaxed) + 1) % self.routes.len();
        self.current.store(next, Ordering::Relaxed);
        self.table.insert(Arc::new(self.route().clone()));
    }

    fn accept(&self) -> Accept {
        if self.selection().metadata_only { METADATA } else { WHOLE }
    }

    fn selection(&self) -> Selection<'_> {
        self.kind.selection()
    }

    fn started(&self) -> Observation {
        Observation::ListStarted(self.kind)
    }

    fn synced(&self) -> Observation {
        Observation::Synced(self.kind)
    }

    fn page(&self, json: &[u8]) -> Result<NewsPage<Observation>, FactsError> {
        let FactsPage { resource_version, continue_token, items } = FactsPage::read(self.kind, json)?;
        let items = items.into_iter().map(Observation::Observed).collect();
        Ok(NewsPage { resource_version, continue_token, items })
    }

    fn line(&self, json: &[u8]) -> Result<(NewsLine<Observation>, String), FactsError> {
        let (event, version) = FactsEvent::read(self.kind, json)?;
        let line = match event {
            FactsEvent::Present(facts) => NewsLine::Object(Observation::Observed(facts)),
            FactsEvent::Deleted(facts) => NewsLine::Object(Observation::Removed(facts.key())),
            FactsEvent::Error { code, message } => NewsLine::Error { code, message },
            FactsEvent::Bookmark(_) | FactsEvent::Unknown => NewsLine::Nothing,
        };
        Ok((line, version))
    }
}

/// Lists and watches one resource until its task is aborted.
#[derive(Debug)]
pub(crate) struct FactsWatcher<R: Reader> {
    client: ApiClient,
    reader: Arc<R>,
    sink: mpsc::Sender<Vec<R::News>>,
    protocol: ListWatch,
    /// True while a list has begun but is incomplete.
    listing: bool,
    has_reported_failure: bool,
}

impl<R: Reader> FactsWatcher<R> {
    pub(crate) fn new(client: ApiClient, reader: Arc<R>, sink: mpsc::Sender<Vec<R::News>>) -> Self {
        let protocol = ListWatch::new(false);
        Self { client, reader, sink, protocol, listing: false, has_reported_failure: false }
    }

    /// Lists again after each failure that may have been a restart of the server.
    pub(crate) fn relisting(self) -> Self {
        Self { protocol: self.protocol.relisting(), ..self }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let ask = self.protocol.ask(random_fraction());
            let started = Instant::now();
            let Err(error) = self.perform(ask).await else { continue };
            let Some(ended) = error.ended() else { return };
            tracing::debug!(resource = %self.reader.route().display_name(), %error, "list or watch ended");
            self.protocol.ended(&ended, started.elapsed(), random_fraction());
            if self.hand_on(Vec::new()).await.is_err() {
                return;
            }
        }
    }

    async fn perform(&mut self, ask: Ask) -> Result<(), FactsWatchError> {
        self.hand_on(Vec::new()).await?;
        match ask {
            Ask::Wait(pause) => tokio::time::sleep(pause).await,
            Ask::Page { is_paged, continue_token } => self.list(is_paged, &continue_token).await?,
            Ask::Newest => {
                let (page, _) = page(&self.client, &*self.reader, "", "limit=1").await?;
                self.protocol.newest_read(&page.resource_version);
            }
            Ask::Watch { from, seconds } => self.watch(&from.unwrap_or_default(), seconds).await?,
        }
        self.hand_on(Vec::new()).await
    }

    /// Sends a batch, followed by the protocol's own messages.
    async fn hand_on(&mut self, mut batch: Vec<R::News>) -> Result<(), FactsWatchError> {
        while let Some(signal) = self.protocol.poll_signal() {
            match signal {
                Signal::ListStarted => {
                    self.listing = true;
                    batch.push(self.reader.started());
                }
                Signal::Synced(_) if std::mem::take(&mut self.listing) => {
                    self.has_reported_failure = false;
                    self.reader.note(WatchState::Listed);
                    batch.push(self.reader.synced());
                }
                // A resumed watch has listed nothing.
                Signal::Synced(_) => self.reader.note(WatchState::Resumed),
                Signal::Failing { why, .. } => {
                    self.reader.note(WatchState::failing(&why));
                    // Listed objects stay known while their watch is reopened.
                    if !self.protocol.is_listed() && !self.has_reported_failure {
                        let news = self.reader.failed(&why);
                        self.has_reported_failure = news.is_some();
                        batch.extend(news);
                    }
                }
                _ => {}
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.sink.send(batch).await.map_err(|_| FactsWatchError::Closed)
    }

    async fn list(&mut self, is_paged: bool, continue_token: &str) -> Result<(), FactsWatchError> {
        let mut query = String::new();
        if is_paged {
            query = page_query(self.protocol.page_size(FACTS_PAGE_SIZE), continue_token);
        }
        let (page, bytes) = page(&self.client, &*self.reader, "", &query).await?;
        self.protocol.page_came(bytes);
        goes_on(&page.continue_token, continue_token)?;
        let mut items = page.items.into_iter().peekable();
        while items.peek().is_some() {
            let batch = items.by_ref().take(BATCH_EVENTS).collect();
            self.hand_on(batch).await?;
        }
        self.protocol.page_read(&page.resource_version, &page.continue_token);
        Ok(())
    }

    /// Watches from a version, and records the version reached.
    async fn watch(&mut self, from: &str, seconds: u32) -> Result<(), FactsWatchError> {
        let (route, selection) = (self.reader.route(), self.reader.selection());
        let mut uri = route.collection(selection.namespace);
        uri.push_str("?watch=true&allowWatchBookmarks=true&timeoutSeconds=");
        uri.push_str(&seconds.to_string());
        uri.push_str("&resourceVersion=");
        push_segment(&mut uri, from);
        push_selector(&mut uri, selection);
        let response = get(&self.client, &uri, self.reader.accept().watch).await?;
        let mut frames = Frames::new(Encoding::Json);
        let mut body = response.into_body();
        self.protocol.opened();
        loop {
            let allowed = self.protocol.patience();
            let frame = match tokio::time::timeout(allowed, body.frame()).await {
                Err(_) => return Err(FactsWatchError::Silent(allowed)),
                Ok(None) => return Err(FactsWatchError::Finished),
                Ok(Some(Err(error))) => return Err(RequestError::Body(error).into()),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(chunk) = frame.into_data() else { continue };
            frames.push(&chunk);
            let mut batch = Vec::new();
            let taken = self.take_lines(&mut frames, &mut batch).await;
            // Objects before an unreadable one count as reached, and are not delivered again.
            self.hand_on(batch).await?;
            taken?;
        }
    }

    async fn take_lines(
        &mut self,
        frames: &mut Frames,
        batch: &mut Vec<R::News>,
    ) -> Result<(), FactsWatchError> {
        while let Some(line) = frames.next_frame()? {
            let (line, version) = self.reader.line(&line)?;
            match line {
                NewsLine::Object(news) => batch.push(news),
                NewsLine::Error { code, message } => {
                    return Err(FactsWatchError::Refused { code, message, retry_after: None });
                }
                NewsLine::Nothing => {}
            }
            // A version without an event only counts once every event before it was delivered.
            if batch.len() >= BATCH_EVENTS {
                self.hand_on(std::mem::take(batch)).await?;
            }
            self.protocol.reached(&version);
        }
        Ok(())
    }
}

fn push_selector(uri: &mut String, selection: Selection<'_>) {
    if !selection.field_selector.is_empty() {
        uri.push_str("&fieldSelector=");
        push_segment(uri, selection.field_selector);
    }
}

/// Returns the query for a page of this number of objects.
fn page_query(size: usize, continue_token: &str) -> String {
    let mut query = format!("limit={size}");
    if !continue_token.is_empty() {
        query.push_str("&continue=");
        push_segment(&mut query, continue_token);
    }
    query
}

/// Reads a page of a list; also returns its size in bytes. If the resource is not served, its other versions are tried.
async fn page<R: Reader>(
    client: &ApiClient,
    reader: &R,
    namespace: &str,
    query: &str,
) -> Result<(NewsPage<R::News>, usize), FactsWatchError> {
    for _ in 1..reader.versions() {
        match page_of_version(client, reader, namespace, query).await {
            Err(FactsWatchError::Refused { code: 404, .. }) => reader.turn(),
            done => return done,
        }
    }
    page_of_version(client, reader, namespace, query).await
}

async fn page_of_version<R: Reader>(
    client: &ApiClient,
    reader: &R,
    namespace: &str,
    query: &str,
) -> Result<(NewsPage<R::News>, usize), FactsWatchError> {
    let (route, selection) = (reader.route(), reader.selection());
    let namespace = if selection.namespace.is_empty() { namespace } else { selection.namespace };
    let mut uri = format!("{}?{query}", route.collection(namespace));
    push_selector(&mut uri, selection);
    let response = get(client, &uri, reader.accept().list).await?;
    let answer = tokio::time::timeout(LIST_TIMEOUT, collect(response))
        .await
        .map_err(|_| RequestError::Timeout(LIST_TIMEOUT))??;
    Ok((reader.page(&answer.body)?, answer.body.len()))
}

/// Checks that a page does not lead to itself.
fn goes_on(next: &str, token: &str) -> Result<(), FactsWatchError> {
    if !next.is_empty() && next == token { Err(FactsWatchError::SamePage) } else { Ok(()) }
}

/// Reads every object of a kind in a namespace from the store, not from a cache.
pub(crate) async fn list_live(
    client: &ApiClient,
    kind: Kind,
    namespace: &str,
) -> Result<Vec<Facts>, FactsWatchError> {
    let reader = FactsReader::new(kind, ResourceTable::default());
    let (mut token, mut found) = (String::new(), Vec::new());
    let mut size = FACTS_PAGE_SIZE;
    loop {
        let page = match page(client, &reader, namespace, &page_query(size, &token)).await {
            Ok((page, _)) => page,
            Err(FactsWatchError::Request(RequestError::TooLarge)) if size > 1 => {
                size = (size / 4).max(1);
                continue;
            }
            Err(error) => return Err(error),
        };
        goes_on(&page.continue_token, &token)?;
        found.extend(page.items.into_iter().filter_map(|news| match news {
            Observation::Observed(facts) => Some(facts),
            _ => None,
        }));
        token = page.continue_token;
        if token.is_empty() {
            return Ok(found);
        }
    }
}

async fn get(client: &ApiClient, uri: &str, accept: &'static str) -> Result<Response<Body>, FactsWatchError> {
    let request =
        Request::builder().method(Method::GET).uri(uri).header(ACCEPT, accept).body(Full::default())?;
    let response = client.open(request).await?;
    if response.status().is_success() {
        return Ok(response);
    }
    let (code, retry_after) = (response.status().as_u16(), retry_after(response.headers()));
    let answer = tokio::time::timeout(LIST_TIMEOUT, collect(response))
        .await
        .map_err(|_| RequestError::Timeout(LIST_TIMEOUT))??;
    let (message, wait) = match decode_status(Encoding::Json, &answer.body) {
        Some(status) => (status.message.clone(), wait_of(&status)),
        None => (String::from_utf8_lossy(&answer.body).chars().take(200).collect(), None),
    };
    Err(FactsWatchError::Refused { code, message, retry_after: retry_after.or(wait) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    /// A busy server states in a header or in its answer how long clients should wait.
    #[tokio::test]
    async fn a_live_list_waits_as_long_as_the_server_asks_for() {
        for (header, seconds, expected) in
            [(Some("7"), 0, Some(7)), (None, 5, Some(5)), (Some("7"), 5, Some(7)), (None, 0, None)]
        {
            let client = ApiClient::in_process(move |_| async move {
                let answer = http::Response::builder().status(429);
                let answer =
                    header.into_iter().fold(answer, |answer, wait| answer.header("Retry-After", wait));
                let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m",
                    "reason": "TooManyRequests", "code": 429, "details": {"retryAfterSeconds": seconds}});
                answer.body(Full::new(bytes::Bytes::from(status.to_string()))).unwrap()
            });
            let error = list_live(&client, Kind::Pod, "n").await.unwrap_err();
            let Outcome::Failed { retry_after_milliseconds, .. } = error.performed().outcome else {
                panic!("{error}")
            };
            assert_eq!(
                retry_after_milliseconds,
                expected.map(|seconds| seconds * 1000),
                "{header:?} {seconds}"
            );
        }
    }

    #[test]
    fn a_live_read_is_retried_no_sooner_than_the_server_asks_for() {
        let wait = Some(Duration::from_secs(3));
        let refused = |code| FactsWatchError::Refused { code, message: "m".to_owned(), retry_after: wait };
        let performed = |message: &str, retry_after_milliseconds, signal| PerformedRequest {
            outcome: Outcome::Failed { message: message.to_owned(), retry_after_milliseconds },
            signal,
            round_trips: 1,
        };
        let busy = concurrency::Signal::Busy(wait);
        let cases = [
            (refused(429), performed("the server answered 429: m", Some(3000), busy)),
            (refused(503), performed("the server answered 503: m", Some(3000), busy)),
            (
                refused(403),
                performed("the server answered 403: m", Some(3000), concurrency::Signal::Answered),
            ),
            (FactsWatchError::Finished, performed("the watch ended", None, concurrency::Signal::Answered)),
            (
                FactsWatchError::Request(RequestError::Timeout(LIST_TIMEOUT)),
                performed(
                    &RequestError::Timeout(LIST_TIMEOUT).to_string(),
                    None,
                    concurrency::Signal::Busy(None),
                ),
            ),
        ];
        for (error, expected) in cases {
            assert_eq!(error.performed(), expected, "{error}");
        }
    }
}
