//! Histories that run backwards (a restored backup, a list from a stale cache), barriers that overtake watches, queues whose
//! objects are removed, and nonsensical events. The simulator found most of these; each is a short story here.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests may panic")]

mod support;

use gc_ownership::model::Model;
use gc_ownership::{Config, Engine};
use gc_types::PropagationPolicy::{Background, Foreground, Orphan};
use gc_types::{
    DeletionState, Effect, EffectId, Event, ObjectKey, ObservedObject, Outcome, Recreator, Request,
    ResourceId, ResourceInfo, ResourceVersion, Timestamp, Uid,
};
use proptest::prelude::*;
use support::{Bench, KINDS, LONG, failed, info, key, object, owner, resource, show_request};

/// Lists a kind from another state of the server than the current one.
fn sync_from(bench: &mut Bench, kind: &str, state: &Model) {
    let present = std::mem::replace(&mut bench.model, state.clone());
    bench.sync(kind);
    bench.model = present;
}

fn deletions(bench: &mut Bench) -> Vec<String> {
    bench.take_log().into_iter().filter(|line| !line.starts_with("read")).collect()
}

#[test]
fn two_lists_that_are_behind_remove_no_owner() {
    let mut bench = Bench::new();
    bench.add("ConfigMap/other@n", &[]);
    let behind = bench.model.clone();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    // The second is not older than the state after the first one, but older than what was delivered of its own resource.
    sync_from(&mut bench, "Pod", &behind);
    sync_from(&mut bench, "Secret", &behind);
    bench.sync("Pod");
    bench.run_for(1_000);
    assert_eq!(deletions(&mut bench), Vec::<String>::new());
    assert_eq!(bench.world(), ["Pod/p@n[a]", "ConfigMap/other@n", "Secret/a@n"]);
    // The watch reports it again; then it is really removed.
    bench.sync("Secret");
    bench.take_log();
    bench.delete("Secret/a@n", Background).run_for(1_000);
    assert_eq!(bench.take_log(), ["delete Pod/p@n Background"]);
}

#[test]
fn a_list_does_not_remove_an_object_that_is_newer() {
    let mut bench = Bench::new();
    bench.add("ConfigMap/other@n", &[]);
    let behind = bench.model.clone();
    bench.add("Pod/p@n", &["Secret/a"]);
    bench.engine.handle(Event::Stale(resource("Secret")));
    // Known although the watch of its resource has not advanced that far.
    bench.add("Secret/a@n", &[]).drain();
    sync_from(&mut bench, "Secret", &behind);
    bench.run_for(1_000);
    assert_eq!(deletions(&mut bench), Vec::<String>::new());
    assert_eq!(bench.engine.stats().virtual_owners, 1);
}

#[test]
fn progress_of_a_history_that_is_no_more_ends_no_waiting() {
    let mut bench = Bench::new();
    bench.log_barriers = true;
    bench.add("Secret/a@n", &[]).drain();
    let backup = bench.model.clone();
    for name in ["x", "y", "z"] {
        bench.add(&format!("Pod/{name}@n"), &[]);
    }
    bench.drain();
    // Delivered up to version 4; then the server is restored to version 1 and takes another course.
    bench.model = backup;
    bench.sync("Pod");
    bench.sync("Secret");
    bench.lag("Pod");
    bench.take_log();
    bench.add("Pod/p@n", &["Secret/a!"]).delete("Secret/a@n", Foreground).run_for(1_000);
    let log = bench.take_log();
    let barrier = log.iter().position(|line| line == "barrier pods n").unwrap();
    let deleted = log.iter().position(|line| line == "delete Pod/p@n Background").unwrap();
    assert!(barrier < deleted, "{log:#?}");
    assert!(!log.contains(&"unfinalize Secret/a@n foregroundDeletion".to_owned()), "{log:#?}");
    bench.catch_up("Pod");
    bench.run_for(1_000);
    assert_eq!(bench.world(), Vec::<String>::new());
}

