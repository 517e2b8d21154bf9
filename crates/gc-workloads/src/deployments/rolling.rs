//! The two strategies: pod by pod, or all at once.

use super::Rollout;
use super::arithmetic::max_unavailable;
use super::progress;
use crate::kinds::Kind;
use crate::object::text;
use crate::plan::Request;

impl Rollout<'_> {
    /// Makes a rolling update: the new set grows within the surge, and the old ones shrink within the allowed unavailability.
    pub(super) fn roll(&mut self) {
        self.find_or_create_new_set();
        if !self.grow_new() && !self.shrink_old() && progress::is_complete(&self.value, &self.value["status"])
        {
            self.clean_up();
        }
        self.show_progress();
    }

    fn grow_new(&mut self) -> bool {
        let Some(current) = self.new.as_ref().map(super::Set::wanted) else { return false };
        let wanted = self.wanted();
        if current == wanted {
            return false;
        }
        let others = self.old.iter().map(super::Set::wanted).sum();
        let size = if current > wanted { wanted } else { self.size_of_new(current, others) };
        self.resize_new(size)
    }

    fn shrink_old(&mut self) -> bool {
        if self.old.iter().all(|set| set.wanted() == 0) {
            return false;
        }
        let must_be_available = self.wanted() - max_unavailable(&self.value);
        let (new_wanted, new_available) =
            self.new.as_ref().map_or((0, 0), |set| (set.wanted(), set.counted("availableReplicas")));
        let total = self.sum(super::Set::wanted);
        let spare = total - must_be_available - (new_wanted - new_available);
        if spare <= 0 {
            return false;
        }
        let unhealthy = self.shrink(spare, |set| set.wanted() - set.counted("availableReplicas"));
        let available = self.sum(|set| set.counted("availableReplicas"));
        let healthy = self.shrink(available - must_be_available, super::Set::wanted);
        unhealthy || healthy
    }

    /// Removes up to `most` pods from the old sets, the oldest first, and from each no more than `part` says.
    fn shrink(&mut self, most: i64, part: impl Fn(&super::Set) -> i64) -> bool {
        let mut left = most;
        let mut shrunk = false;
        for index in 0..self.old.len() {
            let set = &self.old[index];
            let taken = part(set).min(left).min(set.wanted());
            if left <= 0 || taken <= 0 {
                continue;
            }
            let size = set.wanted() - taken;
            shrunk |= self.resize_old(index, size);
            left -= taken;
        }
        shrunk
    }

    /// Replaces all pods: the old ones have to be gone before the first new one is created.
    pub(super) fn recreate(&mut self) {
        self.find_new_set();
        let shrunk = self.shrink(i64::MAX, super::Set::wanted);
        if shrunk || self.old_pods_run() {
            return self.show_progress();
        }
        if self.new.is_none() {
            self.find_or_create_new_set();
        }
        let wanted = self.wanted();
        self.resize_new(wanted);
        if progress::is_complete(&self.value, &self.value["status"]) {
            self.clean_up();
        }
        self.show_progress();
    }

    fn old_pods_run(&self) -> bool {
        let store = self.view.store;
        self.old.iter().any(|set| {
            let uid = set.object.as_ref().map(|object| &*object.uid).unwrap_or_default();
            let mut pods = store.controlled_by(uid, Kind::Pod);
            set.counted("replicas") > 0
                || pods.any(|pod| !matches!(text(&pod.status()["phase"]), "Failed" | "Succeeded"))
        })
    }

    /// Deletes old sets without pods beyond `revisionHistoryLimit`, the oldest revisions first.
    pub(super) fn clean_up(&mut self) {
        let limit = self.value["spec"]["revisionHistoryLimit"].as_i64();
        let Some(limit) = limit.filter(|limit| *limit != i64::from(i32::MAX)) else { return };
        let mut alive: Vec<&super::Set> = self
            .old
            .iter()
            .filter(|set| set.object.as_ref().is_some_and(|object| !object.deleting))
            .collect();
        let surplus = alive.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        alive.sort_by_key(|set| (set.number(super::REVISION).unwrap_or_default(), set.created));
        let doomed = alive.into_iter().take(surplus).filter_map(|set| {
            let object = set.object.as_ref()?;
            let settled = object.generation() <= set.counted("observedGeneration");
            let empty = set.counted("replicas") == 0 && set.wanted() == 0;
            (settled && empty).then(|| Request::delete(object, "revision-history-limit"))
        });
        let doomed: Vec<Request> = doomed.collect();
        self.plan.together(doomed);
    }
}
