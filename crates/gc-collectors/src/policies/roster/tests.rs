#![allow(clippy::unwrap_used, reason = "a test may panic")]

use gc_types::{Effect, Outcome, Request, ResourceId, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::objects::time_text;
use crate::policies::engine::digest;

mod unused;

const NOW: i64 = 1_800_000_000_000;

fn at(milliseconds: i64) -> Timestamp {
    Timestamp(NOW + milliseconds)
}

fn number(_: &str, kind: &str) -> ResourceId {
    ResourceId(if kind == "Job" { 1 } else { 2 })
}

/// Returns an enforced policy that selects all objects of a kind that are older than an hour.
fn policy(name: &str, kind: &str, generation: i64) -> Value {
    let api_version = if kind == "Job" { "batch/v1" } else { "v1" };
    json!({"metadata": {"name": name, "uid": format!("{name}-uid"), "generation": generation},
        "spec": {"target": {"apiVersion": api_version, "kind": kind}, "maxAge": "1h", "enforce": true}})
}

/// Returns the policy with a status in which another process has shown what it would do.
fn shown(mut policy: Value) -> Value {
    policy["status"] = json!({"observedGeneration": policy["metadata"]["generation"],
        "observedSpec": digest(&policy["spec"]), "due": 1});
    policy
}

fn roster(policies: &[Value]) -> Roster {
    let mut roster = Roster::default();
    tick(&mut roster, 0);
    roster.list_started();
    for policy in policies {
        roster.observed(policy, number).unwrap();
    }
    roster.synced();
    roster
}

fn tick(roster: &mut Roster, milliseconds: i64) {
    roster.tick(at(milliseconds), at(milliseconds));
}

/// Returns the number of the watch of a kind.
fn watch_of(roster: &Roster, kind: &str) -> u64 {
    let mut found = roster.watches().iter().filter(|(_, watch)| *watch.target.kind == *kind);
    let number = *found.next().unwrap().0;
    assert!(found.next().is_none(), "a kind has one watch");
    number
}

fn list(roster: &mut Roster, number: u64, names: &[&str]) {
    roster.observe(number, Observation::ListStarted);
    for name in names {
        observe_object(roster, number, name);
    }
    roster.observe(number, Observation::Synced);
}

/// Observes an object that is two hours old.
fn observe_object(roster: &mut Roster, number: u64, name: &str) {
    let object = json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "5",
        "creationTimestamp": time_text(at(-7_200_000))}});
    let Some(watch) = roster.watches().get(&number) else { return };
    let looks = watch.looks(&object);
    roster.observe(number, Observation::Observed { namespace: "shop".into(), name: name.into(), looks });
}

/// Returns the deletions requested now, by policy.
fn wanted(roster: &mut Roster) -> Vec<(Member, Effect)> {
    std::iter::from_fn(|| roster.poll_effect(|_| true)).collect()
}

/// Returns policy and object of each deletion.
fn names(wanted: &[(Member, Effect)]) -> Vec<String> {
    let name = |(member, effect): &(Member, Effect)| match &effect.request {
        Request::Delete { key, .. } => format!("{} {}", member.name, key.name),
        other => panic!("{other:?}"),
    };
    wanted.iter().map(name).collect()
}

/// Returns the object of a policy as a server stores it with a status.
fn stored(policy: &Value, write: &StatusWrite) -> Value {
    let mut stored = policy.clone();
    stored["status"] = write.patch["status"].clone();
    stored
}

/// Writes and answers statuses until there are none left.
fn say_all(roster: &mut Roster, policies: &[Value], from: i64) -> usize {
    let mut written = 0;
    for second in 0..20 {
        tick(roster, from + second * 1_000);
        for write in roster.statuses() {
            let policy = policies.iter().find(|policy| policy["metadata"]["name"] == *write.member.name);
            let answer = stored(policy.unwrap(), &write);
            roster.written(&write, Some(&answer));
            written += 1;
        }
    }
    written
}

