//! Many worlds, judged by the oracles; small worlds, all of them; and proof that the oracles have teeth.

use std::fmt::Write as _;

use gc_sim::defects::DEFECTS;
use gc_sim::runner::{hunt, run_seed, run_seeds, run_story, shrink};
use gc_sim::small::explore;
use gc_sim::story::Story;
use gc_sim::world::Options;

/// Worlds of one test; several tests run at a time.
const SEEDS_PER_TEST: u64 = 2_500;

fn nothing_breaks(from: u64, count: u64) {
    let summary = run_seeds(from, count, 1, Options::default());
    let mut told = String::new();
    for (seed, violation) in &summary.failures {
        let _ = writeln!(told, "{violation}\n  repeat with: kubegc-sim --seed {seed}");
    }
    assert!(summary.failures.is_empty(), "{told}");
    assert!(summary.collected > count / 2, "the worlds are too quiet: {summary:?}");
}

#[test]
fn nothing_breaks_in_worlds_a() {
    nothing_breaks(0, SEEDS_PER_TEST);
}

#[test]
fn nothing_breaks_in_worlds_b() {
    nothing_breaks(SEEDS_PER_TEST, SEEDS_PER_TEST);
}

#[test]
fn every_fault_really_happens() {
    let summary = run_seeds(0, 400, 1, Options::default());
    for what in [
        "clock jumps",
        "crashes",
        "definitions changed",
        "discoveries failed",
        "leader changes",
        "old leaders woken",
        "requests failed",
        "stores restored",
        "streams broken",
    ] {
        assert!(summary.happened.contains_key(what), "no {what}: {:?}", summary.happened);
    }
}

#[test]
fn a_seed_decides_everything() {
    for seed in 0..40 {
        let options = Options { trace: true, ..Options::default() };
        let (one, other) = (run_seed(seed, options), run_seed(seed, options));
        assert_eq!((one.digest, one.trace), (other.digest, other.trace), "seed {seed}");
    }
}

#[test]
fn a_failure_becomes_a_short_story() {
    let options = Options { defect: gc_sim::defects::by_name("first-owner-only"), trace: false };
    let seed = (0..500).find(|&seed| run_seed(seed, options).violation.is_some());
    let story = Story::new(seed.unwrap_or_default());
    let Some(violation) = run_story(&story, options).violation else {
        panic!("the defect was not noticed");
    };
    let short = shrink(&story, options, violation.oracle);
    let again = run_story(&short, options).violation.map(|violation| violation.oracle);
    assert_eq!(again, Some(violation.oracle));
    assert!(short.steps.len() * 2 < story.steps.len(), "{} of {}", short.steps.len(), story.steps.len());
}

#[test]
fn two_objects_in_every_order() {
    let census = explore(2, 6, 1);
    assert_eq!(census.violations, Vec::new());
    assert_eq!(census.worlds, 16 * 2 * 3 * 2 * 3);
}

#[test]
fn three_objects_in_every_graph() {
    let census = explore(3, 2, 1);
    assert_eq!(census.violations, Vec::new());
    assert_eq!(census.worlds, 512 * 2 * 4 * 3 * 3);
}

#[test]
fn planted_defects_are_noticed() {
    let mut missed = Vec::new();
    for (defect, name, _) in DEFECTS {
        if hunt(defect, 1, 400).median().is_none() {
            missed.push(name);
        }
    }
    assert_eq!(missed, Vec::<&str>::new());
}
