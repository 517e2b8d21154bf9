//! The agent that collects images and containers on a node: it lists the runtime's content over CRI (`gc-cri`), asks
//! `gc-collectors` for decisions, and performs the removals. If pods come from an API server, it reads them through `gc-kube`.
//!
//! [`Agent`] answers queries without changing anything. [`Agent::alone`] makes it the only collector of its runtime; the resulting
//! [`SoleAgent`] removes, once or until it is asked to stop. The surrounding program passes the settings ([`NodeConfig`]) and shows
//! the results.
//!
//! Follows spec `node-gc.md`.

mod agent;
mod below;
mod clock;
mod config;
mod containers;
mod events;
mod filesystem;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod health;
mod images;
mod journal;
mod metrics;
mod parallel;
mod peers;
mod pods;
mod policies;
mod progress;
mod reports;
mod requests;
mod state;
mod stops;
mod storage;
mod stores;
mod uses;
mod workloads;

#[cfg(test)]
#[path = "../../gc-cri/tests/support/fake.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used, reason = "shared with other tests")]
mod fake;
#[cfg(test)]
#[path = "../../gc-cri/tests/support/grpc.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used, reason = "shared with other tests")]
mod grpc;
#[cfg(test)]
#[path = "../../gc-cri/tests/support/messages.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with other tests")]
mod messages;

pub use agent::{
    Agent, Collect, ContainerView, DiskUse, ImagePreview, ImageView, LeftoverPreview, Locks, Pass, Preview,
    SoleAgent, keep_message,
};
pub use below::{Cause, DiskAccount};
pub use clock::{Stop, TestClock};
pub use config::{ALWAYS_PROTECTED_IMAGES, CheckpointPolicy, NodeConfig};
pub use health::Health;
pub use journal::RecordRemoval;
pub use metrics::Metrics;
pub use pods::{PodSource, Pods};
pub use policies::CheckKubelet;
pub use progress::Progress;
pub use reports::ReportTarget;
