//! Words for the state of a policy, and what its engine says of itself.

use super::super::engine::{PolicyEngine, Run, TRIES_PER_RUN};
use super::*;
use crate::engine::FIRST_EVENT;
use crate::policies::unused::{UNUSED_SEEN, UNUSED_SINCE};

fn policy_object(spec: &Value) -> Value {
    json!({"metadata": {"name": "builds", "generation": 3}, "spec": spec})
}

/// Returns a spec about ConfigMaps that were found unused.
fn unused_spec() -> Value {
    spec(
        json!({"maxAge": null, "target": {"apiVersion": "v1", "kind": "ConfigMap"}, "unused": {"for": "1h"}}),
    )
}

/// Returns an object that every check since two hours has found unused.
fn unused_map(name: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "5",
        "annotations": {UNUSED_SINCE: time_text(at(-2 * HOUR)), UNUSED_SEEN: time_text(at(0))}}})
}

#[test]
fn a_policy_is_in_one_of_five_states() {
    let enforced = || engine(&spec(json!({})), &[]);
    let shown_before_it_is_listed = || {
        let mut engine = enforced();
        engine.list_started();
        engine
    };
    let listed_before_it_is_shown = || {
        let mut engine = engine_of(&spec(json!({})), &Value::Null);
        engine.list_started();
        engine.synced();
        engine
    };
    let refused = || {
        let mut engine = enforced();
        engine.unwatched("jobs are not served");
        engine
    };
    let dry = json!({"enforce": false});
    let unclear = json!({"enforce": false, "condition": "object.spec.missing > 1"});
    for (state, policy) in [
        ("invalid", engine_of(&spec(json!({"maxAge": "7y"})), &Value::Null)),
        ("failing", refused()),
        ("failing", engine(&spec(unclear), &[job("a", 1, json!({}))])),
        ("dry-run", engine(&spec(dry.clone()), &[])),
        ("dry-run", engine_of(&spec(dry), &Value::Null)),
        ("first-look", shown_before_it_is_listed()),
        ("first-look", listed_before_it_is_shown()),
        ("first-look", engine_of(&spec(json!({})), &Value::Null)),
        ("enforced", enforced()),
    ] {
        assert_eq!(policy.state(), state, "{:?}", policy.status(&Value::Null, at(0)));
    }
}

/// A status that has no number of due objects has shown nothing.
#[test]
fn a_status_that_is_up_to_date_has_shown_what_it_says() {
    let mut engine = engine_of(&spec(json!({})), &Value::Null);
    for is_synced in [false, true] {
        engine.list_started();
        if is_synced {
            engine.synced();
        }
        let stored = engine.status(&Value::Null, at(0));
        assert_eq!(engine.status_to_write(&stored, at(60)), None, "{stored}");
        assert_eq!(engine.shown, is_synced, "{stored}");
    }
}

#[test]
fn what_is_due_is_counted_and_explained() {
    let two = || {
        let mut cluster = job("c", 1, json!({}));
        cluster["metadata"].as_object_mut().unwrap().remove("namespace");
        vec![job("a", 9, json!({})), job("b", 8, json!({})), cluster]
    };
    let kept = |name: &str| job(name, 9, json!({"/metadata/annotations": {"kubegc.io/keep": "true"}}));
    let (time, number) = (
        |at: &str, join: &str| format!("created at {at}, older than {join}.maxAge"),
        |join: &str| format!("not among the 0 newest ({join}.keepNewest)"),
    );
    let rules = json!({"maxAge": "8h", "keepNewest": {"count": 0}});
    let (a, b) = ("2027-01-14T23:00:00Z", "2027-01-15T00:00:00Z");
    for (rules, expected) in [
        (
            json!({"maxAge": null, "any": rules.clone()}),
            vec![
                json!({"namespace": "shop", "name": "a", "why": time(a, "spec.any")}),
                json!({"namespace": "shop", "name": "b", "why": time(b, "spec.any")}),
                json!({"name": "c", "why": number("spec.any")}),
            ],
        ),
        (
            json!({"maxAge": null, "all": rules}),
            [("a", a), ("b", b)]
                .map(|(name, at)| {
                    let why = format!("{}, and {}", time(at, "spec.all"), number("spec.all"));
                    json!({"namespace": "shop", "name": name, "why": why})
                })
                .into(),
        ),
        // The only rule of all of them is about numbers.
        (
            json!({"maxAge": null, "all": {"keepNewest": {"count": 2}}}),
            vec![json!({"namespace": "shop", "name": "a",
                "why": "not among the 2 newest (spec.all.keepNewest)"})],
        ),
    ] {
        let objects = [two(), vec![kept("k"), kept("l")]].concat();
        let engine = engine(&spec(rules.clone()), &objects);
        let status = engine.status(&Value::Null, at(0));
        assert_eq!(status["examples"], json!(expected), "{rules}");
        let counts = ["selected", "due", "kept", "unclear"].map(|name| status[name].as_u64());
        assert_eq!(counts, [3, expected.len() as u64, 2, 0].map(Some), "{rules}");
        assert_eq!(engine.due(), expected.len());
    }
}

