//! Events on the Node object (spec `node-gc.md`, section 17.1).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use gc_kube::ApiClient;
use http::Method;
use serde_json::json;
use tracing::{debug, warn};

use crate::clock::now;
use crate::requests::{JSON, MERGE_PATCH, send};

/// Namespace of Events on a Node, which itself has none.
const NAMESPACE: &str = "default";
/// Minimum time between two Events with the same reason; occurrences in between raise the count.
const QUIET: Duration = Duration::from_mins(5);
/// Length limit of a message; lists of thousands do not belong in Events.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Reason of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventReason {
    /// A container pass failed.
    ContainerGCFailed,
    /// A second image pass in a row failed.
    ImageGCFailed,
    /// The capacity of an image filesystem is reported as zero.
    InvalidDiskCapacity,
    /// Too little could be freed.
    FreeDiskSpaceFailed,
    /// A disk signal fired.
    EvictionThresholdMet,
}

/// Writes Events; there is one object for each reason, whose count increases when it is reported again.
pub(crate) struct NodeEvents {
    target: Option<(ApiClient, String)>,
    /// Name and count of the Event of each reason (there are five).
    written: BTreeMap<EventReason, (String, u32)>,
    /// Time of the last report of each reason, and the number of occurrences since.
    reported: BTreeMap<EventReason, (Instant, u32)>,
}

impl NodeEvents {
    /// Creates the writer. Without a server, Events are only logged.
    #[must_use]
    pub(crate) fn new(target: Option<(ApiClient, String)>) -> Self {
        Self { target, written: BTreeMap::new(), reported: BTreeMap::new() }
    }

    /// Logs a warning and writes an Event if the server accepts it, at most once every [`QUIET`].
    pub(crate) async fn warn(&mut self, what: EventReason, message: &str) {
        let Some(times) = self.due(what, Instant::now()) else {
            debug!(reason = ?what, "{message}");
            return;
        };
        warn!(reason = ?what, "{message}");
        let Some((client, node)) = self.target.clone() else { return };
        if let Err(error) = self.write(&client, &node, what, message, times).await {
            debug!(reason = ?what, "the event was not written: {error:#}");
        }
    }

    /// Reports whether this reason was reported at all.
    #[cfg(test)]
    pub(crate) fn has_reported(&self, what: EventReason) -> bool {
        self.reported.contains_key(&what)
    }

    /// Returns the number of occurrences since the last report if the next one is due.
    fn due(&mut self, what: EventReason, now: Instant) -> Option<u32> {
        match self.reported.get_mut(&what) {
            Some((last, since)) if now.duration_since(*last) < QUIET => {
                *since += 1;
                None
            }
            Some((last, since)) => {
                *last = now;
                Some(1 + std::mem::take(since))
            }
            None => {
                self.reported.insert(what, (now, 0));
                Some(1)
            }
        }
    }

    async fn write(
        &mut self,
        client: &ApiClient,
        node: &str,
        what: EventReason,
        message: &str,
        times: u32,
    ) -> Result<()> {
        let mut end = message.len().min(MAX_MESSAGE_BYTES);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        let (message, moment) =
            (&message[..end], jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        if let Some((name, count)) = self.written.get(&what).cloned() {
            let patch = json!({"count": count + times, "lastTimestamp": moment, "message": message});
            let path = format!("/api/v1/namespaces/{NAMESPACE}/events/{name}");
            if send(client, Method::PATCH, &path, MERGE_PATCH, &patch).await.is_ok() {
                self.written.insert(what, (name, count + times));
                return Ok(());
            }
            // The Event has expired and must be created again.
            self.written.remove(&what);
        }
        let name = format!("{node}.{:x}", now().0);
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": NAMESPACE},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node},
            "reason": format!("{what:?}"), "message": message, "type": "Warning", "count": times,
            "firstTimestamp": moment, "lastTimestamp": moment,
            "source": {"component": "kubegc", "host": node}, "reportingComponent": "kubegc", "reportingInstance": node,
        });
        send(client, Method::POST, &format!("/api/v1/namespaces/{NAMESPACE}/events"), JSON, &event).await?;
        self.written.insert(what, (name, times));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T180: a reason is reported once and then not for a while, and the count is kept.
    #[test]
    fn the_same_reason_is_reported_rarely() {
        let mut events = NodeEvents::new(None);
        let start = Instant::now();
        let mut at = |seconds, what| events.due(what, start + Duration::from_secs(seconds));
        assert_eq!(at(0, EventReason::FreeDiskSpaceFailed), Some(1));
        assert_eq!(at(10, EventReason::FreeDiskSpaceFailed), None);
        assert_eq!(at(20, EventReason::EvictionThresholdMet), Some(1));
        assert_eq!(at(299, EventReason::FreeDiskSpaceFailed), None);
        assert_eq!(at(300, EventReason::FreeDiskSpaceFailed), Some(3));
        assert_eq!(at(301, EventReason::FreeDiskSpaceFailed), None);
    }
}
