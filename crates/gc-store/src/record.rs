//! The versions of one key in the multi-version map.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use gc_store_api::{Key, KeyValue, Revision};

/// One key with a version in memory. A record without a current value is kept as long as it has older ones.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) current: Option<Version>,
    /// Superseded versions, oldest first; boxed because most keys have none. They are forgotten from the front: the versions of a Lease
    /// would all move with each write.
    #[allow(clippy::box_collection)]
    pub(crate) older: Option<Box<VecDeque<SupersededVersion>>>,
}

#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) value: Bytes,
    create_revision: MarkedRevision,
    pub(crate) mod_revision: Revision,
}

/// A version, and the revision of the change that replaced it.
#[derive(Debug)]
pub(crate) struct SupersededVersion {
    pub(crate) version: Version,
    pub(crate) until: Revision,
}

/// The only version of a key, whose value is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnDisk {
    pub(crate) create_revision: Revision,
    pub(crate) mod_revision: Revision,
}

impl OnDisk {
    /// Returns the item without its value.
    pub(crate) fn to_unread(self, key: &Key) -> KeyValue {
        KeyValue {
            key: Arc::clone(key),
            value: Bytes::new(),
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
        }
    }
}

/// A revision, and in its highest bit, which no revision reaches, whether the value was read. A field of its own would enlarge the
/// record of every key.
#[derive(Debug)]
struct MarkedRevision(AtomicU64);

impl MarkedRevision {
    const MARK: u64 = 1 << 63;

    fn revision(&self) -> Revision {
        Revision(self.0.load(Ordering::Relaxed) & !Self::MARK)
    }

    fn mark(&self) {
        // Most reads find the mark, and then leave the cache line to other readers.
        if self.0.load(Ordering::Relaxed) & Self::MARK == 0 {
            self.0.fetch_or(Self::MARK, Ordering::Relaxed);
        }
    }

    fn take_mark(&self) -> bool {
        self.0.fetch_and(!Self::MARK, Ordering::Relaxed) & Self::MARK != 0
    }
}

impl Version {
    pub(crate) fn new(item: KeyValue) -> Self {
        Self {
            value: item.value,
            create_revision: MarkedRevision(AtomicU64::new(item.create_revision.0)),
            mod_revision: item.mod_revision,
        }
    }

    pub(crate) fn to_key_value(&self, key: &Key) -> KeyValue {
        KeyValue {
            key: Arc::clone(key),
            value: self.value.clone(),
            create_revision: self.create_revision.revision(),
            mod_revision: self.mod_revision,
        }
    }

    pub(crate) fn to_on_disk(&self) -> OnDisk {
        OnDisk { create_revision: self.create_revision.revision(), mod_revision: self.mod_revision }
    }

    /// Records that the value was read.
    pub(crate) fn mark(&self) {
        self.create_revision.mark();
    }

    /// Reports whether the value was read since the last call.
    pub(crate) fn take_mark(&self) -> bool {
        self.create_revision.take_mark()
    }
}

impl Record {
    pub(crate) fn of(item: KeyValue) -> Self {
        Self { current: Some(Version::new(item)), older: None }
    }

    pub(crate) fn at(&self, at: Revision) -> Option<&Version> {
        if let Some(current) = self.current.as_ref().filter(|current| current.mod_revision <= at) {
            return Some(current);
        }
        let older = self.older.as_deref()?;
        // Versions do not overlap: the first one that ends after `at` is the only candidate.
        let candidate = older.get(older.partition_point(|one| one.until <= at))?;
        (candidate.version.mod_revision <= at).then_some(&candidate.version)
    }
}
