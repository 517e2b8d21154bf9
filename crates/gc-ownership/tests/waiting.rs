//! What owners wait for: which answers prove that every dependent is known, and what voids them.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests may panic")]

mod support;

use gc_ownership::Config;
use gc_types::PropagationPolicy::{Background, Foreground, Orphan};
use gc_types::{Event, Outcome, PropagationPolicy, Request, ResourceInfo, ResourceVersion};
use support::{Bench, LONG, info, resource};

/// Creates a bench whose log contains barriers.
fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.log_barriers = true;
    bench
}

/// Returns the barriers in the log, which it empties.
fn barriers(bench: &mut Bench) -> Vec<String> {
    bench.take_log().into_iter().filter(|line| line.starts_with("barrier")).collect()
}

/// Kinds of which no event has shown how far their watch is.
const SILENT: [&str; 3] =
    ["barrier replicationcontrollers n", "barrier configmaps n", "barrier deployments n"];
const FINISHED: &str = "unfinalize Secret/a@n foregroundDeletion";

/// Deletes `a` and refuses to remove its finalizer: it keeps waiting although everything has been proven.
fn keep_waiting(bench: &mut Bench, policy: PropagationPolicy) {
    let finalizer = if policy == Orphan { "orphan" } else { "foregroundDeletion" };
    bench.script(&format!("unfinalize Secret/a@n {finalizer}"), &vec![support::refused(); 30]);
    bench.delete("Secret/a@n", policy).run_for(1_000);
}

/// Once nothing blocks the owner, each kind is listed in its namespace, and only once.
#[test]
fn dependents_are_looked_for_in_the_namespace_of_their_owner() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a!"]).drain();
    bench.delete("Secret/a@n", Foreground).run_for(LONG);
    assert_eq!(bench.take_log(), ["delete Pod/p@n Background"]);
    bench.release("Pod/p@n").run_for(LONG);
    assert_eq!(bench.take_log(), [&SILENT[..], &[FINISHED]].concat());
}

/// The removal of an object shows how far its watch is, so pods are not listed.
#[test]
fn a_removal_shows_the_progress_of_its_watch() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add("Pod/other@n", &[]).drain();
    bench.delete("Secret/a@n", Foreground).delete("Pod/other@n", Background).run_for(LONG);
    assert_eq!(bench.take_log(), [&SILENT[..], &[FINISHED]].concat());
}

/// If versions of the owner's kind, or of another, cannot be compared, only a list shows the dependents.
#[test]
fn versions_that_cannot_be_compared_prove_nothing() {
    let [controllers, maps, deployments] = SILENT;
    let (pods, secrets) = ("barrier pods n", "barrier secrets n");
    for (kind, expected) in [
        ("Secret", vec![pods, controllers, maps, secrets, deployments, FINISHED]),
        ("Pod", vec![pods, controllers, deployments, FINISHED]),
        ("ConfigMap", vec![controllers, maps, deployments, FINISHED]),
    ] {
        let mut bench = bench();
        bench.engine.handle(Event::ResourceServed(ResourceInfo { comparable_versions: false, ..info(kind) }));
        bench.sync(kind);
        bench.engine.handle(Event::Discovered);
        bench.add("Secret/a@n", &[]).drain();
        bench.delete("Secret/a@n", Foreground);
        bench.add("ConfigMap/later@n", &[]).delete("ConfigMap/later@n", Background);
        bench.add("Pod/later@n", &[]).delete("Pod/later@n", Background);
        assert_eq!(bench.run_for(LONG).take_log(), expected, "{kind}");
    }
}

/// A watch that is resumed has missed nothing; a list may show another history.
#[test]
fn only_a_list_voids_what_was_proven() {
    for is_listed in [false, true] {
        let mut bench = bench();
        bench.add("Secret/a@n", &[]).drain();
        keep_waiting(&mut bench, Orphan);
        let proofs = barriers(&mut bench);
        assert_eq!(proofs.len(), 9, "two answers about each kind, one about that of the owner: {proofs:?}");
        if is_listed {
            bench.sync("Secret");
        } else {
            let resource_version = bench.model.version();
            bench.engine.handle(Event::Synced { resource: resource("Secret"), resource_version });
        }
        bench.run_for(1_000);
        assert_eq!(barriers(&mut bench), if is_listed { proofs } else { vec![] });
    }
}

/// The kind of a dependent is withdrawn while its owner waits for it: it may come back, with the dependent.
#[test]
fn an_owner_waits_for_the_kind_of_its_dependents() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a!"]).drain();
    bench.delete("Secret/a@n", Foreground).run_for(LONG);
    bench.take_log();
    bench.engine.handle(Event::ResourceGone(resource("Pod")));
    bench.run_for(1_000);
    assert_eq!(bench.take_log(), SILENT);
    bench.run_for(LONG);
    assert_eq!(bench.take_log(), [FINISHED]);
}

