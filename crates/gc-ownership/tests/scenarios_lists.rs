//! Scenarios of the catalogue (spec section 14) about lists, discovery, retries and bounds.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests may panic")]

mod support;

use gc_ownership::Config;
use gc_types::PropagationPolicy::{Background, Foreground, Orphan};
use gc_types::{Event, Outcome, ResourceId, ResourceVersion, Uid, WithheldBy};
use support::{Bench, LONG, failed, info, key, object, refused, resource};

#[test]
fn g120_g121_retries_wait_longer_each_time() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.script("delete Pod/p@n Background", &vec![refused(); 30]);
    bench.delete("Secret/a@n", Background).drain();
    let mut delays = Vec::new();
    let mut last = bench.now;
    while let Some(due) = bench.engine.next_wakeup().filter(|_| delays.len() < 22) {
        let attempts = bench.log.len();
        bench.run_for(due.0 - bench.now);
        if bench.log.len() > attempts {
            delays.push(bench.now - last);
            last = bench.now;
        }
    }
    let expected: Vec<i64> = (0..22).map(|failure| (5_i64 << failure).min(1_000_000)).collect();
    assert_eq!(delays, expected);
}

#[test]
fn g140_nothing_is_asked_before_the_lists_are_complete() {
    let mut bench = Bench::unstarted(Config::default());
    for kind in ["Pod", "Secret"] {
        bench.engine.handle(Event::ResourceServed(info(kind)));
    }
    let mut waiting = object("Secret/a@n", &[]);
    waiting.deletion.deleting = true;
    waiting.deletion.orphan = true;
    bench.model.put(waiting);
    bench.model.put(object("Pod/p@n", &["Secret/a"]));
    bench.engine.handle(Event::Discovered);
    bench.sync("Secret");
    bench.run_for(20_000);
    assert_eq!(bench.take_log(), Vec::<String>::new());
    bench.sync("Pod");
    bench.run_for(1_000);
    assert_eq!(bench.take_log(), ["owners Pod/p@n []", "unfinalize Secret/a@n orphan"]);
    assert_eq!(bench.world(), ["Pod/p@n"]);
}

#[test]
fn r1_a_resource_that_never_syncs_holds_up_for_a_bounded_time_and_shows() {
    let mut bench = Bench::unstarted(Config::default());
    for kind in ["Pod", "Secret"] {
        bench.engine.handle(Event::ResourceServed(info(kind)));
    }
    bench.script("barrier pods n", &vec![failed(); 1_000]);
    bench.engine.handle(Event::Discovered);
    bench.sync("Secret");
    bench.add("Secret/a@n", &[]).add("Secret/d@n", &["Secret/gone"]).delete("Secret/a@n", Foreground);
    bench.run_for(29_999);
    assert_eq!(bench.take_log(), Vec::<String>::new());
    bench.run_for(29_000);
    assert_eq!(bench.take_log(), ["read Secret/gone@n", "delete Secret/d@n Background"]);
    assert_eq!(bench.engine.stats().unsynced_resources, 1);
    bench.run_for(2_000);
    assert_eq!(bench.take_log(), ["unfinalize Secret/a@n foregroundDeletion"]);
    assert_eq!(bench.engine.stats().gaps_given_up, 1);
}

#[test]
fn g122_g136_a_kind_that_becomes_known_is_looked_up_then_and_not_before() {
    let mut bench = Bench::unstarted(Config::default());
    for kind in ["Pod", "Secret"] {
        bench.engine.handle(Event::ResourceServed(info(kind)));
        bench.sync(kind);
    }
    bench.engine.handle(Event::Discovered);
    bench.add("Pod/p@n", &["ConfigMap/gone"]).run_for(LONG);
    assert_eq!(bench.take_log(), Vec::<String>::new());
    assert_eq!(bench.engine.next_wakeup(), None);
    assert_eq!(bench.engine.stats().unknown_kind_references, 1);
    bench.engine.handle(Event::ResourceServed(info("ConfigMap")));
    bench.run_for(LONG);
    assert_eq!(bench.take_log(), ["read ConfigMap/gone@n", "delete Pod/p@n Background"]);
}

#[test]
fn g59_g63_an_owner_that_cannot_be_watched_is_polled_with_bounded_delay_while_it_is_referred_to() {
    let mut bench = Bench::new();
    let mut unwatched = info("Secret");
    unwatched.watched = false;
    bench.engine.handle(Event::ResourceServed(unwatched));
    bench.lag("Secret");
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).add("Pod/q@n", &["Secret/a"]);
    bench.run_for(3_600_000);
    let polls = bench.take_log().len();
    assert!((35..60).contains(&polls), "{polls} polls in an hour");
    bench.model.force_remove(&key("Secret/a@n"));
    bench.run_for(120_000);
    assert_eq!(
        bench.take_log(),
        ["read Secret/a@n", "delete Pod/q@n Background", "delete Pod/p@n Background"]
    );
    assert_eq!(bench.engine.next_wakeup(), None);
    assert_eq!(bench.engine.stats().virtual_owners, 0);
}

