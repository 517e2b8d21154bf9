//! Nodes whose machine is gone or shut down (spec `cluster-collectors.md`, section 10): cloud node lifecycle.
//!
//! The machine provider is queried about nodes that are not ready. A single answer never deletes a node: it takes several
//! consecutive ones over some time, while only few machines are missing, and while the provider finds the machines of nodes that
//! are ready.

mod controls;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use controls::Controls;
use gc_types::{
    Change, EventRecord, ObjectKey, Outcome, OutsideCall, PropagationPolicy, Reason, Request, Severity,
    Timestamp, Uid,
};
use serde_json::json;

use crate::engine::{Collector, Decision, EndedRequest, MachineState, Observation, reason};
use crate::entry::{CHANGE, CollectorEntry, WRITE_EVENTS, Watches, rule};
use crate::measures;
use crate::measures::{Measurement, ReportQueue, reading};
use crate::objects::{Cache, Facts, Kind};
pub use crate::objects::{Node, OUT_OF_SERVICE_TAINT, Taint};

/// Taint of a node whose machine is shut down.
pub const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";

const NO_SCHEDULE: &str = "NoSchedule";

/// Maximum backoff after a failed answer, milliseconds.
pub const LONGEST_PAUSE_MILLISECONDS: i64 = 300_000;

/// Maximum number of nodes that are reconciled when the answer about a ready node arrives; the others are when they are due.
const CONTROLLED: usize = 64;

/// Period for which a deleted node counts as missing, milliseconds.
pub const BREAKER_WINDOW_MILLISECONDS: i64 = 600_000;

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "nodes without machines",
    name: "cloud-node-lifecycle-controller",
    alias: Some("cloud-node-lifecycle"),
    account: "node-controller",
    event_source: "cloud-node-lifecycle-controller",
    on_by_default: true,
    for_every_kind: false,
    watches: Watches::Kinds(&[Kind::Node]),
    flags: &[
        "cloud-inventory",
        "cloud-inventory-max-age",
        "cloud-webhook",
        "cloud-webhook-ca-file",
        "cloud-webhook-token-file",
        "cloud-exec",
        "cloud-exec-argument",
        "cloud-aws-region",
        "cloud-aws-endpoint",
        "cloud-timeout",
        "node-monitor-period",
        "node-missing-confirmations",
        "node-missing-period",
        "node-breaker-fraction",
        "node-deletion-dry-run",
    ],
    rules: &[rule("", "nodes", CHANGE), WRITE_EVENTS],
};

/// Conditions for deleting a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePolicy {
    /// Interval between two lookups of a node's machine, milliseconds (`--node-monitor-period`).
    pub period_milliseconds: i64,
    /// Required number of consecutive answers that the machine does not exist; at least two.
    pub confirmations: u32,
    /// Minimum time between the first and the last of these answers, and minimum age of the node, milliseconds.
    pub missing_milliseconds: i64,
    /// Additional minimum age of the node, milliseconds: the maximum age of the provider's data.
    pub provider_delay_milliseconds: i64,
    /// Fraction of missing nodes above which none is deleted; a single one may be, if the provider finds the machine of a ready
    /// node.
    pub breaker_fraction: f64,
    /// True to report nodes instead of deleting them.
    pub dry_run: bool,
}

impl Default for NodePolicy {
    fn default() -> Self {
        Self {
            period_milliseconds: 5_000,
            confirmations: 3,
            missing_milliseconds: 60_000,
            provider_delay_milliseconds: 0,
            breaker_fraction: 0.2,
            dry_run: false,
        }
    }
}

/// State of the machine of a node that is not ready.
#[derive(Clone, Debug, Default)]
struct Machine {
    uid: Option<Uid>,
    last: Option<MachineState>,
    /// Number of consecutive answers that it does not exist, and the time of the first.
    negatives: u32,
    first_negative: Timestamp,
    next_lookup: Timestamp,
    errors: u32,
    /// Last report about it.
    reported: Option<String>,
}

/// The collector.
#[derive(Debug)]
pub struct NodeLifecycle {
    policy: NodePolicy,
    nodes: Cache<Node>,
    machines: BTreeMap<ObjectKey, Machine>,
    /// Nodes whose machine the last lookup did not find, and that may be deleted.
    missing: BTreeSet<ObjectKey>,
    controls: Controls,
    /// Times of node deletions within the breaker's window.
    deleted: VecDeque<Timestamp>,
    reports: ReportQueue,
}

impl NodeLifecycle {
    /// Creates a collector with this policy.
    #[must_use]
    pub fn new(policy: NodePolicy) -> Self {
        Self {
            policy,
            nodes: Cache::new(Kind::Node),
            machines: BTreeMap::new(),
            missing: BTreeSet::new(),
            controls: Controls::default(),
            deleted: VecDeque::new(),
            reports: ReportQueue::default(),
        }
    }

