//! State of each resource: synced or stale, with time and reason.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use gc_types::ResourceId;

/// The state of one resource's watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncState {
    /// Its first list is under way.
    Listing,
    /// Every change arrives.
    Synced,
    /// It was synced; its watch is broken and has not come back yet, or it is being listed again.
    Stale,
    /// It has never been synced: its list fails.
    Failing,
}

/// The state, since when, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceStatus {
    /// `resource.group`, for people.
    pub name: String,
    /// State.
    pub state: SyncState,
    /// Since when it is in this state.
    pub since: SystemTime,
    /// Why it is not synced; empty if it is.
    pub why: String,
}

/// State of discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryStatus {
    /// True if a round has succeeded, at least in part.
    pub ever_done: bool,
    /// Why the last round brought nothing, and since when none has; `None` if it brought something.
    pub failing: Option<(SystemTime, String)>,
    /// The groups (`group/version`, or `group`) that the last round could not see, and why. What they serve is
    /// unknown: it is neither watched again nor forgotten.
    pub failed_groups: BTreeMap<String, String>,
    /// Number of rounds that have failed.
    pub failed_rounds: u64,
}

/// The states of all watched resources. Shared by everyone who writes or shows them.
#[derive(Clone, Debug, Default)]
pub struct StatusBoard {
    states: Arc<Mutex<BTreeMap<ResourceId, ResourceStatus>>>,
    discovery: Arc<Mutex<DiscoveryStatus>>,
}

impl StatusBoard {
    /// All states, by number of the resource.
    #[must_use]
    pub fn all(&self) -> BTreeMap<ResourceId, ResourceStatus> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reports whether every watched resource is synced (and there is at least one).
    #[must_use]
    pub fn is_synced(&self) -> bool {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        !states.is_empty() && states.values().all(|status| status.state == SyncState::Synced)
    }

    /// Returns the state of discovery.
    #[must_use]
    pub fn discovery(&self) -> DiscoveryStatus {
        self.discovery.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes note of a round of discovery. Answers whether it says anything new.
    pub(crate) fn discovered(&self, failed_groups: BTreeMap<String, String>) -> bool {
        let mut status = self.discovery.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = status.failing.is_some() || status.failed_groups != failed_groups;
        (status.ever_done, status.failing, status.failed_groups) = (true, None, failed_groups);
        is_new
    }

    /// Takes note of a round of discovery that brought nothing.
    pub(crate) fn discovery_failed(&self, why: &str) {
        let mut status = self.discovery.lock().unwrap_or_else(PoisonError::into_inner);
        let since = status.failing.take().map_or_else(SystemTime::now, |(since, _)| since);
        status.failing = Some((since, why.to_owned()));
        status.failed_rounds += 1;
    }

    pub(crate) fn set(&self, id: ResourceId, name: &str, state: SyncState, why: &str) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        match states.get_mut(&id) {
            Some(status) => {
                if status.state != state {
                    status.state = state;
                    status.since = SystemTime::now();
                }
                why.clone_into(&mut status.why);
            }
            None => {
                let status = ResourceStatus {
                    name: name.to_owned(),
                    state,
                    since: SystemTime::now(),
                    why: why.to_owned(),
                };
                states.insert(id, status);
            }
        }
    }

    pub(crate) fn remove(&self, id: ResourceId) {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}
