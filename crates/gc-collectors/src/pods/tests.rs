#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better without references")]
#![allow(clippy::default_trait_access, reason = "unused fields need no names")]

use super::*;
use crate::engine::{AnyCollector, Engine};
use crate::nodes::OUT_OF_SERVICE_TAINT;
use gc_types::{Effect, ObservedObject, ResourceVersion, Uid};
use proptest::prelude::*;
use serde_json::Value;

mod memory;

const NOW: i64 = 1_800_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp((NOW + seconds) * 1000)
}

/// Returns a pod, created this many hours ago.
fn pod(name: &str, hours_ago: i64, phase: &str, node: &str, more: Value) -> Value {
    let mut pod = json!({
        "metadata": {"namespace": "shop", "name": name, "uid": format!("u-{name}"), "resourceVersion": "5",
            "generation": 1, "creationTimestamp": time_text(at(-3600 * hours_ago))},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    });
    for (path, value) in more.as_object().into_iter().flatten() {
        let (parent, field) = path.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    pod
}

fn deleting(grace: i64) -> Value {
    json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z", "/metadata/deletionGracePeriodSeconds": grace})
}

fn evicted() -> Value {
    json!({"/status/reason": "Evicted"})
}

fn node(name: &str, ready: Option<&str>, taint: bool) -> Value {
    let conditions: Vec<_> = ready.iter().map(|status| json!({"type": "Ready", "status": status})).collect();
    let taints = if taint { json!([{"key": OUT_OF_SERVICE_TAINT, "value": "any"}]) } else { Value::Null };
    json!({"metadata": {"name": name}, "spec": {"taints": taints}, "status": {"conditions": conditions}})
}

fn observe(engine: &mut Engine<PodCollector>, kind: Kind, object: &Value) {
    let facts = Facts::read(kind, object.to_string().as_bytes()).unwrap();
    engine.observe(Observation::Observed(facts));
}

fn engine(threshold: i32, nodes: &[Value], pods: &[Value]) -> Engine<PodCollector> {
    let mut engine = Engine::new(PodCollector::new(threshold));
    engine.tick(at(0));
    for (kind, objects) in [(Kind::Node, nodes), (Kind::Pod, pods)] {
        engine.observe(Observation::ListStarted(kind));
        for object in objects {
            observe(&mut engine, kind, object);
        }
        engine.observe(Observation::Synced(kind));
    }
    engine
}

fn show(effect: &Effect) -> String {
    match &effect.request {
        Request::Guarded { key, change: Change::ForceDelete, .. } => format!("delete {}", key.name),
        Request::Guarded { key, change: Change::Status(status), .. } => {
            let condition = if status.contains("DisruptionTarget") { " disrupted" } else { "" };
            format!("fail {}{condition}", key.name)
        }
        Request::Read { key } => format!("read {}", key.name),
        other => format!("{other:?}"),
    }
}

/// Answers every request as applied, and shows the effects that a server would: a patched pod becomes failed, a deleted one is
/// removed. Reads are answered by `live`.
fn settle(engine: &mut Engine<PodCollector>, pods: &[Value], live: &Outcome) -> Vec<String> {
    let mut shown = Vec::new();
    while let Some(effect) = engine.poll_effect() {
        shown.push(show(&effect));
        match &effect.request {
            Request::Guarded { key, change: Change::Status(_), .. } => {
                let mut patched =
                    pods.iter().find(|pod| pod["metadata"]["name"] == *key.name).unwrap().clone();
                patched["status"]["phase"] = "Failed".into();
                patched["metadata"]["resourceVersion"] = "6".into();
                observe(engine, Kind::Pod, &patched);
                engine.finish(effect.id, &Outcome::Applied(None));
            }
            Request::Guarded { key, .. } => {
                engine.observe(Observation::Removed(key.clone()));
                engine.finish(effect.id, &Outcome::Applied(None));
            }
            _ => engine.finish(effect.id, live),
        }
    }
    shown
}

fn decided(threshold: i32, nodes: &[Value], pods: &[Value]) -> Vec<String> {
    settle(&mut engine(threshold, nodes, pods), pods, &Outcome::Absent)
}

fn none() -> Value {
    Value::Null
}

#[test]
fn the_scenarios_of_the_threshold() {
    let nodes = [node("n", Some("True"), false)];
    let (running, succeeded, failed) = ("Running", "Succeeded", "Failed");
    for (scenario, threshold, pods, expected) in [
        (
            "PGC-T01",
            1,
            vec![(failed, none()), (succeeded, none()), (failed, none())],
            &["delete a", "delete b"][..],
        ),
        ("PGC-T02", 0, vec![(failed, none()), (succeeded, none())], &[]),
        ("PGC-T03", 1, vec![(running, none()), (succeeded, none()), (failed, none())], &["delete b"]),
        ("PGC-T04", 1, vec![(failed, none()), (succeeded, none())], &["delete a"]),
        ("PGC-T05", 5, vec![(failed, none()), (succeeded, none())], &[]),
        (
            "PGC-T06",
            1,
            vec![(failed, none()), (succeeded, none()), (failed, evicted())],
            &["delete a", "delete c"],
        ),
        ("PGC-T07", 1, vec![(running, none()), (succeeded, none()), (failed, evicted())], &["delete c"]),
        ("PGC-T08", -1, vec![(failed, none()), (succeeded, none()), (failed, none())], &[]),
        // Only the phases of unfinished pods are known not to be finished; a pod in an unknown phase gets its phase first.
        ("an unknown phase", 1, vec![("", none()), (failed, none())], &["fail a", "delete a"]),
        ("evicted means failed", 1, vec![(succeeded, none()), (succeeded, evicted())], &["delete a"]),
    ] {
        let pods: Vec<_> = pods
            .into_iter()
            .zip([("a", 30), ("b", 20), ("c", 10)])
            .map(|((phase, more), (name, hours))| pod(name, hours, phase, "n", more))
            .collect();
        let mut shown = decided(threshold, &nodes, &pods);
        shown.sort_by_key(|line| line.replace("fail", "d"));
        assert_eq!(shown, expected, "{scenario}");
    }
}

/// Objects of a list wait, and count as overdue, like all others.
#[test]
fn the_objects_of_a_list_are_reconciled_at_its_end() {
    let pods = [("a", 30), ("b", 20), ("c", 10)].map(|(name, hours)| pod(name, hours, "Failed", "n", none()));
    let mut engine = engine(1, &[node("n", Some("True"), false)], &pods);
    engine.tick(at(7));
    let standing = |engine: &Engine<PodCollector>| {
        let standing = engine.standing();
        (standing.waiting, standing.overdue_milliseconds, engine.next_wakeup())
    };
    assert_eq!(standing(&engine), (3, 7000, Some(at(7))));
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), ["delete a", "delete b"]);
    assert_eq!(standing(&engine), (0, 0, None));
    // Later changes are reconciled before the rest of a list.
    let late = pod("d", 5, "Failed", "n", none());
    engine.observe(Observation::ListStarted(Kind::Pod));
    observe(&mut engine, Kind::Pod, &pods[2]);
    engine.observe(Observation::Synced(Kind::Pod));
    observe(&mut engine, Kind::Pod, &late);
    assert_eq!(
        standing(&engine),
        (3, 0, Some(at(7))),
        "what is left of the list, what was added, and what is deleted for it"
    );
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), ["delete c"]);
}

