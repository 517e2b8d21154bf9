//! API watches.

use std::task::{Context, Poll};

use crate::api::WatchEvent;

/// A running watch. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {}

impl Watch {
    /// The next event; `Ready(None)` ends the watch, always after [`WatchEvent::Error`] if it ended badly.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let _ = context;
        Poll::Ready(None)
    }

    /// A bookmark at the newest version that this watch has seen, for the server's timer (about once per
    /// minute, if the client allows bookmarks). `None` while events wait to be read.
    #[must_use]
    pub fn bookmark(&self) -> Option<WatchEvent> {
        None
    }
}
