//! Storage for the registry: [`MemoryStorage`] for tests and throw-away servers.
//!
//! All stores pass one shared test suite (`tests/suite`): whatever the registry sees of one, it sees of the others.

mod hub;
mod memory;
mod mvcc;

pub use memory::{MemoryOptions, MemoryStorage, WATCH_LAG};
pub use mvcc::{HistoryOptions, VALUE_LIMIT};
