//! How each resource is doing: synced or stale, since when and why.

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

/// The states of all watched resources. Shared by everyone who writes or shows them.
#[derive(Clone, Debug, Default)]
pub struct StatusBoard {
    states: Arc<Mutex<BTreeMap<ResourceId, ResourceStatus>>>,
}

impl StatusBoard {
    /// All states, by number of the resource.
    #[must_use]
    pub fn all(&self) -> BTreeMap<ResourceId, ResourceStatus> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether every watched resource is synced (and there is at least one).
    #[must_use]
    pub fn is_synced(&self) -> bool {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        !states.is_empty() && states.values().all(|status| status.state == SyncState::Synced)
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