/// PGC-T09
#[test]
fn of_two_of_one_age_the_lexically_first_is_deleted() {
    let made = |time: &str| json!({"/metadata/creationTimestamp": format!("2026-01-01T00:00:00{time}Z")});
    for (first, second) in [("", ""), (".1", ".9"), (".9", ".1")] {
        let pods = [pod("y", 1, "Failed", "n", made(first)), pod("x", 1, "Failed", "n", made(second))];
        assert_eq!(
            decided(1, &[node("n", Some("True"), false)], &pods),
            ["delete x"],
            "ages are whole seconds"
        );
    }
}

/// PGC-T35: a stuck pod counts against the threshold, and is not deleted again.
#[test]
fn stuck_pods_count_and_are_left_alone() {
    let pods = [
        pod("stuck-a", 50, "Failed", "n", deleting(0)),
        pod("stuck-b", 40, "Succeeded", "n", deleting(0)),
        pod("c", 30, "Failed", "n", none()),
        pod("d", 20, "Failed", "n", none()),
        pod("e", 10, "Failed", "n", none()),
    ];
    let mut engine = engine(1, &[node("n", Some("True"), false)], &pods);
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), ["delete c", "delete d"]);
    for seconds in [20, 40, 60] {
        engine.tick(at(seconds));
        observe(&mut engine, Kind::Pod, &pods[0]);
        assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), [] as [&str; 0]);
    }
}

