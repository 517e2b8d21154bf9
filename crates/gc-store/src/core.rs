//! The map and its watchers under one lock. The memory and the redb store serve reads and watches from it.

#[cfg(test)]
mod interleavings;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use gc_store_api::{
    Change, GetAnswer, Hold, Key, KeyValue, RangeAnswer, RangeOptions, Revision, StorageError, StoreStatus,
};

use crate::hub::{Hub, HubStream, lock};
use crate::mvcc::{Found, HistoryOptions, Mvcc, Visit};

/// Factor by which history kept for readers may exceed the history kept for watches.
const HELD_TIMES: usize = 2;
/// Number of keys that a long range visits before it lets writers in.
const RANGE_CHUNK: usize = 2048;
/// Number of attempts to read values from disk beside the writers. Then they wait for the reader.
const READ_TURNS: u32 = 4;
/// Number of records that a search for values to move out of memory visits before it lets readers in.
const SWEEP_RECORDS: usize = 1024;

/// Source of the values that are not in memory.
pub(crate) trait ValueSource: fmt::Debug + Send + Sync {
    /// Reads the values of these items, which are in the order of their keys; `None` for an item of which the source has another
    /// version, or none. Never returns a value of another version.
    fn read(&self, items: &[&KeyValue]) -> Result<Vec<Option<Bytes>>, StorageError>;
}

#[derive(Debug)]
pub(crate) struct Core {
    data: RwLock<Mvcc>,
    hub: Arc<Hub>,
    watch_lag: usize,
    holds: Arc<Holds>,
    /// Absent if all values are in memory.
    source: Option<Arc<dyn ValueSource>>,
    /// True if reads have filled the memory for values.
    is_crowded: AtomicBool,
}

/// Number of readers of each revision that is kept for them.
#[derive(Debug, Default)]
struct Holds(Mutex<BTreeMap<Revision, usize>>);

/// A reader's claim to a revision; dropping it releases the revision.
struct Holder {
    holds: Arc<Holds>,
    revision: Revision,
}

impl Drop for Holder {
    fn drop(&mut self) {
        let mut holds = lock(&self.holds.0);
        if let Some(readers) = holds.get_mut(&self.revision) {
            *readers -= 1;
            if *readers == 0 {
                holds.remove(&self.revision);
            }
        }
    }
}

impl Core {
    pub(crate) fn new(data: Mvcc, watch_lag: usize) -> Self {
        let hub = Arc::new(Hub::new(data.revision()));
        Self {
            data: RwLock::new(data),
            hub,
            watch_lag,
            holds: Arc::default(),
            source: None,
            is_crowded: AtomicBool::new(false),
        }
    }

    /// Creates a map some of whose values may be read from a source.
    pub(crate) fn with_source(data: Mvcc, watch_lag: usize, source: Arc<dyn ValueSource>) -> Self {
        Self { source: Some(source), ..Self::new(data, watch_lag) }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.hub.published()
    }

