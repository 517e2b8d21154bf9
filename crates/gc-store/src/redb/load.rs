//! Reads the file when a store is opened.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::redb::{Database, ReadableDatabase as _, ReadableTable as _};
use bytes::Bytes;
use gc_store_api::{Change, Key, KeyValue, Revision};

use super::failure::{Failure, HISTORY, META, OBJECTS, required};
use super::records::{StoredVersion, decode_history, decode_version};
use crate::mvcc::{INITIAL_REVISION, Loading, Mvcc};

/// A change of the history, and the state of its key before it.
struct Undo {
    revision: Revision,
    key: Key,
    previous: Option<KeyValue>,
}

/// Reads all keys, the history, and values up to `value_memory` bytes. Also returns the number of bytes in the file.
pub(super) fn load(database: &Database, value_memory: u64) -> Result<(Mvcc, u64), Failure> {
    let mut used = 0;
    let reading = database.begin_read()?;
    let meta = reading.open_table(META)?;
    let newest = Revision(required(&meta, "revision")?);
    let compacted = Revision(required(&meta, "compacted")?);

    // The history, from the newest change to the oldest.
    let mut undo = Vec::new();
    for entry in reading.open_table(HISTORY)?.iter()?.rev() {
        let (at, record) = entry?;
        used += record.value().len() as u64;
        let revision = Revision(at.value().0);
        let (key, previous) =
            decode_history(record.value()).ok_or_else(|| wrong(revision, "does not decode"))?;
        undo.push(Undo { revision, key, previous });
    }
    // Keys with history, in the state of which the history is undone. Their values must be in memory.
    let mut state: BTreeMap<Key, Option<KeyValue>> =
        undo.iter().map(|undo| (Arc::clone(&undo.key), None)).collect();

    let mut data = Loading::new(compacted, value_memory);
    for entry in reading.open_table(OBJECTS)?.iter()? {
        let (key, record) = entry?;
        used += (key.value().len() + record.value().len()) as u64;
        let StoredVersion { value, revisions } = decode_version(key.value(), record.value())
            .filter(|found| found.revisions.mod_revision <= newest)
            .ok_or_else(|| Failure::Damaged(format!("the object {} does not decode", key.value())))?;
        if let Some(changed) = state.get_mut(key.value()) {
            let item =
                KeyValue { value: Bytes::copy_from_slice(value), ..revisions.to_unread(&key.value().into()) };
            *changed = Some(item);
        } else if revisions.mod_revision > compacted {
            return Err(Failure::Damaged(format!("the history of {} is missing", key.value())));
        } else {
            data.add(key.value().into(), value, revisions);
        }
    }

    let changes = undone(undo, &mut state, newest, compacted)?;
    if let Some(item) = state.values().flatten().find(|item| item.mod_revision > compacted) {
        return Err(Failure::Damaged(format!("the history of {} is missing", item.key)));
    }
    let mut data = data.finish(state.into_values().flatten());
    data.apply(&changes);
    if data.revision() != newest.max(INITIAL_REVISION) {
        return Err(Failure::Damaged(format!("the change of revision {newest} is missing")));
    }
    Ok((data, used))
}

/// Undoes changes from the newest to the oldest, which makes `state` the state before them. Returns the changes, oldest first.
fn undone(
    undo: Vec<Undo>,
    state: &mut BTreeMap<Key, Option<KeyValue>>,
    newest: Revision,
    compacted: Revision,
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
