//! Answers about garbage collection: what is stuck and why, what will be deleted and when, what a deletion leads to.
//!
//! Everything here is a pure function of what was gathered: a [`Survey`] holds the metadata of everything (in
//! the same ownership engine that the collector decides by), [`Facts`] hold whole objects. An answer that
//! needs an object which was not gathered yet records a [`Need`] and continues with what is known; the
//! gatherer answers the needs and asks again, until nothing further is needed. So an answer costs the
//! requests that it needs, and no more.

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
pub mod nodes;
pub mod object;
pub mod plan;
pub mod relink;
mod storage;
pub mod stuck;
pub mod survey;
pub mod text;
pub mod tree;
pub mod undo;
pub mod upcoming;
pub mod why;

pub use catalog::{Catalog, CatalogError, GroupResource, Resource};
pub use facts::{Facts, Known, Need};
pub use object::Object;
pub use survey::{Metadata, Survey};
