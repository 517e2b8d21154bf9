//! Kubelet of the simulated nodes: maintains the Node and its Lease, and the status of the pods that are bound to it. Containers
//! are not run.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::lifetime::Termination;
use super::{SIMULATED, admission, capacity, is_kept, lifetime, reports, spread};
use crate::kinds::{Key, Kind};
use crate::object::{Object, condition, int, items, map, text};
use crate::plan::{Action, Plan, Request, Settings, View};
use crate::pods;
use crate::store::Change;
use crate::time::{self, Milliseconds, SECOND};

/// The namespace of nodes' Leases.
const LEASES: &str = "kube-node-lease";
/// Interval of Lease renewals.
const RENEW_EVERY: Milliseconds = 10 * SECOND;
/// Duration of a Lease, in seconds.
const LEASE_SECONDS: i64 = 40;
/// Interval of the node's status reports.
const REPORT_EVERY: Milliseconds = 300 * SECOND;
/// Version that simulated nodes report.
const VERSION: &str = "v1.36.0";
/// Features that simulated nodes declare, of those that the API server requires of nodes.
const DECLARED_FEATURES: [&str; 2] =
    ["InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"];
/// Code of the reason why a pod that ran for too long is reported.
const OVERDUE: &str = "deadline";
/// Message about a pod that ran for too long.
const OVERDUE_MESSAGE: &str = "Pod was active on the node longer than the specified deadline";
/// Delay between binding and rejection of a pod, so that controllers which replace a failed pod immediately do so no more often
/// than with a real kubelet.
const REJECTION_DELAY: Milliseconds = SECOND;
/// Pause before the second restart of a failed container; it doubles with each further one, and there is none before the first.
const SECOND_RESTART: Milliseconds = 10 * SECOND;
/// Maximum pause before a restart of a failed container.
const LONGEST_RESTART: Milliseconds = 300 * SECOND;
/// Minimum run time after which a failed container is restarted without a pause.
const LONG_RUN: Milliseconds = 2 * LONGEST_RESTART;
/// Minimum duration of a termination that is reported when it begins; a shorter one is over before anybody could read it.
const REPORTED_TERMINATION: Milliseconds = SECOND;

/// Reconciles a node with its Lease, a pod when it changes, and all pods of a node that starts or stops.
pub(crate) fn wakes(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    match object.key.kind {
        Kind::Pod => {
            let bound = change.after.as_ref().filter(|pod| !pods::node_name(pod).is_empty());
            keys.extend(bound.map(|pod| pod.key.clone()));
        }
        Kind::Node if change.after.is_some() => {
            keys.push(object.key.clone());
            let kept = |node: &Option<Arc<Object>>| node.as_ref().is_some_and(|node| is_kept(node));
            if kept(&change.after) && !kept(&change.before) {
                keys.extend(view.store.pods_on(object.name()).map(|pod| pod.key.clone()));
            }
        }
        Kind::Lease if object.namespace() == LEASES && change.after.is_none() => {
            let node = view.store.find(Kind::Node, "", object.name());
            keys.extend(node.map(|node| node.key.clone()));
        }
        _ => {}
    }
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    match key.kind {
        Kind::Lease => register(view, key),
        Kind::Node => keep_node(view, key),
        _ => keep_pod(view, key),
    }
}

/// Returns the keys to reconcile once at the start, to create the nodes: a node that is deleted later does not register again.
pub(crate) fn first_keys(settings: &Settings) -> Vec<Key> {
    (0..settings.nodes).map(|number| Kind::Lease.key(LEASES, &super::name(number))).collect()
}

fn register(view: &View<'_>, lease: &Key) -> Plan {
    let mut plan = Plan::default();
    if view.store.find(Kind::Node, "", &lease.name).is_none() {
        plan.then(Request::create(Kind::Node, "", new_node(view, &lease.name), "register"));
    }
    plan
}

