//! Queries of the graph (spec 11.3, scenarios G141 to G145): dumps, reasons, plans, stuck deletions.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests may panic")]

mod support;

use gc_ownership::{
    Conclusion, DumpEdge, DumpNode, GraphDump, PlanError, Presence, ReferenceState, StuckCause,
};
use gc_types::PropagationPolicy::{Background, Foreground, Orphan};
use gc_types::{Evidence, Outcome, Request, ResourceVersion, Timestamp, Uid, Verdict, WithheldBy};
use serde_json::json;
use support::{Bench, LONG, failed, object, owner, refused, show_request};

fn uids(names: &[&str]) -> Vec<Uid> {
    names.iter().map(|name| Uid::new(name)).collect()
}

/// Returns the nodes of a dump, with `?` for virtual and `+` for missing ones, and its edges.
fn shown(dump: &GraphDump) -> String {
    let nodes = dump.nodes.iter().map(|node| {
        let state = if node.is_virtual {
            "?"
        } else if node.missing {
            "+"
        } else {
            ""
        };
        format!("{}{state}", node.uid)
    });
    let edges = dump.edges.iter().map(|edge| format!("{}>{}", edge.from, edge.to));
    nodes.chain(edges).collect::<Vec<_>>().join(" ")
}

fn chain() -> Bench {
    let mut bench = Bench::new();
    bench.add("Pod/alpha@n", &["Secret/bravo", "Secret/charlie"]).add("Secret/bravo@n", &[]);
    bench.add("Secret/charlie@n", &[]).add("Secret/echo@n", &[]);
    bench.add("Pod/delta@n", &["Pod/foxtrot"]).add("Pod/foxtrot@n", &["Pod/golf"]).add("Pod/golf@n", &[]);
    bench
}

#[test]
fn g141_g142_a_dump_holds_what_can_be_reached() {
    let bench = chain();
    let first = "alpha bravo charlie alpha>bravo alpha>charlie";
    let second = "delta foxtrot golf delta>foxtrot foxtrot>golf";
    let all = "alpha bravo charlie delta foxtrot golf alpha>bravo alpha>charlie delta>foxtrot foxtrot>golf";
    let table: [(&[&str], &str); 7] = [
        (&[], all),
        (&["bravo"], first),
        (&["unknown"], ""),
        (&["echo"], ""),
        (&["golf"], second),
        (&["delta"], second),
        (&["delta", "charlie"], all),
    ];
    for (around, expected) in table {
        assert_eq!(shown(&bench.engine.dump(&uids(around))), expected, "{around:?}");
    }
}

#[test]
fn g145_a_missing_owner_is_one_node_whoever_refers_to_it() {
    let mut bench = Bench::new();
    bench.add("Pod/a@n", &["Secret/gone"]).add("Pod/b@n", &["Secret/gone"]).add("Pod/c@n", &["Pod/a"]);
    assert_eq!(shown(&bench.engine.dump(&[])), "a b c gone? a>gone b>gone c>a");
    bench.add("Secret/gone@n", &[]).delete("Secret/gone@n", Background);
    assert_eq!(shown(&bench.engine.dump(&[])), "a b c gone+ a>gone b>gone c>a");
}

/// A finalizer alone deletes nothing, and what is gone has no place any more.
#[test]
fn a_dump_says_what_is_being_deleted() {
    let mut bench = Bench::new();
    for (name, deleting, foreground) in
        [("a", false, false), ("b", false, true), ("c", true, false), ("d", true, true)]
    {
        let mut one = object(&format!("Pod/{name}@n"), &["Pod/gone"]);
        (one.deletion.deleting, one.deletion.foreground) = (deleting, foreground);
        bench.put(one);
    }
    bench.add("Pod/gone@n", &[]).delete("Pod/gone@n", Background);
    let nodes = bench.engine.dump(&[]).nodes;
    let shown = nodes.iter().map(|node| {
        (&*node.name, &*node.namespace, node.being_deleted, node.deleting_dependents, node.missing)
    });
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            ("a", "n", false, false, false),
            ("b", "n", false, false, false),
            ("c", "n", true, false, false),
            ("d", "n", true, true, false),
            ("gone", "", false, false, true),
        ]
    );
}

