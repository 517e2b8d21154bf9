#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use gc_types::{DeletionState, Gvr, Outcome, Scope};
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: i64 = 1_800_000_000;
const CONFIG_MAPS: ResourceId = ResourceId(7);

fn at(seconds: i64) -> Timestamp {
    Timestamp((NOW + seconds) * 1000)
}

fn marks(ttl: Option<&str>, expires_at: Option<&str>, keep: Option<&str>) -> Marks {
    Marks {
        created: Some(at(0)),
        ttl: ttl.map(Into::into),
        expires_at: expires_at.map(Into::into),
        keep: keep.map(Into::into),
        ..Marks::default()
    }
}

/// Valid annotations, invalid ones, and several at once.
#[test]
fn what_annotations_say() {
    let seconds = |seconds: i64| Ok(Some(at(seconds)));
    let bad = |text: &str| Err(text.to_owned());
    for (ttl, expires_at, keep, begins, expected) in [
        (Some("1h"), None, None, Some(0), seconds(3600)),
        (Some("90m30s"), None, None, Some(-10), seconds(5420)),
        (Some("0"), None, None, Some(0), seconds(0)),
        (Some("1ns"), None, None, Some(0), Ok(Some(at(0).after(1)))),
        // A Job that has not finished yet.
        (Some("1h"), None, None, None, Ok(None)),
        (None, Some("2027-01-15T09:00:00Z"), None, Some(0), seconds(3600)),
        (None, Some("2027-01-15T10:00:00+01:00"), None, None, seconds(3600)),
        (None, Some("2020-01-01T00:00:00Z"), None, None, Ok(Some(Timestamp(1_577_836_800_000)))),
        // The earlier one counts.
        (Some("1h"), Some("2027-01-15T08:30:00Z"), None, Some(0), seconds(1800)),
        (Some("10m"), Some("2027-01-15T08:30:00Z"), None, Some(0), seconds(600)),
        (Some("1h"), Some("2027-01-15T08:30:00Z"), None, None, seconds(1800)),
        (Some("1h"), None, Some("true"), Some(0), Ok(None)),
        (Some("1h"), None, Some("false"), Some(0), seconds(3600)),
        (None, None, Some("true"), Some(0), Ok(None)),
        (
            Some("10"),
            None,
            None,
            Some(0),
            bad(
                "annotation kubegc.io/ttl: \"10\" lacks a unit; expected one of ns, us, ms, s, m, h, d, w after each number",
            ),
        ),
        (
            Some("2y"),
            None,
            None,
            Some(0),
            bad(
                "annotation kubegc.io/ttl: \"2y\" has the unknown unit \"y\"; expected one of ns, us, ms, s, m, h, d, w",
            ),
        ),
        (
            Some("-1h"),
            None,
            None,
            Some(0),
            bad("annotation kubegc.io/ttl: \"-1h\" is negative; expected a duration such as \"36h\""),
        ),
        (
            None,
            Some("tomorrow"),
            None,
            Some(0),
            bad(
                "annotation kubegc.io/expires-at: \"tomorrow\" is not a time; expected RFC 3339, such as \"2027-01-31T12:00:00Z\"",
            ),
        ),
        // An invalid annotation disables the valid ones.
        (
            Some("1h"),
            Some("2027-01-15"),
            None,
            Some(0),
            bad(
                "annotation kubegc.io/expires-at: \"2027-01-15\" is not a time; expected RFC 3339, such as \"2027-01-31T12:00:00Z\"",
            ),
        ),
        (
            Some("1h"),
            None,
            Some("yes"),
            Some(0),
            bad("annotation kubegc.io/keep: \"yes\" is neither \"true\" nor \"false\"; the object is kept"),
        ),
    ] {
        let said = expiry(&marks(ttl, expires_at, keep), begins.map(at), &[]);
        let said = said.map(|expiry| expiry.map(|(at, _)| at)).map_err(|bad| bad.to_string());
        assert_eq!(said, expected, "{ttl:?} {expires_at:?} {keep:?} {begins:?}");
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { resource: CONFIG_MAPS, namespace: "shop".into(), name: name.into() }
}

fn object(name: &str, version: u64, deleting: bool) -> ObservedObject {
    ObservedObject {
        key: key(name),
        uid: Uid::new(name),
        resource_version: ResourceVersion(version),
        owners: Vec::new().into(),
        deletion: DeletionState { deleting, ..DeletionState::default() },
        recreator: None,
    }
}

fn observe_marks(engine: &mut ExpiryEngine, name: &str, version: u64, annotations: Option<Marks>) {
    engine.handle(Event::Observed(object(name, version, false)));
    if let Some(marks) = annotations {
        engine.handle(Event::Marked { key: key(name), marks: marks.into() });
    }
}

fn engine() -> ExpiryEngine {
    let mut engine = ExpiryEngine::default();
    engine.handle(Event::Tick(at(0)));
    engine
}

#[test]
fn an_object_is_deleted_at_its_time_and_only_in_the_version_decided_on() {
    let mut engine = engine();
    observe_marks(&mut engine, "plain", 1, None);
    observe_marks(&mut engine, "a", 2, Some(marks(Some("1h"), None, None)));
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.next_wakeup(), Some(at(3600)));
    engine.handle(Event::Tick(at(3600)));
    let effect = engine.poll_effect().unwrap();
    let expected = Request::Delete {
        key: key("a"),
        uid: Uid::new("a"),
        resource_version: Some(ResourceVersion(2)),
        policy: PropagationPolicy::Background,
    };
    assert_eq!(effect.request, expected);
    assert_eq!(
        effect.reason.to_string(),
        "the object has expired by its annotation: object observed at version 2; its kubegc.io/ttl of 1h is over; \
         since 2027-01-15T09:00:00Z"
    );
    // The time was extended at the last moment: the server refuses the deletion, and the new annotation counts.
    engine.handle(Event::Done(effect.id, Outcome::Conflict));
    observe_marks(&mut engine, "a", 3, Some(marks(Some("2h"), None, None)));
    engine.handle(Event::Tick(at(3601)));
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.next_wakeup(), Some(at(7200)));
}

