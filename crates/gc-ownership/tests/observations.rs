//! Which observations count, by their source and version, and what they count for.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests may panic")]

mod support;

use gc_types::PropagationPolicy::{Background, Foreground};
use gc_types::{Event, Evidence, ObservedObject, Outcome, Request, ResourceVersion, Timestamp, Uid};
use support::{Bench, KINDS, LONG, at, failed, info, key, object, owner, refused, resource, show_request};

/// Returns the owners of an object as the engine knows them.
fn owners_of(bench: &Bench, uid: &str) -> Vec<String> {
    let edges = bench.engine.dump(&[]).edges.into_iter();
    edges.filter(|edge| edge.from == uid).map(|edge| edge.to).collect()
}

/// Reports progress of the watches of all kinds but one.
fn progress_of_all_but(bench: &mut Bench, kind: &str) {
    let resource_version = bench.model.version();
    for (other, ..) in KINDS.iter().filter(|row| row.0 != kind) {
        bench.engine.handle(Event::Progress { resource: resource(other), resource_version });
    }
}

/// An event counts unless it is older than what is known, a list in any case: after a restored backup its lower versions are right.
#[test]
fn an_event_counts_unless_it_is_older_and_a_list_always() {
    // Version of what is known, version of what is observed, whether an event and whether a list counts.
    for (known, observed, event_counts, list_counts) in [
        (20, 10, false, true),
        (20, 20, true, true),
        (20, 30, true, true),
        (20, 0, true, true),
        (0, 10, true, true),
        (0, 0, true, true),
    ] {
        for is_list in [false, true] {
            let mut bench = Bench::new();
            bench.add("Secret/a@n", &[]).add("Secret/b@n", &[]);
            bench.engine.handle(Event::Observed(at(known, object("Pod/p@n", &["Secret/a"]))));
            let newer = at(observed, object("Pod/p@n", &["Secret/b"]));
            if is_list {
                bench.list("Pod", &[newer], 40);
            } else {
                bench.engine.handle(Event::Observed(newer));
            }
            bench.check();
            let counts = if is_list { list_counts } else { event_counts };
            let expected = if counts { "b" } else { "a" };
            assert_eq!(owners_of(&bench, "p"), [expected], "{known} {observed}, list: {is_list}");
        }
    }
}

/// A list that repeats what is known queues nothing.
#[test]
fn a_list_without_news_costs_no_turn() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]);
    for number in 0..10 {
        bench.add(&format!("Pod/p{number}@n"), &["Secret/a"]);
    }
    bench.drain();
    for kind in ["Pod", "Secret"] {
        bench.sync(kind);
        assert_eq!(bench.engine.stats().queued, 0, "{kind}");
    }
    // A kind that comes or goes concerns only those that refer to it.
    bench.add("Pod/q@n", &["ConfigMap/x"]).add("ConfigMap/x@n", &[]).drain();
    let queued = |bench: &Bench| bench.engine.stats().queued;
    bench.engine.handle(Event::ResourceGone(resource("Node")));
    assert_eq!(queued(&bench), 0, "nothing refers to it");
    bench.engine.handle(Event::ResourceGone(resource("ConfigMap")));
    bench.run_for(LONG);
    bench.engine.handle(Event::ResourceServed(info("ConfigMap")));
    assert_eq!(queued(&bench), 1, "q refers to it");
    assert_eq!(bench.take_log(), [""; 0]);
}

