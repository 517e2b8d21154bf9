//! Lists and watches of objects as JSON, of which narrow facts are handed on: what the retention collectors see.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gc_retention::engine::Observation;
use gc_retention::objects::{Facts, FactsError, FactsEvent, FactsPage, Kind, Selection};
use http::header::ACCEPT;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::mpsc;

use crate::backoff::{Backoff, random_fraction};
use crate::connection::{ApiClient, Body, LIST_TIMEOUT, RequestError, collect};
use crate::resources::{Route, push_segment};
use crate::watcher::BATCH_EVENTS;
use crate::wire::frames::Frames;
use crate::wire::metadata::{Encoding, decode_status};
use crate::wire::protobuf::DecodeError;

/// Objects per page: they come whole, so pages are smaller than those of metadata.
const FACTS_PAGE_SIZE: usize = 500;
/// A watch is asked to end after between once and twice this time.
const WATCH_SECONDS: u32 = 290;
/// A watch that outlives its own end by this time is dead.
const WATCH_OVERTIME: Duration = Duration::from_secs(30);
/// A watch that ends sooner counts as a failure, lest it is opened in a tight loop.
const SHORT_WATCH: Duration = Duration::from_secs(1);
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// Why a list or a watch ended.
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
    #[error("the server answered {code}: {message}")]
    Refused { code: u16, message: String },
    #[error("no data for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the watch ended after less than a second")]
    Short,
    #[error("the collector has ended")]
    Closed,
}

/// A page of a list, as far as it is handed on.
#[derive(Debug)]
pub(crate) struct NewsPage<N> {
    pub(crate) resource_version: String,
    /// Empty on the last page.
    pub(crate) continue_token: String,
    pub(crate) items: Vec<N>,
}

/// A line of a watch, as far as it is handed on.
#[derive(Debug)]
pub(crate) enum NewsLine<N> {
    Told(N),
    Error { code: u16, message: String },
    Nothing,
}

/// What reads the JSON of a resource, and keeps of it what is needed.
pub(crate) trait Reader: Send + Sync + 'static {
    /// What is handed on.
    type News: Send + 'static;
    /// Where the resource is.
    fn route(&self) -> &Route;
    /// What is asked for: whole objects, or their metadata.
    fn accept(&self) -> Accept;
    /// Which part of the resource is asked for.
    fn selection(&self) -> Selection {
        Selection::default()
    }
    /// A list begins.
    fn started(&self) -> Self::News;
    /// The list is complete.
    fn synced(&self) -> Self::News;
    /// A list or a watch has failed. Reported once, until the next success.
    fn failed(&self, _why: &FactsWatchError) -> Option<Self::News> {
        None
    }
    fn page(&self, json: &[u8]) -> Result<NewsPage<Self::News>, FactsError>;
    /// A line of a watch, with the version of its object.
    fn line(&self, json: &[u8]) -> Result<(NewsLine<Self::News>, String), FactsError>;
}

/// The Accept headers of lists and watches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accept {
    list: &'static str,
    watch: &'static str,
}

/// Whole objects.
pub(crate) const WHOLE: Accept = Accept { list: "application/json", watch: "application/json" };
/// Metadata alone.
pub(crate) const METADATA: Accept = Accept {
    list: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    watch: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
};

/// Facts of one kind.
#[derive(Debug)]
pub(crate) struct FactsReader {
    kind: Kind,
    route: Route,
}

impl FactsReader {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, route: Route::new(kind.info()) }
    }
}

impl Reader for FactsReader {
    type News = Observation;

    fn route(&self) -> &Route {
        &self.route
    }

    fn accept(&self) -> Accept {
        if self.selection().metadata_only { METADATA } else { WHOLE }
    }

    fn selection(&self) -> Selection {
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
            FactsEvent::Present(facts) => NewsLine::Told(Observation::Observed(facts)),
            FactsEvent::Deleted(facts) => NewsLine::Told(Observation::Removed(facts.key())),
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
}

impl<R: Reader> FactsWatcher<R> {
    pub(crate) fn new(client: ApiClient, reader: Arc<R>, sink: mpsc::Sender<Vec<R::News>>) -> Self {
        Self { client, reader, sink }
    }

    pub(crate) async fn run(self) {
        let mut version: Option<String> = None;
        let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
        let mut told_failure = false;
        loop {
            let step = match version.clone() {
                None => self.list().await.map(|listed| version = Some(listed)),
                Some(from) => self.watch(from, &mut version).await,
            };
            let error = match step {
                Ok(()) => {
                    backoff.reset();
                    told_failure = false;
                    continue;
                }
                Err(FactsWatchError::Closed) => return,
                Err(error) => error,
            };
            tracing::debug!(resource = %self.reader.route().display_name(), %error, "list or watch ended");
            // What was listed stays known while its watch is opened again.
            if version.is_none()
                && !told_failure
                && let Some(news) = self.reader.failed(&error)
            {
                told_failure = true;
                if self.send(vec![news]).await.is_err() {
                    return;
                }
            }
            if let FactsWatchError::Refused { code: 400 | 404 | 410 | 422, .. } = error {
                version = None;
            }
            tokio::time::sleep(backoff.next_delay()).await;
        }
    }

    async fn send(&self, batch: Vec<R::News>) -> Result<(), FactsWatchError> {
        self.sink.send(batch).await.map_err(|_| FactsWatchError::Closed)
    }

