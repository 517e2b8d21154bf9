//! The list and watch of one resource, without I/O: what to request next, what the responses mean, and how to handle failures.
//!
//! ```text
//!            ┌────────── 410, or the version is unknown ──────────┐
//!            ▼                                                    │
//!   unlisted (streamed) ── ERROR, 4xx, silence ─▶ unlisted (paged)│
//!            │ initial-events-end                     │ last page │
//!            └──────────────▶ listed (version) ◀──────┘           │
//!                              │  ▲ watch ends: resume ───────────┘
//!                              └──┘
//! ```
//!
//! No objects are stored here: the consumer finds what vanished while no watch was running from where a list begins and ends. The
//! objects themselves do not pass through here either: the reader passes them on between the [`Signal`]s, and reports its progress.

use std::collections::VecDeque;
use std::time::Duration;

use gc_types::ResourceVersion;

use crate::backoff::Backoff;

/// Requested duration of a watch, which is between once and twice this time, so that watches spread over servers.
pub const WATCH_SECONDS: u32 = 290;
/// Time beyond its own end after which a watch is dead.
pub const WATCH_OVERTIME: Duration = Duration::from_secs(30);
/// Silence after which a streamed list is taken to come from a server that does not support streamed lists.
pub const STREAMED_LIST_SILENCE: Duration = Duration::from_secs(10);
/// Duration below which the end of a watch counts as a failure, so that it is not reopened in a tight loop.
pub const SHORT_WATCH: Duration = Duration::from_secs(1);
/// Pause after a first failure; it doubles with each further one.
pub const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Maximum pause.
pub const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// Size of a page above which the next one has half as many objects; below a quarter of it, the next one has twice as many.
pub const LARGE_PAGE_BYTES: usize = 16 << 20;
/// Maximum number of times that a page is halved, after which it has one object.
const MOST_HALVINGS: u32 = 10;

/// Next request to the server, or a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Do nothing for this long.
    Wait(Duration),
    /// A page of a list (all of it, unless `is_paged`) of [`ListWatch::page_size`] objects; the first one if there is no token.
    Page {
        /// True if pages are requested.
        is_paged: bool,
        /// End of the previous page; empty for the first.
        continue_token: String,
    },
    /// The newest version, from a list of one object.
    Newest,
    /// A watch from a version or, without one, a streamed list that continues as a watch.
    Watch {
        /// The version.
        from: Option<String>,
        /// Number of seconds after which the server should end it.
        seconds: u32,
    },
}

/// Message to the consumer of the resource, besides the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A list begins: objects that are not delivered until it is synced are gone.
    ListStarted,
    /// Everything up to this version has been delivered; from now on, every change is.
    Synced(ResourceVersion),
    /// Everything that has changed up to this version was delivered.
    Progress(ResourceVersion),
    /// The delivered objects may be out of date. Sent once, until it is synced again.
    Stale,
    /// The resource may no longer be served.
    NotServed,
    /// Failed, for this reason; `was_synced` if everything had been delivered before.
    Failing {
        /// Reason.
        why: RequestEnd,
        /// True if it was synced at some time.
        was_synced: bool,
    },
}

/// Reason why a request ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestEnd {
    /// The server ended the watch.
    #[error("the watch ended")]
    Finished,
    /// There was no response, or it broke off.
    #[error("{0}")]
    Unreachable(String),
    /// The response cannot be parsed.
    #[error("a malformed answer: {0}")]
    Malformed(String),
    /// A response, or an event of the watch, that was not requested.
    #[error("the server answered {code}: {message}")]
    Refused {
        /// The HTTP status code.
        code: u16,
        /// Message of the server.
        message: String,
        /// Delay that the server requested.
        retry_after: Option<Duration>,
    },
    /// No data came for this long.
    #[error("no data for {} s", .0.as_secs())]
    Silent(Duration),
    /// A list, or a page of it, was larger than what is read.
    #[error("the answer is too large")]
    TooLarge,
}

/// Last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastRequest {
    Nothing,
    Page,
    Newest,
    /// A watch; `opened` once the server has answered.
    Watch {
        listing: bool,
        opened: bool,
        seconds: u32,
    },
}

/// List and watch of one resource. See the module.
#[derive(Clone, Debug)]
pub struct ListWatch {
    streamed: bool,
    paged: bool,
    /// Number of times that the page size was halved, because objects are large.
    halvings: u32,
    version: Option<String>,
    continue_token: String,
    asked: LastRequest,
    waits: Option<Duration>,
    backoff: Backoff,
    /// Pauses before lists that replace one whose watch failed. Unlike `backoff`, they grow however well the lists are answered.
    relist_backoff: Backoff,
    was_synced: bool,
    announced_stale: bool,
    /// True if the server may have been replaced by one that was restored from an older backup.
    suspicious: bool,
    /// True to list again in that case, however far the server has progressed.
    relists: bool,
    signals: VecDeque<Signal>,
}

