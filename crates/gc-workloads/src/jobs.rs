//! Jobs: pods that have to succeed a number of times. Each pod carries a finalizer until it has been counted, so that none is
//! missed or counted twice.

mod creation;
mod indexes;
mod policies;
#[cfg(test)]
mod tests;
mod tracking;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::claims::ClaimedObjects;
use crate::kinds::{Key, Kind};
use crate::object::{Object, condition, has_condition, int, items, text};
use crate::plan::{Note, Plan, Request, View};
use crate::pods;
use crate::store::Change;
use crate::time::{self, SECOND};
use indexes::Indexes;
use policies::Verdict;

/// Finalizer that keeps a pod until its Job has counted it.
pub(crate) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Annotation with the completion index of a pod.
pub(crate) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotation with the number of earlier failures of the same index.
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation with the number of earlier failures of the same index that did not count.
const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// Name of this controller in a Job's `spec.managedBy`.
const MANAGER: &str = "kubernetes.io/job-controller";

/// An unfinished Job, with its pods and their totals.
struct Work<'a> {
    view: &'a View<'a>,
    job: &'a Object,
    pods: Vec<Arc<Object>>,
    active: Vec<Arc<Object>>,
    status: Value,
    /// Number of active pods that this plan deletes.
    deleted: usize,
    /// Condition that ends the Job.
    finished: Option<Value>,
    /// Successes and failures, including those that are not in the counters yet.
    succeeded: i64,
    failed: i64,
    succeeded_indexes: Indexes,
    failed_indexes: Indexes,
    plan: Plan,
}

/// Reconciles a Job with its pods, and a pod that no Job counts by itself.
pub(crate) fn wakes(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    match object.key.kind {
        Kind::Job => {
            keys.push(object.key.clone());
            let ended = change.after.as_ref().is_none_or(|job| is_finished(job));
            if ended {
                let tracked = view
                    .store
                    .controlled_by(&object.uid, Kind::Pod)
                    .filter(|pod| pod.has_finalizer(TRACKING));
                keys.extend(tracked.map(|pod| pod.key.clone()));
            }
        }
        Kind::Pod => {
            crate::replicasets::wake_owners(view, change, Kind::Job, keys);
            if change
                .after
                .as_ref()
                .is_some_and(|pod| pod.has_finalizer(TRACKING) && counting_job(view, pod).is_none())
            {
                keys.push(object.key.clone());
            }
        }
        _ => {}
    }
}

fn is_finished(job: &Object) -> bool {
    has_condition(job.status(), "Complete") || has_condition(job.status(), "Failed")
}

/// Returns the Job that will count a pod.
fn counting_job<'a>(view: &View<'a>, pod: &Object) -> Option<&'a Arc<Object>> {
    view.store.controller_of(pod).filter(|owner| owner.key.kind == Kind::Job && !is_finished(owner))
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    if key.kind == Kind::Pod {
        return release_pod(view, key);
    }
    let Some(job) = view.store.get(key) else { return Plan::default() };
    let managed_by = job.spec()["managedBy"].as_str();
    if is_finished(job) || managed_by.is_some_and(|name| name != MANAGER) {
        return Plan::default();
    }
    let claimed = ClaimedObjects::by_selector(view.store, job, Kind::Pod);
    if let Some(plan) = claimed.settle(job) {
        return plan;
    }
    let mut work = Work::new(view, job, claimed.mine);
    work.run();
    work.plan
}

/// Removes the finalizer of a pod that no Job counts any more.
fn release_pod(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    if let Some(pod) = view.store.get(key)
        && pod.has_finalizer(TRACKING)
        && counting_job(view, pod).is_none()
    {
        plan.then(tracking::without_finalizer(pod, "uncounted"));
    }
    plan
}

pub(super) fn index_of(pod: &Object) -> Option<i64> {
    pod.annotation(INDEX)?.parse().ok()
}

impl<'a> Work<'a> {
    fn new(view: &'a View<'a>, job: &'a Object, pods: Vec<Arc<Object>>) -> Self {
        let active = pods.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        let mut status = job.status().clone();
        if !status.is_object() {
            status = json!({});
        }
        if status["uncountedTerminatedPods"].is_null() {
            status["uncountedTerminatedPods"] = json!({});
        }
        Self {
            view,
            job,
            pods,
            active,
            status,
            deleted: 0,
            finished: None,
            succeeded: 0,
            failed: 0,
            succeeded_indexes: Indexes::default(),
            failed_indexes: Indexes::default(),
            plan: Plan::default(),
        }
    }

