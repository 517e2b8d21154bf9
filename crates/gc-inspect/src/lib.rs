//! Reads a server for the answers of `gc-explain`: what is stuck and why, and everything that other questions need. Every request
//! is a GET, or asks for the user's own rights.
//!
//! Start with [`gather::Gatherer`]; [`stuck::stuck_in`] is a whole question.

pub mod columns;
pub mod gather;
pub mod listable;
pub mod resident;
pub mod stuck;
pub mod unanswered;
