//! Recovery of deleted objects: the recorder keeps their last states, an undo recreates them, and a relink restores owner
//! references after a restore. Also contains backups of embedded servers. The decisions are made in `gc_explain::{undo, relink}`;
//! this crate reads and executes.
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
