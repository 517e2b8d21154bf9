//! Responses to requests, beside what the watch of their resource has delivered.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests may panic")]

mod support;

use gc_ownership::Config;
use gc_types::PropagationPolicy::{Background, Foreground, Orphan};
use gc_types::{
    DeletionState, Event, Evidence, ObservedObject, Outcome, Request, ResourceVersion, Uid, WithheldBy,
};
use support::{Bench, at, failed, key, object, refused, resource};

const NOTHING: [&str; 0] = [];

/// Creates a bench whose log contains the reads that confirm a watch's report.
fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.log_confirmations = true;
    bench
}

/// A list that repeats the state of a waiting owner, or an event about others' finalizers, leaves valid what a read has shown.
#[test]
fn what_repeats_the_state_of_a_waiting_owner_costs_no_read() {
    for is_list in [true, false] {
        let mut bench = bench();
        bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a!"]).drain();
        bench.delete("Secret/a@n", Foreground).run_for(1_000);
        assert_eq!(bench.take_log(), ["read Secret/a@n", "delete Pod/p@n Background"]);
        if is_list {
            bench.sync("Secret");
        } else {
            let mut held = bench.model.get(&key("Secret/a@n")).unwrap().clone();
            held.deletion.foreign_finalizers = true;
            bench.put(held);
        }
        bench.run_for(1_000);
        assert_eq!(bench.take_log(), NOTHING, "list: {is_list}");
    }
}

/// An event that repeats the watch's report, or one that is older, is not the second answer.
#[test]
fn only_a_response_confirms_that_an_owner_waits() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.script("read Secret/a@n", &vec![failed(); 1_000]);
    bench.delete("Secret/a@n", Foreground).drain();
    let waiting = bench.model.get(&key("Secret/a@n")).unwrap().clone();
    let former = at(waiting.resource_version.0 - 1, waiting.clone());
    // A list of another resource that shows it there, too, says nothing about it here.
    let elsewhere =
        ObservedObject { key: key("ConfigMap/a@n"), ..at(waiting.resource_version.0 + 1, waiting.clone()) };
    for event in [Event::Observed(waiting), Event::Observed(former), Event::Found(elsewhere)] {
        bench.engine.handle(event);
        bench.run_for(10_000);
    }
    let log = bench.take_log();
    assert!(log.iter().all(|line| line == "read Secret/a@n"), "{log:?}");
}

/// A response may be newer than what the watch has delivered. It confirms that the owner waits all the same; and if the owner
/// orphans its dependents, they must all be known as of that version.
#[test]
fn a_newer_response_confirms_that_an_owner_waits() {
    let (deletion, release) = ("delete Pod/p@n Background", "owners Pod/p@n []");
    let finished = "unfinalize Secret/a@n orphan";
    for (policy, has_dependent, next, moves_mark) in
        [(Foreground, true, deletion, false), (Orphan, true, release, true), (Orphan, false, finished, true)]
    {
        let mut bench = bench();
        bench.add("Secret/a@n", &[]);
        if has_dependent {
            bench.add("Pod/p@n", &["Secret/a"]);
        }
        bench.drain();
        bench.before.entry("read Secret/a@n".to_owned()).or_default().push_back(Box::new(|model| {
            let waiting = model.get(&key("Secret/a@n")).unwrap().clone();
            model.put(waiting);
            vec![]
        }));
        bench.delete("Secret/a@n", policy);
        let marked = bench.model.version();
        let mut facts = Vec::new();
        while let Some(effect) = bench.engine.poll_effect() {
            if matches!(effect.request, Request::RemoveFinalizer { .. }) {
                facts.extend(effect.reason.evidence.clone().into_iter().skip(1));
            }
            bench.perform(&effect);
        }
        assert_eq!(bench.take_log()[..2], ["read Secret/a@n", next]);
        let resource_version = ResourceVersion(marked.0 + u64::from(moves_mark));
        assert_eq!(facts, [Evidence::CaughtUp { resource_version }], "{policy:?} {has_dependent}");
    }
}

