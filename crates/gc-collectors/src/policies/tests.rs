#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better without references")]

use std::collections::BTreeSet;

use gc_types::{Effect, Outcome, Request, ResourceId, ResourceVersion, Timestamp, Uid};
use serde_json::{Value, json};

use super::engine::PolicyEngine;
use super::*;
use crate::objects::time_text;

mod conditions;
mod laws;
mod notices;
mod states;

const NOW: i64 = 1_800_000_000;
const HOUR: i64 = 3600;

fn at(seconds: i64) -> Timestamp {
    Timestamp((NOW + seconds) * 1000)
}

/// Returns a spec about Jobs, with some members replaced.
fn spec(more: Value) -> Value {
    let mut spec = json!({
        "target": {"apiVersion": "batch/v1", "kind": "Job"}, "maxAge": "24h", "enforce": true,
    });
    merge(&mut spec, more);
    spec
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        for (name, value) in more {
            if value.is_null() { drop(into.remove(&name)) } else { drop(into.insert(name, value)) }
        }
    }
}

#[test]
fn all_errors_of_a_policy_are_reported_at_once() {
    for (more, expected) in [
        (json!({}), &[][..]),
        (json!({"target": null}), &["spec.target.kind: is required", "spec.target.apiVersion: is required"]),
        (
            json!({"target": {"apiVersion": "v1", "kind": "Node"}}),
            &[
                "spec.target: Node cannot be the target of a policy: it stands for a machine or storage, and has a \
               collector of its own",
            ],
        ),
        (
            json!({"target": {"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy"}}),
            &[
                "spec.target: RetentionPolicy cannot be the target of a policy: a policy cannot select policies",
            ],
        ),
        (
            json!({"maxAge": null}),
            &[
                "spec: at least one of keepNewest, maxAge and ttlAfter is required; without them nothing is due",
            ],
        ),
        (
            json!({"maxAge": "1y"}),
            &["spec.maxAge: \"1y\" has the unknown unit \"y\"; expected one of ns, us, ms, s, m, h, d, w"],
        ),
        (json!({"maxAge": "-1h"}), &["spec.maxAge: \"-1h\" is not a positive duration"]),
        (json!({"maxAgee": "1h"}), &["spec: unknown field `maxAgee`, expected one of"]),
        (json!({"condition": "object.a =="}), &["spec.condition: "]),
        (
            json!({"condition": "self.a == 1"}),
            &[
                "spec.condition: undeclared reference to 'self'; the object is called 'object' and the time 'now'",
            ],
        ),
        (json!({"condition": "foo(object)"}), &["spec.condition: undeclared reference to 'foo'"]),
        (
            json!({"keepNewest": {"count": -1, "per": "Galaxy", "orderBy": "Size"}}),
            &[
                "spec.keepNewest.count: must not be negative",
                "spec.keepNewest.per: \"Galaxy\" is none of Cluster, Namespace, Owner and Label",
                "spec.keepNewest.orderBy: \"Size\" is neither Created nor Finished",
            ],
        ),
        (
            json!({"keepNewest": {"count": 1, "per": "Label"}}),
            &["spec.keepNewest.label: is required with per: Label"],
        ),
        (
            json!({"keepNewest": {"count": 1, "label": "app"}}),
            &["spec.keepNewest.label: makes sense with per: Label only"],
        ),
        (
            json!({"target": {"apiVersion": "v1", "kind": "ConfigMap"},
                "keepNewest": {"count": 1, "orderBy": "Finished"}, "ttlAfter": {"condition": "Finished", "duration": "1h"}}),
            &[
                "spec.keepNewest.orderBy: Finished is for Pods and Jobs only",
                "spec.ttlAfter.condition: Finished is for Pods and Jobs only, with status True",
            ],
        ),
        (
            json!({"ttlAfter": {"condition": "", "status": "Maybe", "duration": "1h"}}),
            &[
                "spec.ttlAfter.condition: is required",
                "spec.ttlAfter.status: \"Maybe\" is none of True, False and Unknown",
            ],
        ),
        (
            json!({"maxAge": "1w", "all": {"maxAge": "1d"}}),
            &["spec: keepNewest, maxAge and ttlAfter are written either in spec, or in any, or in all"],
        ),
        (
            json!({"maxAge": null, "any": {"maxAge": "1d"}, "all": {"maxAge": "1d"}}),
            &["spec: keepNewest, maxAge and ttlAfter are written either in spec, or in any, or in all"],
        ),
        (
            json!({"maxAge": null, "all": {}}),
            &[
                "spec.all: at least one of keepNewest, maxAge and ttlAfter is required; without them nothing is due",
            ],
        ),
        (
            json!({"maxAge": null, "any": {"keepNewest": {"count": -1}, "maxAge": "x"}}),
            &["spec.any.keepNewest.count: must not be negative", "spec.any.maxAge: \"x\" is not a duration"],
        ),
        (
            json!({"maxAge": null, "keepNewest": {"count": 1}, "notice": {"before": "0s"}}),
            &[
                "spec.notice: keepNewest does not say beforehand when an object is due; notice is for maxAge and ttlAfter",
                "spec.notice.before: \"0s\" is not a positive duration",
            ],
        ),
        (
            json!({"schedule": "60 * * * *"}),
            &[
                "spec.schedule: \"60 * * * *\" is no schedule: end of range (60) above maximum (59): 60; expected \"every DURATION\", \
               \"@daily\" or five fields (minute, hour, day of the month, month, day of the week), such as \"30 4 * * *\"",
            ],
        ),
        (json!({"maxDeletionsPerRun": 0}), &["spec.maxDeletionsPerRun: must be between 1 and 10000"]),
        (json!({"maxDeletionsPerRun": 10_001}), &["spec.maxDeletionsPerRun: must be between 1 and 10000"]),
        (json!({"maxAge": null, "unused": {"for": "168h"}}), &[]),
        (json!({"unused": {"for": "168h"}}), &["spec.unused: no other rule is written beside it"]),
        (
            json!({"maxAge": null, "unused": {"for": "soon", "recorder": "here"}}),
            &[
                "spec.unused.recorder: \"here\" is not NAMESPACE/NAME of a Lease",
                "spec.unused.for: \"soon\" is not a duration",
            ],
        ),
        (
            json!({"maxAge": null, "unused": {"for": "1d"}, "target": {"apiVersion": "v1", "kind": "Secret"}}),
            &["spec.unused: Secrets are not recorded as a kind, so that none could be restored"],
        ),
        (
            json!({"propagationPolicy": "Slowly"}),
            &["spec.propagationPolicy: \"Slowly\" is none of Background, Foreground and Orphan"],
        ),
        (
            json!({"fields": [{"path": "status.phase", "operator": "In", "values": ["x"]},
                {"path": ".status.phase", "operator": "In"}, {"path": ".a['b", "operator": "Exists"}]}),
            &[
                "spec.fields[0].path: \"status.phase\" is no path; expected such as",
                "spec.fields[1]: values are required for In and NotIn",
                "spec.fields[2].path: \".a['b\" is no path",
            ],
        ),
        (
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}}),
            &["spec.selector.matchExpressions[0]: values make no sense for Exists and DoesNotExist"],
        ),
        (
            json!({"namespaces": {"include": ["a b"]}}),
            &["spec.namespaces: \"a b\" (number 1) is no name of a namespace, with * for any text"],
        ),
        (
            json!({"target": {"apiVersion": "v1", "kind": "Secret"}, "condition": "size(object.data) == 0"}),
            &["spec.target: the contents of Secrets are never read: select them by labels and metadata"],
        ),
    ] {
        let problems: Vec<String> = match Policy::compile(&spec(more.clone())) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        };
        let fits = problems.len() == expected.len()
            && problems.iter().zip(expected).all(|(problem, start)| problem.starts_with(start));
        assert!(fits, "{more}: {problems:#?}");
    }
}

