//! Suspicions that an owner is gone: lists that lack it, views that lose it and resources that are withdrawn prove nothing.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests may panic")]

mod support;

use gc_ownership::Config;
use gc_types::PropagationPolicy::{Background, Foreground, Orphan};
use gc_types::{
    DeletionState, Effect, Event, Evidence, Gvr, ObjectKey, ObservedObject, Outcome, ResourceId,
    ResourceInfo, ResourceVersion, Timestamp, Uid,
};
use support::{Bench, LONG, info, key, object, resource, show_request};

/// Answers a list with these objects, whatever the store contains.
fn lie(bench: &mut Bench, kind: &str, listed: &[&str]) {
    bench.engine.handle(Event::ListStarted(resource(kind)));
    for text in listed {
        let object = bench.model.get(&key(text)).unwrap().clone();
        bench.engine.handle(Event::Observed(object));
    }
    let resource_version = bench.model.version();
    bench.engine.handle(Event::Synced { resource: resource(kind), resource_version });
    bench.check();
}

#[test]
fn an_owner_that_a_list_lacks_is_read_once_before_anything_is_deleted() {
    let mut bench = Bench::new();
    bench.add("Secret/other@n", &[]).add("Secret/a@n", &[]);
    for number in 0..50 {
        bench.add(&format!("Pod/p{number}@n"), &["Secret/a"]);
    }
    bench.drain();
    for version in [None, Some(ResourceVersion::UNKNOWN), Some(ResourceVersion(1))] {
        match version {
            None => lie(&mut bench, "Secret", &["Secret/other@n"]),
            Some(resource_version) => {
                let resource = resource("Secret");
                bench.engine.handle(Event::ListStarted(resource));
                bench
                    .engine
                    .handle(Event::Observed(bench.model.get(&key("Secret/other@n")).unwrap().clone()));
                bench.engine.handle(Event::Synced { resource, resource_version });
            }
        }
        bench.run_for(60_000);
        let log = bench.take_log();
        assert!(!log.is_empty() && log.iter().all(|line| line == "read Secret/a@n"), "{version:?}: {log:#?}");
        assert_eq!(bench.world().len(), 52, "{version:?}");
        bench.sync("Secret");
        bench.run_for(LONG);
        assert_eq!(bench.take_log(), Vec::<String>::new(), "{version:?}");
    }
    bench.model.force_remove(&key("Secret/a@n"));
    bench.sync("Secret");
    bench.run_for(1_000);
    let log = bench.take_log();
    assert_eq!((log[0].as_str(), log.len()), ("read Secret/a@n", 51), "one read for all of them");
}

/// A removal that was seen needs one read for all dependents.
#[test]
fn a_removal_that_was_seen_costs_one_read() {
    let mut bench = Bench::new();
    bench.log_confirmations = true;
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).add("Pod/q@n", &["Secret/a"]).drain();
    bench.delete("Secret/a@n", Background).run_for(1_000);
    let log = ["read Secret/a@n", "delete Pod/q@n Background", "delete Pod/p@n Background"];
    assert_eq!(bench.take_log(), log);
}

#[test]
fn a_kind_that_vanishes_in_one_list_is_read_twice_and_says_so() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Secret/b@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    for name in ["a", "b"] {
        bench.model.force_remove(&key(&format!("Secret/{name}@n")));
    }
    // One response that finds nothing is not enough: the second one finds it.
    bench.script("read Secret/a@n", &[Outcome::Absent]);
    bench.model.put(object("Secret/a@n", &[]));
    lie(&mut bench, "Secret", &[]);
    bench.run_for(1_000);
    assert_eq!(bench.world(), ["Pod/p@n[a]", "Secret/a@n"]);
    bench.take_log();
    bench.model.force_remove(&key("Secret/a@n"));
    bench.run_for(3_000_000);
    assert_eq!(bench.world(), Vec::<String>::new());

    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.model.force_remove(&key("Secret/a@n"));
    bench.sync("Secret");
    let mut reads = 0;
    while bench.now < 10_000 {
        while let Some(effect) = bench.next_effect() {
            if show_request(&effect.request) == "delete Pod/p@n Background" {
                let says = |fact: &Evidence| matches!(fact, Evidence::KindVanished { resource: of, .. } if *of == resource("Secret"));
                assert!(effect.reason.evidence.iter().any(says), "{:?}", effect.reason);
                assert_eq!(reads, 2);
                return;
            }
            reads += 1;
            bench.perform(&effect);
        }
        bench.now += 10;
        bench.engine.handle(Event::Tick(Timestamp(bench.now)));
    }
    panic!("it was not deleted after {reads} reads");
}

