//! Number of a Job's pods at a time, and their contents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::policies::{self, Verdict};
use super::{
    IGNORED_FAILURES, INDEX, INDEX_FAILURES, TRACKING, Work, all_failures_before, failures_before,
    ignored_before, index_of,
};
use crate::object::{Object, condition, int, items, text};
use crate::plan::Request;
use crate::pods;
use crate::time::{self, Milliseconds, SECOND};

/// Maximum number of pods that are created or deleted in one pass.
const MOST_AT_ONCE: usize = 500;
/// Delay after a Job's first failure; it doubles with each further one.
const FIRST_PAUSE: Milliseconds = 10 * SECOND;
/// Maximum pause after a failure.
const LONGEST_PAUSE: Milliseconds = 600 * SECOND;

impl Work<'_> {
    /// Deletes or creates pods until the wanted number is active, and returns how many are then, and how many of them are ready.
    pub(super) fn manage(&mut self, ready: usize) -> (usize, usize) {
        let active = self.active.len();
        let wanted = if self.is_suspended() { 0 } else { self.wanted(active) };
        let doomed = self.surplus(wanted);
        if !doomed.is_empty() {
            let were_ready = doomed.iter().filter(|pod| pod.ready).count();
            self.dismiss_pods(&doomed);
            return (active - doomed.len(), ready - were_ready);
        }
        let terminating = self.pods.iter().filter(|pod| pods::is_terminating(pod)).count();
        let held = if self.replaces_failed_only() { terminating } else { 0 };
        let missing = wanted.saturating_sub(held + active).min(MOST_AT_ONCE);
        if missing == 0 {
            return (active, ready);
        }
        if self.backoff_per_index().is_none()
            && let Some(at) = self.pause_until()
        {
            self.plan.again_at(at);
            // Upstream shows no active pods during the pause, even if some run.
            return (0, ready);
        }
        let (requests, pauses) = self.pods_to_create(missing);
        let created = requests.len();
        if created == 0 && pauses {
            return (0, ready);
        }
        self.plan.slowly(requests);
        (active + created, ready)
    }

    fn wanted(&self, active: usize) -> usize {
        let parallelism = int(&self.spec()["parallelism"], 1);
        let wanted = match self.completions() {
            // Once one has succeeded, the others are left to end by themselves.
            None if self.succeeded > 0 => return active,
            None => parallelism,
            Some(completions) => (completions - self.succeeded - self.failed_indexes.len()).min(parallelism),
        };
        usize::try_from(wanted).unwrap_or_default()
    }

    /// Returns the surplus pods: first those whose index has another pod or is done, then those that do the least work.
    fn surplus(&self, wanted: usize) -> Vec<Arc<Object>> {
        let mut seen = BTreeSet::new();
        let (mut doomed, mut rest) = (Vec::new(), Vec::new());
        for pod in &self.active {
            let index = index_of(pod);
            let valid = index.is_some_and(|index| {
                index < self.completions().unwrap_or_default() && !self.succeeded_indexes.contains(index)
            });
            if self.is_indexed() && !(valid && seen.insert(index)) {
                doomed.push(pod);
            } else {
                rest.push(pod);
            }
        }
        rest.sort_by_key(|pod| {
            let bound = !pods::node_name(pod).is_empty();
            (bound, text(&pod.status()["phase"]) == "Running", pod.ready, std::cmp::Reverse(pod.created))
        });
        let more = rest.len().saturating_sub(wanted);
        doomed.extend(rest.into_iter().take(more));
        doomed.into_iter().take(MOST_AT_ONCE).cloned().collect()
    }

    /// Returns the time until which no pod is created, after pods have failed without any success since. Failures that a policy
    /// ignores count, too.
    fn pause_until(&self) -> Option<Milliseconds> {
        let pods = &self.pods;
        let succeeded =
            pods.iter().filter(|pod| pod.status()["phase"] == "Succeeded").map(|pod| ended(pod)).max();
        let failures = pods.iter().filter(|pod| self.has_failed(pod));
        let times: Vec<Milliseconds> = failures
            .map(|pod| ended(pod))
            .filter(|at| succeeded.is_none_or(|success| *at > success))
            .collect();
        let last = times.iter().max()?;
        let until = last + pause(i64::try_from(times.len() - 1).unwrap_or(i64::MAX));
        (until > self.view.now).then_some(until)
    }

    /// Returns the time until which no pod is created for an index whose last pod failed.
    fn pause_of_index_until(&self, last: &Object) -> Option<Milliseconds> {
        let until = ended(last) + pause(all_failures_before(last));
        (until > self.view.now).then_some(until)
    }

    /// Returns the pods to create, and whether indexes wait for the end of their pause.
    fn pods_to_create(&mut self, missing: usize) -> (Vec<Request>, bool) {
        if !self.is_indexed() {
            let pod = self.new_pod(None);
            return (vec![crate::replicasets::create_pod(self.job, pod); missing], false);
        }
        let taken: BTreeSet<i64> = self.active.iter().filter_map(|pod| index_of(pod)).collect();
        let completions = self.completions().unwrap_or_default();
        let mut by_index: BTreeMap<i64, Vec<Arc<Object>>> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| self.has_failed(pod)) {
            by_index.entry(index_of(pod).unwrap_or(-1)).or_default().push(Arc::clone(pod));
        }
        let free = (0..completions).filter(|index| {
            !taken.contains(index)
                && !self.succeeded_indexes.contains(*index)
                && !self.failed_indexes.contains(*index)
        });
        let chosen: Vec<i64> = free.take(missing).collect();
        let (mut requests, mut pauses) = (Vec::new(), false);
        for index in chosen {
            let failed = by_index.get(&index).map(Vec::as_slice).unwrap_or_default();
            let last = failed.iter().max_by_key(|pod| (all_failures_before(pod), ended(pod)));
            if self.backoff_per_index().is_some()
                && let Some(at) = last.and_then(|last| self.pause_of_index_until(last))
            {
                self.plan.again_at(at);
                pauses = true;
                continue;
            }
            let failures = last.map_or((0, 0), |last| self.failures_with(last));
            let pod = self.new_pod(Some((index, failures)));
            requests.push(crate::replicasets::create_pod(self.job, pod));
        }
        (requests, pauses)
    }

    /// Returns the counted and the ignored failures of an index, including that of this pod.
    fn failures_with(&self, pod: &Object) -> (i64, i64) {
        let ignored = i64::from(policies::failure(self.job, pod) == Verdict::Ignore);
        (failures_before(pod) + 1 - ignored, ignored_before(pod) + ignored)
    }

    fn new_pod(&self, index: Option<(i64, (i64, i64))>) -> Value {
        let mut pod = pods::from_template(&self.spec()["template"], self.job);
        let mut finalizers: Vec<Value> = items(&pod["metadata"]["finalizers"]).cloned().collect();
        if !finalizers.iter().any(|present| present == TRACKING) {
            finalizers.push(TRACKING.into());
        }
        pod["metadata"]["finalizers"] = finalizers.into();
        let Some((index, (failures, ignored))) = index else { return pod };
        let shown = index.to_string();
        let metadata = &mut pod["metadata"];
        for map in ["annotations", "labels"] {
            if !metadata[map].is_object() {
                metadata[map] = json!({});
            }
            metadata[map][INDEX] = shown.clone().into();
        }
        if self.backoff_per_index().is_some() {
            metadata["annotations"][INDEX_FAILURES] = failures.to_string().into();
            if ignored > 0 {
                metadata["annotations"][IGNORED_FAILURES] = ignored.to_string().into();
            }
        }
        metadata["generateName"] = format!("{}-{index}-", self.job.name()).into();
        pod["spec"]["hostname"] = format!("{}-{index}", self.job.name()).into();
        let variable = json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {
            "apiVersion": "v1", "fieldPath": format!("metadata.labels['{INDEX}']")}}});
        for list in ["initContainers", "containers"] {
            for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
                let mut variables: Vec<Value> = items(&container["env"]).cloned().collect();
                if !variables.iter().any(|known| known["name"] == "JOB_COMPLETION_INDEX") {
                    variables.push(variable.clone());
                }
                container["env"] = variables.into();
            }
        }
        pod
    }
}

/// Returns the pause before creating pods after this number of earlier failures.
fn pause(failures_before: i64) -> Milliseconds {
    let doublings = u32::try_from(failures_before).unwrap_or(u32::MAX).min(16);
    (FIRST_PAUSE << doublings).min(LONGEST_PAUSE)
}

/// Returns when a pod ended: when its last container did, or else when it ceased to be ready or its deletion was requested.
pub(super) fn ended(pod: &Object) -> Milliseconds {
    let status = pod.status();
    let containers: Option<Vec<Milliseconds>> = items(&status["containerStatuses"])
        .map(|container| time::parse(&container["state"]["terminated"]["finishedAt"]))
        .collect();
    let unready = || {
        let ready = condition(status, "Ready").filter(|ready| ready["status"] == "False")?;
        time::parse(&ready["lastTransitionTime"])
    };
    let deleted = || {
        let metadata = &pod.value["metadata"];
        let grace = int(&metadata["deletionGracePeriodSeconds"], 0) * SECOND;
        Some(time::parse(&metadata["deletionTimestamp"])? - grace)
    };
    let finished = containers.and_then(|times| times.into_iter().max());
    finished.or_else(unready).or_else(deleted).unwrap_or(pod.created)
}
