//! Kinds that come and go, and what the removal of a definition proves.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests may panic")]

mod support;

use gc_ownership::Config;
use gc_types::PropagationPolicy::Orphan;
use gc_types::{
    Event, Gvr, ObjectKey, ObservedObject, ResourceId, ResourceInfo, ResourceVersion, Scope, Timestamp, Uid,
};
use support::{Bench, LONG, info, key, object, resource};

/// Returns the resource of definitions.
fn definitions() -> ResourceInfo {
    ResourceInfo {
        id: ResourceId(100),
        gvr: Gvr {
            group: "apiextensions.k8s.io".into(),
            version: "v1".into(),
            resource: "customresourcedefinitions".into(),
        },
        kind: "CustomResourceDefinition".into(),
        ..info("Node")
    }
}

/// Returns a bench that also watches definitions, of which these exist.
fn bench(defined: &[&str]) -> Bench {
    let mut bench = Bench::new();
    let definitions = definitions();
    bench.engine.handle(Event::ResourceServed(definitions.clone()));
    bench.engine.handle(Event::ListStarted(definitions.id));
    for name in defined {
        bench.engine.handle(Event::Observed(ObservedObject {
            resource_version: ResourceVersion(1),
            ..definition(name, name)
        }));
    }
    let resource_version = ResourceVersion(1);
    bench.engine.handle(Event::Synced { resource: definitions.id, resource_version });
    bench
}

fn definition(name: &str, uid: &str) -> ObservedObject {
    let key = ObjectKey { resource: definitions().id, namespace: "".into(), name: name.into() };
    ObservedObject { key, uid: Uid::new(uid), ..object("Node/any", &[]) }
}

fn removed(bench: &Bench, object: &ObservedObject) -> Event {
    let resource_version = ResourceVersion(bench.model.version().0 + 1_000);
    Event::Removed { key: object.key.clone(), uid: object.uid.clone(), resource_version }
}

/// Returns how long an owner that orphans a Deployment waits for it after the kind was withdrawn and these events, milliseconds.
fn wait_for_deployments(bench: &mut Bench, events: impl Fn(&Bench) -> Vec<Event>) -> i64 {
    bench.add("Secret/a@n", &[]).add("Deployment/d@n", &["Secret/a"]).drain();
    bench.script("owners Deployment/d@n []", &[support::failed()]);
    bench.delete("Secret/a@n", Orphan);
    bench.engine.handle(Event::ResourceGone(resource("Deployment")));
    for event in events(bench) {
        bench.engine.handle(event);
    }
    let begun = bench.now;
    while bench.engine.stats().waiting_owners > 0 && bench.now < begun + LONG {
        bench.run_for(1_000);
    }
    bench.now - begun
}

/// Only the removal of the definition itself shows that none of its objects is left: not that of an object of the same name while
/// the definition is known to exist, of another definition, or of another kind of object.
#[test]
fn only_the_removal_of_its_definition_ends_the_wait_for_a_kind() {
    type Events = fn(&Bench) -> Vec<Event>;
    let longest = Config::default().withdrawn_wait_milliseconds;
    let rows: [(&str, &[&str], Events, i64); 10] = [
        ("nothing", &["deployments.apps"], |_| vec![], longest),
        (
            "its definition",
            &["deployments.apps"],
            |bench| vec![removed(bench, &definition("deployments.apps", "deployments.apps"))],
            1_000,
        ),
        (
            "its definition, which was unknown",
            &["pods.other"],
            |bench| vec![removed(bench, &definition("deployments.apps", "unknown"))],
            1_000,
        ),
        (
            "its definition, which was unknown, and an object of that name exists",
            &[],
            |bench| {
                let other = ObservedObject {
                    resource_version: ResourceVersion(1),
                    ..object("Node/deployments.apps", &[])
                };
                let unknown = definition("deployments.apps", "unknown");
                vec![Event::Observed(other), removed(bench, &unknown)]
            },
            1_000,
        ),
        (
            "a removal that was delivered before",
            &[],
            |_| {
                let ObservedObject { key, uid, .. } = definition("deployments.apps", "unknown");
                vec![Event::Removed { key, uid, resource_version: ResourceVersion(1) }]
            },
            longest,
        ),
        (
            "a former definition of that name",
            &["deployments.apps"],
            |bench| vec![removed(bench, &definition("deployments.apps", "former"))],
            longest,
        ),
        (
            "another definition",
            &["deployments.apps", "pods.apps"],
            |bench| vec![removed(bench, &definition("pods.apps", "pods.apps"))],
            longest,
        ),
        (
            "an unknown definition of another group",
            &[],
            |bench| vec![removed(bench, &definition("deployments.other", "unknown"))],
            longest,
        ),
        (
            "a name without a group",
            &[],
            |bench| vec![removed(bench, &definition("deployments", "unknown"))],
            longest,
        ),
        (
            "another object of that name",
            &[],
            |bench| vec![removed(bench, &object("Node/deployments.apps", &[]))],
            longest,
        ),
    ];
    for (name, defined, events, expected) in rows {
        let waited = wait_for_deployments(&mut bench(defined), events);
        assert_eq!(waited / 1_000, expected / 1_000, "{name}");
    }
}

