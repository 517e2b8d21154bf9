//! Client of container runtimes: CRI v1 over a Unix socket.
//!
//! Converts what a runtime lists into the types of `gc-collectors`, and planned removals into calls. Every call has a timeout, and
//! every answer a maximum size; lists too long for one message are streamed if the runtime supports it, and requested in parts if
//! not. A list is complete or an error: no decision is based on a part of one.
//!
//! containerd serves its own API at the same socket. [`CriClient::containerd_stores`] reads from it what CRI does not report.
//!
//! Follows spec `node-gc.md`, section 18.

mod client;
mod containerd;
mod endpoint;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod listing;
mod protocol;

pub use client::{CallObserver, ContainerDetails, CriClient, Options, RuntimeVersion};
pub use containerd::{ContainerdStores, SnapshotUsages, StoreRoots};
pub use endpoint::{Endpoint, EndpointError, WELL_KNOWN_SOCKETS};
pub use error::CriError;
pub use listing::{ContainerEvent, ContainerEventKind, ListedContainer, ListedImages, ManagedLabel, Names};