/// PGC-T34: the deletion carries the observed UID and version, so it does not delete a new pod of the same name.
#[test]
fn a_deletion_is_guarded_by_uid_and_version() {
    let pods = [pod("web-0", 9, "Failed", "n", none()), pod("web-1", 1, "Failed", "n", none())];
    let effect = engine(1, &[node("n", Some("True"), false)], &pods).poll_effect().unwrap();
    let expected = Request::Guarded {
        key: Kind::Pod.key(&"shop".into(), &"web-0".into()),
        uid: Uid::new("u-web-0"),
        resource_version: ResourceVersion(5),
        change: Change::ForceDelete,
    };
    assert_eq!(effect.request, expected);
    assert_eq!(
        effect.reason.to_string(),
        "more finished pods exist than the threshold allows, and the pod is among the oldest: object observed at version 5; finished pods exceed the threshold, and it is among the first \
         to go (node n)"
    );
}

/// Returns the response to a live read of a node that exists.
fn exists(name: &str) -> Outcome {
    Outcome::Found(ObservedObject {
        key: Kind::Node.key(&"".into(), &name.into()),
        uid: Uid::new("n"),
        resource_version: ResourceVersion(1),
        owners: Default::default(),
        deletion: Default::default(),
        recreator: None,
    })
}

/// PGC-T10 to PGC-T20: the cache and the live read of the node decide.
#[test]
fn the_scenarios_of_the_quarantine() {
    let exists = || exists("gone");
    let pods = [
        pod("failed", 1, "Failed", "gone", none()),
        pod("running", 1, "Running", "gone", none()),
        pod("elsewhere", 1, "Running", "n", none()),
    ];
    let present = node("n", Some("True"), false);
    let all = &["read gone", "delete failed", "fail running disrupted", "delete running"][..];
    for (scenario, nodes, seconds, live, expected) in [
        ("PGC-T10", vec![present.clone(), node("gone", None, false)], 80, Outcome::Absent, &[][..]),
        ("PGC-T11, PGC-T16", vec![present.clone()], 80, exists(), &["read gone"]),
        ("PGC-T12, PGC-T13, PGC-T15, PGC-T18", vec![present.clone()], 80, Outcome::Absent, all),
        ("exactly 40 s", vec![present.clone()], 40, Outcome::Absent, all),
        ("PGC-T14", vec![present.clone()], 20, Outcome::Absent, &[]),
        (
            "PGC-T20",
            vec![present],
            80,
            Outcome::Refused { code: 500, message: String::new() },
            &["read gone"],
        ),
    ] {
        let mut engine = engine(0, &nodes, &pods);
        assert_eq!(settle(&mut engine, &pods, &live), [] as [&str; 0], "{scenario}");
        engine.tick(at(seconds));
        assert_eq!(settle(&mut engine, &pods, &live), expected, "{scenario}");
    }
}

/// PGC-T17 and PGC-T19
#[test]
fn a_node_that_appears_ends_its_quarantine_and_a_deleted_one_begins_it() {
    let pods = [pod("a", 1, "Running", "n", none())];
    let mut engine = engine(0, &[], &pods);
    engine.tick(at(30));
    observe(&mut engine, Kind::Node, &node("n", Some("True"), false));
    engine.tick(at(80));
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), [] as [&str; 0]);
    engine.observe(Observation::Removed(Kind::Node.key(&"".into(), &"n".into())));
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), [] as [&str; 0]);
    assert_eq!(engine.next_wakeup(), Some(at(120)));
    engine.tick(at(120));
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent).len(), 3);
}