/// Found by the simulator (seed 45871): while the shared watch was restarted for another policy, a policy continued to delete by
/// what the former watch had delivered. A policy that depends on the time has its own watch, which is restarted each minute and
/// does not show in the statuses.
#[test]
fn conditions_that_depend_on_the_time_are_evaluated_again() {
    let mut timed = shown(policy("timed", "Pod", 1));
    timed["spec"]["condition"] =
        "now - timestamp(object.metadata.creationTimestamp) > duration('2h30s')".into();
    let (timed, plain) = (shown(timed), shown(policy("plain", "Pod", 1)));
    let mut roster = roster(&[timed.clone(), plain.clone()]);
    let watch_of = |roster: &Roster, timed: bool| {
        let mut found = roster.watches().iter().filter(|(_, watch)| watch.target.depends_on_time == timed);
        *found.next().unwrap().0
    };
    let (first, other) = (watch_of(&roster, true), watch_of(&roster, false));
    list(&mut roster, first, &["a"]);
    list(&mut roster, other, &[]);
    assert_eq!(names(&wanted(&mut roster)), [""; 0]);
    say_all(&mut roster, &[timed.clone(), plain.clone()], 1_000);
    tick(&mut roster, 59_999);
    assert_eq!((watch_of(&roster, true), roster.newest_watch() > first.max(other)), (first, false));
    tick(&mut roster, 60_000);
    let second = watch_of(&roster, true);
    assert!(second > first.max(other) && roster.newest_watch() == second);
    assert_eq!(watch_of(&roster, false), other);
    list(&mut roster, second, &["a"]);
    assert_eq!(roster.statuses().len(), 1, "only that something is due now");
    tick(&mut roster, 61_000);
    assert_eq!(names(&wanted(&mut roster)), ["timed a"]);
}

#[test]
fn nothing_is_deleted_while_a_shared_watch_restarts() {
    let first = shown(policy("first", "Job", 1));
    let mut roster = roster(&[first]);
    let before = watch_of(&roster, "Job");
    list(&mut roster, before, &["a"]);
    tick(&mut roster, 1);

    roster.observed(&shown(policy("second", "Job", 1)), number).unwrap();
    tick(&mut roster, 2);
    let after = watch_of(&roster, "Job");
    assert_ne!(before, after);
    assert_eq!(wanted(&mut roster), []);
    // Observations from the former watch no longer count.
    list(&mut roster, before, &["b"]);
    tick(&mut roster, 3);
    assert_eq!(wanted(&mut roster), []);
    roster.observe(after, Observation::ListStarted);
    observe_object(&mut roster, after, "c");
    assert_eq!(wanted(&mut roster), []);
    roster.observe(after, Observation::Synced);
    // The first policy has begun its run already, and the next run follows after a pause.
    tick(&mut roster, 15_000);
    assert_eq!(names(&wanted(&mut roster)), ["first c", "second c"]);

    // The other policy is gone: the watch restarts, for the remaining one.
    roster.removed("second");
    tick(&mut roster, 40_000);
    assert_eq!(wanted(&mut roster), []);
    assert_eq!(roster.watches()[&watch_of(&roster, "Job")].members.len(), 1);
}

