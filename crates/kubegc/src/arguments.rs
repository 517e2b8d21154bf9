//! Cluster flags before the command, as kubectl accepts them: `kubegc -n shop stuck`.

use std::ffi::OsString;

use clap::{Arg, Command};

/// A command that has all the flags for clusters and namespaces.
const EXAMPLE: &str = "stuck";
/// The flags that may stand before the command.
const GLOBAL: [&str; 11] = [
    "namespace",
    "all-namespaces",
    "kubeconfig",
    "context",
    "cluster",
    "user",
    "server",
    "token",
    "as",
    "as-group",
    "request-timeout",
];

/// Returns the global flag that a word names, and whether its value is the next word.
pub(crate) fn global<'a>(command: &'a Command, word: &str) -> Option<(&'a Arg, bool)> {
    let (name, is_attached) = word.split_once('=').map_or((word, false), |(name, _)| (name, true));
    let flags = command.find_subcommand(EXAMPLE)?.get_arguments();
    let mut flags = flags.filter(|flag| flag.get_long().is_some_and(|long| GLOBAL.contains(&long)));
    if let Some(long) = name.strip_prefix("--") {
        let flag = flags.find(|flag| flag.get_long() == Some(long))?;
        return Some((flag, flag.get_action().takes_values() && !is_attached));
    }
    let mut letters = name.strip_prefix('-')?.chars();
    let letter = letters.next()?;
    let flag = flags.find(|flag| flag.get_short() == Some(letter))?;
    let is_attached = is_attached || letters.next().is_some();
    Some((flag, flag.get_action().takes_values() && !is_attached))
}

/// Moves global flags behind the command. Returns any other command line unchanged, for the parser to explain.
pub(crate) fn ordered(command: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let mut at = 1;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        match global(command, word) {
            Some((_, true)) => at += 2,
            Some((_, false)) => at += 1,
            None => break,
        }
    }
    let commands = words.get(at..).unwrap_or_default();
    let mut below = command;
    let mut depth = 0;
    while let Some(found) = commands.get(depth).and_then(|word| below.find_subcommand(word)) {
        below = found;
        depth += 1;
    }
    if depth == 0 {
        return words;
    }
    let (flags, rest) = (&words[1..at], &commands[depth..]);
    [&words[..1], &commands[..depth], flags, rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn global_flags_stand_before_or_after_the_command() {
        let command = crate::described();
        for (given, expected) in [
            ("kubegc -n shop stuck", "kubegc stuck -n shop"),
            ("kubegc -nshop stuck -o json", "kubegc stuck -nshop -o json"),
            ("kubegc --context=a --as ann why pod/x", "kubegc why --context=a --as ann pod/x"),
            ("kubegc -A plan delete ns/shop", "kubegc plan delete -A ns/shop"),
            ("kubegc stuck -n shop", "kubegc stuck -n shop"),
            ("kubegc --server", "kubegc --server"),
            ("kubegc -n shop", "kubegc -n shop"),
            ("kubegc -n shop nothing", "kubegc -n shop nothing"),
            ("kubegc --output json stuck", "kubegc --output json stuck"),
            ("kubegc --help", "kubegc --help"),
            ("kubegc up -- kubectl -n shop get pods", "kubegc up -- kubectl -n shop get pods"),
        ] {
            let words = given.split(' ').map(OsString::from).collect();
            let expected: Vec<OsString> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(ordered(&command, words), expected, "{given}");
        }
    }

    #[test]
    fn every_global_flag_is_one_of_the_cluster_or_of_namespaces() {
        let command = crate::described();
        for long in GLOBAL {
            assert!(global(&command, &format!("--{long}")).is_some(), "{long}");
        }
        assert!(global(&command, "--output").is_none());
    }
}
