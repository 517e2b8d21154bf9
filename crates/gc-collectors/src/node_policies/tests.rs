#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use serde_json::json;

use super::result::{LONGEST_TEXT, NodeResult, State};
use super::*;
use crate::images::Image;

fn policy(spec: &Value) -> NodePolicy {
    NodePolicy::compile(spec).unwrap_or_else(|problems| panic!("{spec}: {problems:?}"))
}

fn own() -> ImageSettings {
    ImageSettings {
        thresholds: Thresholds { high_percent: 85, low_percent: 80 },
        ages: AgePolicy { minimum_age: GoDuration::from_seconds(120), maximum_age: None },
        protection: ImagePatterns::new(["pause"]).unwrap(),
        rules: ReferenceRules::default(),
    }
}

fn at(text: &str) -> Timestamp {
    Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
}

fn named(tag: &str) -> Image {
    let mut image = crate::images::testing::image(1, 1);
    image.repo_tags = vec![tag.into()];
    image.repo_digests.clear();
    image
}

#[test]
fn what_is_wrong_with_a_policy_is_named() {
    for (spec, expected) in [
        (json!({}), vec![("spec.thresholds", NOTHING)]),
        (
            json!({"thresholds": {"highPercent": 80, "lowPercent": 80}}),
            vec![("spec.thresholds", "lowPercent must be less than highPercent")],
        ),
        (
            json!({"thresholds": {"highPercent": 101, "lowPercent": -1}}),
            vec![("spec.thresholds", "must be between 0 and 100")],
        ),
        (
            json!({"ages": {"minimum": "2h", "maximum": "1d1"}}),
            vec![("spec.ages.maximum", "\"1d1\" lacks a unit")],
        ),
        (
            json!({"ages": {"minimum": "25h", "maximum": "1d"}}),
            vec![("spec.ages", "the maximum must be greater than the minimum")],
        ),
        (
            json!({"ages": {"minimum": "0s"}}),
            vec![("spec.ages.minimum", "\"0s\" is not a positive duration")],
        ),
        (
            json!({"removeImages": ["*"]}),
            vec![("spec.removeImages", "\"*\" would be every image; name a repository or a digest")],
        ),
        (
            json!({"removeImages": ["a"], "protectedImages": ["a"]}),
            vec![("spec.removeImages", "\"a\" is protected as well")],
        ),
        (
            json!({"priority": 1_000_001, "ages": {"minimum": "1m"}}),
            vec![("spec.priority", "must be between -1000000 and 1000000")],
        ),
        (
            json!({"windows": [{"start": "every 1h", "duration": "1h"}]}),
            vec![("spec.windows.start", "\"every 1h\" does not name times of the day")],
        ),
        (
            json!({"windows": [{"start": "@daily", "duration": "8d"}]}),
            vec![("spec.windows.duration", "\"8d\" is not between 1m and 7d")],
        ),
        (json!({"ages": {"minimum": "1m"}, "treshold": 1}), vec![("spec", "unknown field `treshold`")]),
        (
            json!({"keepImages": [{"pattern": "a", "keep": "Often"}]}),
            vec![("spec", "unknown variant `Often`")],
        ),
    ] {
        let problems = NodePolicy::compile(&spec).unwrap_err();
        let found: Vec<_> = problems.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(
            found,
            expected.iter().map(|(field, _)| *field).collect::<Vec<_>>(),
            "{spec}: {problems:?}"
        );
        for (problem, (_, message)) in problems.iter().zip(&expected) {
            assert!(problem.message.starts_with(message), "{spec}: {problem}");
        }
    }
    let many = vec!["a"; MOST_PROTECTED + 1];
    assert!(NodePolicy::compile(&json!({"protectedImages": many})).is_err());
}