fn keep_node(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(node) = view.store.get(key) else { return plan };
    if !is_kept(node) {
        return plan;
    }
    let reported = condition(node.status(), "Ready");
    let last_report = reported.and_then(|ready| time::parse(&ready["lastHeartbeatTime"])).unwrap_or_default();
    if reported.is_none_or(|ready| ready["status"] != "True") || last_report + REPORT_EVERY <= view.now {
        plan.then(Request::update_status(key, with_status(node, node_status(view, node)), "report"));
    }
    let lease = view.store.find(Kind::Lease, LEASES, &key.name);
    let now = time::format_micro(view.now);
    match lease {
        None => {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": &*key.name, "namespace": LEASES, "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": &*key.name, "uid": &*node.uid}]},
                "spec": {"holderIdentity": &*key.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
            });
            plan.then(Request::create(Kind::Lease, LEASES, lease, "lease"));
            plan.again_at(view.now + RENEW_EVERY);
        }
        Some(lease) => {
            let renewed = time::parse(&lease.spec()["renewTime"]).unwrap_or_default();
            if renewed + RENEW_EVERY <= view.now {
                let mut value = lease.value.clone();
                value["spec"]["renewTime"] = now;
                value["spec"]["holderIdentity"] = (&*key.name).into();
                plan.then(Request::update(&lease.key, value, "lease"));
                plan.again_at(view.now + RENEW_EVERY);
            } else {
                plan.again_at(renewed + RENEW_EVERY);
            }
        }
    }
    plan
}

fn new_node(view: &View<'_>, name: &str) -> Value {
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {SIMULATED: "true", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
            },
        },
        "spec": {},
        "status": {},
    });
    node["status"] = status_of_node(view, name, None);
    node
}

fn node_status(view: &View<'_>, node: &Object) -> Value {
    status_of_node(view, node.name(), Some(node))
}

