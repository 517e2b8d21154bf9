//! Admission by the kubelet, because a pod may name its node itself and bypass the scheduler.

use serde_json::Value;

use super::{host_ports, scheduler};
use crate::object::{Object, items, map, text};
use crate::plan::{Note, Request, View};
use crate::resources::Amounts;
use crate::time;

/// The operating system of simulated nodes.
const OPERATING_SYSTEM: &str = "linux";
/// Label of nodes and pods with an operating system.
const OPERATING_SYSTEM_LABEL: &str = "kubernetes.io/os";
/// Resources that are compared first, in this order; the others follow by name.
const FIRST_RESOURCES: [&str; 4] = ["pods", "cpu", "memory", "ephemeral-storage"];
/// Conditions of a pod that its kubelet owns; a rejected pod has none of them.
const OWN_CONDITIONS: [&str; 5] =
    ["PodScheduled", "Ready", "Initialized", "ContainersReady", "PodReadyToStartContainers"];

/// Reason why a node does not run a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    reason: String,
    message: String,
}

impl Rejection {
    fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }

    fn predicate(name: &str, message: &str) -> Self {
        Self::new(name, format!("Predicate {name} failed: {message}"))
    }

    /// Writes the status of the rejected pod.
    pub(super) fn request(self, view: &View<'_>, pod: &Object, node: &Object) -> Request {
        let Self { reason, message } = self;
        let mut status = map(pod.status());
        let conditions = items(&pod.status()["conditions"]);
        let foreign: Vec<Value> = conditions
            .filter(|condition| !OWN_CONDITIONS.contains(&text(&condition["type"])))
            .cloned()
            .collect();
        status.insert("conditions".into(), foreign.into());
        status.insert("phase".into(), "Failed".into());
        status.insert("reason".into(), reason.as_str().into());
        status.insert("message".into(), format!("Pod was rejected: {message}").into());
        status.insert("startTime".into(), time::format(view.now));
        status.insert("observedGeneration".into(), pod.generation().into());
        let note = Note::warning(pod, reason, message).from_kubelet_of(node);
        Request::update_status(&pod.key, pod.with_status(status.into()), "reject").noting(note, None)
    }
}

/// Reports whether a pod has not been accepted by its node yet.
pub(super) fn is_pending(pod: &Object) -> bool {
    pod.status()["startTime"].is_null() && !pod.finished
}

/// Explains why a node rejects a pod that is bound to it; `None` if it runs it. Returns the first reason in a kubelet's order.
pub(super) fn rejection(view: &View<'_>, pod: &Object, node: &Object) -> Option<Rejection> {
    if pod.label(OPERATING_SYSTEM_LABEL).is_some_and(|name| name != OPERATING_SYSTEM) {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Some(Rejection::new("PodOSSelectorNodeLabelDoesNotMatch", message));
    }
    if pod.spec()["os"]["name"].as_str().is_some_and(|name| name != OPERATING_SYSTEM) {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Some(Rejection::new("PodOSNotSupported", message));
    }
    if let Some(rejection) = lacks_resources(view, pod, node) {
        return Some(rejection);
    }
    if !scheduler::selects_node(pod, node) {
        return Some(Rejection::predicate("NodeAffinity", scheduler::UNSELECTED));
    }
    if host_ports::are_taken(view, pod, node, |other| is_ahead(other, pod)) {
        return Some(Rejection::predicate("NodePorts", scheduler::PORTS_TAKEN));
    }
    let mut taints = items(&node.spec()["taints"]).filter(|taint| taint["effect"] == "NoExecute");
    taints
        .any(|taint| scheduler::repels(taint, pod))
        .then(|| Rejection::predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate"))
}

/// Reports whether another pod takes precedence on the node: it was accepted, or both wait and it is older.
fn is_ahead(other: &Object, pod: &Object) -> bool {
    let age = |pod: &Object| (pod.created, pod.key.clone());
    other.key != pod.key && (!is_pending(other) || age(other) < age(pod))
}

fn lacks_resources(view: &View<'_>, pod: &Object, node: &Object) -> Option<Rejection> {
    let allocatable = scheduler::allocatable(node);
    let mut wanted = Amounts::requested(&pod.value);
    wanted.retain(|name| !is_extended(name) || allocatable.has(name));
    let lacking = |used: &Amounts| {
        let mut free = allocatable.clone();
        free.subtract(used);
        let lacking: Vec<String> = free.lacking(&wanted).map(str::to_owned).collect();
        let first = FIRST_RESOURCES.into_iter().find(|name| lacking.iter().any(|one| one == name));
        first.map(str::to_owned).or_else(|| lacking.into_iter().next())
    };
    // The sum over all pods of the node is available; only if it is too large, the pods that take precedence are summed.
    let mut used = view.store.requested_on(node.name());
    used.subtract(&Amounts::requested(&pod.value));
    lacking(&used)?;
    let mut used = Amounts::default();
    let others = view.store.pods_on(node.name()).filter(|other| !other.finished);
    others.filter(|other| is_ahead(other, pod)).for_each(|other| used.add(&Amounts::requested(&other.value)));
    let name = lacking(&used)?;
    let message = format!(
        "Node didn't have enough resource: {name}, requested: {}, used: {}, capacity: {}",
        wanted.get(&name),
        used.get(&name),
        allocatable.get(&name)
    );
    Some(Rejection::new(&format!("OutOf{name}"), message))
}

/// Reports whether a resource is not known to any Kubernetes component. A node without it leaves it to others.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}
