//! Completion as kubectl asks a plugin for it: `kubectl_complete-gc WORD…`, the last of which is to be completed. Answers
//! one completion per line, and then a directive: no file names.

use std::io::Write as _;
use std::time::Duration;

use clap::Command;

use super::access::Access;
use super::gather::{self, Gatherer};

/// cobra's directive for a shell: no file names.
const NO_FILES: &str = ":4";
/// How long the server may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Completions that are answered at most.
const MAXIMUM_COMPLETIONS: usize = 500;
/// The commands that take objects.
const OF_OBJECTS: [&str; 4] = ["why", "tree", "delete", "plan"];

/// What is to be completed.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// These words are all there are.
    Words(Vec<String>),
    /// A resource that begins so.
    Resource(String),
    /// The name of an object that begins so; with the resource in front, or without.
    Name { kind: String, begin: String, with_kind: bool },
}

/// What the words of a command line leave to be completed.
fn wanted(command: &Command, words: &[String]) -> Wanted {
    let Some((last, before)) = words.split_last() else { return Wanted::Words(Vec::new()) };
    let mut at = command;
    let mut objects: Vec<&str> = Vec::new();
    for word in before.iter().filter(|word| !word.starts_with('-')) {
        match at.find_subcommand(word) {
            Some(below) if objects.is_empty() => at = below,
            _ => objects.push(word),
        }
    }
    if last.starts_with('-') {
        let flags = at.get_arguments().filter(|argument| !argument.is_hide_set());
        let long = flags.filter_map(|argument| Some(format!("--{}", argument.get_long()?)));
        return Wanted::Words(long.filter(|flag| flag.starts_with(last)).collect());
    }
    let below: Vec<&str> = at
        .get_subcommands()
        .filter(|below| !below.is_hide_set() && below.get_name() != "help")
        .map(Command::get_name)
        .collect();
    if !below.is_empty() {
        let names = below.into_iter().filter(|name| name.starts_with(last.as_str()));
        return Wanted::Words(names.map(str::to_owned).collect());
    }
    let takes_objects = before.first().is_some_and(|first| OF_OBJECTS.contains(&first.as_str()));
    if !takes_objects {
        return Wanted::Words(Vec::new());
    }
    match (last.split_once('/'), objects.first()) {
        (Some((kind, begin)), _) => {
            Wanted::Name { kind: kind.to_owned(), begin: begin.to_owned(), with_kind: true }
        }
        (None, Some(kind)) if !kind.contains('/') => {
            Wanted::Name { kind: (*kind).to_owned(), begin: last.clone(), with_kind: false }
        }
        _ => Wanted::Resource(last.clone()),
    }
}

/// The value of `-n` or `--namespace`.
fn namespace(words: &[String]) -> Option<String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-n" | "--namespace" => return words.next().cloned(),
            word => {
                if let Some(namespace) = word.strip_prefix("--namespace=") {
                    return Some(namespace.to_owned());
                }
            }
        }
    }
    None
}

/// Prints what fits. A server that does not answer has no names to offer.
pub(crate) fn complete(command: &Command, words: &[String]) -> anyhow::Result<()> {
    let mut fitting = match wanted(command, words) {
        Wanted::Words(words) => words,
        asked => {
            let runtime = crate::tasks::runtime()?;
            let found = runtime
                .block_on(async { tokio::time::timeout(PATIENCE, ask(&asked, namespace(words))).await });
            runtime.shutdown_timeout(Duration::from_millis(100));
            found.ok().and_then(Result::ok).unwrap_or_default()
        }
    };
    fitting.sort();
    fitting.dedup();
    let mut out = Vec::new();
    for word in fitting.iter().take(MAXIMUM_COMPLETIONS) {
        writeln!(out, "{word}")?;
    }
    writeln!(out, "{NO_FILES}")?;
    super::print(&out)
}

async fn ask(wanted: &Wanted, namespace: Option<String>) -> anyhow::Result<Vec<String>> {
    let gatherer = Gatherer::new(Access::default().connect().await?, gather::now()).await?;
    match wanted {
        Wanted::Words(words) => Ok(words.clone()),
        Wanted::Resource(begin) => {
            let all = gatherer.catalog.all().iter().filter(|resource| resource.has("list"));
            let names = all.map(|resource| resource.name.to_string());
            Ok(names.filter(|name| name.starts_with(begin.as_str())).collect())
        }
        Wanted::Name { kind, begin, with_kind } => {
            let namespace = namespace.unwrap_or_else(|| gatherer.default_namespace().to_owned());
            let mut fitting = Vec::new();
            for resource in gatherer.catalog.find(kind)? {
                let scope = if resource.is_namespaced() { namespace.as_str() } else { "" };
                for (_, name) in gatherer.names(resource, scope, "").await? {
                    if name.starts_with(begin.as_str()) {
                        fitting.push(if *with_kind { format!("{kind}/{name}") } else { name });
                    }
                }
            }
            Ok(fitting)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_follows_from_the_words() {
        let command = crate::described();
        let name = |kind: &str, begin: &str, with_kind| Wanted::Name {
            kind: kind.to_owned(),
            begin: begin.to_owned(),
            with_kind,
        };
        let words = |words: &[&str]| Wanted::Words(words.iter().map(ToString::to_string).collect());
        for (typed, expected) in [
            (&["wh"][..], words(&["why"])),
            (&["plan", ""], words(&["delete"])),
            (&["why", "--journ"], words(&["--journal"])),
            (&["why", "po"], Wanted::Resource("po".to_owned())),
            (&["why", "pod/we"], name("pod", "we", true)),
            (&["why", "pod", "we"], name("pod", "we", false)),
            (&["plan", "delete", "-n", "deploy/w"], name("deploy", "w", true)),
            (&["why", "pod/a", "po"], Wanted::Resource("po".to_owned())),
            (&["pause", ""], words(&[])),
            (&[], words(&[])),
        ] {
            let typed: Vec<String> = typed.iter().map(ToString::to_string).collect();
            assert_eq!(wanted(&command, &typed), expected, "{typed:?}");
        }
        let typed = ["why", "-n", "shop", "x"].map(str::to_owned);
        assert_eq!(namespace(&typed).as_deref(), Some("shop"));
    }
}