    pub(crate) fn status(&self) -> StoreStatus {
        let oldest = self.read().compacted();
        StoreStatus { newest: self.revision(), oldest: Some(oldest), ..StoreStatus::default() }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Mvcc> {
        self.data.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Mvcc> {
        self.data.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn current(&self, key: &str) -> Option<KeyValue> {
        self.read().current(key)
    }

    /// Keeps a revision readable while the history takes no more than [`HELD_TIMES`] times its bounds.
    pub(crate) fn hold(&self, revision: Revision) -> Hold {
        *lock(&self.holds.0).entry(revision).or_default() += 1;
        Arc::new(Holder { holds: Arc::clone(&self.holds), revision })
    }

    /// Returns the revision up to which history must be forgotten to stay within the bounds, sparing revisions that are still being
    /// read.
    pub(crate) fn overdue(&self, data: &Mvcc, history: &HistoryOptions) -> Option<Revision> {
        let target = data.overdue(history, 1)?;
        let held = lock(&self.holds.0).first_key_value().map(|(revision, _)| *revision);
        match held.filter(|held| *held < target) {
            None => Some(target),
            Some(held) => {
                data.overdue(history, HELD_TIMES).max(Some(held)).filter(|target| *target > data.compacted())
            }
        }
    }

    pub(crate) fn get(&self, key: &str, at: Option<Revision>) -> Result<GetAnswer, StorageError> {
        for _ in 0..READ_TURNS {
            let data = self.read();
            let revision = data.readable(at)?;
            let unread = match data.find(key, revision) {
                None => return Ok(GetAnswer { item: None, revision }),
                Some(Found::InMemory(item)) => return Ok(GetAnswer { item: Some(item), revision }),
                Some(Found::OnDisk(item)) => item,
            };
            drop(data);
            let mut visit = Visit::of_unread(unread);
            if self.read_values(revision, &mut visit)? {
                let item = visit.items.pop();
                self.keep(item.as_ref());
                return Ok(GetAnswer { item, revision });
            }
        }
        let data = self.read();
        let revision = data.readable(at)?;
        let mut visit = Visit::new(&RangeOptions::default());
        visit.extend(data.find(key, revision));
        self.read_values_under_lock(&data, revision, &mut visit)?;
        Ok(GetAnswer { item: visit.items.pop(), revision })
    }

    /// Keeps a value that was read from disk in memory, unless that would have to wait.
    fn keep(&self, item: Option<&KeyValue>) {
        if let Some(item) = item
            && let Ok(mut data) = self.data.try_write()
            && data.keep(item.clone())
        {
            self.is_crowded.store(true, Ordering::Relaxed);
        }
    }

    /// Reports, once, whether reads have filled the memory for values, so that the committer should call [`Self::sweep`].
    pub(crate) fn take_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed) && self.is_crowded.swap(false, Ordering::Relaxed)
    }

    /// Moves values out of memory if they exceed the budget. Returns whether more has to leave. See [`Mvcc::sweep`].
    pub(crate) fn sweep(&self) -> bool {
        self.read().excess() > 0 && self.write().sweep(SWEEP_RECORDS)
    }

    /// Brings the values of these keys back into memory, so that the keys can be changed.
    pub(crate) fn warm<'k>(&self, keys: impl Iterator<Item = &'k str>) -> Result<(), StorageError> {
        let data = self.read();
        if !data.has_cold() {
            return Ok(());
        }
        let mut visit = Visit::new(&RangeOptions::default());
        visit.extend(keys.filter_map(|key| data.cold(key)).map(Found::OnDisk));
        if visit.items.is_empty() {
            return Ok(());
        }
        visit.items.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        visit.items.dedup_by(|one, other| one.key == other.key);
        visit.unread = (0..visit.items.len()).collect();
        drop(data);
        // Only the caller changes keys, but readers may have brought a value back meanwhile.
        self.read_missing(&mut visit)?;
        let mut data = self.write();
        let is_lost = visit.unread.iter().find(|&&position| data.cold(&visit.items[position].key).is_some());
        if let Some(&position) = is_lost {
            return Err(lost(&visit.items[position]));
        }
        visit.items.into_iter().for_each(|item| data.warm(item));
        Ok(())
    }

    /// Takes the value of a key for empty, because it is damaged on disk, so that the key can be deleted. Its size is still counted until
    /// the next start.
    pub(crate) fn give_up(&self, key: &Key) {
        let mut data = self.write();
        if let Some(unread) = data.cold(key) {
            data.warm(unread);
        }
    }

