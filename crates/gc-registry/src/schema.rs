//! Schemas of built-in and custom resources, and operations on documents that use them: finding and dropping unknown fields,
//! checking types, pruning, defaulting.

mod builtin;
mod check;
pub(crate) mod declared;
mod depth;
mod descriptions;
mod facts;
mod fields;
mod kinds;
mod order;
pub(crate) mod reviews;
pub(crate) mod rules;
mod scheme;
pub(crate) mod shown;
mod step;
mod types;
mod zero;

pub use builtin::builtin;
pub(crate) use builtin::{definition_name, definition_named, kinds};
pub(crate) use check::{base64_offset, restore, without_line_breaks};
pub use check::{check_types, json_type};
pub use depth::{MAX_DEPTH, depth};
pub(crate) use descriptions::{Fields, description, descriptions};
pub(crate) use fields::drop_off;
pub use fields::{
    MAX_DEFAULTED_BYTES, apply_defaults, apply_defaults_beside_nulls, delete_options, object_meta, prune,
    unknown_fields,
};
pub use order::{YAML_PROBLEMS, strict_problems};
pub(crate) use scheme::problem_of_other_kind;
pub(crate) use step::Step;
pub use types::{
    GoType, IntegerFormat, List, ListType, MapNode, Node, Object, Ownership, PatchStrategy, Property, Schema,
    SchemaRef, StringFormat, Validations,
};
pub use zero::{Empties, normalize};
pub(crate) use zero::{is_metadata_of_template, is_refused_when_empty};
