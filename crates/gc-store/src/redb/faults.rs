//! Tests the store on a medium that fails at a single operation, permanently, or because it is full.
#![allow(clippy::unwrap_used)] // tests

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use gc_store_api::{Committed, RangeOptions, Revision, Storage, StorageError, Transaction, Write};
use redb::StorageBackend;

use super::disk::{self, Failure};
use super::medium::Medium;
use super::space::{Reservation, Reserve};
use super::{RedbOptions, RedbStorage};
use crate::hub::lock;
use crate::mvcc::HistoryOptions;

/// Block size of the disk in bytes.
const BLOCK_BYTES: u64 = 4096;

/// A file in memory that tracks its contents after a power failure.
#[derive(Clone, Debug, Default)]
struct Image {
    /// Contents seen by reads.
    present: Vec<u8>,
    /// Contents after a power failure.
    durable: Vec<u8>,
    /// Blocks that the next sync has to write. As on Linux, a failed sync forgets them, while reads still return them.
    dirty: BTreeSet<u64>,
    /// Blocks that the file occupies.
    blocks: BTreeSet<u64>,
}

/// The name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Data,
    Successor,
}

/// A disk in memory.
#[derive(Debug, Default)]
struct Volume {
    data: Image,
    successor: Image,
    /// File that regains the name of the data file after a power failure.
    replaced: Option<Image>,
    /// True if a data file with a failed sync is marked. The mark never becomes durable.
    is_marked: bool,
    /// Number of modifying operations so far.
    operations: usize,
    fault: Fault,
    /// Maximum number of bytes in blocks.
    capacity: Option<u64>,
    /// Size of the reserve if there is enough space.
    reserve: Option<u64>,
    /// True if the reserve exists.
    is_reserved: bool,
    /// Number of successors that replaced the data file.
    published: usize,
    /// Number of operations that failed.
    failed: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// Operations with these numbers fail, after performing half of their work.
    During(Range<usize>, io::ErrorKind),
    /// All operations from this number on fail.
    From(usize),
}

#[derive(Clone, Debug, Default)]
struct FaultState(Arc<Mutex<Volume>>);

/// An open file.
#[derive(Debug)]
struct OpenFile {
    volume: FaultState,
    name: Name,
}

impl Image {
    fn sync(&mut self) {
        self.durable.resize(self.present.len(), 0);
        for block in std::mem::take(&mut self.dirty) {
            let start = usize::try_from(block * BLOCK_BYTES).unwrap();
            let end = self.present.len().min(start + usize::try_from(BLOCK_BYTES).unwrap());
            if start < end {
                self.durable[start..end].copy_from_slice(&self.present[start..end]);
            }
        }
    }

    fn lose_power(&mut self) {
        self.present = self.durable.clone();
        self.dirty.clear();
    }
}

fn blocks(offset: u64, length: u64) -> Range<u64> {
    offset / BLOCK_BYTES..(offset + length).div_ceil(BLOCK_BYTES)
}

impl Volume {
    /// Counts an operation; returns the error if it must fail.
    fn fails(&mut self) -> Option<io::Error> {
        let number = self.operations;
        self.operations += 1;
        match &self.fault {
            Fault::During(numbers, kind) if numbers.contains(&number) => {
                self.failed += 1;
                Some((*kind).into())
            }
            Fault::From(at) if number >= *at => {
                self.failed += 1;
                Some(io::Error::other("the medium is gone"))
            }
            _ => None,
        }
    }

    fn file(&mut self, name: Name) -> &mut Image {
        match name {
            Name::Data => &mut self.data,
            Name::Successor => &mut self.successor,
        }
    }

    /// Allocates the blocks that a write needs.
    fn take_blocks(&mut self, name: Name, offset: u64, length: u64) -> io::Result<()> {
        let (used, capacity) = (self.used(), self.capacity);
        let file = self.file(name);
        let new: Vec<u64> = blocks(offset, length).filter(|block| !file.blocks.contains(block)).collect();
        let taken = used + new.len() as u64 * BLOCK_BYTES;
        match capacity {
            Some(capacity) if !new.is_empty() && taken > capacity => Err(io::ErrorKind::StorageFull.into()),
            _ => {
                file.blocks.extend(new);
                Ok(())
            }
        }
    }

    /// Returns the number of bytes in all allocated blocks, including the reserve.
    fn used(&self) -> u64 {
        let reserved = self.reserve.filter(|_| self.is_reserved).unwrap_or_default();
        (self.data.blocks.len() + self.successor.blocks.len()) as u64 * BLOCK_BYTES + reserved
    }
}

