//! Flags and start time, as shown to clients.

use std::collections::BTreeMap;
use std::time::Instant;

/// Contents of `/flagz` and `/statusz`.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The flags, by name.
    pub(crate) flags: BTreeMap<String, String>,
    /// Time of the start.
    pub(crate) started: jiff::Timestamp,
    /// Start by the monotonic clock.
    pub(crate) running: Instant,
}

impl Facts {
    /// Records the current time as the start.
    pub(crate) fn new(flags: BTreeMap<String, String>) -> Self {
        Self { flags, started: jiff::Timestamp::now(), running: Instant::now() }
    }

    /// Returns the start time in seconds.
    pub(crate) fn started_seconds(&self) -> i64 {
        self.started.as_second()
    }
}
