#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::engine::Engine;
use gc_types::Uid;
use serde_json::Value;

const PERIOD: i64 = CLEAN_UP_PERIOD_MILLISECONDS;
const NAMESPACE: &str = "shop";

/// Noon, so that no test crosses the boundary of a day.
fn now() -> Timestamp {
    Timestamp("2026-06-15T12:00:00Z".parse::<jiff::Timestamp>().unwrap().as_millisecond())
}

fn day(days_ago: i64) -> String {
    Day(Day::of(now()).0 - days_ago).text()
}

/// Returns a token that was created two periods ago, with these changes.
fn secret(changes: &Value) -> TokenSecret {
    let mut object = json!({"metadata": {"namespace": NAMESPACE, "name": "t", "uid": "u", "resourceVersion": "5",
        "creationTimestamp": format!("{}T12:00:00Z", day(730)),
        "annotations": {"kubernetes.io/service-account.name": "builder",
            "kubernetes.io/service-account.uid": "a"}}});
    for (pointer, value) in changes.as_object().unwrap() {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object["metadata"].pointer_mut(parent).unwrap()[field] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn account(uid: &str, secrets: &[&str]) -> ServiceAccount {
    let secrets: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
    serde_json::from_value(json!({"metadata": {"namespace": NAMESPACE, "name": "builder", "uid": uid},
        "secrets": secrets}))
    .unwrap()
}

fn used(days_ago: i64) -> Value {
    json!({"/labels": {"kubernetes.io/legacy-token-last-used": day(days_ago)}})
}

fn invalid(days_ago: i64) -> Value {
    json!({"/labels": {INVALID_SINCE_LABEL: day(days_ago)}})
}

fn noon(days: i64) -> Timestamp {
    now().after(days * DAY_MILLISECONDS)
}

/// Returns the beginning of a day.
fn midnight(days: i64) -> Timestamp {
    Timestamp(noon(days).0 - DAY_MILLISECONDS / 2)
}

#[test]
fn the_scenarios_of_stages() {
    use Stage::{Delete, Invalidate, Keep, Later};
    let long = Day::parse(&day(800));
    let ours = || Some(account("a", &["other", "t"]));
    let plain = json!({});
    let both =
        json!({"/labels": {"kubernetes.io/legacy-token-last-used": day(500), INVALID_SINCE_LABEL: day(366)}});
    let named = |field: &str, value: &str| {
        let mut annotations = json!({"kubernetes.io/service-account.name": "builder",
            "kubernetes.io/service-account.uid": "a"});
        annotations[field] = value.into();
        json!({"/annotations": annotations})
    };
    for (scenario, changes, account, tracked, expected) in [
        ("SAT-T01: no day can be read", plain.clone(), ours(), None, Keep),
        // The whole day counts as tracked, so a period from its end must have passed.
        ("SAT-T02", plain.clone(), ours(), Day::parse(&day(364)), Later(midnight(2))),
        ("SAT-T02: on the last day", plain.clone(), ours(), Day::parse(&day(365)), Later(midnight(1))),
        ("SAT-T04", plain.clone(), Some(account("a", &["other"])), long, Keep),
        (
            "SAT-T05",
            json!({"/creationTimestamp": format!("{}T12:00:00Z", day(364))}),
            ours(),
            long,
            Later(noon(1).after(1)),
        ),
        (
            "SAT-T05: at the cut",
            json!({"/creationTimestamp": format!("{}T12:00:00Z", day(365))}),
            ours(),
            long,
            Later(now().after(1)),
        ),
        ("SAT-T06", json!({"/deletionTimestamp": format!("{}T12:00:00Z", day(0))}), ours(), long, Keep),
        ("SAT-T07: last used after the cut", used(100), ours(), long, Later(midnight(266))),
        ("SAT-T07: on the day of the cut", used(365), ours(), long, Later(midnight(1))),
        (
            "SAT-T07: unparsable",
            json!({"/labels": {"kubernetes.io/legacy-token-last-used": "yesterday"}}),
            ours(),
            long,
            Keep,
        ),
        ("SAT-T08: ServiceAccount missing", plain.clone(), None, long, Keep),
        ("SAT-T08: UID mismatch", plain.clone(), Some(account("b", &["t"])), long, Keep),
        ("no UID is given", named("kubernetes.io/service-account.uid", ""), ours(), long, Invalidate),
        ("SAT-T09", plain.clone(), ours(), long, Invalidate),
        ("SAT-T10", json!({"/labels": {INVALID_SINCE_LABEL: "soon"}}), ours(), long, Invalidate),
        ("SAT-T10: emptied", json!({"/labels": {INVALID_SINCE_LABEL: ""}}), ours(), long, Invalidate),
        ("SAT-T11", invalid(300), ours(), long, Later(midnight(66))),
        ("SAT-T11: on the day of the cut", invalid(365), ours(), long, Later(midnight(1))),
        ("SAT-T12", invalid(366), ours(), long, Delete),
        ("SAT-T12: with an old last use", both, ours(), long, Delete),
        ("SAT-T14", used(366), ours(), long, Invalidate),
        ("BEAT-SAT-1: kept by annotation", named("kubegc.io/keep", "true"), ours(), long, Keep),
    ] {
        assert_eq!(
            stage(&secret(&changes), account.as_ref(), tracked, PERIOD, now()),
            expected,
            "{scenario}"
        );
    }
}

/// SAT-T13: a pod may use a Secret in any of these ways.
#[test]
fn every_use_of_a_secret_by_a_pod_is_seen() {
    let volume = |source: Value| json!({"volumes": [source]});
    let reference = |kind: &str| volume(json!({kind: {"secretRef": {"name": "s"}}}));
    let env = json!([{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}]);
    let env_from = json!([{"envFrom": [{"secretRef": {"name": "s"}}]}]);
    for spec in [
        json!({"imagePullSecrets": [{"name": "s"}]}),
        json!({"containers": env}),
        json!({"containers": env_from}),
        json!({"initContainers": env}),
        json!({"ephemeralContainers": env_from}),
        volume(json!({"secret": {"secretName": "s"}})),
        volume(json!({"azureFile": {"secretName": "s"}})),
        volume(json!({"projected": {"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}]}})),
        volume(json!({"csi": {"nodePublishSecretRef": {"name": "s"}}})),
        reference("cephfs"),
        reference("cinder"),
        reference("flexVolume"),
        reference("iscsi"),
        reference("rbd"),
        reference("scaleIO"),
        reference("storageos"),
    ] {
        let pod: SecretUser =
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec.clone()})).unwrap();
        assert_eq!(pod.secrets, BTreeSet::from(["s".into()]), "{spec}");
    }
    let without = json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"env": [{"name": "A", "value": "s"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "s"}}}]}],
        "volumes": [{"configMap": {"name": "s"}}, {"emptyDir": {}}]}});
    assert_eq!(serde_json::from_value::<SecretUser>(without).unwrap().secrets, BTreeSet::new());
}