/// While the policies are listed, the existing watches continue; their observations were assessed by the former policies.
#[test]
fn a_policy_that_is_found_changed_in_a_list_does_not_act_by_its_former_watch() {
    let mut later = policy("p", "Job", 2);
    later["spec"]["maxAge"] = "9h".into();
    let mut recreated = policy("p", "Job", 1);
    recreated["metadata"]["uid"] = "another".into();
    let same = policy("p", "Job", 1);
    // Columns: state of the policy, whether the clock is set, and the objects that are eventually deleted.
    let cases = [
        ("changed", later, false, &[][..]),
        ("recreated", recreated, false, &["p a"]),
        ("the clock was set", same, true, &["p a"]),
    ];
    for (name, policy_then, is_clock_set, expected) in cases {
        let mut roster = roster(&[shown(policy("p", "Job", 1))]);
        let before = watch_of(&roster, "Job");
        list(&mut roster, before, &[]);
        roster.list_started();
        roster.observed(&shown(policy_then), number).unwrap();
        if is_clock_set {
            roster.set_clock(at(5));
        }
        list(&mut roster, before, &["a"]);
        tick(&mut roster, 10);
        assert_eq!(wanted(&mut roster), [], "{name}");
        roster.synced();
        let after = watch_of(&roster, "Job");
        assert_ne!(before, after, "{name}");
        list(&mut roster, after, &["a"]);
        tick(&mut roster, 15_000);
        assert_eq!(names(&wanted(&mut roster)), expected, "{name}");
    }
}

/// Watches change only with the set of policies that share them.
#[test]
fn a_watch_stays_while_its_policies_stay() {
    let mut roster = roster(&[policy("a", "Job", 1), policy("b", "ConfigMap", 1)]);
    let (jobs, maps) = (watch_of(&roster, "Job"), watch_of(&roster, "ConfigMap"));
    roster.observed(&shown(policy("a", "Job", 1)), number).unwrap();
    roster.list_started();
    roster.observed(&policy("b", "ConfigMap", 1), number).unwrap();
    roster.observed(&policy("a", "Job", 1), number).unwrap();
    roster.synced();
    assert_eq!((watch_of(&roster, "Job"), watch_of(&roster, "ConfigMap")), (jobs, maps), "listed again");
    roster.observed(&policy("c", "Job", 1), number).unwrap();
    assert_eq!(watch_of(&roster, "ConfigMap"), maps, "another kind");
    assert_ne!(watch_of(&roster, "Job"), jobs);
    // Nothing is watched for an invalid policy.
    roster.observed(&json!({"metadata": {"name": "b", "uid": "b-uid", "generation": 2}}), number).unwrap();
    assert!(roster.watches().values().all(|watch| *watch.target.kind == *"Job"));
    // Nothing remains of policies that are not in a list.
    roster.list_started();
    roster.synced();
    assert!(roster.watches().is_empty());
    assert_eq!(roster.next_wakeup(|_| true), (None, None));
}

/// A status is about the specification that it names, however generations are counted.
#[test]
fn only_a_status_of_this_very_specification_shows_it() {
    let now = policy("p", "Job", 3);
    let mut other = now.clone();
    other["spec"]["maxAge"] = "2h".into();
    for (status, acts) in [
        (shown(now.clone())["status"].clone(), true),
        (shown(other)["status"].clone(), false),
        (shown(policy("p", "Job", 2))["status"].clone(), false),
        (json!({"observedGeneration": 3, "due": 1}), false),
        (json!({"observedGeneration": 3, "observedSpec": digest(&now["spec"])}), false),
        (Value::Null, false),
    ] {
        let mut with_status = now.clone();
        with_status["status"] = status.clone();
        let mut roster = roster(&[with_status]);
        let watch = watch_of(&roster, "Job");
        list(&mut roster, watch, &["a"]);
        tick(&mut roster, 1);
        assert_eq!(!wanted(&mut roster).is_empty(), acts, "{status}");
        // Then it has been shown, and acts.
        say_all(&mut roster, std::slice::from_ref(&now), 1_000);
        assert_eq!(!wanted(&mut roster).is_empty(), !acts, "{status}");
    }
}

