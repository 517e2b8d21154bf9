//! Watches that have broken: the server may have been restored in the meantime, so nothing is deleted because of what they had
//! delivered. Also watches that report removals that never happened in the store.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests may panic")]

mod support;

use gc_ownership::Config;
use gc_types::PropagationPolicy::{Background, Foreground, Orphan};
use gc_types::{Event, ObjectKey, ResourceVersion, Uid};
use support::{Bench, KINDS, LONG, failed, key, object, resource};

fn breaks(bench: &mut Bench, kind: &str) {
    bench.engine.handle(Event::Stale(resource(kind)));
    bench.check();
}

/// Resumes the watch, which has missed nothing.
fn resumes(bench: &mut Bench, kind: &str) {
    let resource_version = bench.model.version();
    bench.engine.handle(Event::Synced { resource: resource(kind), resource_version });
    bench.check();
}

#[test]
fn an_owner_whose_removal_was_seen_is_read_while_its_watch_is_broken() {
    let mut bench = Bench::new();
    bench.log_confirmations = true;
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.delete("Secret/a@n", Background);
    breaks(&mut bench, "Secret");
    // A backup was restored.
    bench.model.put(object("Secret/a@n", &[]));
    bench.run_for(1_000);
    let log = bench.take_log();
    assert!(!log.is_empty() && log.iter().all(|line| line == "read Secret/a@n"), "{log:?}");
    bench.sync("Secret");
    bench.run_for(LONG);
    assert_eq!(bench.take_log(), Vec::<String>::new());
    assert_eq!(bench.world(), ["Pod/p@n[a]", "Secret/a@n"]);
}

#[test]
fn an_owner_that_is_really_gone_is_read_once_for_all_its_dependents() {
    let mut bench = Bench::new();
    bench.log_confirmations = true;
    bench.add("Secret/a@n", &[]);
    for number in 0..50 {
        bench.add(&format!("Pod/p{number}@n"), &["Secret/a"]);
    }
    bench.drain();
    bench.delete("Secret/a@n", Background);
    breaks(&mut bench, "Secret");
    bench.run_for(1_000);
    let log = bench.take_log();
    assert_eq!((log[0].as_str(), log.len()), ("read Secret/a@n", 51));
}

#[test]
fn what_was_read_before_a_watch_broke_is_read_again() {
    let mut bench = Bench::new();
    bench.add("Pod/p@n", &["Secret/a"]);
    bench.drain();
    // The dependent is decided on only after its own watch has come back.
    breaks(&mut bench, "Pod");
    bench.run_for(1_000);
    breaks(&mut bench, "Secret");
    bench.model.put(object("Secret/a@n", &[]));
    resumes(&mut bench, "Pod");
    bench.run_for(1_000);
    assert!(bench.take_log().iter().all(|line| line == "read Secret/a@n"));
    assert_eq!(bench.world(), ["Pod/p@n[a]", "Secret/a@n"]);
}

#[test]
fn nothing_is_decided_about_objects_whose_watch_is_broken() {
    for is_listed in [true, false] {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
        breaks(&mut bench, "Pod");
        bench.delete("Secret/a@n", Background).run_for(LONG);
        assert_eq!(bench.take_log(), Vec::<String>::new());
        if is_listed {
            bench.sync("Pod");
        } else {
            resumes(&mut bench, "Pod");
        }
        bench.run_for(1_000);
        assert_eq!(bench.take_log(), ["delete Pod/p@n Background"]);
    }
}

#[test]
fn an_owner_that_waits_or_orphans_does_so_only_while_its_watch_works() {
    for (policy, done) in [
        (Foreground, &["delete Pod/p@n Background", "unfinalize Secret/a@n foregroundDeletion"]),
        (Orphan, &["owners Pod/p@n []", "unfinalize Secret/a@n orphan"]),
    ] {
        for is_restored in [true, false] {
            let mut bench = Bench::new();
            let mut dependent = object("Pod/p@n", &["Secret/a!"]);
            dependent.uid = Uid::new("p");
            bench.add("Secret/a@n", &[]).put(dependent).drain();
            bench.delete("Secret/a@n", policy);
            breaks(&mut bench, "Secret");
            if is_restored {
                bench.model.put(object("Secret/a@n", &[]));
            }
            bench.run_for(100);
            let before = bench.take_log();
            let is_read = |line: &String| line == "read Secret/a@n";
            if policy == Orphan || is_restored {
                assert!(before.iter().all(is_read), "{policy:?}: {before:?}");
            }
            bench.sync("Secret");
            bench.run_for(5_000);
            let log: Vec<String> =
                before.into_iter().chain(bench.take_log()).filter(|line| !is_read(line)).collect();
            let expected: &[&str] = if is_restored { &[] } else { done };
            assert_eq!(log, expected, "{policy:?}, restored: {is_restored}");
        }
    }
}