/// A watch has delivered everything up to the version of its newest event, also if one of our responses has shown that state before;
/// the response alone says nothing about the watch.
#[test]
fn an_event_that_repeats_a_response_is_progress_and_the_response_is_not() {
    for is_delivered in [true, false] {
        let long = 10_000;
        let mut bench = Bench::gathering(long);
        bench.log_barriers = true;
        bench.add("Secret/a@n", &[]).add("ReplicationController/b@n", &["Secret/a!"]);
        bench.add_held("Pod/p@n", &["ReplicationController/b!"]).drain();
        bench.lag("ReplicationController");
        bench.delete("Secret/a@n", Foreground).run_for(1);
        let asked = ["delete ReplicationController/b@n Foreground", "delete Pod/p@n Background"];
        assert_eq!(bench.take_log(), asked, "the response has shown that b waits");
        let shown = bench.model.get(&key("ReplicationController/b@n")).unwrap().clone();
        bench.engine.handle(Event::Found(shown));
        if is_delivered {
            bench.catch_up("ReplicationController");
        }
        progress_of_all_but(&mut bench, "ReplicationController");
        bench.release("Pod/p@n").run_for(1);
        progress_of_all_but(&mut bench, "ReplicationController");
        bench.run_for(1);
        let done: &[&str] = if is_delivered {
            &[
                "unfinalize ReplicationController/b@n foregroundDeletion",
                "unfinalize Secret/a@n foregroundDeletion",
            ]
        } else {
            &[]
        };
        assert_eq!(bench.take_log(), done, "delivered: {is_delivered}");
        bench.run_for(long);
        assert_eq!(
            bench.take_log().iter().any(|line| line == "barrier replicationcontrollers n"),
            !is_delivered
        );
    }
}

/// Progress beyond the mark of an owner proves as much as progress up to it, and less proves nothing.
#[test]
fn progress_counts_from_the_mark_of_a_waiting_owner_on() {
    for (change, is_done) in [(-1, false), (0, true), (1, true), (10, true)] {
        let mut bench = Bench::gathering(10_000);
        bench.add("Secret/a@n", &[]).drain();
        bench.delete("Secret/a@n", Foreground).run_for(1);
        let resource_version = ResourceVersion(bench.model.version().0.saturating_add_signed(change));
        for (kind, ..) in KINDS {
            bench.engine.handle(Event::Progress { resource: resource(kind), resource_version });
        }
        bench.run_for(1);
        let expected: &[&str] = if is_done { &["unfinalize Secret/a@n foregroundDeletion"] } else { &[] };
        assert_eq!(bench.take_log(), expected, "{change}");
    }
}

/// An object that exists already blocks a waiting owner from when it refers to it, and no longer than that.
#[test]
fn a_reference_that_is_added_blocks_a_waiting_owner() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("ConfigMap/x@n", &[]);
    bench.add_held("Pod/p@n", &["Secret/a!"]).add("Pod/q@n", &["ConfigMap/x"]).drain();
    bench.script("delete Pod/p@n Background", &[failed()]);
    bench.delete("Secret/a@n", Foreground).drain();
    bench.script("owners Pod/q@n [x]", &vec![refused(); 100]);
    bench.set_owners("Pod/q@n", &["ConfigMap/x", "Secret/a!"]).run_for(1_000);
    bench.take_log();
    bench.release("Pod/p@n").run_for(60_000);
    let log = bench.take_log();
    assert!(!log.iter().any(|line| line.starts_with("unfinalize")), "q blocks it: {log:?}");
    bench.set_owners("Pod/q@n", &["ConfigMap/x"]).run_for(1_000);
    assert_eq!(bench.take_log(), ["unfinalize Secret/a@n foregroundDeletion"]);
}

/// A list that begins again shows all objects again: those that only the interrupted one has shown are missing from it.
#[test]
fn an_interrupted_list_counts_for_nothing() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Secret/b@n", &[]);
    for number in 0..4 {
        bench.add(&format!("Pod/p{number}@n"), &[]);
    }
    bench.drain();
    let pods: Vec<ObservedObject> = bench.model.list(resource("Pod"), None).collect();
    let version = bench.model.version().0;
    bench.engine.handle(Event::ListStarted(resource("Pod")));
    for pod in &pods[..3] {
        bench.engine.handle(Event::Observed(pod.clone()));
    }
    bench.list("Pod", &pods[2..], version);
    assert_eq!(bench.engine.objects_of(resource("Pod")), 2);
    // Objects of other kinds are as they were.
    bench.sync("Secret");
    assert_eq!(bench.engine.objects_of(resource("Secret")), 2);
}

