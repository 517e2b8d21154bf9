//! Values in memory and on disk.
//!
//! While all current values together fit into the budget, they are all in memory. Beyond it, those that were not written or read for
//! longest are on disk only. A value whose change is still in the log stays in memory, because the log holds it anyway.
//!
//! A value leaves memory only when the data file has it, and comes back before the file loses it: the committer, which alone writes
//! the file and alone moves values out, brings the value of a key back before it changes the key. So a reader that finds another
//! version in the file than the map said finds the version that it wanted in the map, as long as the history has it.

#[cfg(test)]
mod tests;

use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use gc_store_api::{Change, Key, KeyValue, Revision};

use super::{Found, HistoryOptions, Mvcc, present_size};
use crate::record::{OnDisk, Record, Version};

/// Part of the budget that values read from disk may exceed it by until the committer has made room.
const SLACK_PART: u64 = 16;
/// Part of the budget that values of changes in the log may take: it leaves room for values that are only read.
const LOGGED_PART: u64 = 2;
/// Part of the values in memory below which those that may leave are too few to search for.
const SPARSE_PART: u64 = 4;

/// Sizes of current values, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ValueSizes {
    /// All values.
    pub(crate) all: u64,
    /// Values in memory.
    pub(crate) in_memory: u64,
    /// Values in memory whose change is in the log.
    pub(super) logged: u64,
}

impl ValueSizes {
    /// Counts a new value, which is in memory.
    pub(super) fn add(&mut self, value: &Bytes) {
        self.all += value.len() as u64;
        self.in_memory += value.len() as u64;
    }

    /// Subtracts a value in memory.
    pub(super) fn remove(&mut self, value: &Bytes) {
        self.all -= value.len() as u64;
        self.in_memory -= value.len() as u64;
    }
}

/// A key in either map.
#[derive(Clone, Copy)]
pub(super) enum Entry<'a> {
    InMemory(&'a Record),
    OnDisk(&'a OnDisk),
}

impl Entry<'_> {
    pub(super) fn exists(self, at: Revision) -> bool {
        match self {
            Self::InMemory(record) => record.at(at).is_some(),
            Self::OnDisk(on_disk) => on_disk.mod_revision <= at,
        }
    }

    pub(super) fn at(self, key: &Key, at: Revision) -> Option<Found> {
        match self {
            Self::InMemory(record) => record.at(at).map(|version| Found::InMemory(version.to_key_value(key))),
            Self::OnDisk(on_disk) => {
                (on_disk.mod_revision <= at).then(|| Found::OnDisk(on_disk.to_unread(key)))
            }
        }
    }

    pub(super) fn current(self, key: &Key) -> Option<Found> {
        self.at(key, Revision(u64::MAX))
    }

    pub(super) fn current_version(self) -> Option<OnDisk> {
        match self {
            Self::InMemory(record) => record.current.as_ref().map(Version::to_on_disk),
            Self::OnDisk(on_disk) => Some(*on_disk),
        }
    }
}

/// Both maps in the order of their keys.
pub(super) struct Merged<I: Iterator, J: Iterator> {
    in_memory: Peekable<I>,
    on_disk: Peekable<J>,
}

impl<'a, I: Iterator<Item = (&'a Key, &'a Record)>, J: Iterator<Item = (&'a Key, &'a OnDisk)>> Merged<I, J> {
    pub(super) fn new(in_memory: I, on_disk: J) -> Self {
        Self { in_memory: in_memory.peekable(), on_disk: on_disk.peekable() }
    }
}

impl<'a, I: Iterator<Item = (&'a Key, &'a Record)>, J: Iterator<Item = (&'a Key, &'a OnDisk)>> Iterator
    for Merged<I, J>
{
    type Item = (&'a Key, Entry<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let is_disk_next = self.on_disk.peek().is_some_and(|(on_disk, _)| {
            self.in_memory.peek().is_none_or(|(in_memory, _)| on_disk < in_memory)
        });
        if is_disk_next {
            self.on_disk.next().map(|(key, on_disk)| (key, Entry::OnDisk(on_disk)))
        } else {
            self.in_memory.next().map(|(key, record)| (key, Entry::InMemory(record)))
        }
    }
}

/// A map under construction, from the contents of a data file in the order of their keys.
pub(crate) struct Loading {
    compacted: Revision,
    budget: u64,
    keys: Vec<(Key, Record)>,
    cold: Vec<(Key, OnDisk)>,
    present_bytes: u64,
    values: ValueSizes,
}

impl Loading {
    pub(crate) fn new(compacted: Revision, budget: u64) -> Self {
        let (keys, cold) = (Vec::new(), Vec::new());
        Self { compacted, budget, keys, cold, present_bytes: 0, values: ValueSizes::default() }
    }

    /// Adds a key without history. Its value stays on disk if the budget is spent.
    pub(crate) fn add(&mut self, key: Key, value: &[u8], revisions: OnDisk) {
        let size = value.len() as u64;
        self.present_bytes += key.len() as u64 + size;
        self.values.all += size;
        if self.values.in_memory + size > self.budget {
            self.cold.push((key, revisions));
            return;
        }
        self.values.in_memory += size;
        let item = KeyValue { value: Bytes::copy_from_slice(value), ..revisions.to_unread(&key) };
        self.keys.push((key, Record::of(item)));
    }

    /// Adds a key without history whose value stays on disk. [`Self::add_sizes`] counts the value.
    pub(crate) fn add_on_disk(&mut self, key: Key, revisions: OnDisk) {
        self.present_bytes += key.len() as u64;
        self.cold.push((key, revisions));
    }

    /// Adds the size of all values of [`Self::add_on_disk`].
    pub(crate) fn add_sizes(&mut self, value_bytes: u64) {
        self.present_bytes += value_bytes;
        self.values.all += value_bytes;
    }

