//! The rule `unused`: the marks from checks, and the Lease of a recorder.

use super::*;
use crate::policies::unused::{
    BETWEEN_LOOKS_MILLISECONDS, HEARTBEAT_MILLISECONDS, LOOK_MILLISECONDS, RECORDER,
};
use crate::policies::unused::{RECORDED, RECORDER_MILLISECONDS, UNUSED_SEEN, UNUSED_SINCE};

const HOUR: i64 = 3_600_000;
/// `spec.unused.for`
const FOR: i64 = 168 * HOUR;

fn unused(kind: &str) -> Value {
    let mut policy = policy("p", kind, 1);
    policy["spec"]["maxAge"].take();
    policy["spec"].as_object_mut().unwrap().remove("maxAge");
    policy["spec"]["unused"] = json!({"for": "168h"});
    shown(policy)
}

/// Returns an object as a check has marked it, with the two times in hours.
fn marked(since: Option<i64>, seen: Option<i64>) -> Value {
    let mut object =
        json!({"metadata": {"name": "m", "namespace": "shop", "uid": "m", "resourceVersion": "5"}});
    for (name, hours) in [(UNUSED_SINCE, since), (UNUSED_SEEN, seen)] {
        if let Some(hours) = hours {
            object["metadata"]["annotations"][name] = time_text(at(hours * HOUR)).into();
        }
    }
    object
}

fn observe(roster: &mut Roster, number: u64, object: &Value) {
    let Some(watch) = roster.watches().get(&number) else { return };
    let looks = watch.looks(object);
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    roster.observe(number, Observation::Observed { namespace: "shop".into(), name, looks });
}

fn lease(renewed: i64, recorded: &str) -> Value {
    json!({"metadata": {"annotations": {RECORDED: recorded}}, "spec": {"renewTime": renewed.to_string()}})
}

/// Returns a roster with a policy about ConfigMaps that knows one object; its recorder has just renewed its Lease.
fn world(object: &Value, hours: i64, recorded: &str) -> (Roster, u64) {
    let mut roster = roster(&[unused("ConfigMap")]);
    let number = watch_of(&roster, "ConfigMap");
    roster.observe(number, Observation::ListStarted);
    observe(&mut roster, number, object);
    roster.observe(number, Observation::Synced);
    for renewal in 0..2 {
        tick(&mut roster, hours * HOUR + renewal);
        roster.take_heartbeat(RECORDER, Some(Heartbeat::of(&lease(renewal, recorded))));
    }
    (roster, number)
}

#[test]
fn only_what_every_look_has_found_unused_is_deleted() {
    for (situation, since, seen, hours, recorded, expected) in [
        ("for long, and a moment ago", Some(0), Some(169), 169, "ConfigMap", 1),
        ("with other kinds", Some(0), Some(169), 169, "Pod,ConfigMap,Deployment.apps", 1),
        ("not for long enough", Some(2), Some(169), 169, "ConfigMap", 0),
        ("the last look is long ago", Some(0), Some(169), 171, "ConfigMap", 0),
        ("a look of the future", Some(0), Some(300), 169, "ConfigMap", 0),
        ("no look", Some(0), None, 169, "ConfigMap", 0),
        ("no mark", None, None, 169, "ConfigMap", 0),
        ("a mark from after the look", Some(170), Some(169), 400, "ConfigMap", 0),
        ("the kind is not recorded", Some(0), Some(169), 169, "Pod,ConfigMap.example.com", 0),
        ("nothing is recorded", Some(0), Some(169), 169, "", 0),
    ] {
        let (mut roster, _) = world(&marked(since, seen), hours, recorded);
        assert_eq!(wanted(&mut roster).len(), expected, "{situation}");
    }
    let mut kept = marked(Some(0), Some(169));
    kept["metadata"]["annotations"]["kubegc.io/keep"] = "true".into();
    assert!(wanted(&mut world(&kept, 169, "ConfigMap").0).is_empty());
}

/// A deletion says how to restore the object, in its reason and in the status.
#[test]
fn a_deletion_says_how_to_undo_it() {
    let (mut roster, _) = world(&marked(Some(0), Some(169)), 169, "ConfigMap");
    let (member, effect) = wanted(&mut roster).remove(0);
    let command = "kubegc undo configmap/m -n shop --records DIR";
    assert!(format!("{:?}", effect.reason).contains(&format!("{command} restores it")), "{effect:?}");
    roster.finish(&member, effect.id, &Outcome::Applied(None));
    let policies = [unused("ConfigMap")];
    say_all(&mut roster, &policies, 169 * HOUR + 10);
    let status = roster.engines().next().unwrap().1.status(&Value::Null, at(170 * HOUR));
    assert_eq!(status["lastRun"]["undo"], json!([command]));
}

