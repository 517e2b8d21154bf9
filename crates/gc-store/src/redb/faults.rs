//! Tests the store on a medium that fails at a single operation, permanently, or because it is full. The tests that state what must not
//! be lost run with values in memory and with values on disk.
#![allow(clippy::unwrap_used)] // tests

mod index;
mod volume;

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use gc_store_api::{Committed, RangeOptions, Revision, Storage, StorageError, Transaction, Write};

use super::failure::Failure;
use super::{RedbOptions, RedbStorage};
use crate::hub::lock;
use volume::{Fault, FaultState, Name, Residence};

type State = BTreeMap<String, Bytes>;

fn state(store: &RedbStorage) -> State {
    let items = store.range("", &RangeOptions::default()).unwrap().items;
    items.into_iter().map(|item| (item.key.to_string(), item.value)).collect()
}

/// Returns the n-th transaction, which writes one of five keys and sometimes removes another.
fn transaction(n: usize) -> Transaction {
    let mut writes =
        vec![Write::Put(format!("/k/{}", n % 5).into(), vec![u8::try_from(n).unwrap(); 700].into())];
    if n.is_multiple_of(3) {
        writes.push(Write::Delete(format!("/k/{}", (n + 2) % 5).into()));
    }
    Transaction { conditions: vec![], writes }
}

fn perform(state: &mut State, n: usize) {
    for write in transaction(n).writes {
        match write {
            Write::Put(key, value) => drop(state.insert(key.to_string(), value)),
            Write::Delete(key) => drop(state.remove(&*key)),
        }
    }
}

const TRANSACTIONS: usize = 14;
/// Number of objects that take some ten pages.
const PAGES: usize = 60;

/// Returns a transaction that writes these objects.
fn puts(objects: &State) -> Transaction {
    let writes = objects.iter().map(|(key, value)| Write::Put(key.as_str().into(), value.clone())).collect();
    Transaction { conditions: vec![], writes }
}

