#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::engine::Engine;
use serde_json::{Value, json};

const NOW: i64 = 1_800_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp((NOW + seconds) * 1000)
}

fn lease(
    namespace: &str,
    name: &str,
    identity: Option<&str>,
    renewed: Option<i64>,
    duration: Option<i64>,
    owner: &Value,
) -> Lease {
    serde_json::from_value(json!({
        "metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "3",
            "labels": {"apiserver.kubernetes.io/identity": identity}, "ownerReferences": owner},
        "spec": {"holderIdentity": name, "renewTime": renewed.map(|seconds| time_text(at(seconds))), "leaseDurationSeconds": duration},
    }))
    .unwrap()
}

fn identity(renewed: Option<i64>, duration: Option<i64>) -> Lease {
    lease("kube-system", "apiserver-a", Some("kube-apiserver"), renewed, duration, &Value::Null)
}

#[test]
fn the_scenarios_of_identity_leases() {
    let other = lease("kube-system", "a", Some("other"), Some(-60), Some(10), &Value::Null);
    for (scenario, lease, is_deleted) in [
        ("AL-T01", identity(Some(0), Some(10)), false),
        ("AL-T02", other, false),
        ("AL-T03", identity(Some(-60), Some(10)), true),
        ("AL-T04", identity(None, Some(10)), true),
        ("AL-T05", identity(Some(0), None), true),
        ("elsewhere", lease("shop", "a", Some("kube-apiserver"), Some(-60), Some(10), &Value::Null), false),
    ] {
        let decision = identity_verdict(&lease, at(-1000), at(0));
        assert_eq!(matches!(decision, Decision::Act(..)), is_deleted, "{scenario}: {decision:?}");
    }
}

fn engine(ownerless: bool, leases: Vec<Lease>, nodes: &[&str]) -> Engine<LeaseCollector> {
    let mut engine = Engine::new(LeaseCollector::new(ownerless));
    engine.tick(at(0));
    engine.observe(Observation::ListStarted(Kind::Lease));
    for lease in leases {
        engine.observe(Observation::Observed(Facts::Lease(lease)));
    }
    engine.observe(Observation::Synced(Kind::Lease));
    engine.observe(Observation::ListStarted(Kind::Node));
    for name in nodes {
        let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        engine.observe(Observation::Observed(Facts::Node(node)));
    }
    engine.observe(Observation::Synced(Kind::Node));
    engine
}

/// AL-T06, AL-T08, and a wrong clock: a renewal counts from when it was observed.
#[test]
fn a_lease_that_is_seen_renewed_stays() {
    let mut engine = engine(false, vec![identity(Some(-60), Some(10))], &[]);
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.next_wakeup(), Some(at(10).after(1)));
    engine.tick(at(8));
    // By its own clock, it expired long ago.
    engine.observe(Observation::Observed(Facts::Lease(identity(Some(-50), Some(10)))));
    engine.tick(at(11));
    assert_eq!(engine.poll_effect(), None);
    engine.tick(at(18).after(1));
    let effect = engine.poll_effect().unwrap();
    let Request::Delete { resource_version, uid, .. } = effect.request else { panic!() };
    assert_eq!((uid, resource_version), (Uid::new("apiserver-a"), Some(ResourceVersion(3))));
    // AL-T07: another collector was faster.
    engine.finish(effect.id, &Outcome::Absent);
    assert_eq!(engine.poll_effect(), None);
}

/// A recreated lease starts over, even with the `renewTime` of the former one.
#[test]
fn a_recreated_identity_lease_starts_over() {
    let mut engine = engine(false, vec![identity(Some(-60), Some(10))], &[]);
    assert_eq!(engine.poll_effect(), None);
    engine.tick(at(8));
    let mut successor = identity(Some(-60), Some(10));
    successor.meta.uid = Uid::new("another");
    engine.observe(Observation::Observed(Facts::Lease(successor)));
    engine.tick(at(11));
    assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, Some(at(18).after(1))));
}

