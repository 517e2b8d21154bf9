//! Admissions and trips of the breaker.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use gc_types::{Uid, Verdict};
use proptest::prelude::*;

use super::*;

const MINUTE: i64 = 60_000;

fn pods() -> Arc<str> {
    "pods".into()
}

fn options(number: Option<u64>, share: Option<f64>, floor: u64) -> BreakerOptions {
    BreakerOptions {
        window: Duration::from_mins(10),
        largest_number: number,
        largest_share: share,
        share_floor: floor,
    }
}

fn is_admitted(admission: &Admission) -> bool {
    matches!(admission, Admission::Admitted(_))
}

/// Returns the ticket of a deletion of a pod, which must be admitted.
fn ticket(breaker: &mut Breaker, inferred: bool, at: i64) -> Ticket {
    match breaker.admit(&pods(), inferred, Some(9), Timestamp(at)) {
        Admission::Admitted(ticket) => ticket,
        other => panic!("{other:?} at {at}"),
    }
}

/// Returns how many of the wanted deletions are admitted if nothing is refunded and `objects` shrink with them.
fn admitted(breaker: &mut Breaker, wanted: usize, inferred: bool, objects: usize, at: i64) -> usize {
    (0..wanted)
        .take_while(|done| {
            let left = objects.saturating_sub(*done);
            is_admitted(&breaker.admit(&pods(), inferred, Some(left), Timestamp(at)))
        })
        .count()
}

#[test]
fn limits_hold_and_normal_cascades_pass() {
    let default = BreakerOptions::default();
    // limits, wanted, inferred, objects, admitted
    let cases = [
        ("a cascade over all of a resource", default, 10_000, false, 10_000, 10_000),
        ("the largest cascade of the benchmarks", default, 200_000, false, 200_000, 200_000),
        ("every pod of the largest supported cluster", default, 150_000, false, 150_000, 150_000),
        ("no limit of any kind", options(None, None, 0), 400_000, true, 400_000, 400_000),
        ("beyond the number", default, 400_000, false, 1_000_000, 300_000),
        ("a small resource, owners found missing", default, 1_000, true, 1_000, 1_000),
        ("garbage of a quarter at the first start", default, 5_000, true, 20_000, 5_000),
        ("owners of everything found missing", default, 20_000, true, 20_000, 10_000),
        ("owners of 1,500 of 2,000 found missing", default, 1_500, true, 2_000, 1_000),
        ("a number of its own", options(Some(5), None, 0), 9, false, 100, 5),
        ("a share of its own", options(None, Some(0.25), 0), 100, true, 100, 25),
        ("a share, and the owners were seen to go", options(None, Some(0.25), 0), 100, false, 100, 100),
        ("the whole share", options(None, Some(1.0), 0), 100, true, 100, 100),
        ("one object, and no floor", options(None, Some(0.5), 0), 1, true, 1, 1),
        ("one of two objects, and no floor", options(None, Some(0.5), 0), 2, true, 2, 1),
        ("more than there are, and no floor", options(None, Some(0.5), 0), 2, true, 0, 1),
        ("zero deletions allowed", options(Some(0), None, 0), 3, false, 100, 0),
    ];
    for (name, options, wanted, inferred, objects, expected) in cases {
        let mut breaker = Breaker::new(options);
        assert_eq!(admitted(&mut breaker, wanted, inferred, objects, MINUTE), expected, "{name}");
        assert_eq!(breaker.tripped().len(), usize::from(expected < wanted), "{name}");
    }
}

