//! Schemas of built-in and custom resources, and what can be done to a document with one: finding and
//! dropping unknown fields, checking types, pruning, defaulting.

mod builtin;
mod depth;
mod facts;
mod kinds;
mod types;

pub use builtin::builtin;
pub use depth::{MAX_DEPTH, depth};
pub use types::{
    IntegerFormat, List, ListType, MapNode, Node, Object, Ownership, PatchStrategy, Property, Schema,
    SchemaRef, StringFormat, Validations,
};
