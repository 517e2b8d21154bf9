//! Answers about garbage collection: what is stuck and why, what will be deleted and when, and what a deletion leads to.
//!
//! Everything here is a pure function of gathered data: a [`Survey`] holds the metadata of all objects (in the same ownership
//! engine that the collector uses), and [`Facts`] hold whole objects. An answer that needs an object which has not been gathered
//! yet records a [`Need`] and continues with what is known. The gatherer satisfies the needs and asks again until there are none.
//! An answer therefore costs only the requests that it needs.
//!
//! ```
//! use gc_explain::tree::{Direction, tree};
//! use gc_explain::{Catalog, Survey};
//! use gc_types::{ResourceId, Timestamp, Uid};
//!
//! // Aggregated discovery of a server that has ConfigMaps alone.
//! let core = br#"{"items": [{"versions": [{"version": "v1", "freshness": "Current", "resources": [{
//!     "resource": "configmaps", "responseKind": {"kind": "ConfigMap"}, "scope": "Namespaced",
//!     "verbs": ["list", "delete"]}]}]}]}"#;
//! let mut survey = Survey::new(Catalog::read(core, br#"{"items": []}"#).unwrap(), Timestamp(0));
//! for object in [
//!     r#"{"metadata": {"namespace": "n", "name": "owner", "uid": "1", "resourceVersion": "1"}}"#,
//!     r#"{"metadata": {"namespace": "n", "name": "part", "uid": "2", "resourceVersion": "2", "ownerReferences": [
//!         {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1"}]}}"#,
//! ] {
//!     survey.observe(ResourceId(0), serde_json::from_str(object).unwrap());
//! }
//! survey.complete();
//! let tree = tree(&survey, &Uid::new("1"), Direction::Dependents).unwrap();
//! assert_eq!(tree.below[0].view.name.as_ref() as &str, "part");
//! ```

mod admission;
mod backend;
pub mod catalog;
pub mod commands;
pub mod facts;
pub mod finalizers;
pub mod forecast;
pub mod garbage;
pub mod lint;
pub mod map;
pub mod messages;
pub mod nodes;
pub mod object;
pub mod plan;
pub mod protect;
pub mod release;
pub mod relink;
mod storage;
pub mod stuck;
pub mod survey;
pub mod text;
pub mod tree;
pub mod undo;
mod unread;
pub mod upcoming;
pub mod why;

pub use catalog::{Catalog, CatalogError, GroupResource, Resource};
pub use facts::{Facts, Knowledge, Need};
pub use object::Object;
pub use survey::{Metadata, Survey};
pub use unread::{UnlistedReason, Unread, UnreadCode, UnreadPlace};