/// Runs tests with values in memory and with values on disk.
macro_rules! in_memory_and_on_disk {
    ($($name:ident),* $(,)?) => {
        mod in_memory {
            $(#[test] fn $name() { super::$name(super::Residence::InMemory); })*
        }
        mod on_disk {
            $(#[test] fn $name() { super::$name(super::Residence::OnDisk); })*
        }
    };
}
in_memory_and_on_disk!(
    one_failure_anywhere_loses_nothing_and_passes,
    a_power_failure_anywhere_loses_nothing_acknowledged,
    a_failed_sync_loses_nothing_acknowledged_then_or_later,
    a_failed_sync_is_known_to_the_next_process,
    a_failed_compaction_anywhere_leaves_a_store_that_opens,
    one_failure_while_the_file_is_made_smaller_loses_nothing,
    a_power_failure_while_the_file_is_made_smaller_loses_nothing_acknowledged,
    a_full_disk_refuses_writes_until_there_is_room,
    a_full_disk_takes_deletions_and_after_them_everything,
    writes_resume_as_soon_as_deletions_have_made_room,
    a_failed_sync_whose_pages_are_dropped_loses_nothing_acknowledged,
    a_write_that_failed_but_arrived_is_acknowledged_and_durable,
);

/// Returns the number of operations of the entire workload on a sound medium.
fn operations(values: Residence) -> usize {
    let medium = FaultState::formatted(values);
    let store = medium.open();
    let before = medium.operations();
    for n in 0..TRANSACTIONS {
        store.commit(transaction(n)).unwrap();
    }
    drop(store);
    medium.operations() - before
}

fn one_failure_anywhere_loses_nothing_and_passes(values: Residence) {
    let total = operations(values);
    assert!(total > 40, "{total} operations are too few to say anything");
    for kind in [io::ErrorKind::Other, io::ErrorKind::StorageFull] {
        for at in 0..total {
            let medium = FaultState::formatted(values);
            let store = medium.open();
            medium.arm(|now| Fault::During(now + at..now + at + 1, kind));
            let mut expected = State::new();
            let mut last = store.revision().unwrap();
            for n in 0..TRANSACTIONS {
                match store.commit(transaction(n)) {
                    Ok(Committed::Done(revision)) => {
                        assert!(revision > last, "operation {at}: {revision} after {last}");
                        last = revision;
                        perform(&mut expected, n);
                    }
                    Ok(Committed::Conflict(_)) => unreachable!("there was no condition"),
                    Err(error) => {
                        // Nothing was written for certain: reopening has shown it.
                        let expected = match kind {
                            io::ErrorKind::StorageFull => error == StorageError::Full,
                            _ => matches!(error, StorageError::Broken(_)),
                        };
                        assert!(expected, "operation {at}: {error:?}");
                    }
                }
                assert_eq!(state(&store), expected, "operation {at}, after transaction {n}");
            }
            drop(store);
            let store = medium.open();
            assert_eq!(state(&store), expected, "operation {at}, reopened");
            assert_eq!(store.revision().unwrap(), last, "operation {at}, reopened");
        }
    }
}

fn a_power_failure_anywhere_loses_nothing_acknowledged(values: Residence) {
    for at in 0..operations(values) {
        let medium = FaultState::formatted(values);
        let store = medium.open();
        medium.arm(|now| Fault::From(now + at));
        let mut acknowledged = State::new();
        let mut last = Revision(0);
        let mut failed = None;
        for n in 0..TRANSACTIONS {
            match store.commit(transaction(n)) {
                Ok(Committed::Done(revision)) => {
                    assert_eq!(failed, None, "operation {at}: a medium that is gone does not come back");
                    last = revision;
                    perform(&mut acknowledged, n);
                }
                Ok(Committed::Conflict(_)) => unreachable!("there was no condition"),
                Err(error) => {
                    assert!(matches!(error, StorageError::Unavailable(_)), "operation {at}: {error:?}");
                    failed = failed.or(Some(n));
                }
            }
            assert_eq!(state(&store), acknowledged, "operation {at}: reads still work");
        }
        medium.lose_power(store);
        let store = medium.open();
        let found = state(&store);
        let mut with_one_more = acknowledged.clone();
        if let Some(n) = failed {
            perform(&mut with_one_more, n);
        }
        // The failed commit may have succeeded; its client received an error that leaves this open.
        assert!(found == acknowledged || found == with_one_more, "operation {at}: {found:?}");
        assert!(store.revision().unwrap() >= last, "operation {at}");
    }
}

/// Regression test: a failed sync was considered successful because the reopened file contained the batch. Linux does not write the
/// pages of a failed sync again, so a power failure lost acknowledged writes, both then and later.
fn a_failed_sync_loses_nothing_acknowledged_then_or_later(values: Residence) {
    for at in 0..operations(values) {
        let medium = FaultState::formatted(values);
        let store = medium.open();
        medium.arm(|now| Fault::During(now + at..now + at + 1, io::ErrorKind::Other));
        let (mut acknowledged, mut last) = (State::new(), Revision(0));
        for n in 0..TRANSACTIONS {
            if let Ok(Committed::Done(revision)) = store.commit(transaction(n)) {
                last = revision;
                perform(&mut acknowledged, n);
            }
        }
        medium.lose_power(store);
        let store = medium.open();
        assert_eq!(state(&store), acknowledged, "operation {at}");
        assert_eq!(store.revision().unwrap(), last, "operation {at}");
    }
}

fn a_failed_sync_whose_pages_are_dropped_loses_nothing_acknowledged(values: Residence) {
    for at in 0..operations(values) {
        let medium = FaultState::formatted(values);
        let store = medium.open();
        lock(&medium.0).drops_pages = true;
        medium.arm(|now| Fault::During(now + at..now + at + 1, io::ErrorKind::Other));
        let mut acknowledged = State::new();
        for n in 0..TRANSACTIONS {
            if let Ok(Committed::Done(_)) = store.commit(transaction(n)) {
                perform(&mut acknowledged, n);
            }
            assert_eq!(state(&store), acknowledged, "operation {at}, after transaction {n}");
        }
        medium.lose_power(store);
        assert_eq!(state(&medium.open()), acknowledged, "operation {at}");
    }
}

/// A write that failed may have reached the file nevertheless. What is found there is acknowledged, and survives a power failure right
/// after that.
fn a_write_that_failed_but_arrived_is_acknowledged_and_durable(values: Residence) {
    let mut arrived = 0;
    for at in 0..operations(values) {
        let medium = FaultState::formatted(values);
        let store = medium.open();
        lock(&medium.0).writes_before_failing = true;
        medium.arm(|now| Fault::During(now + at..now + at + 1, io::ErrorKind::Other));
        let mut expected = State::new();
        for n in 0..TRANSACTIONS {
            let is_done = matches!(store.commit(transaction(n)), Ok(Committed::Done(_)));
            if is_done {
                perform(&mut expected, n);
            }
            if lock(&medium.0).failed > 0 {
                arrived += usize::from(is_done);
                break;
            }
        }
        assert_eq!(state(&store), expected, "operation {at}");
        medium.lose_power(store);
        assert_eq!(state(&medium.open()), expected, "operation {at}, reopened");
    }
    assert!(arrived >= TRANSACTIONS, "{arrived} writes are too few to say anything");
}

#[test]
fn values_that_cannot_be_read_are_errors_until_they_can() {
    let medium = FaultState::formatted(Residence::OnDisk);
    let store = medium.start(RedbOptions { page_cache: 0, ..medium.options() }).unwrap();
    let mut expected = State::new();
    for n in 0..TRANSACTIONS {
        store.commit(transaction(n)).unwrap();
        perform(&mut expected, n);
    }
    store.compact(store.revision().unwrap()).unwrap();
    assert_eq!(state(&store), expected);
    assert!(store.status().unwrap().values_read > Some(0), "nothing was on disk");
    lock(&medium.0).is_unreadable = true;
    for key in expected.keys() {
        let error = store.get(key, None).unwrap_err();
        assert!(matches!(error, StorageError::Unavailable(_)), "{key}: {error}");
        let change = Transaction { conditions: vec![], writes: vec![Write::Delete(key.as_str().into())] };
        store.commit(change).unwrap_err();
    }
    store.range("", &RangeOptions::default()).unwrap_err();
    lock(&medium.0).is_unreadable = false;
    // The file is opened again in the background.
    let begun = std::time::Instant::now();
    while store.range("", &RangeOptions::default()).is_err() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "it never recovers");
        std::thread::yield_now();
    }
    assert_eq!(state(&store), expected);
    store.commit(transaction(TRANSACTIONS)).unwrap();
    perform(&mut expected, TRANSACTIONS);
    assert_eq!(state(&store), expected);
}

