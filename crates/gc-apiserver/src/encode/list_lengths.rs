//! Lengths of large collections in protobuf. A list in protobuf states its length first, and encoding a million objects just to
//! learn it takes seconds; with a known length, the list begins at once.
//!
//! A collection is measured when the server starts, or when a list first asks for its length. From then on each change of an object adds
//! the length of its new state and subtracts that of the one before, which the store delivers with it: nothing is kept for an object. The
//! last changes are remembered, because a list is of one version, and that may be a little older than what was counted. Small collections
//! are not counted: they are written before they are sent. Neither are those that are changed often and seldom listed, because every write
//! pays for counting.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use gc_registry::api::{ListedCollection, Object};
use gc_registry::object::TypeMeta;
use gc_registry::storage::{Change, Key, KeyValue, Revision, WatchItem, WatchStream};

use super::list_protobuf::{ITEMS, ProtobufItems};
use super::protobuf_length;

/// Stored bytes from which on a collection is counted.
const COUNTED_FROM: i64 = 1 << 20;
/// A counted collection is dropped below this fraction of that size, so one near the bound is not measured again and again.
const COUNTED_TO: i64 = 4;
/// Number of changes that are remembered for each collection.
const RECENT: usize = 4096;
/// Maximum number of namespaces that are counted separately for a collection; beyond it, only the whole collection is.
const NAMESPACES: usize = 10_000;
/// Maximum number of changes that are counted before other tasks of the thread may run.
const BUDGET: usize = 256;
/// Bytes of objects after which they may run, too: a client may write large ones.
const BUDGET_BYTES: usize = 1 << 20;

/// Encoding of the objects of a collection.
pub(crate) struct CountedForm {
    items: ProtobufItems,
    type_meta: Arc<TypeMeta>,
}

impl CountedForm {
    pub(crate) fn new(items: ProtobufItems, type_meta: Arc<TypeMeta>) -> Self {
        Self { items, type_meta }
    }

    /// Returns the length of an object in a list; 0 if it is unreadable, because a list fails at it.
    fn measure(&self, stored: &Bytes, revision: Revision, scratch: &mut Vec<u8>) -> i64 {
        let length = if let Some(fields) = self.items.fields() {
            let version = revision.to_string();
            protobuf_length::of_object(&self.type_meta, fields, stored, &version)
                .map_or(0, |length| protobuf_length::delimited(ITEMS, length))
        } else {
            let object = Object::from_stored(Arc::clone(&self.type_meta), stored.clone(), revision);
            scratch.clear();
            self.items.write(scratch, &object).map_or(0, |()| scratch.len())
        };
        i64::try_from(length).unwrap_or(i64::MAX)
    }

    fn is_of(&self, items: ProtobufItems) -> bool {
        match (self.items.fields(), items.fields()) {
            (None, None) => true,
            (Some(one), Some(other)) => std::ptr::eq(one, other),
            _ => false,
        }
    }
}

/// Stored bytes, and the length in each form.
type Lengths = Box<[i64]>;

/// Lengths of objects, together and by namespace.
pub(crate) struct Totals {
    forms: Arc<[CountedForm]>,
    all: Lengths,
    /// `None` if there are too many namespaces.
    namespaces: Option<HashMap<Box<str>, Lengths>>,
}

impl Totals {
    pub(crate) fn new(forms: Arc<[CountedForm]>) -> Self {
        let all = vec![0; forms.len() + 1].into();
        Self { forms, all, namespaces: Some(HashMap::new()) }
    }

    /// Adds the lengths of objects with keys under this prefix.
    pub(crate) fn add_objects(&mut self, prefix: &str, objects: &[KeyValue]) {
        let mut scratch = Vec::new();
        for KeyValue { key, value, mod_revision, .. } in objects {
            let mut lengths = vec![0; self.all.len()].into_boxed_slice();
            self.measure(&mut lengths, (value, *mod_revision), 1, &mut scratch);
            self.add(namespace_of(prefix, key), &lengths);
        }
    }

    /// Adds the lengths of an object, or subtracts them.
    fn measure(
        &self,
        lengths: &mut [i64],
        (value, at): (&Bytes, Revision),
        sign: i64,
        scratch: &mut Vec<u8>,
    ) {
        let [bytes, forms @ ..] = lengths else { return };
        *bytes += sign * size(value);
        for (length, form) in forms.iter_mut().zip(&*self.forms) {
            *length += sign * form.measure(value, at, scratch);
        }
    }

