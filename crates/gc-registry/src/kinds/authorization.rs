//! Reviews of access, which are answered but not stored.

mod review;

pub use review::{ignored_selectors, review_errors};