/// A list that is older than what was delivered before shows that the server was restored: what was read or proven before is void,
/// also about other resources.
#[test]
fn a_list_that_is_older_than_its_watch_voids_what_was_proven_before() {
    // A list without a version is older than nothing, and neither is one after a broken watch has claimed to be further.
    for (change, claimed, is_restored) in
        [(-1, 0, true), (0, 0, false), (1, 0, false), (i64::MIN, 0, false), (0, 5, false)]
    {
        let mut bench = Bench::new();
        bench.add("ConfigMap/x@n", &[]).add("Pod/p@n", &["Secret/gone"]);
        bench.script("delete Pod/p@n Background", &vec![refused(); 1_000]);
        // A proof of absence that was read …
        bench.run_for(1_000);
        // … and a resource that has caught up with the mark of an owner.
        bench.add("Secret/a@n", &[]).add_held("Pod/held@n", &["Secret/a!"]).drain();
        bench.delete("Secret/a@n", Foreground).run_for(1_000);
        progress_of_all_but(&mut bench, "none");
        bench.add("ConfigMap/y@n", &[]).run_for(1_000);
        let newest = bench.model.version().0;
        bench.take_log();
        let listed: Vec<ObservedObject> = bench.model.list(resource("ConfigMap"), None).collect();
        if claimed > 0 {
            bench.engine.handle(Event::Stale(resource("ConfigMap")));
            let resource_version = ResourceVersion(newest + claimed);
            bench.engine.handle(Event::Progress { resource: resource("ConfigMap"), resource_version });
        }
        bench.list("ConfigMap", &listed, newest.saturating_add_signed(change));
        bench.log_barriers = true;
        bench.run_for(500_000);
        let log = bench.take_log();
        let is_read = log.iter().any(|line| line == "read Secret/gone@n");
        assert_eq!(is_read, is_restored, "{change}: {log:?}");
        bench.release("Pod/held@n").run_for(1_000);
        let is_listed = bench.take_log().iter().any(|line| line == "barrier deployments n");
        assert_eq!(is_listed, is_restored, "{change}");
    }
}

/// The answer to a list that was sent before the server was restored proves nothing about the history that is valid now.
#[test]
fn a_barrier_that_was_sent_before_a_restore_is_made_again() {
    for is_restored in [true, false] {
        let mut bench = Bench::new();
        bench.log_barriers = true;
        bench.add("ConfigMap/x@n", &[]).add("Secret/a@n", &[]).drain();
        bench.delete("Secret/a@n", Foreground);
        let mut sent = Vec::new();
        while let Some(effect) = bench.engine.poll_effect() {
            sent.push(effect);
        }
        assert!(sent.iter().any(|effect| show_request(&effect.request) == "barrier pods n"));
        if is_restored {
            let listed: Vec<ObservedObject> = bench.model.list(resource("ConfigMap"), None).collect();
            let version = listed[0].resource_version.0;
            bench.engine.handle(Event::Progress {
                resource: resource("ConfigMap"),
                resource_version: ResourceVersion(version + 1),
            });
            bench.list("ConfigMap", &listed, version);
        }
        for effect in sent {
            bench.perform(&effect);
        }
        bench.run_for(1_000);
        let barriers = bench.take_log().iter().filter(|line| *line == "barrier pods n").count();
        assert_eq!(barriers, if is_restored { 2 } else { 1 });
        assert_eq!(bench.world(), ["ConfigMap/x@n"]);
    }
}

/// Only a stale list has shown that an owner waits, so a decision names the read that has confirmed it, not the list.
#[test]
fn a_decision_about_what_only_a_stale_list_has_shown_names_the_read() {
    for is_stale in [true, false] {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
        bench.model.delete(&key("Secret/a@n"), Some(Foreground));
        let waiting = bench.model.get(&key("Secret/a@n")).unwrap().clone();
        let version = waiting.resource_version;
        let newer = ResourceVersion(version.0 + u64::from(is_stale));
        bench.engine.handle(Event::Progress { resource: resource("Secret"), resource_version: newer });
        bench.list("Secret", &[waiting], version.0);
        let mut facts = Vec::new();
        while let Some(effect) = bench.next_effect() {
            if matches!(effect.request, Request::Delete { .. }) {
                facts.extend(effect.reason.evidence.clone().into_iter().skip(1));
            }
            bench.perform(&effect);
        }
        let resource_version = if is_stale { ResourceVersion::UNKNOWN } else { version };
        assert_eq!(
            facts,
            [Evidence::Waiting { owner: Uid::new("a"), resource_version }],
            "stale: {is_stale}"
        );
    }
}