/// A server that was restored to an earlier state has the deleted object again, in the same version.
#[test]
fn what_a_list_still_has_after_its_deletion_was_granted_is_deleted_again() {
    let mut engine = engine();
    let expired =
        |engine: &mut ExpiryEngine| observe_marks(engine, "a", 1, Some(marks(Some("0"), None, None)));
    expired(&mut engine);
    let first = engine.poll_effect().unwrap();
    engine.handle(Event::Done(first.id, Outcome::Applied(None)));
    assert_eq!(engine.poll_effect(), None);
    // A resumed watch reports nothing new.
    let synced = Event::Synced { resource: CONFIG_MAPS, resource_version: ResourceVersion(4) };
    engine.handle(synced.clone());
    assert_eq!(engine.poll_effect(), None);
    engine.handle(Event::ListStarted(CONFIG_MAPS));
    expired(&mut engine);
    assert_eq!(engine.poll_effect(), None);
    engine.handle(synced);
    assert_eq!(engine.poll_effect().map(|effect| effect.request), Some(first.request));
}

#[test]
fn what_loses_its_annotation_or_is_gone_stays_untouched() {
    let expired = || Some(marks(Some("0"), None, None));
    for scenario in
        ["taken off", "taken off at the end of a batch", "removed", "relisted", "not served", "deleting"]
    {
        let mut engine = engine();
        observe_marks(&mut engine, "a", 1, expired());
        match scenario {
            "taken off" => {
                observe_marks(&mut engine, "a", 2, None);
                engine.handle(Event::Tick(at(1)));
            }
            "taken off at the end of a batch" => observe_marks(&mut engine, "a", 2, None),
            "removed" => engine.handle(Event::Removed {
                key: key("a"),
                uid: Uid::new("a"),
                resource_version: ResourceVersion(2),
            }),
            "relisted" => {
                engine.handle(Event::ListStarted(CONFIG_MAPS));
                observe_marks(&mut engine, "b", 3, None);
                engine.handle(Event::Synced { resource: CONFIG_MAPS, resource_version: ResourceVersion(4) });
            }
            "not served" => engine.handle(Event::ResourceGone(CONFIG_MAPS)),
            _ => {
                engine.handle(Event::Observed(object("a", 2, true)));
                engine.handle(Event::Marked { key: key("a"), marks: expired().unwrap().into() });
            }
        }
        assert_eq!(engine.poll_effect(), None, "{scenario}");
    }
}

#[test]
fn a_bad_annotation_is_reported_once_and_deletes_nothing() {
    let mut engine = engine();
    for version in 1..4 {
        observe_marks(&mut engine, "a", version, Some(marks(Some("soon"), None, None)));
    }
    let effect = engine.poll_effect().unwrap();
    let Request::RecordEvent(note) = effect.request else { panic!("{effect:?}") };
    assert_eq!((note.about, note.reason), (key("a"), INVALID_ANNOTATION));
    assert!(
        note.message.starts_with("annotation kubegc.io/ttl: \"soon\" is not a duration"),
        "{}",
        note.message
    );
    engine.handle(Event::Done(effect.id, Outcome::Applied(None)));
    engine.handle(Event::Tick(at(1_000_000)));
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.counts().1, ExpiryCounts { annotated: 1, invalid: 1, invalid_seen: 1 });
    // A different mistake is reported again.
    observe_marks(&mut engine, "a", 9, Some(marks(Some("later"), None, None)));
    assert!(matches!(engine.poll_effect().unwrap().request, Request::RecordEvent(_)));
}

