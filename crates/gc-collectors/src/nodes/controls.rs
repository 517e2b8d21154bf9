//! Ready nodes whose machines are looked up while others are missing. If the provider does not find these either, it is queried in
//! the wrong account, region or cluster, and proves nothing about the missing ones.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use gc_types::{ObjectKey, Timestamp, Uid};

use super::NodePolicy;
use crate::engine::MachineState;

/// Maximum number of ready nodes that are looked up while a machine is missing.
pub(super) const CONTROL_NODES: usize = 10;
/// Number of lookups of a ready node within the time for which a machine must be missing.
const LOOKUPS: i64 = 3;

/// Last answer about the machine of a ready node.
#[derive(Clone, Debug, Default)]
struct Control {
    uid: Option<Uid>,
    last: Option<MachineState>,
    answered: Timestamp,
    next_lookup: Timestamp,
    failure: Option<String>,
}

impl Control {
    /// Reports whether its machine was found, and not before this time.
    fn is_proof(&self, oldest: Timestamp) -> bool {
        self.last == Some(MachineState::Running) && self.answered >= oldest
    }
}

/// Ready nodes that are looked up.
#[derive(Debug, Default)]
pub(super) struct Controls {
    /// All nodes that may be chosen.
    ready: BTreeSet<ObjectKey>,
    chosen: BTreeMap<ObjectKey, Control>,
}

/// Returns the interval between two lookups of one ready node, in milliseconds.
fn period(policy: &NodePolicy) -> i64 {
    policy.period_milliseconds.max(policy.missing_milliseconds / LOOKUPS)
}

impl Controls {
    /// Records whether a node may be chosen.
    pub(super) fn put(&mut self, key: &ObjectKey, may_be_chosen: bool) {
        if may_be_chosen {
            self.ready.insert(key.clone());
        } else {
            self.remove(key);
        }
    }

