//! `kubegc`: everything that Kubernetes calls garbage collection, in one binary. [`main`] is all of it; a library it is
//! only for tests and fuzz targets.

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

mod accounts;
mod activity;
mod apiserver;
mod backup;
mod clock;
mod collector_metrics;
mod collectors;
mod definitions;
mod demo;
mod documents;
pub mod embedded;
mod envtest;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod kubeconfig;
mod logging;
mod namespace_documents;
mod namespace_requests;
mod namespace_trace;
mod namespaces;
mod node;
mod operations;
mod outside;
mod policy;
mod questions;
mod rbac;
mod run;
mod table;
mod up;
mod workloads;
mod yaml;

/// Kubernetes garbage collection, with an embedded API server to see it at work.
#[derive(Debug, Parser)]
#[command(name = "kubegc", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The embedded Kubernetes-compatible API server, alone
    Apiserver(apiserver::Options),
    /// Image and container collection on this node, over a CRI socket
    Node(Box<node::NodeOptions>),
    /// The embedded API server with all cluster collectors, in one process
    Up(Box<up::Options>),
    /// The owner-reference collector on any cluster, in place of kube-controller-manager's
    Run(Box<run::Options>),
    /// Stop everything that a running collector does, at once
    Pause(run::commands::PauseOptions),
    /// Let a running collector go on, after a pause or where its breaker has tripped
    Resume(run::commands::ResumeOptions),
    /// Check that everything that collection needs is in order
    Doctor(questions::examine::DoctorOptions),
    /// What was done and why, from a collector's journal
    Journal(questions::journal::JournalOptions),
    /// Retention policies
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// The permissions that `kubegc run` needs, as manifests
    Rbac(rbac::Options),
    /// Show what depends on an object
    Tree(questions::tree::TreeOptions),
    /// Explain why an object is, will be or is not deleted
    Why(questions::why::WhyOptions),
    /// List stuck deletions and explain why
    Stuck(questions::stuck::StuckOptions),
    /// Show what a deletion would lead to
    #[command(subcommand)]
    Plan(questions::plan::PlanCommand),
    /// Delete objects after showing the plan, and follow the deletion to its end
    Delete(questions::plan::DeleteOptions),
    /// Serve test frameworks that start kube-apiserver and etcd
    #[command(subcommand)]
    Envtest(envtest::EnvtestCommand),
    /// Write the completions of a shell to the output
    Completion(documents::CompletionOptions),
    /// Write the man pages of all commands into a folder
    #[command(hide = true)]
    Man(documents::ManOptions),
    /// Save all objects of an embedded server to a file
    Backup(backup::BackupOptions),
    /// Create a data directory from a backup
    Restore(backup::RestoreOptions),
    /// Stop the server that `kubegc up --detach` has started
    Down(up::detach::DownOptions),
    /// Build a shop on an ephemeral server, play three kinds of deletion on it, and check how they end
    Demo(demo::Options),
}

/// Reads the command line. Called `kubectl-gc`, the binary is kubectl's plugin, and its help says so.
fn command_line() -> (CommandLine, run::Given) {
    let called = std::env::args_os().next().unwrap_or_default();
    let is_plugin = std::path::Path::new(&called)
        .file_stem()
        .is_some_and(|name| name == "kubectl-gc" || name == "kubectl_gc");
    let mut command = CommandLine::command().mut_subcommand("run", |run| {
        // On a cluster, the other collectors stay kube-controller-manager's until they are asked for here.
        run.mut_arg("controllers", |argument| argument.default_value(run::DEFAULT_CONTROLLERS))
    });
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
    let (options, given) = command_line();
    let done = match options.command {
        Command::Up(options) => return exit(up::run(&options)),
        Command::Completion(options) => documents::completion(CommandLine::command(), &options),
        Command::Man(options) => documents::man(CommandLine::command(), &options),
        Command::Envtest(command) => envtest::run(&command),
        Command::Backup(options) => backup::backup(&options),
        Command::Restore(options) => backup::restore(&options),
        Command::Down(options) => up::detach::down(&options),
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
        Command::Plan(command) => questions::plan::plan(&command),
        Command::Delete(options) => questions::plan::delete(&options),
        Command::Demo(options) => demo::run(&options),
    };
    exit(done.map(|()| ExitCode::SUCCESS))
}

/// The exit code of what was done, and a line about what went wrong.
fn exit(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        // A plan was shown, and something of it would hang.
        Err(error) if error.is::<questions::plan::SomethingHangs>() => ExitCode::from(2),
        // The output says already what is wrong.
        Err(error) if is_reported(&error) => ExitCode::FAILURE,
        // Nobody reads any further, as with `kubegc demo | head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    // An error of a connection has a context.
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Whether the command has said on its output already what is wrong.
fn is_reported(error: &anyhow::Error) -> bool {
    error.is::<questions::examine::Unhealthy>()
        || error.is::<questions::stuck::SomethingStuck>()
        || error.is::<policy::Misunderstood>()
}

/// Options or a configuration that make no sense: ends with exit code 2, as clap's own errors do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

impl UsageError {
    fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}
