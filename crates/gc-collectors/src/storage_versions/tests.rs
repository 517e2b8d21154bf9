#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::engine::Engine;
use gc_types::{Effect, Uid};

const NOW: i64 = 1_800_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp((NOW + seconds) * 1000)
}

fn entries(of: &[(&str, &str)]) -> Vec<Value> {
    let entry = |(server, version): &(&str, &str)| json!({"apiServerID": server, "encodingVersion": version, "decodableVersions": [version]});
    of.iter().map(entry).collect()
}

fn version(of: &[(&str, &str)], common: Option<&str>) -> StorageVersion {
    let truth = if common.is_some() { "True" } else { "False" };
    serde_json::from_value(json!({
        "metadata": {"name": "apps.deployments", "uid": "u", "resourceVersion": "7", "generation": 2},
        "status": {"storageVersions": entries(of), "commonEncodingVersion": common, "conditions": [
            {"type": "Other", "status": "True"},
            {"type": AGREEMENT, "status": truth, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }))
    .unwrap()
}

fn lease(server: &str, identity: &str) -> Facts {
    let json = json!({"metadata": {"namespace": "kube-system", "name": server, "uid": server,
        "resourceVersion": "3", "labels": {"apiserver.kubernetes.io/identity": identity}}});
    Facts::SystemLease(serde_json::from_value(json).unwrap())
}

fn engine(version: StorageVersion, servers: &[&str]) -> Engine<StorageVersionCollector> {
    let mut engine = Engine::new(StorageVersionCollector::default());
    engine.tick(at(0));
    let leases = servers.iter().map(|server| lease(server, "kube-apiserver")).collect();
    for (kind, facts) in
        [(Kind::StorageVersion, vec![Facts::StorageVersion(version)]), (Kind::SystemLease, leases)]
    {
        engine.observe(Observation::ListStarted(kind));
        for facts in facts {
            engine.observe(Observation::Observed(facts));
        }
        engine.observe(Observation::Synced(kind));
    }
    engine
}

/// Answers the requested read of a lease.
fn answer(engine: &mut Engine<StorageVersionCollector>, server: &str, outcome: &Outcome) {
    let read = engine.poll_effect().unwrap();
    assert_eq!(read.request, Request::Read { key: lease_key(&server.into()) });
    engine.finish(read.id, outcome);
}

fn written(effect: &Effect) -> Value {
    let Request::Guarded { change: Change::MergeStatus(status), uid, resource_version, .. } = &effect.request
    else {
        panic!("{effect:?}")
    };
    assert_eq!((uid, *resource_version), (&Uid::new("u"), ResourceVersion(7)));
    serde_json::from_str(status).unwrap()
}

fn found() -> Outcome {
    let key = lease_key(&"1".into());
    let object = gc_types::ObservedObject {
        key,
        uid: Uid::new("1"),
        resource_version: ResourceVersion(3),
        owners: std::iter::empty().collect(),
        deletion: gc_types::DeletionState::default(),
        recreator: None,
    };
    Outcome::Found(object)
}

#[test]
fn entries_of_servers_that_are_gone_are_removed() {
    let kept = |truth: &str, why: &str, since: Value, message: &str| {
        json!([{"type": "Other", "status": "True"}, {"type": AGREEMENT, "status": truth,
            "observedGeneration": 2, "lastTransitionTime": since, "reason": why, "message": message}])
    };
    let set = |since: Value| kept("True", "CommonEncodingVersionSet", since, "Common encoding version set");
    let unset =
        |since: Value| kept("False", "CommonEncodingVersionUnset", since, "Common encoding version unset");
    let (now, before) = (json!(time_text(at(0))), json!("2026-01-01T00:00:00Z"));
    for (scenario, of, common, gone, left, agreed, conditions) in [
        (
            "SV-T01",
            &[("1", "v1"), ("2", "v2"), ("3", "v2")][..],
            None,
            "1",
            &[("2", "v2"), ("3", "v2")][..],
            json!("v2"),
            set(now.clone()),
        ),
        (
            "SV-T03",
            &[("1", "v1"), ("2", "v2"), ("3", "v2"), ("4", "v2")],
            None,
            "4",
            &[("1", "v1"), ("2", "v2"), ("3", "v2")],
            Value::Null,
            unset(before.clone()),
        ),
        (
            "nothing changes but the entry",
            &[("1", "v1"), ("2", "v1")],
            Some("v1"),
            "2",
            &[("1", "v1")],
            json!("v1"),
            set(before),
        ),
        (
            "one version replaces another",
            &[("1", "v1"), ("2", "v2")],
            Some("v1"),
            "1",
            &[("2", "v2")],
            json!("v2"),
            set(now),
        ),
    ] {
        let servers: Vec<&str> = left.iter().map(|(server, _)| *server).collect();
        let mut engine = engine(version(of, common), &servers);
        answer(&mut engine, gone, &Outcome::Absent);
        let expected = json!({"storageVersions": entries(left), "commonEncodingVersion": agreed,
            "conditions": conditions});
        assert_eq!(written(&engine.poll_effect().unwrap()), expected, "{scenario}");
    }
}

#[test]
fn what_has_no_entries_left_is_deleted() {
    // SV-T04: the removal of the lease is observed.
    let mut engine = engine(version(&[("1", "v1")], Some("v1")), &["1"]);
    assert_eq!(engine.poll_effect(), None);
    engine.observe(Observation::Removed(lease_key(&"1".into())));
    answer(&mut engine, "1", &Outcome::Absent);
    let effect = engine.poll_effect().unwrap();
    let Request::Delete { uid, resource_version, .. } = effect.request else { panic!("{effect:?}") };
    assert_eq!((uid, resource_version), (Uid::new("u"), Some(ResourceVersion(7))));
}

#[test]
fn what_lives_or_may_live_is_left_alone() {
    // SV-T02: the lease belongs to a server that no entry names.
    let mut engine = engine(version(&[("1", "v1"), ("3", "v2")], Some("v1")), &["1", "2", "3"]);
    engine.observe(Observation::Removed(lease_key(&"2".into())));
    assert_eq!(engine.poll_effect(), None);

    // SV-T05: the lease was deleted, and recreated before it was read.
    engine.observe(Observation::Removed(lease_key(&"1".into())));
    answer(&mut engine, "1", &found());
    assert_eq!(engine.poll_effect(), None);
    engine.observe(Observation::Observed(lease("1", "kube-apiserver")));
    engine.tick(at(5));
    assert_eq!(engine.poll_effect(), None);

    // SV-T07: no answer proves nothing.
    engine.observe(Observation::Removed(lease_key(&"3".into())));
    let away = Outcome::Failed { message: "503".into(), retry_after_milliseconds: None };
    for seconds in [6, 7, 8] {
        answer(&mut engine, "3", &away);
        engine.tick(at(seconds));
    }
    answer(&mut engine, "3", &Outcome::NotServed);
    assert_eq!(engine.poll_effect(), None);
}

/// SV-T06
#[test]
fn a_lease_that_is_not_an_api_servers_keeps_no_entry() {
    let mut engine = engine(version(&[("1", "v1"), ("2", "v1")], Some("v1")), &["2"]);
    engine.observe(Observation::Observed(lease("1", "someone-else")));
    answer(&mut engine, "1", &found());
    let effect = engine.poll_effect().unwrap();
    assert_eq!(written(&effect)["storageVersions"], json!(entries(&[("2", "v1")])));
}

/// Leases are listed again, perhaps because a backup was restored: earlier reads, and those still in flight, are about another
/// history.
#[test]
fn a_list_of_leases_ends_the_proof_that_one_is_gone() {
    for is_answered in [true, false] {
        let mut engine = engine(version(&[("1", "v1")], Some("v1")), &[]);
        let read = engine.poll_effect().unwrap();
        if is_answered {
            engine.finish(read.id, &Outcome::Absent);
        }
        engine.observe(Observation::ListStarted(Kind::SystemLease));
        engine.observe(Observation::Synced(Kind::SystemLease));
        if !is_answered {
            engine.finish(read.id, &Outcome::Absent);
        }
        answer(&mut engine, "1", &Outcome::Absent);
        assert!(matches!(engine.poll_effect().unwrap().request, Request::Delete { .. }));
    }
}

/// A lease that is renewed changes nothing; one that becomes another's is read.
#[test]
fn a_lease_counts_when_it_becomes_anothers() {
    let mut engine = engine(version(&[("1", "v1"), ("2", "v1")], Some("v1")), &["1", "2"]);
    engine.observe(Observation::Observed(lease("1", "kube-apiserver")));
    assert_eq!(engine.poll_effect(), None);
    engine.observe(Observation::Observed(lease("1", "someone-else")));
    answer(&mut engine, "1", &found());
    let effect = engine.poll_effect().unwrap();
    assert_eq!(written(&effect)["storageVersions"], json!(entries(&[("2", "v1")])));
}

/// A version that was not common before replaces none.
#[test]
fn the_time_of_the_agreement_moves_if_it_is_about_another_version() {
    for (before, left, since) in [
        (Some("v1"), "v1", "2026-01-01T00:00:00Z".to_owned()),
        (Some("v1"), "v2", time_text(at(0))),
        (None, "v2", "2026-01-01T00:00:00Z".to_owned()),
    ] {
        let mut version = version(&[("1", left)], Some("v1"));
        version.common = before.map(Into::into);
        let written = status(&version, &[&version.entries[0]], at(0));
        assert_eq!(written["conditions"][1]["lastTransitionTime"], *since, "{before:?} {left}");
    }
}

/// The watch gets a second to deliver a lease that was read, before it is read again.
#[test]
fn a_lease_that_exists_unobserved_is_read_again() {
    let mut engine = engine(version(&[("1", "v1")], Some("v1")), &[]);
    answer(&mut engine, "1", &found());
    assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, Some(at(1))));
    engine.tick(at(1));
    answer(&mut engine, "1", &found());
    assert_eq!(engine.poll_effect(), None);
}

/// A read that is withheld is not in flight.
#[test]
fn a_withheld_read_is_forgotten() {
    let mut engine = engine(version(&[("1", "v1")], Some("v1")), &[]);
    let read = engine.poll_effect().unwrap();
    assert_eq!(engine.collector().reading.len(), 1);
    engine.skip(read.id);
    assert!(engine.collector().reading.is_empty());
}
