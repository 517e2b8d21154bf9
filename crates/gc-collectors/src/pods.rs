//! Pod garbage collector (spec `cluster-collectors.md`, section 2): deletes finished pods over a threshold, pods of nodes that are
//! gone or out of service, and terminating pods that never had a node.

mod kept;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{Change, ObjectKey, Outcome, Reason, Request, Timestamp};
use kept::{Deletion, KeptPod, KeptPods, Put};
use serde_json::json;

use crate::engine::{Collector, Decision, EndedRequest, Observation, reason};
use crate::entry::{CollectorEntry, READ, Watches, rule};
use crate::measures::{Measurement, POD_DELETION_ERRORS, POD_DELETIONS, PODS_BLOCKED, ReportQueue, reading};
use crate::objects::{Cache, Facts, Kind, Node, time_text};
pub use crate::objects::{ClaimUse, Phase, Pod};

/// Default of `--terminated-pod-gc-threshold`: the number of finished pods to keep.
pub const TERMINATED_POD_THRESHOLD: i32 = 12_500;

/// Minimum time that a node must be missing before a live read verifies it, milliseconds.
pub const QUARANTINE_MILLISECONDS: i64 = 40_000;

/// Validity of a live read that found no node, milliseconds.
pub const CONFIRMATION_MILLISECONDS: i64 = 20_000;

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "pods",
    name: "pod-garbage-collector-controller",
    alias: Some("podgc"),
    account: "pod-garbage-collector",
    event_source: "pod-garbage-collector-controller",
    on_by_default: true,
    for_every_kind: false,
    watches: Watches::Kinds(&[Kind::Pod, Kind::Node]),
    flags: &["terminated-pod-gc-threshold"],
    rules: &[
        rule("", "pods", &["get", "list", "watch", "delete"]),
        rule("", "pods/status", &["patch"]),
        rule("", "nodes", READ),
    ],
};

/// Sweep that deletes a pod; also the label `reason` of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// There are too many finished pods.
    Terminated,
    /// Terminating on a node that is not ready and is declared out of service.
    OutOfService,
    /// Its node is gone.
    Orphaned,
    /// Terminating and never had a node.
    Unscheduled,
}

impl Sweep {
    /// Returns the name in metrics and reasons.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::OutOfService => "out-of-service",
            Self::Orphaned => "orphaned",
            Self::Unscheduled => "unscheduled",
        }
    }

    /// All sweeps.
    const ALL: [Self; 4] = [Self::Terminated, Self::OutOfService, Self::Orphaned, Self::Unscheduled];

    /// Returns the sweep whose verdict has this code.
    fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sweep| sweep.code() == code)
    }

    /// Returns the code of its verdict.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Terminated => gc_types::codes::TERMINATED_PODS_EXCEED_THRESHOLD,
            Self::OutOfService => gc_types::codes::NODE_OUT_OF_SERVICE,
            Self::Orphaned => gc_types::codes::NODE_GONE,
            Self::Unscheduled => gc_types::codes::POD_UNSCHEDULED,
        }
    }

    const fn why(self) -> &'static str {
        match self {
            Self::Terminated => "finished pods exceed the threshold, and it is among the first to go",
            Self::OutOfService => "it terminates on a node that is not ready and out of service",
            Self::Orphaned => "a live read found no node of that name",
            Self::Unscheduled => "it terminates and has no node",
        }
    }
}

/// Returns the next request to remove a pod (spec 2.6): first its phase and condition and then, in a later version, the pod. `None`
/// if only a finalizer remains, or if the pod is to be kept.
fn removal(pod: &KeptPod, sweep: Sweep, now: Timestamp) -> Option<(Request, Reason)> {
    if pod.keeps {
        return None;
    }
    let change = if matches!(pod.phase, Phase::Succeeded | Phase::Failed) {
        if pod.deletion == Deletion::WithoutGrace {
            return None;
        }
        Change::ForceDelete
    } else {
        let mut status = json!({"phase": "Failed", "observedGeneration": pod.generation});
        if sweep == Sweep::Orphaned {
            status["conditions"] = json!([{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists", "observedGeneration": pod.generation,
                "lastTransitionTime": time_text(pod.disrupted_since.as_deref().copied().unwrap_or(now)),
            }]);
        }
        Change::Status(status.to_string().into())
    };
    let request = Request::Guarded {
        key: pod.key(),
        uid: pod.uid.clone(),
        resource_version: pod.resource_version,
        change,
    };
    let why = match &pod.node {
        Some(node) => format!("{} (node {node})", sweep.why()),
        None => sweep.why().to_owned(),
    };
    Some((request, reason(sweep.code(), pod.resource_version, &[why])))
}