/// A dependent that a list lacks is read before the owner that orphans it counts as done.
#[test]
fn an_orphaning_owner_waits_for_dependents_that_a_list_lacks() {
    for still_there in [true, false] {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).add("Pod/q@n", &[]).drain();
        // The request about the dependent fails for some time.
        bench.script("owners Pod/p@n []", &vec![support::failed(); 3]);
        bench.delete("Secret/a@n", Orphan).drain();
        bench.take_log();
        if !still_there {
            bench.model.force_remove(&key("Pod/p@n"));
        }
        lie(&mut bench, "Pod", &["Pod/q@n"]);
        bench.drain();
        let log = bench.take_log();
        assert_eq!(log.first().map(String::as_str), Some("read Pod/p@n"), "{log:?}");
        bench.run_for(60_000);
        let left: &[&str] = if still_there { &["Pod/p@n", "Pod/q@n"] } else { &["Pod/q@n"] };
        assert_eq!(bench.world(), left);
    }
}

fn seen(bench: &mut Bench, text: &str, version: u64) {
    let view = ObservedObject { resource_version: ResourceVersion(version), ..object(text, &[]) };
    bench.engine.handle(Event::Observed(view));
    bench.check();
}

fn lost(bench: &mut Bench, text: &str, version: u64) {
    let key = key(text);
    let uid = Uid::new(&key.name);
    bench.engine.handle(Event::Removed { key, uid, resource_version: ResourceVersion(version) });
    bench.check();
}

/// A client that loses access to one view of an object gets DELETED there.
#[test]
fn what_one_view_loses_lives_in_the_other() {
    // (what is lost, the reference, what is read)
    for (view, owner, reads) in [
        ("ConfigMap/a@n", "Secret/a", None),
        ("ConfigMap/a@n", "ConfigMap/a", None),
        ("Secret/a@n", "Secret/a", Some("read Secret/a@n")),
        ("Secret/a@n", "ConfigMap/a", Some("read ConfigMap/a@n")),
    ] {
        let mut bench = Bench::new();
        bench.script("read ConfigMap/a@n", &vec![Outcome::Found(object("ConfigMap/a@n", &[])); 100]);
        bench.add("Secret/a@n", &[]).drain();
        let version = bench.model.version().0;
        seen(&mut bench, "ConfigMap/a@n", version);
        bench.add("Pod/p@n", &[owner]).run_for(1_000);
        bench.take_log();
        lost(&mut bench, view, version + 50);
        bench.run_for(60_000);
        let log = bench.take_log();
        assert!(!log.iter().any(|line| line.starts_with("delete")), "{view} {owner}: {log:?}");
        let is_read = reads.is_none_or(|reads| log.iter().any(|line| line == reads));
        assert!(is_read, "{view} {owner}: {log:?}");
    }
}

/// DELETED says nothing about an object of which something newer is known.
#[test]
fn a_removal_that_is_older_than_its_object_is_doubted() {
    let mut bench = Bench::new();
    bench.add("Secret/z@n", &[]).add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    let version = bench.model.get(&key("Secret/a@n")).unwrap().resource_version.0;
    for version in [version, version - 1] {
        lost(&mut bench, "Secret/a@n", version);
        bench.run_for(1_000);
        let log = bench.take_log();
        assert!(log.iter().all(|line| line == "read Secret/a@n"), "{log:?}");
        bench.sync("Secret");
    }
    assert_eq!(bench.world(), ["Pod/p@n[a]", "Secret/a@n", "Secret/z@n"]);
}

/// A response that shows an object known elsewhere belongs to another request.
#[test]
fn a_live_read_that_shows_another_resource_proves_nothing() {
    let mut bench = Bench::new();
    bench.add("Secret/other@n", &[]).add("Secret/a@n", &[]).add("ConfigMap/b@n", &[]);
    bench.add("Pod/p@n", &["Secret/a"]).drain();
    let crossed = bench.model.get(&key("ConfigMap/b@n")).unwrap().clone();
    let crossed = ObservedObject { key: key("Secret/a@n"), ..crossed };
    bench.script("read Secret/a@n", &vec![Outcome::Found(crossed); 2]);
    lie(&mut bench, "Secret", &["Secret/other@n"]);
    bench.run_for(10_000);
    assert_eq!(bench.world().len(), 4, "{:?}", bench.take_log());
}

