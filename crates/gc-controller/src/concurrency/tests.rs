//! The concurrency limit, and throughput and fairness over simulated servers.

#![allow(clippy::unwrap_used, clippy::float_cmp, reason = "a test may panic")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

const FAST: Duration = Duration::from_millis(10);

fn at(milliseconds: u64) -> Moment {
    Moment::from_start(Duration::from_millis(milliseconds))
}

fn begin(pacer: &mut Pacer, now: Moment) -> Result<(), Option<Moment>> {
    pacer.check(now).map(|()| pacer.begin())
}

fn run(pacer: &mut Pacer, now: &mut Moment, rounds: usize, latency: Duration, signal: Signal) {
    for _ in 0..rounds {
        let mut begun = 0;
        while begin(pacer, *now).is_ok() {
            begun += 1;
        }
        let start = *now;
        *now = now.after(latency);
        for _ in 0..begun {
            pacer.finish(start, *now, signal);
        }
    }
}

#[test]
fn the_limit_grows_while_latency_holds_and_stays_in_its_bounds() {
    let mut now = at(0);
    let mut pacer = Pacer::new(ConcurrencyOptions::default());
    run(&mut pacer, &mut now, 10, FAST, Signal::Answered);
    let grown = pacer.state().limit;
    assert!((40..=44).contains(&grown), "{grown}");
    run(&mut pacer, &mut now, 500, FAST, Signal::Answered);
    assert_eq!(pacer.state().limit, ConcurrencyOptions::default().largest);
}

#[test]
fn a_busy_server_shrinks_it_once_per_round_and_never_below_the_floor() {
    let mut now = at(0);
    let mut pacer = Pacer::new(ConcurrencyOptions::default());
    run(&mut pacer, &mut now, 1, FAST, Signal::Busy(None));
    assert_eq!(pacer.state().limit, 19);
    run(&mut pacer, &mut now, 50, FAST, Signal::Busy(None));
    assert_eq!(pacer.state().limit, 8);
}

#[test]
fn a_limit_that_is_not_made_use_of_does_not_change() {
    let mut now = at(0);
    let mut pacer = Pacer::new(ConcurrencyOptions::default());
    for latency in [1, 10, 100, 1_000].into_iter().cycle().take(400) {
        begin(&mut pacer, now).unwrap();
        let start = now;
        now = now.after(Duration::from_millis(latency));
        pacer.finish(start, now, Signal::Answered);
    }
    assert_eq!(pacer.state().limit, ConcurrencyOptions::default().initial);
}

#[test]
fn retry_after_pauses_everything() {
    let mut pacer = Pacer::new(ConcurrencyOptions::default());
    assert_eq!(begin(&mut pacer, at(0)), Ok(()));
    pacer.finish(at(0), at(0), Signal::Busy(Some(Duration::from_secs(2))));
    assert_eq!(begin(&mut pacer, at(1_000)), Err(Some(at(2_000))));
    assert_eq!(begin(&mut pacer, at(2_000)), Ok(()));
}

#[test]
fn a_fixed_rate_caps_it() {
    let options =
        ConcurrencyOptions { queries_per_second: Some(10.0), burst: 2, ..ConcurrencyOptions::default() };
    let mut pacer = Pacer::new(options);
    let answers: Vec<_> = (0..3).map(|_| begin(&mut pacer, at(0))).collect();
    assert_eq!(answers, [Ok(()), Ok(()), Err(Some(at(100)))]);
    assert_eq!(begin(&mut pacer, at(100)), Ok(()));
}

/// Rounding left slightly less than one token: nothing could be sent, and the next moment to try was the same one.
#[test]
fn whoever_waits_as_long_as_asked_may_send() {
    for rate in [0.7, 3.0, 5.0, 20.0] {
        let options =
            ConcurrencyOptions { queries_per_second: Some(rate), burst: 1, ..ConcurrencyOptions::default() };
        let (mut pacer, mut now) = (Pacer::new(options), at(0));
        for step in 0..1_000 {
            assert_eq!(begin(&mut pacer, now), Ok(()), "{rate} after {step}");
            pacer.finish(now, now, Signal::Answered);
            now = now.after(Duration::from_millis(step % 13));
            let Err(Some(until)) = begin(&mut pacer, now) else { panic!("{rate}: nothing to wait for") };
            now = until;
        }
    }
}