/// An object that is already due when it is observed is due from then on, without waiting for the clock.
#[test]
fn what_is_observed_too_late_is_due_at_once() {
    let mut engine = engine(&spec(json!({})), &[]);
    let dues = [23, 24, 25].map(|hours| {
        observe(&mut engine, &job(&format!("j{hours}"), hours, json!({})));
        engine.due()
    });
    assert_eq!(dues, [0, 1, 2]);
    let known = ["j23", "j25", "j26"].map(|name| engine.selects("shop", name));
    assert_eq!((known, engine.selects("other", "j23")), ([true, true, false], false));
    assert_eq!(engine.generation(), 3);
}

fn enforced_condition(engine: &PolicyEngine) -> [String; 3] {
    let condition = engine.status(&Value::Null, at(0))["conditions"][2].clone();
    ["status", "reason", "message"].map(|name| condition[name].as_str().unwrap().to_owned())
}

#[test]
fn a_policy_says_whether_it_deletes() {
    let mut recorded = engine(&unused_spec(), &[]);
    let unrecorded = "Nothing is deleted while no recorder keeps it: Lease kube-system/kubegc-recorder is not renewed by one \
                      that records every ConfigMap";
    assert_eq!(enforced_condition(&recorded), ["False", "NotRecorded", unrecorded]);
    assert_eq!(
        [true, true, false, false, true].map(|is| recorded.set_recorded(is)),
        [true, false, true, false, true]
    );
    let after_a_look =
        "What is due is deleted within an hour after a look (kubegc garbage --quarantine --yes)";
    assert_eq!(enforced_condition(&recorded), ["True", "Enforced", after_a_look]);
    let plain = engine(&spec(json!({})), &[]);
    assert_eq!(enforced_condition(&plain), ["True", "Enforced", "What is due is deleted"]);
    // Nothing is watched for an invalid policy, whether or not it was before.
    let mut invalid = engine_of(&spec(json!({"maxAge": "7y"})), &Value::Null);
    for _ in 0..2 {
        let conditions = invalid.status(&Value::Null, at(0))["conditions"].clone();
        let words = ["reason", "message"].map(|name| conditions[1][name].clone());
        assert_eq!(words, ["SpecInvalid", "Nothing is watched"]);
        invalid.synced();
    }
}

/// The status changes with what becomes due, with the end of a run and with the time of the next one, and not with the clock.
#[test]
fn a_tick_says_whether_the_status_may_have_changed() {
    let mut engine = PolicyEngine::new(&policy_object(&spec(json!({}))), ResourceId(9));
    let mut ticks = vec![engine.tick(at(0)), engine.tick(at(0))];
    engine.list_started();
    observe(&mut engine, &job("a", 23, json!({})));
    engine.synced();
    engine.shown();
    ticks.extend([HOUR - 1, HOUR, HOUR + 1].map(|seconds| engine.tick(at(seconds))));
    assert_eq!(ticks, [true, false, false, true, false]);
    assert_eq!(deleted_now(&mut engine), ["a"]);
    assert_eq!([HOUR + 2, HOUR + 3].map(|seconds| engine.tick(at(seconds))), [true, false]);
}