/// After a failed sync, the file cannot be replaced either, and the process restarts: the next process must not build on pages that
/// were never written.
fn a_failed_sync_is_known_to_the_next_process(values: Residence) {
    for at in 0..operations(values) {
        for failures in [2, 5, 40] {
            let medium = FaultState::formatted(values);
            let store = medium.open();
            // With many pages: otherwise the next process writes all of them, and none of those that were lost is left.
            let before: State = (0..PAGES).map(|n| (format!("/a/{n}"), vec![1; 700].into())).collect();
            store.commit(puts(&before)).unwrap();
            medium.arm(|now| Fault::During(now + at..now + at + failures, io::ErrorKind::Other));
            let (mut acknowledged, mut failed) = (before, None);
            for n in 0..TRANSACTIONS {
                match store.commit(transaction(n)) {
                    Ok(_) => perform(&mut acknowledged, n),
                    Err(StorageError::Unavailable(_)) => failed = failed.or(Some(n)),
                    Err(StorageError::Broken(_)) => {}
                    Err(error) => panic!("operation {at}: {error:?}"),
                }
            }
            medium.kill(store);
            let store = medium.open();
            let mut found = state(&store);
            let mut with_one_more = acknowledged.clone();
            if let Some(n) = failed {
                perform(&mut with_one_more, n);
            }
            assert!(found == acknowledged || found == with_one_more, "operation {at}: {found:?}");
            for n in 0..3 {
                let change = State::from([(format!("/a/{n}"), vec![2; 700].into())]);
                assert!(matches!(store.commit(puts(&change)), Ok(Committed::Done(_))), "operation {at}");
                found.extend(change);
            }
            medium.lose_power(store);
            assert_eq!(state(&medium.open()), found, "operation {at}, {failures} failures");
        }
    }
}

/// A file that was not closed is repaired when it is opened, which takes space.
#[test]
fn a_full_disk_gives_the_reserve_to_the_opening_of_a_file() {
    for has_reserve in [true, false] {
        let medium = FaultState::formatted(Residence::InMemory);
        let store = medium.open();
        store.commit(transaction(0)).unwrap();
        let expected = state(&store);
        medium.kill(store);
        lock(&medium.0).reserve = Some(512 << 10);
        lock(&medium.0).is_reserved = has_reserve;
        medium.arm(|now| Fault::During(now..now + 1, io::ErrorKind::StorageFull));
        match medium.start(medium.options()) {
            Ok(store) => assert_eq!((state(&store), has_reserve), (expected, true)),
            Err(failure) => assert_eq!((failure, has_reserve), (Failure::Full, false)),
        }
    }
}

