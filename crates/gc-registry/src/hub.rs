//! A single watch on the store feeds all API watches.
//!
//! For each resource, the hub keeps a bounded window of its latest changes. An API watch is a position in such a window; it reads
//! the changes itself and decodes what it needs, and watches share what one of them has decoded. Thus a change costs the hub the
//! same whether one watch or ten thousand follow, and a watch that falls behind the window is closed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::conversion::Changes;
use crate::error::ApiError;
use crate::freshness::{Freshness, Subject};
use crate::metadata::object::{Object, TypeMeta};
use crate::persist::{self, PresentedObject};
use crate::resource::ResourceDefinition;
use crate::storage::{Change, Key, Revision, Storage, StorageError, WatchItem, WatchStream};

/// Number of changes kept for each resource. A watch that falls further behind, or resumes from further back, gets a 410.
pub const WINDOW_CHANGES: usize = 8192;
/// Size of the values kept for each resource, in bytes.
pub const WINDOW_BYTES: usize = 64 << 20;
/// Size of the values kept for all resources together, in bytes. Beyond it, the resource with the most loses its oldest changes.
pub const WINDOWS_BYTES: usize = 256 << 20;
/// Number of resources whose last version is remembered, including those whose definition is gone.
pub const WINDOWS: usize = 4096;
/// Number of revisions replayed into the windows at the start, so that clients' watches survive a restart.
pub const REPLAYED_REVISIONS: u64 = 10_000;
/// Maximum number of changes moved in one poll of the pump.
const PUMP_BUDGET: usize = 1024;
/// Maximum number of changes that a watch takes out of its window at once.
pub(crate) const READ_BATCH: usize = 64;

/// Number of a watch unknown to the hub.
pub(crate) const NO_WATCHER: u64 = 0;

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Revision of the change.
    pub(crate) revision: Revision,
    /// Key of the object.
    pub(crate) key: Key,
    value: Option<Bytes>,
    previous: Option<Bytes>,
    views: Mutex<Vec<Slot>>,
}

/// State of a change in one version.
#[derive(Debug)]
enum Slot {
    Shown(View),
    /// A webhook is converting it to the version.
    Converting(Arc<str>, Arc<Changes>),
}

impl Slot {
    fn api_version(&self) -> &Arc<str> {
        match self {
            Self::Shown(view) => &view.api_version,
            Self::Converting(api_version, _) => api_version,
        }
    }

    fn is_converted_by(&self, changes: &Arc<Changes>) -> bool {
        matches!(self, Self::Converting(_, by) if Arc::ptr_eq(by, changes))
    }
}

/// A watch's view of a change.
pub(crate) enum Sight {
    /// The change.
    View(View),
    /// A webhook is converting it.
    Converting(Arc<Changes>),
    /// A webhook has to convert it.
    Foreign,
}

/// A change as seen in one version of the resource.
#[derive(Clone, Debug)]
pub(crate) struct View {
    api_version: Arc<str>,
    /// The new state.
    pub(crate) new: Option<Arc<Object>>,
    /// The previous state, with the version of the change.
    pub(crate) old: Option<Arc<Object>>,
}

impl Entry {
    /// Returns the change in the version of a resource, converted once for all watches of that version.
    pub(crate) fn view(
        &self,
        resource: &ResourceDefinition,
        type_meta: &Arc<TypeMeta>,
    ) -> Result<Sight, ApiError> {
        let mut views = lock(&self.views);
        match views.iter().find(|slot| *slot.api_version() == type_meta.api_version) {
            Some(Slot::Shown(view)) => return Ok(Sight::View(view.clone())),
            Some(Slot::Converting(_, changes)) => return Ok(Sight::Converting(Arc::clone(changes))),
            None => {}
        }
        let mut states = [None, None];
        for (state, bytes) in states.iter_mut().zip([&self.value, &self.previous]) {
            let Some(bytes) = bytes else { continue };
            if bytes.is_empty() {
                // It was deleted because it could not be read, so no event can say what it was.
                return Err(ApiError::new(
                    410,
                    "Expired",
                    "the last state of a deleted object cannot be read",
                ));
            }
            match persist::present(resource, type_meta, bytes.clone(), self.revision)? {
                PresentedObject::Wanted(object) => *state = Some(Arc::new(object)),
                PresentedObject::Foreign(_) => return Ok(Sight::Foreign),
            }
        }
        let [new, old] = states;
        let view = View { api_version: Arc::clone(&type_meta.api_version), new, old };
        views.push(Slot::Shown(view.clone()));
        Ok(Sight::View(view))
    }

