//! Safety and liveness of retention collectors, judged from the true objects at the changed version, from the true history, and
//! from a collector's real observations and answers. No judge is used for this.

use std::collections::BTreeMap;

use gc_collectors::leases::{IDENTITY_NAMESPACE, NODE_LEASE_NAMESPACE};
use gc_collectors::nodes::SHUTDOWN_TAINT;
use gc_collectors::volumes::{CLAIM_FINALIZER, VOLUME_FINALIZER};
use gc_types::{Change, Evidence, GoDuration, Request, Verdict};
use serde_json::Value;

use crate::collector::{Collector, Flight};
use crate::kinds::kind_index;
use crate::oracle::Scene;
use crate::performed::Part;
use crate::provider::Provider;
use crate::retention::{FINISHED_PODS_KEPT, Retention};
use crate::tenants::{CERTIFICATE_ENDS_MILLISECONDS, NODES};
use crate::truth::{TrueChange, TrueObject, Truth};
use crate::violation::Violation;
use crate::violation::broken;

const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;
const DAY: i64 = 24 * HOUR;
/// Minimum time that a node must be missing before it is verified (spec `cluster-collectors.md`, 2.4).
const QUARANTINE: i64 = 40 * SECOND;
/// Validity of a live read.
const PROOF: i64 = 20 * SECOND;
/// Number of consecutive answers, and the time they must span, to prove that a machine is gone (10).
const ABSENCES: u32 = 3;
const MISSING: i64 = 60 * SECOND;
/// Maximum error that a drifting clock adds to a duration before the clock counts as set.
const SLEWED: i64 = 2 * SECOND;

type Judged = Result<(), Violation>;

/// Reports whether a request deletes something.
#[must_use]
pub fn deletes(request: &Request) -> bool {
    matches!(request, Request::Delete { .. } | Request::Guarded { change: Change::ForceDelete, .. })
}

/// Returns the label under which a part's changes are counted.
#[must_use]
pub fn named(part: Part) -> &'static str {
    match part {
        Part::Ownership => "changes by ownership",
        Part::Pods => "changes by the collector of pods",
        Part::Jobs => "changes by that of Jobs",
        Part::Certificates => "changes by that of signing requests",
        Part::Leases => "changes by that of leases",
        Part::Nodes => "changes by that of nodes",
        Part::Claims => "changes by the protection of claims",
        Part::Volumes => "changes by the protection of volumes",
        Part::Finished => "changes by the expiry of Jobs and Pods",
        Part::Marked => "changes by the expiry of others",
        Part::Policies => "changes by policies",
    }
}

/// Judges a change that a retention collector's request made. Returns true if the decision was right for the object that had this
/// version before the store was put back: versions repeat after that, so a request that was decided by one history meets its
/// preconditions in the next.
pub fn judge(scene: &Scene<'_>, change: &TrueChange, provider: &Provider) -> Result<bool, Violation> {
    let Some(before) = &change.before else {
        return broken("scope", "a retention collector created something".to_owned());
    };
    let flight = scene.flight;
    let (Request::Delete { uid, .. } | Request::Guarded { uid, .. }) = &flight.effect.request else {
        return broken("scope", format!("a read changed {}", before.show()));
    };
    if *uid != before.object.uid {
        return broken("identity", format!("a request about {uid} changed {}", before.show()));
    }
    let judged = flight.effect.reason.evidence.iter().find_map(|fact| match fact {
        Evidence::ObservedAt { resource_version } => Some(*resource_version),
        _ => None,
    });
    if judged != Some(before.object.resource_version) {
        let (what, now) = (before.show(), before.object.resource_version);
        return broken("version", format!("{what} is at {now} and was judged at {judged:?}"));
    }
    let after = change.after.as_ref();
    let scope = |object: &TrueObject, value: &Value| judge_scope(scene, object, after, value);
    let reason = |object: &TrueObject, value: &Value| judge_reason(scene, object, value, provider);
    let taken_back = scene.truth.taken_back(uid, before.object.resource_version.0);
    let taken_back = taken_back.filter(|former| former.stored != before.stored);
    let value = before.value();
    let mut is_former = false;
    for judge in [&scope as &dyn Fn(&TrueObject, &Value) -> Judged, &reason] {
        let fits = |former: &TrueObject| judge(former, &former.value()).is_ok();
        match judge(before, &value) {
            Err(_) if taken_back.is_some_and(fits) => is_former = true,
            judged => judged?,
        }
    }
    Ok(is_former)
}

