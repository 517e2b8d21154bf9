//! The store on a failing medium: at each single operation, permanently, or because it is full.
#![allow(clippy::unwrap_used)] // tests

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use gc_storage::{Committed, RangeOptions, Revision, Storage, StorageError, Transaction, Write};
use redb::StorageBackend;

use super::disk::{Disk, Failure, Opener};
use super::space::{Reserve, Reserved};
use super::{RedbOptions, RedbStorage};
use crate::hub::lock;
use crate::mvcc::HistoryOptions;

/// Block size of the disk.
const BLOCK_BYTES: u64 = 4096;

/// A disk in memory, which knows what it would still contain after a power failure.
#[derive(Debug, Default)]
struct Medium {
    /// The contents for reads.
    present: Vec<u8>,
    /// The contents at the last sync.
    durable: Vec<u8>,
    /// Number of modifying operations so far.
    operations: usize,
    fault: Fault,
    /// Number of bytes in blocks.
    capacity: Option<u64>,
    /// The allocated blocks: a file has no others.
    blocks: BTreeSet<u64>,
    /// The size of the reserve when there is enough space.
    reserve: Option<u64>,
    /// The reserve exists.
    is_reserved: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// The operation of this number fails; half of it happens.
    Once(usize, io::ErrorKind),
    /// From the operation of this number on, everything fails.
    From(usize),
}

#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<Medium>>);

impl Medium {
    /// Counts an operation; true if it has to fail.
    fn fails(&mut self) -> Option<io::Error> {
        let number = self.operations;
        self.operations += 1;
        match self.fault {
            Fault::Once(at, kind) if number == at => Some(kind.into()),
            Fault::From(at) if number >= at => Some(io::Error::other("the medium is gone")),
            _ => None,
        }
    }

    /// Allocates the blocks that a write needs.
    fn take_blocks(&mut self, offset: u64, length: u64) -> io::Result<()> {
        let end = (offset + length).div_ceil(BLOCK_BYTES);
        let new: Vec<u64> =
            (offset / BLOCK_BYTES..end).filter(|block| !self.blocks.contains(block)).collect();
        let taken = self.used() + new.len() as u64 * BLOCK_BYTES;
        match self.capacity {
            Some(capacity) if !new.is_empty() && taken > capacity => Err(io::ErrorKind::StorageFull.into()),
            _ => {
                self.blocks.extend(new);
                Ok(())
            }
        }
    }

    /// The bytes of all allocated blocks, including the reserve.
    fn used(&self) -> u64 {
        let reserved = self.reserve.filter(|_| self.is_reserved).unwrap_or_default();
        self.blocks.len() as u64 * BLOCK_BYTES + reserved
    }
}

impl StorageBackend for Shared {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.0).present.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        let medium = lock(&self.0);
        let found = medium.present.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut medium = lock(&self.0);
        if let Some(error) = medium.fails() {
            return Err(error);
        }
        // Files are sparse: growing one takes no space yet.
        medium.present.resize(usize::try_from(length).unwrap(), 0);
        medium.blocks.retain(|block| block * BLOCK_BYTES < length);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut medium = lock(&self.0);
        if let Some(error) = medium.fails() {
            return Err(error);
        }
        medium.durable = medium.present.clone();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut medium = lock(&self.0);
        let failure = medium.fails();
        let written = if failure.is_some() { data.len() / 2 } else { data.len() };
        medium.take_blocks(offset, data.len() as u64)?;
        let start = usize::try_from(offset).unwrap();
        medium.present[start..start + written].copy_from_slice(&data[..written]);
        failure.map_or(Ok(()), Err)
    }
}

impl Reserve for Shared {
    fn take(&mut self, _freed: bool) -> Reserved {
        let mut medium = lock(&self.0);
        let Some(reserve) = medium.reserve else { return Reserved::Unsupported };
        let used = medium.used();
        medium.is_reserved |= medium.capacity.is_none_or(|capacity| used + reserve <= capacity);
        if medium.is_reserved { Reserved::Yes } else { Reserved::NoRoom }
    }

    fn release(&mut self) -> bool {
        std::mem::take(&mut lock(&self.0).is_reserved)
    }
}

impl Shared {
    fn opener(&self) -> Opener {
        let medium = self.clone();
        Box::new(move |builder| builder.create_with_backend(medium.clone()).map_err(Failure::from))
    }

    fn formatted() -> Self {
        let medium = Self::default();
        Disk::create(&medium.opener()).unwrap();
        medium
    }

