//! Reads the file when a store is opened.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::redb::{
    Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _,
};
use bytes::Bytes;
use gc_store_api::{Change, Key, KeyValue, Revision};

use super::failure::{Failure, HISTORY, META, OBJECTS, guarded, required};
use super::index::{Index, Summary};
use super::records::{RECORD_BYTES, StoredVersion, decode_history, decode_version};
use crate::mvcc::{INITIAL_REVISION, Loading, Mvcc};

/// Keys with their values, if they have one.
type State = BTreeMap<Key, Option<KeyValue>>;

/// A change of the history, and the state of its key before it.
struct Undo {
    revision: Revision,
    key: Key,
    previous: Option<KeyValue>,
}

/// Contents of a file that was read.
pub(super) struct Loaded {
    pub(super) data: Mvcc,
    /// Number of bytes of the records in the file.
    pub(super) used: u64,
    /// Revision of the index, if the file has one that counts.
    pub(super) index: Option<Revision>,
}

/// Newest revision of a file, and the one up to which its history is forgotten.
#[derive(Clone, Copy)]
struct Bounds {
    newest: Revision,
    compacted: Revision,
}

/// Reads all keys and the history. Values up to `value_memory` bytes are read, too, unless all values take more and the file has an
/// index: then only those that the history needs.
pub(super) fn load(database: &Database, value_memory: u64) -> Result<Loaded, Failure> {
    let reading = database.begin_read()?;
    let meta = reading.open_table(META)?;
    let newest = Revision(required(&meta, "revision")?);
    let compacted = Revision(required(&meta, "compacted")?);
    let bounds = Bounds { newest, compacted };
    let index = guarded("reading the index", || Index::find(&reading, newest, compacted));
    let Some(index) = usable(index)? else { return read_all(&reading, bounds, value_memory) };
    let summary = index.summary();
    if summary.value_bytes <= value_memory {
        let index = Some(summary.revision);
        return Ok(Loaded { index, ..read_all(&reading, bounds, value_memory)? });
    }
    let loaded = guarded("reading with the index", || read_index(&reading, bounds, &index, value_memory));
    match usable(loaded)? {
        Some(loaded) => {
            let keys = loaded.data.key_count();
            tracing::info!(keys, "read the index of the data file instead of its values");
            Ok(loaded)
        }
        None => {
            tracing::warn!("the index of the data file is not sound: the whole file is read");
            read_all(&reading, bounds, value_memory)
        }
    }
}

/// Treats damage as something that the whole file has to show.
fn usable<T>(found: Result<Option<T>, Failure>) -> Result<Option<T>, Failure> {
    match found {
        Err(Failure::Damaged(_)) => Ok(None),
        other => other,
    }
}

/// Reads the whole file.
fn read_all(reading: &ReadTransaction, bounds: Bounds, value_memory: u64) -> Result<Loaded, Failure> {
    let (undo, mut used) = read_history(reading)?;
    let mut state = unknown_state(&undo);
    let mut data = Loading::new(bounds.compacted, value_memory);
    for entry in reading.open_table(OBJECTS)?.iter()? {
        let (key, record) = entry?;
        used += (key.value().len() + record.value().len()) as u64;
        let found = present_version(key.value(), record.value(), bounds)?;
        let StoredVersion { value, revisions } = found;
        if let Some(changed) = state.get_mut(key.value()) {
            *changed = Some(found.to_key_value(&key.value().into()));
        } else if revisions.mod_revision > bounds.compacted {
            return Err(Failure::Damaged(format!("the history of {} is missing", key.value())));
        } else {
            data.add(key.value().into(), value, revisions);
        }
    }
    let changes = undone(undo, &mut state, bounds)?;
    Ok(Loaded { data: finish(data, state, &changes, bounds)?, used, index: None })
}

/// Reads the keys in the history with their values, and all others from the index. Returns `None` if that does not describe the file.
fn read_index(
    reading: &ReadTransaction,
    bounds: Bounds,
    index: &Index,
    value_memory: u64,
) -> Result<Option<Loaded>, Failure> {
    let (undo, mut used) = read_history(reading)?;
    let mut state = unknown_state(&undo);
    let objects = reading.open_table(OBJECTS)?;
    let mut present = 0;
    for (key, item) in &mut state {
        if let Some(record) = objects.get(&**key)? {
            used += (key.len() + record.value().len()) as u64;
            *item = Some(present_version(key, record.value(), bounds)?.to_key_value(key));
            present += 1;
        }
    }
    let changes = undone(undo, &mut state, bounds)?;
    let Some(value_bytes) = unread_bytes(index.summary(), &changes, &state) else { return Ok(None) };
    let mut data = Loading::new(bounds.compacted, value_memory);
    let mut changed = state.keys().peekable();
    let read = index.read(|key, revisions| {
        while changed.next_if(|changed| ***changed < *key).is_some() {}
        if changed.peek().is_some_and(|changed| ***changed == *key) {
            return Some(());
        }
        used += key.len() as u64 + RECORD_BYTES;
        present += 1;
        data.add_on_disk(key.into(), revisions);
        (revisions.mod_revision <= bounds.compacted).then_some(())
    })?;
    // Neither a key too many nor one too few.
    if read.is_none() || present != objects.len()? {
        return Ok(None);
    }
    data.add_sizes(value_bytes);
    used += value_bytes;
    let data = finish(data, state, &changes, bounds)?;
    Ok(Some(Loaded { data, used, index: Some(index.summary().revision) }))
}

