//! Many worlds in which one response lies: nothing that lives is lost because of it.

mod support;

use gc_sim::liars::Lie;
use gc_sim::runner::run_seeds;
use gc_sim::world::Options;

/// Number of worlds in one test.
const SEEDS_PER_TEST: u64 = 1_000;

fn nothing_is_lost(from: u64) {
    let options = Options { liars: true, ..Options::default() };
    let summary = run_seeds(from, SEEDS_PER_TEST, 1, options);
    support::assert_unbroken(&summary, "--liars ");
    for lie in Lie::ALL {
        assert!(summary.happened.contains_key(lie.name()), "no {}", lie.name());
    }
}

#[test]
fn nothing_is_lost_to_a_liar_00() {
    nothing_is_lost(0);
}

#[test]
fn nothing_is_lost_to_a_liar_01() {
    nothing_is_lost(SEEDS_PER_TEST);
}

/// Seeds with liars that broke an oracle: an event said of an owner without dependents that it orphans them, a restored store gave a
/// version again, and an event showed a version before the server had it.
const ONCE_BROKEN: [u64; 6] = [350_022_543, 370_126_544, 370_141_950, 410_623_123, 410_675_145, 410_762_108];

#[test]
fn worlds_with_liars_that_were_broken_once_are_not() {
    let options = Options { liars: true, ..Options::default() };
    support::assert_mended(&ONCE_BROKEN, options, "--liars ");
}