#[test]
fn days_are_read_strictly() {
    for (text, expected) in [
        ("1970-01-02", Some(Day(1))),
        ("2026-06-15", Some(Day::of(now()))),
        ("2026-6-15", None),
        ("2026-06-31", None),
        ("2026-06-15T00:00:00Z", None),
        ("", None),
    ] {
        assert_eq!(Day::parse(text), expected, "{text}");
        assert!(expected.is_none_or(|day| day.text() == text));
    }
}

type TokenEngine = Engine<TokenCollector>;

fn engine(secrets: &[TokenSecret]) -> TokenEngine {
    let mut engine = Engine::new(TokenCollector::new(PERIOD));
    engine.tick(now());
    let tracking = serde_json::from_value(json!({"metadata": {}, "data": {"since": day(800)}})).unwrap();
    let secrets = secrets.iter().cloned().map(Facts::TokenSecret).collect();
    let names = ["t", "t2"];
    for (kind, facts) in [
        (Kind::TokenSecret, secrets),
        (Kind::ServiceAccount, vec![Facts::ServiceAccount(account("a", &names))]),
        (Kind::TokenTracking, vec![Facts::TokenTracking(tracking)]),
    ] {
        engine.observe(Observation::ListStarted(kind));
        for facts in facts {
            engine.observe(Observation::Observed(facts));
        }
        engine.observe(Observation::Synced(kind));
    }
    engine
}

