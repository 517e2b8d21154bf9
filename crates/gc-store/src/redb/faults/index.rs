//! Tests the index of a data file: what it must not be taken for, and what its writing must not break.

use std::io;

use gc_store_api::{
    Change, Condition, Key, KeyValue, RangeOptions, Revision, Storage, StorageError, Transaction, Write,
};
use redb::{ReadableDatabase as _, ReadableTable as _};

use super::super::failure::{Failure, HISTORY, OBJECTS};
use super::super::index::INDEX;
use super::super::{RedbOptions, RedbStorage, disk};
use super::volume::{Fault, FaultState, Name, Residence};
use super::{State, state};
use crate::hub::lock;

/// Number of keys: their index takes several chunks.
const KEYS: u64 = 3000;
/// Memory for values, which a start without an index fills.
const VALUE_MEMORY: u64 = 4000;
const VALUE: &[u8] = b"0123456789";

fn key(n: u64) -> Key {
    let scattered = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("/{scattered:016x}/{:016x}", scattered.rotate_left(7)).into()
}

fn open(medium: &FaultState) -> RedbStorage {
    medium.start(RedbOptions { value_memory: VALUE_MEMORY, ..medium.options() }).unwrap()
}

/// Reports whether a store was opened with its index.
fn has_used_index(store: &RedbStorage) -> bool {
    store.status().unwrap().value_bytes_in_memory < Some(VALUE_MEMORY / 2)
}

/// Returns a medium with an open store.
fn filled() -> (FaultState, RedbStorage) {
    let medium = FaultState::formatted(Residence::OnDisk);
    let store = open(&medium);
    for part in 0..KEYS / 100 {
        let keys = part * 100..(part + 1) * 100;
        let writes = keys.map(|n| Write::Put(key(n), VALUE.into())).collect();
        store.commit(Transaction { conditions: vec![], writes }).unwrap();
    }
    // The history has the last transaction only.
    for n in 0..3 {
        store.commit(put(KEYS + n)).unwrap();
    }
    (medium, store)
}

fn put(n: u64) -> Transaction {
    Transaction { conditions: vec![], writes: vec![Write::Put(key(n), VALUE.into())] }
}

/// Returns a medium with a closed store and its contents.
fn closed() -> (FaultState, State) {
    let (medium, store) = filled();
    let expected = state(&store);
    drop(store);
    (medium, expected)
}

fn copy(medium: &FaultState) -> FaultState {
    let copy = FaultState::default();
    {
        let (mut copy, volume) = (lock(&copy.0), lock(&medium.0));
        (copy.data, copy.values) = (volume.data.clone(), volume.values);
    }
    copy
}

fn database(medium: &FaultState) -> redb::Database {
    redb::Builder::new().create_with_backend(medium.file(Name::Data)).unwrap()
}

/// Puts a key without regard to the index, as a program does that does not know it.
fn write_unaware(medium: &FaultState, n: u64, revision: u64, compact: Option<u64>) {
    let change =
        Change { revision: Revision(revision), key: key(n), value: Some(VALUE.into()), previous: None };
    disk::write(&database(medium), &[change.into()], Revision(revision), compact.map(Revision)).unwrap();
}

#[test]
fn an_index_counts_until_the_history_has_lost_a_change() {
    let (medium, store) = filled();
    let mut expected = state(&store);
    let newest = store.revision().unwrap().0;
    drop(store);
    let store = open(&medium);
    assert!(has_used_index(&store), "{:?}", store.status());
    assert_eq!(state(&store), expected);
    drop(store);
    write_unaware(&medium, 8000, newest + 1, None);
    expected.insert(key(8000).to_string(), VALUE.into());
    let store = open(&medium);
    assert!(has_used_index(&store), "the history has the change");
    assert_eq!(state(&store), expected);
    drop(store);
    write_unaware(&medium, 8001, newest + 2, Some(newest + 1));
    expected.insert(key(8001).to_string(), VALUE.into());
    let store = open(&medium);
    assert!(!has_used_index(&store), "the history has lost the change");
    assert_eq!(state(&store), expected);
    drop(store);
    let store = open(&medium);
    assert!(has_used_index(&store), "it was written anew");
    assert_eq!(state(&store), expected);
}