/// Each attempt to replace an untrustworthy file may write all of it.
#[test]
fn a_file_that_cannot_be_replaced_is_tried_again_after_a_pause() {
    let medium = FaultState::formatted(Residence::InMemory);
    let store = medium.open();
    store.commit(transaction(0)).unwrap();
    let published = lock(&medium.0).published;
    lock(&medium.0).is_marked = true;
    medium.arm(Fault::From);
    let refused = |n: usize| store.commit(transaction(n)).unwrap_err().to_string();
    let begun = std::time::Instant::now();
    loop {
        let attempt = std::time::Instant::now();
        let (first, before) = (refused(1), medium.operations());
        let second = refused(1);
        // A busy machine may miss the pause.
        if first.contains("cannot be written anew") && attempt.elapsed() < std::time::Duration::from_secs(1) {
            assert!(second.contains("could not be written anew yet"), "{second}");
            assert_eq!(medium.operations(), before);
            break;
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{first}");
    }
    medium.arm(|_| Fault::None);
    let begun = std::time::Instant::now();
    while store.commit(transaction(1)).is_err() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "it is never tried again");
        std::thread::yield_now();
    }
    assert_eq!(lock(&medium.0).published, published + 1);
    let mut expected = State::new();
    (0..2).for_each(|n| perform(&mut expected, n));
    assert_eq!(state(&store), expected);
}

/// Only a failed sync makes a file untrustworthy. One that cannot be opened for another reason may have what memory lacks.
#[test]
fn a_file_that_cannot_be_opened_again_is_not_replaced() {
    let medium = FaultState::formatted(Residence::InMemory);
    let store = medium.open();
    store.commit(transaction(0)).unwrap();
    let published = lock(&medium.0).published;
    medium.arm(|now| Fault::During(now..now + 1, io::ErrorKind::Other));
    lock(&medium.0).is_unreadable = true;
    for _ in 0..2 {
        let error = store.commit(transaction(1)).unwrap_err();
        assert!(matches!(error, StorageError::Unavailable(_)), "{error:?}");
    }
    lock(&medium.0).is_unreadable = false;
    assert!(matches!(store.commit(transaction(1)), Ok(Committed::Done(_))));
    assert_eq!(lock(&medium.0).published, published);
}

/// Regression test: a compaction that failed but had happened anyway was forgotten, a later write reverted it in the file, and the
/// next start found history missing.
fn a_failed_compaction_anywhere_leaves_a_store_that_opens(values: Residence) {
    let prepare = || {
        let medium = FaultState::formatted(values);
        let store = medium.open();
        (0..5).for_each(|n| drop(store.commit(transaction(n)).unwrap()));
        (medium, store)
    };
    let total = {
        let (medium, store) = prepare();
        let before = medium.operations();
        store.compact(store.revision().unwrap()).unwrap();
        medium.operations() - before
    };
    assert!(total > 3, "{total} operations are too few to say anything");
    let mut refused = 0;
    for at in 0..total {
        let (medium, store) = prepare();
        let newest = store.revision().unwrap();
        medium.arm(|now| Fault::During(now + at..now + at + 1, io::ErrorKind::Other));
        let compacted = store.compact(newest);
        refused += usize::from(compacted.is_err());
        let oldest = store.get("/k/0", Some(Revision(1)));
        if compacted.is_ok() {
            assert!(matches!(oldest, Err(StorageError::Compacted { .. })), "operation {at}: {oldest:?}");
        }
        // Enough transactions for the bounds of history to demand less than was requested.
        (5..9).for_each(|n| drop(store.commit(transaction(n)).unwrap()));
        let (expected, last) = (state(&store), store.revision().unwrap());
        drop(store);
        let store = medium.open();
        assert_eq!((state(&store), store.revision().unwrap()), (expected, last), "operation {at}");
    }
    assert!(refused > 0, "no operation failed");
}

/// Operations of the copying thread and of the committer interleave arbitrarily, so every failure affects some step.
const SHRINKING_OPERATIONS: usize = 160;

