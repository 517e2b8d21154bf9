//! The multi-version map itself: plain data and synchronous functions, shared by the memory and the redb store.
//!
//! Keys, revisions, superseded values and the log of changes are in memory. A current value may be on disk only: `resident.rs` says when.

mod resident;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use gc_store_api::{
    Change, Key, KeyValue, RangeAnswer, RangeOptions, Revision, StorageError, Transaction, Write,
};

use crate::record::{OnDisk, Record, SupersededVersion, Version};
use resident::{Entry, Merged};
pub(crate) use resident::{Loading, ValueSizes};

/// Revision of a store in which nothing was ever written. It is not 0, because 0 means "never" in a condition, and "any" in a
/// Kubernetes resource version; etcd begins at 1, too.
pub(crate) const INITIAL_REVISION: Revision = Revision(1);

/// Maximum size of a value. The API server refuses bodies beyond 3 MiB; this leaves room for what it adds.
pub const VALUE_LIMIT: usize = 8 << 20;

/// Amount of history to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryOptions {
    /// Number of changes kept for watches and reads at older revisions; older ones are compacted automatically.
    pub changes: usize,
    /// Number of bytes kept: superseded values, and [`CHANGE_BYTES`] for each change.
    pub bytes: usize,
}

/// Memory of a change in addition to its value, in bytes.
pub const CHANGE_BYTES: usize = 256;

impl Default for HistoryOptions {
    fn default() -> Self {
        // The limit in bytes is reached first, so that one client that deletes a large collection does not end the watches of all
        // others.
        Self { changes: 1 << 20, bytes: 64 << 20 }
    }
}

/// All versions of all keys.
#[derive(Debug)]
pub(crate) struct Mvcc {
    /// Keys with a version in memory.
    keys: BTreeMap<Key, Record>,
    /// Keys whose only version is on disk. No key is in both maps.
    cold: BTreeMap<Key, OnDisk>,
    /// Every change after `compacted`, oldest first.
    log: VecDeque<Arc<Change>>,
    /// Bytes kept only by the log.
    log_bytes: usize,
    /// Size of all keys and their current values in bytes.
    present_bytes: u64,
    values: ValueSizes,
    /// Maximum size of the current values in memory; `None` if there is no disk for the others.
    budget: Option<u64>,
    /// Last key that the search for values to move out of memory has passed.
    hand: Option<Key>,
    revision: Revision,
    compacted: Revision,
}

/// A version that a reader asked for.
#[derive(Debug)]
pub(crate) enum Found {
    InMemory(KeyValue),
    /// The item without its value.
    OnDisk(KeyValue),
}

/// A range in progress.
#[derive(Debug)]
pub(crate) struct Visit {
    /// Maximum number of items.
    pub(crate) limit: usize,
    pub(crate) items: Vec<KeyValue>,
    /// Positions of items whose value has yet to be read from disk, in order.
    pub(crate) unread: Vec<usize>,
    /// Number of items beyond the limit.
    pub(crate) remaining: u64,
    /// True if the range ends at the first item beyond the limit.
    pub(crate) skips_count: bool,
}

impl Visit {
    pub(crate) fn new(options: &RangeOptions) -> Self {
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        Self { limit, items: Vec::new(), unread: Vec::new(), remaining: 0, skips_count: options.skips_count }
    }

    /// Creates the range of one item whose value has yet to be read.
    pub(crate) fn of_unread(item: KeyValue) -> Self {
        Self { limit: 1, items: vec![item], unread: vec![0], remaining: 0, skips_count: true }
    }

    /// Adds items without regard to the limit.
    pub(crate) fn extend(&mut self, found: impl IntoIterator<Item = Found>) {
        for found in found {
            match found {
                Found::InMemory(item) => self.items.push(item),
                Found::OnDisk(item) => {
                    self.unread.push(self.items.len());
                    self.items.push(item);
                }
            }
        }
    }

    pub(crate) fn answer(self, revision: Revision) -> RangeAnswer {
        RangeAnswer { items: self.items, more: self.remaining > 0, remaining: self.remaining, revision }
    }
}

/// Result of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TransactionResult {
    /// A condition did not hold.
    Conflict(Vec<Option<KeyValue>>),
    /// Changes to make, in key order; none if the transaction has no effect.
    Changes(Vec<Change>),
}