/// Judges that a request changed nothing else.
fn judge_scope(scene: &Scene<'_>, before: &TrueObject, after: Option<&TrueObject>, value: &Value) -> Judged {
    match scene.flight.part {
        Part::Claims | Part::Volumes => protection_scope(scene.flight.part, before, after, value),
        Part::Pods if !deletes(&scene.flight.effect.request) => pod_scope(before, after, value),
        Part::Nodes if !deletes(&scene.flight.effect.request) => node_scope(before, after, value),
        _ => Ok(()),
    }
}

/// Judges the decision by the object that the collector may have seen.
fn judge_reason(scene: &Scene<'_>, before: &TrueObject, value: &Value, provider: &Provider) -> Judged {
    let flight = scene.flight;
    if deletes(&flight.effect.request) {
        if keeps(value) {
            return broken("keep", format!("{} is to be kept, and is deleted", before.show()));
        }
        if before.object.deletion.deleting && flight.part != Part::Pods {
            return broken("safety", format!("{} is deleted again", before.show()));
        }
    }
    match flight.part {
        Part::Pods => judge_pod(scene, before, value),
        Part::Jobs => due(before, flight, job_expires(value)),
        Part::Certificates => due(before, flight, request_ends(value).map(|end| end + 1)),
        Part::Leases => judge_lease(before, flight, value),
        Part::Nodes => judge_node(before, flight, value, provider),
        Part::Claims | Part::Volumes => judge_protection(scene, before, value),
        Part::Finished | Part::Marked => due(before, flight, expires(before, value)),
        // The policies have their own oracle.
        Part::Ownership | Part::Policies => Ok(()),
    }
}

/// Judges a decision that was just made: none may depend on the time while the collector can know that its clock and the server's
/// disagree.
pub fn judge_clocks(flight: &Flight, collector: &Collector) -> Judged {
    let changes = matches!(flight.effect.request, Request::Delete { .. } | Request::Guarded { .. });
    let timed = matches!(
        flight.part,
        Part::Jobs | Part::Certificates | Part::Leases | Part::Finished | Part::Marked | Part::Policies
    );
    if changes && timed && collector.clocks.must_pause() {
        let request = &flight.effect.request;
        return broken("clocks", format!("{request:?} is wanted although clocks are known to disagree"));
    }
    Ok(())
}

fn due(target: &TrueObject, flight: &Flight, at: Option<i64>) -> Judged {
    match at {
        Some(at) if at <= flight.clock => Ok(()),
        at => {
            let (what, clock) = (target.show(), flight.clock);
            broken("threshold", format!("{what} is deleted at {clock}, and is due at {at:?}"))
        }
    }
}

pub(crate) fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn list<'v>(value: &'v Value, path: &str) -> impl Iterator<Item = &'v Value> {
    value.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

pub(crate) fn time(value: &Value) -> Option<i64> {
    value.as_str()?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

fn annotation<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value["metadata"]["annotations"][name].as_str()
}

pub(crate) fn keeps(value: &Value) -> bool {
    annotation(value, "kubegc.io/keep").is_some_and(|keep| keep != "false")
}

fn job_finished(value: &Value) -> Option<i64> {
    let ended = list(value, "/status/conditions").find(|condition| {
        matches!(text(condition, "/type"), "Complete" | "Failed") && text(condition, "/status") == "True"
    })?;
    time(&ended["lastTransitionTime"])
}

fn job_expires(value: &Value) -> Option<i64> {
    Some(job_finished(value)? + value.pointer("/spec/ttlSecondsAfterFinished")?.as_i64()? * SECOND)
}

pub(crate) fn pod_finished(value: &Value) -> Option<i64> {
    if !matches!(text(value, "/status/phase"), "Succeeded" | "Failed") {
        return None;
    }
    let ended = list(value, "/status/containerStatuses")
        .filter_map(|status| time(status.pointer("/state/terminated/finishedAt")?));
    let changed = list(value, "/status/conditions").filter_map(|one| time(&one["lastTransitionTime"]));
    ended.max().or_else(|| changed.max()).or_else(|| time(&value["metadata"]["creationTimestamp"]))
}

/// Returns the time at which a signing request expires.
fn request_ends(value: &Value) -> Option<i64> {
    let mut ends = Vec::new();
    let is_issued = value.pointer("/status/certificate").is_some();
    for condition in list(value, "/status/conditions") {
        let stays = match text(condition, "/type") {
            "Approved" if is_issued => {
                ends.push(CERTIFICATE_ENDS_MILLISECONDS);
                HOUR
            }
            "Approved" => DAY,
            "Denied" | "Failed" => HOUR,
            _ => continue,
        };
        ends.extend(time(&condition["lastUpdateTime"]).map(|at| at + stays));
    }
    if ends.is_empty() {
        ends.extend(time(&value["metadata"]["creationTimestamp"]).map(|at| at + DAY));
    }
    ends.into_iter().min()
}

