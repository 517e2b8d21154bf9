//! Completes the last word, for the shells' scripts (`kubegc complete -- WORD…`) and for kubectl, which completes a plugin with
//! `kubectl_complete-gc WORD…`. Prints one completion per line, and then a directive.

use std::io::Write as _;
use std::time::Duration;

use clap::{Arg, Args, Command, Parser};
use gc_collectors::permissions::Controller;
use gc_inspect::gather::{self, Gatherer};
use gc_process::access::{self, Access};

use crate::arguments;

/// cobra's directive that tells a shell to complete file names.
const FILES: &str = ":0";
/// cobra's directive that tells a shell not to complete file names.
const NO_FILES: &str = ":4";
/// Maximum wait for the server's answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of completions in an answer.
const MAXIMUM_COMPLETIONS: usize = 500;
/// Value names of the flags and arguments that take a file.
const OF_FILES: [&str; 2] = ["FILE", "DIR"];
/// The flag for a namespace.
const NAMESPACE: &str = "namespace";
/// The flag for a list of collectors.
const CONTROLLERS: &str = "controllers";
/// Value name of arguments that are objects.
const OF_OBJECTS: &str = "OBJECT";

/// Options of `kubegc complete`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Words after the name of the program
    #[arg(last = true)]
    pub(crate) words: Vec<String>,
}

/// Item to complete.
#[derive(Debug, PartialEq, Eq)]
enum CompletionKind {
    /// One of these words; there are no others.
    Words(Vec<String>),
    /// The name of a file.
    File,
    /// A resource whose name begins with this text.
    Resource(String),
    /// An object whose name begins with `begin`; `prefix` is the part of the word before it.
    Name { kind: String, begin: String, prefix: String },
}

fn matching<'a>(all: impl IntoIterator<Item = &'a str>, prefix: &str, begin: &str) -> CompletionKind {
    let fitting = all.into_iter().filter(|one| one.starts_with(begin));
    CompletionKind::Words(fitting.map(|one| format!("{prefix}{one}")).collect())
}

/// Returns the flag that a word names, and whether its value is the next word.
fn flag<'a>(command: &'a Command, word: &str) -> Option<(&'a Arg, bool)> {
    let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    let is_named = |arg: &&Arg| match name.strip_prefix("--") {
        Some(long) => arg.get_long_and_visible_aliases().is_some_and(|names| names.contains(&long)),
        None => name
            .strip_prefix('-')
            .is_some_and(|short| arg.get_short().is_some_and(|own| short.chars().eq([own]))),
    };
    let arg = command.get_arguments().find(is_named)?;
    Some((arg, arg.get_action().takes_values() && value.is_none()))
}

fn is_of(arg: &Arg, names: &[&str]) -> bool {
    arg.get_value_names().into_iter().flatten().any(|name| names.contains(&name.as_str()))
}

/// Completes the value of a flag, or of an argument that is not an object.
fn value(arg: &Arg, prefix: &str, begin: &str) -> CompletionKind {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        return matching(possible.iter().map(clap::builder::PossibleValue::get_name), prefix, begin);
    }
    if is_of(arg, &OF_FILES) {
        return CompletionKind::File;
    }
    if arg.get_id() == NAMESPACE {
        return CompletionKind::Name {
            kind: "namespaces".into(),
            begin: begin.into(),
            prefix: prefix.into(),
        };
    }
    if arg.get_id() == CONTROLLERS {
        return controllers(prefix, begin);
    }
    // The help of `--output` lists its values.
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    match help.strip_prefix("Output format: ") {
        Some(formats) => {
            let formats = formats.split([',', ';']).map(|format| format.trim().trim_end_matches('…'));
            matching(formats.filter(|format| !format.contains(' ')), prefix, begin)
        }
        None => CompletionKind::Words(Vec::new()),
    }
}

/// Completes the last collector of a list: each may be enabled, or disabled with a leading `-`.
fn controllers(prefix: &str, begin: &str) -> CompletionKind {
    let (before, last) = begin.rsplit_once(',').map_or(("", begin), |(before, last)| (before, last));
    let before = if before.is_empty() { prefix.to_owned() } else { format!("{prefix}{before},") };
    let (sign, last) = last.strip_prefix('-').map_or(("", last), |last| ("-", last));
    let all = sign.is_empty().then_some("*").into_iter().chain(Controller::ALL.map(Controller::name));
    matching(all, &format!("{before}{sign}"), last)
}