    /// Reads a range at one revision, but not under one lock: writers continue between its chunks.
    pub(crate) fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        for _ in 0..READ_TURNS {
            if let Some(answer) = self.range_in_chunks(prefix, options)? {
                return Ok(answer);
            }
            if !self.read().has_cold() {
                break;
            }
        }
        // History was discarded in the meantime, so start over under one lock.
        let data = self.read();
        let revision = data.readable(options.at)?;
        let mut visit = Visit::new(options);
        data.visit(prefix, options.after.as_deref(), revision, usize::MAX, &mut visit);
        self.read_values_under_lock(&data, revision, &mut visit)?;
        Ok(visit.answer(revision))
    }

    /// Reads a range; returns `None` if the history that it needs was discarded in the meantime.
    fn range_in_chunks(
        &self,
        prefix: &str,
        options: &RangeOptions,
    ) -> Result<Option<RangeAnswer>, StorageError> {
        let mut data = self.read();
        let revision = data.readable(options.at)?;
        // Reading from disk takes its time.
        let _hold = data.has_cold().then(|| self.hold(revision));
        let mut visit = Visit::new(options);
        let mut cursor: Option<Key> = options.after.clone();
        loop {
            cursor = data.visit(prefix, cursor.as_deref(), revision, RANGE_CHUNK, &mut visit);
            drop(data);
            if !self.read_values(revision, &mut visit)? {
                return Ok(None);
            }
            if cursor.is_none() {
                return Ok(Some(visit.answer(revision)));
            }
            data = self.read();
            if data.readable(Some(revision)).is_err() {
                return Ok(None);
            }
        }
    }

    /// Reads the values of a range that are on disk. Returns `false` if the history that it needs was discarded in the meantime.
    fn read_values(&self, revision: Revision, visit: &mut Visit) -> Result<bool, StorageError> {
        for _ in 0..READ_TURNS {
            if visit.unread.is_empty() {
                return Ok(true);
            }
            self.read_missing(visit)?;
            if visit.unread.is_empty() {
                return Ok(true);
            }
            // These keys were changed in the meantime, so their former values are in memory.
            let data = self.read();
            if data.readable(Some(revision)).is_err() {
                return Ok(false);
            }
            data.find_unread(revision, visit);
        }
        let data = self.read();
        if data.readable(Some(revision)).is_err() {
            return Ok(false);
        }
        self.read_values_under_lock(&data, revision, visit).map(|()| true)
    }

    /// Reads the values of a range that are on disk. While the map is locked, no key on disk is changed.
    fn read_values_under_lock(
        &self,
        data: &Mvcc,
        revision: Revision,
        visit: &mut Visit,
    ) -> Result<(), StorageError> {
        data.find_unread(revision, visit);
        self.read_missing(visit)?;
        visit.unread.first().map_or(Ok(()), |&position| Err(lost(&visit.items[position])))
    }

    /// Reads the values of a range that are on disk in the version that the range has.
    fn read_missing(&self, visit: &mut Visit) -> Result<(), StorageError> {
        let Some(source) = self.source.as_ref().filter(|_| !visit.unread.is_empty()) else { return Ok(()) };
        let wanted: Vec<&KeyValue> = visit.unread.iter().map(|&position| &visit.items[position]).collect();
        let mut values = source.read(&wanted)?.into_iter();
        let Visit { items, unread, .. } = visit;
        unread.retain(|&position| match values.next().flatten() {
            Some(value) => {
                items[position].value = value;
                false
            }
            None => true,
        });
        Ok(())
    }

    pub(crate) fn watch(&self, prefix: &str, after: Revision) -> Result<HubStream, StorageError> {
        // The lock prevents publishing between the replay and the subscription.
        let data = self.read();
        let replay = data.changes_after(prefix, after)?;
        Ok(self.hub.subscribe(prefix, after, replay, self.watch_lag))
    }

    /// Applies complete transactions, forgets history up to `compact`, and notifies the watchers.
    pub(crate) fn publish(
        &self,
        mut data: RwLockWriteGuard<'_, Mvcc>,
        changes: &[Arc<Change>],
        compact: impl FnOnce(&Mvcc) -> Option<Revision>,
    ) {
        data.apply(changes);
        if let Some(target) = compact(&data) {
            data.compact(target);
        }
        let wakers = self.hub.publish(changes, data.revision());
        drop(data);
        wakers.wake();
    }
}