#[test]
fn a_status_is_written_once_and_then_when_something_changes() {
    let policies = [policy("p", "Job", 1)];
    let mut roster = roster(&policies);
    // It gets a moment for its first list.
    assert_eq!(roster.statuses().len(), 0);
    assert_eq!(roster.next_wakeup(|_| true).1, Some(at(FIRST_LIST_MILLISECONDS)));
    let watch = watch_of(&roster, "Job");
    list(&mut roster, watch, &[]);
    let first = roster.statuses();
    assert_eq!(first.len(), 1);
    // Only one write at a time.
    tick(&mut roster, 60_000);
    assert_eq!(roster.statuses().len(), 0);
    assert_eq!(roster.next_wakeup(|_| true), (None, None));
    // It could not be written, so it is retried later.
    roster.written(&first[0], None);
    assert_eq!(roster.statuses().len(), 0);
    assert_eq!(roster.next_wakeup(|_| true).1, Some(at(60_000 + STATUS_RETRY_MILLISECONDS)));
    // The first status shows what would be deleted, the second that this was shown.
    assert_eq!(say_all(&mut roster, &policies, 66_000), 2);
    assert_eq!(roster.next_wakeup(|_| true), (None, None), "it is not checked while nothing changes");
    assert_eq!(say_all(&mut roster, &policies, 100_000), 0);
    observe_object(&mut roster, watch, "a");
    assert_eq!(roster.statuses().len(), 1);
}

/// A server with an older definition of the kind prunes unknown fields. The write is not repeated.
#[test]
fn what_a_server_does_not_keep_is_written_once() {
    let original = policy("p", "Job", 1);
    let mut roster = roster(std::slice::from_ref(&original));
    let watch = watch_of(&roster, "Job");
    list(&mut roster, watch, &[]);
    let mut written = 0;
    for second in 0..60 {
        tick(&mut roster, second * 1_000);
        for write in roster.statuses() {
            let mut answer = stored(&original, &write);
            answer["status"].as_object_mut().unwrap().remove("observedSpec");
            roster.written(&write, Some(&answer));
            roster.observed(&answer, number).unwrap();
            written += 1;
        }
    }
    assert_eq!(written, 2);
    observe_object(&mut roster, watch, "a");
    tick(&mut roster, 61_000);
    assert_eq!(names(&wanted(&mut roster)), ["p a"], "this process knows that it was shown");
}

#[test]
fn requests_of_a_former_engine_are_dropped() {
    let before = shown(policy("p", "Job", 1));
    let mut roster = roster(&[before]);
    let watch = watch_of(&roster, "Job");
    list(&mut roster, watch, &["a"]);
    tick(&mut roster, 1_000);
    let wanted_before = wanted(&mut roster);
    let (member, effect) = &wanted_before[0];
    let write = roster.statuses().remove(0);
    roster.observed(&policy("p", "Job", 2), number).unwrap();
    assert!(roster.engines().all(|(now, _)| now != member));
    roster.finish(member, effect.id, &Outcome::Applied(None));
    let answer = stored(&policy("p", "Job", 2), &write);
    roster.written(&write, Some(&answer));
    let watch = watch_of(&roster, "Job");
    list(&mut roster, watch, &["a"]);
    tick(&mut roster, 2_000);
    assert_eq!(wanted(&mut roster), [], "the new one has shown nothing");
    let deleted = |(_, engine): (&Member, &crate::policies::engine::PolicyEngine)| {
        engine.status(&Value::Null, at(0))["deleted"].clone()
    };
    assert_eq!(roster.engines().map(deleted).collect::<Vec<_>>(), [json!(0)]);
}

/// A policy about a stopped resource waits, and does not delay other policies.
#[test]
fn each_has_its_turn_and_what_is_stopped_waits() {
    let mut roster = roster(&[shown(policy("a", "Job", 1)), shown(policy("b", "ConfigMap", 1))]);
    for kind in ["Job", "ConfigMap"] {
        let watch = watch_of(&roster, kind);
        list(&mut roster, watch, &["x", "y"]);
    }
    tick(&mut roster, 1);
    let only = |resource| move |asked| asked == ResourceId(resource);
    let (member, _) = roster.poll_effect(only(2)).unwrap();
    assert_eq!(&*member.name, "b");
    assert_eq!(roster.poll_effect(|_| false), None);
    assert_eq!(names(&wanted(&mut roster)), ["b y", "a x", "a y"]);
}

