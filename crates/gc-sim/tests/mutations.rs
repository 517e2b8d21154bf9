//! Tests of the oracles: every defect that can be planted is found within a bounded number of seeds.

use gc_sim::defects::{DEFECTS, Defect};
use gc_sim::runner::{hunt, noticed};

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

/// Seeds that show defects that few worlds show. They are tried before the search, which would take most of the time of this test.
const SHOWN_BY: [(Defect, u64); 41] = [
    (Defect::BookmarkBelieved, 1_008_150),
    (Defect::ClaimUsersUnread, 1_000_339),
    (Defect::CrossedBelieved, 1_000_774),
    (Defect::EmptyObjectBelieved, 1_016_906),
    (Defect::FailureIsSuccess, 1_000_336),
    (Defect::FinalizerByName, 1_003_130),
    (Defect::ForbiddenIsAbsent, 1_006_040),
    (Defect::FoundForgotten, 1_003_197),
    (Defect::GoneBelieved, 1_001_138),
    (Defect::HistoryOnlyForward, 1_007_204),
    (Defect::JobUnguarded, 1_002_212),
    (Defect::LeaseNodeUnread, 1_002_602),
    (Defect::LeftOutForgotten, 1_001_962),
    (Defect::ListRemoves, 1_001_396),
    (Defect::MisnamedRemovalBelieved, 1_000_945),
    (Defect::NamespaceBreakerUnasked, 1_002_554),
    (Defect::NamespaceDiscoveryAssumed, 1_000_984),
    (Defect::NamespaceInheritanceRefused, 1_002_143),
    (Defect::NamespaceUidUnchecked, 1_001_757),
    (Defect::NamespaceUnansweredForgotten, 1_000_599),
    (Defect::NodeAbsenceUnread, 1_000_586),
    (Defect::NodeByOneAnswer, 1_000_803),
    (Defect::NodeProofForEver, 1_000_312),
    (Defect::NotFoundElsewhereBelieved, 1_000_300),
    (Defect::NotFoundOtherBelieved, 1_000_875),
    (Defect::NothingBelieved, 1_000_317),
    (Defect::PolicyListUnfinished, 1_002_268),
    (Defect::PolicyShownAssumed, 1_002_265),
    (Defect::PolicySpecAssumed, 1_000_507),
    (Defect::PolicyUnguarded, 1_005_913),
    (Defect::RecreationBelieved, 1_002_777),
    (Defect::RemovalBelieved, 1_002_263),
    (Defect::RemovedByName, 1_000_699),
    (Defect::ReportedOrphaningBelieved, 1_000_533),
    (Defect::ReportedRemovalBelieved, 1_000_594),
    (Defect::ReportedWaitingBelieved, 1_002_392),
    (Defect::SecondListUnmade, 1_001_962),
    (Defect::TimeoutIsAbsent, 1_000_385),
    (Defect::UnservedIsAbsent, 1_001_183),
    (Defect::UnversionedRemovalBelieved, 1_000_619),
    (Defect::WithdrawalUnawaited, 1_000_829),
];

/// Returns the oracle that notices a defect first.
fn found(defect: Defect) -> Option<&'static str> {
    let seeds = match defect {
        Defect::HistoryOnlyForward | Defect::ForbiddenIsAbsent => SEEDS_OF_RARE,
        _ if defect.is_credulity() => SEEDS_OF_LIARS,
        _ => SEEDS,
    };
    let shown_by = SHOWN_BY.iter().find(|(shown, _)| *shown == defect);
    let known = shown_by.and_then(|(_, seed)| noticed(defect, *seed));
    known.or_else(|| hunt(defect, 1, seeds).oracles.first().copied())
}

fn all_found(part: usize, parts: usize) {
    let mut missed = Vec::new();
    for (defect, name, _) in DEFECTS.into_iter().skip(part).step_by(parts) {
        let oracle = found(defect);
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