/// An object in the list of a barrier that no watch has shown: it is taken for one that the list of the watch has left out, and
/// read, if that should have contained it; otherwise its watch will deliver it.
#[test]
fn an_unknown_object_in_the_list_of_a_barrier_is_read_if_the_watch_should_have_listed_it() {
    let listed = 40;
    for (version, owners, is_read) in [
        (39, &["Secret/a"][..], true),
        (40, &["Secret/a"], true),
        (41, &["Secret/a"], false),
        (0, &["Secret/a"], false),
        (39, &[], false),
    ] {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]).drain();
        bench.list("Pod", &[], listed);
        let left_out = object("Pod/p@n", owners);
        bench.model.put(left_out.clone());
        bench.engine.handle(Event::Found(at(version, left_out)));
        bench.run_for(1_000);
        let expected: &[&str] = if is_read { &["read Pod/p@n"] } else { &[] };
        assert_eq!(bench.take_log(), expected, "{version} {owners:?}");
        assert_eq!(bench.engine.objects_of(resource("Pod")), usize::from(is_read), "{version} {owners:?}");
    }
}

/// Without a version there is nothing to make a request conditional on, so the object is read right before it.
#[test]
fn an_object_without_a_version_is_read_before_it_is_changed() {
    for (answer, guard) in [(ResourceVersion(7), ""), (ResourceVersion::UNKNOWN, " uid-only")] {
        let mut bench = Bench::new();
        let pod = at(0, object("Pod/p@n", &["Secret/gone"]));
        bench.model.put(pod.clone());
        bench.script(
            "read Pod/p@n",
            &[Outcome::Found(ObservedObject { resource_version: answer, ..pod.clone() })],
        );
        bench.script(&format!("delete Pod/p@n Background{guard}"), &[Outcome::Applied(None)]);
        bench.engine.handle(Event::Observed(pod));
        bench.run_for(100);
        let log = bench.take_log();
        assert_eq!(
            log[..3],
            ["read Secret/gone@n", "read Pod/p@n", &format!("delete Pod/p@n Background{guard}")]
        );
    }
}

/// The first conflict costs a read and no time, each further one twice the time of the one before; after three of them, only the UID
/// guards.
#[test]
fn conflicts_wait_longer_each_time_until_only_the_uid_counts() {
    let mut bench = Bench::new();
    bench.add("Pod/p@n", &["Secret/gone"]).run_for(40);
    bench.script("delete Pod/p@n Background", &vec![Outcome::Conflict; 9]);
    bench.script("delete Pod/p@n Background uid-only", &vec![Outcome::Conflict; 2]);
    let expected = [
        "10 read Secret/gone@n",
        "10 delete Pod/p@n Background",
        "10 read Pod/p@n",
        "10 delete Pod/p@n Background",
        "15 read Pod/p@n",
        "15 delete Pod/p@n Background",
        "25 read Pod/p@n",
        "25 delete Pod/p@n Background uid-only",
        "30 read Pod/p@n",
        "30 delete Pod/p@n Background uid-only",
        "40 read Pod/p@n",
        "40 delete Pod/p@n Background uid-only",
    ];
    assert_eq!(bench.requests_within(10_000), expected);
}

