//! Objects of a list that is being sent: those that were read with the request, followed page by page by the rest.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use gc_registry::api::{ListRest, Object};
use gc_registry::error::ApiError;
use tokio::task::JoinHandle;

/// Memory of an item that waits to be written, in bytes, in addition to its stored form, which the store may share.
const ITEM_BYTES: usize = 256;
/// Approximate size of a further page, in bytes, for a store that shares nothing.
const PAGE_BYTES: usize = 4 << 20;

/// A page that is being read on another thread.
type Reading = JoinHandle<(ListRest, Result<Vec<Arc<Object>>, ApiError>)>;

/// Remaining objects of a list.
pub(super) struct ListItems {
    page: std::vec::IntoIter<Arc<Object>>,
    rest: Option<ListRest>,
    reading: Option<Reading>,
    /// Bytes of the first page that only this list holds.
    own_bytes: usize,
}

impl ListItems {
    pub(super) fn new(first: Vec<Arc<Object>>, rest: Option<ListRest>) -> Self {
        let own_bytes = first.iter().map(|item| item.own_bytes()).sum();
        Self { page: first.into_iter(), rest, reading: None, own_bytes }
    }

    /// Returns the maximum number of bytes that the list holds.
    pub(super) fn held_bytes(&self) -> usize {
        let shares_nothing = self.rest.as_ref().is_some_and(ListRest::blocks);
        let own = if shares_nothing { self.own_bytes.max(PAGE_BYTES) } else { self.own_bytes };
        self.page.len() * ITEM_BYTES + own
    }

    /// Returns a second iterator over the same objects. Must not be called while a page is being read.
    pub(super) fn again(&self) -> Self {
        Self { page: self.page.clone(), rest: self.rest.clone(), reading: None, own_bytes: 0 }
    }

    /// Returns the next object of the current page.
    pub(super) fn next(&mut self) -> Option<Arc<Object>> {
        self.page.next()
    }

    /// Reports whether nothing follows the current page.
    pub(super) fn is_last_page(&self) -> bool {
        self.rest.is_none() && self.reading.is_none()
    }

    /// Reads the next page, unless that may block or the current one is not used up. After a failure, [`Self::poll_page`] tries
    /// again.
    pub(super) fn read_now(&mut self) {
        if self.page.len() > 0 || self.rest.as_ref().is_none_or(ListRest::blocks) {
            return;
        }
        if let Some(mut rest) = self.rest.clone()
            && let Ok(page) = rest.read()
        {
            self.take(page, rest);
        }
    }

    /// Ensures that the current page has an object, unless the list has ended.
    pub(super) fn poll_page(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ApiError>> {
        while self.page.len() == 0 {
            if let Some(reading) = &mut self.reading {
                let read = ready!(std::pin::Pin::new(reading).poll(context));
                self.reading = None;
                let (rest, page) = read.map_err(ApiError::internal)?;
                self.take(page?, rest);
                continue;
            }
            let Some(mut rest) = self.rest.take() else { break };
            if rest.blocks() {
                self.reading = Some(tokio::task::spawn_blocking(move || {
                    let page = rest.read();
                    (rest, page)
                }));
            } else {
                let page = rest.read()?;
                self.take(page, rest);
            }
        }
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, page: Vec<Arc<Object>>, rest: ListRest) {
        self.rest = Some(rest).filter(|_| !page.is_empty());
        self.page = page.into_iter();
    }
}