/// The words before the one to complete.
struct Line<'a> {
    /// The command that they lead to.
    command: &'a Command,
    operands: Vec<&'a str>,
    /// Flags with their values.
    values: Vec<(&'a Arg, &'a str)>,
    /// The flag whose value comes next.
    pending: Option<&'a Arg>,
}

impl<'a> Line<'a> {
    fn of(command: &'a Command, words: &'a [String]) -> Self {
        let mut line = Self { command, operands: Vec::new(), values: Vec::new(), pending: None };
        for word in words {
            if let Some(arg) = line.pending.take() {
                line.values.push((arg, word));
            } else if word.starts_with('-') {
                match flag(line.command, word).or_else(|| arguments::global(line.command, word)) {
                    Some((arg, true)) => line.pending = Some(arg),
                    Some((arg, false)) => {
                        line.values.extend(word.split_once('=').map(|(_, value)| (arg, value)));
                    }
                    None => {}
                }
            } else {
                match line.command.find_subcommand(word) {
                    Some(below) if line.operands.is_empty() => line.command = below,
                    _ => line.operands.push(word),
                }
            }
        }
        line
    }

    /// Returns the item to complete in the last word.
    fn wanted(&self, last: &str) -> CompletionKind {
        let command = self.command;
        if let Some(arg) = self.pending {
            return value(arg, "", last);
        }
        if last.starts_with('-') {
            if let (Some((name, begin)), Some((arg, _))) = (last.split_once('='), flag(command, last)) {
                return value(arg, &format!("{name}="), begin);
            }
            let flags = command.get_arguments().filter(|argument| !argument.is_hide_set());
            let long: Vec<String> =
                flags.filter_map(|argument| Some(format!("--{}", argument.get_long()?))).collect();
            return matching(long.iter().map(String::as_str), "", last);
        }
        let below =
            command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
        let below: Vec<&str> = below.map(Command::get_name).collect();
        if !below.is_empty() {
            return matching(below, "", last);
        }
        let Some(operand) = command.get_positionals().next() else {
            return CompletionKind::Words(Vec::new());
        };
        if !is_of(operand, &[OF_OBJECTS]) {
            return value(operand, "", last);
        }
        match (last.split_once('/'), self.operands.first()) {
            (Some((kind, begin)), _) => CompletionKind::Name {
                kind: kind.to_owned(),
                begin: begin.to_owned(),
                prefix: format!("{kind}/"),
            },
            (None, Some(kind)) if !kind.contains('/') => CompletionKind::Name {
                kind: (*kind).to_owned(),
                begin: last.to_owned(),
                prefix: String::new(),
            },
            _ => CompletionKind::Resource(last.to_owned()),
        }
    }

    /// Returns the cluster and the namespace that the flags name.
    fn meant(&self) -> anyhow::Result<(Access, Option<String>)> {
        #[derive(Parser)]
        #[command(no_binary_name = true)]
        struct OfCluster {
            #[command(flatten)]
            access: Access,
        }
        let of_cluster =
            self.values.iter().filter(|(arg, _)| arg.get_help_heading() == Some(access::HEADING));
        let flags = of_cluster.filter_map(|(arg, value)| Some(format!("--{}={value}", arg.get_long()?)));
        let access = OfCluster::try_parse_from(flags)?.access;
        let namespace = self.values.iter().find(|(arg, _)| arg.get_id() == NAMESPACE);
        Ok((access, namespace.map(|(_, value)| (*value).to_owned())))
    }
}

/// Prints the completions that fit. A server that does not answer adds none.
pub(crate) fn complete(mut command: Command, words: &[String]) -> anyhow::Result<()> {
    // `build` passes the flags of a command down to its subcommands.
    command.build();
    let (last, before) = words.split_last().map_or(("", words), |(last, before)| (last.as_str(), before));
    let line = Line::of(&command, before);
    let wanted = line.wanted(last);
    let directive = if wanted == CompletionKind::File { FILES } else { NO_FILES };
    let mut fitting = match wanted {
        CompletionKind::Words(words) => words,
        CompletionKind::File => Vec::new(),
        asked => {
            let runtime = gc_process::tasks::runtime()?;
            let found =
                runtime.block_on(async { tokio::time::timeout(PATIENCE, ask(&asked, line.meant()?)).await? });
            runtime.shutdown_timeout(Duration::from_millis(100));
            found.unwrap_or_default()
        }
    };
    fitting.sort();
    fitting.dedup();
    let mut out = Vec::new();
    for word in fitting.iter().take(MAXIMUM_COMPLETIONS) {
        writeln!(out, "{word}")?;
    }
    writeln!(out, "{directive}")?;
    gc_inspect::output::write(&out)
}

