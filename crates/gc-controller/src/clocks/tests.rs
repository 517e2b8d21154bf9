//! Clocks that are set, drift or stand still.

use super::*;

const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;
const NOON: i64 = 1_790_000_000_000;

fn at(milliseconds: i64) -> Moment {
    Moment::from_start(Duration::from_millis(milliseconds.unsigned_abs()))
}

/// The elapsed time distinguishes a running clock from one that was set.
#[test]
fn a_wall_clock_that_was_set_is_noticed() {
    use Reading::{Passed, Set};
    let time = |shown: i64| Timestamp(NOON + shown);
    for (what, passed, shown, machine, expected) in [
        ("time passes", 5 * SECOND, 5 * SECOND, 5 * SECOND, Passed(time(5 * SECOND))),
        ("much time passes", HOUR, HOUR, HOUR, Passed(time(HOUR))),
        ("a clock is slewed", SECOND, -SECOND, -SECOND, Passed(time(0))),
        ("slewed forward", SECOND, 2 * SECOND, 2 * SECOND, Passed(time(2 * SECOND))),
        (
            "set forward",
            SECOND,
            HOUR + SECOND,
            HOUR + SECOND,
            Set { expected: time(SECOND), now: time(HOUR + SECOND) },
        ),
        ("set back", 5 * SECOND, -HOUR, -HOUR, Set { expected: time(5 * SECOND), now: time(-HOUR) }),
        ("the machine slept", 0, HOUR, HOUR, Set { expected: time(0), now: time(HOUR) }),
        ("a test moves time ahead", SECOND, HOUR, SECOND, Passed(time(HOUR))),
        ("a test moves time back", SECOND, -HOUR, SECOND, Set { expected: time(0), now: time(-HOUR) }),
    ] {
        let mut clock = WallClock::default();
        assert_eq!(clock.read(time(0), time(0), at(0)), Passed(time(0)), "{what}");
        assert_eq!(clock.read(time(shown), time(machine), at(passed)), expected, "{what}");
    }
}

/// Timers follow a clock that only runs forward, whatever happens to the wall clock after the start.
#[test]
fn time_is_carried_on_from_the_start() {
    let clock = SteadyClock::new(Timestamp(NOON), at(2_000));
    let shown = [0, 2_000, 2_001, 86_402_000].map(|moment| clock.at(at(moment)).0 - NOON);
    assert_eq!(shown, [0, 0, 1, 86_400_000]);
}

/// The resolution of a `Date` and the round trip count in favour of the clock.
#[test]
fn a_date_tells_the_least_difference() {
    for (what, date, (sent, answered), wall, expected) in [
        ("the same second", 0, (0, 0), 999, 0),
        ("the next second", 0, (0, 0), 1_001, 1),
        ("behind", 2_000, (0, 0), 1_000, -1_000),
        ("a long round trip hides what is ahead", 0, (0, 5_000), 5_999, 0),
        ("and what is behind", 0, (0, 5_000), 1, 0),
        ("ahead beyond it", 0, (0, 5_000), 8_000, 2_000),
        ("behind beyond it", 9_000, (0, 5_000), 8_000, -1_000),
    ] {
        let mut server = ServerClock::default();
        server.observe(Timestamp(NOON + date), at(sent), at(answered), Timestamp(NOON + wall));
        let difference = server.difference_milliseconds(at(answered), Timestamp(NOON + wall));
        assert_eq!(difference, Some(expected), "{what}");
    }
}

/// One step in the history of two clocks.
enum Step {
    /// The server responds.
    Answer,
    /// This much time passes, in milliseconds.
    Pass(i64),
    /// This machine's clock is set ahead by this.
    Set(i64),
    /// The server's clock is set ahead by this.
    SetServer(i64),
    /// The machine sleeps for this long.
    Sleep(i64),
    /// The clocks are compared.
    Expect(Agreement),
}

fn live(what: &str, steps: &[Step]) {
    let (mut moment, mut wall, mut server_wall) = (1_000, NOON, NOON);
    let mut server = ServerClock::default();
    for (index, step) in steps.iter().enumerate() {
        match *step {
            Step::Answer => {
                let date = Timestamp(server_wall - server_wall % SECOND);
                server.observe(date, at(moment - 5), at(moment), Timestamp(wall));
            }
            Step::Pass(passed) => {
                (moment, wall, server_wall) = (moment + passed, wall + passed, server_wall + passed);
            }
            Step::Set(by) => wall += by,
            Step::SetServer(by) => server_wall += by,
            Step::Sleep(passed) => (wall, server_wall) = (wall + passed, server_wall + passed),
            Step::Expect(expected) => {
                let agreement = server.compare(at(moment), Timestamp(wall));
                // The resolution of a second and the round trip count in favour of the clock that is ahead.
                let rounded = match agreement {
                    Agreement::Disagreed(by) if by > 0 => Agreement::Disagreed((by + 1_005) / SECOND),
                    Agreement::Disagreed(by) => Agreement::Disagreed(by / SECOND),
                    other => other,
                };
                assert_eq!(rounded, expected, "{what}, step {index}");
            }
        }
    }
}

