//! One event of a watch about an owner is only a report: two answers must agree before its dependents are deleted or released.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests may panic")]

mod support;

use gc_types::PropagationPolicy::{Background, Foreground, Orphan};
use gc_types::{DeletionState, Event, ObservedObject, Outcome, ResourceVersion, Uid};
use support::{Bench, LONG, failed, key, object, owner, resource, show_request};

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.log_confirmations = true;
    bench
}

/// Returns an event that shows a living object at a version newer than the server's.
fn reported(bench: &Bench, text: &str, change: impl FnOnce(&mut ObservedObject)) -> Event {
    let mut object = bench.model.get(&key(text)).unwrap().clone();
    object.resource_version = ResourceVersion(bench.model.version().0 + 7);
    change(&mut object);
    Event::Observed(object)
}

#[test]
fn a_removal_of_what_lives_deletes_nothing() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).add("Pod/q@n", &["Secret/a"]).drain();
    let resource_version = ResourceVersion(bench.model.version().0 + 7);
    bench.deliver(Event::Removed { key: key("Secret/a@n"), uid: Uid::new("a"), resource_version });
    bench.run_for(LONG);
    let log = bench.take_log();
    assert!(!log.is_empty() && log.iter().all(|line| line == "read Secret/a@n"), "{log:?}");
    // Once it is really gone, the next read shows it.
    bench.model.force_remove(&key("Secret/a@n"));
    bench.run_for(LONG);
    let log = bench.take_log();
    assert_eq!(log.last().map(String::as_str), Some("delete Pod/p@n Background"), "{log:?}");
    assert_eq!(bench.world(), Vec::<String>::new());
}

#[test]
fn a_mark_that_a_living_object_does_not_have_deletes_and_releases_nothing() {
    for deletion in [
        DeletionState { deleting: true, foreground: true, ..DeletionState::default() },
        DeletionState { deleting: true, orphan: true, ..DeletionState::default() },
    ] {
        let mut bench = bench();
        bench
            .add("Secret/a@n", &[])
            .add("Pod/p@n", &["Secret/a!"])
            .add_held("Pod/q@n", &["Secret/a"])
            .drain();
        bench.delete("Pod/q@n", Background);
        let event = reported(&bench, "Secret/a@n", |object| object.deletion = deletion);
        bench.deliver(event);
        bench.run_for(LONG);
        let log = bench.take_log();
        assert!(!log.is_empty() && log.iter().all(|line| line == "read Secret/a@n"), "{deletion:?}: {log:?}");
        assert_eq!(bench.world(), ["Pod/p@n[a]", "-Pod/q@n[a]", "Secret/a@n"]);
    }
}

/// The owner is really deleted, and its watch claims to have delivered everything since.
#[test]
fn a_bookmark_of_the_future_hides_no_dependent_from_an_owner_that_orphans() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add("Pod/known@n", &["Secret/a"]).drain();
    bench.lag("Pod");
    let resource_version = ResourceVersion(bench.model.version().0 + 90);
    bench.engine.handle(Event::Progress { resource: resource("Pod"), resource_version });
    bench.add("Pod/late@n", &["Secret/a"]).delete("Secret/a@n", Orphan).run_for(LONG);
    bench.catch_up("Pod");
    bench.run_for(LONG);
    assert_eq!(bench.world(), ["Pod/known@n", "Pod/late@n"], "{:#?}", bench.log);
}

#[test]
fn a_dependent_that_one_event_removes_is_read_before_its_owner_is_done_with_orphaning() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.script("owners Pod/p@n []", &[failed()]);
    bench.delete("Secret/a@n", Orphan);
    let resource_version = ResourceVersion(bench.model.version().0 + 7);
    bench.deliver(Event::Removed { key: key("Pod/p@n"), uid: Uid::new("p"), resource_version });
    bench.run_for(LONG);
    assert_eq!(bench.world(), ["Pod/p@n"], "{:#?}", bench.log);
}

/// A second answer has to agree that somebody else has removed the reference, and costs a read.
#[test]
fn a_reference_that_somebody_else_removes_from_an_orphan_costs_a_read() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.script("owners Pod/p@n []", &[failed(), failed()]);
    bench.delete("Secret/a@n", Orphan);
    bench.drain();
    bench.take_log();
    bench.set_owners("Pod/p@n", &[]);
    bench.run_for(LONG);
    let log = bench.take_log();
    assert_eq!(log.first().map(String::as_str), Some("read Pod/p@n"), "{log:?}");
    assert_eq!(log.last().map(String::as_str), Some("unfinalize Secret/a@n orphan"), "{log:?}");
    assert_eq!(bench.world(), ["Pod/p@n"]);
}

