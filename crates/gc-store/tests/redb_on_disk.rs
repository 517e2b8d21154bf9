//! Runs the shared suite on the disk store with values on disk, and tests what is in memory.
#![allow(clippy::unwrap_used)] // tests

mod suite;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use gc_store::{HistoryOptions, RedbOptions, RedbStorage};
use gc_store_api::{Blocking, Key, RangeOptions, Revision, Storage, StorageError};
use proptest::prelude::*;
use suite::{delete, item, put, write};
use tempfile::TempDir;

/// A store whose values are on disk once `changes` newer changes have been made.
fn options(value_memory: u64, changes: usize) -> RedbOptions {
    let history = HistoryOptions { changes, ..HistoryOptions::default() };
    RedbOptions { history, value_memory, ..RedbOptions::default() }
}

fn open(directory: &Path, options: RedbOptions) -> RedbStorage {
    RedbStorage::open(directory, options).unwrap()
}

#[allow(clippy::unnecessary_wraps)] // the suite also knows stores that may be missing
fn fresh() -> Option<(Box<dyn Storage>, TempDir)> {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path(), RedbOptions { value_memory: 0, ..RedbOptions::default() });
    Some((Box::new(store), directory))
}

storage_suite!(fresh());

#[test]
fn increments() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path(), options(0, 1));
    suite::concurrent_increments_are_not_lost(&store, 16, 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// The model compacts explicitly, which is what moves values to the disk, and its values have up to three bytes.
    #[test]
    fn behaves_like_the_model_over_restarts(
        operations in suite::model::operations(60),
        value_memory in 0..16_u64,
    ) {
        let directory = TempDir::new().unwrap();
        let options = RedbOptions { value_memory, ..RedbOptions::default() };
        suite::model::check(Box::new(open(directory.path(), options)), &operations, |store| {
            drop(store);
            Box::new(open(directory.path(), options))
        });
    }
}

fn sizes(store: &RedbStorage) -> (u64, u64, u64) {
    let status = store.status().unwrap();
    let number = Option::unwrap;
    (number(status.value_bytes_in_memory), number(status.value_bytes_on_disk), number(status.values_read))
}

fn key(n: usize) -> String {
    format!("/k/{n:04}")
}

/// Waits until the committer has moved values out of memory, which it does after its answer.
fn settled(store: &RedbStorage, most: u64) {
    let begun = std::time::Instant::now();
    while sizes(store).0 > most {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", sizes(store));
        std::thread::yield_now();
    }
}

#[test]
fn values_beyond_the_budget_are_on_disk() {
    let directory = TempDir::new().unwrap();
    let options = options(10_000, 2);
    let store = open(directory.path(), options);
    assert_eq!(store.blocks(), Blocking::OnCommit);
    let value = |n: usize| format!("{n}").repeat(200).chars().take(200).collect::<String>();
    let first = write(&store, vec![put(&key(0), &value(0))]);
    for n in 1..50 {
        write(&store, vec![put(&key(n), &value(n))]);
    }
    assert_eq!(
        (sizes(&store), store.blocks()),
        ((10_000, 0, 0), Blocking::OnCommit),
        "the budget is not exceeded"
    );
    for n in 50..200 {
        write(&store, vec![put(&key(n), &value(n))]);
    }
    settled(&store, 10_000);
    assert_eq!((sizes(&store), store.blocks()), ((10_000, 30_000, 0), Blocking::OnDisk));
    let all = store.range("", &RangeOptions::default()).unwrap().items;
    let expected = |n: usize| item(&key(n), &value(n), first + n as u64, first + n as u64);
    assert_eq!(all, (0..200).map(expected).collect::<Vec<_>>());
    assert_eq!(sizes(&store), (10_000, 30_000, 150), "a range leaves nothing in memory");
    drop(store);
    let store = open(directory.path(), options);
    let (in_memory, on_disk, _) = sizes(&store);
    // The file has the history of the last three changes, which is in memory in any case.
    assert!(in_memory <= 10_600 && in_memory + on_disk == 40_000, "{in_memory} and {on_disk}");
    assert_eq!(store.range("", &RangeOptions::default()).unwrap().items, all);
    drop(store);
    let store = open(directory.path(), RedbOptions { value_memory: 1 << 20, ..options });
    assert_eq!(sizes(&store), (40_000, 0, 0), "a larger budget takes everything into memory");
}

