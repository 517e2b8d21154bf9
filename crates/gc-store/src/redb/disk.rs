//! Contents of the file, and how they are written.
//!
//! * `meta`: the format version, the newest revision, and the one up to which history is forgotten;
//! * `objects`: key to the present value;
//! * `history`: (revision, number within it) to the changed key and its *previous* value. The value after a change is
//!   the next older one known of its key, so that no value is stored twice;
//! * `index`: the keys and revisions of a store whose values exceed its memory ([`super::index`]).
//!
//! Every record ends in a checksum: a flipped bit must not become an object. Without an index, the whole file is read when opened.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::redb::{Builder, Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _};
use gc_store_api::{Change, KeyValue, Revision};

use super::failure::{FORMAT, Failure, HISTORY, META, OBJECTS, guarded, required};
use super::index;
use super::load::{Loaded, load};
use super::medium::{Medium, SyncWatch, WithoutWrites};
use super::records::{decode_object, encode_history, encode_object};
use super::values::{self, Values};
use crate::mvcc::{Found as FoundValue, INITIAL_REVISION, Mvcc, result_of};

/// The open file.
pub(super) struct Disk {
    medium: Box<dyn Medium>,
    page_cache: usize,
    /// The open file, which readers of values share. Absent between a failure and a successful reopening, which redb requires after
    /// an I/O error.
    values: Arc<Values>,
    /// False if the file is not open, or only for reading.
    is_writable: bool,
    /// True if a sync of the current file has failed.
    sync_failed: Arc<AtomicBool>,
    /// Revision of the index of the current file, if it has one.
    index: Option<Revision>,
}

/// State of a file that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) revision: Revision,
    /// Revision up to which history is forgotten.
    pub(super) compacted: Revision,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("open", &self.is_writable).finish_non_exhaustive()
    }
}

/// Creates the data file of a medium, or its successor, either completely or not at all.
pub(super) fn create<E: From<Failure>>(
    medium: &dyn Medium,
    fill: impl FnOnce(&Database) -> Result<(), E>,
) -> Result<(), E> {
    let sync_failed = Arc::default();
    let build = || {
        let database = guarded("creating", || {
            let file = SyncWatch::new(medium.begin()?, &sync_failed);
            let mut builder = Builder::new();
            builder.set_cache_size(super::RedbOptions::default().page_cache);
            let database = builder.create_with_backend(file)?;
            initialize(&database)?;
            Ok(database)
        })?;
        let filled = fill(&database);
        guarded("closing", || {
            drop(database);
            Ok(())
        })?;
        filled?;
        if sync_failed.load(Ordering::Acquire) {
            return Err(Failure::Io("a new data file could not be synced".to_owned()).into());
        }
        Ok(medium.publish()?)
    };
    build().inspect_err(|_| medium.discard())
}

/// Adds objects to a new file as its state at `revision`, before which nothing is known.
pub(super) fn add(database: &Database, objects: &[KeyValue], revision: Revision) -> Result<(), Failure> {
    guarded("restoring", || {
        let transaction = database.begin_write()?;
        {
            let mut meta = transaction.open_table(META)?;
            let mut stored = transaction.open_table(OBJECTS)?;
            for item in objects {
                stored.insert(&*item.key, &*encode_object(item))?;
            }
            meta.insert("revision", revision.0)?;
            meta.insert("compacted", revision.0)?;
        }
        Ok(transaction.commit()?)
    })
}

/// Writes an entire store into a new file, with the values that are not in memory from the current one.
fn copy(database: &Database, data: &Mvcc, current: &Values) -> Result<(), Failure> {
    guarded("writing anew", || {
        let current = if data.has_cold() { Some(current.snapshot()?.open_table(OBJECTS)?) } else { None };
        let transaction = database.begin_write()?;
        {
            let mut meta = transaction.open_table(META)?;
            let mut objects = transaction.open_table(OBJECTS)?;
            for found in data.items() {
                match (found, &current) {
                    (FoundValue::InMemory(item), _) => {
                        objects.insert(&*item.key, &*encode_object(&item))?;
                    }
                    (FoundValue::OnDisk(item), Some(current)) => {
                        let record = current.get(&*item.key)?;
                        let record = record.as_ref().map(redb::AccessGuard::value);
                        objects.insert(&*item.key, sound_record(&item, record)?)?;
                    }
                    (FoundValue::OnDisk(item), None) => return Err(lacks(&item)),
                }
            }
            insert_history(&mut transaction.open_table(HISTORY)?, data.log())?;
            meta.insert("revision", data.revision().0)?;
            meta.insert("compacted", data.compacted().0)?;
        }
        Ok(transaction.commit()?)
    })
}

