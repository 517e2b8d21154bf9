//! The watch of one resource. As in the product, [`gc_controller::watch`] decides what to ask, and what follows from responses and
//! failures; here the server is asked directly, and its answers are delivered slowly.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use gc_controller::watch::{Ask, ListWatch, RequestEnd, Signal};
use gc_registry::api::{Object, WatchEvent};
use gc_registry::error::ApiError;
use gc_registry::watch::Watch;
use gc_types::{Event, ObservedObject, ResourceId, ResourceVersion, Uid};

use crate::kinds::KINDS;
use crate::liars::{LiarEvent, Lie, LieChannel, another_uid, event_instead, list_instead};
use crate::metadata::observed;
use crate::server::{Server, polled};
use crate::story::StreamFault;

/// Lag of the cache that answers the list of [`StreamFault::StaleList`], in revisions.
const STALE_LIST_BEHIND: u64 = 9;
/// Maximum number of questions to the server before it is left alone for a while: a pause, its progress, a watch or a list, and the
/// consequence of a refusal.
const QUESTIONS: usize = 4;
/// Time for which a breaking watch had been open: neither too short nor at its end.
const OPEN_FOR: Duration = Duration::from_mins(2);

/// Delivery of a watch, and its object.
pub(crate) type Delivery = (Event, Option<Arc<Object>>);

/// State of the server's stream.
enum Stream {
    Nothing,
    List { items: VecDeque<Delivery>, version: String },
    Watch(Box<Watch>),
}

pub(crate) struct Watcher {
    pub(crate) kind: usize,
    protocol: ListWatch,
    stream: Stream,
    /// Version up to which everything has been delivered.
    pub(crate) delivered: u64,
    /// Number of revisions by which the cache that answers the next list is behind.
    behind: u64,
    /// Number of times that part of a list, or an older change, was delivered again.
    pub(crate) redelivered: u64,
    /// Newest version that was ever delivered.
    newest: u64,
    /// Next lie, with the seed of its choices.
    pub(crate) lie: Option<(Lie, u64)>,
    /// Object and version that a false event has shown before the server gave it.
    pub(crate) foretold: Option<(Uid, u64)>,
    /// True if a defect takes any other response for an empty list.
    pub(crate) believes_anything: bool,
}

impl Watcher {
    pub(crate) fn new(kind: usize) -> Self {
        Self {
            kind,
            protocol: ListWatch::new(false),
            stream: Stream::Nothing,
            delivered: 0,
            behind: 0,
            redelivered: 0,
            newest: 0,
            lie: None,
            foretold: None,
            believes_anything: false,
        }
    }

    pub(crate) fn read(&mut self, id: ResourceId, most: usize, server: &Server) -> Vec<Delivery> {
        let mut events = Vec::new();
        if let Stream::Nothing = self.stream {
            self.ask(id, server, &mut events);
            if let Stream::List { .. } = self.stream {
                return events;
            }
        }
        match &mut self.stream {
            Stream::List { items, version } => {
                self.redelivered += 1;
                let count = most.min(items.len());
                events.extend(items.drain(..count));
                if items.is_empty() {
                    let version = std::mem::take(version);
                    self.stream = Stream::Nothing;
                    self.delivered = version.parse().unwrap_or(0);
                    self.protocol.page_read(&version, "");
                    self.take_signals(id, &mut events);
                    self.ask(id, server, &mut events);
                }
            }
            Stream::Watch(_) => self.read_watch(id, most, server, &mut events),
            Stream::Nothing => {}
        }
        events
    }

    /// Asks the server the next question. Pauses take no time.
    fn ask(&mut self, id: ResourceId, server: &Server, events: &mut Vec<Delivery>) {
        for _ in 0..QUESTIONS {
            let ask = self.protocol.ask(0.0);
            self.take_signals(id, events);
            let refused = match ask {
                Ask::Wait(_) => None,
                Ask::Page { .. } => self.list(id, server),
                Ask::Newest => self.ask_for_newest(server),
                Ask::Watch { from, .. } => self.open(from.as_deref(), server),
            };
            if let Some(error) = refused {
                let (code, message) = (error.code, error.message);
                let ended = RequestEnd::Refused { code, message, retry_after: None };
                self.protocol.ended(&ended, OPEN_FOR, 0.0);
            }
            self.take_signals(id, events);
            if !matches!(self.stream, Stream::Nothing) {
                return;
            }
        }
    }