/// Performs transactions, the first of which lead to a smaller file. Returns the acknowledged state, and the same state with the
/// transaction whose outcome is unknown.
fn perform_while_shrinking(medium: &FaultState, store: &RedbStorage) -> [State; 2] {
    let (mut acknowledged, mut unknown) = (State::new(), None);
    for n in 0..TRANSACTIONS {
        match store.commit(transaction(n)) {
            Ok(_) => perform(&mut acknowledged, n),
            Err(StorageError::Unavailable(_)) => unknown = unknown.or(Some(n)),
            Err(_) => {}
        }
        assert_eq!(state(store), acknowledged, "after transaction {n}");
        if n == TRANSACTIONS / 2 {
            medium.await_successor();
        }
    }
    let mut with_unknown = acknowledged.clone();
    if let Some(n) = unknown {
        perform(&mut with_unknown, n);
    }
    [acknowledged, with_unknown]
}

fn one_failure_while_the_file_is_made_smaller_loses_nothing(values: Residence) {
    let mut smaller = 0;
    for at in (0..SHRINKING_OPERATIONS).step_by(3) {
        let kind = if at % 2 == 0 { io::ErrorKind::Other } else { io::ErrorKind::StorageFull };
        let medium = FaultState::formatted(values);
        let store = medium.open_shrinking();
        let before = lock(&medium.0).data.present.len();
        medium.arm(|now| Fault::During(now + at..now + at + 1, kind));
        let [acknowledged, _] = perform_while_shrinking(&medium, &store);
        let last = store.revision().unwrap();
        medium.lose_power(store);
        smaller += usize::from(lock(&medium.0).data.present.len() < before);
        let store = medium.open();
        assert_eq!(state(&store), acknowledged, "operation {at}, reopened");
        assert_eq!(store.revision().unwrap(), last, "operation {at}, reopened");
    }
    assert!(smaller > 0, "no file became smaller");
}

/// Otherwise a file that cannot be made smaller would be copied again after each write.
#[test]
fn a_copy_that_failed_is_not_tried_again_at_once() {
    let medium = FaultState::formatted(Residence::InMemory);
    lock(&medium.0).refuses_successors = true;
    let store = medium.open_shrinking();
    let counts = || {
        let volume = lock(&medium.0);
        (volume.begun, volume.discarded)
    };
    let before = counts();
    let same = puts(&State::from([("/k".to_owned(), vec![1; 700].into())]));
    let begun = std::time::Instant::now();
    while counts().1 == before.1 {
        store.commit(same.clone()).unwrap();
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "no copy has failed");
    }
    (0..20).for_each(|_| drop(store.commit(same.clone()).unwrap()));
    assert_eq!(counts(), (before.0 + 1, before.1 + 1));
}

fn a_power_failure_while_the_file_is_made_smaller_loses_nothing_acknowledged(values: Residence) {
    for at in (0..SHRINKING_OPERATIONS).step_by(3) {
        let medium = FaultState::formatted(values);
        let store = medium.open_shrinking();
        medium.arm(|now| Fault::From(now + at));
        let possible = perform_while_shrinking(&medium, &store);
        medium.lose_power(store);
        let found = state(&medium.open());
        assert!(possible.contains(&found), "operation {at}: {found:?}");
    }
}

fn a_full_disk_refuses_writes_until_there_is_room(values: Residence) {
    let medium = FaultState::formatted(values);
    let store = medium.open();
    let put = |n: usize| Transaction {
        conditions: vec![],
        writes: vec![Write::Put(format!("/k/{n}").into(), vec![7; 20_000].into())],
    };
    lock(&medium.0).capacity = Some(2 << 20);
    let (mut stored, mut refused) = (0, 0);
    // Reopening may find slightly more room, but not for long.
    while refused < 5 {
        match store.commit(put(stored)) {
            Ok(_) => (stored, refused) = (stored + 1, 0),
            Err(error) => {
                assert_eq!(error, StorageError::Full);
                refused += 1;
            }
        }
        assert_eq!(state(&store).len(), stored, "reads still work");
        assert!(stored < 1000, "the disk never fills up");
    }
    assert!(stored > 5, "only {stored} fit");
    lock(&medium.0).capacity = None;
    assert!(matches!(store.commit(put(stored)), Ok(Committed::Done(_))));
    drop(store);
    assert_eq!(state(&medium.open()).len(), stored + 1);
}