/// Checks that a record has this version of a key.
fn sound_record<'r>(item: &KeyValue, record: Option<&'r [u8]>) -> Result<&'r [u8], Failure> {
    let record = record.ok_or_else(|| lacks(item))?;
    match decode_object(&item.key, record) {
        Some(found) if found.mod_revision == item.mod_revision => Ok(record),
        _ => Err(lacks(item)),
    }
}

fn lacks(item: &KeyValue) -> Failure {
    Failure::Damaged(format!("the object {} of revision {} is not in it", item.key, item.mod_revision))
}

fn insert_history<'c>(
    history: &mut redb::Table<'_, (u64, u32), &'static [u8]>,
    changes: impl Iterator<Item = &'c Arc<Change>>,
) -> Result<(), Failure> {
    let mut number = 0;
    let mut of = Revision(0);
    for change in changes {
        number = if change.revision == of { number + 1 } else { 0 };
        of = change.revision;
        history.insert((of.0, number), &*encode_history(change))?;
    }
    Ok(())
}

impl Disk {
    /// Creates a handle of an existing file, without opening it.
    pub(super) fn new(medium: Box<dyn Medium>, page_cache: usize) -> Self {
        let values = Arc::new(Values::default());
        Self { medium, page_cache, values, is_writable: false, sync_failed: Arc::default(), index: None }
    }

    /// Returns the values of the file, also after it has been opened again or replaced.
    pub(super) fn values(&self) -> &Arc<Values> {
        &self.values
    }

    /// Closes the file if it is open, and opens it again. Readers of values wait meanwhile.
    pub(super) fn reopen(&mut self) -> Result<Found, Failure> {
        let values = Arc::clone(&self.values);
        self.reopen_database(&mut values.replace())
    }

    fn reopen_database(&mut self, database: &mut Option<Database>) -> Result<Found, Failure> {
        self.close_database(database);
        let opened = guarded("opening", || {
            let mut builder = Builder::new();
            builder.set_cache_size(self.page_cache);
            let file = SyncWatch::new(self.medium.open()?, &self.sync_failed);
            let opened = builder.create_with_backend(file)?;
            let meta = opened.begin_read()?.open_table(META)?;
            let format = required(&meta, "format")?;
            if format != FORMAT {
                return Err(Failure::Format(format));
            }
            let revision = Revision(required(&meta, "revision")?);
            let compacted = Revision(required(&meta, "compacted")?);
            *database = Some(opened);
            Ok(Found { revision, compacted })
        });
        self.is_writable = opened.is_ok();
        if opened.is_err() {
            self.mark();
        }
        opened
    }

    /// Opens the file for reading values alone, if it is not open. What redb writes to it stays in memory.
    pub(super) fn open_for_reading(&mut self) -> Result<(), Failure> {
        let mut database = self.values.replace();
        if database.is_none() {
            *database = Some(guarded("opening", || {
                let mut builder = Builder::new();
                builder.set_cache_size(self.page_cache);
                Ok(builder.create_with_backend(WithoutWrites::new(self.medium.open()?))?)
            })?);
        }
        Ok(())
    }

    /// Marks the file if a sync of it has failed.
    fn mark(&self) {
        if self.sync_failed.load(Ordering::Acquire) {
            self.medium.distrust();
        }
    }

    /// Reports whether a sync of the file has failed, in this process or an earlier one. Such a file must no longer be written.
    pub(super) fn is_distrusted(&self) -> bool {
        self.sync_failed.load(Ordering::Acquire) || self.medium.is_distrusted()
    }