/// Performs effects; a DELETE is answered without the object, like the real adapter does.
fn drain_plainly(bench: &mut Bench) {
    while let Some(effect) = bench.next_effect() {
        let Request::Delete { .. } = effect.request else {
            bench.perform(&effect);
            continue;
        };
        bench.log.push(show_request(&effect.request));
        for event in bench.model.answer(&effect.request).events {
            bench.deliver(event);
        }
        bench.deliver(Event::Done(effect.id, Outcome::Applied(None)));
    }
}

#[test]
fn what_a_barrier_found_counts_as_seen() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]);
    bench.add("Pod/p@n", &["Secret/a!"]);
    bench.add("ConfigMap/c@n", &["Pod/p!"]);
    drain_plainly(&mut bench);
    bench.lag("Pod");
    bench.lag("ConfigMap");
    bench.delete("Secret/a@n", Foreground);
    drain_plainly(&mut bench);
    assert_eq!(bench.take_log(), ["delete Pod/p@n Foreground"]);
    // The list of a barrier reports the mark before the watch does, which then has nothing newer to deliver.
    let marked = bench.model.get(&key("Pod/p@n")).unwrap().clone();
    bench.deliver(Event::Found(marked));
    drain_plainly(&mut bench);
    bench.catch_up("Pod");
    bench.catch_up("ConfigMap");
    drain_plainly(&mut bench);
    assert_eq!(
        bench.take_log(),
        [
            "delete ConfigMap/c@n Background",
            "unfinalize Pod/p@n foregroundDeletion",
            "unfinalize Secret/a@n foregroundDeletion"
        ]
    );
    assert_eq!(bench.world(), Vec::<String>::new());
}

#[test]
fn a_barrier_does_not_bring_back_what_the_watch_saw_go() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a!"]).drain();
    let found = bench.model.get(&key("Pod/p@n")).unwrap().clone();
    bench.delete("Pod/p@n", Background);
    bench.deliver(Event::Found(found.clone()));
    assert_eq!(bench.engine.stats().objects, 1);
    // Nor for an owner that waits for it.
    bench.script("unfinalize Secret/a@n foregroundDeletion", &[support::refused()]);
    bench.delete("Secret/a@n", Foreground);
    bench.deliver(Event::Found(found));
    assert_eq!(bench.engine.stats().objects, 1);
    bench.run_for(LONG);
    assert_eq!(bench.world(), Vec::<String>::new());
}

/// Regression test, seed 400,760,832: without comparable versions, a late answer brought back an object that was already terminating,
/// and nothing ever reported again that it was gone.
#[test]
fn what_a_barrier_found_is_read_if_versions_do_not_tell_whether_it_has_gone_since() {
    let mut bench = Bench::unstarted(Config::default());
    for (kind, ..) in KINDS {
        bench.engine.handle(Event::ResourceServed(ResourceInfo { comparable_versions: false, ..info(kind) }));
        bench.sync(kind);
    }
    bench.engine.handle(Event::Discovered);
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).add_held("ConfigMap/c@n", &["Secret/a!"]);
    bench.drain();
    let request = "unfinalize Pod/p@n orphan";
    bench.script(request, &[Outcome::Applied(None)]).before.entry(request.to_owned()).or_default().push_back(
        Box::new(|model| {
            let found = model.get(&key("Pod/p@n")).unwrap().clone();
            let mut events = vec![model.force_remove(&key("Pod/p@n")).unwrap()];
            events.extend(model.delete(&key("Secret/a@n"), Some(Foreground)));
            events.push(Event::Found(found));
            events
        }),
    );
    bench.delete("Pod/p@n", Orphan).run_for(LONG);
    assert_eq!((bench.model.get(&key("Pod/p@n")), bench.engine.stats().objects), (None, 2));
}

