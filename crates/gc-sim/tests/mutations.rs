//! The teeth: every defect that can be planted is found, each within a bounded number of seeds.

use gc_sim::defects::{DEFECTS, Defect};
use gc_sim::runner::hunt;

/// Number of seeds within which each defect must be found; `kubegc-sim --mutations` prints how many it takes.
const SEEDS: u64 = 6_000;

fn all_found(part: usize, parts: usize) {
    let missed: Vec<(Defect, &str)> = DEFECTS
        .into_iter()
        .skip(part)
        .step_by(parts)
        .filter(|(defect, ..)| hunt(*defect, 1, SEEDS).median().is_none())
        .map(|(defect, name, _)| (defect, name))
        .collect();
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}

#[test]
fn the_defects_are_found_a() {
    all_found(0, 4);
}

#[test]
fn the_defects_are_found_b() {
    all_found(1, 4);
}

#[test]
fn the_defects_are_found_c() {
    all_found(2, 4);
}

#[test]
fn the_defects_are_found_d() {
    all_found(3, 4);
}