#[test]
fn a_run_wakes_for_what_it_repeats_and_for_its_end() {
    let failed = Outcome::Failed { message: "away".into(), retry_after_milliseconds: None };
    let mut engine = engine(&spec(json!({})), &[job("a", 30, json!({})), job("b", 29, json!({}))]);
    let effects = [engine.poll_effect().unwrap(), engine.poll_effect().unwrap()];
    assert_eq!(engine.next_wakeup(), None, "both are in flight");
    engine.finish(effects[0].id, &failed);
    assert_eq!(engine.next_wakeup(), Some(at(0).after(5)), "one is repeated");
    engine.finish(effects[1].id, &failed);
    assert_eq!(engine.next_wakeup(), Some(at(0).after(5)), "both are repeated");
    for name in ["a", "b"] {
        engine.removed("shop", name);
    }
    assert_eq!(engine.next_wakeup(), Some(at(0)), "the run has nothing left to do");
    engine.tick(at(0));
    assert_eq!((engine.next_wakeup(), engine.last_run.is_some()), (None, true));
}

#[test]
fn an_object_is_tried_three_times_in_a_run() {
    let mut engine = engine(&spec(json!({})), &[job("a", 30, json!({}))]);
    let refused = Outcome::Refused { code: 403, message: "forbidden".into() };
    let mut tries = 0;
    for milliseconds in 1..200 {
        while let Some(effect) = engine.poll_effect() {
            tries += 1;
            assert_eq!(engine.status(&Value::Null, at(0))["lastRun"], Value::Null);
            engine.finish(effect.id, &refused);
        }
        engine.tick(at(0).after(milliseconds));
    }
    assert_eq!(tries, TRIES_PER_RUN);
    let error = Some("shop/a: forbidden".to_owned());
    assert_eq!(engine.last_run, Some(Run { begun: at(0), deleted: 0, failed: 1, error, undo: Vec::new() }));
}

/// The first ten deletions of a run can be undone by the commands in the status; what was gone already was not deleted by it.
#[test]
fn a_run_keeps_ten_commands_that_undo_it() {
    let names: Vec<String> = (10..23).map(|number| format!("m{number}")).collect();
    let maps: Vec<Value> = names.iter().map(|name| unused_map(name)).collect();
    let undo = |name: &String| format!("kubegc undo configmap/{name} -n shop --records DIR");
    let mut engine = engine(&unused_spec(), &maps);
    engine.set_recorded(true);
    engine.tick(at(1));
    while let Some(effect) = engine.poll_effect() {
        let is_gone = deleted(&effect) == names[0];
        engine.finish(effect.id, if is_gone { &Outcome::Absent } else { &Outcome::Applied(None) });
    }
    engine.tick(at(2));
    let expected: Vec<String> = names[1..11].iter().map(undo).collect();
    let status = engine.status(&Value::Null, at(2));
    assert_eq!((&status["lastRun"]["undo"], &status["lastRun"]["deleted"]), (&json!(expected), &json!(12)));
    // They are still known after a restart.
    let again = engine.restarted(&status).status(&Value::Null, at(2));
    assert_eq!(again["lastRun"], status["lastRun"]);
    // A policy that needs no recorder has nothing to restore from.
    let mut plain = self::engine(&spec(json!({})), &[job("a", 30, json!({}))]);
    assert_eq!(deleted_now(&mut plain), ["a"]);
    plain.tick(at(1));
    assert_eq!(plain.last_run.map(|run| (run.deleted, run.undo)), Some((1, Vec::new())));
}

/// A run deletes only what a check has just found unused, even if other objects were checked just now.
#[test]
fn an_object_without_a_recent_check_waits_while_others_go() {
    let mut stale = unused_map("stale");
    stale["metadata"]["annotations"][UNUSED_SEEN] = time_text(at(-HOUR)).into();
    let mut engine = engine(&unused_spec(), &[stale, unused_map("fresh")]);
    engine.set_recorded(true);
    engine.tick(at(1));
    assert_eq!(deleted_now(&mut engine), ["fresh"]);
    assert_eq!(engine.due(), 1);
}

