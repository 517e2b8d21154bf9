//! The map and its watchers under one lock. The memory and the redb store serve reads and watches from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gc_store_api::{
    Change, GetAnswer, Hold, Key, KeyValue, RangeAnswer, RangeOptions, Revision, StorageError, StoreStatus,
};

use crate::hub::{Hub, HubStream, lock};
use crate::mvcc::{HistoryOptions, Mvcc, Visit};

/// Factor by which history kept for readers may exceed the history kept for watches.
const HELD_TIMES: usize = 2;
/// Number of keys that a long range visits before it lets writers in.
const RANGE_CHUNK: usize = 2048;

#[derive(Debug)]
pub(crate) struct Core {
    data: RwLock<Mvcc>,
    hub: Arc<Hub>,
    watch_lag: usize,
    holds: Arc<Holds>,
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
        Self { data: RwLock::new(data), hub, watch_lag, holds: Arc::default() }
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
        let target = data.overdue(history)?;
        let held = lock(&self.holds.0).first_key_value().map(|(revision, _)| *revision);
        match held.filter(|held| *held < target) {
            None => Some(target),
            Some(held) => {
                let HistoryOptions { changes, bytes } = *history;
                let most = HistoryOptions { changes: changes * HELD_TIMES, bytes: bytes * HELD_TIMES };
                data.overdue(&most).max(Some(held)).filter(|target| *target > data.compacted())
            }
        }
    }

    pub(crate) fn get(&self, key: &str, at: Option<Revision>) -> Result<GetAnswer, StorageError> {
        self.read().get(key, at)
    }

    /// Reads a range at one revision, but not under one lock: writers continue between its chunks.
    pub(crate) fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        let mut data = self.read();
        let revision = data.readable(options.at)?;
        let mut visit = Visit::new(options);
        let mut cursor: Option<Key> = options.after.clone();
        loop {
            cursor = data.visit(prefix, cursor.as_deref(), revision, RANGE_CHUNK, &mut visit);
            if cursor.is_none() {
                return Ok(visit.answer(revision));
            }
            drop(data);
            data = self.read();
            if data.readable(Some(revision)).is_err() {
                // History was discarded in the meantime, so start over under one lock.
                return data.range(prefix, options);
            }
        }
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
