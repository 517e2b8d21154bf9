//! The operations of the API, one per file.

pub(crate) mod components;
pub(crate) mod create;
pub(crate) mod delete_collection;
pub mod deletion;
pub(crate) mod eviction;
pub(crate) mod filter;
pub(crate) mod handle;
pub(crate) mod list;
pub(crate) mod managed;
pub(crate) mod meta_validation;
pub(crate) mod pages;
pub(crate) mod subresources;
pub(crate) mod update;
pub mod watch;
