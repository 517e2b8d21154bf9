//! The facts that collectors of cluster objects keep of an object: a few fields, parsed from its JSON.
//!
//! Each kind of facts deserializes from a whole object and keeps only the fields that decisions need.

mod cache;
mod facts;
mod kind;
mod meta;

pub(crate) use cache::{Cache, drop_from};
pub use facts::{Facts, FactsError, FactsEvent, FactsPage};
pub use kind::{Kind, Selection};
pub use meta::Meta;
pub(crate) use meta::{HasMeta, WireCondition, WireMeta, parse_time, time_text};