/// An owner that is marked after a kind was withdrawn waits for it as well, if that was a short time ago: a stale list may have shown
/// it as it was before.
#[test]
fn an_owner_that_orphans_waits_for_kinds_that_were_withdrawn_lately() {
    let longest = Config::default().withdrawn_wait_milliseconds;
    type Change = fn(&mut Bench);
    let rows: [(&str, i64, Change, bool); 5] = [
        ("just now", 0, |_| (), true),
        ("just within the time", longest - 1, |_| (), true),
        ("long ago", longest, |_| (), false),
        ("served again", 0, |bench| bench.engine.handle(Event::ResourceServed(info("Deployment"))), false),
        (
            "its definition was removed",
            0,
            |bench| {
                let event = removed(bench, &definition("deployments.apps", "deployments.apps"));
                bench.engine.handle(event);
            },
            false,
        ),
    ];
    for (name, pause, change, waits) in rows {
        let mut bench = bench(&["deployments.apps"]);
        bench.add("Secret/a@n", &[]).drain();
        bench.engine.handle(Event::ResourceGone(resource("Deployment")));
        bench.run_for(pause);
        change(&mut bench);
        if bench.engine.stats().unsynced_resources > 0 {
            bench.sync("Deployment");
        }
        bench.delete("Secret/a@n", Orphan).run_for(60_000);
        assert_eq!(bench.engine.stats().waiting_owners, usize::from(waits), "{name}");
    }
    // A kind that was never watched has no objects that come back with it.
    let mut bench = bench(&[]);
    let unwatched = ResourceInfo { watched: false, ..info("Deployment") };
    bench.engine.handle(Event::ResourceServed(unwatched));
    bench.add("Secret/a@n", &[]).drain();
    bench.engine.handle(Event::ResourceGone(resource("Deployment")));
    bench.delete("Secret/a@n", Orphan).run_for(60_000);
    assert_eq!(bench.engine.stats().waiting_owners, 0);
}

/// If the definition of a kind is removed too, the reported removal of an owner needs no read; if it is only withdrawn, it does. If
/// nothing watches definitions, the kind counts as removed once it was withdrawn for long.
#[test]
fn the_removal_of_an_owner_needs_no_read_if_its_kind_is_removed() {
    const NOTHING: &[&str] = &[];
    const DELETION: &[&str] = &["delete Pod/p@n Background"];
    for (watches_definitions, is_defined, [at_once, before, after]) in [
        (true, true, [NOTHING; 3]),
        (true, false, [DELETION, NOTHING, NOTHING]),
        (false, false, [NOTHING, NOTHING, DELETION]),
    ] {
        let mut bench = if watches_definitions { bench(&["deployments.apps"]) } else { Bench::new() };
        bench.log_confirmations = true;
        bench.add("Deployment/d@n", &[]).add("Pod/p@n", &["Deployment/d"]).drain();
        // Both are in one batch, and the kind goes first or last.
        let gone = bench.model.force_remove(&key("Deployment/d@n")).unwrap();
        let defined = removed(&bench, &definition("deployments.apps", "deployments.apps"));
        bench.engine.handle(gone);
        if watches_definitions && !is_defined {
            bench.engine.handle(defined);
        }
        bench.engine.handle(Event::ResourceGone(resource("Deployment")));
        for (milliseconds, expected) in [(1_000, at_once), (298_999, before), (1, after)] {
            bench.run_for(milliseconds);
            let log: Vec<String> =
                bench.take_log().into_iter().filter(|line| line.starts_with("delete")).collect();
            assert_eq!(log, expected, "watched: {watches_definitions}, defined: {is_defined}");
        }
    }
}

/// Regression test, seeds 410,675,145 and 410,762,108 with a liar: a false event said that an owner was removed, and discovery then
/// left out its kind for a while. The event was believed, because nothing watched definitions.
#[test]
fn the_reported_removal_of_an_owner_is_verified_after_discovery_has_left_out_its_kind() {
    let mut bench = Bench::new();
    bench.add("Deployment/d@n", &[]).add("Pod/p@n", &["Deployment/d"]).drain();
    let owner = bench.model.get(&key("Deployment/d@n")).unwrap().clone();
    let gone = removed(&bench, &owner);
    bench.engine.handle(gone);
    bench.engine.handle(Event::ResourceGone(resource("Deployment")));
    bench.run_for(60_000);
    bench.engine.handle(Event::ResourceServed(info("Deployment")));
    bench.sync("Deployment");
    bench.run_for(600_000);
    assert_eq!(bench.world(), ["Pod/p@n[d]", "Deployment/d@n"]);
}

