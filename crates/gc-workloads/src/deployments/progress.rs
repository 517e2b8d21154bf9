//! Status of a Deployment: its counters, and the conditions about availability and progress.

use serde_json::{Value, json};

use super::Rollout;
use super::arithmetic::{max_unavailable, replicas_of};
use crate::object::{condition, int, items, text, without_zeros};
use crate::time::{self, SECOND};

/// Reports whether the Deployment has a deadline for progress.
pub(super) fn has_deadline(deployment: &Value) -> bool {
    let deadline = deployment["spec"]["progressDeadlineSeconds"].as_i64();
    deadline.is_some_and(|deadline| deadline != i64::from(i32::MAX))
}

/// Reports whether all wanted pods have the new template and are available, and no others are left.
pub(super) fn is_complete(deployment: &Value, status: &Value) -> bool {
    let wanted = replicas_of(deployment);
    ["updatedReplicas", "replicas", "availableReplicas"].iter().all(|name| int(&status[*name], 0) == wanted)
        && int(&status["observedGeneration"], 0) >= int(&deployment["metadata"]["generation"], 0)
}

/// Reports whether a status is closer to the goal than the one before it.
fn is_progress(before: &Value, after: &Value) -> bool {
    let count = |status: &Value, name: &str| int(&status[name], 0);
    let old = |status: &Value| count(status, "replicas") - count(status, "updatedReplicas");
    let more = |name: &str| count(after, name) > count(before, name);
    more("updatedReplicas") || old(after) < old(before) || more("readyReplicas") || more("availableReplicas")
}

/// Sets a condition, unless one with the same status and reason exists.
pub(super) fn set_condition(status: &mut Value, mut new: Value) {
    let known = condition(status, text(&new["type"]));
    if let Some(known) = known {
        if known["status"] == new["status"] && known["reason"] == new["reason"] {
            return;
        }
        if known["status"] == new["status"] {
            new["lastTransitionTime"] = known["lastTransitionTime"].clone();
        }
    }
    remove_condition(status, text(&new["type"]));
    match status["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(new),
        None => status["conditions"] = json!([new]),
    }
}

fn remove_condition(status: &mut Value, kind: &str) {
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|condition| condition["type"] != kind);
    }
}

