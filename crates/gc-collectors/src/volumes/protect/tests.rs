#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::engine::Engine;
use crate::engine::Observation;
use crate::objects::{Claim, Facts, Pod, Volume};
use gc_types::{EffectId, Outcome, Request, ResourceVersion, Timestamp};
use serde_json::{Value, json};

fn metadata(namespace: &str, name: &str, deleting: bool, finalizers: &[&str]) -> Value {
    json!({
        "namespace": namespace, "name": name, "uid": format!("u-{name}"), "resourceVersion": "5",
        "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z"), "finalizers": finalizers,
    })
}

fn claim(
    namespace: &str,
    name: &str,
    deleting: bool,
    finalizers: &[&str],
    controller: Option<&str>,
) -> Claim {
    let mut metadata = metadata(namespace, name, deleting, finalizers);
    if let Some(uid) = controller {
        metadata["ownerReferences"] = json!([{"uid": uid, "controller": true}]);
    }
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

fn held(name: &str) -> Claim {
    claim("shop", name, true, &[CLAIM_FINALIZER], None)
}

fn pod(name: &str, uid: &str, node: &str, phase: &str, volumes: &Value, deleting: Option<i64>) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": name, "uid": uid, "resourceVersion": "9",
            "deletionTimestamp": deleting.map(|_| "2026-01-01T00:00:00Z"), "deletionGracePeriodSeconds": deleting},
        "spec": {"nodeName": node, "volumes": volumes},
        "status": {"phase": phase},
    }))
    .unwrap()
}

fn direct(claim: &str) -> Value {
    json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])
}

#[test]
fn what_uses_a_claim() {
    let ephemeral = json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]);
    let own = claim("shop", "p-v", true, &[CLAIM_FINALIZER], Some("u"));
    let foreign = claim("shop", "p-v", true, &[CLAIM_FINALIZER], Some("other"));
    let plain = held("data");
    for (scenario, claim, pod, expected) in [
        ("PVC-T07", &plain, pod("p", "u", "n", "Running", &direct("data"), None), true),
        ("PVC-T08", &plain, pod("p", "u", "n", "Running", &direct("other"), None), false),
        (
            "PVC-T08",
            &plain,
            pod("p", "u", "n", "Running", &json!([{"name": "v", "emptyDir": {}}]), None),
            false,
        ),
        ("PVC-T09", &plain, pod("p", "u", "n", "Succeeded", &direct("data"), None), true),
        ("PVC-T09", &plain, pod("p", "u", "n", "Failed", &direct("data"), None), true),
        ("PVC-T14", &plain, pod("p", "u", "", "Pending", &direct("data"), None), false),
        ("PVC-T20", &own, pod("p", "u", "n", "Running", &ephemeral, Some(0)), false),
        ("PVC-T20", &own, pod("p", "u", "n", "Running", &ephemeral, Some(30)), true),
        ("PVC-T21", &plain, pod("p", "u", "n", "Running", &direct("data"), Some(0)), true),
        ("PVC-T22", &foreign, pod("p", "u", "n", "Running", &ephemeral, None), false),
        ("an ephemeral one by its pod", &own, pod("p", "u", "n", "Running", &ephemeral, None), true),
    ] {
        assert_eq!(in_use(claim, &pod), expected, "{scenario}");
    }
}

fn engine(claims: Vec<Claim>, pods: Vec<Pod>) -> Engine<ClaimProtection> {
    engine_of(ClaimProtection::default(), claims, pods)
}

fn engine_of(protection: ClaimProtection, claims: Vec<Claim>, pods: Vec<Pod>) -> Engine<ClaimProtection> {
    let mut engine = Engine::new(protection);
    engine.tick(Timestamp(0));
    engine.observe(Observation::ListStarted(Kind::Claim));
    for claim in claims {
        engine.observe(Observation::Observed(Facts::Claim(claim)));
    }
    engine.observe(Observation::Synced(Kind::Claim));
    engine.observe(Observation::ListStarted(Kind::Pod));
    for pod in pods {
        engine.observe(Observation::Observed(Facts::Pod(pod)));
    }
    engine.observe(Observation::Synced(Kind::Pod));
    engine
}

