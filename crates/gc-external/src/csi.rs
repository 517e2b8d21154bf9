//! Client of CSI drivers: deletes and lists volumes over the driver's Unix socket.
//!
//! Before each deletion the driver is asked for its name and capabilities, so that nothing is deleted at a socket on which another
//! driver listens. Every call has a timeout, and every answer a maximum size.
//!
//! Follows spec `cluster-collectors.md`, section 9, and the Container Storage Interface v1.

pub(crate) mod client;
mod endpoint;
mod error;
pub(crate) mod protocol;

pub use client::{CsiClient, DriverVolume, Options};
pub use endpoint::{DriverEndpoint, EndpointError};
pub use error::CsiError;
