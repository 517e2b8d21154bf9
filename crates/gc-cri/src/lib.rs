//! The container-runtime client: CRI v1 over a Unix socket.
//!
//! Turns what a runtime lists into the nouns of `gc-retention`, and planned removals into calls. Every call has a
//! limit in time, every answer one in size; lists too long for one message are streamed where the runtime can, and
//! asked for in parts where it cannot. A list is complete or an error: verdicts are never reached on a part of one.
//!
//! Follows spec `node-gc.md`, section 18.

mod client;
mod endpoint;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod listing;
mod protocol;

pub use client::{CallObserver, ContainerDetails, CriClient, Options, RuntimeVersion};
pub use endpoint::{Endpoint, EndpointError, WELL_KNOWN_SOCKETS};
pub use error::CriError;
pub use listing::{ContainerEvent, ContainerEventKind, ListedContainer, ListedImages, ManagedLabel, Names};