impl Rollout<'_> {
    pub(super) fn condition(&self, kind: &str, status: &str, reason: &str, message: &str) -> Value {
        let now = time::format(self.view.now);
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastUpdateTime": now, "lastTransitionTime": now,
        })
    }

    /// Shows in the condition `Progressing` that a Deployment was paused or resumed.
    pub(super) fn note_pause(&mut self) {
        if !has_deadline(&self.value) {
            return;
        }
        let paused = self.value["spec"]["paused"] == true;
        let reason = condition(&self.value["status"], "Progressing").map(|known| text(&known["reason"]));
        let shown = reason == Some("DeploymentPaused");
        if reason == Some("ProgressDeadlineExceeded") || paused == shown {
            return;
        }
        let (reason, message) = if paused {
            ("DeploymentPaused", "Deployment is paused")
        } else {
            ("DeploymentResumed", "Deployment is resumed")
        };
        let condition = self.condition("Progressing", "Unknown", reason, message);
        set_condition(&mut self.value["status"], condition);
        self.shows_pause = true;
        self.send_status();
    }

    fn calculate(&self) -> Value {
        let counted = |name: &'static str| self.sum(|set| set.counted(name));
        let available = counted("availableReplicas");
        let mut status = json!({
            "observedGeneration": self.deployment.generation(),
            "replicas": counted("replicas"),
            "updatedReplicas": self.new.as_ref().map_or(0, |set| set.counted("replicas")),
            "readyReplicas": counted("readyReplicas"),
            "availableReplicas": available,
            // Sets that this plan resizes count with their former size; the next reconciliation shows the change.
            "unavailableReplicas": (self.sum(super::Set::wanted_before) - available).max(0),
        });
        status = without_zeros(status);
        let before = &self.value["status"];
        for kept in ["collisionCount", "conditions"] {
            if !before[kept].is_null() {
                status[kept] = before[kept].clone();
            }
        }
        // The sum is shown only if every set shows its own; a set that was never reconciled has no pods.
        let terminating: Option<Vec<i64>> = self
            .all()
            .filter(|set| set.counted("observedGeneration") != 0 || set.terminating().is_some())
            .map(super::Set::terminating)
            .collect();
        if let Some(terminating) = terminating {
            status["terminatingReplicas"] = terminating.iter().sum::<i64>().into();
        }
        let enough = available >= self.wanted() - max_unavailable(&self.value);
        let condition = if enough {
            let message = "Deployment has minimum availability.";
            self.condition("Available", "True", "MinimumReplicasAvailable", message)
        } else {
            let message = "Deployment does not have minimum availability.";
            self.condition("Available", "False", "MinimumReplicasUnavailable", message)
        };
        set_condition(&mut status, condition);
        status
    }

    /// Writes the status of a Deployment that is not rolling.
    pub(super) fn show_status(&mut self) {
        let status = self.calculate();
        if status != self.value["status"] {
            self.value["status"] = status;
            self.send_status();
        }
    }

    /// Writes the status of a rollout, with its condition `Progressing`.
    pub(super) fn show_progress(&mut self) {
        let mut status = self.calculate();
        if !has_deadline(&self.value) {
            remove_condition(&mut status, "Progressing");
        }
        let current = condition(&self.value["status"], "Progressing").cloned();
        let settled = int(&status["replicas"], 0) == int(&status["updatedReplicas"], 0)
            && current.as_ref().is_some_and(|current| current["reason"] == "NewReplicaSetAvailable");
        if has_deadline(&self.value) && !settled {
            self.set_progressing(&mut status, current.as_ref());
        }
        match self.replica_failure() {
            Some(failure) => set_condition(&mut status, failure),
            None => remove_condition(&mut status, "ReplicaFailure"),
        }
        if status == self.value["status"] {
            return self.look_again_at_deadline(&status);
        }
        self.value["status"] = status;
        self.send_status();
    }

    fn set_progressing(&self, status: &mut Value, current: Option<&Value>) {
        let subject = match &self.new {
            Some(set) => format!("ReplicaSet \"{}\"", set.name()),
            None => format!("Deployment \"{}\"", self.deployment.name()),
        };
        if is_complete(&self.value, status) {
            let message = format!("{subject} has successfully progressed.");
            set_condition(status, self.condition("Progressing", "True", "NewReplicaSetAvailable", &message));
        } else if is_progress(&self.value["status"], status) {
            let message = format!("{subject} is progressing.");
            let mut progressing = self.condition("Progressing", "True", "ReplicaSetUpdated", &message);
            if let Some(current) = current {
                if current["status"] == "True" {
                    progressing["lastTransitionTime"] = current["lastTransitionTime"].clone();
                }
                // Each step forward restarts the deadline.
                remove_condition(status, "Progressing");
            }
            set_condition(status, progressing);
        } else if self.is_overdue(status) {
            let message = format!("{subject} has timed out progressing.");
            set_condition(
                status,
                self.condition("Progressing", "False", "ProgressDeadlineExceeded", &message),
            );
        }
    }

    fn is_overdue(&self, status: &Value) -> bool {
        let Some(progressing) = condition(status, "Progressing") else { return false };
        match text(&progressing["reason"]) {
            "NewReplicaSetAvailable" => false,
            "ProgressDeadlineExceeded" => true,
            _ => self.deadline(progressing).is_some_and(|deadline| deadline < self.view.now),
        }
    }

    fn deadline(&self, progressing: &Value) -> Option<i64> {
        let seconds = self.value["spec"]["progressDeadlineSeconds"].as_i64()?;
        Some(time::parse(&progressing["lastUpdateTime"])? + seconds * SECOND)
    }

    /// Reconciles again when the deadline passes, and not before without a change.
    fn look_again_at_deadline(&mut self, status: &Value) {
        let progressing = condition(status, "Progressing");
        let Some(progressing) = progressing.filter(|_| has_deadline(&self.value)) else { return };
        let reason = text(&progressing["reason"]);
        if is_complete(&self.value, status) || reason == "ProgressDeadlineExceeded" {
            return;
        }
        if let Some(deadline) = self.deadline(progressing) {
            self.plan.again_at(deadline + SECOND);
        }
    }

    /// Returns the condition that a set cannot create or delete pods: the new set's failure, or else that of any other.
    fn replica_failure(&self) -> Option<Value> {
        let failures =
            self.new.iter().chain(&self.old).flat_map(|set| items(&set.value["status"]["conditions"]));
        let failure = failures.into_iter().find(|condition| condition["type"] == "ReplicaFailure")?;
        let since = &failure["lastTransitionTime"];
        Some(json!({
            "type": "ReplicaFailure", "status": failure["status"], "reason": failure["reason"],
            "message": failure["message"], "lastUpdateTime": since, "lastTransitionTime": since,
        }))
    }
}
