//! The multi-version map itself: plain data and synchronous functions, shared by the memory and the redb store.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use gc_store_api::{
    Change, GetAnswer, Key, KeyValue, RangeAnswer, RangeOptions, Revision, StorageError, Transaction, Write,
};

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
    keys: BTreeMap<Key, Record>,
    /// Every change after `compacted`, oldest first.
    log: VecDeque<Arc<Change>>,
    /// Bytes kept only by the log.
    log_bytes: usize,
    /// Size of all keys and their current values in bytes.
    present_bytes: u64,
    revision: Revision,
    compacted: Revision,
}

/// One key. A record without a current value is kept as long as it has older ones.
#[derive(Debug, Default)]
struct Record {
    current: Option<Version>,
    /// Superseded versions, oldest first; boxed twice because most keys have none.
    #[allow(clippy::box_collection)]
    older: Option<Box<Vec<SupersededVersion>>>,
}

#[derive(Clone, Debug)]
struct Version {
    value: Bytes,
    create_revision: Revision,
    mod_revision: Revision,
}

/// A version, and the revision of the change that replaced it.
#[derive(Debug)]
struct SupersededVersion {
    version: Version,
    until: Revision,
}

impl Version {
    fn to_key_value(&self, key: &Key) -> KeyValue {
        KeyValue {
            key: Arc::clone(key),
            value: self.value.clone(),
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
        }
    }
}

impl Record {
    fn at(&self, at: Revision) -> Option<&Version> {
        if let Some(current) = self.current.as_ref().filter(|current| current.mod_revision <= at) {
            return Some(current);
        }
        let older = self.older.as_deref()?;
        // Versions do not overlap: the first one that ends after `at` is the only candidate.
        let candidate = older.get(older.partition_point(|one| one.until <= at))?;
        (candidate.version.mod_revision <= at).then_some(&candidate.version)
    }
}

/// A range in progress.
#[derive(Debug)]
pub(crate) struct Visit {
    /// Maximum number of items.
    pub(crate) limit: usize,
    pub(crate) items: Vec<KeyValue>,
    /// Number of items beyond the limit.
    pub(crate) remaining: u64,
    /// True if the range ends at the first item beyond the limit.
    pub(crate) skips_count: bool,
}

impl Visit {
    pub(crate) fn new(options: &RangeOptions) -> Self {
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        Self { limit, items: Vec::new(), remaining: 0, skips_count: options.skips_count }
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

fn write_key(write: &Write) -> &Key {
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

    /// Creates a map with the state at a revision before which nothing is known.
    pub(crate) fn restore(compacted: Revision, items: impl IntoIterator<Item = KeyValue>) -> Self {
        let mut present_bytes = 0;
        let records = items.into_iter().map(|item| {
            let KeyValue { key, value, create_revision, mod_revision } = item;
            present_bytes += present_size(&key, &value);
            (key, Record { current: Some(Version { value, create_revision, mod_revision }), older: None })
        });
        let keys = records.collect();
        Self {
            keys,
            log: VecDeque::new(),
            log_bytes: 0,
            present_bytes,
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
    pub(crate) fn items(&self) -> impl Iterator<Item = KeyValue> + '_ {
        self.keys.iter().filter_map(|(key, record)| Some(record.current.as_ref()?.to_key_value(key)))
    }

    /// Returns every change after [`Self::compacted`], oldest first.
    pub(crate) fn log(&self) -> impl Iterator<Item = &Arc<Change>> {
        self.log.iter()
    }

    /// Returns the current state of a key.
    pub(crate) fn current(&self, key: &str) -> Option<KeyValue> {
        let (key, record) = self.keys.get_key_value(key)?;
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

    pub(crate) fn get(&self, key: &str, at: Option<Revision>) -> Result<GetAnswer, StorageError> {
        let revision = self.readable(at)?;
        let item = self
            .keys
            .get_key_value(key)
            .and_then(|(key, record)| record.at(revision).map(|version| version.to_key_value(key)));
        Ok(GetAnswer { item, revision })
    }

    /// Reads a range under one lock.
    pub(crate) fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        let revision = self.readable(options.at)?;
        let mut visit = Visit::new(options);
        self.visit(prefix, options.after.as_deref(), revision, usize::MAX, &mut visit);
        Ok(visit.answer(revision))
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
        let mut visited = 0;
        for (key, record) in self.keys.range::<str, _>((start, Bound::Unbounded)) {
            if !key.starts_with(prefix) {
                break;
            }
            if let Some(version) = record.at(at) {
                if visit.items.len() < visit.limit {
                    visit.items.push(version.to_key_value(key));
                } else {
                    visit.remaining += 1;
                    if visit.skips_count {
                        return None;
                    }
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
            let record = self.keys.entry(Arc::clone(&change.key)).or_default();
            let next = result_of(change).map(|item| Version {
                value: item.value,
                create_revision: item.create_revision,
                mod_revision: item.mod_revision,
            });
            if let Some(next) = &next {
                self.present_bytes += present_size(&change.key, &next.value);
            }
            if let Some(version) = std::mem::replace(&mut record.current, next) {
                self.present_bytes -= present_size(&change.key, &version.value);
                record
                    .older
                    .get_or_insert_default()
                    .push(SupersededVersion { version, until: change.revision });
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

    /// Returns the revision up to which history must be forgotten to stay within the bounds.
    pub(crate) fn overdue(&self, options: &HistoryOptions) -> Option<Revision> {
        let mut changes = self.log.len();
        let mut bytes = self.log_bytes;
        let mut target = None;
        for change in &self.log {
            // Stops only between transactions, because history is forgotten by whole revisions.
            if changes <= options.changes && bytes <= options.bytes && target != Some(change.revision) {
                break;
            }
            changes -= 1;
            bytes -= kept_bytes(change);
            target = Some(change.revision);
        }
        target
    }

    /// Forgets versions needed only by reads before `revision`. Revisions already forgotten, or in the future, have no effect.
    pub(crate) fn compact(&mut self, revision: Revision) {
        let revision = revision.min(self.revision);
        while let Some(change) = self.log.pop_front_if(|change| change.revision <= revision) {
            self.log_bytes -= kept_bytes(&change);
            self.forget(&change.key, revision);
        }
        self.compacted = self.compacted.max(revision);
    }

    /// Checks that history before a revision can be forgotten; returns false if it already is.
    pub(crate) fn can_compact(&self, revision: Revision) -> Result<bool, StorageError> {
        Ok(revision > self.compacted && self.readable(Some(revision)).map(|_| true)?)
    }

    fn forget(&mut self, key: &Key, revision: Revision) {
        let Some(record) = self.keys.get_mut(key) else { return };
        if let Some(older) = &mut record.older {
            let gone = older.partition_point(|one| one.until <= revision);
            older.drain(..gone);
            if older.is_empty() {
                record.older = None;
            }
        }
        if record.current.is_none() && record.older.is_none() {
            self.keys.remove(key);
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