/// Returns the time at which an object expires by its annotations; `None` if never, or if they cannot be parsed.
fn expires(target: &TrueObject, value: &Value) -> Option<i64> {
    let begins = match target.kind().kind {
        "Pod" => pod_finished(value),
        "Job" => job_finished(value),
        _ => time(&value["metadata"]["creationTimestamp"]),
    };
    let mut at = Vec::new();
    if let Some(ttl) = annotation(value, "kubegc.io/ttl") {
        let ttl: GoDuration = ttl.parse().ok()?;
        at.extend(begins.map(|begins| begins + ttl.0 / 1_000_000));
    }
    if let Some(expires) = annotation(value, "kubegc.io/expires-at") {
        at.push(time(&expires.into())?);
    }
    let understood = matches!(annotation(value, "kubegc.io/keep"), None | Some("true" | "false"));
    at.into_iter().min().filter(|_| understood)
}

// ---- pods ----

fn counts_as_finished(value: &Value) -> bool {
    !matches!(text(value, "/status/phase"), "Pending" | "Running" | "Unknown")
}

/// Returns the finished pods in the order of their removal.
fn finished_pods<'t>(pods: impl Iterator<Item = &'t TrueObject>) -> Vec<&'t TrueObject> {
    let mut finished: BTreeMap<(bool, i64, &str, &str), &TrueObject> = BTreeMap::new();
    for pod in pods {
        let value = pod.value();
        if counts_as_finished(&value) {
            let evicted =
                text(&value, "/status/phase") == "Failed" && text(&value, "/status/reason") == "Evicted";
            let created = time(&value["metadata"]["creationTimestamp"]).unwrap_or(i64::MIN);
            let key = &pod.object.key;
            finished.insert((!evicted, created, &key.name, &key.namespace), pod);
        }
    }
    finished.into_values().collect()
}

fn excess(finished: &[&TrueObject]) -> usize {
    finished.len().saturating_sub(usize::try_from(FINISHED_PODS_KEPT).unwrap_or(0))
}

/// Reports whether any update ends the deletion of an object because it is terminating and waits for nothing.
fn ends_by_any_change(value: &Value) -> bool {
    let metadata = &value["metadata"];
    metadata["deletionTimestamp"].is_string()
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
}

fn pod_scope(pod: &TrueObject, after: Option<&TrueObject>, value: &Value) -> Judged {
    if after.map_or(!ends_by_any_change(value), |after| after.object.deletion != pod.object.deletion) {
        return broken("scope", format!("a change of the status of {} changed its deletion", pod.show()));
    }
    Ok(())
}

fn judge_pod(scene: &Scene<'_>, pod: &TrueObject, value: &Value) -> Judged {
    let flight = scene.flight;
    let node = text(value, "/spec/nodeName");
    let finished = matches!(text(value, "/status/phase"), "Succeeded" | "Failed");
    if deletes(&flight.effect.request) && !finished {
        return broken("threshold", format!("{} is deleted and has not ended", pod.show()));
    }
    let Verdict::Retention(sweep) = flight.effect.reason.verdict else {
        return broken("scope", format!("{} is deleted for no reason", pod.show()));
    };
    let holds = match sweep {
        gc_types::codes::TERMINATED_PODS_EXCEED_THRESHOLD => {
            let view = scene.truth.at_revision("Pod", flight.delivered[pod.kind]);
            let finished = finished_pods(view.into_iter());
            finished.iter().take(excess(&finished)).any(|other| other.object.uid == pod.object.uid)
        }
        gc_types::codes::POD_UNSCHEDULED => pod.object.deletion.deleting && node.is_empty(),
        gc_types::codes::NODE_OUT_OF_SERVICE => {
            let view = scene.truth.at_revision("Node", flight.delivered[kind_index("Node")]);
            let node = view.into_iter().find(|known| *known.object.key.name == *node);
            pod.object.deletion.deleting && node.is_some_and(is_out_of_service)
        }
        gc_types::codes::NODE_GONE => {
            let look = flight.looks.get(node).filter(|look| look.absent);
            look.is_some_and(|look| {
                let quarantined =
                    look.unknown_since.is_some_and(|since| look.decided - since + SLEWED >= QUARANTINE);
                quarantined && flight.steady - look.answered <= PROOF + SLEWED
            })
        }
        _ => false,
    };
    if holds { Ok(()) } else { broken("threshold", format!("{} is deleted, and is not {sweep}", pod.show())) }
}

