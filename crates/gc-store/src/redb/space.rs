//! The reserve for deletions on a full disk: a file that merely occupies space, and is removed when no other space is left.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use gc_store_api::{KeyValue, Transaction, Write};

/// Name of the file.
const RESERVE: &str = "kubegc.reserve";
/// Space that deletions and their history may need before the space of removed objects can be reused.
const RESERVE_BYTES: u64 = 16 << 20;
/// Divisor of the free space that gives the reserve on a small disk, which is never less than [`MINIMUM_RESERVE_BYTES`].
const SHARE_OF_FREE: u64 = 8;
const MINIMUM_RESERVE_BYTES: u64 = 128 << 10;
/// Maximum growth of an object while there is no space: a deletionTimestamp, a condition.
const GROWTH_BYTES: usize = 1024;

/// Result of an attempt to set space aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reservation {
    /// The space is set aside.
    Yes,
    /// There is not enough space.
    NoRoom,
    /// The file system does not support it, so deletions need free space, too.
    Unsupported,
}

/// A reserve of space.
pub(super) trait Reserve: Send {
    /// Sets the space aside, unless that was already done. After a release, there must be more room than at that time, unless
    /// something was removed from the data file (`freed`).
    fn take(&mut self, freed: bool) -> Reservation;
    /// Releases the space. Returns false if there was none.
    fn release(&mut self) -> bool;
    /// Reports whether a further file of this size would leave the same amount of room.
    fn has_room(&self, bytes: u64) -> bool;
}

/// Reserve file in a data directory.
pub(super) struct ReserveFile {
    path: PathBuf,
    /// The data file.
    data: PathBuf,
    /// Number of free bytes at the last release, which happened because a write found no room.
    free_when_full: Option<u64>,
}

impl ReserveFile {
    pub(super) fn of(directory: &Path) -> Self {
        let (path, data) = (directory.join(RESERVE), directory.join(super::file::DATA));
        Self { path, data, free_when_full: None }
    }

    /// Returns the number of free bytes of the file system, if known.
    fn free(&self) -> Option<u64> {
        gc_host::free_bytes(self.path.parent().unwrap_or(Path::new(".")))
    }

    /// Returns the number of free bytes that proved insufficient because a write failed with as many. A data file without a reserve
    /// comes from a server that ended on a full disk; how much was free when it filled up is unknown.
    fn known_too_little(&self) -> u64 {
        let unknown = || fs::metadata(&self.data).map_or(0, |data| data.len().min(RESERVE_BYTES));
        self.free_when_full.unwrap_or_else(unknown)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = gc_host::private(&mut options).open(&self.path)?;
        // A sparse file would occupy no space yet.
        gc_host::occupy(&file, bytes)?;
        file.sync_all()
    }
}

impl Reserve for ReserveFile {
    fn take(&mut self, freed: bool) -> Reservation {
        if fs::metadata(&self.path).is_ok_and(|file| file.len() >= MINIMUM_RESERVE_BYTES) {
            return Reservation::Yes;
        }
        let Some(free) = self.free() else { return Reservation::Unsupported };
        let wanted = reserve_bytes(free);
        // A data file doubles its length when it grows, which takes no space until it is written.
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
                // An incomplete reserve must not occupy the little remaining space.
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

/// Returns the size of the reserve on a disk with this many free bytes.
fn reserve_bytes(free: u64) -> u64 {
    (free / SHARE_OF_FREE).clamp(MINIMUM_RESERVE_BYTES, RESERVE_BYTES)
}

/// Reports whether a transaction only removes objects, or changes them without enlarging them much.
pub(super) fn frees(transaction: &Transaction, present: impl Fn(&str) -> Option<KeyValue>) -> bool {
    transaction.writes.iter().all(|write| match write {
        Write::Delete(_) => true,
        Write::Put(key, value) => {
            present(key).is_some_and(|before| value.len() <= before.value.len() + GROWTH_BYTES)
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn the_reserve_is_an_eighth_of_a_small_disk() {
        const MIB: u64 = 1 << 20;
        for (free, reserve) in
            [(0, MIB / 8), (MIB, MIB / 8), (8 * MIB, MIB), (128 * MIB, 16 * MIB), (u64::MAX, 16 * MIB)]
        {
            assert_eq!(reserve_bytes(free), reserve, "{free}");
        }
    }

    /// After a release there must be more room than at that time, or something must have been removed.
    #[test]
    fn a_reserve_is_taken_again_where_it_helps() {
        let folder = tempfile::tempdir().unwrap();
        let mut reserve = ReserveFile::of(folder.path());
        assert!(!reserve.release(), "there is none yet");
        assert_eq!(reserve.take(false), Reservation::Yes);
        let length = || fs::metadata(folder.path().join(RESERVE)).map(|file| file.len()).ok();
        assert!(length() >= Some(MINIMUM_RESERVE_BYTES));
        for (free_when_full, freed, expected) in [
            (Some(1 << 50), false, Reservation::NoRoom),
            (Some(1 << 50), true, Reservation::Yes),
            (Some(0), false, Reservation::Yes),
            (None, false, Reservation::Yes),
        ] {
            assert!(reserve.release());
            assert!(reserve.free_when_full.is_some() && length().is_none());
            reserve.free_when_full = free_when_full;
            assert_eq!(reserve.take(freed), expected, "{free_when_full:?}, {freed}");
            assert_eq!(length().is_some(), expected == Reservation::Yes);
            if expected == Reservation::NoRoom {
                assert_eq!(reserve.take(true), Reservation::Yes);
            }
        }
        assert!(reserve.free_when_full.is_none(), "it is known no more");
        // What another process has left incomplete is no reserve.
        fs::write(folder.path().join(RESERVE), "incomplete").unwrap();
        assert_eq!(reserve.take(false), Reservation::Yes);
        assert!(length() >= Some(MINIMUM_RESERVE_BYTES));
    }

    /// A file without a reserve was left on a full disk: as much as it takes was too little.
    #[test]
    fn a_data_file_without_a_reserve_needs_more_than_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = ReserveFile::of(folder.path());
        assert_eq!(reserve.known_too_little(), 0, "there is no file");
        for (length, too_little) in [(5, 5), (RESERVE_BYTES + 1, RESERVE_BYTES)] {
            fs::File::create(folder.path().join(super::super::file::DATA)).unwrap().set_len(length).unwrap();
            assert_eq!(reserve.known_too_little(), too_little);
        }
        let full = ReserveFile { free_when_full: Some(7), ..reserve };
        assert_eq!(full.known_too_little(), 7);
    }

    /// The file system must have room for a copy, and as much again.
    #[test]
    fn there_is_room_for_half_of_what_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = ReserveFile::of(folder.path());
        let free = gc_host::free_bytes(folder.path()).unwrap();
        // Other processes use the disk meanwhile.
        for (bytes, has_room) in [(0, true), (free / 4, true), (free, false), (u64::MAX, false)] {
            assert_eq!(reserve.has_room(bytes), has_room, "{bytes} of {free}");
        }
        let nowhere = ReserveFile::of(&folder.path().join("missing"));
        assert!(!nowhere.has_room(0), "what is not known counts as none");
    }
}
