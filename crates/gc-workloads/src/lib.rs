//! Workload controllers, a scheduler and simulated nodes, as pure decisions.
//!
//! [`runtime::Runtime`] takes observations and returns requests; the driver sends them and passes back the responses. Each
//! controller is a function from the known state ([`plan::View`]) and an object's key to a [`plan::Plan`]. There is no clock and no
//! randomness: the time is passed with each call.
//!
//! ```
//! use gc_workloads::hash::pod_template_hash;
//! use serde_json::json;
//!
//! // What `pod-template-hash` is in the names and labels of ReplicaSets: the same for the same template, in any order.
//! let template = json!({"spec": {"containers": [{"name": "web", "image": "nginx"}]}});
//! let same = json!({"spec": {"containers": [{"image": "nginx", "name": "web"}]}});
//! assert_eq!(pod_template_hash(&template, None), pod_template_hash(&same, None));
//! assert_ne!(pod_template_hash(&template, None), pod_template_hash(&template, Some(1)));
//! ```

pub mod certificates;
mod claims;
pub mod cronjobs;
pub mod daemonsets;
pub mod deployments;
mod disruption;
pub mod events;
pub mod hash;
pub mod jobs;
pub mod kinds;
mod namespaces;
pub mod nodes;
pub mod object;
pub mod plan;
pub mod pods;
mod queue;
pub mod replicasets;
pub mod resources;
mod revisions;
pub mod runtime;
pub mod selector;
pub mod services;
pub mod statefulsets;
pub mod storage;
pub mod store;
#[cfg(test)]
mod testing;
pub mod time;
pub mod workloads;