/// A server closes its store, whoever else still holds it: what it leaves to the next start does not depend on when they drop it.
#[test]
fn a_store_that_is_closed_leaves_its_index_while_others_hold_it() {
    let (medium, store) = filled();
    let expected = state(&store);
    store.close();
    assert_eq!(
        store.commit(put(9000)),
        Err(StorageError::Broken("the thread that writes has ended".to_owned()))
    );
    let next = open(&medium);
    assert!(has_used_index(&next), "{:?}", next.status());
    assert_eq!(state(&next), expected);
    // Closing it again changes nothing.
    store.close();
    drop(store);
    next.commit(put(9001)).unwrap();
}

/// The sizes that decide about memory and the length of the file are the same with an index and without one.
#[test]
fn an_index_gives_the_sizes_of_what_it_does_not_read() {
    let (medium, store) = filled();
    let of = |store: &RedbStorage| {
        let data = store.core.read();
        (data.bytes(), data.value_sizes().all, data.key_bytes())
    };
    for n in [3, 4000, KEYS + 2, 5] {
        store.commit(put(n)).unwrap();
        let delete = Write::Delete(key(n + 1));
        store.commit(Transaction { conditions: vec![], writes: vec![delete] }).unwrap();
    }
    let (expected, contents) = (of(&store), state(&store));
    drop(store);
    let store = open(&medium);
    assert!(has_used_index(&store));
    assert_eq!((of(&store), state(&store)), (expected, contents));
}

#[test]
fn an_index_that_does_not_describe_the_file_is_not_used() {
    let (medium, expected) = closed();
    let records = records(&medium);
    assert!(records.len() > 3, "{} records are not several chunks", records.len());
    let summary = records.len() - 1;
    let flipped = |number: usize, place: usize| {
        let mut records = records.clone();
        records[number].1[place] ^= 4;
        records
    };
    let without = |number: usize| {
        let mut records = records.clone();
        records.remove(number);
        records
    };
    let swapped = {
        let mut records = records.clone();
        records[1].0 = 0;
        records[0].0 = 1;
        records
    };
    let repeated = {
        let mut records = records.clone();
        records.insert(1, (77, records[0].1.clone()));
        records
    };
    // Words of the summary: revision, size of the values, number of keys and of chunks.
    let recounted = |word: usize| {
        let body = super::super::records::unseal("index", &records[summary].1).unwrap();
        let mut words: Vec<u64> =
            body.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        words[word] += 1;
        let body = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut records = records.clone();
        records[summary].1 = super::super::records::seal("index", body);
        records
    };
    let damaged = [
        ("another number of keys", recounted(2)),
        ("another number of chunks", recounted(3)),
        ("a bit of a chunk", flipped(1, 100)),
        ("a bit of a checksum", flipped(0, records[0].1.len() - 1)),
        ("a bit of the summary", flipped(summary, 9)),
        ("no first chunk", without(0)),
        ("no last chunk", without(summary - 1)),
        ("no summary", without(summary)),
        ("chunks in each other's place", swapped),
        ("a chunk twice", repeated),
    ];
    for (what, records) in damaged {
        let medium = copy(&medium);
        let database = database(&medium);
        let transaction = database.begin_write().unwrap();
        transaction.delete_table(INDEX).unwrap();
        for (number, record) in &records {
            transaction.open_table(INDEX).unwrap().insert(number, &**record).unwrap();
        }
        transaction.commit().unwrap();
        drop(database);
        let store = open(&medium);
        assert!(!has_used_index(&store), "{what}");
        assert_eq!(state(&store), expected, "{what}");
        drop(store);
        if what != "no summary" {
            assert!(has_used_index(&open(&medium)), "{what}: it was not written anew");
        }
    }
}

fn records(medium: &FaultState) -> Vec<(u64, Vec<u8>)> {
    let table = database(medium).begin_read().unwrap().open_table(INDEX).unwrap();
    let entries = table.iter().unwrap().map(Result::unwrap);
    entries.map(|(number, record)| (number.value(), record.value().to_vec())).collect()
}

