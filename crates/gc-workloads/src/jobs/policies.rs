//! Policies of a Job about failed pods and succeeded indexes.

use serde_json::Value;

use super::indexes::Indexes;
use crate::object::{Object, items, text};

/// Verdict of a failure policy's rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Counts as a failure, as without a policy.
    Count,
    /// Does not count.
    Ignore,
    /// Its index has failed for good.
    FailIndex,
    /// The Job has failed, for this reason.
    FailJob(String),
}

/// Returns the verdict about a failed pod, by the first rule that matches it.
pub(super) fn failure(job: &Object, pod: &Object) -> Verdict {
    let rules = items(&job.spec()["podFailurePolicy"]["rules"]).enumerate();
    for (index, rule) in rules {
        let matched = if rule["onExitCodes"].is_object() {
            by_exit_code(&rule["onExitCodes"], pod).map(|container| {
                let code = &container["state"]["terminated"]["exitCode"];
                format!(
                    "Container {} for pod {}/{} failed with exit code {code} matching FailJob rule at index {index}",
                    text(&container["name"]),
                    pod.namespace(),
                    pod.name()
                )
            })
        } else {
            by_condition(&rule["onPodConditions"], pod).map(|kind| {
                format!(
                    "Pod {}/{} has condition {kind} matching FailJob rule at index {index}",
                    pod.namespace(),
                    pod.name()
                )
            })
        };
        let Some(message) = matched else { continue };
        return match text(&rule["action"]) {
            "Ignore" => Verdict::Ignore,
            "FailIndex" => Verdict::FailIndex,
            "FailJob" => Verdict::FailJob(message),
            _ => Verdict::Count,
        };
    }
    Verdict::Count
}

fn by_exit_code<'a>(rule: &Value, pod: &'a Object) -> Option<&'a Value> {
    let status = pod.status();
    let mut containers = items(&status["containerStatuses"]).chain(items(&status["initContainerStatuses"]));
    containers.find(|container| {
        let code = &container["state"]["terminated"]["exitCode"];
        let named = rule["containerName"].as_str().is_none_or(|name| container["name"] == name);
        let listed = items(&rule["values"]).any(|value| value == code);
        let fits = if rule["operator"] == "In" { listed } else { !listed };
        named && fits && code.as_i64().is_some_and(|code| code != 0)
    })
}

fn by_condition<'a>(patterns: &Value, pod: &'a Object) -> Option<&'a str> {
    items(&pod.status()["conditions"])
        .find(|condition| {
            let fits = |pattern: &Value| {
                let status = pattern["status"].as_str().unwrap_or("True");
                pattern["type"] == condition["type"] && condition["status"] == status
            };
            items(patterns).any(fits)
        })
        .map(|condition| text(&condition["type"]))
}

/// Explains why an indexed Job counts as succeeded before all of its indexes have.
pub(super) fn success(job: &Object, succeeded: &Indexes, completions: i64) -> Option<String> {
    let mut rules = items(&job.spec()["successPolicy"]["rules"]).enumerate();
    let (index, _) = rules.find(|(_, rule)| {
        let count = rule["succeededCount"].as_i64();
        match rule["succeededIndexes"].as_str() {
            Some(required) => {
                let required = Indexes::parse(required, completions);
                required.shared_with(succeeded) >= count.unwrap_or(i64::MAX).min(required.len())
            }
            None => count.is_some_and(|count| succeeded.len() >= count),
        }
    })?;
    Some(format!("Matched rules at index {index}"))
}