impl StorageBackend for OpenFile {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.volume.0).file(self.name).present.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        let mut volume = lock(&self.volume.0);
        let file = volume.file(self.name);
        let found = file.present.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut volume = lock(&self.volume.0);
        if let Some(error) = volume.fails() {
            return Err(error);
        }
        // Files are sparse, so growing one takes no space yet.
        let file = volume.file(self.name);
        file.present.resize(usize::try_from(length).unwrap(), 0);
        file.blocks.retain(|block| block * BLOCK_BYTES < length);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut volume = lock(&self.volume.0);
        let failure = volume.fails();
        let file = volume.file(self.name);
        if let Some(error) = failure {
            file.dirty.clear();
            return Err(error);
        }
        file.sync();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut volume = lock(&self.volume.0);
        let failure = volume.fails();
        let written = if failure.is_some() { data.len() / 2 } else { data.len() };
        volume.take_blocks(self.name, offset, data.len() as u64)?;
        let file = volume.file(self.name);
        let start = usize::try_from(offset).unwrap();
        file.present[start..start + written].copy_from_slice(&data[..written]);
        file.dirty.extend(blocks(offset, written as u64));
        failure.map_or(Ok(()), Err)
    }
}

impl Medium for FaultState {
    fn open(&self) -> Result<Box<dyn StorageBackend>, Failure> {
        Ok(Box::new(self.file(Name::Data)))
    }

    fn begin(&self) -> Result<Box<dyn StorageBackend>, Failure> {
        lock(&self.0).successor = Image::default();
        Ok(Box::new(self.file(Name::Successor)))
    }

    fn publish(&self) -> Result<(), Failure> {
        let mut volume = lock(&self.0);
        let successor = std::mem::take(&mut volume.successor);
        let replaced = std::mem::replace(&mut volume.data, successor);
        // A power failure undoes the renaming unless the directory was synced.
        volume.replaced.get_or_insert(replaced);
        volume.published += 1;
        if let Some(error) = volume.fails() {
            return Err(error.into());
        }
        volume.replaced = None;
        volume.is_marked = false;
        Ok(())
    }

    fn length(&self) -> u64 {
        lock(&self.0).data.present.len() as u64
    }

    fn discard(&self) {
        lock(&self.0).successor = Image::default();
    }

    fn distrust(&self) {
        lock(&self.0).is_marked = true;
    }

    fn is_distrusted(&self) -> bool {
        lock(&self.0).is_marked
    }
}

impl Reserve for FaultState {
    fn take(&mut self, _freed: bool) -> Reservation {
        let mut volume = lock(&self.0);
        let Some(reserve) = volume.reserve else { return Reservation::Unsupported };
        let used = volume.used();
        volume.is_reserved |= volume.capacity.is_none_or(|capacity| used + reserve <= capacity);
        if volume.is_reserved { Reservation::Yes } else { Reservation::NoRoom }
    }

    fn has_room(&self, bytes: u64) -> bool {
        let volume = lock(&self.0);
        volume.capacity.is_none_or(|capacity| volume.used() + 2 * bytes < capacity)
    }

    fn release(&mut self) -> bool {
        std::mem::take(&mut lock(&self.0).is_reserved)
    }
}

impl FaultState {
    fn file(&self, name: Name) -> OpenFile {
        OpenFile { volume: self.clone(), name }
    }

    fn formatted() -> Self {
        let medium = Self::default();
        disk::create(&medium, |_| Ok::<_, Failure>(())).unwrap();
        medium
    }

    fn start(&self, options: RedbOptions) -> Result<RedbStorage, Failure> {
        RedbStorage::start(Box::new(self.clone()), options, Box::new(self.clone()), 0, None)
    }

    fn open(&self) -> RedbStorage {
        // A short history, so that forgetting it is among the operations that fail.
        let history = HistoryOptions { changes: 6, bytes: 1 << 20 };
        self.start(RedbOptions { history, ..RedbOptions::default() }).unwrap()
    }

    /// Opens a store whose file is shrunk whenever most of it is unused, as in a new one.
    fn open_shrinking(&self) -> RedbStorage {
        let history = HistoryOptions { changes: 6, bytes: 1 << 20 };
        self.start(RedbOptions { history, shrink_from: 1, ..RedbOptions::default() }).unwrap()
    }