fn show(request: &Request) -> String {
    match request {
        Request::Barrier { namespace, .. } => format!("list {}", namespace.as_deref().unwrap_or("*")),
        Request::Guarded {
            key,
            resource_version: ResourceVersion(5),
            change: Change::Finalizers(left),
            ..
        } => {
            format!("{}/{} {left:?}", key.namespace, key.name)
        }
        Request::Guarded {
            key,
            resource_version: ResourceVersion(5),
            change: Change::Status(status),
            ..
        } => {
            let status: Value = serde_json::from_str(status).unwrap();
            let condition = &status["conditions"][0];
            let part = |name: &str| condition[name].as_str().unwrap().to_owned();
            let (kind, state, since) = (part("type"), part("status"), part("lastTransitionTime"));
            format!("{}/{} {kind}={state} {} since {since}", key.namespace, key.name, part("reason"))
        }
        other => format!("{other:?}"),
    }
}

fn next(engine: &mut Engine<ClaimProtection>) -> Option<(EffectId, String)> {
    engine.poll_effect().map(|effect| (effect.id, show(&effect.request)))
}

/// Returns all requests, answering each as applied.
fn settle(engine: &mut Engine<ClaimProtection>) -> Vec<String> {
    let mut shown = Vec::new();
    while let Some((id, text)) = next(engine) {
        shown.push(text);
        engine.finish(id, &Outcome::Applied(None));
    }
    shown
}