    fn forget(&mut self, key: &ObjectKey) {
        self.machines.remove(key);
        self.missing.remove(key);
    }

    /// Decides about a ready node, whose machine is looked up only to check the provider.
    fn decide_control(&mut self, key: &ObjectKey, node: &Node, now: Timestamp) -> Decision {
        if self.missing.is_empty() {
            self.controls.release();
            return Decision::Leave;
        }
        match self.controls.is_due(key, &node.meta.uid, &self.policy, now) {
            Ok(()) => ask(node, "its condition Ready is True: the provider must find its machine"),
            Err(Some(next_lookup)) => Decision::Later(next_lookup),
            Err(None) => Decision::Leave,
        }
    }

    /// Excludes a kept node from the count: it may be missing forever, and proves nothing about the provider.
    fn count_kept(&mut self, key: &ObjectKey, is_kept: bool, was_kept: bool) {
        if is_kept {
            self.missing.remove(key);
        } else if was_kept
            && self.machines.get(key).is_some_and(|known| known.last == Some(MachineState::Absent))
        {
            self.missing.insert(key.clone());
        }
    }

    /// Returns the allowed and the actual number of missing nodes.
    fn breaker(&self) -> (usize, usize) {
        let total = self.nodes.len() + self.deleted.len();
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // A fraction of a number of nodes.
        let part = (total as f64 * self.policy.breaker_fraction) as usize;
        (part.max(1), self.missing.len() + self.controls.absent() + self.deleted.len())
    }

    fn decide_node(
        &mut self,
        key: &ObjectKey,
        node: &Node,
        now: Timestamp,
        dirty: &mut Vec<ObjectKey>,
    ) -> Decision {
        // Living nodes report every few minutes, so an open breaker is seen to close.
        while self.deleted.front().is_some_and(|at| now.since(*at) > BREAKER_WINDOW_MILLISECONDS) {
            self.deleted.pop_front();
        }
        let tainted = node.taints.iter().any(is_shutdown);
        if node.meta.deleting {
            self.forget(key);
            return Decision::Leave;
        }
        if node.ready {
            self.forget(key);
            return if tainted {
                set_taint(node, false, gc_types::codes::NODE_READY, "its condition Ready is True")
            } else {
                self.decide_control(key, node, now)
            };
        }
        let machine = self.machines.entry(key.clone()).or_default();
        if machine.uid.as_ref() != Some(&node.meta.uid) {
            *machine = Machine { uid: Some(node.meta.uid.clone()), ..Machine::default() };
            self.missing.remove(key);
        }
        if now >= machine.next_lookup {
            // If the answer is lost, the machine is looked up again after the period.
            machine.next_lookup = now.after(self.policy.period_milliseconds);
            return ask(node, "its condition Ready is not True");
        }
        let next_lookup = machine.next_lookup;
        match machine.last {
            Some(MachineState::Shutdown) if !tainted => {
                set_taint(node, true, gc_types::codes::MACHINE_SHUT_DOWN, "its provider says so")
            }
            Some(MachineState::Running) if tainted => {
                set_taint(node, false, gc_types::codes::MACHINE_RUNNING, "its provider says so")
            }
            Some(MachineState::Absent) => self.decide_missing(key, node, now, dirty),
            _ => Decision::Later(next_lookup),
        }
    }