    /// Records who converts the change to a version; returns `false` if it is already being converted.
    pub(crate) fn claim(&self, api_version: &Arc<str>, changes: &Arc<Changes>) -> bool {
        let mut views = lock(&self.views);
        let is_free = views.iter().all(|slot| slot.api_version() != api_version);
        if is_free {
            views.push(Slot::Converting(Arc::clone(api_version), Arc::clone(changes)));
        }
        is_free
    }

    /// Removes the record that the change is being converted by these.
    pub(crate) fn release(&self, changes: &Arc<Changes>) {
        lock(&self.views).retain(|slot| !slot.is_converted_by(changes));
    }

    /// Returns the stored states, the new one first.
    pub(crate) fn states(&self) -> impl Iterator<Item = (Bytes, Revision)> + use<> {
        let revision = self.revision;
        [self.value.clone(), self.previous.clone()].into_iter().flatten().map(move |bytes| (bytes, revision))
    }

    /// Sets the view of the change in a version, with the next of these objects for each of its states.
    pub(crate) fn show(
        &self,
        api_version: &Arc<str>,
        changes: &Arc<Changes>,
        objects: &mut impl Iterator<Item = Arc<Object>>,
    ) {
        let mut next = |state: &Option<Bytes>| state.as_ref().and_then(|_| objects.next());
        let (new, old) = (next(&self.value), next(&self.previous));
        let mut views = lock(&self.views);
        views.retain(|slot| !slot.is_converted_by(changes));
        views.push(Slot::Shown(View { api_version: Arc::clone(api_version), new, old }));
    }

    fn size(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len) + self.previous.as_ref().map_or(0, Bytes::len)
    }
}

/// A watch, as known to the hub.
#[derive(Debug)]
struct Watcher {
    /// Prefix of the keys whose changes wake the watch.
    scope: Arc<str>,
    /// True if the scope is a single key.
    exact: bool,
    /// Number of the next change to read.
    position: u64,
    /// Set while the watch has read everything; the position is not updated then.
    parked: Option<Waker>,
    closed: Option<ClosedReason>,
}

/// Reason why the hub closed a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClosedReason {
    /// Changes were missed.
    Expired,
    /// The resource is gone; changes before this number can still be read.
    Ended(u64),
}

/// Limits of the windows.
#[derive(Clone, Copy, Debug)]
struct Limits {
    changes: usize,
    bytes: usize,
    all_bytes: usize,
    windows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { changes: WINDOW_CHANGES, bytes: WINDOW_BYTES, all_bytes: WINDOWS_BYTES, windows: WINDOWS }
    }
}

#[derive(Debug, Default)]
struct Window {
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
    /// Number of the first entry.
    first: u64,
    /// Revision after which all changes are in the window.
    complete_after: Revision,
    watchers: BTreeMap<u64, Watcher>,
    /// True if the resource is gone, so the changes are no longer needed once its watches have ended.
    ended: bool,
}

impl Window {
    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Drops the oldest change; returns false if there is none.
    fn pop(&mut self) -> bool {
        let Some(oldest) = self.entries.pop_front() else { return false };
        self.bytes -= oldest.size();
        self.first += 1;
        self.complete_after = oldest.revision;
        true
    }

    /// Reports whether the window is no longer used.
    fn is_over(&self) -> bool {
        self.ended && self.watchers.is_empty()
    }

    fn push(&mut self, entry: Arc<Entry>, limits: &Limits) {
        let is_full = |window: &Self| {
            window.entries.len() >= limits.changes || window.bytes + entry.size() > limits.bytes
        };
        while is_full(self) && self.pop() {}
        let number = self.end();
        self.bytes += entry.size();
        for watcher in self.watchers.values_mut() {
            let concerned = if watcher.exact {
                *entry.key == *watcher.scope
            } else {
                entry.key.starts_with(&*watcher.scope)
            };
            if concerned && let Some(waker) = watcher.parked.take() {
                watcher.position = number;
                waker.wake();
            }
        }
        self.entries.push_back(entry);
    }