#[test]
fn g65_a_missing_cluster_scoped_owner_is_looked_up_once_for_all_namespaces() {
    let mut bench = Bench::new();
    for namespace in 0..1_000 {
        bench.engine.handle(bench_put(&mut bench.model, namespace));
    }
    bench.run_for(1_000);
    let log = bench.take_log();
    assert_eq!(log.iter().filter(|line| line.starts_with("read")).count(), 1);
    assert_eq!(log.iter().filter(|line| line.starts_with("delete")).count(), 1_000);
}

fn bench_put(model: &mut gc_ownership::model::Model, namespace: usize) -> Event {
    let mut dependent = object(&format!("Pod/p@ns{namespace}"), &["Node/gone"]);
    dependent.uid = Uid::new(&format!("p{namespace}"));
    model.put(dependent)
}

#[test]
fn g102_a_ring_of_a_thousand_is_opened_once() {
    let mut bench = Bench::new();
    for index in 0..1_000 {
        let owner = format!("Pod/p{}!", (index + 1) % 1_000);
        let event = bench.model.put(object(&format!("Pod/p{index}@n"), &[&owner]));
        bench.engine.handle(event);
    }
    bench.drain();
    let event = bench.model.delete(&key("Pod/p0@n"), Some(Foreground)).unwrap();
    bench.engine.handle(event);
    bench.run_for(60_000);
    let log = bench.take_log();
    assert_eq!(bench.world(), Vec::<String>::new());
    assert_eq!(log.iter().filter(|line| line.starts_with("owners")).count(), 1);
    assert_eq!(log.len(), 999 + 1 + 1_000);
}

#[test]
fn g115_requests_in_flight_are_bounded_and_a_small_cascade_is_not_starved() {
    let mut bench = Bench::with(Config { effects_in_flight: 8, ..Config::default() });
    for (owner, dependents) in [("giant", 1_000), ("small", 2)] {
        bench.add(&format!("Secret/{owner}@n"), &[]);
        for index in 0..dependents {
            let event =
                bench.model.put(object(&format!("Pod/{owner}{index}@n"), &[&format!("Secret/{owner}")]));
            bench.engine.handle(event);
        }
    }
    bench.drain();
    bench.delete("Secret/giant@n", Orphan).delete("Secret/small@n", Background);
    let mut flight = Vec::new();
    while let Some(effect) = bench.next_effect() {
        flight.push(support::show_request(&effect.request));
    }
    assert_eq!(flight.len(), 8);
    assert_eq!(flight.iter().filter(|line| line.contains("Pod/small")).count(), 2, "{flight:#?}");
}

/// A withheld item (a dry run, a circuit breaker) is not polled, and is requested again when it changes or is released.
#[test]
fn what_is_withheld_rests_until_it_changes_or_is_released() {
    let held = || Outcome::Withheld(WithheldBy::Breaker);
    for (name, released, expected) in [
        ("of its resource", Some(resource("Pod")), vec!["delete Pod/p@n Background"]),
        ("of all", None, vec!["delete Pod/p@n Background"]),
        ("of another resource", Some(resource("ConfigMap")), vec![]),
    ] {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
        bench.script("delete Pod/p@n Background", &[held(), held()]);
        bench.delete("Secret/a@n", Background).run_for(LONG);
        assert_eq!(bench.take_log(), ["delete Pod/p@n Background"], "{name}: asked once");
        assert_eq!((bench.engine.stats().withheld, bench.engine.stats().retrying), (1, 0), "{name}");
        // It is requested again when the facts of the decision change …
        bench.set_owners("Pod/p@n", &["Secret/a", "Secret/b"]).run_for(LONG);
        assert_eq!(bench.take_log().last().map(String::as_str), Some("delete Pod/p@n Background"), "{name}");
        // … and when it is released.
        bench.engine.handle(Event::Released(released));
        bench.run_for(LONG);
        assert_eq!(bench.take_log(), expected, "{name}");
        let left = usize::from(expected.is_empty());
        assert_eq!((bench.engine.stats().withheld, bench.engine.stats().objects), (left, left), "{name}");
        assert_eq!(bench.engine.objects_of(resource("Pod")), left, "{name}");
    }
}