/// Our DELETE has removed an owner, so the report of its watch needs no read, unless the owner was shown again since.
#[test]
fn the_removal_by_our_delete_needs_no_read_unless_the_object_was_shown_since() {
    type Change = fn(&mut Bench, ObservedObject);
    let rows: [(&str, Change, usize); 3] = [
        ("nothing", |_, _| (), 0),
        (
            "a list",
            |bench, owner| bench.list("Secret", std::slice::from_ref(&owner), owner.resource_version.0),
            1,
        ),
        ("an event", |bench, owner| bench.engine.handle(Event::Observed(at(2, owner))), 1),
    ];
    for (name, change, reads) in rows {
        let mut bench = bench();
        bench.add("Secret/a@n", &["ConfigMap/gone"]).add("Pod/p@n", &["Secret/a"]).lag("Secret");
        let owner = bench.model.get(&key("Secret/a@n")).unwrap().clone();
        bench.run_for(1_000);
        assert_eq!(bench.take_log(), ["read ConfigMap/gone@n", "delete Secret/a@n Background"]);
        change(&mut bench, owner);
        bench.catch_up("Secret");
        bench.run_for(1_000);
        let expected = [vec!["read Secret/a@n"; reads], vec!["delete Pod/p@n Background"]].concat();
        assert_eq!(bench.take_log(), expected, "{name}");
    }
}

/// If our DELETE has only marked an owner, nothing but its watch says that it was removed later.
#[test]
fn the_removal_of_an_object_that_our_delete_has_marked_needs_a_read() {
    let mut bench = bench();
    bench.add_held("Secret/a@n", &["ConfigMap/gone"]).add("Pod/p@n", &["Secret/a"]).run_for(1_000);
    assert_eq!(bench.take_log(), ["read ConfigMap/gone@n", "delete Secret/a@n Background"]);
    bench.release("Secret/a@n").run_for(1_000);
    assert_eq!(bench.take_log(), ["read Secret/a@n", "delete Pod/p@n Background"]);
}

/// Our DELETE has made an owner wait, as its watch shows, and its response was lost: then a read decides, and not only when the
/// request is due again.
#[test]
fn a_lost_response_to_our_delete_is_replaced_by_a_read_at_once() {
    let mut bench = bench();
    let mut owner = object("Secret/a@n", &["ConfigMap/gone"]);
    owner.deletion.foreground = true;
    bench.put(owner).add("Pod/p@n", &["Secret/a!"]);
    bench.before.entry("delete Secret/a@n Foreground".to_owned()).or_default().push_back(Box::new(|model| {
        model.delete(&key("Secret/a@n"), Some(Foreground)).into_iter().collect()
    }));
    bench.script("delete Secret/a@n Foreground", &[failed()]);
    let patience = Config::default().verify_patience_milliseconds;
    bench.run_for(patience);
    assert_eq!(
        bench.take_log(),
        [
            "read ConfigMap/gone@n",
            "delete Secret/a@n Foreground",
            "read Secret/a@n",
            "delete Pod/p@n Background"
        ]
    );
}

/// Two events, or an event and a list, that show one version with different references cannot both be right.
#[test]
fn a_read_decides_between_two_contents_of_one_version() {
    for (first, second, truth) in [("a", "b", "a"), ("a", "b", "b"), ("b", "a", "a"), ("b", "a", "b")] {
        for is_found in [false, true] {
            let mut bench = Bench::new();
            bench.add("Secret/a@n", &[]).add("Secret/b@n", &[]).drain();
            let pod = |owner: &str| object("Pod/p@n", &[&format!("Secret/{owner}")]);
            bench.model.put(pod(truth));
            let version = bench.model.version().0;
            bench.engine.handle(Event::Observed(at(version, pod(first))));
            let other = at(version, pod(second));
            bench.deliver(if is_found { Event::Found(other) } else { Event::Observed(other) });
            bench.run_for(1_000);
            assert_eq!(bench.take_log(), ["read Pod/p@n"], "{first} {second} {truth}, found: {is_found}");
            let known = bench.engine.owners_of(&Uid::new("p"));
            assert_eq!(known, [support::owner(&format!("Secret/{truth}"))], "{first} {second}: {is_found}");
        }
    }
}

/// Objects without versions are what they were last shown to be.
#[test]
fn an_object_without_a_version_is_decided_on_when_its_content_changes() {
    let deleting = DeletionState { deleting: true, foreign_finalizers: true, ..DeletionState::default() };
    let lives = || object("Pod/p@n", &["Secret/lives"]);
    let orphan = || object("Pod/p@n", &["Secret/gone"]);
    let rows = [
        ("references", lives(), orphan()),
        ("deletion", ObservedObject { deletion: deleting, ..orphan() }, orphan()),
    ];
    for (name, before, after) in rows {
        let mut bench = Bench::new();
        bench.add("Secret/lives@n", &[]);
        bench.deliver(Event::Observed(before));
        bench.run_for(1_000);
        assert_eq!(bench.take_log(), NOTHING, "{name}");
        bench.model.restore(after.clone());
        bench.deliver(Event::Observed(after));
        bench.run_for(100);
        let log = bench.take_log();
        assert_eq!(log[..2], ["read Secret/gone@n", "read Pod/p@n"], "{name}");
    }
}

