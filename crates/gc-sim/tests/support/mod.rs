//! What the tests of many worlds share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::fmt::Write as _;

use gc_sim::runner::{Summary, run_seed};
use gc_sim::world::Options;

/// Checks that no world was broken; otherwise prints the commands, with these flags, that repeat those that were.
pub fn assert_unbroken(summary: &Summary, flags: &str) {
    let mut found = String::new();
    for (seed, violation) in &summary.failures {
        let _ = writeln!(found, "{violation}\n  repeat with: kubegc-sim {flags}--seed {seed}");
    }
    assert!(summary.failures.is_empty(), "{found}");
}

/// Checks that these worlds, which were broken once, are not; otherwise prints the command, with these flags, that repeats one.
pub fn assert_mended(seeds: &[u64], options: Options, flags: &str) {
    for &seed in seeds {
        let violation = run_seed(seed, options).violation;
        assert!(violation.is_none(), "{violation:?}\n  repeat with: kubegc-sim {flags}--seed {seed}");
    }
}

/// Checks that each of these has happened often enough, so that the worlds are not quiet.
pub fn assert_happened(summary: &Summary, least: &[(&str, u64)]) {
    for (what, least) in least {
        let count = summary.happened.get(what).copied().unwrap_or_default();
        assert!(count >= *least, "{what}: {count} times, and not {least}: {:?}", summary.happened);
    }
}