impl ListWatch {
    /// Creates a list and watch before anything is listed. With `streamed`, initial lists are first requested as streams.
    #[must_use]
    pub fn new(streamed: bool) -> Self {
        Self {
            streamed,
            paged: true,
            halvings: 0,
            version: None,
            continue_token: String::new(),
            asked: LastRequest::Nothing,
            waits: None,
            backoff: Backoff::new(FIRST_DELAY, LONGEST_DELAY),
            relist_backoff: Backoff::new(FIRST_DELAY, LONGEST_DELAY),
            was_synced: false,
            announced_stale: false,
            suspicious: false,
            relists: false,
            signals: VecDeque::new(),
        }
    }

    /// Lists again after each failure that may have been the server's restart, instead of asking for the newest version: a restored
    /// server may have progressed as far since, with other contents. For lists that cost no more than that request.
    #[must_use]
    pub fn relisting(self) -> Self {
        Self { relists: true, ..self }
    }

    /// Returns the next request. `fraction` is random, in [0, 1).
    pub fn ask(&mut self, fraction: f64) -> Ask {
        if let Some(wait) = self.waits.take() {
            return Ask::Wait(wait);
        }
        if self.suspicious && self.relists {
            self.suspicious = false;
            self.forget();
        }
        match &self.version {
            None if !self.streamed => {
                if self.continue_token.is_empty() {
                    self.signals.push_back(Signal::ListStarted);
                }
                self.asked = LastRequest::Page;
                Ask::Page { is_paged: self.paged, continue_token: self.continue_token.clone() }
            }
            Some(_) if self.suspicious => {
                self.asked = LastRequest::Newest;
                Ask::Newest
            }
            from => {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // in [0, WATCH_SECONDS)
                let seconds = WATCH_SECONDS + (fraction * f64::from(WATCH_SECONDS)) as u32;
                self.asked = LastRequest::Watch { listing: from.is_none(), opened: false, seconds };
                Ask::Watch { from: from.clone(), seconds }
            }
        }
    }

    /// Returns the next signal, in the order in which they belong between the objects.
    pub fn poll_signal(&mut self) -> Option<Signal> {
        self.signals.pop_front()
    }