#[test]
fn finalizers_are_put_where_they_are_missing_and_taken_where_nothing_uses_the_claim() {
    let elsewhere = |deleting, finalizers: &[&str]| claim("other", "b", deleting, finalizers, None);
    for (scenario, claims, pods, expected) in [
        (
            "PVC-T01",
            vec![claim("shop", "a", false, &["x/y"], None), elsewhere(false, &[])],
            vec![],
            &[
                r#"other/b ["kubernetes.io/pvc-protection"]"#,
                r#"shop/a ["x/y", "kubernetes.io/pvc-protection"]"#,
            ][..],
        ),
        ("PVC-T02", vec![claim("shop", "a", false, &[CLAIM_FINALIZER], None)], vec![], &[]),
        (
            "PVC-T04",
            vec![
                claim("shop", "a", true, &["x/y", CLAIM_FINALIZER], None),
                elsewhere(true, &[CLAIM_FINALIZER]),
            ],
            vec![],
            &["list other", "other/b []", "list shop", r#"shop/a ["x/y"]"#],
        ),
        ("PVC-T07", vec![held("a")], vec![pod("p", "u", "n", "Running", &direct("a"), None)], &[]),
        (
            "PVC-T11",
            vec![held("a"), held("b")],
            vec![pod("p", "u", "n", "Running", &direct("a"), None)],
            &["list shop", "shop/b []"],
        ),
        ("being deleted without it", vec![claim("shop", "a", true, &["x/y"], None)], vec![], &[]),
    ] {
        assert_eq!(settle(&mut engine(claims, pods)), expected, "{scenario}");
    }
}

/// PVC-T12 to PVC-T19: the effect of changes of pods.
#[test]
fn the_scenarios_of_changing_pods() {
    let running = |uid: &str, node: &str, claim: &str| pod("p", uid, node, "Running", &direct(claim), None);
    let released = &["list shop", "shop/a []"][..];
    let living = claim("shop", "a", false, &[CLAIM_FINALIZER], None);
    let finished = pod("p", "u", "n", "Succeeded", &direct("a"), None);
    for (scenario, claim, before, after, expected) in [
        ("PVC-T12", held("a"), running("u", "n", "a"), Some(running("u", "n", "a")), &[][..]),
        ("PVC-T13", held("a"), running("u", "n", "a"), Some(finished), &[]),
        ("PVC-T15", held("a"), running("u", "n", "a"), None, released),
        ("PVC-T16", held("a"), running("u", "n", "a"), Some(running("v", "n", "b")), released),
        ("PVC-T17", living, running("u", "n", "a"), Some(running("v", "n", "b")), &[]),
        ("PVC-T18", held("a"), running("u", "n", "a"), Some(running("v", "n", "a")), &[]),
    ] {
        let mut engine = engine(vec![claim], vec![before]);
        assert_eq!(settle(&mut engine), [] as [&str; 0], "{scenario}");
        engine.observe(match after {
            Some(pod) => Observation::Observed(Facts::Pod(pod)),
            None => Observation::Removed(Kind::Pod.key(&"shop".into(), &"p".into())),
        });
        assert_eq!(settle(&mut engine), expected, "{scenario}");
    }
}

/// PVC-T19: the pod is scheduled between the list and the removal.
#[test]
fn a_pod_that_gets_a_node_meanwhile_keeps_the_claim() {
    let mut engine = engine(vec![held("a")], vec![pod("p", "u", "", "Pending", &direct("a"), None)]);
    let (list, _) = next(&mut engine).unwrap();
    engine.observe(Observation::Observed(Facts::Pod(pod("p", "u", "n", "Pending", &direct("a"), None))));
    engine.finish(list, &Outcome::Applied(None));
    assert_eq!(next(&mut engine), None);
}

/// PVC-T10: the watch lags, but the live list has the pod.
#[test]
fn a_pod_that_only_the_live_list_has_keeps_the_claim() {
    let mut engine = engine(vec![held("a"), held("b")], vec![]);
    let (list, _) = next(&mut engine).unwrap();
    // The second claim waits for a list that begins after it was decided.
    assert_eq!(next(&mut engine), None);
    let user = pod("p", "u", "n", "Running", &direct("a"), None);
    engine.observe(Observation::Found(Facts::Pod(user.clone())));
    engine.finish(list, &Outcome::Applied(None));
    assert_eq!(next(&mut engine), None);
    engine.observe(Observation::Observed(Facts::Pod(user)));
    engine.tick(Timestamp(LIST_AGAIN_MILLISECONDS));
    assert_eq!(settle(&mut engine), ["list shop", "shop/b []"]);
    engine.observe(Observation::Removed(Kind::Pod.key(&"shop".into(), &"p".into())));
    assert_eq!(settle(&mut engine), ["list shop", "shop/a []"]);
}

/// A backup was restored, and the same claim is deleted again while a pod uses it: earlier live lists, and those still in flight,
/// do not apply.
#[test]
fn after_a_new_list_of_claims_pods_are_listed_again() {
    let relist = |engine: &mut Engine<ClaimProtection>| {
        engine.observe(Observation::ListStarted(Kind::Claim));
        engine.observe(Observation::Observed(Facts::Claim(held("a"))));
        engine.observe(Observation::Synced(Kind::Claim));
    };
    let mut engine = engine(vec![held("a")], vec![]);
    let (list, _) = next(&mut engine).unwrap();
    relist(&mut engine);
    engine.finish(list, &Outcome::Applied(None));
    assert_eq!(settle(&mut engine), ["list shop", "shop/a []"]);
    relist(&mut engine);
    let (list, text) = next(&mut engine).unwrap();
    assert_eq!(text, "list shop");
    let user = pod("p", "u", "n", "Running", &direct("a"), None);
    engine.observe(Observation::Found(Facts::Pod(user)));
    engine.finish(list, &Outcome::Applied(None));
    assert_eq!(next(&mut engine), None);
}

/// PVC-T03, PVC-T05, PVC-T06: failures are retried, and delay no others.
#[test]
fn what_fails_is_repeated() {
    let mut engine = engine(vec![held("a"), claim("other", "b", true, &[CLAIM_FINALIZER], None)], vec![]);
    let failed = Outcome::Failed { message: String::new(), retry_after_milliseconds: None };
    let (list, text) = next(&mut engine).unwrap();
    assert_eq!(text, "list other");
    engine.finish(list, &failed);
    let (list, text) = next(&mut engine).unwrap();
    assert_eq!(text, "list shop");
    engine.finish(list, &Outcome::Applied(None));
    let mut now = 0;
    for delay in [5, 10] {
        let (put, text) = next(&mut engine).unwrap();
        assert_eq!(text, "shop/a []");
        engine.finish(put, &failed);
        now += delay;
        engine.tick(Timestamp(now));
    }
    assert_eq!(settle(&mut engine), ["shop/a []"]);
    engine.tick(Timestamp(LIST_AGAIN_MILLISECONDS));
    assert_eq!(settle(&mut engine), ["list other", "other/b []"]);
}

/// Returns a living claim, with this state of the condition `Unused`.
fn living(finalizers: &[&str], unused: Option<&str>) -> Claim {
    let conditions: Vec<Value> =
        unused.iter().map(|state| json!({"type": "Unused", "status": state})).collect();
    let metadata = metadata("shop", "a", false, finalizers);
    serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}})).unwrap()
}

