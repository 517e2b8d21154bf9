//! Tests of the oracles: every defect that can be planted is found within a bounded number of seeds.

use gc_sim::defects::{DEFECTS, Defect};
use gc_sim::runner::hunt;

/// Number of seeds within which each defect must be found; `kubegc-sim --mutations` prints the numbers that are needed.
const SEEDS: u64 = 6_000;
/// The same number for defects that believe one response: one world in twenty has a liar whose lie they believe.
const SEEDS_OF_LIARS: u64 = 25_000;
/// The same number for `history-only-forward` and `forbidden-is-absent`, which show in fewer worlds since leases became short.
const SEEDS_OF_RARE: u64 = 10_000;

/// Each oracle, and a defect that it notices before any other does. Anything between the engine and the world cannot break the
/// engine's invariants, so no planted defect is noticed only by `invariants`.
const NOTICED_BY: [(&str, Defect); 19] = [
    ("safety", Defect::NoGuardAtAll),
    ("identity", Defect::FinalizerByName),
    ("scope", Defect::FinalizersAll),
    ("finalizers", Defect::FinalizerEarly),
    ("orphans", Defect::SecondListUnmade),
    ("order", Defect::AlwaysBackground),
    ("economy", Defect::Duplicates),
    ("liveness", Defect::RelistAdds),
    ("threshold", Defect::JobsHurried),
    ("version", Defect::JobUnguarded),
    ("keep", Defect::KeepIgnored),
    ("proof", Defect::NodeByOneAnswer),
    ("clocks", Defect::ClockUncompared),
    ("lease", Defect::ActsOn),
    ("policy", Defect::PolicyUnshown),
    ("namespaces", Defect::NamespaceAnswersLost),
    ("restraints", Defect::PauseIgnored),
    ("bounds", Defect::PolicyRunUnbounded),
    ("law", Defect::NodeAbsenceUnread),
];

fn all_found(part: usize, parts: usize) {
    let mut missed = Vec::new();
    for (defect, name, _) in DEFECTS.into_iter().skip(part).step_by(parts) {
        let seeds = match defect {
            Defect::HistoryOnlyForward | Defect::ForbiddenIsAbsent => SEEDS_OF_RARE,
            _ if defect.is_credulity() => SEEDS_OF_LIARS,
            _ => SEEDS,
        };
        let finding = hunt(defect, 1, seeds);
        let oracle = finding.oracles.first().copied();
        let expected = NOTICED_BY.iter().find(|(_, noticed)| *noticed == defect).map(|(oracle, _)| *oracle);
        // A world that panics has noticed nothing.
        if oracle
            .is_none_or(|oracle| oracle == "panic" || expected.is_some_and(|expected| expected != oracle))
        {
            missed.push((name, oracle, expected));
        }
    }
    assert!(missed.is_empty(), "not noticed in time, or by another oracle: {missed:?}");
}

#[test]
fn the_defects_are_found_a() {
    all_found(0, 8);
}

#[test]
fn the_defects_are_found_b() {
    all_found(1, 8);
}

#[test]
fn the_defects_are_found_c() {
    all_found(2, 8);
}

#[test]
fn the_defects_are_found_d() {
    all_found(3, 8);
}

#[test]
fn the_defects_are_found_e() {
    all_found(4, 8);
}

#[test]
fn the_defects_are_found_f() {
    all_found(5, 8);
}

#[test]
fn the_defects_are_found_g() {
    all_found(6, 8);
}

#[test]
fn the_defects_are_found_h() {
    all_found(7, 8);
}
