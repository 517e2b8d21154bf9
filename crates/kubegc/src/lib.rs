//! `kubegc`: everything that Kubernetes calls garbage collection, in one binary. [`main`] is the whole program; it is a library
//! only for tests and fuzz targets.

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use gc_process::{UsageError, screen};

mod arguments;
mod commands;
mod deletion_events;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod help;

/// Kubernetes garbage collection, with an embedded API server to try it
#[derive(Debug, Parser)]
// As with kubectl, the last of several repeated flags counts, for example after an alias.
#[command(name = "kubegc", version, arg_required_else_help = true, args_override_self = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the embedded Kubernetes-compatible API server alone
    Apiserver(Box<commands::apiserver::Options>),
    /// Collect images and containers on this node, over a CRI socket
    Node(Box<commands::node::NodeOptions>),
    /// Run the embedded API server with all cluster collectors, in one process
    Up(Box<commands::up::Options>),
    /// Run the owner-reference collector on any cluster, in place of kube-controller-manager's
    Run(Box<commands::run::Options>),
    /// Pause all running collectors of a cluster at once
    Pause(commands::pause::PauseOptions),
    /// Resume collection after a pause or after the circuit breaker has tripped
    Resume(commands::resume::ResumeOptions),
    /// Check everything that collection needs, and report problems
    Doctor(commands::doctor::DoctorOptions),
    /// Show what a collector did and why, from its journal
    Journal(commands::journal::JournalOptions),
    /// Check retention policies, and write new ones from templates
    #[command(subcommand)]
    Policy(commands::policy::PolicyCommand),
    /// Print the permissions that `kubegc run` needs, as manifests
    Rbac(commands::rbac::Options),
    /// Show what depends on an object
    Tree(commands::tree::TreeOptions),
    /// Explain why an object is, will be or is not deleted
    Why(commands::why::WhyOptions),
    /// List stuck deletions and explain why
    Stuck(commands::stuck::StuckOptions),
    /// Report what nothing uses; deletes nothing
    Garbage(commands::garbage::GarbageOptions),
    /// Answer the questions of programs over the Model Context Protocol; changes nothing
    Mcp(commands::mcp::McpOptions),
    /// After a restore, give objects the owners that the backup has
    Relink(commands::relink::RelinkOptions),
    /// Keep the last state of deleted objects, for `kubegc undo`
    Recorder(commands::recorder::RecorderOptions),
    /// Create deleted objects again, from the records of `kubegc recorder`
    Undo(commands::undo::UndoOptions),
    /// Show what a deletion would lead to
    #[command(subcommand)]
    Plan(commands::plan::PlanCommand),
    /// Delete objects after showing the plan, and follow the deletion to its end
    Delete(commands::delete::DeleteOptions),
    /// Keep objects from being deleted by anybody: the API server refuses it
    Protect(Box<commands::protect::ProtectOptions>),
    /// Remove one finalizer by hand, after showing whether its controller lives and what is left behind
    Release(commands::release::ReleaseOptions),
    /// Watch what is stuck, deleted and due on a terminal
    Top(commands::top::TopOptions),
    /// Print a link to the page of a server that `kubegc up` runs
    Ui(commands::ui::UiOptions),
    /// Serve test frameworks that start kube-apiserver and etcd
    #[command(subcommand)]
    Envtest(commands::envtest::EnvtestCommand),
    /// Print the version of this program and of the server
    Version(commands::version::VersionOptions),
    /// Print shell completions
    Completion(commands::completion::CompletionOptions),
    /// Complete the last of these words
    #[command(hide = true)]
    Complete(commands::complete::Options),
    /// Write the man pages of all commands to a directory
    #[command(hide = true)]
    Man(commands::man::ManOptions),
    /// Write the generated pages of the documentation to a directory
    #[command(hide = true)]
    Reference(commands::reference::Options),
    /// Save all objects of an embedded server to a file
    Backup(commands::backup::BackupOptions),
    /// Create a data directory from a backup
    Restore(commands::restore::RestoreOptions),
    /// Stop the server that `kubegc up --detach` started
    Down(commands::down::DownOptions),
    /// Show three kinds of deletion on an ephemeral server, and check how they end
    Demo(commands::demo::Options),
}

/// Name under which kubectl requests completions of `kubectl gc`.
const COMPLETER: &str = "kubectl_complete-gc";

/// Returns the command line with its defaults, and its commands by task.
#[must_use]
pub fn described() -> clap::Command {
    help::by_task(listed())
}

/// Returns the command line with its defaults, for callers that list commands in their own way.
fn listed() -> clap::Command {
    with_heading_flags(CommandLine::command()).mut_subcommand("run", |run| {
        // On a cluster, kube-controller-manager keeps running the other collectors until they are enabled here.
        run.mut_arg("controllers", |argument| argument.default_value(commands::run::DEFAULT_CONTROLLERS))
    })
}

/// Adds `--no-headers` to each command that has an output format.
fn with_heading_flags(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|below| {
        let below = with_heading_flags(below);
        if below.get_arguments().any(|flag| flag.get_id() == OUTPUT) {
            // Flags of `node` may follow its subcommands as well.
            let is_global = below.has_subcommands();
            below.arg(no_headers_flag().global(is_global))
        } else {
            below
        }
    })
}

/// Id of the argument `--output`.
const OUTPUT: &str = "output";
/// Id of the flag `--no-headers`, and its name.
const NO_HEADERS: &str = "no-headers";

