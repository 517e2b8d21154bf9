//! ReplicaSets and ReplicationControllers: a number of pods of one template.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::claims::ClaimedObjects;
use crate::kinds::{Key, Kind};
use crate::object::{Object, condition, int, items, text, without_zeros};
use crate::plan::{FailedAction, Note, Plan, Request, View};
use crate::pods;
use crate::selector;
use crate::store::Change;
use crate::time;

/// Maximum number of pods that are created or deleted for one object in one pass.
pub const BURST_REPLICAS: usize = 500;

/// Adds the objects to reconcile after a change of an object that they manage or may adopt.
pub(crate) fn wakes(view: &View<'_>, change: &Change, owner: Kind, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    if object.key.kind == owner {
        keys.push(object.key.clone());
        return;
    }
    if object.key.kind != Kind::Pod {
        return;
    }
    wake_owners(view, change, owner, keys);
}

/// Adds the owners before and after a change and, for an orphan, all objects that may adopt it.
pub(crate) fn wake_owners(view: &View<'_>, change: &Change, owner: Kind, keys: &mut Vec<Key>) {
    for object in [&change.before, &change.after].into_iter().flatten() {
        if let Some(manager) = view.store.controller_of(object)
            && manager.key.kind == owner
            && !keys.contains(&manager.key)
        {
            keys.push(manager.key.clone());
        }
    }
    let Some(orphan) = change.after.as_ref().filter(|object| object.controller.is_none() && !object.deleting)
    else {
        return;
    };
    if !change.differs(Object::labels)
        && change.before.as_ref().is_some_and(|before| before.controller.is_none())
    {
        return;
    }
    for candidate in view.store.in_namespace(owner, orphan.namespace()) {
        if selects(candidate, orphan) {
            keys.push(candidate.key.clone());
        }
    }
}

/// Reports whether an owner's selector selects an object.
fn selects(owner: &Object, object: &Object) -> bool {
    let wanted = &owner.spec()["selector"];
    match owner.key.kind {
        Kind::ReplicationController => {
            wanted.as_object().is_some_and(|map| !map.is_empty())
                && selector::matches_map(wanted, object.labels())
        }
        _ => selector::matches(wanted, object.labels()),
    }
}

/// Plans one reconciliation.
pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let Some(owner) = view.store.get(key) else { return Plan::default() };
    let claimed = ClaimedObjects::of(view.store, owner, Kind::Pod, |pod| {
        // A finished or terminating pod is neither adopted nor released.
        let mine = pod.controller.is_some();
        (mine || pods::is_active(pod)) && selects(owner, pod)
    });
    if let Some(plan) = claimed.settle(owner) {
        return plan;
    }
    let active: Vec<Arc<Object>> = claimed.mine.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
    let terminating = claimed.mine.iter().filter(|pod| pods::is_terminating(pod)).count();
    let mut plan = Plan::default();
    if view.failure.is_some() {
        plan.still_failing = true;
    } else if !owner.deleting {
        manage(view, owner, &active, &mut plan);
    }
    update_status(view, owner, &active, terminating, &mut plan);
    plan
}

fn manage(view: &View<'_>, owner: &Object, active: &[Arc<Object>], plan: &mut Plan) {
    let wanted = usize::try_from(int(&owner.spec()["replicas"], 1)).unwrap_or_default();
    if active.len() < wanted {
        let missing = (wanted - active.len()).min(BURST_REPLICAS);
        let pod = pods::from_template(&owner.spec()["template"], owner);
        let request = create_pod(owner, pod);
        plan.slowly(vec![request; missing]);
    } else if active.len() > wanted {
        let surplus = (active.len() - wanted).min(BURST_REPLICAS);
        let doomed = to_delete(view, owner, active, surplus);
        plan.together(doomed.iter().map(|pod| delete_pod(owner, pod)).collect());
    }
}

/// Creates a pod, with the Events that report it on its owner.
pub(crate) fn create_pod(owner: &Object, pod: Value) -> Request {
    Request::create(Kind::Pod, owner.namespace(), pod, "missing").noting(
        Note::normal(owner, "SuccessfulCreate", "Created pod: {}"),
        Note::warning(owner, "FailedCreate", "Error creating: {}"),
    )
}

/// Deletes a pod, with the Events that report it on its owner.
pub(crate) fn delete_pod(owner: &Object, pod: &Object) -> Request {
    Request::delete(pod, "surplus").noting(
        Note::normal(owner, "SuccessfulDelete", format!("Deleted pod: {}", pod.name())),
        Note::warning(owner, "FailedDelete", "Error deleting: {}"),
    )
}