#[test]
fn too_many_are_left_alone() {
    let mut roster = Roster::default();
    for index in 0..MOST_POLICIES {
        roster.observed(&policy(&format!("p{index}"), "Job", 1), number).unwrap();
    }
    assert_eq!(roster.observed(&policy("more", "Job", 1), number), Err(TooManyPolicies));
    // A policy that is already active may still change.
    assert_eq!(roster.observed(&policy("p7", "Job", 2), number), Ok(()));
    roster.removed("p7");
    assert_eq!(roster.observed(&policy("more", "Job", 1), number), Ok(()));
}

#[test]
fn a_problem_is_reported_once() {
    let mut roster = roster(&[policy("p", "Job", 1)]);
    let watch = watch_of(&roster, "Job");
    let reported = |roster: &mut Roster| -> Vec<String> {
        roster.new_troubles().into_iter().map(|(_, reason, message)| format!("{reason}: {message}")).collect()
    };
    assert_eq!(reported(&mut roster), [] as [&str; 0]);
    roster.observe(watch, Observation::Failed("jobs are not served".into()));
    assert_eq!(reported(&mut roster), ["PolicyNotObserving: jobs are not served"]);
    assert_eq!(reported(&mut roster), [] as [&str; 0]);
    list(&mut roster, watch, &[]);
    assert_eq!(reported(&mut roster), [] as [&str; 0]);
    roster.observe(watch, Observation::Failed("jobs are not served".into()));
    assert_eq!(reported(&mut roster).len(), 1, "it has come back");
}

proptest! {
    /// However policies are created, changed, deleted and listed, each valid one shares the one watch of its kind, and no policy
    /// acts before the list of its current watch is complete.
    #[test]
    fn each_policy_has_one_watch_and_waits_for_its_list_before_it_acts(
        steps in prop::collection::vec((0_u8..6, 0_usize..4, 0_usize..2, 1_i64..4), 0..60),
    ) {
        let mut roster = roster(&[]);
        let mut listed: std::collections::BTreeSet<u64> = std::collections::BTreeSet::new();
        for (index, (step, name, kind, generation)) in steps.into_iter().enumerate() {
            let (name, kind) = (["a", "b", "c", "d"][name], ["Job", "ConfigMap"][kind]);
            let numbers: Vec<u64> = roster.watches().keys().copied().collect();
            match step {
                0 | 1 => roster.observed(&shown(policy(name, kind, generation)), number).unwrap(),
                2 => roster.removed(name),
                3 => {
                    roster.list_started();
                    roster.observed(&shown(policy(name, kind, generation)), number).unwrap();
                    roster.synced();
                }
                4 => if let Some(number) = numbers.first() {
                    list(&mut roster, *number, &["x"]);
                    listed.insert(*number);
                },
                _ => if let Some(number) = numbers.last() {
                    roster.observe(*number, Observation::ListStarted);
                    listed.remove(number);
                },
            }
            tick(&mut roster, i64::try_from(index).unwrap() * 20_000);
            for (member, engine) in roster.engines() {
                let shared = roster.watches().values().filter(|watch| watch.members.contains(member));
                let kinds: Vec<&str> = shared.map(|watch| &*watch.target.kind).collect();
                prop_assert_eq!(kinds, [&*engine.policy().unwrap().kind]);
            }
            let known: usize = roster.watches().values().map(|watch| watch.members.len()).sum();
            prop_assert_eq!(known, roster.engines().count());
            while let Some((member, effect)) = roster.poll_effect(|_| true) {
                let mut watches = roster.watches().iter();
                let (number, _) = watches.find(|(_, watch)| watch.members.contains(&member)).unwrap();
                prop_assert!(listed.contains(number), "{member:?} acted before the list of {number}");
                roster.finish(&member, effect.id, &Outcome::Conflict);
            }
        }
    }
}

