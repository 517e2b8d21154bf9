//! Lanes: requests of which only a few are in flight at a time.
//!
//! There is no counter for the slots of a lane, which are simply its requests in flight. A slot is therefore free as soon as its
//! request has ended, and a decision that led to no request never took one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{EffectId, ObjectKey};

use super::Flight;

/// Requests of which only a few are sent at a time, such as those to one driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// Name of the lane, unique within its collector.
    pub name: Arc<str>,
    /// Maximum number of its requests in flight.
    pub slots: usize,
}

/// Reports whether another request may be sent in a lane.
pub(super) fn has_room(lane: &Lane, flying: &BTreeMap<EffectId, Flight>) -> bool {
    let taken = flying.values().filter(|flight| flight.lane.as_ref() == Some(lane));
    taken.count() < lane.slots
}

/// Objects that wait for room in a lane. Objects that are gone leave nothing behind.
#[derive(Debug, Default)]
pub(super) struct WaitingObjects {
    lanes: BTreeMap<Lane, BTreeSet<ObjectKey>>,
    /// Lanes to which objects were called whose next request has not been decided yet. They occupy no slot.
    called: BTreeMap<ObjectKey, Lane>,
}

impl WaitingObjects {
    pub(super) fn insert(&mut self, lane: &Lane, key: ObjectKey) {
        self.lanes.entry(lane.clone()).or_default().insert(key);
    }

    /// Removes an object, and returns the lane that it was called to.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Lane> {
        if !self.lanes.is_empty() {
            for keys in self.lanes.values_mut() {
                keys.remove(key);
            }
            self.lanes.retain(|_, keys| !keys.is_empty());
        }
        self.called.remove(key)
    }

    /// Records that the next request of an object leads to a request of this lane, or is one.
    pub(super) fn calling(&mut self, key: &ObjectKey, lane: Lane) {
        self.called.insert(key.clone(), lane);
    }

    /// Calls the first object that waits for a lane with room.
    pub(super) fn call(&mut self, flying: &BTreeMap<EffectId, Flight>) -> Option<ObjectKey> {
        let (lane, keys) = self.lanes.iter_mut().find(|(lane, _)| has_room(lane, flying))?;
        let (lane, key) = (lane.clone(), keys.pop_first()?);
        if keys.is_empty() {
            self.lanes.remove(&lane);
        }
        self.called.insert(key.clone(), lane);
        Some(key)
    }

    /// Reports whether an object waits for a lane that has room.
    pub(super) fn has_room(&self, flying: &BTreeMap<EffectId, Flight>) -> bool {
        self.lanes.keys().any(|lane| has_room(lane, flying))
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.values().map(BTreeSet::len).sum()
    }
}
