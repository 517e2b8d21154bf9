//! The snippets of the book: commands must be valid for the real command line, YAML must be valid, and Rust must be part of the
//! compiled code. `walks.rs` runs everything that can be run.

use std::collections::BTreeSet;
use std::io::Write as _;

use clap::error::ErrorKind;
use serde_json::{Value, json};

use super::blocks::{Block, blocks};
use super::{pages, repository, texts};

/// Returns the words of a line for a shell, up to a comment or to an explanation after two spaces.
fn words(line: &str) -> Vec<String> {
    let (mut found, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut before = ' ';
    for character in line.trim().chars() {
        match character {
            _ if quote == Some(character) => quote = None,
            _ if quote.is_some() => word.get_or_insert_default().push(character),
            '"' | '\'' => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            '#' if word.is_none() => break,
            ' ' if before == ' ' && !found.is_empty() => break,
            ' ' => found.extend(word.take()),
            ';' => {
                found.extend(word.take());
                found.push(";".to_owned());
            }
            _ => word.get_or_insert_default().push(character),
        }
        before = character;
    }
    found.extend(word);
    found
}

/// Returns the calls of kubegc in a line, each with its arguments.
fn calls(line: &str) -> Vec<Vec<String>> {
    let words = words(line.trim_start_matches("$ "));
    let mut found = Vec::new();
    for command in words.split(|word| [";", "&", "&&", "|", "||"].contains(&word.as_str())) {
        // The benchmark starts kubegc, and so does a `cargo run` that names no other package.
        let is_ours = command.starts_with(&["cargo".into(), "run".into()]) && !command.contains(&"-p".into());
        let begins = |(at, word): (usize, &String)| {
            let is_first = command[..at].iter().all(|before| before.contains('='));
            let is_started = at > 0 && command[at - 1] == "--" && command[0] == "kubegc-bench";
            (word == "kubegc" && (is_first || is_started)) || (word == "--" && is_ours)
        };
        if let Some(at) = command.iter().enumerate().position(begins) {
            let arguments = command[at + 1..].iter().take_while(|word| *word != ">");
            found.push(arguments.cloned().collect());
        }
    }
    found
}

/// Returns the reason why clap refuses arguments. A synopsis contains placeholders, so only its flags must be real.
fn refusal(arguments: &[String]) -> Option<String> {
    let is_open = |word: &String| word.contains(['[', '<', '|', '…']);
    if arguments.iter().any(is_open) {
        return unknown_flag(arguments);
    }
    let whole = std::iter::once("kubegc").chain(arguments.iter().map(String::as_str));
    let error = kubegc::described().try_get_matches_from(whole).err()?;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        // A command that is only named is fine.
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            if !arguments.iter().any(|word| word.starts_with('-')) && arguments.len() < 3 =>
        {
            None
        }
        _ => Some(error.to_string()),
    }
}

/// Returns a flag of a synopsis that its command does not have.
fn unknown_flag(arguments: &[String]) -> Option<String> {
    let mut command = kubegc::described();
    command.build();
    let mut command = &command;
    for word in arguments {
        let word = word.trim_start_matches('[').trim_end_matches(']');
        if let Some(sub) = command.find_subcommand(word) {
            command = sub;
            continue;
        }
        let flag = word.split('=').next().unwrap_or_default();
        let is_known = command.get_arguments().any(|argument| {
            let long = flag.strip_prefix("--").map(|flag| argument.get_long() == Some(flag));
            let short = flag.strip_prefix('-').map(|flag| argument.get_short() == flag.chars().next());
            long.or(short).unwrap_or(true)
        });
        if flag == "--" {
            break;
        }
        if flag.starts_with('-') && !is_known {
            return Some(format!("{} has no {flag}", command.get_name()));
        }
    }
    None
}

/// Returns every page for readers with its code blocks.
fn of_the_book() -> Vec<(String, Vec<Block>)> {
    let is_for_readers = |path: &std::path::Path| {
        !path.components().any(|part| part.as_os_str() == "spec") && !path.ends_with("CHANGELOG.md")
    };
    let pages = pages().into_iter().filter(|(path, _)| is_for_readers(path));
    pages.map(|(path, text)| (path.display().to_string(), blocks(&text))).collect()
}