    fn add(&mut self, namespace: Option<&str>, lengths: &[i64]) {
        add(&mut self.all, lengths);
        let (Some(namespace), Some(namespaces)) = (namespace, &mut self.namespaces) else { return };
        if let Some(of_namespace) = namespaces.get_mut(namespace) {
            add(of_namespace, lengths);
            if of_namespace.iter().all(|length| *length == 0) {
                namespaces.remove(namespace);
            }
        } else if namespaces.len() < NAMESPACES {
            namespaces.insert(namespace.into(), lengths.into());
        } else {
            self.namespaces = None;
        }
    }

    fn add_all(&mut self, other: Self) {
        let Some(namespaces) = other.namespaces else {
            self.namespaces = None;
            return add(&mut self.all, &other.all);
        };
        let before = self.all.clone();
        for (namespace, lengths) in namespaces {
            self.add(Some(&namespace), &lengths);
        }
        // Objects without a namespace are in none of these sums.
        self.all = before;
        add(&mut self.all, &other.all);
    }

    fn stored_bytes(&self) -> i64 {
        self.all.first().copied().unwrap_or_default()
    }
}

fn add(to: &mut [i64], lengths: &[i64]) {
    for (sum, length) in to.iter_mut().zip(lengths) {
        *sum += length;
    }
}

fn size(value: &Bytes) -> i64 {
    i64::try_from(value.len()).unwrap_or(i64::MAX)
}

fn namespace_of<'k>(prefix: &str, key: &'k str) -> Option<&'k str> {
    key.strip_prefix(prefix)?.split_once('/').map(|(namespace, _)| namespace)
}

/// Returns the prefix of a key's collection: `/group/resource/`.
fn prefix_of(key: &str) -> Option<&str> {
    let (at, _) = key.match_indices('/').nth(2)?;
    Some(&key[..=at])
}

/// Difference that one change makes to the lengths.
struct Difference {
    revision: Revision,
    key: Key,
    lengths: Lengths,
}

/// Lengths of a counted collection.
struct Count {
    totals: Totals,
    /// Oldest revision whose length is known.
    since: Revision,
    /// Last changes, oldest first.
    recent: VecDeque<Difference>,
    /// Changes, and their bytes, since a list last asked for the length.
    unasked_changes: usize,
    unasked_bytes: i64,
    /// False while the objects that existed at the start are being measured.
    is_complete: bool,
}

impl Count {
    fn new(forms: Arc<[CountedForm]>, since: Revision) -> Self {
        Self {
            totals: Totals::new(forms),
            since,
            recent: VecDeque::new(),
            unasked_changes: 0,
            unasked_bytes: 0,
            is_complete: false,
        }
    }

    /// Reports whether counting since the last list has cost more than measuring the collection once more would.
    fn is_idle(&self) -> bool {
        self.unasked_changes > RECENT && self.unasked_bytes > self.totals.stored_bytes()
    }

    fn take(&mut self, prefix: &str, change: &Change, scratch: &mut Vec<u8>) {
        self.unasked_changes += 1;
        self.unasked_bytes += change.value.as_ref().map_or(0, size);
        self.unasked_bytes += change.previous.as_ref().map_or(0, |before| size(&before.value));
        let mut lengths = vec![0; self.totals.all.len()].into_boxed_slice();
        if let Some(value) = &change.value {
            self.totals.measure(&mut lengths, (value, change.revision), 1, scratch);
        }
        if let Some(KeyValue { value, mod_revision, .. }) = &change.previous {
            self.totals.measure(&mut lengths, (value, *mod_revision), -1, scratch);
        }
        self.totals.add(namespace_of(prefix, &change.key), &lengths);
        if self.recent.len() == RECENT
            && let Some(oldest) = self.recent.pop_front()
        {
            self.since = self.since.max(oldest.revision);
        }
        self.recent.push_back(Difference {
            revision: change.revision,
            key: Arc::clone(&change.key),
            lengths,
        });
    }