/// The response to a barrier came late: the object had been removed, and the list in progress was made after that. The object
/// counted as contained in that list, and nothing ever reported again that it was gone.
#[test]
fn a_list_under_way_proves_gone_what_only_a_late_answer_showed() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Pod/q@n", &["Secret/a!"]).drain();
    bench.lag("Pod");
    bench.add("Pod/p@n", &["Secret/a!"]);
    let found = bench.model.get(&key("Pod/p@n")).unwrap().clone();
    bench.delete("Secret/a@n", Foreground).delete("Pod/p@n", Background);
    bench.lagging.clear();
    let pod = resource("Pod");
    bench.deliver(Event::ListStarted(pod));
    bench.deliver(Event::Found(found));
    assert_eq!(bench.engine.stats().objects, 3);
    let listed: Vec<_> = bench.model.list(pod, None).collect();
    for object in listed {
        bench.deliver(Event::Observed(object));
    }
    bench.deliver(Event::Synced { resource: pod, resource_version: bench.model.version() });
    assert_eq!(bench.engine.stats().objects, 2);
    bench.run_for(LONG);
    assert_eq!(bench.world(), Vec::<String>::new());
}

/// Seed 2,418,461: while the finalizer of an owner that other finalizers block was being removed, an outdated list showed it before
/// its deletion, or not at all, and the watch that followed reported that it waits. A dependent created in the meantime was deleted
/// because of that, although the owner was living.
#[test]
fn an_owner_that_a_list_shows_again_may_have_stopped_waiting() {
    for is_known in [true, false] {
        let mut bench = Bench::new();
        let nothing = bench.model.clone();
        bench.add_held("Secret/a@n", &[]).drain();
        let behind = if is_known { bench.model.clone() } else { nothing };
        bench.delete("Secret/a@n", Foreground);
        let removal = bench.next_finalizer_removal();
        sync_from(&mut bench, "Secret", &behind);
        let waiting = bench.model.get(&key("Secret/a@n")).unwrap().clone();
        bench.deliver(Event::Observed(waiting));
        // It is executed, and its response is in flight.
        bench.lag("Secret");
        let answer = bench.model.answer(&removal.request);
        bench.add("Pod/e@n", &["Secret/a!"]).run_for(1_000);
        assert_eq!(deletions(&mut bench), Vec::<String>::new(), "{is_known}");
        bench.deliver(Event::Done(removal.id, answer.outcome));
        bench.catch_up("Secret");
        bench.run_for(1_000);
        assert_eq!(deletions(&mut bench), Vec::<String>::new(), "{is_known}");
        assert_eq!(bench.world(), ["Pod/e@n[a]", "-Secret/a@n"]);
    }
}

/// A backup was restored, and until the watch is where it was before, only a read shows that an owner waits. While that was in
/// flight, another finalizer of the owner was removed: the read counted for nothing, and its dependents were not decided on again.
#[test]
fn an_owner_that_changes_while_it_is_read_after_a_backup_takes_its_dependents_along() {
    let mut bench = Bench::new();
    bench.add_held("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a!"]).drain();
    bench.delete("Secret/a@n", Foreground);
    let before = bench.engine.poll_effect().unwrap();
    let backup = bench.model.clone();
    for later in ["Secret/x@n", "Secret/y@n", "Secret/z@n"] {
        bench.add(later, &[]);
    }
    bench.model = backup;
    bench.sync("Secret");
    bench.sync("Pod");
    let answer = bench.model.answer(&before.request).outcome;
    bench.deliver(Event::Done(before.id, answer.clone()));
    let read = bench.engine.poll_effect().unwrap();
    assert_eq!([&before, &read].map(|read| show_request(&read.request)), ["read Secret/a@n"; 2]);
    bench.release("Secret/a@n");
    bench.deliver(Event::Done(read.id, answer));
    bench.run_for(1_000);
    assert_eq!(bench.world(), Vec::<String>::new(), "{:?}", bench.take_log());
}

/// After the finalizer of an owner had been removed, a backup was restored in which the owner was living, and it was deleted again.
/// A barrier reported that before the list, which then contained nothing new: its wait counted as ended forever, and its dependents
/// remained.
#[test]
fn an_owner_that_a_barrier_shows_again_after_a_backup_is_read() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).drain();
    let backup = bench.model.clone();
    bench.delete("Secret/a@n", Foreground).lag("Secret");
    bench.drain();
    assert_eq!(bench.take_log(), ["unfinalize Secret/a@n foregroundDeletion"]);
    assert_eq!(bench.world(), Vec::<String>::new());
    bench.lagging.clear();
    bench.model = backup;
    bench.model.put(object("Pod/e@n", &["Secret/a!"]));
    bench.model.delete(&key("Secret/a@n"), Some(Foreground)).unwrap();
    let again = bench.model.get(&key("Secret/a@n")).unwrap().clone();
    bench.deliver(Event::Found(again));
    bench.sync("Secret");
    bench.sync("Pod");
    bench.run_for(LONG);
    assert_eq!(bench.world(), Vec::<String>::new(), "{:?}", bench.take_log());
}