/// Answers the two lists of pods that the engine requests; no pod uses anything.
fn lists(engine: &mut TokenEngine) {
    list(engine, &[]);
    list(engine, &[]);
}

/// Answers the list of pods that the engine requests; `pods` use these Secrets.
fn list(engine: &mut TokenEngine, pods: &[&str]) {
    let effect = engine.poll_effect().unwrap();
    let Request::Barrier { resource, namespace, .. } = &effect.request else { panic!("{effect:?}") };
    assert_eq!((*resource, namespace.as_deref()), (Kind::SecretUser.resource(), Some(NAMESPACE)));
    for name in pods {
        let pod = serde_json::from_value(json!({"metadata": {"namespace": NAMESPACE, "name": "p"},
            "spec": {"volumes": [{"secret": {"secretName": name}}]}}))
        .unwrap();
        engine.observe(Observation::Found(Facts::SecretUser(pod)));
    }
    engine.finish(effect.id, &Outcome::Applied(None));
}

/// SAT-T09, SAT-T12 and SAT-T15 except for the API server's part: label, a period, deletion, the first and last after two lists of
/// the pods.
#[test]
fn a_token_is_removed_in_two_stages() {
    let mut engine = engine(&[secret(&json!({}))]);
    lists(&mut engine);
    let effect = engine.poll_effect().unwrap();
    let labels = json!({"metadata": {"labels": {INVALID_SINCE_LABEL: day(0)}}}).to_string();
    let expected = Request::Guarded {
        key: Kind::TokenSecret.key(&NAMESPACE.into(), &"t".into()),
        uid: Uid::new("u"),
        resource_version: ResourceVersion(5),
        change: Change::Merge(labels.into()),
    };
    assert_eq!(effect.request, expected);
    engine.finish(effect.id, &Outcome::Applied(None));
    // BEAT-SAT-3: the ServiceAccount gets an Event.
    let effect = engine.poll_effect().unwrap();
    let Request::RecordEvent(note) = &effect.request else { panic!("{effect:?}") };
    assert_eq!(note.about, Kind::ServiceAccount.key(&NAMESPACE.into(), &"builder".into()));
    assert_eq!((note.severity, note.reason), (Severity::Warning, "LegacyTokenInvalidated"));
    engine.finish(effect.id, &Outcome::Applied(None));
    engine.observe(Observation::Observed(Facts::TokenSecret(secret(&invalid(0)))));
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.next_wakeup(), Some(midnight(1).after(PERIOD)));

    engine.tick(midnight(1).after(PERIOD));
    lists(&mut engine);
    let effect = engine.poll_effect().unwrap();
    let Request::RecordEvent(note) = &effect.request else { panic!("{effect:?}") };
    assert_eq!((note.severity, note.reason), (Severity::Normal, "DeletingLegacyToken"));
    let effect = engine.poll_effect().unwrap();
    let Request::Delete { uid, resource_version, .. } = &effect.request else { panic!("{effect:?}") };
    assert_eq!((uid.clone(), *resource_version), (Uid::new("u"), Some(ResourceVersion(5))));
    // SAT-T16: the token has changed, and is decided again; a use saves it for another period.
    engine.finish(effect.id, &Outcome::Conflict);
    assert_eq!(engine.counts().errors, 0);
    let mut saved = secret(&invalid(0));
    saved.last_used = DayLabel::Day(Day::of(midnight(1).after(PERIOD)));
    engine.observe(Observation::Observed(Facts::TokenSecret(saved)));
    engine.tick(midnight(1).after(PERIOD + 1000));
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.next_wakeup(), Some(midnight(2).after(2 * PERIOD)));
}