    /// Forgets a node that is gone, not ready, terminating or kept.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.ready.remove(key);
        self.chosen.remove(key);
    }

    /// Chooses ready nodes, spread evenly over all names, and names the new ones for reconciling.
    pub(super) fn choose(&mut self, dirty: &mut Vec<ObjectKey>) {
        if self.chosen.len() >= CONTROL_NODES.min(self.ready.len()) {
            return;
        }
        let step = (self.ready.len() / CONTROL_NODES).max(1);
        let spread: Vec<ObjectKey> = self.ready.iter().step_by(step).cloned().collect();
        for key in spread {
            if self.chosen.len() >= CONTROL_NODES {
                return;
            }
            if let Entry::Vacant(free) = self.chosen.entry(key) {
                dirty.push(free.key().clone());
                free.insert(Control::default());
            }
        }
    }

    /// Reports whether the machine of a ready node is to be looked up now, and if not, when.
    pub(super) fn is_due(
        &mut self,
        key: &ObjectKey,
        uid: &Uid,
        policy: &NodePolicy,
        now: Timestamp,
    ) -> Result<(), Option<Timestamp>> {
        let control = self.chosen.get_mut(key).ok_or(None)?;
        if control.uid.as_ref() != Some(uid) {
            *control = Control { uid: Some(uid.clone()), ..Control::default() };
        }
        if now < control.next_lookup {
            return Err(Some(control.next_lookup));
        }
        // If the answer is lost, the machine is looked up again after the period.
        control.next_lookup = now.after(period(policy));
        Ok(())
    }

    /// Stops all lookups, because no machine is missing.
    pub(super) fn release(&mut self) {
        self.chosen.clear();
    }

    /// Takes an answer, and returns whether it is the first proof for a while that the provider knows this cluster; `None` if it is
    /// not about a chosen node.
    pub(super) fn answered(
        &mut self,
        key: &ObjectKey,
        uid: &Uid,
        state: &Result<MachineState, String>,
        policy: &NodePolicy,
        now: Timestamp,
    ) -> Option<bool> {
        let control = self.chosen.get_mut(key).filter(|control| control.uid.as_ref() == Some(uid))?;
        let was_proof = control.is_proof(now.after(-LOOKUPS * period(policy)));
        control.last = state.as_ref().ok().copied();
        control.failure = state.as_ref().err().cloned();
        control.answered = now;
        Some(!was_proof && control.is_proof(now))
    }

    /// Returns the number of ready nodes whose machine does not exist, according to the provider.
    pub(super) fn absent(&self) -> usize {
        self.chosen.values().filter(|control| control.last == Some(MachineState::Absent)).count()
    }

    /// Explains why no node may be deleted based on answers since `since`, if so. If no node is ready, one that is not ready but
    /// whose machine runs (`is_other_found`) is as good a proof.
    pub(super) fn doubt(
        &self,
        since: Timestamp,
        policy: &NodePolicy,
        now: Timestamp,
        is_other_found: bool,
    ) -> Option<String> {
        const PLACE: &str = "it may be asked in the wrong account, region or cluster";
        let answered = self.chosen.values().filter(|control| control.last.is_some()).count();
        let absent = self.absent();
        #[allow(clippy::cast_precision_loss, reason = "a number of nodes")]
        let is_too_many = absent as f64 > policy.breaker_fraction * answered as f64;
        if absent > 0 && is_too_many {
            return Some(format!(
                "according to the provider, {absent} of {answered} machines of nodes that are ready do not exist either, so \
                 no node is deleted: {PLACE}"
            ));
        }
        let newest = now.after(-LOOKUPS * period(policy)).max(since);
        if self.chosen.values().any(|control| control.is_proof(newest))
            || (self.ready.is_empty() && is_other_found)
        {
            return None;
        }
        let failure = self.chosen.values().find_map(|control| control.failure.as_deref());
        let failure = failure.map(|why| format!(" ({why})")).unwrap_or_default();
        Some(format!(
            "the provider has found the machine of no node that is ready{failure}, so no node is deleted: {PLACE}"
        ))
    }

    /// Adjusts its times after the wall clock was set.
    pub(super) fn clock_set(&mut self, by: i64) {
        for control in self.chosen.values_mut() {
            control.answered = control.answered.after(by);
            control.next_lookup = control.next_lookup.after(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Kind;

    fn key(name: &str) -> ObjectKey {
        Kind::Node.key(&"".into(), &name.into())
    }

    /// Returns ready nodes that were all chosen and have answered at zero.
    fn answered(states: &[MachineState]) -> Controls {
        let (mut controls, policy) = (Controls::default(), NodePolicy::default());
        for number in 0..states.len() {
            controls.put(&key(&number.to_string()), true);
        }
        controls.choose(&mut Vec::new());
        for (number, state) in states.iter().enumerate() {
            let (key, uid) = (key(&number.to_string()), Uid::new("u"));
            assert_eq!(controls.is_due(&key, &uid, &policy, Timestamp(0)), Ok(()));
            controls.answered(&key, &uid, &Ok(*state), &policy, Timestamp(0));
        }
        controls
    }

    #[test]
    fn a_ready_node_is_looked_up_three_times_while_another_is_missing() {
        let (policy, uid) = (NodePolicy::default(), Uid::new("u"));
        for by in [0, 1_000_000, -1_000_000] {
            let mut controls = answered(&[MachineState::Running]);
            controls.clock_set(by);
            let mut due = |milliseconds: i64| {
                let found = controls.is_due(&key("0"), &uid, &policy, Timestamp(milliseconds + by));
                found.map_err(|at| at.map(|at| at.0 - by))
            };
            assert_eq!(
                [19_999, 20_000, 20_001].map(&mut due),
                [Err(Some(20_000)), Ok(()), Err(Some(40_000))]
            );
            // Its answer is a proof for a minute.
            let mut doubts = |milliseconds: i64| {
                controls.doubt(Timestamp(i64::MIN), &policy, Timestamp(milliseconds + by), false).is_some()
            };
            assert_eq!([60_000, 60_001].map(&mut doubts), [false, true], "{by}");
        }
    }

    #[test]
    fn a_node_that_is_removed_counts_no_longer() {
        let mut controls = answered(&[MachineState::Absent, MachineState::Running]);
        assert_eq!(controls.absent(), 1);
        controls.remove(&key("0"));
        assert_eq!(controls.absent(), 0);
        let due = controls.is_due(&key("0"), &Uid::new("u"), &NodePolicy::default(), Timestamp(i64::MAX));
        assert_eq!(due, Err(None));
    }

    /// As many machines may be missing as nodes may be.
    #[test]
    fn a_share_of_ready_nodes_may_be_missing() {
        let policy = NodePolicy { breaker_fraction: 0.2, ..NodePolicy::default() };
        for (absent, doubted) in [(0, false), (1, false), (2, true)] {
            let states: Vec<_> = (0..5)
                .map(|number| if number < absent { MachineState::Absent } else { MachineState::Running })
                .collect();
            let doubt = answered(&states).doubt(Timestamp(0), &policy, Timestamp(0), false);
            assert_eq!(doubt.is_some(), doubted, "{absent} of 5: {doubt:?}");
        }
    }
}