fn status_of_node(view: &View<'_>, name: &str, node: Option<&Object>) -> Value {
    let now = time::format(view.now);
    let condition_of = |kind: &str, status: &str, reason: &str, message: &str| {
        let known = node.and_then(|node| condition(node.status(), kind));
        let since =
            known.filter(|known| known["status"] == status).map(|known| known["lastTransitionTime"].clone());
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": since.unwrap_or_else(|| now.clone()),
        })
    };
    let mut info = Map::new();
    for field in ["machineID", "systemUUID", "bootID", "kernelVersion", "osImage"] {
        info.insert(field.into(), "simulated".into());
    }
    for field in ["kubeletVersion", "kubeProxyVersion"] {
        info.insert(field.into(), VERSION.into());
    }
    info.insert("containerRuntimeVersion".into(), "kubegc://simulated".into());
    info.insert("operatingSystem".into(), "linux".into());
    info.insert("architecture".into(), "amd64".into());
    json!({
        "capacity": capacity(), "allocatable": capacity(),
        "addresses": [
            {"type": "InternalIP", "address": address_of_node(name)}, {"type": "Hostname", "address": name}],
        "conditions": [
            condition_of("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition_of("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition_of("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition_of("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "nodeInfo": info,
        "declaredFeatures": DECLARED_FEATURES,
    })
}

fn address_of_node(name: &str) -> String {
    let [_, _, high, low] = spread(name).to_be_bytes();
    format!("192.168.{high}.{}", low.max(1))
}

/// Returns an unused address from 10.128.0.0/9.
fn address_of_pod(view: &View<'_>, pod: &Object) -> String {
    let mut number = spread(&pod.uid);
    loop {
        let [_, second, third, fourth] = number.to_be_bytes();
        let address = format!("10.{}.{third}.{fourth}", second | 128);
        if !view.store.is_address_used(&address) || view.store.len() > 1 << 22 {
            return address;
        }
        number = number.wrapping_add(1);
    }
}

/// Stage of a simulated pod.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Its containers start at this time.
    Waiting(Milliseconds),
    /// Its containers start now.
    Start,
    /// Its containers run until this time, if it is known.
    Running(Option<Milliseconds>),
    /// Its containers have run longer than `activeDeadlineSeconds` allows.
    Overdue,
    /// Its containers end now with this exit code.
    End(i64),
    /// Its containers failed, and restart at this time.
    Restarting(Milliseconds),
    /// Has ended for good.
    Ended,
}

fn keep_pod(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(pod) = view.store.get(key) else { return plan };
    let node = view.store.find(Kind::Node, "", pods::node_name(pod));
    let Some(node) = node.filter(|node| is_kept(node)) else { return plan };
    if pod.deleting {
        return end_deleted(view, pod, node);
    }
    if admission::is_pending(pod)
        && let Some(rejection) = admission::rejection(view, pod, node)
    {
        let at = bound_at(pod) + REJECTION_DELAY;
        if at > view.now {
            plan.again_at(at);
        } else {
            plan.then(rejection.request(view, pod, node));
        }
        return plan;
    }
    match stage(view, pod) {
        Stage::Waiting(at) => {
            if items(&pod.status()["containerStatuses"]).next().is_none() {
                plan.then(report(view, pod, node, "Pending", &waiting("ContainerCreating"), "bound"));
            }
            plan.again_at(at);
        }
        Stage::Start => {
            let state = json!({"running": {"startedAt": time::format(view.now)}});
            plan.then(report(view, pod, node, "Running", &state, "start"));
            plan.notes = reports::started(pod, node);
            let ignored = lifetime::bad_annotations_of_pod(view, pod);
            plan.notes.extend(ignored.into_iter().map(|bad| reports::ignored(pod, node, &bad)));
        }
        Stage::Running(end) => {
            if let Some(state) = outdated_readiness(view, pod) {
                plan.then(report(view, pod, node, "Running", &state, "readiness"));
            } else if !is_observed(pod) {
                // A change of the specification that leaves the containers running only has to be observed.
                plan.then(report(view, pod, node, "Running", &container_state(pod), "observe"));
            }
            if let Some(at) = end {
                plan.again_at(at);
            }
        }
        Stage::Overdue => {
            plan.then(report(
                view,
                pod,
                node,
                "Failed",
                &terminated(view, pod, lifetime::TERMINATED),
                OVERDUE,
            ));
            plan.notes = reports::overdue(pod, node, OVERDUE_MESSAGE);
        }
        Stage::End(code) => {
            let again = text(&pod.spec()["restartPolicy"]) != "Never" && code != 0;
            if again && restarts_at_once(view, pod) {
                plan.then(report(view, pod, node, "Running", &terminated(view, pod, code), "fails"));
            } else if again {
                plan.then(report(view, pod, node, "Running", &waiting("CrashLoopBackOff"), "fails"));
                plan.notes = reports::failed(pod, node);
            } else {
                let phase = if code == 0 { "Succeeded" } else { "Failed" };
                plan.then(report(view, pod, node, phase, &terminated(view, pod, code), "ends"));
            }
        }
        Stage::Restarting(at) => plan.again_at(at),
        Stage::Ended => {}
    }
    plan
}

/// Reports whether containers that fail now are restarted without a pause.
fn restarts_at_once(view: &View<'_>, pod: &Object) -> bool {
    let started = time::parse(&container_state(pod)["running"]["startedAt"]);
    pods::restarts(pod) == 0 || started.is_some_and(|at| at + LONG_RUN < view.now)
}

/// Returns the state of the containers of a running pod whose condition `Ready` does not match its containers and readiness gates,
/// for example after its node was silent. A pod whose containers somebody else declared unready is left alone.
fn outdated_readiness(view: &View<'_>, pod: &Object) -> Option<Value> {
    let status = |kind: &str| condition(pod.status(), kind).map(|known| text(&known["status"]));
    let wanted = conditions(view, pod, "Running", true);
    let wanted = wanted.iter().find(|one| one["type"] == "Ready")?;
    let is_outdated =
        status("ContainersReady") == Some("True") && status("Ready") != Some(text(&wanted["status"]));
    is_outdated.then(|| container_state(pod))
}

/// Returns the state of the first container, which all containers of a running pod share.
fn container_state(pod: &Object) -> Value {
    let first = items(&pod.status()["containerStatuses"]).next();
    first.map_or(Value::Null, |first| first["state"].clone())
}

/// Reports whether the status of a pod reflects its specification.
fn is_observed(pod: &Object) -> bool {
    pod.status()["observedGeneration"].as_i64().unwrap_or_default() >= pod.generation()
}

/// Returns the time at which a pod has run for as long as it may.
fn deadline(pod: &Object) -> Option<Milliseconds> {
    let seconds = pod.spec()["activeDeadlineSeconds"].as_i64()?;
    Some(time::parse(&pod.status()["startTime"])?.saturating_add(seconds.saturating_mul(SECOND)))
}

/// Returns the time at which a pod was bound to its node.
fn bound_at(pod: &Object) -> Milliseconds {
    let bound = condition(pod.status(), "PodScheduled");
    bound.and_then(|bound| time::parse(&bound["lastTransitionTime"])).unwrap_or(pod.created)
}

fn stage(view: &View<'_>, pod: &Object) -> Stage {
    let status = pod.status();
    if pod.finished {
        return Stage::Ended;
    }
    let deadline = deadline(pod);
    if deadline.is_some_and(|at| at <= view.now) {
        return Stage::Overdue;
    }
    let first = items(&status["containerStatuses"]).next();
    let state = first.map(|container| &container["state"]);
    if state.is_some_and(|state| state["waiting"]["reason"] == "CrashLoopBackOff") {
        let failed =
            first.and_then(|container| time::parse(&container["lastState"]["terminated"]["finishedAt"]));
        let doublings = u32::try_from(pods::restarts(pod) - 1).unwrap_or_default();
        let pause = SECOND_RESTART.saturating_mul(1 << doublings.min(10)).min(LONGEST_RESTART);
        let at = failed.unwrap_or(view.now) + pause;
        return if at <= view.now { Stage::Start } else { Stage::Restarting(at) };
    }
    if state.is_some_and(|state| state["terminated"].is_object()) {
        return Stage::Start;
    }
    let Some(started) = state.and_then(|state| time::parse(&state["running"]["startedAt"])) else {
        let latency = view.settings.pod_start_latency;
        let at = bound_at(pod) + latency;
        return if latency == 0 || at <= view.now { Stage::Start } else { Stage::Waiting(at) };
    };
    match lifetime::of_pod(view, pod) {
        None => Stage::Running(deadline),
        Some((after, code)) if started + after <= view.now => Stage::End(code),
        Some((after, _)) => Stage::Running(deadline.into_iter().chain([started + after]).min()),
    }
}

fn waiting(reason: &str) -> Value {
    json!({"waiting": {"reason": reason}})
}

fn terminated(view: &View<'_>, pod: &Object, code: i64) -> Value {
    let running =
        items(&pod.status()["containerStatuses"]).next().map(|first| &first["state"]["running"]["startedAt"]);
    let started =
        running.filter(|started| !started.is_null()).cloned().unwrap_or_else(|| time::format(view.now));
    json!({"terminated": {
        "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
        "startedAt": started, "finishedAt": time::format(view.now),
    }})
}

/// Stops running containers, which end some time later; then removes the pod.
fn end_deleted(view: &View<'_>, pod: &Object, node: &Object) -> Plan {
    let mut plan = Plan::default();
    if pod.value["metadata"]["deletionGracePeriodSeconds"] == 0 && pod.finished {
        // Only a finalizer still blocks it.
        if items(&pod.value["metadata"]["finalizers"]).next().is_some() {
            return plan;
        }
    }
    let Termination { takes, ends_at, code } = lifetime::termination(view, pod);
    let runs = container_state(pod)["running"].is_object();
    let is_reported = takes >= REPORTED_TERMINATION;
    if runs && !pod.finished && ends_at > view.now {
        // The deletion has changed the pod's generation, which has to be observed once.
        if is_reported && !is_observed(pod) {
            plan.then(report(view, pod, node, "Running", &container_state(pod), "observe"));
            plan.notes = reports::stopped(pod, node);
        }
        plan.again_at(ends_at);
        return plan;
    }
    if !pod.finished {
        plan.then(report(view, pod, node, "Failed", &terminated(view, pod, code), "terminate"));
        if !is_reported {
            plan.notes = reports::stopped(pod, node);
        }
    }
    plan.then(Request::new(
        Action::Delete {
            key: pod.key.clone(),
            uid: Arc::clone(&pod.uid),
            version: None,
            grace_seconds: Some(0),
            propagation: None,
        },
        "terminated",
    ));
    plan
}

/// Returns the status of a pod whose containers are all in one state.
fn report(
    view: &View<'_>,
    pod: &Object,
    node: &Object,
    phase: &str,
    state: &Value,
    why: &'static str,
) -> Request {
    let ready = state["running"].is_object();
    let finished = matches!(phase, "Succeeded" | "Failed");
    let mut status = json!({
        "phase": phase,
        "observedGeneration": pod.generation(),
        "conditions": conditions(view, pod, phase, ready),
        "containerStatuses": containers(view, pod, "containers", state, ready),
    });
    if why == OVERDUE {
        status["reason"] = reports::OVERDUE.into();
        status["message"] = OVERDUE_MESSAGE.into();
    }
    let init = if phase == "Pending" { state.clone() } else { terminated(view, pod, 0) };
    let init = containers(view, pod, "initContainers", &init, phase != "Pending");
    if !init.is_empty() {
        status["initContainerStatuses"] = init.into();
    }
    let ephemeral = containers(view, pod, "ephemeralContainers", state, false);
    if !ephemeral.is_empty() {
        status["ephemeralContainerStatuses"] = ephemeral.into();
    }
    let host = address_of_node(node.name());
    if pod.status()["hostIP"].is_null() {
        status["hostIP"] = host.clone().into();
        status["hostIPs"] = json!([{"ip": host}]);
        status["startTime"] = time::format(view.now);
    }
    if phase != "Pending" && pod.status()["podIP"].is_null() && !finished {
        let address = if pod.spec()["hostNetwork"] == true { host } else { address_of_pod(view, pod) };
        status["podIPs"] = json!([{"ip": address}]);
        status["podIP"] = address.into();
    }
    Request::update_status(&pod.key, with_status(pod, status), why)
}

/// Returns an object with other fields in its status, keeping conditions of other types.
fn with_status(object: &Object, mut status: Value) -> Value {
    let mut merged = map(object.status());
    let mut conditions: Vec<Value> = items(&object.status()["conditions"]).cloned().collect();
    for new in status["conditions"].as_array_mut().into_iter().flatten() {
        let new = without_nulls(new.take());
        match conditions.iter_mut().find(|known| known["type"] == new["type"]) {
            Some(known) => *known = new,
            None => conditions.push(new),
        }
    }
    status["conditions"] = conditions.into();
    merged.extend(map(&status));
    object.with_status(merged.into())
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    value
}

fn conditions(view: &View<'_>, pod: &Object, phase: &str, ready: bool) -> Vec<Value> {
    let finished = matches!(phase, "Succeeded" | "Failed");
    let readiness = match (ready, phase) {
        (true, _) => ("True", None),
        (false, "Succeeded") => ("False", Some("PodCompleted")),
        (false, "Failed") => ("False", Some("PodFailed")),
        (false, _) => ("False", Some("ContainersNotReady")),
    };
    let initialized = if phase == "Pending" && items(&pod.spec()["initContainers"]).next().is_some() {
        ("False", Some("ContainersNotInitialized"))
    } else {
        ("True", (phase == "Succeeded").then_some("PodCompleted"))
    };
    let gates = items(&pod.spec()["readinessGates"]).all(|gate| {
        condition(pod.status(), text(&gate["conditionType"])).is_some_and(|known| known["status"] == "True")
    });
    let whole = if ready && !gates { ("False", Some("ReadinessGatesNotReady")) } else { readiness };
    let started = if phase == "Pending" || finished { "False" } else { "True" };
    let names: Vec<&str> =
        items(&pod.spec()["containers"]).map(|container| text(&container["name"])).collect();
    let unready = format!("containers with unready status: [{}]", names.join(" "));
    [
        ("PodReadyToStartContainers", (started, None)),
        ("Initialized", initialized),
        ("Ready", whole),
        ("ContainersReady", readiness),
        ("PodScheduled", ("True", None)),
    ]
    .into_iter()
    .map(|(kind, (status, reason))| {
        let known = condition(pod.status(), kind).filter(|known| known["status"] == status);
        let since = known.map_or_else(|| time::format(view.now), |known| known["lastTransitionTime"].clone());
        let message = (reason == Some("ContainersNotReady")).then_some(&unready);
        json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastProbeTime": null,
            "lastTransitionTime": since, "observedGeneration": pod.generation(),
        })
    })
    .collect()
}

