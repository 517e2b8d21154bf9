//! The on-disk store.
//!
//! redb holds the data; reads and watches are served from the same multi-version map as in the memory store, which is rebuilt when
//! the store is opened. This costs little memory (redb's own page cache is small) and makes reads as fast as in memory: an API
//! server reads far more than it writes, and a watch needs the changes as objects anyway. Values beyond a budget are not in the map
//! but read from the file, in the version that the map says.
//!
//! A single thread writes. It takes the waiting transactions, evaluates them in order against the map and each other, writes them
//! as one redb transaction with one fsync, and only then publishes and acknowledges them.

mod committer;
mod disk;
mod failure;
#[cfg(test)]
mod faults;
mod file;
pub(crate) mod index;
mod load;
mod medium;
pub(crate) mod records;
mod restore;
mod space;
mod successor;
mod values;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gc_store_api::{
    Blocking, Committed, GetAnswer, Hold, RangeAnswer, RangeOptions, Revision, Storage, StorageError,
    StoreStatus, Transaction, WatchStream,
};

use crate::core::Core;
use crate::memory::WATCH_LAG;
use crate::mvcc::HistoryOptions;
use committer::Committer;
use disk::Disk;
use file::{DataFile, Lock};
use load::Loaded;
use medium::Medium;
use space::{Reserve, ReserveFile};
use values::Values;

pub use restore::RestoreError;

/// File size beyond which a file is shrunk at start, if less than one part in [`BLOATED_TIMES`] is in use.
const BLOATED_BYTES: u64 = 64 << 20;
const BLOATED_TIMES: u64 = 4;

/// Default of [`RedbOptions::value_memory`].
const VALUE_MEMORY: u64 = 256 << 20;

/// Options of [`RedbStorage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedbOptions {
    /// Amount of history to keep, also across restarts.
    pub history: HistoryOptions,
    /// Maximum lag of a watcher in changes, before it is ended with [`StorageError::Lagged`].
    pub watch_lag: usize,
    /// Size of redb's page cache in bytes.
    pub page_cache: usize,
    /// Maximum size of the present values in memory, in bytes; the others are on disk only. Not counted are keys, some 100 bytes each.
    /// Values that the history has stay in memory in any case.
    pub value_memory: u64,
    /// File size beyond which the data file is shrunk while in use, if most of it is unused.
    pub shrink_from: u64,
}

impl Default for RedbOptions {
    fn default() -> Self {
        Self {
            history: HistoryOptions::default(),
            watch_lag: WATCH_LAG,
            page_cache: 8 << 20,
            value_memory: VALUE_MEMORY,
            shrink_from: BLOATED_BYTES,
        }
    }
}

/// Reason why a store could not be opened. Each message is one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be created or used.
    #[error("cannot use the data directory {}: {source}", .directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// System error.
        source: std::io::Error,
    },
    /// Another process has opened the store.
    #[error("the data directory {} is in use by another process{holder}; stop that one or choose another directory",
        .directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// ` (pid N)` if known.
        holder: String,
    },
    /// The file is damaged.
    #[error("the data file {} is damaged: {reason}; restore it from a backup, or move it away to start empty",
        .file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// The file was written by another version of this program.
    #[error("the data file {} has format version {found}; this program knows version {known}", .file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// Version of the file's format.
        found: u64,
        /// Version of the format that this program supports.
        known: u64,
    },
    /// The medium is so full that not even opening works.
    #[error("no space left to open the data file {}", .file.display())]
    Full {
        /// The file.
        file: PathBuf,
    },
    /// The system refused an operation.
    #[error("cannot read or write the data file {}: {reason}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// System error.
        reason: String,
    },
}

/// A [`Storage`] in a file of a directory that it owns.
#[derive(Debug)]
pub struct RedbStorage {
    core: Arc<Core>,
    committer: Committer,
    values: Arc<Values>,
    /// The data file, if the store is in a file.
    file: Option<PathBuf>,
    /// Held until the committer has closed the file (fields are dropped in order).
    _lock: Option<Lock>,
}

/// Reports whether a file of this length, with this many bytes in use, is made smaller at start.
fn is_bloated(length: u64, used: u64) -> bool {
    length > BLOATED_BYTES && length / BLOATED_TIMES > used
}

