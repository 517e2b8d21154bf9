//! Medium of the data file, and the rule for its syncs.
//!
//! After a failed sync, Linux considers the pages that it could not write clean: reads still return them, later syncs succeed
//! without them, and the next power failure loses them. A file whose sync failed is therefore never written again. Its successor is
//! written from memory and takes over its name; until then, a mark beside the file keeps the next process from trusting it.

use std::fmt;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::redb::{BackendError, StorageBackend};

use super::disk::Failure;

/// Location of the data file.
pub(super) trait Medium: Send {
    /// Opens the data file.
    fn open(&self) -> Result<Box<dyn StorageBackend>, Failure>;
    /// Creates an empty successor of the data file, which has no effect until it is published.
    fn begin(&self) -> Result<Box<dyn StorageBackend>, Failure>;
    /// Replaces the data file by its successor, which must be complete, closed and synced, and removes the mark.
    fn publish(&self) -> Result<(), Failure>;
    /// Returns the length of the data file; 0 if unknown.
    fn length(&self) -> u64;
    /// Removes an incomplete successor.
    fn discard(&self);
    /// Marks the data file as one whose sync has failed.
    fn distrust(&self);
    /// Reports whether the mark exists.
    fn is_distrusted(&self) -> bool;
}

/// A file that records whether a sync of it has failed.
pub(super) struct SyncWatch {
    inner: Box<dyn StorageBackend>,
    failed: Arc<AtomicBool>,
}

impl SyncWatch {
    pub(super) fn new(inner: Box<dyn StorageBackend>, failed: &Arc<AtomicBool>) -> Self {
        Self { inner, failed: Arc::clone(failed) }
    }
}

impl fmt::Debug for SyncWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl StorageBackend for SyncWatch {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.inner.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data().inspect_err(|_| self.failed.store(true, Ordering::Release))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}