/// BEAT-POD-4: only the read is repeated, not the quarantine.
#[test]
fn a_read_that_failed_is_repeated_soon() {
    let pods = [pod("a", 1, "Failed", "gone", none())];
    let mut engine = engine(0, &[], &pods);
    engine.tick(at(40));
    let read = engine.poll_effect().unwrap();
    engine.finish(read.id, &Outcome::Failed { message: String::new(), retry_after_milliseconds: Some(2000) });
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.next_wakeup(), Some(at(42)));
    engine.tick(at(42));
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), ["read gone", "delete a"]);
}

/// PGC-T36: a node that registers again saves the remaining pods.
#[test]
fn a_node_that_returns_saves_what_is_left() {
    let pods: Vec<_> = (0..1000).map(|n| pod(&format!("p{n:03}"), 1, "Failed", "n", none())).collect();
    let mut engine = engine(0, &[], &pods);
    engine.tick(at(40));
    let read = engine.poll_effect().unwrap();
    engine.finish(read.id, &Outcome::Absent);
    for _ in 0..50 {
        assert!(engine.poll_effect().is_some());
    }
    observe(&mut engine, Kind::Node, &node("n", Some("True"), false));
    assert_eq!(engine.poll_effect(), None);
}

/// The proof that a node is gone expires; the next pod needs a new one.
#[test]
fn an_old_proof_is_renewed() {
    let pods = [pod("a", 1, "Failed", "gone", none())];
    let mut engine = engine(0, &[], &pods);
    engine.tick(at(40));
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), ["read gone", "delete a"]);
    let blocked = [pod("stuck", 1, "Failed", "late", deleting(0))];
    observe(&mut engine, Kind::Pod, &blocked[0]);
    engine.tick(at(90));
    // Nothing can be done for a pod that waits for a finalizer, so no request is sent.
    assert_eq!(settle(&mut engine, &blocked, &Outcome::Absent), [] as [&str; 0]);
    let late = [pod("late", 1, "Failed", "late", none())];
    observe(&mut engine, Kind::Pod, &late[0]);
    observe(&mut engine, Kind::Pod, &late[0]);
    engine.tick(at(91));
    let mut other = settle(&mut engine, &late, &Outcome::Absent);
    engine.tick(at(131));
    other.extend(settle(&mut engine, &late, &Outcome::Absent));
    assert_eq!(other, ["read late", "delete late"]);
}

/// The proof is valid for 20 s.
#[test]
fn a_proof_grows_old() {
    for (seconds, expected) in [(60, &["delete b"][..]), (61, &["read gone", "delete b"])] {
        let stuck = pod("stuck", 1, "Failed", "gone", deleting(0));
        let pods = [stuck, pod("a", 1, "Failed", "gone", none())];
        let mut engine = engine(0, &[], &pods);
        engine.tick(at(40));
        assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), ["read gone", "delete a"]);
        engine.tick(at(seconds));
        observe(&mut engine, Kind::Pod, &pod("b", 1, "Failed", "gone", none()));
        assert_eq!(settle(&mut engine, &[], &Outcome::Absent), expected, "after {seconds} s");
    }
}

/// An applied deletion is not repeated while the watch is silent; a new pod of the same name is another pod. Nodes are listed
/// again, perhaps because a backup was restored: earlier reads, and those still in flight, are about another history.
#[test]
fn a_list_of_nodes_ends_the_proof_that_one_is_gone() {
    let pods = [pod("a", 1, "Failed", "gone", none())];
    for is_answered in [true, false] {
        let mut engine = engine(0, &[], &pods);
        engine.tick(at(40));
        let read = engine.poll_effect().unwrap();
        if is_answered {
            engine.finish(read.id, &Outcome::Absent);
        }
        engine.observe(Observation::ListStarted(Kind::Node));
        engine.observe(Observation::Synced(Kind::Node));
        if !is_answered {
            engine.finish(read.id, &Outcome::Absent);
        }
        assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), ["read gone", "delete a"], "{is_answered}");
    }
}

