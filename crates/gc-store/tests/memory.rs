//! The memory store under the shared suite, and its own bounds.
#![allow(clippy::unwrap_used)] // tests

mod suite;

use gc_storage::{Revision, Storage, StorageError, WatchItem};
use gc_store::{HistoryOptions, MemoryOptions, MemoryStorage};
use proptest::prelude::*;
use suite::{delete, next, put, write};

storage_suite!(Some((Box::new(MemoryStorage::default()) as Box<dyn Storage>, ())));

#[test]
fn increments() {
    suite::concurrent_increments_are_not_lost(&MemoryStorage::default(), 8, 500);
}

proptest! {
    #[test]
    fn behaves_like_the_model(operations in suite::model::operations(80)) {
        suite::model::check(Box::new(MemoryStorage::default()), &operations, |store| store);
    }
}

fn bounded(changes: usize, bytes: usize, watch_lag: usize) -> MemoryStorage {
    MemoryStorage::new(MemoryOptions { history: HistoryOptions { changes, bytes }, watch_lag })
}

#[test]
fn history_is_bounded_by_changes() {
    let store = bounded(3, 1 << 20, 100);
    let first = write(&store, vec![put("a", "1"), put("b", "1")]);
    let second = write(&store, vec![put("a", "2")]);
    assert!(store.get("a", Some(Revision(first))).is_ok());
    write(&store, vec![put("a", "3")]);
    // Whole transactions are forgotten: the first one had two changes.
    assert_eq!(
        store.get("a", Some(Revision(first - 1))),
        Err(StorageError::Compacted { requested: Revision(first - 1), oldest: Revision(first) })
    );
    assert_eq!(&*store.get("a", Some(Revision(second))).unwrap().item.unwrap().value, b"2");
}

#[test]
fn history_is_bounded_by_bytes() {
    let store = bounded(1000, 10, 100);
    let first = write(&store, vec![put("a", "12345678")]);
    let second = write(&store, vec![put("a", "12345678")]);
    assert!(store.get("a", Some(Revision(first))).is_ok());
    write(&store, vec![delete("a")]);
    let error = store.get("a", Some(Revision(first))).unwrap_err();
    assert_eq!(error, StorageError::Compacted { requested: Revision(first), oldest: Revision(second) });
}

#[test]
fn a_watch_that_lags_is_ended() {
    let store = bounded(1000, 1 << 20, 2);
    let base = store.revision().unwrap();
    write(&store, vec![put("a", "1")]);
    let mut slow = store.watch("a", base).unwrap();
    let mut other = store.watch("b", base).unwrap();
    // Replayed changes are not lag: one of history and two live ones fit.
    write(&store, vec![put("a", "2")]);
    let last = write(&store, vec![put("a", "3")]);
    let mut just = store.watch("a", base).unwrap();
    write(&store, vec![put("b", "1")]);
    assert!(matches!(next(&mut *just), Ok(WatchItem::Change(_))));
    write(&store, vec![put("a", "4")]);
    assert_eq!(next(&mut *slow), Err(StorageError::Lagged { limit: 2 }));
    assert!(matches!(next(&mut *other), Ok(WatchItem::Change(_))));
    assert!(matches!(next(&mut *just), Ok(WatchItem::Change(change)) if change.revision.0 < last));
}

#[test]
fn oversized_values_are_refused() {
    let store = MemoryStorage::default();
    let size = gc_store::VALUE_LIMIT + 1;
    let put = gc_storage::Write::Put("a".into(), vec![0; size].into());
    let error = store.commit(suite::when(&[], vec![put])).unwrap_err();
    assert_eq!(error, StorageError::TooLarge { size, limit: gc_store::VALUE_LIMIT });
}