#[test]
fn a_dump_as_data_and_as_dot() {
    let mut bench = Bench::new();
    let mut odd = object("Deployment/dé\"\\\n@n", &["Secret/s"]);
    odd.uid = Uid::new("u\"\\\né");
    (odd.deletion.deleting, odd.deletion.foreground) = (true, true);
    bench.put(odd);
    let dump = bench.engine.dump(&[]);
    let node = |uid: &str, kind: &str, namespace: &str, name: &str| DumpNode {
        uid: uid.to_owned(),
        group: String::new(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        missing: false,
        being_deleted: false,
        deleting_dependents: false,
        is_virtual: false,
    };
    let expected = GraphDump {
        nodes: vec![
            DumpNode { is_virtual: true, ..node("s", "Secret", "", "s") },
            DumpNode {
                group: "apps".to_owned(),
                being_deleted: true,
                deleting_dependents: true,
                ..node("u\"\\\né", "Deployment", "n", "dé\"\\\n")
            },
        ],
        edges: vec![DumpEdge { from: "u\"\\\né".to_owned(), to: "s".to_owned() }],
    };
    assert_eq!(dump, expected);
    assert_eq!(
        serde_json::to_value(&dump).unwrap(),
        json!({
            "nodes": [
                {"uid": "s", "group": "", "version": "v1", "kind": "Secret", "namespace": "", "name": "s",
                 "missing": false, "beingDeleted": false, "deletingDependents": false, "virtual": true},
                {"uid": "u\"\\\né", "group": "apps", "version": "v1", "kind": "Deployment", "namespace": "n",
                 "name": "dé\"\\\n", "missing": false, "beingDeleted": true, "deletingDependents": true,
                 "virtual": false},
            ],
            "edges": [{"from": "u\"\\\né", "to": "s"}],
        })
    );
    let dot = r#"strict digraph full {
  // Node definitions.
  "s" [
    label="uid=s\nnamespace=\nSecret.v1/s\nvirtual\n"
    group=""
    version="v1"
    kind="Secret"
    namespace=""
    name="s"
    uid="s"
    missing="false"
    beingDeleted="false"
    deletingDependents="false"
    virtual="true"
  ];
  "u\"\\\né" [
    label="uid=u\"\\\né\nnamespace=n\nDeployment.v1.apps/dé\"\\\n\nbeingDeleted,deletingDependents\n"
    group="apps"
    version="v1"
    kind="Deployment"
    namespace="n"
    name="dé\"\\\n"
    uid="u\"\\\né"
    missing="false"
    beingDeleted="true"
    deletingDependents="true"
    virtual="false"
  ];
  // Edge definitions.
  "u\"\\\né" -> "s";
}
"#;
    assert_eq!(dump.dot(), dot);
    assert_eq!(GraphDump::default().dot(), "strict digraph full {\n}\n", "G143");
}