/// A recorder that has ended may have left its Lease, so it counts only while its Lease is seen to be renewed.
#[test]
fn a_recorder_runs_while_it_renews_its_lease() {
    let object = marked(Some(0), Some(169));
    let mut roster = roster(&[unused("ConfigMap")]);
    let number = watch_of(&roster, "ConfigMap");
    roster.observe(number, Observation::ListStarted);
    roster.observe(number, Observation::Synced);
    assert_eq!(roster.recorders(), BTreeSet::from([RECORDER.into()]));
    let mut now = 169 * HOUR;
    let mut step = |roster: &mut Roster, passes: i64, heartbeat: Option<Value>| {
        now += passes;
        tick(roster, now);
        // Another object each time.
        let mut object = object.clone();
        object["metadata"]["uid"] = now.to_string().into();
        object["metadata"]["name"] = format!("m{now}").into();
        observe(roster, number, &object);
        roster.take_heartbeat(RECORDER, heartbeat.map(|lease| Heartbeat::of(&lease)));
        let wanted = wanted(roster);
        for (member, effect) in &wanted {
            roster.finish(member, effect.id, &Outcome::Applied(None));
            let Request::Delete { key, .. } = &effect.request else { continue };
            roster.observe(
                number,
                Observation::Removed { namespace: "shop".into(), name: key.name.to_string() },
            );
        }
        tick(roster, now);
        wanted.len()
    };
    let renewed = |time: i64| Some(lease(time, "ConfigMap"));
    assert_eq!(step(&mut roster, HEARTBEAT_MILLISECONDS, renewed(1)), 0);
    assert_eq!(step(&mut roster, HEARTBEAT_MILLISECONDS, renewed(1)), 0);
    // Everything that waited is deleted in one run.
    assert_eq!(step(&mut roster, HEARTBEAT_MILLISECONDS, renewed(2)), 3);
    assert_eq!(step(&mut roster, HEARTBEAT_MILLISECONDS, renewed(2)), 1);
    assert_eq!(step(&mut roster, RECORDER_MILLISECONDS, renewed(2)), 0);
    assert_eq!(step(&mut roster, HEARTBEAT_MILLISECONDS, renewed(3)), 2);
    assert_eq!(step(&mut roster, HEARTBEAT_MILLISECONDS, None), 0);
    assert_eq!(step(&mut roster, HEARTBEAT_MILLISECONDS, renewed(4)), 0);
    assert_eq!(step(&mut roster, HEARTBEAT_MILLISECONDS, renewed(5)), 3);
}

#[derive(Clone, Copy, Debug)]
enum Happening {
    /// This many minutes pass.
    Passes(i64),
    /// A check finds the object unused, or used.
    Look(bool),
    /// The recorder renews its Lease, and records the kind or not.
    Renews(bool),
    /// The Lease cannot be read.
    Unread,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        6 => (1_i64..180).prop_map(Happening::Passes),
        6 => (1_000_i64..2_900).prop_map(Happening::Passes),
        10 => Just(Happening::Look(true)),
        1 => Just(Happening::Look(false)),
        8 => prop::bool::weighted(0.9).prop_map(Happening::Renews),
        1 => Just(Happening::Unread),
    ];
    proptest::collection::vec(one, 20..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A deleted object has been found unused by every check for as long as the policy says, without a long gap between two of
    /// them, the last one recently, while a recorder that records its kind was running.
    #[test]
    fn nothing_is_deleted_that_one_look_has_found_used(story in happenings()) {
        let (mut roster, number) = world(&marked(None, None), 0, "ConfigMap");
        let mut now = 2;
        let (mut renewal, mut renewed) = (9, None);
        // Checks since the last one that found it used, or that came late.
        let mut looks: Vec<i64> = Vec::new();
        for happening in story {
            match happening {
                Happening::Passes(minutes) => now += minutes * 60_000,
                Happening::Look(is_unused) => {
                    if !is_unused || looks.last().is_some_and(|last| now - last > BETWEEN_LOOKS_MILLISECONDS) {
                        looks.clear();
                    }
                    looks.extend(is_unused.then_some(now));
                    let mut object = marked(None, None);
                    if let (Some(first), Some(last)) = (looks.first(), looks.last()) {
                        object["metadata"]["annotations"] = json!({
                            UNUSED_SINCE: at(*first).to_string(), UNUSED_SEEN: at(*last).to_string(),
                        });
                    }
                    observe(&mut roster, number, &object);
                }
                Happening::Renews(is_recorded) => {
                    renewal += 1;
                    let heartbeat = lease(renewal, if is_recorded { "ConfigMap" } else { "Pod" });
                    renewed = is_recorded.then_some(now);
                    tick(&mut roster, now);
                    roster.take_heartbeat(RECORDER, Some(Heartbeat::of(&heartbeat)));
                }
                Happening::Unread => {
                    renewed = None;
                    roster.take_heartbeat(RECORDER, None);
                }
            }
            tick(&mut roster, now);
            for (member, effect) in wanted(&mut roster) {
                // Dates of marks are in milliseconds or coarser.
                let since = looks.first().copied().unwrap_or(i64::MAX);
                prop_assert!(now - since >= FOR, "unused since {since}, now {now}");
                prop_assert!(looks.windows(2).all(|two| two[1] - two[0] <= BETWEEN_LOOKS_MILLISECONDS));
                prop_assert!(looks.last().is_some_and(|last| now - last < LOOK_MILLISECONDS));
                prop_assert!(renewed.is_some_and(|at| now - at < RECORDER_MILLISECONDS), "{renewed:?}, now {now}");
                roster.finish(&member, effect.id, &Outcome::Conflict);
            }
        }
    }
}