#[test]
fn a_grant_is_about_one_pod() {
    let pods = [pod("a", 9, "Failed", "n", none()), pod("b", 1, "Failed", "n", none())];
    let mut engine = engine(1, &[node("n", Some("True"), false)], &pods);
    let effect = engine.poll_effect().unwrap();
    engine.finish(effect.id, &Outcome::Applied(None));
    assert_eq!(engine.poll_effect(), None);
    let other = json!({"/metadata/uid": "u-other", "/metadata/resourceVersion": "9"});
    observe(&mut engine, Kind::Pod, &pod("a", 9, "Failed", "n", other));
    assert_eq!(settle(&mut engine, &[], &Outcome::Absent), ["delete a"]);
}

/// `kubegc.io/keep` prevents the deletion and the phase before it, and no request is sent for the pod.
#[test]
fn a_pod_that_is_to_be_kept_keeps_its_phase() {
    let keep = json!({"/metadata/annotations": {"kubegc.io/keep": "true"}});
    for phase in ["Running", "Failed"] {
        let mut engine = engine(0, &[], &[pod("a", 1, phase, "gone", keep.clone())]);
        engine.tick(at(80));
        assert_eq!(settle(&mut engine, &[], &Outcome::Absent), [] as [&str; 0], "{phase}");
    }
}

/// A pod that only a finalizer blocks is counted as long as that lasts.
#[test]
fn pods_that_finalizers_hold_are_counted() {
    let held = |engine: &Engine<PodCollector>| {
        let gauges = engine.standing().gauges;
        assert_eq!(gauges[0].metric.name, "kubegc_pods_blocked_by_finalizers");
        gauges[0].value
    };
    let stuck = pod("a", 1, "Failed", "n", deleting(0));
    let key = Kind::Pod.key(&"shop".into(), &"a".into());
    let wanted = [node("n", Some("False"), true)];
    let returned = |engine: &mut Engine<PodCollector>| {
        observe(engine, Kind::Node, &node("n", Some("True"), false));
        observe(engine, Kind::Pod, &stuck);
    };
    let gone = |engine: &mut Engine<PodCollector>| engine.observe(Observation::Removed(key.clone()));
    let changes: [(&str, &dyn Fn(&mut Engine<PodCollector>)); 2] =
        [("it is no longer wanted", &returned), ("it is gone", &gone)];
    for (change, happens) in changes {
        let mut engine = engine(0, &wanted, std::slice::from_ref(&stuck));
        assert_eq!(settle(&mut engine, &[], &Outcome::Absent), [] as [&str; 0]);
        assert!((held(&engine) - 1.0).abs() < f64::EPSILON);
        happens(&mut engine);
        assert_eq!(settle(&mut engine, &[], &Outcome::Absent), [] as [&str; 0]);
        assert!(held(&engine).abs() < f64::EPSILON, "{change}");
    }
}

