//! The index of a data file: the keys and revisions of a store whose values exceed its memory.
//!
//! A store writes it when it is closed, and a start then reads it instead of all objects. It describes one revision, and counts only
//! while the history has every later change: a start takes the keys in the history from there, and all others from the index, because
//! they were not changed since. So writes need not touch it, and a program that does not know it, or that was killed, leaves it either
//! right or too old. Whatever is wrong with it, the whole file is read instead.
//!
//! Its records are numbered chunks of keys in order, and a summary. Each ends in a checksum.

use ::redb::{Database, ReadOnlyTable, ReadTransaction, TableDefinition, TableError};
use gc_store_api::Revision;

use super::failure::{Failure, guarded};
use super::records::{seal, unseal};
use crate::mvcc::Mvcc;
use crate::record::OnDisk;

pub(super) const INDEX: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("index");

/// Number of the summary.
const SUMMARY: u64 = u64::MAX;
/// Size beyond which a chunk is complete. With a key and its checksum, it fits into a page of 32 KiB.
const CHUNK_BYTES: usize = 30 << 10;
/// Size of an entry beside its key, at most: two lengths and two revisions.
const ENTRY_BYTES: u64 = 30;

/// Description of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    /// The revision whose state it is.
    pub(super) revision: Revision,
    /// Size of all values at that revision.
    pub(super) value_bytes: u64,
    keys: u64,
    chunks: u64,
}

impl Summary {
    fn encode(self) -> Vec<u8> {
        let words = [self.revision.0, self.value_bytes, self.keys, self.chunks];
        seal("index", words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    fn decode(record: &[u8]) -> Option<Self> {
        let (words, []) = unseal("index", record)?.as_chunks::<8>() else { return None };
        let [revision, value_bytes, keys, chunks] =
            <[[u8; 8]; 4]>::try_from(words).ok()?.map(u64::from_le_bytes);
        Some(Self { revision: Revision(revision), value_bytes, keys, chunks })
    }
}

/// Returns the context of a chunk's checksum: a chunk of another index, or of another place, is not taken for it.
fn context(revision: Revision, number: u64) -> String {
    format!("{revision} {number}")
}

/// Appends a number in groups of seven bits, the lowest first.
fn put_number(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let [lowest, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return out.push(lowest);
        }
        out.push(lowest | 0x80);
    }
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, following) = rest.split_first()?;
        *rest = following;
        let group = u64::from(byte & 0x7f);
        if group << shift >> shift != group {
            return None;
        }
        number |= group << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A chunk under construction. Each key is stored as the length of what it shares with the last one, and the rest.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    last: String,
}

impl Chunk {
    fn add(&mut self, key: &str, revisions: OnDisk) {
        let same = self.last.bytes().zip(key.bytes()).take_while(|(last, next)| last == next).count();
        let rest = &key.as_bytes()[same..];
        put_number(&mut self.bytes, same as u64);
        put_number(&mut self.bytes, rest.len() as u64);
        self.bytes.extend_from_slice(rest);
        put_number(&mut self.bytes, revisions.create_revision.0);
        put_number(&mut self.bytes, revisions.mod_revision.0 - revisions.create_revision.0);
        self.last.clear();
        self.last.push_str(key);
    }

    /// Returns the record of the chunk, and begins the next one.
    fn take(&mut self, revision: Revision, number: u64) -> Vec<u8> {
        self.last.clear();
        seal(&context(revision, number), std::mem::take(&mut self.bytes))
    }
}

/// Passes the entries of a chunk to `visit`, until it returns `None`. `last` is the last key of the chunk before, and becomes that of
/// this one. Returns the number of entries, or `None` if the chunk is not sound.
fn read_chunk(
    mut rest: &[u8],
    last: &mut Option<String>,
    mut visit: impl FnMut(&str, OnDisk) -> Option<()>,
) -> Option<u64> {
    let (mut keys, mut key) = (0, Vec::new());
    while !rest.is_empty() {
        key.truncate(usize::try_from(take_number(&mut rest)?).ok().filter(|same| *same <= key.len())?);
        let length = usize::try_from(take_number(&mut rest)?).ok()?;
        let (added, following) = rest.split_at_checked(length)?;
        key.extend_from_slice(added);
        rest = following;
        let create = take_number(&mut rest)?;
        let modified = create.checked_add(take_number(&mut rest)?)?;
        let text = std::str::from_utf8(&key).ok()?;
        if last.as_deref().is_some_and(|last| last >= text) {
            return None;
        }
        visit(text, OnDisk { create_revision: Revision(create), mod_revision: Revision(modified) })?;
        let last = last.get_or_insert_default();
        last.clear();
        last.push_str(text);
        keys += 1;
    }
    Some(keys)
}