#[test]
fn deletions_pause_while_clocks_disagree() {
    use Agreement::{Agreed, Disagreed, Unknown};
    use Step::{Answer, Expect, Pass, Set, SetServer, Sleep};
    live("nothing is known", &[Expect(Unknown), Set(HOUR), Expect(Unknown)]);
    live("all is well", &[Answer, Expect(Agreed), Pass(HOUR), Expect(Agreed), Answer, Expect(Agreed)]);
    live(
        "a small difference",
        &[Set(20 * SECOND), Answer, Expect(Agreed), Set(-40 * SECOND), Expect(Agreed)],
    );
    live(
        "set forward: noticed before any answer, and over with an answer that agrees a while later",
        &[
            Answer,
            Set(HOUR),
            Expect(Disagreed(3600)),
            Pass(HOUR),
            Answer,
            Expect(Disagreed(3600)),
            Set(-HOUR),
            Expect(Disagreed(3600)),
            Answer,
            Expect(Disagreed(3600)),
            Pass(5 * SECOND),
            Expect(Disagreed(3600)),
            Answer,
            Expect(Agreed),
        ],
    );
    live(
        "set back",
        &[Answer, Set(-HOUR), Expect(Disagreed(-3600)), Pass(SECOND), Answer, Expect(Disagreed(-3600))],
    );
    live("off from the beginning", &[Set(25 * HOUR), Answer, Expect(Disagreed(25 * 3600))]);
    live(
        "the server's clock is set",
        &[Answer, SetServer(25 * HOUR), Expect(Agreed), Answer, Expect(Disagreed(-25 * 3600))],
    );
    live(
        "the machine sleeps: what was carried on is not true any more until the server answers",
        &[Answer, Sleep(8 * HOUR), Expect(Disagreed(8 * 3600)), Pass(6 * SECOND), Answer, Expect(Agreed)],
    );
    live(
        "one of two servers is wrong",
        &[
            SetServer(HOUR),
            Answer,
            SetServer(-HOUR),
            Answer,
            Expect(Disagreed(-3600)),
            Pass(4 * SECOND),
            Answer,
            Expect(Disagreed(-3600)),
            SetServer(HOUR),
            Answer,
            SetServer(-HOUR),
            Pass(4 * SECOND),
            Answer,
            Expect(Disagreed(-3600)),
        ],
    );
}

/// Clocks that drift apart by a second per minute are detected while the difference is small, from regular responses.
#[test]
fn drift_is_noticed() {
    let mut server = ServerClock::default();
    let mut first = None;
    for minute in 0..60 {
        let (moment, wall) = (minute * 60 * SECOND, NOON + minute * 61 * SECOND);
        let date = NOON + minute * 60 * SECOND;
        server.observe(Timestamp(date), at(moment), at(moment), Timestamp(wall));
        if first.is_none() && server.compare(at(moment), Timestamp(wall)).pauses() {
            first = Some(minute);
        }
    }
    // Because of the resolution of a second, one minute after it is true.
    assert_eq!(first, Some(32));
}

/// A response with a long round trip proves nothing, and neither does one that is older than what is known.
#[test]
fn answers_that_tell_little_are_passed_over() {
    let wall = Timestamp(NOON);
    let mut server = ServerClock::default();
    server.observe(Timestamp(NOON + HOUR), at(0), at(10_001), wall);
    assert_eq!(server, ServerClock::default());
    server.observe(wall, at(20_000), at(20_000), wall);
    let known = server;
    server.observe(Timestamp(NOON + HOUR), at(15_000), at(19_000), wall);
    assert_eq!(server, known);
}

/// The server is asked for the time if no response has shown it for a while, sooner while the clocks disagree.
#[test]
fn the_server_is_asked_now_and_then() {
    let asked = |server: &mut ServerClock, from: i64, to: i64| -> Vec<i64> {
        (from..to).filter(|second| server.poll_question(at(second * SECOND))).collect()
    };
    let mut server = ServerClock::default();
    assert_eq!(asked(&mut server, 0, 25), [10, 20], "as long as none has shown it");
    server.observe(Timestamp(NOON), at(25_000), at(25_000), Timestamp(NOON));
    assert_eq!(asked(&mut server, 25, 46), [35, 45]);
    server.observe(Timestamp(NOON + HOUR), at(46_000), at(46_000), Timestamp(NOON));
    assert_eq!(asked(&mut server, 46, 50), [47, 48, 49]);
}

#[test]
fn an_agreement_says_who_is_ahead() {
    for (agreement, pauses, expected) in [
        (Agreement::Unknown, false, "the server's clock is not known"),
        (Agreement::Agreed, false, "the clocks of this machine and of the server agree within 30 s"),
        (
            Agreement::Disagreed(-31_500),
            true,
            "this machine's clock is 31 s behind the server's, more than 30 s lately",
        ),
        (
            Agreement::Disagreed(45_000),
            true,
            "this machine's clock is 45 s ahead of the server's, more than 30 s lately",
        ),
        (
            Agreement::Disagreed(0),
            true,
            "this machine's clock is 0 s ahead of the server's, more than 30 s lately",
        ),
    ] {
        assert_eq!((agreement.to_string().as_str(), agreement.pauses()), (expected, pauses));
    }
}

/// A step of exactly the bound is drift, and a response that took exactly as long as it may still counts.
#[test]
fn bounds_are_inclusive() {
    let moment = |seconds| Moment::from_start(Duration::from_secs(seconds));
    for (shown, is_set) in [(12_000, false), (12_001, true), (8_000, false), (7_999, true)] {
        let mut clock = WallClock::default();
        clock.read(Timestamp(0), Timestamp(0), moment(0));
        let reading = clock.read(Timestamp(shown), Timestamp(shown), moment(10));
        assert_eq!(matches!(reading, Reading::Set { .. }), is_set, "{shown}");
    }
    let longest = LONGEST_ROUND_TRIP.as_secs();
    for (took, counts) in [(longest, true), (longest + 1, false)] {
        let mut clock = ServerClock::default();
        clock.observe(Timestamp(0), moment(0), moment(took), Timestamp(0));
        assert_eq!(clock.difference_milliseconds(moment(took), Timestamp(0)).is_some(), counts, "{took} s");
    }
}
