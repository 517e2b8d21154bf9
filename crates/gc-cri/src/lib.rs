//! The container-runtime client: CRI v1 over a Unix socket.
//!
//! Converts what a runtime lists into the types of `gc-collectors`, and planned removals into calls. Every call has a
//! timeout, every answer a maximum size; lists too long for one message are streamed if the runtime can, and
//! requested in parts if it cannot. A list is complete or an error: no decision is based on a part of one.
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