    /// Returns the length of the items of a list.
    fn length(&mut self, collection: &ListedCollection, items: ProtobufItems) -> Option<usize> {
        (self.unasked_changes, self.unasked_bytes) = (0, 0);
        let ListedCollection { prefix, namespace, revision } = collection;
        if !self.is_complete || *revision < self.since {
            return None;
        }
        let index = 1 + self.totals.forms.iter().position(|form| form.is_of(items))?;
        let lengths = if namespace.is_empty() {
            Some(&self.totals.all)
        } else {
            self.totals.namespaces.as_ref()?.get(namespace.as_str())
        };
        let newest = lengths.map_or(0, |lengths| lengths[index]);
        let is_later = |difference: &&Difference| difference.revision > *revision;
        let is_in = |difference: &&Difference| {
            namespace.is_empty() || namespace_of(prefix, &difference.key) == Some(namespace)
        };
        let later: i64 = self
            .recent
            .iter()
            .rev()
            .take_while(is_later)
            .filter(is_in)
            .map(|difference| difference.lengths[index])
            .sum();
        usize::try_from(newest - later).ok()
    }
}

/// State of a collection.
enum Counting {
    /// Not counted, because it is small or no list has asked for its length; it has at most this number of stored bytes.
    Uncounted(i64),
    Counted(Box<Count>),
    /// Not counted, because a list once had another length than was stated.
    Distrusted,
}

struct State {
    /// Stored bytes from which a collection is counted.
    counted_from: i64,
    /// All changes of the store.
    stream: Option<Box<dyn WatchStream>>,
    /// Wakes the task that follows the changes.
    waker: Option<Waker>,
    /// Revision up to which all changes are counted.
    progress: Revision,
    /// Revision of the last change that was counted.
    last: Revision,
    collections: HashMap<Box<str>, Counting>,
    /// Prefixes of the collections that are yet to be measured.
    large: BTreeSet<Box<str>>,
    distrusted: HashSet<Box<str>>,
    scratch: Vec<u8>,
}

impl State {
    fn new(counted_from: i64) -> Self {
        Self {
            counted_from,
            stream: None,
            waker: None,
            progress: Revision(0),
            last: Revision(0),
            collections: HashMap::new(),
            large: BTreeSet::new(),
            distrusted: HashSet::new(),
            scratch: Vec::new(),
        }
    }

    /// Counts pending changes. Returns false if there may be more; an error means that the stream has ended.
    fn pump(&mut self) -> Result<bool, ()> {
        let Some(mut stream) = self.stream.take() else { return Err(()) };
        let waker = self.waker.clone();
        let mut context = Context::from_waker(waker.as_ref().unwrap_or(Waker::noop()));
        let (mut changes, mut bytes) = (0, 0);
        while changes < BUDGET && bytes < BUDGET_BYTES {
            changes += 1;
            match stream.poll_next(&mut context) {
                Poll::Pending => {
                    // A stream that waits has delivered every transaction completely.
                    self.progress = self.progress.max(self.last);
                    self.stream = Some(stream);
                    return Ok(true);
                }
                Poll::Ready(Ok(WatchItem::Change(change))) => {
                    bytes += change.value.as_ref().map_or(0, Bytes::len);
                    bytes += change.previous.as_ref().map_or(0, |before| before.value.len());
                    self.take(&change);
                }
                Poll::Ready(Ok(WatchItem::Progress(revision))) => self.progress = self.progress.max(revision),
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "lengths of collections are measured once more");
                    return Err(());
                }
            }
        }
        self.stream = Some(stream);
        Ok(false)
    }

    fn take(&mut self, change: &Change) {
        if change.revision > self.last {
            self.progress = self.progress.max(self.last);
            self.last = change.revision;
        }
        let Some(prefix) = prefix_of(&change.key) else { return };
        match self.collections.get_mut(prefix) {
            Some(Counting::Counted(count)) => {
                count.take(prefix, change, &mut self.scratch);
                let bytes = count.totals.stored_bytes();
                if count.is_complete && (bytes < self.counted_from / COUNTED_TO || count.is_idle()) {
                    self.collections.insert(prefix.into(), Counting::Uncounted(bytes));
                }
            }
            Some(Counting::Uncounted(bytes)) => {
                *bytes += change.value.as_ref().map_or(0, size);
                *bytes -= change.previous.as_ref().map_or(0, |before| size(&before.value));
            }
            // Lists of these collections are measured each time.
            Some(Counting::Distrusted) | None => {}
        }
    }

    fn length(&mut self, collection: &ListedCollection, items: ProtobufItems) -> Option<usize> {
        match self.collections.get_mut(collection.prefix.as_str())? {
            Counting::Counted(count) => count.length(collection, items),
            Counting::Uncounted(bytes) => {
                if *bytes >= self.counted_from && self.large.insert(collection.prefix.as_str().into()) {
                    // The task that follows the changes measures it.
                    self.waker.iter().for_each(Waker::wake_by_ref);
                }
                None
            }
            Counting::Distrusted => None,
        }
    }

    fn forget(&mut self) {
        let distrusted = std::mem::take(&mut self.distrusted);
        let waker = self.waker.take();
        *self = Self { waker, distrusted, ..Self::new(self.counted_from) };
    }
}

