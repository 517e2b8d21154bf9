//! Runs the shared suite on the memory store, and tests its bounds.
#![allow(clippy::unwrap_used)] // tests

mod suite;

use std::sync::atomic::{AtomicBool, Ordering};

use gc_store::{CHANGE_BYTES, HistoryOptions, MemoryOptions, MemoryStorage};
use gc_store_api::{RangeOptions, Revision, Storage, StorageError, WatchItem};
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
    // Whole transactions are forgotten; the first one had two changes.
    assert_eq!(
        store.get("a", Some(Revision(first - 1))),
        Err(StorageError::Compacted { requested: Revision(first - 1), oldest: Revision(first) })
    );
    assert_eq!(&*store.get("a", Some(Revision(second))).unwrap().item.unwrap().value, b"2");
}

#[test]
fn history_is_bounded_by_bytes() {
    // Two changes, one of which has replaced eight bytes.
    let store = bounded(1000, 2 * CHANGE_BYTES + 10, 100);
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
    let put = gc_store_api::Write::Put("a".into(), vec![0; size].into());
    let error = store.commit(suite::when(&[], vec![put])).unwrap_err();
    assert_eq!(error, StorageError::TooLarge { size, limit: gc_store::VALUE_LIMIT });
}

/// Regression test: objects created between the reading and the writing of a reset outlived it.
#[test]
fn nothing_comes_between_the_parts_of_a_reset() {
    let store = MemoryStorage::default();
    write(&store, vec![put("/kept", "1"), put("/changed", "1"), put("/deleted", "1")]);
    let contents = |at: Option<Revision>| {
        let options = RangeOptions { at, ..RangeOptions::default() };
        let items = store.range("", &options).unwrap().items;
        items.into_iter().map(|item| (item.key, item.value)).collect::<Vec<_>>()
    };
    let (items, before) = (store.range("", &RangeOptions::default()).unwrap().items, contents(None));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !is_done.load(Ordering::Relaxed) {
                n += 1;
                write(&store, vec![put(&format!("/new/{}", n % 100), "1"), put("/changed", &n.to_string())]);
            }
        });
        write(&store, vec![delete("/deleted")]);
        let results: Vec<_> = (0..200)
            .map(|_| store.reset(&items).map(|revision| contents(Some(revision)) == before))
            .collect();
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(results, vec![Ok(true); 200]);
    });
    store.reset(&items).unwrap();
    let revision = store.revision();
    assert_eq!((store.reset(&items), contents(None)), (revision, before), "nothing is written twice");
}

#[test]
fn the_status_says_which_versions_there_are() {
    let store = bounded(3, 1 << 20, 100);
    let last = (0..9).fold(0, |_, n| write(&store, vec![put("a", &n.to_string())]));
    let status = store.status().unwrap();
    assert_eq!((status.newest, status.oldest), (Revision(last), Some(Revision(last - 3))));
}

#[test]
fn a_store_with_items_begins_at_their_newest_revision() {
    let items = [suite::item("a", "1", 3, 7), suite::item("b", "2", 4, 4)];
    let store = MemoryStorage::with_items(Revision(9), items.clone());
    assert_eq!(store.range("", &RangeOptions::default()).unwrap().items, items);
    assert_eq!(store.revision(), Ok(Revision(9)));
}

#[test]
fn a_revision_that_is_held_stays_readable_a_while_longer() {
    let store = bounded(4, 1 << 20, 100);
    suite::a_held_revision_stays_readable_a_while_longer(&store);
}
