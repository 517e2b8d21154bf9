//! Lanes: requests of which only a few are sent at a time.
//!
//! Nothing counts the slots of a lane: they are the requests in flight that are in it. So a slot is free as soon as its
//! request has ended, and a decision that led to no request never had one.

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

/// Objects that wait for room in a lane; of one that is gone, nothing stays here.
#[derive(Debug, Default)]
pub(super) struct WaitingObjects {
    lanes: BTreeMap<Lane, BTreeSet<ObjectKey>>,
    /// The lanes to which objects were called whose next request has not been decided yet. They occupy nothing.
    called: BTreeMap<ObjectKey, Lane>,
}

impl WaitingObjects {
    pub(super) fn insert(&mut self, lane: &Lane, key: ObjectKey) {
        self.lanes.entry(lane.clone()).or_default().insert(key);
    }

    /// Takes an object out, and returns the lane that it was called to.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Lane> {
        if !self.lanes.is_empty() {
            for keys in self.lanes.values_mut() {
                keys.remove(key);
            }
            self.lanes.retain(|_, keys| !keys.is_empty());
        }
        self.called.remove(key)
    }

    /// The next request of an object is on the way to a request of this lane, or is one.
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
