//! The scheduler: one pass per pod, no preemption. It respects node selectors, node and pod affinity, taints, host ports, resources
//! and unschedulable nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::devices::{self, Devices};
use super::host_ports;
use crate::kinds::{Key, Kind};
use crate::object::{Object, items, text};
use crate::plan::{Action, Note, Plan, Request, View};
use crate::pods;
use crate::resources::Amounts;
use crate::selector;
use crate::storage::{self, Claims};
use crate::store::Change;
use crate::time;

/// Reason if a pod's node selector or node affinity excludes a node.
pub(super) const UNSELECTED: &str = "node(s) didn't match Pod's node affinity/selector";
/// Reason if another pod uses its host port on a node.
pub(super) const PORTS_TAKEN: &str = "node(s) didn't have free ports for the requested pod ports";

/// Reconciles a pod without a node when it changes, and all of them when a node or its pods change.
pub(crate) fn wakes(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    match object.key.kind {
        Kind::Pod => {
            if change.after.as_ref().is_some_and(|pod| pods::is_unscheduled(pod)) {
                keys.push(object.key.clone());
            }
            let freed = !pods::node_name(object).is_empty()
                && change.after.as_ref().is_none_or(|pod| pod.finished)
                && change.before.as_ref().is_some_and(|pod| !pod.finished);
            if freed {
                // The others are still queued, or waiting for their claims.
                keys.extend(view.store.unschedulable().map(|pod| pod.key.clone()));
            }
        }
        Kind::PersistentVolumeClaim => {
            let waiting = view.store.unscheduled().filter(|pod| pod.namespace() == object.namespace());
            let using = waiting.filter(|pod| storage::claim_names(pod).any(|name| name == object.name()));
            keys.extend(using.map(|pod| pod.key.clone()));
        }
        Kind::ResourceClaim => {
            let waiting = view.store.unscheduled().filter(|pod| pod.namespace() == object.namespace());
            let using = waiting.filter(|pod| devices::uses(pod, object.name()));
            keys.extend(using.map(|pod| pod.key.clone()));
        }
        Kind::PersistentVolume | Kind::StorageClass if change.after.is_some() => {
            let waiting = view.store.unscheduled();
            let using = waiting.filter(|pod| storage::claim_names(pod).next().is_some());
            keys.extend(using.map(|pod| pod.key.clone()));
        }
        Kind::Node if change.after.is_some() => {
            let differs = change.differs(Object::spec)
                || change.differs(Object::labels)
                || change.differs(|node| &node.status()["allocatable"]);
            if differs {
                keys.extend(view.store.unscheduled().map(|pod| pod.key.clone()));
            }
        }
        _ => {}
    }
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(pod) = view.store.get(key).filter(|pod| pods::is_unscheduled(pod)) else { return plan };
    let Devices::Claims(devices) = devices::of_pod(view, pod) else { return plan };
    let wanted = Amounts::requested(&pod.value);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<(i128, &Arc<Object>)> = None;
    let (volumes, waiting) = match storage::claims_of(view, pod) {
        Claims::Ready { volumes, waiting } => (volumes, waiting),
        Claims::Refused(reason) => {
            refuse_everywhere(view, pod, &reason, &mut plan);
            return plan;
        }
    };
    let chosen = chosen_for(view, &waiting);
    let mut count = 0;
    for node in view.store.all(Kind::Node) {
        count += 1;
        let used = view.store.requested_on(node.name());
        let mut free = allocatable(node);
        free.subtract(&used);
        let reason = reason_against(view, pod, node, &free, &wanted)
            .or_else(|| storage::claims_against(view, &volumes, &waiting, node))
            .or_else(|| devices::reason_against(&devices, node).map(str::to_owned));
        match reason {
            Some(reason) => *reasons.entry(reason).or_default() += 1,
            // The node with the fewest pods, the first by name among equals.
            None => {
                let pods = if chosen == Some(node.name()) { -1 } else { used.get("pods") };
                if best.is_none_or(|(fewest, _)| pods < fewest) {
                    best = Some((pods, node));
                }
            }
        }
    }
    match best {
        Some((_, node)) if !waiting.is_empty() => select(&waiting, node, &mut plan),
        Some((_, node)) => {
            let action = Action::Bind {
                key: key.clone(),
                uid: Arc::clone(&pod.uid),
                node: Arc::clone(&node.key.name),
            };
            let message = format!("Successfully assigned {}/{} to {}", key.namespace, key.name, node.name());
            let note = Note::normal(pod, "Scheduled", message);
            plan.then(Request::new(action, "fits").noting(note, None));
        }
        None => refuse(view, pod, count, &reasons, &mut plan),
    }
    plan
}