fn containers(view: &View<'_>, pod: &Object, field: &str, state: &Value, ready: bool) -> Vec<Value> {
    let statuses = match field {
        "containers" => "containerStatuses",
        "initContainers" => "initContainerStatuses",
        _ => "ephemeralContainerStatuses",
    };
    let known = |name: &str| items(&pod.status()[statuses]).find(|status| status["name"] == name);
    items(&pod.spec()[field])
        .map(|container| {
            let name = text(&container["name"]);
            let before = known(name);
            let restarts = before.map_or(0, |before| int(&before["restartCount"], 0));
            let was = before.map_or(&Value::Null, |before| &before["state"]);
            let crashed = state["waiting"]["reason"] == "CrashLoopBackOff";
            let again = state["running"].is_object()
                && (was["waiting"]["reason"] == "CrashLoopBackOff" || was["terminated"].is_object());
            let last = if crashed {
                let code = lifetime::of_pod(view, pod).map_or(1, |(_, code)| code);
                terminated(view, pod, code)
            } else if again && was["terminated"].is_object() {
                was.clone()
            } else {
                before.map_or_else(|| json!({}), |before| before["lastState"].clone())
            };
            let image = text(&container["image"]);
            let mut status = json!({
                "name": name, "image": image, "imageID": "", "ready": ready, "started": state["running"].is_object(),
                "restartCount": restarts + i64::from(again), "state": state, "lastState": last,
            });
            if !state["waiting"].is_object() || crashed {
                status["containerID"] = format!("kubegc://{:08x}{:08x}", spread(&pod.uid), spread(name)).into();
                status["imageID"] = format!("{image}@simulated").into();
            }
            status
        })
        .collect()
}