#[test]
fn what_tripped_stays_stopped_alone_until_it_is_resumed() {
    let mut breaker = Breaker::new(options(Some(2), None, 0));
    let ask = |breaker: &mut Breaker, resource: &str, at| {
        breaker.admit(&resource.into(), false, Some(100), Timestamp(at))
    };
    let trip = Trip {
        resource: pods(),
        since: Timestamp(3),
        why: "2 deletions within 600 s, the limit of one window".into(),
    };
    assert!(is_admitted(&ask(&mut breaker, "pods", 1)));
    assert!(is_admitted(&ask(&mut breaker, "pods", 2)));
    assert_eq!(ask(&mut breaker, "pods", 3), Admission::Tripped(trip.clone()));
    assert_eq!(
        trip.to_string(),
        "collection of pods has stopped: 2 deletions within 600 s, the limit of one window"
    );
    assert_eq!(ask(&mut breaker, "pods", 4), Admission::Withheld(WithheldBy::Breaker));
    // Also long after the end of the window.
    assert_eq!(ask(&mut breaker, "pods", 100 * MINUTE), Admission::Withheld(WithheldBy::Breaker));
    assert!(is_admitted(&ask(&mut breaker, "secrets", 5)));
    assert_eq!((breaker.tripped(), breaker.trips()), (vec![trip.clone()], 1));
    assert!(!breaker.resume("secrets"));
    assert!(breaker.resume("pods"));
    assert!(is_admitted(&ask(&mut breaker, "pods", 6)));
    assert_eq!(breaker.tripped(), []);
    // An earlier process found the resource stopped.
    breaker.stop(trip.clone());
    assert_eq!(ask(&mut breaker, "pods", 7), Admission::Withheld(WithheldBy::Breaker));
    assert_eq!((breaker.tripped(), breaker.trips()), (vec![trip], 1));
}

#[test]
fn the_window_slides() {
    let mut breaker = Breaker::new(options(Some(10), None, 0));
    assert_eq!(admitted(&mut breaker, 6, false, 100, 0), 6);
    assert_eq!(admitted(&mut breaker, 4, false, 100, 5 * MINUTE), 4);
    // The first six are outside the window, the four are not.
    assert_eq!(admitted(&mut breaker, 6, false, 100, 10 * MINUTE), 6);
    assert_eq!(admitted(&mut breaker, 1, false, 100, 14 * MINUTE), 0);
}

#[test]
fn the_share_is_of_what_there_was_when_the_window_began() {
    let mut breaker = Breaker::new(options(None, Some(0.5), 0));
    assert_eq!(admitted(&mut breaker, 30, true, 100, 0), 30);
    // 70 are left; 20 more make half of the original hundred.
    assert_eq!(admitted(&mut breaker, 30, true, 70, 5 * MINUTE), 20);
}

#[test]
fn what_came_to_nothing_is_not_counted() {
    let mut breaker = Breaker::new(options(Some(3), None, 0));
    for round in 0..50 {
        let ticket = ticket(&mut breaker, round % 2 == 0, round);
        breaker.refund("pods", ticket);
        breaker.refund("unknown", ticket);
    }
    assert_eq!(admitted(&mut breaker, 9, false, 9, 60), 3);
}

/// A refund is subtracted at the time at which its deletion was counted, and not from later ones.
#[test]
fn a_refund_concerns_no_other_deletion() {
    // Times at which others are admitted after the first at 0, and how many further ones are admitted at which time, of three in a
    // window.
    let cases: [(&str, &[i64], i64, usize); 5] = [
        ("no other", &[], 9, 3),
        ("another in the same slot", &[0], 9, 2),
        ("another in a later slot", &[5], 9, 2),
        ("another, when the first is out of the window", &[5], 10, 2),
        ("refunded when it is out of the window", &[5, 10], 10, 1),
    ];
    for (name, others, at, expected) in cases {
        let mut breaker = Breaker::new(options(Some(3), None, 0));
        let came_to_nothing = ticket(&mut breaker, true, 0);
        for other in others {
            ticket(&mut breaker, false, other * MINUTE);
        }
        breaker.refund("pods", came_to_nothing);
        assert_eq!(admitted(&mut breaker, 9, false, 9, at * MINUTE), expected, "{name}");
    }
    // A resumption begins a fresh count, unaffected by anything before.
    let mut breaker = Breaker::new(options(Some(2), None, 0));
    let before = ticket(&mut breaker, false, 0);
    assert_eq!(admitted(&mut breaker, 9, false, 9, 0), 1);
    assert!(breaker.resume("pods"));
    ticket(&mut breaker, false, 0);
    breaker.refund("pods", before);
    assert_eq!(admitted(&mut breaker, 9, false, 9, 0), 1);
}

#[test]
fn kept_resources_are_never_deleted_and_new_limits_count_at_once() {
    let mut breaker = Breaker::new(options(Some(5), None, 0));
    breaker.keep(BTreeSet::from([pods()]));
    assert_eq!(
        breaker.admit(&pods(), false, Some(9), Timestamp(0)),
        Admission::Withheld(WithheldBy::Configuration)
    );
    assert_eq!((breaker.tripped(), breaker.kept()), (vec![], BTreeSet::from([pods()])));
    breaker.keep(BTreeSet::new());
    assert_eq!(admitted(&mut breaker, 2, false, 9, 0), 2);
    breaker.set_options(options(Some(3), None, 0));
    assert_eq!(admitted(&mut breaker, 2, false, 9, 0), 1);
}