/// A proof is valid for 20 s, and only for the lease that it was obtained for. A lease that was never renewed counts from its
/// creation.
#[test]
fn a_proof_that_a_node_is_gone_grows_old() {
    let stale = node_lease(-25 * 3600, &Value::Null);
    let reads = |engine: &mut Engine<LeaseCollector>| {
        matches!(engine.poll_effect().unwrap().request, Request::Read { .. })
    };
    for (seconds, expected) in [(20, false), (21, true)] {
        let mut engine = engine(true, vec![stale.clone()], &[]);
        let read = engine.poll_effect().unwrap();
        engine.finish(read.id, &Outcome::Absent);
        engine.tick(at(seconds));
        assert_eq!(reads(&mut engine), expected, "after {seconds} s");
    }
    let mut engine = engine(true, vec![stale.clone()], &[]);
    let read = engine.poll_effect().unwrap();
    engine.finish(read.id, &Outcome::Absent);
    engine.observe(Observation::Removed(Kind::Lease.key(&"kube-node-lease".into(), &"n".into())));
    engine.observe(Observation::Observed(Facts::Lease(stale)));
    assert!(reads(&mut engine));
    let made = |hours: i64, renewed: Option<i64>| {
        let mut lease = lease("kube-node-lease", "n", None, renewed, Some(40), &Value::Null);
        lease.meta.created = Some(at(-3600 * hours));
        ownerless_due(&lease)
    };
    assert_eq!([made(48, Some(-60)), made(25, None)], [Some(at(86_400 - 60)), Some(at(-3600))]);
}

/// Nodes are listed again, perhaps because a backup was restored: earlier reads, and those still in flight, are about another
/// history.
#[test]
fn a_list_of_nodes_ends_the_proof_that_one_is_gone() {
    let stale = node_lease(-25 * 3600, &Value::Null);
    for is_answered in [true, false] {
        let mut engine = engine(true, vec![stale.clone()], &[]);
        let read = engine.poll_effect().unwrap();
        if is_answered {
            engine.finish(read.id, &Outcome::Absent);
        }
        engine.observe(Observation::ListStarted(Kind::Node));
        engine.observe(Observation::Synced(Kind::Node));
        if !is_answered {
            engine.finish(read.id, &Outcome::Absent);
        }
        let next = engine.poll_effect().unwrap();
        assert!(matches!(next.request, Request::Read { .. }), "{next:?}");
        engine.finish(next.id, &Outcome::Absent);
        assert!(matches!(engine.poll_effect().unwrap().request, Request::Delete { .. }));
    }
}

fn node_lease(renewed: i64, owner: &Value) -> Lease {
    lease("kube-node-lease", "n", None, Some(renewed), Some(40), owner)
}

/// NL-T10, NL-T11
#[test]
fn an_ownerless_lease_is_deleted_only_if_enabled_stale_and_without_node() {
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "x"}]);
    let stale = -25 * 3600;
    for (enabled, lease, nodes, looked_at) in [
        (false, node_lease(stale, &Value::Null), &[][..], false),
        (true, node_lease(stale, &owner), &[], false),
        (true, node_lease(-23 * 3600, &Value::Null), &[], false),
        (true, node_lease(stale, &Value::Null), &["n"], false),
        (true, node_lease(stale, &Value::Null), &[], true),
    ] {
        let mut engine = engine(enabled, vec![lease], nodes);
        let Some(read) = engine.poll_effect() else {
            assert!(!looked_at);
            continue;
        };
        assert_eq!(read.request, Request::Read { key: Kind::Node.key(&"".into(), &"n".into()) });
        engine.finish(read.id, &Outcome::Absent);
        assert!(matches!(engine.poll_effect().unwrap().request, Request::Delete { .. }));
        assert!(looked_at);
    }
}

fn elected(renewed: Option<i64>, holder: &str) -> Lease {
    let mut lease = lease("shop", "leader", None, renewed, Some(15), &Value::Null);
    lease.holder = holder.into();
    lease
}

#[test]
fn leases_of_leader_elections_are_stale_a_day_after_their_end() {
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "x"}]);
    let mut deleted = elected(Some(0), "a");
    deleted.meta.deleting = true;
    for (case, lease, expected) in [
        ("held", elected(Some(0), "a"), Some(at(15 + 86_400))),
        ("given up", elected(Some(0), ""), None),
        ("being deleted", deleted, None),
        ("never renewed", elected(None, "a"), None),
        ("of a node", node_lease(0, &owner), None),
        ("of an API server", identity(Some(0), Some(10)), None),
    ] {
        assert_eq!(stale_from(&lease), expected, "{case}");
    }
}