fn is_out_of_service(node: &TrueObject) -> bool {
    let value = node.value();
    let tainted =
        list(&value, "/spec/taints").any(|taint| text(taint, "/key") == "node.kubernetes.io/out-of-service");
    tainted && !is_ready(&value)
}

fn is_ready(node: &Value) -> bool {
    list(node, "/status/conditions")
        .any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True")
}

// ---- leases and nodes ----

fn judge_lease(lease: &TrueObject, flight: &Flight, value: &Value) -> Judged {
    due(lease, flight, lease_ends(lease, value))?;
    if *lease.object.key.namespace == *NODE_LEASE_NAMESPACE {
        let look = flight.looks.get(&lease.object.key.name).filter(|look| look.absent);
        if look.is_none_or(|look| flight.steady - look.answered > PROOF + SLEWED) {
            return broken(
                "proof",
                format!("{} is deleted, and no live read found its node gone", lease.show()),
            );
        }
    }
    Ok(())
}

/// Returns the time from which a lease may be deleted; `None` if it is not subject to deletion.
fn lease_ends(lease: &TrueObject, value: &Value) -> Option<i64> {
    let renewed = value.pointer("/spec/renewTime").and_then(time);
    match &*lease.object.key.namespace {
        IDENTITY_NAMESPACE => {
            let identity = value["metadata"]["labels"]["apiserver.kubernetes.io/identity"].as_str();
            let duration = value.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64);
            // A lease without an end has ended.
            let ends = renewed.zip(duration).map_or(0, |(renewed, seconds)| renewed + seconds * SECOND + 1);
            identity.filter(|name| *name == "kube-apiserver").map(|_| ends)
        }
        NODE_LEASE_NAMESPACE if lease.object.owners.is_empty() => {
            let last = renewed.or_else(|| time(&value["metadata"]["creationTimestamp"]));
            last.map(|last| last + DAY)
        }
        _ => None,
    }
}

fn node_scope(node: &TrueObject, after: Option<&TrueObject>, value: &Value) -> Judged {
    let others = |value: &Value| {
        let other = |taint: &&Value| text(taint, "/key") != SHUTDOWN_TAINT;
        list(value, "/spec/taints").filter(other).cloned().collect::<Vec<_>>()
    };
    match after {
        Some(after) if others(&after.value()) == others(value) => Ok(()),
        _ => broken("scope", format!("{} lost more than the taint of shut-down machines", node.show())),
    }
}

fn judge_node(node: &TrueObject, flight: &Flight, value: &Value, provider: &Provider) -> Judged {
    if !deletes(&flight.effect.request) {
        return Ok(());
    }
    if is_ready(value) {
        return broken("threshold", format!("{} is deleted and is ready", node.show()));
    }
    let (absences, first) = flight.absences;
    if absences < ABSENCES || flight.steady - first + SLEWED < MISSING {
        let message = format!("{} is deleted after {absences} answers since {first}", node.show());
        return broken("proof", message);
    }
    if !provider.machine(text(value, "/spec/providerID")).gone {
        return broken("safety", format!("{} is deleted, and its machine exists", node.show()));
    }
    due(node, flight, time(&value["metadata"]["creationTimestamp"]).map(|created| created + MISSING))
}

// ---- protection ----

fn finalizers(value: &Value) -> Vec<&str> {
    list(value, "/metadata/finalizers").filter_map(Value::as_str).collect()
}

fn own_finalizer(part: Part) -> &'static str {
    if part == Part::Claims { CLAIM_FINALIZER } else { VOLUME_FINALIZER }
}

fn protection_scope(part: Part, target: &TrueObject, after: Option<&TrueObject>, value: &Value) -> Judged {
    let own = own_finalizer(part);
    let then = after.map(TrueObject::value).unwrap_or_default();
    let others = |value| {
        let mut others = finalizers(value);
        others.retain(|name| *name != own);
        others.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()
    };
    if others(value) != others(&then) && after.is_some() || (after.is_none() && !others(value).is_empty()) {
        return broken("scope", format!("{} lost other finalizers than {own}", target.show()));
    }
    Ok(())
}