/// The name of a node that pods have but no node has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MissingNode {
    since: Timestamp,
    /// Time at which the last live read was sent; `None` if nodes have been listed since, perhaps because a backup was restored, so
    /// that the read is about another history.
    sent: Option<Timestamp>,
    /// Time at which a live read was sent that found no node.
    confirmed: Option<Timestamp>,
    /// True while a live read is in flight; after a failure it is retried with backoff, and no sooner for another pod.
    asking: bool,
    /// Pods that may have come to the node since the read that found no node was sent. The node may have existed again by then, so
    /// that read says nothing about them.
    newer: BTreeSet<ObjectKey>,
    /// Of these, the pods that may have come since the last read was sent, about which that one says nothing either.
    newest: BTreeSet<ObjectKey>,
}

impl MissingNode {
    fn since(since: Timestamp) -> Self {
        Self {
            since,
            sent: None,
            confirmed: None,
            asking: false,
            newer: BTreeSet::new(),
            newest: BTreeSet::new(),
        }
    }

    /// Records that a live read is sent. Until it finds no node, an earlier proof counts, and not for the pods that it is sent for.
    fn read_sent(&mut self, now: Timestamp) {
        (self.asking, self.sent) = (true, Some(now));
        self.newest.clear();
    }

    /// Records that the last live read found no node.
    fn read_absent(&mut self) {
        (self.confirmed, self.asking) = (self.sent, false);
        self.newer = std::mem::take(&mut self.newest);
    }

    /// Records a pod that may have come to the node after it was read.
    fn pod_came(&mut self, pod: &ObjectKey) {
        self.newer.insert(pod.clone());
        self.newest.insert(pod.clone());
    }

    fn forget_pod(&mut self, pod: &ObjectKey) {
        self.newer.remove(pod);
        self.newest.remove(pod);
    }

    /// Reports whether a still valid live read has found no node.
    fn is_confirmed(&self, now: Timestamp) -> bool {
        self.confirmed.is_some_and(|at| now.since(at) <= CONFIRMATION_MILLISECONDS)
    }

    /// Reports whether such a read was sent after this pod had come to the node.
    fn condemns(&self, pod: &ObjectKey, now: Timestamp) -> bool {
        self.is_confirmed(now) && !self.newer.contains(pod)
    }
}

/// The four sweeps as one collector.
#[derive(Debug)]
pub struct PodCollector {
    pods: KeptPods,
    nodes: Cache<Node>,
    missing: BTreeMap<Arc<str>, MissingNode>,
    /// Pods that are deleted except for their finalizers.
    held: BTreeSet<ObjectKey>,
    /// Pods whose deletion was applied, until they are observed again: their removal may be observed late.
    granted: BTreeSet<ObjectKey>,
    /// Removals in flight, and their sweeps.
    removing: BTreeMap<ObjectKey, Sweep>,
    reports: ReportQueue,
}

impl PodCollector {
    /// Creates the collector with `--terminated-pod-gc-threshold`; 0 and less disable that sweep.
    #[must_use]
    pub fn new(terminated_pod_threshold: i32) -> Self {
        Self {
            pods: KeptPods::new(usize::try_from(terminated_pod_threshold).ok().filter(|kept| *kept > 0)),
            nodes: Cache::new(Kind::Node),
            missing: BTreeMap::new(),
            held: BTreeSet::new(),
            granted: BTreeSet::new(),
            removing: BTreeMap::new(),
            reports: ReportQueue::default(),
        }
    }

    fn node_key(name: &Arc<str>) -> ObjectKey {
        Kind::Node.key(&"".into(), name)
    }

    fn put_pod(&mut self, pod: Pod, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        let Put { pod, before, going } = self.pods.put(pod);
        let key = pod.key();
        self.granted.remove(&key);
        self.note_newer(&pod, before.as_deref());
        if let Some(node) = before.as_ref().and_then(|before| before.node.as_ref()) {
            self.forget_unused(node);
        }
        if let Some(node) = &pod.node {
            self.update_quarantine(node, now, dirty);
        }
        // At the end of a list, everything is reconciled.
        if !self.pods.listing() {
            dirty.extend(going);
            dirty.push(key);
        }
    }

    /// Records a pod that may have come to its node after the node was read. A pod that was not known yet came when it was created,
    /// unless a list has found it.
    fn note_newer(&mut self, pod: &KeptPod, before: Option<&KeptPod>) {
        let Some(missing) = pod.node.as_ref().and_then(|node| self.missing.get_mut(node)) else { return };
        let is_newer = match before {
            Some(before) => before.node != pod.node || before.uid != pod.uid,
            None => self.pods.listing() || missing.sent.is_some_and(|sent| pod.may_be_created_after(sent)),
        };
        if is_newer {
            missing.pod_came(&pod.key());
        }
    }

