//! All collectors except the one for owner references, one directory each: its entry in the table, its verdict and its tests. Pure:
//! a decision is a function of a snapshot, a policy and a time.
//!
//! The collectors of cluster objects ([`pods`], [`jobs`], [`certificates`], [`pod_certificates`], [`volumes`], [`nodes`],
//! [`leases`], [`lease_candidates`], [`tokens`], [`storage_versions`]) are [`engine::Collector`]s over the narrow facts of
//! [`objects`]; [`permissions`] lists what each of them may do.
//!
//! ```
//! use gc_collectors::engine::Decision;
//! use gc_collectors::jobs::{Job, verdict};
//! use gc_types::Timestamp;
//!
//! // A Job that has finished at midnight and may stay for an hour.
//! let job: Job = serde_json::from_str(
//!     r#"{
//!         "metadata": {"name": "report", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
//!         "spec": {"ttlSecondsAfterFinished": 3600},
//!         "status": {"conditions": [
//!             {"type": "Complete", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}
//!         ]}
//!     }"#,
//! )?;
//! assert_eq!(verdict(&job, Timestamp(1_000)), Decision::Later(Timestamp(3_600_000)));
//! assert!(matches!(verdict(&job, Timestamp(3_600_000)), Decision::Act(..)));
//! # Ok::<(), serde_json::Error>(())
//! ```

pub mod ages;
pub mod certificates;
pub mod collectors;
pub mod containers;
mod division;
pub mod engine;
mod entry;
pub mod expiry;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod images;
pub mod jobs;
pub mod lease_candidates;
pub mod leases;
pub mod measures;
pub mod namespaces;
pub mod node_policies;
pub mod node_report;
pub mod nodes;
mod numbers;
pub mod objects;
pub mod permissions;
pub mod pod_certificates;
pub mod pods;
pub mod policies;
pub mod pressure;
pub mod storage_versions;
pub mod tokens;
pub mod volumes;

pub(crate) use gc_types::FixedState;
