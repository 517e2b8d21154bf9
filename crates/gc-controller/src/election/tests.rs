//! Tests of the election.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use super::*;

const LONGEST: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};
const SHORTEST: Duration = Duration::from_secs(3);

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn wall(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn candidate(identity: &str) -> Election {
    Election::new(identity.into(), LONGEST, SHORTEST)
}

fn record(holder: &str, renewed: i64, transitions: u64) -> Record {
    Record {
        holder: holder.into(),
        duration_seconds: if holder.is_empty() { 1 } else { 15 },
        acquired: micro_time(wall(0)),
        renewed: micro_time(wall(renewed)),
        transitions,
    }
}

/// Returns a candidate that has read the Lease at a moment.
fn after_read(candidate: &mut Election, found: Reply, now: Duration, wall: Timestamp) -> After {
    assert_eq!(candidate.begin(now, wall), Ask::Read);
    candidate.answered(found, now, wall)
}

/// Returns a candidate that has led since the beginning.
fn leader(identity: &str, transitions: u64) -> Election {
    let mut leader = candidate(identity);
    let taken = after_read(&mut leader, Reply::Found(record("", 0, transitions - 1)), at(0), wall(0));
    assert_eq!(taken, After::Ask(Ask::Replace(record(identity, 0, transitions))));
    assert_eq!(leader.answered(Reply::Written, at(0), wall(0)), After::Over(Round::Holds));
    leader
}

#[test]
fn a_missing_lease_is_made_and_a_free_one_taken() {
    let mut one = candidate("a");
    assert_eq!(
        after_read(&mut one, Reply::Missing, at(0), wall(0)),
        After::Ask(Ask::Create(record("a", 0, 0)))
    );
    assert!(!one.leads() && !one.may_act(at(0)));
    let taken = after_read(&mut one, Reply::Found(record("", 0, 4)), at(0), wall(0));
    assert_eq!(taken, After::Ask(Ask::Replace(record("a", 0, 5))));
}

#[test]
fn a_held_lease_is_taken_when_it_has_not_changed_for_its_duration_on_our_clock() {
    let mut one = candidate("b");
    // The holder's clock is far off; only changes count.
    let held = Reply::Found(record("a", -9999, 0));
    let renewed = Reply::Found(record("a", -9990, 0));
    for (found, now, expected) in [
        (&held, 0, After::Over(Round::HeldByOther)),
        (&held, 14_999, After::Over(Round::HeldByOther)),
        (&renewed, 15_000, After::Over(Round::HeldByOther)),
        (&renewed, 29_999, After::Over(Round::HeldByOther)),
        (
            &renewed,
            30_000,
            After::Ask(Ask::Replace(Record { acquired: micro_time(wall(30)), ..record("b", 30, 1) })),
        ),
    ] {
        assert_eq!(after_read(&mut one, found.clone(), at(now), wall(30)), expected, "at {now} ms");
    }
    assert_eq!(one.answered(Reply::Written, at(30_100), wall(30)), After::Over(Round::Holds));
    assert!(one.leads());
}

#[test]
fn a_lease_that_was_deleted_is_held_as_long_as_one_that_is_there() {
    let mut one = candidate("b");
    let other = Reply::Found(record("a", 0, 3));
    assert_eq!(after_read(&mut one, other, at(1_000), wall(1)), After::Over(Round::HeldByOther));
    for (now, expected) in [(2_000, false), (15_999, false), (16_000, true)] {
        let after = after_read(&mut one, Reply::Missing, at(now), wall(16));
        assert_eq!(matches!(after, After::Ask(Ask::Create(_))), expected, "at {now} ms: {after:?}");
    }
    // A released Lease is recreated immediately, and so is its own.
    let mut one = candidate("b");
    let _ = after_read(&mut one, Reply::Found(record("", 0, 3)), at(0), wall(0));
    let after = after_read(&mut one, Reply::Missing, at(0), wall(0));
    assert_eq!(after, After::Ask(Ask::Create(record("b", 0, 0))));
    let mut one = leader("b", 3);
    let _ = one.begin(at(0), wall(0));
    assert_eq!(one.answered(Reply::Failed("404".into()), at(0), wall(0)), After::Ask(Ask::Read));
    let after = one.answered(Reply::Missing, at(0), wall(0));
    assert_eq!(after, After::Ask(Ask::Create(record("b", 0, 0))));
}

#[test]
fn a_leader_acts_until_the_deadline_after_it_asked() {
    let mut one = leader("a", 3);
    assert_eq!(one.begin(at(2_000), wall(2)), Ask::Replace(record("a", 2, 3)));
    // The reply comes late: the time of the request counts.
    assert_eq!(one.answered(Reply::Written, at(6_000), wall(6)), After::Over(Round::Holds));
    assert_eq!(one.acts_until(), Some(at(12_000)));
    for (now, acts) in [(0, true), (11_999, true), (12_000, false), (20_000, false)] {
        assert_eq!((one.may_act(at(now)), one.is_overdue(at(now))), (acts, !acts), "at {now} ms");
    }
    one.stop();
    assert!(!one.may_act(at(0)) && !one.is_overdue(at(20_000)));
}

#[test]
fn a_leader_whose_renewal_fails_reads_and_writes_again_or_stops() {
    let failed = || Reply::Failed("no answer".into());
    let mut one = leader("a", 3);
    let _ = one.begin(at(2_000), wall(2));
    assert_eq!(one.answered(failed(), at(3_000), wall(3)), After::Ask(Ask::Read));
    assert_eq!(one.answered(failed(), at(4_000), wall(4)), After::Over(Round::Failed("no answer".into())));
    assert!(one.may_act(at(9_999)) && one.is_overdue(at(10_000)));
    // The write did happen.
    let _ = one.begin(at(6_000), wall(6));
    let _ = one.answered(failed(), at(6_000), wall(6));
    let again = one.answered(Reply::Found(record("a", 2, 3)), at(7_000), wall(7));
    assert_eq!(again, After::Ask(Ask::Replace(record("a", 7, 3))));
    assert_eq!(
        one.answered(Reply::Failed("a conflict".into()), at(7_000), wall(7)),
        After::Over(Round::Failed("a conflict".into()))
    );
    assert_eq!(one.acts_until(), Some(at(10_000)));
    // Another candidate has it.
    let _ = one.begin(at(8_000), wall(8));
    let _ = one.answered(failed(), at(8_000), wall(8));
    assert_eq!(
        one.answered(Reply::Found(record("b", 5, 4)), at(8_000), wall(8)),
        After::Over(Round::HeldByOther)
    );
    assert_eq!((one.leads(), one.holder(), one.acts_until()), (false, "b", None));
    assert_eq!(one.release(wall(9)), None);
}

#[test]
fn a_leader_releases_what_it_holds() {
    let mut one = leader("a", 3);
    let released = one.release(wall(4)).unwrap();
    assert_eq!((released.holder.as_str(), released.duration_seconds, released.transitions), ("", 1, 3));
    assert!(!one.may_act(at(0)));
    assert_eq!(candidate("a").release(wall(4)), None);
}

#[test]
fn what_a_lease_says_is_taken_as_it_comes() {
    let endless = Record { duration_seconds: u64::MAX, transitions: u64::MAX, ..record("a", 0, 0) };
    let mut one = candidate("b");
    let now = Duration::from_secs(u64::MAX / 2);
    assert_eq!(
        after_read(&mut one, Reply::Found(endless.clone()), now, wall(0)),
        After::Over(Round::HeldByOther)
    );
    let free = Record { holder: String::new(), ..endless };
    let After::Ask(Ask::Replace(taken)) = after_read(&mut one, Reply::Found(free), now, wall(0)) else {
        panic!("it is free")
    };
    assert_eq!(taken.transitions, u64::MAX);
    assert_eq!(after_read(&mut one, Reply::Written, now, wall(0)), {
        let why = "the answer to another question: Written";
        After::Over(Round::Failed(why.into()))
    });
}

#[test]
fn a_record_is_written_as_it_is_read() {
    let lease = json!({"spec": record("a", 7, 2).spec()});
    assert_eq!(Record::of_lease(&lease), record("a", 7, 2));
    assert_eq!(lease["spec"]["renewTime"], "2026-09-21T14:13:27.000000Z");
    assert_eq!(Record::of_lease(&json!([])), Record::default());
}

/// Gives a candidate the pace of a server that calls for leases of this duration.
fn paced(candidate: &mut Election, seconds: u64, now: Duration) {
    candidate.pace = Pace::new(LONGEST, SHORTEST);
    for _ in 0..5 {
        candidate.pace.renewed(Duration::from_millis(seconds * 50), true, now);
    }
}

#[test]
fn a_leader_that_asks_for_a_shorter_lease_acts_for_less_time_whether_it_gets_it_or_not() {
    let mut one = leader("a", 3);
    assert_eq!((one.rest(at(0)), one.acts_until()), (at(2_000), Some(at(10_000))));
    paced(&mut one, 3, at(1_000));
    let short = Record { duration_seconds: 3, ..record("a", 1, 3) };
    assert_eq!(one.begin(at(1_000), wall(1)), Ask::Replace(short));
    assert_eq!(one.acts_until(), Some(at(3_000)), "others may see the short lease from now on");
    let failed = one.answered(Reply::Failed("no answer".into()), at(2_000), wall(2));
    assert_eq!((failed, one.acts_until()), (After::Ask(Ask::Read), Some(at(3_000))));
    let found = one.answered(Reply::Found(record("a", 0, 3)), at(2_500), wall(2));
    assert_eq!(found, After::Ask(Ask::Replace(Record { duration_seconds: 3, ..record("a", 2, 3) })));
    assert_eq!(one.answered(Reply::Written, at(2_600), wall(2)), After::Over(Round::Holds));
    assert_eq!(one.acts_until(), Some(at(3_000)), "from when the round began");
}

#[test]
fn a_leader_whose_renewals_become_slow_asks_for_a_longer_lease() {
    let mut one = leader("a", 3);
    paced(&mut one, 3, at(0));
    let _ = one.rest(at(0));
    let _ = one.begin(at(2_000), wall(2));
    assert_eq!(one.answered(Reply::Written, at(2_010), wall(2)), After::Over(Round::Holds));
    assert_eq!((one.rest(at(2_010)), one.timing().lease_duration), (at(500), SHORTEST));
    // A round that begins late counts, and one that fails.
    let Ask::Replace(late) = one.begin(at(2_910), wall(2)) else { panic!("it leads") };
    assert_eq!((late.duration_seconds, one.acts_until()), (8, Some(at(4_000))));
    assert_eq!(one.answered(Reply::Failed("500".into()), at(2_920), wall(2)), After::Ask(Ask::Read));
    assert_eq!(
        one.answered(Reply::Failed("500".into()), at(2_930), wall(2)),
        After::Over(Round::Failed("500".into()))
    );
    let _ = one.rest(at(2_930));
    let Ask::Replace(later) = one.begin(at(3_810), wall(3)) else { panic!("it leads") };
    assert_eq!(later.duration_seconds, 15);
    assert_eq!(one.answered(Reply::Written, at(3_820), wall(3)), After::Over(Round::Holds));
    assert_eq!(one.acts_until(), Some(at(13_810)));
}

#[test]
fn a_candidate_asks_as_soon_as_a_held_lease_may_be_taken() {
    let mut one = candidate("b");
    let held =
        |seconds, renewed| Reply::Found(Record { duration_seconds: seconds, ..record("a", renewed, 3) });
    for (found, now, expected) in [
        (held(15, 0), 0, 2_000),
        (held(15, 0), 14_000, 1_000),
        (held(3, 1), 14_500, 500),
        (held(3, 1), 17_200, 300),
    ] {
        assert_eq!(after_read(&mut one, found, at(now), wall(0)), After::Over(Round::HeldByOther));
        assert_eq!(one.rest(at(now)), at(expected), "at {now} ms");
    }
    assert_eq!((one.lease_seconds(), candidate("c").lease_seconds()), (3, 0));
    // If it cannot take the Lease, it does not ask without rest.
    let _ = after_read(&mut one, held(3, 1), at(17_500), wall(0));
    let _ = one.answered(Reply::Failed("a conflict".into()), at(17_500), wall(0));
    assert_eq!(one.rest(at(17_500)), at(500));
}

#[test]
fn the_duration_on_the_lease_is_never_shorter_than_the_one_that_is_meant() {
    let meant = Timing { lease_duration: at(2_900), renew_deadline: at(2_500), retry_period: at(200) };
    let mut one = Election::new("a".into(), meant, SHORTEST);
    let After::Ask(Ask::Create(record)) = after_read(&mut one, Reply::Missing, at(0), wall(0)) else {
        panic!("there is no Lease")
    };
    assert_eq!(record.duration_seconds, 3, "another would take it while this one acts");
}

mod together;