#[test]
fn an_owner_that_was_seen_to_go_makes_a_cascade() {
    let owner = || Uid::new("o");
    let seen = ResourceVersion(7);
    for (evidence, inferred) in [
        (vec![], true),
        (vec![Evidence::ReadAbsent { owner: owner(), at: Timestamp(1) }], true),
        (vec![Evidence::RemovalSeen { owner: owner(), resource_version: ResourceVersion::UNKNOWN }], true),
        (vec![Evidence::RemovalSeen { owner: owner(), resource_version: seen }], false),
        (vec![Evidence::Waiting { owner: owner(), resource_version: seen }], false),
        (vec![Evidence::Orphaning { owner: owner(), resource_version: seen }], false),
        (
            vec![
                Evidence::ObservedAt { resource_version: seen },
                Evidence::ReadAbsent { owner: owner(), at: Timestamp(1) },
                Evidence::RemovalSeen { owner: owner(), resource_version: seen },
            ],
            false,
        ),
    ] {
        let mut reason = Reason { verdict: Verdict::OwnersAbsent, owners: vec![], evidence };
        assert_eq!(is_inferred(&reason), inferred, "{reason}");
        reason.verdict = Verdict::Retention("the object has expired");
        assert!(!is_inferred(&reason), "{reason}");
    }
}

#[test]
fn definitions_keep_their_objects_and_hold_custom_ones_until_they_are_known() {
    let mut breaker = Breaker::new(BreakerOptions::default());
    let mut held = |definitions: Definitions| -> Vec<&str> {
        breaker.follow(definitions);
        let all =
            ["pods", "jobs.batch", "leases.coordination.k8s.io", "widgets.example.com", "snapshots.x.k8s.io"];
        let mut admitted =
            |resource: &&str| is_admitted(&breaker.admit(&(*resource).into(), false, Some(1), Timestamp(1)));
        all.into_iter().filter(|resource| !admitted(resource)).collect()
    };
    assert_eq!(held(Definitions::NotFollowed), [""; 0]);
    assert_eq!(held(Definitions::Unknown), ["widgets.example.com", "snapshots.x.k8s.io"]);
    let kept = BTreeSet::from(["widgets.example.com".into()]);
    assert_eq!(held(Definitions::Kept(kept)), ["widgets.example.com"]);
    assert_eq!(held(Definitions::Kept(BTreeSet::new())), [""; 0]);
}

proptest! {
    /// No span of nine tenths of a window contains more than the limit, and nothing passes after a trip, whatever is requested and
    /// refunded when.
    #[test]
    fn never_more_than_the_limit_in_a_window(
        limit in 1_u64..20,
        steps in proptest::collection::vec((0_i64..3 * MINUTE, 1_usize..8, any::<bool>(), 0_usize..4), 1..60),
    ) {
        let mut breaker = Breaker::new(options(Some(limit), None, 0));
        let mut passed: Vec<i64> = Vec::new();
        let mut failing: VecDeque<Ticket> = VecDeque::new();
        let (mut now, mut tripped) = (0, false);
        for (pause, number, fails, refunds) in steps {
            now += pause;
            for _ in 0..number {
                let admission = breaker.admit(&pods(), false, Some(1_000), Timestamp(now));
                prop_assert!(!tripped || admission == Admission::Withheld(WithheldBy::Breaker));
                match admission {
                    Admission::Admitted(ticket) if fails => failing.push_back(ticket),
                    Admission::Admitted(_) => passed.push(now),
                    _ => tripped = true,
                }
            }
            for ticket in failing.drain(..refunds.min(failing.len())) {
                breaker.refund("pods", ticket);
            }
        }
        for &end in &passed {
            let within = passed.iter().filter(|&&at| at <= end && at > end - 9 * MINUTE).count() as u64;
            prop_assert!(within <= limit, "{within} within nine minutes of {end}");
        }
        prop_assert!(breaker.resources.values().all(|counted| counted.slots.len() <= 10));
    }
}

