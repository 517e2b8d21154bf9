//! Retries: exponential backoff per item, and a shared rate over all items (1.6), deterministic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::Timestamp;

use super::clock::{Clock, Timer};
use super::config::Config;
use crate::graph::NodeId;

/// Failures of an item.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    pub(crate) failures: u32,
    /// Number of consecutive conflicts with unchanged references.
    pub(super) conflicts: u32,
    due: Timestamp,
    /// Last message of the server.
    pub(crate) message: Arc<str>,
}

/// Returns `first` doubled with each failure after the first, up to `longest`.
pub(super) fn backoff(first: i64, longest: i64, failures: u32) -> i64 {
    let doublings = failures.saturating_sub(1).min(40);
    first.saturating_mul(1 << doublings).min(longest)
}

/// Items whose next turn is delayed. Each has at most one timer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retries {
    by_item: BTreeMap<NodeId, Retry>,
    /// Items that were withheld ([`gc_types::Outcome::Withheld`]), and are not reconciled before they change or are released.
    withheld: BTreeSet<NodeId>,
    /// Time until which the shared retry rate is reserved, milliseconds.
    reserved_until: i64,
    /// Number of scheduled retries.
    scheduled: u64,
}

impl Retries {
    pub(crate) fn get(&self, item: NodeId) -> Option<&Retry> {
        self.by_item.get(&item)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &Retry)> {
        self.by_item.iter().map(|(item, retry)| (*item, retry))
    }

    /// Reports whether an item has no turn before a later time.
    pub(super) fn delays(&self, item: NodeId, now: Timestamp) -> bool {
        self.get(item).is_some_and(|retry| retry.due > now)
    }

    /// Returns the items that are withheld.
    pub(super) fn withheld(&self) -> &BTreeSet<NodeId> {
        &self.withheld
    }

    /// Returns the number of items that have failures or are withheld.
    pub(super) fn len(&self) -> usize {
        self.by_item.len()
    }

    /// Returns the number of scheduled retries.
    pub(super) fn scheduled(&self) -> u64 {
        self.scheduled
    }

    /// Delays an item after a failure.
    pub(super) fn fail(
        &mut self,
        item: NodeId,
        message: &str,
        retry_after: Option<u64>,
        config: &Config,
        clock: &mut Clock,
    ) {
        let shared = self.shared_delay(config, clock.now());
        let retry = self.entry(item, clock.now());
        retry.failures = retry.failures.saturating_add(1);
        retry.message = message.into();
        let longest = config.retry_longest_milliseconds;
        let own = backoff(config.retry_first_milliseconds, longest, retry.failures);
        let asked = retry_after.and_then(|wait| i64::try_from(wait).ok()).unwrap_or(0);
        self.scheduled += 1;
        self.put_off(item, own.max(shared).max(asked.min(longest)), clock);
    }

    /// Records another conflict of an item with unchanged references.
    pub(super) fn conflict(&mut self, item: NodeId, now: Timestamp) {
        self.entry(item, now).conflicts += 1;
    }

    fn entry(&mut self, item: NodeId, now: Timestamp) -> &mut Retry {
        let new = || Retry { failures: 0, conflicts: 0, due: now, message: Arc::from("conflict") };
        self.by_item.entry(item).or_insert_with(new)
    }

    /// Schedules the next turn of an item after a delay in milliseconds, replacing an earlier schedule.
    pub(super) fn put_off(&mut self, item: NodeId, delay: i64, clock: &mut Clock) {
        let due = clock.now().after(delay);
        let former = std::mem::replace(&mut self.entry(item, clock.now()).due, due);
        clock.cancel(former, Timer::Item(item));
        clock.set(due, Timer::Item(item));
    }

    /// Withholds an item, for which nothing was sent, until it changes or is released.
    pub(super) fn hold(&mut self, item: NodeId, clock: &mut Clock) {
        let retry = self.entry(item, clock.now());
        retry.message = "withheld, until it is released".into();
        let former = std::mem::replace(&mut retry.due, Timestamp(i64::MAX));
        clock.cancel(former, Timer::Item(item));
        self.withheld.insert(item);
    }

    /// Forgets earlier failures, which no longer matter.
    pub(super) fn forget(&mut self, item: NodeId, clock: &mut Clock) {
        self.withheld.remove(&item);
        if let Some(retry) = self.by_item.remove(&item) {
            clock.cancel(retry.due, Timer::Item(item));
        }
    }

    /// Retries an object that has changed: whatever failed may work now.
    pub(super) fn retry_now(&mut self, item: NodeId, clock: &mut Clock) {
        self.withheld.remove(&item);
        if let Some(retry) = self.by_item.get_mut(&item) {
            retry.conflicts = 0;
            let former = std::mem::replace(&mut retry.due, clock.now());
            clock.cancel(former, Timer::Item(item));
        }
    }

    /// Returns the delay that the shared retry rate requires.
    fn shared_delay(&mut self, config: &Config, now: Timestamp) -> i64 {
        let interval = config.retry_interval_milliseconds;
        let burst = interval.saturating_mul(config.retry_burst);
        let ahead = self.reserved_until.max(now.0).saturating_add(interval);
        let delay = ahead.saturating_sub(burst).saturating_sub(now.0).max(0);
        if delay >= config.retry_shared_longest_milliseconds {
            // The backlog is at its bound; reserving more would only lengthen it.
            return config.retry_shared_longest_milliseconds;
        }
        self.reserved_until = ahead;
        delay
    }

    /// Returns every broken invariant, as text.
    pub(super) fn verify(&self) -> impl Iterator<Item = String> {
        let missing = self.withheld.iter().filter(|item| !self.by_item.contains_key(item));
        missing.map(|item| format!("node {item} is withheld and not in the table of what is put off"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first retries are free, then one starts in each interval, and none waits longer than the bound.
    #[test]
    fn retries_share_a_rate() {
        let config = Config {
            retry_interval_milliseconds: 10,
            retry_burst: 3,
            retry_shared_longest_milliseconds: 25,
            ..Config::default()
        };
        let mut retries = Retries::default();
        let delays: Vec<i64> = (0..7).map(|_| retries.shared_delay(&config, Timestamp(1_000))).collect();
        assert_eq!(delays, [0, 0, 0, 10, 20, 25, 25]);
        assert_eq!(retries.shared_delay(&config, Timestamp(1_030)), 0, "time passes");
    }
}
