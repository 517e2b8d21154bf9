//! Keeps one word for each thing on the command line, in all commands and flags. `flags.rs` checks which of kubectl's flags each
//! command accepts.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, Command};

/// Flags with a short form that they have in every command.
const SHORT: [(&str, char); 7] = [
    ("namespace", 'n'),
    ("all-namespaces", 'A'),
    ("selector", 'l'),
    ("filename", 'f'),
    ("watch", 'w'),
    ("output", 'o'),
    ("yes", 'y'),
];
/// Words that no flag uses, each with the word that is used instead.
const UNUSED: [(&str, &str); 6] = [
    ("timeout", "request-timeout"),
    ("listen", "bind-address"),
    ("state-dir", "data-dir"),
    ("address", "bind-address"),
    ("quiet", "log-level"),
    ("all", "all-namespaces"),
];
/// Flags whose meaning differs between commands, with the reason.
const SEVERAL: [(&str, &str); 3] = [
    ("journal", "a file to read, a file to write, or where entries are found"),
    ("token", "of a server to accept, or of a user to send"),
    ("namespace", "`rbac` writes about an account, and asks no cluster"),
];
/// Words for stuck that are not Kubernetes'.
const NOT_STUCK: [&str; 4] = ["hang", "hangs", "hanging", "hung"];
/// Propagation policies as named by kubectl.
const CASCADE: [&str; 3] = ["background", "foreground", "orphan"];

/// Collects every visible command, by the words that call it.
fn commands(parent: &Command, path: &str, found: &mut Vec<(String, Command)>) {
    for command in parent.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help") {
        let path = format!("{path} {}", command.get_name()).trim().to_owned();
        found.push((path.clone(), command.clone()));
        commands(command, &path, found);
    }
}

fn all() -> Vec<(String, Command)> {
    let mut found = Vec::new();
    commands(&kubegc::described(), "", &mut found);
    found
}

/// Returns the shown flags of a command with their names.
fn flags(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let shown = command.get_arguments().filter(|flag| !flag.is_hide_set());
    shown.filter_map(|flag| Some((flag.get_long()?, flag)))
}

fn help(flag: &Arg) -> String {
    flag.get_help().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn a_flag_has_one_short_form_and_one_kind_of_value() {
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, command) in all() {
        for (name, flag) in flags(&command) {
            // `journal -f` follows, like `kubectl logs -f`; `rbac --namespace` is not the namespace of a question.
            let expected = SHORT.iter().find(|(long, _)| *long == name).map(|(_, short)| *short);
            if let Some(short) = expected.filter(|_| path != "rbac") {
                assert_eq!(flag.get_short(), Some(short), "{path} --{name}");
            }
            let value = flag.get_value_names().unwrap_or_default().iter().map(ToString::to_string);
            values.entry(name.to_owned()).or_default().insert(value.collect::<Vec<_>>().join(" "));
        }
    }
    let several = |name: &str| SEVERAL.iter().any(|(known, _)| *known == name);
    values.retain(|name, kinds| kinds.len() > 1 && !several(name));
    assert!(values.is_empty(), "{values:#?}");
}

#[test]
fn one_thing_has_one_name() {
    for (path, command) in all() {
        for (name, flag) in flags(&command) {
            let unused = UNUSED.iter().find(|(word, _)| *word == name);
            assert!(
                unused.is_none(),
                "{path} --{name}: {}",
                unused.map(|(_, word)| *word).unwrap_or_default()
            );
            let value = flag.get_value_names().unwrap_or_default().first().map(ToString::to_string);
            if value.as_deref() == Some("ADDRESS:PORT") && name != "collector" {
                assert!(name.ends_with("bind-address"), "{path} --{name}: an address to listen on");
            }
            if name == "cascade" {
                let meant: Vec<String> =
                    flag.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
                assert_eq!(meant, CASCADE, "{path} --cascade");
            }
        }
        let operands = command.get_positionals().filter(|operand| operand.get_id() == "objects");
        for operand in operands {
            let named: Vec<String> =
                operand.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
            assert_eq!(named, ["OBJECT"], "{path}");
        }
    }
}

/// Every command with output formats has the same ones, and can omit the headings.
#[test]
fn what_has_formats_has_them_all() {
    for (path, command) in all() {
        let Some((_, output)) = flags(&command).find(|(name, _)| *name == "output") else { continue };
        assert_eq!(output.get_short(), Some('o'), "{path}");
        assert!(flags(&command).any(|(name, _)| name == "no-headers"), "{path} -o without --no-headers");
        let help = help(output);
        // Images and containers have the formats of crictl; protection has those of manifests.
        if !["node", "protect", "release"].contains(&path.as_str()) {
            assert!(
                help.starts_with("Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…"),
                "{path}: {help}"
            );
        }
    }
}

/// Nothing has been released yet, so a renamed command keeps no second name for users of the first.
#[test]
fn nothing_has_a_second_name() {
    for (path, command) in all() {
        assert_eq!(command.get_all_aliases().count(), 0, "{path}");
        for flag in command.get_arguments() {
            let aliases = flag.get_all_aliases().unwrap_or_default();
            assert!(aliases.is_empty(), "{path} --{}: {aliases:?}", flag.get_id());
        }
    }
}

#[test]
fn help_says_stuck_and_speaks_in_one_voice() {
    let is_word = |text: &str, word: &str| {
        text.split(|c: char| !c.is_alphabetic()).any(|found| found.eq_ignore_ascii_case(word))
    };
    for (path, command) in all() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let mut texts = vec![("about".to_owned(), about)];
        texts.extend(flags(&command).map(|(name, flag)| (format!("--{name}"), help(flag))));
        // This is the whole output of `--help`, with the values of each flag and the text after the flags.
        let whole = command.clone().render_long_help().to_string();
        for word in NOT_STUCK {
            assert!(!is_word(&whole, word), "{path} --help says {word:?}, and means stuck: {whole}");
        }
        for (what, text) in texts {
            assert!(
                text.starts_with(|c: char| c.is_uppercase() || !c.is_alphabetic()),
                "{path} {what}: {text}"
            );
            assert!(!text.ends_with('.'), "{path} {what}: {text}");
        }
    }
}

#[test]
fn words_that_are_nearly_right_are_corrected() {
    for (line, meant) in [
        ("kubegc stcuk", "stuck"),
        ("kubegc docter", "doctor"),
        ("kubegc stuck --namespce shop", "--namespace"),
        ("kubegc plan delete ns/shop --cascade=orphn", "orphan"),
    ] {
        let error =
            kubegc::described().try_get_matches_from(line.split(' ')).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(meant) && error.contains("similar"), "{line}: {error}");
    }
}
