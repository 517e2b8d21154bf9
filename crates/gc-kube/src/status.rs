//! State of each resource's watch: synced or stale, with time and reason.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use gc_types::ResourceId;

/// State of one resource's watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncState {
    /// The first list is running.
    Listing,
    /// Every change is received.
    Synced,
    /// The watch was synced, but is broken or being listed again.
    Stale,
    /// The list has failed, and the watch has never been synced.
    Failing,
}

/// State of a watch, with time and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceStatus {
    /// `resource.group`, for people.
    pub name: String,
    /// State.
    pub state: SyncState,
    /// Time since which the watch is in this state.
    pub since: SystemTime,
    /// Reason why the watch is not synced; empty if it is.
    pub why: String,
}

/// State of discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryStatus {
    /// True if a round has succeeded, at least partly.
    pub ever_done: bool,
    /// Time since which no round has succeeded, and the error of the last one; `None` after a success.
    pub failing: Option<(SystemTime, String)>,
    /// Groups (`group/version`, or `group`) that the last round could not see, with the reasons. Their resources are unknown:
    /// neither watched again nor forgotten.
    pub failed_groups: BTreeMap<String, String>,
    /// Number of failed rounds.
    pub failed_rounds: u64,
}

/// States of all watched resources, shared by all writers and readers.
#[derive(Clone, Debug, Default)]
pub struct StatusBoard {
    states: Arc<Mutex<BTreeMap<ResourceId, ResourceStatus>>>,
    discovery: Arc<Mutex<DiscoveryStatus>>,
}

impl StatusBoard {
    /// Returns all states, by number of the resource.
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

    /// Records a round of discovery. Returns whether it brings news.
    pub(crate) fn discovered(&self, failed_groups: BTreeMap<String, String>) -> bool {
        let mut status = self.discovery.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = status.failing.is_some() || status.failed_groups != failed_groups;
        (status.ever_done, status.failing, status.failed_groups) = (true, None, failed_groups);
        is_new
    }

    /// Records a failed round of discovery.
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
