//! Object semantics of a Kubernetes API server: validation, conflicts, finalizers, graceful deletion,
//! patches, selectors, watch windows and custom resources, over the small [`storage::Storage`] trait.
//!
//! Synchronous and deterministic: it has no clock, no runtime and no randomness of its own. Time and entropy come with each request
//! ([`api::RequestContext`]).
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
pub mod api;
pub mod bootstrap;
pub mod catalog;
mod conversion;
pub mod crd;
mod definitions;
pub mod error;
mod freshness;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod hub;
pub mod kinds;
pub mod kubernetes;
mod maintain;
mod metadata;
pub mod openapi;
pub mod patch;
mod persist;
mod registry;
pub mod resource;
pub mod schema;
mod target;
mod user;
mod verbs;
mod webhooks;

pub use definitions::CompiledDefinitions;
/// Interface of a store.
pub use gc_store_api as storage;
pub use kinds::x509;
pub use metadata::{names, numbers, object, ordered, selector};
pub use registry::{Config, Registry, advisor, deletion_observer, records, services};
pub use verbs::{deletion, watch};