#[test]
fn a_value_that_is_read_again_and_again_stays_in_memory() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path(), options(20_000, 1));
    let value = "x".repeat(200);
    for n in 0..200 {
        write(&store, vec![put(&key(n), &value)]);
    }
    let read = |n: usize| assert!(store.get(&key(n), None).unwrap().item.is_some());
    read(0);
    let before = sizes(&store).2;
    for n in 0..300 {
        read(0);
        write(&store, vec![put(&key(1000 + n), &value)]);
        if n % 10 == 0 {
            read(1 + n / 10);
        }
    }
    // The others are read once each, and room for the first may have to be made.
    assert!(sizes(&store).2 - before <= 30 + 10, "{} reads", sizes(&store).2 - before);
    settled(&store, 20_000);
}

#[test]
fn a_value_on_disk_is_part_of_changes_conflicts_and_history() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path(), options(0, 2));
    let first = write(&store, vec![put("a", "1"), put("b", "1"), put("c", "1")]);
    let base = write(&store, vec![put("x", "1"), put("y", "1")]);
    settled(&store, 2);
    let mut watch = store.watch("", Revision(base)).unwrap();
    let conflict = store.commit(suite::when(&[("a", base)], vec![delete("a")])).unwrap();
    assert_eq!(conflict, gc_store_api::Committed::Conflict(vec![Some(item("a", "1", first, first))]));
    let second = write(&store, vec![put("a", "2"), delete("b")]);
    let change = suite::next_change(&mut *watch);
    assert_eq!((&*change.key, change.previous), ("a", Some(item("a", "1", first, first))));
    let change = suite::next_change(&mut *watch);
    assert_eq!((&*change.key, change.previous), ("b", Some(item("b", "1", first, first))));
    let at =
        |revision| store.range("", &RangeOptions { at: Some(Revision(revision)), ..RangeOptions::default() });
    let values = |revision| {
        let items = at(revision).unwrap().items;
        items.into_iter().map(|item| (item.key.to_string(), item.value)).collect::<Vec<_>>()
    };
    let pairs = |text: &[(&str, &'static str)]| {
        text.iter().map(|(key, value)| ((*key).to_owned(), Bytes::from(*value))).collect::<Vec<_>>()
    };
    assert_eq!(values(base), pairs(&[("a", "1"), ("b", "1"), ("c", "1"), ("x", "1"), ("y", "1")]));
    assert_eq!(values(second), pairs(&[("a", "2"), ("c", "1"), ("x", "1"), ("y", "1")]));
    assert!(sizes(&store).2 > 0, "nothing was read from disk");
}

