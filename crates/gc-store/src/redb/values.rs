//! The values in the file, for readers beside the committer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use ::redb::{Database, ReadTransaction, ReadableDatabase as _};
use bytes::Bytes;
use gc_store_api::{KeyValue, StorageError};

use super::failure::{Failure, OBJECTS, guarded};
use super::records::decode_object;
use crate::core::ValueSource;

/// Number of records between two wanted ones beyond which the second is looked up by its key.
const MOST_SKIPPED: usize = 8;

/// The open file. The committer closes and replaces it while no reader uses it.
#[derive(Debug, Default)]
pub(super) struct Values {
    database: RwLock<Option<Database>>,
    /// True if a read has failed, after which redb refuses everything until the file is opened again.
    failed: AtomicBool,
    /// Number of values that were read.
    reads: AtomicU64,
}

impl Values {
    /// Returns the open file for replacing or closing it, once no reader uses it.
    pub(super) fn replace(&self) -> RwLockWriteGuard<'_, Option<Database>> {
        self.database.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets that reads of a file have failed that is now closed.
    pub(super) fn forget_failure(&self) {
        self.failed.store(false, Ordering::Relaxed);
    }

    /// Uses the open file.
    pub(super) fn with<T>(&self, action: impl FnOnce(&Database) -> Result<T, Failure>) -> Result<T, Failure> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        action(database.as_ref().ok_or_else(not_open)?)
    }

    /// Returns a view of the current contents, which outlives the replacement of the file.
    pub(super) fn snapshot(&self) -> Result<ReadTransaction, Failure> {
        self.with(|database| Ok(database.begin_read()?))
    }

    /// Reports whether the file must be opened again because a read has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns the number of values that were read.
    pub(super) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

pub(super) fn not_open() -> Failure {
    Failure::Io("the file is not open".to_owned())
}

impl ValueSource for Values {
    fn read(&self, items: &[&KeyValue]) -> Result<Vec<Option<Bytes>>, StorageError> {
        let found = self.with(|database| guarded("reading", || read(database, items)));
        self.reads.fetch_add(items.len() as u64, Ordering::Relaxed);
        found.map_err(|failure| match failure {
            Failure::Damaged(_) => StorageError::Broken(format!(
                "the data file is damaged: {failure}; restore it from a backup, or delete the object unread (docs/backup.md)"
            )),
            other => {
                self.failed.store(true, Ordering::Relaxed);
                StorageError::Unavailable(format!("the data file cannot be read: {other}"))
            }
        })
    }
}

fn read(database: &Database, items: &[&KeyValue]) -> Result<Vec<Option<Bytes>>, Failure> {
    let objects = database.begin_read()?.open_table(OBJECTS)?;
    let Some(first) = items.first() else { return Ok(Vec::new()) };
    let mut values = Vec::with_capacity(items.len());
    if items.len() == 1 {
        let record = objects.get(&*first.key)?;
        values.push(record.map_or(Ok(None), |record| value(first, record.value()))?);
        return Ok(values);
    }
    let mut entries = objects.range::<&str>(&*first.key..)?;
    let mut next = entries.next().transpose()?;
    for item in items {
        let mut skipped = 0;
        while next.as_ref().is_some_and(|(key, _)| key.value() < &*item.key) {
            if skipped == MOST_SKIPPED {
                entries = objects.range::<&str>(&*item.key..)?;
            }
            skipped += 1;
            next = entries.next().transpose()?;
        }
        values.push(match &next {
            Some((key, record)) if key.value() == &*item.key => value(item, record.value())?,
            _ => None,
        });
    }
    Ok(values)
}

/// Decodes the value of a record; `None` if it is of another version.
fn value(item: &KeyValue, record: &[u8]) -> Result<Option<Bytes>, Failure> {
    let found = decode_object(&item.key, record)
        .ok_or_else(|| Failure::Damaged(format!("the object {} does not decode", item.key)))?;
    Ok((found.mod_revision == item.mod_revision).then_some(found.value))
}