#[test]
fn the_same_version_with_other_content_is_believed_of_a_list() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Secret/b@n", &[]);
    let backup = bench.model.clone();
    bench.add("Pod/p@n", &["Secret/a"]).drain();
    // The server is restored, and the same revision is used for something else.
    bench.model = backup;
    bench.model.put(object("Pod/p@n", &["Secret/b"]));
    bench.sync("Pod");
    bench.sync("Secret");
    bench.run_for(1_000).take_log();
    bench.delete("Secret/b@n", Background).run_for(1_000);
    assert_eq!(deletions(&mut bench), ["delete Pod/p@n Background"]);
}

#[test]
fn a_request_applied_before_a_backup_is_repeated() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add_held("Pod/p@n", &["Secret/a"]).delete("Secret/a@n", Background);
    let backup = bench.model.clone();
    bench.lag("Pod");
    drain_plainly(&mut bench);
    assert_eq!(bench.take_log(), ["delete Pod/p@n Background"]);
    bench.lagging.clear();
    bench.model = backup;
    bench.sync("Pod");
    bench.run_for(1_000);
    assert_eq!(deletions(&mut bench), ["delete Pod/p@n Background"]);
}

#[test]
fn owners_that_nobody_saw_are_looked_up_again_when_history_goes_back() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("ConfigMap/x@n", &[]);
    let behind = bench.model.clone();
    bench.add("ConfigMap/y@n", &[]);
    // One was never observed; one is known at another place than the reference says. Both are about to be read.
    bench.add("Pod/p@n", &["Secret/gone"]).add("Pod/q@n", &["Secret/other=a"]).drain();
    assert_eq!(bench.take_log(), Vec::<String>::new());
    sync_from(&mut bench, "ConfigMap", &behind);
    bench.run_for(1_000);
    let mut log = bench.take_log();
    log.retain(|line| !line.starts_with("note"));
    log.sort();
    assert_eq!(
        log,
        [
            "delete Pod/p@n Background",
            "delete Pod/q@n Background",
            "read Secret/gone@n",
            "read Secret/other@n"
        ]
    );
}

#[test]
fn queues_stay_bounded_while_objects_come_and_go_and_nothing_is_answered() {
    let mut bench = Bench::with(Config { effects_in_flight: 1, ..Config::default() });
    bench.unchecked = true;
    bench.add("Secret/a@n", &[]).add("Pod/first@n", &["Secret/a"]).drain();
    bench.delete("Secret/a@n", Background);
    let first = bench.next_effect().unwrap();
    for round in 0..20_000 {
        // Its owner was never observed, so it is queued for a turn that does not come; then it is removed.
        let name = format!("Pod/p{round}@n");
        bench.add(&name, &[&format!("Secret/s{}", round % 7)]);
        assert_eq!(bench.next_effect(), None);
        let removed = bench.model.force_remove(&key(&name)).unwrap();
        bench.deliver(removed);
        if round % 1_000 == 0 {
            bench.now += 60;
            bench.engine.handle(Event::Tick(Timestamp(bench.now)));
            assert_eq!(bench.engine.verify(), Vec::<String>::new(), "after {round}");
        }
    }
    assert_eq!(bench.engine.verify(), Vec::<String>::new());
    let stats = bench.engine.stats();
    assert!(stats.queued <= stats.objects + stats.virtual_owners, "{stats:?}");
    bench.perform(&first);
    bench.run_for(LONG);
    assert_eq!(bench.world(), Vec::<String>::new());
    assert_eq!(bench.engine.stats().queued, 0);
}

