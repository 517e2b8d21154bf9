//! A Kubernetes API server with all collectors and workload controllers in one process: the basis of `kubegc up`, `demo`, `envtest`
//! and the crate `kubegc-testing`.
//!
//! Start with [`embedded::EmbeddedCluster::start`] for a cluster in memory, or [`up::Up::start`] with a server's options.

pub mod accounts;
pub mod apiserver;
pub mod backup_pages;
pub mod clock;
pub mod console;
pub mod definitions;
pub mod embedded;
pub mod up;
pub mod workloads;
