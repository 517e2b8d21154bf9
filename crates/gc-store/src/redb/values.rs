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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use gc_store_api::Revision;

    use super::super::records::encode_object;
    use super::*;

    fn item(number: usize) -> KeyValue {
        let revision = Revision(number as u64 + 2);
        KeyValue {
            key: format!("/{number:04}").into(),
            value: number.to_string().into(),
            create_revision: revision,
            mod_revision: revision,
        }
    }

    /// Whatever is skipped, each value is that of its own key and version; a key that is gone has none.
    #[test]
    fn each_value_is_read_from_its_own_key() {
        let backend = redb::backends::InMemoryBackend::new();
        let database = redb::Builder::new().create_with_backend(backend).unwrap();
        let write = database.begin_write().unwrap();
        {
            let mut objects = write.open_table(OBJECTS).unwrap();
            for item in (0..10 * MOST_SKIPPED).step_by(2).map(item) {
                objects.insert(&*item.key, &*encode_object(&item)).unwrap();
            }
        }
        write.commit().unwrap();
        let (near, far) = (2 * MOST_SKIPPED, 9 * MOST_SKIPPED);
        for numbers in [
            vec![],
            vec![2],
            vec![3],
            vec![0, 1, 2, near, near + 1],
            vec![1, far, far + 1, far + 2],
            vec![near, 10 * MOST_SKIPPED],
        ] {
            let items: Vec<KeyValue> = numbers.iter().copied().map(item).collect();
            let exists = |number: usize| number.is_multiple_of(2) && number < 10 * MOST_SKIPPED;
            let expected: Vec<Option<Bytes>> =
                numbers.iter().map(|number| exists(*number).then(|| item(*number).value)).collect();
            let read = |items: &[KeyValue]| read(&database, &items.iter().collect::<Vec<_>>()).unwrap();
            assert_eq!(read(&items), expected, "{numbers:?}");
            let later = |item: KeyValue| KeyValue { mod_revision: Revision(1), ..item };
            let changed: Vec<KeyValue> = items.into_iter().map(later).collect();
            assert_eq!(read(&changed), vec![None; numbers.len()], "{numbers:?} in other versions");
        }
    }
}