/// A deletion of objects that are not counted does not widen the share for others, and has none of its own.
#[test]
fn objects_that_are_not_counted_have_no_share() {
    let options = BreakerOptions { largest_number: None, share_floor: 1, ..BreakerOptions::default() };
    for (objects, admitted) in [(None, 4), (Some(4), 2)] {
        let mut breaker = Breaker::new(options);
        assert!(is_admitted(&breaker.admit(&pods(), false, None, Timestamp(0))));
        let admissions = (0..4).map(|_| breaker.admit(&pods(), true, objects, Timestamp(0)));
        let count = admissions.filter(is_admitted).count();
        assert_eq!(count, admitted, "{objects:?}");
    }
}

/// A request that deletes a whole collection counts as many deletions as it made.
#[test]
fn the_deletions_of_a_collection_are_counted_afterwards() {
    let options = BreakerOptions { largest_number: Some(10), ..BreakerOptions::default() };
    for (further, admitted) in [(8, true), (9, false), (u64::MAX, false)] {
        let mut breaker = Breaker::new(options);
        assert!(is_admitted(&breaker.admit(&pods(), false, None, Timestamp(0))));
        breaker.count("pods", further, Timestamp(0));
        let next = breaker.admit(&pods(), false, None, Timestamp(0));
        assert_eq!(is_admitted(&next), admitted, "{further}: {next:?}");
    }
}

/// A kind of which every object was missing from one list is stopped regardless of counts, until it is resumed.
#[test]
fn a_kind_that_vanished_is_stopped_until_it_is_resumed() {
    let maps: Arc<str> = "configmaps".into();
    let mut breaker = Breaker::new(options(None, None, 0));
    let ask = |breaker: &mut Breaker, vanished_at: i64, now: i64| {
        breaker.admit_dependent(&maps, Timestamp(vanished_at), Timestamp(now))
    };
    let Err(Admission::Tripped(trip)) = ask(&mut breaker, 5, 7) else { panic!("it has not tripped") };
    assert_eq!((&*trip.resource, trip.since), ("configmaps", Timestamp(7)));
    assert_eq!(breaker.holds(&maps), Some(WithheldBy::Breaker));
    assert_eq!(ask(&mut breaker, 5, 8), Err(Admission::Withheld(WithheldBy::Breaker)));
    // Everything else proceeds.
    ticket(&mut breaker, true, 9);
    assert!(breaker.resume(&maps));
    assert_eq!((ask(&mut breaker, 5, 10), ask(&mut breaker, 4, 10)), (Ok(()), Ok(())));
    assert!(matches!(ask(&mut breaker, 11, 12), Err(Admission::Tripped(_))), "it vanished again");
    assert_eq!(breaker.trips(), 2);
}

/// What is counted is bounded. Resources beyond that are not limited, those that are counted still are.
#[test]
fn resources_beyond_the_bound_are_not_counted() {
    let mut breaker = Breaker::new(options(Some(1), None, 0));
    let mut admit = |resource: &str| breaker.admit(&resource.into(), false, None, Timestamp(0));
    for number in 0..COUNTED_RESOURCES {
        assert!(is_admitted(&admit(&format!("r{number}"))), "{number}");
    }
    assert!(is_admitted(&admit("another")) && is_admitted(&admit("another")), "it is not counted");
    assert!(matches!(admit("r0"), Admission::Tripped(_)));
    let mut dependent =
        |resource: &str| breaker.admit_dependent(&resource.into(), Timestamp(0), Timestamp(0));
    assert_eq!(dependent("another"), Err(Admission::Withheld(WithheldBy::Breaker)));
    let Err(Admission::Tripped(trip)) = dependent("r1") else { panic!("a resource that is counted trips") };
    assert_eq!(&*trip.resource, "r1");
    assert_eq!(breaker.trips(), 2, "none for what is not counted");
}

#[test]
fn a_trip_says_what_was_counted() {
    for (options, inferred, expected) in [
        (options(Some(2), None, 0), false, "2 deletions within 600 s, the limit of one window"),
        (
            options(None, Some(0.25), 0),
            true,
            "2 of 9 objects were deleted within 600 s because their owners were found absent; the limit is 25 %",
        ),
    ] {
        let mut breaker = Breaker::new(options);
        let _ = (ticket(&mut breaker, inferred, 0), ticket(&mut breaker, inferred, 0));
        let Admission::Tripped(trip) = breaker.admit(&pods(), inferred, Some(9), Timestamp(0)) else {
            panic!("{expected}")
        };
        assert_eq!(&*trip.why, expected);
    }
}