#[test]
fn an_orphaning_owner_is_done_once_after_a_list_that_is_behind() {
    let mut bench = Bench::new();
    bench.add("ConfigMap/x@n", &[]).add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    let behind = bench.model.clone();
    bench.add_held("Secret/b@n", &[]).delete("Secret/a@n", Orphan).drain();
    assert_eq!(bench.take_log(), ["owners Pod/p@n []", "unfinalize Secret/a@n orphan"]);
    sync_from(&mut bench, "Secret", &behind);
    sync_from(&mut bench, "Pod", &behind);
    bench.run_for(1_000);
    assert_eq!(deletions(&mut bench), Vec::<String>::new());
    assert_eq!(bench.world(), ["Pod/p@n", "ConfigMap/x@n", "Secret/b@n"]);
}

#[test]
fn a_waiting_owner_that_a_list_brings_back_takes_nothing_along() {
    let mut bench = Bench::new();
    bench.add_held("Secret/b@n", &[]).delete("Secret/b@n", Foreground);
    let behind = bench.model.clone();
    bench.drain();
    assert_eq!(bench.take_log(), ["unfinalize Secret/b@n foregroundDeletion"]);
    // It no longer waits, and still exists while the other finalizer blocks it.
    sync_from(&mut bench, "Secret", &behind);
    bench.add("Pod/p@n", &["Secret/b"]).run_for(1_000);
    assert!(!bench.take_log().iter().any(|line| line.starts_with("delete")));
    assert_eq!(bench.world(), ["Pod/p@n[b]", "-Secret/b@n"]);
}

#[test]
fn a_request_holds_up_every_owner_of_its_object() {
    let mut bench = Bench::new();
    bench
        .add("Secret/x@n", &[])
        .add_held("Secret/b@n", &[])
        .add("Pod/p@n", &["Secret/x", "Secret/b"])
        .drain();
    bench.delete("Secret/b@n", Foreground);
    let effects: Vec<Effect> = std::iter::from_fn(|| bench.next_effect()).collect();
    let shown: Vec<String> = effects.iter().map(|effect| show_request(&effect.request)).collect();
    assert_eq!(shown, ["owners Pod/p@n [x]"]);
    for effect in &effects {
        bench.perform(effect);
    }
    bench.run_for(1_000);
    assert_eq!(bench.take_log(), ["owners Pod/p@n [x]", "unfinalize Secret/b@n foregroundDeletion"]);
}

#[test]
fn what_went_while_history_was_in_doubt_is_not_waited_for() {
    let mut bench = Bench::new();
    bench.add("ConfigMap/x@n", &[]);
    let behind = bench.model.clone();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a!"]).add("ConfigMap/y@n", &[]).drain();
    let found = bench.model.get(&key("Pod/p@n")).unwrap().clone();
    bench.delete("Secret/a@n", Foreground);
    let delete = bench.next_effect().unwrap();
    assert_eq!(show_request(&delete.request), "delete Pod/p@n Background");
    for event in bench.model.answer(&delete.request).events {
        bench.deliver(event);
    }
    // An engine that then begins to doubt has seen its removal. A list made before that brings it back.
    sync_from(&mut bench, "ConfigMap", &behind);
    bench.deliver(Event::Found(found));
    bench.deliver(Event::Done(delete.id, Outcome::Applied(None)));
    bench.run_for(LONG);
    assert_eq!(bench.world(), ["ConfigMap/x@n", "ConfigMap/y@n"]);
    assert_eq!(bench.engine.stats().objects, 1);
}

#[test]
fn nothing_is_asked_again_about_an_object_that_a_list_lost_and_the_watch_brought_back() {
    let mut bench = Bench::new();
    bench.add("ConfigMap/x@n", &[]);
    let behind = bench.model.clone();
    bench.add("Secret/a@n", &[]).add("Pod/p@n", &["Secret/a"]).drain();
    let pod = bench.model.get(&key("Pod/p@n")).unwrap().clone();
    bench.delete("Secret/a@n", Background);
    let delete = bench.next_effect().unwrap();
    assert_eq!(show_request(&delete.request), "delete Pod/p@n Background");
    // In the meantime, an outdated list loses the object, and it comes back unchanged.
    sync_from(&mut bench, "Pod", &behind);
    bench.deliver(Event::Observed(pod));
    bench.run_for(1_000);
    assert_eq!(deletions(&mut bench), Vec::<String>::new());
    // The outcome of the first request applies to the object: it is read, and deleted in its current state.
    bench.deliver(Event::Done(delete.id, Outcome::Conflict));
    bench.run_for(1_000);
    assert_eq!(deletions(&mut bench), ["delete Pod/p@n Background"]);
    assert_eq!(bench.world(), ["ConfigMap/x@n"]);
}

