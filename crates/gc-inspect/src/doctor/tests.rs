//! Findings of `kubegc doctor`, and their output.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
use super::*;
use gc_explain::lint::Code;
use gc_kube::breaker::Trip;

fn held(holder: &str, age: i64) -> Held {
    let renewed = Some(Timestamp::from_second(1_790_000_000 - age).unwrap());
    Held { holder: holder.into(), renewed, seconds: 15 }
}

fn missing(is_needed: bool) -> MissingRule {
    MissingRule { role: "ClusterRole", rule: "{verbs: [delete]}".into(), is_needed }
}

/// Returns shards whose holders have last renewed their Leases this many seconds ago.
fn shards(ages: &[i64]) -> Vec<(gc_ownership::Shard, Held)> {
    let count = u32::try_from(ages.len()).unwrap();
    let shard = |index| gc_ownership::Shard::new(index, count).unwrap();
    (0..count).map(shard).zip(ages.iter().map(|age| held("a", *age))).collect()
}

fn healthy() -> Facts {
    Facts {
        now: Timestamp::from_second(1_790_000_000).unwrap(),
        server: "v1.36.2 at https://c".into(),
        lease: ("kube-system/kubegc".into(), Some(held("a", 2))),
        orders: Orders { tripped: Some(BTreeMap::new()), ..Orders::default() },
        permissions: ("kubegc".into(), vec![]),
        is_installed: true,
        surveyed: Survey { resources: 60, ..Survey::default() },
        ..Facts::default()
    }
}

