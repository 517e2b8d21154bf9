//! Contents of a policy's status.

use gc_types::Timestamp;
use serde_json::{Value, json};

use super::Problem;
use super::engine::{PolicyEngine, named};
use crate::objects::time_text;

/// Maximum number of due objects that are named.
const EXAMPLES: usize = 10;

fn messages(problems: &[Problem]) -> String {
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    problems.join("; ")
}

/// Reports whether a merge patch would not change a stored value.
fn says(stored: &Value, patch: &Value) -> bool {
    match (stored, patch) {
        (stored, Value::Object(patch)) => patch.iter().all(|(name, wanted)| match stored.get(name) {
            None => wanted.is_null(),
            Some(found) => says(found, wanted),
        }),
        (stored, patch) => stored == patch,
    }
}

impl PolicyEngine {
    /// Returns the merge patch for a stored status if it is not up to date; if it is, the due objects have been shown.
    pub fn status_to_write(&mut self, stored: &Value, now: Timestamp) -> Option<Value> {
        let status = self.status(stored, now);
        if !says(stored, &status) {
            return Some(status);
        }
        if !status["due"].is_null() {
            self.shown();
        }
        None
    }

    /// Returns the state of the policy, for the metric [`crate::measures::POLICIES`].
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (self.policy(), self.trouble()) {
            (None, _) => "invalid",
            (_, Some(_)) => "failing",
            (Some(policy), None) if !policy.enforce => "dry-run",
            _ if !self.shown || !self.synced => "first-look",
            _ => "enforced",
        }
    }

    /// Returns a problem that an operator has to solve, as reason and message of an Event.
    #[must_use]
    pub fn trouble(&self) -> Option<(&'static str, String)> {
        if let Err(problems) = &self.policy {
            return Some(("PolicyInvalid", messages(problems)));
        }
        if let Some(why) = self.unwatched.as_ref().filter(|_| self.was_refused) {
            return Some(("PolicyNotObserving", why.clone()));
        }
        self.failure().map(|(_, message)| ("PolicyFailing", message))
    }

    /// Returns a failure of a valid policy, as reason and message of the condition.
    fn failure(&self) -> Option<(&'static str, String)> {
        let collector = self.engine.collector();
        if let Some((key, why)) = collector.unclear().first_key_value() {
            return Some(("ConditionFailed", format!("spec.condition on {}: {why}", named(key))));
        }
        let error = self.last_run.as_ref().and_then(|run| run.error.as_ref())?;
        Some(("DeletionFailed", error.clone()))
    }

    /// Returns the `status` to write now. `before` is the stored one, from which the times of unchanged conditions are kept.
    #[must_use]
    pub fn status(&self, before: &Value, now: Timestamp) -> Value {
        let collector = self.engine.collector();
        let mut status = json!({
            "observedGeneration": self.generation,
            "observedSpec": self.spec_digest,
            "conditions": self.conditions(&before["conditions"], now),
            "deleted": self.deleted,
            // In a merge patch, null removes a field.
            "selected": null, "due": null, "kept": null, "unclear": null, "examples": null,
            "lastRun": null, "nextRun": null, "noticedUntil": null,
        });
        if let Some(until) = collector.noticed_until() {
            status["noticedUntil"] = time_text(until).into();
        }
        if self.policy().is_some() && self.synced {
            status["selected"] = collector.selected().into();
            status["due"] = collector.due().len().into();
            status["kept"] = collector.kept().into();
            status["unclear"] = collector.unclear().len().into();
            let examples = collector.due().iter().take(EXAMPLES).map(|(_, key)| {
                let mut example = json!({"name": &*key.name, "why": collector.why(key).unwrap_or_default()});
                if !key.namespace.is_empty() {
                    example["namespace"] = (*key.namespace).into();
                }
                example
            });
            status["examples"] = examples.collect();
        }
        if let Some(run) = &self.last_run {
            status["lastRun"] =
                json!({"time": time_text(run.begun), "deleted": run.deleted, "failed": run.failed});
            // Null removes the error of an earlier run.
            status["lastRun"]["error"] = run.error.as_deref().into();
            if self.policy().is_some_and(|policy| policy.recorder().is_some()) {
                status["lastRun"]["undo"] = if run.undo.is_empty() { Value::Null } else { json!(run.undo) };
            }
        }
        if let Some(next) = self.next_run.filter(|_| self.enforces()) {
            status["nextRun"] = time_text(next).into();
        }
        status
    }

    fn conditions(&self, before: &Value, now: Timestamp) -> Value {
        let valid = match &self.policy {
            Ok(_) => ("Valid", true, "SpecUnderstood", "The policy is understood".to_owned()),
            Err(problems) => ("Valid", false, "SpecInvalid", messages(problems)),
        };
        let observing = match &self.unwatched {
            _ if self.policy.is_err() => ("Observing", false, "SpecInvalid", "Nothing is watched".to_owned()),
            Some(why) => ("Observing", false, "NotWatched", why.clone()),
            None => ("Observing", true, "Watched", "Its objects are watched".to_owned()),
        };
        let enforced = match self.policy() {
            None => ("Enforced", false, "SpecInvalid", "Nothing is deleted".to_owned()),
            Some(policy) if !policy.enforce => (
                "Enforced",
                false,
                "DryRun",
                "Nothing is deleted: status.due is what would be deleted; set spec.enforce to delete it"
                    .to_owned(),
            ),
            Some(_) if !self.shown => (
                "Enforced",
                false,
                "FirstLook",
                "Nothing is deleted before a status of this generation has shown what would be deleted"
                    .to_owned(),
            ),
            Some(_) if !self.synced => (
                "Enforced",
                false,
                "NotWatched",
                "Nothing is deleted until the objects are watched".to_owned(),
            ),
            Some(policy) if !self.engine.collector().is_recorded() => (
                "Enforced",
                false,
                "NotRecorded",
                format!(
                    "Nothing is deleted while no recorder keeps it: Lease {} is not renewed by one that records every {}",
                    policy.recorder().map_or("", |lease| &**lease),
                    policy.kind,
                ),
            ),
            Some(policy) if policy.recorder().is_some() => (
                "Enforced",
                true,
                "Enforced",
                "What is due is deleted within an hour after a look (kubegc garbage --quarantine --yes)"
                    .to_owned(),
            ),
            Some(_) => ("Enforced", true, "Enforced", "What is due is deleted".to_owned()),
        };
        let failing = match self.failure() {
            Some((reason, message)) => ("Failing", true, reason, message),
            None => ("Failing", false, "NoFailures", "Nothing has failed".to_owned()),
        };
        [valid, observing, enforced, failing]
            .map(|(kind, holds, reason, message)| {
                let status = if holds { "True" } else { "False" };
                let mut known = before.as_array().into_iter().flatten();
                let same = known.find(|known| known["type"] == kind && known["status"] == status);
                let since = same.and_then(|known| known["lastTransitionTime"].as_str());
                json!({
                    "type": kind, "status": status, "reason": reason, "message": message,
                    "observedGeneration": self.generation,
                    "lastTransitionTime": since.map_or_else(|| time_text(now), str::to_owned),
                })
            })
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_written_only_if_it_says_something_new() {
        let stored = json!({"due": 1, "lastRun": {"failed": 0}, "conditions": [{"type": "Valid"}]});
        for (patch, expected) in [
            (json!({"due": 1, "selected": null, "lastRun": {"failed": 0, "error": null}}), true),
            (json!({"due": 1, "conditions": [{"type": "Valid"}]}), true),
            (json!({"due": 2}), false),
            (json!({"due": null}), false),
            (json!({"selected": 1}), false),
            (json!({"lastRun": null}), false),
            (json!({"lastRun": {"error": "x"}}), false),
            (json!({"conditions": []}), false),
        ] {
            assert_eq!(says(&stored, &patch), expected, "{patch}");
        }
        assert!(!says(&Value::Null, &json!({"due": 0})));
    }
}