/// Returns the pods to delete: those that do the least work, and those on nodes with other pods of the same Deployment.
fn to_delete(view: &View<'_>, owner: &Object, active: &[Arc<Object>], surplus: usize) -> Vec<Arc<Object>> {
    let on_nodes = pods_on_nodes(view, owner);
    let neighbours = |pod: &Object| on_nodes.get(pods::node_name(pod)).copied().unwrap_or_default();
    // Pods that have existed or been ready for less time are deleted first, but compared by order of magnitude, so that chance
    // spreads the rest.
    let since = |at: i64| magnitude(view.now - at);
    let rank = |pod: &'_ Arc<Object>| {
        let phase = match text(&pod.status()["phase"]) {
            "Pending" => 0,
            "Unknown" => 1,
            _ => 2,
        };
        let cost: i64 = pod
            .annotation("controller.kubernetes.io/pod-deletion-cost")
            .and_then(|cost| cost.parse::<i32>().ok())
            .unwrap_or_default()
            .into();
        let ready_for = if pod.ready { pod.ready_since.map_or(u32::MAX, since) } else { 0 };
        (
            (!pods::node_name(pod).is_empty(), phase, pod.ready, cost),
            (std::cmp::Reverse(neighbours(pod)), ready_for),
            (std::cmp::Reverse(pods::restarts(pod)), since(pod.created), Arc::clone(&pod.uid)),
        )
    };
    let mut ranked: Vec<_> = active.iter().map(|pod| (rank(pod), pod)).collect();
    if surplus < ranked.len() {
        ranked.select_nth_unstable_by(surplus, |(one, _), (other, _)| one.cmp(other));
        ranked.truncate(surplus);
    }
    ranked.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    ranked.into_iter().map(|(_, pod)| Arc::clone(pod)).collect()
}

/// Returns the binary order of magnitude of an age.
fn magnitude(age: i64) -> u32 {
    i64::BITS - (age.max(0) * 1_000_000).leading_zeros()
}

/// Returns the number of active pods of the same group on each node, counting all ReplicaSets with the same owner.
fn pods_on_nodes<'a>(view: &View<'a>, owner: &'a Object) -> BTreeMap<&'a str, usize> {
    let siblings: Vec<&Arc<str>> = match (&owner.controller, owner.key.kind) {
        (Some(parent), Kind::ReplicaSet) => {
            view.store.controlled_by(parent, Kind::ReplicaSet).map(|set| &set.uid).collect()
        }
        _ => vec![&owner.uid],
    };
    let related = siblings.into_iter().flat_map(|uid| view.store.controlled_by(uid, Kind::Pod));
    let mut on_nodes = BTreeMap::new();
    for pod in related.filter(|pod| pods::is_active(pod) && !pods::node_name(pod).is_empty()) {
        *on_nodes.entry(pods::node_name(pod)).or_default() += 1;
    }
    on_nodes
}

fn update_status(
    view: &View<'_>,
    owner: &Object,
    active: &[Arc<Object>],
    terminating: usize,
    plan: &mut Plan,
) {
    let minimum = int(&owner.spec()["minReadySeconds"], 0);
    let labels = &owner.spec()["template"]["metadata"]["labels"];
    let ready = active.iter().filter(|pod| pod.ready).count();
    let available = active.iter().filter(|pod| pods::is_available(pod, minimum, view.now)).count();
    let mut status = json!({
        "replicas": active.len(),
        "fullyLabeledReplicas": active.iter().filter(|pod| selector::matches_map(labels, pod.labels())).count(),
        "readyReplicas": ready,
        "availableReplicas": available,
        "observedGeneration": owner.generation(),
        "conditions": conditions(view, owner),
    });
    let replicas = status["replicas"].take();
    let mut status = without_zeros(status);
    status["replicas"] = replicas;
    if owner.key.kind == Kind::ReplicaSet {
        status["terminatingReplicas"] = terminating.into();
    }
    if status != *owner.status() {
        plan.then(Request::update_status(&owner.key, owner.with_status(status), "status"));
    }
    if let Some(at) = active.iter().filter_map(|pod| pods::available_at(pod, minimum, view.now)).min() {
        plan.again_at(at);
    }
}

/// Returns the conditions with `ReplicaFailure` present exactly while pods cannot be created or deleted.
fn conditions(view: &View<'_>, owner: &Object) -> Vec<Value> {
    let before = &owner.status()["conditions"];
    let others = items(before).filter(|condition| condition["type"] != "ReplicaFailure").cloned();
    let mut conditions: Vec<Value> = others.collect();
    let reason = match view.failure.map(|failure| &failure.action) {
        Some(FailedAction::Create(_)) => "FailedCreate",
        Some(FailedAction::Delete(_)) => "FailedDelete",
        _ => return conditions,
    };
    let known = condition(owner.status(), "ReplicaFailure").cloned();
    conditions.push(known.unwrap_or_else(|| {
        json!({
            "type": "ReplicaFailure", "status": "True", "lastTransitionTime": time::format(view.now),
            "reason": reason, "message": view.failure.map_or("", |failure| &failure.message),
        })
    }));
    conditions
}

#[cfg(test)]
mod tests;