/// It is unknown whether a finalizer was removed, and the read that should show it fails. In the meantime the owner changes and
/// gets another blocking dependent, which waited for the read, which was never repeated.
#[test]
fn a_read_of_an_owner_that_may_have_ended_is_repeated_until_it_tells() {
    let mut bench = Bench::new();
    bench.script("unfinalize Pod/c@n foregroundDeletion", &[Outcome::NotServed]);
    bench.script("read Pod/c@n", &[failed()]);
    let late: support::Meanwhile = Box::new(|model| {
        let dependent = model.put(object("Secret/e@n", &["Pod/c!"]));
        let owner = model.get(&key("Pod/c@n")).unwrap().clone();
        vec![dependent, model.put(owner)]
    });
    bench.before.entry("read Pod/c@n".to_owned()).or_default().push_back(late);
    bench.add("Pod/c@n", &[]).delete("Pod/c@n", Foreground).run_for(LONG);
    assert_eq!(bench.world(), Vec::<String>::new(), "{:?}", bench.take_log());
}

/// After a restored backup, the version whose owner reference was to be removed was another one, without that reference, that
/// orphans its dependents. The response counted as applied, and its watch event, which never comes, was waited for.
#[test]
fn a_change_that_was_not_needed_is_followed_by_a_look() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("ConfigMap/j@n", &["Secret/a"]).drain();
    bench.delete("Secret/a@n", Orphan);
    let change = bench.next_effect().unwrap();
    assert_eq!(show_request(&change.request), "owners ConfigMap/j@n []");
    let mut another = bench.model.get(&key("ConfigMap/j@n")).unwrap().clone();
    another.owners.clear();
    another.deletion = DeletionState { deleting: true, orphan: true, ..DeletionState::default() };
    let (id, version) = (resource("ConfigMap"), another.resource_version);
    bench.engine.handle(Event::ListStarted(id));
    bench.engine.handle(Event::Observed(another.clone()));
    bench.engine.handle(Event::Synced { resource: id, resource_version: version });
    bench.engine.handle(Event::Done(change.id, Outcome::Applied(Some(another.clone()))));
    let mut asked = Vec::new();
    for second in 0..60 {
        bench.engine.handle(Event::Tick(Timestamp(bench.now + 1_000 * second)));
        while let Some(effect) = bench.next_effect() {
            let outcome = match &effect.request {
                Request::Read { key } if *key == another.key => Outcome::Found(another.clone()),
                Request::Barrier { .. } => Outcome::Applied(None),
                _ => support::refused(),
            };
            if !matches!(effect.request, Request::Barrier { .. }) {
                asked.push(show_request(&effect.request));
            }
            bench.engine.handle(Event::Done(effect.id, outcome));
        }
    }
    asked.retain(|request| request.contains("ConfigMap/j@n"));
    asked.truncate(2);
    assert_eq!(asked, ["read ConfigMap/j@n", "unfinalize ConfigMap/j@n orphan"]);
}

/// A turn that also reports a wrong reference: the Event was sent first, and the decision of the same turn whenever there was room,
/// by then perhaps against newer observations.
#[test]
fn what_a_turn_decides_is_sent_at_once_or_never() {
    let mut bench = Bench::new();
    bench.add("Secret/a@n", &[]).add("Secret/b@m", &[]).drain();
    bench.lag("Pod");
    bench.add("Pod/p@n", &["Secret/a", "Secret/b"]);
    let backup = bench.model.clone();
    bench.delete("Secret/a@n", Orphan).catch_up("Pod");
    let first = bench.next_effect().map(|effect| show_request(&effect.request));
    assert_eq!(first.as_deref(), Some("owners Pod/p@n [b]"));
    // The backup does not contain the deletion.
    bench.lagging.clear();
    bench.model = backup;
    bench.sync("Secret");
    bench.sync("Pod");
    let later = std::iter::from_fn(|| bench.next_effect());
    let later: Vec<String> = later.map(|effect| show_request(&effect.request)).collect();
    assert!(
        later.iter().all(|request| request.starts_with("note") || request.starts_with("read")),
        "{later:?}"
    );
    assert!(later.iter().any(|request| request.starts_with("note")), "{later:?}");
}

