//! The commands, one per file: options, the call, and the output.

mod agreement;
pub(crate) mod apiserver;
pub(crate) mod backup;
pub(crate) mod complete;
pub(crate) mod completion;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod envtest;
pub(crate) mod garbage;
pub(crate) mod journal;
pub(crate) mod man;
pub(crate) mod mcp;
#[cfg(not(unix))]
pub(crate) mod no_node;
#[cfg(unix)]
pub(crate) mod node;
#[cfg(not(unix))]
pub(crate) use no_node as node;
mod orders;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod protect;
pub(crate) mod rbac;
pub(crate) mod recorder;
pub(crate) mod reference;
pub(crate) mod release;
pub(crate) mod relink;
pub(crate) mod restore;
pub(crate) mod resume;
pub(crate) mod run;
mod scope;
pub(crate) mod stuck;
pub(crate) mod top;
pub(crate) mod tree;
pub(crate) mod ui;
pub(crate) mod undo;
pub(crate) mod up;
pub(crate) mod version;
pub(crate) mod why;

/// Something could not be done, as the output already says: exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("not everything could be done")]
pub(crate) struct Incomplete;

/// The user declined the change: exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("nothing was changed")]
pub(crate) struct NotAgreed;

/// Part of a deletion is, or would be, refused or stuck: exit code 3.
#[derive(Debug, thiserror::Error)]
#[error("part of the deletion would be refused or get stuck")]
pub(crate) struct PlanWouldGetStuck;
