//! `kubegc`: everything that Kubernetes calls garbage collection, in one binary. [`main`] is all of it; a library it is
//! only for tests and fuzz targets.

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

mod accounts;
mod activity;
mod apiserver;
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
    /// Is everything that collection needs in order, and what does not get on?
    Doctor(questions::examine::DoctorOptions),
    /// What was done and why, from a collector's journal
    Journal(questions::journal::JournalOptions),
    /// Retention policies
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// The permissions that `kubegc run` needs, as manifests
    Rbac(rbac::Options),
    /// What hangs on an object, as a tree
    Tree(questions::TreeOptions),
    /// Why an object is, or is not, collected
    Why(questions::WhyOptions),
    /// What does not get on, and why
    Stuck(questions::StuckOptions),
    /// What would happen, without doing it
    #[command(subcommand)]
    Plan(questions::PlanCommand),
    /// Serve test frameworks that start kube-apiserver and etcd
    #[command(subcommand)]
    Envtest(envtest::EnvtestCommand),
    /// Write the completions of a shell to the output
    Completion(documents::CompletionOptions),
    /// Write the man pages of all commands into a folder
    #[command(hide = true)]
    Man(documents::ManOptions),
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
        Command::Tree(options) => questions::tree(&options),
        Command::Why(options) => questions::why(&options),
        Command::Stuck(options) => questions::stuck(&options),
        Command::Plan(command) => questions::plan(&command),
        Command::Demo(options) => demo::run(&options),
    };
    exit(done.map(|()| ExitCode::SUCCESS))
}

/// The exit code of what was done, and a line about what went wrong.
fn exit(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        // It has told what is wrong.
        Err(error) if error.is::<questions::examine::Unhealthy>() || error.is::<policy::Misunderstood>() => {
            ExitCode::FAILURE
        }
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

/// Options or a configuration that make no sense: ends with exit code 2, as clap's own errors do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

impl UsageError {
    fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}