/// Returns the node that was previously selected for claims that are not bound yet.
fn chosen_for<'a>(view: &View<'a>, waiting: &[&'a Arc<Object>]) -> Option<&'a str> {
    let name = waiting.first()?.annotation(storage::SELECTED_NODE)?;
    view.store.find(Kind::Node, "", name).map(|node| node.name())
}

/// Annotates the claims with the node from which their volumes have to be reachable. The pod gets its node once they are bound.
fn select(waiting: &[&Arc<Object>], node: &Object, plan: &mut Plan) {
    let undecided =
        waiting.iter().filter(|claim| claim.annotation(storage::SELECTED_NODE) != Some(node.name()));
    let requests = undecided.map(|claim| {
        let annotations = json!({storage::SELECTED_NODE: node.name()});
        let patch = json!({"metadata": {"annotations": annotations, "uid": &*claim.uid}});
        Request::patch(&claim.key, patch, "selected-node")
    });
    plan.together(requests.collect());
}

/// Writes a reason that rules out all nodes.
fn refuse_everywhere(view: &View<'_>, pod: &Object, reason: &str, plan: &mut Plan) {
    let count = view.store.all(Kind::Node).count();
    let message = format!("0/{count} nodes are available: {reason}.");
    show_refusal(view, pod, message, plan);
}

/// Writes the reasons that rule out each node.
fn refuse(view: &View<'_>, pod: &Object, count: usize, reasons: &BTreeMap<String, usize>, plan: &mut Plan) {
    let message = if count == 0 {
        "no nodes available to schedule pods".to_owned()
    } else {
        let reasons: Vec<String> =
            reasons.iter().map(|(reason, nodes)| format!("{nodes} {reason}")).collect();
        format!("0/{count} nodes are available: {}.", reasons.join(", "))
    };
    show_refusal(view, pod, message, plan);
}

fn show_refusal(view: &View<'_>, pod: &Object, message: String, plan: &mut Plan) {
    let known = crate::object::condition(pod.status(), "PodScheduled");
    if known.is_some_and(|known| known["status"] == "False" && known["message"] == *message) {
        return;
    }
    let since =
        known.filter(|known| known["status"] == "False").map(|known| known["lastTransitionTime"].clone());
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastTransitionTime": since.unwrap_or_else(|| time::format(view.now)),
        "observedGeneration": pod.generation(),
    });
    let patch = json!({"metadata": {"uid": &*pod.uid}, "status": {"conditions": [condition]}});
    let request = Request::patch_status(&pod.key, patch, "unschedulable");
    plan.then(request.noting(Note::warning(pod, "FailedScheduling", message), None));
}

/// Returns a node's allocatable resources.
pub(super) fn allocatable(node: &Object) -> Amounts {
    let status = node.status();
    Amounts::read(if status["allocatable"].is_object() {
        &status["allocatable"]
    } else {
        &status["capacity"]
    })
}

/// Explains why a pod cannot run on a node, in the scheduler's own words; `None` if it can.
fn reason_against(
    view: &View<'_>,
    pod: &Object,
    node: &Object,
    free: &Amounts,
    wanted: &Amounts,
) -> Option<String> {
    if node.spec()["unschedulable"] == true && !tolerates_unschedulable(pod) {
        return Some("node(s) were unschedulable".into());
    }
    if let Some(taint) = items(&node.spec()["taints"]).find(|taint| repels(taint, pod)) {
        let value = text(&taint["value"]);
        let key = text(&taint["key"]);
        let shown = if value.is_empty() { format!("{{{key}: }}") } else { format!("{{{key}: {value}}}") };
        return Some(format!("node(s) had untolerated taint {shown}"));
    }
    if !selects_node(pod, node) {
        return Some(UNSELECTED.into());
    }
    if host_ports::are_taken(view, pod, node, |_| true) {
        return Some(PORTS_TAKEN.into());
    }
    if let Some(resource) = free.lacking(wanted).next() {
        return Some(if resource == "pods" {
            "Too many pods".into()
        } else {
            format!("Insufficient {resource}")
        });
    }
    affinity_against(view, pod, node)
}