/// Readers, a writer and the replacement of the file at the same time: a version of a key has one value, whoever reads it when, and a
/// revision has one state.
#[test]
fn readers_see_their_version_while_the_file_changes() {
    const KEYS: usize = 60;
    let directory = TempDir::new().unwrap();
    let store = open(directory.path(), RedbOptions { shrink_from: 1 << 20, ..options(2_000, 40) });
    let text =
        |n: usize, turn: usize| format!("{n}:{turn}:{}", "x".repeat(100 + (n * 37 + turn * 11) % 3000));
    let known: Mutex<HashMap<(Key, Revision), Bytes>> = Mutex::default();
    let learn = |item: gc_store_api::KeyValue| {
        let number: usize = item.key[3..].parse().unwrap();
        assert!(item.value.starts_with(format!("{number}:").as_bytes()), "{} has another value", item.key);
        let mut known = known.lock().unwrap();
        let value = known.entry((item.key, item.mod_revision)).or_insert_with(|| item.value.clone());
        assert_eq!(*value, item.value);
    };
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !is_done.load(Ordering::Relaxed) {
                n = (n * 7 + 1) % KEYS;
                if let Some(item) = store.get(&key(n), None).unwrap().item {
                    learn(item);
                }
            }
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let answer = store.range("/k/", &RangeOptions::default()).unwrap();
                let again = RangeOptions { at: Some(answer.revision), ..RangeOptions::default() };
                match store.range("/k/", &again) {
                    Ok(same) => assert_eq!(same, answer),
                    Err(error) => assert!(matches!(error, StorageError::Compacted { .. }), "{error}"),
                }
                answer.items.into_iter().for_each(learn);
            }
        });
        for turn in 0..40 {
            for n in 0..KEYS {
                let change = if (n + turn) % 7 == 0 { delete(&key(n)) } else { put(&key(n), &text(n, turn)) };
                write(&store, vec![change]);
            }
            // Filler that makes the file large, and its removal.
            let filler = |n: usize| format!("/filler/{n}");
            if turn % 10 == 3 {
                let large = "y".repeat(40_000);
                for n in 0..100 {
                    write(&store, vec![put(&filler(n), &large)]);
                }
                write(&store, (0..100).map(|n| delete(&filler(n))).collect());
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    for n in 0..KEYS {
        let expected = (!(n + 39).is_multiple_of(7)).then(|| text(n, 39));
        let found = store.get(&key(n), None).unwrap().item;
        assert_eq!(found.map(|item| item.value), expected.map(Bytes::from), "{n}");
    }
}

/// Changes a bit wherever the data file has these bytes.
fn damage(directory: &Path, needle: &[u8]) {
    use std::os::unix::fs::FileExt as _;
    let path = directory.join("kubegc.redb");
    let bytes = std::fs::read(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    for place in (0..bytes.len() - needle.len()).filter(|&at| bytes[at..].starts_with(needle)) {
        file.write_all_at(&[bytes[place] ^ 1], place as u64).unwrap();
    }
}

/// A start over more values than memory may hold reads keys and revisions alone, so a damaged value is found by who reads it.
#[test]
fn a_start_reads_no_value_that_nothing_needs() {
    let directory = TempDir::new().unwrap();
    let options = options(10_000, 2);
    let store = open(directory.path(), options);
    let value = |n: usize| format!("value-{n:03}-").repeat(20);
    for n in 0..200 {
        write(&store, vec![put(&key(n), &value(n))]);
    }
    drop(store);
    damage(directory.path(), b"value-007-value-007-");
    let store = open(directory.path(), options);
    let (in_memory, on_disk, read) = sizes(&store);
    assert!(in_memory <= 3 * 200 && in_memory + on_disk == 200 * 200 && read == 0, "{in_memory}, {on_disk}");
    let error = store.get(&key(7), None).unwrap_err();
    assert!(matches!(error, StorageError::Broken(_)) && error.to_string().contains("/k/0007"), "{error}");
    assert!(store.range("", &RangeOptions::default()).is_err());
    for n in (0..200).filter(|n| *n != 7) {
        assert_eq!(store.get(&key(n), None).unwrap().item.unwrap().value, value(n), "{n}");
    }
    drop(store);
    // Where all values fit into memory, the start reads them.
    let options = RedbOptions { value_memory: 1 << 20, ..options };
    let error = RedbStorage::open(directory.path(), options).unwrap_err();
    assert!(error.to_string().contains("the object /k/0007 does not decode"), "{error}");
}

#[test]
fn a_damaged_value_is_refused_and_the_others_are_not() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path(), RedbOptions { page_cache: 0, ..options(0, 1) });
    let value = |n: usize| format!("value-{n}-").repeat(500);
    for n in 0..20 {
        write(&store, vec![put(&key(n), &value(n))]);
    }
    // History beyond its bound leaves with the next write.
    for _ in 0..2 {
        write(&store, vec![put("/last", "")]);
    }
    settled(&store, 0);
    damage(directory.path(), b"value-7-value-7-");
    let error = store.get(&key(7), None).unwrap_err();
    assert!(matches!(error, StorageError::Broken(_)) && error.to_string().contains("/k/0007"), "{error}");
    assert!(store.range("", &RangeOptions::default()).is_err());
    assert!(store.commit(suite::when(&[], vec![put(&key(7), "")])).is_err());
    for n in (0..20).filter(|n| *n != 7) {
        assert_eq!(store.get(&key(n), None).unwrap().item.unwrap().value, value(n), "{n}");
    }
    // A deletion that names no version does not have to read it.
    write(&store, vec![delete(&key(7))]);
    assert_eq!(store.get(&key(7), None).unwrap().item, None);
    assert_eq!(store.range("", &RangeOptions::default()).unwrap().items.len(), 20);
}