#[test]
fn new_bounds_hold_at_once() {
    let mut pacer = Pacer::new(ConcurrencyOptions::default());
    pacer.set_options(ConcurrencyOptions { largest: 2, ..ConcurrencyOptions::default() });
    let answers: Vec<_> = (0..3).map(|_| begin(&mut pacer, at(0))).collect();
    assert_eq!(answers, [Ok(()), Ok(()), Err(None)]);
    let slow =
        ConcurrencyOptions { queries_per_second: Some(1.0), burst: 1, ..ConcurrencyOptions::default() };
    pacer.set_options(slow);
    pacer.finish(at(0), at(0), Signal::Answered);
    assert_eq!(begin(&mut pacer, at(0)), Ok(()));
    pacer.finish(at(0), at(0), Signal::Answered);
    assert_eq!(begin(&mut pacer, at(0)), Err(Some(at(1_000))));
}

// ---- simulated servers ----

/// Numbers in [0, 1), each determined only by its position in the sequence.
struct Fraction(u64);

impl Fraction {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 32).unwrap()) / f64::from(u32::MAX)
    }
}

/// A server that works on a number of requests at a time, each for as long as `milliseconds` says (by the second of the simulation
/// and chance), and lets further ones queue; beyond `refuses_above` it answers 429.
#[derive(Clone, Copy)]
struct Server {
    carries: usize,
    refuses_above: usize,
    milliseconds: fn(f64, f64) -> f64,
}

const UNBOUNDED: usize = usize::MAX;

/// One limiter that starts at this second.
struct Client {
    pacer: Pacer,
    starts: f64,
    answered: Vec<u32>,
}

/// Returns the responses per second of each client, second by second.
fn simulate(server: Server, starts: &[f64], seconds: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = starts
        .iter()
        .map(|&starts| Client {
            pacer: Pacer::new(ConcurrencyOptions::default()),
            starts,
            answered: vec![0; seconds],
        })
        .collect();
    let mut chance = Fraction(1);
    let mut now = 0_u64;
    let end = u64::try_from(seconds).unwrap() * 1_000_000;
    // Microseconds at which each slot of the server is free.
    let mut places: BinaryHeap<Reverse<u64>> = (0..server.carries.min(1_000)).map(|_| Reverse(0)).collect();
    let mut under_way = BinaryHeap::new();
    let mut turn = 0;
    while now < end {
        let moment = Moment::from_start(Duration::from_micros(now));
        let mut idle = 0;
        while idle < clients.len() {
            turn = (turn + 1) % clients.len();
            let in_flight: usize = clients.iter().map(|client| client.pacer.state().in_flight).sum();
            let client = &mut clients[turn];
            if client.starts > seconds_of(now) || begin(&mut client.pacer, moment).is_err() {
                idle += 1;
                continue;
            }
            idle = 0;
            if in_flight >= server.refuses_above {
                under_way.push(Reverse((now + 1_000, turn, now, false)));
                continue;
            }
            let takes = (server.milliseconds)(seconds_of(now), chance.next()) * 1_000.0;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // milliseconds of a test
            let takes = takes as u64;
            let Reverse(free) = places.pop().unwrap();
            let done = free.max(now) + takes;
            places.push(Reverse(done));
            under_way.push(Reverse((done, turn, now, true)));
        }
        let starts = clients.iter().map(|client| client.starts).filter(|starts| *starts > seconds_of(now));
        let next_start = starts.fold(f64::MAX, f64::min);
        let Some(&Reverse((done, client, begun, answered))) = under_way.peek() else {
            now += 1_000;
            continue;
        };
        if next_start < seconds_of(done) {
            now = now.max(Duration::from_secs_f64(next_start).as_micros().try_into().unwrap());
            if seconds_of(now) >= next_start {
                clients
                    .iter_mut()
                    .filter(|client| client.starts == next_start)
                    .for_each(|client| client.starts = 0.0);
                continue;
            }
        }
        under_way.pop();
        now = done;
        let client = &mut clients[client];
        let signal = if answered { Signal::Answered } else { Signal::Busy(None) };
        let moment = |micros| Moment::from_start(Duration::from_micros(micros));
        client.pacer.finish(moment(begun), moment(now), signal);
        if let Some(second) = client.answered.get_mut(usize::try_from(now / 1_000_000).unwrap()) {
            *second += u32::from(answered);
        }
    }
    clients
}

