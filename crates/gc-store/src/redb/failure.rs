//! Tables of the data file, and the failures of operations on it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use ::redb::TableDefinition;
use gc_store_api::StorageError;

use super::OpenError;

/// Version of the format that this program writes.
pub(super) const FORMAT: u64 = 1;

pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
pub(super) const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
pub(super) const HISTORY: TableDefinition<'_, (u64, u32), &[u8]> = TableDefinition::new("history");

/// Reason why a disk operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("no space left")]
    Full,
    #[error("{0}")]
    Io(String),
    #[error("{0}")]
    Damaged(String),
    #[error("format version {0}")]
    Format(u64),
    #[error("the file is locked by another process")]
    Locked,
}

impl Failure {
    pub(super) fn at(self, file: &Path) -> OpenError {
        let file = file.to_owned();
        match self {
            Failure::Full => OpenError::Full { file },
            Failure::Io(reason) => OpenError::Io { file, reason },
            Failure::Damaged(reason) => OpenError::Damaged { file, reason },
            Failure::Format(found) => OpenError::Format { file, found, known: FORMAT },
            Failure::Locked => OpenError::InUse {
                directory: file.parent().map(Path::to_owned).unwrap_or_default(),
                holder: String::new(),
            },
        }
    }

    /// Converts the failure of a write that certainly did not happen.
    pub(super) fn to_storage_error(&self) -> StorageError {
        match self {
            Failure::Full => StorageError::Full,
            other => StorageError::Broken(other.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::Full
            }
            // redb's error for a file that is truncated or not a database.
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Self::Damaged(error.to_string()),
            _ => Self::Io(error.to_string()),
        }
    }
}

impl From<redb::Error> for Failure {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(error) => error.into(),
            redb::Error::DatabaseAlreadyOpen => Self::Locked,
            redb::Error::PreviousIo | redb::Error::DatabaseClosed => Self::Io(error.to_string()),
            other => Self::Damaged(other.to_string()),
        }
    }
}

macro_rules! failure_from {
    ($($error:ident),*) => {$(
        impl From<redb::$error> for Failure {
            fn from(error: redb::$error) -> Self {
                redb::Error::from(error).into()
            }
        }
    )*};
}
failure_from!(DatabaseError, TransactionError, TableError, StorageError, CommitError, CompactionError);

/// Runs a step in which redb may panic on damaged files: that ends the operation, not the process.
pub(super) fn guarded<T>(step: &str, action: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| {
        let reason = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        let reason: String = reason.lines().collect::<Vec<_>>().join(" ");
        Err(Failure::Damaged(format!("the engine gave up while {step}: {reason}")))
    })
}

/// Returns a record that every file has.
pub(super) fn required(meta: &redb::ReadOnlyTable<&'static str, u64>, name: &str) -> Result<u64, Failure> {
    let found = meta.get(name)?.ok_or_else(|| Failure::Damaged(format!("the record {name:?} is missing")))?;
    Ok(found.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_whether_the_file_or_its_medium_is_at_fault() {
        let text = |kind: io::ErrorKind| io::Error::from(kind).to_string();
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge] {
            assert_eq!(Failure::from(io::Error::from(kind)), Failure::Full, "{kind}");
        }
        for kind in [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof] {
            assert_eq!(Failure::from(io::Error::from(kind)), Failure::Damaged(text(kind)), "{kind}");
        }
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::Other] {
            assert_eq!(Failure::from(io::Error::from(kind)), Failure::Io(text(kind)), "{kind}");
        }
        assert_eq!(Failure::from(redb::Error::DatabaseAlreadyOpen), Failure::Locked);
    }
}
