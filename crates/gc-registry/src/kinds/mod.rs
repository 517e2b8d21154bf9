//! Everything that depends on a built-in kind: defaults, what a create or an update may touch, validation,
//! warnings, field selectors, scale, conversion between versions, and table cells.
//!
//! All functions are total: an object of any shape comes out without a panic, and what a function does not know
//! (custom resources, kinds without rules of their own) it leaves as it is.

mod access;
pub mod convert;
mod cron;
mod defaults;
mod fields;
pub mod printers;
pub mod quantity;
pub mod scale;
mod strategy;
mod validation;

pub use defaults::apply_defaults;
pub use fields::{selectable_field_names, selectable_fields};
pub use printers::{Column, cells, columns, human_duration, row_conditions};
pub use strategy::{
    Context, has_generation, prepare_for_create, prepare_for_update, service_address, warnings,
};
pub use validation::{validate, validate_update};
