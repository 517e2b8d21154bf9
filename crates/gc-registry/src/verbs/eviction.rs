//! Evictions under disruption budgets.

use serde_json::{Value, json};

use super::deletion::Deletion;
use crate::error::{ApiError, Cause, Details};
use crate::kinds::access::{at, integer, list, members, put, text};
use crate::metadata::{meta, selector};
use crate::persist;
use crate::registry::call::{Call, MAX_TURNS, WriteResult};
use crate::storage::{KeyValue, RangeOptions};

/// Maximum number of evictions in progress under one budget.
const MAX_DISRUPTED_PODS: usize = 2000;

impl Call<'_> {
    /// Takes one of the disruptions that the budget of a pod permits. Fails with a 429 if it permits none.
    pub(crate) fn spend_disruption(&self, name: &str, dry_run: bool) -> Result<(), ApiError> {
        let pod = self.live()?;
        if meta::is_deleting(&pod)
            || matches!(text(&pod, &["status", "phase"]), "Pending" | "Succeeded" | "Failed")
        {
            return Ok(());
        }
        let catalog = self.registry.catalog();
        let Some(definition) = catalog.find("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
        let prefix = persist::collection_prefix(definition, &self.target.namespace);
        for _ in 0..MAX_TURNS {
            let answer = self
                .registry
                .storage
                .range(&prefix, &RangeOptions::default())
                .map_err(persist::storage_error)?;
            let mut found: Vec<(KeyValue, Value)> = Vec::new();
            for stored in answer.items {
                let budget = persist::decode(definition, &stored)?;
                let labels = at(&pod, &["metadata", "labels"]);
                if selector::object_matches(at(&budget, &["spec", "selector"]), labels) {
                    found.push((stored, budget));
                }
            }
            let Some((stored, mut budget)) = found.pop() else { return Ok(()) };
            if !found.is_empty() {
                return Err(ApiError::new(
                    500,
                    "",
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
            if is_unhealthy_and_free(&pod, &budget) {
                return Ok(());
            }
            self.spend(&mut budget, name)?;
            if dry_run {
                return Ok(());
            }
            let value = persist::encode(definition, &budget)?;
            if let WriteResult::Done(_) = self.commit(&stored.key, stored.mod_revision, Some(value))? {
                return Ok(());
            }
        }
        Err(self.modified(name))
    }

    /// Records in the pod the reason for its deletion, for the controller that counts failures. If the deletion has a precondition
    /// on the version, it becomes the version of this write.
    pub(crate) fn mark_disrupted(&self, name: &str, deletion: &mut Deletion) -> Result<(), ApiError> {
        if deletion.dry_run {
            return Ok(());
        }
        let key = self.key();
        for _ in 0..MAX_TURNS {
            let Some(stored) = self.read(&key)? else { return Err(self.not_found(name)) };
            let mut pod = self.decode(&stored)?;
            self.check_preconditions(name, &pod, deletion, true)?;
            let mut condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": self.now()});
            let mut conditions = list(&pod, &["status", "conditions"]).to_vec();
            match conditions.iter_mut().find(|known| text(known, &["type"]) == "DisruptionTarget") {
                Some(known) if text(known, &["status"]) == "True" => {
                    put(&mut condition, &["lastTransitionTime"], known["lastTransitionTime"].take());
                    *known = condition;
                }
                Some(known) => *known = condition,
                None => conditions.push(condition),
            }
            put(&mut pod, &["status", "conditions"], conditions.into());
            let value = self.encode(&pod)?;
            if value == stored.value {
                return Ok(());
            }
            if let WriteResult::Done(revision) = self.commit(&key, stored.mod_revision, Some(value))? {
                if deletion.resource_version.is_some() {
                    deletion.resource_version = Some(revision.to_string());
                }
                return Ok(());
            }
        }
        Err(self.modified(name))
    }

    fn spend(&self, budget: &mut Value, pod: &str) -> Result<(), ApiError> {
        let name = meta::name(budget).to_owned();
        let number = |field: &str| integer(budget, &["status", field]).unwrap_or_default();
        if number("observedGeneration") < meta::generation(budget) {
            let why = format!("The disruption budget {name} is still being processed by the server.");
            return Err(violated(why, Some(RETRY_SECONDS)));
        }
        let allowed = number("disruptionsAllowed");
        let refuse = |why: &str| ApiError::forbidden("policy", "poddisruptionbudgets", &name, why);
        if allowed < 0 {
            return Err(refuse("pdb disruptions allowed is negative"));
        }
        let disrupted = members(budget, &["status", "disruptedPods"]).map_or(0, serde_json::Map::len);
        if disrupted > MAX_DISRUPTED_PODS {
            return Err(refuse(
                "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            ));
        }
        if allowed == 0 {
            let failed = list(budget, &["status", "conditions"]).iter().find(|condition| {
                text(condition, &["type"]) == "DisruptionAllowed"
                    && text(condition, &["status"]) == "False"
                    && text(condition, &["reason"]) == "SyncFailed"
            });
            let why = match failed {
                Some(condition) => format!(
                    "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
                    text(condition, &["message"])
                ),
                None => format!(
                    "The disruption budget {name} needs {} healthy pods and has {} currently",
                    number("desiredHealthy"),
                    number("currentHealthy")
                ),
            };
            return Err(violated(why, None));
        }
        put(budget, &["status", "disruptionsAllowed"], (allowed - 1).into());
        put(budget, &["status", "disruptedPods", pod], self.now().into());
        if allowed == 1 {
            self.say_that_none_is_left(budget);
        }
        Ok(())
    }

    fn say_that_none_is_left(&self, budget: &mut Value) {
        let generation = meta::generation(budget);
        let condition = json!({"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
            "message": "", "observedGeneration": generation, "lastTransitionTime": self.now()});
        let mut conditions = list(budget, &["status", "conditions"]).to_vec();
        match conditions.iter_mut().find(|known| text(known, &["type"]) == "DisruptionAllowed") {
            Some(known) => {
                let same = text(known, &["status"]) == "False";
                let since = known.get("lastTransitionTime").cloned();
                *known = condition;
                if let (true, Some(since)) = (same, since) {
                    put(known, &["lastTransitionTime"], since);
                }
            }
            None => conditions.push(condition),
        }
        put(budget, &["status", "conditions"], conditions.into());
    }
}

/// Delay before a client should retry if its budget has not been reconciled yet.
const RETRY_SECONDS: u32 = 10;

fn violated(why: String, retry_after_seconds: Option<u32>) -> ApiError {
    let mut error = ApiError::new(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    let cause = Cause { reason: "DisruptionBudget".into(), message: why, field: String::new() };
    error.details =
        Some(Box::new(Details { causes: vec![cause], retry_after_seconds, ..Details::default() }));
    error
}

/// Reports whether a pod that does not serve anyway may be deleted, because its budget permits it or is met without it.
fn is_unhealthy_and_free(pod: &Value, budget: &Value) -> bool {
    let is_ready = list(pod, &["status", "conditions"])
        .iter()
        .any(|condition| text(condition, &["type"]) == "Ready" && text(condition, &["status"]) == "True");
    let number = |field: &str| integer(budget, &["status", field]).unwrap_or_default();
    let met = number("desiredHealthy") > 0 && number("currentHealthy") >= number("desiredHealthy");
    !is_ready && (text(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow" || met)
}
