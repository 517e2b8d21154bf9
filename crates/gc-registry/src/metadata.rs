//! Object metadata and its forms: names, selectors, managed fields, and documents as Go writes them.

pub(crate) mod meta;
pub mod names;
pub mod numbers;
pub mod object;
pub mod ordered;
pub(crate) mod quantity;
pub mod selector;
pub(crate) mod validation;