#[test]
fn a_policy_is_put_over_the_settings_of_a_node() {
    let spec = json!({
        "thresholds": {"highPercent": 70, "lowPercent": 60}, "ages": {"maximum": "14d"},
        "protectedImages": ["keep/*"], "removeImages": ["sha256:bad"],
        "keepImages": [{"pattern": "registry/*", "keep": "Last"}],
    });
    let found = policy(&spec).applied_to(&own(), Moment::InAWindow).unwrap();
    assert_eq!(found.thresholds, Thresholds { high_percent: 70, low_percent: 60 });
    let days = GoDuration::from_seconds(14 * 86_400);
    assert_eq!(found.ages, AgePolicy { minimum_age: GoDuration::from_seconds(120), maximum_age: Some(days) });
    assert_eq!(found.protection.iter().collect::<Vec<_>>(), ["pause", "keep/*"]);
    assert_eq!(found.rules.unwanted.iter().collect::<Vec<_>>(), ["sha256:bad"]);
    let kept = found.rules.keep(&named("registry/a:1"));
    assert!(kept.is_some_and(|(keep, _)| keep == Keep::Last), "{kept:?}");
    let only_ages =
        policy(&json!({"ages": {"minimum": "1h"}})).applied_to(&own(), Moment::InAWindow).unwrap();
    assert_eq!(only_ages.thresholds, own().thresholds);
    let mut aged = own();
    aged.ages.maximum_age = Some(GoDuration::from_seconds(1800));
    let error = policy(&json!({"ages": {"minimum": "1h"}})).applied_to(&aged, Moment::InAWindow).unwrap_err();
    assert_eq!(error, "the maximum age 30m0s must be greater than the minimum age 1h0m0s");
}

/// From two o'clock for three hours, a window across midnight, and all days of a week.
#[test]
fn windows_hold_back_what_does_not_need_space() {
    let spec = |windows: Value| {
        policy(&json!({"ages": {"maximum": "1h"}, "removeImages": ["bad"], "windows": windows}))
    };
    let nightly = spec(json!([{"start": "30 23 * * *", "duration": "3h"}]));
    for (time, open) in [
        ("2026-11-21T23:29:59Z", false),
        ("2026-11-21T23:30:00Z", true),
        ("2026-11-22T02:29:59Z", true),
        ("2026-11-22T02:30:00Z", false),
    ] {
        let found = nightly.applied_to(&own(), Moment::At(at(time))).unwrap();
        assert_eq!(nightly.is_open(Moment::At(at(time))), open, "{time}");
        assert_eq!(
            (found.ages.maximum_age.is_some(), found.rules.is_unwanted(&named("docker.io/library/bad:1"))),
            (open, open)
        );
        assert_eq!(found.thresholds, own().thresholds);
    }
    assert!(nightly.is_open(Moment::InAWindow));
    // 2026-11-21 is a Saturday.
    let weekends =
        spec(json!([{"start": "0 0 * * sat", "duration": "48h"}, {"start": "@monthly", "duration": "1h"}]));
    let found = [
        "2026-11-20T23:59:00Z",
        "2026-11-21T00:00:00Z",
        "2026-11-22T23:59:00Z",
        "2026-11-23T00:00:00Z",
        "2026-12-01T00:30:00Z",
    ]
    .map(|time| weekends.is_open(Moment::At(at(time))));
    assert_eq!(found, [false, true, true, false, true]);
}

fn listed(name: &str, spec: &Value) -> ListedPolicy {
    let policy = NodePolicy::compile(spec).map_err(|problems| problems[0].to_string());
    ListedPolicy { name: name.into(), policy }
}