/// PGC-T21, PGC-T22, PGC-T24: the exact patch.
#[test]
fn an_orphaned_pod_is_failed_with_a_condition() {
    let kept = |pod: Value| KeptPod::from(serde_json::from_value::<Pod>(pod).unwrap());
    let read = |more: Value| kept(pod("a", 1, "Running", "gone", more));
    let disrupted = |status: &str| {
        json!({"/status/conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "DisruptionTarget", "status": status, "lastTransitionTime": "2026-02-02T00:00:00Z"},
        ]})
    };
    let now = "2027-01-15T08:00:00Z";
    for (more, since) in
        [(none(), now), (disrupted("True"), "2026-02-02T00:00:00Z"), (disrupted("False"), now)]
    {
        let (request, _) = removal(&read(more), Sweep::Orphaned, at(0)).unwrap();
        let Request::Guarded { change: Change::Status(status), .. } = request else { panic!("{request:?}") };
        let expected = json!({"phase": "Failed", "observedGeneration": 1, "conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists", "observedGeneration": 1, "lastTransitionTime": since,
        }]});
        assert_eq!(serde_json::from_str::<Value>(&status).unwrap(), expected);
    }
    // PGC-T23: a finished pod keeps its phase, and is only deleted.
    for phase in ["Succeeded", "Failed"] {
        let held = json!({"/metadata/finalizers": ["example.com/hold"]});
        let (request, _) = removal(&kept(pod("a", 1, phase, "gone", held)), Sweep::Orphaned, at(0)).unwrap();
        assert!(matches!(request, Request::Guarded { change: Change::ForceDelete, .. }), "{request:?}");
    }
    let (request, _) = removal(&read(none()), Sweep::OutOfService, at(0)).unwrap();
    let Request::Guarded { change: Change::Status(status), .. } = request else { panic!("{request:?}") };
    assert_eq!(
        serde_json::from_str::<Value>(&status).unwrap(),
        json!({"phase": "Failed", "observedGeneration": 1})
    );
}

/// PGC-T25 to PGC-T31
#[test]
fn the_scenarios_of_terminating_pods() {
    let (dead, sick, fine) =
        (node("n", Some("False"), true), node("n", Some("Unknown"), false), node("n", Some("True"), true));
    let unknown = node("n", None, true);
    let terminating = |phase| vec![pod("a", 1, phase, "n", deleting(600))];
    let unscheduled = |phase| vec![pod("a", 1, phase, "", deleting(600))];
    for (scenario, node, pods, expected) in [
        ("PGC-T25", &sick, terminating("Running"), &[][..]),
        ("PGC-T26", &dead, terminating("Running"), &["fail a", "delete a"]),
        ("PGC-T26", &dead, vec![pod("a", 1, "Running", "n", none())], &[]),
        ("PGC-T27", &dead, terminating("Failed"), &["delete a"]),
        ("PGC-T27", &dead, terminating("Succeeded"), &["delete a"]),
        ("PGC-T28", &fine, terminating("Running"), &[]),
        ("PGC-T29", &unknown, terminating("Running"), &["fail a", "delete a"]),
        ("PGC-T30", &sick, unscheduled("Failed"), &["delete a"]),
        ("PGC-T30", &sick, unscheduled("Succeeded"), &["delete a"]),
        ("PGC-T30", &sick, unscheduled("Running"), &["fail a", "delete a"]),
        ("PGC-T31", &sick, vec![pod("a", 1, "Pending", "", none())], &[]),
        ("held by a finalizer", &sick, vec![pod("a", 1, "Pending", "", deleting(0))], &["fail a"]),
    ] {
        assert_eq!(decided(0, std::slice::from_ref(node), &pods), expected, "{scenario}");
    }
}

/// A node that is declared dead later takes effect without a change of its pods.
#[test]
fn a_taint_that_comes_later_counts() {
    let pods = [pod("a", 1, "Running", "n", deleting(600))];
    let mut engine = engine(0, &[node("n", Some("False"), false)], &pods);
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), [] as [&str; 0]);
    observe(&mut engine, Kind::Node, &node("n", Some("False"), true));
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), ["fail a", "delete a"]);
}

/// PGC-T32: without the patch there is no deletion, and a pod that is gone is not an error (PGC-T33).
#[test]
fn a_patch_that_is_refused_deletes_nothing() {
    let pods = [pod("a", 1, "Running", "", deleting(30))];
    let mut engine = engine(0, &[], &pods);
    let patch = engine.poll_effect().unwrap();
    engine.finish(patch.id, &Outcome::Conflict);
    assert_eq!(engine.poll_effect(), None);
    engine.tick(at(1));
    let again = engine.poll_effect().unwrap();
    assert_eq!(show(&again), "fail a");
    engine.finish(again.id, &Outcome::Absent);
    assert_eq!(engine.poll_effect(), None);
    assert_eq!((engine.counts().conflicts, engine.counts().errors), (1, 0));
}

