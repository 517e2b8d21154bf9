//! Delivers changes to watchers, which are indexed by prefix.
//!
//! A change is looked up once per *distinct prefix length*, so its cost depends only on the watchers that match it: ten thousand
//! watches of other prefixes are not touched. A watcher owns a bounded queue of shared changes; a watcher whose queue overflows is
//! ended with [`StorageError::Lagged`] and costs nothing from then on.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use gc_store_api::{Change, Revision, StorageError, WatchItem, WatchStream};

/// Number of entries beyond which queues release their memory when they run empty.
const QUEUE_KEPT: usize = 64;

/// Watchers of one store.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    index: Mutex<Index>,
    /// Revision up to which all changes have been put into the matching queues.
    published: AtomicU64,
}

#[derive(Debug, Default)]
struct Index {
    next_id: u64,
    by_prefix: HashMap<Arc<str>, BTreeMap<u64, Arc<Watcher>>>,
    /// Number of distinct prefixes of each length.
    lengths: BTreeMap<usize, usize>,
}

#[derive(Debug)]
struct Watcher {
    /// Revision up to which changes are skipped.
    after: Revision,
    /// Bound of the queue.
    limit: usize,
    /// Lag that is reported when the bound is exceeded.
    lag: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    queue: VecDeque<Arc<Change>>,
    ended: Option<StorageError>,
    waker: Option<Waker>,
    /// Revision of the last delivered item.
    delivered: Revision,
}

/// Tasks to wake once the locks are released.
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    pub(crate) fn wake(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
}

/// Locks a mutex, ignoring poison: no code here leaves the data half changed, so it is consistent even if a holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    pub(crate) fn new(published: Revision) -> Self {
        Self { index: Mutex::default(), published: AtomicU64::new(published.0) }
    }

    /// Returns the revision up to which all changes have been delivered to the watchers.
    pub(crate) fn published(&self) -> Revision {
        Revision(self.published.load(Ordering::Acquire))
    }

    /// Delivers complete transactions up to and including `revision` to the watchers. Callers must publish in order of revision.
    pub(crate) fn publish(&self, changes: &[Arc<Change>], revision: Revision) -> Wakers {
        let mut wakers = Wakers::default();
        let index = lock(&self.index);
        for transaction in changes.chunk_by(|one, next| one.revision == next.revision) {
            if let [change] = transaction {
                index.matching(&change.key, |_, watcher| watcher.push(&[change], &mut wakers));
                continue;
            }
            // A watcher gets its part of a transaction in one step: if it is polled concurrently, it must not mistake a part for
            // the whole.
            let mut parts: BTreeMap<u64, (&Watcher, Vec<&Arc<Change>>)> = BTreeMap::new();
            for change in transaction {
                index.matching(&change.key, |id, watcher| {
                    parts.entry(id).or_insert_with(|| (watcher, Vec::new())).1.push(change);
                });
            }
            for (watcher, part) in parts.values() {
                watcher.push(part, &mut wakers);
            }
        }
        self.published.store(revision.0, Ordering::Release);
        wakers
    }

    /// Ends every watch.
    pub(crate) fn end_all(&self, error: &StorageError) -> Wakers {
        let mut wakers = Wakers::default();
        for watcher in lock(&self.index).by_prefix.values().flat_map(BTreeMap::values) {
            watcher.end(error.clone(), &mut wakers);
        }
        wakers
    }

    /// Registers a watch of changes after `after`. `replay` contains those that were already published; the caller must prevent
    /// publishing between collecting them and this call.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        prefix: &str,
        after: Revision,
        replay: VecDeque<Arc<Change>>,
        lag: usize,
    ) -> HubStream {
        let prefix: Arc<str> = prefix.into();
        let watcher = Arc::new(Watcher {
            after,
            // Replayed changes are bounded by the history, and do not count as the watcher's lag.
            limit: lag.saturating_add(replay.len()),
            lag,
            state: Mutex::new(State { queue: replay, ended: None, waker: None, delivered: after }),
        });
        let mut index = lock(&self.index);
        let id = index.insert(&prefix, Arc::clone(&watcher));
        drop(index);
        HubStream { hub: Arc::clone(self), watcher, prefix, id }
    }
}

impl Index {
    fn insert(&mut self, prefix: &Arc<str>, watcher: Arc<Watcher>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let group = self.by_prefix.entry(Arc::clone(prefix)).or_default();
        if group.is_empty() {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        group.insert(id, watcher);
        id
    }

    fn remove(&mut self, prefix: &Arc<str>, id: u64) {
        let Some(group) = self.by_prefix.get_mut(prefix) else { return };
        group.remove(&id);
        if !group.is_empty() {
            return;
        }
        self.by_prefix.remove(prefix);
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }

    fn matching<'i>(&'i self, key: &str, mut each: impl FnMut(u64, &'i Watcher)) {
        for length in self.lengths.range(..=key.len()).map(|(length, _)| *length) {
            let group = key.get(..length).and_then(|prefix| self.by_prefix.get(prefix));
            for (id, watcher) in group.into_iter().flatten() {
                each(*id, watcher);
            }
        }
    }
}

impl Watcher {
    /// Queues changes of one transaction.
    fn push(&self, part: &[&Arc<Change>], wakers: &mut Wakers) {
        if part.first().is_none_or(|change| change.revision <= self.after) {
            return;
        }
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            return;
        }
        if state.queue.len() + part.len() > self.limit {
            drop(state);
            return self.end(StorageError::Lagged { limit: self.lag }, wakers);
        }
        state.queue.extend(part.iter().copied().cloned());
        wakers.0.extend(state.waker.take());
    }