/// A finalizer whose removal was withheld still exists, so it still decides about the dependents.
#[test]
fn a_withheld_finalizer_leaves_its_owner_waiting() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).drain();
    let removal = "unfinalize Secret/a@n foregroundDeletion";
    bench.script(removal, &[Outcome::Withheld(WithheldBy::Observe)]);
    bench.delete("Secret/a@n", Foreground).run_for(LONG);
    assert_eq!(bench.take_log(), [removal]);
    bench.add("Pod/late@n", &["Secret/a!"]).run_for(LONG);
    assert_eq!(bench.take_log(), ["delete Pod/late@n Background"]);
    bench.engine.handle(Event::Released(None));
    bench.run_for(LONG);
    assert_eq!(bench.take_log(), [removal]);
    assert_eq!(bench.world(), Vec::<String>::new());
}

#[test]
fn g08_g113_a_relist_finds_what_was_missed() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).add("Pod/q@n", &[]).drain();
    bench.model.force_remove(&key("Secret/a@n"));
    bench.engine.handle(Event::Stale(resource("Secret")));
    bench.run_for(60_000);
    assert_eq!(bench.take_log(), Vec::<String>::new());
    // Interrupted once, then complete.
    bench.engine.handle(Event::ListStarted(resource("Secret")));
    bench.sync("Secret");
    bench.run_for(1_000);
    // A list that lacks it is not proof, and it was the only object of its kind.
    assert_eq!(bench.take_log(), ["read Secret/a@n", "read Secret/a@n", "delete Pod/p@n Background"]);
    assert_eq!(bench.engine.stats().objects, 1);
}

#[test]
fn a_restored_backup_voids_proofs_of_absence() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a"]).drain();
    let backup = bench.model.clone();
    bench.add("Pod/later@n", &[]).delete("Secret/a@n", Background).run_for(1_000);
    assert_eq!(bench.take_log(), ["delete Pod/p@n Background"]);
    bench.model = backup;
    for kind in ["Pod", "Secret"] {
        bench.sync(kind);
    }
    bench.run_for(LONG);
    assert_eq!(bench.take_log(), Vec::<String>::new());
    assert_eq!(bench.world(), ["Pod/p@n[a]", "Secret/a@n"]);
}

#[test]
fn a_withdrawn_resource_proves_nothing_about_its_objects() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.engine.handle(Event::ResourceGone(resource("Secret")));
    bench.check();
    bench.run_for(LONG);
    assert_eq!(bench.take_log(), Vec::<String>::new());
    assert_eq!(bench.engine.stats().unknown_kind_references, 1);
    bench.engine.handle(Event::ResourceServed(info("Secret")));
    bench.model.force_remove(&key("Secret/a@n"));
    bench.sync("Secret");
    bench.run_for(1_000);
    assert_eq!(bench.take_log(), ["read Secret/a@n", "delete Pod/p@n Background"]);
}

#[test]
fn g09_one_uid_seen_through_two_resources_is_one_object() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).drain();
    let mut view = object("ConfigMap/a@n", &[]);
    view.resource_version = ResourceVersion(50);
    bench.engine.handle(Event::Observed(view));
    bench.check();
    assert_eq!(bench.engine.stats().objects, 1);
    let removed = |kind: &str| Event::Removed {
        key: key(&format!("{kind}/a@n")),
        uid: Uid::new("a"),
        resource_version: ResourceVersion(60),
    };
    bench.engine.handle(removed("ConfigMap"));
    bench.engine.handle(removed("Secret"));
    bench.check();
    assert_eq!(bench.engine.stats().objects, 0);
}

/// One barrier for each resource serves every owner that waits when it is created; it requests a single namespace if that takes
/// fewer pages.
#[test]
fn owners_that_wait_share_a_barrier() {
    let barriers = |owners: &[&str], pods: usize| {
        let mut bench = Bench::new();
        bench.log_barriers = true;
        bench.unchecked = true;
        for number in 0..pods {
            bench.add(&format!("Pod/p{number}@elsewhere"), &[]);
        }
        for owner in owners {
            bench.add(owner, &[]);
        }
        bench.drain();
        bench.lag("Pod");
        for owner in owners {
            bench.delete(owner, Foreground);
        }
        bench.run_for(1_000);
        assert_eq!(bench.world().len(), pods, "every owner is gone");
        let log = bench.take_log().into_iter();
        log.filter(|line| line.starts_with("barrier pods")).collect::<Vec<_>>()
    };
    let rows: [(&[&str], usize, &[&str]); 5] = [
        (&["Secret/a@n"], 0, &["barrier pods n"]),
        (&["Secret/a@n", "Secret/b@n"], 0, &["barrier pods n"]),
        (&["Secret/a@n", "Secret/b@m"], 0, &["barrier pods *"]),
        (&["Secret/a@n", "Secret/b@m"], 2_500, &["barrier pods n", "barrier pods m"]),
        (&["Secret/a@n", "Secret/b@m", "Secret/c@o"], 2_500, &["barrier pods *"]),
    ];
    for (owners, pods, expected) in rows {
        assert_eq!(barriers(owners, pods), expected, "{owners:?} and {pods} pods");
    }
}