#[test]
fn a_place_that_one_left_holds_up_the_owner_of_the_next() {
    let mut bench = Bench::new();
    bench.add_held("Secret/b@n", &[]).drain();
    // It is queued among the dependents of an owner that was never observed, and is removed before its turn.
    bench.add("Pod/first@n", &["Secret/unseen"]);
    let removed = bench.model.force_remove(&key("Pod/first@n")).unwrap();
    bench.deliver(removed);
    // The next one reuses its number, and has another owner.
    bench.add("Pod/next@n", &["Secret/b"]).delete("Secret/b@n", Foreground);
    let effects: Vec<Effect> = std::iter::from_fn(|| bench.next_effect()).collect();
    let shown: Vec<String> = effects.iter().map(|effect| show_request(&effect.request)).collect();
    assert_eq!(shown, ["delete Pod/next@n Background"]);
    for effect in &effects {
        bench.perform(effect);
    }
    bench.run_for(1_000);
    assert_eq!(
        bench.take_log(),
        ["delete Pod/next@n Background", "unfinalize Secret/b@n foregroundDeletion"]
    );
}

// ---- events in a nonsensical order ----

/// An arbitrary event; effects are picked from those that were created.
#[derive(Clone, Debug)]
enum Odd {
    Served(usize, bool, bool),
    Gone(u32),
    Discovered,
    ListStarted(u32),
    Synced(u32, u64),
    Progress(u32, u64),
    Stale(u32),
    Observed(ObservedObject),
    Found(ObservedObject),
    Removed(ObjectKey, Uid, u64),
    Done(u64, Outcome),
    Tick(i64),
    Poll(usize),
}

fn odd_key() -> impl Strategy<Value = ObjectKey> {
    // Resource 9 was never announced.
    let resource = prop_oneof![8 => 0..7_u32, 1 => Just(9_u32)];
    (resource, prop_oneof!["", "m", "n"], "[ab]").prop_map(|(resource, namespace, name)| ObjectKey {
        resource: ResourceId(resource),
        namespace: namespace.into(),
        name: name.into(),
    })
}

fn odd_uid() -> impl Strategy<Value = Uid> {
    prop_oneof![
        (0..5_u8).prop_map(|number| Uid::from_uuid([number; 16])),
        prop_oneof!["", "a", "b"].prop_map(|text| Uid::new(&text)),
    ]
}

fn odd_object() -> impl Strategy<Value = ObservedObject> {
    let kinds = prop_oneof!["Pod", "Secret", "Node", "Deployment", "Nonsense", ""];
    let reference = (kinds, "[ab]", odd_uid(), any::<Option<bool>>(), any::<bool>());
    (
        odd_key(),
        odd_uid(),
        0..8_u64,
        proptest::collection::vec(reference, 0..4),
        any::<(bool, bool, bool, bool)>(),
    )
        .prop_map(
            |(key, uid, version, references, (deleting, foreground, orphan, foreign_finalizers))| {
                let owners = references.into_iter().map(|(kind, name, uid, controller, blocks)| {
                    let mut reference = owner(&format!("{kind}/{name}"));
                    reference.coordinates.uid = uid;
                    reference.controller = controller;
                    reference.block_owner_deletion = Some(blocks);
                    reference
                });
                ObservedObject {
                    key,
                    uid,
                    resource_version: ResourceVersion(version),
                    owners: owners.collect(),
                    deletion: DeletionState { deleting, foreground, orphan, foreign_finalizers },
                    recreator: version
                        .is_multiple_of(2)
                        .then(|| Recreator::Helm(format!("r{}", version % 5).into())),
                }
            },
        )
}

