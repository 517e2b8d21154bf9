//! Storage for the registry: [`MemoryStorage`] for tests and throw-away servers, [`RedbStorage`] for a server on one machine,
//! [`EtcdStorage`] for several servers that share one store.
//!
//! All stores pass the same test suite (`tests/suite`): the registry cannot tell them apart.
//!
//! # Example
//!
//! ```
//! use gc_store_api::{Committed, Condition, Revision, Storage as _, Transaction, Write};
//! use gc_store::{MemoryOptions, MemoryStorage};
//!
//! let store = MemoryStorage::new(MemoryOptions::default());
//! let create = Transaction {
//!     // Revision 0: the key must not exist yet.
//!     conditions: vec![Condition { key: "/pods/shop/web".into(), mod_revision: Revision(0) }],
//!     writes: vec![Write::Put("/pods/shop/web".into(), "{}".into())],
//! };
//! let Committed::Done(revision) = store.commit(create.clone())? else { panic!("the key exists") };
//! assert!(matches!(store.commit(create)?, Committed::Conflict(_)));
//! let answer = store.get("/pods/shop/web", Some(revision))?;
//! assert_eq!(answer.item.map(|item| item.mod_revision), Some(revision));
//! # Ok::<(), gc_store_api::StorageError>(())
//! ```

mod core;
mod etcd;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hub;
mod memory;
mod mvcc;
mod record;
mod redb;

pub use etcd::{ConnectError, EtcdOptions, EtcdStorage, EtcdTls};
pub use memory::{MemoryOptions, MemoryStorage, WATCH_LAG};
pub use mvcc::{CHANGE_BYTES, HistoryOptions, VALUE_LIMIT};
pub use redb::{OpenError, RedbOptions, RedbStorage, RestoreError};
