//! DaemonSets: one pod on each node that admits it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::claims::ClaimedObjects;
use crate::deployments::scaled;
use crate::kinds::{Key, Kind};
use crate::nodes::scheduler::{selects_node, tolerates};
use crate::object::{Object, int, items, map, without_zeros};
use crate::plan::{Note, Plan, Request, View};
use crate::pods;
use crate::replicasets::{create_pod, delete_pod, wake_owners};
use crate::revisions::{self, REVISION_HASH};
use crate::store::Change;

/// Taints that a daemon's pod tolerates wherever it runs: key and effect.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

pub(crate) fn wakes(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    match object.key.kind {
        Kind::DaemonSet => keys.push(object.key.clone()),
        Kind::Pod | Kind::ControllerRevision => wake_owners(view, change, Kind::DaemonSet, keys),
        Kind::Node if change.differs(Object::labels) || change.differs(|node| &node.spec()["taints"]) => {
            keys.extend(view.store.all(Kind::DaemonSet).map(|set| set.key.clone()));
        }
        _ => {}
    }
}

/// A DaemonSet in a reconciliation.
struct Work<'a> {
    view: &'a View<'a>,
    set: &'a Arc<Object>,
    /// Hash of the current template.
    hash: String,
    /// A pod as it would be on any node.
    probe: Object,
    by_node: BTreeMap<String, Vec<Arc<Object>>>,
    plan: Plan,
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let Some(set) = view.store.get(key) else { return Plan::default() };
    let claimed = ClaimedObjects::by_selector(view.store, set, Kind::Pod);
    if let Some(plan) = claimed.settle(set) {
        return plan;
    }
    if set.deleting {
        return Plan::default();
    }
    if let Some(plan) = revisions::adopt(view.store, set) {
        return plan;
    }
    let known = revisions::of(view.store, set);
    let current = match revisions::current(set, &known) {
        Ok(current) => current,
        Err(plan) => return revisions::unless_taken(view, set, plan),
    };
    let hash = current.label(REVISION_HASH).unwrap_or_default().to_owned();
    let mut by_node: BTreeMap<String, Vec<Arc<Object>>> = BTreeMap::new();
    for pod in &claimed.mine {
        by_node.entry(target(pod)).or_default().push(Arc::clone(pod));
    }
    let template = pods::from_template(&set.spec()["template"], set);
    let Some(probe) = probe(template) else { return Plan::default() };
    let mut work = Work { view, set, hash, probe, by_node, plan: Plan::default() };
    if view.failure.is_some() {
        work.plan.still_failing = true;
    } else {
        work.manage();
        if work.plan.steps.is_empty() && set.spec()["updateStrategy"]["type"] != "OnDelete" {
            work.roll();
        }
    }
    work.show();
    // Revisions that pods use count towards the limit, but are always kept.
    let old: Vec<&Arc<Object>> = known.iter().filter(|revision| revision.uid != current.uid).collect();
    let hashes: BTreeSet<&str> = claimed.mine.iter().filter_map(|pod| pod.label(REVISION_HASH)).collect();
    let is_used = |revision: &Object| revision.label(REVISION_HASH).is_some_and(|hash| hashes.contains(hash));
    revisions::clean_up(set, &old, is_used, &mut work.plan);
    work.plan
}

/// Returns the node of a daemon's pod, or the one that its affinity names.
fn target(pod: &Object) -> String {
    let bound = pods::node_name(pod);
    if !bound.is_empty() {
        return bound.to_owned();
    }
    let required = &pod.spec()["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = items(&required["nodeSelectorTerms"]).flat_map(|term| items(&term["matchFields"]));
    let mut names = terms.filter(|field| field["key"] == "metadata.name");
    names.next().and_then(|field| field["values"][0].as_str()).unwrap_or_default().to_owned()
}

/// Returns a pod of the template, with only the parts that decide where it may run.
fn probe(mut pod: Value) -> Option<Object> {
    tolerate(&mut pod);
    pod["metadata"]["name"] = "probe".into();
    pod["metadata"]["uid"] = "probe".into();
    Object::new(Kind::Pod, pod)
}

/// Adds the taints that every daemon tolerates.
fn tolerate(pod: &mut Value) {
    let spec = &mut pod["spec"];
    let mut tolerations: Vec<Value> = items(&spec["tolerations"]).cloned().collect();
    let network =
        (spec["hostNetwork"] == true).then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        tolerations.push(json!({"key": key, "operator": "Exists", "effect": effect}));
    }
    spec["tolerations"] = tolerations.into();
}

/// The first up-to-date living pod of a node, and the first outdated one.
#[derive(Default)]
struct Pair {
    new: Option<Arc<Object>>,
    old: Option<Arc<Object>>,
}