/// Each attempt counts once: the deletion, or the patch before it that failed.
#[test]
fn attempts_and_failures_are_counted() {
    let refused = || Outcome::Refused { code: 403, message: String::new() };
    let failed = || Outcome::Failed { message: String::new(), retry_after_milliseconds: None };
    let (both, one) = (&["force_delete_pods", "force_delete_pod_errors"][..], &["force_delete_pods"][..]);
    for (phase, outcome, expected) in [
        ("Failed", Outcome::Applied(None), one),
        ("Failed", Outcome::Absent, one),
        ("Failed", Outcome::Conflict, one),
        ("Failed", failed(), both),
        ("Failed", refused(), both),
        ("Failed", Outcome::NotServed, both),
        ("Running", Outcome::Applied(None), &[]),
        ("Running", Outcome::Conflict, &[]),
        ("Running", refused(), both),
    ] {
        let mut engine = engine(0, &[], &[pod("a", 1, phase, "", deleting(30))]);
        let effect = engine.poll_effect().unwrap();
        engine.finish(effect.id, &outcome);
        let counted: Vec<_> = std::iter::from_fn(|| engine.take_measurement()).collect();
        let names: Vec<_> = counted
            .iter()
            .map(|measured| measured.metric.name.trim_start_matches("pod_gc_collector_"))
            .collect();
        assert_eq!(names, expected, "{phase} {outcome:?}");
        assert!(counted.iter().all(|measured| measured.labels == ["shop".into(), "unscheduled".into()]));
    }
}

/// PGC-T37
#[test]
fn a_pod_that_two_sweeps_want_is_deleted_once() {
    let pods = [pod("a", 9, "Failed", "gone", none()), pod("b", 1, "Failed", "gone", none())];
    let mut engine = engine(1, &[], &pods);
    engine.tick(at(80));
    let shown = settle(&mut engine, &pods, &Outcome::Absent);
    assert_eq!(shown.iter().filter(|line| *line == "delete a").count(), 1, "{shown:?}");
}

/// Answers every request as applied without showing any removal, because removals may be observed late.
fn granted(engine: &mut Engine<PodCollector>) -> Vec<String> {
    let mut shown = Vec::new();
    while let Some(effect) = engine.poll_effect() {
        shown.push(show(&effect));
        let is_read = matches!(effect.request, Request::Read { .. });
        engine.finish(effect.id, &if is_read { Outcome::Absent } else { Outcome::Applied(None) });
    }
    shown
}

#[test]
fn an_applied_deletion_is_not_repeated_before_the_pod_is_observed() {
    let mut engine = engine(0, &[], &[pod("a", 9, "Failed", "gone", none())]);
    engine.tick(at(80));
    assert_eq!(granted(&mut engine), ["read gone", "delete a"]);
    // The proof is too old for the next pod of the node: the node is read again, which reconciles all its pods.
    engine.tick(at(140));
    observe(&mut engine, Kind::Pod, &pod("b", 1, "Failed", "gone", none()));
    assert_eq!(granted(&mut engine), ["read gone", "delete b"]);
    engine.tick(at(200));
    assert_eq!(granted(&mut engine), [] as [&str; 0]);
    // Another pod of the same name.
    let again = json!({"/metadata/uid": "u-a2", "/metadata/resourceVersion": "7"});
    observe(&mut engine, Kind::Pod, &pod("a", 0, "Failed", "gone", again));
    assert_eq!(granted(&mut engine), ["read gone", "delete a"]);
}

/// While a list is repeated, removed objects still count, and no decision is made before it is complete.
#[test]
fn a_list_that_begins_again_is_waited_for() {
    let nodes = [node("n", Some("True"), false)];
    let pods = [pod("a", 3, "Failed", "n", none()), pod("b", 2, "Failed", "n", none())];
    let mut engine = engine(2, &nodes, &pods);
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), [] as [&str; 0]);
    engine.observe(Observation::ListStarted(Kind::Pod));
    let third = pod("c", 1, "Failed", "n", none());
    observe(&mut engine, Kind::Pod, &third);
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), [] as [&str; 0]);
    observe(&mut engine, Kind::Pod, &pods[1]);
    engine.observe(Observation::Synced(Kind::Pod));
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), [] as [&str; 0]);
}

