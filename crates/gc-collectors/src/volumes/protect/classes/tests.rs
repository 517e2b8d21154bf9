#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::engine::Engine;
use gc_types::{Change, EffectId};
use serde_json::{Value, json};

fn facts(kind: Kind, name: &str, more: &Value) -> Facts {
    let mut object = json!({"metadata": {"name": name, "uid": format!("u-{name}"), "resourceVersion": "5"}});
    if kind == Kind::Claim {
        object["metadata"]["namespace"] = "shop".into();
    }
    for (field, value) in more.as_object().unwrap() {
        match (&mut object[field], value) {
            (Value::Object(known), Value::Object(new)) => known.extend(new.clone()),
            (known, new) => *known = new.clone(),
        }
    }
    Facts::read(kind, object.to_string().as_bytes()).unwrap()
}

fn class(deleting: bool, finalizers: &[&str]) -> Facts {
    let deleted = deleting.then_some("2026-01-01T00:00:00Z");
    let metadata = json!({"deletionTimestamp": deleted, "finalizers": finalizers});
    facts(Kind::AttributesClass, "gold", &json!({ "metadata": metadata }))
}

fn engine(all: &[Facts]) -> Engine<AttributesClassProtection> {
    let mut engine = Engine::new(AttributesClassProtection::default());
    engine.tick(Timestamp(0));
    for kind in [Kind::AttributesClass, Kind::Claim, Kind::Volume] {
        engine.observe(Observation::ListStarted(kind));
        for one in all.iter().filter(|one| one.kind() == kind) {
            engine.observe(Observation::Observed(one.clone()));
        }
        engine.observe(Observation::Synced(kind));
    }
    engine
}

fn next(engine: &mut Engine<AttributesClassProtection>) -> Option<(EffectId, String)> {
    let effect = engine.poll_effect()?;
    let shown = match &effect.request {
        Request::Barrier { resource, namespace: None, .. } if *resource == Kind::Claim.resource() => {
            "list claims".to_owned()
        }
        Request::Barrier { resource, namespace: None, .. } if *resource == Kind::Volume.resource() => {
            "list volumes".to_owned()
        }
        Request::Guarded { key, change: Change::Finalizers(left), .. } => format!("{} {left:?}", key.name),
        other => format!("{other:?}"),
    };
    Some((effect.id, shown))
}

/// Returns all requests, answering each as applied.
fn settle(engine: &mut Engine<AttributesClassProtection>) -> Vec<String> {
    let mut shown = Vec::new();
    while let Some((id, text)) = next(engine) {
        shown.push(text);
        engine.finish(id, &Outcome::Applied(None));
    }
    shown
}

const SEARCH: [&str; 3] = ["list claims", "list volumes", "gold []"];

#[test]
fn a_class_is_held_while_a_claim_or_a_volume_names_it() {
    let named = |path: Value, kind| facts(kind, "data", &path);
    let spec = |name: &str| json!({"spec": {"volumeAttributesClassName": name}});
    let current = json!({"status": {"currentVolumeAttributesClassName": "gold"}});
    let target = json!({"status": {"modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold"}}});
    let table: [(&str, bool, &[&str], Vec<Facts>, &[&str]); 9] = [
        (
            "a class without its finalizer gets it",
            false,
            &["other"],
            vec![],
            &["gold [\"other\", \"kubernetes.io/vac-protection\"]"],
        ),
        ("one that has it is left alone", false, &[FINALIZER], vec![], &[]),
        ("one that is deleted gets none", true, &["other"], vec![], &[]),
        ("unused", true, &[FINALIZER], vec![], &SEARCH),
        ("another class is named", true, &[FINALIZER], vec![named(spec("tin"), Kind::Claim)], &SEARCH),
        ("by a claim", true, &[FINALIZER], vec![named(spec("gold"), Kind::Claim)], &[]),
        ("by the status of a claim", true, &[FINALIZER], vec![named(current, Kind::Claim)], &[]),
        ("by a modification", true, &[FINALIZER], vec![named(target, Kind::Claim)], &[]),
        ("by a volume", true, &[FINALIZER], vec![named(spec("gold"), Kind::Volume)], &[]),
    ];
    for (scenario, deleting, finalizers, mut users, expected) in table {
        users.push(class(deleting, finalizers));
        assert_eq!(settle(&mut engine(&users)), expected, "{scenario}");
    }
}

