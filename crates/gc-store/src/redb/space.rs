//! The reserve for deletions on a full disk: a file that only occupies space, and is removed when there is no other
//! left.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use gc_store_api::{KeyValue, Transaction, Write};

/// The name of the file.
const RESERVE: &str = "kubegc.reserve";
/// The space that deletions and their history may need before that of the removed objects can be reused.
const RESERVE_BYTES: u64 = 16 << 20;
/// On a small disk, the reserve is this part of the free space, but never less than [`MINIMUM_RESERVE_BYTES`].
const SHARE_OF_FREE: u64 = 8;
const MINIMUM_RESERVE_BYTES: u64 = 128 << 10;
/// Growth of an object that is allowed while there is no space: a deletionTimestamp, a condition.
const GROWTH_BYTES: usize = 1024;

/// The result of an attempt to set space aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reservation {
    /// It is set aside.
    Yes,
    /// There is not enough.
    NoRoom,
    /// The file system does not support it. Then deletions need free space, too.
    Unsupported,
}

/// A reserve of space.
pub(super) trait Reserve: Send {
    /// Sets it aside, unless that was done before. After a release there must be more room than at that time, unless something
    /// was removed from the data file (`freed`).
    fn take(&mut self, freed: bool) -> Reservation;
    /// Releases it. False if there was none.
    fn release(&mut self) -> bool;
    /// Reports whether a further file of this size leaves as much room again.
    fn has_room(&self, bytes: u64) -> bool;
}

/// The file in a data directory.
pub(super) struct ReserveFile {
    path: PathBuf,
    /// The data file.
    data: PathBuf,
    /// Free bytes when it was released, which was when a write found no room.
    free_when_full: Option<u64>,
}

impl ReserveFile {
    pub(super) fn of(directory: &Path) -> Self {
        let (path, data) = (directory.join(RESERVE), directory.join(super::file::DATA));
        Self { path, data, free_when_full: None }
    }

    /// Free bytes of the file system, if it tells.
    fn free(&self) -> Option<u64> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let disk = rustix::fs::statvfs(folder).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Free bytes that are no room, because a write has failed with as much. A data file without a reserve comes from a server
    /// that ended on a full disk: nothing tells how much was free when it filled up.
    fn known_too_little(&self) -> u64 {
        let unknown = || fs::metadata(&self.data).map_or(0, |data| data.len().min(RESERVE_BYTES));
        self.free_when_full.unwrap_or_else(unknown)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        // A sparse file occupies no space yet.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
        file.sync_all()
    }
}

impl Reserve for ReserveFile {
    fn take(&mut self, freed: bool) -> Reservation {
        if fs::metadata(&self.path).is_ok_and(|file| file.len() >= MINIMUM_RESERVE_BYTES) {
            return Reservation::Yes;
        }
        let Some(free) = self.free() else { return Reservation::Unsupported };
        let wanted = (free / SHARE_OF_FREE).clamp(MINIMUM_RESERVE_BYTES, RESERVE_BYTES);
        // A data file doubles its length when it grows, which takes no space before it is written.
        let besides = if freed { wanted } else { self.known_too_little().max(wanted) };
        if free < wanted.saturating_add(besides) {
            return Reservation::NoRoom;
        }
        match self.allocate(wanted) {
            Ok(()) => {
                self.free_when_full = None;
                Reservation::Yes
            }
            Err(error) => {
                // An incomplete reserve must not occupy the little space that is left.
                let _ = fs::remove_file(&self.path);
                if error.kind() == io::ErrorKind::StorageFull {
                    Reservation::NoRoom
                } else {
                    Reservation::Unsupported
                }
            }
        }
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.free().is_some_and(|free| free > bytes.saturating_mul(2))
    }

    fn release(&mut self) -> bool {
        let released = fs::remove_file(&self.path).is_ok();
        if released {
            self.free_when_full = self.free();
        }
        released
    }
}

/// Reports whether a transaction only removes objects, or changes them without making them much larger.
pub(super) fn frees(transaction: &Transaction, present: impl Fn(&str) -> Option<KeyValue>) -> bool {
    transaction.writes.iter().all(|write| match write {
        Write::Delete(_) => true,
        Write::Put(key, value) => {
            present(key).is_some_and(|before| value.len() <= before.value.len() + GROWTH_BYTES)
        }
    })
}
