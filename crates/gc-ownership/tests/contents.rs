//! Lists of the graph: what is in a namespace, what depends on whom, which references lead nowhere, which objects own each other. And plans
//! in stages, which others act in.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests may panic")]

mod support;

use std::collections::BTreeMap;

use gc_ownership::{Config, Leaf, NodeView, PlanError, Progress, Stage, StageEnd, Stats, Stray};
use gc_types::PropagationPolicy::{self, Background, Foreground, Orphan};
use gc_types::{Event, ObservedObject, Recreator, Request, Timestamp, Uid};
use support::{Bench, failed, info, key, object, owner, refused, resource, show};

/// Builds a graph with everything that lists tell apart; nothing of it is collected yet.
fn place() -> Bench {
    let mut bench = Bench::new();
    bench.add("Secret/gone@n", &[]).add("Secret/alive@n", &[]).add("Node/node", &[]);
    bench.add("Pod/b@n", &["Secret/alive!"]).add("Pod/a@n", &["Secret/alive"]).add("Pod/c@m", &[]);
    bench.add("Pod/dangling@n", &["Secret/gone"]);
    bench.add("Pod/undecided@n", &["example.com/v1:Gadget/g"]);
    bench.add("PersistentVolume/strange", &["Pod/x"]).add("Pod/elsewhere@m", &["Secret/alive!"]);
    bench.add("Pod/miscalled@n", &["ConfigMap/alive"]).add_held("Secret/held@n", &[]);
    bench.delete("Secret/gone@n", Background);
    bench
}

fn names(views: &[NodeView]) -> Vec<&str> {
    views.iter().map(|view| &*view.name).collect()
}

fn uid(name: &str) -> Uid {
    Uid::new(name)
}

#[test]
fn the_contents_of_a_namespace_are_leaves_and_others() {
    let bench = place();
    let contents = |namespace: &str| {
        let mut contents = bench.engine.contents(|_, one| one == namespace);
        contents.leaves.sort();
        let leaves: Vec<(String, bool)> =
            contents.leaves.iter().map(|leaf| (leaf.uid.to_string(), leaf.has_owners)).collect();
        (leaves, names(&contents.others).join(" "))
    };
    let leaf = |name: &str, has_owners| (name.to_owned(), has_owners);
    let (leaves, others) = contents("n");
    let expected = ["a", "b", "dangling", "miscalled", "undecided"].map(|name| leaf(name, true));
    assert_eq!((leaves.as_slice(), others.as_str()), (expected.as_slice(), "alive held"));
    assert_eq!(contents("m"), (vec![leaf("c", false), leaf("elsewhere", true)], String::new()));
    assert_eq!(contents("unknown"), (vec![], String::new()));
    let nodes = bench.engine.contents(|of, _| of == resource("Node")).leaves;
    assert_eq!(nodes, [Leaf { uid: uid("node"), resource: resource("Node"), has_owners: false }]);
}

#[test]
fn an_object_is_found_by_its_uid_while_it_exists() {
    let bench = place();
    let engine = &bench.engine;
    for (name, place) in
        [("a", Some("Pod/a@n")), ("node", Some("Node/node")), ("gone", None), ("g", None), ("?", None)]
    {
        assert_eq!(engine.key_of(&uid(name)), place.map(key), "{name}");
        assert_eq!(engine.state_of(&uid(name)).map(|(key, _)| key), place.map(key), "{name}");
    }
    assert!(engine.state_of(&uid("held")).is_some_and(|(_, state)| state.foreign_finalizers));
    assert!(engine.state_of(&uid("a")).is_some_and(|(_, state)| !state.foreign_finalizers));
    assert_eq!(engine.view_of(&uid("a")).map(|view| view.key), Some(Some(key("Pod/a@n"))));
    assert_eq!(engine.view_of(&uid("?")), None);
    assert_eq!(engine.owners_of(&uid("b")), [owner("Secret/alive!")]);
    assert_eq!(engine.owners_of(&uid("alive")), []);
    assert_eq!(engine.owners_of(&uid("?")), []);
    assert_eq!(bench.model.by_uid(&uid("a")).map(|object| show(&object.key)).as_deref(), Some("Pod/a@n"));
    assert_eq!(bench.model.by_uid(&uid("gone")), None);
}