fn no_headers_flag() -> clap::Arg {
    let flag = clap::Arg::new(NO_HEADERS).long(NO_HEADERS).action(clap::ArgAction::SetTrue);
    flag.help("Leave the headings out of tables, and of custom columns")
}

/// Reports whether the innermost command was given `--no-headers`.
fn leaves_out_headings(matches: &clap::ArgMatches) -> bool {
    let is_given = matches.try_get_one::<bool>(NO_HEADERS).ok().flatten().copied().unwrap_or_default();
    is_given || matches.subcommand().is_some_and(|(_, below)| leaves_out_headings(below))
}

/// Parses the command line. Under the name `kubectl-gc`, the binary is kubectl's plugin, and its help shows that.
fn command_line() -> (CommandLine, commands::run::ExplicitFlags) {
    let called = std::env::args_os().next().unwrap_or_default();
    let is_plugin = std::path::Path::new(&called)
        .file_stem()
        .is_some_and(|name| name == "kubectl-gc" || name == "kubectl_gc");
    let mut command = described();
    if is_plugin {
        command = command.bin_name("kubectl gc");
    }
    let words = arguments::ordered(&command, std::env::args_os().collect());
    let matches = command.get_matches_from(words);
    if leaves_out_headings(&matches) {
        screen::leave_out_headings();
    }
    let given = matches.subcommand_matches("run").map(commands::run::ExplicitFlags::of).unwrap_or_default();
    (CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()), given)
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let called = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&called).file_name().and_then(|name| name.to_str());
    let name = name.map(|name| name.strip_suffix(std::env::consts::EXE_SUFFIX).unwrap_or(name));
    if let Some(code) = name.and_then(commands::envtest::called_as) {
        return code;
    }
    if name == Some(COMPLETER) {
        let words: Vec<String> = std::env::args().skip(1).collect();
        return exit(commands::complete::complete(described(), &words).map(|()| ExitCode::SUCCESS));
    }
    let (options, given) = command_line();
    let done = match options.command {
        Command::Up(options) => return exit(commands::up::run(&options)),
        Command::Version(options) => commands::version::run(&options),
        Command::Complete(options) => commands::complete::complete(described(), &options.words),
        Command::Completion(options) => commands::completion::run(listed(), &options),
        Command::Man(options) => commands::man::run(listed(), &options),
        Command::Reference(options) => commands::reference::run(described(), &options),
        Command::Envtest(command) => commands::envtest::run(&command),
        Command::Backup(options) => commands::backup::run(&options),
        Command::Restore(options) => commands::restore::run(&options),
        Command::Down(options) => commands::down::run(&options),
        Command::Apiserver(options) => commands::apiserver::run(&options),
        Command::Node(options) => commands::node::run(*options),
        Command::Run(options) => commands::run::run(&options, &given),
        Command::Pause(options) => commands::pause::run(&options),
        Command::Resume(options) => commands::resume::run(&options),
        Command::Doctor(options) => commands::doctor::run(&options),
        Command::Journal(options) => commands::journal::run(&options),
        Command::Policy(command) => commands::policy::run(&command),
        Command::Rbac(options) => commands::rbac::run(&options),
        Command::Tree(options) => commands::tree::run(&options),
        Command::Why(options) => commands::why::run(&options),
        Command::Stuck(options) => commands::stuck::run(&options),
        Command::Mcp(options) => commands::mcp::run(&options),
        Command::Relink(options) => commands::relink::run(&options),
        Command::Recorder(options) => commands::recorder::run(&options),
        Command::Undo(options) => commands::undo::run(&options),
        Command::Garbage(options) => commands::garbage::run(&options),
        Command::Plan(command) => commands::plan::run(&command),
        Command::Delete(options) => commands::delete::run(&options),
        Command::Protect(options) => commands::protect::run(&options),
        Command::Release(options) => commands::release::run(&options),
        Command::Top(options) => commands::top::run(&options),
        Command::Ui(options) => commands::ui::run(&options),
        Command::Demo(options) => commands::demo::run(&options),
    };
    exit(done.map(|()| ExitCode::SUCCESS))
}

/// Exit code for invalid options or configuration, like clap's own errors.
const USAGE: u8 = 2;
/// Exit code for a deletion of which part is, or would be, refused or stuck.
const WOULD_GET_STUCK: u8 = 3;

/// Returns the exit code of a result, and prints a line about an error.
fn exit(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        // The command has shown a plan, part of which would get stuck.
        Err(error) if error.is::<commands::PlanWouldGetStuck>() => ExitCode::from(WOULD_GET_STUCK),
        // The output already says what is wrong.
        Err(error) if is_reported(&error) => ExitCode::FAILURE,
        // The reader has closed the pipe, as with `kubegc demo | head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::FAILURE,
        Err(error) => {
            screen::complain!("error: {error:#}");
            if error.is::<UsageError>() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    // An error of a connection carries a context.
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Reports whether the command's output already says what is wrong.
fn is_reported(error: &anyhow::Error) -> bool {
    error.is::<commands::doctor::Unhealthy>()
        || error.is::<commands::stuck::StuckObjectsFound>()
        || error.is::<commands::policy::InvalidPolicy>()
        || error.is::<commands::Incomplete>()
        || error.is::<commands::NotAgreed>()
}