#[test]
fn why_names_every_reference_and_the_conclusion() {
    let mut bench = Bench::new();
    bench.add("Secret/lives@n", &[]).add("Secret/waits@n", &[]).add("Secret/gone@n", &[]);
    bench.add("Node/n", &["Pod/x"]).add("Pod/root@n", &[]).add("Pod/keeper@n", &["Secret/waits!"]);
    bench.add("Pod/mixed@n", &["Secret/gone", "Secret/lives", "example.com/v1:Gadget/g"]);
    bench.add("Pod/doomed@n", &["Secret/gone"]).add("Pod/new@n", &["Secret/unseen"]);
    bench
        .add("Pod/kept@n", &["Secret/lives"])
        .add("Pod/half@n", &["Secret/lives", "example.com/v1:Gadget/g"]);
    bench.drain().delete("Secret/gone@n", Background).delete("Secret/waits@n", Foreground);
    let gone = ReferenceState::Absent(Evidence::RemovalSeen {
        owner: Uid::new("gone"),
        resource_version: ResourceVersion(12),
    });
    let waits = ReferenceState::Waiting(Evidence::Waiting {
        owner: Uid::new("waits"),
        resource_version: ResourceVersion(13),
    });
    let table = [
        ("root", vec![], Conclusion::NoOwners),
        ("n", vec![ReferenceState::Undecidable], Conclusion::Undecidable),
        ("kept", vec![ReferenceState::Lives], Conclusion::OwnerLives),
        ("half", vec![ReferenceState::Lives, ReferenceState::Undecidable], Conclusion::OwnerLives),
        (
            "mixed",
            vec![gone.clone(), ReferenceState::Lives, ReferenceState::Undecidable],
            Conclusion::ToLoseReferences(Verdict::ReferencesDead),
        ),
        ("doomed", vec![gone], Conclusion::ToBeDeleted(Verdict::OwnersAbsent)),
        ("keeper", vec![waits], Conclusion::ToBeDeleted(Verdict::OwnerWaiting)),
        ("new", vec![ReferenceState::Unverified], Conclusion::Unverified),
        ("waits", vec![], Conclusion::WaitsForDependents(1)),
        ("gone", vec![], Conclusion::Gone),
        ("unseen", vec![], Conclusion::Unseen),
    ];
    for (uid, states, conclusion) in table {
        let why = bench.engine.why(&Uid::new(uid)).unwrap();
        let found: Vec<ReferenceState> = why.references.into_iter().map(|(_, state)| state).collect();
        assert_eq!((found, why.conclusion), (states, conclusion), "{uid}");
    }
    assert_eq!(bench.engine.why(&Uid::new("unknown")), None);
    // A proof by a read has its time, and a refusal the server's message; the path leads up to the root.
    bench.script("delete Pod/new@n Background", &vec![refused(); 100]);
    bench.add("Pod/below@n", &["Pod/new"]).run_for(60);
    let why = bench.engine.why(&Uid::new("below")).unwrap();
    let path: Vec<(&str, Presence)> = why.path.iter().map(|view| (&*view.name, view.presence)).collect();
    assert_eq!(path, [("new", Presence::Observed), ("unseen", Presence::Unseen)]);
    let why = bench.engine.why(&Uid::new("new")).unwrap();
    let absent = Evidence::ReadAbsent { owner: Uid::new("unseen"), at: Timestamp(1_050) };
    assert_eq!(why.references, [(owner("Secret/unseen"), ReferenceState::Absent(absent))]);
    assert_eq!(why.last_failure.as_deref(), Some("403: forbidden"));
}

/// The path ends at an object without owners, where a circle closes, or at a bound.
/// Before a read has confirmed what the watch of an owner reports, the answer says what follows if it does.
#[test]
fn why_says_what_follows_from_the_report_of_a_watch() {
    let rows = [
        (Some(Orphan), Conclusion::ToLoseReferences(Verdict::OwnerOrphans)),
        (Some(Foreground), Conclusion::ToBeDeleted(Verdict::OwnerWaiting)),
        (None, Conclusion::ToBeDeleted(Verdict::OwnersAbsent)),
    ];
    for (policy, conclusion) in rows {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
        bench.delete("Secret/a@n", policy.unwrap_or(Background));
        let (owner, resource_version) = (Uid::new("a"), bench.model.version());
        let state = match policy {
            Some(Orphan) => ReferenceState::Orphaning(Evidence::Orphaning { owner, resource_version }),
            Some(_) => ReferenceState::Waiting(Evidence::Waiting { owner, resource_version }),
            None => ReferenceState::Absent(Evidence::RemovalSeen { owner, resource_version }),
        };
        let why = bench.engine.why(&Uid::new("p")).unwrap();
        assert_eq!(why.references, [(support::owner("Secret/a"), state)]);
        assert_eq!(why.conclusion, conclusion);
    }
}