    fn spec(&self) -> &'a Value {
        self.job.spec()
    }

    fn completions(&self) -> Option<i64> {
        self.spec()["completions"].as_i64()
    }

    fn is_indexed(&self) -> bool {
        self.spec()["completionMode"] == "Indexed"
    }

    fn is_suspended(&self) -> bool {
        self.spec()["suspend"] == true
    }

    fn backoff_per_index(&self) -> Option<i64> {
        self.spec()["backoffLimitPerIndex"].as_i64()
    }

    /// Reports whether pods are replaced only once they have failed, and not while they are terminating.
    fn replaces_failed_only(&self) -> bool {
        self.spec()["podReplacementPolicy"] == "Failed" || self.spec()["podFailurePolicy"].is_object()
    }

    fn has_failed(&self, pod: &Object) -> bool {
        match text(&pod.status()["phase"]) {
            "Failed" => true,
            "Succeeded" => false,
            _ => pod.deleting && !self.replaces_failed_only(),
        }
    }

    fn counts_as_failure(&self, pod: &Object) -> bool {
        policies::failure(self.job, pod) != Verdict::Ignore
    }

    fn run(&mut self) {
        self.count();
        let now = time::format(self.view.now);
        let mut shown = false;
        if self.status["startTime"].is_null() && !self.is_suspended() {
            self.status["startTime"] = now.clone();
        }
        self.decide_end();
        let mut active = self.active.len();
        let mut ready = self.active.iter().filter(|pod| pod.ready).count();
        if self.finished.is_some() {
            let doomed: Vec<_> = self.active.clone();
            ready -= doomed.iter().filter(|pod| pod.ready).count();
            active = 0;
            self.delete_pods(&doomed);
        } else if !self.job.deleting {
            (active, ready) = self.manage(ready);
            shown = self.show_suspension(active, &now);
        }
        let terminating = self.pods.iter().filter(|pod| pods::is_terminating(pod)).count() + self.deleted;
        for (name, value) in [("ready", ready), ("terminating", terminating)] {
            self.status[name] = value.into();
        }
        match active {
            0 => drop(self.status.as_object_mut().and_then(|status| status.remove("active"))),
            active => self.status["active"] = active.into(),
        }
        self.track(terminating, shown);
    }

    /// Adds up successes and failures: the counters, and what is not in them yet.
    fn count(&mut self) {
        let uncounted = self.status["uncountedTerminatedPods"].clone();
        let in_list = |name: &str, pod: &Object| items(&uncounted[name]).any(|uid| *uid == *pod.uid);
        let listed = |name: &str| i64::try_from(items(&uncounted[name]).count()).unwrap_or_default();
        self.succeeded = int(&self.status["succeeded"], 0) + listed("succeeded");
        self.failed = int(&self.status["failed"], 0) + listed("failed");
        for pod in self.pods.iter().filter(|pod| pod.has_finalizer(TRACKING)) {
            if pod.status()["phase"] == "Succeeded" && !in_list("succeeded", pod) {
                self.succeeded += 1;
            } else if self.has_failed(pod) && !in_list("failed", pod) && self.counts_as_failure(pod) {
                self.failed += 1;
            }
        }
        if self.is_indexed() {
            self.count_indexes();
        }
    }

    fn count_indexes(&mut self) {
        let completions = self.completions().unwrap_or_default();
        let mut done = Indexes::parse(text(&self.status["completedIndexes"]), completions);
        let mut failed = Indexes::parse(text(&self.status["failedIndexes"]), completions);
        for pod in self.pods.iter().filter(|pod| pod.has_finalizer(TRACKING)) {
            let Some(index) = index_of(pod).filter(|index| *index < completions) else { continue };
            if pod.status()["phase"] == "Succeeded" {
                done.insert(index);
            } else if let Some(limit) = self.backoff_per_index()
                && self.has_failed(pod)
                && self.has_index_failed(pod, limit)
            {
                failed.insert(index);
            }
        }
        self.succeeded = done.len();
        self.succeeded_indexes = done;
        self.failed_indexes = failed;
    }

    fn has_index_failed(&self, pod: &Object, limit: i64) -> bool {
        match policies::failure(self.job, pod) {
            Verdict::FailIndex => true,
            Verdict::Ignore => false,
            _ => failures_before(pod) >= limit,
        }
    }

    /// Decides whether the Job has failed or succeeded, in which case running pods are stopped.
    fn decide_end(&mut self) {
        if let Some(target) =
            condition(&self.status, "FailureTarget").filter(|target| target["status"] == "True")
        {
            self.finished = Some(self.condition("Failed", text(&target["reason"]), text(&target["message"])));
            return;
        }
        if let Some(met) = condition(&self.status, "SuccessCriteriaMet").filter(|met| met["status"] == "True")
        {
            self.finished =
                Some(self.condition("SuccessCriteriaMet", text(&met["reason"]), text(&met["message"])));
            return;
        }
        let failing = self.pods.iter().filter(|pod| self.has_failed(pod));
        let by_policy =
            failing.map(|pod| policies::failure(self.job, pod)).find_map(|verdict| match verdict {
                Verdict::FailJob(message) => Some(message),
                _ => None,
            });
        let overdue = self.is_past_deadline();
        let target = |reason: &str, message: &str| Some(self.condition("FailureTarget", reason, message));
        self.finished = if let Some(message) = by_policy {
            target("PodFailurePolicy", &message)
        } else if self.failed > int(&self.spec()["backoffLimit"], 6) || self.restarts_exceed() {
            target("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        } else if overdue {
            target("DeadlineExceeded", "Job was active longer than specified deadline")
        } else {
            self.judge_indexes()
        };
    }

    fn judge_indexes(&self) -> Option<Value> {
        if !self.is_indexed() {
            return None;
        }
        let completions = self.completions().unwrap_or_default();
        let (failed, succeeded) = (self.failed_indexes.len(), self.succeeded_indexes.len());
        if self.backoff_per_index().is_some() {
            if self.spec()["maxFailedIndexes"].as_i64().is_some_and(|most| failed > most) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return Some(self.condition("FailureTarget", "MaxFailedIndexesExceeded", message));
            }
            if failed > 0 && failed + succeeded >= completions {
                return Some(self.condition("FailureTarget", "FailedIndexes", "Job has failed indexes"));
            }
        }
        let message = policies::success(self.job, &self.succeeded_indexes, completions)?;
        Some(self.condition("SuccessCriteriaMet", "SuccessPolicy", &message))
    }

    /// Reports whether restarts of containers, which count if pods are not replaced, exceed the limit.
    fn restarts_exceed(&self) -> bool {
        if self.spec()["template"]["spec"]["restartPolicy"] != "OnFailure" {
            return false;
        }
        let limit = int(&self.spec()["backoffLimit"], 6);
        let living =
            self.pods.iter().filter(|pod| matches!(text(&pod.status()["phase"]), "Running" | "Pending"));
        let restarts: i64 = living
            .flat_map(|pod| {
                items(&pod.status()["containerStatuses"]).chain(items(&pod.status()["initContainerStatuses"]))
            })
            .map(|container| int(&container["restartCount"], 0))
            .sum();
        if limit == 0 { restarts > 0 } else { restarts >= limit }
    }

    fn is_past_deadline(&mut self) -> bool {
        let (Some(seconds), Some(started)) =
            (self.spec()["activeDeadlineSeconds"].as_i64(), time::parse(&self.status["startTime"]))
        else {
            return false;
        };
        if self.is_suspended() {
            return false;
        }
        let deadline = started + seconds * SECOND;
        if deadline > self.view.now {
            self.plan.again_at(deadline);
        }
        deadline <= self.view.now
    }

    fn condition(&self, kind: &str, reason: &str, message: &str) -> Value {
        let now = time::format(self.view.now);
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastProbeTime": now, "lastTransitionTime": now,
        })
    }

    /// Shows whether enough pods have succeeded or the Job is suspended, and returns whether the status has to be written.
    fn show_suspension(&mut self, active: usize, now: &Value) -> bool {
        let enough = match self.completions() {
            None => self.succeeded > 0,
            Some(completions) => self.succeeded >= completions,
        };
        if enough && active == 0 {
            let message = "Reached expected number of succeeded pods";
            self.finished = Some(self.condition("SuccessCriteriaMet", "CompletionsReached", message));
            return false;
        }
        let known = condition(&self.status, "Suspended").map(|known| text(&known["status"]).to_owned());
        let (status, reason, message) = match (self.is_suspended(), known.as_deref()) {
            (true, None | Some("False")) => ("True", "JobSuspended", "Job suspended"),
            (false, Some("True")) => ("False", "JobResumed", "Job resumed"),
            _ => return false,
        };
        let mut new = self.condition("Suspended", reason, message);
        new["status"] = status.into();
        let mut conditions: Vec<Value> = items(&self.status["conditions"]).cloned().collect();
        match conditions.iter_mut().find(|condition| condition["type"] == "Suspended") {
            Some(known) => *known = new,
            None => conditions.push(new),
        }
        self.status["conditions"] = conditions.into();
        let event = if status == "True" { "Suspended" } else { "Resumed" };
        self.plan.notes.push(Note::normal(self.job, event, message));
        if status == "False" {
            // The deadline counts from here.
            self.status["startTime"] = now.clone();
        } else if let Some(status) = self.status.as_object_mut() {
            status.remove("startTime");
        }
        true
    }

    /// Deletes pods that the Job no longer wants to run: without the finalizer, they do not count as failures.
    fn dismiss_pods(&mut self, doomed: &[Arc<Object>]) {
        let tracked = doomed.iter().filter(|pod| pod.has_finalizer(TRACKING));
        let requests = tracked.map(|pod| tracking::without_finalizer(pod, "dismissed")).collect();
        self.plan.together(requests);
        self.delete_pods(doomed);
    }

    fn delete_pods(&mut self, doomed: &[Arc<Object>]) {
        self.deleted += doomed.len();
        let requests: Vec<Request> =
            doomed.iter().map(|pod| crate::replicasets::delete_pod(self.job, pod)).collect();
        self.plan.together(requests);
    }
}

/// Returns the number of all earlier failures of the same index.
fn all_failures_before(pod: &Object) -> i64 {
    failures_before(pod) + ignored_before(pod)
}

/// Returns the number of earlier failures of the same index that did not count.
fn ignored_before(pod: &Object) -> i64 {
    pod.annotation(IGNORED_FAILURES).and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// Returns the number of earlier failures of the same index that counted.
fn failures_before(pod: &Object) -> i64 {
    pod.annotation(INDEX_FAILURES).and_then(|count| count.parse().ok()).unwrap_or_default()
}