    /// Decides about a node whose machine the last lookup did not find.
    fn decide_missing(
        &mut self,
        key: &ObjectKey,
        node: &Node,
        now: Timestamp,
        dirty: &mut Vec<ObjectKey>,
    ) -> Decision {
        if self.missing.contains(key) {
            // Choose from the first answer on, so that the provider has been checked when this node is due.
            self.controls.choose(dirty);
        }
        let Some(machine) = self.machines.get(key) else { return Decision::Leave };
        let NodePolicy { confirmations, missing_milliseconds, provider_delay_milliseconds, dry_run, .. } =
            self.policy;
        let (negatives, next_lookup) = (machine.negatives, machine.next_lookup);
        let missing_for = now.since(machine.first_negative);
        let since = machine.first_negative;
        let minimum_age = missing_milliseconds.max(provider_delay_milliseconds);
        let young = node.meta.created.is_none_or(|created| now.since(created) < minimum_age);
        if negatives < confirmations.max(2) || missing_for < missing_milliseconds || young {
            return Decision::Later(next_lookup);
        }
        let facts = [
            format!(
                "{negatives} answers in a row, over {} s, said that its machine does not exist",
                missing_for / 1000
            ),
            "its condition Ready is not True".to_owned(),
        ];
        let why = reason(gc_types::codes::MACHINE_ABSENT, node.meta.resource_version, &facts);
        let (allowed, missing) = self.breaker();
        let halted = if missing > allowed {
            Some(format!(
                "{missing} of {} machines are missing, more than the {allowed} that may be missing at once: no node is \
                 deleted until machines return, or an operator deletes nodes or raises the limit",
                self.nodes.len() + self.deleted.len()
            ))
        } else if node.meta.keeps() {
            None
        } else {
            let is_running = |machine: &Machine| machine.last == Some(MachineState::Running);
            let is_other_found = self.machines.values().any(is_running);
            self.controls.doubt(since, &self.policy, now, is_other_found)
        };
        if let Some(message) = halted {
            self.report(key, node, (Severity::Warning, "NodeDeletionHalted"), &message, why);
            return Decision::Later(next_lookup);
        }
        if dry_run {
            let message = format!("Node {} would be deleted: its machine does not exist", node.meta.name);
            self.report(key, node, (Severity::Normal, "DeletingNodeDryRun"), &message, why);
            return Decision::Later(next_lookup);
        }
        let request = Request::Delete {
            key: key.clone(),
            uid: node.meta.uid.clone(),
            resource_version: Some(node.meta.resource_version),
            policy: PropagationPolicy::Background,
        };
        Decision::Act(request, why)
    }

    /// Reports an Event, once for each text.
    fn report(
        &mut self,
        key: &ObjectKey,
        node: &Node,
        event: (Severity, &'static str),
        message: &str,
        why: Reason,
    ) {
        let Some(machine) = self.machines.get_mut(key) else { return };
        if machine.reported.as_deref() != Some(message) {
            machine.reported = Some(message.to_owned());
            self.queue_event(node, event, message, why);
        }
    }

    fn queue_event(
        &mut self,
        node: &Node,
        (severity, event): (Severity, &'static str),
        message: &str,
        why: Reason,
    ) {
        let note = EventRecord {
            about: Kind::Node.key(&node.meta.namespace, &node.meta.name),
            uid: node.meta.uid.clone(),
            severity,
            reason: event,
            message: message.to_owned(),
        };
        self.reports.event(note, why);
    }

    fn answered(
        &mut self,
        key: &ObjectKey,
        uid: &Uid,
        state: Result<MachineState, String>,
        now: Timestamp,
        dirty: &mut Vec<ObjectKey>,
    ) {
        let period = self.policy.period_milliseconds;
        let proof = self.controls.answered(key, uid, &state, &self.policy, now);
        let machine = self.machines.get_mut(key).filter(|known| known.uid.as_ref() == Some(uid));
        if proof.is_none() && machine.is_none() {
            return;
        }
        let answer = match &state {
            Ok(MachineState::Running) => "running",
            Ok(MachineState::Shutdown) => "shutdown",
            Ok(MachineState::Absent) => "absent",
            Err(_) => "error",
        };
        self.reports.count(&measures::NODES_LOOKED_UP, vec![Arc::from(answer)]);
        let Some(machine) = machine else {
            if proof == Some(true) {
                // Missing nodes may be waiting only for this answer.
                dirty.extend(self.missing.iter().take(CONTROLLED).cloned());
            }
            return;
        };
        machine.last = state.as_ref().ok().copied();
        match state {
            Ok(MachineState::Absent) => {
                if machine.negatives == 0 {
                    machine.first_negative = now;
                }
                machine.negatives = machine.negatives.saturating_add(1);
                if self.nodes.get(key).is_some_and(|node| !node.meta.keeps()) {
                    self.missing.insert(key.clone());
                }
            }
            _ => {
                // Any other answer, or a failure, resets the count.
                machine.negatives = 0;
                self.missing.remove(key);
            }
        }
        let Err(message) = state else {
            machine.errors = 0;
            machine.next_lookup = now.after(period);
            return;
        };
        machine.next_lookup = now.after((period << machine.errors.min(20)).min(LONGEST_PAUSE_MILLISECONDS));
        machine.errors = machine.errors.saturating_add(1);
        if let Some(node) = self.nodes.get(key).cloned() {
            let message = format!("cannot find out whether the machine exists: {message}");
            let why = reason(
                gc_types::codes::MACHINE_STATE_UNKNOWN,
                node.meta.resource_version,
                std::slice::from_ref(&message),
            );
            self.report(key, &node, (Severity::Warning, "NodeLookupFailed"), &message, why);
        }
    }
}

fn is_shutdown(taint: &Taint) -> bool {
    taint.key == SHUTDOWN_TAINT && taint.effect == NO_SCHEDULE
}

fn ask(node: &Node, fact: &str) -> Decision {
    let meta = &node.meta;
    let request = Request::Outside {
        key: Kind::Node.key(&meta.namespace, &meta.name),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version,
        call: OutsideCall::LookUpMachine { provider_id: Arc::clone(&node.provider_id) },
    };
    let verdict = gc_types::codes::MACHINE_UNKNOWN;
    Decision::Act(request, reason(verdict, meta.resource_version, &[fact.to_owned()]))
}

/// Returns the list of taints with or without the one for shut-down machines.
fn set_taint(node: &Node, present: bool, verdict: &'static str, fact: &str) -> Decision {
    let meta = &node.meta;
    let mut taints: Vec<Taint> = node.taints.iter().filter(|taint| !is_shutdown(taint)).cloned().collect();
    if present {
        taints.push(Taint { key: SHUTDOWN_TAINT.into(), effect: NO_SCHEDULE.into(), ..Taint::default() });
    }
    let patch = json!({"spec": {"taints": taints}});
    let request = Kind::Node.guarded(meta, Change::Merge(patch.to_string().into()));
    Decision::Act(request, reason(verdict, meta.resource_version, &[fact.to_owned()]))
}

impl Collector for NodeLifecycle {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Node]
    }