#[test]
fn the_recreator_of_an_object_changes_and_goes_with_it() {
    let mut bench = Bench::new();
    let made = |recreator: Option<&str>| ObservedObject {
        recreator: recreator.map(|name| Recreator::Helm(name.into())),
        ..object("Pod/a@n", &[])
    };
    bench.add("Pod/other@n", &[]);
    for recreator in [Some("r"), Some("s"), None, Some("r")] {
        bench.put(made(recreator));
        assert_eq!(bench.engine.recreator_of(&uid("a")), made(recreator).recreator.as_ref());
        assert_eq!(bench.engine.recreator_of(&uid("other")), None);
        assert_eq!(bench.engine.verify(), [] as [String; 0]);
    }
    assert_eq!(bench.engine.recreator_of(&uid("?")), None);
    bench.delete("Pod/a@n", Background);
    assert_eq!(bench.engine.recreator_of(&uid("a")), None);
    assert_eq!(bench.engine.verify(), [] as [String; 0]);
}

#[test]
fn dependents_are_listed_by_their_owner() {
    let mut bench = place();
    bench.add("Pod/ended@n", &["Secret/alive!"]).delete("Pod/ended@n", Background);
    let engine = &bench.engine;
    let all = ["a", "b", "elsewhere", "miscalled"];
    assert_eq!(names(&engine.dependents(&uid("alive"))), ["elsewhere", "a", "b", "miscalled"]);
    let mut uids: Vec<String> =
        engine.dependent_uids(&uid("alive")).iter().map(ToString::to_string).collect();
    uids.sort();
    assert_eq!(uids, all);
    // One elsewhere does not block it, and neither does one whose reference says so.
    assert_eq!(names(&engine.blocking_dependents(&uid("alive"))), ["b"]);
    for none in ["a", "?"] {
        assert_eq!(engine.dependents(&uid(none)), [], "{none}");
        assert_eq!(engine.dependent_uids(&uid(none)), [], "{none}");
        assert_eq!(engine.blocking_dependents(&uid(none)), [], "{none}");
    }
}

#[test]
fn the_longest_waiting_come_first() {
    let mut bench = Bench::new();
    for name in ["first", "second", "third"] {
        bench
            .add(&format!("Secret/{name}@n"), &[])
            .add_held(&format!("Pod/of-{name}@n"), &[&format!("Secret/{name}!")]);
    }
    bench.drain();
    for (name, pause) in [("second", 5), ("first", 7), ("third", 11)] {
        bench.delete(&format!("Secret/{name}@n"), Foreground).run_for(pause);
    }
    let shown = |most| -> Vec<(String, i64)> {
        let waiting = bench.engine.longest_waiting(most).into_iter();
        waiting.map(|(key, waited)| (key.name.to_string(), waited)).collect()
    };
    let row = |name: &str, waited| (name.to_owned(), waited);
    assert_eq!(shown(9), [row("second", 23), row("first", 18), row("third", 11)]);
    assert_eq!(shown(2), [row("second", 23), row("first", 18)]);
    assert_eq!(shown(0), []);
}

#[test]
fn objects_are_counted_and_selected() {
    let mut bench = place();
    bench.add_held("Pod/going@n", &["example.com/v1:Gadget/g"]).delete("Pod/going@n", Background);
    let count = |kind: &str, namespace: &str, number| ((namespace.to_owned(), resource(kind)), number);
    let expected = [
        count("Node", "", 1),
        count("PersistentVolume", "", 1),
        count("Pod", "m", 2),
        count("Pod", "n", 6),
        count("Secret", "n", 2),
    ];
    assert_eq!(bench.engine.population(), BTreeMap::from(expected));
    let is_secret = |key: &gc_types::ObjectKey| key.resource == resource("Secret");
    assert_eq!(names(&bench.engine.select(is_secret)), ["alive", "held"]);
    assert_eq!(bench.engine.select(|_| false), []);
    let mut observed = bench.engine.observed_objects(is_secret);
    observed.sort_by(|left, right| left.key.cmp(&right.key));
    let stored = |name: &str| bench.model.get(&key(name)).unwrap().clone();
    assert_eq!(observed, [stored("Secret/alive@n"), stored("Secret/held@n")]);
    assert_eq!(names(&bench.engine.undecidable()), ["strange", "undecided"]);
}

#[test]
fn references_that_lead_nowhere_are_listed_with_where_they_lead() {
    let mut bench = place();
    bench.add_held("Pod/leaving@n", &["Secret/gone"]).delete("Pod/leaving@n", Background);
    let strays = bench.engine.stray_references();
    let shown: Vec<(&str, &str, &str)> = strays
        .iter()
        .map(|stray| {
            let state = match &stray.stray {
                Stray::Absent => "absent",
                Stray::UnknownKind => "unknown kind",
                Stray::ImpossibleScope => "impossible scope",
                Stray::Elsewhere(there) => &*there.name,
            };
            (&*stray.dependent.name, &*stray.reference.coordinates.name, state)
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("strange", "x", "impossible scope"),
            ("elsewhere", "alive", "alive"),
            ("dangling", "gone", "absent"),
            ("miscalled", "alive", "alive"),
            ("undecided", "g", "unknown kind"),
        ]
    );
}

