//! The small storage trait that the registry is built on. `gc-store` implements it.
//!
//! A store is a multi-version map from [`Key`] to bytes with **one global revision**: every committed transaction takes the next
//! revision, and all of its writes carry that revision. Readers may read any revision that has not been compacted; watchers replay
//! every change after a revision.
//!
//! The trait is synchronous. In-process engines answer in microseconds; callers of a slow engine (etcd, an fsync) must call it from
//! a thread that may block. `Storage::blocks` tells them apart. This keeps async runtimes out of the registry, lets the simulator
//! call a store directly, and costs one thread hand-over where milliseconds are spent anyway. Only watching is polled with a
//! [`Context`], so ten thousand idle watches need no threads.
//!
//! ```
//! use gc_store_api::{Committed, Condition, Key, Storage, StorageError, Transaction, Write};
//!
//! /// Replaces a value unless it was written in the meantime; returns whether it was replaced.
//! fn replace(store: &dyn Storage, key: &Key, value: &'static [u8]) -> Result<bool, StorageError> {
//!     let Some(item) = store.get(key, None)?.item else { return Ok(false) };
//!     let committed = store.commit(Transaction {
//!         conditions: vec![Condition { key: key.clone(), mod_revision: item.mod_revision }],
//!         writes: vec![Write::Put(key.clone(), value.into())],
//!     })?;
//!     Ok(matches!(committed, Committed::Done(_)))
//! }
//! ```

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

/// A position in the history of the whole store. An empty store is at revision 1 (so that a list of it has a resource version to
/// watch from); the first write makes revision 2 or later; 0 means "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key: a path such as `/pods/default/web-1`. Ordered bytewise.
pub type Key = Arc<str>;

/// One stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// Key of the value.
    pub key: Key,
    /// The stored bytes.
    pub value: Bytes,
    /// Revision of the write that created this key (since it was last absent).
    pub create_revision: Revision,
    /// Revision of the last write.
    pub mod_revision: Revision,
}

/// Answer of [`Storage::get`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetAnswer {
    /// The value, if the key exists at that revision.
    pub item: Option<KeyValue>,
    /// The revision that was read (the newest one for a read without revision).
    pub revision: Revision,
}

/// Keeps a revision readable until the last clone is dropped. See [`Storage::hold`].
pub type Hold = Arc<dyn Any + Send + Sync>;

/// Part of a range to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeOptions {
    /// Read as of this revision; newest if absent.
    pub at: Option<Revision>,
    /// Start strictly after this key (for the next page); from the beginning if absent.
    pub after: Option<Key>,
    /// Maximum number of items; 0 means no limit.
    pub limit: usize,
    /// Skip the count of items beyond the limit, which would visit all of them. Of [`RangeAnswer::remaining`], only whether it is 0
    /// is then meaningful.
    pub skips_count: bool,
}

/// Answer of [`Storage::range`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeAnswer {
    /// The items, by key.
    pub items: Vec<KeyValue>,
    /// True if more items follow beyond the limit.
    pub more: bool,
    /// Number of items of the prefix beyond those returned (exact, counted at the same revision, unless
    /// [`RangeOptions::skips_count`]).
    pub remaining: u64,
    /// The revision that was read.
    pub revision: Revision,
}

/// Sizes and revisions of a store; `None` for those that the store does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Newest revision.
    pub newest: Revision,
    /// Oldest readable revision.
    pub oldest: Option<Revision>,
    /// Size of the store on its medium, in bytes.
    pub bytes: Option<u64>,
    /// Bytes of them in use; a defragmentation returns the rest.
    pub bytes_in_use: Option<u64>,
    /// Size of the present values in memory, in bytes.
    pub value_bytes_in_memory: Option<u64>,
    /// Size of the present values that are not in memory but read from disk, in bytes.
    pub value_bytes_on_disk: Option<u64>,
    /// Number of values that were read from disk.
    pub values_read: Option<u64>,
    /// True if the store refuses writes that would enlarge it.
    pub is_full: bool,
}

/// Condition for a transaction to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Key to check.
    pub key: Key,
    /// Required revision of its last write; `Revision(0)` requires the key to be absent.
    pub mod_revision: Revision,
}

/// Write of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Creates or replaces.
    Put(Key, Bytes),
    /// Removes; a no-op if absent.
    Delete(Key),
}

/// A compare-and-set transaction: all writes if all conditions hold, else none. No key is written twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Conditions that must hold.
    pub conditions: Vec<Condition>,
    /// Writes that are then performed.
    pub writes: Vec<Write>,
}