/// An aggregated API server does not check whether a writer may delete, so everyone who may patch its objects could delete them.
#[test]
fn annotations_of_aggregated_servers_count_only_in_groups_that_are_named() {
    let served = |group: &str, is_aggregated: bool| {
        Event::ResourceServed(ResourceInfo {
            id: CONFIG_MAPS,
            gvr: Gvr { group: group.into(), version: "v1".into(), resource: "widgets".into() },
            kind: "Widget".into(),
            scope: Scope::Namespaced,
            served_api_versions: vec![format!("{group}/v1").into()],
            watched: true,
            comparable_versions: !is_aggregated,
        })
    };
    let expired = || Some(marks(Some("0"), None, None));
    let is_deleted = |effect: &Effect| matches!(effect.request, Request::Delete { .. });
    for (group, is_aggregated, expected) in [
        ("aggregated.example.com", false, true),
        ("aggregated.example.com", true, false),
        ("named.example.com", true, true),
    ] {
        let mut engine = engine().with_aggregated(&["named.example.com".to_owned()]);
        engine.handle(served(group, is_aggregated));
        observe_marks(&mut engine, "plain", 1, None);
        observe_marks(&mut engine, "a", 2, expired());
        let effect = engine.poll_effect().unwrap();
        assert_eq!(is_deleted(&effect), expected, "{group} {is_aggregated}");
        if !expected {
            let Request::RecordEvent(note) = &effect.request else { panic!("{effect:?}") };
            assert_eq!((&note.about, note.reason), (&key("a"), INVALID_ANNOTATION));
            assert!(note.message.ends_with(&format!("--expiry-aggregated-groups={group} makes them count")));
            engine.handle(Event::Done(effect.id, Outcome::Applied(None)));
            observe_marks(&mut engine, "a", 3, expired());
        }
        engine.handle(Event::Tick(at(1_000_000)));
        assert_eq!(engine.poll_effect(), None, "{group} {is_aggregated}: it is reported once");
    }
    // Discovery reports later which server serves it; objects that were observed before count from then on.
    let mut engine = self::engine();
    engine.handle(served("aggregated.example.com", true));
    observe_marks(&mut engine, "a", 2, expired());
    let note = engine.poll_effect().unwrap();
    engine.handle(Event::Done(note.id, Outcome::Applied(None)));
    assert_eq!(engine.poll_effect(), None);
    engine.handle(served("aggregated.example.com", false));
    assert!(is_deleted(&engine.poll_effect().unwrap()));
    // The reverse case, before its time has come.
    let mut engine = self::engine();
    engine.handle(served("aggregated.example.com", false));
    observe_marks(&mut engine, "a", 2, Some(marks(Some("1h"), None, None)));
    assert_eq!(engine.poll_effect(), None);
    engine.handle(served("aggregated.example.com", true));
    engine.handle(Event::Tick(at(7200)));
    assert_eq!(engine.poll_effect(), None);
}

/// Objects without annotations cost no memory and no decision.
#[test]
fn objects_without_annotations_are_ignored() {
    let mut engine = engine();
    for number in 0..10_000_u64 {
        observe_marks(&mut engine, &format!("o{number}"), number + 1, None);
    }
    observe_marks(&mut engine, "a", 20_000, Some(marks(Some("1h"), None, None)));
    assert_eq!(engine.poll_effect(), None);
    let (counts, expiry) = engine.counts();
    assert_eq!((counts.decisions, expiry.annotated), (1, 1));
}

fn read(kind: Kind, annotations: &Value, status: &Value) -> Facts {
    let object = json!({
        "metadata": {"namespace": "shop", "name": "a", "uid": "u", "resourceVersion": "5",
            "creationTimestamp": time_text(at(-7200)), "annotations": annotations},
        "status": status,
    });
    Facts::read(kind, object.to_string().as_bytes()).unwrap()
}

