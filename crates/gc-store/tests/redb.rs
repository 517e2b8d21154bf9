//! Runs the shared suite on the disk store, and tests restarts and files that are not a store.
#![allow(clippy::unwrap_used)] // tests

mod suite;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gc_store::{HistoryOptions, OpenError, RedbOptions, RedbStorage, RestoreError};
use gc_store_api::{KeyValue, RangeOptions, Revision, Storage, StorageError};
use proptest::prelude::*;
use suite::{delete, item, next_change, put, write};
use tempfile::TempDir;

fn open(directory: &Path) -> RedbStorage {
    RedbStorage::open(directory, RedbOptions::default()).unwrap()
}

#[allow(clippy::unnecessary_wraps)] // the suite also knows stores that may be missing
fn fresh() -> Option<(Box<dyn Storage>, TempDir)> {
    let directory = TempDir::new().unwrap();
    Some((Box::new(open(directory.path())), directory))
}

storage_suite!(fresh());

#[test]
fn increments() {
    let (store, _directory) = fresh().unwrap();
    suite::concurrent_increments_are_not_lost(&*store, 16, 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn behaves_like_the_model_over_restarts(operations in suite::model::operations(60)) {
        let (store, directory) = fresh().unwrap();
        suite::model::check(store, &operations, |store| {
            drop(store);
            Box::new(open(directory.path()))
        });
    }
}

#[test]
fn history_outlives_a_restart() {
    let (store, directory) = fresh().unwrap();
    let first = write(&*store, vec![put("a", "1"), put("b", "1")]);
    let second = write(&*store, vec![put("a", "2"), delete("b")]);
    drop(store);
    let store = open(directory.path());
    assert_eq!(store.revision(), Ok(Revision(second)));
    assert_eq!(store.get("b", Some(Revision(first))).unwrap().item, Some(item("b", "1", first, first)));
    let mut watch = store.watch("", Revision(first)).unwrap();
    let change = next_change(&mut *watch);
    assert_eq!((&*change.key, change.previous), ("a", Some(item("a", "1", first, first))));
    let change = next_change(&mut *watch);
    assert_eq!(
        (&*change.key, change.value, change.previous),
        ("b", None, Some(item("b", "1", first, first)))
    );
    store.compact(Revision(second)).unwrap();
    drop(store);
    let store = open(directory.path());
    assert_eq!(
        store.get("a", Some(Revision(first))),
        Err(StorageError::Compacted { requested: Revision(first), oldest: Revision(second) })
    );
    assert_eq!(store.range("", &RangeOptions::default()).unwrap().items, [item("a", "2", first, second)]);
    assert_eq!(write(&store, vec![put("c", "1")]), second + 1);
}

#[test]
fn history_is_bounded_on_disk() {
    let directory = TempDir::new().unwrap();
    let options =
        RedbOptions { history: HistoryOptions { changes: 10, bytes: 1 << 20 }, ..RedbOptions::default() };
    let store = RedbStorage::open(directory.path(), options).unwrap();
    let last = (0..40).fold(0, |_, n| write(&store, vec![put("a", &n.to_string())]));
    drop(store);
    let store = open(directory.path());
    assert!(store.get("a", Some(Revision(last - 10))).is_ok());
    assert!(matches!(store.get("a", Some(Revision(last - 15))), Err(StorageError::Compacted { .. })));
}

/// Regression test: after half of a store had been deleted, its file only shrank at the next start.
#[test]
fn the_file_becomes_smaller_while_it_is_in_use() {
    const OBJECTS: usize = 6000;
    const KEPT: usize = 200;
    const MORE: usize = 500;
    let directory = TempDir::new().unwrap();
    let history = HistoryOptions { changes: 50, bytes: 1 << 20 };
    let options = RedbOptions { history, shrink_from: 1 << 20, ..RedbOptions::default() };
    let store = RedbStorage::open(directory.path(), options).unwrap();
    let key = |n: usize| format!("/pods/{n:05}");
    let value = "x".repeat(700);
    for part in 0..OBJECTS / 100 {
        write(&store, (part * 100..(part + 1) * 100).map(|n| put(&key(n), &value)).collect());
    }
    let length = || directory.path().join("kubegc.redb").metadata().unwrap().len();
    let full = length();
    for part in KEPT / 100..OBJECTS / 100 {
        write(&store, (part * 100..(part + 1) * 100).map(|n| delete(&key(n))).collect());
    }
    let mut watch = store.watch("/more/", store.revision().unwrap()).unwrap();
    // Writes made during the copy must be part of it. Those after the first change one object only: on a quick disk, they would fill what is
    // freed.
    let mut more = 0;
    while length() * 3 > full {
        let mut changes = vec![put("/counter", "1")];
        if more < MORE {
            changes.insert(0, put(&format!("/more/{more:06}"), "1"));
            more += 1;
        }
        write(&store, changes);
    }
    for n in 0..more {
        assert_eq!(*next_change(&mut *watch).key, *format!("/more/{n:06}"));
    }
    for number in 0..=10 {
        write(&store, vec![put("/counter", &format!("end {number}"))]);
    }
    let (before, last) =
        (store.range("", &RangeOptions::default()).unwrap().items, store.revision().unwrap());
    assert_eq!(before.len(), KEPT + more + 1);
    drop(store);
    let store = open(directory.path());
    assert_eq!(store.range("", &RangeOptions::default()).unwrap().items, before);
    assert_eq!(store.revision().unwrap(), last);
    assert!(store.get("/counter", Some(Revision(last.0 - 10))).unwrap().item.is_some(), "history is kept");
    let mut files: Vec<_> =
        directory.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["kubegc.lock", "kubegc.redb", "kubegc.reserve"]);
}