#[test]
fn only_what_needs_contents_reads_them() {
    for (more, expected) in [
        (json!({}), false),
        (json!({"keepNewest": {"count": 1, "per": "Owner"}}), false),
        (json!({"fields": [{"path": ".metadata.annotations['a/b']", "operator": "Exists"}]}), false),
        (json!({"fields": [{"path": ".spec.suspend", "operator": "Exists"}]}), true),
        (json!({"condition": "true"}), true),
        (json!({"ttlAfter": {"condition": "Finished", "duration": "1h"}}), true),
        (json!({"keepNewest": {"count": 1, "orderBy": "Finished"}}), true),
    ] {
        assert_eq!(Policy::compile(&spec(more.clone())).unwrap().needs_content(), expected, "{more}");
    }
}

/// Returns a Job of this age, hours.
fn job(name: &str, hours: i64, more: Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "shop", "name": name, "uid": format!("u-{name}"), "resourceVersion": "5",
            "creationTimestamp": time_text(at(-hours * HOUR)), "labels": {"app": "web", "tier": "back"}},
        "spec": {"suspend": false, "parallelism": 3},
        "status": {},
    });
    for (path, value) in more.as_object().into_iter().flatten() {
        let (parent, field) = path.rsplit_once('/').unwrap();
        job.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    job
}

