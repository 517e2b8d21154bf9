//! The console: a page in the browser ([`page`]) and a view on the terminal ([`top`]) of what is stuck, deleted and due. Both show
//! one model, and the terminal uses the API of the page.
//!
//! Start with [`page::Page::answer`] and [`top::show`].

#[cfg(not(unix))]
pub mod no_top;
pub mod page;
#[cfg(unix)]
pub mod top;
#[cfg(not(unix))]
pub use no_top as top;
