//! Counting each pod once: their UIDs are noted in the status, then their finalizers are removed, and only then are the counters
//! raised.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::policies::{self, Verdict};
use super::{TRACKING, Work, all_failures_before, index_of};
use crate::object::{Object, condition, int, items, text};
use crate::plan::{Note, Request};

/// Maximum number of pods that are recorded at a time.
const MOST_UNCOUNTED: usize = 500;

/// Removes the finalizer of a pod.
pub(super) fn without_finalizer(pod: &Object, why: &'static str) -> Request {
    let patch = json!({"metadata": {"uid": &*pod.uid, "$deleteFromPrimitiveList/finalizers": [TRACKING]}});
    Request::patch(&pod.key, patch, why)
}

impl Work<'_> {
    /// Writes the status, first with the pods to count and then with the counters. `changed` means that it has to be written
    /// anyway.
    pub(super) fn track(&mut self, terminating: usize, changed: bool) {
        let before = self.job.status().clone();
        let held: BTreeSet<Arc<str>> = self
            .pods
            .iter()
            .filter(|pod| pod.has_finalizer(TRACKING))
            .map(|pod| Arc::clone(&pod.uid))
            .collect();
        self.count_released(&held);
        let (released, reached_most) = self.note_ended();
        if self.is_indexed() {
            self.show_indexes();
        }
        self.show_interim();
        if changed || self.status != before {
            self.send_status("count");
        }
        let requests = released.iter().map(|pod| without_finalizer(pod, "counted")).collect();
        self.plan.together(requests);
        let left: BTreeSet<Arc<str>> =
            held.into_iter().filter(|uid| !released.iter().any(|pod| pod.uid == *uid)).collect();
        let noted = self.status.clone();
        self.count_released(&left);
        self.end(terminating, reached_most);
        if self.status != noted {
            self.send_status("counted");
        }
    }

    fn send_status(&mut self, why: &'static str) {
        self.plan.then(Request::update_status(&self.job.key, self.job.with_status(self.status.clone()), why));
    }

    /// Raises the counters by the pods whose finalizers are gone.
    fn count_released(&mut self, held: &BTreeSet<Arc<str>>) {
        let uncounted = self.status["uncountedTerminatedPods"].clone();
        for name in ["succeeded", "failed"] {
            let (left, gone): (Vec<Value>, Vec<Value>) =
                items(&uncounted[name]).cloned().partition(|uid| held.contains(text(uid)));
            if gone.is_empty() {
                continue;
            }
            let sum = int(&self.status[name], 0) + i64::try_from(gone.len()).unwrap_or_default();
            self.status[name] = sum.into();
            let lists = &mut self.status["uncountedTerminatedPods"];
            if left.is_empty() {
                lists.as_object_mut().and_then(|lists| lists.remove(name));
            } else {
                lists[name] = left.into();
            }
        }
    }

    /// Notes the pods that have ended; returns which finalizers may be removed, and whether there were too many for one pass.
    fn note_ended(&mut self) -> (Vec<Arc<Object>>, bool) {
        let mut pods: Vec<Arc<Object>> =
            self.pods.iter().filter(|pod| pod.has_finalizer(TRACKING)).cloned().collect();
        pods.sort_by_key(|pod| (index_of(pod), Arc::clone(&pod.key.name)));
        let delayed = self.kept_per_index();
        let fails = self.finished.as_ref().is_some_and(|finished| finished["type"] != "SuccessCriteriaMet");
        let mut released = Vec::new();
        for pod in pods {
            let failed = self.has_failed(&pod);
            let succeeded = pod.status()["phase"] == "Succeeded";
            let free = self.job.deleting
                || self.finished.is_some()
                || succeeded
                || failed && !delayed.contains(&pod.uid);
            if !free {
                continue;
            }
            let counted = self.completions().unwrap_or(i64::MAX);
            let in_range = !self.is_indexed() || index_of(&pod).is_some_and(|index| index < counted);
            if succeeded && !self.is_indexed() {
                self.note("succeeded", &pod);
            } else if !succeeded
                && (failed || fails)
                && in_range
                && (self.spec()["podFailurePolicy"].is_null() || self.counts_as_failure(&pod))
            {
                self.note("failed", &pod);
            }
            released.push(pod);
            if released.len() >= MOST_UNCOUNTED {
                return (released, true);
            }
        }
        (released, false)
    }

    fn note(&mut self, name: &str, pod: &Object) {
        let lists = &mut self.status["uncountedTerminatedPods"];
        let mut uids: Vec<Value> = items(&lists[name]).cloned().collect();
        if !uids.iter().any(|uid| *uid == *pod.uid) {
            uids.push((&*pod.uid).into());
            lists[name] = uids.into();
        }
    }

    /// Returns the last failed pod of each index, which is kept until it is replaced because it records how often the index failed.
    fn kept_per_index(&self) -> BTreeSet<Arc<str>> {
        let mut last: std::collections::BTreeMap<i64, &Arc<Object>> = std::collections::BTreeMap::new();
        if self.backoff_per_index().is_none() {
            return BTreeSet::new();
        }
        let running: BTreeSet<i64> = self.active.iter().filter_map(|pod| index_of(pod)).collect();
        for pod in self.pods.iter().filter(|pod| self.has_failed(pod) && pod.has_finalizer(TRACKING)) {
            let Some(index) = index_of(pod) else { continue };
            let over = self.succeeded_indexes.contains(index)
                || self.failed_indexes.contains(index)
                || running.contains(&index)
                || policies::failure(self.job, pod) == Verdict::FailIndex;
            if over {
                continue;
            }
            let known = last.entry(index).or_insert(pod);
            if all_failures_before(pod) > all_failures_before(known) {
                *known = pod;
            }
        }
        last.into_values().map(|pod| Arc::clone(&pod.uid)).collect()
    }

    fn show_indexes(&mut self) {
        let status = &mut self.status;
        let done = self.succeeded_indexes.to_string();
        let fields = [
            ("completedIndexes", (!done.is_empty()).then_some(Value::from(done))),
            ("succeeded", Some(self.succeeded_indexes.len()).filter(|count| *count > 0).map(Value::from)),
        ];
        for (name, value) in fields {
            match value {
                Some(value) => status[name] = value,
                None => drop(status.as_object_mut().and_then(|status| status.remove(name))),
            }
        }
        if self.job.spec()["backoffLimitPerIndex"].is_i64() {
            status["failedIndexes"] = self.failed_indexes.to_string().into();
        }
    }

    /// Shows in the status how the Job will end, before the finalizers are removed.
    fn show_interim(&mut self) {
        let Some(finished) = self.finished.clone() else { return };
        let kind = text(&finished["type"]).to_owned();
        if kind == "Failed" {
            return;
        }
        if condition(&self.status, &kind).is_none() {
            self.add_condition(finished.clone());
        }
        let last = if kind == "FailureTarget" { "Failed" } else { "Complete" };
        self.finished = Some(self.condition(last, text(&finished["reason"]), text(&finished["message"])));
    }

    fn add_condition(&mut self, condition: Value) {
        let mut conditions: Vec<Value> = items(&self.status["conditions"]).cloned().collect();
        conditions.push(condition);
        self.status["conditions"] = conditions.into();
    }

    /// Ends the Job once everything is counted and no pod is terminating.
    fn end(&mut self, terminating: usize, reached_most: bool) {
        let uncounted = &self.status["uncountedTerminatedPods"];
        let open = ["succeeded", "failed"].iter().any(|name| items(&uncounted[*name]).next().is_some());
        // The pods that this plan deletes are terminating as well.
        if reached_most || open || terminating > 0 || (self.finished.is_some() && !self.active.is_empty()) {
            return;
        }
        let Some(finished) = self.finished.clone() else { return };
        if finished["type"] == "Complete" {
            self.status["completionTime"] = finished["lastTransitionTime"].clone();
            self.plan.notes.push(Note::normal(self.job, "Completed", "Job completed"));
        } else {
            let reason = match text(&finished["reason"]) {
                "PodFailurePolicy" => "PodFailurePolicy",
                "DeadlineExceeded" => "DeadlineExceeded",
                "MaxFailedIndexesExceeded" => "MaxFailedIndexesExceeded",
                "FailedIndexes" => "FailedIndexes",
                _ => "BackoffLimitExceeded",
            };
            self.plan.notes.push(Note::warning(self.job, reason, text(&finished["message"])));
        }
        self.add_condition(finished);
    }
}