/// Each notice is an effect of its own, and an object that was recreated under its name gets another one.
#[test]
fn a_notice_is_about_one_object() {
    let rules = json!({"maxAge": "48h", "notice": {"before": "24h"}});
    let mut engine = engine(&spec(rules), &[job("a", 99, json!({})), job("b", 98, json!({}))]);
    let effects: Vec<_> = std::iter::from_fn(|| engine.poll_effect()).collect();
    let numbers: Vec<u64> = effects.iter().map(|effect| effect.id.0).collect();
    assert_eq!(numbers, [FIRST_EVENT, FIRST_EVENT + 1]);
    for (uid, notices) in [("u-a", 0), ("other", 1), ("other", 0)] {
        observe(&mut engine, &job("a", 99, json!({"/metadata/uid": uid})));
        engine.tick(at(1));
        assert_eq!(std::iter::from_fn(|| engine.poll_effect()).count(), notices, "{uid}");
    }
}

#[test]
fn some_kinds_are_no_targets() {
    for (api_version, kind, expected) in [
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            Some("deleting a definition deletes all of its objects"),
        ),
        ("apiregistration.k8s.io/v1", "APIService", Some("deleting an APIService removes a whole API")),
        (
            "v1",
            "PersistentVolume",
            Some("it stands for a machine or storage, and has a collector of its own"),
        ),
        ("example.com/v1", "APIService", None),
    ] {
        let compiled = Policy::compile(&spec(json!({"target": {"apiVersion": api_version, "kind": kind}})));
        let found =
            compiled.map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>()).err();
        let expected =
            expected.map(|why| vec![format!("spec.target: {kind} cannot be the target of a policy: {why}")]);
        assert_eq!(found, expected, "{api_version} {kind}");
    }
}

#[test]
fn a_policy_says_how_many_it_keeps() {
    let newest = |more: Value| Policy::compile(&spec(more)).unwrap().newest();
    assert_eq!(newest(json!({})), None);
    assert_eq!([0, 1, 7].map(|count| newest(json!({"keepNewest": {"count": count}}))), [0, 1, 7].map(Some));
}

#[test]
fn a_path_has_at_least_one_step_and_no_empty_one() {
    let steps = |list: &[&str]| Some(list.iter().map(|step| (*step).to_owned()).collect::<Vec<_>>());
    for (path, expected) in [
        (".a", steps(&["a"])),
        (".a.b['c.d/e'].f", steps(&["a", "b", "c.d/e", "f"])),
        ("['a']", steps(&["a"])),
        ("", None),
        (".", None),
        ("..a", None),
        (".a.", None),
        (".a['']", None),
        ("a", None),
    ] {
        assert_eq!(field_path(path), expected, "{path}");
    }
}

/// Only a Namespace is selected by its own name.
#[test]
fn other_objects_of_the_core_are_selected_by_their_namespace() {
    let selects = |api_version: &str, kind: &str| {
        let target =
            json!({"target": {"apiVersion": api_version, "kind": kind}, "namespaces": {"include": ["shop"]}});
        let policy = Policy::compile(&spec(target)).unwrap();
        [("shop", "x"), ("x", "shop")].map(|(namespace, name)| {
            let object = json!({"metadata": {"namespace": namespace, "name": name}});
            matches!(policy.look(&object, at(0)), Assessment::Selected(_))
        })
    };
    assert_eq!(selects("v1", "ConfigMap"), [true, false]);
    assert_eq!(selects("example.com/v1", "Namespace"), [true, false]);
    assert_eq!(selects("v1", "Namespace"), [false, true]);
}

/// Pods finish when their last container has ended.
#[test]
fn the_newest_pods_are_those_that_finished_last() {
    let pod = |name: &str, hours: i64, ended: i64| {
        let state = json!({"containerStatuses": [{"state": {"terminated": {"finishedAt": time_text(at(ended))}}}],
            "phase": "Succeeded"});
        job(name, hours, json!({"/status": state}))
    };
    let rules = json!({"maxAge": null, "target": {"apiVersion": "v1", "kind": "Pod"},
        "keepNewest": {"count": 1, "orderBy": "Finished"}});
    let mut engine = engine(&spec(rules), &[pod("long", 9, -60), pod("short", 2, -HOUR)]);
    assert_eq!(deleted_now(&mut engine), ["short"]);
}
