//! The stop signal, for everything that lasts until the server ends.

use futures::future::{BoxFuture, Shared};

/// Resolves when the server stops.
pub(crate) type Stop = Shared<BoxFuture<'static, ()>>;
