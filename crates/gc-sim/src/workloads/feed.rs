//! A list and a watch of one kind, read as slowly as the seed decides.

use std::sync::Arc;
use std::task::Poll;

use gc_registry::api::{Object, WatchEvent};
use gc_registry::watch::Watch;
use gc_types::ResourceVersion;
use serde_json::Value;

use crate::kinds::Kind;
use crate::server::{Server, polled};

/// Delivery of a list or a watch.
pub(super) enum News {
    Listed(Vec<Arc<Object>>, u64),
    Present(Arc<Object>),
    Gone(Arc<Object>),
    Progress(u64),
}

pub(super) struct Feed {
    pub(super) kind: Kind,
    watch: Option<Box<Watch>>,
    version: u64,
}

impl Feed {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, watch: None, version: 0 }
    }

    /// Returns the version up to which everything was delivered; `None` before a list.
    pub(super) fn version(&self) -> Option<u64> {
        self.watch.as_ref().map(|_| self.version)
    }

    /// Breaks the watch, so that a list follows. Returns true if there was one.
    pub(super) fn cut(&mut self) -> bool {
        self.watch.take().is_some()
    }

    pub(super) fn read(&mut self, most: usize, server: &Server) -> Vec<News> {
        server.pump();
        let Some(watch) = &mut self.watch else { return self.list(server) };
        let mut news = Vec::new();
        while news.len() < most {
            match watch.poll_next(&mut polled()) {
                Poll::Ready(Some(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    self.version = self.version.max(version_of(&object));
                    news.push(News::Present(object));
                }
                Poll::Ready(Some(WatchEvent::Deleted(object))) => {
                    self.version = self.version.max(version_of(&object));
                    news.push(News::Gone(object));
                }
                Poll::Ready(Some(WatchEvent::Bookmark { .. })) => {}
                Poll::Ready(Some(WatchEvent::Error(_)) | None) => {
                    self.watch = None;
                    break;
                }
                Poll::Pending => {
                    if let Some(WatchEvent::Bookmark { resource_version, .. }) = watch.bookmark() {
                        let version = ResourceVersion::parse(&resource_version).0;
                        if version > self.version {
                            self.version = version;
                            news.push(News::Progress(version));
                        }
                    }
                    break;
                }
            }
        }
        news
    }

    fn list(&mut self, server: &Server) -> Vec<News> {
        let Some(Ok(list)) = server.list(&self.kind, "", None) else { return Vec::new() };
        self.version = list.resource_version.parse().unwrap_or(0);
        if let Some(Ok(watch)) = server.watch(&self.kind, self.version) {
            self.watch = Some(Box::new(watch));
        }
        vec![News::Listed(list.items.iter().map(Arc::clone).collect(), self.version)]
    }
}

fn version_of(object: &Object) -> u64 {
    let metadata = crate::metadata::Metadata::of(object);
    metadata.map_or(0, |metadata| metadata.resource_version.0)
}

/// Returns an object as clients read it.
pub(super) fn value_of(object: &Object) -> Option<Value> {
    let mut json = Vec::new();
    object.write_json(&mut json, true).ok()?;
    serde_json::from_slice(&json).ok()
}