#[test]
fn a_stale_lease_is_reported_once_counted_and_never_deleted() {
    let gauge = |engine: &Engine<LeaseCollector>| {
        let gauges = engine.standing().gauges;
        gauges.first().map(|reading| (reading.labels.clone(), reading.value))
    };
    let mut engine = engine(false, vec![elected(Some(-86_400), "a")], &[]);
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.next_wakeup(), Some(at(15)));
    // Renewals do not change the schedule.
    engine.observe(Observation::Observed(Facts::Lease(elected(Some(-86_390), "a"))));
    assert_eq!(engine.next_wakeup(), Some(at(15)));
    engine.tick(at(15));
    assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, Some(at(25))));
    assert_eq!(gauge(&engine), None);
    engine.tick(at(25));
    let effect = engine.poll_effect().unwrap();
    let Request::RecordEvent(note) = &effect.request else { panic!("{effect:?}") };
    assert_eq!((note.severity, note.reason), (Severity::Warning, "StaleLease"));
    assert_eq!(gauge(&engine), Some((vec!["shop".into()], 1.0)));
    engine.finish(effect.id, &Outcome::Applied(None));
    engine.observe(Observation::ListStarted(Kind::Lease));
    engine.observe(Observation::Observed(Facts::Lease(elected(Some(-86_390), "a"))));
    engine.observe(Observation::Synced(Kind::Lease));
    assert_eq!(engine.poll_effect(), None);
    // Another holder has taken over.
    engine.observe(Observation::Observed(Facts::Lease(elected(Some(20), "b"))));
    assert_eq!((engine.poll_effect(), gauge(&engine)), (None, None));
    assert_eq!(engine.next_wakeup(), Some(at(20 + 15 + 86_400)));
    engine.tick(at(20 + 15 + 86_400));
    assert!(matches!(engine.poll_effect().unwrap().request, Request::RecordEvent(_)));
    engine.observe(Observation::Removed(Kind::Lease.key(&"shop".into(), &"leader".into())));
    assert_eq!(gauge(&engine), None);
}

/// Being observed again is no renewal.
#[test]
fn an_identity_lease_that_is_seen_again_is_not_renewed() {
    let mut engine = engine(false, vec![identity(Some(-60), Some(10))], &[]);
    engine.tick(at(8));
    engine.observe(Observation::Observed(Facts::Lease(identity(Some(-60), Some(10)))));
    assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, Some(at(10).after(1))));
}

/// A lease whose label was taken off is one of a leader election, whatever it was before.
#[test]
fn a_lease_that_loses_its_identity_is_reported_and_not_deleted() {
    let mut engine = engine(false, vec![identity(Some(-60), Some(10))], &[]);
    engine.observe(Observation::Observed(Facts::Lease(lease(
        "kube-system",
        "apiserver-a",
        None,
        Some(-2 * 86_400),
        Some(10),
        &Value::Null,
    ))));
    let effect = engine.poll_effect().unwrap();
    assert!(
        matches!(&effect.request, Request::RecordEvent(note) if note.reason == "StaleLease"),
        "{effect:?}"
    );
}

/// A node that exists although it was not observed is read again after an hour.
#[test]
fn a_node_that_exists_unobserved_is_read_again() {
    let mut engine = engine(true, vec![node_lease(-24 * 3600 + 5, &Value::Null)], &[]);
    assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, Some(at(5))));
    for seconds in [5, 3605] {
        engine.tick(at(seconds));
        let read = engine.poll_effect().unwrap();
        let Request::Read { key } = &read.request else { panic!("{read:?}") };
        let node = gc_types::ObservedObject {
            key: key.clone(),
            uid: Uid::new("n"),
            resource_version: ResourceVersion(3),
            owners: std::iter::empty().collect(),
            deletion: gc_types::DeletionState::default(),
            recreator: None,
        };
        engine.finish(read.id, &Outcome::Found(node));
        assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, Some(at(seconds + 3600))));
    }
}

/// A read that is withheld is not in flight; leases of nodes are not even considered unless that is enabled.
#[test]
fn what_is_not_read_is_not_waited_for() {
    let stale = || node_lease(-25 * 3600, &Value::Null);
    let mut engine = engine(true, vec![stale()], &[]);
    let read = engine.poll_effect().unwrap();
    assert_eq!(engine.collector().reading.len(), 1);
    engine.skip(read.id);
    assert!(engine.collector().reading.is_empty());
    let mut engine = self::engine(false, vec![stale()], &[]);
    assert_eq!(engine.poll_effect(), None);
    let decisions = engine.counts().decisions;
    engine.observe(Observation::Observed(Facts::Lease(stale())));
    assert_eq!((engine.poll_effect(), engine.counts().decisions), (None, decisions));
}
