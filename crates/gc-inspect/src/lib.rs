//! Reads a server, a graph, a journal or an audit log for the answers of `gc-explain`, and converts each answer to its forms
//! ([`output::Answer`]), which the command line prints and servers send. Every request is a GET or queries the user's own
//! permissions; only [`plan::send`] deletes, after a plan was shown.
//!
//! Start with [`gather::Gatherer`]; [`stuck::stuck_in`] is a complete example.

pub mod answering;
pub mod attached;
mod audit;
pub mod collector;
pub mod columns;
pub mod doctor;
pub mod examine;
pub mod formats;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod garbage;
pub mod garbage_metrics;
pub mod gather;
pub mod journal;
pub mod listable;
pub mod orphans;
pub mod output;
pub mod plan;
mod probe;
pub mod protect;
pub mod release;
mod removed_type;
mod repeated;
mod requester;
pub mod resident;
pub mod sources;
pub mod stuck;
pub mod stuck_metrics;
pub mod subject;
mod surveyed;
pub mod target;
pub mod tree;
pub mod unanswered;
pub mod view;
pub mod why;