/// A reference whose version was not served did not lead to the owner; it blocks from then on, and its object is deleted.
#[test]
fn references_that_discovery_resolves_block() {
    let mut bench = Bench::new();
    bench.add("Deployment/a@n", &[]).add_held("Pod/first@n", &["Deployment/a!"]);
    bench.add_held("Pod/second@n", &["apps/v1beta2:Deployment/a!"]).drain();
    bench.delete("Deployment/a@n", Foreground).run_for(LONG);
    let mut served = info("Deployment");
    served.served_api_versions.push("apps/v1beta2".into());
    bench.engine.handle(Event::ResourceServed(served));
    bench.engine.handle(Event::Discovered);
    bench.release("Pod/first@n").run_for(LONG);
    assert_eq!(bench.take_log(), ["delete Pod/first@n Background", "delete Pod/second@n Background"]);
    assert_eq!(bench.world(), ["-Pod/second@n[a]", "-Deployment/a@n"]);
    bench.release("Pod/second@n").run_for(LONG);
    assert_eq!(bench.take_log(), ["unfinalize Deployment/a@n foregroundDeletion"]);
    assert_eq!(bench.world(), Vec::<String>::new());
}

/// Of two owners, one has all its answers, so only the namespace of the other is listed.
#[test]
fn a_list_covers_only_the_namespaces_that_need_it() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add("Secret/b@m", &[]).drain();
    keep_waiting(&mut bench, Foreground);
    barriers(&mut bench);
    bench.delete("Secret/b@m", Foreground).run_for(1_000);
    let others = [
        "barrier pods m",
        "barrier replicationcontrollers m",
        "barrier configmaps m",
        "barrier deployments m",
    ];
    assert_eq!(barriers(&mut bench), others);
}

/// What was proven about a kind does not hold any more when it comes back.
#[test]
fn a_kind_that_was_withdrawn_is_listed_again() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).drain();
    keep_waiting(&mut bench, Orphan);
    barriers(&mut bench);
    bench.engine.handle(Event::ResourceGone(resource("Deployment")));
    bench.engine.handle(Event::ResourceServed(info("Deployment")));
    bench.engine.handle(Event::Discovered);
    // The list is as of before the mark, as a server behind the others would answer.
    bench.engine.handle(Event::ListStarted(resource("Deployment")));
    bench
        .engine
        .handle(Event::Synced { resource: resource("Deployment"), resource_version: ResourceVersion(1) });
    bench.run_for(1_000);
    assert_eq!(barriers(&mut bench), ["barrier deployments n"; 2]);
}

/// What a watch reports before its list is complete says nothing about what the list lacks.
#[test]
fn progress_before_the_end_of_a_list_proves_nothing() {
    for reported in [1, 1_000] {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]).drain();
        bench.script("barrier deployments n", &vec![support::failed(); 100]);
        bench.delete("Secret/a@n", Foreground);
        let deployments = resource("Deployment");
        bench.engine.handle(Event::ListStarted(deployments));
        let resource_version = ResourceVersion(reported);
        bench.engine.handle(Event::Progress { resource: deployments, resource_version });
        bench.engine.handle(Event::Synced { resource: deployments, resource_version: ResourceVersion(1) });
        bench.run_for(1_000);
        assert_eq!(bench.world(), ["-Secret/a@n"], "{reported}");
        bench
            .engine
            .handle(Event::Progress { resource: deployments, resource_version: ResourceVersion(1_000) });
        bench.run_for(1_000);
        assert_eq!(bench.world(), Vec::<String>::new(), "{reported}");
    }
}

/// A server that asks for a pause before the next live read gets it.
#[test]
fn live_reads_keep_the_pause_that_the_server_asks_for() {
    let mut bench = Bench::new();
    let busy = Outcome::Failed { message: "busy".to_owned(), retry_after_milliseconds: Some(5_000) };
    bench.script("read Secret/gone@n", &[busy]).add("Pod/p@n", &["Secret/gone"]);
    assert_eq!(bench.run_for(5_000).take_log(), ["read Secret/gone@n"]);
    let log = bench.run_for(5_000).take_log();
    assert_eq!(log, ["read Secret/gone@n", "delete Pod/p@n Background"]);
}

/// Only what is served, watched and not listed yet counts as such.
#[test]
fn resources_that_are_not_listed_are_counted() {
    let config = Config { gap_wait_milliseconds: 7, ..Config::default() };
    let mut bench = Bench::unstarted(config.clone());
    assert_eq!(bench.engine.config(), &config);
    for kind in ["Pod", "Secret", "Node"] {
        bench.engine.handle(Event::ResourceServed(info(kind)));
    }
    bench.engine.handle(Event::ResourceServed(ResourceInfo { watched: false, ..info("ConfigMap") }));
    bench.sync("Secret");
    bench.engine.handle(Event::ResourceGone(resource("Node")));
    bench.engine.handle(Event::Discovered);
    assert_eq!(bench.engine.stats().unsynced_resources, 1);
}