    /// Replaces the file by one with these contents, and opens it. The current file is only read.
    pub(super) fn rewrite(&mut self, data: &Mvcc) -> Result<Found, Failure> {
        if self.is_writable || self.values.has_failed() {
            self.close();
        }
        if data.has_cold() {
            self.open_for_reading()?;
        }
        create(&*self.medium, |database| copy(database, data, &self.values))?;
        self.sync_failed = Arc::default();
        self.index = None;
        self.reopen()
    }

    /// Makes the visible contents of a reopened file durable.
    pub(super) fn confirm(&self, found: Found) -> Result<(), Failure> {
        self.write(&[], found.revision, None)
    }

    /// Reports whether the file is open for writing.
    pub(super) fn is_open(&self) -> bool {
        self.is_writable
    }

    pub(super) fn close(&mut self) {
        let values = Arc::clone(&self.values);
        self.close_database(&mut values.replace());
    }

    fn close_database(&mut self, database: &mut Option<Database>) {
        if let Some(database) = database.take() {
            // An error here follows an earlier one; the next open repairs or reports it.
            drop(guarded("closing", || {
                drop(database);
                Ok(())
            }));
        }
        self.is_writable = false;
        self.values.forget_failure();
        self.mark();
    }

    /// Writes transactions and forgets history, durably and atomically.
    pub(super) fn write(
        &self,
        changes: &[Arc<Change>],
        revision: Revision,
        compact: Option<Revision>,
    ) -> Result<(), Failure> {
        self.values.with(|database| write(database, changes, revision, compact))
    }

    /// Returns the length of the file; 0 if unknown.
    pub(super) fn length(&self) -> u64 {
        self.medium.length()
    }

    /// Prepares a copy of the current state of the file.
    pub(super) fn copying(&self, sync_failed: &Arc<AtomicBool>) -> Result<Copying, Failure> {
        let snapshot = guarded("reading", || self.values.snapshot())?;
        let file = SyncWatch::new(self.medium.begin()?, sync_failed);
        Ok(Copying { snapshot, file, page_cache: self.page_cache })
    }

    /// Adds the missing writes to a copy, and replaces the file with it.
    pub(super) fn replace(
        &mut self,
        copy: Database,
        missing: &Missing,
        sync_failed: Arc<AtomicBool>,
    ) -> Result<Found, Failure> {
        let written = write(&copy, &missing.changes, missing.revision, missing.compact);
        let closed = guarded("closing", || {
            drop(copy);
            Ok(())
        });
        let is_durable = written.and(closed).and_then(|()| {
            let is_lost = sync_failed.load(Ordering::Acquire);
            if is_lost { Err(Failure::Io("a copy could not be synced".to_owned())) } else { Ok(()) }
        });
        is_durable.inspect_err(|_| self.discard_copy())?;
        // Readers of values wait until the copy is open.
        let values = Arc::clone(&self.values);
        let mut database = values.replace();
        self.close_database(&mut database);
        if let Err(failure) = self.medium.publish() {
            // The copy may have the file's name, and a power failure may give the name back to the old file, which lacks all later
            // writes.
            self.sync_failed.store(true, Ordering::Release);
            self.mark();
            return Err(failure);
        }
        self.sync_failed = sync_failed;
        self.index = None;
        self.reopen_database(&mut database)
    }

    /// Removes a copy that did not replace the file.
    pub(super) fn discard_copy(&self) {
        self.medium.discard();
    }

    /// Returns unused parts of the file to the disk. May take as long as writing the entire file.
    pub(super) fn shrink(&mut self) -> Result<(), Failure> {
        let mut database = self.values.replace();
        let database = database.as_mut().ok_or_else(values::not_open)?;
        guarded("compacting", || Ok(database.compact().map(drop)?))
    }

    /// Reads all keys and the history, and values of this size at most.
    pub(super) fn load(&mut self, value_memory: u64) -> Result<Loaded, Failure> {
        let loaded = self.values.with(|database| guarded("reading", || load(database, value_memory)))?;
        self.index = loaded.index;
        Ok(loaded)
    }

    /// Writes the index of the present state, which the file must have, unless the present one still counts.
    pub(super) fn write_index(&mut self, data: &Mvcc) -> Result<(), Failure> {
        if self.index.is_none_or(|index| index < data.compacted()) {
            self.values.with(|database| index::write(database, data))?;
            tracing::info!(keys = data.key_count(), "wrote the index of the data file for the next start");
            self.index = Some(data.revision());
        }
        Ok(())
    }
}