/// The progress of a broken watch may belong to a past history, even if the newer one has progressed further.
#[test]
fn the_progress_of_a_broken_watch_covers_no_later_mark() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).drain();
    let resource_version = ResourceVersion(bench.model.version().0 + 100);
    bench.engine.handle(Event::Progress { resource: resource("Pod"), resource_version });
    breaks(&mut bench, "Pod");
    bench.log_barriers = true;
    bench.delete("Secret/a@n", Foreground).run_for(1_000);
    let log = bench.take_log();
    let list = log.iter().position(|line| line == "barrier pods n");
    let done = log.iter().position(|line| line == "unfinalize Secret/a@n foregroundDeletion");
    assert!(list.is_some() && list < done, "{log:?}");
}

#[test]
fn a_removal_at_no_version_or_under_another_name_is_doubted() {
    let removals: [fn(&mut ObjectKey, &mut ResourceVersion); 3] = [
        |_, version| *version = ResourceVersion::UNKNOWN,
        |key, _| key.name = "other".into(),
        |key, _| key.namespace = "m".into(),
    ];
    for (number, change) in removals.into_iter().enumerate() {
        let mut bench = Bench::new();
        bench.add("Secret/z@n", &[]).add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
        let (mut key, mut resource_version) = (key("Secret/a@n"), ResourceVersion(1_000));
        change(&mut key, &mut resource_version);
        bench.engine.handle(Event::Removed { key, uid: Uid::new("a"), resource_version });
        bench.run_for(1_000);
        let log = bench.take_log();
        assert!(!log.is_empty() && log.iter().all(|line| line == "read Secret/a@n"), "{number}: {log:?}");
        assert_eq!(bench.world(), ["Pod/p@n[a]", "Secret/a@n", "Secret/z@n"], "{number}");
    }
}

/// The list lacks an owner, and the watch repeats an old removal of it.
#[test]
fn a_removal_that_is_no_news_proves_nothing_about_what_a_list_lacks() {
    let mut bench = Bench::new();
    bench.add("Secret/z@n", &[]).add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    let newest = bench.model.version();
    bench.engine.handle(Event::ListStarted(resource("Secret")));
    bench.engine.handle(Event::Observed(bench.model.get(&key("Secret/z@n")).unwrap().clone()));
    bench.engine.handle(Event::Synced { resource: resource("Secret"), resource_version: newest });
    bench.engine.handle(Event::Removed {
        key: key("Secret/a@n"),
        uid: Uid::new("a"),
        resource_version: newest,
    });
    bench.run_for(1_000);
    let log = bench.take_log();
    assert!(!log.is_empty() && log.iter().all(|line| line == "read Secret/a@n"), "{log:?}");
    assert_eq!(bench.world(), ["Pod/p@n[a]", "Secret/a@n", "Secret/z@n"]);
}

/// A stale list shows an owner as it was before it was marked, and its watch delivers the mark again: it waits for the same
/// resources.
#[test]
fn an_orphaning_owner_that_a_stale_list_shows_alive_still_waits_for_a_withdrawn_resource() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("ConfigMap/d@n", &["Secret/a"]).drain();
    let before = bench.model.get(&key("Secret/a@n")).unwrap().clone();
    bench.script("owners ConfigMap/d@n []", &[support::failed()]);
    bench.delete("Secret/a@n", Orphan);
    let marked = bench.model.get(&key("Secret/a@n")).unwrap().clone();
    bench.engine.handle(Event::ResourceGone(resource("ConfigMap")));
    let (secrets, resource_version) = (resource("Secret"), before.resource_version);
    for event in [
        Event::ListStarted(secrets),
        Event::Observed(before),
        Event::Synced { resource: secrets, resource_version },
        Event::Observed(marked),
    ] {
        bench.engine.handle(event);
    }
    bench.run_for(120_000);
    assert!(!bench.take_log().iter().any(|line| line.starts_with("unfinalize")));
    bench.engine.handle(Event::ResourceServed(support::info("ConfigMap")));
    bench.sync("ConfigMap");
    bench.run_for(10_000);
    assert_eq!(bench.world(), ["ConfigMap/d@n"]);
}