#[test]
fn the_path_to_the_root_ends() {
    let mut bench = Bench::new();
    bench.add("Pod/a@n", &["Pod/b"]).add("Pod/b@n", &["Pod/c"]).add("Pod/c@n", &["Pod/b"]);
    bench.add("Pod/0@n", &[]);
    for number in 1..=70 {
        bench.add(&format!("Pod/{number}@n"), &[&format!("Pod/{}", number - 1)]);
    }
    let path = |uid: &str| -> Vec<String> {
        let why = bench.engine.why(&Uid::new(uid)).unwrap();
        why.path.iter().map(|view| view.name.to_string()).collect()
    };
    assert_eq!(path("a"), ["b", "c", "b"]);
    assert_eq!(path("b"), ["c", "b"]);
    assert_eq!(path("3"), ["2", "1", "0"]);
    assert_eq!(path("70"), (6..70).rev().map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_plan_is_what_then_happens() {
    type Build = fn(&mut Bench);
    let family: Build = |bench| {
        bench.add("Secret/a@n", &[]).add("Secret/other@n", &[]).add("ConfigMap/b@n", &["Secret/a!"]);
        bench.add("Pod/c@n", &["ConfigMap/b!"]).add("Pod/d@n", &["Secret/a", "Secret/other"]);
        bench.add_held("Pod/e@n", &["ConfigMap/b"]).add("Pod/f@n", &["Secret/a", "example.com/v1:Gadget/g"]);
    };
    let ring: Build = |bench| {
        bench.add("Secret/a@n", &["Secret/b!"]).add("Secret/b@n", &["Secret/a!"]);
    };
    for (build, policy) in [
        (family, Background),
        (family, Foreground),
        (family, Orphan),
        (ring, Background),
        (ring, Foreground),
        (ring, Orphan),
    ] {
        let mut bench = Bench::new();
        build(&mut bench);
        bench.drain();
        let before = bench.model.clone();
        let plan = bench.engine.plan(&Uid::new("a"), Some(policy), 100).unwrap();
        bench.delete("Secret/a@n", policy).run_for(LONG);
        // Either member of a cycle may open it, whichever has its turn first.
        let opened = |line: String| line.replace("owners Secret/a@n [b]", "owners Secret/b@n [a]");
        let mut planned: Vec<String> =
            plan.steps.iter().map(|step| opened(show_request(&step.request))).collect();
        planned.sort();
        bench.log.retain(|line| !line.starts_with("read"));
        bench.log = std::mem::take(&mut bench.log).into_iter().map(opened).collect();
        bench.log.sort();
        assert_eq!(planned, bench.log, "{policy:?}");
        let happened = |wanted: fn(bool, bool, bool) -> bool| -> Vec<String> {
            let mut names: Vec<String> = before
                .objects()
                .filter(|object| {
                    let now = bench.model.get(&object.key);
                    let deleting = now.is_some_and(|now| now.deletion.deleting);
                    wanted(now.is_none(), deleting, now.is_some_and(|now| now.owners != object.owners))
                })
                .map(|object| object.key.name.to_string())
                .collect();
            names.sort();
            names
        };
        let named = |views: &[gc_ownership::NodeView]| -> Vec<String> {
            let mut names: Vec<String> = views.iter().map(|view| view.name.to_string()).collect();
            names.sort();
            names
        };
        assert_eq!(named(&plan.deleted), happened(|gone, _, _| gone), "{policy:?}");
        assert_eq!(named(&plan.held), happened(|_, deleting, _| deleting), "{policy:?}");
        assert_eq!(
            named(&plan.released),
            happened(|_, deleting, changed| !deleting && changed),
            "{policy:?}"
        );
    }
}

#[test]
fn a_plan_has_bounds() {
    let mut bench = chain();
    bench.drain();
    let engine = &bench.engine;
    assert_eq!(engine.plan(&Uid::new("unknown"), None, 10), Err(PlanError::Unknown(Uid::new("unknown"))));
    assert_eq!(engine.plan(&Uid::new("golf"), None, 2), Err(PlanError::TooLarge(2)));
    assert_eq!(engine.plan(&Uid::new("golf"), None, 3).map(|plan| plan.deleted.len()), Ok(3));
}

/// Who reads the journal sees which owners a decision was about.
#[test]
fn decisions_name_the_owners_that_they_are_about() {
    for (policy, verdict) in [(Background, Verdict::ReferencesDead), (Orphan, Verdict::OwnerOrphans)] {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]).add("Secret/b@n", &[]).add("Pod/p@n", &["Secret/a", "Secret/b"]).drain();
        bench.delete("Secret/a@n", policy);
        let mut decided = Vec::new();
        while let Some(effect) = bench.engine.poll_effect() {
            if matches!(effect.request, Request::SetOwners { .. }) {
                decided.push((effect.reason.verdict, effect.reason.owners.clone()));
            }
            bench.perform(&effect);
        }
        assert_eq!(decided, [(verdict, vec![owner("Secret/a").coordinates])]);
    }
}

