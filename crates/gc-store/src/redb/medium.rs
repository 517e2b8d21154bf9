//! Medium of the data file, and the rule for its syncs.
//!
//! After a failed sync, Linux considers the pages that it could not write clean: reads still return them, later syncs succeed
//! without them, and the next power failure loses them. A file whose sync failed is therefore never written again. Its successor is
//! written from memory and takes over its name; until then, a mark beside the file keeps the next process from trusting it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ::redb::{BackendError, StorageBackend};

use super::failure::Failure;
use crate::hub::lock;

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

/// Forwards the end of a file's use, and its locks, to the file `inner` that this one wraps.
macro_rules! forward_locks {
    () => {
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
    };
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

    forward_locks!();
}

/// Size of the parts of a file that [`WithoutWrites`] keeps, in bytes.
const PART_BYTES: usize = 4096;

/// A file that is only read: what is written stays in memory, which is little while a database repairs itself at its opening. A file
/// whose sync has failed can so be opened for the values that are nowhere else, without a change that a later sync would confirm.
pub(super) struct WithoutWrites {
    inner: Box<dyn StorageBackend>,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    /// Length of the file if it was changed.
    length: Option<u64>,
    /// Length up to which the file itself still counts: its shortest one.
    kept: Option<u64>,
    /// Written parts by their number.
    parts: BTreeMap<u64, Vec<u8>>,
}

impl WithoutWrites {
    pub(super) fn new(inner: Box<dyn StorageBackend>) -> Self {
        Self { inner, written: Mutex::default() }
    }

    /// Reads what the file itself has, and zeros behind its end.
    fn read_file(&self, kept: Option<u64>, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let length = self.inner.len()?;
        let rest = kept.map_or(length, |kept| kept.min(length)).saturating_sub(offset);
        let length = out.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        let (present, absent) = out.split_at_mut(length);
        absent.fill(0);
        if present.is_empty() { Ok(()) } else { self.inner.read(offset, present) }
    }
}

/// Splits bytes at an offset into those of each part: its number, the offset within it, and their positions.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = usize::try_from(at % PART_BYTES as u64).unwrap_or_default();
        let begin = done;
        done = length.min(done + PART_BYTES - within);
        (begin < length).then(|| (at / PART_BYTES as u64, within, begin..done))
    })
}

impl fmt::Debug for WithoutWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl StorageBackend for WithoutWrites {
    fn len(&self) -> io::Result<u64> {
        lock(&self.written).length.map_or_else(|| self.inner.len(), Ok)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = lock(&self.written);
        self.read_file(written.kept, offset, out)?;
        for (part, within, range) in parts(offset, out.len()) {
            if let Some(bytes) = written.parts.get(&part) {
                let length = range.len();
                out[range].copy_from_slice(&bytes[within..within + length]);
            }
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut written = lock(&self.written);
        // A file that becomes longer again has zeros behind its former end.
        written.kept = Some(written.kept.map_or(length, |kept| kept.min(length)));
        let end = length / PART_BYTES as u64;
        written.parts.retain(|part, _| *part <= end);
        if let Some(last) = written.parts.get_mut(&end) {
            let within = usize::try_from(length % PART_BYTES as u64).unwrap_or_default();
            last[within..].fill(0);
        }
        written.length = Some(length);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = lock(&self.written);
        for (part, within, range) in parts(offset, data.len()) {
            if !written.parts.contains_key(&part) {
                let mut bytes = vec![0; PART_BYTES];
                self.read_file(written.kept, part * PART_BYTES as u64, &mut bytes)?;
                written.parts.insert(part, bytes);
            }
            if let Some(bytes) = written.parts.get_mut(&part) {
                bytes[within..within + range.len()].copy_from_slice(&data[range]);
            }
        }
        Ok(())
    }

    forward_locks!();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use ::redb::backends::InMemoryBackend;
    use proptest::prelude::*;

    use super::*;

    /// Use of a file.
    #[derive(Clone, Debug)]
    enum Use {
        Write(u64, Vec<u8>),
        SetLength(u64),
    }

    /// Uses that begin and end within parts, and beside their bounds.
    fn uses() -> impl Strategy<Value = Vec<Use>> {
        let part = PART_BYTES as u64;
        let place = || {
            (0..4_u64, 0..=2_u64).prop_map(move |(number, beside)| (number * part + beside).saturating_sub(1))
        };
        let write = (place(), 0..2 * PART_BYTES + 2, any::<u8>())
            .prop_map(|(offset, length, byte)| Use::Write(offset, vec![byte; length]));
        proptest::collection::vec(prop_oneof![3 => write, 1 => place().prop_map(Use::SetLength)], 1..8)
    }

    fn apply(backend: &dyn StorageBackend, action: &Use) {
        match action {
            Use::Write(offset, data) => {
                let end = offset + data.len() as u64;
                if end > backend.len().unwrap() {
                    backend.set_len(end).unwrap();
                }
                backend.write(*offset, data).unwrap();
            }
            Use::SetLength(length) => backend.set_len(*length).unwrap(),
        }
    }

    fn contents(backend: &dyn StorageBackend) -> Vec<u8> {
        let mut out = vec![0; usize::try_from(backend.len().unwrap()).unwrap()];
        backend.read(0, &mut out).unwrap();
        out
    }

    /// Returns a file of two parts and a half.
    fn file() -> InMemoryBackend {
        let file = InMemoryBackend::new();
        apply(
            &file,
            &Use::Write(
                0,
                (0..PART_BYTES * 5 / 2).map(|place| u8::try_from(place % 251).unwrap() | 1).collect(),
            ),
        );
        file
    }

    proptest! {
        #[test]
        fn a_file_without_writes_reads_like_one_with_them(uses in uses()) {
            let (written, original) = (file(), contents(&file()));
            let inner = file();
            let without = WithoutWrites::new(Box::new(inner));
            for action in &uses {
                apply(&written, action);
                apply(&without, action);
                prop_assert_eq!(contents(&without), contents(&written));
            }
            prop_assert_eq!(contents(&*without.inner), original);
        }
    }
}
