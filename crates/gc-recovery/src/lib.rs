//! Recovery of what was deleted: the recorder keeps the last states of deleted objects, an undo creates them again, and a relink
//! restores references to owners after a restore. Backups of embedded servers are here, too. What is to be done is decided in
//! `gc_explain::{undo, relink}`; here it is read and performed.
//!
//! Start with [`recorder::record`], [`undo::ask`] and [`relink::plan`].

pub mod backup;
mod backups;
mod bucket;
mod changes;
pub mod heartbeat;
pub mod policy;
pub mod prepare;
pub mod recorder;
pub mod records;
pub mod relink;
pub mod seal;
pub mod signing;
pub mod status;
mod store;
#[cfg(test)]
mod tests;
pub mod undo;
mod velero;