/// Regression test: nothing could be deleted on a full disk, because a deletion needs space before it frees any.
fn a_full_disk_takes_deletions_and_after_them_everything(values: Residence) {
    let medium = FaultState::formatted(values);
    lock(&medium.0).reserve = Some(512 << 10);
    lock(&medium.0).capacity = Some(3 << 20);
    let store = medium.open();
    let one = |write: Write| Transaction { conditions: vec![], writes: vec![write] };
    let key = |n: usize| gc_store_api::Key::from(format!("/k/{n}"));
    let put = |n: usize, size: usize| one(Write::Put(key(n), vec![7; size].into()));
    assert_eq!(store.health(), Ok(()));
    let mut stored = 0;
    while store.commit(put(stored, 20_000)).is_ok() {
        stored += 1;
        assert!(stored < 1000, "the disk never fills up");
    }
    assert!(stored > 20, "only {stored} fit");
    assert_eq!(store.health(), Err(StorageError::Full));
    // A write that enlarges an object much is refused like a new object; marking one for deletion is not.
    assert_eq!(store.commit(put(0, 30_000)), Err(StorageError::Full));
    assert_eq!(store.commit(put(stored, 1)), Err(StorageError::Full));
    for n in 0..stored {
        assert!(matches!(store.commit(put(n, 20_100)), Ok(Committed::Done(_))), "{n} of {stored} is marked");
        assert!(
            matches!(store.commit(one(Write::Delete(key(n)))), Ok(Committed::Done(_))),
            "{n} of {stored}"
        );
    }
    let begun = std::time::Instant::now();
    while store.health().is_err() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "it never recovers");
        std::thread::yield_now();
    }
    for n in 0..stored / 2 {
        commit_eventually(&store, &put(n, 20_000));
    }
    drop(store);
    assert_eq!(state(&medium.open()).len(), stored / 2);
}

/// Writes what a full disk refuses at first: there is room once history is forgotten.
fn commit_eventually(store: &RedbStorage, transaction: &Transaction) {
    let begun = std::time::Instant::now();
    while let Err(error) = store.commit(transaction.clone()) {
        assert_eq!(error, StorageError::Full);
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{transaction:?} is refused for ever");
        std::thread::yield_now();
    }
}

/// Regression test: after deletions on a full disk, writes were refused for another second, and forever if history could not be
/// forgotten at the first attempt to make room.
fn writes_resume_as_soon_as_deletions_have_made_room(values: Residence) {
    let medium = FaultState::formatted(values);
    lock(&medium.0).reserve = Some(512 << 10);
    lock(&medium.0).capacity = Some(6 << 20);
    let store = medium.open();
    let one = |write: Write| Transaction { conditions: vec![], writes: vec![write] };
    let key = |n: usize| gc_store_api::Key::from(format!("/k/{n}"));
    let put = |n: usize| one(Write::Put(key(n), vec![7; 50_000].into()));
    let mut stored = 0;
    while store.commit(put(stored)).is_ok() {
        stored += 1;
        assert!(stored < 1000, "the disk never fills up");
    }
    assert!(stored > 42, "only {stored} fit");
    // Some of the objects are deleted in several turns; each turn makes room.
    for turn in 0..2 {
        for n in turn * 21..(turn + 1) * 21 {
            assert!(matches!(store.commit(one(Write::Delete(key(n)))), Ok(Committed::Done(_))), "{n}");
        }
        commit_eventually(&store, &put(1_000 + turn));
        let mut more = 2_000;
        while store.commit(put(more)).is_ok() {
            more += 1;
            assert!(more < 3_000, "the disk never fills up again");
        }
        for n in 2_000..more {
            store.commit(one(Write::Delete(key(n)))).unwrap();
        }
    }
}

#[test]
fn a_format_from_the_future_is_refused() {
    let medium = FaultState::formatted(Residence::InMemory);
    let database = redb::Builder::new().create_with_backend(medium.file(Name::Data)).unwrap();
    let transaction = database.begin_write().unwrap();
    let table: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("meta");
    transaction.open_table(table).unwrap().insert("format", 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let failure = medium.start(RedbOptions::default()).unwrap_err();
    assert_eq!(failure, Failure::Format(2));
    assert_eq!(
        failure.at(std::path::Path::new("/d/kubegc.redb")).to_string(),
        "the data file /d/kubegc.redb has format version 2; this program knows version 1"
    );
}
