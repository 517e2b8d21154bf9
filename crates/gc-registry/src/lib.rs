//! What a Kubernetes API server does with an object: validation, conflicts, finalizers, graceful deletion,
//! patches, selectors, watch windows and custom resources, over the small [`storage::Storage`] trait.
//!
//! Synchronous and deterministic: no clock, no runtime, no randomness of its own. Time and entropy come with
//! each request ([`api::RequestContext`]).

pub mod api;
pub mod catalog;
pub mod crd;
pub mod error;
pub mod kinds;
pub mod object;
pub mod openapi;
pub mod patch;
mod registry;
pub mod resource;
pub mod schema;
pub mod storage;
pub mod watch;

pub use registry::{Config, Registry};