    /// Completes the map with the keys that have history, in their state before it.
    pub(crate) fn finish(mut self, changed: impl Iterator<Item = KeyValue>) -> Mvcc {
        for item in changed {
            self.present_bytes += present_size(&item.key, &item.value);
            self.values.add(&item.value);
            self.keys.push((Arc::clone(&item.key), Record::of(item)));
        }
        Mvcc {
            keys: self.keys.into_iter().collect(),
            cold: self.cold.into_iter().collect(),
            present_bytes: self.present_bytes,
            values: self.values,
            budget: Some(self.budget),
            ..Mvcc::empty(self.compacted)
        }
    }
}

impl Mvcc {
    /// Reports whether some values are on disk only.
    pub(crate) fn has_cold(&self) -> bool {
        !self.cold.is_empty()
    }

    pub(super) fn is_cold(&self, key: &str) -> bool {
        self.has_cold() && self.cold.contains_key(key)
    }

    /// Returns the version of a key whose value is on disk only, without the value.
    pub(crate) fn cold(&self, key: &str) -> Option<KeyValue> {
        let (key, on_disk) = self.cold.get_key_value(key)?;
        Some(on_disk.to_unread(key))
    }

    pub(crate) fn value_sizes(&self) -> ValueSizes {
        self.values
    }

    /// Brings a value that was read from disk back into memory, unless its key was changed in the meantime.
    pub(crate) fn warm(&mut self, item: KeyValue) {
        let is_same = self.cold.get(&item.key).is_some_and(|cold| cold.mod_revision == item.mod_revision);
        if let Some((key, _)) = is_same.then(|| self.cold.remove_entry(&item.key)).flatten() {
            self.values.in_memory += item.value.len() as u64;
            self.keys.insert(key, Record::of(item));
        }
    }

    /// Keeps a value that was read from disk, if there is room. Returns whether the committer should make room.
    pub(crate) fn keep(&mut self, item: KeyValue) -> bool {
        let Some(budget) = self.budget else { return false };
        let wanted = self.values.in_memory + item.value.len() as u64;
        if wanted <= budget + budget / SLACK_PART {
            self.warm(item);
        }
        self.excess() > 0
    }

    /// Reports whether the current values do not all fit into memory.
    pub(crate) fn exceeds_budget(&self) -> bool {
        self.budget.is_some_and(|budget| self.values.all > budget)
    }

    /// Returns the size of all keys with a current value.
    pub(crate) fn key_bytes(&self) -> u64 {
        self.present_bytes - self.values.all
    }

    /// Returns the number of keys, also of those that only the history has.
    pub(crate) fn key_count(&self) -> u64 {
        (self.keys.len() + self.cold.len()) as u64
    }

    /// Returns the number of bytes that should and may leave memory.
    pub(crate) fn excess(&self) -> u64 {
        let Some(budget) = self.budget else { return 0 };
        let ValueSizes { in_memory, logged, .. } = self.values;
        in_memory.saturating_sub(budget.max(logged))
    }

    /// Moves values out of memory that were not read since the last time, until they fit into the budget, or `records` records were
    /// searched. Must be called only while the data file has all current values. Returns whether more has to leave.
    pub(crate) fn sweep(&mut self, records: usize) -> bool {
        let mut excess = self.excess();
        if excess == 0 {
            return false;
        }
        // After the last key, the hand stays empty: the next search begins at the first one.
        let hand = self.hand.take();
        let start = hand.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut leaving = Vec::new();
        for (visited, (key, record)) in self.keys.range::<str, _>((start, Bound::Unbounded)).enumerate() {
            if excess == 0 || visited == records {
                break;
            }
            self.hand = Some(Arc::clone(key));
            if let Some(current) = &record.current
                && current.mod_revision <= self.compacted
                && !current.value.is_empty()
                && !current.take_mark()
            {
                excess = excess.saturating_sub(current.value.len() as u64);
                leaving.push(Arc::clone(key));
            }
        }
        for key in leaving {
            self.cool(&key);
        }
        self.excess() > 0
    }

    /// Moves a value out of memory whose change has left the log, where a search would find few others.
    pub(super) fn settle(&mut self, key: &Key) {
        let ValueSizes { in_memory, logged, .. } = self.values;
        if self.excess() > 0 && in_memory - logged < in_memory / SPARSE_PART {
            self.cool(key);
        }
    }

    fn cool(&mut self, key: &Key) {
        if let Some((key, record)) = self.keys.remove_entry(key)
            && let Some(current) = record.current
        {
            debug_assert!(record.older.is_none(), "what its older versions are for is forgotten");
            self.values.in_memory -= current.value.len() as u64;
            self.cold.insert(key, current.to_on_disk());
        }
    }

    /// Returns the size of current values in the log, if not all current values fit into the budget.
    pub(super) fn logged_beyond_budget(&self) -> u64 {
        if self.exceeds_budget() { self.values.logged } else { 0 }
    }

    /// Returns the bound of [`Self::logged_beyond_budget`].
    pub(super) fn most_logged(&self, history: &HistoryOptions, times: usize) -> u64 {
        let share = self.budget.map_or(u64::MAX, |budget| budget / LOGGED_PART);
        share.max(history.bytes as u64).saturating_mul(times as u64)
    }

    /// Returns the size of the value of a change in the log if it is the current one of its key.
    pub(super) fn logged_bytes(&self, change: &Change) -> u64 {
        let Some(value) = &change.value else { return 0 };
        let current = self.keys.get(&change.key).and_then(|record| record.current.as_ref());
        if current.is_some_and(|current| current.mod_revision == change.revision) {
            value.len() as u64
        } else {
            0
        }
    }
}
