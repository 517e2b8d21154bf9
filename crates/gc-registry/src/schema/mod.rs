//! Schemas of built-in and custom resources, and what can be done to a document with one: finding and
//! dropping unknown fields, checking types, pruning, defaulting.

mod builtin;
mod check;
mod depth;
mod facts;
mod fields;
mod kinds;
mod types;

pub use builtin::builtin;
pub use check::{check_types, json_type};
pub use depth::{MAX_DEPTH, depth};
pub use fields::{apply_defaults, drop_unknown, object_meta, prune, unknown_fields};
pub use types::{
    IntegerFormat, List, ListType, MapNode, Node, Object, Ownership, PatchStrategy, Property, Schema,
    SchemaRef, StringFormat, Validations,
};