#[test]
fn each_thing_that_is_wrong_is_told_with_what_to_do() {
    let trip = Trip { resource: "pods".into(), since: gc_types::Timestamp(0), why: "too many".into() };
    let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let one = |key: &str| BTreeMap::from([(key.to_owned(), (2, "x/y".to_owned()))]);
    let change = |change: &dyn Fn(&mut Facts)| {
        let mut facts = healthy();
        change(&mut facts);
        facts
    };
    let cases: Vec<(Facts, &str, &str)> = vec![
        (change(&|f| f.version = Some("old".into())), "server", "notice old"),
        (
            change(&|f| f.unguarded = vec![UnguardedController::example()]),
            "admission",
            "wrong expiry-controller runs without the ValidatingAdmissionPolicyBinding kubegc-expiry-needs-delete: \
             whoever may change an object has it deleted by an annotation, on its status too",
        ),
        (
            change(&|f| f.lease.1 = None),
            "leader",
            "notice there is no lease kube-system/kubegc: no kubegc has led here",
        ),
        (
            change(&|f| {
                f.lease.1 = None;
                f.lease_unread = Some("this user may not read lease kube-system/kubegc".into());
            }),
            "leader",
            "notice whether kubegc runs here is not known: this user may not read lease kube-system/kubegc",
        ),
        (
            change(&|f| f.lease.1 = Some(held("a", 60))),
            "leader",
            "wrong no replica leads: lease kube-system/kubegc is free, a renewed it last at 2026-09-21T14:12:20Z",
        ),
        (
            change(&|f| f.lease.1 = Some(held("", 1))),
            "leader",
            "wrong no replica leads: lease kube-system/kubegc is free, it has no holder",
        ),
        (
            change(&|f| f.shards = shards(&[2, 60, 3, 60])),
            "leader",
            "wrong no replica leads these shards of lease kube-system/kubegc: 1/4, 3/4",
        ),
        (
            change(&|f| f.shards = shards(&[2, 3])),
            "leader",
            "ok each of the 2 shards of lease kube-system/kubegc leads",
        ),
        (change(&|f| f.orders.paused = Some("me".into())), "pause", "wrong everything is paused (me)"),
        (
            change(&|f| f.orders.tripped = Some(BTreeMap::from([("pods".into(), trip.clone())]))),
            "breaker",
            "wrong collection of pods has stopped: too many",
        ),
        (
            change(&|f| f.orders.tripped = None),
            "breaker",
            "wrong annotation kubegc.io/tripped of the lease cannot be parsed",
        ),
        (
            change(&|f| f.orders.observe_until = Some(Timestamp::from_second(1_790_000_600).unwrap())),
            "observation",
            "notice nothing is performed until 2026-09-21T14:23:20Z",
        ),
        (
            change(&|f| {
                f.controller_manager = Some(held("kcm", 1));
                f.their_collector = TheirCollector::On;
            }),
            "kube-controller-manager",
            "notice its garbage collector runs beside kubegc's: twice the work",
        ),
        (
            change(&|f| {
                f.controller_manager = Some(held("kcm", 1));
                f.their_collector = TheirCollector::Off;
                f.lease.1 = None;
            }),
            "kube-controller-manager",
            "wrong its garbage collector is off, and kubegc does not lead: nothing is collected",
        ),
        (
            change(&|f| f.controller_manager_unread = Some("this user may not read lease a/b".into())),
            "kube-controller-manager",
            "notice whether it runs here is not known: this user may not read lease a/b",
        ),
        (
            change(&|f| f.permissions.1 = vec![missing(true)]),
            "permissions",
            "wrong kubegc lacks the rule {verbs: [delete]}",
        ),
        (
            change(&|f| f.permissions.1 = vec![missing(false)]),
            "permissions",
            "notice kubegc lacks the rule {verbs: [delete]}, and writes no Events",
        ),
        (
            change(&|f| {
                f.lease.1 = None;
                f.is_installed = false;
                f.permissions.1 = vec![missing(true)];
            }),
            "leader",
            "notice kubegc is not installed here: there is no lease kube-system/kubegc, and kubegc has no permissions",
        ),
        (change(&|f| f.surveyed.unreadable = vec!["widgets: 500".into()]), "resources", "wrong widgets: 500"),
        (
            change(&|f| f.surveyed.forbidden = vec!["pods".into(), "nodes".into()]),
            "resources",
            "notice this user may not list 2 resources, which were not examined: pods, nodes",
        ),
        (
            change(&|f| f.surveyed.unexamined = vec!["30000 pods were not examined".into()]),
            "resources",
            "notice 30000 pods were not examined",
        ),
        (
            change(&|f| f.surveyed.undiscovered = vec!["metrics.k8s.io/v1beta1".into()]),
            "discovery",
            "wrong metrics.k8s.io/v1beta1 cannot be discovered",
        ),
        (
            change(&|f| f.surveyed.forbidden = vec!["pods".into()]),
            "stuck",
            "notice nothing is stuck, as far as this user can see",
        ),
        (
            change(&|f| f.unavailable = map("v1.metrics", "no endpoints")),
            "apiservices",
            "wrong v1.metrics is not available: no endpoints",
        ),
        (
            change(&|f| f.surveyed.stuck = one("FinalizerHeld a.b/c")),
            "stuck",
            "notice FinalizerHeld a.b/c: 2 objects, such as x/y",
        ),
        (
            change(&|f| f.surveyed.stuck = [("FinalizerHeld a.b/c".into(), (1, "x/y".into()))].into()),
            "stuck",
            "notice FinalizerHeld a.b/c: x/y",
        ),
        (
            change(&|f| f.collector_error = Some("a:1 does not answer".into())),
            "collector",
            "wrong its page cannot be read: a:1 does not answer",
        ),
        (
            change(&|f| {
                f.collector = Some(json!({"version": "0", "mode": "act", "leading": true, "resources": [
                    {"resource": "widgets", "state": "stale", "since": "t", "why": "500"}]}));
            }),
            "collector",
            "wrong widgets is stale since t: 500",
        ),
        (
            change(&|f| {
                f.collector = Some(json!({"version": env!("CARGO_PKG_VERSION"), "mode": "act",
                    "leading": true, "resources": [], "clock": {"paused": true, "message": "a day ahead"}}));
            }),
            "clock",
            "wrong deletions that depend on the time pause: a day ahead",
        ),
    ];
    let shown = |findings: &[Finding], check: &str| -> Vec<String> {
        let own = findings.iter().filter(|finding| finding.check == check);
        own.map(|finding| format!("{} {}", finding.state.word(), finding.message)).collect()
    };
    let fine = diagnose(&healthy());
    assert!(is_healthy(&fine) && fine.iter().all(|finding| finding.state == State::Fine), "{fine:#?}");
    for (facts, check, expected) in cases {
        let findings = diagnose(&facts);
        assert!(shown(&findings, check).contains(&expected.to_owned()), "{check}: {findings:#?}");
        assert_eq!(is_healthy(&findings), !expected.starts_with("wrong"), "{expected}");
        let wrong = findings.iter().filter(|finding| finding.state == State::Wrong);
        assert!(
            wrong.clone().all(|finding| finding.advice.is_some() || finding.check == "collector"),
            "{expected}"
        );
    }
}