const UNUSED: &str = "shop/a Unused=True NoPodsUsingPVC since 1970-01-01T00:00:00Z";
const USED: &str = "shop/a Unused=False PodUsingPVC since 1970-01-01T00:00:00Z";

#[test]
fn the_condition_says_whether_a_pod_refers_to_the_claim() {
    let with = &[CLAIM_FINALIZER][..];
    let of = |node: &str, phase: &str, deleting| vec![pod("p", "u", node, phase, &direct("a"), deleting)];
    let mut runs = json!({"metadata": {"namespace": "shop", "name": "p", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "n", "volumes": direct("a")},
        "status": {"phase": "Running", "containerStatuses": [{"state": {"terminated": {}}}, {"state": {"running": {}}}]}});
    let running: Pod = serde_json::from_value(runs.clone()).unwrap();
    runs["status"]["containerStatuses"][1]["state"] = json!({"waiting": {}});
    let ended: Pod = serde_json::from_value(runs).unwrap();
    let elsewhere = vec![pod("p", "u", "n", "Running", &direct("b"), None)];
    let asked = &["list shop", UNUSED][..];
    for (scenario, claim, pods, expected) in [
        ("PVC-T23, no pods", living(with, None), vec![], asked),
        ("PVC-T23, running", living(with, None), of("n", "Running", None), &[USED]),
        ("PVC-T23, unscheduled", living(with, None), of("", "Pending", None), &[USED]),
        ("PVC-T23, succeeded", living(with, None), of("n", "Succeeded", None), asked),
        ("PVC-T23, failed", living(with, None), of("n", "Failed", None), asked),
        ("PVC-T23, terminating with a container", living(with, None), vec![running], &[USED]),
        ("PVC-T23, terminating without one", living(with, None), vec![ended], asked),
        ("PVC-T23, another claim's pod", living(with, None), elsewhere, asked),
        ("it was in use", living(with, Some("False")), vec![], asked),
        ("it was not", living(with, Some("True")), of("n", "Running", None), &[USED]),
        ("it still is", living(with, Some("False")), of("n", "Running", None), &[]),
        ("PVC-T24", living(with, Some("True")), vec![], &[]),
        ("PVC-T25", held("a"), vec![], &["list shop", "shop/a []"]),
    ] {
        let mut engine = engine_of(ClaimProtection::new(true), vec![claim], pods);
        assert_eq!(settle(&mut engine), expected, "{scenario}");
    }
    // Without the option, nothing is reported.
    assert_eq!(settle(&mut engine(vec![living(with, None)], vec![])), [] as [&str; 0]);
}