/// Several API servers that are upgraded one after the other do not all serve the same resources.
#[test]
fn an_orphaning_owner_waits_for_a_resource_that_is_withdrawn_meanwhile() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("ConfigMap/d@n", &["Secret/a"]).drain();
    bench.script("owners ConfigMap/d@n []", &[support::failed()]);
    bench.delete("Secret/a@n", Orphan);
    bench.engine.handle(Event::ResourceGone(resource("ConfigMap")));
    bench.check();
    bench.run_for(120_000);
    assert!(!bench.take_log().iter().any(|line| line.starts_with("unfinalize")));
    assert_eq!(bench.engine.stats().waiting_owners, 1, "it is seen to wait");
    assert!(!bench.engine.stuck(10).is_empty());
    bench.engine.handle(Event::ResourceServed(info("ConfigMap")));
    bench.sync("ConfigMap");
    bench.run_for(10_000);
    assert_eq!(bench.world(), ["ConfigMap/d@n"]);
    assert_eq!(bench.engine.stats().gaps_given_up, 0);
}

#[test]
fn it_waits_for_a_withdrawn_resource_no_longer_than_that() {
    let longest = Config::default().withdrawn_wait_milliseconds;
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("ConfigMap/d@n", &["Secret/a"]).drain();
    bench.script("owners ConfigMap/d@n []", &[support::failed()]);
    bench.delete("Secret/a@n", Orphan);
    bench.engine.handle(Event::ResourceGone(resource("ConfigMap")));
    bench.run_for(longest - 1_000);
    assert!(!bench.take_log().iter().any(|line| line.starts_with("unfinalize")));
    bench.run_for(2_000);
    assert_eq!(bench.take_log(), ["unfinalize Secret/a@n orphan"]);
    assert_eq!(bench.engine.stats().gaps_given_up, 1);
}

/// Servers that are upgraded one after the other may hide a resource several times: the time of an earlier absence, and of the lists
/// after it, does not count towards the next one.
#[test]
fn it_waits_as_long_for_a_resource_that_is_withdrawn_again() {
    let longest = Config::default().withdrawn_wait_milliseconds;
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("ConfigMap/d@n", &["Secret/a"]).drain();
    bench.script("owners ConfigMap/d@n []", &[support::failed()]);
    bench.delete("Secret/a@n", Orphan);
    bench.engine.handle(Event::ResourceGone(resource("ConfigMap")));
    bench.run_for(longest - 1_000);
    bench.engine.handle(Event::ResourceServed(info("ConfigMap")));
    bench.run_for(20_000);
    bench.engine.handle(Event::ResourceGone(resource("ConfigMap")));
    bench.run_for(longest - 1_000);
    assert!(!bench.take_log().iter().any(|line| line.starts_with("unfinalize")));
    bench.run_for(2_000);
    assert_eq!(bench.take_log(), ["unfinalize Secret/a@n orphan"]);
}

/// A read shows a reference to an owner that orphans its dependents, which the object has lost since, as its watch has delivered:
/// until the next read, that reference counts as well, and not instead of the newer ones.
#[test]
fn an_answer_that_the_watch_has_overtaken_hides_no_blocking_reference() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Secret/b@n", &[]).add("ReplicationController/r@n", &[]);
    bench.add("Pod/p@n", &["ReplicationController/r"]).add("ConfigMap/d@n", &["Secret/a"]).drain();
    let show = |effect: &Effect| show_request(&effect.request);
    bench.delete("Secret/a@n", Orphan).set_owners("ConfigMap/d@n", &["Secret/b"]);
    let effects: Vec<Effect> = std::iter::from_fn(|| bench.engine.poll_effect()).collect();
    let read = effects.iter().find(|effect| show(effect) == "read ConfigMap/d@n").unwrap();
    let answer = bench.model.answer(&read.request).outcome;
    bench.delete("Secret/b@n", Orphan).set_owners("ConfigMap/d@n", &["Pod/p!"]);
    bench.delete("ReplicationController/r@n", Foreground);
    bench.deliver(Event::Done(read.id, answer));
    let mut deletions = Vec::new();
    while let Some(effect) = bench.engine.poll_effect() {
        match show(&effect) {
            // Neither the next read of the object nor a list that contains it is answered yet.
            read if read == "read ConfigMap/d@n" || read.starts_with("barrier") => {}
            deletion if deletion.starts_with("delete") => deletions.push(deletion),
            _ => bench.perform(&effect),
        }
    }
    assert_eq!(deletions, ["delete Pod/p@n Foreground"]);
}

