//! What a Kubernetes API server does with an object: validation, conflicts, finalizers, graceful deletion,
//! patches, selectors, watch windows and custom resources, over the small [`storage::Storage`] trait.
//!
//! Synchronous and deterministic: no clock, no runtime, no randomness of its own. Time and entropy come with
//! each request ([`api::RequestContext`]).

mod admission;
pub mod api;
mod bootstrap;
mod call;
pub mod catalog;
mod convert;
mod create;
mod definitions;
mod delete_collection;
pub mod deletion;
mod filter;
pub mod hub;
mod list;
mod maintain;
mod managed;
mod meta;
mod meta_validation;
pub mod names;
mod persist;
mod rules;
pub mod selector;
mod subresources;
mod update;
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
