//! The feed as server-sent events. Each reader sees only what the user may list. Readers of the same user share what is sent, so a
//! further reader costs little more than the bytes on its connection.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _};
use gc_process::user_limits::Place;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::feed::{Entry, Feed, Filter};
use super::requester::{Requester, Sight, UserKey};

/// Interval at which changes are sent together.
const BATCH_PERIOD: Duration = Duration::from_millis(250);
/// Maximum number of changes in one batch; older ones are counted as skipped.
const BATCH_ENTRIES: usize = 20;
/// Number of batches that an audience keeps for readers that are late; a reader that is later gets a separate batch, in which the
/// missed changes are counted.
const KEPT_BATCHES: usize = 4;
/// Number of changes that a new reader gets at first.
const FIRST_ENTRIES: usize = 100;
/// Interval of empty lines, by which both ends notice when the other one is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time after which a stream ends and the browser opens another one, so that credentials are checked again.
const LIFETIME: Duration = Duration::from_mins(10);

/// Returns an item for each change of a value.
pub(super) fn changes<T: Send + Sync + 'static>(value: watch::Receiver<T>) -> BoxStream<'static, ()> {
    let next =
        |mut value: watch::Receiver<T>| async move { value.changed().await.ok().map(|()| ((), value)) };
    futures::stream::unfold(value, next).boxed()
}

/// Merges both streams into one that ends with the first of them.
pub(super) fn until_the_first_ends(
    first: BoxStream<'static, Bytes>,
    other: BoxStream<'static, Bytes>,
) -> BoxStream<'static, Bytes> {
    let first = first.map(Some).chain(futures::stream::once(std::future::ready(None)));
    let both = futures::stream::select(first, other.map(Some));
    both.take_while(|piece| std::future::ready(piece.is_some())).filter_map(std::future::ready).boxed()
}

/// Changes of one period, as an audience sees them.
struct Batch {
    /// Number of the first change.
    from: u64,
    /// Number of the first change of the next batch.
    next: u64,
    /// Text; `None` if the audience sees none of them.
    text: Option<Bytes>,
}

/// All readers of one user with the same filter.
struct Audience {
    feed: Feed,
    filter: Filter,
    state: tokio::sync::Mutex<AudienceState>,
}

struct AudienceState {
    sight: Sight,
    /// Batches, the newest last.
    batches: VecDeque<Batch>,
    /// Number at which the next batch begins.
    next: u64,
    /// Time before which no batch is made.
    due: Instant,
}

/// Next part of a reader's stream.
struct Turn {
    text: Option<Bytes>,
    /// Number to continue from.
    next: u64,
    /// True if there is more already.
    is_behind: bool,
}

impl Audience {
    async fn due(&self) -> Instant {
        self.state.lock().await.due
    }

    /// Returns the part after this number. `most` changes are sent if the reader needs a separate batch.
    async fn turn(&self, from: u64, most: usize) -> Turn {
        let mut state = self.state.lock().await;
        if Instant::now() >= state.due {
            state.make_batch(self).await;
        }
        let newest = state.next;
        if let Some(batch) = state.batches.iter().find(|batch| batch.from == from) {
            return Turn { text: batch.text.clone(), next: batch.next, is_behind: batch.next < newest };
        }
        if from >= newest {
            return Turn { text: None, next: from, is_behind: false };
        }
        let unread = state.seen(self, from).await;
        let text = written(&self.feed, &unread, most, newest).map(Bytes::from);
        Turn { text, next: newest, is_behind: false }
    }
}

impl AudienceState {
    async fn make_batch(&mut self, audience: &Audience) {
        self.due = Instant::now() + BATCH_PERIOD;
        let from = std::mem::replace(&mut self.next, *audience.feed.changes().borrow());
        if from == self.next {
            return;
        }
        let unread = self.seen(audience, from).await;
        let text = written(&audience.feed, &unread, BATCH_ENTRIES, self.next).map(Bytes::from);
        if self.batches.len() >= KEPT_BATCHES {
            self.batches.pop_front();
        }
        self.batches.push_back(Batch { from, next: self.next, text });
    }

    /// Returns the changes from this number to the end of the newest batch that the audience may see and that its filter accepts.
    async fn seen(&mut self, audience: &Audience, from: u64) -> AudienceChanges {
        self.sight.refresh().await;
        let (next, sight) = (self.next, &mut self.sight);
        let unread = audience.feed.since(from);
        let entries = unread.entries.into_iter().take_while(|entry| entry.number < next);
        let seen =
            entries.filter(|entry| sight.may_see(&entry.about) && audience.filter.fits(entry)).collect();
        // It is no longer known which of the lost changes the audience may see.
        let lost = if sight.sees_all() { unread.lost } else { 0 };
        let (lost, unknown) = if audience.filter.is_empty() { (lost, 0) } else { (0, lost) };
        AudienceChanges { entries: seen, lost, unknown }
    }
}

/// Changes for an audience.
struct AudienceChanges {
    entries: Vec<Arc<Entry>>,
    /// Number of older ones that are no longer kept.
    lost: u64,
    /// Number of these that are no longer known to match the filter.
    unknown: u64,
}