/// The time to live of a Job or Pod begins when it has finished; an absolute time does not wait for that.
#[test]
fn jobs_and_pods_live_on_after_they_finished() {
    let ttl = json!({"kubegc.io/ttl": "1h", "unrelated": "x"});
    let expires = json!({"kubegc.io/expires-at": time_text(at(60))});
    let complete = |seconds: i64| json!({"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": time_text(at(seconds))}]});
    let ended = |seconds: i64| {
        json!({"phase": "Succeeded", "containerStatuses": [
            {"state": {"terminated": {"finishedAt": time_text(at(seconds - 9))}}},
            {"state": {"terminated": {"finishedAt": time_text(at(seconds))}}},
        ]})
    };
    let wakes = |seconds: i64| (false, Some(at(seconds)));
    let due = (true, None);
    let stays = (false, None);
    for (kind, annotations, status, expected) in [
        (Kind::Job, &ttl, json!({}), stays),
        (Kind::Job, &ttl, complete(-60), wakes(3540)),
        (Kind::Job, &ttl, complete(-3600), due),
        (Kind::Job, &expires, json!({}), wakes(60)),
        (Kind::Job, &json!({}), complete(-9000), stays),
        (Kind::Pod, &ttl, json!({"phase": "Running"}), stays),
        (Kind::Pod, &ttl, ended(-60), wakes(3540)),
        (Kind::Pod, &ttl, ended(-3601), due),
        // The time is unknown, but was at least two hours ago.
        (Kind::Pod, &ttl, json!({"phase": "Failed"}), due),
        (Kind::Pod, &expires, json!({"phase": "Running"}), wakes(60)),
        (Kind::Pod, &json!({"kubegc.io/ttl": "1s", "kubegc.io/keep": "true"}), ended(-9000), stays),
    ] {
        let mut engine = Engine::new(FinishedExpiry::default());
        engine.tick(at(0));
        for listed in [Kind::Pod, Kind::Job] {
            engine.observe(Observation::ListStarted(listed));
            if listed == kind {
                engine.observe(Observation::Observed(read(kind, annotations, &status)));
            }
            engine.observe(Observation::Synced(listed));
        }
        let effect = engine.poll_effect();
        let seen = (effect.is_some(), engine.next_wakeup());
        assert_eq!(seen, expected, "{kind:?} {annotations} {status}");
        if let Some(Effect { request: Request::Delete { policy, .. }, .. }) = effect {
            let foreground = policy == PropagationPolicy::Foreground;
            assert_eq!(foreground, kind == Kind::Job, "a Job is deleted after its pods");
        }
    }
}

/// A Pod stays if its annotations are removed in time.
#[test]
fn a_pod_whose_annotations_are_taken_off_stays() {
    let finished = json!({"phase": "Succeeded", "containerStatuses": [
        {"state": {"terminated": {"finishedAt": time_text(at(0))}}},
    ]});
    let ttl = json!({"kubegc.io/ttl": "60s"});
    for (annotations, is_deleted) in [(&ttl, true), (&Value::Null, false)] {
        let mut engine = Engine::new(FinishedExpiry::default());
        engine.tick(at(0));
        for kind in [Kind::Pod, Kind::Job] {
            engine.observe(Observation::ListStarted(kind));
            engine.observe(Observation::Synced(kind));
        }
        engine.observe(Observation::Observed(read(Kind::Pod, &ttl, &finished)));
        assert_eq!(engine.poll_effect(), None);
        engine.observe(Observation::Observed(read(Kind::Pod, annotations, &finished)));
        engine.tick(at(60));
        assert_eq!(engine.poll_effect().is_some(), is_deleted, "{annotations}");
    }
}

/// An invalid annotation of a Job or a Pod is reported as well.
#[test]
fn a_bad_annotation_of_a_job_is_reported() {
    let mut engine = Engine::new(FinishedExpiry::default());
    engine.tick(at(0));
    for kind in [Kind::Pod, Kind::Job] {
        engine.observe(Observation::ListStarted(kind));
        if kind == Kind::Job {
            let complete = json!({"conditions": [{"type": "Complete", "status": "True",
                "lastTransitionTime": time_text(at(-9000))}]});
            engine.observe(Observation::Observed(read(kind, &json!({"kubegc.io/ttl": "x"}), &complete)));
        }
        engine.observe(Observation::Synced(kind));
    }
    let effect = engine.poll_effect().unwrap();
    let Request::RecordEvent(note) = &effect.request else { panic!("{effect:?}") };
    assert_eq!((note.reason, note.about.resource), (INVALID_ANNOTATION, Kind::Job.resource()));
    engine.finish(effect.id, &Outcome::Applied(None));
    assert_eq!(engine.poll_effect(), None);
}