/// Without the reference that the event hides, the owner would be done, and the read after the conflict would find it absent.
#[test]
fn a_dependent_whose_reference_one_event_hides_is_orphaned() {
    for is_marked_first in [false, true] {
        let mut bench = bench();
        bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
        let event = reported(&bench, "Pod/p@n", |object| {
            object.owners = [owner("Secret/absent")].into_iter().collect();
        });
        bench.script("read Secret/absent@n", &[failed(), failed(), failed()]);
        if is_marked_first {
            bench.delete("Secret/a@n", Orphan);
            bench.deliver(event);
        } else {
            bench.deliver(event);
            bench.delete("Secret/a@n", Orphan);
        }
        bench.run_for(LONG);
        assert_eq!(bench.world(), ["Pod/p@n"], "{:#?}", bench.log);
    }
}

/// A deletion is conditional on the version of such an event; after a conflict the object is read, and the server's answer counts.
#[test]
fn an_object_with_an_owner_that_only_one_event_names_is_not_deleted() {
    let mut bench = bench();
    bench.add("Pod/p@n", &[]).drain();
    let event =
        reported(&bench, "Pod/p@n", |object| object.owners = [owner("Secret/absent")].into_iter().collect());
    bench.deliver(event);
    bench.run_for(LONG);
    assert_eq!(bench.log, ["read Secret/absent@n", "delete Pod/p@n Background", "read Pod/p@n"]);
    assert_eq!(bench.world(), ["Pod/p@n"]);
}

/// Requests of cascades over a tree: the owner that somebody else has deleted is read once; for the others, the responses to their
/// own deletions are enough, whether the response or the event comes first.
#[test]
fn a_cascade_reads_its_first_owner_and_no_other() {
    for policy in [Background, Foreground] {
        for is_watch_late in [false, true] {
            let mut bench = bench();
            bench.add("Deployment/top@n", &[]);
            for branch in 0..5 {
                let name = format!("ReplicationController/branch{branch}@n");
                bench.add(&name, &["Deployment/top!"]);
                for leaf in 0..20 {
                    bench.add(
                        &format!("Pod/leaf{branch}-{leaf}@n"),
                        &[&format!("ReplicationController/branch{branch}!")],
                    );
                }
            }
            bench.drain();
            bench.delete("Deployment/top@n", policy);
            if is_watch_late {
                bench.lag("ReplicationController");
                bench.run_for(1_000);
                bench.catch_up("ReplicationController");
            }
            bench.run_for(LONG);
            let count = |what: &str| bench.log.iter().filter(|line| line.starts_with(what)).count();
            let expected = [1, 105, if policy == Foreground { 6 } else { 0 }];
            assert_eq!(["read", "delete", "unfinalize"].map(count), expected, "{policy:?}: {:#?}", bench.log);
            assert_eq!(bench.world(), Vec::<String>::new());
        }
    }
}

/// A DELETE whose response is lost does not confirm its watch's report.
#[test]
fn an_owner_whose_deletion_was_not_answered_is_read() {
    let mut bench = bench();
    bench.add("Secret/top@n", &[]).add("Secret/a@n", &["Secret/top"]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.delete("Secret/top@n", Background);
    let read = bench.engine.poll_effect().unwrap();
    bench.perform(&read);
    let delete = bench.engine.poll_effect().unwrap();
    assert_eq!(show_request(&delete.request), "delete Secret/a@n Background");
    for event in bench.model.answer(&delete.request).events {
        bench.deliver(event);
    }
    bench.run_for(1_000);
    assert_eq!(bench.take_log(), ["read Secret/top@n"], "the answer is awaited");
    bench.deliver(Event::Done(delete.id, failed()));
    bench.run_for(1_000);
    assert_eq!(bench.take_log(), ["read Secret/a@n", "delete Pod/p@n Background"]);
}

/// A read that fails keeps the dependents; one that fails for good keeps them for good.
#[test]
fn a_removal_that_no_read_confirms_deletes_nothing() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.script("read Secret/a@n", &vec![Outcome::NotServed; 1_000]);
    bench.delete("Secret/a@n", Background).run_for(LONG);
    assert!(bench.take_log().iter().all(|line| line == "read Secret/a@n"));
    assert_eq!(bench.world(), ["Pod/p@n[a]"]);
}

/// An owner that came back in a list is decided by the state in the list.
#[test]
fn a_list_that_shows_a_reported_owner_again_makes_it_live() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.script("read Secret/a@n", &[failed()]);
    let resource_version = ResourceVersion(bench.model.version().0 + 7);
    bench.deliver(Event::Removed { key: key("Secret/a@n"), uid: Uid::new("a"), resource_version });
    bench.drain();
    bench.put(object("Secret/b@n", &[]));
    bench.sync("Secret");
    bench.run_for(LONG);
    bench.take_log();
    bench.run_for(LONG);
    assert_eq!(bench.take_log(), Vec::<String>::new());
    assert_eq!(bench.world(), ["Pod/p@n[a]", "Secret/a@n", "Secret/b@n"]);
}