/// An object that was due by a fast clock is not deleted when the clock is corrected.
#[test]
fn a_clock_that_is_set_back_makes_nothing_due() {
    const HOUR: i64 = 3_600_000;
    let mut roster = Roster::default();
    // The object is really half an hour old.
    tick(&mut roster, 25 * HOUR - 3 * HOUR / 2);
    roster.list_started();
    roster.observed(&shown(policy("p", "Job", 1)), number).unwrap();
    roster.synced();
    let before = watch_of(&roster, "Job");
    list(&mut roster, before, &["a"]);
    let truth = at(-3 * HOUR / 2);
    roster.set_clock(truth);
    assert_eq!(wanted(&mut roster), []);
    let after = watch_of(&roster, "Job");
    assert_ne!(before, after, "it is listed again");
    list(&mut roster, after, &["a"]);
    for minute in 0..20 {
        roster.tick(truth.after(minute * 60_000), at(minute * 60_000));
        assert_eq!(wanted(&mut roster), [], "{minute}");
    }
    roster.tick(at(0), at(HOUR));
    assert_eq!(names(&wanted(&mut roster)), ["p a"]);
}

/// While the policies are listed again, none of them deletes: those that will not be in the list were deleted, perhaps with their
/// definition, in which case the list fails forever.
#[test]
fn policies_that_may_be_gone_delete_nothing() {
    let mut roster = roster(&[shown(policy("a", "Job", 1))]);
    let number = watch_of(&roster, "Job");
    list(&mut roster, number, &["x"]);
    assert!(roster.next_wakeup(|_| true).0.is_some());
    roster.list_started();
    assert_eq!((wanted(&mut roster).len(), roster.next_wakeup(|_| true).0), (0, None));
    tick(&mut roster, 3_600_000);
    assert_eq!(wanted(&mut roster).len(), 0);
    roster.observed(&shown(policy("a", "Job", 1)), self::number).unwrap();
    roster.synced();
    assert_eq!(wanted(&mut roster).len(), 1);
    // Without the policy, nothing is left to delete.
    roster.list_started();
    roster.synced();
    assert_eq!(wanted(&mut roster).len(), 0);
}

/// An instance that replaces another one differs from it, even before the policies and watches are known again.
#[test]
fn each_instance_of_a_policy_is_another_member() {
    let mut roster = roster(&[policy("p", "Job", 1)]);
    let member = |roster: &Roster| roster.engines().next().map(|(member, _)| member.clone()).unwrap();
    roster.list_started();
    let mut members = vec![member(&roster)];
    for step in 0..4 {
        if step < 2 {
            roster.set_clock(at(step));
        } else {
            let mut other = policy("p", "Job", 1);
            other["spec"]["maxAge"] = format!("{step}h").into();
            roster.observed(&other, number).unwrap();
        }
        let now = member(&roster);
        assert!(!members.contains(&now), "step {step}: {now:?}");
        assert_eq!((&*now.name, &*now.uid, now.generation), ("p", "p-uid", 1));
        members.push(now);
    }
}

#[test]
fn the_policies_are_known_once_their_list_is_complete() {
    let mut roster = Roster::default();
    let mut known = vec![roster.is_synced()];
    for _ in 0..2 {
        roster.list_started();
        known.push(roster.is_synced());
        roster.synced();
        known.push(roster.is_synced());
    }
    assert_eq!(known, [false, false, true, false, true]);
}

/// A watch that is resumed has no list that could end.
#[test]
fn the_end_of_no_list_makes_nothing_complete() {
    let mut roster = roster(&[shown(policy("p", "Job", 1))]);
    let watch = watch_of(&roster, "Job");
    observe_object(&mut roster, watch, "a");
    roster.observe(watch, Observation::Synced);
    tick(&mut roster, 1);
    assert_eq!(wanted(&mut roster), []);
    list(&mut roster, watch, &["a"]);
    tick(&mut roster, 2);
    assert_eq!(names(&wanted(&mut roster)), ["p a"]);
}