    fn end(&self, error: StorageError, wakers: &mut Wakers) {
        let mut state = lock(&self.state);
        state.queue = VecDeque::new();
        state.ended = Some(error);
        wakers.0.extend(state.waker.take());
    }
}

/// A running watch of a [`Hub`].
#[derive(Debug)]
pub(crate) struct HubStream {
    hub: Arc<Hub>,
    watcher: Arc<Watcher>,
    prefix: Arc<str>,
    id: u64,
}

impl WatchStream for HubStream {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchItem, StorageError>> {
        // Read before the queue: everything published by then is already in the queue.
        let published = self.hub.published();
        let mut state = lock(&self.watcher.state);
        if let Some(error) = state.ended.clone() {
            return Poll::Ready(Err(error));
        }
        if let Some(change) = state.queue.pop_front() {
            if state.queue.is_empty() && state.queue.capacity() > QUEUE_KEPT {
                state.queue = VecDeque::new();
            }
            state.delivered = change.revision;
            return Poll::Ready(Ok(WatchItem::Change(Arc::unwrap_or_clone(change))));
        }
        if published > state.delivered {
            state.delivered = published;
            return Poll::Ready(Ok(WatchItem::Progress(published)));
        }
        // A stream that is polled again by the same task keeps its waker.
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for HubStream {
    fn drop(&mut self) {
        lock(&self.hub.index).remove(&self.prefix, self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(numbers: std::ops::RangeInclusive<u64>) -> Vec<Arc<Change>> {
        let change =
            |number| Change { revision: Revision(number), key: "/a".into(), value: None, previous: None };
        numbers.map(|number| Arc::new(change(number))).collect()
    }

    fn next(stream: &mut HubStream) -> Poll<Result<WatchItem, StorageError>> {
        stream.poll_next(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_watcher_may_be_late_by_its_lag_and_what_was_replayed() {
        for (replayed, late, is_ended) in [(0, 3, false), (0, 4, true), (2, 3, false), (2, 4, true)] {
            let hub = Arc::new(Hub::new(Revision(1)));
            let replay = changes(1..=replayed).into();
            let mut stream = hub.subscribe("/", Revision(0), replay, 3);
            let published = changes(replayed + 1..=replayed + late);
            hub.publish(&published, Revision(replayed + late)).wake();
            let first = next(&mut stream);
            if is_ended {
                assert_eq!(first, Poll::Ready(Err(StorageError::Lagged { limit: 3 })), "{replayed} {late}");
            } else {
                assert!(
                    matches!(first, Poll::Ready(Ok(WatchItem::Change(_)))),
                    "{replayed} {late}: {first:?}"
                );
            }
        }
    }

    #[test]
    fn progress_is_reported_once_and_an_end_to_every_watcher() {
        let hub = Arc::new(Hub::new(Revision(1)));
        let mut streams = ["/", "/b"].map(|prefix| hub.subscribe(prefix, Revision(1), VecDeque::new(), 3));
        assert!(streams.iter_mut().all(|stream| next(stream).is_pending()));
        hub.publish(&changes(2..=2), Revision(2)).wake();
        let [all, other] = &mut streams;
        assert!(matches!(next(all), Poll::Ready(Ok(WatchItem::Change(_)))));
        assert_eq!(next(other), Poll::Ready(Ok(WatchItem::Progress(Revision(2)))));
        assert!(next(all).is_pending() && next(other).is_pending());
        let error = StorageError::Unavailable("gone".to_owned());
        hub.end_all(&error).wake();
        for stream in &mut streams {
            assert_eq!(next(stream), Poll::Ready(Err(error.clone())));
        }
    }

    #[test]
    fn a_queue_that_ran_empty_keeps_little_memory() {
        for (entries, kept) in [(QUEUE_KEPT / 2, true), (QUEUE_KEPT, true), (QUEUE_KEPT + 1, false)] {
            let hub = Arc::new(Hub::new(Revision(1)));
            let mut replay = VecDeque::with_capacity(entries);
            replay.extend(changes(1..=entries as u64));
            assert_eq!(replay.capacity(), entries);
            let mut stream = hub.subscribe("/", Revision(0), replay, 1);
            for number in 1..=entries {
                assert_eq!(
                    lock(&stream.watcher.state).queue.capacity(),
                    entries,
                    "before {number} of {entries}"
                );
                assert!(matches!(next(&mut stream), Poll::Ready(Ok(WatchItem::Change(_)))));
            }
            assert_eq!(lock(&stream.watcher.state).queue.capacity() > 0, kept, "{entries}");
        }
    }

    #[test]
    fn a_dropped_watch_leaves_nothing_behind() {
        let hub = Arc::new(Hub::new(Revision(1)));
        let prefixes = ["", "/a", "/b", "/a", "/a/b"];
        let streams = prefixes.map(|prefix| hub.subscribe(prefix, Revision(1), VecDeque::new(), 8));
        let mut matched = 0;
        lock(&hub.index).matching("/a/b/c", |_, _| matched += 1);
        assert_eq!(matched, 4, "all but the one of /b");
        drop(streams);
        let index = lock(&hub.index);
        assert!(index.by_prefix.is_empty() && index.lengths.is_empty());
    }

    #[test]
    fn prefixes_may_end_within_a_character() {
        let hub = Arc::new(Hub::new(Revision(1)));
        let _stream = hub.subscribe("/é", Revision(1), VecDeque::new(), 8);
        for (key, expected) in [("/é", 1), ("/éa", 1), ("/aé", 0), ("/日本", 0)] {
            let mut matched = 0;
            lock(&hub.index).matching(key, |_, _| matched += 1);
            assert_eq!(matched, expected, "{key}");
        }
    }
}