fn seconds_of(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

fn mean(answered: &[u32]) -> f64 {
    f64::from(answered.iter().sum::<u32>()) / f64::from(u32::try_from(answered.len()).unwrap())
}

/// Servers, the responses per second that they could give to 128 requests in flight at the end, and the share that must be reached.
const SERVERS: [(&str, Server, f64, f64); 9] = [
    (
        "fast and steady",
        Server { carries: 1_000, refuses_above: UNBOUNDED, milliseconds: |_, _| 5.0 },
        25_600.0,
        0.99,
    ),
    (
        "30 to 370 ms without any 429",
        Server { carries: 1_000, refuses_above: UNBOUNDED, milliseconds: |_, chance| 30.0 + 340.0 * chance },
        640.0,
        0.9,
    ),
    (
        "mostly 30 ms, one in ten 370 ms",
        Server {
            carries: 1_000,
            refuses_above: UNBOUNDED,
            milliseconds: |_, chance| if chance < 0.9 { 30.0 } else { 370.0 },
        },
        128.0 / 0.064,
        0.65,
    ),
    (
        "steps from 10 to 100 ms",
        Server {
            carries: 1_000,
            refuses_above: UNBOUNDED,
            milliseconds: |second, _| if second < 30.0 { 10.0 } else { 100.0 },
        },
        1_280.0,
        0.9,
    ),
    (
        "steps from 100 to 10 ms",
        Server {
            carries: 1_000,
            refuses_above: UNBOUNDED,
            milliseconds: |second, _| if second < 30.0 { 100.0 } else { 10.0 },
        },
        12_800.0,
        0.9,
    ),
    (
        "drifts from 10 to 70 ms within a minute",
        Server { carries: 1_000, refuses_above: UNBOUNDED, milliseconds: |second, _| 10.0 + second },
        128.0 / 0.055,
        0.5,
    ),
    (
        "carries 20 at a time",
        Server { carries: 20, refuses_above: UNBOUNDED, milliseconds: |_, chance| 5.0 + 10.0 * chance },
        2_000.0,
        0.95,
    ),
    (
        "carries 4 at a time",
        Server { carries: 4, refuses_above: UNBOUNDED, milliseconds: |_, chance| 5.0 + 10.0 * chance },
        400.0,
        0.95,
    ),
    (
        "refuses more than 40",
        Server { carries: 1_000, refuses_above: 40, milliseconds: |_, chance| 5.0 + 10.0 * chance },
        4_000.0,
        0.7,
    ),
];

/// Asserts that every row of figures is in docs/benchmarks.md, so that the documentation matches the simulation.
fn assert_documented(rows: &[Vec<String>]) {
    let rows: Vec<String> = rows.iter().map(|cells| format!("| {} |", cells.join(" | "))).collect();
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks.md");
    let page = std::fs::read_to_string(page).unwrap();
    let missing: Vec<&String> = rows.iter().filter(|row| !page.lines().any(|line| line == **row)).collect();
    assert!(missing.is_empty(), "docs/benchmarks.md lacks\n{}", rows.join("\n"));
}

/// Returns responses per second in the thirds of a minute.
fn thirds(answered: &[u32]) -> Vec<String> {
    answered.chunks(20).map(|third| format!("{:.0}", mean(third))).collect()
}

/// Throughput as a share of what the server could give to 128 requests in flight, over the last third of the time.
#[test]
fn throughput_comes_near_what_the_server_carries() {
    let (mut failed, mut rows) = (Vec::new(), Vec::new());
    for (name, server, possible, share) in SERVERS {
        let clients = simulate(server, &[0.0], 60);
        let reached = mean(&clients[0].answered[40..]) / possible;
        if reached < share {
            failed.push((name, reached));
        }
        let mut cells = vec![name.to_owned(), format!("{possible:.0}")];
        cells.extend(thirds(&clients[0].answered));
        cells.extend([format!("{:.0} %", 100.0 * reached), clients[0].pacer.state().limit.to_string()]);
        rows.push(cells);
    }
    assert_eq!(failed, []);
    assert_documented(&rows);
}

/// The queue of a server that handles 20 at a time stays a small multiple of that.
#[test]
fn a_saturated_server_is_not_piled_up() {
    let server =
        Server { carries: 20, refuses_above: UNBOUNDED, milliseconds: |_, chance| 5.0 + 10.0 * chance };
    let clients = simulate(server, &[0.0], 60);
    let limit = clients[0].pacer.state().limit;
    assert!((20..=80).contains(&limit), "{limit}");
}

/// Two collectors on one saturated server: neither starves, whichever came first. Jain's index is 1 for equal shares, and 0.5 if
/// one of them gets everything.
#[test]
fn collectors_share_a_saturated_server() {
    let server =
        Server { carries: 20, refuses_above: UNBOUNDED, milliseconds: |_, chance| 5.0 + 10.0 * chance };
    let mut rows = Vec::new();
    for starts in [[0.0, 0.0], [0.0, 20.0]] {
        let clients = simulate(server, &starts, 60);
        let shares: Vec<f64> = clients.iter().map(|client| mean(&client.answered[40..])).collect();
        let (sum, squares) =
            (shares.iter().sum::<f64>(), shares.iter().map(|share| share * share).sum::<f64>());
        let jain = sum * sum / (2.0 * squares);
        let name = if starts[1] > 0.0 { "the second begins 20 s later" } else { "both begin at once" };
        let mut cells = vec![name.to_owned()];
        cells.extend(clients.iter().map(|client| thirds(&client.answered).join(", ")));
        cells.push(format!("{jain:.2}"));
        rows.push(cells);
        assert!(jain >= 0.97 && sum >= 0.95 * 2_000.0, "{starts:?}: {shares:?}");
    }
    assert_documented(&rows);
}

/// A rate of zero is no limit; a caller who must wait learns for how long.
#[test]
fn a_rate_of_zero_is_none() {
    let options = |rate| ConcurrencyOptions {
        queries_per_second: Some(rate),
        burst: 2,
        ..ConcurrencyOptions::default()
    };
    let mut pacer = Pacer::new(options(0.0));
    for _ in 0..20 {
        begin(&mut pacer, at(0)).unwrap();
        pacer.release();
    }
    pacer.set_options(options(4.0));
    let begun = (0..9).take_while(|_| begin(&mut pacer, at(0)).is_ok()).count();
    assert_eq!(begun, 2, "the burst is as before");
    assert_eq!(pacer.check(at(0)), Err(Some(at(250))));
    assert_eq!(pacer.check(at(100)), Err(Some(at(250))));
    assert_eq!(begin(&mut pacer, at(250)), Ok(()));
}

/// Refusals of requests that began before the limit was reduced, or at that moment, are no new evidence.
#[test]
fn refusals_at_one_moment_count_once() {
    let mut pacer = Pacer::new(ConcurrencyOptions::default());
    for (moment, limit) in [(5, 19), (5, 19), (6, 11), (5, 11)] {
        pacer.refused(at(moment), None);
        assert_eq!(pacer.state().limit, limit, "at {moment}");
    }
}