    /// Drops all changes, which reached up to this revision.
    fn forget(&mut self, up_to: Revision) {
        self.first = self.end();
        self.entries.clear();
        self.bytes = 0;
        self.complete_after = self.complete_after.max(up_to);
    }

    /// Marks all watches as having missed changes.
    fn expire_all(&mut self) {
        self.close_all(ClosedReason::Expired);
    }

    /// Ends the watches of a resource that is gone, once they have read all changes.
    fn end_all(&mut self) {
        self.ended = true;
        self.close_all(ClosedReason::Ended(self.end()));
    }

    fn close_all(&mut self, why: ClosedReason) {
        let end = self.end();
        for watcher in self.watchers.values_mut() {
            watcher.closed.get_or_insert(why);
            if let Some(waker) = watcher.parked.take() {
                watcher.position = end;
                waker.wake();
            }
        }
    }
}

struct State {
    limits: Limits,
    /// Revision up to which everything has been moved into the windows.
    progress: Revision,
    /// Last change moved, which a restarted stream may deliver again.
    last: (Revision, Option<Key>),
    /// Revision after which a new window is complete.
    start: Revision,
    windows: BTreeMap<Box<str>, Window>,
    /// Size of the values in all windows, in bytes.
    bytes: usize,
    next_watcher: u64,
    /// Last changes of definitions, and of webhooks and policies, that were moved.
    changed: BTreeMap<Subject, Revision>,
}

/// The hub; see the module documentation.
pub(crate) struct Hub {
    storage: Arc<dyn Storage>,
    freshness: Arc<Freshness>,
    /// The watch on the store. The pump holds this lock even while it reopens the watch, which may wait for a network; watches only
    /// need the state.
    stream: Mutex<Option<Box<dyn WatchStream>>>,
    state: Mutex<State>,
}

/// Answer of the hub to a watch.
pub(crate) enum Read {
    /// Changes, oldest first.
    Entries(Vec<Arc<Entry>>),
    /// No changes; the waker is kept.
    Parked,
    /// The watch missed changes.
    Expired,
    /// The watch has ended because its resource is gone.
    Ended,
}

impl Hub {
    pub(crate) fn new(storage: Arc<dyn Storage>, freshness: Arc<Freshness>) -> Result<Self, StorageError> {
        let newest = storage.revision()?;
        let mut start = Revision(newest.0.saturating_sub(REPLAYED_REVISIONS));
        let stream = match storage.watch("/", start) {
            Err(StorageError::Compacted { oldest, .. }) => {
                start = oldest.max(start).min(newest);
                match storage.watch("/", start) {
                    Err(StorageError::Compacted { .. }) => {
                        start = storage.revision()?;
                        storage.watch("/", start)?
                    }
                    other => other?,
                }
            }
            other => other?,
        };
        let state = State::new(start, Limits::default());
        Ok(Self { storage, freshness, stream: Mutex::new(Some(stream)), state: Mutex::new(state) })
    }

