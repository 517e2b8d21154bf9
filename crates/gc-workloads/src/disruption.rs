//! PodDisruptionBudgets: their status contains how many of their pods may be disrupted. The API server reads it to refuse
//! evictions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::deployments::scaled;
use crate::kinds::{Key, Kind};
use crate::object::{Object, condition, controller_of, int, items, map, text};
use crate::plan::{Note, Plan, Request, View};
use crate::selector;
use crate::store::Change;
use crate::time::{self, Milliseconds, SECOND};

/// Maximum time for which a pod whose eviction was allowed counts as disrupted.
const DELETION_TIMEOUT: Milliseconds = 120 * SECOND;

/// Reconciles a budget when it changes, when a pod that it selects does, and when the manager of such pods is scaled.
pub(crate) fn wakes(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    let budgets = || view.store.in_namespace(Kind::PodDisruptionBudget, object.namespace());
    match object.key.kind {
        Kind::PodDisruptionBudget => keys.push(object.key.clone()),
        Kind::Pod => {
            let counted = |pod: &Object| (pod.ready, pod.deleting, pod.controller.clone());
            if let (Some(before), Some(after)) = (&change.before, &change.after)
                && counted(before) == counted(after)
                && before.labels() == after.labels()
            {
                return;
            }
            for budget in budgets() {
                let both = [&change.before, &change.after].into_iter().flatten();
                if both.into_iter().any(|pod| selects(budget, pod)) {
                    keys.push(budget.key.clone());
                }
            }
        }
        _ if change.differs(|owner| &owner.spec()["replicas"]) => {
            let managed = pods_of(view, object);
            let selected = |budget: &&Arc<Object>| managed.iter().any(|pod| selects(budget, pod));
            keys.extend(budgets().filter(selected).map(|budget| budget.key.clone()));
        }
        _ => {}
    }
}

fn selects(budget: &Object, pod: &Object) -> bool {
    selector::matches(&budget.spec()["selector"], pod.labels())
}

/// Returns the pods that an owner manages, for a Deployment through its ReplicaSets.
fn pods_of<'a>(view: &View<'a>, owner: &Object) -> Vec<&'a Arc<Object>> {
    let direct = view.store.controlled_by(&owner.uid, Kind::Pod);
    let sets = view.store.controlled_by(&owner.uid, Kind::ReplicaSet);
    direct.chain(sets.flat_map(|set| view.store.controlled_by(&set.uid, Kind::Pod))).collect()
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(budget) = view.store.get(key) else { return plan };
    let wanted = &budget.spec()["selector"];
    let labels = map(&wanted["matchLabels"]);
    let pods = view.store.pods_with(&key.namespace, &labels);
    let pods: Vec<&Arc<Object>> = pods.filter(|pod| selector::matches(wanted, pod.labels())).collect();
    if pods.is_empty() {
        plan.notes.push(Note::normal(budget, "NoPods", "No matching pods found"));
    }
    let (expected, desired) = match expectation(view, budget, &pods, &mut plan) {
        Ok(counts) => counts,
        Err(message) => {
            let text = format!("Failed to calculate the number of expected pods: {message}");
            plan.notes.push(Note::warning(budget, "CalculateExpectedPodCountFailed", text));
            fail_safe(view, budget, &message, &mut plan);
            return plan;
        }
    };
    let disrupted = disrupted(view, budget, &pods, &mut plan);
    let healthy =
        pods.iter().filter(|pod| !pod.deleting && !disrupted.contains_key(pod.name()) && pod.ready).count();
    let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    let mut status = json!({
        "observedGeneration": budget.generation(), "disruptionsAllowed": allowed, "currentHealthy": healthy,
        "desiredHealthy": desired, "expectedPods": expected,
        "conditions": items(&budget.status()["conditions"]).cloned().collect::<Vec<_>>(),
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = disrupted.into();
    }
    let (known, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set_condition(view, budget, &mut status, (known, reason, ""));
    write(budget, status, &mut plan);
    plan
}

/// Returns the expected number of pods, and the number that must be healthy.
fn expectation(
    view: &View<'_>,
    budget: &Object,
    pods: &[&Arc<Object>],
    plan: &mut Plan,
) -> Result<(i64, i64), String> {
    let spec = budget.spec();
    if !spec["maxUnavailable"].is_null() {
        let expected = expected_scale(view, budget, pods, plan)?;
        let unavailable = part_of(&spec["maxUnavailable"], expected)?;
        return Ok((expected, (expected - unavailable).max(0)));
    }
    match &spec["minAvailable"] {
        Value::Number(number) => {
            let expected = i64::try_from(pods.len()).unwrap_or(i64::MAX);
            Ok((expected, number.as_i64().unwrap_or_default()))
        }
        minimum @ Value::String(_) => {
            let expected = expected_scale(view, budget, pods, plan)?;
            Ok((expected, part_of(minimum, expected)?))
        }
        _ => Ok((0, 0)),
    }
}

fn part_of(value: &Value, total: i64) -> Result<i64, String> {
    scaled(value, total, true).ok_or_else(|| format!("{value} is neither a number nor a percentage"))
}

/// Returns the sum of the replicas of everything that manages the pods.
fn expected_scale(
    view: &View<'_>,
    budget: &Object,
    pods: &[&Arc<Object>],
    plan: &mut Plan,
) -> Result<i64, String> {
    let mut scales: BTreeMap<Arc<str>, i64> = BTreeMap::new();
    let mut unmanaged = false;
    for pod in pods {
        let Some(reference) = controller_of(&pod.value) else {
            unmanaged = true;
            continue;
        };
        let uid = text(&reference["uid"]);
        if scales.contains_key(uid) {
            continue;
        }
        let kind = Kind::of_reference(text(&reference["apiVersion"]), text(&reference["kind"]));
        if !kind.is_some_and(has_scale) {
            return Err(not_scalable(reference));
        }
        let Some(owner) = view.store.controller_of(pod) else { continue };
        let deployment = view.store.controller_of(owner).filter(|above| above.key.kind == Kind::Deployment);
        let owner = deployment.unwrap_or(owner);
        scales.insert(Arc::clone(&owner.uid), int(&owner.spec()["replicas"], 1));
    }
    if unmanaged {
        let wanted = selector_text(&budget.spec()["selector"]);
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {wanted}) were found to be unmanaged. As a result, the \
             status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for \
             these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
        );
        plan.notes.push(Note::warning(budget, "UnmanagedPods", message));
    }
    Ok(scales.values().sum())
}