#[test]
fn rings_begin_with_their_first_object() {
    let mut bench = Bench::new();
    bench.add("Secret/b@n", &["Pod/c"]).add("Pod/c@n", &["Secret/a"]).add("Secret/a@n", &["Secret/b"]);
    bench.add("Pod/self@n", &["Pod/self"]).add("Pod/below@n", &["Pod/self", "Secret/a"]);
    bench.add("Pod/x@n", &["Pod/y"]).add("Pod/y@n", &[]).add("Pod/lost@n", &["Pod/unknown"]);
    // Found from below first, and once.
    bench.add("Pod/early@n", &["Pod/late"]).add("Pod/late@n", &["Pod/late"]);
    let rings = bench.engine.rings(10);
    let shown: Vec<String> = rings.iter().map(|ring| names(ring).join(" ")).collect();
    assert_eq!(shown, ["c a b", "late", "self"]);
    assert_eq!(bench.engine.rings(1).len(), 1);
    assert_eq!(bench.engine.rings(0), [] as [Vec<NodeView>; 0]);
}

/// A stage of a plan: these deletions, an object that is held, and one to which writes are refused.
struct ScriptedStage(Vec<(&'static str, Option<PropagationPolicy>)>, &'static str, &'static str);

impl Stage for ScriptedStage {
    fn deletions(&self, _: &Progress) -> Vec<(Uid, Option<PropagationPolicy>)> {
        self.0.iter().map(|(name, policy)| (uid(name), *policy)).collect()
    }

    fn is_held(&self, one: &Uid, has_finalizers: bool, _: &Progress) -> bool {
        has_finalizers || *one == uid(self.1)
    }

    fn refuses(&self, request: &Request) -> bool {
        matches!(request, Request::Delete { key, .. } | Request::SetOwners { key, .. } if *key.name == *self.2)
    }
}

fn end(deleted: &[&str], held: &[&str], terminating: &[&str], released: &[&str]) -> StageEnd {
    let sorted = |names: &[&str]| {
        let mut uids: Vec<Uid> = names.iter().map(|name| uid(name)).collect();
        uids.sort();
        uids
    };
    StageEnd {
        deleted: sorted(deleted),
        held: sorted(held),
        terminating: sorted(terminating),
        released: sorted(released),
    }
}

fn ordered(mut stage: StageEnd) -> StageEnd {
    for uids in [&mut stage.deleted, &mut stage.held, &mut stage.terminating, &mut stage.released] {
        uids.sort();
    }
    stage
}

/// Plans the deletion of one object in these stages, and returns how each ends.
fn stage_ends(bench: &Bench, root: &str, stages: &[&dyn Stage]) -> Vec<StageEnd> {
    let (ends, _) = bench.engine.plan_stages(&[uid(root)], &|_| false, stages, 10).unwrap();
    ends.into_iter().map(ordered).collect()
}

#[test]
fn a_plan_in_stages_says_how_each_ends() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("ConfigMap/b@n", &["Secret/a"]).add("Pod/c@n", &["ConfigMap/b"]);
    bench.add("Pod/leaf@n", &["Secret/a"]).add("Secret/z@n", &[]).add("Pod/kept@n", &["Secret/z"]);
    bench.add_held("Pod/going@n", &[]).delete("Pod/going@n", Background).drain();
    let candidates = ["a", "z", "going"].map(uid);
    let first = ScriptedStage(vec![("a", Some(Background)), ("z", Some(Orphan))], "b", "");
    let second = ScriptedStage(vec![], "", "");
    let stages: [&dyn Stage; 2] = [&first, &second];
    let (ends, assumed) =
        bench.engine.plan_stages(&candidates, &|one| *one == uid("leaf"), &stages, 10).unwrap();
    let ends: Vec<StageEnd> = ends.into_iter().map(ordered).collect();
    assert_eq!(
        ends,
        [
            end(&["a", "z"], &["b"], &["going"], &["kept"]),
            end(&["a", "b", "c", "z"], &[], &["going"], &["kept"]),
        ]
    );
    assert_eq!(assumed, []);
    assert_eq!(bench.engine.plan_stages(&candidates, &|_| false, &[], 10), Ok((vec![], vec![])));
    // The object itself, and three that depend on it or on those.
    let one = [uid("a")];
    let whole = |limit| bench.engine.plan_stages(&one, &|_| false, &stages[..1], limit).map(|_| ());
    assert_eq!((whole(3), whole(4)), (Err(PlanError::TooLarge(3)), Ok(())));
    assert_eq!(
        bench.engine.plan_stages(&[uid("?")], &|_| false, &stages, 10),
        Err(PlanError::Unknown(uid("?")))
    );
}

#[test]
fn what_a_stage_refuses_is_asked_again_in_the_next() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Pod/b@n", &["Secret/a"]).add("Pod/c@n", &["Secret/a"]).drain();
    let first = ScriptedStage(vec![("a", Some(Background))], "", "b");
    let second = ScriptedStage(vec![], "", "");
    let ends = stage_ends(&bench, "a", &[&first, &second]);
    assert_eq!(ends, [end(&["a", "c"], &[], &[], &[]), end(&["a", "b", "c"], &[], &[], &[])]);
}

