//! Putting the store of a server back to how it was at the start.

use std::sync::Arc;

use gc_registry::storage::{KeyValue, RangeOptions, Storage as _, StorageError};
use gc_store::MemoryStorage;

/// A store in memory, and what it contained at the start.
pub(super) struct Baseline {
    store: Arc<MemoryStorage>,
    items: Vec<KeyValue>,
}

impl Baseline {
    /// Remembers what is stored now.
    pub(super) fn of(store: &Arc<MemoryStorage>) -> Result<Self, StorageError> {
        let items = store.range("", &RangeOptions::default())?.items;
        Ok(Self { store: Arc::clone(store), items })
    }

    /// Puts everything back in one transaction, whatever is written meanwhile. Watches deliver each change, and revisions
    /// continue to rise.
    pub(super) fn restore(&self) -> Result<(), StorageError> {
        self.store.reset(&self.items).map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;
    use gc_registry::storage::{Transaction, Write};

    fn put(key: &str, value: &'static str) -> Write {
        Write::Put(key.into(), value.as_bytes().into())
    }

    fn contents(store: &MemoryStorage) -> Vec<(String, Vec<u8>)> {
        let items = store.range("", &RangeOptions::default()).unwrap().items;
        items.into_iter().map(|item| (item.key.to_string(), item.value.to_vec())).collect()
    }

    #[test]
    fn a_restore_undoes_creations_changes_and_deletions() {
        let store = Arc::new(MemoryStorage::default());
        let commit = |writes| store.commit(Transaction { conditions: Vec::new(), writes }).unwrap();
        commit(vec![put("/kept", "1"), put("/changed", "1"), put("/deleted", "1")]);
        let (baseline, before) = (Baseline::of(&store).unwrap(), contents(&store));
        commit(vec![put("/changed", "2"), put("/created", "1"), Write::Delete("/deleted".into())]);
        let revision = store.revision().unwrap();
        baseline.restore().unwrap();
        assert_eq!(contents(&store), before);
        assert!(store.revision().unwrap() > revision);
        let revision = store.revision().unwrap();
        baseline.restore().unwrap();
        assert_eq!(store.revision().unwrap(), revision, "nothing is written twice");
    }
}
