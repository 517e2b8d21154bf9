//! What a Kubernetes API server does with an object: validation, conflicts, finalizers, graceful deletion,
//! patches, selectors, watch windows and custom resources, over the small [`storage::Storage`] trait.
//!
//! Synchronous and deterministic: no clock, no runtime, no randomness of its own. Time and entropy come with
//! each request ([`api::RequestContext`]).
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use gc_registry::api::{
//!     Attributes, Authorizer, Operation, RequestBody, RequestContext, RequestTarget, UserInfo, WriteOptions,
//! };
//! use gc_registry::bootstrap::ServerFacts;
//! use gc_registry::{Config, Registry};
//! use gc_store::MemoryStorage;
//! use serde_json::json;
//!
//! struct AllowAll;
//!
//! impl Authorizer for AllowAll {
//!     fn allows(&self, _user: &UserInfo, _attributes: &Attributes<'_>) -> bool {
//!         true
//!     }
//! }
//!
//! let registry = Registry::open(Arc::new(MemoryStorage::default()), Config::default()).unwrap();
//! let numbers = AtomicU64::new(1);
//! let user = UserInfo { name: "jane".into(), ..UserInfo::default() };
//! let context = RequestContext {
//!     now: "2026-01-01T00:00:00Z".parse().unwrap(),
//!     user: &user,
//!     is_server: false,
//!     time_left: &|| std::time::Duration::MAX,
//!     entropy: &|| u128::from(numbers.fetch_add(1, Ordering::Relaxed)),
//!     authorizer: &AllowAll,
//!     user_agent_manager: "example",
//! };
//! // Namespaces, roles and other objects that every server has.
//! registry.bootstrap(&context, &ServerFacts::default()).unwrap();
//!
//! let catalog = registry.catalog();
//! let maps = RequestTarget::collection(catalog.find("", "v1", "configmaps").unwrap());
//! let target = RequestTarget { namespace: "default".into(), ..maps };
//! let object = json!({"metadata": {"name": "settings"}, "data": {"colour": "blue"}});
//! let body = RequestBody::from(object);
//! let created = registry.handle(&target, Operation::Create(body, WriteOptions::default()), &context).unwrap();
//! assert_eq!(created.code, 201);
//!
//! let target = RequestTarget { name: "settings".into(), ..target };
//! let read = registry.handle(&target, Operation::Get { resource_version: String::new() }, &context).unwrap();
//! assert_eq!(read.code, 200);
//! ```

pub mod admission;
pub mod advisor;
pub mod api;
pub mod bootstrap;
mod call;
mod capabilities;
pub mod catalog;
mod components;
mod conversion;
mod convert;
pub mod crd;
mod create;
mod definitions;
mod delete_collection;
pub mod deletion;
pub mod deletion_observer;
pub mod dynamic;
pub mod error;
mod eviction;
mod filter;
mod freshness;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod handle;
pub mod hub;
pub mod kinds;
mod list;
mod maintain;
mod managed;
mod meta;
mod meta_validation;
pub mod names;
pub mod numbers;
pub mod object;
pub mod openapi;
pub mod ordered;
pub mod patch;
mod persist;
mod registry;
pub mod resource;
mod rules;
pub mod schema;
pub mod selector;
pub mod services;
mod subresources;
mod target;
mod update;
mod user;
pub mod watch;
pub mod x509;

/// What a store is.
pub use gc_store_api as storage;
pub use registry::{Config, Registry};