#[test]
fn a_class_goes_when_the_last_that_names_it_is_gone_or_names_another() {
    let spec = |name: &str| json!({"spec": {"volumeAttributesClassName": name}});
    let users = [
        facts(Kind::Claim, "data", &spec("gold")),
        facts(Kind::Volume, "disk", &spec("gold")),
        class(true, &[FINALIZER]),
    ];
    let mut engine = engine(&users);
    assert_eq!(settle(&mut engine), Vec::<String>::new());
    engine.observe(Observation::Observed(facts(Kind::Claim, "data", &spec("tin"))));
    assert_eq!(settle(&mut engine), Vec::<String>::new());
    engine.observe(Observation::Removed(Kind::Volume.key(&"".into(), &"disk".into())));
    assert_eq!(settle(&mut engine), SEARCH);
}

#[test]
fn what_only_a_live_list_shows_holds_the_class() {
    let spec = json!({"spec": {"volumeAttributesClassName": "gold"}});
    let mut engine = engine(&[class(true, &[FINALIZER])]);
    let (id, shown) = next(&mut engine).unwrap();
    assert_eq!(shown, "list claims");
    engine.observe(Observation::Found(facts(Kind::Claim, "new", &spec)));
    engine.finish(id, &Outcome::Applied(None));
    assert_eq!(next(&mut engine), None);
    // It is searched for again a second later; a failed list shows nothing.
    engine.tick(Timestamp(1_000));
    let (id, shown) = next(&mut engine).unwrap();
    assert_eq!(shown, "list claims");
    engine.finish(id, &Outcome::NotServed);
    assert_eq!(next(&mut engine), None);
    engine.tick(Timestamp(2_000));
    assert_eq!(settle(&mut engine), SEARCH);
}

#[test]
fn lists_before_another_listing_count_no_longer() {
    let mut engine = engine(&[class(true, &[FINALIZER])]);
    let (id, shown) = next(&mut engine).unwrap();
    assert_eq!(shown, "list claims");
    engine.finish(id, &Outcome::Applied(None));
    engine.observe(Observation::ListStarted(Kind::Claim));
    engine.observe(Observation::Synced(Kind::Claim));
    assert_eq!(settle(&mut engine), SEARCH);
}

/// Only a list that names the class shows that it is used, and a list that is withheld shows nothing.
#[test]
fn a_list_that_names_other_classes_does_not_hold_this_one() {
    let spec = json!({"spec": {"volumeAttributesClassName": "tin"}});
    let mut engine = engine(&[class(true, &[FINALIZER])]);
    let (id, shown) = next(&mut engine).unwrap();
    assert_eq!(shown, "list claims");
    engine.observe(Observation::Found(facts(Kind::Claim, "new", &spec)));
    engine.finish(id, &Outcome::Applied(None));
    let (id, shown) = next(&mut engine).unwrap();
    assert_eq!(shown, "list volumes");
    let listing = |engine: &Engine<AttributesClassProtection>| {
        engine.collector().searches.values().map(|search| search.listing).collect::<Vec<_>>()
    };
    assert_eq!(listing(&engine), [Some(Kind::Volume)]);
    engine.skip(id);
    assert_eq!(listing(&engine), [None]);
}

/// A volume that only the live list has holds the class as a claim does.
#[test]
fn a_listed_volume_holds_the_class() {
    let spec = json!({"spec": {"volumeAttributesClassName": "gold"}});
    let mut engine = engine(&[class(true, &[FINALIZER])]);
    for (expected, found) in
        [("list claims", None), ("list volumes", Some(facts(Kind::Volume, "new", &spec)))]
    {
        let (id, shown) = next(&mut engine).unwrap();
        assert_eq!(shown, expected);
        if let Some(found) = found {
            engine.observe(Observation::Found(found));
        }
        engine.finish(id, &Outcome::Applied(None));
    }
    assert_eq!((next(&mut engine), engine.next_wakeup()), (None, Some(Timestamp(1_000))));
}