/// A stage in which this object is deleted, and references cannot be removed.
struct WithoutReleases(&'static str);

impl Stage for WithoutReleases {
    fn deletions(&self, _: &Progress) -> Vec<(Uid, Option<PropagationPolicy>)> {
        vec![(uid(self.0), Some(Background))]
    }

    fn is_held(&self, _: &Uid, has_finalizers: bool, _: &Progress) -> bool {
        has_finalizers
    }

    fn refuses(&self, request: &Request) -> bool {
        matches!(request, Request::SetOwners { .. })
    }
}

/// While its other owner lives, the reference to the root would be removed; once that is gone too, the last is deleted, in the same
/// stage, whichever of the two is decided first.
#[test]
fn a_refused_release_becomes_a_deletion_when_the_other_owner_goes() {
    for [root, middle, last] in
        [["a", "b", "c"], ["a", "c", "b"], ["b", "a", "c"], ["b", "c", "a"], ["c", "a", "b"], ["c", "b", "a"]]
    {
        let mut bench = Bench::new();
        let [owner, other] = [root, middle].map(|name| format!("Secret/{name}"));
        bench.add(&format!("{owner}@n"), &[]).add(&format!("{other}@n"), &[&owner]);
        bench.add(&format!("Secret/{last}@n"), &[&owner, &other]).drain();
        let ends = stage_ends(&bench, root, &[&WithoutReleases(root)]);
        assert_eq!(ends, [end(&["a", "b", "c"], &[], &[], &[])], "{root} {middle} {last}");
    }
}

/// What holds an object in the first stage only lets it go in the second, however it was deleted.
#[test]
fn what_a_stage_holds_is_released_in_the_next() {
    for policy in [Background, Foreground, Orphan] {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]).add("Pod/b@n", &["Secret/a!"]).drain();
        let (first, second) =
            (ScriptedStage(vec![("a", Some(policy))], "a", ""), ScriptedStage(vec![], "", ""));
        let ends = stage_ends(&bench, "a", &[&first, &second]);
        let expected = match policy {
            Background => [end(&[], &["a"], &[], &[]), end(&["a", "b"], &[], &[], &[])],
            Foreground => [end(&["b"], &["a"], &[], &[]), end(&["a", "b"], &[], &[], &[])],
            Orphan => [end(&[], &["a"], &[], &["b"]), end(&["a"], &[], &[], &["b"])],
        };
        assert_eq!(ends, expected, "{policy:?}");
    }
}

/// A pod in its grace period is being deleted, and no finalizer holds it.
#[test]
fn what_is_ending_by_itself_is_gone_at_the_end_of_a_plan() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]);
    let mut ending = object("Pod/ending@n", &["Secret/a"]);
    ending.deletion.deleting = true;
    bench.put(ending).drain();
    let stage = ScriptedStage(vec![("a", Some(Background))], "", "");
    assert_eq!(stage_ends(&bench, "a", &[&stage]), [end(&["a", "ending"], &[], &[], &[])]);
}

