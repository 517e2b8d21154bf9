//! The columns of pods.

use jiff::Timestamp;

use crate::kinds::prelude::*;
use crate::kinds::printers::duration::{between, human_duration, parse};

pub(super) const COLUMNS: &[Column] = &[
    H::NAME,
    H::text("Ready", T("The aggregate readiness state of this pod for accepting traffic.")),
    H::text("Status", T("The aggregate status of the containers in this pod.")),
    H::text(
        "Restarts",
        T(
            "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
        ),
    ),
    H::AGE,
    H::wide("IP", F("api.core.v1.PodStatus", "podIP")),
    H::wide("Node", F("api.core.v1.PodSpec", "nodeName")),
    H::wide("Nominated Node", F("api.core.v1.PodStatus", "nominatedNodeName")),
    H::wide("Readiness Gates", F("api.core.v1.PodSpec", "readinessGates")),
];

/// Number of restarts, and time of the last one.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += integer(status, &["restartCount"]).unwrap_or_default();
        let finished = parse(at(status, &["lastState", "terminated", "finishedAt"]));
        self.last = self.last.max(finished);
    }
}

/// Summary of the containers' statuses.
struct Summary {
    reason: String,
    ready: usize,
    restarts: Restarts,
}

/// Returns the cells of a pod.
pub(super) fn cells(row: &Row<'_>) -> Vec<Value> {
    let total = row.list(&["spec", "containers"]).len()
        + row.list(&["spec", "initContainers"]).iter().filter(|container| is_sidecar(container)).count();
    let mut summary = Summary { reason: phase_or_reason(row), ready: 0, restarts: Restarts::default() };
    let (initializing, sidecars) = init_containers(row, &mut summary);
    if !initializing || is_condition_true(row, "Initialized") {
        summary.restarts = sidecars;
        containers(row, &mut summary);
    }
    let is_finished = matches!(row.text(&["status", "phase"]), "Succeeded" | "Failed");
    if at(row.object, &["metadata", "deletionTimestamp"]).is_some() {
        if row.text(&["status", "reason"]) == "NodeLost" {
            summary.reason = "Unknown".into();
        } else if !is_finished {
            summary.reason = "Terminating".into();
        }
    }
    let Restarts { count, last } = summary.restarts;
    let restarts = match last {
        Some(last) if count != 0 => format!("{count} ({} ago)", human_duration(between(last, row.now))),
        _ => count.to_string(),
    };
    let address = row
        .list(&["status", "podIPs"])
        .first()
        .map_or_else(|| row.text(&["status", "podIP"]), |address| text(address, &["ip"]));
    vec![
        row.name(),
        format!("{}/{total}", summary.ready).into(),
        summary.reason.into(),
        restarts.into(),
        row.age(),
        if address.is_empty() { NONE } else { address }.into(),
        row.text_or(&["spec", "nodeName"], NONE),
        row.text_or(&["status", "nominatedNodeName"], NONE),
        readiness_gates(row),
    ]
}

fn phase_or_reason(row: &Row<'_>) -> String {
    let gated = row.list(&["status", "conditions"]).iter().any(|condition| {
        text(condition, &["type"]) == "PodScheduled" && text(condition, &["reason"]) == "SchedulingGated"
    });
    let reason = row.text(&["status", "reason"]);
    match (gated, reason) {
        (true, _) => "SchedulingGated".into(),
        (false, "") => row.text(&["status", "phase"]).into(),
        (false, reason) => reason.into(),
    }
}

fn is_sidecar(container: &Value) -> bool {
    text(container, &["restartPolicy"]) == "Always"
}

fn is_condition_true(row: &Row<'_>, kind: &str) -> bool {
    row.list(&["status", "conditions"])
        .iter()
        .any(|condition| text(condition, &["type"]) == kind && text(condition, &["status"]) == "True")
}

/// Reports whether an init container is not finished; also returns the restarts of those that keep running.
fn init_containers(row: &Row<'_>, summary: &mut Summary) -> (bool, Restarts) {
    let specs = row.list(&["spec", "initContainers"]);
    let mut sidecars = Restarts::default();
    for (index, status) in row.list(&["status", "initContainerStatuses"]).iter().enumerate() {
        summary.restarts.add(status);
        let spec = specs.iter().find(|spec| text(spec, &["name"]) == text(status, &["name"]));
        let sidecar = spec.is_some_and(is_sidecar);
        if sidecar {
            sidecars.add(status);
        }
        if let Some(terminated) = at(status, &["state", "terminated"]) {
            if integer(terminated, &["exitCode"]).unwrap_or_default() == 0 {
                continue;
            }
            summary.reason = format!("Init:{}", termination(terminated));
            return (true, sidecars);
        }
        if sidecar && flag(status, &["started"]) == Some(true) {
            summary.ready += usize::from(flag(status, &["ready"]) == Some(true));
            continue;
        }
        let waiting = text(status, &["state", "waiting", "reason"]);
        summary.reason = if waiting.is_empty() || waiting == "PodInitializing" {
            format!("Init:{index}/{}", specs.len())
        } else {
            format!("Init:{waiting}")
        };
        return (true, sidecars);
    }
    (false, sidecars)
}

fn containers(row: &Row<'_>, summary: &mut Summary) {
    let mut running = false;
    for status in row.list(&["status", "containerStatuses"]).iter().rev() {
        summary.restarts.add(status);
        let waiting = text(status, &["state", "waiting", "reason"]);
        if !waiting.is_empty() {
            summary.reason = waiting.into();
        } else if let Some(terminated) = at(status, &["state", "terminated"]) {
            summary.reason = termination(terminated);
        } else if flag(status, &["ready"]) == Some(true) && at(status, &["state", "running"]).is_some() {
            running = true;
            summary.ready += 1;
        }
    }
    // One container has completed, another one is still running.
    if summary.reason == "Completed" && running {
        summary.reason = if is_condition_true(row, "Ready") { "Running" } else { "NotReady" }.into();
    }
}

fn termination(terminated: &Value) -> String {
    let reason = text(terminated, &["reason"]);
    let signal = integer(terminated, &["signal"]).unwrap_or_default();
    if !reason.is_empty() {
        reason.into()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", integer(terminated, &["exitCode"]).unwrap_or_default())
    }
}

fn readiness_gates(row: &Row<'_>) -> Value {
    let gates = row.list(&["spec", "readinessGates"]);
    if gates.is_empty() {
        return NONE.into();
    }
    let conditions = row.list(&["status", "conditions"]);
    let open = gates.iter().filter(|gate| {
        let condition =
            conditions.iter().find(|have| text(have, &["type"]) == text(gate, &["conditionType"]));
        condition.is_some_and(|condition| text(condition, &["status"]) == "True")
    });
    format!("{}/{}", open.count(), gates.len()).into()
}