/// `kubegc.io/keep` stops every collector until it is removed.
#[test]
fn what_is_kept_is_deleted_by_no_collector() {
    let job = |keep: Value| {
        let object = json!({
            "metadata": {"namespace": "shop", "name": "a", "uid": "u", "resourceVersion": "5",
                "annotations": {"kubegc.io/keep": keep}},
            "spec": {"ttlSecondsAfterFinished": 0},
            "status": {"conditions": [{"type": "Complete", "status": "True",
                "lastTransitionTime": time_text(at(-60))}]},
        });
        Observation::Observed(Facts::read(Kind::Job, object.to_string().as_bytes()).unwrap())
    };
    let mut engine = Engine::new(crate::jobs::JobCollector::default());
    engine.tick(at(0));
    engine.observe(Observation::ListStarted(Kind::Job));
    engine.observe(job("true".into()));
    engine.observe(Observation::Synced(Kind::Job));
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.counts().kept, 1);
    engine.observe(job(Value::Null));
    assert!(engine.poll_effect().is_some());
}

proptest! {
    /// No annotation causes a panic, or a deletion before the time that it names.
    #[test]
    fn no_annotation_panics(text in "\\PC{0,30}", expires in "\\PC{0,30}", keep in "\\PC{0,8}") {
        let said = expiry(&marks(Some(&text), Some(&expires), Some(&keep)), Some(at(0)), &[]);
        if !matches!(&*keep, "true" | "false") {
            prop_assert!(!matches!(said, Ok(Some(_))));
        }
    }
}

#[test]
fn annotations_of_other_tools_count_if_they_are_named() {
    let old = || {
        let mut marks = Marks { created: Some(at(-7200)), ..Marks::default() };
        marks.foreign[gc_types::ForeignMark::JanitorTtl as usize] = Some("1h".into());
        marks
    };
    for (tools, is_deleted) in
        [(&[][..], false), (&[ForeignTool::Kyverno], false), (&[ForeignTool::KubeJanitor], true)]
    {
        let mut engine = engine().with_foreign(tools);
        observe_marks(&mut engine, "a", 1, Some(old()));
        assert_eq!(engine.poll_effect().is_some(), is_deleted, "{tools:?}");
        let mut engine = Engine::new(FinishedExpiry::default().with_foreign(tools));
        engine.tick(at(0));
        for kind in [Kind::Pod, Kind::Job] {
            engine.observe(Observation::ListStarted(kind));
            engine.observe(Observation::Synced(kind));
        }
        engine.observe(Observation::Observed(read(Kind::Pod, &json!({"janitor/ttl": "1h"}), &json!({}))));
        assert_eq!(engine.poll_effect().is_some(), is_deleted, "{tools:?}");
    }
}

/// A withheld deletion is requested again when its resource is released, and not before.
#[test]
fn what_is_withheld_waits_for_its_release() {
    let mut engine = engine();
    observe_marks(&mut engine, "a", 1, Some(marks(Some("0"), None, None)));
    let first = engine.poll_effect().unwrap();
    engine.handle(Event::Done(first.id, Outcome::Withheld(gc_types::WithheldBy::DryRun)));
    for event in [Event::Tick(at(1_000_000)), Event::Released(Some(ResourceId(8)))] {
        engine.handle(event);
        assert_eq!((engine.poll_effect(), engine.counts().0.errors), (None, 0));
    }
    engine.handle(Event::Released(Some(CONFIG_MAPS)));
    assert_eq!(engine.poll_effect().map(|effect| effect.request), Some(first.request));
}

/// A time in an annotation is by the clock that all share, whatever this one showed before.
#[test]
fn what_expires_follows_the_clock_that_is_set() {
    let mut engine = engine();
    observe_marks(&mut engine, "a", 1, Some(marks(Some("1h"), None, None)));
    assert_eq!(engine.poll_effect(), None);
    engine.set_clock(at(-60));
    assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, Some(at(3600))));
    engine.set_clock(at(3600));
    assert!(engine.poll_effect().is_some());
}

/// Each Event is an effect of its own; beyond a bound, no more are kept for the server.
#[test]
fn events_about_bad_annotations_are_numbered_and_bounded() {
    let mut engine = engine();
    let bad = WAITING_EVENTS + 2;
    for number in 0..bad {
        observe_marks(&mut engine, &format!("o{number}"), 1, Some(marks(Some("soon"), None, None)));
    }
    let numbers: Vec<u64> = std::iter::from_fn(|| engine.poll_effect()).map(|effect| effect.id.0).collect();
    let expected: Vec<u64> = (FIRST_EVENT..).take(WAITING_EVENTS).collect();
    assert_eq!(numbers, expected);
    let bad = bad as u64;
    assert_eq!(engine.counts().1, ExpiryCounts { annotated: bad, invalid: bad, invalid_seen: bad });
}
