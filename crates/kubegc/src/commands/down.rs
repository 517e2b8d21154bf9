//! `kubegc down`: stops the server that `kubegc up --detach` started.

pub(crate) use gc_process::background::{DownOptions, down as run};
