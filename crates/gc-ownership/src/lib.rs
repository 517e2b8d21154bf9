//! The ownership graph, and the cascade engine over it.
//!
//! The engine is a synchronous, deterministic function of its events: it has no clock, does no I/O and iterates over nothing in
//! hash order. An adapter passes events ([`Engine::handle`]), performs the requested effects ([`Engine::poll_effect`]), reports
//! their outcomes (`Event::Done`), and lets time pass (`Event::Tick`, at the latest at [`Engine::next_wakeup`]). Behaviour:
//! `spec/ownership-gc.md`.
//!
//! # Example
//!
//! A Deployment owns a ReplicaSet. The Deployment is deleted, and the engine requests the deletion of the ReplicaSet.
//! [`model::Model`] plays the API server.
//!
//! ```
//! use gc_ownership::model::Model;
//! use gc_ownership::{Config, Engine};
//! use gc_types::{
//!     Coordinates, DeletionState, Event, Gvr, ObjectKey, ObservedObject, OwnerReference, PropagationPolicy,
//!     Request, ResourceId, ResourceInfo, ResourceVersion, Scope, Uid,
//! };
//!
//! let object = |resource: u32, name: &str| ObservedObject {
//!     key: ObjectKey { resource: ResourceId(resource), namespace: "shop".into(), name: name.into() },
//!     uid: Uid::new(name),
//!     resource_version: ResourceVersion::UNKNOWN, // the model assigns it
//!     owners: [].into_iter().collect(),
//!     deletion: DeletionState::default(),
//!     recreator: None,
//! };
//! let deployment = object(0, "web");
//! let mut replica_set = object(1, "web-1");
//! replica_set.owners.push(OwnerReference {
//!     coordinates: Coordinates {
//!         api_version: "apps/v1".into(),
//!         kind: "Deployment".into(),
//!         name: "web".into(),
//!         uid: deployment.uid.clone(),
//!     },
//!     controller: Some(true),
//!     block_owner_deletion: Some(true),
//! });
//!
//! let mut server = Model::new();
//! let mut engine = Engine::new(Config::default());
//! let key = deployment.key.clone();
//! // Discovery, then a complete list of each resource.
//! for (id, kind, resource) in [(0, "Deployment", "deployments"), (1, "ReplicaSet", "replicasets")] {
//!     engine.handle(Event::ResourceServed(ResourceInfo {
//!         id: ResourceId(id),
//!         gvr: Gvr { group: "apps".into(), version: "v1".into(), resource: resource.into() },
//!         kind: kind.into(),
//!         scope: Scope::Namespaced,
//!         served_api_versions: vec!["apps/v1".into()],
//!         watched: true,
//!         comparable_versions: true,
//!     }));
//! }
//! engine.handle(Event::Discovered);
//! for (id, object) in [(0, deployment), (1, replica_set)] {
//!     engine.handle(Event::ListStarted(ResourceId(id)));
//!     let listed = server.put(object);
//!     engine.handle(listed);
//!     engine.handle(Event::Synced { resource: ResourceId(id), resource_version: server.version() });
//! }
//! assert!(engine.poll_effect().is_none());
//!
//! // The Deployment is deleted in the background, and its watch reports the removal.
//! let removed = server.delete(&key, Some(PropagationPolicy::Background)).unwrap();
//! engine.handle(removed);
//!
//! // One event is not enough: the Deployment is read before its ReplicaSet is deleted. An adapter sends each request, and
//! // reports what was observed and the outcome.
//! let mut requests = Vec::new();
//! while let Some(effect) = engine.poll_effect() {
//!     let answer = server.answer(&effect.request);
//!     answer.events.into_iter().for_each(|event| engine.handle(event));
//!     engine.handle(Event::Done(effect.id, answer.outcome));
//!     requests.push(effect);
//! }
//! let [read, deletion] = &requests[..] else { panic!("{requests:?}") };
//! assert!(matches!(&read.request, Request::Read { key } if *key.name == *"web"));
//! assert!(matches!(&deletion.request, Request::Delete { key, .. } if *key.name == *"web-1"));
//! assert_eq!(deletion.reason.code(), "OwnersAbsent");
//! assert_eq!(server.objects().count(), 0);
//! ```

mod engine;
mod graph;
pub mod model;
mod queries;
mod shard;

pub use engine::{Config, Engine, Stats};
pub use queries::{
    BLOCKERS_LISTED, Conclusion, Contents, DEPTH_SHOWN, DumpEdge, DumpNode, GraphDump, Leaf, NodeView, Plan,
    PlanError, PlanStep, Presence, Progress, ReferenceState, Stage, StageEnd, Stray, StrayReference, Stuck,
    StuckCause, Why,
};
pub use shard::{Shard, ShardError};