const fn has_scale(kind: Kind) -> bool {
    matches!(kind, Kind::ReplicaSet | Kind::ReplicationController | Kind::Deployment | Kind::StatefulSet)
}

fn not_scalable(reference: &Value) -> String {
    let (api_version, kind) = (text(&reference["apiVersion"]), text(&reference["kind"]));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let known = Kind::of_reference(api_version, kind);
    let resource =
        known.map_or_else(|| format!("{}s", kind.to_lowercase()), |kind| kind.served().resource.into());
    let dot = if group.is_empty() { "" } else { "." };
    format!("{resource}{dot}{group} does not implement the scale subresource")
}

/// Formats a selector as in upstream's messages.
fn selector_text(selector: &Value) -> String {
    let labels = map(&selector["matchLabels"]);
    let labels = labels.iter().map(|(name, value)| format!("{name}: {},", text(value)));
    let labels = labels.collect::<Vec<_>>().concat();
    let requirements = items(&selector["matchExpressions"]).map(|requirement| {
        let (key, operator) = (text(&requirement["key"]), text(&requirement["operator"]));
        let values: Vec<&str> = items(&requirement["values"]).map(text).collect();
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},", values.join(" "))
    });
    let requirements = requirements.collect::<Vec<_>>().concat();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )
}

/// Returns the pods whose eviction was allowed recently and whose deletion has not been observed yet.
fn disrupted(view: &View<'_>, budget: &Object, pods: &[&Arc<Object>], plan: &mut Plan) -> Map<String, Value> {
    let mut kept = Map::new();
    for (name, at) in budget.status()["disruptedPods"].as_object().into_iter().flatten() {
        let Some(pod) = pods.iter().find(|pod| pod.name() == name && !pod.deleting) else { continue };
        let until = time::parse(at).unwrap_or_default() + DELETION_TIMEOUT;
        if until < view.now {
            let (namespace, name) = (budget.namespace(), budget.name());
            let message = format!("Pod was expected by PDB {namespace}/{name} to be deleted but it wasn't");
            plan.notes.push(Note::warning(pod, "NotDeleted", message));
        } else {
            kept.insert(name.clone(), at.clone());
            plan.again_at(until + SECOND);
        }
    }
    kept
}

/// Allows no disruption while the state is unknown.
fn fail_safe(view: &View<'_>, budget: &Object, message: &str, plan: &mut Plan) {
    let mut status = Value::Object(map(budget.status()));
    status["disruptionsAllowed"] = 0.into();
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    set_condition(view, budget, &mut status, ("False", "SyncFailed", message));
    write(budget, status, plan);
}

fn set_condition(view: &View<'_>, budget: &Object, status: &mut Value, shown: (&str, &str, &str)) {
    let (known, reason, message) = shown;
    let before = condition(status, "DisruptionAllowed").filter(|before| before["status"] == known);
    let since = before.map_or_else(|| time::format(view.now), |before| before["lastTransitionTime"].clone());
    let new = json!({
        "type": "DisruptionAllowed", "status": known, "reason": reason, "message": message,
        "observedGeneration": budget.generation(), "lastTransitionTime": since,
    });
    if let Some(conditions) = status["conditions"].as_array_mut() {
        match conditions.iter_mut().find(|condition| condition["type"] == "DisruptionAllowed") {
            Some(known) => *known = new,
            None => conditions.push(new),
        }
    }
}

fn write(budget: &Object, status: Value, plan: &mut Plan) {
    if status != *budget.status() {
        plan.then(Request::update_status(&budget.key, budget.with_status(status), "status"));
    }
}

#[cfg(test)]
mod tests;
