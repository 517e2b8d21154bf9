//! Settings and statistics of the engine.

use crate::shard::Shard;

/// Bounds and delays of the engine. The defaults are for production; tests and simulators shorten them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// False in a graph that answers questions: its objects were read singly, no watch delivers more of them, and observations need
    /// no second answer.
    pub awaits_lists: bool,
    /// Maximum number of effects in flight (returned and not yet `Done`).
    pub effects_in_flight: usize,
    /// Maximum wait at start for resources whose first list has not arrived, milliseconds.
    pub startup_wait_milliseconds: i64,
    /// Maximum wait of a finalizer's removal for a resource that cannot catch up, milliseconds.
    pub gap_wait_milliseconds: i64,
    /// Maximum wait of an owner that orphans its dependents for a resource that was withdrawn since it was marked, milliseconds.
    pub withdrawn_wait_milliseconds: i64,
    /// Time without a further owner that begins to wait, after which a barrier begins, so that one barrier serves all owners that
    /// are deleted together, milliseconds …
    pub barrier_quiet_milliseconds: i64,
    /// … and maximum time before it begins in any case, milliseconds.
    pub barrier_gathers_milliseconds: i64,
    /// Time for an unobserved owner to arrive on its watch before a live read, milliseconds.
    pub verify_patience_milliseconds: i64,
    /// First delay between two live reads of an owner that exists but does not arrive on a watch, milliseconds.
    pub poll_first_milliseconds: i64,
    /// Maximum delay between two such reads, milliseconds (L15).
    pub poll_longest_milliseconds: i64,
    /// First delay of a retry, milliseconds; it doubles with every failure of the same item.
    pub retry_first_milliseconds: i64,
    /// Maximum delay of a retry, milliseconds.
    pub retry_longest_milliseconds: i64,
    /// Retries over all items: burst …
    pub retry_burst: i64,
    /// … and interval after that, milliseconds (1.6).
    pub retry_interval_milliseconds: i64,
    /// Maximum delay that the shared rate adds to one retry, milliseconds.
    pub retry_shared_longest_milliseconds: i64,
    /// Number of proofs of absence that are remembered beyond the life of the graph's nodes (1.7).
    pub absent_owners: usize,
    /// Number of consecutive conflicts with unchanged references after which a DELETE carries only the UID
    /// (4.5).
    pub conflicts_before_uid_only: u32,
    /// Number of failed live reads after which an owner no longer blocks the other references of its
    /// dependents.
    pub failures_before_undecidable: u32,
    /// Objects that the engine acts on. It observes the others as well.
    pub shard: Shard,
}

impl Config {
    /// Returns the settings for an API server that is reached over a network, where each barrier costs a list.
    #[must_use]
    pub fn remote() -> Self {
        Self { barrier_quiet_milliseconds: 20, barrier_gathers_milliseconds: 200, ..Self::default() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            awaits_lists: true,
            effects_in_flight: 256,
            startup_wait_milliseconds: 30_000,
            gap_wait_milliseconds: 30_000,
            withdrawn_wait_milliseconds: 300_000,
            barrier_quiet_milliseconds: 0,
            barrier_gathers_milliseconds: 0,
            verify_patience_milliseconds: 50,
            poll_first_milliseconds: 100,
            poll_longest_milliseconds: 120_000,
            retry_first_milliseconds: 5,
            retry_longest_milliseconds: 1_000_000,
            retry_burst: 100,
            retry_interval_milliseconds: 100,
            retry_shared_longest_milliseconds: 30_000,
            absent_owners: 500,
            conflicts_before_uid_only: 3,
            failures_before_undecidable: 3,
            shard: Shard::WHOLE,
        }
    }
}

/// Statistics for metrics. All are counts unless the name says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Known objects.
    pub objects: usize,
    /// Owners that are referred to but have not been observed (virtual nodes), including absent ones.
    pub virtual_owners: usize,
    /// References (edges).
    pub references: usize,
    /// Items in the queue.
    pub queued: usize,
    /// Effects returned and not yet done.
    pub in_flight: usize,
    /// Items that wait for a retry.
    pub retrying: usize,
    /// Withheld items, which are not reconciled before they change or are released.
    pub withheld: usize,
    /// Owners in foreground deletion, or waiting for their dependents to be orphaned.
    pub waiting_owners: usize,
    /// Age of the oldest of them, milliseconds.
    pub oldest_waiting_milliseconds: i64,
    /// Watched resources whose list is not complete or whose watch is stale.
    pub unsynced_resources: usize,
    /// References whose kind is not served.
    pub unknown_kind_references: usize,
    /// Finalizers removed since start although a resource had not caught up.
    pub gaps_given_up: u64,
    /// Objects whose deletion was requested and applied since start.
    pub deletions: u64,
    /// Retries scheduled since start.
    pub retries: u64,
}