/// The highest priority counts, then the first by name; a dry run supersedes nothing.
#[test]
fn one_policy_is_in_force() {
    let spec = |enforce: bool, priority: i64, pool: &str| {
        json!({"enforce": enforce, "priority": priority, "ages": {"minimum": "1m"},
            "nodeSelector": {"matchLabels": {"pool": pool}}})
    };
    let policies = [
        listed("z", &spec(true, 5, "a")),
        listed("b", &spec(true, 5, "a")),
        listed("trial", &spec(false, 100, "a")),
        listed("a", &spec(true, 0, "a")),
        listed("elsewhere", &spec(true, 100, "b")),
        listed("broken", &json!({})),
    ];
    let labels = BTreeMap::from([("pool".to_owned(), "a".to_owned())]);
    let words = |labels: &BTreeMap<String, String>| -> Vec<String> {
        let found = roles(&policies, labels);
        let word = |(name, role): &(&str, Role<'_>)| match role {
            Role::Enforced(_) => format!("{name} enforced"),
            Role::Superseded(by) => format!("{name} after {by}"),
            Role::DryRun(_) => format!("{name} dry"),
            Role::Invalid(_) => format!("{name} invalid"),
        };
        found.iter().map(word).collect()
    };
    assert_eq!(words(&labels), ["z after b", "b enforced", "trial dry", "a after b", "broken invalid"]);
    assert_eq!(words(&BTreeMap::new()), ["broken invalid"]);
    let others = NodePolicy::compile(&json!({"ages": {"minimum": "1m"}, "nodeSelector": {
        "matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["a"]}, {"key": "gpu", "operator": "Exists"}]}}));
    let gpu = BTreeMap::from([("gpu".to_owned(), String::new())]);
    assert_eq!([&labels, &gpu].map(|labels| others.as_ref().unwrap().selects(labels)), [false, true]);
}

fn result(bytes: u64, time: &str) -> NodeResult {
    NodeResult { node: "n".into(), images: 100, bytes, time: time.into(), ..NodeResult::default() }
}

/// Thousands of nodes could write to a status, so a result is written only if it is new.
#[test]
fn a_result_that_says_nothing_new_is_not_written() {
    let before = result(1_000, "2026-11-21T10:00:00Z");
    let later = "2026-11-21T10:59:59Z";
    for (now, expected) in [
        (result(1_000, later), true),
        (result(1_049, later), true),
        (result(1_060, later), false),
        (result(951, later), true),
        (result(950, later), false),
        (result(1_000, "2026-11-21T11:00:00Z"), false),
        (NodeResult { images: 0, ..result(1_000, later) }, false),
        (NodeResult { observed_generation: 2, ..result(1_000, later) }, false),
        (NodeResult { state: State::Enforced, ..result(1_000, later) }, false),
        (NodeResult { message: "x".into(), ..result(1_000, later) }, false),
        (NodeResult { kubelet: "x".into(), ..result(1_000, later) }, false),
        (NodeResult { first_images: vec!["x".into()], ..result(1_000, later) }, false),
        (result(1_000, "never"), false),
    ] {
        assert_eq!(now.adds_nothing_to(&before), expected, "{now:?}");
    }
    let forgotten = ["2026-11-22T10:00:00Z", "2026-11-22T10:00:01Z"].map(|now| before.is_forgotten(at(now)));
    assert_eq!(forgotten, [false, true]);
    assert!(!result(1, "never").is_forgotten(at(later)));
    let mut long = NodeResult { message: "ä".repeat(LONGEST_TEXT), ..NodeResult::default() };
    long.bound();
    assert_eq!(long.message.len(), LONGEST_TEXT);
}

proptest! {
    /// Whatever the policies are, at most one is in force, none of lower priority takes precedence, and a dry run never is.
    #[test]
    fn roles_are_exclusive(specs in prop::collection::vec((any::<bool>(), -3_i64..3, 0_u8..3), 0..8)) {
        let policies: Vec<ListedPolicy> = (0..).zip(&specs).map(|(number, &(enforce, priority, pool)): (u32, _)| {
            listed(&format!("p{}", number % 5), &json!({"enforce": enforce, "priority": priority, "ages": {"minimum": "1m"},
                "nodeSelector": {"matchLabels": if pool == 0 { json!({}) } else { json!({"pool": pool.to_string()}) }}}))
        }).take(5).collect();
        let labels = BTreeMap::from([("pool".to_owned(), "1".to_owned())]);
        let found = roles(&policies, &labels);
        let in_force: Vec<_> = found.iter().filter(|(_, role)| matches!(role, Role::Enforced(_))).collect();
        let wanted = specs.iter().take(5).filter(|(enforce, _, pool)| *enforce && *pool < 2).map(|(_, priority, _)| *priority).max();
        prop_assert_eq!(in_force.len(), usize::from(wanted.is_some()));
        if let Some((_, Role::Enforced(policy))) = in_force.first() {
            prop_assert_eq!(Some(policy.priority), wanted);
            prop_assert!(policy.enforce);
        }
        let mut backwards = policies.clone();
        backwards.reverse();
        let mut other: Vec<_> = roles(&backwards, &labels).into_iter().map(|(name, role)| (name.to_owned(), format!("{role:?}"))).collect();
        other.reverse();
        let same: Vec<_> = found.iter().map(|(name, role)| ((*name).to_owned(), format!("{role:?}"))).collect();
        prop_assert_eq!(same, other, "the order of a list does not matter");
    }

    /// A node protects no fewer images under a policy than without one.
    #[test]
    fn a_policy_takes_no_protection_away(tag in "[ab]{1,2}/[ab]{1,2}:1", own_pattern in "[ab*]{1,3}/\\*", theirs in "[ab*]{1,3}/[ab]{1,2}") {
        let mut node = own();
        node.protection = ImagePatterns::new([own_pattern.as_str()]).unwrap();
        let spec = json!({"protectedImages": [theirs.clone()], "removeImages": ["a/b"], "ages": {"maximum": "1h"}});
        if let Ok(policy) = NodePolicy::compile(&spec) {
            let found = policy.applied_to(&node, Moment::InAWindow).unwrap();
            let image = named(&tag);
            prop_assert!(node.protection.matching(&image).is_none() || found.protection.matching(&image).is_some());
        }
    }
}

/// A node looks for images to remove if its disk may fill up, they may become too old, or some are unwanted.
#[test]
fn images_are_collected_if_anything_may_remove_one() {
    let idle = || {
        let mut settings = own();
        settings.thresholds.high_percent = 100;
        settings
    };
    let changes: [(fn(&mut ImageSettings), bool); 4] = [
        (|_| (), false),
        (|settings| settings.thresholds.high_percent = 99, true),
        (|settings| settings.ages.maximum_age = Some(GoDuration::from_seconds(1)), true),
        (|settings| settings.rules.unwanted = ImagePatterns::new(["registry/old"]).unwrap(), true),
    ];
    for (number, (change, has_loop)) in changes.into_iter().enumerate() {
        let mut settings = idle();
        change(&mut settings);
        assert_eq!(settings.has_loop(), has_loop, "{number}");
    }
}

#[test]
fn a_policy_has_so_many_rules_and_no_more() {
    for (count, is_taken) in [(MOST_REMOVED, true), (MOST_REMOVED + 1, false), (MOST_REMOVED + 2, false)] {
        let rules: Vec<_> = (0..count).map(|n| json!({"pattern": format!("r{n}"), "keep": "Last"})).collect();
        let compiled = NodePolicy::compile(&json!({ "keepImages": rules }));
        assert_eq!(compiled.is_ok(), is_taken, "{count}: {compiled:?}");
    }
}

/// Each bound may be reached, and not passed.
#[test]
fn a_policy_is_as_large_as_its_bounds_allow() {
    let window = || json!({"start": "@daily", "duration": "1h"});
    let pattern = |length: usize| format!("registry/{}", "x".repeat(length - 9));
    let problems = |spec: &Value| -> Vec<String> {
        NodePolicy::compile(spec).err().into_iter().flatten().map(|problem| problem.field).collect()
    };
    for above in 0..3 {
        let has = |field: &str| if above == 0 { vec![] } else { vec![format!("spec.{field}")] };
        let extra = i64::try_from(above).unwrap();
        for sign in [1, -1] {
            let spec = json!({"priority": sign * (HIGHEST_PRIORITY + extra), "ages": {"minimum": "1m"}});
            assert_eq!(problems(&spec), has("priority"), "{spec}");
        }
        let spec = json!({"windows": vec![window(); MOST_WINDOWS + above]});
        assert_eq!(problems(&spec), has("windows"), "{above} more windows");
        let names = |most: usize| (0..most + above).map(|number| format!("r{number}")).collect::<Vec<_>>();
        assert_eq!(problems(&json!({"removeImages": names(MOST_REMOVED)})), has("removeImages"));
        let long = pattern(LONGEST_PATTERN + above);
        assert_eq!(problems(&json!({"removeImages": [long]})), has("removeImages"));
        assert_eq!(problems(&json!({"keepImages": [{"pattern": long, "keep": "Last"}]})), has("keepImages"));
    }
}

#[test]
fn a_result_sums_up_what_a_pass_would_remove() {
    let removals: Vec<_> = (1..8).map(|number| crate::images::testing::removal(number, 100)).collect();
    let mut taken = NodeResult { bytes: 7, ..NodeResult::default() };
    taken.take(&removals);
    let first_images = (1..6).map(|number| format!("image-{number}")).collect();
    assert_eq!(taken, NodeResult { images: 7, bytes: 700, first_images, ..NodeResult::default() });
    taken.take(&[]);
    assert_eq!(taken, NodeResult::default());
    // No text ends within a letter.
    let mut long = NodeResult { kubelet: format!("x{}", "ä".repeat(LONGEST_TEXT)), ..NodeResult::default() };
    long.bound();
    assert_eq!(long.kubelet.len(), LONGEST_TEXT - 1);
}
