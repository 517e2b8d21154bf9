//! Parts that all kubegc processes share: the cluster's collectors with their restraints and observers, the journal, metrics,
//! operational pages, logging, and helpers for files and endpoints.
//!
//! Start with [`collectors::RunningCollectors::start`]. Commands are in the crate `kubegc`.

pub mod access;
pub mod activity;
pub mod admission;
pub mod audit_log;
#[cfg(unix)]
pub mod background;
#[cfg(not(unix))]
pub mod no_background;
#[cfg(not(unix))]
pub use no_background as background;
pub mod collector_metrics;
pub mod collectors;
pub mod endpoints;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod guard;
pub mod journal;
pub mod kubeconfig;
pub mod lease;
pub mod lines;
pub mod local;
pub mod logging;
pub mod notices;
pub mod operations;
pub mod outside;
pub mod preflight;
pub mod private_files;
pub mod reviews;
pub mod screen;
pub mod table;
pub mod tasks;
pub mod traces;
mod usage_error;
pub mod user_limits;
pub mod yaml;

pub use usage_error::UsageError;