fn finished(seconds: i64) -> Value {
    json!([{"type": "Failed", "status": "True", "lastTransitionTime": time_text(at(seconds))}])
}

#[test]
fn what_a_policy_selects() {
    let selector = |key: &str, operator: &str, values: Value| json!({"selector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}});
    let field = |path: &str, operator: &str, values: Value| json!({"fields": [{"path": path, "operator": operator, "values": values}]});
    let namespaces =
        |include: Value, exclude: Value| json!({"namespaces": {"include": include, "exclude": exclude}});
    let none = || json!({});
    let system = || json!({"/metadata/namespace": "kube-system"});
    for (more, object, expected) in [
        (none(), none(), "selected"),
        (json!({"selector": {"matchLabels": {"app": "web"}}}), none(), "selected"),
        (json!({"selector": {"matchLabels": {"app": "db"}}}), none(), "aside"),
        (selector("app", "NotIn", json!(["db"])), none(), "selected"),
        (selector("gone", "NotIn", json!(["db"])), none(), "selected"),
        (selector("app", "Exists", json!([])), none(), "selected"),
        (selector("app", "DoesNotExist", json!([])), none(), "aside"),
        (field(".spec.suspend", "In", json!(["false"])), none(), "selected"),
        (field(".spec.parallelism", "In", json!(["1", "3"])), none(), "selected"),
        (field(".metadata.labels['tier']", "NotIn", json!(["back"])), none(), "aside"),
        (field(".status.startTime", "DoesNotExist", json!([])), none(), "selected"),
        (json!({"condition": "object.spec.parallelism > 2"}), none(), "selected"),
        (json!({"condition": "object.spec.parallelism > 3"}), none(), "aside"),
        (json!({"condition": "object.spec.missing > 3"}), none(), "unclear: no such key: missing"),
        (json!({"condition": "object.spec.parallelism"}), none(), "unclear: a int where a bool is expected"),
        (namespaces(json!(["sh*"]), json!([])), none(), "selected"),
        (namespaces(json!(["*"]), json!(["shop"])), none(), "aside"),
        (namespaces(json!(["other"]), json!([])), none(), "aside"),
        // Namespaces of the system are selected only by name.
        (none(), system(), "aside"),
        (namespaces(json!(["*"]), json!([])), system(), "aside"),
        (namespaces(json!(["kube-system"]), json!([])), system(), "selected"),
        (none(), json!({"/metadata/deletionTimestamp": "2027-01-01T00:00:00Z"}), "aside"),
        (none(), json!({"/metadata/annotations": {"kubegc.io/keep": "true"}}), "kept"),
        (none(), json!({"/metadata/annotations": {"kubegc.io/keep": "yes"}}), "kept"),
        (none(), json!({"/metadata/annotations": {"kubegc.io/keep": "false"}}), "selected"),
    ] {
        let policy = Policy::compile(&spec(more.clone())).unwrap();
        let seen = match policy.look(&job("a", 1, object.clone()), at(0)) {
            Assessment::Aside => "aside".to_owned(),
            Assessment::Kept => "kept".to_owned(),
            Assessment::Unclear(why) => format!("unclear: {why}"),
            Assessment::Selected(_) => "selected".to_owned(),
        };
        assert_eq!(seen, expected, "{more} {object}");
    }
    // A Namespace is selected by its own name, and those that everything needs never are.
    let about =
        json!({"target": {"apiVersion": "v1", "kind": "Namespace"}, "namespaces": {"include": ["*"]}});
    let policy = Policy::compile(&spec(about)).unwrap();
    for (name, selected) in [("preview-1", true), ("default", false), ("kube-system", false)] {
        let look = policy.look(&json!({"metadata": {"name": name}}), at(0));
        assert_eq!(matches!(look, Assessment::Selected(_)), selected, "{name}");
    }
}

fn engine_of(spec: &Value, status: &Value) -> PolicyEngine {
    let object = json!({"metadata": {"name": "builds", "generation": 3}, "spec": spec, "status": status});
    let mut engine = PolicyEngine::new(&object, ResourceId(9));
    engine.tick(at(0));
    engine
}

fn observe(engine: &mut PolicyEngine, object: &Value) {
    let look = engine.policy().unwrap().look(object, at(0));
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    engine.observed(text("namespace"), text("name"), look);
}

/// Returns an engine that has listed these objects, and whose status was shown.
fn engine(spec: &Value, objects: &[Value]) -> PolicyEngine {
    let mut engine = engine_of(spec, &Value::Null);
    engine.list_started();
    for object in objects {
        observe(&mut engine, object);
    }
    engine.synced();
    engine.shown();
    engine.tick(at(0));
    engine
}

fn deleted(effect: &Effect) -> String {
    let Request::Delete { key, .. } = &effect.request else { panic!("{effect:?}") };
    key.name.to_string()
}

/// Returns the objects deleted now, after applying each deletion and showing it by the watch.
fn deleted_now(engine: &mut PolicyEngine) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(effect) = engine.poll_effect() {
        let name = deleted(&effect);
        engine.finish(effect.id, &Outcome::Applied(None));
        engine.removed("shop", &name);
        names.push(name);
    }
    names
}

#[test]
fn the_rules_and_what_they_delete() {
    let owner = |uid: &str| json!({"/metadata/ownerReferences": [{"uid": uid, "controller": true}]});
    let label = |value: &str| json!({"/metadata/labels": {"app": value}});
    let done = |seconds: i64| json!({"/status/conditions": finished(seconds)});
    let ready = |status: &str| json!({"/status/conditions": [{"type": "Ready", "status": status, "lastTransitionTime": time_text(at(-HOUR))}]});
    let newest = |count: i64, per: &str| json!({"maxAge": null, "keepNewest": {"count": count, "per": per}});
    for (more, objects, expected) in [
        (json!({"maxAge": "24h"}), vec![job("a", 25, json!({})), job("b", 23, json!({}))], &["a"][..]),
        // An age equal to the limit is too old, as with the time to live of Jobs.
        (json!({"maxAge": "24h"}), vec![job("a", 24, json!({}))], &["a"]),
        (
            newest(1, "Cluster"),
            vec![job("old", 3, json!({})), job("new", 1, json!({})), job("middle", 2, json!({}))],
            &["old", "middle"],
        ),
        (newest(0, "Cluster"), vec![job("a", 1, json!({}))], &["a"]),
        (
            newest(1, "Namespace"),
            vec![
                job("a", 3, json!({})),
                job("b", 2, json!({})),
                job("c", 1, json!({"/metadata/namespace": "other"})),
            ],
            &["a"],
        ),
        // An object without a controller is not counted per owner.
        (
            newest(1, "Owner"),
            vec![
                job("a", 4, owner("x")),
                job("b", 3, owner("x")),
                job("c", 2, owner("y")),
                job("d", 9, json!({})),
            ],
            &["a"],
        ),
        (
            json!({"maxAge": null, "keepNewest": {"count": 1, "per": "Label", "label": "app"}}),
            vec![
                job("a", 4, label("x")),
                job("b", 3, label("x")),
                job("c", 2, label("y")),
                job("d", 9, json!({"/metadata/labels": {}})),
            ],
            &["a"],
        ),
        // By finish time: unfinished ones do not count, and the first created may have finished last.
        (
            json!({"maxAge": null, "keepNewest": {"count": 1, "orderBy": "Finished"}}),
            vec![job("long", 9, done(-60)), job("short", 2, done(-HOUR)), job("running", 99, json!({}))],
            &["short"],
        ),
        (
            json!({"maxAge": null, "ttlAfter": {"condition": "Finished", "duration": "1h"}}),
            vec![job("a", 9, done(-HOUR)), job("b", 9, done(-HOUR + 1)), job("c", 9, json!({}))],
            &["a"],
        ),
        (
            json!({"maxAge": null, "ttlAfter": {"condition": "Ready", "status": "False", "duration": "30m"}}),
            vec![job("a", 9, ready("False")), job("b", 9, ready("True"))],
            &["a"],
        ),
        // Any of several rules is enough.
        (
            json!({"maxAge": "5h", "keepNewest": {"count": 1}}),
            vec![job("a", 6, json!({})), job("b", 3, json!({})), job("c", 1, json!({}))],
            &["a", "b"],
        ),
        // The same rule in its other spelling.
        (
            json!({"maxAge": null, "any": {"maxAge": "5h", "keepNewest": {"count": 1}}}),
            vec![job("a", 6, json!({})), job("b", 3, json!({})), job("c", 1, json!({}))],
            &["a", "b"],
        ),
        // Older than five hours and not among the newest: neither rule deletes the other's exceptions.
        (
            json!({"maxAge": null, "all": {"maxAge": "5h", "keepNewest": {"count": 2}}}),
            vec![
                job("a", 9, json!({})),
                job("b", 8, json!({})),
                job("c", 7, json!({})),
                job("d", 1, json!({})),
            ],
            &["a", "b"],
        ),
        (
            json!({"maxAge": null, "all": {"maxAge": "5h", "keepNewest": {"count": 9}}}),
            vec![job("a", 9, json!({})), job("b", 8, json!({}))],
            &[],
        ),
        // An object without a group is never surplus.
        (
            json!({"maxAge": null, "all": {"maxAge": "5h", "keepNewest": {"count": 0, "per": "Owner"}}}),
            vec![job("a", 9, json!({})), job("b", 8, owner("x"))],
            &["b"],
        ),
        // Two times: the later one counts, and an object that lacks one of them stays.
        (
            json!({"maxAge": null, "all": {"maxAge": "5h", "ttlAfter": {"condition": "Finished", "duration": "1h"}}}),
            vec![
                job("a", 9, done(-HOUR)),
                job("b", 9, done(-60)),
                job("c", 2, done(-HOUR)),
                job("d", 9, json!({})),
            ],
            &["a"],
        ),
        // A kept object is not counted either.
        (
            newest(1, "Cluster"),
            vec![
                job("a", 3, json!({})),
                job("b", 2, json!({"/metadata/annotations": {"kubegc.io/keep": "true"}})),
            ],
            &[],
        ),
    ] {
        let mut engine = engine(&spec(more.clone()), &objects);
        let gone: BTreeSet<String> = deleted_now(&mut engine).into_iter().collect();
        assert_eq!(gone, expected.iter().map(|name| (*name).to_owned()).collect(), "{more}");
    }
}

#[test]
fn a_deletion_is_guarded_and_says_why() {
    let mut engine = engine(&spec(json!({"propagationPolicy": "Foreground"})), &[job("a", 30, json!({}))]);
    let effect = engine.poll_effect().unwrap();
    let expected = Request::Delete {
        key: gc_types::ObjectKey { resource: ResourceId(9), namespace: "shop".into(), name: "a".into() },
        uid: Uid::new("u-a"),
        resource_version: Some(ResourceVersion(5)),
        policy: PropagationPolicy::Foreground,
    };
    assert_eq!(effect.request, expected);
    assert_eq!(
        effect.reason.to_string(),
        "the object is due by a policy: object observed at version 5; created at 2027-01-14T02:00:00Z, older than \
         spec.maxAge; retention policy builds"
    );
}

/// Dry run, first list, not synced, invalid: nothing is deleted, and the status gives the reason.
#[test]
fn nothing_is_deleted_before_it_was_shown() {
    let old = || [job("a", 30, json!({}))];
    let reason = |engine: &PolicyEngine| {
        let status = engine.status(&Value::Null, at(0));
        let enforced = status["conditions"].as_array().unwrap()[2].clone();
        assert_eq!(enforced["type"], "Enforced");
        (enforced["reason"].as_str().unwrap().to_owned(), status["due"].as_i64())
    };
    let mut dry = engine(&spec(json!({"enforce": false})), &old());
    assert_eq!((deleted_now(&mut dry), reason(&dry)), (vec![], ("DryRun".into(), Some(1))));
    assert_eq!(dry.next_wakeup(), None);

    let mut first = engine_of(&spec(json!({})), &Value::Null);
    first.list_started();
    observe(&mut first, &old()[0]);
    assert_eq!((deleted_now(&mut first), reason(&first)), (vec![], ("FirstLook".into(), None)));
    first.synced();
    first.tick(at(1));
    assert_eq!((deleted_now(&mut first), reason(&first)), (vec![], ("FirstLook".into(), Some(1))));
    // A status that could not list the due objects yet has shown nothing, nor has one of another policy.
    let stored = |generation: i64, spec: &Value, due: Value| json!({"metadata": {"generation": generation}, "spec": spec, "status": {"due": due}});
    assert!(!first.written(&stored(4, &spec(json!({})), json!(1))));
    assert!(!first.written(&stored(3, &spec(json!({"enforce": false})), json!(1))));
    assert!(first.written(&stored(3, &spec(json!({})), Value::Null)));
    first.tick(at(2));
    assert_eq!((deleted_now(&mut first), reason(&first)), (vec![], ("FirstLook".into(), Some(1))));
    assert!(first.written(&stored(3, &spec(json!({})), json!(1))));
    assert_eq!((deleted_now(&mut first), reason(&first)), (vec!["a".into()], ("Enforced".into(), Some(0))));

    // Another process has shown this generation already; an older generation does not count.
    for (generation, shown) in [(3, true), (2, false)] {
        let status = json!({"observedGeneration": generation,
            "observedSpec": super::engine::digest(&spec(json!({}))), "due": 1});
        let mut engine = engine_of(&spec(json!({})), &status);
        engine.list_started();
        observe(&mut engine, &old()[0]);
        engine.synced();
        engine.tick(at(1));
        assert_eq!(engine.poll_effect().is_some(), shown);
    }

    let mut lost = engine(&spec(json!({})), &old());
    lost.unwatched("jobs.batch is not served");
    assert_eq!((deleted_now(&mut lost), reason(&lost)), (vec![], ("NotWatched".into(), None)));

    let mut bad = engine_of(&spec(json!({"maxAge": "7y"})), &Value::Null);
    bad.synced();
    bad.shown();
    bad.tick(at(9));
    assert_eq!(bad.poll_effect(), None);
    let conditions = bad.status(&Value::Null, at(0))["conditions"].clone();
    assert_eq!(
        conditions[0],
        json!({"type": "Valid", "status": "False", "reason": "SpecInvalid", "observedGeneration": 3,
            "message": "spec.maxAge: \"7y\" has the unknown unit \"y\"; expected one of ns, us, ms, s, m, h, d, w",
            "lastTransitionTime": "2027-01-15T08:00:00Z"})
    );
}

#[test]
fn a_run_is_bounded_and_the_next_one_waits() {
    let objects: Vec<_> = (0..5).map(|n| job(&format!("j{n}"), 40 - n, json!({}))).collect();
    let mut continuous = engine(&spec(json!({"maxDeletionsPerRun": 2})), &objects);
    assert_eq!(deleted_now(&mut continuous), ["j0", "j1"]);
    continuous.tick(at(1));
    assert_eq!(deleted_now(&mut continuous), [] as [&str; 0]);
    assert_eq!(continuous.next_wakeup(), Some(at(10)));
    continuous.tick(at(10));
    assert_eq!(deleted_now(&mut continuous), ["j2", "j3"]);
    continuous.tick(at(11));
    let status = continuous.status(&Value::Null, at(11));
    assert_eq!(
        (&status["lastRun"], &status["deleted"], &status["due"], &status["nextRun"]),
        (
            &json!({"time": "2027-01-15T08:00:10Z", "deleted": 2, "failed": 0, "error": null}),
            &json!(4),
            &json!(1),
            &json!("2027-01-15T08:00:20Z")
        )
    );

    // On a schedule, nothing is deleted before its time, and then at its times.
    let mut scheduled = engine(&spec(json!({"schedule": "30 * * * *"})), &objects);
    assert_eq!(deleted_now(&mut scheduled), [] as [&str; 0]);
    assert_eq!(scheduled.next_wakeup(), Some(at(1800)));
    scheduled.tick(at(1800));
    assert_eq!(deleted_now(&mut scheduled).len(), 5);
    scheduled.tick(at(1801));
    assert_eq!(scheduled.next_wakeup(), Some(at(5400)));

    // A run that was missed while the process was down starts immediately, and one that was not missed is not repeated.
    for (last, runs) in [("2027-01-15T07:29:00Z", true), ("2027-01-15T07:30:00Z", false)] {
        let spec = spec(json!({"schedule": "30 * * * *"}));
        let status = json!({"observedGeneration": 3, "observedSpec": super::engine::digest(&spec), "due": 5,
            "lastRun": {"time": last}});
        let mut engine = engine_of(&spec, &status);
        engine.list_started();
        for object in &objects {
            observe(&mut engine, object);
        }
        engine.synced();
        engine.tick(at(1));
        assert_eq!(engine.poll_effect().is_some(), runs, "{last}");
    }
}

/// An object that changes after the beginning of a run is decided by its state at its turn.
#[test]
fn a_change_in_the_last_moment_counts() {
    for scenario in ["kept", "label taken off", "gone", "younger", "relisted without it"] {
        let mut engine =
            engine(&spec(json!({"selector": {"matchLabels": {"app": "web"}}})), &[job("a", 30, json!({}))]);
        let effect = engine.poll_effect().unwrap();
        match scenario {
            "kept" => observe(
                &mut engine,
                &job("a", 30, json!({"/metadata/annotations": {"kubegc.io/keep": "true"}})),
            ),
            "label taken off" => observe(&mut engine, &job("a", 30, json!({"/metadata/labels": {}}))),
            "gone" => engine.removed("shop", "a"),
            "younger" => observe(&mut engine, &job("a", 1, json!({"/metadata/uid": "another"}))),
            _ => {
                engine.list_started();
                engine.synced();
            }
        }
        engine.finish(effect.id, &Outcome::Conflict);
        for seconds in 1..60 {
            engine.tick(at(seconds));
            assert_eq!(engine.poll_effect(), None, "{scenario}");
        }
    }
}

/// The watch delivered an object that was recreated under the same name before the response to the deletion arrived. The response
/// was applied to the new object, and nothing ever delivered that again.
#[test]
fn an_object_recreated_before_the_answer_is_not_forgotten() {
    let recreated = json!({"/metadata/uid": "another", "/metadata/resourceVersion": "7"});
    for outcome in [Outcome::Applied(None), Outcome::Absent] {
        let mut engine = engine(&spec(json!({})), &[job("a", 30, json!({}))]);
        let effect = engine.poll_effect().unwrap();
        engine.removed("shop", "a");
        observe(&mut engine, &job("a", 30, recreated.clone()));
        engine.finish(effect.id, &outcome);
        engine.tick(at(20));
        let again = engine.poll_effect().map(|effect| effect.request);
        let Some(Request::Delete { uid, resource_version, .. }) = again else {
            panic!("{outcome:?}: {again:?}")
        };
        assert_eq!((uid, resource_version), (Uid::new("another"), Some(ResourceVersion(7))), "{outcome:?}");
    }
}

/// The watch reported every object of a run as gone, and time passed, before the last response arrived: the run had ended by then,
/// and the status lacked its last deletions.
#[test]
fn a_deletion_counts_although_its_answer_comes_after_the_watch() {
    let jobs = [job("a", 30, json!({})), job("b", 31, json!({}))];
    let mut engine = engine(&spec(json!({})), &jobs);
    let effects = [engine.poll_effect().unwrap(), engine.poll_effect().unwrap()];
    for (name, second) in [("a", 1), ("b", 2)] {
        engine.removed("shop", name);
        engine.tick(at(second));
    }
    for (effect, second) in effects.iter().zip([3, 4]) {
        assert_eq!(engine.next_wakeup(), None);
        engine.finish(effect.id, &Outcome::Applied(None));
        engine.tick(at(second));
    }
    let status = engine.status(&Value::Null, at(5));
    assert_eq!((&status["deleted"], &status["lastRun"]["deleted"]), (&json!(2), &json!(2)));
}

#[test]
fn what_fails_is_left_to_the_next_run() {
    let mut engine = engine(&spec(json!({})), &[job("a", 30, json!({}))]);
    let refused = Outcome::Refused { code: 403, message: "forbidden".into() };
    for milliseconds in 1..100 {
        if let Some(effect) = engine.poll_effect() {
            engine.finish(effect.id, &refused);
        }
        engine.tick(at(0).after(milliseconds));
    }
    let status = engine.status(&Value::Null, at(1));
    assert_eq!(
        status["lastRun"],
        json!({"time": "2027-01-15T08:00:00Z", "deleted": 0, "failed": 1, "error": "shop/a: forbidden"})
    );
    let failing = &status["conditions"][3];
    assert_eq!(
        (&failing["reason"], &failing["message"]),
        (&json!("DeletionFailed"), &json!("shop/a: forbidden"))
    );
    assert_eq!(engine.next_wakeup(), Some(at(10)));
    engine.tick(at(10));
    assert_eq!(deleted_now(&mut engine), ["a"]);
}

/// In a dry run, each version of an object is reported once, however often runs and lists are repeated.
#[test]
fn a_dry_run_reports_each_object_once() {
    let held = |engine: &mut PolicyEngine| -> Vec<String> {
        let mut reported = Vec::new();
        while let Some(effect) = engine.poll_effect() {
            reported.push(deleted(&effect));
            engine.finish(effect.id, &Outcome::Withheld(gc_types::WithheldBy::DryRun));
        }
        reported
    };
    for (rule, more) in [
        ("by age", json!({"schedule": null})),
        ("by schedule", json!({"schedule": "*/5 * * * *"})),
        ("by number", json!({"maxAge": null, "keepNewest": {"count": 0}})),
        ("a few at a time", json!({"maxDeletionsPerRun": 1})),
    ] {
        let jobs = [job("a", 30, json!({})), job("b", 29, json!({}))];
        let mut engine = engine(&spec(more), &jobs);
        let mut reported = held(&mut engine);
        for minute in 1..30 {
            engine.tick(at(60 * minute));
            reported.extend(held(&mut engine));
            if minute == 10 {
                engine.list_started();
                for job in &jobs {
                    observe(&mut engine, job);
                }
                engine.synced();
            }
        }
        assert_eq!(reported, ["a", "b"], "{rule}");
        let due = engine.status(&Value::Null, at(0))["due"].clone();
        assert_eq!(due, 2, "{rule}: they are still due");
        let mut changed = jobs[0].clone();
        changed["metadata"]["resourceVersion"] = "77".into();
        observe(&mut engine, &changed);
        for minute in 30..40 {
            engine.tick(at(60 * minute));
            reported.extend(held(&mut engine));
        }
        assert_eq!(reported, ["a", "b", "a"], "{rule}: it has changed");
    }
}

#[test]
fn a_condition_that_cannot_be_evaluated_is_shown() {
    let condition = json!({"condition": "object.spec.missing > 1"});
    let engine = engine(&spec(condition), &[job("a", 30, json!({})), job("b", 30, json!({}))]);
    let status = engine.status(&Value::Null, at(1));
    assert_eq!((&status["unclear"], &status["due"], &status["selected"]), (&json!(2), &json!(0), &json!(0)));
    let failing = &status["conditions"][3];
    assert_eq!(
        (&failing["status"], &failing["message"]),
        (&json!("True"), &json!("spec.condition on shop/a: no such key: missing"))
    );
}

#[test]
fn times_of_conditions_move_with_their_status() {
    let mut engine = engine_of(&spec(json!({})), &Value::Null);
    let first = engine.status(&Value::Null, at(0));
    engine.list_started();
    engine.synced();
    engine.shown();
    let then = engine.status(&first, at(60));
    let moved: Vec<_> = then["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|condition| condition["lastTransitionTime"] == "2027-01-15T08:01:00Z")
        .map(|condition| condition["type"].as_str().unwrap())
        .collect();
    assert_eq!(moved, ["Observing", "Enforced"]);
}

/// The work of a tick and of a change depends on what changes, and not on what exists: with 50,000 objects that are not due, ticks
/// decide nothing, and only the one that becomes due is decided.
#[test]
fn work_follows_changes() {
    let mut engine = engine(&spec(json!({"maxAge": "100h"})), &[]);
    for number in 0..50_000 {
        observe(&mut engine, &job(&format!("j{number}"), 1, json!({})));
    }
    observe(&mut engine, &job("old", 99, json!({})));
    for seconds in 0..1000 {
        engine.tick(at(seconds));
        assert_eq!(engine.poll_effect(), None);
    }
    assert_eq!(engine.decisions(), 0);
    engine.tick(at(HOUR));
    assert_eq!(deleted_now(&mut engine), ["old"]);
    assert_eq!(engine.decisions(), 1);
}

/// The fact about a deletion names its policy.
#[test]
fn a_deletion_names_its_policy() {
    let stored = json!({"metadata": {"name": "builds", "generation": 1}, "spec": spec(json!({}))});
    let policy = PolicyEngine::new(&stored, ResourceId(7));
    for mut engine in [policy.restarted(&json!({})), policy] {
        let mut now = at(0);
        engine.tick(now);
        engine.list_started();
        let look = engine.policy().cloned().unwrap().look(&job("a", 48, json!({})), now);
        engine.observed("shop", "a", look);
        engine.synced();
        engine.shown();
        let effect = loop {
            if let Some(effect) = engine.poll_effect() {
                break effect;
            }
            now = engine.next_wakeup().unwrap().max(now.after(1));
            engine.tick(now);
        };
        assert_eq!(named_in(&effect.reason), Some("builds"), "{}", effect.reason);
        assert!(effect.reason.to_string().ends_with("; retention policy builds"), "{}", effect.reason);
    }
}