/// An owner outside of the plan that no watch has shown, and a read has found.
#[test]
fn owners_that_only_a_read_has_found_keep_their_dependents_in_a_plan() {
    let mut bench = Bench::new();
    bench.lag("Secret");
    bench.add("Secret/outside@n", &[]).add("ConfigMap/a@n", &[]);
    bench.add("Pod/c@n", &["ConfigMap/a", "Secret/outside"]).run_for(1_000);
    let plan = bench.engine.plan(&uid("a"), Some(Background), 10).unwrap();
    let names = |views: Vec<NodeView>| -> Vec<String> {
        views.into_iter().map(|view| view.name.to_string()).collect()
    };
    assert_eq!((names(plan.deleted), names(plan.released)), (vec!["a".to_owned()], vec!["c".to_owned()]));
    assert_eq!(plan.assumed_living, [] as [Uid; 0]);
}

#[test]
fn owners_that_cannot_be_looked_up_count_as_living_in_a_plan() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &["example.com/v1:Gadget/top"]);
    bench.add("Pod/b@n", &["Secret/a", "example.com/v1:Gadget/g"]).drain();
    let stage = ScriptedStage(vec![("a", Some(Background))], "", "");
    let (ends, assumed) = bench.engine.plan_stages(&[uid("a")], &|_| false, &[&stage], 10).unwrap();
    // Whatever owns the object that is to be deleted does not matter.
    assert_eq!(assumed, [uid("g")]);
    assert_eq!(ends[0].deleted, [uid("a")]);
}

#[test]
fn an_engine_is_started_when_all_is_listed_or_the_wait_is_over() {
    let mut bench = Bench::unstarted(Config::default());
    assert!(!bench.engine.is_started());
    bench.engine.handle(gc_types::Event::ResourceServed(info("Pod")));
    bench.engine.handle(gc_types::Event::Discovered);
    assert!(!bench.engine.is_started());
    bench.run_for(29_999);
    assert!(!bench.engine.is_started());
    bench.run_for(1);
    assert!(bench.engine.is_started());
    let mut listed = Bench::new();
    listed.drain();
    assert!(listed.engine.is_started());
}

#[test]
fn only_reads_that_were_made_often_enough_are_left() {
    let mut bench = Bench::new();
    assert!(bench.engine.only_polls_left());
    // The kind is served, and its watch never delivers the owner, which every read finds.
    bench.lag("Secret");
    bench.add("Secret/unseen@n", &[]).add("Pod/p@n", &["Secret/unseen"]);
    assert!(!bench.engine.only_polls_left(), "the dependent is queued");
    bench.drain();
    assert!(!bench.engine.only_polls_left(), "nothing has been read yet");
    let due = bench.engine.next_wakeup().unwrap();
    bench.engine.handle(gc_types::Event::Tick(due));
    assert!(!bench.engine.only_polls_left(), "the first read is due");
    bench.run_for(600_000);
    assert!(bench.engine.only_polls_left());
    bench.script("delete Pod/q@n Background", &vec![refused(); 3]);
    bench.add("Pod/q@n", &["Secret/absent"]).run_for(60);
    assert!(!bench.engine.only_polls_left(), "a deletion is to be tried again");
}

#[test]
fn a_second_delete_of_an_object_that_waits_changes_nothing_in_the_model() {
    for policy in [Foreground, Orphan] {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]);
        assert!(bench.model.delete(&key("Secret/a@n"), Some(policy)).is_some());
        assert!(bench.model.delete(&key("Secret/a@n"), Some(policy)).is_none(), "{policy:?}");
        assert!(bench.model.delete(&key("Secret/a@n"), None).is_none(), "{policy:?}");
        assert!(bench.model.delete(&key("Secret/a@n"), Some(Background)).is_some(), "{policy:?}");
    }
}

/// All figures at once, so that each is of its own.
#[test]
fn statistics_count_what_they_say() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a!"]).add_held("Pod/q@n", &["Secret/a!"]);
    bench.add("Pod/r@n", &["Secret/a!"]);
    bench
        .add("Pod/far@n", &["example.com/v1:Gadget/g", "example.com/v1:Gadget/h", "example.com/v1:Widget/g"]);
    bench.drain();
    bench.script("delete Pod/p@n Background", &[failed()]).script("delete Pod/r@n Background", &[failed()]);
    bench.delete("Secret/a@n", Foreground);
    while let Some(effect) = bench.next_effect() {
        bench.perform(&effect);
    }
    bench.now += 1;
    bench.engine.handle(Event::Tick(Timestamp(bench.now)));
    let expected = Stats {
        objects: 5,
        virtual_owners: 2,
        references: 6,
        retrying: 2,
        waiting_owners: 1,
        oldest_waiting_milliseconds: 1,
        unknown_kind_references: 3,
        deletions: 1,
        retries: 2,
        ..Stats::default()
    };
    assert_eq!(bench.engine.stats(), expected);
}
