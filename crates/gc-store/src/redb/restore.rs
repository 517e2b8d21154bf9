//! Creates a store from a backup.

use std::path::Path;

use ::redb::Database;
use gc_store_api::{KeyValue, Revision};

use super::disk::{self, Failure};
use super::file::{self, DataFile};
use super::{OpenError, RedbStorage};

/// Number of objects per transaction of a restore: it bounds memory, whatever the size of the backup.
const OBJECTS_PER_TRANSACTION: usize = 1000;

/// Why a store was not restored. The directory contains no store then.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError<E: std::error::Error + 'static> {
    /// There is a store already.
    #[error("{} holds a store already; move {} away, or restore into another directory",
        .directory.display(), file::DATA)]
    Exists {
        /// The directory.
        directory: std::path::PathBuf,
    },
    /// The directory or the file could not be written.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The backup could not be read.
    #[error(transparent)]
    Source(E),
}

/// Reason for not finishing the new file.
enum RestoreStop<E> {
    Disk(Failure),
    Source(E),
}

impl<E> From<Failure> for RestoreStop<E> {
    fn from(failure: Failure) -> Self {
        Self::Disk(failure)
    }
}

impl RedbStorage {
    /// Creates the store of `directory` from `objects`, all of them last written at `revision`. Earlier revisions
    /// count as compacted, so that every client that still knows one lists again.
    ///
    /// The store is complete or absent; a directory that contains one is refused. Creation revisions later than
    /// `revision` are lowered to it.
    ///
    /// # Errors
    /// See [`RestoreError`]; the first error of `objects` ends it.
    pub fn restore<E: std::error::Error + 'static>(
        directory: impl AsRef<Path>,
        revision: Revision,
        objects: impl IntoIterator<Item = Result<KeyValue, E>>,
    ) -> Result<(), RestoreError<E>> {
        let directory = directory.as_ref();
        let _lock = file::prepare(directory)?;
        if Self::exists(directory) {
            return Err(RestoreError::Exists { directory: directory.to_owned() });
        }
        let medium = DataFile::of(directory);
        disk::create(&medium, |file| fill(file, revision, objects.into_iter())).map_err(|stopped| {
            match stopped {
                RestoreStop::Disk(failure) => RestoreError::Open(failure.at(&directory.join(file::DATA))),
                RestoreStop::Source(error) => RestoreError::Source(error),
            }
        })
    }
}

fn fill<E>(
    file: &Database,
    revision: Revision,
    mut objects: impl Iterator<Item = Result<KeyValue, E>>,
) -> Result<(), RestoreStop<E>> {
    loop {
        let batch: Result<Vec<KeyValue>, E> = objects.by_ref().take(OBJECTS_PER_TRANSACTION).collect();
        let batch: Vec<KeyValue> = batch
            .map_err(RestoreStop::Source)?
            .into_iter()
            .map(|item| KeyValue {
                create_revision: item.create_revision.min(revision),
                mod_revision: revision,
                ..item
            })
            .collect();
        let is_last = batch.len() < OBJECTS_PER_TRANSACTION;
        // Also if there is no object: the revision is written with them.
        disk::add(file, &batch, revision)?;
        if is_last {
            return Ok(());
        }
    }
}