/// PVC-T23 once more: a pod that the watch has not delivered yet; and PVC-T26: the condition comes before the finalizer.
#[test]
fn the_condition_follows_pods_that_come_and_go() {
    let user = || pod("p", "u", "", "Pending", &direct("a"), None);
    let mut engine = engine_of(ClaimProtection::new(true), vec![living(&[], None)], vec![]);
    let (list, text) = next(&mut engine).unwrap();
    assert_eq!(text, "list shop");
    engine.observe(Observation::Found(Facts::Pod(user())));
    engine.finish(list, &Outcome::Applied(None));
    assert_eq!(next(&mut engine), None, "a pod that only the live list has");
    engine.observe(Observation::Observed(Facts::Pod(user())));
    assert_eq!(settle(&mut engine), [USED]);
    // A later one would be the same request: the time is that of the first check.
    engine.tick(Timestamp(LIST_AGAIN_MILLISECONDS));
    assert_eq!(settle(&mut engine), [] as [&str; 0]);
    engine.observe(Observation::Observed(Facts::Claim(living(&[], Some("False")))));
    assert_eq!(settle(&mut engine), [r#"shop/a ["kubernetes.io/pvc-protection"]"#], "PVC-T26");
    engine.observe(Observation::Observed(Facts::Claim(living(&[CLAIM_FINALIZER], Some("False")))));
    engine.observe(Observation::Removed(Kind::Pod.key(&"shop".into(), &"p".into())));
    assert_eq!(
        settle(&mut engine),
        ["list shop", "shop/a Unused=True NoPodsUsingPVC since 1970-01-01T00:00:01Z"]
    );
    engine.observe(Observation::Observed(Facts::Claim(living(&[CLAIM_FINALIZER], Some("True")))));
    assert_eq!(settle(&mut engine), [] as [&str; 0]);
    // The result of one list does not apply once a pod has come and was deleted.
    engine.observe(Observation::Observed(Facts::Pod(user())));
    engine.observe(Observation::Observed(Facts::Claim(living(&[CLAIM_FINALIZER], Some("False")))));
    assert_eq!(settle(&mut engine), [] as [&str; 0]);
    engine.observe(Observation::Removed(Kind::Pod.key(&"shop".into(), &"p".into())));
    assert_eq!(settle(&mut engine)[0], "list shop");
}

/// Even if nothing refers to a living claim, something may block it once it is terminating.
#[test]
fn a_claim_that_was_unused_while_it_lived_is_checked_again_when_it_is_deleted() {
    let mut engine = engine_of(ClaimProtection::new(true), vec![living(&[CLAIM_FINALIZER], None)], vec![]);
    assert_eq!(settle(&mut engine), ["list shop", UNUSED]);
    engine.observe(Observation::Observed(Facts::Claim(held("a"))));
    assert_eq!(settle(&mut engine), ["list shop", "shop/a []"]);
}

fn volume(deleting: bool, finalizers: &[&str], phase: &str) -> Volume {
    let metadata = metadata("", "pv", deleting, finalizers);
    serde_json::from_value(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap()
}

#[test]
fn the_scenarios_of_volume_protection() {
    let with = &[VOLUME_FINALIZER, "x/y"][..];
    for (scenario, volume, expected) in [
        ("PVP-T01", volume(false, &["x/y"], "Available"), Some(&["x/y", VOLUME_FINALIZER][..])),
        ("PVP-T02", volume(false, with, "Bound"), None),
        ("PVP-T04", volume(true, with, "Available"), Some(&["x/y"])),
        ("PVP-T06", volume(true, with, "Bound"), None),
        ("PVP-T07", volume(true, with, "Released"), Some(&["x/y"])),
        ("being deleted without it", volume(true, &["x/y"], "Released"), None),
    ] {
        let left = match volume_verdict(&volume) {
            Decision::Act(Request::Guarded { change: Change::Finalizers(left), .. }, _) => Some(left),
            _ => None,
        };
        let expected =
            expected.map(|names| names.iter().map(|name| Arc::from(*name)).collect::<Vec<Arc<str>>>());
        assert_eq!(left, expected, "{scenario}");
    }
}

#[test]
fn what_fails_of_volume_protection_is_repeated() {
    let failed = Outcome::Failed { message: String::new(), retry_after_milliseconds: None };
    for (scenario, facts) in [
        ("PVP-T03", volume(false, &["x/y"], "Available")),
        ("PVP-T05", volume(true, &[VOLUME_FINALIZER], "Available")),
    ] {
        let mut engine = Engine::new(VolumeProtection::default());
        engine.observe(Observation::ListStarted(Kind::Volume));
        engine.observe(Observation::Observed(Facts::Volume(facts)));
        engine.observe(Observation::Synced(Kind::Volume));
        let mut now = 0;
        for (delay, outcome) in [(5, &failed), (10, &failed), (0, &Outcome::Applied(None))] {
            let put = engine.poll_effect().unwrap();
            assert!(matches!(put.request, Request::Guarded { .. }), "{scenario}: {put:?}");
            engine.finish(put.id, outcome);
            assert_eq!(engine.poll_effect(), None, "{scenario}");
            now += delay;
            engine.tick(Timestamp(now));
        }
        assert_eq!(engine.next_wakeup(), None, "{scenario}");
    }
}

#[test]
fn what_refers_to_a_claim() {
    let ephemeral = json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]);
    let running = |volumes: &Value| pod("p", "u", "n", "Running", volumes, None);
    let owned = |uid: &str| claim("shop", "p-v", false, &[], Some(uid));
    let plain = claim("shop", "data", false, &[], None);
    for (situation, claim, pod, expected) in [
        ("its name", &plain, running(&direct("data")), true),
        ("another name", &plain, running(&direct("other")), false),
        ("another namespace", &claim("other", "data", false, &[], None), running(&direct("data")), false),
        ("an ephemeral volume of its own", &owned("u"), running(&ephemeral), true),
        ("one of another pod", &owned("other"), running(&ephemeral), false),
        ("one of no pod", &claim("shop", "p-v", false, &[], None), running(&ephemeral), false),
        ("its name beside its own", &owned("other"), running(&direct("p-v")), true),
    ] {
        assert_eq!(unused::refers(claim, &pod), expected, "{situation}");
    }
}

/// A claim that is removed while it waits for a list leaves the others waiting.
#[test]
fn a_removed_claim_waits_for_no_list() {
    let mut engine = engine(["a", "b", "c"].map(held).into(), vec![]);
    let (list, _) = next(&mut engine).unwrap();
    assert_eq!(next(&mut engine), None);
    engine.observe(Observation::Removed(Kind::Claim.key(&"shop".into(), &"b".into())));
    engine.finish(list, &Outcome::Applied(None));
    assert_eq!(settle(&mut engine), ["shop/a []", "list shop", "shop/c []"]);
}

/// A pod that names the claim but will never start does not hold it.
#[test]
fn a_listed_pod_without_a_node_holds_nothing() {
    let mut engine = engine(vec![held("a")], vec![]);
    let (list, _) = next(&mut engine).unwrap();
    engine.observe(Observation::Found(Facts::Pod(pod("p", "u", "", "Pending", &direct("a"), None))));
    engine.finish(list, &Outcome::Applied(None));
    assert_eq!(settle(&mut engine), ["shop/a []"]);
}

/// The condition is about the moment at which its new value was first noticed, until it is written or turns over.
#[test]
fn the_time_of_a_pending_condition_stays() {
    let user = || Observation::Observed(Facts::Pod(pod("p", "u", "n", "Running", &direct("a"), None)));
    let claim = living(&[CLAIM_FINALIZER], None);
    let mut engine = engine_of(ClaimProtection::new(true), vec![claim], vec![]);
    engine.observe(user());
    assert_eq!(settle(&mut engine), [USED]);
    engine.tick(Timestamp(1_000));
    engine.observe(user());
    assert_eq!(settle(&mut engine), [] as [&str; 0], "the same request");
    engine.observe(Observation::Removed(Kind::Pod.key(&"shop".into(), &"p".into())));
    let turned = UNUSED.replace("00:00:00Z", "00:00:01Z");
    assert_eq!(settle(&mut engine), ["list shop", &turned]);
}