/// An event says of a living owner without dependents that it orphans them. Just before the next request about it arrives, it is
/// deleted to orphan a dependent that no watch has delivered yet: that one survives.
#[test]
fn an_owner_that_one_event_marked_is_read_before_it_loses_its_finalizer() {
    for request in ["read Secret/a@n", "unfinalize Secret/a@n orphan"] {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]).add("Pod/other@n", &[]).drain();
        bench.before.entry(request.to_owned()).or_default().push_back(Box::new(|model| {
            model.put(object("Pod/p@n", &["Secret/a"]));
            model.delete(&key("Secret/a@n"), Some(Orphan)).unwrap();
            Vec::new()
        }));
        let living = bench.model.get(&key("Secret/a@n")).unwrap().clone();
        let deletion = DeletionState { deleting: true, orphan: true, ..living.deletion };
        let resource_version = bench.model.version();
        bench.deliver(Event::Observed(ObservedObject { deletion, resource_version, ..living }));
        bench.run_for(1_000);
        bench.sync("Pod");
        bench.sync("Secret");
        bench.run_for(LONG);
        let is_deleted = bench.before[request].is_empty();
        assert_eq!(bench.world().contains(&"Pod/p@n".to_owned()), is_deleted, "{request}");
    }
}

/// All objects of a definition are deleted before it is: none of them comes back, so no owner waits for their resource, whichever
/// is seen first, and even if a live read had found that the definition is gone, so that the graph has forgotten it.
#[test]
fn no_owner_waits_for_a_resource_whose_definition_was_removed() {
    let definitions = ResourceInfo {
        id: ResourceId(100),
        gvr: Gvr {
            group: "apiextensions.k8s.io".into(),
            version: "v1".into(),
            resource: "customresourcedefinitions".into(),
        },
        kind: "CustomResourceDefinition".into(),
        ..info("Node")
    };
    let definition = ObservedObject {
        key: ObjectKey { resource: definitions.id, ..key("Node/deployments.apps") },
        uid: Uid::new("definition"),
        ..object("Node/deployments.apps", &[])
    };
    for (is_known, is_removed_first) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut bench = Bench::new();
        bench.engine.handle(Event::ResourceServed(definitions.clone()));
        bench.engine.handle(Event::ListStarted(definitions.id));
        if is_known {
            bench.engine.handle(Event::Observed(definition.clone()));
        }
        bench
            .engine
            .handle(Event::Synced { resource: definitions.id, resource_version: bench.model.version() });
        bench.add("Secret/a@n", &[]).add("Deployment/d@n", &["Secret/a"]).drain();
        bench.script("owners Deployment/d@n []", &[support::failed()]);
        bench.delete("Secret/a@n", Orphan);
        let removed = Event::Removed {
            key: definition.key.clone(),
            uid: definition.uid.clone(),
            resource_version: ResourceVersion(1_000_000),
        };
        let gone = Event::ResourceGone(resource("Deployment"));
        for event in if is_removed_first { [removed, gone] } else { [gone, removed] } {
            bench.engine.handle(event);
        }
        bench.run_for(60_000);
        assert_eq!(bench.engine.stats().waiting_owners, 0, "{is_known} {is_removed_first}");
        assert_eq!(bench.engine.stats().gaps_given_up, 0, "{is_known} {is_removed_first}");
    }
}

/// A list that ends after its resource was withdrawn proves nothing.
#[test]
fn a_withdrawn_resource_has_no_lists() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.engine.handle(Event::ResourceGone(resource("Secret")));
    lie(&mut bench, "Secret", &[]);
    bench.engine.handle(Event::ResourceServed(info("Secret")));
    bench.run_for(10_000);
    assert_eq!(bench.world(), ["Pod/p@n[a]", "Secret/a@n"]);
    assert_eq!(bench.engine.stats().unsynced_resources, 1);
}

