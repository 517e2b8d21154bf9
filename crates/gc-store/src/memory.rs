//! The store that forgets everything at exit.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gc_registry::storage::{
    Blocking, Committed, GetAnswer, RangeAnswer, RangeOptions, Revision, Storage, StorageError, Transaction,
    WatchStream,
};

use crate::hub::Hub;
use crate::mvcc::{Evaluated, HistoryOptions, Mvcc, evaluate};

/// How many changes a watcher may be behind before it is dropped.
pub const WATCH_LAG: usize = 65_536;

/// Options of [`MemoryStorage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// How much history is kept.
    pub history: HistoryOptions,
    /// How many changes a watcher may be behind before it is ended with [`StorageError::Lagged`].
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
    data: RwLock<Mvcc>,
    hub: Arc<Hub>,
    options: MemoryOptions,
}

impl MemoryStorage {
    /// An empty store.
    #[must_use]
    pub fn new(options: MemoryOptions) -> Self {
        let data = Mvcc::new();
        let hub = Arc::new(Hub::new(data.revision()));
        Self { data: RwLock::new(data), hub, options }
    }

    fn read(&self) -> RwLockReadGuard<'_, Mvcc> {
        self.data.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Mvcc> {
        self.data.write().unwrap_or_else(PoisonError::into_inner)
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

    fn revision(&self) -> Result<Revision, StorageError> {
        Ok(self.hub.published())
    }

    fn get(&self, key: &str, at: Option<Revision>) -> Result<GetAnswer, StorageError> {
        self.read().get(key, at)
    }

    fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        self.read().range(prefix, options)
    }

    fn commit(&self, transaction: Transaction) -> Result<Committed, StorageError> {
        let mut data = self.write();
        let revision = Revision(data.revision().0 + 1);
        let changes = match evaluate(transaction, revision, |key| data.current(key))? {
            Evaluated::Conflict(present) => return Ok(Committed::Conflict(present)),
            Evaluated::Changes(changes) if changes.is_empty() => {
                return Ok(Committed::Done(data.revision()));
            }
            Evaluated::Changes(changes) => changes.into_iter().map(Arc::new).collect::<Vec<_>>(),
        };
        data.apply(&changes);
        if let Some(target) = data.overdue(&self.options.history) {
            data.compact(target)?;
        }
        let wakers = self.hub.publish(&changes, revision);
        drop(data);
        wakers.wake();
        Ok(Committed::Done(revision))
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn WatchStream>, StorageError> {
        let data = self.read();
        let replay = data.changes_after(prefix, after)?;
        Ok(Box::new(self.hub.subscribe(prefix, after, replay, self.options.watch_lag)))
    }

    fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        self.write().compact(revision)
    }
}