/// An owner carries the finalizer before it is deleted: until then it orphans nothing, so its dependents get no turn.
#[test]
fn a_finalizer_alone_orphans_nothing() {
    let mut bench = Bench::new();
    let mut owner = object("Secret/a@n", &[]);
    owner.deletion.orphan = true;
    bench.put(owner.clone()).add("Pod/p@n", &["Secret/a"]).drain();
    owner.deletion.foreign_finalizers = true;
    bench.put(owner);
    assert_eq!(bench.engine.stats().queued, 0);
}

/// An owner that is first shown by its removal will not arrive on its watch, so there is nothing to wait for before it is read.
#[test]
fn an_owner_that_is_first_shown_by_its_removal_is_read_at_once() {
    let mut bench = bench();
    bench.add("Pod/p@n", &["Secret/gone"]).drain();
    let resource_version = ResourceVersion(bench.model.version().0 + 1);
    bench.deliver(Event::Removed { key: key("Secret/gone@n"), uid: Uid::new("gone"), resource_version });
    bench.drain();
    assert_eq!(bench.take_log(), ["read Secret/gone@n", "delete Pod/p@n Background"]);
}

/// A read has confirmed what the watch reported, so a decision names the removal.
#[test]
fn a_decision_names_the_removal_that_a_read_has_confirmed() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.delete("Secret/a@n", Background);
    let removal = Evidence::RemovalSeen { owner: Uid::new("a"), resource_version: bench.model.version() };
    let mut facts = Vec::new();
    while let Some(effect) = bench.engine.poll_effect() {
        facts.push(effect.reason.evidence.last().unwrap().clone());
        bench.perform(&effect);
    }
    assert_eq!(bench.take_log(), ["read Secret/a@n", "delete Pod/p@n Background"]);
    assert_eq!(facts, [removal.clone(), removal]);
}

/// A read finds an owner that waits and that its watch has not delivered yet: it will, unless it should have done so before.
#[test]
fn an_owner_that_a_read_finds_is_known_from_its_watch_if_that_is_only_behind() {
    for (listed, is_known) in [(0, false), (10, true)] {
        let mut bench = bench();
        let mut owner = object("Secret/a@n", &[]);
        (owner.deletion.deleting, owner.deletion.foreground) = (true, true);
        bench.model.restore(at(10, owner));
        bench.list("Secret", &[], listed);
        bench.script("delete Pod/p@n Background", &[refused()]);
        let patience = Config::default().verify_patience_milliseconds;
        bench.add("Pod/p@n", &["Secret/a!"]).run_for(patience);
        assert_eq!(bench.engine.objects_of(resource("Secret")), usize::from(is_known), "listed: {listed}");
    }
}

/// That an owner was absent is remembered for the next dependent that refers to it, until the owner is shown.
#[test]
fn an_absence_is_remembered_until_the_owner_is_shown() {
    for is_shown in [false, true] {
        let mut bench = bench();
        bench.add("Pod/p@n", &["Secret/a"]).run_for(1_000);
        assert_eq!(bench.take_log(), ["read Secret/a@n", "delete Pod/p@n Background"]);
        if is_shown {
            bench.add("Secret/a@n", &[]).drain();
            let event = bench.model.force_remove(&key("Secret/a@n")).unwrap();
            bench.deliver(event);
        }
        bench.add("Pod/q@n", &["Secret/a"]).run_for(1_000);
        let expected = [vec!["read Secret/a@n"; usize::from(is_shown)], vec!["delete Pod/q@n Background"]];
        assert_eq!(bench.take_log(), expected.concat(), "shown: {is_shown}");
    }
}

/// An owner that cannot be read three times counts as living from then on, and as soon as that: the other references are released.
#[test]
fn an_owner_that_cannot_be_read_holds_up_the_other_references_for_three_reads() {
    let mut bench = Bench::new();
    bench.script("read ConfigMap/unreadable@n", &vec![refused(); 100]);
    bench.add("Pod/p@n", &["Secret/gone", "ConfigMap/unreadable"]);
    assert_eq!(
        bench.requests_within(1_500),
        [
            "50 read Secret/gone@n",
            "50 read ConfigMap/unreadable@n",
            "150 read ConfigMap/unreadable@n",
            "350 read ConfigMap/unreadable@n",
            "350 owners Pod/p@n [unreadable]",
            "750 read ConfigMap/unreadable@n",
        ]
    );
}