/// A resource that returns has another number, and its former watch may still deliver something: none of that counts, neither
/// before the list of the next watch nor after it.
#[test]
fn what_a_former_watch_still_says_is_dropped() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    let (former, next) = (resource("Secret"), ResourceId(100));
    let newest = ResourceVersion(1_000_000);
    let late = || {
        let mut orphaning = object("Secret/a@n", &[]);
        (orphaning.deletion.deleting, orphaning.deletion.orphan) = (true, true);
        orphaning.resource_version = newest;
        [
            Event::ListStarted(former),
            Event::Observed(orphaning),
            Event::Found(object("Secret/another@n", &["Secret/none"])),
            Event::Progress { resource: former, resource_version: newest },
            Event::Removed { key: key("Secret/a@n"), uid: Uid::new("a"), resource_version: newest },
            Event::Synced { resource: former, resource_version: newest },
        ]
    };
    bench.engine.handle(Event::ResourceGone(former));
    bench.engine.handle(Event::ResourceServed(ResourceInfo { id: next, ..info("Secret") }));
    for event in late() {
        bench.engine.handle(event);
    }
    assert_eq!(bench.engine.stats().unsynced_resources, 1);
    bench.engine.handle(Event::ListStarted(next));
    let listed = object("Secret/a@n", &[]);
    bench.engine.handle(Event::Observed(ObservedObject {
        key: ObjectKey { resource: next, ..listed.key },
        resource_version: ResourceVersion(1),
        ..listed
    }));
    bench.engine.handle(Event::Synced { resource: next, resource_version: bench.model.version() });
    assert_eq!(bench.engine.stats().unsynced_resources, 0);
    for event in late() {
        bench.engine.handle(event);
    }
    assert_eq!((bench.engine.stats().unsynced_resources, bench.engine.stats().objects), (0, 2));
    bench.run_for(10_000);
    assert_eq!(bench.take_log(), Vec::<String>::new());
}

/// A restore of the server shows only at the end of a list: objects in it may belong to another history than the progress of other
/// watches.
#[test]
fn an_owner_that_a_list_shows_waits_for_its_end() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).drain();
    let backup = bench.model.clone();
    for number in 0..20 {
        bench.add(&format!("Pod/lost{number}@n"), &[]);
    }
    bench.add("Secret/lost@n", &[]).drain();
    bench.model = backup;
    let mut owner = object("Secret/a@n", &[]);
    owner.deletion.deleting = true;
    owner.deletion.orphan = true;
    bench.model.put(owner);
    bench.model.put(object("Pod/d@n", &["Secret/a"]));
    let listed = bench.model.get(&key("Secret/a@n")).unwrap().clone();
    bench.engine.handle(Event::ListStarted(resource("Secret")));
    bench.engine.handle(Event::Observed(listed));
    bench.run_for(1_000);
    assert_eq!(bench.take_log(), Vec::<String>::new());
    let resource_version = bench.model.version();
    bench.engine.handle(Event::Synced { resource: resource("Secret"), resource_version });
    bench.run_for(60_000);
    let log = bench.take_log();
    let place = |line: &str| log.iter().position(|logged| logged == line);
    let (released, done) = (place("owners Pod/d@n []"), place("unfinalize Secret/a@n orphan"));
    assert!(released.is_some() && released < done, "{log:?}");
}

/// The list of a watch omitted a dependent, before or after it was known: only a second list can show it.
#[test]
fn a_dependent_that_one_list_left_out_is_orphaned_as_well() {
    for was_known in [true, false] {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]);
        if was_known {
            bench.add("Pod/p@n", &["Secret/a"]).drain();
        } else {
            bench.model.put(object("Pod/p@n", &["Secret/a"]));
        }
        lie(&mut bench, "Pod", &[]);
        bench.delete("Secret/a@n", Orphan).run_for(1_000);
        let expected = ["read Pod/p@n", "owners Pod/p@n []", "unfinalize Secret/a@n orphan"];
        assert_eq!(bench.take_log(), expected, "known before: {was_known}");
        assert_eq!(bench.world(), ["Pod/p@n"]);
    }
}

/// A list omitted an owner that waits, and no event will ever show it: a read about its dependent does. Before or after it was known.
#[test]
fn an_owner_that_one_list_left_out_ends_its_deletion() {
    for (policy, expected) in [
        (Orphan, ["read Secret/a@n", "owners Pod/p@n []", "read Secret/a@n", "unfinalize Secret/a@n orphan"]),
        (
            Foreground,
            [
                "read Secret/a@n",
                "delete Pod/p@n Background",
                "read Secret/a@n",
                "unfinalize Secret/a@n foregroundDeletion",
            ],
        ),
    ] {
        for was_known in [true, false] {
            let mut bench = Bench::new();
            if was_known {
                bench.add("Secret/a@n", &[]);
            } else {
                bench.model.put(object("Secret/a@n", &[]));
            }
            bench.lag("Secret");
            bench.model.delete(&key("Secret/a@n"), Some(policy));
            lie(&mut bench, "Secret", &[]);
            bench.add("Pod/p@n", &["Secret/a"]).run_for(60_000);
            let log = bench.take_log();
            assert_eq!(log, expected, "{policy:?}, known before: {was_known}");
        }
    }
}

