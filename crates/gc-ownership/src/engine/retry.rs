//! Retries: per item with exponential backoff, over all items at a shared rate (1.6), deterministic.

use std::sync::Arc;

use gc_types::Timestamp;

use super::{Engine, Timer};
use crate::graph::NodeId;

/// The failures of an item.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    pub(crate) failures: u32,
    /// Consecutive conflicts over unchanged references.
    pub(crate) conflicts: u32,
    pub(crate) due: Timestamp,
    /// The server's last message.
    pub(crate) message: Arc<str>,
}

/// `first` doubled with each failure after the first, up to `longest`.
pub(super) fn backoff(first: i64, longest: i64, failures: u32) -> i64 {
    let doublings = failures.saturating_sub(1).min(40);
    first.saturating_mul(1 << doublings).min(longest)
}

impl Engine {
    /// Delays an item after a failure.
    pub(super) fn retry(&mut self, item: NodeId, message: &str, retry_after: Option<u64>) {
        let shared = self.shared_delay();
        let retry = self.retry_mut(item);
        retry.failures = retry.failures.saturating_add(1);
        retry.message = message.into();
        let failures = retry.failures;
        let own =
            backoff(self.config.retry_first_milliseconds, self.config.retry_longest_milliseconds, failures);
        let asked = retry_after.and_then(|wait| i64::try_from(wait).ok()).unwrap_or(0);
        let delay = own.max(shared).max(asked.min(self.config.retry_longest_milliseconds));
        self.counters.retries += 1;
        self.put_off(item, delay);
    }

    pub(super) fn retry_mut(&mut self, item: NodeId) -> &mut Retry {
        let due = self.now;
        let message = || Arc::from("conflict");
        self.retries.entry(item).or_insert_with(|| Retry {
            failures: 0,
            conflicts: 0,
            due,
            message: message(),
        })
    }

    /// Schedules the next turn of an item after a delay in milliseconds, replacing an earlier schedule.
    pub(super) fn put_off(&mut self, item: NodeId, delay: i64) {
        let due = self.now.after(delay);
        let former = std::mem::replace(&mut self.retry_mut(item).due, due);
        self.timers.remove(&(former, Timer::Item(item)));
        self.timers.insert((due, Timer::Item(item)));
    }

    /// Earlier failures do not matter any more.
    pub(super) fn forget_retry(&mut self, item: NodeId) {
        self.held_back.remove(&item);
        if let Some(retry) = self.retries.remove(&item) {
            self.timers.remove(&(retry.due, Timer::Item(item)));
        }
    }

    /// The object changed: whatever failed may work now.
    pub(super) fn retry_now(&mut self, item: NodeId) {
        let now = self.now;
        self.held_back.remove(&item);
        if let Some(retry) = self.retries.get_mut(&item) {
            retry.conflicts = 0;
            let former = std::mem::replace(&mut retry.due, now);
            self.timers.remove(&(former, Timer::Item(item)));
        }
    }

    /// The delay by the shared retry rate.
    fn shared_delay(&mut self) -> i64 {
        let interval = self.config.retry_interval_milliseconds;
        let burst = interval.saturating_mul(self.config.retry_burst);
        let ahead = self.retry_reserved_until.max(self.now.0).saturating_add(interval);
        let delay = ahead.saturating_sub(burst).saturating_sub(self.now.0).max(0);
        if delay >= self.config.retry_shared_longest_milliseconds {
            // The backlog is at its bound; reserving more would only lengthen it.
            return self.config.retry_shared_longest_milliseconds;
        }
        self.retry_reserved_until = ahead;
        delay
    }
}
