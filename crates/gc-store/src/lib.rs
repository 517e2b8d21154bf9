//! Storage for the registry: [`MemoryStorage`] for tests and throw-away servers, [`RedbStorage`] for a server on one
//! machine, [`EtcdStorage`] for several that share one store.
//!
//! All stores pass one shared test suite (`tests/suite`): whatever the registry sees of one, it sees of the others.

mod core;
mod etcd;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hub;
mod memory;
mod mvcc;
mod redb;

pub use etcd::{ConnectError, EtcdOptions, EtcdStorage, EtcdTls};
pub use memory::{MemoryOptions, MemoryStorage, WATCH_LAG};
pub use mvcc::{HistoryOptions, VALUE_LIMIT};
pub use redb::{OpenError, RedbOptions, RedbStorage, RestoreError};
