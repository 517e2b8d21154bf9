//! Adapters to systems outside Kubernetes: storage behind CSI drivers and in directories, machines at providers, and objects in S3.
//!
//! [`csi`] and [`cloud`] are clients; [`StorageOutside`] and [`MachinesOutside`] use them to execute the requests of collectors
//! ([`gc_kube::Outside`]). An answer that is late, too large or malformed is an error, never a fact.

pub mod cloud;
pub mod csi;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod host_path;
mod machines;
pub mod post;
mod storage;

pub use machines::MachinesOutside;
pub use storage::StorageOutside;