    /// Reports whether a version is known from which to watch.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.version.is_some()
    }

    /// Reports whether an initial list is being streamed.
    #[must_use]
    pub fn is_listing(&self) -> bool {
        matches!(self.asked, LastRequest::Watch { listing: true, .. })
    }

    /// Returns the maximum silence of the open watch.
    #[must_use]
    pub fn patience(&self) -> Duration {
        match self.asked {
            LastRequest::Watch { listing: true, .. } => STREAMED_LIST_SILENCE,
            LastRequest::Watch { seconds, .. } => Duration::from_secs(u64::from(seconds)) + WATCH_OVERTIME,
            _ => WATCH_OVERTIME,
        }
    }

    /// Returns the page size, if `most` is used for small objects.
    #[must_use]
    pub fn page_size(&self, most: usize) -> usize {
        (most >> self.halvings).max(1)
    }

    /// Takes the size of a page, or a whole list: the next page has fewer objects if they are large.
    pub fn page_came(&mut self, bytes: usize) {
        if bytes > LARGE_PAGE_BYTES {
            self.shrink_pages(1);
        } else if bytes < LARGE_PAGE_BYTES / 4 {
            self.halvings = self.halvings.saturating_sub(1);
        }
    }

    fn shrink_pages(&mut self, halvings: u32) {
        self.halvings = (self.halvings + halvings).min(MOST_HALVINGS);
    }

    /// Records that the requested page has been passed on: the version of the list, and where the next page begins (empty if it was
    /// the last).
    pub fn page_read(&mut self, version: &str, continue_token: &str) {
        continue_token.clone_into(&mut self.continue_token);
        if continue_token.is_empty() {
            self.paged = true;
            self.succeed(version);
        }
    }

    /// Takes the newest version of the server. If a watch starts from a version ahead of it, a server that was restored from an
    /// older backup sends nothing until it has caught up, and never what it has lost. After a failure that may have been its
    /// restart, it is therefore asked first.
    pub fn newest_read(&mut self, version: &str) {
        self.suspicious = false;
        let newest = ResourceVersion::parse(version);
        let known = self.version.as_deref().map(ResourceVersion::parse);
        if newest != ResourceVersion::UNKNOWN && known.is_some_and(|known| newest < known) {
            self.forget();
            let message = "the server was restored to an earlier version".to_owned();
            self.fail(&RequestEnd::Refused { code: 410, message, retry_after: None }, 0.0);
            self.put_off_list(0.0);
        }
    }

    /// Records that the server has begun to answer the watch.
    pub fn opened(&mut self) {
        let LastRequest::Watch { listing, opened, .. } = &mut self.asked else { return };
        *opened = true;
        if *listing {
            self.signals.push_back(Signal::ListStarted);
        } else if self.announced_stale {
            // Resumed: nothing has been missed.
            let version = self.version.clone().unwrap_or_default();
            self.sync(&version);
        }
    }

    /// Records that the watch has delivered an object at a version, which has been passed on.
    pub fn reached(&mut self, version: &str) {
        if !self.is_listing() && !version.is_empty() {
            self.version = Some(version.to_owned());
        }
    }

    /// Records that the watch has reported its progress.
    pub fn bookmark(&mut self, version: &str, ends_list: bool) {
        match &mut self.asked {
            LastRequest::Watch { listing, .. } if *listing => {
                if ends_list {
                    *listing = false;
                    self.succeed(version);
                }
            }
            _ => {
                self.reached(version);
                self.signals.push_back(Signal::Progress(ResourceVersion::parse(version)));
            }
        }
    }

    fn succeed(&mut self, version: &str) {
        self.version = Some(version.to_owned());
        // The list has shown how far the server has progressed.
        self.suspicious = false;
        self.backoff.reset();
        self.sync(version);
    }

    fn sync(&mut self, version: &str) {
        self.was_synced = true;
        self.announced_stale = false;
        self.signals.push_back(Signal::Synced(ResourceVersion::parse(version)));
    }

    /// Handles the end of a request, after this time. `fraction` is random, in [0, 1).
    pub fn ended(&mut self, ended: &RequestEnd, elapsed: Duration, fraction: f64) {
        let asked = std::mem::replace(&mut self.asked, LastRequest::Nothing);
        if elapsed > LONGEST_DELAY && matches!(asked, LastRequest::Watch { .. }) {
            self.relist_backoff.reset();
        }
        if let LastRequest::Watch { seconds, listing: false, .. } = asked
            && *ended == RequestEnd::Finished
        {
            // An early end means that the server is going down, and another one may replace it.
            self.suspicious |= elapsed < Duration::from_secs(u64::from(seconds) - 1);
            if elapsed >= SHORT_WATCH {
                self.backoff.reset();
            } else {
                self.waits = Some(self.backoff.next_delay(fraction));
            }
            if self.suspicious && self.relists {
                self.put_off_list(fraction);
            }
            return;
        }
        if elapsed > LONGEST_DELAY {
            self.backoff.reset();
        }
        if Self::is_not_streamed(asked, ended, elapsed) {
            self.streamed = false;
            return;
        }
        self.suspicious |=
            matches!(ended, RequestEnd::Unreachable(_) | RequestEnd::Refused { code: 500.., .. });
        let was_listed = self.version.is_some();
        match ended {
            RequestEnd::Refused { code: 410, .. } => {
                self.forget();
            }
            RequestEnd::Refused { code: 404, .. } => {
                self.signals.push_back(Signal::NotServed);
                self.forget();
            }
            RequestEnd::Refused { code: 400 | 422, .. } => self.forget(),
            _ => {}
        }
        if asked == LastRequest::Page {
            self.page_failed(ended, elapsed);
        }
        // A list begins again with its first page.
        self.continue_token.clear();
        self.fail(ended, fraction);
        if was_listed && (self.version.is_none() || self.suspicious && self.relists) {
            self.put_off_list(fraction);
        }
    }

    /// Puts off the list that replaces the last one.
    fn put_off_list(&mut self, fraction: f64) {
        let pause = self.relist_backoff.next_delay(fraction);
        self.waits = Some(self.waits.unwrap_or_default().max(pause));
    }

    /// Handles a failed page. If its continue token expired, the list is too slow for pages: it is requested whole the next time,
    /// and in pages after that, because the whole may be too large for one read. After a page that was too large, or too slow, the
    /// next one has fewer objects.
    fn page_failed(&mut self, ended: &RequestEnd, elapsed: Duration) {
        let was_paged = std::mem::replace(&mut self.paged, true);
        match ended {
            RequestEnd::Refused { code: 410, .. } if was_paged => self.paged = false,
            RequestEnd::TooLarge => self.shrink_pages(2),
            RequestEnd::Unreachable(_) | RequestEnd::Silent(_) if was_paged && elapsed > LONGEST_DELAY => {
                self.shrink_pages(1);
            }
            _ => {}
        }
    }

    /// Reports whether a streamed list ended like those of servers that do not support them.
    fn is_not_streamed(asked: LastRequest, ended: &RequestEnd, elapsed: Duration) -> bool {
        let LastRequest::Watch { listing: true, opened, .. } = asked else { return false };
        match ended {
            RequestEnd::Refused { code: 410, .. }
            | RequestEnd::Unreachable(_)
            | RequestEnd::Malformed(_)
            | RequestEnd::TooLarge => false,
            RequestEnd::Refused { code, .. } => opened || matches!(code, 400 | 403 | 422 | 500 | 501),
            RequestEnd::Finished => elapsed >= SHORT_WATCH,
            RequestEnd::Silent(_) => true,
        }
    }

    fn forget(&mut self) {
        self.version = None;
        self.continue_token.clear();
    }

    fn fail(&mut self, why: &RequestEnd, fraction: f64) {
        self.signals.push_back(Signal::Failing { why: why.clone(), was_synced: self.was_synced });
        if self.was_synced && !std::mem::replace(&mut self.announced_stale, true) {
            self.signals.push_back(Signal::Stale);
        }
        let asked_for = match why {
            RequestEnd::Refused { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        self.waits = Some(self.backoff.next_delay(fraction).max(asked_for).min(LONGEST_DELAY));
    }
}

#[cfg(test)]
mod tests;