    fn open(&self) -> RedbStorage {
        // Little history, so that forgetting it is part of what fails.
        let history = HistoryOptions { changes: 6, bytes: 1 << 20 };
        let options = RedbOptions { history, ..RedbOptions::default() };
        RedbStorage::start(self.opener(), options, Box::new(self.clone()), 0, None).unwrap()
    }

    fn arm(&self, fault: impl FnOnce(usize) -> Fault) {
        let mut medium = lock(&self.0);
        medium.fault = fault(medium.operations);
    }

    fn operations(&self) -> usize {
        lock(&self.0).operations
    }
}

type State = BTreeMap<String, Bytes>;

fn state(store: &RedbStorage) -> State {
    let items = store.range("", &RangeOptions::default()).unwrap().items;
    items.into_iter().map(|item| (item.key.to_string(), item.value)).collect()
}

/// The n-th transaction: writes one of five keys, and sometimes removes another.
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

/// The number of operations of the whole workload on a sound medium.
fn operations() -> usize {
    let medium = Shared::formatted();
    let store = medium.open();
    let before = medium.operations();
    for n in 0..TRANSACTIONS {
        store.commit(transaction(n)).unwrap();
    }
    drop(store);
    medium.operations() - before
}

#[test]
fn one_failure_anywhere_loses_nothing_and_passes() {
    let total = operations();
    assert!(total > 40, "{total} operations are too few to say anything");
    for kind in [io::ErrorKind::Other, io::ErrorKind::StorageFull] {
        for at in 0..total {
            let medium = Shared::formatted();
            let store = medium.open();
            medium.arm(|now| Fault::Once(now + at, kind));
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
                        // It is known that nothing was written: reopening has shown it.
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

#[test]
fn a_power_failure_anywhere_loses_nothing_acknowledged() {
    for at in 0..operations() {
        let medium = Shared::formatted();
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
        drop(store);
        {
            let mut medium = lock(&medium.0);
            medium.fault = Fault::None;
            medium.present = medium.durable.clone();
        }
        let store = medium.open();
        let found = state(&store);
        let mut with_one_more = acknowledged.clone();
        if let Some(n) = failed {
            perform(&mut with_one_more, n);
        }
        // The failed commit may have succeeded; its client got an error that leaves this open.
        assert!(found == acknowledged || found == with_one_more, "operation {at}: {found:?}");
        assert!(store.revision().unwrap() >= last, "operation {at}");
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let medium = Shared::formatted();
    let store = medium.open();
    let put = |n: usize| Transaction {
        conditions: vec![],
        writes: vec![Write::Put(format!("/k/{n}").into(), vec![7; 20_000].into())],
    };
    lock(&medium.0).capacity = Some(2 << 20);
    let (mut stored, mut refused) = (0, 0);
    // Reopening may find a little more room, but not for long.
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

/// A regression: nothing could be deleted on a full disk, because a deletion needs space before it frees any.
#[test]
fn a_full_disk_takes_deletions_and_after_them_everything() {
    let medium = Shared::formatted();
    lock(&medium.0).reserve = Some(512 << 10);
    lock(&medium.0).capacity = Some(3 << 20);
    let store = medium.open();
    let one = |write: Write| Transaction { conditions: vec![], writes: vec![write] };
    let key = |n: usize| gc_storage::Key::from(format!("/k/{n}"));
    let put = |n: usize, size: usize| one(Write::Put(key(n), vec![7; size].into()));
    assert_eq!(store.health(), Ok(()));
    let mut stored = 0;
    while store.commit(put(stored, 20_000)).is_ok() {
        stored += 1;
        assert!(stored < 1000, "the disk never fills up");
    }
    assert!(stored > 20, "only {stored} fit");
    assert_eq!(store.health(), Err(StorageError::Full));
    // A write that makes an object much larger is refused like a new object; marking one for deletion is not.
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
        assert!(matches!(store.commit(put(n, 20_000)), Ok(Committed::Done(_))), "{n} after the recovery");
    }
    drop(store);
    assert_eq!(state(&medium.open()).len(), stored / 2);
}

#[test]
fn a_format_from_the_future_is_refused() {
    let medium = Shared::formatted();
    let database = redb::Builder::new().create_with_backend(medium.clone()).unwrap();
    let transaction = database.begin_write().unwrap();
    let table: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("meta");
    transaction.open_table(table).unwrap().insert("format", 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let failure =
        RedbStorage::start(medium.opener(), RedbOptions::default(), Box::new(medium.clone()), 0, None)
            .unwrap_err();
    assert_eq!(failure, Failure::Format(2));
    assert_eq!(
        failure.at(std::path::Path::new("/d/kubegc.redb")).to_string(),
        "the data file /d/kubegc.redb has format version 2; this program knows version 1"
    );
}