/// The watch is late, and the list of a barrier omitted the dependent.
#[test]
fn a_dependent_that_the_list_of_a_barrier_left_out_is_orphaned_as_well() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]);
    bench.lag("Pod");
    bench.add("Pod/p@n", &["Secret/a"]);
    bench.script("barrier pods n", &[Outcome::Applied(None)]);
    bench.delete("Secret/a@n", Orphan).run_for(1_000);
    assert_eq!(bench.take_log(), ["owners Pod/p@n []", "unfinalize Secret/a@n orphan"]);
    assert_eq!(bench.world(), ["Pod/p@n"]);
}

/// A list claims a version that the server has not reached, and objects created in the meantime are in neither it nor its watch: a
/// second list counts for later owners only once the watch has passed that version.
#[test]
fn what_is_created_below_the_version_that_a_list_claims_is_orphaned_as_well() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Secret/b@n", &[]);
    let (pods, ahead) = (resource("Pod"), ResourceVersion(bench.model.version().0 + 4));
    bench.engine.handle(Event::ListStarted(pods));
    bench.engine.handle(Event::Synced { resource: pods, resource_version: ahead });
    // A second list is made for the first owner.
    bench.delete("Secret/b@n", Orphan).run_for(1_000);
    bench.model.put(object("Pod/p@n", &["Secret/a"]));
    assert!(bench.model.version() <= ahead, "the pod is created below the version that the list claims");
    bench.take_log();
    bench.engine.handle(Event::Progress { resource: pods, resource_version: ResourceVersion(ahead.0 + 90) });
    bench.delete("Secret/a@n", Orphan).run_for(1_000);
    assert_eq!(bench.take_log(), ["read Pod/p@n", "owners Pod/p@n []", "unfinalize Secret/a@n orphan"]);
}

/// The progress of a watch is one answer, and the list that checks it the other, for each owner.
#[test]
fn an_owner_that_orphans_costs_one_list_where_the_watch_has_delivered_its_mark() {
    let mut bench = Bench::new();
    bench.add("Secret/other@n", &[]);
    for row in support::KINDS {
        bench.sync(row.0);
    }
    bench.log_barriers = true;
    let progress = |bench: &mut Bench| {
        let resource_version = ResourceVersion(bench.model.version().0 + 1);
        for row in support::KINDS {
            bench.engine.handle(Event::Progress { resource: resource(row.0), resource_version });
        }
        bench.run_for(1_000);
    };
    for owner in ["Secret/a@n", "Secret/b@n", "Secret/c@m"] {
        bench.add(owner, &[]);
        progress(&mut bench);
        if let Some(event) = bench.model.delete(&key(owner), Some(Orphan)) {
            bench.deliver(event);
        }
        // The watches have delivered everything before the owner is checked.
        progress(&mut bench);
        let lists = bench.take_log().iter().filter(|line| line.starts_with("barrier pods")).count();
        assert_eq!(lists, 1, "{owner}");
        assert_eq!(bench.world(), ["Secret/other@n"], "{owner}");
    }
}

/// An event shows an object in a version that the server has not reached. Then the object gets this version, with another owner: the
/// watch contradicts itself, so the object is read before it is changed on the condition of that version.
#[test]
fn an_object_that_its_watch_shows_twice_in_one_version_is_read() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Secret/b@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    let known = bench.model.get(&key("Pod/p@n")).unwrap().clone();
    let resource_version = ResourceVersion(bench.model.version().0 + 1);
    bench.deliver(Event::Observed(ObservedObject { resource_version, ..known }));
    bench.set_owners("Pod/p@n", &["Secret/a", "Secret/b"]);
    assert_eq!(bench.model.get(&key("Pod/p@n")).unwrap().resource_version, resource_version);
    bench.delete("Secret/a@n", Background).run_for(1_000);
    assert_eq!(bench.take_log(), ["read Pod/p@n", "owners Pod/p@n [b]"]);
    assert_eq!(bench.world(), ["Pod/p@n[b]", "Secret/b@n"]);
}