/// A chunk of an earlier index has the keys of today, in versions that are gone.
#[test]
fn a_chunk_of_an_earlier_index_is_not_used() {
    let (medium, store) = filled();
    let first = (0..KEYS).min_by_key(|n| key(*n)).unwrap();
    drop(store);
    let earlier = records(&medium);
    let store = open(&medium);
    for n in [first, KEYS, KEYS + 1, KEYS + 2, KEYS] {
        store.commit(put(n)).unwrap();
    }
    let expected = state(&store);
    drop(store);
    let later = records(&medium);
    assert_ne!(later[0], earlier[0]);
    let database = database(&medium);
    let transaction = database.begin_write().unwrap();
    transaction.open_table(INDEX).unwrap().insert(0, &*earlier[0].1).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let store = open(&medium);
    assert!(!has_used_index(&store));
    assert_eq!(state(&store), expected);
}

/// A start decides by the size in use whether to make the file smaller.
#[test]
fn a_start_with_the_index_counts_what_is_in_use_as_one_without() {
    let (medium, _) = closed();
    let database = database(&medium);
    let reading = database.begin_read().unwrap();
    let objects = reading.open_table(OBJECTS).unwrap();
    let history = reading.open_table(HISTORY).unwrap();
    let used: usize = objects
        .iter()
        .unwrap()
        .map(Result::unwrap)
        .map(|(key, record)| key.value().len() + record.value().len())
        .chain(history.iter().unwrap().map(|entry| entry.unwrap().1.value().len()))
        .sum();
    for value_memory in [VALUE_MEMORY, u64::MAX] {
        let loaded = super::super::load::load(&database, value_memory).unwrap();
        assert_eq!(loaded.used, used as u64, "{value_memory}");
    }
}

/// Everything is read at the next start anyway.
#[test]
fn a_store_that_fits_into_memory_has_no_index() {
    let medium = FaultState::formatted(Residence::InMemory);
    let store = medium.open();
    store.commit(put(1)).unwrap();
    drop(store);
    assert!(database(&medium).begin_read().unwrap().open_table(INDEX).is_err());
}

/// A history that is not that of the file would bring back, or lose, what it says.
#[test]
fn a_history_that_is_not_that_of_the_file_is_refused() {
    let (sound, _) = closed();
    let (newest, compacted) = {
        let database = database(&sound);
        let reading = database.begin_read().unwrap();
        let history = reading.open_table(HISTORY).unwrap();
        let first = history.first().unwrap().unwrap().0.value().0;
        (history.last().unwrap().unwrap().0.value().0, first - 1)
    };
    let change = |revision: u64, has_previous: bool| {
        let (create_revision, mod_revision) = (Revision(2), Revision(2));
        let previous = KeyValue { key: key(9500), value: VALUE.into(), create_revision, mod_revision };
        Change {
            revision: Revision(revision),
            key: key(9500),
            value: None,
            previous: has_previous.then_some(previous),
        }
    };
    for (what, change) in [
        ("forgotten", change(compacted, true)),
        ("in the future", change(newest + 1, true)),
        ("nothing before and after", change(newest, false)),
    ] {
        let medium = copy(&sound);
        let transaction_of = database(&medium);
        let transaction = transaction_of.begin_write().unwrap();
        let record = super::super::records::encode_history(&change);
        transaction.open_table(HISTORY).unwrap().insert((change.revision.0, 77), &*record).unwrap();
        transaction.commit().unwrap();
        drop(transaction_of);
        for value_memory in [VALUE_MEMORY, u64::MAX] {
            let failure = medium.start(RedbOptions { value_memory, ..medium.options() }).unwrap_err();
            let expected = format!("the change at revision {} should not be there", change.revision);
            assert_eq!(failure, Failure::Damaged(expected), "{what}");
        }
    }
}

/// An object that only the file lacks, or only the index: the whole file says which.
#[test]
fn an_index_with_other_keys_than_the_file_is_not_used() {
    let (medium, mut expected) = closed();
    for is_removed in [true, false] {
        let database = database(&medium);
        let transaction = database.begin_write().unwrap();
        {
            let mut objects = transaction.open_table(super::super::failure::OBJECTS).unwrap();
            if is_removed {
                objects.remove(&*key(7)).unwrap();
                expected.remove(&*key(7));
            } else {
                let item = KeyValue {
                    key: key(9000),
                    value: VALUE.into(),
                    create_revision: Revision(2),
                    mod_revision: Revision(2),
                };
                objects.insert(&*item.key, &*super::super::records::encode_object(&item)).unwrap();
                expected.insert(key(9000).to_string(), VALUE.into());
                objects
                    .insert(
                        &*key(7),
                        &*super::super::records::encode_object(&KeyValue { key: key(7), ..item }),
                    )
                    .unwrap();
                expected.insert(key(7).to_string(), VALUE.into());
            }
        }
        transaction.commit().unwrap();
        drop(database);
        let store = open(&medium);
        assert!(!has_used_index(&store), "removed: {is_removed}");
        assert_eq!(state(&store), expected);
        medium.kill(store);
    }
}

