//! Restores the store of a server to its state at the start.

use std::sync::Arc;

use gc_registry::storage::{KeyValue, RangeAnswer, RangeOptions, Revision, Storage as _, StorageError};
use gc_store::MemoryStorage;

/// Everything that a store contained at one moment, by key. The values are shared with the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    revision: Revision,
    items: Arc<[KeyValue]>,
}

impl Contents {
    /// Returns a store with these contents.
    pub(crate) fn store(&self) -> Arc<MemoryStorage> {
        Arc::new(MemoryStorage::with_items(self.revision, self.items.iter().cloned()))
    }

    /// Reports whether all of it is in later contents of the same store, unchanged.
    pub(crate) fn is_part_of(&self, later: &Self) -> bool {
        let mut later = later.items.iter();
        self.items.iter().all(|item| {
            let found = later.find(|found| found.key >= item.key);
            found.is_some_and(|found| (&found.key, found.mod_revision) == (&item.key, item.mod_revision))
        })
    }
}

impl From<RangeAnswer> for Contents {
    fn from(answer: RangeAnswer) -> Self {
        Self { revision: answer.revision, items: answer.items.into() }
    }
}

/// An in-memory store, and its contents at the start.
pub(super) struct Baseline {
    store: Arc<MemoryStorage>,
    contents: Contents,
}

impl Baseline {
    /// Remembers the current contents.
    pub(super) fn of(store: &Arc<MemoryStorage>) -> Result<Self, StorageError> {
        let contents = store.range("", &RangeOptions::default())?.into();
        Ok(Self { store: Arc::clone(store), contents })
    }

    /// Returns the contents at that time.
    pub(super) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Restores everything in one transaction, whatever is written in the meantime. Watches deliver each change, and revisions
    /// continue to increase.
    pub(super) fn restore(&self) -> Result<(), StorageError> {
        self.store.reset(&self.contents.items).map(drop)
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
    fn contents_are_part_of_later_ones_until_one_of_them_changes() {
        let store = Arc::new(MemoryStorage::default());
        let commit = |writes| store.commit(Transaction { conditions: Vec::new(), writes }).unwrap();
        let contents = || Contents::from(store.range("", &RangeOptions::default()).unwrap());
        commit(vec![put("/b", "1"), put("/d", "1")]);
        let early = contents();
        commit(vec![put("/a", "1"), put("/c", "1"), put("/e", "1")]);
        assert!(early.is_part_of(&contents()) && Contents::default().is_part_of(&early));
        assert!(!contents().is_part_of(&early));
        for write in [put("/b", "1"), Write::Delete("/d".into())] {
            let copy = contents().store();
            copy.commit(Transaction { conditions: Vec::new(), writes: vec![write] }).unwrap();
            assert!(!early.is_part_of(&copy.range("", &RangeOptions::default()).unwrap().into()));
        }
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