#[test]
fn the_removal_of_an_owner_after_that_of_its_definition_needs_no_read() {
    let mut bench = bench(&["deployments.apps"]);
    bench.log_confirmations = true;
    bench.add("Deployment/d@n", &[]).add("Pod/p@n", &["Deployment/d"]).drain();
    let gone = bench.model.force_remove(&key("Deployment/d@n")).unwrap();
    let defined = removed(&bench, &definition("deployments.apps", "deployments.apps"));
    bench.engine.handle(defined);
    bench.engine.handle(gone);
    bench.run_for(1_000);
    assert_eq!(bench.take_log(), ["delete Pod/p@n Background"]);
}

/// A kind returns as the same resource if its name, kind and scope are the same. Then it has its former number of objects and owners
/// wait for it; otherwise it is another one.
#[test]
fn a_kind_that_returns_is_the_same_one_if_name_kind_and_scope_agree() {
    type Change = fn(&mut ResourceInfo);
    let rows: [(&str, Change, bool); 4] = [
        ("the same", |_| (), true),
        ("another kind", |info| info.kind = "Other".into(), false),
        ("another scope", |info| info.scope = Scope::Cluster, false),
        ("another group", |info| info.gvr.group = "other".into(), false),
    ];
    for (name, change, is_same) in rows {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]).add("Deployment/d@n", &["Secret/a"]).drain();
        bench.script("owners Deployment/d@n []", &[support::failed()]);
        bench.delete("Secret/a@n", Orphan);
        bench.engine.handle(Event::ResourceGone(resource("Deployment")));
        let mut returned = ResourceInfo { id: ResourceId(50), ..info("Deployment") };
        change(&mut returned);
        bench.engine.handle(Event::ResourceServed(returned));
        bench.engine.handle(Event::ListStarted(ResourceId(50)));
        let resource_version = bench.model.version();
        bench.engine.handle(Event::Synced { resource: ResourceId(50), resource_version });
        bench.run_for(60_000);
        // Its list lacks the dependent, which is therefore no longer waited for.
        assert_eq!(bench.engine.stats().waiting_owners, usize::from(!is_same), "{name}");
    }
}

/// A read has not confirmed the removal of an owner yet when the definition of its kind is removed, too.
#[test]
fn the_removal_of_a_definition_confirms_what_a_read_could_not() {
    let mut bench = bench(&["deployments.apps"]);
    bench.add("Deployment/d@n", &[]).add("Pod/p@n", &["Deployment/d"]).drain();
    bench.script("read Deployment/d@n", &vec![support::failed(); 100]);
    let gone = bench.model.force_remove(&key("Deployment/d@n")).unwrap();
    bench.engine.handle(gone);
    bench.run_for(10_000);
    assert_eq!(bench.take_log(), [""; 0]);
    let defined = removed(&bench, &definition("deployments.apps", "deployments.apps"));
    bench.engine.handle(defined);
    bench.drain();
    assert_eq!(bench.take_log(), ["delete Pod/p@n Background"]);
}

/// Only references that led to the owner say that it was removed; what others lead to is unknown without their kind.
#[test]
fn a_removal_counts_after_its_kind_has_gone_for_references_that_led_to_the_owner() {
    for (dependent, reference, is_deleted) in [
        ("Pod/p@n", "Deployment/d", true),
        ("Pod/p@n", "apps/v1beta1:Deployment/d", true),
        ("Pod/p@n", "Deployment/other=d", false),
        ("Pod/p@m", "Deployment/d", false),
        ("Pod/p@n", "apps/v2:Deployment/d", false),
        ("Pod/p@n", "apps/v1:Gadget/d", false),
    ] {
        let mut bench = bench(&["deployments.apps"]);
        bench.add("Deployment/d@n", &[]).drain();
        let gone = bench.model.force_remove(&key("Deployment/d@n")).unwrap();
        let defined = removed(&bench, &definition("deployments.apps", "deployments.apps"));
        // Somebody keeps the owner's entry: the dependent is shown in the same batch.
        let shown = bench.model.put(object(dependent, &[reference]));
        for event in [shown, gone, defined, Event::ResourceGone(resource("Deployment"))] {
            bench.engine.handle(event);
        }
        bench.run_for(LONG);
        assert_eq!(bench.world().is_empty(), is_deleted, "{dependent} {reference}");
    }
}

/// A kind that has been away for long concerns those whose owner was reported to be removed before, and no others.
#[test]
fn a_kind_that_was_withdrawn_for_long_costs_the_dependents_of_others_no_turn() {
    let mut bench = Bench::new();
    bench.add("Deployment/d@n", &[]).add("Pod/p@n", &["Deployment/d"]);
    bench.add("Secret/a@n", &[]).add("Pod/q@n", &["Secret/a"]).drain();
    bench.engine.handle(Event::ResourceGone(resource("Deployment")));
    // A read is to confirm what the watch says about another owner, and is not answered yet.
    let gone = bench.model.force_remove(&key("Secret/a@n")).unwrap();
    bench.engine.handle(gone);
    while bench.engine.poll_effect().is_some() {}
    let due = bench.now + Config::default().withdrawn_wait_milliseconds;
    bench.engine.handle(Event::Tick(Timestamp(due)));
    assert_eq!(bench.engine.stats().queued, 0);
}