/// If a barrier costs a list, it waits until no further owner begins to wait, but not for long.
#[test]
fn barriers_gather_owners_that_are_deleted_together() {
    // Milliseconds between deletions, their number, and when barriers for pods are made after the first one.
    let rows: [(i64, usize, &[i64]); 4] =
        [(0, 1, &[20]), (0, 60, &[20]), (10, 5, &[60]), (10, 30, &[200, 310])];
    for (pause, owners, expected) in rows {
        let mut bench = Bench::with(Config::remote());
        bench.log_barriers = true;
        for number in 0..owners {
            bench.add(&format!("Secret/a{number}@n"), &[]);
        }
        bench.drain();
        bench.lag("Pod");
        let (begun, mut made) = (bench.now, Vec::new());
        bench.take_log();
        let mut deleted = 0;
        while bench.now < begun + 1_000 {
            while deleted < owners && bench.now - begun >= i64::try_from(deleted).unwrap() * pause {
                bench.delete(&format!("Secret/a{deleted}@n"), Foreground);
                deleted += 1;
            }
            bench.drain();
            let log = bench.take_log();
            made.extend(
                log.iter().filter(|line| line.starts_with("barrier pods")).map(|_| bench.now - begun),
            );
            bench.run_for(1);
            made.extend(
                bench
                    .take_log()
                    .iter()
                    .filter(|line| line.starts_with("barrier pods"))
                    .map(|_| bench.now - begun),
            );
        }
        assert_eq!(bench.world(), [""; 0], "every owner is gone");
        assert_eq!(made, expected, "{owners} owners, {pause} ms apart");
    }
}

/// Upstream keeps the last difference for each UID, so the reference that does not block hides the one that did, and the owner
/// waits forever.
#[test]
fn l30_a_blocking_and_a_plain_reference_to_one_owner_beside_a_third_hold_up_nothing() {
    for owners in [["Secret/a!", "Secret/a", "ConfigMap/x"], ["Secret/a", "ConfigMap/x", "Secret/a!"]] {
        let mut bench = Bench::new();
        bench.add("ConfigMap/x@n", &[]).add("Secret/a@n", &[]).add("Pod/d@n", &owners).drain();
        bench.delete("Secret/a@n", Foreground).run_for(1_000);
        assert_eq!(bench.world(), ["Pod/d@n[x]", "ConfigMap/x@n"], "{owners:?}");
    }
}

/// Upstream leaves the dependent behind when its second owner begins to wait between the read of it and the patch
/// that removes the first reference.
#[test]
fn l31_an_owner_that_begins_to_wait_while_another_is_let_go_of_leaves_nothing_behind() {
    let mut bench = Bench::new();
    bench.add("Secret/top@n", &[]);
    bench
        .add("ReplicationController/a@n", &["Secret/top!"])
        .add("ReplicationController/b@n", &["Secret/top!"]);
    bench.add("Pod/d@n", &["ReplicationController/a!", "ReplicationController/b!"]).drain();
    let second = key("ReplicationController/b@n");
    let begins = move |model: &mut gc_ownership::model::Model| {
        model.delete(&second, Some(Foreground)).into_iter().collect::<Vec<_>>()
    };
    bench.before.entry("owners Pod/d@n [b!]".to_owned()).or_default().push_back(Box::new(begins));
    bench.delete("ReplicationController/a@n", Foreground).run_for(10_000);
    assert_eq!(bench.world(), ["Secret/top@n"]);
    bench.delete("Secret/top@n", Foreground).run_for(10_000);
    assert_eq!(bench.world(), Vec::<String>::new());
}

/// Definitions of custom resources come and go, each under its own name: there are always numbers for new kinds.
#[test]
fn a_kind_that_is_defined_after_very_many_others_is_collected() {
    const DEFINED: u32 = 66_000;
    let mut bench = Bench::new();
    let first = 1_000;
    for number in first..first + DEFINED {
        let mut defined = info("ConfigMap");
        let (kind, plural) = (format!("Kind{number}"), format!("kinds{number}"));
        defined.id = ResourceId(number);
        (defined.kind, defined.gvr.resource) = (kind.into(), plural.into());
        bench.engine.handle(Event::ResourceServed(defined));
        bench.engine.handle(Event::ResourceGone(ResourceId(number)));
    }
    bench.engine.handle(Event::ResourceGone(resource("Pod")));
    let mut late = info("Pod");
    late.gvr.resource = "latecomers".into();
    bench.engine.handle(Event::ResourceServed(late));
    bench.sync("Pod");
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.delete("Secret/a@n", Background).drain();
    assert_eq!(bench.take_log(), ["delete Pod/p@n Background"]);
}