fn tolerates_unschedulable(pod: &Object) -> bool {
    let taint = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    items(&pod.spec()["tolerations"]).any(|toleration| tolerates(toleration, &taint))
}

/// Reports whether a pod does not tolerate a taint that keeps pods away.
pub(super) fn repels(taint: &Value, pod: &Object) -> bool {
    let effect = text(&taint["effect"]);
    (effect == "NoSchedule" || effect == "NoExecute")
        && !items(&pod.spec()["tolerations"]).any(|toleration| tolerates(toleration, taint))
}

/// Reports whether a toleration tolerates a taint.
pub(crate) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (text(&toleration["key"]), text(&toleration["effect"]));
    if !effect.is_empty() && effect != text(&taint["effect"]) {
        return false;
    }
    if !key.is_empty() && key != text(&taint["key"]) {
        return false;
    }
    match text(&toleration["operator"]) {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && text(&toleration["value"]) == text(&taint["value"]),
        _ => false,
    }
}

/// Reports whether a pod's `nodeSelector` and required node affinity match a node.
pub(crate) fn selects_node(pod: &Object, node: &Object) -> bool {
    let spec = pod.spec();
    let required = &spec["affinity"]["nodeAffinity"][REQUIRED];
    selector::matches_map(&spec["nodeSelector"], node.labels()) && selector::selects_terms(required, node)
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Explains why the required pod affinity or anti-affinity of the pod, or the anti-affinity of a running pod, rules out a node.
fn affinity_against(view: &View<'_>, pod: &Object, node: &Object) -> Option<String> {
    let affinity = &pod.spec()["affinity"];
    for term in items(&affinity["podAffinity"][REQUIRED]) {
        let anywhere = scheduled(view).any(|other| matches_pod_term(term, pod, other));
        // The first pod of a group that attracts itself may run anywhere.
        let first = !anywhere && matches_pod_term(term, pod, pod);
        if !first && !in_domain(view, term, node).any(|other| matches_pod_term(term, pod, other)) {
            return Some("node(s) didn't match pod affinity rules".into());
        }
    }
    for term in items(&affinity["podAntiAffinity"][REQUIRED]) {
        if in_domain(view, term, node).any(|other| matches_pod_term(term, pod, other)) {
            return Some("node(s) didn't match pod anti-affinity rules".into());
        }
    }
    let repelled = view.store.repelling().any(|other| {
        let mut terms = items(&other.spec()["affinity"]["podAntiAffinity"][REQUIRED]);
        terms.any(|term| matches_pod_term(term, other, pod) && same_domain(view, term, other, node))
    });
    repelled.then(|| "node(s) didn't satisfy existing pods anti-affinity rules".into())
}

fn scheduled<'a>(view: &View<'a>) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
    view.store.all(Kind::Pod).filter(|pod| !pods::node_name(pod).is_empty() && !pod.finished)
}

fn same_domain(view: &View<'_>, term: &Value, other: &Object, node: &Object) -> bool {
    let key = text(&term["topologyKey"]);
    let theirs = view.store.find(Kind::Node, "", pods::node_name(other));
    theirs.is_some_and(|theirs| theirs.label(key).is_some() && theirs.label(key) == node.label(key))
}

/// Returns the pods that run in the same topology domain as this node, according to a term.
fn in_domain<'a>(
    view: &View<'a>,
    term: &Value,
    node: &Object,
) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
    let key = text(&term["topologyKey"]).to_owned();
    let value = node.label(&key).map(str::to_owned);
    let store = view.store;
    let nodes =
        store.all(Kind::Node).filter(move |other| value.is_some() && other.label(&key) == value.as_deref());
    nodes.flat_map(move |node| store.pods_on(node.name())).filter(|pod| !pod.finished)
}

/// Reports whether a term of one pod's affinity matches another pod.
fn matches_pod_term(term: &Value, owner: &Object, other: &Object) -> bool {
    let listed = items(&term["namespaces"]).any(|namespace| namespace == other.namespace());
    let unnamed = items(&term["namespaces"]).next().is_none() && term["namespaceSelector"].is_null();
    let everywhere = selector::selects_all(&term["namespaceSelector"]);
    (listed || everywhere || (unnamed && owner.namespace() == other.namespace()))
        && selector::matches(&term["labelSelector"], other.labels())
}