    /// Waits until a successor has replaced the file, or an operation has failed. A fault may also end a copy without notice.
    fn await_successor(&self) {
        for _ in 0..40 {
            let volume = lock(&self.0);
            if volume.published > 0 || volume.failed > 0 {
                return;
            }
            drop(volume);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    fn arm(&self, fault: impl FnOnce(usize) -> Fault) {
        let mut volume = lock(&self.0);
        volume.fault = fault(volume.operations);
    }

    /// Simulates that the process is killed while the machine keeps running.
    fn kill(&self, store: RedbStorage) {
        let (data, is_marked) = {
            let volume = lock(&self.0);
            (volume.data.clone(), volume.is_marked)
        };
        drop(store);
        // The dropped store has closed the file, which a killed process does not.
        let mut volume = lock(&self.0);
        (volume.data, volume.is_marked, volume.fault) = (data, is_marked, Fault::None);
    }

    /// Simulates a power failure, which ends the process and loses everything that is not durable.
    fn lose_power(&self, store: RedbStorage) {
        self.kill(store);
        let mut volume = lock(&self.0);
        if let Some(replaced) = volume.replaced.take() {
            volume.data = replaced;
        }
        volume.data.lose_power();
        volume.is_marked = false;
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

/// Returns the number of operations of the entire workload on a sound medium.
fn operations() -> usize {
    let medium = FaultState::formatted();
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
            let medium = FaultState::formatted();
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

#[test]
fn a_power_failure_anywhere_loses_nothing_acknowledged() {
    for at in 0..operations() {
        let medium = FaultState::formatted();
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
#[test]
fn a_failed_sync_loses_nothing_acknowledged_then_or_later() {
    for at in 0..operations() {
        let medium = FaultState::formatted();
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

/// After a failed sync, the file cannot be replaced either, and the process restarts: the next process must not build on pages that
/// were never written.
#[test]
fn a_failed_sync_is_known_to_the_next_process() {
    for at in 0..operations() {
        for failures in [2, 5, 40] {
            let medium = FaultState::formatted();
            let store = medium.open();
            medium.arm(|now| Fault::During(now + at..now + at + failures, io::ErrorKind::Other));
            let (mut acknowledged, mut failed) = (State::new(), None);
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
                assert!(matches!(store.commit(transaction(n)), Ok(Committed::Done(_))), "operation {at}");
                perform(&mut found, n);
            }
            medium.lose_power(store);
            assert_eq!(state(&medium.open()), found, "operation {at}, {failures} failures");
        }
    }
}

/// Regression test: a compaction that failed but had happened anyway was forgotten, a later write reverted it in the file, and the
/// next start found history missing.
#[test]
fn a_failed_compaction_anywhere_leaves_a_store_that_opens() {
    let prepare = || {
        let medium = FaultState::formatted();
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

#[test]
fn one_failure_while_the_file_is_made_smaller_loses_nothing() {
    let mut smaller = 0;
    for at in (0..SHRINKING_OPERATIONS).step_by(3) {
        let kind = if at % 2 == 0 { io::ErrorKind::Other } else { io::ErrorKind::StorageFull };
        let medium = FaultState::formatted();
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

#[test]
fn a_power_failure_while_the_file_is_made_smaller_loses_nothing_acknowledged() {
    for at in (0..SHRINKING_OPERATIONS).step_by(3) {
        let medium = FaultState::formatted();
        let store = medium.open_shrinking();
        medium.arm(|now| Fault::From(now + at));
        let possible = perform_while_shrinking(&medium, &store);
        medium.lose_power(store);
        let found = state(&medium.open());
        assert!(possible.contains(&found), "operation {at}: {found:?}");
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let medium = FaultState::formatted();
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
#[test]
fn a_full_disk_takes_deletions_and_after_them_everything() {
    let medium = FaultState::formatted();
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
        assert!(matches!(store.commit(put(n, 20_000)), Ok(Committed::Done(_))), "{n} after the recovery");
    }
    drop(store);
    assert_eq!(state(&medium.open()).len(), stored / 2);
}

/// Regression test: after deletions on a full disk, writes were refused for another second, and forever if history could not be
/// forgotten at the first attempt to make room.
#[test]
fn writes_resume_as_soon_as_deletions_have_made_room() {
    let medium = FaultState::formatted();
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
        let begun = std::time::Instant::now();
        while store.commit(put(1_000 + turn)).is_err() {
            assert!(begun.elapsed() < std::time::Duration::from_secs(30), "turn {turn}: it never recovers");
            std::thread::yield_now();
        }
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
    let medium = FaultState::formatted();
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