/// Computes the changes that a transaction would make to the state `present` if it committed as `revision`.
pub(crate) fn evaluate(
    transaction: Transaction,
    revision: Revision,
    present: impl Fn(&str) -> Option<KeyValue>,
) -> Result<TransactionResult, StorageError> {
    let holds =
        |key: &str, wanted: Revision| present(key).map_or(Revision(0), |found| found.mod_revision) == wanted;
    if !transaction.conditions.iter().all(|condition| holds(&condition.key, condition.mod_revision)) {
        let found = transaction.conditions.iter().map(|condition| present(&condition.key)).collect();
        return Ok(TransactionResult::Conflict(found));
    }
    let mut writes = transaction.writes;
    writes.sort_by(|left, right| write_key(left).cmp(write_key(right)));
    if let Some((twice, _)) =
        writes.iter().zip(writes.iter().skip(1)).find(|(one, next)| write_key(one) == write_key(next))
    {
        return Err(StorageError::Broken(format!("a transaction writes {} twice", write_key(twice))));
    }
    let mut changes = Vec::with_capacity(writes.len());
    for write in writes {
        match write {
            Write::Put(_, value) if value.len() > VALUE_LIMIT => {
                return Err(StorageError::TooLarge { size: value.len(), limit: VALUE_LIMIT });
            }
            Write::Put(key, value) => {
                let previous = present(&key);
                let key = previous.as_ref().map_or(key, |previous| Arc::clone(&previous.key));
                // Copied exactly, because the given value may be a slice of a much larger buffer.
                let value = Some(Bytes::copy_from_slice(&value));
                changes.push(Change { revision, key, value, previous });
            }
            Write::Delete(key) => {
                if let Some(previous) = present(&key) {
                    let key = Arc::clone(&previous.key);
                    changes.push(Change { revision, key, value: None, previous: Some(previous) });
                }
            }
        }
    }
    Ok(TransactionResult::Changes(changes))
}

pub(crate) fn write_key(write: &Write) -> &Key {
    match write {
        Write::Put(key, _) | Write::Delete(key) => key,
    }
}

/// Returns the state after a change.
pub(crate) fn result_of(change: &Change) -> Option<KeyValue> {
    change.value.as_ref().map(|value| KeyValue {
        key: Arc::clone(&change.key),
        value: value.clone(),
        create_revision: change.previous.as_ref().map_or(change.revision, |before| before.create_revision),
        mod_revision: change.revision,
    })
}

impl Mvcc {
    pub(crate) fn new() -> Self {
        Self::restore(Revision(0), [])
    }

    /// Creates a map with the state at a revision before which nothing is known, and all of it in memory.
    pub(crate) fn restore(compacted: Revision, items: impl IntoIterator<Item = KeyValue>) -> Self {
        let mut data = Self::empty(compacted);
        let records = items.into_iter().map(|item| {
            data.present_bytes += present_size(&item.key, &item.value);
            data.values.add(&item.value);
            (Arc::clone(&item.key), Record::of(item))
        });
        data.keys = records.collect();
        data
    }

    fn empty(compacted: Revision) -> Self {
        Self {
            keys: BTreeMap::new(),
            cold: BTreeMap::new(),
            log: VecDeque::new(),
            log_bytes: 0,
            present_bytes: 0,
            values: ValueSizes::default(),
            budget: None,
            hand: None,
            revision: compacted.max(INITIAL_REVISION),
            compacted,
        }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the revision up to which history is forgotten.
    pub(crate) fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Returns the size of all kept data in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.present_bytes + self.log_bytes as u64
    }