    fn remove_pod(&mut self, key: &ObjectKey) {
        if let Some(node) = self.pods.remove(key).as_ref().and_then(|pod| pod.node.as_ref()) {
            if let Some(missing) = self.missing.get_mut(node) {
                missing.forget_pod(key);
            }
            self.forget_unused(node);
        }
        self.held.remove(key);
        self.granted.remove(key);
    }

    /// Forgets a node without pods, which need not be verified.
    fn forget_unused(&mut self, node: &str) {
        if !self.pods.has_node(node) {
            self.missing.remove(node);
        }
    }

    fn put_node(&mut self, node: Node, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        let name = Arc::clone(&node.meta.name);
        let out_of_service = node.out_of_service && !node.ready;
        let (_, before) = self.nodes.put(node);
        if out_of_service && !before.is_some_and(|before| before.out_of_service && !before.ready) {
            dirty.extend(self.pods.on_node(&name).map(|pod| pod.key()));
        }
        self.update_quarantine(&name, now, dirty);
    }

    /// Begins or ends the quarantine of a node name.
    fn update_quarantine(&mut self, name: &Arc<str>, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        if !self.pods.synced() || !self.nodes.synced() {
            return;
        }
        let key = Self::node_key(name);
        if self.nodes.get(&key).is_some() {
            self.missing.remove(name);
        } else if self.pods.has_node(name) && !self.missing.contains_key(name) {
            self.missing.insert(Arc::clone(name), MissingNode::since(now));
            dirty.push(key);
        }
    }

    fn sweep(&self, pod: &Arc<KeptPod>, now: Timestamp, dirty: &mut Vec<ObjectKey>) -> Option<Sweep> {
        let Some(name) = &pod.node else {
            if pod.deleting() {
                return Some(Sweep::Unscheduled);
            }
            return self.terminated(pod);
        };
        let node_key = Self::node_key(name);
        match self.nodes.get(&node_key) {
            Some(node) if pod.deleting() && !node.ready && node.out_of_service => {
                return Some(Sweep::OutOfService);
            }
            Some(_) => {}
            None => match self.missing.get(name) {
                Some(missing) if missing.condemns(&pod.key(), now) => return Some(Sweep::Orphaned),
                // There is no proof yet, or only one that is outdated or older than the pod.
                Some(MissingNode { asking: false, .. }) => dirty.push(node_key),
                _ => {}
            },
        }
        self.terminated(pod)
    }

    fn terminated(&self, pod: &Arc<KeptPod>) -> Option<Sweep> {
        self.pods.is_over_threshold(pod).then_some(Sweep::Terminated)
    }

    /// Counts one attempt per pod: the deletion, or the failed patch before it. A pod that is gone or has been replaced is not an
    /// error.
    fn count(&mut self, key: &ObjectKey, request: &Request, outcome: &Outcome) {
        let Some(sweep) = self.removing.remove(key) else { return };
        let failed = matches!(outcome, Outcome::Failed { .. } | Outcome::Refused { .. } | Outcome::NotServed);
        let deletion = matches!(request, Request::Guarded { change: Change::ForceDelete, .. });
        if !deletion && !failed {
            return;
        }
        let labels = || vec![Arc::clone(&key.namespace), sweep.name().into()];
        self.reports.count(&POD_DELETIONS, labels());
        if failed {
            self.reports.count(&POD_DELETION_ERRORS, labels());
        }
        self.record_grant(key, request, outcome);
    }

    fn record_grant(&mut self, key: &ObjectKey, request: &Request, outcome: &Outcome) {
        let Request::Guarded { uid, resource_version, .. } = request else { return };
        let same = |pod: &Arc<KeptPod>| pod.uid == *uid && pod.resource_version == *resource_version;
        if matches!(outcome, Outcome::Applied(_)) && self.pods.get(key).is_some_and(same) {
            self.granted.insert(key.clone());
        }
    }

