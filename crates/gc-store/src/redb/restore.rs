//! Creates a store from a backup.

use std::path::Path;

use ::redb::Database;
use gc_store_api::{KeyValue, Revision};

use super::disk;
use super::failure::Failure;
use super::file::{self, DataFile};
use super::{OpenError, RedbStorage};

/// Number of objects per transaction of a restore, which limits memory regardless of the backup's size.
const OBJECTS_PER_TRANSACTION: usize = 1000;

/// Reason why a store was not restored. The directory then contains no store.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError<E: std::error::Error + 'static> {
    /// A store already exists.
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

/// Reason why the new file was not completed.
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
    /// Creates the store of `directory` from `objects`, as if all of them were last written at `revision`. Earlier revisions count
    /// as compacted, so every client that still knows one must list again.
    ///
    /// The store is either complete or absent; a directory that already contains one is refused. Creation revisions later than
    /// `revision` are lowered to it.
    ///
    /// # Errors
    /// See [`RestoreError`]; the first error of `objects` ends the restore.
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
        // Executed even without objects, because the revision is written with them.
        disk::add(file, &batch, revision)?;
        if is_last {
            return Ok(());
        }
    }
}