/// Lengths of large collections. [`ListLengths::open`] begins to follow a store.
pub(crate) struct ListLengths(Mutex<State>);

impl Default for ListLengths {
    fn default() -> Self {
        Self::counting_from(COUNTED_FROM)
    }
}

impl ListLengths {
    /// Creates lengths that count collections from this number of stored bytes on.
    pub(crate) fn counting_from(bytes: i64) -> Self {
        Self(Mutex::new(State::new(bytes)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the changes after a revision, and queues the collections with these prefixes for measuring.
    pub(crate) fn open(
        &self,
        stream: Box<dyn WatchStream>,
        after: Revision,
        prefixes: impl Iterator<Item = String>,
    ) {
        let mut state = self.state();
        state.forget();
        state.stream = Some(stream);
        (state.progress, state.last) = (after, after);
        for prefix in prefixes {
            let prefix: Box<str> = prefix.into();
            let counting = if state.distrusted.contains(&prefix) {
                Counting::Distrusted
            } else {
                Counting::Uncounted(0)
            };
            state.collections.insert(prefix.clone(), counting);
            state.large.insert(prefix);
        }
    }

    /// Counts changes as they arrive. `Ready` once the stream has ended.
    pub(crate) fn poll_changes(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        state.waker = Some(context.waker().clone());
        match state.pump() {
            Ok(true) => Poll::Pending,
            Ok(false) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(()) => {
                state.forget();
                Poll::Ready(())
            }
        }
    }

    /// Returns the prefix of the next collection to measure.
    pub(crate) fn next_large(&self) -> Option<Box<str>> {
        self.state().large.pop_first()
    }

    /// Begins to count the changes of a collection. Returns the revision at which its objects are to be measured.
    pub(crate) fn begin(&self, prefix: &str, forms: Arc<[CountedForm]>) -> Option<Revision> {
        let mut state = self.state();
        while !state.pump().ok()? {}
        let since = state.progress;
        let counting = state.collections.get_mut(prefix)?;
        if !matches!(counting, Counting::Uncounted(_)) {
            return None;
        }
        *counting = Counting::Counted(Box::new(Count::new(forms, since)));
        Some(since)
    }

    /// Completes the count that [`Self::begin`] started. Without a measurement, the collection is not counted until a list
    /// asks for it again.
    pub(crate) fn complete(&self, prefix: &str, measured: Option<Totals>) {
        let mut state = self.state();
        let counted_from = state.counted_from;
        let Some(counting) = state.collections.get_mut(prefix) else { return };
        let Counting::Counted(count) = counting else { return };
        let Some(measured) = measured else {
            *counting = Counting::Uncounted(counted_from);
            return;
        };
        count.totals.add_all(measured);
        count.is_complete = true;
        let bytes = count.totals.stored_bytes();
        if bytes < counted_from {
            *counting = Counting::Uncounted(bytes);
        }
    }

    /// Returns the length of the items of a list; `None` if it is not known. Has a large collection counted for the next list.
    pub(crate) fn poll_length(
        &self,
        context: &mut Context<'_>,
        collection: &ListedCollection,
        items: ProtobufItems,
    ) -> Poll<Option<usize>> {
        let mut state = self.state();
        while state.progress < collection.revision {
            match state.pump() {
                Ok(false) => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(true) if state.progress < collection.revision => return Poll::Ready(None),
                Ok(true) => {}
                Err(()) => {
                    // The task that follows the changes opens a new stream.
                    if let Some(waker) = state.waker.take() {
                        waker.wake();
                    }
                    return Poll::Ready(None);
                }
            }
        }
        Poll::Ready(state.length(collection, items))
    }

    /// Stops counting a collection until the server restarts, because a list had another length than was stated.
    pub(crate) fn distrust(&self, prefix: &str) {
        let mut state = self.state();
        state.distrusted.insert(prefix.into());
        state.collections.insert(prefix.into(), Counting::Distrusted);
    }
}