proptest! {
    /// A running pod that is not terminating and whose node exists is never touched, whatever is observed.
    #[test]
    fn running_pods_of_existing_nodes_are_never_touched(ready in any::<bool>(), taint in any::<bool>(), seconds in 0_i64..200) {
        let pods = [pod("a", 1, "Running", "n", none())];
        let status = if ready { "True" } else { "False" };
        let mut engine = engine(1, &[node("n", Some(status), taint)], &pods);
        engine.tick(at(seconds));
        prop_assert!(settle(&mut engine, &pods, &Outcome::Absent).is_empty());
    }
}

/// A live read says nothing about a pod that came to the node after the read was sent: the node may exist again, and its own watch
/// may be late.
#[test]
fn a_proof_that_is_older_than_the_pod_does_not_condemn_it() {
    let stuck = pod("stuck", 1, "Failed", "n", deleting(0));
    let old = pod("old", 1, "Running", "n", none());
    for (case, before, new) in [
        ("created since", None, pod("new", 0, "Running", "n", none())),
        ("bound since", Some(pod("new", 1, "Pending", "", none())), pod("new", 1, "Running", "n", none())),
        (
            "replaced",
            Some(pod("new", 1, "Running", "n", json!({"/metadata/uid": "u"}))),
            pod("new", 0, "Running", "n", none()),
        ),
    ] {
        let pods = [stuck.clone(), old.clone(), new.clone()];
        let mut engine = engine(0, &[], &pods[..2]);
        if let Some(before) = &before {
            observe(&mut engine, Kind::Pod, before);
        }
        engine.tick(at(41));
        let first = settle(
            &mut engine,
            &[&pods[..2], &before.clone().into_iter().collect::<Vec<_>>()].concat(),
            &Outcome::Absent,
        );
        assert!(first.starts_with(&["read n".to_owned()]), "{case}: {first:?}");
        // The node exists again, with a pod.
        observe(&mut engine, Kind::Pod, &new);
        assert_eq!(settle(&mut engine, &pods, &exists("n")), ["read n"], "{case}");

        // The same applies to a pod that comes while the read is in flight.
        let mut engine = self::engine(0, &[], &pods[..2]);
        if let Some(before) = &before {
            observe(&mut engine, Kind::Pod, before);
        }
        engine.tick(at(41));
        let read = engine.poll_effect().unwrap();
        observe(&mut engine, Kind::Pod, &new);
        engine.finish(read.id, &Outcome::Absent);
        let shown = settle(&mut engine, &pods, &Outcome::Absent);
        let again = shown.iter().position(|line| line == "read n");
        let condemned = shown.iter().position(|line| line == "fail new disrupted");
        assert!(again.is_some() && again < condemned, "{case}: {shown:?}");

        // An earlier proof counts for the others while the next read is in flight or has failed, and not for this pod, for which
        // the node is read until there is an answer.
        let mut engine = self::engine(0, &[], &pods[..2]);
        if let Some(before) = &before {
            observe(&mut engine, Kind::Pod, before);
        }
        engine.tick(at(41));
        let read = engine.poll_effect().unwrap();
        engine.finish(read.id, &Outcome::Absent);
        observe(&mut engine, Kind::Pod, &new);
        let mut reads = 0;
        let failed = Outcome::Failed { message: "timeout".to_owned(), retry_after_milliseconds: None };
        for milliseconds in 41_000..41_200 {
            engine.tick(Timestamp(at(0).0 + milliseconds));
            while let Some(effect) = engine.poll_effect() {
                let shown = show(&effect);
                assert!(!shown.contains(" new"), "{case}: {shown}");
                reads += usize::from(shown == "read n");
                engine.finish(effect.id, if shown == "read n" { &failed } else { &Outcome::Applied(None) });
            }
        }
        assert!(reads > 3, "{case}: {reads} reads");
    }
}