/// SAT-T13
#[test]
fn what_a_pod_mounts_is_left_alone_and_one_list_answers_for_all() {
    let mut second = secret(&json!({}));
    second.meta.name = "t2".into();
    let mut engine = engine(&[secret(&json!({})), second]);
    list(&mut engine, &["t", "other"]);
    list(&mut engine, &[]);
    let effect = engine.poll_effect().unwrap();
    let Request::Guarded { key, .. } = &effect.request else { panic!("{effect:?}") };
    assert_eq!(&*key.name, "t2");
    engine.finish(effect.id, &Outcome::Conflict);
    assert_eq!(engine.poll_effect(), None);
    // The use is checked again a day later.
    engine.observe(Observation::Removed(Kind::TokenSecret.key(&NAMESPACE.into(), &"t2".into())));
    assert_eq!(engine.next_wakeup(), Some(noon(1)));
}

/// A list that shows no user is followed by another one, and by nothing else if that shows one or fails.
#[test]
fn one_list_without_a_user_proves_nothing() {
    for changes in [json!({}), invalid(366)] {
        let mut engine = engine(&[secret(&changes)]);
        list(&mut engine, &[]);
        list(&mut engine, &["t"]);
        assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, Some(noon(1))), "{changes}");
        engine.tick(noon(1));
        list(&mut engine, &[]);
        let second = engine.poll_effect().unwrap();
        let failed = Outcome::Failed { message: "away".into(), retry_after_milliseconds: None };
        engine.finish(second.id, &failed);
        engine.tick(noon(1).after(1000));
        list(&mut engine, &[]);
        list(&mut engine, &["t"]);
        assert_eq!(engine.poll_effect(), None, "{changes}");
    }
}

#[test]
fn nothing_happens_without_a_list_of_the_pods_or_a_tracked_day() {
    let mut engine = engine(&[secret(&json!({}))]);
    let effect = engine.poll_effect().unwrap();
    engine.finish(effect.id, &Outcome::Failed { message: "away".into(), retry_after_milliseconds: None });
    engine.tick(now().after(1000));
    let again = engine.poll_effect().unwrap();
    assert!(matches!(again.request, Request::Barrier { .. }), "{again:?}");
    // SAT-T01: the ConfigMap is gone by then.
    engine.observe(Observation::Removed(Kind::TokenTracking.key(&"kube-system".into(), &"c".into())));
    engine.finish(again.id, &Outcome::Applied(None));
    assert_eq!((engine.poll_effect(), engine.next_wakeup()), (None, None));
}

/// While the pods of a namespace are listed, all its tokens wait for that list.
#[test]
fn tokens_of_a_namespace_wait_for_one_list() {
    let mut second = secret(&json!({}));
    second.meta.name = "t2".into();
    let mut engine = engine(&[secret(&json!({})), second]);
    for _ in 0..2 {
        let list = engine.poll_effect().unwrap();
        assert!(matches!(list.request, Request::Barrier { .. }), "{list:?}");
        assert_eq!(engine.poll_effect(), None);
        engine.finish(list.id, &Outcome::Applied(None));
    }
    let changed: Vec<_> = std::iter::from_fn(|| engine.poll_effect()).map(|effect| effect.request).collect();
    assert!(
        changed.len() == 2 && changed.iter().all(|request| matches!(request, Request::Guarded { .. })),
        "{changed:?}"
    );
}

/// Two lists agree only if the second follows soon.
#[test]
fn a_list_that_is_too_old_is_the_first_no_longer() {
    for (milliseconds, lists) in [(LIST_MILLISECONDS, 1), (LIST_MILLISECONDS + 1, 2)] {
        let mut engine = engine(&[secret(&json!({}))]);
        list(&mut engine, &[]);
        engine.tick(now().after(milliseconds));
        for _ in 0..lists {
            list(&mut engine, &[]);
        }
        let effect = engine.poll_effect().unwrap();
        assert!(matches!(effect.request, Request::Guarded { .. }), "after {milliseconds} ms: {effect:?}");
    }
}