/// A refused deletion has changed nothing, so the object is not read before the next attempt. The removal of a finalizer that failed
/// may have succeeded nevertheless, so its object is read; a conflict about it waits as any other failure does.
#[test]
fn an_attempt_that_failed_is_repeated_after_a_read_if_it_may_have_succeeded() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.script("delete Pod/p@n Background", &vec![refused(); 2]);
    bench.delete("Secret/a@n", Background);
    let deletion = "delete Pod/p@n Background";
    assert_eq!(
        bench.requests_within(100),
        [format!("0 {deletion}"), format!("5 {deletion}"), format!("15 {deletion}")]
    );
    for (policy, finalizer) in [(Orphan, "orphan"), (Foreground, "foregroundDeletion")] {
        for outcome in [Outcome::Conflict, failed(), refused()] {
            let mut bench = Bench::new();
            let removal = format!("unfinalize Secret/a@n {finalizer}");
            bench.add("Secret/a@n", &[]).drain();
            bench.script(&removal, std::slice::from_ref(&outcome));
            bench.delete("Secret/a@n", policy);
            assert_eq!(
                bench.requests_within(100),
                [format!("0 {removal}"), "5 read Secret/a@n".to_owned(), format!("5 {removal}")],
                "{finalizer} {outcome:?}"
            );
        }
    }
}

/// A dependent that appears while its owner's finalizer is being removed waits for the result. If the request was withheld, the
/// owner certainly still waits, and the dependent is decided on.
#[test]
fn a_dependent_that_waited_for_a_withheld_removal_is_decided_on() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).drain();
    bench.delete("Secret/a@n", Foreground);
    let removal = bench.next_finalizer_removal();
    bench.add("Pod/p@n", &["Secret/a!"]).drain();
    assert_eq!(bench.take_log(), NOTHING);
    bench.deliver(Event::Done(removal.id, Outcome::Withheld(WithheldBy::Breaker)));
    bench.drain();
    assert_eq!(bench.take_log(), ["delete Pod/p@n Background"]);
}

/// A terminating object that waits for its own dependents keeps waiting while a read is to show whether its owner orphans it.
#[test]
fn an_object_that_may_be_orphaned_does_not_finish_before_that_is_known() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("ConfigMap/p@n", &["Secret/a"]).add_held("Pod/q@n", &["ConfigMap/p!"]);
    bench.delete("ConfigMap/p@n", Foreground).run_for(1_000);
    bench.script("read Secret/a@n", &vec![failed(); 2]);
    bench.delete("Secret/a@n", Orphan).release("Pod/q@n").run_for(200);
    assert_eq!(bench.take_log(), ["delete Pod/q@n Background"]);
    bench.run_for(1_000);
    let (released, finished) = ("owners ConfigMap/p@n []", "unfinalize ConfigMap/p@n foregroundDeletion");
    assert_eq!(bench.take_log(), [released, finished, "unfinalize Secret/a@n orphan"]);
}

/// In a graph that answers questions nothing is read twice, but a list that is incomplete proves nothing there either.
#[test]
fn the_list_of_the_owners_own_kind_must_be_complete() {
    let mut bench = Bench::with(Config { awaits_lists: false, ..Config::default() });
    bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a!"]).drain();
    bench.delete("Secret/a@n", Foreground).run_for(1_000);
    bench.engine.handle(Event::ListStarted(resource("Secret")));
    let owner = bench.model.get(&key("Secret/a@n")).unwrap().clone();
    bench.engine.handle(Event::Observed(owner));
    bench.release("Pod/p@n").run_for(1_000);
    assert_eq!(bench.take_log(), ["delete Pod/p@n Background"]);
    let resource_version = bench.model.version();
    bench.engine.handle(Event::Synced { resource: resource("Secret"), resource_version });
    bench.run_for(1_000);
    assert_eq!(bench.take_log(), ["unfinalize Secret/a@n foregroundDeletion"]);
}

/// Under another name, the same object blocks its owner once.
#[test]
fn a_dependent_that_is_shown_under_another_name_blocks_once() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a!"]).drain();
    bench.delete("Secret/a@n", Foreground).run_for(1_000);
    let held = bench.model.get(&key("Pod/p@n")).unwrap().clone();
    let version = held.resource_version.0 + 10;
    bench.deliver(Event::Observed(at(version, ObservedObject { key: key("Pod/renamed@n"), ..held })));
}
