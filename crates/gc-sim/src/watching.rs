//! The watch of one resource: lists, tells what changes, breaks, and goes on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use gc_registry::api::{Object, WatchEvent};
use gc_registry::watch::Watch;
use gc_types::{Event, ResourceId, ResourceVersion};

use crate::kinds::KINDS;
use crate::metadata::observed;
use crate::server::{Server, polled};
use crate::story::StreamFault;

/// How many revisions the cache is behind that answers the list of [`StreamFault::StaleList`].
const STALE_LIST_BEHIND: u64 = 9;

/// What a watch tells, and the object that it tells of.
pub(crate) type Told = (Event, Option<Arc<Object>>);

/// Where the watch of a resource is.
pub(crate) enum Stream {
    Unlisted,
    Listing { items: VecDeque<Told>, version: u64 },
    Open(Box<Watch>),
    Cut,
}

pub(crate) struct Watcher {
    pub(crate) kind: usize,
    pub(crate) stream: Stream,
    /// The version up to which everything has been told.
    pub(crate) delivered: u64,
    pub(crate) ever_synced: bool,
    pub(crate) announced_stale: bool,
    pub(crate) relisted: bool,
    /// The next list is answered by a cache that is so many revisions behind.
    pub(crate) behind: u64,
    /// How often part of a list, or a change from before, was told.
    pub(crate) retold: u64,
    /// The newest version that was ever told.
    pub(crate) newest: u64,
}

impl Watcher {
    pub(crate) fn new(kind: usize) -> Self {
        Self {
            kind,
            stream: Stream::Unlisted,
            delivered: 0,
            ever_synced: false,
            announced_stale: false,
            relisted: false,
            behind: 0,
            retold: 0,
            newest: 0,
        }
    }

    pub(crate) fn read(&mut self, id: ResourceId, most: usize, server: &Server) -> Vec<Told> {
        let mut events = Vec::new();
        if let Stream::Unlisted = self.stream {
            self.begin_list(id, server, &mut events);
            return events;
        }
        if let Stream::Cut = self.stream {
            self.open(server);
            if let Stream::Open(_) = self.stream
                && self.announced_stale
            {
                // Resumed: nothing has been missed.
                self.announced_stale = false;
                let resource_version = ResourceVersion(self.delivered);
                events.push((Event::Synced { resource: id, resource_version }, None));
            }
        }
        match &mut self.stream {
            Stream::Listing { items, version } => {
                let version = *version;
                self.retold += 1;
                let count = most.min(items.len());
                events.extend(items.drain(..count));
                if items.is_empty() {
                    self.delivered = version;
                    self.ever_synced = true;
                    self.relisted = true;
                    self.announced_stale = false;
                    let resource_version = ResourceVersion(version);
                    events.push((Event::Synced { resource: id, resource_version }, None));
                    self.open(server);
                }
            }
            Stream::Open(_) => self.read_watch(id, most, server, &mut events),
            Stream::Unlisted | Stream::Cut => {}
        }
        events
    }

    fn begin_list(&mut self, id: ResourceId, server: &Server, events: &mut Vec<Told>) {
        let kind = &KINDS[self.kind];
        let behind = std::mem::take(&mut self.behind);
        let stale = (behind > 0)
            .then(|| server.list(kind, "", Some(server.revision().saturating_sub(behind))))
            .flatten()
            .and_then(Result::ok);
        let list = match stale {
            Some(list) => list,
            None => match server.list(kind, "", None) {
                Some(Ok(list)) => list,
                _ => return,
            },
        };
        let told = |item: &Arc<Object>| {
            observed(item, id).map(|object| (Event::Observed(object), Some(Arc::clone(item))))
        };
        let items = list.items.iter().filter_map(told).collect();
        self.stream = Stream::Listing { items, version: list.resource_version.parse().unwrap_or(0) };
        events.push((Event::ListStarted(id), None));
    }

    fn open(&mut self, server: &Server) {
        server.pump();
        self.stream = match server.watch(&KINDS[self.kind], self.delivered) {
            Some(Ok(watch)) => Stream::Open(Box::new(watch)),
            Some(Err(error)) if error.code == 410 => Stream::Unlisted,
            _ => Stream::Cut,
        };
    }

    fn read_watch(&mut self, id: ResourceId, most: usize, server: &Server, events: &mut Vec<Told>) {
        server.pump();
        let Stream::Open(watch) = &mut self.stream else { return };
        for _ in 0..most {
            let object = match watch.poll_next(&mut polled()) {
                Poll::Pending => {
                    if let Some(WatchEvent::Bookmark { resource_version, .. }) = watch.bookmark() {
                        let version = ResourceVersion::parse(&resource_version);
                        if version.0 > self.delivered {
                            self.delivered = version.0;
                            events.push((Event::Progress { resource: id, resource_version: version }, None));
                        }
                    }
                    return;
                }
                Poll::Ready(Some(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    (object, false)
                }
                Poll::Ready(Some(WatchEvent::Deleted(object))) => (object, true),
                Poll::Ready(Some(WatchEvent::Bookmark { .. })) => continue,
                Poll::Ready(Some(WatchEvent::Error(_))) => {
                    self.stream = Stream::Unlisted;
                    return;
                }
                Poll::Ready(None) => {
                    self.stream = Stream::Cut;
                    return;
                }
            };
            let (object, removed) = object;
            let Some(observed) = observed(&object, id) else { continue };
            let version = observed.resource_version.0;
            self.retold += u64::from(version <= self.newest);
            self.newest = self.newest.max(version);
            self.delivered = self.delivered.max(version);
            let event = if removed {
                let (key, uid, resource_version) = (observed.key, observed.uid, observed.resource_version);
                Event::Removed { key, uid, resource_version }
            } else {
                Event::Observed(observed)
            };
            events.push((event, Some(object)));
        }
    }

    /// It breaks. Returns whether what it told counts as stale from now on, and did not before.
    pub(crate) fn break_off(&mut self, fault: StreamFault) -> bool {
        let open = matches!(self.stream, Stream::Open(_));
        match fault {
            StreamFault::Cut | StreamFault::Stale if open => self.stream = Stream::Cut,
            StreamFault::Cut | StreamFault::Stale => {}
            StreamFault::Expired => self.stream = Stream::Unlisted,
            StreamFault::StaleList => {
                self.stream = Stream::Unlisted;
                self.behind = STALE_LIST_BEHIND;
            }
        }
        let stale = fault != StreamFault::Cut && self.ever_synced && !self.announced_stale;
        self.announced_stale |= stale;
        stale
    }
}
