//! A simulated disk with a data file, its successor and a reserve.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use redb::StorageBackend;

use super::super::disk;
use super::super::failure::Failure;
use super::super::medium::Medium;
use super::super::space::{Reservation, Reserve};
use super::super::{RedbOptions, RedbStorage};
use crate::hub::lock;
use crate::mvcc::HistoryOptions;

/// Block size of the disk in bytes.
const BLOCK_BYTES: u64 = 4096;

/// A file in memory that tracks its contents after a power failure.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    /// Contents seen by reads.
    pub(super) present: Vec<u8>,
    /// Contents after a power failure.
    pub(super) durable: Vec<u8>,
    /// Blocks that the next sync has to write. As on Linux, a failed sync forgets them, while reads still return them.
    pub(super) dirty: BTreeSet<u64>,
    /// Blocks that the file occupies.
    pub(super) blocks: BTreeSet<u64>,
}

/// The name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Data,
    Successor,
}

/// A disk in memory.
#[derive(Debug, Default)]
pub(super) struct Volume {
    pub(super) data: Image,
    pub(super) successor: Image,
    /// File that regains the name of the data file after a power failure.
    pub(super) replaced: Option<Image>,
    /// True if a data file with a failed sync is marked. The mark never becomes durable.
    pub(super) is_marked: bool,
    /// Number of modifying operations so far.
    pub(super) operations: usize,
    pub(super) fault: Fault,
    /// Maximum number of bytes in blocks.
    pub(super) capacity: Option<u64>,
    /// Size of the reserve if there is enough space.
    pub(super) reserve: Option<u64>,
    /// True if the reserve exists.
    pub(super) is_reserved: bool,
    /// Number of successors that were begun.
    pub(super) begun: usize,
    /// Number of times that a successor was discarded.
    pub(super) discarded: usize,
    /// True if nothing can be written to a successor.
    pub(super) refuses_successors: bool,
    /// Number of successors that replaced the data file.
    pub(super) published: usize,
    /// Number of operations that failed.
    pub(super) failed: usize,
    pub(super) values: Residence,
    /// True if a failed sync leaves nothing of what it should have written in memory, as when memory is short.
    pub(super) drops_pages: bool,
    /// True if a write that fails has done all of its work.
    pub(super) writes_before_failing: bool,
    /// True if reads of the data file fail.
    pub(super) is_unreadable: bool,
}

/// Where the store under test has its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Residence {
    #[default]
    InMemory,
    /// On disk, unless the history has them.
    OnDisk,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    #[default]
    None,
    /// Operations with these numbers fail, after performing half of their work, or all of it.
    During(Range<usize>, io::ErrorKind),
    /// All operations from this number on fail.
    From(usize),
}

#[derive(Clone, Debug, Default)]
pub(super) struct FaultState(pub(super) Arc<Mutex<Volume>>);

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) volume: FaultState,
    pub(super) name: Name,
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

    /// Drops the pages that a sync could not write: reads return what is on the disk.
    fn drop_pages(&mut self) {
        let mut durable = self.durable.clone();
        durable.resize(self.present.len(), 0);
        for block in &self.dirty {
            let start = usize::try_from(block * BLOCK_BYTES).unwrap();
            let end = self.present.len().min(start + usize::try_from(BLOCK_BYTES).unwrap());
            if start < end {
                self.present[start..end].copy_from_slice(&durable[start..end]);
            }
        }
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
        if volume.is_unreadable && self.name == Name::Data {
            return Err(io::Error::other("a bad sector"));
        }
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
        let (failure, drops_pages) = (volume.fails(), volume.drops_pages);
        let file = volume.file(self.name);
        if let Some(error) = failure {
            if drops_pages {
                file.drop_pages();
            }
            file.dirty.clear();
            return Err(error);
        }
        file.sync();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut volume = lock(&self.volume.0);
        if volume.refuses_successors && self.name == Name::Successor {
            return Err(io::Error::other("a bad sector"));
        }
        let failure = volume.fails();
        let is_cut = failure.is_some() && !volume.writes_before_failing;
        let written = if is_cut { data.len() / 2 } else { data.len() };
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
        let mut volume = lock(&self.0);
        volume.successor = Image::default();
        volume.begun += 1;
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
        let mut volume = lock(&self.0);
        volume.successor = Image::default();
        volume.discarded += 1;
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
    pub(super) fn file(&self, name: Name) -> OpenFile {
        OpenFile { volume: self.clone(), name }
    }

    pub(super) fn formatted(values: Residence) -> Self {
        let medium = Self::default();
        lock(&medium.0).values = values;
        disk::create(&medium, |_| Ok::<_, Failure>(())).unwrap();
        medium
    }

    pub(super) fn start(&self, options: RedbOptions) -> Result<RedbStorage, Failure> {
        RedbStorage::start(Box::new(self.clone()), options, Box::new(self.clone()), 0, None)
    }

    pub(super) fn open(&self) -> RedbStorage {
        self.start(self.options()).unwrap()
    }

    pub(super) fn options(&self) -> RedbOptions {
        let values = lock(&self.0).values;
        // A short history, so that forgetting it is among the operations that fail. Values on disk are older than it.
        let (changes, value_memory) = match values {
            Residence::InMemory => (6, RedbOptions::default().value_memory),
            Residence::OnDisk => (2, 0),
        };
        let history = HistoryOptions { changes, bytes: 1 << 20 };
        RedbOptions { history, value_memory, ..RedbOptions::default() }
    }

    /// Opens a store whose file is shrunk whenever most of it is unused, as in a new one.
    pub(super) fn open_shrinking(&self) -> RedbStorage {
        self.start(RedbOptions { shrink_from: 1, ..self.options() }).unwrap()
    }

    /// Waits until a successor has replaced the file, or an operation has failed. A fault may also end a copy without notice.
    pub(super) fn await_successor(&self) {
        for _ in 0..40 {
            let volume = lock(&self.0);
            if volume.published > 0 || volume.failed > 0 {
                return;
            }
            drop(volume);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    pub(super) fn arm(&self, fault: impl FnOnce(usize) -> Fault) {
        let mut volume = lock(&self.0);
        volume.fault = fault(volume.operations);
    }

    /// Simulates that the process is killed while the machine keeps running.
    pub(super) fn kill(&self, store: RedbStorage) {
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
    pub(super) fn lose_power(&self, store: RedbStorage) {
        self.kill(store);
        let mut volume = lock(&self.0);
        if let Some(replaced) = volume.replaced.take() {
            volume.data = replaced;
        }
        volume.data.lose_power();
        volume.is_marked = false;
    }

    pub(super) fn operations(&self) -> usize {
        lock(&self.0).operations
    }
}
