//! The flags of kubectl that each command accepts, and the reasons not to accept the others.

use std::collections::BTreeSet;

use clap::{Arg, Command};

/// Flags of kubectl: their names in the table below, and their long names. `cluster` stands for all flags that select the cluster
/// and the user.
const FLAGS: [(&str, &[&str]); 7] = [
    ("-n", &["namespace"]),
    ("-A", &["all-namespaces"]),
    ("-l", &["selector"]),
    ("-f", &["filename"]),
    ("-w", &["watch"]),
    ("-o", &["output"]),
    (
        "cluster",
        &["kubeconfig", "context", "cluster", "user", "server", "token", "as", "as-group", "request-timeout"],
    ),
];
/// Output formats in the help of every `-o`.
const FORMS: &str = "Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…";

/// Flags that a command does not accept, and the reason.
type AbsentFlags = (&'static str, &'static str);

const WORKS_ON: AbsentFlags = ("-l -f -w -o", "works until it is stopped");
const SERVER: AbsentFlags = ("-n -A -l -f -w -o cluster", "is a server");
const LOCAL: AbsentFlags = ("-n -A -l -f -w -o cluster", "asks no cluster");
const AN_ORDER: AbsentFlags = ("-n -A -l -f -w -o", "an order to all collectors");

/// Each command with the flags that it accepts.
#[rustfmt::skip]
const TABLE: [(&str, &str, &[AbsentFlags]); 35] = [
    ("tree", "-n -A -l -f -w -o cluster", &[]),
    ("why", "-n -A -l -f -w -o cluster", &[]),
    ("stuck", "-n -A -l -f -w -o cluster", &[]),
    ("plan delete", "-n -A -l -f -w -o cluster", &[]),
    ("delete", "-n -A -l -f cluster", &[("-w", "follows the deletion anyway"), ("-o", "a conversation")]),
    ("release", "-n -A -l -f cluster", &[("-w", "ends"), ("-o", "a conversation")]),
    ("protect", "-n -A -l -f cluster", &[("-w", "ends"), ("-o", "rules have no wide form")]),
    ("undo", "-n -A -l -f -o cluster", &[("-w", "ends")]),
    ("relink", "-n -A -o cluster", &[("-l -f", "the evidence says which objects"), ("-w", "ends")]),
    ("garbage", "-n -A -l -o cluster", &[("-f", "what a file names is used"), ("-w", "reads every object whole")]),
    ("doctor", "-n -A -w -o cluster", &[("-l -f", "examines the cluster, not objects")]),
    ("journal", "-n -A -o cluster", &[("-l", "entries have no labels"), ("-f -w", "-f follows, as kubectl logs")]),
    ("mcp", "cluster", &[("-n -A -l -f", "its tools have arguments"), ("-w -o", "is a server")]),
    ("policy check", "-f -o cluster", &[("-n -A -l", "the policies say what they select"), ("-w", "files")]),
    ("policy new", "", &[("-n -A -l -f -w cluster", "a template"), ("-o", "always YAML, with comments")]),
    ("top", "-n -A cluster", &[("-l -f", "its keys filter"), ("-w", "always repeats"), ("-o", "a screen")]),
    ("version", "-o cluster", &[("-n -A -l -f", "about no objects"), ("-w", "does not change")]),
    ("pause", "cluster", &[AN_ORDER]),
    ("resume", "cluster", &[AN_ORDER]),
    ("ui", "cluster", &[("-n -A -l -f -w -o", "prints a link")]),
    ("recorder", "cluster", &[("-n -A", "its policy says which namespaces"), WORKS_ON]),
    ("backup", "cluster", &[("-n -A -l -f", "always whole"), ("-w -o", "writes a file")]),
    ("run", "cluster", &[("-n -A", "collects everywhere"), WORKS_ON]),
    ("node", "cluster", &[("-n -A -l -f", "about images and containers"), ("-w", "works until it is stopped"),
        ("-o", "the runtime's lists, as crictl")]),
    ("node images", "", &[LOCAL]),
    ("node containers", "", &[LOCAL]),
    ("node disk", "", &[LOCAL]),
    ("up", "", &[SERVER]),
    ("apiserver", "", &[SERVER]),
    ("demo", "", &[SERVER]),
    ("down", "", &[("-n -A -l -f -w -o cluster", "stops a process of this machine")]),
    ("restore", "", &[LOCAL]),
    ("rbac", "", &[("-n", "--namespace is that of the account"), ("-A -l -f -w -o cluster", "prints manifests")]),
    ("envtest assets", "", &[LOCAL]),
    ("completion", "", &[LOCAL]),
];