    /// Returns the current state of every key, in order.
    pub(crate) fn items(&self) -> impl Iterator<Item = Found> + '_ {
        Merged::new(self.keys.iter(), self.cold.iter()).filter_map(|(key, entry)| entry.current(key))
    }

    /// Returns the current version of every key that has one, in order.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&Key, OnDisk)> + '_ {
        Merged::new(self.keys.iter(), self.cold.iter())
            .filter_map(|(key, entry)| Some((key, entry.current_version()?)))
    }

    /// Returns every change after [`Self::compacted`], oldest first.
    pub(crate) fn log(&self) -> impl Iterator<Item = &Arc<Change>> {
        self.log.iter()
    }

    /// Returns the current state of a key, which must not be on disk only.
    pub(crate) fn current(&self, key: &str) -> Option<KeyValue> {
        let Some((key, record)) = self.keys.get_key_value(key) else {
            assert!(!self.is_cold(key), "a value on disk is read before its key is changed");
            return None;
        };
        record.current.as_ref().map(|version| version.to_key_value(key))
    }

    /// Checks that a revision can be read, and resolves "newest".
    pub(crate) fn readable(&self, at: Option<Revision>) -> Result<Revision, StorageError> {
        let requested = at.unwrap_or(self.revision);
        if requested > self.revision {
            return Err(StorageError::Future { requested, newest: self.revision });
        }
        if requested < self.compacted {
            return Err(StorageError::Compacted { requested, oldest: self.compacted });
        }
        Ok(requested)
    }

    /// Returns the version of a key at a revision that can be read.
    pub(crate) fn find(&self, key: &str, at: Revision) -> Option<Found> {
        if let Some((key, record)) = self.keys.get_key_value(key) {
            let version = record.at(at)?;
            if !self.cold.is_empty() {
                version.mark();
            }
            return Some(Found::InMemory(version.to_key_value(key)));
        }
        let (key, on_disk) = self.cold.get_key_value(key)?;
        (on_disk.mod_revision <= at).then(|| Found::OnDisk(on_disk.to_unread(key)))
    }

    /// Looks again for the items of a range whose value could not be read because their keys were changed in the meantime.
    pub(crate) fn find_unread(&self, at: Revision, visit: &mut Visit) {
        let Visit { items, unread, .. } = visit;
        unread.retain(|&position| match self.find(&items[position].key, at) {
            Some(Found::InMemory(item)) => {
                items[position] = item;
                false
            }
            Some(Found::OnDisk(item)) => {
                items[position] = item;
                true
            }
            None => true,
        });
    }

    /// Visits up to `keys` keys under a prefix, starting after a key. Returns the last key visited, or `None` at the end.
    pub(crate) fn visit(
        &self,
        prefix: &str,
        after: Option<&str>,
        at: Revision,
        keys: usize,
        visit: &mut Visit,
    ) -> Option<Key> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let range = (start, Bound::Unbounded);
        let in_memory = self.keys.range::<str, _>(range);
        if self.cold.is_empty() {
            let entries = in_memory.map(|(key, record)| (key, Entry::InMemory(record)));
            return Self::visit_entries(entries, prefix, at, keys, visit);
        }
        Self::visit_entries(Merged::new(in_memory, self.cold.range::<str, _>(range)), prefix, at, keys, visit)
    }

    fn visit_entries<'a>(
        entries: impl Iterator<Item = (&'a Key, Entry<'a>)>,
        prefix: &str,
        at: Revision,
        keys: usize,
        visit: &mut Visit,
    ) -> Option<Key> {
        let mut visited = 0;
        for (key, entry) in entries {
            if !key.starts_with(prefix) {
                break;
            }
            if visit.items.len() < visit.limit {
                visit.extend(entry.at(key, at));
            } else if entry.exists(at) {
                visit.remaining += 1;
                if visit.skips_count {
                    return None;
                }
            }
            visited += 1;
            if visited == keys {
                return Some(Arc::clone(key));
            }
        }
        None
    }

    /// Applies the changes of one transaction; all must have the same revision, later than any before.
    pub(crate) fn apply(&mut self, changes: &[Arc<Change>]) {
        for change in changes {
            assert!(change.revision >= self.revision, "revisions only grow");
            self.revision = change.revision;
            assert!(!self.is_cold(&change.key), "a value on disk is read before its key is changed");
            let record = self.keys.entry(Arc::clone(&change.key)).or_default();
            let next = result_of(change).map(Version::new);
            if let Some(next) = &next {
                self.present_bytes += present_size(&change.key, &next.value);
                self.values.add(&next.value);
                self.values.logged += next.value.len() as u64;
            }
            if let Some(version) = std::mem::replace(&mut record.current, next) {
                self.present_bytes -= present_size(&change.key, &version.value);
                self.values.remove(&version.value);
                if version.mod_revision > self.compacted {
                    self.values.logged = self.values.logged.saturating_sub(version.value.len() as u64);
                }
                record
                    .older
                    .get_or_insert_default()
                    .push_back(SupersededVersion { version, until: change.revision });
            }
            self.log_bytes += kept_bytes(change);
            self.log.push_back(Arc::clone(change));
        }
    }

    /// Returns the changes after a revision under a prefix, oldest first.
    pub(crate) fn changes_after(
        &self,
        prefix: &str,
        after: Revision,
    ) -> Result<VecDeque<Arc<Change>>, StorageError> {
        self.readable(Some(after))?;
        let start = self.log.partition_point(|change| change.revision <= after);
        Ok(self.log.range(start..).filter(|change| change.key.starts_with(prefix)).cloned().collect())
    }

    /// Returns the revision up to which history must be forgotten to stay within these bounds, `times` over.
    pub(crate) fn overdue(&self, options: &HistoryOptions, times: usize) -> Option<Revision> {
        let mut changes = self.log.len();
        let mut bytes = self.log_bytes;
        let mut logged = self.logged_beyond_budget();
        let most_logged = self.most_logged(options, times);
        let mut target = None;
        for change in &self.log {
            let is_within = changes <= options.changes.saturating_mul(times)
                && bytes <= options.bytes.saturating_mul(times)
                && logged <= most_logged;
            // Stops only between transactions, because history is forgotten by whole revisions.
            if is_within && target != Some(change.revision) {
                break;
            }
            changes -= 1;
            bytes -= kept_bytes(change);
            if logged > most_logged {
                logged -= self.logged_bytes(change);
            }
            target = Some(change.revision);
        }
        target
    }

    /// Forgets versions needed only by reads before `revision`. Revisions already forgotten, or in the future, have no effect.
    pub(crate) fn compact(&mut self, revision: Revision) {
        let revision = revision.min(self.revision);
        while let Some(change) = self.log.pop_front_if(|change| change.revision <= revision) {
            self.log_bytes -= kept_bytes(&change);
            self.forget(&change, revision);
        }
        self.compacted = self.compacted.max(revision);
    }

    /// Checks that history before a revision can be forgotten; returns false if it already is.
    pub(crate) fn can_compact(&self, revision: Revision) -> Result<bool, StorageError> {
        Ok(revision > self.compacted && self.readable(Some(revision)).map(|_| true)?)
    }

    /// Forgets the versions of a key that only reads before `revision` need, when its change leaves the log.
    fn forget(&mut self, change: &Change, revision: Revision) {
        let Some(record) = self.keys.get_mut(&change.key) else { return };
        if let Some(older) = &mut record.older {
            let gone = older.partition_point(|one| one.until <= revision);
            older.drain(..gone);
            if older.is_empty() {
                record.older = None;
            }
        }
        match &record.current {
            Some(current) if current.mod_revision == change.revision => {
                self.values.logged = self.values.logged.saturating_sub(current.value.len() as u64);
                self.settle(&change.key);
            }
            None if record.older.is_none() => drop(self.keys.remove(&change.key)),
            Some(_) | None => {}
        }
    }
}