/// Result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// All writes are durable under this one revision.
    Done(Revision),
    /// A condition did not hold, and nothing was written. Contains the current state of the keys of all conditions.
    Conflict(Vec<Option<KeyValue>>),
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Revision of the transaction.
    pub revision: Revision,
    /// The key.
    pub key: Key,
    /// The new value; `None` if the key was removed.
    pub value: Option<Bytes>,
    /// The previous value with its revisions; `None` if the key was created.
    pub previous: Option<KeyValue>,
}

/// Item delivered by a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// A change under the prefix. Changes come in order of revision; those of one transaction in key order.
    Change(Change),
    /// Everything up to this revision has been delivered. A stream without pending items reports this once before it becomes
    /// pending, if the store has moved on since its last item. It is not woken for that, so idle watches cost nothing: a caller
    /// that wants to report progress to its client (a bookmark) polls when that is due.
    Progress(Revision),
}

/// A running watch. Dropping it ends it.
pub trait WatchStream: Send {
    /// Returns the next item. `Ready(Err)` ends the watch (`Compacted`, or `Lagged` if the consumer fell so far behind that the
    /// store dropped it); it must not be polled again.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchItem, StorageError>>;
}

/// Reason why an operation failed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum StorageError {
    /// The requested revision is older than the history kept.
    #[error("revision {requested} has been compacted; the oldest one kept is {oldest}")]
    Compacted {
        /// Requested revision.
        requested: Revision,
        /// Oldest available revision.
        oldest: Revision,
    },
    /// The requested revision does not exist yet.
    #[error("revision {requested} is in the future; the newest one is {newest}")]
    Future {
        /// Requested revision.
        requested: Revision,
        /// Newest available revision.
        newest: Revision,
    },
    /// A watcher fell too far behind and was dropped.
    #[error("the watch fell behind by more than {limit} changes and was closed")]
    Lagged {
        /// Exceeded bound.
        limit: usize,
    },
    /// A value is larger than the engine accepts.
    #[error("value of {size} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// Size of the value, in bytes.
        size: usize,
        /// Accepted size in bytes.
        limit: usize,
    },
    /// The medium is full. Nothing in the transaction was written.
    #[error("no space left on the storage device")]
    Full,
    /// The engine could not be reached or did not answer in time. It is unknown whether a write was performed.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
    /// The engine failed in a way that only an operator can repair.
    #[error("storage failed: {0}")]
    Broken(String),
}

/// A multi-version key-value store. See the module documentation.
pub trait Storage: Send + Sync + 'static {
    /// Reports whether calls may block for longer than a few microseconds, so that they belong on a blocking thread.
    fn blocks(&self) -> Blocking;

    /// Reports whether writes are expected to succeed. [`StorageError::Full`] means that only deletions, and changes that do not
    /// enlarge a value much, do. Returns within microseconds if reads do.
    fn health(&self) -> Result<(), StorageError> {
        self.revision().map(drop)
    }

    /// Returns sizes and revisions, for metrics. May take longer than a read.
    fn status(&self) -> Result<StoreStatus, StorageError> {
        Ok(StoreStatus { newest: self.revision()?, ..StoreStatus::default() })
    }

    /// Returns the newest revision.
    fn revision(&self) -> Result<Revision, StorageError>;

    /// Reads one key, at a revision or the newest.
    fn get(&self, key: &str, at: Option<Revision>) -> Result<GetAnswer, StorageError>;

    /// Reads all keys that start with `prefix`, in order.
    fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError>;

    /// Keeps a revision readable for as long as the returned value lives, within bounds: a client that slowly reads a long list
    /// must not force the store to keep all of its history. Returns `None` if the history is managed by others.
    fn hold(&self, _revision: Revision) -> Option<Hold> {
        None
    }

    /// Commits a transaction. When it returns `Done`, the writes survive a crash (if the engine is durable). A transaction that
    /// changes nothing takes no revision and returns the newest one.
    fn commit(&self, transaction: Transaction) -> Result<Committed, StorageError>;

    /// Watches every change under `prefix` with a revision greater than `after`, which must be readable: a compacted or future
    /// revision is refused.
    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn WatchStream>, StorageError>;

    /// Forgets history before `revision`: reads at an earlier revision, and watches after one, fail with `Compacted` from then on.
    /// A revision that is already forgotten is not an error; a future one is. Running watches are not disturbed.
    fn compact(&self, revision: Revision) -> Result<(), StorageError>;

    /// Ends the store before its process ends: an engine that leaves something to the next start writes it now, which may take
    /// seconds. Later calls may fail.
    fn close(&self) {}
}

/// Latency of a store's calls. See [`Storage::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// Every call returns within microseconds.
    Never,
    /// Reads return within microseconds; commits wait for a disk.
    OnCommit,
    /// Reads and commits may wait for a disk.
    OnDisk,
    /// Every call may wait for a network.
    Always,
}