fn judge_protection(scene: &Scene<'_>, target: &TrueObject, value: &Value) -> Judged {
    let own = own_finalizer(scene.flight.part);
    let adds = !finalizers(value).contains(&own);
    if adds == target.object.deletion.deleting {
        return broken("finalizers", format!("{own} of {} at the wrong time", target.show()));
    }
    if adds {
        return Ok(());
    }
    if scene.flight.part == Part::Volumes {
        if text(value, "/status/phase") == "Bound" {
            return broken("finalizers", format!("{} loses {own} and is bound", target.show()));
        }
        return Ok(());
    }
    // A pod that began to use a claim after the claim's deletion does not hold it: no kubelet starts such a pod.
    let marked = scene.truth.since(&target.object.uid, |claim| claim.object.deletion.deleting);
    for pod in scene.truth.objects().filter(|other| uses(other, target)) {
        let since = scene.truth.since(&pod.object.uid, |pod| uses(pod, target));
        if since <= marked {
            return broken("finalizers", format!("{} loses {own} and {} uses it", target.show(), pod.show()));
        }
    }
    Ok(())
}

/// Reports whether a pod that is on a node uses a claim.
fn uses(pod: &TrueObject, claim: &TrueObject) -> bool {
    if pod.kind().kind != "Pod" || pod.object.key.namespace != claim.object.key.namespace {
        return false;
    }
    let value = pod.value();
    !text(&value, "/spec/nodeName").is_empty()
        && list(&value, "/spec/volumes")
            .any(|volume| text(volume, "/persistentVolumeClaim/claimName") == &*claim.object.key.name)
}

// ---- rest ----

/// Checks liveness: when everything has come to rest, nothing is left that was due by the collector's clock.
pub fn judge_rest(truth: &Truth, collector: &Collector, provider: &Provider) -> Judged {
    let now = collector.clock();
    judge_queues(truth, collector)?;
    let pods = || truth.objects().filter(|object| object.kind().kind == "Pod");
    let finished = finished_pods(pods());
    for pod in finished.iter().take(excess(&finished)) {
        stays(pod, &pod.value(), "is a finished pod too many")?;
    }
    let node = |name: &str| truth.at(kind_index("Node"), "", name);
    for target in truth.objects() {
        let value = target.value();
        let passed = |at: Option<i64>| at.is_some_and(|at| at <= now);
        let late = match target.kind().kind {
            "Job" => passed(job_expires(&value)),
            "CertificateSigningRequest" => passed(request_ends(&value).map(|end| end + 1)),
            "Lease" => {
                let identity = *target.object.key.namespace == *IDENTITY_NAMESPACE;
                passed(lease_ends(target, &value)) && (identity || node(&target.object.key.name).is_none())
            }
            "Pod" => {
                let name = text(&value, "/spec/nodeName");
                !name.is_empty() && node(name).is_none()
            }
            "Node" => !is_ready(&value) && provider.machine(text(&value, "/spec/providerID")).gone,
            _ => false,
        };
        if late || passed(expires(target, &value)) {
            stays(target, &value, "was to go long ago")?;
        }
        let deletion = target.object.deletion;
        let held_only_by = |own: &str| {
            let finalizers = finalizers(&value);
            deletion.deleting && finalizers == [own]
        };
        let unused = match target.kind().kind {
            "PersistentVolumeClaim" => {
                held_only_by(CLAIM_FINALIZER) && !truth.objects().any(|pod| uses(pod, target))
            }
            "PersistentVolume" => held_only_by(VOLUME_FINALIZER) && text(&value, "/status/phase") != "Bound",
            _ => false,
        };
        if unused {
            return broken("liveness", format!("{} is protected for nothing", target.show()));
        }
    }
    Ok(())
}

/// Checks that no object waits which should have been judged, and that no more objects and node names wait than exist.
fn judge_queues(truth: &Truth, collector: &Collector) -> Judged {
    let standings = collector.retention.iter().flat_map(Retention::standings);
    for (part, standing) in standings {
        let most = truth.objects().count() + NODES.len();
        let (waiting, overdue) = (standing.waiting, standing.overdue_milliseconds);
        if !standing.synced || overdue > 0 || waiting > most {
            let message =
                format!("{part:?} rests with {waiting} waiting of {most}, overdue for {overdue} ms");
            return broken("bounds", message);
        }
    }
    Ok(())
}

/// Reports a violation, unless the object is already being removed or must be kept.
fn stays(target: &TrueObject, value: &Value, why: &str) -> Judged {
    if target.object.deletion.deleting || keeps(value) {
        return Ok(());
    }
    broken("liveness", format!("{} {why}", target.show()))
}