/// Returns the error of a value that is neither in memory nor in the data file.
fn lost(item: &KeyValue) -> StorageError {
    StorageError::Broken(format!(
        "the data file lacks the value of {} of revision {}; restore it from a backup",
        item.key, item.mod_revision
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // tests

    use std::sync::{OnceLock, Weak};

    use super::*;
    use crate::mvcc::Loading;
    use crate::record::OnDisk;

    /// A source whose first reads find another version. It notes for each read whether a writer could have continued.
    #[derive(Debug, Default)]
    struct Late {
        core: OnceLock<Weak<Core>>,
        /// Number of reads that find another version than the wanted one.
        in_vain: usize,
        /// True if the history that the first read needs is discarded meanwhile.
        compacts: bool,
        had_writers: Mutex<Vec<bool>>,
    }

    impl ValueSource for Late {
        fn read(&self, items: &[&KeyValue]) -> Result<Vec<Option<Bytes>>, StorageError> {
            let core = self.core.get().and_then(Weak::upgrade).unwrap();
            let mut reads = lock(&self.had_writers);
            if self.compacts && reads.is_empty() {
                let change = Change {
                    revision: Revision(6),
                    key: "/other".into(),
                    value: Some("new".into()),
                    previous: None,
                };
                core.publish(core.write(), &[Arc::new(change)], |_| Some(Revision(6)));
            }
            reads.push(core.data.try_write().is_ok());
            Ok(vec![(reads.len() > self.in_vain).then(|| "v".into()); items.len()])
        }
    }

    /// Writers wait for a reader only after it has read in vain several times.
    #[test]
    fn values_on_disk_are_read_beside_writers() {
        let on_disk = OnDisk { create_revision: Revision(2), mod_revision: Revision(3) };
        let key: Key = "/k".into();
        let item = KeyValue { value: "v".into(), ..on_disk.to_unread(&key) };
        let (found, is_lost) = (Ok(vec![item]), Err(lost(&on_disk.to_unread(&key))));
        for (in_vain, compacts, reads, expected) in [
            (0, false, vec![true], &found),
            (3, false, vec![true; 4], &found),
            (4, false, vec![true, true, true, true, false], &found),
            (5, false, vec![true, true, true, true, false], &is_lost),
            (1, true, vec![true, true], &found),
        ] {
            for is_range in [false, true] {
                let mut data = Loading::new(Revision(5), 0);
                data.add(Arc::clone(&key), b"v", on_disk);
                let source = Arc::new(Late { in_vain, compacts, ..Late::default() });
                let core = Arc::new(Core::with_source(data.finish(std::iter::empty()), 1, source.clone()));
                source.core.set(Arc::downgrade(&core)).unwrap();
                let read = if is_range {
                    core.range("/k", &RangeOptions::default()).map(|answer| answer.items)
                } else {
                    core.get("/k", None).map(|answer| answer.item.into_iter().collect())
                };
                assert_eq!((&*lock(&source.had_writers), &read), (&reads, expected), "{in_vain}, {is_range}");
            }
        }
    }

    #[test]
    fn a_revision_is_kept_until_its_last_reader_has_left() {
        let mut data = Mvcc::new();
        for revision in (2..=7).map(Revision) {
            let change = Change { revision, key: "/a".into(), value: Some(Bytes::new()), previous: None };
            data.apply(&[Arc::new(change)]);
        }
        let core = Core::new(data, 1);
        let history = HistoryOptions { changes: 4, bytes: 1 << 20 };
        let overdue = || core.overdue(&core.read(), &history);
        assert_eq!(overdue(), Some(Revision(3)));
        let later = core.hold(Revision(5));
        for reader in [core.hold(Revision(1)), core.hold(Revision(1))] {
            assert_eq!(overdue(), Some(Revision(1)));
            drop(reader);
        }
        drop(later);
        assert_eq!(overdue(), Some(Revision(3)));
        // A revision that a reader holds may be forgotten already.
        core.write().compact(Revision(2));
        let history = HistoryOptions { changes: 3, bytes: 1 << 20 };
        let _earlier = core.hold(Revision(2));
        assert_eq!(core.overdue(&core.read(), &history), None);
    }

    #[test]
    fn crowding_is_reported_once() {
        let core = Core::new(Mvcc::new(), 1);
        assert!(!core.take_crowded());
        core.is_crowded.store(true, Ordering::Relaxed);
        assert_eq!([core.take_crowded(), core.take_crowded()], [true, false]);
    }
}