    /// Moves pending changes of the store into the windows, and records which parts of the configuration have changed. `Ready`
    /// reports a broken stream, which the next call replaces.
    pub(crate) fn poll_changes(&self, context: &mut Context<'_>) -> Poll<StorageError> {
        let mut pumping = lock(&self.stream);
        let stream = match &mut *pumping {
            Some(stream) => stream,
            none => match self.restart() {
                Ok(stream) => none.insert(stream),
                Err(error) => return Poll::Ready(error),
            },
        };
        let mut state = lock(&self.state);
        let mut pending = false;
        for _ in 0..PUMP_BUDGET {
            match stream.poll_next(context) {
                Poll::Pending => {
                    // No transaction is delivered in part before the stream becomes pending.
                    state.progress = state.progress.max(state.last.0);
                    pending = true;
                    break;
                }
                Poll::Ready(Ok(WatchItem::Change(change))) => state.take_change(change),
                Poll::Ready(Ok(WatchItem::Progress(revision))) => {
                    state.progress = state.progress.max(revision);
                }
                Poll::Ready(Err(error)) => {
                    *pumping = None;
                    return Poll::Ready(error);
                }
            }
        }
        for (subject, at) in std::mem::take(&mut state.changed) {
            self.freshness.changed(subject, at);
        }
        if !pending {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Continues where the broken stream ended; if the history is gone, closes all watches.
    fn restart(&self) -> Result<Box<dyn WatchStream>, StorageError> {
        // The lock on the state is released here, so that watches need not wait.
        let progress = self.progress();
        match self.storage.watch("/", progress) {
            Err(StorageError::Compacted { .. }) => {
                let newest = self.storage.revision()?;
                let stream = self.storage.watch("/", newest)?;
                lock(&self.state).begin_again(newest);
                Ok(stream)
            }
            other => other,
        }
    }

    /// Returns the revision up to which watches can read everything.
    pub(crate) fn progress(&self) -> Revision {
        lock(&self.state).progress
    }

    /// Starts a watch of the changes after a revision. Fails if some of them are missing.
    pub(crate) fn subscribe(
        &self,
        prefix: &str,
        scope: Arc<str>,
        exact: bool,
        after: Revision,
    ) -> Result<u64, Revision> {
        let mut state = lock(&self.state);
        let start = state.start;
        state.next_watcher += 1;
        let id = state.next_watcher;
        let window = state
            .windows
            .entry(prefix.into())
            .or_insert_with(|| Window { complete_after: start, ..Window::default() });
        if after < window.complete_after {
            return Err(window.complete_after);
        }
        let position = window.first + window.entries.partition_point(|entry| entry.revision <= after) as u64;
        window.watchers.insert(id, Watcher { scope, exact, position, parked: None, closed: None });
        Ok(id)
    }

    /// Ends a watch.
    pub(crate) fn unsubscribe(&self, prefix: &str, id: u64) {
        let mut state = lock(&self.state);
        if let Some(window) = state.windows.get_mut(prefix) {
            window.watchers.remove(&id);
            state.release(prefix);
        }
    }

    /// Returns the next changes of a watch.
    pub(crate) fn read(&self, prefix: &str, id: u64, context: &mut Context<'_>) -> Read {
        let mut state = lock(&self.state);
        let Some(window) = state.windows.get_mut(prefix) else { return Read::Ended };
        let (first, end) = (window.first, window.end());
        let Some(watcher) = window.watchers.get_mut(&id) else { return Read::Ended };
        if watcher.closed == Some(ClosedReason::Expired) {
            return Read::Expired;
        }
        if watcher.parked.is_some() {
            // Nothing in its scope has arrived since it was parked; otherwise it would have been woken.
            watcher.position = end;
        }
        if watcher.position < first {
            return Read::Expired;
        }
        if matches!(watcher.closed, Some(ClosedReason::Ended(last)) if watcher.position >= last) {
            return Read::Ended;
        }
        if watcher.position == end {
            watcher.parked = Some(context.waker().clone());
            return Read::Parked;
        }
        watcher.parked = None;
        let skip = usize::try_from(watcher.position - first).unwrap_or(usize::MAX);
        let batch: Vec<Arc<Entry>> = window.entries.iter().skip(skip).take(READ_BATCH).cloned().collect();
        watcher.position += batch.len() as u64;
        Read::Entries(batch)
    }

    /// Returns the version up to which a watch has read everything, if it has.
    pub(crate) fn caught_up(&self, prefix: &str, id: u64) -> Option<Revision> {
        let state = lock(&self.state);
        let window = state.windows.get(prefix)?;
        let watcher = window.watchers.get(&id)?;
        let idle = watcher.closed.is_none() && (watcher.parked.is_some() || watcher.position == window.end());
        idle.then_some(state.progress)
    }
}

impl State {
    fn new(start: Revision, limits: Limits) -> Self {
        Self {
            limits,
            progress: start,
            last: (start, None),
            start,
            windows: BTreeMap::new(),
            bytes: 0,
            next_watcher: 0,
            changed: BTreeMap::new(),
        }
    }

    /// Starts over after changes were missed: nothing before this revision is known, and anything may have changed.
    fn begin_again(&mut self, newest: Revision) {
        self.progress = newest;
        self.start = newest;
        self.changed = [(Subject::Definitions, newest), (Subject::Admission, newest)].into();
        for window in self.windows.values_mut() {
            window.expire_all();
            window.forget(newest);
        }
        self.bytes = 0;
    }

    /// Forgets the changes of a resource that is gone, once no watch reads them.
    fn release(&mut self, prefix: &str) {
        let seen = self.last.0;
        if let Some(window) = self.windows.get_mut(prefix).filter(|window| window.is_over()) {
            self.bytes -= window.bytes;
            window.forget(seen);
        }
    }

    /// Adds a change to the window of its resource, within the limits.
    fn push(&mut self, prefix: &str, entry: Arc<Entry>) {
        if !self.windows.contains_key(prefix) {
            self.make_room();
            let window = Window { complete_after: self.start, ..Window::default() };
            self.windows.insert(prefix.into(), window);
        }
        let Some(window) = self.windows.get_mut(prefix) else { return };
        window.ended = false;
        self.bytes -= window.bytes;
        window.push(entry, &self.limits);
        self.bytes += window.bytes;
        while self.bytes > self.limits.all_bytes {
            let largest = self.windows.values_mut().max_by_key(|window| window.bytes);
            let Some(window) = largest.filter(|window| window.entries.len() > 1) else { break };
            // Dropping half of it avoids searching for the largest window again at each of the next changes.
            let half = window.bytes / 2;
            self.bytes -= window.bytes;
            while window.bytes > half && window.entries.len() > 1 && window.pop() {}
            self.bytes += window.bytes;
        }
    }

    /// Forgets the resources that have been gone the longest, if there are too many. Resuming a watch of a forgotten resource
    /// results in a 410, and so does resuming a watch of a new resource from before that.
    fn make_room(&mut self) {
        while self.windows.len() >= self.limits.windows {
            let over = self.windows.iter().filter(|(_, window)| window.is_over());
            let oldest = over.min_by_key(|(_, window)| window.complete_after);
            let Some((prefix, at)) = oldest.map(|(prefix, window)| (prefix.clone(), window.complete_after))
            else {
                return;
            };
            self.windows.remove(&prefix);
            self.start = self.start.max(at);
        }
    }

    fn take_change(&mut self, change: Change) {
        let prefix = match change.key.match_indices('/').nth(2) {
            Some((end, _)) => &change.key[..=end],
            None => return,
        };
        let definition = prefix == persist::DEFINITIONS;
        let place = (change.revision, Some(Arc::clone(&change.key)));
        if place <= self.last {
            return;
        }
        self.last = place;
        if definition {
            self.changed.insert(Subject::Definitions, change.revision);
        } else if prefix.starts_with(persist::ADMISSION) {
            self.changed.insert(Subject::Admission, change.revision);
        }
        let entry = Arc::new(Entry {
            revision: change.revision,
            key: Arc::clone(&change.key),
            value: change.value,
            previous: change.previous.map(|previous| previous.value),
            views: Mutex::default(),
        });
        let gone = if definition && entry.value.is_none() { entry.previous.as_deref() } else { None };
        if let Some(served) = gone.and_then(served_prefix)
            && let Some(window) = self.windows.get_mut(&*served)
        {
            window.end_all();
            self.release(&served);
        }
        // A transaction may write several keys, so more changes of this revision may follow.
        self.progress = self.progress.max(Revision(change.revision.0.saturating_sub(1)));
        self.push(prefix, entry);
    }
}

/// Returns the storage prefix of the instances of a definition.
fn served_prefix(definition: &[u8]) -> Option<Box<str>> {
    let definition: serde_json::Value = serde_json::from_slice(definition).ok()?;
    let group = definition.pointer("/spec/group")?.as_str()?;
    let plural = definition.pointer("/spec/names/plural")?.as_str()?;
    Some(format!("/{group}/{plural}/").into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while holding one of these locks, so the data is intact even if it is poisoned.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