/// Writes that a copy lacks.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) changes: Vec<Arc<Change>>,
    /// Size of the changes.
    pub(super) bytes: usize,
    pub(super) compact: Option<Revision>,
    /// Newest revision.
    pub(super) revision: Revision,
}

/// A prepared copy of a file.
pub(super) struct Copying {
    snapshot: ReadTransaction,
    file: SyncWatch,
    page_cache: usize,
}

impl Copying {
    /// Writes the copy, unless it is abandoned.
    pub(super) fn run(self, is_abandoned: &AtomicBool) -> Result<Database, Failure> {
        let Self { snapshot, file, page_cache } = self;
        guarded("copying", || {
            let going_on = || {
                let is_over = is_abandoned.load(Ordering::Relaxed);
                if is_over { Err(Failure::Io("the copy is not needed any more".to_owned())) } else { Ok(()) }
            };
            let mut builder = Builder::new();
            builder.set_cache_size(page_cache);
            let database = builder.create_with_backend(file)?;
            let transaction = database.begin_write()?;
            {
                let mut meta = transaction.open_table(META)?;
                for entry in snapshot.open_table(META)?.iter()? {
                    let (name, value) = entry?;
                    meta.insert(name.value(), value.value())?;
                }
                let mut objects = transaction.open_table(OBJECTS)?;
                for entry in snapshot.open_table(OBJECTS)?.iter()? {
                    going_on()?;
                    let (key, record) = entry?;
                    objects.insert(key.value(), record.value())?;
                }
                let mut history = transaction.open_table(HISTORY)?;
                for entry in snapshot.open_table(HISTORY)?.iter()? {
                    going_on()?;
                    let (at, record) = entry?;
                    history.insert(at.value(), record.value())?;
                }
            }
            transaction.commit()?;
            Ok(database)
        })
    }
}

/// Writes transactions into a file and forgets history, durably and atomically.
pub(super) fn write(
    database: &Database,
    changes: &[Arc<Change>],
    revision: Revision,
    compact: Option<Revision>,
) -> Result<(), Failure> {
    guarded("writing", || {
        let transaction = database.begin_write()?;
        {
            let mut meta = transaction.open_table(META)?;
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut history = transaction.open_table(HISTORY)?;
            for change in changes {
                match result_of(change) {
                    Some(item) => drop(objects.insert(&*change.key, &*encode_object(&item))?),
                    None => drop(objects.remove(&*change.key)?),
                }
            }
            insert_history(&mut history, changes.iter())?;
            meta.insert("revision", revision.0)?;
            if let Some(compact) = compact {
                // A compacted revision stays compacted, even if this process does not know about it.
                let known = meta.get("compacted")?.map_or(0, |known| known.value());
                history.retain_in(..=(compact.0, u32::MAX), |_, _| false)?;
                meta.insert("compacted", compact.0.max(known))?;
            }
        }
        Ok(transaction.commit()?)
    })
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.close();
    }
}

fn initialize(database: &Database) -> Result<(), Failure> {
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert("format", FORMAT)?;
        meta.insert("revision", INITIAL_REVISION.0)?;
        meta.insert("compacted", 0)?;
        transaction.open_table(OBJECTS)?;
        transaction.open_table(HISTORY)?;
    }
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy must not have another version of an object than the map says.
    #[test]
    fn a_record_is_copied_in_the_version_that_is_wanted() {
        let item = |modified: u64| KeyValue {
            key: "/a".into(),
            value: "v".into(),
            create_revision: Revision(2),
            mod_revision: Revision(modified),
        };
        let record = encode_object(&item(5));
        assert_eq!(sound_record(&item(5), Some(&record)), Ok(&*record));
        for (wanted, record) in [(6, Some(&*record)), (4, Some(&record)), (5, Some(&record[1..])), (5, None)]
        {
            assert_eq!(sound_record(&item(wanted), record), Err(lacks(&item(wanted))), "{wanted}");
        }
    }
}