fn odd_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Applied(None)),
        odd_object().prop_map(|object| Outcome::Applied(Some(object))),
        odd_object().prop_map(Outcome::Found),
        Just(Outcome::Absent),
        Just(Outcome::Conflict),
        Just(Outcome::NotServed),
        Just(Outcome::Refused { code: 403, message: String::new() }),
        any::<Option<u64>>()
            .prop_map(|wait| Outcome::Failed { message: String::new(), retry_after_milliseconds: wait }),
    ]
}

fn odd_event() -> impl Strategy<Value = Odd> {
    let resource = || prop_oneof![8 => 0..7_u32, 1 => Just(9_u32)];
    prop_oneof![
        2 => (0..KINDS.len(), any::<bool>(), any::<bool>()).prop_map(|(kind, watched, comparable)| Odd::Served(kind, watched, comparable)),
        1 => resource().prop_map(Odd::Gone),
        2 => Just(Odd::Discovered),
        2 => resource().prop_map(Odd::ListStarted),
        3 => (resource(), 0..9_u64).prop_map(|(resource, version)| Odd::Synced(resource, version)),
        2 => (resource(), 0..9_u64).prop_map(|(resource, version)| Odd::Progress(resource, version)),
        1 => resource().prop_map(Odd::Stale),
        12 => odd_object().prop_map(Odd::Observed),
        3 => odd_object().prop_map(Odd::Found),
        4 => (odd_key(), odd_uid(), 0..9_u64).prop_map(|(key, uid, version)| Odd::Removed(key, uid, version)),
        8 => (0..64_u64, odd_outcome()).prop_map(|(effect, outcome)| Odd::Done(effect, outcome)),
        4 => prop_oneof![any::<i64>(), 0..200_000_i64].prop_map(Odd::Tick),
        8 => (1..6_usize).prop_map(Odd::Poll),
    ]
}

fn deliver(engine: &mut Engine, made: &mut Vec<Effect>, odd: Odd) {
    let version = ResourceVersion;
    let event = match odd {
        Odd::Served(kind, watched, comparable_versions) => {
            let mut info = info(KINDS[kind].0);
            (info.watched, info.comparable_versions) = (watched, comparable_versions);
            Event::ResourceServed(info)
        }
        Odd::Gone(resource) => Event::ResourceGone(ResourceId(resource)),
        Odd::Discovered => Event::Discovered,
        Odd::ListStarted(resource) => Event::ListStarted(ResourceId(resource)),
        Odd::Synced(resource, at) => {
            Event::Synced { resource: ResourceId(resource), resource_version: version(at) }
        }
        Odd::Progress(resource, at) => {
            Event::Progress { resource: ResourceId(resource), resource_version: version(at) }
        }
        Odd::Stale(resource) => Event::Stale(ResourceId(resource)),
        Odd::Observed(object) => Event::Observed(object),
        Odd::Found(object) => Event::Found(object),
        Odd::Removed(key, uid, at) => Event::Removed { key, uid, resource_version: version(at) },
        Odd::Done(number, outcome) => {
            // Mostly existing ones; sometimes answered twice, or never created.
            let index = usize::try_from(number).unwrap_or(0);
            let id = made.get(index % made.len().max(1)).map_or(EffectId(number), |effect| effect.id);
            Event::Done(id, outcome)
        }
        Odd::Tick(at) => Event::Tick(Timestamp(at)),
        Odd::Poll(most) => {
            made.extend((0..most).map_while(|_| engine.poll_effect()));
            return;
        }
    };
    engine.handle(event);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_that_make_no_sense_break_nothing(
        odd in proptest::collection::vec(odd_event(), 1..120),
        in_flight in 0..5_usize,
    ) {
        let mut engine = Engine::new(Config { effects_in_flight: in_flight, absent_owners: 2, ..Config::default() });
        let mut made = Vec::new();
        for odd in odd {
            deliver(&mut engine, &mut made, odd);
            prop_assert_eq!(engine.verify(), Vec::<String>::new());
            let stats = engine.stats();
            prop_assert!(stats.in_flight <= in_flight);
            prop_assert!(stats.queued <= stats.objects + stats.virtual_owners);
        }
    }
}
