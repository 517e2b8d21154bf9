//! Properties of journals, as the body of a fuzz target (`fuzz/` at the root), which also runs as a test.
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use gc_process::journal::{Found, Selection, scan};
use serde_json::Value;

use super::journal::table;

/// Checks that in any journal file every line that is an entry is found, every other whole line is counted, and a torn last line is
/// neither. Entries that were found must be printable.
pub fn journal_lines(data: &[u8]) {
    let read = |data: &[u8]| {
        let mut found = Found::default();
        scan(data, &Selection { tail: 0, ..Selection::default() }, &mut found).unwrap();
        found
    };
    let found = read(data);
    let mut lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let last = lines.pop().unwrap_or_default();
    let entry = |line: &[u8]| serde_json::from_slice::<Value>(line).ok().filter(Value::is_object);
    let whole: Vec<Value> = lines.iter().filter_map(|line| entry(line)).collect();
    assert_eq!(found.unreadable, lines.len() - whole.len());
    assert!(found.entries.iter().eq(whole.iter().chain(entry(last).as_ref())));
    // The writer is killed in the middle of another line.
    let torn = read(&[data, b"\n{\"time\":\"2026-".as_slice()].concat());
    assert_eq!(torn.unreadable, read(&[data, b"\n".as_slice()].concat()).unreadable);
    for is_wide in [false, true] {
        table(&found.entries, is_wide, &mut Vec::<u8>::new()).unwrap();
    }
}

#[cfg(test)]
gc_fuzz_replay::replay_tests!(journal_lines);