/// Streams of all readers.
pub(super) struct Streams {
    feed: Feed,
    audiences: Mutex<BTreeMap<(UserKey, Filter), Weak<Audience>>>,
}

impl Streams {
    pub(crate) fn new(feed: Feed) -> Self {
        Self { feed, audiences: Mutex::default() }
    }

    /// Returns the readers of this user with this filter; forgotten when the last of them has gone.
    fn audience(&self, (who, filter): (UserKey, Filter), visitor: Requester) -> Arc<Audience> {
        let mut audiences = self.audiences.lock().unwrap_or_else(PoisonError::into_inner);
        audiences.retain(|_, audience| audience.strong_count() > 0);
        if let Some(audience) = audiences.get(&(who.clone(), filter.clone())).and_then(Weak::upgrade) {
            return audience;
        }
        let state = AudienceState {
            sight: Sight::new(visitor),
            batches: VecDeque::new(),
            next: *self.feed.changes().borrow(),
            due: Instant::now() + BATCH_PERIOD,
        };
        let (feed, state) = (self.feed.clone(), tokio::sync::Mutex::new(state));
        let audience = Arc::new(Audience { feed, filter: filter.clone(), state });
        audiences.insert((who, filter), Arc::downgrade(&audience));
        audience
    }

    /// Returns the events from this number on, which the feed has reached, or the most recent ones.
    pub(crate) fn open(
        &self,
        (who, filter): (UserKey, Filter),
        visitor: Requester,
        from: Option<u64>,
        place: Place,
    ) -> BoxStream<'static, Bytes> {
        let mut changes = self.feed.changes();
        let newest = *changes.borrow();
        // A filter also finds older changes than the most recent ones of all.
        let first = if filter.is_empty() {
            newest.saturating_sub(u64::try_from(FIRST_ENTRIES).unwrap_or_default())
        } else {
            self.feed.first()
        };
        let next = from.unwrap_or(first);
        changes.mark_changed();
        let reader = Reader {
            audience: self.audience((who, filter), visitor.clone()),
            renewed: Some(visitor),
            changes,
            next,
            is_new: true,
            is_behind: false,
            ends: Instant::now() + LIFETIME,
            first: Some(Bytes::from_static(b"retry: 2000\n\n")),
            _place: place,
        };
        futures::stream::unfold(reader, |mut reader| async move {
            let piece = reader.piece().await?;
            Some((piece, reader))
        })
        .boxed()
    }
}

struct Reader {
    audience: Arc<Audience>,
    /// Latest credentials of the user, with which the stream continues.
    renewed: Option<Requester>,
    changes: watch::Receiver<u64>,
    next: u64,
    /// True if nothing was sent yet.
    is_new: bool,
    /// True if there is more than was sent.
    is_behind: bool,
    ends: Instant,
    first: Option<Bytes>,
    _place: Place,
}

impl Reader {
    /// Returns the next piece of the stream; `None` at its end.
    async fn piece(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if let Some(visitor) = self.renewed.take() {
            self.audience.state.lock().await.sight.renew(visitor);
        }
        loop {
            if !self.is_behind && !self.is_new {
                let changed = tokio::select! {
                    () = tokio::time::sleep_until(self.ends) => return None,
                    () = tokio::time::sleep(KEEP_ALIVE) => false,
                    changed = self.changes.changed() => { changed.ok()?; true }
                };
                if !changed {
                    return Some(Bytes::from_static(b": nothing new\n\n"));
                }
                tokio::time::sleep_until(self.audience.due().await).await;
            }
            if Instant::now() >= self.ends {
                return None;
            }
            let most = if std::mem::take(&mut self.is_new) { FIRST_ENTRIES } else { BATCH_ENTRIES };
            let turn = self.audience.turn(self.next, most).await;
            (self.next, self.is_behind) = (turn.next, turn.is_behind);
            if turn.text.is_some() {
                return turn.text;
            }
        }
    }
}

/// Formats the events of one batch: what was skipped by kind, then the most recent changes. `None` if there are none.
fn written(feed: &Feed, seen: &AudienceChanges, most: usize, next: u64) -> Option<String> {
    let AudienceChanges { entries, lost, unknown } = seen;
    let skipped = entries.len().saturating_sub(most);
    let mut text = String::new();
    if skipped > 0 || *lost > 0 || *unknown > 0 {
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        for entry in &entries[..skipped] {
            *kinds.entry(&entry.about.resource).or_default() += 1;
        }
        let count = lost + u64::try_from(skipped).unwrap_or(u64::MAX);
        let document = json!({"count": count, "resources": kinds, "unknown": unknown});
        // Writing to a String cannot fail, here and below.
        let _ = write!(text, "event: skipped\ndata: {document}\n\n");
    }
    for entry in &entries[skipped..] {
        let place = feed.place(entry.number + 1);
        let _ = write!(text, "id: {place}\nevent: change\ndata: {}\n\n", entry.json());
    }
    if text.is_empty() {
        return None;
    }
    let _ = write!(text, "id: {}\nevent: caught-up\ndata: {{}}\n\n", feed.place(next));
    Some(text)
}

#[cfg(test)]
mod tests;