/// Returns the size of the values that the history does not have: all values of the index, less those of the keys in the history at its
/// revision. `None` if that is impossible.
fn unread_bytes(summary: Summary, changes: &[Arc<Change>], state: &State) -> Option<u64> {
    let length = |value: Option<&Bytes>| value.map_or(0, |value| value.len() as u64);
    let mut at_index: u64 = state.values().flatten().map(|item| item.value.len() as u64).sum();
    for change in changes.iter().take_while(|change| change.revision <= summary.revision) {
        at_index += length(change.value.as_ref());
        at_index = at_index.checked_sub(length(change.previous.as_ref().map(|item| &item.value)))?;
    }
    summary.value_bytes.checked_sub(at_index)
}

/// Reads the history, from the newest change to the oldest. Also returns its size.
fn read_history(reading: &ReadTransaction) -> Result<(Vec<Undo>, u64), Failure> {
    let (mut undo, mut used) = (Vec::new(), 0);
    for entry in reading.open_table(HISTORY)?.iter()?.rev() {
        let (at, record) = entry?;
        used += record.value().len() as u64;
        let revision = Revision(at.value().0);
        let (key, previous) =
            decode_history(record.value()).ok_or_else(|| wrong(revision, "does not decode"))?;
        undo.push(Undo { revision, key, previous });
    }
    Ok((undo, used))
}

/// Returns the keys with history, in the state of which the history is undone. Their values must be in memory.
fn unknown_state(undo: &[Undo]) -> State {
    undo.iter().map(|undo| (Arc::clone(&undo.key), None)).collect()
}

/// Decodes the record of an object.
fn present_version<'r>(key: &str, record: &'r [u8], bounds: Bounds) -> Result<StoredVersion<'r>, Failure> {
    decode_version(key, record)
        .filter(|found| found.revisions.mod_revision <= bounds.newest)
        .ok_or_else(|| Failure::Damaged(format!("the object {key} does not decode")))
}

/// Completes the map with the keys that have history, and applies their changes.
fn finish(data: Loading, state: State, changes: &[Arc<Change>], bounds: Bounds) -> Result<Mvcc, Failure> {
    let Bounds { newest, compacted } = bounds;
    if let Some(item) = state.values().flatten().find(|item| item.mod_revision > compacted) {
        return Err(Failure::Damaged(format!("the history of {} is missing", item.key)));
    }
    let mut data = data.finish(state.into_values().flatten());
    data.apply(changes);
    if data.revision() != newest.max(INITIAL_REVISION) {
        return Err(Failure::Damaged(format!("the change of revision {newest} is missing")));
    }
    Ok(data)
}

/// Undoes changes from the newest to the oldest, which makes `state` the state before them. Returns the changes, oldest first.
fn undone(
    undo: Vec<Undo>,
    state: &mut State,
    Bounds { newest, compacted }: Bounds,
) -> Result<Vec<Arc<Change>>, Failure> {
    let mut changes = Vec::with_capacity(undo.len());
    for Undo { revision, key, previous } in undo {
        let present = state.get_mut(&key).and_then(Option::take);
        let (key, value) = match present {
            Some(item) if item.mod_revision == revision => (item.key, Some(item.value)),
            Some(_) => return Err(wrong(revision, "is not what its object says")),
            None => (key, None),
        };
        let previous = previous.map(|previous| KeyValue { key: Arc::clone(&key), ..previous });
        if revision <= compacted || revision > newest || (value.is_none() && previous.is_none()) {
            return Err(wrong(revision, "should not be there"));
        }
        state.insert(Arc::clone(&key), previous.clone());
        changes.push(Arc::new(Change { revision, key, value, previous }));
    }
    changes.reverse();
    Ok(changes)
}

fn wrong(revision: Revision, what: &str) -> Failure {
    Failure::Damaged(format!("the change at revision {revision} {what}"))
}