#[test]
fn a_second_opener_learns_the_owner() {
    let (store, directory) = fresh().unwrap();
    let error = RedbStorage::open(directory.path(), RedbOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the data directory {} is in use by another process (pid {}); stop that one or choose another directory",
            directory.path().display(),
            std::process::id()
        )
    );
    drop(store);
    drop(open(directory.path()));
}

/// The owner may not have written its number yet.
#[test]
fn a_second_opener_is_refused_by_an_owner_without_a_number_too() {
    let directory = TempDir::new().unwrap();
    let lock = std::fs::File::create(directory.path().join("kubegc.lock")).unwrap();
    lock.try_lock().unwrap();
    let error = RedbStorage::open(directory.path(), RedbOptions::default()).unwrap_err();
    let expected = format!(
        "the data directory {} is in use by another process; stop that one or choose another directory",
        directory.path().display()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_revision_that_is_held_stays_readable_a_while_longer() {
    let directory = TempDir::new().unwrap();
    let history = HistoryOptions { changes: 4, bytes: 1 << 20 };
    let options = RedbOptions { history, ..RedbOptions::default() };
    let store = RedbStorage::open(directory.path(), options).unwrap();
    suite::a_held_revision_stays_readable_a_while_longer(&store);
}

/// A process may end while it writes a copy.
#[test]
fn a_copy_that_was_left_over_is_removed() {
    let directory = TempDir::new().unwrap();
    drop(open(directory.path()));
    let copy = directory.path().join("kubegc.redb.new");
    std::fs::write(&copy, "incomplete").unwrap();
    drop(open(directory.path()));
    assert!(!copy.exists());
}

/// A file that an earlier process has marked, because a sync of it failed, is rewritten before it is used.
#[test]
fn a_file_whose_sync_failed_is_replaced_at_the_next_start() {
    let directory = TempDir::new().unwrap();
    let whole = filled(directory.path());
    let mark = directory.path().join("kubegc.redb.unsynced");
    std::fs::write(&mark, "").unwrap();
    let store = open(directory.path());
    assert!(!mark.exists());
    assert_eq!(store.range("", &RangeOptions::default()).unwrap().items.len(), 200);
    drop(store);
    assert_ne!(std::fs::read(directory.path().join("kubegc.redb")).unwrap(), whole);
}

#[test]
fn other_users_may_not_read_it() {
    let parent = TempDir::new().unwrap();
    let directory = parent.path().join("deep/data");
    drop(open(&directory));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    let mut files: Vec<_> =
        directory.read_dir().unwrap().map(|entry| entry.unwrap()).map(|entry| entry.file_name()).collect();
    files.sort();
    assert_eq!(files, ["kubegc.lock", "kubegc.redb", "kubegc.reserve"]);
    for file in files {
        assert_eq!(mode(&directory.join(file)), 0o600);
    }
}

#[test]
fn a_directory_that_cannot_be_is_named() {
    let parent = TempDir::new().unwrap();
    let file = parent.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = RedbStorage::open(file.join("data"), RedbOptions::default()).unwrap_err();
    assert!(matches!(error, OpenError::Directory { .. }), "{error:?}");
}

/// Returns the bytes of a closed store's file with some content.
fn filled(directory: &Path) -> Vec<u8> {
    let store = open(directory);
    for n in 0..200 {
        write(&store, vec![put(&format!("/pods/{n:03}"), &"x".repeat(300 + n))]);
    }
    drop(store);
    std::fs::read(directory.join("kubegc.redb")).unwrap()
}

/// Replaces the file by these bytes and opens it: the result must be either an error of one line or a readable store.
fn is_refused(directory: &Path, bytes: &[u8], what: &str) -> bool {
    std::fs::write(directory.join("kubegc.redb"), bytes).unwrap();
    match RedbStorage::open(directory, RedbOptions::default()) {
        Ok(store) => {
            let items = store.range("", &RangeOptions::default()).unwrap().items;
            for item in &items {
                assert!(item.value.iter().all(|byte| *byte == b'x'), "{what}: a damaged object was accepted");
            }
            false
        }
        Err(error) => {
            assert!(matches!(error, OpenError::Damaged { .. } | OpenError::Io { .. }), "{what}: {error:?}");
            let message = error.to_string();
            assert!(message.contains("kubegc.redb") && !message.contains('\n'), "{what}: {message}");
            true
        }
    }
}

#[test]
fn a_truncated_file_is_refused() {
    let directory = TempDir::new().unwrap();
    let whole = filled(directory.path());
    for parts in 1..16 {
        let kept = whole.len() * parts / 16;
        assert!(is_refused(directory.path(), &whole[..kept], &format!("{kept} of {} bytes", whole.len())));
    }
    for kept in [0, 1, 100, 4095, 4096, whole.len() - 1] {
        let refused = is_refused(directory.path(), &whole[..kept], &format!("{kept} bytes"));
        assert!(refused, "{kept} bytes of {}", whole.len());
    }
    assert!(!is_refused(directory.path(), &whole, "the whole file"));
}

#[test]
fn what_is_no_store_is_refused() {
    let directory = TempDir::new().unwrap();
    filled(directory.path());
    assert!(is_refused(directory.path(), &vec![0; 1 << 16], "zeros"));
    assert!(is_refused(directory.path(), "kind: Pod\n".repeat(9000).as_bytes(), "text"));
}

#[test]
fn damage_is_noticed_or_harmless() {
    let directory = TempDir::new().unwrap();
    let whole = filled(directory.path());
    let mut refused = 0;
    for n in 0..150_usize {
        let mut bytes = whole.clone();
        let at = (n * 7919 * 13) % bytes.len();
        let end = (at + 1 + n % 40).min(bytes.len());
        bytes[at..end].iter_mut().for_each(|byte| *byte ^= 0x55);
        refused += usize::from(is_refused(directory.path(), &bytes, &format!("bytes {at}..{end}")));
    }
    assert!(refused > 10, "only {refused} of 150 were noticed");
}

fn restored(
    directory: &Path,
    revision: u64,
    items: Vec<KeyValue>,
) -> Result<(), RestoreError<std::fmt::Error>> {
    RedbStorage::restore(directory, Revision(revision), items.into_iter().map(Ok))
}

#[test]
fn a_restored_store_begins_at_its_revision() {
    let directory = TempDir::new().unwrap();
    let many = (0..2500).map(|number| item(&format!("k{number:04}"), "1", 3, 7));
    restored(directory.path(), 1000, many.collect()).unwrap();
    let store = open(directory.path());
    assert_eq!(store.revision(), Ok(Revision(1000)));
    let all = store.range("", &RangeOptions::default()).unwrap().items;
    assert_eq!((all.len(), all[0].clone()), (2500, item("k0000", "1", 3, 1000)));
    // Earlier revisions are unknown, and a watcher that begins now misses nothing.
    let old = store.watch("", Revision(7)).err();
    assert_eq!(old, Some(StorageError::Compacted { requested: Revision(7), oldest: Revision(1000) }));
    let mut watch = store.watch("", Revision(1000)).unwrap();
    let written = write(&*Box::new(store), vec![put("a", "1")]);
    assert_eq!((written, next_change(&mut *watch).revision), (1001, Revision(1001)));
}

#[test]
fn an_empty_backup_is_an_empty_store_and_a_broken_one_is_none() {
    let directory = TempDir::new().unwrap();
    let broken = [Ok(item("a", "1", 2, 2)), Err(std::fmt::Error)];
    let error = RedbStorage::restore(directory.path(), Revision(9), broken).unwrap_err();
    assert!(matches!(error, RestoreError::Source(_)), "{error}");
    let files = |directory: &Path| {
        let mut names: Vec<_> =
            std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(files(directory.path()), ["kubegc.lock"]);
    restored(directory.path(), 9, Vec::new()).unwrap();
    assert_eq!(open(directory.path()).revision(), Ok(Revision(9)));
    let error = restored(directory.path(), 9, Vec::new()).unwrap_err();
    assert!(matches!(error, RestoreError::Exists { .. }), "{error}");
    assert_eq!(files(directory.path()), ["kubegc.lock", "kubegc.redb", "kubegc.reserve"]);
}