    fn decide_node(&mut self, key: &ObjectKey, now: Timestamp) -> Decision {
        let wanting = self
            .pods
            .on_node(&key.name)
            .filter(|pod| !self.granted.contains(&pod.key()))
            .filter(|pod| removal(pod, Sweep::Orphaned, now).is_some());
        let Some(missing) = self.missing.get_mut(&key.name) else { return Decision::Leave };
        missing.asking = false;
        let due = missing.since.after(QUARANTINE_MILLISECONDS);
        if now < due {
            return Decision::Later(due);
        }
        let wanting: Vec<ObjectKey> = wanting.map(|pod| pod.key()).collect();
        if missing.is_confirmed(now) && !wanting.iter().any(|pod| missing.newer.contains(pod)) {
            return Decision::Leave;
        }
        let wanting = wanting.len();
        if wanting == 0 {
            return Decision::Leave;
        }
        let fact = format!("no node {} was observed for 40 s, and {wanting} pods are bound to it", key.name);
        let why = reason(gc_types::codes::NODE_UNKNOWN, gc_types::ResourceVersion::UNKNOWN, &[fact]);
        Decision::Act(Request::Read { key: key.clone() }, why)
    }
}

impl Collector for PodCollector {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Pod, Kind::Node]
    }

    fn clock_set(&mut self, by: i64) {
        for missing in self.missing.values_mut() {
            missing.since = missing.since.after(by);
            missing.confirmed = missing.confirmed.map(|at| at.after(by));
            missing.sent = missing.sent.map(|at| at.after(by));
        }
    }

    fn observe(&mut self, observation: Observation, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::Pod) => self.pods.list_started(),
            Observation::ListStarted(Kind::Node) => {
                self.nodes.list_started();
                for missing in self.missing.values_mut() {
                    (missing.sent, missing.confirmed) = (None, None);
                }
            }
            Observation::Observed(Facts::Pod(pod)) => self.put_pod(pod, now, dirty),
            Observation::Observed(Facts::Node(node)) => self.put_node(node, now, dirty),
            Observation::Removed(key) if key.resource == Kind::Pod.resource() => self.remove_pod(&key),
            Observation::Removed(key) if key.resource == Kind::Node.resource() => {
                self.nodes.remove(&key);
                self.update_quarantine(&key.name, now, dirty);
            }
            Observation::Synced(kind) => {
                match kind {
                    Kind::Pod => {
                        for key in self.pods.list_ended() {
                            self.remove_pod(&key);
                        }
                    }
                    Kind::Node => {
                        self.nodes.forget_unlisted();
                    }
                    _ => return,
                }
                let names: Vec<Arc<str>> = self.pods.nodes().cloned().collect();
                for name in names {
                    self.update_quarantine(&name, now, dirty);
                }
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, dirty: &mut Vec<ObjectKey>) -> Decision {
        if key.resource == Kind::Node.resource() {
            return self.decide_node(key, now);
        }
        if self.granted.contains(key) {
            return Decision::Leave;
        }
        let Some(pod) = self.pods.get(key) else { return Decision::Leave };
        let Some(sweep) = self.sweep(pod, now, dirty) else {
            self.held.remove(key);
            return Decision::Leave;
        };
        match removal(pod, sweep, now) {
            Some((request, reason)) => Decision::Act(request, reason),
            None => {
                self.held.insert(key.clone());
                Decision::Leave
            }
        }
    }

    fn next_undecided(&mut self) -> Option<ObjectKey> {
        self.pods.next_undecided()
    }

    fn undecided(&self) -> usize {
        self.pods.undecided()
    }

    fn sending(&mut self, key: &ObjectKey, _request: &Request, reason: &Reason, now: Timestamp) {
        if let Some(missing) =
            self.missing.get_mut(&key.name).filter(|_| key.resource == Kind::Node.resource())
        {
            missing.read_sent(now);
        } else if let Some(sweep) = Sweep::of_code(reason.code()) {
            self.removing.insert(key.clone(), sweep);
        }
    }

    fn skipped(&mut self, key: &ObjectKey, _request: &Request) {
        self.removing.remove(key);
        if let Some(missing) =
            self.missing.get_mut(&key.name).filter(|_| key.resource == Kind::Node.resource())
        {
            missing.asking = false;
        }
    }

    fn reports(&mut self) -> Option<&mut ReportQueue> {
        Some(&mut self.reports)
    }

    fn gauges(&self, into: &mut Vec<Measurement>) {
        into.push(reading(&PODS_BLOCKED, self.held.len()));
    }

    fn finished(
        &mut self,
        EndedRequest { key, request, outcome, now }: EndedRequest<'_>,
        dirty: &mut Vec<ObjectKey>,
    ) {
        let Request::Read { .. } = request else { return self.count(key, request, outcome) };
        let Some(missing) = self.missing.get_mut(&key.name) else { return };
        match outcome {
            Outcome::Absent => {
                missing.read_absent();
                dirty.extend(self.pods.on_node(&key.name).map(|pod| pod.key()));
            }
            // The node exists, and the watch will deliver it; if not, everything starts over.
            Outcome::Found(_) => *missing = MissingNode::since(now),
            _ => {}
        }
    }
}