/// Reads a chunk of an index: the body of a fuzz target.
#[cfg(any(test, fuzzing))]
pub(crate) fn entries(body: &[u8]) -> Option<Vec<(String, OnDisk)>> {
    let mut entries = Vec::new();
    read_chunk(body, &mut None, |key, revisions| {
        entries.push((key.to_owned(), revisions));
        Some(())
    })?;
    Some(entries)
}

/// Writes entries as the body of a chunk.
#[cfg(any(test, fuzzing))]
pub(crate) fn chunk(entries: &[(String, OnDisk)]) -> Vec<u8> {
    let mut chunk = Chunk::default();
    for (key, revisions) in entries {
        chunk.add(key, *revisions);
    }
    chunk.bytes
}

/// Returns the size of the index of these keys, at most.
pub(super) fn size(data: &Mvcc) -> u64 {
    data.key_bytes() + data.key_count() * ENTRY_BYTES
}

/// Writes the index of the present state, in place of an earlier one.
pub(super) fn write(database: &Database, data: &Mvcc) -> Result<(), Failure> {
    guarded("writing the index", || {
        let revision = data.revision();
        let transaction = database.begin_write()?;
        transaction.delete_table(INDEX)?;
        {
            let mut table = transaction.open_table(INDEX)?;
            let (mut chunk, mut chunks, mut keys) = (Chunk::default(), 0, 0);
            for (key, revisions) in data.versions() {
                chunk.add(key, revisions);
                keys += 1;
                if chunk.bytes.len() >= CHUNK_BYTES {
                    table.insert(chunks, &*chunk.take(revision, chunks))?;
                    chunks += 1;
                }
            }
            if !chunk.bytes.is_empty() {
                table.insert(chunks, &*chunk.take(revision, chunks))?;
                chunks += 1;
            }
            let value_bytes = data.value_sizes().all;
            table.insert(SUMMARY, &*Summary { revision, value_bytes, keys, chunks }.encode())?;
        }
        Ok(transaction.commit()?)
    })
}

/// An index that describes a file.
pub(super) struct Index {
    table: ReadOnlyTable<u64, &'static [u8]>,
    summary: Summary,
}

impl Index {
    /// Returns the index of a file, if the history has every change since.
    pub(super) fn find(
        reading: &ReadTransaction,
        newest: Revision,
        compacted: Revision,
    ) -> Result<Option<Self>, Failure> {
        let table = match reading.open_table(INDEX) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            other => other?,
        };
        let summary = table.get(SUMMARY)?.and_then(|record| Summary::decode(record.value()));
        let summary = summary.filter(|summary| (compacted..=newest).contains(&summary.revision));
        Ok(summary.map(|summary| Self { table, summary }))
    }

    pub(super) fn summary(&self) -> Summary {
        self.summary
    }

    /// Passes all entries to `visit` in the order of their keys, until it returns `None`. Returns `None` if the index is not sound.
    pub(super) fn read(
        &self,
        mut visit: impl FnMut(&str, OnDisk) -> Option<()>,
    ) -> Result<Option<()>, Failure> {
        let Summary { revision, keys, chunks, .. } = self.summary;
        let (mut last, mut next, mut found) = (None, 0, 0);
        for entry in self.table.range(..SUMMARY)? {
            let (number, record) = entry?;
            let read = unseal(&context(revision, next), record.value())
                .filter(|_| number.value() == next)
                .and_then(|body| read_chunk(body, &mut last, &mut visit));
            let Some(read) = read else { return Ok(None) };
            found += read;
            next += 1;
        }
        Ok((found == keys && next == chunks).then_some(()))
    }
}

#[cfg(test)]
mod tests {
    use gc_store_api::KeyValue;

    use super::*;

    /// The room for an index is checked before it is written.
    #[test]
    fn an_index_is_no_larger_than_its_size_says() {
        let item = |number: u64| KeyValue {
            key: format!("/{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into(),
            value: "v".into(),
            create_revision: Revision(u64::MAX >> 1),
            mod_revision: Revision((u64::MAX >> 1) + number),
        };
        for keys in [0, 1, 7] {
            let data = Mvcc::restore(Revision(u64::MAX), (0..keys).map(item));
            let mut chunk = Chunk::default();
            data.versions().for_each(|(key, revisions)| chunk.add(key, revisions));
            assert!(chunk.bytes.len() as u64 <= size(&data), "{keys}");
            assert!(size(&data) <= (item(0).key.len() as u64 + 20 + ENTRY_BYTES) * keys, "{keys}");
        }
    }

    /// Keys of one collection share most of their text.
    #[test]
    fn what_keys_share_is_stored_once() {
        let mut chunk = Chunk::default();
        let revisions = OnDisk { create_revision: Revision(2), mod_revision: Revision(3) };
        for number in 0..100 {
            chunk.add(&format!("/core/configmaps/a-long-namespace/{number:03}"), revisions);
        }
        assert!(chunk.bytes.len() < 100 * 8, "{} bytes", chunk.bytes.len());
    }
}