/// A cheap answer that is as new as the mark suffices, unless dependents would be lost if it left one out.
#[test]
fn only_orphaned_dependents_need_a_newer_list() {
    for (policy, is_cheap) in [(Foreground, true), (Orphan, false)] {
        let mut bench = Bench::new();
        bench.add("Secret/a@n", &[]).drain();
        bench.delete("Secret/a@n", policy);
        let mark = bench.model.version();
        let mut versions = Vec::new();
        while let Some(effect) = bench.engine.poll_effect() {
            if let Request::Barrier { at_least, .. } = effect.request {
                versions.push(at_least);
            }
            bench.perform(&effect);
        }
        let expected = if is_cheap { mark } else { ResourceVersion::UNKNOWN };
        assert!(!versions.is_empty() && versions.iter().all(|version| *version == expected), "{versions:?}");
        assert_eq!(bench.world(), Vec::<String>::new());
    }
}

/// The list of one kind begins again while that of another is read.
#[test]
fn a_list_that_begins_again_concerns_its_kind_alone() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    let listed = |bench: &mut Bench, kind: &str| {
        for object in bench.model.list(resource(kind), None) {
            bench.engine.handle(Event::Observed(object));
        }
    };
    let end = |bench: &mut Bench, kind: &str| {
        let resource_version = bench.model.version();
        bench.engine.handle(Event::Synced { resource: resource(kind), resource_version });
    };
    bench.engine.handle(Event::ListStarted(resource("Secret")));
    listed(&mut bench, "Secret");
    bench.engine.handle(Event::ListStarted(resource("Pod")));
    bench.engine.handle(Event::ListStarted(resource("Pod")));
    end(&mut bench, "Secret");
    listed(&mut bench, "Pod");
    end(&mut bench, "Pod");
    bench.run_for(LONG);
    assert_eq!(bench.take_log(), Vec::<String>::new());
    assert_eq!(bench.world(), ["Pod/p@n[a]", "Secret/a@n"]);
}

/// A kind that cannot be listed holds an owner up for a while only; one that is not served, longer if its objects would outlive
/// the owner.
#[test]
fn owners_stop_waiting_for_kinds_that_cannot_be_listed() {
    let Config { gap_wait_milliseconds: gap, withdrawn_wait_milliseconds: withdrawn, .. } = Config::default();
    assert!(gap < withdrawn);
    for (policy, is_withdrawn, expected) in
        [(Foreground, false, gap), (Foreground, true, gap), (Orphan, false, gap), (Orphan, true, withdrawn)]
    {
        let mut bench = Bench::new();
        bench.script("barrier deployments n", &vec![support::failed(); 10_000]);
        bench.add("Secret/a@n", &[]).drain();
        bench.delete("Secret/a@n", policy);
        if is_withdrawn {
            bench.engine.handle(Event::ResourceGone(resource("Deployment")));
        }
        bench.run_for(expected - 1);
        assert_eq!(bench.world(), ["-Secret/a@n"], "{policy:?}, {is_withdrawn}");
        bench.run_for(1);
        assert_eq!(bench.world(), Vec::<String>::new(), "{policy:?}, {is_withdrawn}");
    }
}

/// A dependent that has lost one owner waits for an answer about the other, which then appears.
#[test]
fn an_owner_that_appears_decides_about_the_references_beside_it() {
    let mut bench = Bench::new();
    bench.lag("Secret");
    bench.script("read Secret/late@n", &vec![support::failed(); 100]);
    bench.add("Secret/late@n", &[]).add("Pod/p@n", &["Secret/late", "ConfigMap/gone"]).run_for(60);
    bench.take_log();
    bench.catch_up("Secret");
    bench.drain();
    assert_eq!(bench.take_log(), ["owners Pod/p@n [late]"]);
}

/// An event shows a dependent without its reference, which a read confirms. It is progress of its watch as any other event is, so
/// one list of pods is enough.
#[test]
fn an_event_that_a_read_has_to_confirm_is_progress() {
    let mut bench = bench();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    bench.script("owners Pod/p@n []", &[support::refused()]);
    bench.delete("Secret/a@n", Orphan).drain();
    bench.set_owners("Pod/p@n", &[]).run_for(1_000);
    let log = bench.take_log();
    assert_eq!(log[..2], ["owners Pod/p@n []", "read Pod/p@n"]);
    assert_eq!(log.iter().filter(|line| *line == "barrier pods n").count(), 1, "{log:?}");
    assert_eq!(log.last().map(String::as_str), Some("unfinalize Secret/a@n orphan"));
}

/// The only owner that waited for a list is gone when it is due, so it is not made; the next owner gets one as soon as any other.
#[test]
fn a_list_that_no_owner_needs_any_more_is_not_made() {
    let gathers = 1_000;
    let mut bench = Bench::gathering(gathers);
    bench.log_barriers = true;
    bench.add("Secret/a@n", &[]).add("Secret/b@n", &[]).drain();
    bench.delete("Secret/a@n", Foreground).run_for(1);
    let event = bench.model.force_remove(&support::key("Secret/a@n")).unwrap();
    bench.deliver(event);
    bench.run_for(LONG);
    assert_eq!(bench.take_log(), [""; 0]);
    bench.delete("Secret/b@n", Foreground).run_for(gathers);
    let log = bench.take_log();
    assert_eq!(log.last().map(String::as_str), Some("unfinalize Secret/b@n foregroundDeletion"), "{log:?}");
}