#[test]
fn calls_are_found_where_they_are() {
    let lines = ["$ kubegc a -- b &   # c", "X=1 kubegc 'd e' > g; kubegc f    text"];
    let found: Vec<_> = lines.iter().flat_map(|line| calls(line)).collect();
    assert_eq!(found, [vec!["a", "--", "b"], vec!["d e"], vec!["f"]]);
    assert_eq!(calls("cargo run -- demo"), [["demo"]]);
    assert_eq!(calls("kubegc-bench launch -- kubegc up"), [["up"]]);
    for (arguments, is_fine) in [
        ("up --ephemeral", true),
        ("up --ephemral", false),
        ("stuck", true),
        ("nonsense", false),
        ("garbage [-n NAMESPACE] [-o text|json]", true),
        ("garbage [--namspace NAMESPACE]", false),
    ] {
        assert_eq!(refusal(&words(arguments)).is_none(), is_fine, "{arguments}");
    }
}

#[test]
fn every_command_in_the_book_is_one() {
    let (mut seen, mut wrong) = (0, BTreeSet::new());
    for (path, snippets) in of_the_book() {
        for snippet in snippets {
            let text = snippet.lines.join("\n").replace("\\\n", " ");
            for arguments in text.lines().flat_map(calls) {
                seen += 1;
                if let Some(why) = refusal(&arguments) {
                    wrong.insert(format!("{path}: kubegc {}: {why}", arguments.join(" ")));
                }
            }
        }
    }
    assert!(seen > 90, "only {seen} commands found: is this test reading the right files?");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Completes a policy that a page shows in part.
fn completed(mut policy: Value) -> Value {
    for (pointer, value) in [
        ("apiVersion", json!("kubegc.io/v1alpha1")),
        ("kind", json!("RetentionPolicy")),
        ("metadata", json!({"name": "example"})),
    ] {
        policy.as_object_mut().unwrap().entry(pointer).or_insert(value);
    }
    let target = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    policy["spec"].as_object_mut().unwrap().entry("target").or_insert(target);
    policy
}

#[test]
fn every_manifest_in_the_book_is_valid() {
    let (mut seen, mut policies, mut wrong) = (0, Vec::new(), BTreeSet::new());
    for (path, snippets) in of_the_book() {
        for snippet in snippets.iter().filter(|snippet| snippet.language == "yaml") {
            seen += 1;
            let text = snippet.lines.join("\n");
            match serde_saphyr::from_multiple::<Value>(&text) {
                Err(error) => drop(wrong.insert(format!("{path}: {error}\n{text}"))),
                Ok(documents) => policies.extend(documents.into_iter().filter(|document| {
                    let is_part = path.ends_with("retention-policy.md") && document.get("kind").is_none();
                    document["kind"] == "RetentionPolicy" || (is_part && document.get("spec").is_some())
                })),
            }
        }
    }
    assert!(seen > 5 && policies.len() > 3, "{seen} manifests and {} policies found", policies.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    for policy in policies.into_iter().map(completed) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(policy.to_string().as_bytes()).unwrap();
        let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_kubegc"));
        let checked = check.args(["policy", "check"]).arg(file.path()).output().unwrap();
        assert!(checked.status.success(), "{policy}\n{}", String::from_utf8_lossy(&checked.stdout));
    }
}

#[test]
fn every_piece_of_rust_in_the_book_is_compiled() {
    let without_margin = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let compiled: Vec<String> = texts(&repository().join("crates/kubegc-testing"), ".rs")
        .values()
        .map(|text| without_margin(text))
        .collect();
    let mut seen = 0;
    for (path, snippets) in of_the_book() {
        for snippet in snippets.iter().filter(|snippet| snippet.language.starts_with("rust")) {
            for part in without_margin(&snippet.lines.join("\n")).split("\n\n") {
                seen += 1;
                assert!(compiled.iter().any(|text| text.contains(part)), "{path}: compiled nowhere:\n{part}");
            }
        }
    }
    assert!(seen > 0, "no Rust found: is this test reading the right files?");
}
