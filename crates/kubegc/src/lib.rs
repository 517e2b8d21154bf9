//! `kubegc`: everything that Kubernetes calls garbage collection, in one binary. [`main`] is the whole program; it is a
//! library only for tests and fuzz targets.

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use gc_embedded::{accounts, apiserver, clock, kubeconfig, workloads};
#[cfg(test)]
use gc_embedded::{definitions, embedded};
use gc_process::{
    UsageError, collector_metrics, collectors, endpoints, journal, lines, logging, operations, preflight,
    private_files, reviews, screen, tasks, yaml,
};

mod backup;
mod deletion_events;
mod demo;
mod documents;
mod envtest;
#[cfg(test)]
mod flags;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod node;
mod page;
mod policy;
mod questions;
mod rbac;
mod reference;
mod run;
mod stuck_metrics;
mod table;
mod top;
mod up;

/// Kubernetes garbage collection, with an embedded API server to try it
#[derive(Debug, Parser)]
// As for kubectl, the last one counts of flags that are repeated, for example behind an alias.
#[command(name = "kubegc", version, arg_required_else_help = true, args_override_self = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the embedded Kubernetes-compatible API server alone
    Apiserver(Box<apiserver::Options>),
    /// Collect images and containers on this node, over a CRI socket
    Node(Box<node::NodeOptions>),
    /// Run the embedded API server with all cluster collectors, in one process
    Up(Box<up::Options>),
    /// Run the owner-reference collector on any cluster, in place of kube-controller-manager's
    Run(Box<run::Options>),
    /// Pause all running collectors of a cluster at once
    Pause(run::commands::PauseOptions),
    /// Resume collection after a pause or after the circuit breaker has tripped
    Resume(run::commands::ResumeOptions),
    /// Check everything that collection needs, and report problems
    Doctor(questions::examine::DoctorOptions),
    /// Show what a collector did and why, from its journal
    Journal(questions::journal::JournalOptions),
    /// Check retention policies, and write new ones from templates
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Print the permissions that `kubegc run` needs, as manifests
    Rbac(rbac::Options),
    /// Show what depends on an object
    Tree(questions::tree::TreeOptions),
    /// Explain why an object is, will be or is not deleted
    Why(questions::why::WhyOptions),
    /// List stuck deletions and explain why
    Stuck(questions::stuck::StuckOptions),
    /// Report what nothing uses; deletes nothing
    Garbage(questions::garbage::GarbageOptions),
    /// After a restore, give objects the owners that the backup has
    Relink(questions::recovery::relink::RelinkOptions),
    /// Keep the last state of deleted objects, for `kubegc undo`
    Recorder(questions::recovery::recorder::RecorderOptions),
    /// Create deleted objects again, from the records of `kubegc recorder`
    Undo(questions::recovery::undo::UndoOptions),
    /// Show what a deletion would lead to
    #[command(subcommand)]
    Plan(questions::plan::PlanCommand),
    /// Delete objects after showing the plan, and follow the deletion to its end
    Delete(questions::plan::DeleteOptions),
    /// Watch what is stuck, deleted and due on a terminal
    Top(top::TopOptions),
    /// Print a link to the page of a server that `kubegc up` runs
    Ui(page::command::UiOptions),
    /// Serve test frameworks that start kube-apiserver and etcd
    #[command(subcommand)]
    Envtest(envtest::EnvtestCommand),
    /// Print the version of this program and of the server
    Version(questions::version::VersionOptions),
    /// Print shell completions
    Completion(documents::CompletionOptions),
    /// Complete the last of these words
    #[command(hide = true)]
    Complete(questions::complete::Options),
    /// Write the man pages of all commands to a directory
    #[command(hide = true)]
    Man(documents::ManOptions),
    /// Write the generated pages of the documentation to a directory
    #[command(hide = true)]
    Reference(reference::Options),
    /// Save all objects of an embedded server to a file
    Backup(backup::BackupOptions),
    /// Create a data directory from a backup
    Restore(backup::RestoreOptions),
    /// Stop the server that `kubegc up --detach` started
    Down(gc_embedded::up::detach::DownOptions),
    /// Show three kinds of deletion on an ephemeral server, and check how they end
    Demo(demo::Options),
}

/// Under this name kubectl asks for completions of `kubectl gc`.
const COMPLETER: &str = "kubectl_complete-gc";