    async fn list(&self) -> Result<String, FactsWatchError> {
        self.send(vec![self.reader.started()]).await?;
        let mut pages = Pages::new(Arc::clone(&self.reader), "");
        let mut version = String::new();
        while let Some(page) = pages.next(&self.client).await? {
            version = page.resource_version;
            let mut items = page.items.into_iter().peekable();
            while items.peek().is_some() {
                let batch = items.by_ref().take(BATCH_EVENTS).collect();
                self.send(batch).await?;
            }
        }
        self.send(vec![self.reader.synced()]).await?;
        Ok(version)
    }

    /// Watches from a version on, noting how far it has come.
    async fn watch(&self, from: String, reached: &mut Option<String>) -> Result<(), FactsWatchError> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // in [0, WATCH_SECONDS)
        let seconds = WATCH_SECONDS + (random_fraction() * f64::from(WATCH_SECONDS)) as u32;
        let (route, selection) = (self.reader.route(), self.reader.selection());
        let mut uri = route.collection(selection.namespace);
        uri.push_str("?watch=true&allowWatchBookmarks=true&timeoutSeconds=");
        uri.push_str(&seconds.to_string());
        uri.push_str("&resourceVersion=");
        push_segment(&mut uri, &from);
        push_selector(&mut uri, selection);
        let response = get(&self.client, &uri, self.reader.accept().watch, route.info.id.0 as usize).await?;
        let mut frames = Frames::new(Encoding::Json);
        let mut body = response.into_body();
        let started = Instant::now();
        let allowed = Duration::from_secs(u64::from(seconds)) + WATCH_OVERTIME;
        loop {
            let frame = match tokio::time::timeout(allowed, body.frame()).await {
                Err(_) => return Err(FactsWatchError::Silent(allowed)),
                Ok(None) if started.elapsed() < SHORT_WATCH => return Err(FactsWatchError::Short),
                Ok(None) => return Ok(()),
                Ok(Some(Err(error))) => return Err(RequestError::Body(error).into()),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(chunk) = frame.into_data() else { continue };
            frames.push(&chunk);
            let mut batch = Vec::new();
            while let Some(line) = frames.next_frame()? {
                let (line, version) = self.reader.line(&line)?;
                match line {
                    NewsLine::Told(news) => batch.push(news),
                    NewsLine::Error { code, message } => {
                        self.send(batch).await?;
                        return Err(FactsWatchError::Refused { code, message });
                    }
                    NewsLine::Nothing => {}
                }
                // A version without an event counts only after every event before it was delivered.
                if !version.is_empty() {
                    if batch.len() >= BATCH_EVENTS {
                        self.send(std::mem::take(&mut batch)).await?;
                    }
                    *reached = Some(version);
                }
            }
            if !batch.is_empty() {
                self.send(batch).await?;
            }
        }
    }
}

fn push_selector(uri: &mut String, selection: Selection) {
    if !selection.field_selector.is_empty() {
        uri.push_str("&fieldSelector=");
        push_segment(uri, selection.field_selector);
    }
}

/// The pages of a list, one after the other.
pub(crate) struct Pages<R> {
    reader: Arc<R>,
    base: String,
    continue_token: Option<String>,
}

impl<R: Reader> Pages<R> {
    pub(crate) fn new(reader: Arc<R>, namespace: &str) -> Self {
        let selection = reader.selection();
        let namespace = if selection.namespace.is_empty() { namespace } else { selection.namespace };
        let mut base = format!("{}?limit={FACTS_PAGE_SIZE}", reader.route().collection(namespace));
        push_selector(&mut base, selection);
        Self { reader, base, continue_token: Some(String::new()) }
    }

    pub(crate) async fn next(
        &mut self,
        client: &ApiClient,
    ) -> Result<Option<NewsPage<R::News>>, FactsWatchError> {
        let Some(token) = self.continue_token.take() else { return Ok(None) };
        let mut uri = self.base.clone();
        if !token.is_empty() {
            uri.push_str("&continue=");
            push_segment(&mut uri, &token);
        }
        let number = self.reader.route().info.id.0 as usize;
        let response = get(client, &uri, self.reader.accept().list, number).await?;
        let answer = tokio::time::timeout(LIST_TIMEOUT, collect(response))
            .await
            .map_err(|_| RequestError::Timeout(LIST_TIMEOUT))??;
        let page = self.reader.page(&answer.body)?;
        self.continue_token = (!page.continue_token.is_empty()).then(|| page.continue_token.clone());
        Ok(Some(page))
    }
}

/// Every object of a kind in a namespace, read from the store and not from a cache.
pub(crate) async fn list_live(
    client: &ApiClient,
    kind: Kind,
    namespace: &str,
) -> Result<Vec<Facts>, FactsWatchError> {
    let mut pages = Pages::new(Arc::new(FactsReader::new(kind)), namespace);
    let mut found = Vec::new();
    while let Some(page) = pages.next(client).await? {
        found.extend(page.items.into_iter().filter_map(|news| match news {
            Observation::Observed(facts) => Some(facts),
            _ => None,
        }));
    }
    Ok(found)
}

async fn get(
    client: &ApiClient,
    uri: &str,
    accept: &'static str,
    number: usize,
) -> Result<Response<Body>, FactsWatchError> {
    let request =
        Request::builder().method(Method::GET).uri(uri).header(ACCEPT, accept).body(Full::default())?;
    let response = client.open(number, request).await?;
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status().as_u16();
    let answer = tokio::time::timeout(LIST_TIMEOUT, collect(response))
        .await
        .map_err(|_| RequestError::Timeout(LIST_TIMEOUT))??;
    let message = match decode_status(Encoding::Json, &answer.body) {
        Some(status) => status.message,
        None => String::from_utf8_lossy(&answer.body).chars().take(200).collect(),
    };
    Err(FactsWatchError::Refused { code, message })
}
