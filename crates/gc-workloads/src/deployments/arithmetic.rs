//! Replicas of a Deployment: the maximum, the minimum, and the share of each of its ReplicaSets.

use serde_json::Value;

use super::{DESIRED_REPLICAS, MAX_REPLICAS, Rollout, Set};
use crate::object::int;

/// Returns `spec.replicas`, whose default is one.
pub(crate) fn replicas_of(value: &Value) -> i64 {
    int(&value["spec"]["replicas"], 1)
}

/// Resolves a number, or a percentage of `total`; `None` if it is neither.
pub(crate) fn scaled(value: &Value, total: i64, round_up: bool) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let percent: i64 = value.as_str()?.strip_suffix('%')?.parse().ok()?;
    let product = percent.checked_mul(total)?;
    Some(if round_up {
        product.div_euclid(100) + i64::from(product.rem_euclid(100) > 0)
    } else {
        product.div_euclid(100)
    })
}

/// Returns surge and unavailability in pods, of which at least one is not zero.
fn fenceposts(value: &Value) -> (i64, i64) {
    let (rolling, total) = (&value["spec"]["strategy"]["rollingUpdate"], replicas_of(value));
    let surge = scaled(&rolling["maxSurge"], total, true).unwrap_or_default();
    let unavailable = scaled(&rolling["maxUnavailable"], total, false).unwrap_or_default();
    (surge, if surge == 0 && unavailable == 0 { 1 } else { unavailable })
}

fn is_rolling(value: &Value) -> bool {
    value["spec"]["strategy"]["type"] != "Recreate"
}

/// Returns the number of pods that may exist beyond those wanted.
pub(super) fn max_surge(value: &Value) -> i64 {
    if is_rolling(value) { fenceposts(value).0 } else { 0 }
}

/// Returns the number of wanted pods that may be unavailable.
pub(super) fn max_unavailable(value: &Value) -> i64 {
    if !is_rolling(value) || replicas_of(value) == 0 {
        return 0;
    }
    fenceposts(value).1.min(replicas_of(value))
}

impl Rollout<'_> {
    /// Returns the size of the new set: as many as are wanted, within the surge.
    pub(super) fn size_of_new(&self, current: i64, others: i64) -> i64 {
        let wanted = self.wanted();
        if !is_rolling(&self.value) {
            return wanted;
        }
        let most = wanted + max_surge(&self.value);
        if current + others >= most {
            return current;
        }
        current + (most - current - others).min(wanted - current)
    }

    /// Sizes the sets after `replicas` changed: a single active one gets all, several get their share.
    pub(super) fn scale(&mut self) {
        let wanted = self.wanted();
        let active: Vec<usize> = (0..self.old.len()).filter(|&index| self.old[index].wanted() > 0).collect();
        let new_is_active = self.new.as_ref().is_some_and(|set| set.wanted() > 0);
        match (active.as_slice(), new_is_active) {
            ([], _) if self.new.is_some() => {
                self.resize_new(wanted);
            }
            // If none is active, the newest one counts.
            ([], _) if !self.old.is_empty() => {
                self.resize_old(self.old.len() - 1, wanted);
            }
            ([], _) => {}
            ([one], false) => {
                self.resize_old(*one, wanted);
            }
            _ if self.is_saturated() => {
                for index in active {
                    self.resize_old(index, 0);
                }
            }
            _ if is_rolling(&self.value) => self.scale_in_proportion(),
            _ => {}
        }
        self.annotate_active();
    }

    /// Annotates sets that already have the right size with the wanted number of replicas. Upstream does not, and then the
    /// Deployment counts as scaled forever and never rolls.
    fn annotate_active(&mut self) {
        let wanted = self.wanted();
        for at in 0..=self.old.len() {
            let is_stale = |set: &&Set| {
                set.wanted() > 0 && set.number(DESIRED_REPLICAS).is_some_and(|desired| desired != wanted)
            };
            if let Some(mut set) = self.set(at).filter(is_stale).cloned() {
                let size = set.wanted();
                self.resize(&mut set, size);
                self.put_set(at, set);
            }
        }
    }

    fn is_saturated(&self) -> bool {
        let wanted = self.wanted();
        self.new.as_ref().is_some_and(|set| {
            set.wanted() == wanted
                && set.number(DESIRED_REPLICAS) == Some(wanted)
                && set.counted("availableReplicas") == wanted
        })
    }

    fn scale_in_proportion(&mut self) {
        let wanted = self.wanted();
        let allowed = if wanted > 0 { wanted + max_surge(&self.value) } else { 0 };
        // The index of the new set follows the last of the old ones.
        let count = self.old.len();
        let mut active: Vec<usize> =
            (0..=count).filter(|&at| self.set(at).is_some_and(|set| set.wanted() > 0)).collect();
        let total: i64 = active.iter().filter_map(|&at| self.set(at)).map(Set::wanted).sum();
        let to_add = allowed - total;
        // The largest first; of equal ones, the newer first when growing, the older first when shrinking.
        active.sort_by_key(|&at| {
            let (size, created) = self.set(at).map_or((0, 0), |set| (set.wanted(), set.created));
            (std::cmp::Reverse(size), if to_add > 0 { -created } else { created })
        });
        let mut added = 0;
        let mut sizes: Vec<i64> = Vec::new();
        for &at in &active {
            let share = self.set(at).map_or(0, |set| self.share(set, to_add, added));
            sizes.push(self.set(at).map_or(0, Set::wanted) + share);
            added += share;
        }
        if to_add != 0
            && let Some(first) = sizes.first_mut()
        {
            // The largest set absorbs the difference that comes from rounding.
            *first = (*first + to_add - added).max(0);
        }
        for (at, size) in active.into_iter().zip(sizes) {
            if let Some(mut set) = self.set(at).cloned() {
                self.resize(&mut set, size);
                self.put_set(at, set);
            }
        }
    }

    fn set(&self, at: usize) -> Option<&Set> {
        self.old.get(at).or(self.new.as_ref().filter(|_| at == self.old.len()))
    }

    fn put_set(&mut self, at: usize, set: Set) {
        match self.old.get_mut(at) {
            Some(old) => *old = set,
            None => self.new = Some(set),
        }
    }

    /// Returns a set's share of the pods to add or, if negative, to remove.
    fn share(&self, set: &Set, to_add: i64, added: i64) -> i64 {
        if set.wanted() == 0 || to_add == 0 || to_add == added {
            return 0;
        }
        let (fraction, left) = (self.fraction(set), to_add - added);
        if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
    }

    fn fraction(&self, set: &Set) -> i64 {
        let (size, wanted) = (set.wanted(), self.wanted());
        if wanted == 0 {
            return -size;
        }
        let before = set.number(MAX_REPLICAS).filter(|most| *most != 0);
        let before = before.unwrap_or_else(|| int(&self.value["status"]["replicas"], 0));
        if before == 0 {
            return 0;
        }
        // Halves are rounded away from zero; everything here is positive.
        let (product, doubled) = (size * (wanted + max_surge(&self.value)), 2 * before);
        (2 * product + before) / doubled - size
    }
}
