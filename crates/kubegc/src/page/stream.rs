//! The feed as server-sent events, for one reader who sees what the reader may list.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _};
use gc_apiserver::InProcess;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::feed::{About, Entry, Feed};
use super::places::Place;
use super::views::may_list;

/// Changes are sent together, this often.
const BATCH_PERIOD: Duration = Duration::from_millis(250);
/// Changes of one batch that are sent; older ones are counted as skipped.
const BATCH_ENTRIES: usize = 20;
/// Changes that a new reader gets at first.
const FIRST_ENTRIES: usize = 100;
/// A line that says nothing is sent so often, so that both ends notice when the other one is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A stream ends after this time, and the browser begins another one: credentials are looked at again.
const LIFETIME: Duration = Duration::from_mins(10);
/// What a reader may see is asked again after this time.
const RIGHTS_PERIOD: Duration = Duration::from_secs(5);

/// What a reader may see, remembered for a while.
pub(super) struct Sight {
    user: InProcess,
    known: BTreeMap<About, bool>,
    until: Instant,
}

impl Sight {
    pub(super) fn new(user: InProcess) -> Self {
        Self { user, known: BTreeMap::new(), until: Instant::now() + RIGHTS_PERIOD }
    }

    /// Whether the user may list what a change is about.
    pub(super) fn may_see(&mut self, about: &About) -> bool {
        if Instant::now() >= self.until {
            self.known.clear();
            self.until = Instant::now() + RIGHTS_PERIOD;
        }
        if let Some(known) = self.known.get(about) {
            return *known;
        }
        // Counts without a resource are shown only to users who may list everything.
        let resource = if about.resource.is_empty() { "*" } else { &*about.resource };
        let group = if about.resource.is_empty() { "*" } else { &*about.group };
        let may = may_list(&self.user, group, resource, &about.namespace);
        self.known.insert(about.clone(), may);
        may
    }

    /// Whether the user sees everything.
    pub(super) fn sees_all(&mut self) -> bool {
        self.may_see(&About::default())
    }
}

struct Reader {
    feed: Feed,
    changes: watch::Receiver<u64>,
    sight: Sight,
    next: u64,
    /// Nothing was sent yet.
    is_new: bool,
    /// No batch is sent before.
    next_batch: Instant,
    ends: Instant,
    pending: VecDeque<Bytes>,
    _place: Place,
}

/// The events from this number on, or the newest ones.
pub(super) fn stream(
    feed: &Feed,
    user: InProcess,
    from: Option<u64>,
    place: Place,
) -> BoxStream<'static, Bytes> {
    let newest = *feed.changes().borrow();
    // A number of another run of the server means nothing.
    let next = from
        .filter(|from| *from <= newest)
        .unwrap_or_else(|| newest.saturating_sub(u64::try_from(FIRST_ENTRIES).unwrap_or_default()));
    let mut changes = feed.changes();
    changes.mark_changed();
    let reader = Reader {
        feed: feed.clone(),
        changes,
        sight: Sight::new(user),
        next,
        is_new: true,
        next_batch: Instant::now(),
        ends: Instant::now() + LIFETIME,
        pending: VecDeque::from([Bytes::from_static(b"retry: 2000\n\n")]),
        _place: place,
    };
    futures::stream::unfold(reader, |mut reader| async move {
        let piece = reader.piece().await?;
        Some((piece, reader))
    })
    .boxed()
}

impl Reader {
    /// The next piece of the stream; `None` at its end.
    async fn piece(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.pending.pop_front() {
                return Some(piece);
            }
            let changed = tokio::select! {
                () = tokio::time::sleep_until(self.ends) => return None,
                () = tokio::time::sleep(KEEP_ALIVE) => false,
                changed = self.changes.changed() => { changed.ok()?; true }
            };
            if !changed {
                return Some(Bytes::from_static(b": nothing new\n\n"));
            }
            tokio::time::sleep_until(self.next_batch).await;
            self.next_batch = Instant::now() + BATCH_PERIOD;
            let unread = self.feed.since(self.next);
            self.next = unread.next;
            let seen: Vec<Arc<Entry>> =
                unread.entries.into_iter().filter(|entry| self.sight.may_see(&entry.about)).collect();
            // It is no longer known which of the lost changes the reader may see.
            let lost = if self.sight.sees_all() { unread.lost } else { 0 };
            let most = if std::mem::take(&mut self.is_new) { FIRST_ENTRIES } else { BATCH_ENTRIES };
            if let Some(text) = written(&seen, lost, most, unread.next) {
                self.pending.push_back(text.into());
            }
        }
    }
}

/// The events of one batch, as text: what was skipped by kind, then the newest changes. Nothing if there is nothing to say.
fn written(entries: &[Arc<Entry>], lost: u64, most: usize, next: u64) -> Option<String> {
    let skipped = entries.len().saturating_sub(most);
    let mut text = String::new();
    if skipped > 0 || lost > 0 {
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        for entry in &entries[..skipped] {
            *kinds.entry(&entry.about.resource).or_default() += 1;
        }
        let count = lost + u64::try_from(skipped).unwrap_or(u64::MAX);
        let document = json!({"count": count, "resources": kinds});
        // Writing to a String cannot fail, here and below.
        let _ = write!(text, "event: skipped\ndata: {document}\n\n");
    }
    for entry in &entries[skipped..] {
        let _ = write!(text, "id: {}\nevent: change\ndata: {}\n\n", entry.number + 1, entry.json());
    }
    if text.is_empty() {
        return None;
    }
    let _ = write!(text, "id: {next}\nevent: caught-up\ndata: {{}}\n\n");
    Some(text)
}