/// Collects all commands that perform something, by the words that call them.
fn commands(parent: &Command, path: &str, found: &mut Vec<(String, Command)>) {
    for command in parent.get_subcommands().filter(|command| !command.is_hide_set()) {
        let path = format!("{path} {}", command.get_name()).trim().to_owned();
        if !command.is_subcommand_required_set() {
            found.push((path.clone(), command.clone()));
        }
        commands(command, &path, found);
    }
}

/// Returns the flags of the table that a command has, with kubectl's short names and meanings.
fn taken(command: &Command) -> BTreeSet<&'static str> {
    let has = |flag: &str, long: &str| {
        let is_it = |argument: &&Arg| {
            argument.get_long() == Some(long)
                && (!flag.starts_with('-') || argument.get_short() == flag.chars().nth(1))
        };
        let found = command.get_arguments().find(is_it);
        let help = found.and_then(Arg::get_help).map(ToString::to_string).unwrap_or_default();
        found.is_some() && (flag != "-o" || help.starts_with(FORMS))
    };
    let all = |(flag, longs): &(&'static str, &[&str])| longs.iter().all(|long| has(flag, long));
    FLAGS.iter().filter(|flag| all(flag)).map(|(flag, _)| *flag).collect()
}

#[test]
fn every_command_takes_kubectls_flags_or_has_a_reason() {
    let mut found = Vec::new();
    commands(&kubegc::described(), "", &mut found);
    let mut found: Vec<(String, BTreeSet<&str>)> =
        found.into_iter().map(|(path, command)| (path, taken(&command))).collect();
    found.sort();
    let mut table: Vec<(String, BTreeSet<&str>)> = TABLE
        .iter()
        .map(|(path, flags, _)| ((*path).to_owned(), flags.split_whitespace().collect()))
        .collect();
    table.sort();
    assert_eq!(found, table);
    for (path, flags, absent) in TABLE {
        let mut all: Vec<&str> = flags.split_whitespace().collect();
        all.extend(absent.iter().flat_map(|(flags, _)| flags.split_whitespace()));
        all.sort_unstable();
        let mut known: Vec<&str> = FLAGS.iter().map(|(flag, _)| *flag).collect();
        known.sort_unstable();
        assert_eq!(all, known, "{path}: each flag is taken, or one reason says why not");
    }
}

/// Commands without a recorded screen, and the reason.
const WITHOUT_SCREEN: [(&str, &str); 14] = [
    ("top", "the crate gc-console keeps its screens"),
    ("run", "a server: it shows its log"),
    ("node", "a server: it shows its log"),
    ("up", "a server: it shows its log"),
    ("apiserver", "a server: it shows its log"),
    ("mcp", "speaks a protocol: tests/attached/mcp.rs has its answers"),
    ("demo", "tells a story in its own time"),
    ("node images", "needs a runtime: tests/node.rs has its lists"),
    ("node containers", "needs a runtime: tests/node.rs has its lists"),
    ("node disk", "needs a runtime: tests/containerd.rs has what it prints"),
    ("envtest assets", "prints what a shell evaluates: tests/envtest.rs does"),
    ("release", "a conversation: src/commands/release/tests.rs has its words"),
    ("protect", "prints rules: tests/kubectl/protection.rs has its words"),
    ("completion", "prints what a shell evaluates: tests/run/manners.rs does"),
];

/// Each command has screens, in a pipe and on terminals of two widths, or a reason for none: the crates that make answers record
/// theirs, and `tests/run/screens.rs` the other output.
#[test]
fn every_command_has_a_screen_or_a_reason() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = [
        ("gc-inspect/tests/cluster/situations/snapshots", "cluster__situations__screens"),
        ("gc-inspect/src/doctor/snapshots", "gc_inspect__doctor__tests"),
        ("kubegc/src/commands/snapshots", "kubegc__commands__policy__tests"),
        ("kubegc/src/commands/snapshots", "kubegc__commands__version__tests"),
        ("kubegc/tests/run/snapshots", "run__screens"),
    ];
    let has_screen = |path: &str| {
        folders.iter().any(|(folder, module)| {
            let file = root.join(folder).join(format!("{module}__{}.snap", path.replace(' ', "_")));
            let text = std::fs::read_to_string(file).unwrap_or_default();
            ["==> pipe\n", "==> 80 columns", "==> 160 columns"].iter().all(|part| text.contains(part))
        })
    };
    let without: Vec<&str> = TABLE.iter().map(|(path, ..)| *path).filter(|path| !has_screen(path)).collect();
    let reasons: BTreeSet<&str> = WITHOUT_SCREEN.iter().map(|(path, _)| *path).collect();
    assert_eq!(without.into_iter().collect::<BTreeSet<_>>(), reasons);
}
