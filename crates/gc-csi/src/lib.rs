//! The client of CSI drivers: deletion of volumes, over the driver's Unix socket.
//!
//! A driver is asked who it is and what it can before each deletion, so that a socket behind which another driver
//! listens destroys nothing. Every call has a limit in time, every answer one in size.
//!
//! Follows spec `cluster-collectors.md`, section 9, and the Container Storage Interface v1.

mod client;
mod endpoint;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod protocol;

pub use client::{CsiClient, Options};
pub use endpoint::{DriverEndpoint, EndpointError};
pub use error::CsiError;