/// A process ends at any operation of the writing of an index, or one of them fails; with and without a power failure after it.
#[test]
fn a_failure_anywhere_while_an_index_is_written_leaves_a_store_that_opens() {
    let (sound, store) = filled();
    let expected = state(&store);
    sound.kill(store);
    let total = {
        let medium = copy(&sound);
        let store = open(&medium);
        let before = medium.operations();
        drop(store);
        medium.operations() - before
    };
    assert!(total > 10, "{total} operations are too few to say anything");
    let mut used = 0;
    for at in 0..total {
        for (is_over, loses_power) in [(true, false), (true, true), (false, false), (false, true)] {
            let medium = copy(&sound);
            let store = open(&medium);
            assert!(!has_used_index(&store), "a process that was killed leaves none");
            medium.arm(|now| {
                let one = Fault::During(now + at..now + at + 1, io::ErrorKind::Other);
                if is_over { Fault::From(now + at) } else { one }
            });
            drop(store);
            {
                let mut volume = lock(&medium.0);
                volume.fault = Fault::None;
                if loses_power {
                    volume.data.present = volume.data.durable.clone();
                    volume.data.dirty.clear();
                    volume.is_marked = false;
                }
            }
            let store = open(&medium);
            used += usize::from(has_used_index(&store));
            assert_eq!(state(&store), expected, "operation {at}, {is_over}, {loses_power}");
            store.commit(put(9001)).unwrap();
            drop(store);
            let store = open(&medium);
            assert_eq!(state(&store).len(), expected.len() + 1, "operation {at}, {is_over}, {loses_power}");
        }
    }
    assert!(used > 0 && used < 4 * total, "{used} of {} starts used an index", 4 * total);
}

/// A damaged value that an index has hidden from the start is an error that names its key, and only a deletion without a version removes it.
#[test]
fn a_damaged_object_can_be_deleted_unread() {
    let (medium, mut expected) = closed();
    let damaged = key(7);
    {
        let database = database(&medium);
        let transaction = database.begin_write().unwrap();
        {
            let mut objects = transaction.open_table(OBJECTS).unwrap();
            let mut record = objects.get(&*damaged).unwrap().unwrap().value().to_vec();
            *record.last_mut().unwrap() ^= 1;
            objects.insert(&*damaged, &*record).unwrap();
        }
        transaction.commit().unwrap();
    }
    let store = open(&medium);
    let read = |store: &RedbStorage| store.get(&damaged, None).map(|answer| answer.item);
    let why = read(&store).unwrap_err().to_string();
    assert!(why.contains(&*damaged) && why.contains("delete the object unread"), "{why}");
    let delete = Write::Delete(Key::clone(&damaged));
    let mod_revision = Revision(2);
    let with_version = Transaction {
        conditions: vec![Condition { key: Key::clone(&damaged), mod_revision }],
        writes: vec![delete.clone()],
    };
    store.commit(with_version).unwrap_err();
    let overwrite =
        Transaction { conditions: vec![], writes: vec![Write::Put(Key::clone(&damaged), VALUE.into())] };
    store.commit(overwrite).unwrap_err();
    assert!(store.range("", &RangeOptions::default()).is_err());
    store.commit(Transaction { conditions: vec![], writes: vec![delete] }).unwrap();
    expected.remove(&*damaged).unwrap();
    assert_eq!(read(&store), Ok(None));
    assert_eq!(state(&store), expected);
    drop(store);
    // Starts with the index and without it agree.
    let store = open(&medium);
    assert_eq!(state(&store), expected);
    store.compact(store.revision().unwrap()).unwrap();
    drop(store);
    assert_eq!(state(&open(&medium)), expected);
}