/// A list shows an owner that waits, but an answer that showed it before may be of another history: it is read again for what comes later.
#[test]
fn a_list_takes_back_what_answers_have_shown_of_an_owner_that_waits() {
    for is_restored in [true, false] {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a!"]).drain();
        bench.delete("Secret/a@n", Foreground).run_for(1_000);
        assert!(bench.take_log().contains(&"delete Pod/p@n Background".to_owned()));
        // Something else in it has changed.
        let newer = bench.model.get(&key("Secret/a@n")).unwrap().clone();
        bench.model.put(newer);
        bench.sync("Secret");
        if is_restored {
            bench.model.put(object("Secret/a@n", &[]));
        }
        bench.add("Pod/q@n", &["Secret/a"]).run_for(1_000);
        let is_deleted = bench.take_log().contains(&"delete Pod/q@n Background".to_owned());
        assert_eq!(is_deleted, !is_restored);
    }
}

/// Watches that report how far they are cover the mark of an owner before any list is made for it.
#[test]
fn the_progress_of_watches_ends_the_wait_of_an_owner() {
    let config = Config {
        barrier_quiet_milliseconds: 10_000,
        barrier_gathers_milliseconds: 10_000,
        ..Config::default()
    };
    let mut bench = Bench::with(config);
    bench.log_barriers = true;
    bench.add("Secret/a@n", &[]).drain();
    bench.delete("Secret/a@n", Foreground).run_for(1);
    assert_eq!(bench.world(), ["-Secret/a@n"]);
    let resource_version = bench.model.version();
    for (kind, ..) in KINDS {
        bench.engine.handle(Event::Progress { resource: resource(kind), resource_version });
    }
    bench.run_for(1);
    let log = bench.take_log();
    assert!(!log.iter().any(|line| line.starts_with("barrier")), "{log:?}");
    assert_eq!(bench.world(), [] as [String; 0]);
}

/// What was confirmed about an owner while its watch delivered is read again for a dependent that appears after the watch broke.
#[test]
fn an_owner_that_was_shown_to_wait_is_read_again_while_its_watch_is_broken() {
    for is_broken in [false, true] {
        let mut bench = Bench::new();
        bench.log_confirmations = true;
        bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a!"]).drain();
        bench.delete("Secret/a@n", Foreground).run_for(1_000);
        assert_eq!(bench.take_log(), ["read Secret/a@n", "delete Pod/p@n Background"]);
        if is_broken {
            breaks(&mut bench, "Secret");
        }
        bench.add("Pod/q@n", &["Secret/a"]).run_for(1_000);
        let log = bench.take_log();
        let deletion = log.iter().position(|line| line == "delete Pod/q@n Background");
        assert_eq!(deletion, Some(usize::from(is_broken)), "{log:?}");
    }
}

/// The watch of the owner is resumed before a read has succeeded: its dependents are decided on then.
#[test]
fn dependents_are_decided_on_when_the_watch_of_their_waiting_owner_is_resumed() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a!"]).drain();
    bench.delete("Secret/a@n", Foreground).run_for(1_000);
    bench.take_log();
    breaks(&mut bench, "Secret");
    bench.script("read Secret/a@n", &vec![failed(); 100]);
    bench.add("Pod/q@n", &["Secret/a"]).run_for(100);
    assert!(!bench.take_log().iter().any(|line| line.starts_with("delete")));
    resumes(&mut bench, "Secret");
    bench.drain();
    assert_eq!(bench.take_log(), ["delete Pod/q@n Background"]);
}

/// An object is decided on when its own watch is resumed, also if nothing is known of its owner but that a read did not find it.
#[test]
fn an_object_is_decided_on_when_its_watch_is_resumed() {
    let mut bench = Bench::new();
    bench.add("Pod/p@n", &["Secret/gone"]).drain();
    breaks(&mut bench, "Pod");
    bench.run_for(1_000);
    assert_eq!(bench.take_log(), ["read Secret/gone@n"]);
    resumes(&mut bench, "Pod");
    bench.drain();
    assert_eq!(bench.take_log(), ["delete Pod/p@n Background"]);
}
