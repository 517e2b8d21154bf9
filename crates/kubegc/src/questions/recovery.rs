//! Getting back what was deleted: the recorder keeps last states, `undo` creates them again, `relink` mends references after a
//! restore. What is done is decided in `gc_explain::{undo, relink}`; here it is read, shown and performed.

mod backups;
mod bucket;
mod changes;
pub(crate) mod policy;
mod prepare;
pub(crate) mod recorder;
mod records;
pub(crate) mod relink;
mod seal;
mod store;
#[cfg(test)]
mod tests;
pub(crate) mod undo;
mod velero;

/// Not everything could be done, and the output says what: exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("not everything could be done")]
pub(crate) struct Incomplete;