impl Work<'_> {
    /// Reports whether a pod belongs on a node, and whether one that runs there may stay.
    fn admits(&self, node: &Object) -> (bool, bool) {
        let pod = &self.probe;
        if !selects_node(pod, node) {
            return (false, false);
        }
        let repelled = |effects: &[&str]| {
            items(&node.spec()["taints"]).any(|taint| {
                effects.iter().any(|effect| taint["effect"] == *effect)
                    && !items(&pod.spec()["tolerations"]).any(|toleration| tolerates(toleration, taint))
            })
        };
        (!repelled(&["NoSchedule", "NoExecute"]), !repelled(&["NoExecute"]))
    }

    fn pod(&self, node: &Object) -> Value {
        let mut pod = pods::from_template(&self.set.spec()["template"], self.set);
        let mut labels = map(&pod["metadata"]["labels"]);
        labels.insert(REVISION_HASH.into(), self.hash.clone().into());
        if let Some(generation) = self.set.annotation("deprecated.daemonset.template.generation") {
            labels.insert("pod-template-generation".into(), generation.into());
        }
        pod["metadata"]["labels"] = labels.into();
        let spec = &mut pod["spec"];
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node.name()]});
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        let terms: Vec<Value> =
            items(&spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]).cloned().collect();
        let terms: Vec<Value> = if terms.is_empty() { vec![json!({})] } else { terms };
        let terms: Vec<Value> = terms
            .into_iter()
            .map(|mut term| {
                term["matchFields"] = json!([field]);
                term
            })
            .collect();
        let mut affinity = map(&spec["affinity"]);
        let mut of_nodes = map(affinity.get("nodeAffinity").unwrap_or(&Value::Null));
        of_nodes.insert(REQUIRED.into(), json!({"nodeSelectorTerms": terms}));
        affinity.insert("nodeAffinity".into(), of_nodes.into());
        spec["affinity"] = affinity.into();
        tolerate(&mut pod);
        pod
    }

    fn manage(&mut self) {
        let (mut create, mut delete) = (Vec::new(), Vec::new());
        let mut by_node = self.by_node.clone();
        for node in self.view.store.all(Kind::Node) {
            let (runs, stays) = self.admits(node);
            let present = by_node.remove(node.name()).unwrap_or_default();
            let (ended, living): (Vec<_>, Vec<_>) = present
                .into_iter()
                .filter(|pod| !pod.deleting)
                .partition(|pod| pod.status()["phase"] == "Failed");
            if !stays {
                delete.extend(living);
                continue;
            }
            for pod in &ended {
                let message = format!(
                    "Found failed daemon pod {}/{} on node {}, will try to kill it",
                    pod.namespace(),
                    pod.name(),
                    node.name()
                );
                self.plan.notes.push(Note::warning(self.set, "FailedDaemonPod", message));
            }
            let waiting = self.by_node.get(node.name()).into_iter().flatten().any(|pod| pod.deleting);
            if runs && living.is_empty() && ended.is_empty() && !waiting {
                create.push(create_pod(self.set, self.pod(node)));
            }
            delete.extend(ended);
            delete.extend(self.excess(living));
        }
        // Pods for a deleted node are not waited for.
        delete.extend(
            by_node.into_values().flatten().filter(|pod| !pod.deleting && pods::node_name(pod).is_empty()),
        );
        self.plan.together(delete.iter().map(|pod| delete_pod(self.set, pod)).collect());
        self.plan.slowly(create);
    }

    /// Returns a node's surplus pods: of several, the oldest one stays, and beside it the one that is to replace it.
    fn excess(&self, mut living: Vec<Arc<Object>>) -> Vec<Arc<Object>> {
        living.sort_by_key(|pod| (!pod.ready, pod.created, Arc::clone(&pod.key.name)));
        if self.max_surge() == 0 || living.len() < 2 {
            return living.into_iter().skip(1).collect();
        }
        let mut pair = Pair::default();
        let mut excess = Vec::new();
        for pod in living {
            let place = if self.is_updated(&pod) { &mut pair.new } else { &mut pair.old };
            match place {
                None => *place = Some(pod),
                Some(_) => excess.push(pod),
            }
        }
        if let (Some(new), Some(old)) = (&pair.new, &pair.old)
            && (!old.ready || self.is_available(new))
        {
            excess.push(Arc::clone(old));
        }
        excess
    }

    /// Returns the maximum number of nodes that may have a new pod beside the old one.
    fn max_surge(&self) -> i64 {
        let strategy = &self.set.spec()["updateStrategy"];
        if strategy["type"] == "OnDelete" {
            return 0;
        }
        scaled(&strategy["rollingUpdate"]["maxSurge"], self.wanted(), true).unwrap_or_default()
    }

    /// Returns the number of nodes that should have a pod.
    fn wanted(&self) -> i64 {
        let wanted = self.view.store.all(Kind::Node).filter(|node| self.admits(node).0).count();
        i64::try_from(wanted).unwrap_or(i64::MAX)
    }

    /// Creates new pods beside old ones, on as many nodes at a time as the surge allows. `manage` deletes the old pod once the new
    /// one is available.
    fn surge(&mut self, limit: i64) {
        let (mut surging, mut at_once, mut later) = (0, Vec::new(), Vec::new());
        for node in self.view.store.all(Kind::Node).filter(|node| self.admits(node).0) {
            let pods = self.by_node.get(node.name()).into_iter().flatten();
            let (new, old): (Vec<_>, Vec<_>) =
                pods.filter(|pod| !pod.deleting).partition(|pod| self.is_updated(pod));
            match (new.first(), old.first()) {
                (Some(_), Some(_)) => surging += 1,
                (None, Some(old)) if self.is_available(old) => later.push(Arc::clone(node)),
                (None, Some(_)) => at_once.push(Arc::clone(node)),
                (_, None) => {}
            }
        }
        let room = usize::try_from(limit - surging).unwrap_or_default();
        let nodes = at_once.into_iter().chain(later.into_iter().take(room));
        let create: Vec<Request> = nodes.map(|node| create_pod(self.set, self.pod(&node))).collect();
        self.plan.slowly(create);
    }

    fn is_available(&self, pod: &Object) -> bool {
        pods::is_available(pod, int(&self.set.spec()["minReadySeconds"], 0), self.view.now)
    }

    fn is_updated(&self, pod: &Object) -> bool {
        pod.label(REVISION_HASH) == Some(&self.hash)
    }

    /// Replaces old pods, at most as many at a time as may be unavailable; unavailable ones are deleted immediately.
    fn roll(&mut self) {
        let surge = self.max_surge();
        if surge > 0 {
            return self.surge(surge);
        }
        let limit = &self.set.spec()["updateStrategy"]["rollingUpdate"]["maxUnavailable"];
        let limit = scaled(limit, self.wanted(), true).unwrap_or(1).max(1);
        let (mut unavailable, mut old) = (0, Vec::new());
        for pod in self.by_node.values().flatten() {
            let available = !pod.deleting && self.is_available(pod);
            unavailable += i64::from(!available);
            if !pod.deleting && !self.is_updated(pod) {
                old.push((available, Arc::clone(pod)));
            }
        }
        let allowed = usize::try_from(limit - unavailable).unwrap_or_default();
        let (healthy, broken): (Vec<_>, Vec<_>) = old.into_iter().partition(|(available, _)| *available);
        let doomed = broken.into_iter().chain(healthy.into_iter().take(allowed));
        self.plan.together(doomed.map(|(_, pod)| delete_pod(self.set, &pod)).collect());
    }

    fn show(&mut self) {
        let (mut desired, mut current, mut misplaced, mut ready, mut available, mut updated) =
            (0, 0, 0, 0, 0, 0);
        for node in self.view.store.all(Kind::Node) {
            let pods = self.by_node.get(node.name()).into_iter().flatten();
            let living: Vec<_> = pods.filter(|pod| !(pod.deleting && pod.finished)).collect();
            if !self.admits(node).0 {
                misplaced += i64::from(!living.is_empty());
                continue;
            }
            desired += 1;
            // Of several pods on a node, the oldest one is shown.
            let age = |pod: &&Arc<Object>| {
                (pods::node_name(pod).is_empty(), pod.created, Arc::clone(&pod.key.name))
            };
            let Some(pod) = living.into_iter().min_by_key(age) else { continue };
            current += 1;
            ready += i64::from(pod.ready);
            available += i64::from(self.is_available(pod));
            updated += i64::from(self.is_updated(pod));
        }
        let minimum = int(&self.set.spec()["minReadySeconds"], 0);
        let next = self
            .by_node
            .values()
            .flatten()
            .filter_map(|pod| pods::available_at(pod, minimum, self.view.now))
            .min();
        if let Some(at) = next {
            self.plan.again_at(at);
        }
        let mut status = without_zeros(json!({
            "observedGeneration": self.set.generation(), "updatedNumberScheduled": updated, "numberAvailable": available,
            "numberUnavailable": desired - available, "collisionCount": self.set.status()["collisionCount"],
        }));
        for (name, count) in [
            ("currentNumberScheduled", current),
            ("numberMisscheduled", misplaced),
            ("desiredNumberScheduled", desired),
            ("numberReady", ready),
        ] {
            status[name] = count.into();
        }
        if status != *self.set.status() {
            self.plan.then(Request::update_status(&self.set.key, self.set.with_status(status), "status"));
        }
    }
}
