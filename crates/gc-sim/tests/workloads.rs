//! Worlds in which workload controllers run beside the collectors, and the defects that their oracles must notice.

use std::fmt::Write as _;

use gc_sim::workloads::{DEFECTS, hunt, run, run_seeds};

/// Number of seeds in one test; the tests run at the same time on all cores.
const SEEDS_PER_TEST: u64 = 75;
/// Number of seeds within which each defect must be noticed.
const SEEDS_PER_DEFECT: u64 = 100;

/// First seed whose world lacks some of the parts.
const FIRST_PARTIAL_SEED: u64 = 25_000;
/// First seed in whose world deleted pods may take some time to end.
const FIRST_SEED_WITH_TERMINATIONS: u64 = 250_000;

fn nothing_breaks(part: u64) {
    nothing_breaks_from(part * SEEDS_PER_TEST);
}

fn nothing_breaks_from(seed: u64) {
    let summary = run_seeds(seed, SEEDS_PER_TEST, 1);
    let mut found = String::new();
    for (seed, violation) in &summary.failures {
        let _ = writeln!(found, "{violation}\n  repeat with: kubegc-sim --workloads --seed {seed}");
    }
    assert!(summary.failures.is_empty(), "{found}");
    assert!(summary.collected > SEEDS_PER_TEST, "the worlds are too quiet: {}", summary.collected);
}

#[test]
fn nothing_breaks_a() {
    nothing_breaks(0);
}

#[test]
fn nothing_breaks_b() {
    nothing_breaks(1);
}

#[test]
fn nothing_breaks_c() {
    nothing_breaks(2);
}

#[test]
fn nothing_breaks_d() {
    nothing_breaks(3);
}

#[test]
fn nothing_breaks_where_parts_are_missing() {
    nothing_breaks_from(FIRST_PARTIAL_SEED);
    nothing_breaks_from(FIRST_PARTIAL_SEED + SEEDS_PER_TEST);
}

#[test]
fn nothing_breaks_where_pods_take_time_to_end() {
    nothing_breaks_from(FIRST_SEED_WITH_TERMINATIONS);
}

/// Seeds with violations in long runs (docs/proof.md has the causes).
const ONCE_BROKEN: [u64; 12] =
    [3_352, 7_339, 8_480, 10_379, 10_970, 13_583, 16_671, 18_842, 19_516, 20_801, 106_053, 134_022];

#[test]
fn worlds_that_were_broken_once_are_not() {
    for seed in ONCE_BROKEN {
        let violation = run(seed, None, false).violation;
        assert!(violation.is_none(), "{violation:?}\n  repeat with: kubegc-sim --workloads --seed {seed}");
    }
}

#[test]
fn every_planted_defect_is_noticed() {
    let missed: Vec<&str> = DEFECTS
        .into_iter()
        .filter(|(defect, _)| hunt(*defect, SEEDS_PER_DEFECT).is_none())
        .map(|(_, name)| name)
        .collect();
    assert!(missed.is_empty(), "not noticed within {SEEDS_PER_DEFECT} seeds: {missed:?}");
}

#[test]
fn a_seed_determines_everything() {
    for seed in 0..4 {
        let (one, other) = (run(seed, None, true), run(seed, None, true));
        assert_eq!(one.trace, other.trace, "seed {seed}");
        assert!(one.requests > 0, "seed {seed}");
    }
}