/// The command line with its defaults.
#[must_use]
pub fn described() -> clap::Command {
    CommandLine::command().mut_subcommand("run", |run| {
        // On a cluster, kube-controller-manager keeps the other collectors until they are enabled here.
        run.mut_arg("controllers", |argument| argument.default_value(run::DEFAULT_CONTROLLERS))
    })
}

/// Reads the command line. Called `kubectl-gc`, the binary is kubectl's plugin, and its help says so.
fn command_line() -> (CommandLine, run::Given) {
    let called = std::env::args_os().next().unwrap_or_default();
    let is_plugin = std::path::Path::new(&called)
        .file_stem()
        .is_some_and(|name| name == "kubectl-gc" || name == "kubectl_gc");
    let mut command = described();
    if is_plugin {
        command = command.bin_name("kubectl gc");
    }
    let matches = command.get_matches();
    let given = matches.subcommand_matches("run").map(run::Given::of).unwrap_or_default();
    (CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()), given)
}

/// Does what the command line of this process says.
#[must_use]
pub fn main() -> ExitCode {
    let called = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&called).file_name().and_then(|name| name.to_str());
    if let Some(code) = name.and_then(envtest::called_as) {
        return code;
    }
    if name == Some(COMPLETER) {
        let words: Vec<String> = std::env::args().skip(1).collect();
        return exit(questions::complete::complete(described(), &words).map(|()| ExitCode::SUCCESS));
    }
    let (options, given) = command_line();
    let done = match options.command {
        Command::Up(options) => return exit(up::run(&options)),
        Command::Version(options) => questions::version::version(&options),
        Command::Complete(options) => questions::complete::complete(described(), &options.words),
        Command::Completion(options) => documents::completion(CommandLine::command(), &options),
        Command::Man(options) => documents::man(CommandLine::command(), &options),
        Command::Reference(options) => reference::run(described(), &options),
        Command::Envtest(command) => envtest::run(&command),
        Command::Backup(options) => backup::backup(&options),
        Command::Restore(options) => backup::restore(&options),
        Command::Down(options) => gc_embedded::up::detach::down(&options),
        Command::Apiserver(options) => apiserver::run(&options),
        Command::Node(options) => node::run(*options),
        Command::Run(options) => run::run(&options, &given),
        Command::Pause(options) => run::commands::pause(&options),
        Command::Resume(options) => run::commands::resume(&options),
        Command::Doctor(options) => questions::examine::doctor(&options),
        Command::Journal(options) => questions::journal::journal(&options),
        Command::Policy(command) => policy::run(&command),
        Command::Rbac(options) => rbac::run(&options),
        Command::Tree(options) => questions::tree::tree(&options),
        Command::Why(options) => questions::why::why(&options),
        Command::Stuck(options) => questions::stuck::stuck(&options),
        Command::Relink(options) => questions::recovery::relink::run(&options),
        Command::Recorder(options) => questions::recovery::recorder::run(&options),
        Command::Undo(options) => questions::recovery::undo::run(&options),
        Command::Garbage(options) => questions::garbage::garbage(&options),
        Command::Plan(command) => questions::plan::plan(&command),
        Command::Delete(options) => questions::plan::delete(&options),
        Command::Top(options) => top::top(&options),
        Command::Ui(options) => page::command::ui(&options),
        Command::Demo(options) => demo::run(&options),
    };
    exit(done.map(|()| ExitCode::SUCCESS))
}

/// Exit code for invalid options or configuration, like clap's own errors.
const USAGE: u8 = 2;
/// Exit code for a deletion of which a part would be refused or get stuck, or does.
const HANGS: u8 = 3;

/// The exit code of what was done, and a line about what went wrong.
fn exit(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        // A plan was shown, and part of it would get stuck.
        Err(error) if error.is::<questions::plan::SomethingHangs>() => ExitCode::from(HANGS),
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
    // An error of a connection has a context.
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Whether the command's output already says what is wrong.
fn is_reported(error: &anyhow::Error) -> bool {
    error.is::<questions::examine::Unhealthy>()
        || error.is::<questions::stuck::SomethingStuck>()
        || error.is::<policy::InvalidPolicy>()
        || error.is::<questions::recovery::Incomplete>()
}