    fn list(&mut self, id: ResourceId, server: &Server) -> Option<ApiError> {
        let kind = &KINDS[self.kind];
        let behind = std::mem::take(&mut self.behind);
        let stale = (behind > 0)
            .then(|| server.list(kind, "", Some(server.revision().saturating_sub(behind))))
            .flatten()
            .and_then(Result::ok);
        let list = match stale.map_or_else(|| server.list(kind, "", None), |list| Some(Ok(list))) {
            None => return Some(not_served()),
            Some(Err(error)) => return Some(error),
            Some(Ok(list)) => list,
        };
        let lies_about_uids = self.lie.is_some_and(|(lie, _)| lie == Lie::OtherUids);
        let delivery = |item: &Arc<Object>| {
            let mut object = observed(item, id)?;
            if lies_about_uids {
                object.uid = another_uid(&object.uid);
            }
            Some((Event::Observed(object), Some(Arc::clone(item))))
        };
        let (items, version) = match self.lie.take_if(|(lie, _)| lie.channel() == LieChannel::Lists) {
            None => (list.items, list.resource_version),
            Some(lie) => match list_instead(lie, list, self.kind, server) {
                Some(lied) => lied,
                None if self.believes_anything => (Vec::new(), String::new()),
                None => return Some(ApiError::internal("not a list")),
            },
        };
        let items = items.iter().filter_map(delivery).collect();
        self.stream = Stream::List { items, version };
        None
    }

    /// Tells the pending lie of a watch, if there is one, as soon as it can.
    fn lie_in_watch(&mut self, id: ResourceId, server: &Server, events: &mut Vec<Delivery>) {
        let Some(lie) = self.lie.filter(|(lie, _)| lie.channel() == LieChannel::Watches) else { return };
        let Some(event) = event_instead(lie, &KINDS[self.kind], server) else { return };
        match event {
            LiarEvent::Progress(version) => {
                self.protocol.bookmark(&version.to_string(), false);
                self.take_signals(id, events);
            }
            LiarEvent::Added(object) => {
                let Some(observed) = observed(&object, id) else { return };
                events.push((Event::Observed(observed), Some(object)));
            }
            LiarEvent::Changed { object, version, change } => {
                let Some(mut observed) = observed(&object, id) else { return };
                observed.resource_version = ResourceVersion(version);
                change(&mut observed);
                self.foretold = Some((observed.uid.clone(), version));
                events.push((Event::Observed(observed), None));
            }
            LiarEvent::Removed { object, version, name } => {
                let Some(removed) = removed(&object, id, version, name) else { return };
                events.push((removed, None));
            }
        }
        self.lie = None;
    }

    fn ask_for_newest(&mut self, server: &Server) -> Option<ApiError> {
        match server.list(&KINDS[self.kind], "", None) {
            None => Some(not_served()),
            Some(Err(error)) => Some(error),
            Some(Ok(list)) => {
                self.protocol.newest_read(&list.resource_version);
                None
            }
        }
    }

    fn open(&mut self, from: Option<&str>, server: &Server) -> Option<ApiError> {
        server.pump();
        let from = from.and_then(|version| version.parse().ok()).unwrap_or(self.delivered);
        match server.watch(&KINDS[self.kind], from) {
            None => Some(not_served()),
            Some(Err(error)) => Some(error),
            Some(Ok(watch)) => {
                self.stream = Stream::Watch(Box::new(watch));
                self.protocol.opened();
                None
            }
        }
    }

