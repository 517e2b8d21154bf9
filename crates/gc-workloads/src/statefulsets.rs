//! StatefulSets: pods with stable names, created and deleted in order, each with its own claims.

mod claims;
mod pods;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::claims::ClaimedObjects;
use crate::deployments::scaled;
use crate::kinds::{Key, Kind};
use crate::object::{Object, int, items, text, without_zeros};
use crate::plan::{Note, Plan, Request, View};
use crate::revisions::{self, REVISION_HASH};
use crate::selector;
use crate::store::Change;

pub(crate) fn wakes(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    match object.key.kind {
        Kind::StatefulSet => keys.push(object.key.clone()),
        Kind::Pod | Kind::ControllerRevision => {
            crate::replicasets::wake_owners(view, change, Kind::StatefulSet, keys);
        }
        // A pod that waited for the end of a claim can now be created.
        Kind::PersistentVolumeClaim
            if change.after.is_none()
                || change.differs(|claim| &claim.value["metadata"]["ownerReferences"]) =>
        {
            let sets = view.store.in_namespace(Kind::StatefulSet, object.namespace());
            keys.extend(sets.filter(|set| may_use(set, object)).map(|set| set.key.clone()));
        }
        _ => {}
    }
}

/// Reports whether a claim's name is one that a set gives to its claims.
fn may_use(set: &Object, claim: &Object) -> bool {
    items(&set.spec()["volumeClaimTemplates"]).any(|template| {
        let prefix = format!("{}-{}-", text(&template["metadata"]["name"]), set.name());
        claim.name().starts_with(&prefix)
    })
}

/// A StatefulSet in a reconciliation.
struct Work<'a> {
    view: &'a View<'a>,
    set: &'a Arc<Object>,
    current: Arc<Object>,
    update: Arc<Object>,
    pods: BTreeMap<i64, Arc<Object>>,
    plan: Plan,
}

/// Returns the ordinal of a set's pod; `None` for a pod whose name is not one of the set's.
fn ordinal(set: &Object, pod: &Object) -> Option<i64> {
    let number = pod.name().strip_prefix(set.name())?.strip_prefix('-')?;
    number.parse().ok().filter(|ordinal: &i64| *ordinal >= 0 && ordinal.to_string() == number)
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let Some(set) = view.store.get(key) else { return Plan::default() };
    let wanted = &set.spec()["selector"];
    let claimed = ClaimedObjects::of(view.store, set, Kind::Pod, |pod| {
        selector::matches(wanted, pod.labels()) && ordinal(set, pod).is_some()
    });
    if let Some(plan) = claimed.settle(set) {
        return plan;
    }
    if let Some(plan) = revisions::adopt(view.store, set) {
        return plan;
    }
    let known = revisions::of(view.store, set);
    let update = match revisions::current(set, &known) {
        Ok(update) => update,
        Err(_) if set.deleting => return Plan::default(),
        Err(plan) => return revisions::unless_taken(view, set, plan),
    };
    let name = text(&set.status()["currentRevision"]);
    let current = known.iter().find(|revision| revision.name() == name).unwrap_or(&update).clone();
    let pods = claimed.mine.iter().filter_map(|pod| Some((ordinal(set, pod)?, Arc::clone(pod)))).collect();
    let mut work = Work { view, set, current, update, pods, plan: Plan::default() };
    let status = work.status();
    if !set.deleting && view.failure.is_none() {
        work.step();
    }
    work.plan.still_failing = view.failure.is_some();
    if status != *set.status() {
        work.plan.then(Request::update_status(key, set.with_status(status), "status"));
    }
    let used = [work.current.name().to_owned(), work.update.name().to_owned()];
    let by_pods: Vec<String> =
        work.pods.values().filter_map(|pod| pod.label(REVISION_HASH)).map(str::to_owned).collect();
    let is_live = |revision: &Object| used.iter().chain(&by_pods).any(|name| name == revision.name());
    let old: Vec<&Arc<Object>> = known.iter().filter(|revision| !is_live(revision)).collect();
    revisions::clean_up(set, &old, |_| false, &mut work.plan);
    work.plan
}

