//! The end of the server, for whatever lasts until then.

use futures::future::{BoxFuture, Shared};

/// Resolves when the server stops.
pub(crate) type Stop = Shared<BoxFuture<'static, ()>>;
