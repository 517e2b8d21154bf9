//! Records of the servers themselves, stored beside the objects: several servers on one store coordinate through them.

use bytes::Bytes;

use super::Registry;
use crate::storage::{Committed, Condition, Key, RangeOptions, Revision, StorageError, Transaction, Write};

/// Key prefix of the records. It cannot be an API group: the groups of custom resources contain a dot.
const PREFIX: &str = "/servers/";

/// A record with the revision of its last write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRecord {
    /// Name; a path.
    pub name: String,
    /// Contents.
    pub value: Bytes,
    /// Revision of the last write.
    pub revision: Revision,
}

impl Registry {
    /// Reads a record.
    ///
    /// # Errors
    /// Fails like [`crate::storage::Storage::get`].
    pub fn server_record(&self, name: &str) -> Result<Option<ServerRecord>, StorageError> {
        let found = self.storage.get(&key(name), None)?.item;
        let record = |item: crate::storage::KeyValue| ServerRecord {
            name: name.to_owned(),
            value: item.value,
            revision: item.mod_revision,
        };
        Ok(found.map(record))
    }

    /// Reads all records whose names begin with a path.
    ///
    /// # Errors
    /// Fails like [`crate::storage::Storage::range`].
    pub fn server_records(&self, path: &str) -> Result<Vec<ServerRecord>, StorageError> {
        let found = self.storage.range(&key(path), &RangeOptions::default())?;
        let record = |item: crate::storage::KeyValue| {
            let name = item.key.strip_prefix(PREFIX)?.to_owned();
            Some(ServerRecord { name, value: item.value, revision: item.mod_revision })
        };
        Ok(found.items.into_iter().filter_map(record).collect())
    }

    /// Writes or removes a record if its last write still has this revision (0: if it does not exist). Returns the revision of the
    /// write; `None` if another server was faster, in which case nothing was written.
    ///
    /// # Errors
    /// Fails like [`crate::storage::Storage::commit`].
    pub fn write_server_record(
        &self,
        name: &str,
        value: Option<Bytes>,
        previous: Revision,
    ) -> Result<Option<Revision>, StorageError> {
        let key = key(name);
        let write = match value {
            Some(value) => Write::Put(Key::clone(&key), value),
            None => Write::Delete(Key::clone(&key)),
        };
        let conditions = vec![Condition { key, mod_revision: previous }];
        match self.storage.commit(Transaction { conditions, writes: vec![write] })? {
            Committed::Done(revision) => Ok(Some(revision)),
            Committed::Conflict(_) => Ok(None),
        }
    }
}

/// Reports whether a key belongs to a record.
pub(crate) fn is_record(key: &str) -> bool {
    key.starts_with(PREFIX)
}

fn key(name: &str) -> Key {
    format!("{PREFIX}{name}").into()
}
