//! Every flag must be named by a test: otherwise it could break without a failing test.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Command;

use super::{repository, texts};

/// Tests about flags themselves, which name many and run none.
const ABOUT_FLAGS: [&str; 2] = ["tests/documentation", "tests/architecture"];
/// Flags with short names that tests prefer.
const SHORT: [(&str, &str); 4] =
    [("--all-namespaces", "\"-A\""), ("--namespace", "\"-n\""), ("--selector", "-l "), ("--watch", "\"-w\"")];

/// Collects the long names of all visible flags of all commands.
fn flags(parent: &Command, found: &mut BTreeSet<String>) {
    for command in parent.get_subcommands().filter(|command| !command.is_hide_set()) {
        let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
        let long = shown.filter_map(|argument| argument.get_long());
        found.extend(long.filter(|name| !["help", "version"].contains(name)).map(|name| format!("--{name}")));
        flags(command, found);
    }
}

/// Returns the test part of a source file; empty if there is none.
fn tests_of(path: &Path, text: &str) -> String {
    let is_within = |folder: &str| path.components().any(|part| part.as_os_str() == folder);
    if is_within("tests") || path.file_name().is_some_and(|name| name == "tests.rs") {
        return text.to_owned();
    }
    text.split_once("#[cfg(test)]\nmod tests {").map_or_else(String::new, |(_, tests)| tests.to_owned())
}

/// Reports whether a text has a flag, and not only a longer one that starts with it.
fn has_flag(text: &str, flag: &str) -> bool {
    let continues = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
    text.match_indices(flag).any(|(at, _)| !continues(&text[at + flag.len()..]))
}

#[test]
fn every_flag_is_named_by_a_test() {
    let root = repository();
    let mut all = String::new();
    for (path, text) in texts(&root.join("crates"), ".rs") {
        let shown = path.to_string_lossy().into_owned();
        if !ABOUT_FLAGS.iter().any(|folder| shown.contains(folder)) {
            all.push_str(&tests_of(&path, &text));
        }
    }
    for text in texts(&root.join("ui/test"), ".mjs").values() {
        all.push_str(text);
    }
    let mut found = BTreeSet::new();
    flags(&kubegc::described(), &mut found);
    assert!(found.len() > 100, "{found:?}");
    let is_named = |flag: &String| {
        let short = SHORT.iter().find(|(long, _)| long == flag).map(|(_, short)| *short);
        has_flag(&all, flag) || short.is_some_and(|short| all.contains(short))
    };
    let unnamed: Vec<&String> = found.iter().filter(|flag| !is_named(flag)).collect();
    assert!(unnamed.is_empty(), "no test names {unnamed:?}: write one that runs the command with it");
}

#[test]
fn a_longer_flag_does_not_count() {
    assert!(has_flag("[\"--tail\", \"1\"]", "--tail") && has_flag("--tail=1", "--tail"));
    assert!(!has_flag("--tail-lines --tails", "--tail"));
}