/// The references that stay are written as they were read, with each value of each field.
#[test]
fn references_that_stay_are_written_as_they_were() {
    let booleans = [None, Some(false), Some(true)];
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Secret/lives@n", &[]).drain();
    let mut dependent = object("Pod/p@n", &["Secret/a"]);
    let mut staying = Vec::new();
    for controller in booleans {
        for block_owner_deletion in booleans {
            staying.push(gc_types::OwnerReference {
                controller,
                block_owner_deletion,
                ..owner("Secret/lives")
            });
        }
    }
    dependent.owners.extend(staying.iter().cloned());
    bench.put(dependent).drain();
    bench.delete("Secret/a@n", Background);
    let written: Vec<_> = std::iter::from_fn(|| bench.next_effect())
        .filter_map(|effect| match effect.request {
            Request::SetOwners { remaining, .. } => Some(remaining),
            _ => None,
        })
        .collect();
    assert_eq!(written, [staying]);
}

/// A read is about one claim: it is made while an object makes that claim, and decides about nothing else.
#[test]
fn each_claim_about_an_owner_is_read_for_itself() {
    // The dependent that makes the second claim goes before it is read.
    let mut bench = Bench::new();
    bench.add("Pod/p@n", &["Secret/a"]).add("Pod/q@n", &["Secret/b=a"]).drain();
    let event = bench.model.force_remove(&key("Pod/q@n")).unwrap();
    bench.deliver(event);
    bench.run_for(1_000);
    assert_eq!(bench.take_log(), ["read Secret/a@n", "delete Pod/p@n Background"]);

    // Nothing is at the place that one dependent names: that does not confirm what the watch says about the other place.
    let mut bench = Bench::new();
    bench.log_confirmations = true;
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).add("Pod/q@n", &["Secret/b=a"]).drain();
    bench.script("read Secret/a@n", &vec![failed(); 2]);
    bench.engine.handle(Event::Removed {
        key: key("Secret/a@n"),
        uid: Uid::new("a"),
        resource_version: ResourceVersion(bench.model.version().0 + 1),
    });
    bench.run_for(10_000);
    let log = bench.take_log();
    assert!(log.contains(&"delete Pod/q@n Background".to_owned()), "{log:?}");
    assert!(log.contains(&"read Secret/b@n".to_owned()), "{log:?}");
    assert_eq!(bench.world(), ["Pod/p@n[a]", "Secret/a@n"]);
}

/// A response that an event has overtaken costs nothing more.
#[test]
fn a_read_that_its_watch_has_overtaken_is_not_repeated() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.script("delete Pod/p@n Background", &[Outcome::Conflict]);
    let before = bench.model.get(&key("Pod/p@n")).unwrap().clone();
    bench.script("read Pod/p@n", &[Outcome::Found(before)]);
    support::touch(&mut bench, "read Pod/p@n", "Pod/p@n", 1);
    bench.delete("Secret/a@n", Background).run_for(10_000);
    let log = bench.take_log();
    assert_eq!(log, ["delete Pod/p@n Background", "read Pod/p@n", "delete Pod/p@n Background"]);
    assert_eq!(bench.world(), [""; 0]);
}

/// A removal that the watch reports at the version of the object itself is older than the object.
#[test]
fn a_removal_is_reported_only_if_it_is_newer_than_the_object() {
    for (change, is_reported) in [(-1, false), (0, false), (1, true)] {
        let mut bench = Bench::new();
        bench.add("Secret/z@n", &[]).add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
        let object = bench.model.force_remove(&key("Secret/a@n"));
        let Some(Event::Removed { key, uid, .. }) = object else { panic!("{object:?}") };
        let version = bench.model.version().0 - 2;
        let resource_version = ResourceVersion(version.saturating_add_signed(change));
        bench.engine.handle(Event::Removed { key, uid, resource_version });
        let mut facts = Vec::new();
        while bench.now < 2_000 {
            while let Some(effect) = bench.engine.poll_effect() {
                if matches!(effect.request, Request::Read { .. }) {
                    facts.push(effect.reason.evidence.clone());
                }
                bench.perform(&effect);
            }
            bench.now += 10;
            bench.engine.handle(Event::Tick(Timestamp(bench.now)));
        }
        let expected = if is_reported {
            vec![Evidence::RemovalSeen { owner: Uid::new("a"), resource_version }]
        } else {
            vec![]
        };
        assert_eq!(facts, [expected], "{change}");
        assert_eq!(bench.world(), ["Secret/z@n"], "{change}");
    }
}