#[test]
fn what_is_stuck_is_listed_with_its_cause() {
    let mut bench = Bench::new();
    bench.add("Secret/blocked@n", &[]).add_held("Pod/holder@n", &["Secret/blocked!"]);
    bench.add("Secret/orphans@n", &[]).add("Pod/kept@n", &["Secret/orphans"]);
    bench.add("Pod/odd@n", &["example.com/v1:Gadget/g"]).add("Pod/fine@n", &[]);
    bench.add("Pod/half@n", &["Pod/fine", "example.com/v1:Gadget/g"]).add_held("Pod/guarded@n", &[]);
    bench.add_held("Pod/astray@n", &["Secret/elsewhere=blocked!"]);
    bench.add("Secret/lags@n", &[]).drain();
    bench.script("barrier deployments n", &vec![failed(); 100]).delete("Secret/lags@n", Foreground);
    bench.script("owners Pod/kept@n []", &vec![refused(); 100]);
    bench.delete("Secret/blocked@n", Foreground).delete("Secret/orphans@n", Orphan).run_for(12);
    let found: Vec<(String, Option<i64>, String)> = bench
        .engine
        .stuck(100)
        .into_iter()
        .map(|stuck| {
            let cause = match stuck.cause {
                StuckCause::Blocked { by, total } => format!("blocked by {} of {total}", by[0].name),
                StuckCause::Orphaning { remaining } => format!("orphaning {remaining}"),
                StuckCause::Failing { failures, message } => format!("failing {failures} {message}"),
                other => format!("{other:?}"),
            };
            (stuck.object.name.to_string(), stuck.age_milliseconds, cause)
        })
        .collect();
    let row = |name: &str, age: Option<i64>, cause: &str| (name.to_owned(), age, cause.to_owned());
    assert_eq!(
        found,
        [
            row("blocked", Some(12), "blocked by holder of 1"),
            row("orphans", Some(12), "orphaning 1"),
            row("lags", Some(12), "Lagging([ResourceId(4)])"),
            row("kept", None, "failing 2 403: forbidden"),
            row("holder", None, "ForeignFinalizers"),
            row("odd", None, "UndecidableOwner"),
        ]
    );
    assert_eq!(bench.engine.stuck(2).len(), 2);
    assert_eq!(bench.engine.stuck(0), []);
}

#[test]
fn what_is_withheld_did_not_fail_and_is_not_stuck() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.script("delete Pod/p@n Background", &[Outcome::Withheld(WithheldBy::Breaker)]);
    bench.delete("Secret/a@n", Background).run_for(LONG);
    assert_eq!(bench.engine.stats().withheld, 1);
    assert_eq!(bench.engine.stuck(10), []);
}
