//! What a Kubernetes API server does with an object: validation, conflicts, finalizers, graceful deletion,
//! patches, selectors, watch windows and custom resources, over the small [`storage::Storage`] trait.
//!
//! Synchronous and deterministic: no clock, no runtime, no randomness of its own. Time and entropy come with
//! each request ([`api::RequestContext`]).

pub mod admission;
pub mod api;
pub mod bootstrap;
mod call;
mod capabilities;
pub mod catalog;
mod convert;
pub mod crd;
mod create;
mod definitions;
mod delete_collection;
pub mod deletion;
pub mod error;
mod eviction;
mod filter;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod hub;
pub mod kinds;
mod list;
mod maintain;
mod managed;
mod meta;
mod meta_validation;
pub mod names;
pub mod object;
pub mod openapi;
pub mod patch;
mod persist;
mod registry;
pub mod resource;
mod rules;
pub mod schema;
pub mod selector;
pub mod storage;
mod subresources;
mod update;
pub mod watch;

pub use registry::{Config, Registry};