    fn clock_set(&mut self, by: i64) {
        for machine in self.machines.values_mut() {
            machine.first_negative = machine.first_negative.after(by);
            machine.next_lookup = machine.next_lookup.after(by);
        }
        for at in &mut self.deleted {
            *at = at.after(by);
        }
        self.controls.clock_set(by);
    }

    fn observe(&mut self, observation: Observation, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::Node) => self.nodes.list_started(),
            Observation::Observed(Facts::Node(node)) => {
                let is_kept = node.meta.keeps();
                let may_be_chosen = node.ready && !node.meta.deleting && !is_kept;
                let (key, before) = self.nodes.put(node);
                self.controls.put(&key, may_be_chosen);
                self.count_kept(&key, is_kept, before.is_some_and(|before| before.meta.keeps()));
                dirty.push(key);
            }
            Observation::Removed(key) => {
                self.nodes.remove(&key);
                self.controls.remove(&key);
                self.forget(&key);
            }
            Observation::Synced(Kind::Node) => {
                for key in self.nodes.list_ended() {
                    self.nodes.remove(&key);
                    self.controls.remove(&key);
                    self.forget(&key);
                }
                dirty.extend(self.nodes.keys().cloned());
            }
            Observation::Machine { node, uid, state } => self.answered(&node, &uid, state, now, dirty),
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, dirty: &mut Vec<ObjectKey>) -> Decision {
        match self.nodes.get(key).cloned() {
            Some(node) => self.decide_node(key, &node, now, dirty),
            None => Decision::Leave,
        }
    }

    fn sending(&mut self, key: &ObjectKey, request: &Request, reason: &Reason, _now: Timestamp) {
        let Request::Delete { .. } = request else { return };
        let Some(node) = self.nodes.get(key).cloned() else { return };
        let message = format!("Deleting node {} because it does not exist in the cloud provider", key.name);
        self.report(key, &node, (Severity::Normal, "DeletingNode"), &message, reason.clone());
    }

    fn kept(&mut self, key: &ObjectKey) -> Option<Timestamp> {
        self.machines.get(key).map(|machine| machine.next_lookup)
    }

    fn finished(
        &mut self,
        EndedRequest { key, request, outcome, now }: EndedRequest<'_>,
        _dirty: &mut Vec<ObjectKey>,
    ) {
        let Request::Delete { .. } = request else { return };
        match outcome {
            Outcome::Applied(_) => {
                self.deleted.push_back(now);
                // It counts as deleted from now on.
                self.missing.remove(key);
            }
            Outcome::Refused { message, .. } | Outcome::Failed { message, .. } => {
                let Some(node) = self.nodes.get(key).cloned() else { return };
                let message = format!("Failed to delete node {}: {message}", node.meta.name);
                let why = reason(
                    gc_types::codes::NODE_DELETION_FAILED,
                    node.meta.resource_version,
                    std::slice::from_ref(&message),
                );
                self.queue_event(&node, (Severity::Warning, "DeletingNodeFailed"), &message, why);
            }
            _ => {}
        }
    }

    fn reports(&mut self) -> Option<&mut ReportQueue> {
        Some(&mut self.reports)
    }

    fn gauges(&self, into: &mut Vec<Measurement>) {
        into.push(reading(&measures::NODES_MISSING, self.missing.len() + self.controls.absent()));
        let (allowed, missing) = self.breaker();
        into.push(reading(&measures::NODE_BREAKER, usize::from(missing > allowed)));
    }
}