impl Work<'_> {
    fn spec(&self) -> &Value {
        self.set.spec()
    }

    fn wanted(&self) -> i64 {
        int(&self.spec()["replicas"], 1)
    }

    fn first(&self) -> i64 {
        int(&self.spec()["ordinals"]["start"], 0)
    }

    fn minimum_ready_seconds(&self) -> i64 {
        int(&self.spec()["minReadySeconds"], 0)
    }

    fn is_ordered(&self) -> bool {
        self.spec()["podManagementPolicy"] != "Parallel"
    }

    fn rolls(&self) -> bool {
        self.spec()["updateStrategy"]["type"] != "OnDelete"
    }

    fn partition(&self) -> i64 {
        int(&self.spec()["updateStrategy"]["rollingUpdate"]["partition"], 0)
    }

    fn is_available(&self, pod: &Object) -> bool {
        text(&pod.status()["phase"]) == "Running"
            && !pod.deleting
            && crate::pods::is_available(pod, self.minimum_ready_seconds(), self.view.now)
    }

    fn status(&mut self) -> Value {
        let (mut current, mut updated, mut ready, mut available) = (0, 0, 0, 0);
        let minimum = self.minimum_ready_seconds();
        for pod in self.pods.values() {
            let revision = pod.label(REVISION_HASH).unwrap_or_default();
            if text(&pod.status()["phase"]) == "Running" && pod.ready {
                ready += 1;
                available += i64::from(crate::pods::is_available(pod, minimum, self.view.now));
            }
            if !pod.deleting {
                current += i64::from(revision == self.current.name());
                updated += i64::from(revision == self.update.name());
            }
        }
        let again =
            self.pods.values().filter_map(|pod| crate::pods::available_at(pod, minimum, self.view.now)).min();
        let total = i64::try_from(self.pods.len()).unwrap_or(i64::MAX);
        let mut current_name = self.current.name();
        // The rollout is complete: the update revision becomes the current revision.
        if self.rolls() && [updated, ready, total].iter().all(|count| *count == self.wanted()) {
            current = updated;
            current_name = self.update.name();
        }
        let mut status = without_zeros(json!({
            "observedGeneration": self.set.generation(), "readyReplicas": ready, "currentReplicas": current,
            "updatedReplicas": updated, "currentRevision": current_name, "updateRevision": self.update.name(),
        }));
        status["replicas"] = total.into();
        status["availableReplicas"] = available.into();
        status["collisionCount"] = int(&self.set.status()["collisionCount"], 0).into();
        if let Some(at) = again {
            self.plan.again_at(at);
        }
        status
    }

    /// Plans the next step: one pod at a time in order, or all at once.
    fn step(&mut self) {
        let (first, wanted) = (self.first(), self.wanted());
        for ordinal in first..first + wanted {
            if self.keep(ordinal) && self.is_ordered() {
                return;
            }
        }
        if self.condemn(first, wanted) || !self.plan.steps.is_empty() {
            return;
        }
        if self.rolls() {
            self.roll(first, wanted);
        }
    }

    /// Creates or replaces one pod, and returns whether the next one has to wait for it.
    fn keep(&mut self, ordinal: i64) -> bool {
        let Some(pod) = self.pods.get(&ordinal).cloned() else {
            self.create(ordinal);
            return true;
        };
        if pod.finished {
            if !pod.deleting {
                self.delete(&pod);
            }
            return true;
        }
        self.create_claims(ordinal);
        if self.own_claims(ordinal, &pod) && pod.status()["phase"] != "Pending" {
            let message = format!("Update Pod {} in StatefulSet {} successful", pod.name(), self.set.name());
            self.plan.notes.push(Note::normal(self.set, "SuccessfulUpdate", message));
        }
        !self.is_available(&pod)
    }

    /// Deletes the surplus pods, the last first, and returns whether something still has to be waited for.
    fn condemn(&mut self, first: i64, wanted: i64) -> bool {
        let condemned: Vec<(i64, Arc<Object>)> = self
            .pods
            .iter()
            .rev()
            .filter(|(ordinal, _)| **ordinal < first || **ordinal >= first + wanted)
            .map(|(ordinal, pod)| (*ordinal, Arc::clone(pod)))
            .collect();
        for (ordinal, pod) in &condemned {
            self.own_claims(*ordinal, pod);
        }
        let is_down = |(_, pod): &&(i64, Arc<Object>)| !self.is_available(pod);
        let first_down = condemned.iter().rev().find(is_down).map(|(ordinal, _)| *ordinal);
        for (ordinal, pod) in &condemned {
            if pod.deleting {
                if self.is_ordered() {
                    return true;
                }
                continue;
            }
            // An unavailable pod is only deleted if those before it are available.
            if self.is_ordered() && !self.is_available(pod) && first_down != Some(*ordinal) {
                return true;
            }
            self.delete(pod);
            if self.is_ordered() {
                return true;
            }
        }
        false
    }

    /// Returns the maximum number of pods that may be unavailable while they are replaced.
    fn max_unavailable(&self) -> i64 {
        let limit = &self.spec()["updateStrategy"]["rollingUpdate"]["maxUnavailable"];
        scaled(limit, self.wanted(), false).unwrap_or(1).max(1)
    }

    /// Replaces pods of another revision, the last ones first: one at a time once those after it are healthy, or as many as may be
    /// unavailable.
    fn roll(&mut self, first: i64, wanted: i64) {
        let limit = self.max_unavailable();
        if limit > 1 {
            let pods: Vec<Option<Arc<Object>>> =
                (first..first + wanted).rev().map(|ordinal| self.pods.get(&ordinal).cloned()).collect();
            let is_down = |pod: &&Option<Arc<Object>>| pod.as_ref().is_none_or(|pod| !self.is_available(pod));
            let down = i64::try_from(pods.iter().filter(is_down).count()).unwrap_or(i64::MAX);
            let count = usize::try_from(limit - down).unwrap_or_default();
            let (partition, update) = (self.partition(), self.update.name().to_owned());
            let old = pods.into_iter().flatten().filter(|pod| {
                let in_range = ordinal(self.set, pod).is_some_and(|ordinal| ordinal >= partition);
                in_range && !pod.deleting && pod.label(REVISION_HASH) != Some(&update)
            });
            let old: Vec<Arc<Object>> = old.take(count).collect();
            return old.iter().for_each(|pod| self.delete(pod));
        }
        for ordinal in (first.max(self.partition())..first + wanted).rev() {
            let Some(pod) = self.pods.get(&ordinal).cloned() else { return };
            if pod.label(REVISION_HASH) != Some(self.update.name()) && !pod.deleting {
                return self.delete(&pod);
            }
            if !self.is_available(&pod) {
                return;
            }
        }
    }

    fn delete(&mut self, pod: &Object) {
        let name = self.set.name();
        let message = |outcome: &str| format!("Delete Pod {} in StatefulSet {name} {outcome}", pod.name());
        let done = Note::normal(self.set, "SuccessfulDelete", message("successful"));
        let failed = Note::warning(self.set, "FailedDelete", message("failed error: {}"));
        self.plan.then(Request::delete(pod, "order").noting(done, failed));
    }
}
