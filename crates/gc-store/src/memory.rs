//! The in-memory store, which does not survive the process.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLockWriteGuard};

use bytes::Bytes;
use gc_store_api::{
    Blocking, Committed, GetAnswer, Hold, Key, KeyValue, RangeAnswer, RangeOptions, Revision, Storage,
    StorageError, StoreStatus, Transaction, WatchStream, Write,
};

use crate::core::Core;
use crate::mvcc::{Found, HistoryOptions, Mvcc, TransactionResult, evaluate};

/// Maximum lag of a watcher in changes, before it is dropped.
pub const WATCH_LAG: usize = 65_536;

/// Options of [`MemoryStorage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Amount of history to keep.
    pub history: HistoryOptions,
    /// Maximum lag of a watcher in changes, before it is ended with [`StorageError::Lagged`].
    pub watch_lag: usize,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { history: HistoryOptions::default(), watch_lag: WATCH_LAG }
    }
}

/// A [`Storage`] in memory.
#[derive(Debug)]
pub struct MemoryStorage {
    core: Core,
    options: MemoryOptions,
}

impl MemoryStorage {
    /// Creates an empty store.
    #[must_use]
    pub fn new(options: MemoryOptions) -> Self {
        Self { core: Core::new(Mvcc::new(), options.watch_lag), options }
    }

    /// Creates a store with these items, as of this revision and without history. It shares the bytes of keys and values with other
    /// owners.
    #[must_use]
    pub fn with_items(revision: Revision, items: impl IntoIterator<Item = KeyValue>) -> Self {
        let options = MemoryOptions::default();
        Self { core: Core::new(Mvcc::restore(revision, items), options.watch_lag), options }
    }

    /// Restores these items and removes all others, in one transaction without concurrent writes in between. Watches deliver each
    /// change, and revisions continue to rise. Returns the new revision, or the current one if nothing differs.
    pub fn reset(&self, items: &[KeyValue]) -> Result<Revision, StorageError> {
        let data = self.core.write();
        let mut left: BTreeMap<Key, Bytes> = BTreeMap::new();
        for found in data.items() {
            let Found::InMemory(item) = found else {
                return Err(StorageError::Broken("a store in memory has a value on disk".into()));
            };
            left.insert(item.key, item.value);
        }
        let mut writes = Vec::new();
        for item in items {
            if left.remove(&item.key).as_ref() != Some(&item.value) {
                writes.push(Write::Put(Arc::clone(&item.key), item.value.clone()));
            }
        }
        writes.extend(left.into_keys().map(Write::Delete));
        match self.apply(data, Transaction { conditions: Vec::new(), writes })? {
            Committed::Done(revision) => Ok(revision),
            Committed::Conflict(_) => {
                Err(StorageError::Broken("a transaction without conditions conflicts".into()))
            }
        }
    }

    fn apply(
        &self,
        data: RwLockWriteGuard<'_, Mvcc>,
        transaction: Transaction,
    ) -> Result<Committed, StorageError> {
        let revision = Revision(data.revision().0 + 1);
        match evaluate(transaction, revision, |key| data.current(key))? {
            TransactionResult::Conflict(present) => Ok(Committed::Conflict(present)),
            TransactionResult::Changes(changes) if changes.is_empty() => Ok(Committed::Done(data.revision())),
            TransactionResult::Changes(changes) => {
                let changes: Vec<_> = changes.into_iter().map(Arc::new).collect();
                self.core.publish(data, &changes, |data| self.core.overdue(data, &self.options.history));
                Ok(Committed::Done(revision))
            }
        }
    }
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::new(MemoryOptions::default())
    }
}

impl Storage for MemoryStorage {
    fn blocks(&self) -> Blocking {
        Blocking::Never
    }

    fn status(&self) -> Result<StoreStatus, StorageError> {
        Ok(self.core.status())
    }

    fn revision(&self) -> Result<Revision, StorageError> {
        Ok(self.core.revision())
    }

    fn get(&self, key: &str, at: Option<Revision>) -> Result<GetAnswer, StorageError> {
        self.core.get(key, at)
    }

    fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        self.core.range(prefix, options)
    }

    fn hold(&self, revision: Revision) -> Option<Hold> {
        Some(self.core.hold(revision))
    }

    fn commit(&self, transaction: Transaction) -> Result<Committed, StorageError> {
        self.apply(self.core.write(), transaction)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn WatchStream>, StorageError> {
        Ok(Box::new(self.core.watch(prefix, after)?))
    }

    fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        let mut data = self.core.write();
        if data.can_compact(revision)? {
            data.compact(revision);
        }
        Ok(())
    }
}