async fn ask(
    wanted: &CompletionKind,
    (access, namespace): (Access, Option<String>),
) -> anyhow::Result<Vec<String>> {
    let gatherer = Gatherer::new(access.connect().await?, gather::now()).await?;
    match wanted {
        CompletionKind::Words(words) => Ok(words.clone()),
        CompletionKind::File => Ok(Vec::new()),
        CompletionKind::Resource(begin) => {
            let all = gatherer.catalog.all().iter().filter(|resource| resource.has("list"));
            let names = all.map(|resource| resource.name.to_string());
            Ok(names.filter(|name| name.starts_with(begin.as_str())).collect())
        }
        CompletionKind::Name { kind, begin, prefix } => {
            let namespace = namespace.unwrap_or_else(|| gatherer.default_namespace().to_owned());
            let mut fitting = Vec::new();
            for resource in gatherer.catalog.find(kind)? {
                let scope = if resource.is_namespaced() { namespace.as_str() } else { "" };
                let names = gatherer.names(resource, scope, "").await?;
                let names = names.into_iter().filter(|(_, name)| name.starts_with(begin.as_str()));
                fitting.extend(names.map(|(_, name)| format!("{prefix}{name}")));
            }
            Ok(fitting)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn what_is_wanted_follows_from_the_words() {
        let mut command = crate::described();
        command.build();
        let name = |kind: &str, begin: &str, prefix: &str| CompletionKind::Name {
            kind: kind.to_owned(),
            begin: begin.to_owned(),
            prefix: prefix.to_owned(),
        };
        let words = |words: &[&str]| CompletionKind::Words(words.iter().map(ToString::to_string).collect());
        for (typed, expected) in [
            (&["wh"][..], words(&["why"])),
            (&["plan", ""], words(&["delete"])),
            (&["why", "--journ"], words(&["--journal"])),
            (&["why", "po"], CompletionKind::Resource("po".to_owned())),
            (&["why", "pod/we"], name("pod", "we", "pod/")),
            (&["why", "pod", "we"], name("pod", "we", "")),
            (&["plan", "delete", "-n", "sh"], name("namespaces", "sh", "")),
            (&["plan", "delete", "--namespace=sh"], name("namespaces", "sh", "--namespace=")),
            (&["plan", "delete", "-n", "shop", "deploy/w"], name("deploy", "w", "deploy/")),
            (&["plan", "delete", "--cascade", "b"], words(&["background"])),
            (&["plan", "delete", "--cascade=o"], words(&["--cascade=orphan"])),
            (&["stuck", "-o", "j"], words(&["json", "jsonpath="])),
            (&["tree", "-w", "po"], CompletionKind::Resource("po".to_owned())),
            (&["why", "pod/a", "po"], CompletionKind::Resource("po".to_owned())),
            (&["stuck", "--kubeconfig", "f"], CompletionKind::File),
            (&["policy", "check", "f"], CompletionKind::File),
            (&["completion", "z"], words(&["zsh"])),
            (&["run", "--controllers", "garb"], words(&["garbage-collector-controller"])),
            (&["run", "--controllers=*,-ttl-a"], words(&["--controllers=*,-ttl-after-finished-controller"])),
            (&["doctor", "--controllers", "-garb"], words(&["-garbage-collector-controller"])),
            (&["-n", "shop", "wh"], words(&["why"])),
            (&["-n", "sh"], name("namespaces", "sh", "")),
            (&["-n", "shop", "why", "pod/we"], name("pod", "we", "pod/")),
            (&["pause", ""], words(&[])),
            (&["pause", "--request"], words(&["--request-timeout"])),
        ] {
            let typed: Vec<String> = typed.iter().map(ToString::to_string).collect();
            let (last, before) = typed.split_last().unwrap();
            assert_eq!(Line::of(&command, before).wanted(last), expected, "{typed:?}");
        }
        let typed = ["why", "-n", "shop", "--context=test", "--as", "me", "--owners"].map(str::to_owned);
        let (access, namespace) = Line::of(&command, &typed).meant().unwrap();
        let of_cluster = access.of_cluster();
        let meant = (namespace.as_deref(), of_cluster.context.as_deref(), of_cluster.impersonate.as_deref());
        assert_eq!(meant, (Some("shop"), Some("test"), Some("me")));
    }
}