fn present_size(key: &Key, value: &Bytes) -> u64 {
    (key.len() + value.len()) as u64
}

/// Returns the number of bytes kept only by the log.
fn kept_bytes(change: &Change) -> usize {
    CHANGE_BYTES + change.previous.as_ref().map_or(0, |before| before.value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_that_of_all_keys_and_values() {
        let (create_revision, mod_revision) = (Revision(2), Revision(2));
        let item = |key: &str, value: &'static str| KeyValue {
            key: key.into(),
            value: value.into(),
            create_revision,
            mod_revision,
        };
        assert_eq!(Mvcc::restore(Revision(2), [item("/a", "four"), item("/bc", "")]).bytes(), 9);
    }

    #[test]
    fn only_history_that_there_is_can_be_forgotten() {
        let data = Mvcc::restore(Revision(5), []);
        assert_eq!((data.can_compact(Revision(4)), data.can_compact(Revision(5))), (Ok(false), Ok(false)));
        let newest = Revision(5);
        assert_eq!(
            data.can_compact(Revision(6)),
            Err(StorageError::Future { requested: Revision(6), newest })
        );
    }

    #[test]
    fn a_value_may_be_as_large_as_the_limit() {
        for (size, is_refused) in [(VALUE_LIMIT, false), (VALUE_LIMIT + 1, true)] {
            let writes = vec![Write::Put("/a".into(), vec![0; size].into())];
            let result = evaluate(Transaction { conditions: Vec::new(), writes }, Revision(2), |_| None);
            assert_eq!(result.is_err(), is_refused, "{size}");
            if let Err(error) = result {
                assert_eq!(error, StorageError::TooLarge { size, limit: VALUE_LIMIT });
            }
        }
    }

    /// The cost of a page must depend only on the page, unless the keys after it are counted.
    #[test]
    fn pages_visit_no_more_than_one_key_beyond_them() {
        let item = |number: u64| KeyValue {
            key: format!("/p/{number:03}").into(),
            value: Bytes::new(),
            create_revision: Revision(2),
            mod_revision: Revision(2),
        };
        let data = Mvcc::restore(Revision(2), (0..100).map(item));
        for (skips_count, ended, remaining) in [(true, true, 1), (false, false, 2)] {
            let mut visit = Visit::new(&RangeOptions { limit: 3, skips_count, ..RangeOptions::default() });
            // The fifth key is never reached, or ends this chunk.
            let cursor = data.visit("/p/", None, Revision(2), 5, &mut visit);
            assert_eq!((cursor.is_none(), visit.items.len(), visit.remaining), (ended, 3, remaining));
        }
    }
}