impl RedbStorage {
    /// Opens or creates the store in a directory (created with mode 0700 if absent; its files have mode 0600).
    pub fn open(directory: impl AsRef<Path>, options: RedbOptions) -> Result<Self, OpenError> {
        let directory = directory.as_ref();
        let lock = file::prepare(directory)?;
        let path = directory.join(file::DATA);
        let medium = DataFile::of(directory);
        if !path.exists() {
            disk::create(&medium, |_| Ok(())).map_err(|failure: failure::Failure| failure.at(&path))?;
        }
        let reserve = Box::new(ReserveFile::of(directory));
        let length = std::fs::metadata(&path).map_or(0, |file| file.len());
        let store = Self::start(Box::new(medium), options, reserve, length, Some(lock))
            .map_err(|failure| failure.at(&path))?;
        Ok(Self { file: Some(path), ..store })
    }

    /// Reports whether a directory contains a store.
    #[must_use]
    pub fn exists(directory: impl AsRef<Path>) -> bool {
        directory.as_ref().join(file::DATA).exists()
    }

    /// Starts a store. `length` is the file's; `reserve` is released if opening needs its space.
    fn start(
        medium: Box<dyn Medium>,
        options: RedbOptions,
        mut reserve: Box<dyn Reserve>,
        length: u64,
        lock: Option<Lock>,
    ) -> Result<Self, failure::Failure> {
        let mut disk = Disk::new(medium, options.page_cache);
        match disk.reopen() {
            Err(failure::Failure::Full) if reserve.release() => disk.reopen()?,
            other => other?,
        };
        let Loaded { data, used, .. } = disk.load(options.value_memory)?;
        if disk.is_distrusted() {
            tracing::warn!("a sync of the data file failed before this start: it is written anew");
            disk.rewrite(&data)?;
        }
        if is_bloated(length, used) {
            tracing::info!(bytes = length, used, "making the data file smaller");
            disk.shrink()?;
        }
        let values = Arc::clone(disk.values());
        let core = Arc::new(Core::with_source(data, options.watch_lag, values.clone()));
        let committer =
            Committer::start(disk, Arc::clone(&core), (options.history, options.shrink_from), reserve)?;
        Ok(Self { core, committer, values, file: None, _lock: lock })
    }

    /// Has the committer do what a read has found necessary.
    fn after_read<T>(&self, read: Result<T, StorageError>) -> Result<T, StorageError> {
        if self.core.take_crowded() || (read.is_err() && self.values.has_failed()) {
            self.committer.tend();
        }
        read
    }
}

impl Storage for RedbStorage {
    fn health(&self) -> Result<(), StorageError> {
        if self.committer.is_full() { Err(StorageError::Full) } else { Ok(()) }
    }

    fn blocks(&self) -> Blocking {
        if self.core.read().has_cold() { Blocking::OnDisk } else { Blocking::OnCommit }
    }

    fn status(&self) -> Result<StoreStatus, StorageError> {
        let file = self.file.as_ref().and_then(|file| std::fs::metadata(file).ok());
        let (in_use, sizes) = {
            let data = self.core.read();
            (data.bytes(), data.value_sizes())
        };
        Ok(StoreStatus {
            bytes: file.map(|file| file.len()),
            bytes_in_use: Some(in_use),
            value_bytes_in_memory: Some(sizes.in_memory),
            value_bytes_on_disk: Some(sizes.all - sizes.in_memory),
            values_read: Some(self.values.reads()),
            is_full: self.committer.is_full(),
            ..self.core.status()
        })
    }

    fn revision(&self) -> Result<Revision, StorageError> {
        Ok(self.core.revision())
    }

    fn get(&self, key: &str, at: Option<Revision>) -> Result<GetAnswer, StorageError> {
        self.after_read(self.core.get(key, at))
    }

    fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        self.after_read(self.core.range(prefix, options))
    }

    fn hold(&self, revision: Revision) -> Option<Hold> {
        Some(self.core.hold(revision))
    }

    fn commit(&self, transaction: Transaction) -> Result<Committed, StorageError> {
        self.committer.commit(transaction)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn WatchStream>, StorageError> {
        Ok(Box::new(self.core.watch(prefix, after)?))
    }

    fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        self.committer.compact(revision)
    }

    fn close(&self) {
        self.committer.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_is_bloated_if_less_than_a_quarter_is_in_use() {
        const MIB: u64 = 1 << 20;
        for (length, used, expected) in [
            (64 * MIB, 0, false),
            (64 * MIB + 1, 0, true),
            (100 * MIB, 25 * MIB - 1, true),
            (100 * MIB, 25 * MIB, false),
        ] {
            assert_eq!(is_bloated(length, used), expected, "{used} of {length}");
        }
    }
}
