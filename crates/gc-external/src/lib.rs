//! Adapters to systems outside Kubernetes: storage behind CSI drivers and in directories, machines at providers, and objects in S3.
//!
//! [`csi`] and [`cloud`] are clients; [`StorageOutside`] and [`MachinesOutside`] use them to execute the requests of collectors
//! ([`gc_kube::Outside`]). An answer that is late, too large or malformed is an error, never a fact.

pub mod cloud;
pub mod csi;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(unix)]
mod host_path;
mod machines;
#[cfg(not(unix))]
mod no_host_path;
pub mod post;
mod storage;

#[cfg(not(unix))]
use no_host_path as host_path;

pub use machines::MachinesOutside;
pub use storage::StorageOutside;