fn dangling() -> Lint {
    let text = |text: &str| text.to_owned();
    let pod = Place {
        api_version: text("v1"),
        kind: text("Pod"),
        resource: text("pods"),
        namespace: text("shop"),
        name: text("web-1"),
        uid: text("u"),
    };
    Lint {
        code: Code::DanglingReference,
        subject: text("ReplicaSet.apps/v1"),
        message: text("3 objects refer to apps/v1 ReplicaSet that does not exist"),
        advice: text("look"),
        objects: vec![pod],
        total: 3,
    }
}

/// Returns the findings about a paused cluster with a lint.
pub(crate) fn sick() -> Vec<Finding> {
    let mut facts = healthy();
    facts.orders.paused = Some("<me> & co".into());
    facts.surveyed.lints = vec![dangling(), dangling()];
    diagnose(&facts)
}

#[test]
fn a_lint_is_a_finding_with_its_objects_and_said_once() {
    let findings = sick();
    let own: Vec<&Finding> = findings.iter().filter(|finding| finding.check == "DanglingReference").collect();
    assert_eq!(own.len(), 1);
    let message = "3 objects refer to apps/v1 ReplicaSet that does not exist, such as pods/web-1 -n shop";
    assert_eq!((own[0].state, own[0].message.as_str(), own[0].total), (State::Notice, message, 3));
    let document = value(&findings);
    let shown = document["items"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&shown["id"], &shown["objects"][0]["name"]),
        (&json!("DanglingReference/ReplicaSet.apps/v1"), &json!("web-1"))
    );
}

#[test]
fn the_collectors_of_up_need_no_lease_and_no_rules() {
    let mut facts = healthy();
    facts.is_up = true;
    facts.lease.1 = None;
    facts.permissions.1 = vec![missing(true)];
    let findings = diagnose(&facts);
    let not_fine: Vec<&str> =
        findings.iter().filter(|finding| finding.state != State::Fine).map(|finding| finding.check).collect();
    assert_eq!(not_fine, ["kube-controller-manager"; 0], "{findings:#?}");
    facts.lease.1 = Some(held("a", 2));
    let leader = diagnose(&facts).into_iter().find(|finding| finding.check == "leader").unwrap();
    assert_eq!(leader.state, State::Notice);
}

#[test]
fn many_findings_are_counted() {
    let unreadable = (0..13).map(|number| format!("r{number}")).collect();
    let surveyed = Survey { unreadable, ..Survey::default() };
    let findings = diagnose(&Facts { surveyed, ..healthy() });
    let own: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.check == "resources")
        .map(|finding| &*finding.message)
        .collect();
    assert_eq!((own.len(), own[0], own[10]), (11, "r0", "and 3 more"));
}

#[test]
fn findings_look_as_they_should() {
    insta::assert_snapshot!("doctor", crate::output::screens(&Examination(&sick())).unwrap());
}