    fn take_signals(&mut self, id: ResourceId, events: &mut Vec<Delivery>) {
        while let Some(signal) = self.protocol.poll_signal() {
            let event = match signal {
                Signal::ListStarted => Event::ListStarted(id),
                Signal::Synced(resource_version) => Event::Synced { resource: id, resource_version },
                Signal::Progress(resource_version) => Event::Progress { resource: id, resource_version },
                Signal::Stale => Event::Stale(id),
                Signal::NotServed | Signal::Failing { .. } => continue,
            };
            events.push((event, None));
        }
    }

    fn end(&mut self, ended: &RequestEnd) {
        self.stream = Stream::Nothing;
        self.protocol.ended(ended, OPEN_FOR, 0.0);
    }

    fn read_watch(&mut self, id: ResourceId, most: usize, server: &Server, events: &mut Vec<Delivery>) {
        server.pump();
        self.lie_in_watch(id, server, events);
        let Stream::Watch(watch) = &mut self.stream else { return };
        let mut end = None;
        for _ in 0..most {
            let (object, removed) = match watch.poll_next(&mut polled()) {
                Poll::Pending => {
                    if let Some(WatchEvent::Bookmark { resource_version, .. }) = watch.bookmark()
                        && let Ok(version) = resource_version.parse::<u64>()
                        && version > self.delivered
                    {
                        self.delivered = version;
                        self.protocol.bookmark(&resource_version, false);
                    }
                    break;
                }
                Poll::Ready(Some(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    (object, false)
                }
                Poll::Ready(Some(WatchEvent::Deleted(object))) => (object, true),
                Poll::Ready(Some(WatchEvent::Bookmark { .. })) => continue,
                Poll::Ready(Some(WatchEvent::Error(error))) => {
                    let (code, message) = (error.code, error.message.clone());
                    end = Some(RequestEnd::Refused { code, message, retry_after: None });
                    break;
                }
                Poll::Ready(None) => {
                    end = Some(RequestEnd::Finished);
                    break;
                }
            };
            let Some(observed) = observed(&object, id) else { continue };
            let version = observed.resource_version.0;
            self.redelivered += u64::from(version <= self.newest);
            self.newest = self.newest.max(version);
            self.delivered = self.delivered.max(version);
            self.protocol.reached(&version.to_string());
            let event = if removed {
                let (key, uid, resource_version) = (observed.key, observed.uid, observed.resource_version);
                Event::Removed { key, uid, resource_version }
            } else {
                Event::Observed(observed)
            };
            events.push((event, Some(object)));
        }
        if let Some(ended) = end {
            self.end(&ended);
        }
        self.take_signals(id, events);
    }

    /// Breaks the watch. Returns true if its deliveries count as stale from now on, and did not before.
    pub(crate) fn break_off(&mut self, fault: StreamFault) -> bool {
        let is_open = matches!(self.stream, Stream::Watch(_));
        let gone = || RequestEnd::Refused { code: 410, message: "too old".to_owned(), retry_after: None };
        match fault {
            StreamFault::Cut if is_open => self.end(&RequestEnd::Finished),
            StreamFault::Stale if is_open => {
                self.end(&RequestEnd::Unreachable("the connection broke".to_owned()));
            }
            StreamFault::Cut | StreamFault::Stale => {}
            StreamFault::Expired => self.end(&gone()),
            StreamFault::StaleList => {
                self.end(&gone());
                self.behind = STALE_LIST_BEHIND;
            }
        }
        std::iter::from_fn(|| self.protocol.poll_signal()).any(|signal| signal == Signal::Stale)
    }
}

/// Returns the removal of an object at a version, perhaps under another name.
fn removed(object: &Object, id: ResourceId, version: u64, name: Option<&'static str>) -> Option<Event> {
    let ObservedObject { mut key, uid, .. } = observed(object, id)?;
    if let Some(name) = name {
        key.name = name.into();
    }
    Some(Event::Removed { key, uid, resource_version: ResourceVersion(version) })
}

fn not_served() -> ApiError {
    ApiError::not_found("", "", "")
}
