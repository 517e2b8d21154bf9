//! What the collector remembers of pods and nodes, and for how long.

use super::*;

fn pod_key(name: &str) -> ObjectKey {
    Kind::Pod.key(&"shop".into(), &name.into())
}

/// Nodes are missing while pods are bound to them, and from when both have been listed.
#[test]
fn a_node_is_missing_while_it_has_pods() {
    let mut engine = engine(0, &[node("n", Some("True"), false)], &[pod("a", 1, "Running", "gone", none())]);
    let missing =
        |engine: &Engine<PodCollector>| engine.collector().missing.keys().cloned().collect::<Vec<_>>();
    assert_eq!(missing(&engine), ["gone".into()]);
    observe(&mut engine, Kind::Pod, &pod("a", 1, "Running", "other", none()));
    assert_eq!(missing(&engine), ["other".into()]);
    engine.observe(Observation::Removed(pod_key("a")));
    assert_eq!(missing(&engine), []);
    // Nothing is bound to this one.
    engine.observe(Observation::Removed(Kind::Node.key(&"".into(), &"n".into())));
    assert_eq!(missing(&engine), []);
}

#[test]
fn a_quarantine_begins_when_pods_and_nodes_are_known() {
    let lost = pod("a", 1, "Running", "gone", none());
    for kinds in [[Kind::Pod, Kind::Node], [Kind::Node, Kind::Pod]] {
        let mut engine = Engine::new(PodCollector::new(0));
        for (seconds, kind) in [0, 30].into_iter().zip(kinds) {
            engine.tick(at(seconds));
            engine.observe(Observation::ListStarted(kind));
            if kind == Kind::Pod {
                engine.tick(at(seconds));
                observe(&mut engine, Kind::Pod, &lost);
                engine.tick(at(seconds + 5));
            }
            engine.observe(Observation::Synced(kind));
        }
        let begun = if kinds[1] == Kind::Pod { 35 } else { 30 };
        assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, Some(at(begun + 40))), "{kinds:?}");
    }
}

/// A deletion that was applied is about the version of the pod that is known, if it still is.
#[test]
fn a_grant_is_kept_for_the_version_that_was_deleted() {
    let other = |path: &str, value: &str| pod("a", 9, "Failed", "n", json!({path: value}));
    for (case, since, outcome, granted) in [
        ("applied", None, Outcome::Applied(None), true),
        ("not applied", None, Outcome::Conflict, false),
        ("another version", Some(other("/metadata/resourceVersion", "6")), Outcome::Applied(None), false),
        ("another pod", Some(other("/metadata/uid", "other")), Outcome::Applied(None), false),
    ] {
        let pods = [pod("a", 9, "Failed", "n", none()), pod("b", 1, "Failed", "n", none())];
        let mut engine = engine(1, &[node("n", Some("True"), false)], &pods);
        let effect = engine.poll_effect().unwrap();
        if let Some(pod) = since {
            observe(&mut engine, Kind::Pod, &pod);
        }
        engine.finish(effect.id, &outcome);
        assert_eq!(engine.collector().granted.contains(&pod_key("a")), granted, "{case}");
    }
}

/// A node reconciles its pods when it is declared dead, and at no other change.
#[test]
fn a_node_that_is_declared_dead_reconciles_its_pods_once() {
    let pods = [pod("a", 1, "Running", "n", deleting(600))];
    let (fine, dead) = (node("n", Some("True"), true), node("n", Some("False"), true));
    let mut engine = engine(0, &[node("n", Some("True"), false)], &pods);
    assert_eq!(settle(&mut engine, &pods, &Outcome::Absent), [] as [&str; 0]);
    for (case, node, decides) in [
        ("sick", node("n", Some("False"), false), false),
        ("declared, and ready", fine.clone(), false),
        ("dead", dead.clone(), true),
        ("still dead", dead, false),
        ("back", fine, false),
    ] {
        let before = engine.counts().decisions;
        observe(&mut engine, Kind::Node, &node);
        let effect = engine.poll_effect();
        assert_eq!((engine.counts().decisions > before, effect.is_some()), (decides, decides), "{case}");
        if let Some(effect) = effect {
            assert_eq!(show(&effect), "fail a");
            // It is repeated later.
            engine.finish(effect.id, &Outcome::Conflict);
        }
    }
}

/// A read that is withheld is not in flight: the next pod of the node asks for it again.
#[test]
fn a_withheld_read_is_asked_for_again() {
    let mut engine = engine(0, &[], &[pod("a", 1, "Failed", "gone", none())]);
    engine.tick(at(40));
    let read = engine.poll_effect().unwrap();
    assert_eq!(show(&read), "read gone");
    engine.skip(read.id);
    assert!(engine.collector().missing.values().all(|missing| !missing.asking));
    // A removal is withheld as well, and is no longer in flight, either.
    engine.release(None);
    let read = engine.poll_effect().unwrap();
    engine.finish(read.id, &Outcome::Absent);
    let removal = engine.poll_effect().unwrap();
    assert_eq!((show(&removal).as_str(), engine.collector().removing.len()), ("delete a", 1));
    engine.skip(removal.id);
    assert!(engine.collector().removing.is_empty());
}
